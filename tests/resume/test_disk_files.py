"""Excerpts come from the disk as it is now; what differs is marked, and nothing outside the root is opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from keepfast.agents.working_file import Span, WorkingFile
from keepfast.resume import disk_files as disk


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

    assert found.gone


def test_a_workspace_that_moved_is_followed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a\n")

    (found,) = disk.look([file("/old/place/a.py", "a", "")], str(tmp_path), "/old/place")

    assert found.lines == ["a", ""]


@pytest.mark.parametrize("kind", ["link", "linked folder", "pipe", "binary", "latin-1", "outside", "dots", "large"])
def test_what_is_no_plain_text_below_the_root_is_left_as_known(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
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
    elif kind == "binary":
        path.write_bytes(b"\0\1")
    elif kind == "latin-1":
        path.write_bytes(b"caf\xe9")
    elif kind == "outside":
        path = secret
    elif kind == "dots":
        path = root / ".." / "secret"
    else:
        monkeypatch.setattr(disk, "LARGEST", 3)
        path.write_text("longer")
    known = file(path, "as known")

    (found,) = disk.look([known], str(root))

    assert found.lines == ["as known"]


def test_only_the_newest_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "MOST_FILES", 1)
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")

    found = disk.look([file(tmp_path / "a", "?"), file(tmp_path / "b", "?")], str(tmp_path))

    assert [one.lines for one in found] == [["a"], ["?"]]
