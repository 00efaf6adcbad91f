"""Notices lie in folders that can come with a repository: no link there leads them elsewhere, no pipe holds them up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from keepfast.state.notices import MAX_FILE_BYTES, append, read


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


def add(*folders: Path, text: str = "text") -> bool:
    return append([str(folder) for folder in folders], 1, "failed", "auto", text)


def texts(*folders: Path) -> list[str]:
    return [notice.text for notice in read([str(folder) for folder in folders])]


def test_a_notice_goes_into_the_first_folder_that_takes_it(folder: Path, tmp_path: Path) -> None:
    assert add(tmp_path / "none", folder)
    assert texts(tmp_path / "none", folder) == ["text"]


def test_a_link_in_the_place_of_the_folder_is_neither_written_nor_read_through(folder: Path, tmp_path: Path) -> None:
    assert add(folder, text="before")
    (tmp_path / "link").symlink_to(folder)

    assert not add(tmp_path / "link")
    assert texts(tmp_path / "link") == []
    assert texts(folder) == ["before"]


def test_a_link_in_the_place_of_the_file_is_neither_written_nor_read_through(folder: Path, tmp_path: Path) -> None:
    assert add(folder, text="before")
    (folder / "notices").rename(tmp_path / "elsewhere")
    before = (tmp_path / "elsewhere").read_bytes()
    (folder / "notices").symlink_to(tmp_path / "elsewhere")

    assert not add(folder)
    assert texts(folder) == []
    assert (tmp_path / "elsewhere").read_bytes() == before


def test_a_link_to_nothing_makes_no_file_elsewhere(folder: Path, tmp_path: Path) -> None:
    (folder / "notices").symlink_to(tmp_path / "elsewhere")

    assert not add(folder)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.timeout(20)
def test_a_pipe_in_the_place_of_the_file_holds_nobody_up(folder: Path) -> None:
    os.mkfifo(folder / "notices")

    assert not add(folder)
    assert texts(folder) == []


def test_the_newer_ones_are_kept_where_they_become_too_many(folder: Path) -> None:
    for number in range(2 * MAX_FILE_BYTES // 1000):
        assert add(folder, text=f"{number} ".ljust(1000, "x"))

    found = texts(folder)
    assert (folder / "notices").stat().st_size <= MAX_FILE_BYTES
    assert found[-1].startswith(f"{2 * MAX_FILE_BYTES // 1000 - 1} ")
    assert not found[0].startswith("0 ")
