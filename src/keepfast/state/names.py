"""Names of small files in the folder that a store keeps for a workspace."""

UNSAVED = "/unsaved"
"""There while the last save failed: why (see `notices.py`)."""
