"""The session of one command line: settings, engine, workspace and output, each created on first use."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import cached_property as once
from time import monotonic
from typing import Any, TypeVar

import click

from keepfast.app.checkpoint import Engine
from keepfast.app.wiring import build
from keepfast.app.worker import row_after_pending
from keepfast.cli.progress import Progress
from keepfast.fsutil.lock_wait import COMMAND, WAITING
from keepfast.model.errors import Elsewhere, NoWorkspace, Usage
from keepfast.present.environment import Environment, current_folder
from keepfast.present.terminal import Paint, harmless
from keepfast.present.trust import refuse_untrusted_folders
from keepfast.settings import Settings, load
from keepfast.settings.live import LiveSettings
from keepfast.state.pending_events import names
from keepfast.store.references import resolve
from keepfast.store.repository import Repository
from keepfast.store.rows import CheckpointRow, WorkspaceRow
from keepfast.workspace.marker import show

Command = TypeVar("Command", bound=Callable[..., Any])


COLOURS = ("auto", "always", "never")


class Session:
    """One run of the command line."""

    def __init__(self, environment: Environment, clock: Callable[[], int], started: float) -> None:
        self.environment, self.now, self.started = environment, clock, started
        WAITING.seconds, WAITING.announce = COMMAND, self.remark
        self.json = self.quiet = False
        self._config: str | None = None
        self._folder: str | None = None
        self._store: str | None = None
        self._color = "auto"
        self._progress: Progress | None = None
        self.start: Callable[..., int] | None = None
        """Run one of the servers in `entry.SERVERS` by name until it ends; None if only the command line is available."""

    def use(
        self,
        *,
        config: str | None = None,
        folder: str | None = None,
        store: str | None = None,
        quiet: bool = False,
        color: str = "",
        as_json: bool = False,
    ) -> None:
        """Apply the global options that were given, before or after the name of the command."""
        self._store, self._color = store or self._store, color or self._color
        self.quiet, self.json = self.quiet or quiet, self.json or as_json
        if config is not None:
            self._config = _absolute(config)
        if folder is not None:
            try:
                os.chdir(folder)
            except OSError as error:
                raise Usage(f"Cannot change to {folder}: {error.strerror}.") from None
            self.__dict__.pop("cwd", None)
            self.refuse_untrusted_folders()

    def refuse_untrusted_folders(self) -> None:
        """Raise `Refused` if HOME or an XDG variable names a folder that a repository may control."""
        try:
            refuse_untrusted_folders(self.environment, self.cwd)
        except NoWorkspace:
            refuse_untrusted_folders(self.environment, b"/")

    def warn_of_relative_home(self) -> None:
        """Print which home is used if HOME is not absolute: settings and store are then others than the user may expect."""
        named = self.environment.variables.get(b"HOME", b"")
        if named and not named.startswith(b"/") and not self.environment.has_given_folders:
            home = self.environment.folders[0]
            self.warn(f"keepfast: HOME is not an absolute path; {home}, the home in the passwd entry, is used.")

    # What there is to work with

    @once
    def cwd(self) -> bytes:
        try:
            return current_folder()
        except FileNotFoundError:
            raise NoWorkspace("The current folder no longer exists.", "Change to an existing folder.") from None

    @property
    def given_config(self) -> str | None:
        """The settings file of `--config`, absolute."""
        return self._config

    @property
    def given_store(self) -> str | None:
        """The folder of `--store`, absolute."""
        return _absolute(self._store) if self._store is not None else None

    @once
    def config_path(self) -> str:
        return self._config or self.environment.config

    @once
    def settings(self) -> Settings:
        """Return the settings merged from defaults, the user's file, the project's, the environment and flags.

        Later ones win. Raises `Usage` if a file is invalid.
        """
        return self._load(lenient=False)

    def use_last_good_settings(self) -> None:
        """Replace a broken settings file by the last valid one, as hooks do: nobody is present to fix it."""
        self.__dict__["settings"] = self._load(lenient=True)

    def _load(self, *, lenient: bool) -> Settings:
        try:
            cwd: bytes | None = self.cwd
        except NoWorkspace:
            cwd = None
        variables = self.environment.keepfast_variables()
        data = self.environment.data
        required, agent = self._config is not None, self.environment.is_agents()
        store = self.given_store or ""
        settings = load(
            self.config_path,
            variables,
            cwd,
            required=required,
            lenient=lenient,
            agent=agent,
            data=data,
            store=store,
        )
        if self._store is not None:
            settings.put("store.url", self.given_store, "--store")
        return settings

    @once
    def hook_settings(self) -> Settings:
        """Return the settings as a hook sees them: only aliases count in the environment, and only if they tighten."""
        try:
            cwd: bytes | None = self.cwd
        except NoWorkspace:
            cwd = None
        return load(self.config_path, self.environment.keepfast_variables(), cwd, hook=True, data=self.environment.data)

    def follow_settings(self, here: bool = False) -> LiveSettings:
        """Return settings for a long-running process, which reloads them when files change.

        It serves many folders, so no project's file applies; with `here`, that of the current folder does.
        """
        try:
            cwd: bytes | None = self.cwd if here else None
        except NoWorkspace:
            cwd = None
        flags = {"store.url": _absolute(self._store)} if self._store is not None else {}
        required = self._config is not None
        variables, agent = self.environment.keepfast_variables(), self.environment.is_agents()
        return LiveSettings(self.config_path, variables, cwd, required=required, agent=agent, flags=flags)

    def forget_settings(self) -> None:
        """Reload the settings on next use, after their file was written."""
        self.__dict__.pop("settings", None)
        self.__dict__.pop("hook_settings", None)

    @once
    def engine(self) -> Engine:
        try:
            folder: bytes | None = self.cwd
        except NoWorkspace:
            folder = None
        return build(self.settings, self.environment.data, self.environment.home, self.now, folder)

    def engine_for(self, folder: bytes | None, own: bool = True) -> Engine:
        """Replace the session's engine by one for `folder`, which may lie elsewhere and need not be a workspace yet.

        Without a folder, use the store from the settings, even if the current workspace is kept in another one.
        """
        self.close()
        engine = build(self.settings, self.environment.data, self.environment.home, self.now, folder, own)
        self.__dict__["engine"] = engine
        return engine

    @property
    def repository(self) -> Repository:
        return self.engine.repository()

    def workspace(self, patience: float = 1.0) -> tuple[bytes, WorkspaceRow]:
        """Return root and row of the current workspace. Raises `NoWorkspace` or `Elsewhere`.

        Pending events of hooks are saved first. If a worker is saving them already, wait `patience` seconds for it.
        """
        try:
            root, row = self.engine.workspaces.root(self.cwd)
        except Elsewhere as elsewhere:
            self.ask_about_move(elsewhere)
            root, row = self.engine.workspaces.root(self.cwd)
        self.remark_rewritten_marker()
        if names(self.engine.place.folder(row.id)):
            return root, row_after_pending(self.engine, row, patience)
        return root, row

    def remark_rewritten_marker(self) -> None:
        if self.engine.workspaces.renewed:
            renewed, self.engine.workspaces.renewed = show(self.engine.workspaces.renewed), b""
            self.remark(
                f"The marker in {renewed} belonged to another folder. It was rewritten, and the history continues."
            )

    def ask_about_move(self, elsewhere: Elsewhere) -> None:
        """Ask whether the folder was moved: if so, continue its history, else start a new one.

        Raises `elsewhere` if the folder is known to be a copy, or if there is nobody to ask.
        """
        if elsewhere.copied or self.json or self.environment.is_agents() or not sys.stdin.isatty():
            raise elsewhere
        if self.confirm(f"{elsewhere} Was it moved here?", False):
            self.engine.workspaces.continue_history(elsewhere.root)
        else:
            self.engine.workspaces.protect_separately(elsewhere)

    def resolve(self, row: WorkspaceRow, text: str) -> CheckpointRow:
        return resolve(self.repository, row.id, text, self.now())

    def store_path(self) -> str:
        """Return the store's folder; empty if the command has not opened an engine."""
        return self.engine.place.path if "engine" in self.__dict__ else ""

    def close(self) -> None:
        if "engine" in self.__dict__:
            self.engine.close()

    # Where to write

    @once
    def paint(self) -> Paint:
        return Paint(self._use_colour(sys.stdout), self._columns())

    @once
    def warning_paint(self) -> Paint:
        return Paint(self._use_colour(sys.stderr), None)

    def print(self, text: str = "") -> None:
        """Print a result to standard output. Control characters are escaped: they may come from files or bundles."""
        sys.stdout.write(self._harmless(text, "paint") + "\n")

    def _harmless(self, text: str, paint: str) -> str:
        if text.isprintable():  # nearly always
            return text
        return harmless(text, getattr(self, paint).enabled)

    def say(self, text: str) -> None:
        """Print what was done, unless --quiet or --json is given."""
        if not self.quiet and not self.json:
            self.print(text)

    def remark(self, text: str) -> None:
        """Print a remark to standard error, unless --quiet or --json is given."""
        if not self.quiet and not self.json:
            self.warn(text)

    def warn(self, text: str) -> None:
        sys.stdout.flush()
        sys.stderr.write(self._harmless(text, "warning_paint") + "\n")
        sys.stderr.flush()

    def remark_unknown_settings(self) -> None:
        """Print a remark about each unknown setting: the user may rely on it."""
        for warning in self.settings.unknown:
            self.remark(warning)

    def milliseconds(self) -> int:
        """Return the milliseconds since the command started, without the time spent waiting for an answer."""
        return int((monotonic() - self.started) * 1000)

    def progress(self, what: str) -> Bar:
        """Return a context manager: a progress bar if the work takes longer than a second; None without a terminal."""
        return Bar(self, what)

    def start_progress(self, what: str) -> Progress | None:
        if self.quiet or self.json or not sys.stderr.isatty():
            return None
        self._progress = Progress(sys.stderr, what)
        return self._progress

    def clear_progress(self) -> None:
        if self._progress is not None:
            self._progress.clear()
            self._progress = None

    def confirm(self, question: str, yes: bool) -> bool:
        """Ask for confirmation, unless `yes`. Raises `Usage` if stdin is not a terminal."""
        if yes:
            return True
        if self.json or not sys.stdin.isatty():
            raise Usage(
                "Confirmation needed, but stdin is not a terminal. Use -y.", "--dry-run shows what would change."
            )
        asked_at = monotonic()
        try:
            return click.confirm(question, err=True)
        finally:
            self.started += monotonic() - asked_at  # the answer's time is not the command's

    def _use_colour(self, stream: Any) -> bool:
        if self._color != "auto":
            return self._color == "always"
        return stream.isatty() and not self.environment.text("NO_COLOR") and self.environment.text("TERM") != "dumb"

    def _columns(self) -> int | None:
        if not sys.stdout.isatty():
            return None
        text = self.environment.text("COLUMNS")
        try:
            return (
                int(text) if text.isdigit() and int(text) else os.get_terminal_size(sys.stdout.fileno()).columns or 80
            )
        except OSError:
            return 80


class Bar:
    """The progress bar of a `with` block."""

    def __init__(self, session: Session, what: str) -> None:
        self.session, self.what = session, what

    def __enter__(self) -> Progress | None:
        return self.session.start_progress(self.what)

    def __exit__(self, *_: object) -> None:
        self.session.clear_progress()


def common(command: Command) -> Command:
    """Give a command `--json` and the session as its first argument."""
    command = click.option(
        "--json", "as_json", is_flag=True, expose_value=False, callback=_as_json, help="Print the result as JSON."
    )(command)
    return click.pass_obj(command)  # type: ignore[return-value]


def write_json(value: object) -> None:
    """Write a JSON value to standard output, in UTF-8 whatever the locale."""
    sys.stdout.flush()
    text = json.dumps(value, indent=2, ensure_ascii=False)
    if not text.replace("\n", "").isprintable():
        # Escape control and bidirectional characters: the value stays the same, and a terminal obeys none of them.
        text = "".join([char if char == "\n" or char.isprintable() else json.dumps(char)[1:-1] for char in text])
    text = text.replace("\x7f", "\\u007f") + "\n"
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()


def write_bytes(data: bytes) -> None:
    """Write bytes to standard output unchanged."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)


def _as_json(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    session = ctx.find_object(Session)
    if session is not None and value:
        session.json = True


def _absolute(path: str) -> str:
    return os.path.abspath(path)
