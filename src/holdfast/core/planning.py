"""What a restore would do: the steps that lead from one state to another, decided without touching anything."""

from __future__ import annotations

from holdfast.core.entry import CAPTURED, FILE, FOLDER, LEFT_OUT, LINK, Entry, checked_path
from holdfast.core.errors import Damaged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

WRITE, MODE, DELETE = "write", "mode", "delete"
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

    def without(self, paths: set[bytes]) -> Plan:
        """The same plan, leaving these paths as they are."""
        plan = Plan()
        plan.steps = [step for step in self.steps if step.path not in paths]
        plan.untouched = self.untouched + [(step.path, "kept as it is") for step in self.steps if step.path in paths]
        return plan


def plan(
    pairs: Iterable[tuple[Entry | None, Entry | None]],
    left_out_then: Callable[[bytes], bool],
    left_out_now: Callable[[bytes], bool],
) -> Plan:
    """Decide for every differing path, given as (what is there, what shall be).

    `left_out_then(path)` says that the target did not look at this path or at a folder above it, so that its absence there
    means nothing; `left_out_now(path)` that the present state does not look at a folder above it. Raises `Damaged` for a
    path that no scan could have found: then nothing of the plan may be carried out.
    """
    result = Plan()
    for old, new in pairs:
        for entry in (old, new):
            if entry is not None:
                refuse_crafted(entry.path)
        path = (new if new is not None else old).path  # type: ignore[union-attr]
        if new is not None and new.kind in LEFT_OUT:
            result.untouched.append((path, "was left out of that checkpoint"))
        elif new is None and left_out_then(path):
            result.untouched.append((path, "was not looked at in that checkpoint"))
        elif left_out_now(path):
            result.untouched.append((path, "lies in a folder that is left out now"))
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
    return result


def refuse_crafted(path: bytes) -> None:
    """Raise `Damaged` for a path that must never be written."""
    try:
        checked_path(path)
    except ValueError as error:
        raise Damaged(f"A checkpoint holds a path that cannot be right: {error}.", "Nothing was restored.") from None
    for part in path.split(b"/"):
        if part.lower() in OURS and (part in OURS):
            raise Damaged(
                f"A checkpoint holds a path in {part.decode()}, which is never captured.", "Nothing was restored."
            )


def is_step_on(step: Step, kinds: str) -> bool:
    return (step.new is not None and step.new.kind in kinds) or (step.old is not None and step.old.kind in kinds)


__all__ = ["DELETE", "FILE", "FOLDER", "LINK", "MODE", "WRITE", "Plan", "Step", "is_step_on", "plan", "refuse_crafted"]
