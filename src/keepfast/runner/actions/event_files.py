"""Events as they are told outside, and the files of a workspace that they are appended to."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable
from contextlib import suppress
from time import sleep
from typing import TYPE_CHECKING, Any

from keepfast.runner.actions.folders import LOGS, METADATA
from keepfast.runner.db import queries
from keepfast.runner.domain import task as machine
from keepfast.runner.domain.moments import moment
from keepfast.runner.domain.records import LoggedEvent
from keepfast.runner.domain.task import State

if TYPE_CHECKING:
    from keepfast.runner.actions.runtime import Runtime

AT_ONCE = 5_000
"""Events that are appended at once."""
LOOKS, APART = 20, 0.05
"""How often a file that somebody else extends is looked at again, and seconds between two looks."""
TOO_LARGE = 1 << 53
"""No event has this number or a larger one: a line that says so is none of ours."""


def json_line(event: dict[str, Any]) -> str:
    return json.dumps(event, ensure_ascii=False)


def event(row: LoggedEvent) -> dict[str, Any]:
    """An event as it is told outside. States are called as the source calls them, whenever the row was written."""
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
    """Rows have the names of the state machine; these stand beside, as `state` does beside `status` of a task."""
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
    """Append the events of a task that are not there yet; the last line says how far it got."""
    rows = queries.events_of(runtime.tables, id, _last(path), AT_ONCE, sorted(only or ()))
    if not rows:
        return
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        _lock(fd)
        # Commands write these files, too: what one of them was quicker with is not written again. Nothing is asked of the
        # database while the file is locked: whoever waits for the file may be inside of a transaction.
        last = _last(path)
        lines = [format_line(event(row)) + "\n" for row in rows if row.sequence > last]
        if lines:
            append(fd, "".join(lines).encode("utf-8", "replace"))
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


def append(fd: int, text: bytes) -> None:
    """All of it or nothing, by one write: nobody reads half a line. Raises `OSError`."""
    size = os.fstat(fd).st_size
    written = os.write(fd, text)
    if written < len(text):
        os.ftruncate(fd, size)  # the disk is full: all of it comes later
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def last_number(workspace: str) -> int:
    """The largest number of an event that the files of a workspace tell; 0 without any."""
    paths = (f"{METADATA}/history.jsonl", f"{LOGS}/protocols.jsonl", f"{LOGS}/agent.log")
    files = [path for path in (f"{workspace}/{path}" for path in paths) if os.path.isfile(path)]
    number = 0
    for path in files:
        with suppress(OSError):
            number = max(number, _last(path))
    return number


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
