"""The bench: keepfast beside shadow git, restic and borg, in one interleaved run."""
