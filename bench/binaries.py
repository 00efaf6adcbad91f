"""Large files, the same on every machine: half random bytes, half text-like lines."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

MB = 1 << 20
COUNT = 5
SIZE = 200 * MB
SEED = 20_200


def make_binaries(target: Path, cache: Path, say: Callable[[str], None]) -> str:
    chance = random.Random(SEED)
    for number in range(COUNT):
        with open(target / f"model-{number}.bin", "wb") as file:
            for _ in range(SIZE // 2 // MB):
                file.write(chance.randbytes(MB))
            for _ in range(SIZE // 2 // MB):
                file.write(text_like(chance, MB))
    return f"half random, half text-like, seed {SEED}"


def text_like(chance: random.Random, size: int) -> bytes:
    """Return lines of words and numbers that compress about as well as a log file."""
    parts: list[bytes] = []
    length = 0
    while length < size:
        words = b" ".join(chance.choices(WORDS, k=1000))
        line = b"%d %s\n" % (chance.getrandbits(40), words)
        parts.append(line)
        length += len(line)
    return b"".join(parts)[:size]


def make_words() -> list[bytes]:
    chance = random.Random(1)
    letters = b"etaoinshrdlucmfwyp"
    return [bytes(chance.choices(letters, k=chance.randint(2, 11))) for _ in range(5000)]


WORDS = make_words()
