"""What a workspace keeps of its agent's words: `.logs/` with its output, what it said by protocol, and what happened."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable
from contextlib import suppress
from time import sleep
from typing import TYPE_CHECKING, Any

from keepfast.runner.actions import documents

if TYPE_CHECKING:
    from keepfast.runner.actions.environment import Ground
    from keepfast.runner.db.tables import Run

LOGS = ".logs"
KEEP = 10
MOST = 10 << 20
"""Of an output, so much of its end is copied; all of it lies in the run's folder."""
OUTPUTS = (("stdout.log", "out.log"), ("stderr.log", "err.log"))
PROTOCOL = frozenset((
    "phase_complete", "user_question", "dependency_request", "error", "answered", "secret_provided", "question_expired",
    "duplicate_refused", "block_refused", "progress_report",
))  # fmt: skip
UNTOLD = ("progress", "progress_report", "context")
"""Events that change nothing of what `task.json` tells."""
LOOKS, APART = 20, 0.05
"""How often a file that somebody else extends is looked at again, and seconds between two looks."""
TOO_LARGE = 1 << 53
"""No event has this number or a larger one: a line that says so is none of ours."""
AT_ONCE = 1 << 20
"""Bytes of an output that are copied in one piece."""


def write(ground: Ground, run: Run) -> None:
    """Bring `.logs/` up to date after a run. Doing it twice changes nothing; a failure costs the copy, nothing else."""
    task = ground.tables.task(run.task)
    folder = documents.own_folder(task.workspace, LOGS)
    if folder is None:
        return
    with suppress(OSError):
        for name, source in OUTPUTS:
            _copy(f"{run.folder}/{source}", folder, f"run-{run.number}.{name}", name)
        _extend_all(ground, task.id, folder)
        _prune(folder)


class Events:
    """Lets `.metadata/` and `.logs/` follow what happens to all tasks, or to one, whoever made it happen."""

    def __init__(self, ground: Ground, only: str = "") -> None:
        self.ground, self.tables, self.only = ground, ground.tables, only
        row = ground.tables.one("SELECT MAX(sequence) AS last FROM event")
        self._since = int((row["last"] if row is not None else None) or 0)

    def look(self) -> None:
        """Write what is new."""
        marks = ", ".join("?" * len(UNTOLD))
        rows = self.tables.all(
            f"SELECT task, MAX(sequence) AS last, SUM(CASE WHEN type IN ({marks}) THEN 0 ELSE 1 END) AS telling "
            "FROM event WHERE sequence > ? GROUP BY task",
            *UNTOLD, self._since,
        )  # fmt: skip
        for row in rows:
            self._write(row["task"], is_telling=bool(row["telling"]))
        self._since = max([self._since, *[row["last"] for row in rows]])

    def _write(self, id: str, is_telling: bool) -> None:
        if self.only not in ("", id):
            return
        workspace = self.tables.task(id).workspace
        with suppress(OSError):
            if is_telling:
                documents.project(self.ground, id)
            else:
                metadata = documents.own_folder(workspace, documents.METADATA)
                if metadata is not None:
                    extend(self.ground, id, f"{metadata}/history.jsonl", documents.line)
            folder = documents.own_folder(workspace, LOGS)
            if folder is not None:
                _extend_all(self.ground, id, folder)


class Outputs:
    """Lets `.logs/` follow the output of a run that lives. What was redacted on its way to the run's folder is copied."""

    def __init__(self, run: Run, workspace: str) -> None:
        self.run, self.workspace = run, workspace
        self._copied: dict[str, int] = {}
        """Up to where each output was copied; nothing is known of a copy that somebody else made."""

    def look(self) -> None:
        """Append what came since the last time, in whole lines. A failure costs the copy, and it is made anew."""
        for name, source in OUTPUTS:
            try:
                self._follow(f"{self.run.folder}/{source}", f"run-{self.run.number}.{name}", name)
            except OSError:
                self._copied.pop(name, None)

    def _follow(self, source: str, name: str, link: str) -> None:
        at = self._copied.get(link, -1)
        if at >= 0 and os.stat(source).st_size == at:
            return
        folder = documents.own_folder(self.workspace, LOGS)
        if folder is None:
            return
        if at < 0:
            end = _copy(source, folder, name, link, whole=True)
            if end >= 0:
                self._copied[link] = end
            return
        path = f"{folder}/{name}"
        with open(source, "rb") as file:
            file.seek(at)
            while part := file.read(AT_ONCE):
                lines = part[: part.rfind(b"\n") + 1] or (part if len(part) == AT_ONCE else b"")
                if not lines:
                    return
                if os.lstat(path).st_size + len(lines) > MOST:
                    # Half of it is left: a copy is not made anew for every line of a long output.
                    at = _copy(source, folder, name, link, MOST // 2, whole=True)
                else:
                    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
                    try:
                        _append(fd, lines)
                    finally:
                        os.close(fd)
                    at += len(lines)
                self._copied[link] = at
                file.seek(at)


def _extend_all(ground: Ground, id: str, folder: str) -> None:
    extend(ground, id, f"{folder}/protocols.jsonl", documents.line, PROTOCOL)
    extend(ground, id, f"{folder}/agent.log", _plain)


def extend(
    ground: Ground, id: str, path: str, line: Callable[[dict[str, Any]], str], only: frozenset[str] | None = None
) -> None:
    """Append the events of a task that are not there yet; the last line says how far it got."""
    names = sorted(only or ())
    some = f" AND type IN ({', '.join('?' * len(names))})" if names else ""
    rows = ground.tables.all(
        f"SELECT * FROM event WHERE task = ? AND sequence > ?{some} ORDER BY sequence LIMIT 5000",
        id,
        _last(path),
        *names,
    )
    if not rows:
        return
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        _lock(fd)
        # Commands write these files, too: what one of them was quicker with is not written again. Nothing is asked of the
        # database while the file is locked: whoever waits for the file may be inside of a transaction.
        last = _last(path)
        told = [line(documents.event(row)) + "\n" for row in rows if row["sequence"] > last]
        if told:
            _append(fd, "".join(told).encode("utf-8", "replace"))
    finally:
        os.close(fd)


def _lock(fd: int) -> None:
    """Be alone with a file for a moment. Raises `BlockingIOError` if somebody, perhaps the agent, does not let go of it."""
    for look in range(LOOKS):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if look == LOOKS - 1:
                raise
            sleep(APART)
        except OSError:
            return  # a file system without locks


def _append(fd: int, text: bytes) -> None:
    """All of it or nothing, by one write: nobody reads half a line. Raises `OSError`."""
    size = os.fstat(fd).st_size
    written = os.write(fd, text)
    if written < len(text):
        os.ftruncate(fd, size)  # the disk is full: all of it comes later
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def last_number(workspace: str) -> int:
    """The largest number of an event that the files of a workspace tell; 0 without any."""
    paths = (f"{documents.METADATA}/history.jsonl", f"{LOGS}/protocols.jsonl", f"{LOGS}/agent.log")
    files = [path for path in (f"{workspace}/{path}" for path in paths) if os.path.isfile(path)]
    found = 0
    for path in files:
        with suppress(OSError):
            found = max(found, _last(path))
    return found


def _last(path: str) -> int:
    """The number of the last event in a file: in its JSON, or the second word of a plain line."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - (1 << 16)))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return 0
    for text in reversed(lines):
        try:
            number = int(json.loads(text)["sequence"] if text.startswith(b"{") else text.split()[1])
        except (ValueError, KeyError, TypeError, IndexError, RecursionError):
            continue
        if 0 < number < TOO_LARGE:
            return number
    return 0


def _plain(event: dict[str, Any]) -> str:
    facts = {key: value for key, value in event.items() if key not in ("sequence", "timestamp", "taskId", "type")}
    return f"{event['timestamp']} {event['sequence']} {event['type']} {json.dumps(facts, ensure_ascii=False)}"


def _copy(source: str, folder: str, name: str, link: str, most: int = MOST, whole: bool = False) -> int:
    """Copy the end of an output, `whole` lines of one that grows; return up to where it was copied, -1 if there is none."""
    try:
        with open(source, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - most))
            text = file.read(most)
    except FileNotFoundError:
        return -1
    if whole:
        text = text[: text.rfind(b"\n") + 1]
    documents.replace(f"{folder}/{name}", text[text.find(b"\n") + 1 :] if size > most else text)
    documents.point(folder, link, name)
    return max(0, size - most) + len(text)


def _prune(folder: str) -> None:
    """Outputs of the newest runs stay."""
    numbers = {
        int(name.split(".")[0][4:]) for name in os.listdir(folder) if name.startswith("run-") and name.endswith(".log")
    }
    for number in sorted(numbers)[:-KEEP]:
        for name, _ in OUTPUTS:
            with suppress(FileNotFoundError):
                os.unlink(f"{folder}/run-{number}.{name}")
