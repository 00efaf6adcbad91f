"""The `holdfast` command: decides which front end runs, and hands the servers to the command line that starts them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

SERVERS = {
    "hook": "holdfast.frontends.hook",
    "mcp": "holdfast.frontends.mcp",
    "serve": "holdfast.frontends.web",
}
"""Front ends that the command line starts: their module has `serve(…) -> exit code`; a server gets `options`,
`surroundings` and `clock`."""


def main() -> NoReturn:
    """Run the command in `sys.argv` and leave with its exit code."""
    import sys

    if sys.argv[1:2] == ["hook"] and "--help" not in sys.argv:
        # A client waits for each of its hooks: the command line's own modules would cost as much again.
        sys.exit(start("hook", sys.argv[2:]))
    from holdfast.frontends.cli.root import run
    from holdfast.frontends.surroundings import now_ns, surroundings

    sys.exit(run(sys.argv[1:], surroundings(), now_ns, start))


def start(name: str, *arguments: object) -> int:
    """Import the server of that name, which may be an extra that is not installed, and run it to its end."""
    from importlib import import_module

    return int(import_module(SERVERS[name]).serve(*arguments))
