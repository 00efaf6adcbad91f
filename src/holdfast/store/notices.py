"""What failed or was skipped without anybody being told, kept for `status`: JSON lines, few and bounded."""

from __future__ import annotations

from posix import O_APPEND, O_CLOEXEC, O_CREAT, O_NOFOLLOW, O_WRONLY, close, fstat
from posix import open as open_fd

from holdfast.core.light_json import dumps, loads
from holdfast.store.local import replace, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

MOST = 64 << 10
LONGEST = 2_000
SKIPPED, FAILED = "skipped", "failed"


def append(folders: Sequence[str], at: int, kind: str, trigger: str, text: str) -> bool:
    """Add one line in the first of the folders that takes it. False if none does: there is nobody left to tell."""
    line = dumps({"at": at, "kind": kind, "trigger": trigger, "text": text[:LONGEST]}).encode("ascii") + b"\n"
    return any(_append(folder + "/notices", line) for folder in folders)


def read(folders: Sequence[str]) -> list[dict[str, Any]]:
    """Return the notices in all of the folders, oldest first; lines that are not whole are passed over."""
    found: list[dict[str, Any]] = []
    for folder in folders:
        try:
            with open(folder + "/notices", "rb") as file:
                lines = file.read(2 * MOST).split(b"\n")
        except OSError:
            continue
        for line in lines:
            try:
                notice = loads(line)
                found.append(
                    {"at": int(notice["at"]), **{key: str(notice[key]) for key in ("kind", "trigger", "text")}}
                )
            except (ValueError, TypeError, KeyError):
                continue
    found.sort(key=lambda notice: notice["at"])
    return found


def _append(path: str, line: bytes) -> bool:
    try:
        # One write with O_APPEND: lines of several processes do not mix.
        fd = open_fd(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0o600)
        try:
            size = fstat(fd).st_size
            write_all(fd, line)
        finally:
            close(fd)
        if size + len(line) > MOST:
            _shorten(path)
    except OSError:
        return False
    return True


def _shorten(path: str) -> None:
    """Keep the newer half. A line that another process adds meanwhile may be lost; it is a notice, not a record."""
    with open(path, "rb") as file:
        text = file.read()
    rest = text[-MOST // 2 :]
    replace(path, rest[rest.find(b"\n") + 1 :], durable=False)
