"""The resident: handles hooks in one process that stays, as far as they are quick (docs/resident.md)."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from tempfile import TemporaryFile

from keepfast import __version__
from keepfast.agents.registry import agent
from keepfast.app.open_stores import OpenStores
from keepfast.fsutil.lock_wait import WAITING
from keepfast.hook.autosave import options_of
from keepfast.hook.main import GUARD, SUPERVISED, TurnedOff, respond
from keepfast.model.errors import Declined
from keepfast.present import background
from keepfast.present.background import LAUNCH
from keepfast.present.environment import Environment, Folders, now_ns
from keepfast.present.resident import STATUS, STOP
from keepfast.present.supervision import RUN
from keepfast.resident.address import LOG, HeldLock, folder_of
from keepfast.resident.protocol import Answer, Request
from keepfast.resident.server import Server

LOCK_SECONDS = 1.0
"""How long a save waits for a workspace's lock: other hooks wait meanwhile."""
MAX_LOG_BYTES = 256 << 10
PROGRAM = os.path.realpath(LAUNCH)
SECOND = 1_000_000_000


def main(folders: Folders) -> int:
    """Be the resident of this data folder until there is a reason to end; return the exit code."""
    environment = Environment({}, folders)
    lock = HeldLock.take(environment.data)
    if lock is None:
        return 0  # there is one already
    started = now_ns()
    log = _log_to(folder_of(environment.data) + LOG)
    WAITING.seconds = LOCK_SECONDS
    is_current = _is_current()
    handler = Handler(folders)
    # Disks can be unmounted while nothing is saved: neither its folder nor open stores are in the way.
    os.chdir("/")
    server = Server(lock, handler.handle, handler.close, is_current, log)
    handler.stop = server.stop
    handler.facts = lambda: {"started": started, "version": __version__, **vars(server.counters)}
    gc.collect()
    gc.freeze()  # what is loaded by now stays
    log(f"Started as process {os.getpid()}.")
    reason = server.run()
    handler.close()
    log(f"Ended: {reason}.")
    return 0


class Handler:
    """Answers requests; repositories stay open between them."""

    def __init__(self, folders: Folders) -> None:
        self.folders = folders
        self.open_stores = OpenStores()
        self._own_paths: set[str] = set()
        self.facts: Callable[[], dict[str, object]] = dict
        """What the server has to say of itself."""
        self.stop: Callable[[str], None] = lambda reason: None
        """Ends the server, for this reason."""

    def handle(self, request: Request) -> Answer:
        """Answer a call of the hook, or a question about ourselves. Raises `Declined`."""
        if request.words[0] == STOP:
            self.stop("it was told to")
        if request.words[0] in (STATUS, STOP):
            return Answer(0, json.dumps({**self.facts(), "stores": self.open_stores.paths()}).encode())
        options = options_of(["hook", *request.words[2:]])
        client = agent(request.words[1])
        environment = Environment(request.variables, request.folders)
        if request.words[0] != "hook" or options is None or client is None:
            raise Declined("not a hook's words")
        if request.folders != self.folders or not self._is_ours(request.program):
            raise Declined("other folders, or another installation")
        if options.get("--part") == GUARD or environment.text(SUPERVISED) or environment.text(RUN):
            raise Declined("a supervised run")
        options["--event"] = request.event_id
        work = Processes(request, environment, options.get("--config"))
        try:
            output, problem, code = respond(
                client, request.payload, environment, work, options, cwd=request.cwd, open_stores=self.open_stores
            )
        except TurnedOff as reason:
            self.stop(str(reason))
            raise
        return Answer(code, output, f"keepfast: {problem}\n".encode("utf-8", "backslashreplace") if problem else b"")

    def _is_ours(self, program: str) -> bool:
        """Return whether this is our `launch.py`, by whatever path."""
        if program not in self._own_paths and os.path.realpath(program) == PROGRAM:
            self._own_paths.add(program)
        return program in self._own_paths

    def close(self) -> None:
        self.open_stores.close()


class Processes:
    """Work for other processes: implements `Background`. Nothing here waits, and nothing is forked."""

    def __init__(self, request: Request, environment: Environment, config: str | None) -> None:
        self.request, self.environment, self.config = request, environment, config

    def leave_to_process(self, why: str) -> None:
        raise Declined(why)

    def attempt(self, work: Callable[[], bytes], seconds: float) -> bytes | None:
        raise AssertionError("the resident waits for nobody")

    def pause(self, seconds: float) -> None:
        raise AssertionError("the resident waits for nobody")

    def tidy(self, folder: bytes) -> None:
        background.tidy(folder, self.config, self.environment)

    def detach(self, work: Callable[[], object], at: int = 0) -> None:
        """Start a worker for the event: it does the same work, from the same payload."""
        options = [
            "--event",
            self.request.event_id,
            "--worker",
            str(at or now_ns()),
            "--cwd",
            os.fsdecode(self.request.cwd),
        ]
        with TemporaryFile() as payload:
            payload.write(self.request.payload)
            payload.seek(0)
            background.start([*self.request.words, *options], self.environment, payload.fileno())


def _is_current() -> Callable[[], bool]:
    """Return a function that tells whether our files are still those that we were loaded from."""
    folders = [os.path.dirname(os.path.dirname(LAUNCH)), os.path.dirname(LAUNCH)]
    loaded = [_identity(folder) for folder in folders]
    return lambda: [_identity(folder) for folder in folders] == loaded


def _identity(folder: str) -> tuple[int, ...]:
    try:
        seen = os.stat(folder)
    except OSError:
        return ()
    return seen.st_dev, seen.st_ino, seen.st_mtime_ns


def _log_to(path: str) -> Callable[[str], None]:
    """Return a function that adds a line to the log file, which is begun anew when it is large."""

    def log(text: str) -> None:
        try:
            mode = "ab" if _size(path) < MAX_LOG_BYTES else "wb"
            with open(path, mode) as file:
                file.write(f"{time_text()} {text}\n".encode("utf-8", "backslashreplace"))
        except OSError:
            pass  # a full disk must not stop it

    return log


def time_text() -> str:
    return datetime.fromtimestamp(now_ns() // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
