"""The folder a person works in: finding, scanning, reading it."""
