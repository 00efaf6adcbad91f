"""Checkpoints as a read-only file system (FUSE), for as long as the process lives."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable
from errno import EBADF, EIO, ENOTCONN
from functools import wraps
from itertools import count
from shutil import which
from typing import Any

from keepfast.app.checkpoint import Engine
from keepfast.app.mount_tree import Browser, Node
from keepfast.fsutil.durable import explain
from keepfast.model.errors import Failed, KeepfastError, Usage, extra
from keepfast.state.mounts import hold
from keepfast.store.rows import CheckpointRow
from keepfast.workspace.marker import show

TYPES = {"f": stat.S_IFREG, "l": stat.S_IFLNK, "d": stat.S_IFDIR}
BLOCK = 4096
DEVICE = "/dev/fuse"
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INSTALL = f"{extra('mount')} Install FUSE, too (Debian: apt install fuse3)."


def mount(engine: Engine, workspace: str, only: CheckpointRow | None, folder: bytes, ready: Callable[[], None]) -> None:
    """Mount all versions, or `only` one, in this folder until it is unmounted or the process gets a signal to end.

    `ready` is called once the versions are visible. Raises `Failed` if mounting fails, `Busy` during a compaction.
    """
    fuse = library()
    try:
        lock = hold(engine.place.path, show(folder))
    except OSError as error:
        raise explain(error, "Mounting", engine.place.path) from None
    # A signal before FUSE handles signals would kill us and leave a stale mount: it is blocked until `init`.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        operations = _operations(fuse, Browser(engine, workspace, only), ready)
        try:
            fuse.FUSE(
                operations,
                os.fsdecode(folder),
                foreground=True,
                nothreads=True,  # one thread: the ledger belongs to it
                ro=True,
                fsname="keepfast",
                subtype="keepfast",
                use_ino=True,
                kernel_cache=True,  # a version never changes
            )
        except RuntimeError as error:
            # FUSE reports a signal like a failure: if it had begun, this is a normal end.
            if not operations.begun:
                raise Failed(f"{show(folder)} could not be mounted (FUSE says {error}).", INSTALL) from None
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        os.close(lock)


def library() -> Any:
    """Return the FUSE library's module. Raises `Failed` with what is missing and how to get it."""
    try:
        import mfusepy
    except ImportError:
        raise Failed("The package mfusepy is required for mounting, but not installed.", INSTALL) from None
    except (OSError, AttributeError) as error:
        raise Failed(f"The FUSE library cannot be loaded: {error}.", INSTALL) from None
    if not os.path.exists(DEVICE):
        raise Failed(f"{DEVICE} does not exist: this machine or container has no FUSE.", INSTALL)
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        raise Failed(f"{DEVICE} cannot be opened by this user.", "Ask the administrator for access to FUSE.")
    if which("fusermount3") is None and which("fusermount") is None:
        raise Failed("The program fusermount3 is required for mounting, but not installed.", INSTALL)
    return mfusepy


def prepare(folder: bytes, engine: Engine) -> bool:
    """Check that this folder can be mounted over; make it if it is missing, and return True if so.

    Raises `Usage` for one that is in use, not empty, or inside a workspace or the store.
    """
    is_new = False
    try:
        os.mkdir(folder)
        is_new = True
    except FileExistsError:
        pass
    except OSError as error:
        raise Usage(f"{show(folder)} cannot be created: {error.strerror}.") from None
    try:
        _check(folder, engine)
    except BaseException:
        if is_new:
            os.rmdir(folder)
        raise
    return is_new


def _check(folder: bytes, engine: Engine) -> None:
    try:
        names = os.listdir(folder)
    except NotADirectoryError:
        raise Usage(f"{show(folder)} is not a folder.", "Give an empty folder.") from None
    except OSError as error:
        if error.errno == ENOTCONN:
            raise Failed(
                f"{show(folder)} is a stale mount: its process died.",
                f"Run `fusermount3 -u {show(folder)}`, then try again.",
            ) from None
        raise Usage(f"{show(folder)} cannot be read: {error.strerror}.") from None
    if os.path.ismount(folder):
        raise Usage(f"Something is already mounted at {show(folder)}.", "Give another folder.")
    if names:
        raise Usage(f"{show(folder)} is not empty.", "Give an empty folder; a mount would hide its contents.")
    here = os.path.realpath(folder)
    location = engine.workspaces.nearest(here)
    if location is not None:
        raise Usage(
            f"{show(folder)} is inside the workspace {show(location[0])}: the next save would include the "
            "mounted versions.",
            "Give a folder outside it.",
        )
    if (here + b"/").startswith(os.path.realpath(os.fsencode(engine.place.path)) + b"/"):
        raise Usage(f"{show(folder)} is inside the store.", "Give a folder outside it.")


def _operations(fuse: Any, browser: Browser, ready: Callable[[], None]) -> Any:
    """Return the FUSE callbacks. Defined in a function because their base class needs the library."""

    def explained(method: Callable[..., Any]) -> Callable[..., Any]:
        """Turn an error of the store into an input error of the file that is read; the rest stays readable."""

        @wraps(method)
        def call(*values: Any) -> Any:
            try:
                return method(*values)
            except KeepfastError as error:
                raise OSError(EIO, str(error)) from None

        return call

    class Operations(fuse.Operations):  # type: ignore[misc]
        use_ns = True

        def __init__(self) -> None:
            self.begun = False
            self.opened: dict[int, Node] = {}
            self.handles = count(1)

        def init(self, path: str) -> None:
            self.begun = True
            ready()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)

        @explained
        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            node = self.opened[fh] if fh in self.opened else browser.find(_relative(path))
            return _attributes(node)

        @explained
        def readdir(self, path: str, fh: int) -> list[tuple[str, dict[str, int], int]]:
            entries = [(b".", "d", 1), (b"..", "d", 1), *browser.names(_relative(path))]
            return [
                (name.decode("utf-8", "surrogateescape"), {"st_mode": TYPES[kind], "st_ino": _positive(inode)}, 0)
                for name, kind, inode in entries
            ]

        @explained
        def readlink(self, path: str) -> str:
            return browser.find(_relative(path)).content.decode("utf-8", "surrogateescape")

        @explained
        def open(self, path: str, flags: int) -> int:
            handle = next(self.handles)
            self.opened[handle] = browser.find(_relative(path))
            return handle

        @explained
        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            if fh not in self.opened:
                raise OSError(EBADF, "no such handle")
            return browser.read(self.opened[fh], offset, size)

        def release(self, path: str, fh: int) -> int:
            self.opened.pop(fh, None)
            return 0

        def statfs(self, path: str) -> dict[str, int]:
            return {"f_bsize": BLOCK, "f_frsize": BLOCK, "f_namemax": 255}

    return Operations()


def _relative(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape").lstrip(b"/")


def _positive(inode: int) -> int:
    """Return a usable inode number: names with inode 0 are hidden."""
    return inode & 0x7FFF_FFFF_FFFF_FFFF or 1


def _attributes(node: Node) -> dict[str, Any]:
    return {
        "st_mode": TYPES[node.kind] | node.mode,
        "st_nlink": node.links,
        "st_size": node.size,
        "st_blocks": (node.size + 511) // 512,
        "st_blksize": BLOCK,
        "st_ino": _positive(node.inode),
        "st_mtime": node.mtime,
        "st_atime": node.mtime,
        "st_ctime": node.mtime,
        "st_uid": os.getuid(),
        "st_gid": os.getgid(),
    }
