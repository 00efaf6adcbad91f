"""Files that `install` writes: a client's settings, backups of them, and the launcher that they name."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from keepfast.agents import launcher
from keepfast.agents.claude.installer import look
from keepfast.cli.session import Session
from keepfast.model.errors import Failed, KeepfastError, Unreachable
from keepfast.present.background import LAUNCH
from keepfast.present.environment import Environment, default_folders, now_ns
from keepfast.state.notices import Notice

SCOPES = {"user": "settings.json", "project": "settings.json", "local": "settings.local.json"}
BACKUP_SUFFIX = ".before-keepfast"
PLUGIN = "plugin"
MAX_LOG_BYTES = 1 << 16
USERS_SUFFIX = ".users"
"""Suffix of the file next to the launcher that lists the settings files that name it, and `plugin` for the plugin."""
INTERPRETER_FILE = "interpreter"
"""File next to our settings with the paths of Python, our program and the launcher; the plugin reads it."""


class File(NamedTuple):
    """A settings file of the client: path and current text."""

    path: str
    text: str
    exists: bool


def settings_path(session: Session, scope: str) -> str:
    if scope == "user":
        folder = session.environment.text("CLAUDE_CONFIG_DIR") or os.fsdecode(session.environment.home) + "/.claude"
    else:
        try:
            location = session.engine.workspaces.locate(session.cwd)
        except KeepfastError:
            location = None  # commands that need the store report the error
        folder = os.fsdecode(location[0] if location else session.cwd) + "/.claude"
    # A link into a folder of dotfiles stays a link.
    return os.path.realpath(os.path.join(folder, SCOPES[scope]))


def read(path: str) -> File:
    try:
        with open(path, "rb") as file:
            return File(path, file.read().decode("utf-8"), True)
    except FileNotFoundError:
        return File(path, "", False)
    except UnicodeDecodeError as error:
        raise Failed(
            f"{path} is not UTF-8 at byte {error.start}.", "Fix it and try again; nothing was changed."
        ) from None
    except OSError as error:
        raise Failed(f"{path} cannot be read: {error.strerror}.", "Nothing was changed.") from None


def backup_path(settings: File, is_pristine: bool) -> str:
    """Return where to back the file up. The first backup is of a file without our hooks; later ones have numbers."""
    number = 1 if is_pristine else 2
    while os.path.lexists(path := settings.path + BACKUP_SUFFIX + (f".{number}" if number > 1 else "")):
        if _holds(path, settings.text):
            return path
        number += 1
    return path


def _holds(path: str, text: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read() == text.encode("utf-8")
    except OSError:
        return False


def write(settings: File, text: str, backup: str | None) -> None:
    """Back the file up, then replace it atomically. Raises `Failed`."""
    try:
        os.makedirs(os.path.dirname(settings.path), exist_ok=True)
        mode = os.stat(settings.path).st_mode & 0o777 if settings.exists else 0o600
        if backup and not _holds(backup, settings.text):
            _replace(backup, settings.text, mode)
        _replace(settings.path, text, mode)
    except OSError as error:
        raise Failed(f"{settings.path} cannot be written: {error.strerror}.", "Nothing was changed.") from None


def has_first_copy(settings: File) -> bool:
    """Return whether there is a backup of the file from before the first installation."""
    return os.path.lexists(settings.path + BACKUP_SUFFIX)


def is_empty(text: str) -> bool:
    """Return whether a settings file contains no settings."""
    return not text.strip() or json.loads(text) == {}


def remove(settings: File) -> None:
    try:
        os.unlink(settings.path)
    except OSError as error:
        raise Failed(f"{settings.path} cannot be removed: {error.strerror}.", "Nothing was changed.") from None


def _replace(path: str, text: str, mode: int) -> None:
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        if os.path.lexists(temporary):
            os.unlink(temporary)


def hook_command() -> list[str]:
    return [interpreter(), "-I", "-S", "-B", os.path.abspath(LAUNCH)]


def interpreter() -> str:
    """Return the absolute path of the running Python; never a shim script that picks one by folder."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for path in (
        sys.executable,
        f"{sys.prefix}/bin/{name}",
        getattr(sys, "_base_executable", ""),
        f"{sys.base_prefix}/bin/{name}",
    ):
        if path and os.path.isabs(path) and os.access(path, os.X_OK) and not _is_script(path):
            return path
    raise Failed("The path of this Python is unknown.", "Install keepfast into a virtual environment.")


def _is_script(path: str) -> bool:
    """Return whether this is a script, such as a shim of pyenv or asdf, which may choose another Python elsewhere."""
    try:
        with open(path, "rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return True


def launcher_path(session: Session) -> str:
    return f"{session.environment.data}/bin/{launcher.NAME}"


def write_launcher(session: Session, user: str = "") -> str:
    """Write the launcher, and record `user` as one that names it; return its path. Raises `Failed`.

    The file is replaced atomically: a hook that starts meanwhile finds the old one or the new one.
    """
    path = launcher_path(session)
    command = hook_command()
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if user:
            _replace(path + USERS_SUFFIX, "".join(f"{name}\n" for name in sorted({*users(session), user})), 0o644)
        _replace(path, launcher.script(command[0], command[-1], path, _folders(session, path)), 0o755)
        _remove(path + launcher.LOG, path + launcher.FAILING)
    except OSError as error:
        raise Failed(f"{path} cannot be written: {error.strerror}.", "Nothing else was changed.") from None
    return path


def launcher_defect(session: Session) -> str:
    """Return why the launcher is not what `write_launcher` writes; empty if it is."""
    path = launcher_path(session)
    problem = launcher_problem(path)
    if problem:
        return problem
    command, text = hook_command(), _text_of(path)
    if launcher.named(text) != (command[0], command[-1]):
        return f"{path} started {launcher.named(text)[0]}"
    expected = launcher.script(command[0], command[-1], path, _folders(session, path))
    return "" if text == expected else f"{path} was written by another version, or for other folders"


def upgrade_launcher(session: Session) -> bool:
    """Rewrite a launcher of an earlier version; return whether there was one."""
    path = launcher_path(session)
    text = _text_of(path)
    if session.environment.is_agents() or not launcher.is_whole(text) or launcher.is_current(text, path):
        return False
    write_launcher(session)
    return True


def update_for_new_name(environment: Environment, line: str) -> None:
    """Print what was taken over from the former name, and update launcher and plugin file to start this version."""
    print(f"keepfast: {line}", file=sys.stderr)
    session = Session(environment, now_ns, 0.0)
    try:
        if os.path.exists(launcher_path(session)):
            write_launcher(session)
        if os.path.exists(interpreter_file(session)):
            record(session)
    except Failed as error:
        print(f"keepfast: {error} {error.hint}", file=sys.stderr)


def _folders(session: Session, path: str) -> Sequence[str]:
    """Return the user's folders for the launcher. An agent cannot change them: its variables may be a repository's."""
    written = launcher.folders(_text_of(path))
    return written if written and session.environment.is_agents() else session.environment.folders


def is_hooked(session: Session) -> bool:
    """Return whether the user has installed our hooks, for all projects or for this one."""
    return any(look(read(path).text, path).events for path in _own_settings(session))


def _own_settings(session: Session) -> list[str]:
    """Return the client's settings files whose hooks the user has installed.

    Hooks in other files of a project may have come with its repository and do not count.
    """
    own, recorded = settings_path(session, "user"), users(session)
    return [path for path in (settings_path(session, scope) for scope in SCOPES) if path == own or path in recorded]


def repair_launcher(session: Session) -> tuple[str, str]:
    """Rewrite the launcher if the user's hooks name it and it is missing or damaged.

    Return who names it and what was wrong with it; two empty texts if nothing was done.
    """
    path = launcher_path(session)
    problem = launcher_problem(path)
    if not problem or session.environment.is_agents():
        return "", ""
    own = settings_path(session, "user")
    places = [launcher.place_of(command) for command in _commands(own)]
    # Settings of the former name reach it through a link.
    if os.path.realpath(path) in [os.path.realpath(place) for place in places if place]:
        write_launcher(session, own)
        return own, problem
    if PLUGIN in users(session):
        write_launcher(session, PLUGIN)
        return "the plugin", problem
    return "", ""


def hooks_problem(session: Session) -> str:
    """Return why the user's hooks do not start and what to do; empty if they start, or if there are none."""
    for path in _own_settings(session):
        try:
            hooks = look(read(path).text, path)
        except Failed as error:
            return f"The client's hooks could not be checked: {error}"
        if hooks.disabled and hooks.commands:
            return f"Hooks in {path} do not start, so nothing is saved automatically: `disableAllHooks` is set there."
        for command in hooks.commands:
            problem = _hook_problem(command)
            if problem:
                text = f"Hooks in {path} do not start, so nothing is saved automatically: {problem}."
                return f"{text} Run `keepfast install claude` to fix it."
    problem = _hook_problem(launcher.hook(launcher_path(session))) if PLUGIN in users(session) else ""
    if problem:
        text = f"The plugin's hooks do not start, so nothing is saved automatically: {problem}."
        return f"{text} Run `keepfast install claude --plugin` to fix it."
    return ""


def hooks_summary(session: Session) -> str:
    """Return that the user's hooks do not start or are not installed, and what to do; empty if they start."""
    if text := hooks_problem(session):
        return text
    if PLUGIN in users(session) or any(_commands(path) for path in _own_settings(session)):
        return ""
    own = settings_path(session, "user")
    return f"{own} has no keepfast hooks, so nothing is saved automatically. Run `keepfast install claude` to add them."


@contextmanager
def hint_about_hooks(session: Session) -> Iterator[None]:
    """Add the state of the hooks to the hint of an `Unreachable` error: hooks themselves fail silently."""
    try:
        yield
    except Unreachable as error:
        try:
            more = hooks_summary(session) or "Until then the client's hooks save nothing."
        except Failed:
            more = ""  # a settings file cannot be read
        error.hint = f"{error.hint} {more}".strip()
        raise


def _commands(path: str) -> list[str]:
    """Return the commands of our hooks in a settings file; none if it cannot be read, which `doctor` reports."""
    try:
        return look(read(path).text, path).commands
    except Failed:
        return []


def _hook_problem(command: str) -> str:
    """Return why a hook's command cannot start; empty if it can."""
    place = launcher.place_of(command)
    if place:
        return launcher_problem(place) or "".join(
            f"{file} no longer exists" for file in _missing_files_of_launcher(place)[:1]
        )
    return "".join(f"{file} no longer exists" for file in missing_files(command)[:1])


def launcher_problem(path: str) -> str:
    """Return what is wrong with the launcher file; empty if it is intact and executable."""
    if not os.path.exists(path):
        return f"{path} no longer exists"
    if not os.access(path, os.X_OK):
        return f"{path} is not executable"
    return "" if launcher.is_whole(_text_of(path)) else f"{path} is damaged"


def _text_of(path: str) -> str:
    """Return the text of a launcher; empty if it cannot be read."""
    try:
        return read(path).text
    except Failed:
        return ""


def missing_files(command: str) -> list[str]:
    """Return the missing files that a hook's command needs."""
    place = launcher.place_of(command)
    words = [place] if place else [word for word in shlex.split(command)[:5] if word.startswith("/")]
    return [word for word in words if not os.path.exists(word)]


def _missing_files_of_launcher(place: str) -> list[str]:
    """Return the missing files that the launcher at `place` needs."""
    return [file for file in launcher.named(_text_of(place)) if file and not os.access(file, os.R_OK)]


def release_launcher(session: Session, user: str) -> bool:
    """Remove `user` from those that name the launcher, and the launcher after the last one; return whether it is gone."""
    path = launcher_path(session)
    rest = sorted(name for name in users(session) if name != user and (name == PLUGIN or _names(name, path)))
    try:
        if rest:
            _replace(path + USERS_SUFFIX, "".join(f"{name}\n" for name in rest), 0o644)
            return False
        _remove(path, path + USERS_SUFFIX, path + launcher.LOG, path + launcher.FAILING)
    except OSError as error:
        raise Failed(f"{path} cannot be removed: {error.strerror}.") from None
    return True


def start_problem(command: list[str]) -> str:
    """Run the hook once with an event that has no effect; return why it does not start, empty if it does."""
    payload = b'{"hook_event_name":"Setup","cwd":"/"}'
    if os.path.basename(command[0]) == launcher.NAME:
        command = [
            command[0],
            launcher.UNAIDED,
            *command[1:],
        ]  # the resident would answer for a Python that does not start
    try:
        done = subprocess.run([*command, "hook", "claude-code"], input=payload, capture_output=True, timeout=60)
    except OSError as error:
        return f"The hook does not start: {error.strerror}: {command[0]}."
    if done.returncode:
        reason = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
        return f"The hook does not start: {reason}"
    failed = last_failure(command[0])
    # The launcher is silent if Python fails, and records it until a hook starts again.
    if failed is not None and os.path.exists(command[0] + launcher.FAILING):
        return f"The hook does not start: {failed.text}"
    return ""


def last_failure(path: str) -> Notice | None:
    """Return the last failure of the launcher at `path` to start a hook, as a notice; None if there was none."""
    try:
        at = os.stat(path + launcher.LOG).st_mtime_ns
        with open(path + launcher.LOG, encoding="utf-8", errors="replace") as file:
            lines = file.read(MAX_LOG_BYTES).strip().splitlines()
    except OSError:
        return None
    return Notice(at, "failed", "hook", f"A hook did not start: {lines[-1] if lines else ''}")


def users(session: Session) -> list[str]:
    """Return the recorded settings files that name the launcher, and `plugin`."""
    return read(launcher_path(session) + USERS_SUFFIX).text.splitlines()


def _names(settings: str, path: str) -> bool:
    try:
        return path in read(settings).text
    except Failed:
        return True  # once fixed, it may need the launcher


def _remove(*paths: str) -> None:
    for path in paths:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass


def record(session: Session) -> str:
    """Write the paths of Python and the launcher for the plugin; return the file."""
    path = interpreter_file(session)
    command = hook_command()
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _replace(path, f"{command[0]}\n{command[-1]}\n{launcher_path(session)}\n", 0o644)
    except OSError as error:
        raise Failed(f"{path} cannot be written: {error.strerror}.") from None
    return path


def interpreter_file(session: Session) -> str:
    """Return the file that the plugin reads: in the home folder of the passwd entry, whatever HOME is."""
    if is_at_home(session):
        return f"{default_folders()[1]}/keepfast/{INTERPRETER_FILE}"
    return os.path.join(os.path.dirname(session.config_path), INTERPRETER_FILE)


def is_at_home(session: Session) -> bool:
    """Return whether HOME is the home folder of the passwd entry."""
    return session.environment.folders[0] == default_folders()[0]


def remove_interpreter_file(session: Session) -> None:
    _remove(interpreter_file(session))
