"""The resident: one background process per user and data folder that answers hooks without starting Python (docs/resident.md)."""
