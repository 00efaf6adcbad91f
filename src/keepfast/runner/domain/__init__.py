"""The rules of unattended tasks, without I/O."""
