"""Starting the supervisor: its runtime, lock, workflows and loop. `supervise`, `serve` and `run` call this."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from threading import Event as Flag
from threading import Thread

from keepfast.app.wiring import build
from keepfast.model.errors import Busy, KeepfastError, Usage, extra
from keepfast.runner.actions.news import News, OnEvent
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.domain.options import Options
from keepfast.runner.process.wake import wake
from keepfast.runner.scheduler.attempts import Threads, Workflows
from keepfast.runner.scheduler.lock import SupervisorLock
from keepfast.runner.scheduler.supervisor import Supervisor
from keepfast.settings import Settings
from keepfast.settings.live import LiveSettings

FOLDER = "/supervisor"
RETRY_SECONDS = 3.0
"""Seconds after which a supervisor in the background checks again whether another one has ended."""


def make_runtime(
    settings: Settings,
    data: str,
    home: bytes,
    clock: Callable[[], int],
    variables: Mapping[str, str],
    options: Options | None = None,
    folders: Sequence[str] = (),
    following: LiveSettings | None = None,
) -> Runtime:
    """Return the runtime of a command about tasks. Opens the task database, and creates it if need be.

    `folders` are the user's home, configuration and data, for the agents' hooks. With `following`, a supervisor takes over
    changed settings while it runs.
    """

    def now() -> Settings:
        return following.now() if following is not None else settings

    def follow() -> tuple[Options, str]:
        return Options.read(now()), following.problem if following is not None else ""

    return Runtime(
        data + FOLDER,
        options or Options.read(now()),
        clock,
        variables,
        lambda: build(now(), data, home, clock),
        folders=folders,
        follow=follow if following is not None else None,
    )


def _nothing() -> None:
    """Do nothing: the default callback."""


def run(
    runtime: Runtime,
    stop: Flag,
    *,
    until_idle: bool = False,
    durable: bool = True,
    only: str = "",
    on_event: OnEvent | None = None,
    begun: Callable[[], None] = _nothing,
) -> None:
    """Supervise until `stop` is set, or, with `until_idle`, no task continues by itself. Raises `Busy` if another supervisor runs.

    Agents live on when it returns; the next supervisor takes them over. `on_event` is called with every event; `begun` is called
    once this supervisor has the lock.
    """
    with closing(SupervisorLock(runtime.folder)) as lock, closing(runtime.tables.claim()) as claim:
        begun()
        workflows = _workflows(runtime, durable)
        try:
            supervisor = Supervisor(runtime, workflows, only, claim)
            supervisor.stop = stop
            supervisor.note = lock.note
            supervisor.news = news = News(runtime.tables, on_event)
            supervisor.run(until_idle)
        finally:
            workflows.close()
        news.look()


class Background:
    """A supervisor in a thread, for a process such as the page's server.

    While another supervisor runs it waits, and takes over when that one ends; `on_message` gets messages about this, and errors.
    """

    def __init__(self, runtime: Runtime, on_message: Callable[[str], None] = lambda text: None) -> None:
        self.runtime, self.stop, self.on_message = runtime, Flag(), on_message
        self.error: KeepfastError | None = None
        self.thread = Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def close(self) -> None:
        self.stop.set()
        wake(self.runtime.folder)
        self.thread.join(30)

    def _run(self) -> None:
        last_message = ""
        while not self.stop.is_set():
            try:
                run(self.runtime, self.stop, begun=self._report_here if last_message else _nothing)
            except Busy as error:
                if str(error) != last_message:
                    last_message = str(error)
                    self.on_message(f"{last_message} This process runs tasks when it ends.")
                self.stop.wait(RETRY_SECONDS)
            except KeepfastError as error:
                self.error = error
                self.on_message(f"This process does not run tasks: {error}")
                return

    def _report_here(self) -> None:
        self.on_message("This process runs tasks now.")


def _workflows(runtime: Runtime, durable: bool) -> Workflows:
    if not durable:
        return Threads(runtime)
    try:
        from keepfast.runner.scheduler.workflows import Durable
    except ImportError:
        raise Usage("The supervisor needs an extra that is not installed.", extra("serve")) from None
    return Durable(runtime)
