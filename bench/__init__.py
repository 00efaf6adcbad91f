"""The bench: holdfast beside shadow git, restic and borg, in one interleaved run."""
