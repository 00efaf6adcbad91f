"""Refuse names that collide in a folder that ignores case."""

from __future__ import annotations

from array import array
from fcntl import ioctl
from os import O_CLOEXEC, O_CREAT, O_DIRECTORY, O_NOFOLLOW, O_RDONLY, O_WRONLY, close, stat, unlink
from os import open as open_fd
from unicodedata import normalize

from keepfast.model.errors import Conflict, Damaged
from keepfast.model.frozen import FORMER_MARKER
from keepfast.model.restore_plan import OWN_NAMES, Plan
from keepfast.workspace.marker import show
from keepfast.workspace.system_calls import System

GET_FLAGS, FOLDS = 0x80086601, 0x40000000
"""FS_IOC_GETFLAGS and FS_CASEFOLD_FL: ext4 and f2fs fold case folder by folder."""
LOOKALIKES = (b".git", b".keepfast", FORMER_MARKER, b"git~")
INVISIBLE = dict.fromkeys([*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF])
"""Characters that some file systems ignore in names."""


def refuse_folded(plan: Plan, root: int, scratch: int, system: System) -> None:
    """Raise if two names of the plan collide, or one is another spelling of `.git`.

    `scratch` is a folder of ours on the same file system. Where cases are told apart, every name is fine.
    """
    paths = [step.path for step in plan.steps if step.new is not None]
    folded, suspicious = _folded(paths)
    twins: list[tuple[bytes, bytes]] = []
    if len(set(folded)) < len(paths):
        names: dict[bytes, bytes] = {}
        twins = [
            (first, path)
            for form, path in zip(folded, paths, strict=True)
            if (first := names.setdefault(form, path)) != path
        ]
    disguised: list[tuple[bytes, bytes]] = []
    if suspicious:
        for form, path in zip(folded, paths, strict=True):
            if any(name in form for name in LOOKALIKES):
                disguised += [(path, path[:end]) for end in _disguises(path, form)]
    if not twins and not disguised:
        return
    folding = _Folding(root, scratch, system)
    for path, folder in disguised:
        if folding.folds(folder):
            raise Damaged(
                f"{show(path)} would be written into an excluded folder: this file system ignores case.",
                "Nothing was restored.",
            )
    for one, other in twins:
        if folding.folds(other.rpartition(b"/")[0]):
            raise Conflict(
                f"{show(one)} and {show(other)} cannot both exist here: this file system ignores case.",
                "Restore one of them by its path.",
            )


def _folded(paths: list[bytes]) -> tuple[list[bytes], bool]:
    """Return the folded form of every path, and whether one may contain `.git`; plain names are checked all at once."""
    text = b"\0".join(paths)
    folded = text.lower().split(b"\0") if paths and text.isascii() else [fold(path) for path in paths]
    if len(folded) != len(paths):  # a path with a NUL, which a plan refuses
        folded = [fold(path) for path in paths]
    together = b"\0".join(folded)
    return folded, any(name in together for name in LOOKALIKES)


def fold(path: bytes) -> bytes:
    """Return the form that all spellings of a path share in a folder that folds case."""
    if path.isascii():
        return path.lower()
    text = path.decode("utf-8", "surrogateescape").translate(INVISIBLE)
    return normalize("NFD", normalize("NFD", text).casefold()).encode("utf-8", "surrogateescape")


def _disguises(path: bytes, folded: bytes) -> list[int]:
    """Return the positions in the path after which a part may be `.git` or `.keepfast` in another spelling."""
    positions, at = [], 0
    for part, plain in zip(path.split(b"/"), folded.split(b"/"), strict=True):
        if (plain in OWN_NAMES or plain.startswith((b"git~", b"holdfa~"))) and part not in OWN_NAMES:
            positions.append(max(at - 1, 0))
        at += len(part) + 1
    return positions


class _Folding:
    def __init__(self, root: int, scratch: int, system: System) -> None:
        self.root, self.system = root, system
        flag = _flag(scratch)
        # A file system without a flag per folder folds case everywhere or nowhere.
        self.everywhere = flag is not True and _probe(scratch)

    def folds(self, folder: bytes) -> bool:
        """Return whether this folder, or the nearest existing one above it, treats two spellings as the same name."""
        if self.everywhere:
            return True
        while True:
            try:
                fd = self.system.open_folder(self.root, folder)
            except OSError:
                if not folder:
                    return False
                folder = folder.rpartition(b"/")[0]
                continue
            try:
                return _flag(fd) is True
            finally:
                close(fd)


def _flag(folder: int) -> bool | None:
    """Return the folder's case folding flag; None if the file system has none."""
    try:
        fd = open_fd(b".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    try:
        value = array("l", [0])
        ioctl(fd, GET_FLAGS, value)
        return bool(value[0] & FOLDS)
    except OSError:
        return None
    finally:
        close(fd)


def _probe(folder: int) -> bool:
    close(open_fd(b"case", O_WRONLY | O_CREAT | O_CLOEXEC, 0o600, dir_fd=folder))
    try:
        stat(b"CASE", dir_fd=folder)
        return True
    except FileNotFoundError:
        return False
    finally:
        unlink(b"case", dir_fd=folder)
