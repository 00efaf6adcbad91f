"""What each call is given: the settings in force now, an engine of its own, and the workspace."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from keepfast.app.wiring import build
from keepfast.app.worker import row_after_pending
from keepfast.model.errors import Usage
from keepfast.settings.live import LiveSettings
from keepfast.workspace.marker import show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from keepfast.app.checkpoint import Engine
    from keepfast.present.environment import Surroundings
    from keepfast.settings import Settings
    from keepfast.store.repository import Repository
    from keepfast.store.rows import CheckpointRow, WorkspaceRow


class Visit:
    """One call's view of the workspace. Nothing is kept between calls: the store may be tidied or moved meanwhile."""

    def __init__(self, engine: Engine, cwd: bytes) -> None:
        self.engine, self.cwd = engine, cwd
        self.root, row = engine.root(cwd)
        self.row = row_after_pending(engine, row)

    @property
    def repository(self) -> Repository:
        return self.engine.repository()

    @property
    def settings(self) -> Settings:
        return self.engine.settings

    def now(self) -> int:
        return self.engine.clock()

    def resolve(self, reference: str) -> CheckpointRow:
        from keepfast.store.references import resolve

        return resolve(self.repository, self.row.id, reference, self.now())

    def below(self, text: str) -> bytes:
        """A path as the store has it. Raises `Usage` if it leads outside of the workspace."""
        if "\0" in text:
            raise Usage("paths: a path cannot contain a NUL byte.", "Give paths relative to the workspace's root.")
        path = os.path.normpath(os.path.join(self.root, os.fsencode(text)))
        if path == self.root:
            return b""
        if not path.startswith(self.root.rstrip(b"/") + b"/"):
            raise Usage(f"{show(os.fsencode(text))} is outside the workspace.", "Give paths relative to its root.")
        return path[len(self.root.rstrip(b"/")) + 1 :]

    def refreshed(self) -> WorkspaceRow:
        """The workspace's row as it is after a save."""
        self.row = self.repository.workspace(self.row.id) or self.row
        return self.row


class Visits:
    """Makes visits, in any number of threads at once."""

    def __init__(self, options: Mapping[str, Any], around: Surroundings, clock: Callable[[], int]) -> None:
        self.cwd: bytes = options["cwd"]
        self.clock, self.around = clock, around
        config = options.get("config")
        flags = {"store.url": options["store"]} if options.get("store") else {}
        self.following = LiveSettings(
            config or around.config,
            around.keepfast_variables(),
            self.cwd,
            required=config is not None,
            agent=True,  # whoever starts it: an agent is who it is for
            flags=flags,
            stores=around.data,
        )
        self.config: str = config or around.config
        places = (("--config", config), ("--store", options.get("store")))
        self.given: list[tuple[str, str]] = [(flag, place) for flag, place in places if place]
        """Flags that the server was started with, which a command for the user needs too."""
        self.token_file: str = options.get("token_file") or around.data + "/mcp.token"
        self._session, self._client = around.text("CLAUDE_CODE_SESSION_ID"), str(os.getppid())

    def session(self, visit: Visit) -> dict[str, Any]:
        """What hooks have noted of the agent's session: the one that our parent, its client, is in now.

        A server outlives `/clear`, and its environment does not change; without hooks it is all there is.
        """
        from keepfast.state import sessions

        folder = visit.engine.place.folder(visit.row.id)
        for facts in sessions.all_facts(folder):
            if str(facts.get("client")) == self._client and not facts.get("ended"):
                return facts
        return {**sessions.facts(folder, self._session), "session": self._session} if self._session else {}

    @contextmanager
    def open(self) -> Iterator[Visit]:
        """Raises `NoWorkspace` and what else opening the store may raise."""
        engine = build(self.following.now(), self.around.data, self.around.home, self.clock, self.cwd)
        try:
            yield Visit(engine, self.cwd)
        finally:
            engine.close()
