"""Starting the supervisor: its ground, its lock, its workflows, its loop. What `serve` and `run` call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from threading import Event as Flag
from threading import Thread
from typing import TYPE_CHECKING

from keepfast.app.wiring import build
from keepfast.model.errors import Busy, KeepfastError, Usage, extra
from keepfast.runner.actions.environment import Ground
from keepfast.runner.actions.news import News
from keepfast.runner.domain.options import Options
from keepfast.runner.process.wake import wake
from keepfast.runner.scheduler.attempts import Threads, Workflows
from keepfast.runner.scheduler.lock import Lock
from keepfast.runner.scheduler.supervisor import Supervisor

if TYPE_CHECKING:
    from keepfast.runner.actions.news import Tell
    from keepfast.settings import Settings
    from keepfast.settings.live import LiveSettings

FOLDER = "/supervisor"
AGAIN = 3.0
"""Seconds after which a supervisor in the background asks again whether another one has ended."""


def make_ground(
    settings: Settings,
    data: str,
    home: bytes,
    clock: Callable[[], int],
    variables: Mapping[str, str],
    options: Options | None = None,
    folders: Sequence[str] = (),
    following: LiveSettings | None = None,
) -> Ground:
    """What every command about tasks stands on. Opens the tables, makes them if need be.

    `folders` are what the agents' hooks are told of the user's home, configuration and data. With `following`, a supervisor
    goes by the settings as they are while it runs.
    """

    def now() -> Settings:
        return following.now() if following is not None else settings

    def follow() -> tuple[Options, str]:
        return Options.read(now()), following.problem if following is not None else ""

    return Ground(
        data + FOLDER,
        options or Options.read(now()),
        clock,
        variables,
        lambda: build(now(), data, home, clock),
        folders=folders,
        follow=follow if following is not None else None,
    )


def _nothing() -> None:
    """Nobody wants to know."""


def run(
    ground: Ground,
    stop: Flag,
    *,
    until_idle: bool = False,
    durable: bool = True,
    only: str = "",
    tell: Tell | None = None,
    begun: Callable[[], None] = _nothing,
) -> None:
    """Supervise until `stop` is set, or nothing goes on by itself. Raises `Busy` if another supervisor runs.

    Agents live on when it returns, and are found again by the next one. `tell` is given every event as it happens; `begun`
    is called when no other supervisor is in the way.
    """
    with closing(Lock(ground.folder)) as lock, closing(ground.tables.claim()) as claim:
        begun()
        workflows = _workflows(ground, durable)
        try:
            supervisor = Supervisor(ground, workflows, only, claim)
            supervisor.stop = stop
            supervisor.note = lock.note
            supervisor.news = news = News(ground.tables, tell)
            supervisor.run(until_idle)
        finally:
            workflows.close()
        news.look()


class Background:
    """A supervisor in a thread of its own, for a process that has something else to do, as the page has.

    While another one runs it waits, and takes over when that one ends; `say` is told who runs tasks, and what went wrong.
    """

    def __init__(self, ground: Ground, say: Callable[[str], None] = lambda text: None) -> None:
        self.ground, self.stop, self.say = ground, Flag(), say
        self.error: KeepfastError | None = None
        self.thread = Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        self.thread.start()

    def close(self) -> None:
        self.stop.set()
        wake(self.ground.folder)
        self.thread.join(30)

    def _run(self) -> None:
        told = ""
        while not self.stop.is_set():
            try:
                run(self.ground, self.stop, begun=self._say_here if told else _nothing)
            except Busy as error:
                if str(error) != told:
                    told = str(error)
                    self.say(f"{told} Tasks are run here when it ends.")
                self.stop.wait(AGAIN)
            except KeepfastError as error:
                self.error = error
                self.say(f"Tasks are not run here: {error}")
                return

    def _say_here(self) -> None:
        self.say("Tasks are run here now.")


def _workflows(ground: Ground, durable: bool) -> Workflows:
    if not durable:
        return Threads(ground)
    try:
        from keepfast.runner.scheduler.workflows import Durable
    except ImportError:
        raise Usage("The supervisor needs an extra that is not installed.", extra("serve")) from None
    return Durable(ground)
