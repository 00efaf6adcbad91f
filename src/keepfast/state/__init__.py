"""What processes tell one another through small files: pending events, sessions, workers, notices."""
