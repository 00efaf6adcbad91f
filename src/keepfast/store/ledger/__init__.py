"""The embedded ledger in SQLite."""
