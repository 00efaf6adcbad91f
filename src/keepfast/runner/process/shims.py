"""The supervisor's side of shims: start one, read its status, send it requests, end stray processes."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from typing import Any, NamedTuple

from keepfast.runner.process.run_folder import write_file
from keepfast.runner.process.tree import send, start_time

ABSENT, ALIVE, OVER, LOST = "absent", "alive", "over", "lost"
TOKEN = "KEEPFAST_RUN_TOKEN"
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launch_shim.py")


class RunStatus(NamedTuple):
    """The status of a run by its folder: absent (never started), alive, over with a report, or lost without one."""

    kind: str
    pid: int = 0
    boot: str = ""
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    started: bool = True
    ended_at: int = 0
    seconds: float | None = None
    """How long it ran by a clock that nobody can set, if its shim reported it."""


def start(folder: str, job: dict[str, Any]) -> str:
    """Start the shim of a run, unless it was started before; return its answer: `started`, `running` or `begun`.

    Raises `OSError` if no process can be created.
    """
    os.makedirs(folder, mode=0o700, exist_ok=True)
    errors = os.open(folder + "/shim.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", PROGRAM, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={"PATH": os.defpath},
            cwd="/",
            start_new_session=True,
        )
    finally:
        os.close(errors)
    assert child.stdin is not None
    assert child.stdout is not None
    with child.stdin, child.stdout:
        try:
            child.stdin.write(json.dumps(job).encode())
            child.stdin.close()
        except BrokenPipeError:
            pass
        word = child.stdout.readline().decode().strip()
    _adopted.append(child)
    _forget_ended()
    return word


_adopted: list[subprocess.Popen[bytes]] = []


def _forget_ended() -> None:
    """Wait for children that have ended; otherwise they stay as zombies for as long as we live."""
    _adopted[:] = [child for child in _adopted if child.poll() is None]


def status_of(folder: str, run: str) -> RunStatus:
    """Return the status of a run. Only a lock that is held and names this run proves a live agent."""
    _forget_ended()
    report = read(folder + "/exit.json")
    if report is not None and report.get("run") == run:
        try:
            ended = os.stat(folder + "/exit.json").st_mtime_ns
        except OSError:
            ended = 0
        code, number, seconds = (report.get(name) for name in ("exit", "signal", "seconds"))
        return RunStatus(
            OVER,
            exit_code=code if isinstance(code, int) else None,
            signal=number if isinstance(number, int) else None,
            reason=str(report.get("reason", "")),
            started=bool(report.get("started", True)),
            ended_at=ended,
            seconds=float(seconds) if isinstance(seconds, int | float) else None,
        )
    facts = read(folder + "/lock")
    if is_locked(folder + "/lock"):
        if facts is not None and facts.get("run") == run:
            return RunStatus(ALIVE, pid=int(facts["pid"]), boot=str(facts.get("boot", "")))
        return RunStatus(ALIVE)  # it has the lock and is about to write its process id
    if facts is None:
        return RunStatus(ABSENT)
    # The report may have come after it was looked for.
    if os.path.exists(folder + "/exit.json") and report is None:
        return status_of(folder, run)
    return RunStatus(LOST, boot=str(facts.get("boot", "")))


class AgentProcess(NamedTuple):
    """The agent's process as its shim recorded it."""

    pid: int | None = None
    """None before it was started, or if it could not be."""
    start: int | None = None
    """When it was started, in ticks since boot."""


def agent(folder: str) -> AgentProcess:
    facts = read(folder + "/agent.json") or {}
    return AgentProcess(facts.get("pid"), facts.get("start"))


def wish(folder: str, what: str, reason: str = "") -> int:
    """Tell a shim to stop, kill, freeze or thaw; return the number of the wish."""
    before = read(folder + "/wish") or {}
    number = int(before.get("number", 0)) + 1
    write_file(folder + "/wish", {"number": number, "do": what, "reason": reason}, durable=False)
    facts = read(folder + "/lock")
    if facts is None or not is_locked(folder + "/lock"):
        return number
    try:
        # By descriptor, while that process holds the lock: a process that reuses the number never gets the signal.
        pidfd = os.pidfd_open(int(facts["pid"]))
        try:
            if start_time(int(facts["pid"])) == facts.get("started"):
                signal.pidfd_send_signal(pidfd, signal.SIGUSR1)
        finally:
            os.close(pidfd)
    except (OSError, AttributeError, ValueError, KeyError):
        pass  # the shim checks for wishes once a second anyway
    return number


def last_wish(folder: str) -> str:
    """Return the last wish that was sent; empty if there is none."""
    return str((read(folder + "/wish") or {}).get("do", ""))


class ShimState(NamedTuple):
    """What a shim has carried out."""

    wish: int = 0
    """The number of the last wish that it has carried out."""
    done: str = ""
    frozen: bool = False
    all: bool = False
    """Every process of the agent is stopped, not only some."""


def state(folder: str) -> ShimState:
    facts = read(folder + "/state") or {}
    return ShimState(
        int(facts.get("wish", 0)), str(facts.get("done", "")), bool(facts.get("frozen")), bool(facts.get("all"))
    )


def end_strays(token: str) -> int:
    """Kill whatever still carries the token of a run whose shim is gone; return how many there were."""
    marker, count = f"{TOKEN}={token}".encode(), 0
    for _ in range(20):
        strays = [pid for pid in _own_processes() if marker in _environment(pid)]
        if not strays:
            break
        for pid in strays:
            send(pid, signal.SIGKILL)
        count += len(strays)
    return count


def carries_token(pid: int) -> bool:
    """Return whether this process, or one above it, belongs to a run; commands that are only for people check this."""
    for _ in range(64):
        if pid <= 1:
            return False
        if any(part.startswith(TOKEN.encode() + b"=") for part in _environment(pid)):
            return True
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            return False
    return False


def is_locked(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)


def read(path: str, most: int = 1 << 20) -> dict[str, Any] | None:
    """Return a small JSON object; None if it does not exist or is not whole."""
    try:
        with open(path, "rb") as file:
            value = json.loads(file.read(most))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _own_processes() -> list[int]:
    own, pids = os.geteuid(), []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        try:
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == own and int(name) != os.getpid():
                pids.append(int(name))
        except OSError:
            continue
    return pids


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []
