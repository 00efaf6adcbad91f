"""Reading makes a row of every kind of file, and trusts nothing that changed after the scan."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from blake3 import blake3

from keepfast.model.entry import SPARSE, Entry
from keepfast.workspace import reader as read
from keepfast.workspace.capture import Capture
from keepfast.workspace.walk import Scan, walk

FAR = 1 << 62


class Contents:
    """A sink that keeps everything, and knows which way it came."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, bytes]] = []

    def small(self, data: bytes) -> bytes:
        return self._keep("small", data)

    def large(self, read: Callable[[int], bytes]) -> bytes:
        return self._keep("large", b"".join(iter(lambda: read(1 << 20), b"")))

    def sealed(self, read: Callable[[int], bytes]) -> bytes:
        return self._keep("sealed", b"".join(iter(lambda: read(1 << 20), b"")))

    def is_copy(self, size: int, data: bytes | None) -> bool:
        return False

    def _keep(self, way: str, data: bytes) -> bytes:
        self.kept.append((way, data))
        return blake3(data).digest()


def captured(root: Path, between: Callable[[], object] | None = None) -> tuple[dict[bytes, Entry], Contents, Scan]:
    fd = os.open(root, os.O_RDONLY)
    try:
        scan = walk(fd, None, Capture(ignored="all"), FAR, lambda path: False)
        if between is not None:
            between()
        sink = Contents()
        return read.capture(fd, scan, FAR, sink), sink, scan
    finally:
        os.close(fd)


def test_every_kind_of_file_makes_its_row(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"text")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "id_rsa").write_bytes(b"secret by name")
    (tmp_path / "large").write_bytes(b"x" * (read.LARGE + 1))
    (tmp_path / "just small").write_bytes(b"x" * read.LARGE)
    (tmp_path / "sparse").write_bytes(b"")
    os.truncate(tmp_path / "sparse", 1 << 20)
    (tmp_path / "linked").write_bytes(b"two names")
    os.link(tmp_path / "linked", tmp_path / "link")
    os.symlink("plain", tmp_path / "symlink")
    for name, seconds in (("early", -(1 << 33)), ("late", 1 << 34), ("before the epoch", -1)):
        (tmp_path / name).write_bytes(b"old")
        try:
            os.utime(tmp_path / name, (seconds, seconds))
        except OSError:
            (tmp_path / name).unlink()
    try:
        os.setxattr(tmp_path / "plain", "user.mark", b"1")
    except (OSError, AttributeError):
        pass

    rows, sink, _ = captured(tmp_path)

    assert rows[b"link"].group == rows[b"linked"].group != 0
    assert rows[b"plain"].size == 4 and rows[b"id_rsa"].flags and not rows[b"just small"].flags
    assert rows[b"plain"].content == blake3(b"text").digest() and rows[b"empty"].size == 0
    assert rows[b"sparse"].flags & SPARSE and rows[b"symlink"].content == b"plain"
    assert ("sealed", b"secret by name") in sink.kept and ("small", b"text") in sink.kept
    assert [way for way, data in sink.kept if len(data) > read.LARGE] == ["large"]


def _by_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(b"other bytes"),
        lambda path: path.write_bytes(b"BYTES"),
        lambda path: os.chmod(path, 0o600),
        lambda path: path.unlink(),
        _by_a_pipe,
        lambda path: (path.unlink(), path.symlink_to("elsewhere")),
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: (path.rename(path.with_name("moved")), path.write_bytes(b"bytes")),
    ],
    ids=["longer", "as long", "mode", "gone", "a pipe", "a link", "a folder", "another file"],
)
def test_what_changes_after_the_scan_is_not_trusted(tmp_path: Path, change: Callable[[Path], object]) -> None:
    (tmp_path / "file").write_bytes(b"bytes")

    rows, _, scan = captured(tmp_path, partial(change, tmp_path / "file"))

    [at] = [number for number, name in enumerate(scan.names) if name == b"file"]
    there = os.lstat(tmp_path / "file") if os.path.lexists(tmp_path / "file") else None
    assert b"file" in rows
    assert there is None or (scan.columns[0][at], scan.columns[2][at]) != (there.st_ctime_ns, there.st_ino)


def test_reading_leaves_no_trace_on_a_file_of_ones_own(tmp_path: Path) -> None:
    if not hasattr(os, "O_NOATIME"):
        pytest.skip("this system notes every reading")
    path = tmp_path / "file"
    path.write_bytes(b"bytes")
    os.utime(path, ns=(1, path.stat().st_mtime_ns))

    captured(tmp_path)

    assert path.stat().st_atime_ns == 1
