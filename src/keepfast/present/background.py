"""Starts background processes in sessions of their own, which outlive their parent."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from os import (
    O_CLOEXEC,
    O_RDWR,
    POSIX_SPAWN_DUP2,
    POSIX_SPAWN_OPEN,
    _exit,
    chdir,
    close,
    dup2,
    fork,
    pipe,
    posix_spawn,
    read,
    setpgid,
    setsid,
    write,
)
from os import open as open_fd
from resource import RLIM_INFINITY, RLIMIT_DATA, getrlimit, setrlimit
from select import select
from signal import SIG_DFL, SIGALRM, alarm, signal
from time import monotonic

from keepfast.fsutil.lock_wait import WAITING
from keepfast.present.environment import Environment

LAUNCH = __file__.rpartition("/present/")[0] + "/hook/launch.py"
READ_BYTES = 65536
MAX_SECONDS, MAX_MEMORY_BYTES = 1800, 2 << 30
"""Limits of a detached process, which nobody would notice if it hung. A save takes a hundredth of both."""


def tidy(folder: bytes, config: str | None, environment: Environment) -> None:
    """Start a process that tidies the workspace of `folder`. If it fails to start, the next save tries again."""
    words: list[bytes | str] = ["tidy", "--cwd", folder]
    if config:
        words += ["--config", config]
    try:
        start(words, environment)
    except OSError:
        pass


def start(words: Sequence[bytes | str], environment: Environment, payload: int = -1) -> int:
    """Start a program of ours in a session of its own, without a terminal; return its process id. Raises `OSError`.

    `payload`: a descriptor for its standard input.
    """
    arguments = [sys.executable, "-I", "-S", "-B", LAUNCH, "--folders", *environment.folders, *words]
    streams: list[tuple[int, ...] | tuple[int, int, str, int, int]]
    streams = [(POSIX_SPAWN_OPEN, number, "/dev/null", O_RDWR, 0) for number in range(3)]
    if payload >= 0:
        streams[0] = (POSIX_SPAWN_DUP2, payload, 0)
    return posix_spawn(sys.executable, arguments, dict(environment.variables), file_actions=streams, setsid=True)


def detach(work: Callable[[], object]) -> None:
    """Do the work in a detached process, outside the client's process group. Raises `OSError` if the fork fails.

    A fork rather than a new interpreter: modules are loaded already, and arguments need not be serialised.
    """
    _fork(work, -1)


def attempt(work: Callable[[], bytes], seconds: float) -> bytes | None:
    """Do the work in a detached process and return its result; None if it takes longer, and then it continues alone.

    Raises `OSError` if the fork fails.
    """
    reading, writing = pipe()
    try:
        _fork(work, writing)
    except BaseException:
        close(reading)
        raise
    finally:
        close(writing)
    parts: list[bytes] = []
    end = monotonic() + seconds
    try:
        while select([reading], [], [], max(0.0, end - monotonic()))[0]:
            part = read(reading, READ_BYTES)
            if not part:
                return b"".join(parts)
            parts.append(part)
        return None
    finally:
        close(reading)


def _fork(work: Callable[[], object], report: int) -> None:
    """Fork twice, so that the second child can lead a session of its own."""
    child = fork()
    if child:
        # Done by the parent as well: a client may kill the hook's group as soon as we return.
        _make_group_leader(child)
        return
    try:
        _make_group_leader(0)
        if fork() == 0:
            _run_and_exit(work, report)
    finally:
        _exit(0)


def _make_group_leader(process: int) -> None:
    try:
        setpgid(process, process)
    except OSError:
        pass  # parent or child did it first


def _limit_resources() -> None:
    """Let the kernel end this process after `MAX_SECONDS`, and limit its memory."""
    signal(SIGALRM, SIG_DFL)
    alarm(MAX_SECONDS)
    soft, hard = getrlimit(RLIMIT_DATA)
    if soft == RLIM_INFINITY or soft > MAX_MEMORY_BYTES:
        setrlimit(RLIMIT_DATA, (MAX_MEMORY_BYTES, hard))


def _run_and_exit(work: Callable[[], object], report: int) -> None:
    """Run the work in the child, write its result to `report`, and exit; never return to the parent's code."""
    code = 1
    try:
        setsid()
        quiet = open_fd("/dev/null", O_RDWR | O_CLOEXEC)
        for number in range(3):
            dup2(quiet, number)
        chdir("/")  # the folder that the client runs in may be removed or unmounted
        _limit_resources()
        WAITING.seconds = None
        result = work()
        while report >= 0 and isinstance(result, bytes) and result:
            result = result[write(report, result) :]
        code = 0
    except BrokenPipeError:
        code = 0  # the parent has stopped waiting
    finally:
        _exit(code)
