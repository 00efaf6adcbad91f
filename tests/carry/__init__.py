"""Forks and bundles: a state that leaves its folder, and comes back."""
