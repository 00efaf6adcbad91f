"""What people and runs do to tasks, and what is kept of it."""
