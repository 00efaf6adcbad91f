"""What is captured and what is left out: the settings `capture.*` as one value."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from keepfast.model.frozen import FORMER_MARKER

GIT, OWN = b".git", b".keepfast"
OWN_FOLDERS = (OWN, FORMER_MARKER)
NEVER_ENTERED = frozenset((GIT, *OWN_FOLDERS))
"""Folders that are never entered. A `.git` file, as in submodules and linked worktrees, is an ordinary file, and a `.keepfast`
below the root is an ordinary folder unless it is the marker of a workspace of this user."""
RULES_VERSION = 3
"""Version of the rules in the code: a stat cache of another version is not used."""
SUPERVISOR_FOLDERS = frozenset((b".metadata", b".checkpoints", b".logs"))
"""Folders of the supervisor in the root: left out if their `.gitignore` identifies them (see `model/frozen.py`)."""
CACHE_TAG = b"Signature: 8a477f597d28d172789f06886806bc55"


class Capture:
    """The rules of capture. Two with the same `text` are equivalent."""

    __slots__ = (
        "accelerated",
        "exclude",
        "exclude_ignored",
        "excludes_files",
        "ignored",
        "ignored_file_size",
        "ignored_folder_files",
        "leaves_large",
        "markers",
        "max_file_size",
        "max_files",
        "own",
        "reads_rules",
        "store",
        "stores",
        "text",
    )

    def __init__(
        self,
        *,
        exclude: Sequence[str] = (),
        exclude_ignored: Sequence[str] = (),
        exclude_marked: Sequence[str] = (),
        ignored: str = "all",
        ignored_file_size: int = 1 << 20,
        ignored_folder_files: int = 1000,
        max_file_size: int = 100 << 20,
        max_files: int = 200_000,
        accelerated: bool = True,
        store: tuple[int, int] | None = None,
        own: Collection[bytes] = (),
        stores: Collection[tuple[str, str]] = (),
    ) -> None:
        self.exclude = _lines(exclude)
        self.excludes_files = any(not pattern.endswith("/") for pattern in exclude)
        self.exclude_ignored = _lines(exclude_ignored)
        self.markers = frozenset([name.encode("utf-8", "surrogateescape") for name in exclude_marked])
        self.ignored = ignored
        self.reads_rules = ignored != "all" or bool(exclude_ignored)
        """Whether ignore files have any effect."""
        self.leaves_large = ignored == "small"
        """Whether ignored folders with many files are excluded."""
        self.ignored_file_size = ignored_file_size
        self.ignored_folder_files = ignored_folder_files
        self.max_file_size = max_file_size
        self.max_files = max_files
        self.accelerated = accelerated
        self.store = store
        """Device and inode of the store's folder: it may lie in the workspace, under any path."""
        self.own = frozenset(own)
        """Folders below the root that are workspaces of this user: their markers are not captured."""
        self.stores = frozenset(stores)
        """Paths and ids of this user's unreachable stores: a marker that names one of them may be this user's."""
        self.text = repr(
            (
                RULES_VERSION,
                list(exclude),
                list(exclude_ignored),
                list(exclude_marked),
                ignored,
                ignored_file_size,
                ignored_folder_files,
                max_file_size,
                max_files,
                store,
                sorted(self.own),
            )
        ).encode("utf-8", "surrogateescape")

    def without_large_ignored(self) -> Capture:
        """Return the same rules without large ignored folders, for a tree that has too many files with them."""
        rules = Capture()
        for name in self.__slots__:
            setattr(rules, name, getattr(self, name))
        rules.leaves_large = True
        return rules


def _lines(patterns: Sequence[str]) -> bytes:
    return "\n".join(patterns).encode("utf-8", "surrogateescape")
