"""Tokens from the tail of a transcript: the right figure, and never much reading for it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from keepfast.agents.claude.usage import STEPS, last_usage

MEGABYTE, GIGABYTE = 1 << 20, 1 << 30


def line(used: int, *, model: str = "claude-opus-5-5", text: str = "", **fields: Any) -> bytes:
    message = {
        "model": model,
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": text}],
        "usage": {"input_tokens": used, "cache_creation": {"ephemeral_5m_input_tokens": 0}, "output_tokens": 0},
    }
    entry = {"isSidechain": False, "message": message, "requestId": "req_1", "type": "assistant", **fields}
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def write(path: Path, *parts: bytes) -> str:
    path.write_bytes(b"".join(parts))
    return str(path)


TOOL_RESULT = b'{"type":"user","message":{"role":"user","content":[{"type":"tool_result","content":"%s"}]}}\n'
USER = TOOL_RESULT % b"x"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([line(5)], 5),
        ([line(5), line(6)], 6),
        ([line(5), line(5), line(5)], 5),  # one answer of several blocks is several lines of one id
        ([line(5), USER, b'{"type":"brand-new","usage":{"input_tokens":99}}\n'], 5),
        ([line(5), line(99, isSidechain=True)], 5),
        ([line(5), line(99, model="<synthetic>")], 5),
        ([line(5), line(0)], 5),
        ([line(5), line(99)[:-40]], 5),  # torn in the middle of a write
        ([line(5), line(6)[:-1]], 6),  # whole, only its end of line is not there yet
        ([line(5), b"\n\n  \n"], 5),
        ([line(5), b'{"type":"assistant","message":{"usage":{"input_tokens":"many"}}}\n'], 5),
        ([line(5), b'{"type":"assistant","message":[],"x":{"usage":1}}\n'], 5),
        ([line(5), b'["assistant","usage"]\n'], 5),
        ([line(5), b'{"assistant" "usage"}\n'], 5),
        ([line(5), b"\xff\xfe\x00 assistant usage }\n"], 5),
        ([line(900), b'{"type":"system","subtype":"compact_boundary","compactMetadata":{"postTokens":40}}\n'], 40),
        ([line(900), b'{"type":"system","subtype":"compact_boundary"}\n'], 0),
        ([line(900), b'{"type":"system","subtype":"compact_boundary"}\n', line(50)], 50),
        ([USER, USER], 0),
        ([], 0),
    ],
)
def test_the_last_answer_of_the_main_conversation_counts(tmp_path: Path, parts: list[bytes], expected: int) -> None:
    assert last_usage(write(tmp_path / "t", *parts))[0] == expected


def test_all_that_fills_the_window_is_counted(tmp_path: Path) -> None:
    usage = {
        "input_tokens": 1,
        "cache_read_input_tokens": 20,
        "cache_creation_input_tokens": 300,
        "output_tokens": 4000,
    }
    entry = {"type": "assistant", "message": {"model": "m", "usage": usage}}

    assert last_usage(write(tmp_path / "t", json.dumps(entry).encode())) == (4321, "m")


@pytest.mark.parametrize("size", [70_000, 300_000, 900_000])
def test_what_follows_the_last_answer_may_be_long(tmp_path: Path, size: int) -> None:
    path = write(tmp_path / "t", line(4), line(5), TOOL_RESULT % (b"y" * size))

    assert last_usage(path) == (5, "claude-opus-5-5")


def test_an_answer_longer_than_all_that_is_read_has_its_figures_at_its_end(tmp_path: Path) -> None:
    path = write(tmp_path / "t", line(4), line(5, text="z" * 3 * MEGABYTE), USER)

    assert last_usage(path)[0] == 5


@pytest.mark.parametrize(
    "end",
    [
        b'"usage":{"input_tokens":7',
        b'"usage":{"input_tokens":7}},"isSidechain":true,"type":"assistant"}',
        b'"usage":{nonsense},"type":"assistant"}',
        b"nothing",
    ],
)
def test_a_long_line_without_a_clear_end_says_nothing(tmp_path: Path, end: bytes) -> None:
    assert last_usage(write(tmp_path / "t", b"z" * 2 * MEGABYTE, end)) == (0, "")


def reading(path: str) -> tuple[int, int]:
    """Tokens, and how many bytes were read for them."""
    read = 0

    def counted(fd: int, length: int, offset: int) -> bytes:
        nonlocal read
        data = os.pread(fd, length, offset)
        read += len(data)
        return data

    return last_usage(path, counted)[0], read


def test_a_gigabyte_is_read_no_more_than_a_megabyte(tmp_path: Path) -> None:
    """The file is made sparse: its size is what counts, and how much of it is read."""
    read = {}
    for size in (MEGABYTE, GIGABYTE):
        path = tmp_path / str(size)
        with path.open("wb") as file:
            file.truncate(size)
            file.seek(size)
            file.write(b"\n" + line(5) + TOOL_RESULT % (b"y" * 10_000))
        tokens, read[size] = reading(str(path))

        assert tokens == 5
    assert read[GIGABYTE] == read[MEGABYTE] == STEPS[0]


def test_no_file_is_read_further_than_its_last_megabyte(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with path.open("wb") as file:
        file.write(line(5))
        file.truncate(GIGABYTE)

    assert reading(str(path)) == (0, sum(STEPS))
    assert sum(STEPS) == MEGABYTE


def test_what_is_no_transcript_says_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    for path in (tmp_path, tmp_path / "missing", tmp_path / "pipe", Path("/dev/zero"), tmp_path / ("n" * 300)):
        assert last_usage(str(path)) == (0, "")
    assert last_usage("a\0b") == (0, "")
