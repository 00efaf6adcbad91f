"""Logs in a workspace: `.logs/` has copies of the agent's output, of protocol events, and of all events."""

from __future__ import annotations

import os
from contextlib import suppress

from keepfast.runner.actions import event_files, metadata
from keepfast.runner.actions.folders import LOGS, METADATA, own_folder, point, replace
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.db import queries
from keepfast.runner.domain.records import Run

KEEP = 10
MAX_LOG_BYTES = 10 << 20
"""Bytes of the end of an output that are copied; the run's folder has all of it."""
OUTPUTS = (("stdout.log", "out.log"), ("stderr.log", "err.log"))
PROTOCOL = frozenset((
    "phase_complete", "user_question", "dependency_request", "error", "answered", "secret_provided", "question_expired",
    "duplicate_refused", "block_refused", "progress_report",
))  # fmt: skip
NOT_IN_TASK_FILE = ("progress", "progress_report", "context")
"""Events that do not change `task.json`."""
AT_ONCE = 1 << 20
"""Bytes of an output that are copied in one piece."""


def write(runtime: Runtime, run: Run) -> None:
    """Bring `.logs/` up to date after a run. Repeating it changes nothing; a failure only costs the copy."""
    task = runtime.tables.task(run.task)
    folder = own_folder(task.workspace, LOGS)
    if folder is None:
        return
    with suppress(OSError):
        for name, source in OUTPUTS:
            _copy(f"{run.folder}/{source}", folder, f"run-{run.number}.{name}", name)
        _extend_all(runtime, task.id, folder)
        _prune(folder)


class EventCopies:
    """Copies new events of all tasks, or of one, into `.metadata/` and `.logs/`, whichever process wrote them."""

    def __init__(self, runtime: Runtime, only: str = "") -> None:
        self.runtime, self.tables, self.only = runtime, runtime.tables, only
        self._since = queries.last_sequence(runtime.tables)

    def look(self) -> None:
        """Copy what is new."""
        rows = queries.fresh_events(self.tables, self._since, NOT_IN_TASK_FILE)
        for row in rows:
            self._write(row.task, changes_task=row.counts)
        self._since = max([self._since, *[row.last for row in rows]])

    def _write(self, id: str, changes_task: bool) -> None:
        if self.only not in ("", id):
            return
        workspace = self.tables.task(id).workspace
        with suppress(OSError):
            if changes_task:
                metadata.project(self.runtime, id)
            else:
                metadata_folder = own_folder(workspace, METADATA)
                if metadata_folder is not None:
                    event_files.extend(self.runtime, id, f"{metadata_folder}/history.jsonl", event_files.json_line)
            folder = own_folder(workspace, LOGS)
            if folder is not None:
                _extend_all(self.runtime, id, folder)


class OutputCopies:
    """Copies the output of a live run into `.logs/`. The output in the run's folder is redacted already."""

    def __init__(self, run: Run, workspace: str) -> None:
        self.run, self.workspace = run, workspace
        self._copied: dict[str, int] = {}
        """The offset up to which each output was copied by this process."""

    def look(self) -> None:
        """Append new whole lines. After a failure the copy is made again from the beginning."""
        for name, source in OUTPUTS:
            try:
                self._follow(f"{self.run.folder}/{source}", f"run-{self.run.number}.{name}", name)
            except OSError:
                self._copied.pop(name, None)

    def _follow(self, source: str, name: str, link: str) -> None:
        at = self._copied.get(link, -1)
        if at >= 0 and os.stat(source).st_size == at:
            return
        folder = own_folder(self.workspace, LOGS)
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
                if os.lstat(path).st_size + len(lines) > MAX_LOG_BYTES:
                    # Copy only half of the limit, so that a long output is not copied again for every line.
                    at = _copy(source, folder, name, link, MAX_LOG_BYTES // 2, whole=True)
                else:
                    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
                    try:
                        event_files.append(fd, lines)
                    finally:
                        os.close(fd)
                    at += len(lines)
                self._copied[link] = at
                file.seek(at)


def _extend_all(runtime: Runtime, id: str, folder: str) -> None:
    event_files.extend(runtime, id, f"{folder}/protocols.jsonl", event_files.json_line, PROTOCOL)
    event_files.extend(runtime, id, f"{folder}/agent.log", event_files.plain_line)


def _copy(source: str, folder: str, name: str, link: str, most: int = MAX_LOG_BYTES, whole: bool = False) -> int:
    """Copy the end of an output, with `whole` only whole lines; return the offset of its end, -1 if there is no output."""
    try:
        with open(source, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - most))
            text = file.read(most)
    except FileNotFoundError:
        return -1
    if whole:
        text = text[: text.rfind(b"\n") + 1]
    replace(f"{folder}/{name}", text[text.find(b"\n") + 1 :] if size > most else text)
    point(folder, link, name)
    return max(0, size - most) + len(text)


def _prune(folder: str) -> None:
    """Remove outputs of all but the newest runs."""
    numbers = {
        int(name.split(".")[0][4:]) for name in os.listdir(folder) if name.startswith("run-") and name.endswith(".log")
    }
    for number in sorted(numbers)[:-KEEP]:
        for name, _ in OUTPUTS:
            with suppress(FileNotFoundError):
                os.unlink(f"{folder}/run-{number}.{name}")
