"""Files of a client that `install` changes, and the command that it puts there."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from holdfast.core.errors import Failed
from holdfast.frontends.cli.session import Session

SCOPES = {"user": "settings.json", "project": "settings.json", "local": "settings.local.json"}
INTERPRETER = "interpreter"
"""Beside our settings: where Python and our launcher are, for the plugin, which cannot know."""


class File(NamedTuple):
    """A settings file of the client, as it is."""

    path: str
    text: str
    exists: bool


def settings_path(session: Session, scope: str) -> str:
    if scope == "user":
        folder = session.around.text("CLAUDE_CONFIG_DIR") or os.fsdecode(session.around.home) + "/.claude"
    else:
        found = session.engine.locate(session.cwd)
        folder = os.fsdecode(found[0] if found else session.cwd) + "/.claude"
    # A link into a folder of dotfiles stays a link.
    return os.path.realpath(os.path.join(folder, SCOPES[scope]))


def read(path: str) -> File:
    try:
        with open(path, "rb") as file:
            return File(path, file.read().decode("utf-8"), True)
    except FileNotFoundError:
        return File(path, "", False)
    except UnicodeDecodeError as error:
        raise Failed(f"{path} is not UTF-8 at byte {error.start}.", "Mend it; nothing was changed.") from None
    except OSError as error:
        raise Failed(f"{path} cannot be read: {error.strerror}.", "Nothing was changed.") from None


def write(settings: File, text: str, backup: str | None) -> None:
    """The file as it was beside it first, then the new one in its place at once."""
    try:
        os.makedirs(os.path.dirname(settings.path), exist_ok=True)
        mode = os.stat(settings.path).st_mode & 0o777 if settings.exists else 0o600
        if backup:
            _replace(backup, settings.text, mode)
        _replace(settings.path, text, mode)
    except OSError as error:
        raise Failed(f"{settings.path} cannot be written: {error.strerror}.", "Nothing was changed.") from None


def _replace(path: str, text: str, mode: int) -> None:
    beside = f"{path}.{os.getpid()}"
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        if os.path.lexists(beside):
            os.unlink(beside)


def hook_command() -> list[str]:
    from holdfast.frontends.background import LAUNCH

    return [interpreter(), "-I", "-S", "-B", os.path.abspath(LAUNCH)]


def interpreter() -> str:
    """The Python that runs us, as a program and by its absolute path; never a script that picks one by folder."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for path in (
        sys.executable,
        f"{sys.prefix}/bin/{name}",
        getattr(sys, "_base_executable", ""),
        f"{sys.base_prefix}/bin/{name}",
    ):
        if path and os.path.isabs(path) and os.access(path, os.X_OK) and not _is_script(path):
            return path
    raise Failed("The path of this Python cannot be found out.", "Install holdfast into a virtual environment.")


def _is_script(path: str) -> bool:
    """A shim of pyenv, asdf or the like: it may choose another Python in another folder, and costs its own start."""
    try:
        with open(path, "rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return True


def in_shell(*words: str) -> str:
    import shlex

    return shlex.join(words)


def record(session: Session) -> str:
    """Write down where Python and the launcher are, for the plugin. Return the file."""
    path = interpreter_file(session)
    command = hook_command()
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _replace(path, f"{command[0]}\n{command[-1]}\n", 0o644)
    except OSError as error:
        raise Failed(f"{path} cannot be written: {error.strerror}.") from None
    return path


def interpreter_file(session: Session) -> str:
    return os.path.join(os.path.dirname(session.config_path), INTERPRETER)
