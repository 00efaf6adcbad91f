"""What every command is given: settings, engine, workspace, and where to write. All of it made when first asked for."""

from __future__ import annotations

import sys
from time import monotonic

from keepfast.fsutil.lock_wait import COMMAND, WAITING
from keepfast.model.errors import Elsewhere, NoWorkspace, Usage
from keepfast.present.environment import Surroundings, current_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from functools import cached_property as once
    from typing import Any, TypeVar

    import click

    from keepfast.app.checkpoint import Engine
    from keepfast.cli.progress import Progress
    from keepfast.present.terminal import Paint
    from keepfast.settings import Settings
    from keepfast.settings.live import LiveSettings
    from keepfast.store.repository import Repository
    from keepfast.store.rows import CheckpointRow, WorkspaceRow

    Command = TypeVar("Command", bound=Callable[..., Any])
else:

    class once:
        """`functools.cached_property` without what importing it costs a short command."""

        def __init__(self, make):
            self.make = make

        def __get__(self, session, kind=None):
            value = session.__dict__[self.make.__name__] = self.make(session)
            return value


COLOURS = ("auto", "always", "never")


class Session:
    """One run of the command line."""

    def __init__(self, around: Surroundings, clock: Callable[[], int], started: float) -> None:
        self.around, self.now, self.started = around, clock, started
        WAITING.seconds, WAITING.tell = COMMAND, self.remark
        self.json = self.quiet = False
        self._config: str | None = None
        self._folder: str | None = None
        self._store: str | None = None
        self._color = "auto"
        self._progress: Progress | None = None
        self.start: Callable[..., int] | None = None
        """Runs a server of ours by its name, to its end; None where there is only the command line."""

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
        """Take global options over, as far as they were given: before the command, behind it, or both."""
        self._store, self._color = store or self._store, color or self._color
        self.quiet, self.json = self.quiet or quiet, self.json or as_json
        if config is not None:
            self._config = _absolute(config)
        if folder is not None:
            import os

            try:
                os.chdir(folder)
            except OSError as error:
                raise Usage(f"-C {folder}: {error.strerror}.") from None
            self.__dict__.pop("cwd", None)
            self.refuse_strange()

    def refuse_strange(self) -> None:
        """Raise `Refused` where the environment names folders that a repository may have put there."""
        from keepfast.present.trust import refuse_strange

        try:
            refuse_strange(self.around, self.cwd)
        except NoWorkspace:
            refuse_strange(self.around, b"/")

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
        return self._config or self.around.config

    @once
    def settings(self) -> Settings:
        """Defaults, the user's file, the project's, the environment, flags: later ones win. Raises `Usage`."""
        return self._load(lenient=False)

    def go_on_by_last_good(self) -> None:
        """Let the last good settings stand for a file that is broken, as hooks do: nobody is there to mend it."""
        self.__dict__["settings"] = self._load(lenient=True)

    def _load(self, *, lenient: bool) -> Settings:
        from keepfast.settings import load

        try:
            cwd: bytes | None = self.cwd
        except NoWorkspace:
            cwd = None
        variables = self.around.keepfast_variables()
        data = self.around.data
        required, agent = self._config is not None, self.around.is_agents()
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
        """The same as a hook has them: of the environment only short names count there, and only where they tighten."""
        from keepfast.settings import load

        try:
            cwd: bytes | None = self.cwd
        except NoWorkspace:
            cwd = None
        return load(self.config_path, self.around.keepfast_variables(), cwd, hook=True, data=self.around.data)

    def following(self, here: bool = False) -> LiveSettings:
        """The same for a process that stays and serves many folders: no project's file counts, or that of this
        folder.
        """
        from keepfast.settings.live import LiveSettings

        try:
            cwd: bytes | None = self.cwd if here else None
        except NoWorkspace:
            cwd = None
        flags = {"store.url": _absolute(self._store)} if self._store is not None else {}
        required = self._config is not None
        variables, agent = self.around.keepfast_variables(), self.around.is_agents()
        return LiveSettings(self.config_path, variables, cwd, required=required, agent=agent, flags=flags)

    def forget_settings(self) -> None:
        """Read them again when they are asked for next: their file was just written."""
        self.__dict__.pop("settings", None)
        self.__dict__.pop("hook_settings", None)

    @once
    def engine(self) -> Engine:
        from keepfast.app.wiring import build

        try:
            folder: bytes | None = self.cwd
        except NoWorkspace:
            folder = None
        return build(self.settings, self.around.data, self.around.home, self.now, folder)

    def engine_for(self, folder: bytes | None, own: bool = True) -> Engine:
        """The engine for a folder of its own, which need not lie around us nor be a workspace yet.

        Without a folder it is that of the store of the settings, wherever the workspace around us is kept.
        """
        from keepfast.app.wiring import build

        self.close()
        engine = build(self.settings, self.around.data, self.around.home, self.now, folder, own)
        self.__dict__["engine"] = engine
        return engine

    @property
    def repository(self) -> Repository:
        return self.engine.repository()

    def workspace(self, patience: float = 1.0) -> tuple[bytes, WorkspaceRow]:
        """Root and row of the workspace around us. Raises `NoWorkspace`, and `Elsewhere` where it has no history yet.

        What hooks left to be saved is saved first, if nobody is at it; if somebody is, he is given a moment.
        """
        try:
            root, row = self.engine.root(self.cwd)
        except Elsewhere as apart:
            self.settle_move(apart)
            root, row = self.engine.root(self.cwd)
        self.say_renewed()
        from keepfast.state.pending_events import names

        if names(self.engine.place.folder(row.id)):
            from keepfast.app.worker import row_after_pending

            return root, row_after_pending(self.engine, row, patience)
        return root, row

    def say_renewed(self) -> None:
        if self.engine.renewed:
            from keepfast.workspace.marker import show

            renewed, self.engine.renewed = show(self.engine.renewed), b""
            self.remark(
                f"The marker in {renewed} belonged to another folder. It was rewritten, and the history continues."
            )

    def settle_move(self, apart: Elsewhere) -> None:
        """Ask whether the folder was moved here; it goes on with its history, or is one of its own. Raises `apart`
        else.
        """
        if apart.copied or self.json or self.around.is_agents() or not sys.stdin.isatty():
            raise apart
        if self.agreed(f"{apart} Was it moved here?", False):
            self.engine.continue_history(apart.root)
        else:
            self.engine.protect_separately(apart)

    def resolve(self, row: WorkspaceRow, text: str) -> CheckpointRow:
        from keepfast.store.references import resolve

        return resolve(self.repository, row.id, text, self.now())

    def store_path(self) -> str:
        """Where the store is; empty if the command never came to ask."""
        return self.engine.place.path if "engine" in self.__dict__ else ""

    def close(self) -> None:
        if "engine" in self.__dict__:
            self.engine.close()

    # Where to write

    @once
    def paint(self) -> Paint:
        from keepfast.present.terminal import Paint

        return Paint(self._coloured(sys.stdout), self._columns())

    @once
    def warning_paint(self) -> Paint:
        from keepfast.present.terminal import Paint

        return Paint(self._coloured(sys.stderr), None)

    def print(self, text: str = "") -> None:
        """A result: standard output. What a store, a bundle, a transcript or a file name has put into it does no
        harm.
        """
        sys.stdout.write(self._harmless(text, "paint") + "\n")

    def _harmless(self, text: str, paint: str) -> str:
        if text.isprintable():  # nearly always
            return text
        from keepfast.present.terminal import harmless

        return harmless(text, getattr(self, paint).enabled)

    def say(self, text: str) -> None:
        """The result of something done: not with --quiet, and not with --json, which has its own."""
        if not self.quiet and not self.json:
            self.print(text)

    def remark(self, text: str) -> None:
        """Beside the result: standard error, not with --quiet nor --json."""
        if not self.quiet and not self.json:
            self.warn(text)

    def warn(self, text: str) -> None:
        sys.stdout.flush()
        sys.stderr.write(self._harmless(text, "warning_paint") + "\n")
        sys.stderr.flush()

    def remark_unknown_settings(self) -> None:
        """Say which of the settings are none: they were read in any case, and somebody counts on them."""
        for warning in self.settings.unknown:
            self.remark(warning)

    def milliseconds(self) -> int:
        """Since the command began."""
        return int((monotonic() - self.started) * 1000)

    def progress(self, what: str) -> Bar:
        """A bar on a terminal once the work takes longer than a second; None where nobody would see it."""
        return Bar(self, what)

    def start_progress(self, what: str) -> Progress | None:
        if self.quiet or self.json or not sys.stderr.isatty():
            return None
        from keepfast.cli.progress import Progress

        self._progress = Progress(sys.stderr, what)
        return self._progress

    def clear_progress(self) -> None:
        if self._progress is not None:
            self._progress.clear()
            self._progress = None

    def agreed(self, question: str, yes: bool) -> bool:
        """Ask; `-y` answers. Raises `Usage` where there is nobody to ask."""
        if yes:
            return True
        if self.json or not sys.stdin.isatty():
            raise Usage(
                "Confirmation needed, but stdin is not a terminal. Use -y.", "--dry-run shows what would change."
            )
        import click

        asked_at = monotonic()
        try:
            return click.confirm(question, err=True)
        finally:
            self.started += monotonic() - asked_at  # what the person took is not what the command took

    def _coloured(self, stream: Any) -> bool:
        if self._color != "auto":
            return self._color == "always"
        return stream.isatty() and not self.around.text("NO_COLOR") and self.around.text("TERM") != "dumb"

    def _columns(self) -> int | None:
        if not sys.stdout.isatty():
            return None
        import os

        text = self.around.text("COLUMNS")
        try:
            return (
                int(text) if text.isdigit() and int(text) else os.get_terminal_size(sys.stdout.fileno()).columns or 80
            )
        except OSError:
            return 80


class Bar:
    """A session's progress, for as long as a `with` lasts."""

    def __init__(self, session: Session, what: str) -> None:
        self.session, self.what = session, what

    def __enter__(self) -> Progress | None:
        return self.session.start_progress(self.what)

    def __exit__(self, *_: object) -> None:
        self.session.clear_progress()


def common(command: Command) -> Command:
    """Give a command `--json` and the session as its first argument."""
    import click

    command = click.option(
        "--json", "as_json", is_flag=True, expose_value=False, callback=_as_json, help="Print the result as JSON."
    )(command)
    return click.pass_obj(command)  # type: ignore[return-value]


def write_json(value: object) -> None:
    """One JSON value on standard output, in UTF-8 whatever the locale."""
    import json

    sys.stdout.flush()
    text = json.dumps(value, indent=2, ensure_ascii=False)
    if not text.replace("\n", "").isprintable():
        # Letters that hide or reorder others, and controls beyond ASCII: the same value, and nothing that a terminal obeys.
        text = "".join([char if char == "\n" or char.isprintable() else json.dumps(char)[1:-1] for char in text])
    text = text.replace("\x7f", "\\u007f") + "\n"
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()


def write_bytes(data: bytes) -> None:
    """Bytes on standard output exactly as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)


def _as_json(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    session = ctx.find_object(Session)
    if session is not None and value:
        session.json = True


def _absolute(path: str) -> str:
    import os

    return os.path.abspath(path)
