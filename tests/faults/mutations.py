"""Random damage to the files of a store: flipped bits, cut ends, swapped ranges and swapped files."""

from __future__ import annotations

from pathlib import Path
from random import Random

KINDS = {
    "pack": "packs/*.pack",
    "log": "log/*.log",
    "ledger": "ledger.db",
    "format": "format",
    "seal": "seal",
    "cache": "workspaces/*/cache",
    "paths": "paths",
    "search": "search.db",
    "notices": "workspaces/*/notices",
    "reserve": "reserve",
}
WEIGHTS = {"pack": 8, "log": 6, "ledger": 10, "search": 2}
"""How often a kind is chosen; those that are not named, once."""


def mutate(store: Path, random: Random, kind: str = "") -> str:
    """Damage one file, or two of the same kind, and say what was done."""
    kinds = [name for name, pattern in KINDS.items() if _files(store, pattern)]
    kind = kind or random.choices(kinds, [WEIGHTS.get(name, 1) for name in kinds])[0]
    files = _files(store, KINDS[kind])
    path = random.choice(files)
    if len(files) > 1 and random.random() < 0.15:
        other = random.choice([file for file in files if file != path])
        one, two = path.read_bytes(), other.read_bytes()
        path.write_bytes(two)
        other.write_bytes(one)
        return f"{path.relative_to(store)} and {other.relative_to(store)} swapped"
    data = path.read_bytes()
    changed, words = random.choice([_flip, _flip, _flip, _cut, _swap_ranges])(data, random)
    path.write_bytes(changed)
    return f"{path.relative_to(store)} ({len(data)} bytes): {words}"


def _files(store: Path, pattern: str) -> list[Path]:
    return sorted(path for path in store.glob(pattern) if path.stat().st_size)


def _flip(data: bytes, random: Random) -> tuple[bytes, str]:
    at, bit = random.randrange(len(data)), random.randrange(8)
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return bytes(changed), f"bit {bit} of byte {at} flipped"


def _cut(data: bytes, random: Random) -> tuple[bytes, str]:
    size = random.choice([random.randrange(len(data)), max(0, len(data) - random.randrange(1, 200))])
    lines = data.count(b"\n")
    if lines and random.random() < 0.5:  # at the end of a line: what is left looks whole
        ends = [at for at, byte in enumerate(data) if byte == 10]
        size = random.choice([0, *[end + 1 for end in ends[:-1]]])
    return data[:size], f"cut to {size} bytes"


def _swap_ranges(data: bytes, random: Random) -> tuple[bytes, str]:
    length = random.choice([1, 8, 32, 64, 512, 4096])
    if len(data) < 2 * length:
        return _flip(data, random)
    one = random.randrange(len(data) - 2 * length + 1)
    two = random.randrange(one + length, len(data) - length + 1)
    if random.random() < 0.3:  # whole pages or records, where everything inside stays right
        one, two = one // length * length, two // length * length
    if one + length > two:
        return _flip(data, random)
    first, second = data[one : one + length], data[two : two + length]
    changed = data[:one] + second + data[one + length : two] + first + data[two + length :]
    return changed, f"{length} bytes at {one} and at {two} swapped"
