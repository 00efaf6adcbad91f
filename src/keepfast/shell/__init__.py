"""Shell commands, read: their words, and what they would destroy."""
