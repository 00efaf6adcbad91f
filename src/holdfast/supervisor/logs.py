"""What a workspace keeps of its agent's words: `.logs/` with its output, what it said by protocol, and what happened."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from holdfast.supervisor import documents

if TYPE_CHECKING:
    from holdfast.supervisor.ground import Ground
    from holdfast.supervisor.tables import Run

LOGS = ".logs"
KEEP = 10
MOST = 10 << 20
"""Of an output, so much of its end is copied; all of it lies in the run's folder."""
OUTPUTS = (("stdout.log", "out.log"), ("stderr.log", "err.log"))
PROTOCOL = frozenset((
    "phase_complete", "user_question", "dependency_request", "error", "answered", "secret_provided", "question_expired",
    "duplicate_refused",
))  # fmt: skip


def write(ground: Ground, run: Run) -> None:
    """Bring `.logs/` up to date after a run. Doing it twice changes nothing; a failure costs the copy, nothing else."""
    task = ground.tables.task(run.task)
    folder = documents.own_folder(task.workspace, LOGS)
    if folder is None:
        return
    with suppress(OSError):
        for name, source in OUTPUTS:
            _copy(f"{run.folder}/{source}", folder, f"run-{run.number}.{name}", name)
        extend(ground, task.id, f"{folder}/protocols.jsonl", documents.line, PROTOCOL)
        extend(ground, task.id, f"{folder}/agent.log", _plain)
        _prune(folder)


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
    told = [line(documents.event(row)) + "\n" for row in rows]
    if not told:
        return
    text = "".join(told).encode("utf-8", "replace")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        size = os.fstat(fd).st_size
        written = os.write(fd, text)
        if written < len(text):
            os.ftruncate(fd, size)  # the disk is full: no half of a line stays, and all of it comes later
    finally:
        os.close(fd)


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
            return int(json.loads(text)["sequence"] if text.startswith(b"{") else text.split()[1])
        except (ValueError, KeyError, TypeError, IndexError):
            continue
    return 0


def _plain(event: dict[str, Any]) -> str:
    facts = {key: value for key, value in event.items() if key not in ("sequence", "timestamp", "taskId", "type")}
    return f"{event['timestamp']} {event['sequence']} {event['type']} {json.dumps(facts, ensure_ascii=False)}"


def _copy(source: str, folder: str, name: str, link: str) -> None:
    try:
        with open(source, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - MOST))
            text = file.read(MOST)
    except FileNotFoundError:
        return
    documents.replace(f"{folder}/{name}", text[text.find(b"\n") + 1 :] if size > MOST else text)
    documents.point(folder, link, name)


def _prune(folder: str) -> None:
    """Outputs of the newest runs stay."""
    numbers = {
        int(name.split(".")[0][4:]) for name in os.listdir(folder) if name.startswith("run-") and name.endswith(".log")
    }
    for number in sorted(numbers)[:-KEEP]:
        for name, _ in OUTPUTS:
            with suppress(FileNotFoundError):
                os.unlink(f"{folder}/run-{number}.{name}")
