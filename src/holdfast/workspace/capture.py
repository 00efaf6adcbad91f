"""What is captured and what is left out: the settings under `capture.*` as one value."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

NEVER = frozenset((b".git", b".holdfast"))
SUPERVISED = frozenset((b".metadata", b".checkpoints", b".logs"))
"""Folders of the supervisor in the root: left out if they say so themselves (see `OWN_IGNORE`)."""
OWN_IGNORE = b"# holdfast\n*\n"
CACHE_TAG = b"Signature: 8a477f597d28d172789f06886806bc55"


class Capture:
    """The rules of capture. Two with the same `text` decide alike."""

    __slots__ = (
        "accelerated",
        "exclude",
        "exclude_ignored",
        "excludes_files",
        "ignored",
        "ignored_file_size",
        "ignored_folder_files",
        "markers",
        "max_file_size",
        "max_files",
        "store",
        "text",
    )

    def __init__(
        self,
        *,
        exclude: Sequence[str] = (),
        exclude_ignored: Sequence[str] = (),
        exclude_marked: Sequence[str] = (),
        ignored: str = "small",
        ignored_file_size: int = 1 << 20,
        ignored_folder_files: int = 1000,
        max_file_size: int = 100 << 20,
        max_files: int = 200_000,
        accelerated: bool = True,
        store: tuple[int, int] | None = None,
    ) -> None:
        self.exclude = _lines(exclude)
        self.excludes_files = any(not pattern.endswith("/") for pattern in exclude)
        self.exclude_ignored = _lines(exclude_ignored)
        self.markers = frozenset([name.encode("utf-8", "surrogateescape") for name in exclude_marked])
        self.ignored = ignored
        self.ignored_file_size = ignored_file_size
        self.ignored_folder_files = ignored_folder_files
        self.max_file_size = max_file_size
        self.max_files = max_files
        self.accelerated = accelerated
        self.store = store
        """Device and inode of the store's folder: it may lie in the workspace, under whatever path."""
        self.text = repr(
            (
                list(exclude),
                list(exclude_ignored),
                list(exclude_marked),
                ignored,
                ignored_file_size,
                ignored_folder_files,
                max_file_size,
                max_files,
                store,
            )
        ).encode("utf-8", "surrogateescape")


def _lines(patterns: Sequence[str]) -> bytes:
    return "\n".join(patterns).encode("utf-8", "surrogateescape")
