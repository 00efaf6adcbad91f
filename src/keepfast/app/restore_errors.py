"""Errors of an interrupted restore: a journal that turns them into messages that say how to continue."""

from __future__ import annotations

from collections.abc import Iterable
from errno import EDQUOT, ENOSPC, EROFS
from types import TracebackType

from keepfast.model.errors import DiskFull, Failed, KeepfastError, shortage
from keepfast.store.restore_journal import Journal

CONTINUE_HINT = "Run `keepfast restore --continue` to finish it, or `keepfast restore --abort` to undo it."
UNTOUCHED_HINT = "Nothing was changed."


class ReportingJournal(Journal):
    """The journal while a restore runs; an `OSError` becomes a message that says how to continue."""

    def __enter__(self) -> ReportingJournal:
        try:
            super().__enter__()
        except OSError as error:
            raise explain(error, UNTOUCHED_HINT) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if isinstance(error, OSError | MemoryError):
            raise explain(error, CONTINUE_HINT if self.exists() else UNTOUCHED_HINT) from None


def explain(error: Exception, hint: str) -> KeepfastError:
    """Return the error of an interrupted restore as a message with this hint."""
    if isinstance(error, KeepfastError):
        error.hint = hint
        return error
    short = shortage(error)
    if short is not None:
        short.hint = f"{hint} {short.hint}"
        return short
    if not isinstance(error, OSError):
        raise error
    if error.errno in (ENOSPC, EDQUOT):
        return DiskFull("The disk is full: the restore stopped.", hint)
    if error.errno == EROFS:
        return Failed("The restore stopped: the file system is read-only.", hint)
    where = error.filename.decode("utf-8", "replace") if isinstance(error.filename, bytes) else error.filename
    return Failed(f"The restore stopped: {error.strerror or error}{f' ({where})' if where else ''}.", hint)


def texts(paths: Iterable[bytes]) -> list[str]:
    """Return paths as a journal stores them; `paths_of` is the inverse."""
    return [text(path) for path in paths]


def paths_of(written: Iterable[str]) -> list[bytes]:
    return [path_of(path) for path in written]


def text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def path_of(written: str) -> bytes:
    return written.encode("utf-8", "surrogateescape")
