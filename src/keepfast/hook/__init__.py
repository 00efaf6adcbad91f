"""The hook: an agent's client reports an event on standard input and gets a reply."""
