"""What becomes of a name: captured, left out, or not even looked at. Walk and re-check both ask here, and so decide alike."""

from __future__ import annotations

from _stat import S_IFLNK, S_IFMT, S_IFREG
from errno import EMFILE, ENFILE, ENOMEM
from posix import O_DIRECTORY, O_NONBLOCK, O_RDONLY, close, fstat, read, scandir, stat_result
from sys import getfilesystemencodeerrors, getfilesystemencoding

from keepfast.fsutil.descriptors import lstat_below, open_below
from keepfast.model.artefacts import evidence_folder, needs_evidence, rebuild_command
from keepfast.model.entry import BY_GIT, BY_IGNORE, BY_NAME, IGNORED, OVERSIZE, SPECIAL
from keepfast.model.frozen import SUPERVISED_IGNORE
from keepfast.workspace.capture import CACHE_TAG, GIT, NEVER, OWNS, SUPERVISED, Capture
from keepfast.workspace.ignore import parse, verdict
from keepfast.workspace.marker import MOST_MARKER, said_by

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from keepfast.workspace.ignore import Rules

    Stack = tuple[tuple[bytes, Rules], ...]
    Listing = list[tuple[bytes, bool, stat_result | None]]

ENCODING, ERRORS = getfilesystemencoding(), getfilesystemencodeerrors()
RULE_FILE = b".gitignore"
MOST_RULE_BYTES = 1 << 20
SHORTAGE = (EMFILE, ENFILE, ENOMEM)
"""Errors that speak of this process and not of the file: a save made in spite of them would be full of holes."""


class Chooser:
    """The rules of capture, applied below one root."""

    def __init__(self, root: int, capture: Capture) -> None:
        self.root, self.capture = root, capture
        self.exclude, self.exclude_ignored = parse(capture.exclude), parse(capture.exclude_ignored)
        self._excluded: dict[bytes, bool] = {}

    def never(self, prefix: bytes, name: bytes, names: Collection[bytes], is_folder: bool) -> int:
        """Return 0 for an ordinary name, `BY_GIT` for git's own folder, which is named, and -1 for what is passed over.

        That holds under whatever spelling the file system takes for those names.
        """
        plain = name if name in NEVER else name.lower()
        if plain not in NEVER:
            return 0
        # Where `.GIT` is a folder of its own, `.git` is either listed as well or does not exist.
        if name != plain and (plain in names or not self._exists(prefix + plain)):
            return 0
        if plain in OWNS:
            return self._own(prefix, is_folder)
        if is_folder:
            return BY_GIT
        return 0 if name == GIT else -1

    def _own(self, prefix: bytes, is_folder: bool) -> int:
        """The same for a `.keepfast`: in the root it is ours, and below it where a workspace of this user is."""
        if not prefix:
            return -1
        return BY_NAME if is_folder and self._is_own(prefix[:-1]) else 0

    def _is_own(self, folder: bytes) -> bool:
        if folder in self.capture.own:
            return True
        if not self.capture.stores:
            return False
        markers = [read_small(self.root, b"%b/%b/workspace.json" % (folder, own), MOST_MARKER) for own in OWNS]
        return any(said is not None and said[1:] in self.capture.stores for said in map(said_by, markers))

    def excludes(self, path: bytes) -> bool:
        """Is this path, or a folder above it, never looked at by its name? Whether `.git` is a folder must be seen."""
        parts = path.split(b"/")
        if parts[0] in OWNS or GIT in parts[:-1]:
            return True
        if not NEVER.isdisjoint(parts) and any(
            part in OWNS and self._is_own(b"/".join(parts[:count])) for count, part in enumerate(parts)
        ):
            return True
        return self._lies_in_excluded(path)

    def _lies_in_excluded(self, path: bytes) -> bool:
        """Is a folder above this path excluded? Each folder is asked for once: of a deep tree, every path names all above it."""
        known, asked = self._excluded, []
        folder = path.rpartition(b"/")[0]
        while folder and folder not in known:
            asked.append(folder)
            folder = folder.rpartition(b"/")[0]
        said = known[folder] if folder else False
        for folder in reversed(asked):
            said = known[folder] = said or bool(self.exclude.match(folder, True))
        return said

    def file(self, path: bytes, seen: stat_result, stack: Stack, ignored: bool) -> str | None:
        """Return None if the file is captured, else the kind under which it is left out."""
        capture = self.capture
        kind = S_IFMT(seen.st_mode)
        if kind not in (S_IFREG, S_IFLNK):
            return SPECIAL
        if self.rules_matter(seen) and (ignored or verdict(path, False, stack)):
            return IGNORED
        return OVERSIZE if kind == S_IFREG and seen.st_size > capture.max_file_size else None

    def rules_matter(self, seen: stat_result) -> bool:
        """Would this file be left out if a rule ignores it?"""
        mode = self.capture.ignored
        return mode == "none" or (mode == "small" and seen.st_size > self.capture.ignored_file_size)

    def folder(self, path: bytes, stack: Stack, ignored: bool) -> tuple[int, bool]:
        """Return (why it is not entered, 0 if it is; whether it is ignored)."""
        if self.exclude.match(path, True) or (
            path in SUPERVISED and self._starts(path + b"/" + RULE_FILE, SUPERVISED_IGNORE)
        ):
            return BY_NAME, False
        if not self.capture.reads_rules:
            return 0, False
        if not ignored and not verdict(path, True, stack):
            return 0, False
        if self.is_made_again(path):
            return BY_IGNORE, True
        if not ignored and (self.capture.ignored == "none" or (self.capture.leaves_large and self.is_large(path))):
            return BY_IGNORE, True
        return 0, True

    def is_made_again(self, path: bytes) -> bool:
        """Can a tool make this ignored folder again? Of names that may mean anything, the tool's own file must be there."""
        if not self.exclude_ignored.match(path, True):
            return False
        return not needs_evidence(path) or self.remade_by(path) is not None

    def remade_by(self, path: bytes) -> str | None:
        """The command that makes it again, as `rebuild_command` has it, by what lies beside it now."""
        return rebuild_command(path, self.beside(evidence_folder(path)))

    def beside(self, path: bytes) -> set[bytes]:
        """The names in the folder in which this path lies."""
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
        """Are there more files below this ignored folder than we keep? Excluded folders do not count."""
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
                        elif name not in NEVER and not self.exclude.match(below, True):
                            todo.append(below)
            except OSError:
                pass  # what cannot be listed cannot be captured either
            finally:
                close(fd)
        return False

    def is_marked(self, path: bytes, names: Collection[bytes]) -> bool:
        """Does the folder carry a file that says: this can be made again?"""
        for name in self.capture.markers.intersection(names):
            if name != b"CACHEDIR.TAG" or self._starts(path + b"/" + name, CACHE_TAG):
                return True
        return False

    def hides_everything(self, path: bytes, entries: Listing, stack: Stack) -> bool:
        """Do the rules ignore nearly all that lies in this folder? A backup of nothing helps nobody."""
        if not stack:
            return False
        prefix = path + b"/" if path else b""
        total = kept = 0
        for name, is_folder, _ in entries:
            below = prefix + name
            if name in NEVER or name == RULE_FILE or self.exclude.match(below, is_folder):
                continue
            if not verdict(below, is_folder, stack):
                kept += 1
            elif is_folder and self.exclude_ignored.match(below, True):
                continue
            total += 1
        return kept * 10 < total

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
        """Folders below the root that hold a `.git`."""
        self.disregarded: set[bytes] = set()
        """Repositories whose own rules would hide everything."""
        self._found: dict[bytes, tuple[Stack, bool]] = {}

    def of(self, folder: bytes) -> tuple[Stack, bool]:
        """Return the rules for what lies in `folder`, and whether the folder itself is ignored."""
        if not self.capture.reads_rules:
            return (), False
        # A loop: folders may be nested deeper than Python can recurse.
        missing, at = [], folder
        while at and at not in self._found:
            missing.append(at)
            at = at.rpartition(b"/")[0]
        stack, ignored = self._found.get(at) or (self._enter_known(b"", ()), False)
        self._found[at] = stack, ignored
        for path in reversed(missing):
            ignored = ignored or verdict(path, True, stack)
            stack = self._enter_known(path, stack)
            self._found[path] = stack, ignored
        return stack, ignored

    def _enter_known(self, folder: bytes, stack: Stack) -> Stack:
        return () if folder in self.disregarded else self.enter(folder, stack, folder in self.repositories)

    def enter(self, folder: bytes, stack: Stack, is_repository: bool) -> Stack:
        """Return `stack` with the rules that `folder` adds; a nested repository begins anew."""
        if not folder:
            return self._add(self._add((), b"", b".git/info/exclude"), b"", RULE_FILE)
        return self._add(() if is_repository else stack, folder, folder + b"/" + RULE_FILE)

    def _add(self, stack: Stack, folder: bytes, path: bytes) -> Stack:
        rules = parse(read_small(self.root, path, MOST_RULE_BYTES))
        return (*stack, (folder, rules)) if rules else stack


def read_small(root: int, path: bytes, most: int) -> bytes:
    """Return the beginning of a regular file, nothing if there is none or it cannot be read."""
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
