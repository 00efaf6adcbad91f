"""Ids: sortable by time for people, never trusted for order by the store."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def checkpoint_id(now_ns: int, noise: bytes) -> str:
    """`cp-` and 26 characters: 48 bits of milliseconds, 80 bits of noise."""
    number = (now_ns // 1_000_000 & (1 << 48) - 1) << 80 | int.from_bytes(noise[:10], "big")
    return "cp-" + "".join([_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5)])
