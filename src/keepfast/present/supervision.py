"""Whether a supervisor of ours answers for the client that started a hook. What a variable says of it is not believed alone."""

from __future__ import annotations

from posix import O_CLOEXEC, O_CREAT, O_EXCL, O_NOFOLLOW, O_RDONLY, O_WRONLY, close
from posix import open as open_fd

from keepfast.present.ancestors import ancestors, content

TYPE_CHECKING = False
if TYPE_CHECKING:
    from keepfast.present.environment import Surroundings

SUPERVISED, RUN, TOKEN = "KEEPFAST_SUPERVISED", "KEEPFAST_RUN", "KEEPFAST_RUN_TOKEN"
"""Set for every agent of a supervisor: its client's name, its run, and what only the run knows."""
RUNS = "/supervisor/runs/"
TOKEN_FILE, CLIENT_FILE, LOCK, NOTED = "/token", "/client", "/lock", "/stood_down"
"""In a run's folder: its token, the client that the supervisor saves for and gives a guard, the lock that its shim holds, and
whether a notice was left."""
PLAIN = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.")
STOOD_DOWN, NOT_BELIEVED = "stood_down", "not_believed"
"""Kinds of notices."""


def run_above(around: Surroundings) -> str:
    """The folder of the living run that this process belongs to; empty if there is none.

    The variables only say where to look: the shim that holds the run's lock, in a folder of ours, is one of our ancestors. Where
    the system does not tell those, we must have been given the run's token.
    """
    name = around.text(RUN).replace(":", "-")
    if not name or name.startswith(".") or not PLAIN.issuperset(name):
        return ""
    folder = around.data + RUNS + name
    if not _is_held(folder + LOCK):
        return ""
    above = ancestors()
    if above:
        return folder if _process(content(folder + LOCK)) in above else ""
    token = around.text(TOKEN).encode()
    return folder if token and content(folder + TOKEN_FILE) == token else ""


def drives(folder: str, client: str) -> bool:
    """Does the supervisor of this run save for that client, and bring a guard for it? For a command agent it has neither."""
    return content(folder + CLIENT_FILE) == client.encode()


def is_first(folder: str) -> bool:
    """Is this the first time that a hook stands down for this run?"""
    try:
        close(open_fd(folder + NOTED, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600))
    except OSError:
        return False
    return True


def _is_held(path: str) -> bool:
    from fcntl import LOCK_NB, LOCK_SH, flock

    try:
        fd = open_fd(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
    except OSError:
        return False
    try:
        flock(fd, LOCK_SH | LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        close(fd)


def _process(facts: bytes) -> int:
    """The shim that has written these facts into its lock."""
    from keepfast.model.light_json import loads

    try:
        return int(loads(facts)["pid"])
    except (ValueError, TypeError, KeyError):
        return 0
