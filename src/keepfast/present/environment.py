"""The only place that reads the environment, the home folder and the clock; everything else is told."""

from __future__ import annotations

from posix import environ, getcwdb, unsetenv
from time import time_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Folders = tuple[str, str, str]
    """Home, the folder of configurations, the folder of data; ours lie below the latter two."""

FOLDERS = "--folders"
"""Before the verb, with three paths: where the launcher's user has his home, his settings and his data."""
CONFIG, DATA = "/.config", "/.local/share"
OF_AGENTS = (
    b"CLAUDECODE", b"CLAUDE_PID", b"CLAUDE_PROJECT_DIR", b"CLAUDE_CODE_ENTRYPOINT", b"CLAUDE_CODE_SESSION_ID",
    b"CODEX_SANDBOX", b"CODEX_SANDBOX_NETWORK_DISABLED", b"COPILOT_CLI", b"COPILOT_PROJECT_DIR", b"CURSOR_AGENT",
    b"CURSOR_PROJECT_DIR", b"GEMINI_CLI", b"GEMINI_PROJECT_DIR", b"QWEN_PROJECT_DIR", b"OPENCODE", b"KEEPFAST_RUN_TOKEN",
)  # fmt: skip
"""Variables that clients set for what they start, and nobody for himself."""
LIBRARIES = (b"OPENSSL_CONF", b"OPENSSL_MODULES", b"OPENSSL_ENGINES", b"FUSE_LIBRARY_PATH", b"FUSE_LIBRARY_NAME")
"""Variables by which Python's OpenSSL, and the package that mounts, load a library: it may lie in a repository."""
COMPLETION = b"_KEEPFAST_COMPLETE"
"""Asks for completion instead of a command. Shells that ask for it give no words."""


class Surroundings:
    """Where we are and for whom."""

    __slots__ = ("config", "data", "folders", "home", "is_told", "variables")

    def __init__(self, variables: Mapping[bytes, bytes], folders: Folders | None = None) -> None:
        """`folders` stand above those that the variables name."""
        self.variables, self.is_told = variables, folders is not None
        self.folders = folders or named_folders(variables)
        self.home = self.folders[0].encode("utf-8", "surrogateescape")
        self.config = self.folders[1].rstrip("/") + "/keepfast/config.json"
        self.data = self.folders[2].rstrip("/") + "/keepfast"

    def is_agents(self) -> bool:
        """Were we started by an agent? What a repository says in its client's settings is in the variables then."""
        return any(name in self.variables for name in OF_AGENTS)

    def text(self, name: str) -> str:
        return self.variables.get(name.encode("ascii"), b"").decode("utf-8", "replace")

    def keepfast_variables(self) -> dict[str, str]:
        return {
            name.decode("ascii", "replace"): value.decode("utf-8", "replace")
            for name, value in self.variables.items()
            if name.startswith(b"KEEPFAST_")
        }


def surroundings(folders: Folders | None = None) -> Surroundings:
    """Those of a command that a person or an agent has typed."""
    around = Surroundings(dict(environ), folders)
    if around.is_agents():
        forget(LIBRARIES)
    return around


def hook_surroundings(folders: Folders | None) -> Surroundings:
    """Those of a hook: `folders` as they were written down at install, else those of the passwd entry.

    Never those of the environment: a repository's own client settings can set any variable of a hook.
    """
    around = Surroundings(dict(environ), folders or default_folders())
    forget(LIBRARIES)
    return around


def forget(names: Sequence[bytes]) -> None:
    """Take these variables out of this process: libraries, and what it starts, do not see them."""
    for name in names:
        if environ.pop(name, None) is not None:
            unsetenv(name)


def written(arguments: Sequence[str]) -> tuple[Folders | None, Sequence[str]]:
    """Home, configuration and data as the launcher has them from `install`, and the words behind them."""
    if len(arguments) < 4 or arguments[0] != FOLDERS or not all(word.startswith("/") for word in arguments[1:4]):
        return None, arguments
    return (arguments[1], arguments[2], arguments[3]), arguments[4:]


def named_folders(variables: Mapping[bytes, bytes]) -> Folders:
    named = variables.get(b"HOME", b"").decode("utf-8", "surrogateescape")
    home = _clean(named) if named.startswith("/") else passwd_home() or "/"
    found = [
        variables.get(name, b"").decode("utf-8", "surrogateescape") for name in (b"XDG_CONFIG_HOME", b"XDG_DATA_HOME")
    ]
    # The XDG specification: a path that is not absolute is to be ignored.
    config, data = [_clean(path) if path.startswith("/") else "" for path in found]
    return home, config or home.rstrip("/") + CONFIG, data or home.rstrip("/") + DATA


def default_folders() -> Folders:
    home = passwd_home() or "/"
    return home, home.rstrip("/") + CONFIG, home.rstrip("/") + DATA


def passwd_home() -> str:
    """The home folder that the system has for this user; empty if it has none."""
    from posix import getuid
    from pwd import getpwuid

    try:
        home = getpwuid(getuid()).pw_dir
    except KeyError:
        return ""
    return _clean(home) if home.startswith("/") else ""


def _clean(path: str) -> str:
    return path.rstrip("/") or "/"


def program(around: Surroundings) -> str:
    """What a person types to run `keepfast` here: its name, or its whole path where it is not on the search path."""
    from posix import X_OK, access

    if any(access(f"{folder}/keepfast", X_OK) for folder in around.text("PATH").split(":") if folder):
        return "keepfast"
    import sys
    from shlex import join

    beside = sys.executable.rpartition("/")[0] + "/keepfast"
    return join([beside] if access(beside, X_OK) else [sys.executable, "-m", "keepfast"])


def now_ns() -> int:
    return time_ns()


def current_folder() -> bytes:
    return getcwdb()
