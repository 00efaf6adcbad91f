"""What is sealed under one name is sealed under every other: hard links, and copies."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest
from blake3 import blake3

from keepfast.model.entry import SEALED
from keepfast.store.factory import open_store
from tests.equipment.box import Box

SECRET = "colour of the boat: tangerine dream\n"
"""Nothing in it looks like a secret: only the name of the file says so."""


@pytest.fixture
def box(tmp_path: Path) -> Box:
    box = Box(tmp_path / "here")
    assert box.call("init").code == 0
    return box


def sealed(box: Box) -> set[str]:
    """The files of the newest version that are sealed."""
    with closing(open_store(str(box.store), durable=False)) as repository:
        (row,) = repository.ledger.workspaces()
        rows = list(repository.ledger.state(row.id, row.version))
    return {os.fsdecode(row.path) for row in rows if row.flags & SEALED}


def lies_in_the_clear(box: Box, text: str = SECRET) -> bool:
    with closing(open_store(str(box.store), durable=False)) as repository:
        return repository.contents.has(blake3(text.encode()).digest())


@pytest.mark.parametrize("name", ["aaa.bin", "zzz.c", "deep/below/it.md"])
def test_a_copy_in_the_same_save_is_sealed_whichever_is_read_first(box: Box, name: str) -> None:
    box.put(".env", SECRET)
    box.put(name, SECRET)
    box.put("other.c", "x" * len(SECRET))
    box.save("-m", "first")

    assert sealed(box) == {".env", name}
    assert not lies_in_the_clear(box)
    assert box.call("cat", "latest", name).out == SECRET
    assert box.call("diff", "latest", "--json").json()["changes"] == []


def test_a_copy_of_what_an_earlier_save_sealed_is_sealed_and_stays_so(box: Box) -> None:
    box.put(".env", SECRET)
    box.save("-m", "first")
    box.put("copy.c", SECRET)
    assert [one["path"] for one in box.call("diff", "latest", "--json").json()["changes"]] == ["copy.c"]
    box.save("-m", "second")
    (box.project / ".env").unlink()
    box.save("-m", "third")
    os.utime(box.project / "copy.c", (1, 1))
    (box.project / "copy.c").rename(box.project / "moved.c")
    box.save("-m", "fourth")

    assert sealed(box) == {"moved.c"}
    assert not lies_in_the_clear(box)
    assert box.call("cat", "latest", "moved.c").out == SECRET


def test_a_copy_is_known_after_a_rotation(box: Box) -> None:
    box.put(".env", SECRET)
    box.save("-m", "first")
    assert box.call("key", "rotate", "-y").code == 0
    box.put("copy.c", SECRET)
    box.save("-m", "second")

    assert sealed(box) == {".env", "copy.c"}


def test_a_file_sealed_by_its_words_takes_its_copy_along(box: Box) -> None:
    """A word such as `password` does not count in a program, unless the whole file is one of settings."""
    text = "host: localhost\npassword: Zq7-Lm2-Xw9-RtB\n"
    box.put("settings.yaml", text)
    box.put("a.c", text)
    box.save("-m", "first")

    assert sealed(box) == {"a.c", "settings.yaml"}
    assert not lies_in_the_clear(box, text)


def test_a_hard_link_is_sealed_however_short_it_is(box: Box) -> None:
    box.put(".env", "A=hunter2")
    os.link(box.project / ".env", box.project / "aaa.c")
    box.put("bbb.c", "A=hunter2")
    box.save("-m", "first")
    os.link(box.project / "aaa.c", box.project / "later.c")
    box.save("-m", "second")

    assert sealed(box) == {".env", "aaa.c", "later.c"}


def test_large_copies_are_sealed(box: Box) -> None:
    large = bytes(range(256)) * 20_000
    box.put("vault.kdbx", large)
    box.put("a.bin", large)
    box.put("b.bin", large + b"x")
    box.save("-m", "first")
    box.put("later.bin", large)
    box.save("-m", "second")

    assert sealed(box) == {"a.bin", "later.bin", "vault.kdbx"}


@pytest.mark.parametrize("content", ["", "\n", "DEBUG=1\n"])
def test_an_empty_or_tiny_secret_file_takes_no_other_along(box: Box, content: str) -> None:
    box.put(".env", content)
    box.put("a.c", content)
    box.save("-m", "first")
    box.put("b.c", content)
    box.save("-m", "second")

    assert sealed(box) == {".env"}


def test_without_the_key_a_copy_is_saved_all_the_same(box: Box) -> None:
    box.put(".env", SECRET)
    box.save("-m", "first")
    for path in (box.home / ".local/share/keepfast/keys").iterdir():
        path.unlink()
    box.put("copy.c", SECRET)

    assert box.call("save", "-m", "second").code == 0
    assert box.call("cat", "latest", "copy.c").out == SECRET
