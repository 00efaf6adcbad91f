"""Agents and their clients: payload in, event out; outcome in, answer out."""
