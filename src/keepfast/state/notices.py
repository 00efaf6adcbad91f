"""Failures and skipped saves, kept for `status` in a small JSON Lines file."""

from __future__ import annotations

from collections.abc import Sequence
from os import (
    O_APPEND,
    O_CLOEXEC,
    O_CREAT,
    O_DIRECTORY,
    O_NOFOLLOW,
    O_NONBLOCK,
    O_RDONLY,
    O_WRONLY,
    close,
    fstat,
)
from os import open as open_fd
from os import read as read_fd

from keepfast.fsutil.durable import replace, replace_in, write_all
from keepfast.model.strict_json import dumps, loads
from keepfast.state.names import UNSAVED

NAME = "notices"
MAX_FILE_BYTES = 64 << 10
MAX_TEXT_CHARACTERS = 2_000
SKIPPED, FAILED = "skipped", "failed"


class Notice:
    """Something that failed or was skipped at an event with this trigger. `was_reported`: did a person or agent see it?"""

    def __init__(self, at: int, kind: str, trigger: str, text: str, was_reported: bool = False) -> None:
        self.at, self.kind, self.trigger, self.text, self.was_reported = at, kind, trigger, text, was_reported


class FailedSave:
    """When and why the last save of a folder failed, and the kind of error."""

    def __init__(self, at: int, kind: str, text: str) -> None:
        self.at, self.kind, self.text = at, kind, text


def append(folders: Sequence[str], at: int, kind: str, trigger: str, text: str, was_reported: bool = False) -> bool:
    """Append a notice in the first writable folder. Return False if none is writable."""
    notice = {"at": at, "kind": kind, "trigger": trigger, "text": text[:MAX_TEXT_CHARACTERS], "told": was_reported}
    line = dumps(notice).encode("ascii") + b"\n"
    return any(_append(folder, line) for folder in folders)


def read(folders: Sequence[str]) -> list[Notice]:
    """Return the notices in all of the folders, oldest first; damaged lines are skipped."""
    notices: list[Notice] = []
    for folder in folders:
        try:
            lines = _read(folder).split(b"\n")
        except OSError:
            continue
        for line in lines:
            try:
                notice = loads(line)
                kind, trigger, text = [str(notice[key]) for key in ("kind", "trigger", "text")]
                notices.append(Notice(int(notice["at"]), kind, trigger, text, notice.get("told") is True))
            except (ValueError, TypeError, KeyError):
                continue
    notices.sort(key=lambda notice: notice.at)
    return notices


def note_unsaved(folder: str, at: int, kind: str, text: str) -> None:
    """Record why a folder could not be saved, in its folder in the store; the next successful save removes the record."""
    line = dumps({"at": at, "kind": kind, "text": text[:MAX_TEXT_CHARACTERS]}).encode("ascii")
    try:
        replace(folder + UNSAVED, line + b"\n", durable=False)
    except OSError:
        pass  # the store cannot be written, which the next save reports


def unsaved(folder: str) -> FailedSave | None:
    """Return how the last save of a folder failed; None if it succeeded."""
    try:
        with open(folder + UNSAVED, "rb") as file:
            fields = loads(file.read(MAX_FILE_BYTES))
        return FailedSave(int(fields["at"]), str(fields["kind"]), str(fields["text"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _append(folder: str, line: bytes) -> bool:
    try:
        place = _open(folder)
    except OSError:
        return False
    try:
        # One write with O_APPEND: lines of several processes do not mix.
        fd = open_fd(NAME, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0o600, dir_fd=place)
        try:
            size = fstat(fd).st_size
            write_all(fd, line)
        finally:
            close(fd)
        if size + len(line) > MAX_FILE_BYTES:
            _shorten(place)
    except OSError:
        return False
    finally:
        close(place)
    return True


def _open(folder: str) -> int:
    """Open the folder. A link is refused: in the place of a marker's folder, it may come with a repository."""
    return open_fd(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)


def _read(folder: str) -> bytes:
    place = _open(folder)
    try:
        return _content(place)
    finally:
        close(place)


def _content(place: int) -> bytes:
    fd = open_fd(NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, dir_fd=place)
    try:
        text = b""
        while len(text) < 2 * MAX_FILE_BYTES and (part := read_fd(fd, MAX_FILE_BYTES)):
            text += part
        return text
    finally:
        close(fd)


def _shorten(place: int) -> None:
    """Keep the newer half. A line that another process appends meanwhile may be lost, which is acceptable for a notice."""
    rest = _content(place)[-MAX_FILE_BYTES // 2 :]
    replace_in(place, NAME, rest[rest.find(b"\n") + 1 :], durable=False)
