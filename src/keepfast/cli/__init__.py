"""The command line. A command's module is imported only when it runs."""
