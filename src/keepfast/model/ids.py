"""Checkpoint ids: sortable by time for people; the store never relies on their order."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def checkpoint_id(now_ns: int, noise: bytes) -> str:
    """Return `cp-` and 26 characters: 48 bits of milliseconds, 80 random bits."""
    number = (now_ns // 1_000_000 & (1 << 48) - 1) << 80 | int.from_bytes(noise[:10], "big")
    return "cp-" + "".join([_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5)])
