"""Opens the workspace for each call, with current settings and an engine of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from keepfast.app.checkpoint import Engine
from keepfast.app.wiring import build
from keepfast.app.worker import row_after_pending
from keepfast.model.errors import Usage
from keepfast.present.environment import Environment
from keepfast.present.server_options import McpOptions
from keepfast.settings import Settings
from keepfast.settings.live import LiveSettings
from keepfast.state import sessions
from keepfast.store.references import resolve
from keepfast.store.repository import Repository
from keepfast.store.rows import CheckpointRow, WorkspaceRow
from keepfast.workspace.marker import show


class OpenWorkspace:
    """The workspace during one call. Nothing is kept between calls: the store may be tidied or moved meanwhile."""

    def __init__(self, engine: Engine, cwd: bytes) -> None:
        self.engine, self.cwd = engine, cwd
        self.root, row = engine.workspaces.root(cwd)
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
        return resolve(self.repository, self.row.id, reference, self.now())

    def below(self, text: str) -> bytes:
        """Return a path relative to the root, as the store has it. Raises `Usage` if it is outside the workspace."""
        if "\0" in text:
            raise Usage("paths: a path cannot contain a NUL byte.", "Give paths relative to the workspace's root.")
        path = os.path.normpath(os.path.join(self.root, os.fsencode(text)))
        if path == self.root:
            return b""
        if not path.startswith(self.root.rstrip(b"/") + b"/"):
            raise Usage(f"{show(os.fsencode(text))} is outside the workspace.", "Give paths relative to its root.")
        return path[len(self.root.rstrip(b"/")) + 1 :]

    def refresh(self) -> WorkspaceRow:
        """Reload the workspace's row after a save, and return it."""
        self.row = self.repository.workspace(self.row.id) or self.row
        return self.row


class WorkspaceAccess:
    """Opens the workspace of the server's folder, in any number of threads at once."""

    def __init__(self, options: McpOptions, environment: Environment, clock: Callable[[], int]) -> None:
        self.cwd: bytes = options.cwd
        self.clock, self.environment = clock, environment
        config, store = options.config, options.store
        flags = {"store.url": store} if store else {}
        self.following = LiveSettings(
            config or environment.config,
            environment.keepfast_variables(),
            self.cwd,
            required=config is not None,
            agent=True,  # the server is for agents, whoever starts it
            flags=flags,
            stores=environment.data,
        )
        self.config: str = config or environment.config
        flag_values = (("--config", config), ("--store", store))
        self.given_flags: list[tuple[str, str]] = [(flag, value) for flag, value in flag_values if value]
        """Flags that the server was started with; commands for the user need them too."""
        self.token_file: str = options.token_file or environment.data + "/mcp.token"
        self._session, self._client = environment.text("CLAUDE_CODE_SESSION_ID"), str(os.getppid())

    def session(self, workspace: OpenWorkspace) -> dict[str, Any]:
        """Return what hooks recorded about the current session of our parent process, the agent's client.

        The session in the environment may be outdated, since a server outlives `/clear`; it is used if there are no hooks.
        """
        folder = workspace.engine.place.folder(workspace.row.id)
        for facts in sessions.all_facts(folder):
            if str(facts.get("client")) == self._client and not facts.get("ended"):
                return facts
        return {**sessions.facts(folder, self._session), "session": self._session} if self._session else {}

    @contextmanager
    def open(self) -> Iterator[OpenWorkspace]:
        """Open the workspace. Raises `NoWorkspace`, and the errors of opening the store."""
        engine = build(self.following.now(), self.environment.data, self.environment.home, self.clock, self.cwd)
        try:
            yield OpenWorkspace(engine, self.cwd)
        finally:
            engine.close()
