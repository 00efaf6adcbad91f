"""Events that are recorded and not done yet: one small file each, so that nobody waits for anybody to add or remove one."""

from __future__ import annotations

from posix import O_CLOEXEC, O_CREAT, O_EXCL, O_WRONLY, close, getpid, listdir, unlink
from posix import open as open_fd

from keepfast.model.light_json import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

FOLDER = "/pending"
MOST = 64 << 10
KNOWN = {
    "trigger": "auto",
    "session": "",
    "agent": "",
    "cwd": "",
    "transcript": "",
    "reason": "",
    "model": "",
    "said": "",
}


def append(folder: str, event: Mapping[str, object]) -> str:
    """Record an event (its `at` in nanoseconds) in the folder of its workspace; return its name. Raises `OSError`.

    The file outlives every process. It is not synced: after a power cut the tree that it spoke of is what is there.
    """
    from posix import write

    line = dumps(dict(event)).encode("ascii")
    at = event["at"]
    assert isinstance(at, int)
    stem = f"{max(at, 0):020d}-{getpid()}"
    for number in range(100):
        name = f"{stem}-{number}" if number else stem
        try:
            fd = open_fd(f"{folder}{FOLDER}/{name}", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        except FileNotFoundError:
            from keepfast.fsutil.durable import make_folder

            make_folder(folder.rpartition("/")[0])
            make_folder(folder)
            make_folder(folder + FOLDER)
            continue
        try:
            if write(fd, line) != len(line):
                raise OSError(28, "No space left on device")
        except OSError:
            unlink(f"{folder}{FOLDER}/{name}")
            raise
        finally:
            close(fd)
        return name
    raise FileExistsError(17, "No free file name for an event", folder)


def names(folder: str) -> list[str]:
    """The names of all pending events of a workspace, oldest first."""
    try:
        return sorted(listdir(folder + FOLDER))
    except OSError:
        return []


def read(folder: str, name: str) -> dict[str, Any] | None:
    """Return an event with every known key; None if it is done. One that is cut off still is an event: `auto`."""
    try:
        with open(f"{folder}{FOLDER}/{name}", "rb") as file:
            text = file.read(MOST)
    except OSError:
        return None
    try:
        told = loads(text)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        told = {}
    event: dict[str, Any] = {
        key: told[key] if isinstance(told.get(key), str) else usual for key, usual in KNOWN.items()
    }
    at, client = told.get("at"), told.get("client")
    digits = name.partition("-")[0]
    event["at"] = at if isinstance(at, int) else int(digits) if digits.isdigit() else 0
    event["client"] = client if isinstance(client, int) else 0
    return event


def done(folder: str, name: str) -> None:
    try:
        unlink(f"{folder}{FOLDER}/{name}")
    except FileNotFoundError:
        pass
