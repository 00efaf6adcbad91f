"""Many contents are handed over together: each once, whole and checked, however they are asked for and by whom."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from pathlib import Path
from threading import Lock, get_ident

import pytest

from keepfast.model.errors import Damaged
from keepfast.store import bulk_read
from keepfast.store.bulk_read import read_many
from keepfast.store.digest import digest
from keepfast.store.factory import create_store
from keepfast.store.packs import RAW, ZLIB, ZSTD, PackWriter, compress, decompress_prefix
from keepfast.store.repository import Repository
from keepfast.store.rows import CHUNKS, CONTENT

CHANCE = random.Random(3)
CONTENTS = [b"%d " % number + CHANCE.randbytes(9) * CHANCE.randrange(400) for number in range(300)]


@pytest.fixture(params=[1, 9], ids=["zlib", "zstd"])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Repository]:
    """All contents in many small frames of two packs, and a list of chunks among them.

    So little is compressed with zlib, unless it is to be compressed well.
    """
    made = create_store(str(tmp_path / "store"), durable=False)
    for part in (CONTENTS[:170], CONTENTS[170:]):
        writer = PackWriter(made.blobs, level=request.param, frame=20_000)
        for content in part:
            writer.add(digest(content), content, CONTENT)
        writer.add(digest(part[0][:9]), part[0][:9], CHUNKS)
        writer.sync()
        with made.ledger.transaction() as tx:
            tx.add_pack(writer.name, writer.size, writer.entries())
            writer.finish()
    yield made
    made.close()


class Taken:
    """Who took what."""

    def __init__(self) -> None:
        self.contents: dict[int, list[bytes]] = {}
        self.threads: set[int] = set()
        self._guard = Lock()

    def __call__(self, frame: bytes, parts: list[tuple[int, int, int]]) -> None:
        with self._guard:
            self.threads.add(get_ident())
            for number, offset, length in parts:
                self.contents.setdefault(number, []).append(frame[offset : offset + length])


@pytest.mark.parametrize(("first", "asked", "enough"), [(512, 4096, 0), (1, 1, 0), (40, 7, 9000), (3, 100, 1 << 20)])
@pytest.mark.parametrize("order", ["as stored", "shuffled", "with repetitions"])
@pytest.mark.parametrize("how", ["accelerated", "plain", "one pack open"])
def test_every_content_comes_once_and_whole(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, first: int, asked: int, enough: int, order: str, how: str
) -> None:
    if how == "one pack open":
        monkeypatch.setattr(bulk_read, "OPEN_PACKS", 1)
    monkeypatch.setattr(bulk_read, "FIRST_LOOKUP", first)
    monkeypatch.setattr(bulk_read, "LOOKUP_CONTENTS", asked)
    monkeypatch.setattr(bulk_read, "ENOUGH_BYTES", enough)
    wanted = list(CONTENTS)
    if order == "shuffled":
        random.Random(1).shuffle(wanted)
    elif order == "with repetitions":
        wanted = random.Random(2).choices(CONTENTS, k=500)
    taken = Taken()

    assert read_many(repository, [digest(content) for content in wanted], taken, how != "plain") == []

    assert taken.contents == {number: [content] for number, content in enumerate(wanted)}


def test_a_frame_of_which_little_is_wanted_at_a_time_is_unpacked_once(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_read, "FIRST_LOOKUP", 10)
    monkeypatch.setattr(bulk_read, "LOOKUP_CONTENTS", 10)
    wanted = list(CONTENTS)
    random.Random(1).shuffle(wanted)
    keys = [digest(content) for content in wanted]
    handed: list[int] = []

    read_many(repository, keys, lambda frame, parts: handed.append(len(parts)))

    places = repository.ledger.locate(keys).values()
    assert len(handed) == len({(place.pack, place.frame) for place in places}) > 8
    assert sum(handed) == len(keys)


def test_what_comes_in_parts_is_named_and_left(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_read, "FIRST_LOOKUP", 2)
    lists = [digest(CONTENTS[0][:9]), digest(CONTENTS[170][:9])]
    taken = Taken()

    keys = [lists[0], *map(digest, CONTENTS), lists[1]]

    assert read_many(repository, keys, taken) == [0, len(keys) - 1]
    assert sorted(taken.contents) == list(range(1, len(keys) - 1))


def test_where_no_thread_can_be_had_one_does_it_all(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)
    taken = Taken()

    read_many(repository, [digest(content) for content in CONTENTS], taken)

    assert len(taken.contents) == len(CONTENTS) and taken.threads == {get_ident()}


def test_nothing_is_nothing(repository: Repository) -> None:
    taken = Taken()
    assert read_many(repository, [], taken) == [] and not taken.contents


@pytest.mark.parametrize("at", [0, 100, 299])
def test_a_content_that_is_not_there_is_named(repository: Repository, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    monkeypatch.setattr(bulk_read, "FIRST_LOOKUP", 40)
    monkeypatch.setattr(bulk_read, "LOOKUP_CONTENTS", 40)
    keys = [digest(content) for content in CONTENTS]
    keys[at] = digest(b"nobody has this")

    with pytest.raises(Damaged, match=keys[at].hex()):
        read_many(repository, keys, Taken())


def test_what_goes_wrong_in_either_thread_ends_both(repository: Repository) -> None:
    seen: set[int] = set()

    def take(frame: bytes, parts: list[tuple[int, int, int]]) -> None:
        seen.update([number for number, _, _ in parts])
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        read_many(repository, [digest(content) for content in CONTENTS], take)

    assert 0 < len(seen) < len(CONTENTS)


def test_a_frame_that_says_something_else_is_refused(repository: Repository) -> None:
    place = repository.ledger.locate([digest(CONTENTS[5])])[digest(CONTENTS[5])]
    path = Path(repository.blobs.folder) / f"{place.pack}.pack"  # type: ignore[attr-defined]
    data = bytearray(path.read_bytes())
    data[place.frame + 1 + place.stored // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)

    with pytest.raises(Damaged):
        read_many(repository, [digest(content) for content in CONTENTS], Taken())


@pytest.mark.parametrize("codec", [ZSTD, ZLIB, RAW])
def test_of_a_frame_no_more_is_unpacked_than_is_wanted(codec: int) -> None:
    raw = b"".join(CONTENTS) * 3
    stored = {ZSTD: compress(raw, 1), ZLIB: bytes([ZLIB]) + zlib.compress(raw), RAW: bytes([RAW]) + raw}[codec]

    assert stored[0] == codec
    for most in (1, 1000, len(raw)):
        assert decompress_prefix(stored, most)[:most] == raw[:most]
    assert codec == RAW or len(decompress_prefix(stored, 1000)) == 1000


def test_an_empty_content_comes_too(repository: Repository) -> None:
    with repository.ledger.transaction() as tx:
        writer = PackWriter(repository.blobs)
        writer.add(digest(b""), b"", CONTENT)
        writer.sync()
        tx.add_pack(writer.name, writer.size, writer.entries())
        writer.finish()
    taken = Taken()

    read_many(repository, [digest(b"")], taken)

    assert taken.contents == {0: [b""]}


def test_of_a_frame_of_tiny_contents_not_all_are_held_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame holds a hundred thousand of them; their places would take more memory than the plan of a restore."""
    monkeypatch.setattr(bulk_read, "WAITING_CONTENTS", 300)
    monkeypatch.setattr(bulk_read, "LOOKUP_CONTENTS", 200)
    made = create_store(str(tmp_path / "store"), durable=False)
    contents = [b"%06d\n" % number for number in range(4000)]
    writer = PackWriter(made.blobs)
    for content in contents:
        writer.add(digest(content), content, CONTENT)
    writer.sync()
    with made.ledger.transaction() as tx:
        tx.add_pack(writer.name, writer.size, writer.entries())
        writer.finish()
    most: list[int] = []
    taken = Taken()

    def take(frame: bytes, parts: list[tuple[int, int, int]]) -> None:
        most.append(len(parts))
        taken(frame, parts)

    assert read_many(made, [digest(content) for content in contents], take) == []

    assert taken.contents == {number: [content] for number, content in enumerate(contents)}
    assert max(most) < 300 + bulk_read.FIRST_LOOKUP + 200
    made.close()
