"""Unattended runs: tasks, phases, holds, limits, recovery (docs/unattended.md)."""
