"""The page and its API, attacked over real sockets and used in a real browser."""
