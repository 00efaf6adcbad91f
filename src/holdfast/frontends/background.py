"""Starting work that nobody waits for: a process of its own session, at low priority, with its streams closed."""

from __future__ import annotations

import sys
from posix import O_RDWR, POSIX_SPAWN_OPEN, posix_spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

LAUNCH = __file__.rpartition("/")[0] + "/launch.py"


def tidy(folder: bytes, config: str | None, variables: Mapping[bytes, bytes]) -> None:
    """Let a process tidy up the workspace of `folder`. It may fail to start: the next save tries again."""
    arguments: list[bytes | str] = [sys.executable, "-I", "-S", "-B", LAUNCH, "tidy", "--cwd", folder]
    if config:
        arguments += ["--config", config]
    streams = [(POSIX_SPAWN_OPEN, number, "/dev/null", O_RDWR, 0) for number in range(3)]
    try:
        posix_spawn(sys.executable, arguments, dict(variables), file_actions=streams, setsid=True)
    except OSError:
        pass
