"""Conversation and files in, notes and a brief out."""
