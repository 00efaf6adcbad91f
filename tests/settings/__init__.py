"""Settings: every key from every source, checked and never looser than the user chose."""
