"""The hook: an agent's client tells of an event and is answered."""
