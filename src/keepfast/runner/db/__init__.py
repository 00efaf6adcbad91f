"""The task database."""
