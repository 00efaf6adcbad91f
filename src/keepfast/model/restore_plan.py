"""Plan a restore: the steps that lead from one state of the tree to another. Touches nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from operator import attrgetter, eq

from keepfast.model.entry import CAPTURED, EXCLUDED, FILE, FOLDER, LEFT_OUT, LINK, UNREADABLE, Entry, checked_path
from keepfast.model.errors import Damaged
from keepfast.model.frozen import FORMER_MARKER

WRITE, MODE, DELETE = "write", "mode", "delete"
UNREAD = "it, or its folder, cannot be read now"
OUTSIDE = "is not saved by keepfast"
NOT_READ = "is excluded now, so its contents stay as they are"
"""Reason for a folder that the target has."""
BELOW_NOT_READ = "is in a folder that is excluded now"
KEPT_AS_IT_IS = "is kept as it is"
GIT, OWN_FOLDERS = b".git", (b".keepfast", FORMER_MARKER)
OWN_NAMES = frozenset((GIT, *OWN_FOLDERS))
RELATIVE_PARTS = frozenset((b"", b".", b".."))
RELATIVE_PARTS_IN_PATHS = tuple(b"/" + part + b"/" for part in sorted(RELATIVE_PARTS))
GIT_POINTER_KINDS = FILE + LINK + LEFT_OUT
"""Kinds allowed for a `.git`: a file or link that points to a repository, or an excluded folder."""
KINDS = frozenset(CAPTURED + LEFT_OUT)
MAX_NAME, DIGEST_SIZE = 255, 32
PATH = attrgetter("path")


class Step:
    """One path and what becomes of it: `old` is what exists now (None: nothing), `new` what the target has."""

    __slots__ = ("action", "new", "old", "path")

    def __init__(self, action: str, old: Entry | None, new: Entry | None) -> None:
        self.action, self.old, self.new = action, old, new
        entry = new if new is not None else old
        assert entry is not None
        self.path = entry.path


class Plan:
    """All steps, sorted by path, and the paths that stay untouched with the reason."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.untouched: list[tuple[bytes, str]] = []

    def without(self, paths: Collection[bytes], why: str = KEPT_AS_IT_IS) -> Plan:
        """Return the same plan, leaving these paths as they are."""
        plan = Plan()
        plan.steps = [step for step in self.steps if step.path not in paths]
        plan.untouched = self.untouched + [(step.path, why) for step in self.steps if step.path in paths]
        return plan


def plan(
    pairs: Sequence[tuple[Entry | None, Entry | None]],
    kind_then: Callable[[bytes], str],
    kind_now: Callable[[bytes], str],
) -> Plan:
    """Decide what to do for every differing path, given as pairs of (row now, row in the target).

    `kind_then(path)` and `kind_now(path)` return the kind of a path in the target and in the present state, empty if it
    does not exist. Below a folder that one of them did not read, a missing row means nothing. Raises `Damaged` for a row
    that no scan could have made: then no step may be carried out.
    """
    then, now = FolderKinds(kind_then), FolderKinds(kind_now)
    result, folder = Plan(), b""
    above_then = above_now = ""
    refuse_crafted([new for _, new in pairs if new is not None])
    write = result.steps.append
    for old, new in pairs:
        path = (new if new is not None else old).path  # type: ignore[union-attr]
        if (here := path.rpartition(b"/")[0]) != folder:
            folder, above_then, above_now = here, then.above(here), now.above(here)
        if old is None and not above_then and not above_now and new is not None and new.kind in CAPTURED:
            write(Step(WRITE, None, new))  # by far the most frequent case
            continue
        if new is not None and above_then and _any(above_then, FILE + LINK):
            raise _crafted("the path goes through a file or a link", new.path)
        reason = _reason_to_leave(old, new, above_then, above_now)
        if reason:
            result.untouched.append((path, reason))
        else:
            write(Step(_action(old, new), old, new))
    result.steps.sort(key=PATH)
    paths = list(map(PATH, result.steps))
    if any(map(eq, paths, islice(paths, 1, None))):
        raise _crafted("duplicate path", next(path for path in paths if paths.count(path) > 1))
    return result


def _reason_to_leave(old: Entry | None, new: Entry | None, above_then: str, above_now: str) -> str:
    """Return why a path stays untouched; empty if it does not. `above_…` are the kinds of the folders above it."""
    if new is not None and new.kind in LEFT_OUT:
        return "was excluded from that checkpoint"
    if new is None and _any(above_then, LEFT_OUT):
        return "was in an excluded folder in that checkpoint"
    if UNREADABLE in above_now or (old is not None and _may_be_closed(old, new)):
        return UNREAD
    if EXCLUDED in above_now:
        return BELOW_NOT_READ
    if old is not None and old.kind == EXCLUDED:
        return "is excluded now" if new is None else NOT_READ
    return OUTSIDE if new is None and old is not None and old.kind not in CAPTURED else ""


def _action(old: Entry | None, new: Entry | None) -> str:
    """Return the action for a path that does not stay untouched."""
    if new is None:
        return DELETE
    return MODE if old is not None and old.kind == new.kind and old.content == new.content else WRITE


def _may_be_closed(old: Entry, new: Entry | None) -> bool:
    """Return whether this may be a folder whose contents cannot be read, so that it can be neither replaced nor removed."""
    return old.kind == UNREADABLE and (new is None or new.kind == FOLDER)


class FolderKinds:
    """Looks up the kinds of the folders above a path, each folder once."""

    def __init__(self, kind: Callable[[bytes], str]) -> None:
        self.kind = kind
        self._kinds_by_folder: dict[bytes, str] = {b"": ""}

    def above(self, folder: bytes) -> str:
        """Return all kinds on the way to the folder, including its own, except `FOLDER`."""
        missing = []
        while folder not in self._kinds_by_folder:
            missing.append(folder)
            folder = folder.rpartition(b"/")[0]
        for path in reversed(missing):
            self._kinds_by_folder[path] = self._kinds_by_folder[path.rpartition(b"/")[0]] + self.kind(path).replace(
                FOLDER, ""
            )
        return self._kinds_by_folder[missing[0]] if missing else self._kinds_by_folder[folder]


def _any(met: str, kinds: str) -> bool:
    return any(kind in kinds for kind in met)


def refuse_crafted(entries: Sequence[Entry]) -> None:
    """Raise `Damaged` if one of the rows must never be restored."""
    if not _are_sound(entries):
        for entry in entries:
            _refuse_crafted_row(entry)


def _are_sound(entries: Sequence[Entry]) -> bool:
    """Return whether all of these rows can be restored. A fast check of all at once; if it says no, each row must be checked."""
    if not entries:
        return True
    paths, kinds, modes, _, _, _, _, contents, _ = zip(*entries, strict=True)
    if not _are_sound_paths(paths, entries):
        return False
    if not KINDS.issuperset(kinds) or any(mode & ~0o7777 for mode in set(modes)):
        return False
    if not {len(content) for kind, content in zip(kinds, contents, strict=True) if kind == FILE} <= {DIGEST_SIZE}:
        return False
    targets = [content for kind, content in zip(kinds, contents, strict=True) if kind == LINK]
    return all(targets) and not any(b"\0" in target for target in targets)


def _are_sound_paths(paths: Sequence[bytes], entries: Sequence[Entry]) -> bool:
    text = b"/" + b"/\0/".join(paths) + b"/"
    if any(text.startswith(b"/%b/" % folder) or b"\0/%b/" % folder in text for folder in OWN_FOLDERS):
        return False
    if any(part in text for part in RELATIVE_PARTS_IN_PATHS) or text.count(b"\0") != len(entries) - 1:
        return False
    if b"/.git/" in text and any(GIT in entry.path and _is_crafted_git(entry) for entry in entries):
        return False
    return max(map(len, paths)) <= MAX_NAME or not _has_long_name(paths)


def _has_long_name(paths: Sequence[bytes]) -> bool:
    """Return whether one of the names in these paths is too long. Remembers at most one folder per path, to limit memory."""
    checked_folders = {b""}
    for path in paths:
        folder, _, name = path.rpartition(b"/")
        if len(name) > MAX_NAME:
            return True
        if folder not in checked_folders:
            checked_folders.add(folder)
            if len(max(folder.split(b"/"), key=len)) > MAX_NAME:
                return True
    return False


def _refuse_crafted_row(entry: Entry) -> None:
    path = entry.path
    parts = path.split(b"/")
    is_invalid = parts[0] in OWN_FOLDERS or not RELATIVE_PARTS.isdisjoint(parts)
    if is_invalid or b"\0" in path or len(max(parts, key=len)) > MAX_NAME or _is_crafted_git(entry):
        _refuse_path(path, parts)
    if entry.kind not in KINDS:
        raise _crafted("unknown kind", entry.path)
    if entry.mode & ~0o7777:
        raise _crafted("invalid mode", entry.path)
    if entry.kind == LINK and (not entry.content or b"\0" in entry.content):
        raise _crafted("invalid link target", entry.path)
    if entry.kind == FILE and len(entry.content) != DIGEST_SIZE:
        raise _crafted("invalid digest", entry.path)


def _is_crafted_git(entry: Entry) -> bool:
    """Return whether this row lies in a `.git` folder, or creates one."""
    *above, name = entry.path.split(b"/")
    return GIT in above or (name == GIT and entry.kind not in GIT_POINTER_KINDS)


def _refuse_path(path: bytes, parts: list[bytes]) -> None:
    try:
        checked_path(path)
    except ValueError as error:
        raise Damaged(f"Invalid path in checkpoint: {error}.", "Nothing was restored.") from None
    for number, part in enumerate(parts):
        if part == GIT or (part in OWN_FOLDERS and not number):
            raise _crafted(f"{part.decode()} is never saved", path)
        if len(part) > MAX_NAME:
            raise _crafted("name of more than 255 bytes", path)


def _crafted(reason: str, path: bytes) -> Damaged:
    path_text = path.decode("utf-8", "backslashreplace")[:200]
    return Damaged(f"Invalid path in checkpoint: {path_text!r} ({reason}).", "Nothing was restored.")


def parents(paths: Iterable[bytes]) -> set[bytes]:
    """Return every folder above these paths, without the root."""
    folders: set[bytes] = set()
    for path in paths:
        while b"/" in path:
            path = path.rpartition(b"/")[0]
            if path in folders:
                break
            folders.add(path)
    return folders


__all__ = ["DELETE", "FILE", "FOLDER", "LINK", "MODE", "WRITE", "Plan", "Step", "parents", "plan", "refuse_crafted"]
