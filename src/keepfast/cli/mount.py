"""`keepfast mount`: browse checkpoints as folders."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import click

from keepfast.app.mount import library, prepare
from keepfast.app.mount import mount as mount_here
from keepfast.cli.reference import REFERENCE
from keepfast.cli.session import Session, common, write_json
from keepfast.model.errors import Busy, Failed, KeepfastError, Unreachable, Usage, sentence
from keepfast.store.rows import CheckpointRow
from keepfast.workspace.marker import show

READY = "ready"


@click.command()
@click.argument("words", metavar="[REF] DIR", type=REFERENCE, nargs=-1)
@click.option("--background", is_flag=True, help="Mount in the background and return.")
@common
def mount(session: Session, words: tuple[str, ...], background: bool) -> None:
    """Mount all checkpoints of the workspace, or only REF, read-only at DIR.

    DIR gets a folder for each version, a link `latest`, and links by name in `names`. Press Ctrl-C or unmount DIR to
    end it. While it is mounted, the store cannot be compacted.
    """
    if not 1 <= len(words) <= 2:
        raise Usage("Give a folder to mount at, after at most one reference.", "For example: keepfast mount v5 ../v5")
    _, workspace = session.workspace()
    row = session.resolve(workspace, words[0]) if len(words) == 2 else None
    library()
    folder = os.fsencode(os.path.abspath(words[-1]))
    is_new_folder = prepare(folder, session.engine)
    try:
        if background:
            is_new_folder = _mount_in_background(session, workspace.id, row, folder, is_new_folder)
        else:
            _mount_in_foreground(session, workspace.id, row, folder)
    finally:
        if is_new_folder:
            _remove(folder)


def _mount_in_foreground(session: Session, workspace: str, row: CheckpointRow | None, folder: bytes) -> None:
    mount_here(session.engine, workspace, row, folder, lambda: _announce(session, row, folder, os.getpid()))
    session.say("Unmounted.")


def _mount_in_background(
    session: Session, workspace: str, row: CheckpointRow | None, folder: bytes, is_new_folder: bool
) -> bool:
    """Mount in a child process and return when it is mounted: False, because the child removes the folder."""
    session.engine.close()  # a connection to the ledger does not survive a fork
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _run_child(session, workspace, row, folder, is_new_folder, writing)
    os.close(writing)
    with open(reading, "rb") as file:
        answer = file.read().decode("utf-8", "replace")
    if answer != READY:
        os.waitpid(child, 0)
        raise _error_of_child(answer, folder)
    _announce(session, row, folder, child)
    return False


def _run_child(
    session: Session, workspace: str, row: CheckpointRow | None, folder: bytes, is_new_folder: bool, writing: int
) -> None:
    code = 1
    try:
        os.setsid()
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(quiet, stream)
        os.close(quiet)
        mount_here(session.engine, workspace, row, folder, _ready_callback(writing))
        code = 0
    except KeepfastError as error:
        os.write(writing, f"{type(error).__name__}\n{error}\n{error.hint}".encode("utf-8", "replace"))
    except Exception as error:
        os.write(writing, f"Failed\n{sentence(error)}\n".encode("utf-8", "replace"))
    finally:
        if is_new_folder and not code:
            _remove(folder)
        os._exit(code)


def _error_of_child(answer: str, folder: bytes) -> KeepfastError:
    """Return the error that the child reported, with its class."""
    kind, _, details = answer.partition("\n")
    message, _, hint = details.partition("\n")
    kinds = {kind_class.__name__: kind_class for kind_class in (Busy, Unreachable)}
    return kinds.get(kind, Failed)(message or f"The mount at {os.fsdecode(folder)} ended immediately.", hint)


def _ready_callback(writing: int) -> Callable[[], None]:
    def tell() -> None:
        os.write(writing, READY.encode("ascii"))
        os.close(writing)

    return tell


def _announce(session: Session, row: CheckpointRow | None, folder: bytes, process: int) -> None:
    if session.json:
        version = f"v{row.version}" if row is not None else None
        write_json({"mounted": show(folder), "version": version, "pid": process})
        return
    what = f"v{row.version}" if row is not None else "all versions"
    way = "Press Ctrl-C" if process == os.getpid() else f"Run `fusermount3 -u {show(folder)}`"
    session.say(f"Mounted {what} at {show(folder)}. {way} to unmount.")
    sys.stdout.flush()


def _remove(folder: bytes) -> None:
    """Remove the folder that was created for the mount, if it is empty."""
    try:
        os.rmdir(folder)
    except OSError:
        pass
