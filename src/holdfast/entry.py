"""The `holdfast` command: decides which front end runs, and hands the servers to the command line that starts them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

SERVERS = {
    "mcp": "holdfast.frontends.mcp",
    "serve": "holdfast.frontends.web",
}
"""Front ends that stay: their module has `serve(options, surroundings, clock) -> exit code`."""

LIGHT = {"statusline": "holdfast.frontends.statusline", "hook": "holdfast.frontends.hook"}
"""Front ends that a client starts all the time, without the command line's 60 ms: their module has `main(arguments)`."""


def main() -> NoReturn:
    """Run the command in `sys.argv` and leave with its exit code."""
    import gc
    import sys

    light = LIGHT.get(sys.argv[1]) if len(sys.argv) > 1 else None
    if light is not None and not {"-h", "--help"}.intersection(sys.argv):
        from importlib import import_module

        sys.exit(import_module(light).main(sys.argv[2:]))
    from holdfast.frontends.starting import Finder

    # A command loads a hundred modules: they are found by the shortest way.
    sys.meta_path.insert(0, Finder(__file__.rpartition("/holdfast/")[0]))
    from holdfast.frontends.cli import scripted
    from holdfast.frontends.surroundings import now_ns, surroundings

    gc.disable()  # short commands make many values and drop few: collecting them costs more than it gives
    around, arguments = surroundings(), sys.argv[1:]
    code = scripted.run(arguments, around, now_ns)
    if code is not None:
        from posix import _exit

        sys.stderr.flush()
        _exit(code)  # everything is written and closed: tearing the interpreter down would only take time
    gc.enable()
    from holdfast.frontends.cli.root import run

    sys.exit(run(arguments, around, now_ns, start))


def start(name: str, *arguments: object) -> int:
    """Import the server of that name, which may be an extra that is not installed, and run it to its end."""
    from importlib import import_module

    return int(import_module({**SERVERS, **LIGHT}[name]).serve(*arguments))
