"""Fault tests: processes killed, calls failing, disks full, power lost; and the tools that make it happen."""
