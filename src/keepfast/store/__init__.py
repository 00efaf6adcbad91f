"""Blobs in packs, records in logs, rows in a ledger."""
