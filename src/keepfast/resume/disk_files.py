"""The session's files as they are on the disk now, compared with what the session knew."""

from __future__ import annotations

import os
import stat

from keepfast.agents.working_file import Span, WorkingFile

LARGEST = 12_000_000
MOST_FILES = 60


def look(files: list[WorkingFile], root: str, cwd: str = "") -> list[WorkingFile]:
    """The files with their text from the disk, marked where it differs from the session's, or gone.

    Only regular files below `root` are opened, never through a link; the rest stays as the session knew it. A root
    that the session's folder has moved to is followed: paths are taken from `cwd`.
    """
    base = os.path.realpath(root)
    looked = []
    for number, file in enumerate(files):
        if number >= MOST_FILES:
            looked.append(file)
            continue
        path = below(file.path, base, root, cwd)
        looked.append(file if path is None else _compared(file, path, base))
    return looked


def below(path: str, base: str, root: str, cwd: str) -> str | None:
    """The path relative to the root, by any name that the root has or had; None if it lies elsewhere."""
    for old in (root.rstrip("/"), base, cwd.rstrip("/")):
        if old and path.startswith(old + "/"):
            inner = os.path.normpath(path[len(old) + 1 :])
            return None if inner.startswith("..") or os.path.isabs(inner) else inner
    return None


def _compared(file: WorkingFile, inner: str, base: str) -> WorkingFile:
    text = read(base, inner)
    if text is None:
        there = os.path.lexists(os.path.join(base, inner))
        return file if there else WorkingFile(file.path, [], file.touched, file.hunks, file.reads, gone=True)
    return matched(file, text)


def matched(file: WorkingFile, text: str) -> WorkingFile:
    """The file with this text, marked where that differs from the session's; spans are moved along."""
    lines: list[str | None] = list(text.split("\n"))
    known = file.lines
    same = len(known) in (len(lines), len(lines) - 1) and all(
        old is None or old == new for old, new in zip(known, lines, strict=False)
    )
    # A reader may or may not count the empty line after the last line end; that is no change.
    if not known or same:
        return WorkingFile(file.path, lines, file.touched, file.hunks, file.reads)
    start, by = _moved(known, lines)
    return WorkingFile(
        file.path, lines, file.touched, _shifted(file.hunks, start, by), _shifted(file.reads, start, by), changed=True
    )


def _moved(old: list[str | None], new: list[str | None]) -> tuple[int, int]:
    """The first line that differs, and by how much what comes after it has moved."""
    first = 0
    while first < min(len(old), len(new)) and old[first] in (None, new[first]):
        first += 1
    return first + 1, len(new) - len(old)


def _shifted(spans: list[Span], start: int, by: int) -> list[Span]:
    return [Span(span.at, max(1, span.start + by), span.count) if span.start > start else span for span in spans]


def read(base: str, inner: str) -> str | None:
    """The file's text, if it is a regular, moderately large text file reached without following a link."""
    content = content_of(base, inner)
    return None if content is None else decoded(content)


def content_of(base: str, inner: str) -> bytes | None:
    """The file's bytes, if it is a regular, moderately large file reached without following a link."""
    try:
        folder = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
        try:
            names = inner.split("/")
            for name in names[:-1]:
                below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                os.close(folder)
                folder = below
            file = os.open(names[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        finally:
            os.close(folder)
    except OSError:
        return None
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
            return None
        content = b""
        while len(content) <= LARGEST and (piece := os.read(file, 1 << 20)):
            content += piece
    except OSError:
        return None
    finally:
        os.close(file)
    return content


def decoded(content: bytes) -> str | None:
    """The bytes as text, whatever its line ends; None if they are none."""
    if b"\0" in content[:8192]:
        return None
    try:
        return content.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return None
