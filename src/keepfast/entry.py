"""The `keepfast` command: decides which front end runs, and passes the servers to the command line that starts them."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from keepfast.model.errors import shortage

if TYPE_CHECKING:
    from keepfast.present.environment import Environment, Folders

SERVERS = {
    "mcp": "keepfast.mcp",
    "serve": "keepfast.web",
}
"""Long-running front ends: their module has `serve(options, environment, clock) -> exit code`."""

LIGHT_FRONT_ENDS = {"statusline": "keepfast.hook.statusline", "hook": "keepfast.hook.main"}
"""Front ends that clients start often, so they skip loading the command line: their module has `main(arguments)`."""


def main(folders: Folders | None = None) -> NoReturn:
    """Run the command in `sys.argv` and exit with its exit code.

    `folders` override those of the environment, and so does `--folders HOME CONFIG DATA` as the first arguments.
    """
    try:
        _main(folders)
    except (MemoryError, ImportError, OSError) as error:
        short = shortage(error)
        if short is None:
            raise
        # Load nothing more: there may be no memory even for the modules that report errors.
        os.write(2, f"keepfast: {short}\n{short.hint}\n".encode())
        os._exit(short.exit_code)


def _main(folders: Folders | None) -> NoReturn:
    try:
        from keepfast.present.environment import (
            COMPLETION,
            LIBRARY_VARIABLES,
            command_environment,
            now_ns,
            split_folders,
            unset_variables,
        )

        folders_option, arguments = split_folders(sys.argv[1:])
        if arguments:
            unset_variables([COMPLETION])
        folders = folders_option or folders
        light = LIGHT_FRONT_ENDS.get(arguments[0]) if arguments else None
        if light is not None and not {"-h", "--help"}.intersection(arguments):
            unset_variables(LIBRARY_VARIABLES)  # before anything is loaded that might obey them
            sys.exit(import_module(light).main(arguments[1:], folders))
    except (ImportError, SyntaxError) as error:
        if shortage(error) is not None:
            raise
        sys.exit(f"keepfast: The installation is incomplete: {error}.")  # exit code 1
    environment = command_environment(folders)
    _take_over(environment)
    from keepfast.cli.root import run

    sys.exit(run(arguments, environment, now_ns, start))


def _take_over(environment: Environment) -> None:
    """Take over what an earlier version stored under the project's first name, and report it. Agents' commands do not."""
    from keepfast.present.former_name import take_over

    line = "" if environment.is_agents() else take_over(environment)
    if line:
        from keepfast.cli.client_files import update_for_new_name

        update_for_new_name(environment, line)


def start(name: str, *arguments: object) -> int:
    """Run a server until it ends. Raises `ModuleNotFoundError` if its extra is not installed."""
    return int(import_module({**SERVERS, **LIGHT_FRONT_ENDS}[name]).serve(*arguments))
