"""Reads the environment, the home folder and the clock: the only module that does; others get the values passed."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from os import X_OK, access, environb, getcwdb, getuid
from pwd import getpwuid
from shlex import join
from time import time_ns

Folders = tuple[str, str, str]
"""The home folder and the XDG folders of configuration and data; ours are inside the latter two."""
FOLDERS = "--folders"
"""Option before the command, with three paths: home, configuration and data folder of the user who wrote the launcher."""
CONFIG_FOLDER, DATA_FOLDER = "/.config", "/.local/share"
AGENT_VARIABLES = (
    b"CLAUDECODE", b"CLAUDE_PID", b"CLAUDE_PROJECT_DIR", b"CLAUDE_CODE_ENTRYPOINT", b"CLAUDE_CODE_SESSION_ID",
    b"CODEX_SANDBOX", b"CODEX_SANDBOX_NETWORK_DISABLED", b"COPILOT_CLI", b"COPILOT_PROJECT_DIR", b"CURSOR_AGENT",
    b"CURSOR_PROJECT_DIR", b"GEMINI_CLI", b"GEMINI_PROJECT_DIR", b"QWEN_PROJECT_DIR", b"OPENCODE", b"KEEPFAST_RUN_TOKEN",
)  # fmt: skip
"""Variables that agents' clients set for the processes they start."""
LIBRARY_VARIABLES = (
    b"OPENSSL_CONF",
    b"OPENSSL_MODULES",
    b"OPENSSL_ENGINES",
    b"FUSE_LIBRARY_PATH",
    b"FUSE_LIBRARY_NAME",
)
"""Variables that make OpenSSL or the FUSE package load a library, which may come from a repository."""
COMPLETION = b"_KEEPFAST_COMPLETE"
"""Set by a shell's completion script, which passes no arguments."""


class Environment:
    """The environment of a command: variables, and the folders of the user."""

    __slots__ = ("config", "data", "folders", "has_given_folders", "home", "variables")

    def __init__(self, variables: Mapping[bytes, bytes], folders: Folders | None = None) -> None:
        """`folders` override those that the variables name."""
        self.variables, self.has_given_folders = variables, folders is not None
        self.folders = folders or folders_from(variables)
        self.home = self.folders[0].encode("utf-8", "surrogateescape")
        self.config = self.folders[1].rstrip("/") + "/keepfast/config.json"
        self.data = self.folders[2].rstrip("/") + "/keepfast"

    def is_agents(self) -> bool:
        """Return whether an agent started us: then variables may come from a repository's client settings."""
        return any(name in self.variables for name in AGENT_VARIABLES)

    def text(self, name: str) -> str:
        return self.variables.get(name.encode("ascii"), b"").decode("utf-8", "replace")

    def keepfast_variables(self) -> dict[str, str]:
        return {
            name.decode("ascii", "replace"): value.decode("utf-8", "replace")
            for name, value in self.variables.items()
            if name.startswith(b"KEEPFAST_")
        }


def command_environment(folders: Folders | None = None) -> Environment:
    """Return the environment of a command that a person or an agent runs."""
    environment = Environment(dict(environb), folders)
    if environment.is_agents():
        unset_variables(LIBRARY_VARIABLES)
    return environment


def hook_environment(folders: Folders | None) -> Environment:
    """Return the environment of a hook: `folders` as recorded by `install`, else those of the passwd entry.

    Never those of the environment: a repository's client settings can set any variable of a hook.
    """
    environment = Environment(dict(environb), folders or default_folders())
    unset_variables(LIBRARY_VARIABLES)
    return environment


def unset_variables(names: Sequence[bytes]) -> None:
    """Remove variables from this process, so that libraries and child processes do not see them."""
    for name in names:
        environb.pop(name, None)


def split_folders(arguments: Sequence[str]) -> tuple[Folders | None, Sequence[str]]:
    """Split `--folders HOME CONFIG DATA` off the arguments; return the folders, None if absent, and the rest."""
    if len(arguments) < 4 or arguments[0] != FOLDERS or not all(word.startswith("/") for word in arguments[1:4]):
        return None, arguments
    return (arguments[1], arguments[2], arguments[3]), arguments[4:]


def folders_from(variables: Mapping[bytes, bytes]) -> Folders:
    named = variables.get(b"HOME", b"").decode("utf-8", "surrogateescape")
    home = _without_trailing_slash(named) if named.startswith("/") else passwd_home() or "/"
    xdg_paths = [
        variables.get(name, b"").decode("utf-8", "surrogateescape") for name in (b"XDG_CONFIG_HOME", b"XDG_DATA_HOME")
    ]
    # The XDG specification: a path that is not absolute is to be ignored.
    config, data = [_without_trailing_slash(path) if path.startswith("/") else "" for path in xdg_paths]
    return home, config or home.rstrip("/") + CONFIG_FOLDER, data or home.rstrip("/") + DATA_FOLDER


def default_folders() -> Folders:
    home = passwd_home() or "/"
    return home, home.rstrip("/") + CONFIG_FOLDER, home.rstrip("/") + DATA_FOLDER


def passwd_home() -> str:
    """Return the home folder in this user's passwd entry; empty if there is none."""
    try:
        home = getpwuid(getuid()).pw_dir
    except KeyError:
        return ""
    return _without_trailing_slash(home) if home.startswith("/") else ""


def _without_trailing_slash(path: str) -> str:
    return path.rstrip("/") or "/"


def program(environment: Environment) -> str:
    """Return how to run `keepfast` in a shell here: by name, or by its full path if it is not on PATH."""
    if any(access(f"{folder}/keepfast", X_OK) for folder in environment.text("PATH").split(":") if folder):
        return "keepfast"
    own_program = sys.executable.rpartition("/")[0] + "/keepfast"
    return join([own_program] if access(own_program, X_OK) else [sys.executable, "-m", "keepfast"])


def now_ns() -> int:
    return time_ns()


def current_folder() -> bytes:
    return getcwdb()
