"""What a restore would do: the steps that lead from one state to another, decided without touching anything."""

from __future__ import annotations

from _operator import attrgetter, eq
from itertools import islice

from keepfast.model.entry import CAPTURED, EXCLUDED, FILE, FOLDER, LEFT_OUT, LINK, UNREADABLE, Entry, checked_path
from keepfast.model.errors import Damaged
from keepfast.model.frozen import FORMER_MARKER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

WRITE, MODE, DELETE = "write", "mode", "delete"
UNREAD = "it, or its folder, cannot be read now"
OUTSIDE = "is not saved by keepfast"
NOT_READ = "is excluded now, so its contents stay as they are"
"""Of a folder that the target has."""
BELOW_NOT_READ = "is in a folder that is excluded now"
KEPT = "is kept as it is"
GIT, OWNS = b".git", (b".keepfast", FORMER_MARKER)
OURS = frozenset((GIT, *OWNS))
ODD = frozenset((b"", b".", b".."))
ODD_PARTS = tuple(b"/" + part + b"/" for part in sorted(ODD))
POINTERS = FILE + LINK + LEFT_OUT
"""Kinds that a `.git` may be of: a file or a link that leads to a repository, or a folder that was left out."""
KINDS = frozenset(CAPTURED + LEFT_OUT)
LONGEST_NAME, DIGEST = 255, 32
PATH = attrgetter("path")


class Step:
    """One path and what becomes of it. `old` is what is there (None: nothing), `new` what shall be."""

    __slots__ = ("action", "new", "old", "path")

    def __init__(self, action: str, old: Entry | None, new: Entry | None) -> None:
        self.action, self.old, self.new = action, old, new
        entry = new if new is not None else old
        assert entry is not None
        self.path = entry.path


class Plan:
    """All steps, sorted by path, and what is left alone with the reason."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.untouched: list[tuple[bytes, str]] = []

    def without(self, paths: Collection[bytes], why: str = KEPT) -> Plan:
        """The same plan, leaving these paths as they are."""
        plan = Plan()
        plan.steps = [step for step in self.steps if step.path not in paths]
        plan.untouched = self.untouched + [(step.path, why) for step in self.steps if step.path in paths]
        return plan


def plan(
    pairs: Sequence[tuple[Entry | None, Entry | None]],
    kind_then: Callable[[bytes], str],
    kind_now: Callable[[bytes], str],
) -> Plan:
    """Decide for every differing path, given as (what is there, what shall be).

    `kind_then(path)` and `kind_now(path)` give the kind of a path in the target and in the present state, empty if it is
    not there. Below what one of them did not look at, absence means nothing. Raises `Damaged` for a row that no scan
    could have made: then nothing of the plan may be carried out.
    """
    then, now = Above(kind_then), Above(kind_now)
    result, folder = Plan(), b""
    above_then = above_now = ""
    refuse_crafted([new for _, new in pairs if new is not None])
    write = result.steps.append
    for old, new in pairs:
        path = (new if new is not None else old).path  # type: ignore[union-attr]
        if (here := path.rpartition(b"/")[0]) != folder:
            folder, above_then, above_now = here, then.kinds(here), now.kinds(here)
        if old is None and not above_then and not above_now and new is not None and new.kind in CAPTURED:
            write(Step(WRITE, None, new))  # the plain case, of which there are many
            continue
        if new is not None and above_then and _any(above_then, FILE + LINK):
            raise _crafted("a path that goes through a file or a link", new.path)
        reason = _reason_to_leave(old, new, above_then, above_now)
        if reason:
            result.untouched.append((path, reason))
        else:
            write(Step(_action(old, new), old, new))
    result.steps.sort(key=PATH)
    paths = list(map(PATH, result.steps))
    if any(map(eq, paths, islice(paths, 1, None))):
        raise _crafted("a path twice", next(one for one in paths if paths.count(one) > 1))
    return result


def _reason_to_leave(old: Entry | None, new: Entry | None, above_then: str, above_now: str) -> str:
    """Why nothing is done about a path; empty if something is. The kinds are those of the folders above it."""
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
    """What becomes of a path that is not left alone."""
    if new is None:
        return DELETE
    return MODE if old is not None and old.kind == new.kind and old.content == new.content else WRITE


def _may_be_closed(old: Entry, new: Entry | None) -> bool:
    """Is this perhaps a folder whose contents nobody can see? Then it can neither be replaced nor removed."""
    return old.kind == UNREADABLE and (new is None or new.kind == FOLDER)


class Above:
    """The kinds of the folders above a path, each asked for once."""

    def __init__(self, kind: Callable[[bytes], str]) -> None:
        self.kind = kind
        self._found: dict[bytes, str] = {b"": ""}

    def kinds(self, folder: bytes) -> str:
        """All kinds that occur on the way to the folder, itself included, but that of a folder."""
        missing = []
        while folder not in self._found:
            missing.append(folder)
            folder = folder.rpartition(b"/")[0]
        for path in reversed(missing):
            self._found[path] = self._found[path.rpartition(b"/")[0]] + self.kind(path).replace(FOLDER, "")
        return self._found[missing[0]] if missing else self._found[folder]


def _any(met: str, kinds: str) -> bool:
    return any(kind in kinds for kind in met)


def refuse_crafted(entries: Sequence[Entry]) -> None:
    """Raise `Damaged` if one of the rows must never be written."""
    if not _are_sound(entries):
        for entry in entries:
            _refuse_one(entry)


def _are_sound(entries: Sequence[Entry]) -> bool:
    """Can all of them be written? Asked of many at once, which is right nearly always; in doubt the answer is no."""
    if not entries:
        return True
    paths, kinds, modes, _, _, _, _, contents, _ = zip(*entries, strict=True)
    if not _are_sound_paths(paths, entries):
        return False
    if not KINDS.issuperset(kinds) or any(mode & ~0o7777 for mode in set(modes)):
        return False
    if not {len(content) for kind, content in zip(kinds, contents, strict=True) if kind == FILE} <= {DIGEST}:
        return False
    targets = [content for kind, content in zip(kinds, contents, strict=True) if kind == LINK]
    return all(targets) and not any(b"\0" in target for target in targets)


def _are_sound_paths(paths: Sequence[bytes], entries: Sequence[Entry]) -> bool:
    text = b"/" + b"/\0/".join(paths) + b"/"
    if any(text.startswith(b"/%b/" % own) or b"\0/%b/" % own in text for own in OWNS):
        return False
    if any(odd in text for odd in ODD_PARTS) or text.count(b"\0") != len(entries) - 1:
        return False
    if b"/.git/" in text and any(GIT in entry.path and _odd_git(entry) for entry in entries):
        return False
    return max(map(len, paths)) <= LONGEST_NAME or not _has_long_name(paths)


def _has_long_name(paths: Sequence[bytes]) -> bool:
    """Is one of the names on the way to these paths too long? Of folders, one is kept for each path at most: all folders
    above a long one would be its length times as many."""
    known = {b""}
    for path in paths:
        folder, _, name = path.rpartition(b"/")
        if len(name) > LONGEST_NAME:
            return True
        if folder not in known:
            known.add(folder)
            if len(max(folder.split(b"/"), key=len)) > LONGEST_NAME:
                return True
    return False


def _refuse_one(entry: Entry) -> None:
    path = entry.path
    parts = path.split(b"/")
    odd = parts[0] in OWNS or not ODD.isdisjoint(parts)
    if odd or b"\0" in path or len(max(parts, key=len)) > LONGEST_NAME or _odd_git(entry):
        _refuse_path(path, parts)
    if entry.kind not in KINDS:
        raise _crafted("a row with an unknown kind", entry.path)
    if entry.mode & ~0o7777:
        raise _crafted("an invalid mode", entry.path)
    if entry.kind == LINK and (not entry.content or b"\0" in entry.content):
        raise _crafted("a link with an invalid target", entry.path)
    if entry.kind == FILE and len(entry.content) != DIGEST:
        raise _crafted("a file with an invalid digest", entry.path)


def _odd_git(entry: Entry) -> bool:
    """Does this row lie in git's own folder, or make one?"""
    *above, name = entry.path.split(b"/")
    return GIT in above or (name == GIT and entry.kind not in POINTERS)


def _refuse_path(path: bytes, parts: list[bytes]) -> None:
    try:
        checked_path(path)
    except ValueError as error:
        raise Damaged(f"A checkpoint has an invalid path: {error}.", "Nothing was restored.") from None
    for number, part in enumerate(parts):
        if part == GIT or (part in OWNS and not number):
            raise _crafted(f"a path in {part.decode()}, which is never saved", path)
        if len(part) > LONGEST_NAME:
            raise _crafted("a name of more than 255 bytes", path)


def _crafted(what: str, path: bytes) -> Damaged:
    shown = path.decode("utf-8", "backslashreplace")[:200]
    return Damaged(f"A checkpoint has {what}: {shown!r}.", "Nothing was restored.")


def parents(paths: Iterable[bytes]) -> set[bytes]:
    """Every folder above these paths, without the root."""
    found: set[bytes] = set()
    for path in paths:
        while b"/" in path:
            path = path.rpartition(b"/")[0]
            if path in found:
                break
            found.add(path)
    return found


__all__ = ["DELETE", "FILE", "FOLDER", "LINK", "MODE", "WRITE", "Plan", "Step", "parents", "plan", "refuse_crafted"]
