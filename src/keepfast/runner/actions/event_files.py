"""Events as JSON and as text, and the files of a workspace that they are appended to."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable
from contextlib import suppress
from time import sleep
from typing import Any

from keepfast.runner.actions.folders import LOGS, METADATA
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.db import queries
from keepfast.runner.domain import task as machine
from keepfast.runner.domain.moments import moment
from keepfast.runner.domain.records import LoggedEvent
from keepfast.runner.domain.task import State

AT_ONCE = 5_000
"""Maximum number of events that one call appends."""
TRIES, PAUSE_SECONDS = 20, 0.05
"""How often a locked file is tried again, and the seconds between two tries."""
TOO_LARGE = 1 << 53
"""Event numbers are smaller than this: a line with a larger number is not ours."""


def json_line(event: dict[str, Any]) -> str:
    return json.dumps(event, ensure_ascii=False)


def event(row: LoggedEvent) -> dict[str, Any]:
    """Return an event as JSON, with the names of states that documents use, whenever the row was written."""
    head = {
        "sequence": row.sequence,
        "timestamp": moment(row.at),
        "taskId": row.task,
        "run": row.run or None,
    }
    facts = row.read()
    if row.type == "state_transition":
        facts = _transition(facts)
    return {**facts, **head, "type": row.type}


def _transition(facts: dict[str, Any]) -> dict[str, Any]:
    """Return a transition with both names of its states: `from` and `to` as in documents, `fromState` and `toState` as in rows."""
    about = facts["metadata"]
    before, after = State(facts["from"], about.get("lifted", "")), State(facts["to"], about["hold"])
    named = {"from": machine.status(before), "to": machine.status(after)}
    return {**facts, **named, "fromState": before.state, "toState": after.state}


def plain_line(event: dict[str, Any]) -> str:
    facts = {key: value for key, value in event.items() if key not in ("sequence", "timestamp", "taskId", "type")}
    return f"{event['timestamp']} {event['sequence']} {event['type']} {json.dumps(facts, ensure_ascii=False)}"


def extend(
    runtime: Runtime,
    id: str,
    path: str,
    format_line: Callable[[dict[str, Any]], str],
    only: frozenset[str] | None = None,
) -> None:
    """Append the events of a task that are not in the file yet; its last line has the number of the last one."""
    rows = queries.events_of(runtime.tables, id, _last(path), AT_ONCE, sorted(only or ()))
    if not rows:
        return
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        _lock(fd)
        # Another process may have appended some of them meanwhile. The database is not used while the file is locked: a
        # process that waits for the file may be inside a transaction.
        last = _last(path)
        lines = [format_line(event(row)) + "\n" for row in rows if row.sequence > last]
        if lines:
            append(fd, "".join(lines).encode("utf-8", "replace"))
    finally:
        os.close(fd)


def _lock(fd: int) -> None:
    """Lock a file. Raises `BlockingIOError` if another process, perhaps the agent, keeps it locked."""
    for look in range(TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if look == TRIES - 1:
                raise
            sleep(PAUSE_SECONDS)
        except OSError:
            return  # a file system without locks


def append(fd: int, text: bytes) -> None:
    """Append all of the text or nothing, by one write: a reader never sees half a line. Raises `OSError`."""
    size = os.fstat(fd).st_size
    written = os.write(fd, text)
    if written < len(text):
        os.ftruncate(fd, size)  # the disk is full: a later call writes all of it
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def last_number(workspace: str) -> int:
    """Return the largest number of an event in the files of a workspace; 0 without any."""
    paths = (f"{METADATA}/history.jsonl", f"{LOGS}/protocols.jsonl", f"{LOGS}/agent.log")
    files = [path for path in (f"{workspace}/{path}" for path in paths) if os.path.isfile(path)]
    number = 0
    for path in files:
        with suppress(OSError):
            number = max(number, _last(path))
    return number


def _last(path: str) -> int:
    """Return the number of the last event in a file: from its JSON, or the second word of a plain line."""
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
