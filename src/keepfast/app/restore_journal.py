"""The journal while a restore is at work: what the system has against it becomes a sentence with the way out."""

from __future__ import annotations

from errno import EDQUOT, ENOSPC, EROFS

from keepfast.model.errors import DiskFull, Failed, KeepfastError, shortage
from keepfast.store.restore_journal import Journal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

GO_ON = "Run `keepfast restore --continue` to finish it, or `keepfast restore --abort` to undo it."
UNTOUCHED = "Nothing was changed."


class Turn(Journal):
    """The journal while a restore is at work: what the system has against it becomes a sentence with the way out."""

    def __enter__(self) -> Turn:
        try:
            super().__enter__()
        except OSError as error:
            raise explain(error, UNTOUCHED) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if isinstance(error, OSError | MemoryError):
            raise explain(error, GO_ON if self.exists() else UNTOUCHED) from None


def explain(error: Exception, hint: str) -> KeepfastError:
    """A sentence for what went wrong half-way, with the way out."""
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
    """Paths as a journal holds them; `paths_of` is the way back."""
    return [text(path) for path in paths]


def paths_of(written: Iterable[str]) -> list[bytes]:
    return [path_of(one) for one in written]


def text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def path_of(written: str) -> bytes:
    return written.encode("utf-8", "surrogateescape")
