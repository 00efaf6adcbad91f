"""Start, stop and ask the resident: for hooks that found none, and for commands."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from dataclasses import dataclass
from typing import Any

from keepfast.fsutil.durable import make_folders
from keepfast.present import background
from keepfast.present.background import LAUNCH
from keepfast.present.environment import Environment, now_ns
from keepfast.resident import address, protocol
from keepfast.resident.peer import peer_process
from keepfast.resident.protocol import Request
from keepfast.settings import Settings, load

SETTING, OFF = "resident", "off"
STATUS, STOP = "status", "stop"
"""Verbs that ask the resident about itself, and to end."""
REST_NS = 30_000_000_000
"""How long hooks wait before they start it again: one that ends at once must not be started at every tool call."""
STAMP = "/started"
CLIENT = os.path.dirname(address.__file__) + "/keepfast-hook"
"""The program that the launcher starts first; it is missing where no compiler was when keepfast was installed."""
PATH = b"/usr/bin:/bin:/usr/sbin:/sbin"
START_SECONDS, STOP_SECONDS, ASK_SECONDS, POLL_SECONDS = 10.0, 10.0, 2.0, 0.02
ID = "0" * 32


@dataclass(frozen=True)
class ResidentState:
    """Whether a resident runs, and what it says of itself."""

    runs: bool
    process: int = 0
    why: str = ""
    """Why none runs, or why it does not answer."""
    facts: dict[str, Any] | None = None


def start_from_hook(environment: Environment, config: str | None) -> None:
    """Start the resident after a hook that found none, unless the setting forbids it or that was just tried."""
    stamp = address.folder_of(environment.data) + STAMP
    try:
        if 0 <= now_ns() - os.stat(stamp).st_mtime_ns < REST_NS:
            return
    except OSError:
        pass  # never tried
    settings = load(config or environment.config, {}, hook=True, data=environment.data)
    if settings[SETTING] == OFF or not os.path.isdir(environment.data):
        return
    try:
        start(environment)
    except OSError:
        return  # hooks go on by themselves, and `status` says that there is none


def start(environment: Environment) -> None:
    """Start the resident, detached; it ends at once if there is one. Raises `OSError`."""
    folder = address.folder_of(environment.data)
    make_folders(folder)
    with open(folder + STAMP, "wb"):
        pass
    os.utime(folder + STAMP)
    # Nothing of this process's environment: a repository's client settings may have set it.
    background.start(["resident"], Environment({b"PATH": PATH}, environment.folders))


def await_start(environment: Environment) -> ResidentState:
    """Wait until the resident answers, for some seconds."""
    end = time.monotonic() + START_SECONDS
    while True:
        seen = state(environment)
        if seen.facts is not None or time.monotonic() >= end:
            return seen
        time.sleep(POLL_SECONDS)


def stop(environment: Environment) -> bool:
    """End the resident; return whether one ran. Raises `TimeoutError` if it does not end."""
    data = environment.data
    found = address.read(data)
    if found is None or not address.is_held(data):
        return False
    try:
        _ask(environment, found.socket, STOP)
    except TimeoutError:
        _kill(found.socket)  # it hangs, or is stopped
    end = time.monotonic() + STOP_SECONDS
    while address.is_held(data):
        if time.monotonic() >= end:
            raise TimeoutError(f"process {found.process} does not end")
        time.sleep(POLL_SECONDS)
    return True


def _kill(path: str) -> None:
    """Kill the process that listens at this socket. The kernel names it; what the lock file says may be damaged."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ASK_SECONDS)
        connection.connect(path)
        process = peer_process(connection)
    if process > 1:
        os.kill(process, signal.SIGKILL)


def state(environment: Environment, settings: Settings | None = None) -> ResidentState:
    """Return whether a resident runs, and what it says of itself."""
    data = environment.data
    found = address.read(data)
    if found is None or not address.is_held(data):
        is_off = settings is not None and settings[SETTING] == OFF
        return ResidentState(False, why="the setting `resident` is off" if is_off else _last_end(data))
    try:
        return ResidentState(True, found.process, facts=_ask(environment, found.socket, STATUS))
    except (OSError, ValueError) as error:
        return ResidentState(True, found.process, f"it does not answer: {error}")


def _last_end(data: str) -> str:
    """Return why none runs, by the last line of the log."""
    try:
        with open(address.folder_of(data) + address.LOG, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return "no hook has started it yet"
    _, ended, reason = lines[-1].partition(" Ended: ") if lines else ("", "", "")
    return f"it ended: {reason.rstrip('.')}" if ended else "it was killed; the next hook starts it"


def _ask(environment: Environment, path: str, verb: str) -> dict[str, Any]:
    arguments = [LAUNCH, LAUNCH, *environment.folders, verb, ""]
    folder = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ASK_SECONDS)
            connection.connect(path)
            socket.send_fds(connection, [protocol.encode_request(Request(ID, b"/", arguments, {}, b""))], [folder])
            parts = []
            while part := connection.recv(1 << 16):
                parts.append(part)
    finally:
        os.close(folder)
    answer = protocol.decode_answer(b"".join(parts))
    facts = json.loads(answer.output)
    if not isinstance(facts, dict):
        raise ValueError("an unknown answer")
    return facts
