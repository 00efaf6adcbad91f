"""Verify, repair, rebuild, forget and compact a store."""
