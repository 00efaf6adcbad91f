"""Agent processes: how they are started, watched, stopped and read."""
