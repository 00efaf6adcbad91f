"""Maps all errors to messages and exit codes; users never see a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from errno import ENOMEM
from os import O_WRONLY, dup2
from os import open as open_fd

from keepfast.cli.session import Session, write_json
from keepfast.fsutil.durable import explain
from keepfast.model.errors import KeepfastError, shortage
from keepfast.workspace.marker import show

INTERRUPTED = 130


def leave(session: Session, arguments: Sequence[str], work: Callable[[], int]) -> int:
    """Run the work of a command line, report its error if it fails, and return the exit code."""
    _never_fail_to_print()
    try:
        return _leave(session, arguments, work)
    except BrokenPipeError:
        return _stop_writing()
    finally:
        session.close()


def _leave(session: Session, arguments: Sequence[str], work: Callable[[], int]) -> int:
    try:
        session.refuse_untrusted_folders()
        session.warn_of_relative_home()
        code = work()
        sys.stdout.flush()
        return code
    except KeepfastError as error:
        return _report(session, arguments, error)
    except KeyboardInterrupt:
        session.clear_progress()
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as error:
        if session.environment.text("KEEPFAST_DEBUG"):
            raise
        return _report(session, arguments, _to_keepfast_error(error, session))


def _report(session: Session, arguments: Sequence[str], error: KeepfastError) -> int:
    # Clients treat exit code 2 of a hook as "block the agent"; a wrong flag in `save --auto` must not do that.
    auto = "--auto" in _before_paths(arguments)
    exit_code = 1 if auto else error.exit_code
    session.clear_progress()
    if session.json or "--json" in _before_paths(arguments):
        write_json({"error": {"kind": error.kind, "message": str(error), "hint": error.hint, "exit_code": exit_code}})
        return exit_code
    lines = [f"keepfast: {error}", error.hint] if error.hint else [f"keepfast: {error}"]
    session.warn((" " if auto else "\n").join(lines))
    return exit_code


def _to_keepfast_error(error: Exception, session: Session) -> KeepfastError:
    """Turn an unexpected exception into an error with a message."""
    if isinstance(error, OSError) and error.strerror and error.errno != ENOMEM:
        name = os.fsencode(error.filename) if isinstance(error.filename, str | bytes) else b""
        store = session.store_path()
        if store and (not name or name.startswith(os.fsencode(store))):
            return explain(error, "The command", store)
        return KeepfastError(f"{error.strerror}: {show(name)}." if name else f"{error.strerror}.")
    return shortage(error) or KeepfastError(
        f"Internal error: {type(error).__name__}: {error}.",
        "Please report it; set KEEPFAST_DEBUG=1 for a traceback.",
    )


def _before_paths(arguments: Sequence[str]) -> Sequence[str]:
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


def _never_fail_to_print() -> None:
    """Print characters that the terminal's encoding lacks as escapes instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _stop_writing() -> int:
    """Return exit code 0 after the reader closed the pipe (`| head`), and keep Python from complaining at exit."""
    dup2(open_fd("/dev/null", O_WRONLY), 1)
    return 0
