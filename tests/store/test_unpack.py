"""Whole frames by one call: what it hands over is right to the last bit, and wherever it is not sure it says so."""

from __future__ import annotations

import os
import random
import zlib
from pathlib import Path

import pytest
from blake3 import blake3

from keepfast.store import bulk_read
from keepfast.store.compression import zstd_module
from keepfast.store.packs import MAX_SHARED_FRAME, RAW, ZLIB, ZSTD, compress
from keepfast.store.rows import CONTENT, Location

_unpack = pytest.importorskip("keepfast.store._unpack", reason="no compiler was at hand")

CHANCE = random.Random(11)
FRAME = CHANCE.randbytes(700_000) + bytes(300_000)
EDGES = [
    0,
    1,
    63,
    64,
    65,
    127,
    128,
    1023,
    1024,
    1025,
    2047,
    2048,
    2049,
    3072,
    3073,
    4096,
    7 * 1024,
    8 * 1024 + 1,
    100_000,
]
LANES = [4, 8, 16]
"""What does not exist on this processor falls back to fewer."""

Wanted = list[tuple[int, Location]]


def wanted(spans: list[tuple[int, int]]) -> tuple[Wanted, list[bytes]]:
    places = [(number, Location("", 0, 0, start, length, CONTENT)) for number, (start, length) in enumerate(spans)]
    return places, [blake3(FRAME[start : start + length]).digest() for start, length in spans]


def some(count: int) -> list[tuple[int, int]]:
    lengths = [CHANCE.choice([*EDGES, CHANCE.randrange(3000), CHANCE.randrange(60_000)]) for _ in range(count)]
    return [(CHANCE.randrange(len(FRAME) - length + 1), length) for length in lengths]


@pytest.fixture
def unpack() -> bulk_read.Unpack:
    found = bulk_read._native_unpack()
    assert found is not None
    return found


def stored(tmp_path: Path, data: bytes, before: bytes = b"before") -> int:
    """A descriptor of a file that holds these bytes at offset 6."""
    (tmp_path / "pack").write_bytes(before + data + b"after")
    return os.open(tmp_path / "pack", os.O_RDONLY)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("length", EDGES)
def test_a_content_of_any_length_has_the_digest_that_blake3_says(lanes: int, length: int) -> None:
    places, keys = wanted([(5, length)])
    assert _unpack.check(FRAME, places, keys, lanes)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("count", [2, 3, 15, 16, 17, 90])
def test_many_contents_side_by_side_do_not_disturb_one_another(lanes: int, count: int) -> None:
    for _ in range(5):
        places, keys = wanted(some(count))
        assert _unpack.check(FRAME, places, keys, lanes)


@pytest.mark.parametrize("lanes", LANES)
def test_one_bit_that_is_wrong_anywhere_is_seen(lanes: int) -> None:
    places, keys = wanted([(100, 5000), (9000, 64), (9064, 1024), (20_000, 70_000)])
    for at in (100, 5099, 9000, 9063, 9064, 10_087, 20_000, 54_321, 89_999):
        turned = bytearray(FRAME)
        turned[at] ^= 1 << CHANCE.randrange(8)
        assert not _unpack.check(bytes(turned), places, keys, lanes)
    for number in range(len(keys)):
        other = list(keys)
        other[number] = bytes([keys[number][0] ^ 1]) + keys[number][1:]
        assert not _unpack.check(FRAME, places, other, lanes)


def test_a_frame_comes_whole_with_its_parts(unpack: bulk_read.Unpack, tmp_path: Path) -> None:
    spans = some(50)
    places, keys = wanted(spans)
    packed = compress(FRAME, 1)
    assert packed[0] == ZSTD
    file = stored(tmp_path, packed)

    found = unpack(file, 6, len(packed), MAX_SHARED_FRAME, places, keys)

    assert found is not None and found[0] == FRAME
    assert found[1] == [(number, start, length) for number, (start, length) in enumerate(spans)]
    os.close(file)


@pytest.mark.parametrize(
    ("form", "most"),
    [
        (bytes([RAW]) + FRAME, MAX_SHARED_FRAME),
        (bytes([ZLIB]) + zlib.compress(FRAME, 1), MAX_SHARED_FRAME),
        (compress(FRAME, 1), len(FRAME) - 1),
        (compress(FRAME[:-1], 1), MAX_SHARED_FRAME),
        (compress(FRAME, 1)[:-9], MAX_SHARED_FRAME),
        (compress(b"other" + FRAME[5:], 1), MAX_SHARED_FRAME),
        (bytes([ZSTD]) + b"no frame at all", MAX_SHARED_FRAME),
        (bytes([ZSTD]), MAX_SHARED_FRAME),
        (b"", MAX_SHARED_FRAME),
    ],
    ids=["raw", "zlib", "too large", "too short", "cut off", "other bytes", "nonsense", "empty frame", "nothing"],
)
def test_what_is_not_for_it_or_not_right_is_left(
    unpack: bulk_read.Unpack, tmp_path: Path, form: bytes, most: int
) -> None:
    places, keys = wanted([(0, len(FRAME))])
    file = stored(tmp_path, form)
    assert unpack(file, 6, len(form), most, places, keys) is None
    os.close(file)


def test_a_file_that_ends_too_early_is_left(unpack: bulk_read.Unpack, tmp_path: Path) -> None:
    places, keys = wanted([(0, 10)])
    packed = compress(FRAME, 1)
    file = stored(tmp_path, packed)
    assert unpack(file, 60, len(packed), MAX_SHARED_FRAME, places, keys) is None
    assert unpack(file, 1 << 40, len(packed), MAX_SHARED_FRAME, places, keys) is None
    os.close(file)
    assert unpack(file, 6, len(packed), MAX_SHARED_FRAME, places, keys) is None


def test_nonsense_is_refused_before_anything_is_read(unpack: bulk_read.Unpack) -> None:
    key = bytes(32)
    for places, keys in (
        ([(0, Location("", 0, 0, -1, 5, 0))], [key]),
        ([(0, Location("", 0, 0, 0, -5, 0))], [key]),
        ([(0, Location("", 0, 0, 0, 5, 0))], [key[:31]]),
        ([(1, Location("", 0, 0, 0, 5, 0))], [key]),
        ([(0, (1, 2))], [key]),
    ):
        with pytest.raises((ValueError, IndexError)):
            unpack(0, 0, 100, 100, places, keys)  # type: ignore[arg-type]


def test_zstandard_is_only_taken_from_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no library")
    assert not _unpack.use(str(tmp_path / "text"))
    assert not _unpack.use(_unpack.__file__)
    assert bulk_read._native_unpack() is not None  # and it is found again
    assert zstd_module().__spec__.origin
