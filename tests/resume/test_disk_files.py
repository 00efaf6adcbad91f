"""Excerpts come from the disk as it is now; what differs is marked, and nothing outside the root is opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from keepfast.agents.working_file import Span, WorkingFile
from keepfast.resume import brief
from keepfast.resume import disk_files as disk
from keepfast.resume.notes import Notes
from keepfast.secrets.redaction import redact


def file(path: Path | str, *lines: str | None) -> WorkingFile:
    return WorkingFile(str(path), list(lines), touched=3, hunks=[Span(3, 2, 1)], reads=[Span(2, 1, 3)])


def test_an_unchanged_file_is_shown_from_disk(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a\nb\nc\n")

    (found,) = disk.look([file(tmp_path / "a.py", "a", None, "c")], str(tmp_path))

    assert found.lines == ["a", "b", "c", ""]
    assert not found.changed


def test_a_changed_file_is_marked_and_its_places_move(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("new\nnewer\na\nb\nc\n")
    known = file(tmp_path / "a.py", "a", "b", "c", "")
    known.hunks = [Span(3, 3, 1)]

    (found,) = disk.look([known], str(tmp_path))

    assert found.changed
    assert found.hunks[0].start == 5


def test_a_lost_file_is_gone(tmp_path: Path) -> None:
    (found,) = disk.look([file(tmp_path / "a.py", "a")], str(tmp_path))

    assert found.is_missing


def test_a_workspace_that_moved_is_followed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a\n")

    (found,) = disk.look([file("/old/place/a.py", "a", "")], str(tmp_path), "/old/place")

    assert found.lines == ["a", ""]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("link", "link"),
        ("linked folder", "link"),
        ("folder", "folder"),
        ("pipe", "pipe"),
        ("binary", "binary"),
        ("late NUL", "binary"),
        ("large", "too large"),
    ],
)
def test_of_what_is_no_readable_file_below_the_root_nothing_is_shown(
    tmp_path: Path, kind: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    path = root / "a"
    if kind == "link":
        path.symlink_to(secret)
    elif kind == "linked folder":
        (root / "d").symlink_to(tmp_path)
        path = root / "d" / "secret"
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "binary":
        path.write_bytes(b"\0\1")
    elif kind == "late NUL":
        path.write_bytes(b"text\n" * 5_000 + b"\0")
    else:
        monkeypatch.setattr(disk, "MAX_FILE_BYTES", 3)
        path.write_text("longer")

    (found,) = disk.look([file(path, "as known")], str(root))

    assert (found.lines, found.unshown) == ([], why)
    assert not found.changed and not found.is_missing


@pytest.mark.parametrize("kind", ["outside", "dots"])
def test_what_lies_outside_is_not_opened_and_is_marked_as_seen(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    secret = tmp_path / "secret"
    secret.write_text("secret\n")

    (found,) = disk.look([file(secret if kind == "outside" else root / ".." / "secret", "as known")], str(root))

    assert (found.lines, found.remark) == (["as known"], disk.AS_SEEN)


def test_bytes_that_are_no_text_are_kept_as_they_are(tmp_path: Path) -> None:
    """The client gives U+FFFD for them; that is no change."""
    (tmp_path / "a.py").write_bytes(b"name = 'caf\xe9'\r\nb\n")

    (found,) = disk.look([file(tmp_path / "a.py", "name = 'caf\ufffd'", "b", "")], str(tmp_path))

    assert found.lines == ["name = 'caf\udce9'", "b", ""]
    assert not found.changed


def test_a_key_beside_a_byte_that_is_no_text_is_struck_out(tmp_path: Path) -> None:
    """As an escape, that byte would end with a letter, and the key would seem to be a part of a longer word."""
    key = b"AKIA" + b"QYLPMN5HFIQR7XYA"
    (tmp_path / "a.py").write_bytes(b"name = '\xff" + key + b"'\n")
    notes = Notes(cwd=str(tmp_path))

    built = brief.build(notes, disk.look([file(tmp_path / "a.py")], str(tmp_path)), redact=redact)

    assert "name = '\\xff[redacted:" in built.text and key.decode() not in built.text


def test_only_the_newest_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "MAX_FILES", 1)
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")

    found = disk.look([file(tmp_path / "a", "?"), file(tmp_path / "b", "?")], str(tmp_path))

    assert [one.lines for one in found] == [["a"], ["?"]]
    assert [one.remark for one in found] == ["", disk.AS_SEEN]
