"""What a save looks at: everything, what differs from the stat cache, or some paths; and whose folder it is."""

from __future__ import annotations

from _stat import S_ISDIR, S_ISLNK, S_ISREG
from posix import stat, urandom

from holdfast.core.entry import BY_NAME, EXCLUDED, FOLDER, IGNORED, OVERSIZE, SPECIAL, UNREADABLE
from holdfast.core.errors import HoldfastError
from holdfast.core.light_json import loads
from holdfast.workspace.find import identity
from holdfast.workspace.scan import Scan, recheck, walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from holdfast.guarding import Folder
    from holdfast.store.repository import Repository
    from holdfast.store.saving import Saving


def settle(folder: Folder, repository: Repository, now: int) -> None:
    """See to it that the store knows this folder: a moved one is followed, a copied one becomes its own."""
    marked = identity(folder.root)
    if marked is not None and marked != folder.workspace:
        folder.become(marked)  # while we waited for the lock, somebody else noticed that this is a copy
    row = repository.workspace(folder.workspace)
    if row is not None and row.path == folder.root:
        return
    engine = folder.engine
    if row is None:
        engine.register(repository, folder.workspace, folder.root, now)
    elif _elsewhere(row.path, folder.root, folder.workspace):
        copy = urandom(16).hex()
        engine.register(repository, copy, folder.root, now, parent=folder.workspace)
        engine.mark(folder.root, copy)
        folder.become(copy)
    else:
        engine.register(repository, folder.workspace, folder.root, now)


def scan(folder: Folder, saving: Saving, changes: Any) -> Scan:
    """Look at what the check named, or walk through everything."""
    if changes is not None and folder.cache is not None and not saving.whole:
        found = recheck(folder.fd, folder.cache, folder.capture, folder.now, *changes)
        if found is not None:
            return found
    state = saving.state()
    folder.full_scan_at = folder.now
    return walk(
        folder.fd,
        folder.vouching(saving.row.document),
        folder.capture,
        folder.now,
        lambda path: path in state and state[path].kind in "fl",
    )


def scan_only(folder: Folder, paths: tuple[bytes, ...], saving: Saving) -> Scan:
    """Look at these paths and nothing else; folders among them are looked at, not into.

    A path that leads through a link is not there, whatever lies behind the link.
    """
    from holdfast.workspace.below import lstat_below
    from holdfast.workspace.choose import Chooser
    from holdfast.workspace.walk import VANISHED

    found, folders, chooser = Scan(False), {b"": True}, Chooser(folder.fd, folder.capture)

    def is_folder(path: bytes) -> bool:
        missing = []
        while path not in folders:
            missing.append(path)
            path = path.rpartition(b"/")[0]
        for known in reversed(missing):
            try:
                folders[known] = folders[known.rpartition(b"/")[0]] and S_ISDIR(lstat_below(folder.fd, known).st_mode)
            except OSError:
                folders[known] = False
        return folders[missing[0]] if missing else folders[path]

    for path in paths:
        if chooser.excludes(path):
            continue
        try:
            seen = lstat_below(folder.fd, path) if is_folder(path.rpartition(b"/")[0]) else None
        except OSError as error:
            if error.errno not in VANISHED:
                raise
            seen = None
        if seen is not None and chooser.exclude.match(path, S_ISDIR(seen.st_mode)):
            found.left.append((path, EXCLUDED, BY_NAME, None))
        elif seen is None:
            found.gone.append(path)
        elif S_ISDIR(seen.st_mode):
            found.folders.append((path, seen))
        elif S_ISREG(seen.st_mode) or S_ISLNK(seen.st_mode):
            found.candidates.append((path, seen))
        else:
            found.left.append((path, SPECIAL, 0, seen))
    # With a folder goes all that was known below it.
    ledger, there = saving.repository.ledger, {path for path, _ in found.folders}
    for path, row in ledger.current(folder.workspace, [path for path in paths if path not in there]).items():
        if row.kind == FOLDER:
            below = ledger.state(folder.workspace, saving.row.version, path)
            found.gone += [known.path for known in below if known.path != path]
    return found


def force(folder: Folder, scan: Scan, paths: frozenset[bytes], saving: Saving) -> None:
    """Capture these files although they are, or were, left out."""
    from holdfast.workspace.below import lstat_below

    kept, known = [], {path for path, _ in scan.candidates}
    for path, kind, flags, seen in scan.left:
        if path in paths and seen is not None and S_ISREG(seen.st_mode):
            scan.candidates.append((path, seen))
            known.add(path)
        else:
            kept.append((path, kind, flags, seen))
    scan.left[:] = kept
    counts = loads(saving.row.counts)
    if not any(counts.get(kind) for kind in OVERSIZE + IGNORED + UNREADABLE):
        return
    # What was left out before and has not changed since is not named by the scan.
    for path, row in saving.repository.ledger.current(folder.workspace, sorted(paths - known)).items():
        if row.kind not in OVERSIZE + IGNORED + UNREADABLE:
            continue
        try:
            seen = lstat_below(folder.fd, path)
        except OSError:
            continue
        if S_ISREG(seen.st_mode):
            scan.candidates.append((path, seen))


def _elsewhere(path: bytes, root: bytes, workspace: str) -> bool:
    """Is there, at the path we knew, another folder with the same id?"""
    try:
        there, here = stat(path), stat(root)
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino) and identity(path) == workspace
    except (OSError, HoldfastError):
        return False
