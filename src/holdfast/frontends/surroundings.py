"""The only place that reads the environment, the home folder and the clock; everything else is told."""

from __future__ import annotations

from posix import environ, getcwdb
from time import time_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class Surroundings:
    """Where we are and for whom."""

    __slots__ = ("config", "data", "home", "variables")

    def __init__(self, variables: Mapping[bytes, bytes]) -> None:
        self.variables = variables
        home = variables.get(b"HOME", b"")
        if not home.startswith(b"/"):
            from posix import getuid
            from pwd import getpwuid

            try:
                home = getpwuid(getuid()).pw_dir.encode("utf-8", "surrogateescape")
            except KeyError:
                home = b"/"
        self.home = home.rstrip(b"/") or b"/"
        self.config = self._folder(b"XDG_CONFIG_HOME", b"/.config") + "/holdfast/config.json"
        self.data = self._folder(b"XDG_DATA_HOME", b"/.local/share") + "/holdfast"

    def _folder(self, name: bytes, default: bytes) -> str:
        value = self.variables.get(name, b"")
        # The XDG specification: a path that is not absolute is to be ignored.
        return (value if value.startswith(b"/") else self.home + default).decode("utf-8", "surrogateescape").rstrip("/")

    def text(self, name: str) -> str:
        return self.variables.get(name.encode("ascii"), b"").decode("utf-8", "replace")

    def holdfast_variables(self) -> dict[str, str]:
        return {
            name.decode("ascii", "replace"): value.decode("utf-8", "replace")
            for name, value in self.variables.items()
            if name.startswith(b"HOLDFAST_")
        }


def surroundings() -> Surroundings:
    return Surroundings(environ)


def now_ns() -> int:
    return time_ns()


def current_folder() -> bytes:
    return getcwdb()
