"""Whether a supervisor of ours runs the client that started a hook. Variables alone are not trusted."""

from __future__ import annotations

from fcntl import LOCK_NB, LOCK_SH, flock
from os import O_CLOEXEC, O_CREAT, O_EXCL, O_NOFOLLOW, O_RDONLY, O_WRONLY, close
from os import open as open_fd

from keepfast.model.strict_json import loads
from keepfast.present.ancestors import ancestors, read_start
from keepfast.present.environment import Environment

SUPERVISED, RUN, TOKEN = "KEEPFAST_SUPERVISED", "KEEPFAST_RUN", "KEEPFAST_RUN_TOKEN"
"""Variables set for every agent of a supervisor: the client's name, the run, and the run's secret token."""
RUNS_FOLDER = "/supervisor/runs/"
TOKEN_FILE, CLIENT_FILE, LOCK_FILE, NOTED_FILE = "/token", "/client", "/lock", "/stood_down"
"""Files in a run's folder: its token, the client whose saves and guard the supervisor provides, the lock that the shim
holds, and a mark that the notice about suspended hooks was stored."""
RUN_NAME_CHARACTERS = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.")
HOOKS_SUSPENDED, CLAIM_IGNORED = "stood_down", "not_believed"
"""Kinds of notices."""


def run_above(environment: Environment) -> str:
    """Return the folder of the live run that this process belongs to; empty if there is none.

    Variables only name the run. The proof is that the shim that holds the run's lock is one of our ancestors, or, on
    systems without /proc, that we have the run's token.
    """
    name = environment.text(RUN).replace(":", "-")
    if not name or name.startswith(".") or not RUN_NAME_CHARACTERS.issuperset(name):
        return ""
    folder = environment.data + RUNS_FOLDER + name
    if not _is_held(folder + LOCK_FILE):
        return ""
    above = ancestors()
    if above:
        return folder if _process_in(read_start(folder + LOCK_FILE)) in above else ""
    token = environment.text(TOKEN).encode()
    return folder if token and read_start(folder + TOKEN_FILE) == token else ""


def saves_for(folder: str, client: str) -> bool:
    """Return whether the run's supervisor saves for that client and guards it; for other commands it does neither."""
    return read_start(folder + CLIENT_FILE) == client.encode()


def note_suspension(folder: str) -> bool:
    """Record that hooks are suspended for this run; return whether this is the first time."""
    try:
        close(open_fd(folder + NOTED_FILE, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600))
    except OSError:
        return False
    return True


def _is_held(path: str) -> bool:
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


def _process_in(facts: bytes) -> int:
    """Return the process id in a shim's lock file; 0 if it has none."""
    try:
        return int(loads(facts)["pid"])
    except (ValueError, TypeError, KeyError):
        return 0
