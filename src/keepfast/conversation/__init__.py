"""The conversation of an agent with its user: read from the client's own transcript, never written there."""
