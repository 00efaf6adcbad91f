"""The real client, driven against a scripted model on loopback."""
