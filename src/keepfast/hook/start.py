"""Start a hook: run the front end that the command line names, and end the process without tearing it down."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

INCOMPLETE = 3
"""Exit code for the launcher (agents/launcher.py), which hides it from the client: files of ours are missing."""


def start(here: str) -> None:
    """Run the verb of the command line and end the process. `here` is the folder of this file."""
    gc.disable()  # a save makes many values and drops few: collecting them costs more than it frees
    folder = _identity(here)
    try:
        code = _run(sys.argv[1:])
        # A disk error (`()`) is no sign of an upgrade: then the failure counts.
        if code and _identity(here) not in (folder, ()):
            code = INCOMPLETE  # an upgrade replaced us meanwhile, which may be why it failed
    except (ImportError, SyntaxError, OSError) as error:
        code = INCOMPLETE
        os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "backslashreplace"))
        words = sys.argv[5:] if sys.argv[1:2] == ["--folders"] else sys.argv[1:]
        if words[:2] == ["statusline", "--then"] and len(words) == 3:
            os.execv("/bin/sh", ["/bin/sh", "-c", words[2]])
    sys.stdout.flush()
    sys.stderr.flush()
    # Tearing the interpreter down would take another millisecond.
    os._exit(code)


def _run(arguments: Sequence[str]) -> int:
    """Load a front end and run it; what is missing of it is the caller's to report."""
    from keepfast.present.environment import LIBRARY_VARIABLES, split_folders, unset_variables

    unset_variables(LIBRARY_VARIABLES)  # before anything is loaded that might obey them
    folders, arguments = split_folders(arguments)
    verb, rest = arguments[:1], arguments[1:]
    if verb == ["hook"]:
        from keepfast.hook.main import main
    elif verb == ["statusline"]:
        from keepfast.hook.statusline import main
    elif verb == ["resident"] and folders is not None:
        from keepfast.hook.resident import main as stay

        gc.enable()
        return stay(folders)
    else:
        from keepfast.hook.autosave import run as main

        rest = arguments
    return main(rest, folders)


def _identity(folder: str) -> tuple[int, ...] | None:
    """Return what tells our folder from another one in its place; None if it is gone, nothing after a disk error."""
    try:
        seen = os.stat(folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return ()
    return seen.st_ino, seen.st_mtime_ns
