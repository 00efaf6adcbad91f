"""docs/format/store.md is right: its code reads a real pack, its table adds up, its rules for lines hold."""

from __future__ import annotations

import io
import json
import re
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from keepfast.model import document
from keepfast.model.entry import Entry
from keepfast.store.digest import digest
from keepfast.store.factory import create_store
from keepfast.store.packs import read_index
from keepfast.store.records import Chain
from keepfast.store.repository import Repository
from keepfast.store.rows import CHUNKS, CONTENT, DOCUMENT

DOCS = Path(__file__).parents[2] / "docs" / "format"
PAGE = (DOCS / "store.md").read_text("utf-8")
CONTENTS = {b"a.txt": b"hi\n", b"empty": b"", b"long": b"line\n" * 400_000, b"noise": bytes(range(256)) * 9}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A store with one save: four small files and a large one."""
    repository = create_store(str(tmp_path / "store"), durable=False)
    repository.register("ws", b"/w", 1)
    saving = repository.begin("ws")
    rows = {}
    for path, content in CONTENTS.items():
        rows[path] = Entry(path, "f", 0o644, 0, len(content), 0, 0, saving.small(content), b"")
    large = b"".join([blake3(b"%d" % number).digest() for number in range(160_000)])
    key = saving.large(io.BytesIO(large).read)
    rows[b"large"] = Entry(b"large", "f", 0o644, 0, len(large), 0, 0, key, b"")
    header = {
        "id": "cp-1", "created_at": 1, "trigger": "manual", "created_by": "user", "message": "", "name": None,
        "tags": [], "pinned": False, "session": None, "task": None,
    }  # fmt: skip
    saving.finish(header, *saving.changes(rows, None))
    return repository


@pytest.fixture
def pack(repository: Repository) -> bytes:
    (name,) = repository.blobs.names()
    return repository.blobs.read(name, 0, repository.blobs.size(name))


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def code_on_the_page() -> Callable[[bytes], Iterator[tuple[str, bytes]]]:
    (code,) = re.findall(r"```python\n(.*?)```", section("Reading a pack by hand"), re.DOTALL)
    if sys.version_info >= (3, 14):
        code = re.sub(r"^from backports import zstd .*# Python 3.14: ", "", code, flags=re.MULTILINE)
    names: dict[str, Any] = {}
    exec(code, names)
    blobs: Callable[[bytes], Iterator[tuple[str, bytes]]] = names["blobs"]
    return blobs


def test_the_code_on_the_page_reads_a_real_pack(repository: Repository, pack: bytes) -> None:
    found = dict(code_on_the_page()(pack))

    (name,) = repository.blobs.names()
    places = dict(read_index(repository.blobs, name)[1])
    assert list(found) == [key.hex() for key in places]
    assert {place.kind for place in places.values()} == {CONTENT, CHUNKS, DOCUMENT}
    for key, place in places.items():
        if place.kind == CHUNKS:
            chunks = [found[found[key.hex()][at : at + 32].hex()] for at in range(0, place.length, 32)]
            assert digest(b"".join(chunks)) == key
        else:
            assert digest(found[key.hex()]) == key
    for content in CONTENTS.values():
        assert found[digest(content).hex()] == content


def test_the_frames_of_that_pack_use_all_three_codecs(repository: Repository, pack: bytes) -> None:
    """So that the code on the page was tried with each."""
    (name,) = repository.blobs.names()

    assert {pack[frame[0]] for frame in read_index(repository.blobs, name)[2]} == {0, 1, 2}


def rows_of_the_table() -> list[tuple[str, str, str]]:
    table = [line.strip("|").split("|") for line in section("Pack").splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in table[0]] == ["offset", "bytes", "what"]
    return [(row[0].strip(), row[1].strip(), row[2].strip()) for row in table[2:]]


def test_the_layout_table_adds_up_to_a_real_pack(pack: bytes) -> None:
    table, frames, blobs = struct.unpack("<QQQ", pack[-64:-40])
    at = 0
    seen = {}
    for offset, size, what in rows_of_the_table():
        if offset.startswith("end"):
            assert at == len(pack) - int(offset.removeprefix("end −")), what
        elif offset:
            assert at == int(offset), what
        number, _, factor = size.rpartition(" ")
        if size == "…":
            length = table - at
        elif factor in ("F", "B"):
            length = int(number or 1) * {"F": frames, "B": blobs}[factor]
        else:
            length = int(size)
        seen[what] = pack[at : at + length]
        at += length

    assert at == len(pack)
    parts = list(seen.values())
    assert len(parts) == 11
    assert (parts[0], parts[10]) == (b"HFPACK1\n", b"HFPEND1\n")
    for what in (r"`HFPACK1\n`", r"`HFPEND1\n`"):
        assert what in seen
    index = b"".join(parts[2:9])
    assert parts[9] == blake3(index).digest()
    assert set(parts[5]) <= {0, 1, 2}


def test_the_frames_of_the_table_lie_back_to_back_and_hold_the_blobs(pack: bytes) -> None:
    table, frames, blobs = struct.unpack("<QQQ", pack[-64:-40])
    lengths = struct.unpack_from(f"<{blobs}Q", pack, table + 32 * frames + 32 * blobs)
    at, blob = 8, 0
    for number in range(frames):
        offset, stored, raw, inside = struct.unpack_from("<QQQQ", pack, table + 32 * number)
        assert offset == at
        assert raw == sum(lengths[blob : blob + inside])
        at, blob = at + stored, blob + inside

    assert (at, blob) == (table, blobs)


def test_a_packs_name_is_the_first_half_of_the_digest_of_its_index(repository: Repository, pack: bytes) -> None:
    assert repository.blobs.names() == [pack[-40:-24].hex()]


def test_log_lines_are_chained_as_the_page_says(repository: Repository) -> None:
    head = bytes(32)
    for line in repository.records.read("ws").splitlines(keepends=True):
        body, tail = line[:-66], line[-66:]
        head = blake3(head + body).digest()
        assert tail == b" " + head.hex().encode() + b"\n"


def test_every_record_and_key_written_is_on_the_page(repository: Repository) -> None:
    log = section("Log")
    for record in Chain(repository.records.read("ws")).records:
        (line,) = [line for line in log.splitlines() if line.startswith("|") and f"`{record['r']}`" in line]
        assert [key for key in record if key != "r" and f"`{key}`" not in line] == []


def test_the_folder_is_laid_out_as_the_page_says(repository: Repository, tmp_path: Path) -> None:
    (layout,) = re.findall(r"```\n(.*?)```", section("Layout"), re.DOTALL)
    on_page = {re.split(r"[/\s]", line)[0] for line in layout.splitlines()}

    names = {path.name for path in (tmp_path / "store").iterdir()}
    assert {name.removesuffix("-journal") for name in names} <= on_page
    for path in (tmp_path / "store").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    lines = (tmp_path / "store" / "format").read_text().splitlines()
    assert lines == ["holdfast store", "version 1", f"id {repository.id}"]
    assert re.fullmatch("[0-9a-f]{32}", repository.id)


def test_the_worked_example_of_a_checkpoint_is_what_is_written() -> None:
    """docs/format/checkpoint.md: one file `a.txt`, mode 644, content `hi\\n`."""
    key = blake3(b"hi\n").digest()
    header = {
        "v": 1, "id": "cp-1", "created_at": 1, "keyframe": True, "parent": None, "trigger": "manual",
        "created_by": "user", "message": "", "name": None, "tags": [], "pinned": False, "session": None, "task": None,
        "counts": {"f": 1, "bytes": 3}, "tree": "0" * 64,
    }  # fmt: skip
    data = document.encode(document.Header(header), [Entry(b"a.txt", "f", 0o644, 0, 3, 5, 0, key, b"")])

    length = struct.unpack_from("<Q", data, 8)[0]
    assert data[:8] == b"HFDOC01\n"
    assert data[16:24] == struct.pack("<Q", 1)
    assert json.loads(data[24 : 24 + length]) == header
    assert data[24 + length :] == (
        b"f" + struct.pack("<H", 0x01A4) + b"\0" + struct.pack("<QqQ", 3, 5, 0) + b"a.txt\0" + key
    )
