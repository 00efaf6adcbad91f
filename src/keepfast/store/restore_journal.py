"""What is written down of restores: the journal of the one under way, and the records of those that are done."""

from __future__ import annotations

from errno import EACCES, EAGAIN
from fcntl import LOCK_EX, LOCK_NB, flock
from posix import O_CLOEXEC, O_DIRECTORY, O_RDONLY, close, stat, unlink
from posix import open as open_fd

from keepfast.fsutil.durable import make_folder, replace, sync_folder
from keepfast.model.errors import Busy, Damaged
from keepfast.model.light_json import dumps, loads
from keepfast.store.records import Chain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from keepfast.store.repository import Repository

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


class Journal:
    """The journal of one workspace, in its folder of the store. Used as a context it keeps other restores out."""

    def __init__(self, folder: str, durable: bool) -> None:
        self.folder, self.path, self.durable = folder, folder + "/restore", durable
        self._fd = -1

    def __enter__(self) -> Journal:
        """Raises `Busy` while another process restores here."""
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

    def read(self) -> dict[str, Any] | None:
        """What the restore was about, or None. Raises `Damaged`."""
        try:
            with open(self.path, "rb") as file:
                journal = loads(file.read())
        except FileNotFoundError:
            return None
        except (ValueError, OSError) as error:
            raise self._damaged(str(error)) from None
        if not isinstance(journal, dict) or journal.get("v") != 1:
            raise self._damaged("it has another version")
        for name, types in FIELDS.items():
            if not isinstance(journal.get(name), types):
                raise self._damaged(f"its `{name}` is invalid")
        texts = [*journal["paths"], *journal["made"], *journal["kept"]]
        if not all(isinstance(text, str) for text in texts) or not all(
            isinstance(mode, int) for mode in journal["closed"].values()
        ):
            raise self._damaged("it has an invalid path or mode")
        return journal

    def _damaged(self, why: str) -> Damaged:
        return Damaged(
            f"The journal of a restore cannot be used: {why}.",
            f"Inspect {self.path}. If you remove it, the state before that restore is still in `keepfast list`.",
        )

    def write(self, journal: dict[str, Any]) -> None:
        replace(self.path, dumps({"v": 1, **journal}).encode("ascii"), durable=self.durable)

    def remove(self) -> None:
        try:
            unlink(self.path)
        except FileNotFoundError:
            pass
        if self.durable:
            sync_folder(self.folder)

    def is_there(self) -> bool:
        """Is there a journal, whatever it says? In doubt there is."""
        try:
            stat(self.path)
        except FileNotFoundError:
            return False
        except OSError:
            pass
        return True

    def is_held(self) -> bool:
        """Is a restore running at this moment?"""
        try:
            fd = open_fd(self.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        except OSError:
            return False
        try:
            return not _lock(fd)
        finally:
            close(fd)


def _lock(fd: int) -> bool:
    try:
        flock(fd, LOCK_EX | LOCK_NB)
        return True
    except OSError as error:
        if error.errno in (EAGAIN, EACCES):
            return False
        raise


class History:
    """Restores that can be undone and undos that can be redone, oldest first, as the log tells them."""

    def __init__(self, repository: Repository, workspace: str) -> None:
        self.done: list[dict[str, Any]] = []
        self.undone: list[dict[str, Any]] = []
        records = Chain(repository.records.read(workspace)).records
        self.records = [record for record in records if record.get("r") == "restore"]
        for number, record in enumerate(self.records):
            record["seq"] = number
            if "undo" in record:
                self.done = self.done[:-1]
                self.undone.append(record)
            elif "redo" in record:
                self.undone = self.undone[:-1]
                self.done.append(record)
            else:
                self.done.append(record)
                self.undone = []

    def find(self, before: int, target: int) -> dict[str, Any] | None:
        """The record of this very restore; a safety checkpoint belongs to one restore only."""
        for record in self.records:
            if record.get("before") == before and record.get("target") == target:
                return record
        return None
