"""Hook, command line, and later the page: they translate, nothing else."""
