"""Decide what to do with a path: capture it, leave it out, or ignore it entirely. Shared by walk and re-check."""

from __future__ import annotations

from collections.abc import Collection
from errno import EMFILE, ENFILE, ENOMEM
from os import O_DIRECTORY, O_NONBLOCK, O_RDONLY, close, fstat, read, scandir, stat_result
from stat import S_IFLNK, S_IFMT, S_IFREG
from sys import getfilesystemencodeerrors, getfilesystemencoding

from keepfast.fsutil.descriptors import lstat_below, open_below
from keepfast.model.artefacts import evidence_folder, needs_evidence, rebuild_command
from keepfast.model.entry import BY_GIT, BY_IGNORE, BY_NAME, IGNORED, OVERSIZE, SPECIAL
from keepfast.model.frozen import SUPERVISED_IGNORE
from keepfast.workspace.capture import CACHE_TAG, GIT, NEVER_ENTERED, OWN_FOLDERS, SUPERVISOR_FOLDERS, Capture
from keepfast.workspace.ignore import Rules, parse, verdict
from keepfast.workspace.marker import MAX_MARKER_SIZE, parse_marker

Stack = tuple[tuple[bytes, Rules], ...]
Listing = list[tuple[bytes, bool, stat_result | None]]

ENCODING, ERRORS = getfilesystemencoding(), getfilesystemencodeerrors()
RULE_FILE = b".gitignore"
MAX_RULE_FILE = 1 << 20
SHORTAGE = (EMFILE, ENFILE, ENOMEM)
"""Errors of this process, not of the file: a save that continued in spite of them would be incomplete."""


class Chooser:
    """The rules of capture, applied below one root."""

    def __init__(self, root: int, capture: Capture) -> None:
        self.root, self.capture = root, capture
        self.exclude, self.exclude_ignored = parse(capture.exclude), parse(capture.exclude_ignored)
        self._excluded: dict[bytes, bool] = {}

    def never(self, prefix: bytes, name: bytes, names: Collection[bytes], is_folder: bool) -> int:
        """Return 0 for an ordinary name, `BY_GIT` for git's own folder, which is listed as left out, and -1 for an ignored one.

        Recognizes every spelling that the file system treats as these names.
        """
        plain = name if name in NEVER_ENTERED else name.lower()
        if plain not in NEVER_ENTERED:
            return 0
        # Where `.GIT` is a folder of its own, `.git` is either listed as well or does not exist.
        if name != plain and (plain in names or not self._exists(prefix + plain)):
            return 0
        if plain in OWN_FOLDERS:
            return self._own(prefix, is_folder)
        if is_folder:
            return BY_GIT
        return 0 if name == GIT else -1

    def _own(self, prefix: bytes, is_folder: bool) -> int:
        """Do what `never` does for a `.keepfast`: ours in the root, and below it in a workspace of this user."""
        if not prefix:
            return -1
        return BY_NAME if is_folder and self._is_own(prefix[:-1]) else 0

    def _is_own(self, folder: bytes) -> bool:
        if folder in self.capture.own:
            return True
        if not self.capture.stores:
            return False
        markers = [
            read_small(self.root, b"%b/%b/workspace.json" % (folder, own), MAX_MARKER_SIZE) for own in OWN_FOLDERS
        ]
        return any(
            found_marker is not None and found_marker[1:] in self.capture.stores
            for found_marker in map(parse_marker, markers)
        )

    def excludes(self, path: bytes) -> bool:
        """Return whether its own name or that of a folder above excludes a path. A last `.git` may be a file: it does not count."""
        parts = path.split(b"/")
        if parts[0] in OWN_FOLDERS or GIT in parts[:-1]:
            return True
        if not NEVER_ENTERED.isdisjoint(parts) and any(
            part in OWN_FOLDERS and self._is_own(b"/".join(parts[:count])) for count, part in enumerate(parts)
        ):
            return True
        return self._lies_in_excluded(path)

    def _lies_in_excluded(self, path: bytes) -> bool:
        """Return whether a folder above this path is excluded. Remembers every folder: the paths of a deep tree share them."""
        is_excluded, unknown_folders = self._excluded, []
        folder = path.rpartition(b"/")[0]
        while folder and folder not in is_excluded:
            unknown_folders.append(folder)
            folder = folder.rpartition(b"/")[0]
        excluded = is_excluded[folder] if folder else False
        for folder in reversed(unknown_folders):
            excluded = is_excluded[folder] = excluded or bool(self.exclude.match(folder, True))
        return excluded

    def file(self, path: bytes, seen: stat_result, stack: Stack, ignored: bool) -> str | None:
        """Return None if the file is captured, otherwise the kind of its row."""
        capture = self.capture
        kind = S_IFMT(seen.st_mode)
        if kind not in (S_IFREG, S_IFLNK):
            return SPECIAL
        if self.rules_matter(seen) and (ignored or verdict(path, False, stack)):
            return IGNORED
        return OVERSIZE if kind == S_IFREG and seen.st_size > capture.max_file_size else None

    def rules_matter(self, seen: stat_result) -> bool:
        """Return whether this file would be excluded if a rule ignores it."""
        mode = self.capture.ignored
        return mode == "none" or (mode == "small" and seen.st_size > self.capture.ignored_file_size)

    def folder(self, path: bytes, stack: Stack, ignored: bool) -> tuple[int, bool]:
        """Return (flag that says why it is not entered, or 0; whether it is ignored)."""
        if self.exclude.match(path, True) or (
            path in SUPERVISOR_FOLDERS and self._starts(path + b"/" + RULE_FILE, SUPERVISED_IGNORE)
        ):
            return BY_NAME, False
        if not self.capture.reads_rules:
            return 0, False
        if not ignored and not verdict(path, True, stack):
            return 0, False
        if self.is_generated(path):
            return BY_IGNORE, True
        if not ignored and (self.capture.ignored == "none" or (self.capture.leaves_large and self.is_large(path))):
            return BY_IGNORE, True
        return 0, True

    def is_generated(self, path: bytes) -> bool:
        """Return whether a tool can generate this ignored folder again. For ambiguous names, the tool's own file must exist."""
        if not self.exclude_ignored.match(path, True):
            return False
        return not needs_evidence(path) or self.command_to_rebuild(path) is not None

    def command_to_rebuild(self, path: bytes) -> str | None:
        """Return the command that generates it again (see `rebuild_command`), by the files that are next to it now."""
        return rebuild_command(path, self.sibling_names(evidence_folder(path)))

    def sibling_names(self, path: bytes) -> set[bytes]:
        """Return the names in the folder that contains this path."""
        try:
            fd = open_below(self.root, path.rpartition(b"/")[0], O_RDONLY | O_DIRECTORY)
        except OSError:
            return set()
        try:
            with scandir(fd) as entries:
                return {entry.name.encode(ENCODING, ERRORS) for entry in entries}
        except OSError:
            return set()
        finally:
            close(fd)

    def is_large(self, path: bytes) -> bool:
        """Return whether this ignored folder has more files than `capture.ignored_folder_files`. Excluded folders do not count."""
        limit = self.capture.ignored_folder_files
        total, todo = 0, [path]
        while todo:
            folder = todo.pop()
            try:
                fd = open_below(self.root, folder, O_RDONLY | O_DIRECTORY)
            except OSError:
                continue
            try:
                with scandir(fd) as entries:
                    for entry in entries:
                        name = entry.name.encode(ENCODING, ERRORS)
                        below = folder + b"/" + name
                        if not entry.is_dir(follow_symlinks=False):
                            total += 1
                            if total > limit:
                                return True
                        elif name not in NEVER_ENTERED and not self.exclude.match(below, True):
                            todo.append(below)
            except OSError:
                pass  # what cannot be listed cannot be captured either
            finally:
                close(fd)
        return False

    def is_marked(self, path: bytes, names: Collection[bytes]) -> bool:
        """Return whether the folder contains a marker file of generated folders, such as CACHEDIR.TAG."""
        for name in self.capture.markers.intersection(names):
            if name != b"CACHEDIR.TAG" or self._starts(path + b"/" + name, CACHE_TAG):
                return True
        return False

    def hides_everything(self, path: bytes, entries: Listing, stack: Stack) -> bool:
        """Return whether the rules ignore nearly everything in this folder. If so, they are not applied."""
        if not stack:
            return False
        prefix = path + b"/" if path else b""
        total = visible = 0
        for name, is_folder, _ in entries:
            below = prefix + name
            if name in NEVER_ENTERED or name == RULE_FILE or self.exclude.match(below, is_folder):
                continue
            if not verdict(below, is_folder, stack):
                visible += 1
            elif is_folder and self.exclude_ignored.match(below, True):
                continue
            total += 1
        return visible * 10 < total

    def _starts(self, path: bytes, text: bytes) -> bool:
        return read_small(self.root, path, len(text)) == text

    def _exists(self, path: bytes) -> bool:
        try:
            lstat_below(self.root, path)
        except OSError:
            return False
        return True


class Rulebook:
    """The ignore rules in force anywhere below the root."""

    def __init__(self, root: int, capture: Capture) -> None:
        self.root, self.capture = root, capture
        self.repositories: set[bytes] = set()
        """Folders below the root that contain a `.git`."""
        self.disregarded: set[bytes] = set()
        """Repositories whose own rules would hide everything."""
        self._rules_by_folder: dict[bytes, tuple[Stack, bool]] = {}

    def of(self, folder: bytes) -> tuple[Stack, bool]:
        """Return the rules for what lies in `folder`, and whether the folder itself is ignored."""
        if not self.capture.reads_rules:
            return (), False
        # A loop: folders may be nested deeper than Python can recurse.
        missing, at = [], folder
        while at and at not in self._rules_by_folder:
            missing.append(at)
            at = at.rpartition(b"/")[0]
        stack, ignored = self._rules_by_folder.get(at) or (self._enter_known(b"", ()), False)
        self._rules_by_folder[at] = stack, ignored
        for path in reversed(missing):
            ignored = ignored or verdict(path, True, stack)
            stack = self._enter_known(path, stack)
            self._rules_by_folder[path] = stack, ignored
        return stack, ignored

    def _enter_known(self, folder: bytes, stack: Stack) -> Stack:
        return () if folder in self.disregarded else self.enter(folder, stack, folder in self.repositories)

    def enter(self, folder: bytes, stack: Stack, is_repository: bool) -> Stack:
        """Return `stack` with the rules that `folder` adds; in a nested repository they start afresh."""
        if not folder:
            return self._add(self._add((), b"", b".git/info/exclude"), b"", RULE_FILE)
        return self._add(() if is_repository else stack, folder, folder + b"/" + RULE_FILE)

    def _add(self, stack: Stack, folder: bytes, path: bytes) -> Stack:
        rules = parse(read_small(self.root, path, MAX_RULE_FILE))
        return (*stack, (folder, rules)) if rules else stack


def read_small(root: int, path: bytes, most: int) -> bytes:
    """Return the beginning of a regular file; empty if it does not exist or cannot be read."""
    try:
        # O_NONBLOCK: a pipe of that name must not stop us.
        fd = open_below(root, path, O_RDONLY | O_NONBLOCK)
    except OSError as error:
        if error.errno in SHORTAGE:
            raise
        return b""
    try:
        return read(fd, most) if S_IFMT(fstat(fd).st_mode) == S_IFREG else b""
    except OSError:
        return b""
    finally:
        close(fd)
