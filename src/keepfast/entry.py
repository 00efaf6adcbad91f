"""The `keepfast` command: decides which front end runs, and hands the servers to the command line that starts them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from keepfast.present.environment import Folders, Surroundings

SERVERS = {
    "mcp": "keepfast.mcp",
    "serve": "keepfast.web",
}
"""Front ends that stay: their module has `serve(options, surroundings, clock) -> exit code`."""

LIGHT = {"statusline": "keepfast.hook.statusline", "hook": "keepfast.hook.main"}
"""Front ends that a client starts all the time, without the command line's 60 ms: their module has `main(arguments)`."""


def main(folders: Folders | None = None) -> NoReturn:
    """Run the command in `sys.argv` and leave with its exit code.

    `folders` stand above those of the environment; the words `--folders HOME CONFIG DATA` before all others say the same.
    """
    from keepfast.model.errors import shortage

    try:
        _main(folders)
    except (MemoryError, ImportError, OSError) as error:
        short = shortage(error)
        if short is None:
            raise
        # Nothing more is loaded: there was no memory even for the modules that say so elsewhere.
        from posix import _exit, write

        write(2, f"keepfast: {short}\n{short.hint}\n".encode())
        _exit(short.exit_code)


def _main(folders: Folders | None) -> NoReturn:
    import gc
    import sys

    from keepfast.model.errors import shortage

    try:
        from keepfast.present.environment import COMPLETION, forget, now_ns, surroundings, written

        told, arguments = written(sys.argv[1:])
        if arguments:
            forget([COMPLETION])
        folders = told or folders
        light = LIGHT.get(arguments[0]) if arguments else None
        if light is not None and not {"-h", "--help"}.intersection(arguments):
            from importlib import import_module

            sys.exit(import_module(light).main(arguments[1:], folders))
    except (ImportError, SyntaxError) as error:
        if shortage(error) is not None:
            raise
        sys.exit(f"keepfast: The installation is incomplete: {error}.")  # exit code 1
    from keepfast.hook.start import Finder

    # A command loads a hundred modules: they are found by the shortest way.
    sys.meta_path.insert(0, Finder(__file__.rpartition("/keepfast/")[0]))
    from keepfast.cli import scripted

    gc.disable()  # short commands make many values and drop few: collecting them costs more than it gives
    around = surroundings(folders)
    _take_over(around)
    code = scripted.run(arguments, around, now_ns)
    if code is not None:
        from posix import _exit

        sys.stderr.flush()
        _exit(code)  # everything is written and closed: tearing the interpreter down would only take time
    gc.enable()
    from keepfast.cli.root import run

    sys.exit(run(arguments, around, now_ns, start))


def _take_over(around: Surroundings) -> None:
    """Go on with what an earlier version kept under the project's first name, and say so. An agent's commands do not."""
    from keepfast.present.former_name import take_over

    line = "" if around.is_agents() else take_over(around)
    if line:
        from keepfast.cli.client_files import renew_for_new_name

        renew_for_new_name(around, line)


def start(name: str, *arguments: object) -> int:
    """Import the server of that name, which may be an extra that is not installed, and run it to its end."""
    from importlib import import_module

    return int(import_module({**SERVERS, **LIGHT}[name]).serve(*arguments))
