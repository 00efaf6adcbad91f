"""The journal of the restore in progress, and the log's records of finished ones."""

from __future__ import annotations

from errno import EACCES, EAGAIN
from fcntl import LOCK_EX, LOCK_NB, flock
from os import O_CLOEXEC, O_DIRECTORY, O_RDONLY, close, stat, unlink
from os import open as open_fd
from types import TracebackType
from typing import Any

from keepfast.fsutil.durable import make_folder, replace, sync_folder
from keepfast.model.errors import Busy, Damaged
from keepfast.model.strict_json import dumps, loads
from keepfast.store.records import Chain, Record
from keepfast.store.repository import Repository

WITH_CHOSEN = 2
"""Version of a journal with chosen hunks; any other journal has version 1."""
FIELDS: dict[str, tuple[type, ...]] = {
    "target": (int,),
    "before": (int,),
    "from": (str,),
    "paths": (list,),
    "made": (list,),
    "kept": (list,),
    "closed": (dict,),
    "started_at": (int,),
    "mtimes": (bool,),
    "note": (dict,),
}


class Reversal:
    """Which earlier restore this one reverses: `kind` is `undo` or `redo`, `number` counts restores in the log."""

    def __init__(self, kind: str, number: int) -> None:
        self.kind, self.number = kind, number


class RestoreInProgress:
    """A restore from before it changes anything until it is finished; the journal holds it.

    `origin`: the workspace of the target version. `before`: the safety checkpoint. `was` and `base`: workspace and version
    that the folder was at before, and is at afterwards. `created_paths`: what the restore creates; `kept_paths`: local
    changes that it leaves alone. `closed`: original modes of folders that are made writable for the time of the restore.
    """

    def __init__(
        self,
        workspace: str,
        target: int,
        origin: str,
        before: int,
        paths: list[str],
        created_paths: list[str],
        kept_paths: list[str],
        started_at: int,
        mtimes: bool,
        reversal: Reversal | None = None,
        was: list[Any] | None = None,
        base: list[Any] | None = None,
        chosen: dict[str, list[Any]] | None = None,
    ) -> None:
        self.workspace, self.target, self.origin, self.before = workspace, target, origin, before
        self.paths, self.created_paths, self.kept_paths = paths, created_paths, kept_paths
        self.closed: dict[str, int] = {}
        self.started_at, self.mtimes, self.reversal, self.was, self.base = started_at, mtimes, reversal, was, base
        self.chosen = chosen or {}
        """Of a restore of hunks, by path: the id of the new content in hex, its size, and the flags of its row."""

    def to_json(self) -> dict[str, Any]:
        """Return the journal's JSON."""
        journal = {
            "v": 1, "workspace": self.workspace, "target": self.target, "from": self.origin, "before": self.before,
            "paths": self.paths, "made": self.created_paths, "kept": self.kept_paths, "closed": self.closed,
            "started_at": self.started_at, "mtimes": self.mtimes, "note": _reversal_json(self.reversal),
            "was": self.was, "base": self.base,
        }  # fmt: skip
        # A release that does not know `chosen` must not finish such a restore with the target's files.
        return {**journal, "v": WITH_CHOSEN, "chosen": self.chosen} if self.chosen else journal

    @classmethod
    def from_json(cls, journal: dict[str, Any]) -> RestoreInProgress:
        restore = cls(
            str(journal.get("workspace") or ""), journal["target"], journal["from"], journal["before"], journal["paths"],
            journal["made"], journal["kept"], journal["started_at"], journal["mtimes"], _reversal(journal["note"]),
            journal.get("was"), journal.get("base"), journal.get("chosen"),
        )  # fmt: skip
        restore.closed = journal["closed"]
        return restore

    def reversed_by(self, undo: Reversal, target: int, before: int) -> RestoreInProgress:
        """Return the restore from the safety checkpoint that reverses this one."""
        return RestoreInProgress(
            self.workspace, target, self.origin, before, self.paths, self.created_paths, self.kept_paths, self.started_at,
            self.mtimes, undo, self.base, self.was,
        )  # fmt: skip

    def record(self, workspace: str, at: int) -> Record:
        """Return the log record of the finished restore, for the log of `workspace`."""
        record: Record = {
            "r": "restore", "target": self.target, "before": self.before, "paths": self.paths, "made": self.created_paths, "at": at,
            **_reversal_json(self.reversal),
        }  # fmt: skip
        if self.origin != workspace:
            record["from"] = self.origin
        record.update({name: place for name, place in (("was", self.was), ("base", self.base)) if place})
        return record


class PastRestore:
    """A finished restore, from its log record; `number` counts the restores of a log."""

    def __init__(self, number: int, record: Record) -> None:
        self.number, self.reversal = number, _reversal(record)
        self.target: int = record.get("target", 0)
        self.before: int = record.get("before", 0)
        self.paths: list[str] = record.get("paths", [])
        self.created_paths: list[str] = record.get("made", [])
        self.was: list[Any] | None = record.get("was")


def _reversal(value: dict[str, Any]) -> Reversal | None:
    kind = next((kind for kind in ("undo", "redo") if kind in value), "")
    return Reversal(kind, value[kind]) if kind else None


def _reversal_json(reversal: Reversal | None) -> dict[str, int]:
    return {reversal.kind: reversal.number} if reversal is not None else {}


class Journal:
    """The restore journal of one workspace, in its folder of the store. As a context manager it locks out other restores."""

    def __init__(self, folder: str, durable: bool) -> None:
        self.folder, self.path, self.durable = folder, folder + "/restore", durable
        self._fd = -1

    def __enter__(self) -> Journal:
        """Lock out other restores. Raises `Busy` while another process restores here."""
        make_folder(self.folder)
        self._fd = open_fd(self.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        if not _lock(self._fd):
            close(self._fd)
            self._fd = -1
            raise Busy("Another restore is in progress in this workspace.")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        close(self._fd)
        self._fd = -1

    def read(self) -> RestoreInProgress | None:
        """Return the interrupted restore, or None. Raises `Damaged`."""
        try:
            with open(self.path, "rb") as file:
                journal = loads(file.read())
        except FileNotFoundError:
            return None
        except (ValueError, OSError) as error:
            raise self._damaged(str(error)) from None
        if not isinstance(journal, dict) or journal.get("v") not in (1, WITH_CHOSEN):
            raise self._damaged("it has another version")
        for name, types in FIELDS.items():
            if not isinstance(journal.get(name), types):
                raise self._damaged(f"its `{name}` is invalid")
        texts = [*journal["paths"], *journal["made"], *journal["kept"]]
        if not all(isinstance(text, str) for text in texts) or not all(
            isinstance(mode, int) for mode in journal["closed"].values()
        ):
            raise self._damaged("it has an invalid path or mode")
        if not _are_chosen(journal.get("chosen", {})):
            raise self._damaged("its `chosen` is invalid")
        return RestoreInProgress.from_json(journal)

    def _damaged(self, why: str) -> Damaged:
        return Damaged(
            f"The journal of a restore cannot be used: {why}.",
            f"Inspect {self.path}. If you remove it, the state before that restore is still in `keepfast list`.",
        )

    def write(self, restore: RestoreInProgress) -> None:
        replace(self.path, dumps(restore.to_json()).encode("ascii"), durable=self.durable)

    def remove(self) -> None:
        try:
            unlink(self.path)
        except FileNotFoundError:
            pass
        if self.durable:
            sync_folder(self.folder)

    def exists(self) -> bool:
        """Return whether there is a journal. True also if that cannot be checked."""
        try:
            stat(self.path)
        except FileNotFoundError:
            return False
        except OSError:
            pass
        return True

    def is_locked(self) -> bool:
        """Return whether a restore is running now."""
        try:
            fd = open_fd(self.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        except OSError:
            return False
        try:
            return not _lock(fd)
        finally:
            close(fd)


def _are_chosen(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(row, list) and [type(part) for part in row] == [str, int, int] and _is_digest(row[0])
        for row in value.values()
    )


def _is_digest(text: str) -> bool:
    return len(text) == 64 and all(letter in "0123456789abcdef" for letter in text)


def _lock(fd: int) -> bool:
    try:
        flock(fd, LOCK_EX | LOCK_NB)
        return True
    except OSError as error:
        if error.errno in (EAGAIN, EACCES):
            return False
        raise


class History:
    """Restores that can be undone and undos that can be redone, from the log, oldest first."""

    def __init__(self, repository: Repository, workspace: str) -> None:
        self.done: list[PastRestore] = []
        self.undone: list[PastRestore] = []
        records = [
            record for record in Chain(repository.records.read(workspace)).records if record.get("r") == "restore"
        ]
        self.restores = [PastRestore(number, record) for number, record in enumerate(records)]
        for restore in self.restores:
            if restore.reversal is None:
                self.done.append(restore)
                self.undone = []
            elif restore.reversal.kind == "undo":
                self.done = self.done[:-1]
                self.undone.append(restore)
            else:
                self.undone = self.undone[:-1]
                self.done.append(restore)

    def find(self, before: int, target: int) -> PastRestore | None:
        """Return the restore with this safety checkpoint and target; a safety checkpoint belongs to one restore only."""
        for restore in self.restores:
            if (restore.before, restore.target) == (before, target):
                return restore
        return None
