"""Starting work that nobody waits for, or not for ever: processes of their own session, which outlive their parent."""

from __future__ import annotations

import sys
from posix import (
    O_CLOEXEC,
    O_RDWR,
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
from posix import open as open_fd

from keepfast.fsutil.lock_wait import WAITING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from keepfast.present.environment import Surroundings

LAUNCH = __file__.rpartition("/present/")[0] + "/hook/launch.py"
PART = 65536
LONGEST, MOST_MEMORY = 1800, 2 << 30
"""Seconds and bytes that a detached process may take: nobody sees it, so nobody would end it. A save takes a hundredth of both."""


def tidy(folder: bytes, config: str | None, around: Surroundings) -> None:
    """Let a process tidy up the workspace of `folder`. It may fail to start: the next save tries again."""
    arguments: list[bytes | str] = [sys.executable, "-I", "-S", "-B", LAUNCH, "--folders", *around.folders]
    arguments += ["tidy", "--cwd", folder]
    if config:
        arguments += ["--config", config]
    streams = [(POSIX_SPAWN_OPEN, number, "/dev/null", O_RDWR, 0) for number in range(3)]
    try:
        posix_spawn(sys.executable, arguments, dict(around.variables), file_actions=streams, setsid=True)
    except OSError:
        pass


def detach(work: Callable[[], object]) -> None:
    """Do the work in a process that the client cannot see or signal. Raises `OSError` if there can be none.

    It is a fork, not a new interpreter: what is loaded is there already, and what is known need not be written down.
    """
    _fork(work, -1)


def attempt(work: Callable[[], bytes], seconds: float) -> bytes | None:
    """Do the work in a detached process and wait for what it returns; None if that takes longer: it then goes on alone.

    Raises `OSError` if there can be no process.
    """
    reading, writing = pipe()
    try:
        _fork(work, writing)
    except BaseException:
        close(reading)
        raise
    finally:
        close(writing)
    from select import select
    from time import monotonic

    parts: list[bytes] = []
    end = monotonic() + seconds
    try:
        while select([reading], [], [], max(0.0, end - monotonic()))[0]:
            part = read(reading, PART)
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
        # At once, and by us: a client that ends its hook's group the moment we return must not find the child in it.
        _lead(child)
        return
    try:
        _lead(0)
        if fork() == 0:
            _work(work, report)
    finally:
        _exit(0)


def _lead(process: int) -> None:
    try:
        setpgid(process, process)
    except OSError:
        pass  # the other one of us was quicker


def _bound() -> None:
    """Let the kernel end this process, or refuse it memory, if it never comes to an end by itself."""
    from resource import RLIM_INFINITY, RLIMIT_DATA, getrlimit, setrlimit
    from signal import SIG_DFL, SIGALRM, alarm, signal

    signal(SIGALRM, SIG_DFL)
    alarm(LONGEST)
    soft, hard = getrlimit(RLIMIT_DATA)
    if soft == RLIM_INFINITY or soft > MOST_MEMORY:
        setrlimit(RLIMIT_DATA, (MOST_MEMORY, hard))


def _work(work: Callable[[], object], report: int) -> None:
    """Never returns: what a child has done is done, and the parent's way on is not its own."""
    code = 1
    try:
        setsid()
        quiet = open_fd("/dev/null", O_RDWR | O_CLOEXEC)
        for number in range(3):
            dup2(quiet, number)
        chdir("/")  # the folder that the client runs in may be removed or unmounted
        _bound()
        WAITING.seconds = None
        result = work()
        while report >= 0 and isinstance(result, bytes) and result:
            result = result[write(report, result) :]
        code = 0
    except BrokenPipeError:
        code = 0  # the parent has waited long enough
    finally:
        _exit(code)
