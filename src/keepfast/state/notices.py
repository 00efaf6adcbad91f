"""What failed or was skipped, and whether anybody was told, kept for `status`: JSON lines, few and bounded."""

from __future__ import annotations

from posix import (
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
from posix import open as open_fd
from posix import read as read_fd

from keepfast.fsutil.durable import replace, replace_in, write_all
from keepfast.model.light_json import dumps, loads
from keepfast.state.names import UNSAVED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "notices"
MOST = 64 << 10
LONGEST = 2_000
SKIPPED, FAILED = "skipped", "failed"


class Notice:
    """What went wrong, or was worth a word, at an event of this trigger. `told`: was anybody told then?"""

    def __init__(self, at: int, kind: str, trigger: str, text: str, told: bool = False) -> None:
        self.at, self.kind, self.trigger, self.text, self.told = at, kind, trigger, text, told


class FailedSave:
    """When, by which kind of error and why the last save of a folder failed."""

    def __init__(self, at: int, kind: str, text: str) -> None:
        self.at, self.kind, self.text = at, kind, text


def append(folders: Sequence[str], at: int, kind: str, trigger: str, text: str, told: bool = False) -> bool:
    """Add one line in the first of the folders that takes it. False if none does: there is nobody left to tell."""
    notice = {"at": at, "kind": kind, "trigger": trigger, "text": text[:LONGEST], "told": told}
    line = dumps(notice).encode("ascii") + b"\n"
    return any(_append(folder, line) for folder in folders)


def read(folders: Sequence[str]) -> list[Notice]:
    """Return the notices in all of the folders, oldest first; lines that are not whole are passed over."""
    found: list[Notice] = []
    for folder in folders:
        try:
            lines = _read(folder).split(b"\n")
        except OSError:
            continue
        for line in lines:
            try:
                notice = loads(line)
                kind, trigger, text = [str(notice[key]) for key in ("kind", "trigger", "text")]
                found.append(Notice(int(notice["at"]), kind, trigger, text, notice.get("told") is True))
            except (ValueError, TypeError, KeyError):
                continue
    found.sort(key=lambda notice: notice.at)
    return found


def note_unsaved(folder: str, at: int, kind: str, text: str) -> None:
    """Write down why a folder could not be saved, in its own folder in the store; the next save that succeeds removes it."""
    line = dumps({"at": at, "kind": kind, "text": text[:LONGEST]}).encode("ascii")
    try:
        replace(folder + UNSAVED, line + b"\n", durable=False)
    except OSError:
        pass  # the store cannot be written: the hook that tries to is told by the system


def unsaved(folder: str) -> FailedSave | None:
    """How the last save of a folder failed; None if it did not."""
    try:
        with open(folder + UNSAVED, "rb") as file:
            found = loads(file.read(MOST))
        return FailedSave(int(found["at"]), str(found["kind"]), str(found["text"]))
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
        if size + len(line) > MOST:
            _shorten(place)
    except OSError:
        return False
    finally:
        close(place)
    return True


def _open(folder: str) -> int:
    """A link in the place of a marker's folder, which may come with a repository, leads nowhere."""
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
        while len(text) < 2 * MOST and (part := read_fd(fd, MOST)):
            text += part
        return text
    finally:
        close(fd)


def _shorten(place: int) -> None:
    """Keep the newer half. A line that another process adds meanwhile may be lost; it is a notice, not a record."""
    rest = _content(place)[-MOST // 2 :]
    replace_in(place, NAME, rest[rest.find(b"\n") + 1 :], durable=False)
