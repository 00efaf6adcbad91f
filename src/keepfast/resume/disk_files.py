"""The session's files as they are on the disk now, compared with what the session knew."""

from __future__ import annotations

import os
import stat
from dataclasses import replace

from keepfast.agents.working_file import Span, WorkingFile
from keepfast.workspace.diff import is_binary

MAX_FILE_BYTES = 12_000_000
MAX_FILES = 60
BINARY, LINK, FOLDER, PIPE, TOO_LARGE = "binary", "link", "folder", "pipe", "too large"
SOCKET, DEVICE, UNREADABLE = "socket", "device", "cannot be read"
AS_SEEN = "as the session last saw it"
LOST_CHARACTER = "\ufffd"


def look(files: list[WorkingFile], root: str, cwd: str = "") -> list[WorkingFile]:
    """Return the files with their text from the disk, marked where it differs from the session's, or gone.

    Only regular files below `root` are opened, never through a link; of the others below it nothing is shown. What lies
    outside of it, or was touched before many others, stays as the session knew it, and says so. A root that the
    session's folder has moved to is followed: paths are taken from `cwd`.
    """
    base = os.path.realpath(root)
    looked = []
    for number, file in enumerate(files):
        path = below(file.path, base, root, cwd) if number < MAX_FILES else None
        looked.append(replace(file, remark=AS_SEEN) if path is None else _compared(file, path, base))
    return looked


def below(path: str, base: str, root: str, cwd: str) -> str | None:
    """Return the path relative to the root, by any name that the root has or had; None if it lies elsewhere."""
    for old in (root.rstrip("/"), base, cwd.rstrip("/")):
        if old and path.startswith(old + "/"):
            inner = os.path.normpath(path[len(old) + 1 :])
            return None if inner.startswith("..") or os.path.isabs(inner) else inner
    return None


def _compared(file: WorkingFile, inner: str, base: str) -> WorkingFile:
    content = content_of(base, inner)
    if content is not None:
        return matched(file, content)
    if not os.path.lexists(os.path.join(base, inner)):
        return replace(file, lines=[], is_missing=True)
    return unshown(file, _kind_of(base, inner))


def unshown(file: WorkingFile, why: str) -> WorkingFile:
    """Return the file with its name alone."""
    return replace(file, lines=[], unshown=why)


def _kind_of(base: str, inner: str) -> str:
    """Return why the file cannot be read: what is in its place."""
    names = inner.split("/")
    try:
        for number in range(1, len(names)):
            if os.path.islink(os.path.join(base, *names[:number])):
                return LINK
        about = os.lstat(os.path.join(base, inner))
    except OSError:
        return UNREADABLE
    if stat.S_ISREG(about.st_mode):
        return TOO_LARGE if about.st_size > MAX_FILE_BYTES else UNREADABLE
    kinds = {stat.S_IFLNK: LINK, stat.S_IFDIR: FOLDER, stat.S_IFIFO: PIPE, stat.S_IFSOCK: SOCKET}
    return kinds.get(stat.S_IFMT(about.st_mode), DEVICE)


def matched(file: WorkingFile, content: bytes) -> WorkingFile:
    """Return the file with this text, marked where that differs from the session's; spans are moved along.

    Bytes that are no UTF-8 become surrogates, which a brief shows as escapes. Of a binary file nothing is shown.
    """
    if b"\0" in content or is_binary(content):
        return unshown(file, BINARY)
    text = content.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
    lines: list[str | None] = list(text.split("\n"))
    # A client that could not read a character does not know that line.
    old_lines = [None if line is not None and LOST_CHARACTER in line else line for line in file.lines]
    same = len(old_lines) in (len(lines), len(lines) - 1) and all(
        old is None or old == new for old, new in zip(old_lines, lines, strict=False)
    )
    # A reader may or may not count the empty line after the last line end; that is no change.
    if not old_lines or same:
        return replace(file, lines=lines)
    start, by = _moved(old_lines, lines)
    hunks, reads = _shifted(file.hunks, start, by), _shifted(file.reads, start, by)
    return replace(file, lines=lines, hunks=hunks, reads=reads, changed=True)


def _moved(old: list[str | None], new: list[str | None]) -> tuple[int, int]:
    """Return the first line that differs, and by how much what comes after it has moved."""
    first = 0
    while first < min(len(old), len(new)) and old[first] in (None, new[first]):
        first += 1
    return first + 1, len(new) - len(old)


def _shifted(spans: list[Span], start: int, by: int) -> list[Span]:
    return [Span(span.at, max(1, span.start + by), span.count) if span.start > start else span for span in spans]


def content_of(base: str, inner: str) -> bytes | None:
    """Return the file's bytes, if it is a regular, moderately large file reached without following a link."""
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
        if not stat.S_ISREG(about.st_mode) or about.st_size > MAX_FILE_BYTES:
            return None
        content = b""
        while len(content) <= MAX_FILE_BYTES and (piece := os.read(file, 1 << 20)):
            content += piece
    except OSError:
        return None
    finally:
        os.close(file)
    return content
