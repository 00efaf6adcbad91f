"""What a restore would do: the steps that lead from one state to another, decided without touching anything."""

from __future__ import annotations

from holdfast.core.entry import CAPTURED, EXCLUDED, FILE, FOLDER, LEFT_OUT, LINK, UNREADABLE, Entry, checked_path
from holdfast.core.errors import Damaged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

WRITE, MODE, DELETE = "write", "mode", "delete"
UNREAD = "it, or the folder that it lies in, cannot be read now"
OURS = frozenset((b".git", b".holdfast"))


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

    def without(self, paths: Collection[bytes], why: str = "kept as it is") -> Plan:
        """The same plan, leaving these paths as they are."""
        plan = Plan()
        plan.steps = [step for step in self.steps if step.path not in paths]
        plan.untouched = self.untouched + [(step.path, why) for step in self.steps if step.path in paths]
        return plan


def plan(
    pairs: Iterable[tuple[Entry | None, Entry | None]],
    kind_then: Callable[[bytes], str],
    kind_now: Callable[[bytes], str],
) -> Plan:
    """Decide for every differing path, given as (what is there, what shall be).

    `kind_then(path)` and `kind_now(path)` give the kind of a path in the target and in the present state, empty if it is
    not there. Below what one of them did not look at, absence means nothing. Raises `Damaged` for a row that no scan
    could have made: then nothing of the plan may be carried out.
    """
    then, now = Above(kind_then), Above(kind_now)
    result = Plan()
    for old, new in pairs:
        if new is not None:
            refuse_crafted(new)
            if then.holds(new.path, FILE + LINK):
                raise _crafted("a path that goes through a file or a link", new.path)
        path = (new if new is not None else old).path  # type: ignore[union-attr]
        if new is not None and new.kind in LEFT_OUT:
            result.untouched.append((path, "was left out of that checkpoint"))
        elif new is None and then.holds(path, LEFT_OUT):
            result.untouched.append((path, "was not looked at in that checkpoint"))
        elif now.holds(path, UNREADABLE) or (old is not None and _may_be_closed(old, new)):
            result.untouched.append((path, UNREAD))
        elif now.holds(path, EXCLUDED):
            result.untouched.append((path, "lies in a folder that is left out now"))
        elif old is not None and old.kind == EXCLUDED:
            result.untouched.append((path, "is left out now"))
        elif new is None:
            if old is not None and old.kind in CAPTURED:
                result.steps.append(Step(DELETE, old, None))
            elif old is not None:
                result.untouched.append((path, "is outside of what is captured"))
        elif old is not None and old.kind == new.kind and old.content == new.content:
            result.steps.append(Step(MODE, old, new))
        else:
            result.steps.append(Step(WRITE, old, new))
    result.steps.sort(key=lambda step: step.path)
    for one, other in zip(result.steps, result.steps[1:], strict=False):
        if one.path == other.path:
            raise _crafted("a path twice", one.path)
    return result


def _may_be_closed(old: Entry, new: Entry | None) -> bool:
    """Is this perhaps a folder whose contents nobody can see? Then it can neither be replaced nor removed."""
    return old.kind == UNREADABLE and (new is None or new.kind == FOLDER)


class Above:
    """The kinds of the folders above a path, each asked for once."""

    def __init__(self, kind: Callable[[bytes], str]) -> None:
        self.kind = kind
        self._found: dict[bytes, str] = {b"": ""}
        """For each folder asked about: all kinds that occur on the way to it, itself included."""

    def holds(self, path: bytes, kinds: str) -> bool:
        """Is anything above the path of one of these kinds?"""
        met = self._met(path.rpartition(b"/")[0])
        return any(kind in kinds for kind in met)

    def _met(self, folder: bytes) -> str:
        missing = []
        while folder not in self._found:
            missing.append(folder)
            folder = folder.rpartition(b"/")[0]
        for path in reversed(missing):
            self._found[path] = self._found[path.rpartition(b"/")[0]] + self.kind(path).replace(FOLDER, "")
        return self._found[missing[0]] if missing else self._found[folder]


def refuse_crafted(entry: Entry) -> None:
    """Raise `Damaged` for a row that must never be written."""
    try:
        checked_path(entry.path)
    except ValueError as error:
        raise Damaged(f"A checkpoint holds a path that cannot be right: {error}.", "Nothing was restored.") from None
    for part in entry.path.split(b"/"):
        if part in OURS:
            raise _crafted(f"a path in {part.decode()}, which is never captured", entry.path)
        if len(part) > 255:
            raise _crafted("a name of more than 255 bytes", entry.path)
    if len(entry.kind) != 1 or entry.kind not in CAPTURED + LEFT_OUT:
        raise _crafted("a row of an unknown kind", entry.path)
    if entry.mode & ~0o7777:
        raise _crafted("a mode that is none", entry.path)
    if entry.kind == LINK and (not entry.content or b"\0" in entry.content):
        raise _crafted("a link without a proper target", entry.path)
    if entry.kind == FILE and len(entry.content) != 32:
        raise _crafted("a file without a proper digest", entry.path)


def _crafted(what: str, path: bytes) -> Damaged:
    shown = path.decode("utf-8", "backslashreplace")[:200]
    return Damaged(f"A checkpoint holds {what}: {shown!r}.", "Nothing was restored.")


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
