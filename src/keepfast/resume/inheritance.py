"""What a session takes over from the checkpoint that it was resumed from, until its own conversation names newer things."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from keepfast.resume.notes import FileNote, Notes
from keepfast.secrets.cuts import head

LONGEST, LONGEST_PATH = 300, 400
MOST_STEPS, MOST_DECISIONS, MOST_BLOCKERS, MOST_FILES = 8, 8, 5, 40
TEST_FAILS, WAITING = "The last test fails: ", "Waiting for an answer: "
"""How blockers begin that end by themselves: with the next test, and with the next prompt."""


@dataclass(frozen=True, slots=True)
class Inheritance:
    """The work of a checkpoint, short enough to be kept with every checkpoint that goes on with it."""

    checkpoint: str = ""  # its id
    task: str = ""
    next_steps: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # changed ones, the newest first

    def to_json(self) -> dict[str, Any]:
        return {
            "checkpoint": self.checkpoint,
            "task": self.task,
            "next_steps": list(self.next_steps),
            "decisions": list(self.decisions),
            "blockers": list(self.blockers),
            "files": list(self.files),
        }

    @classmethod
    def from_json(cls, value: object) -> Inheritance | None:
        """Read back what was kept; None if there is nothing, or it is not of our form."""
        if not isinstance(value, dict):
            return None
        found = cls(
            _line(value.get("checkpoint")),
            _line(value.get("task")),
            _lines(value.get("next_steps"), MOST_STEPS),
            _lines(value.get("decisions"), MOST_DECISIONS),
            _lines(value.get("blockers"), MOST_BLOCKERS),
            _paths(value.get("files")),
        )
        return found if found != cls(found.checkpoint) else None


def of(notes: Notes, checkpoint: str) -> Inheritance | None:
    """What these notes leave to the next session; None if that is nothing."""
    return Inheritance.from_json(
        {
            "checkpoint": checkpoint,
            "task": notes.current_task,
            "next_steps": notes.next_steps,
            "decisions": notes.decisions,
            "blockers": notes.blockers,
            "files": [file.path for file in notes.files if file.edited],
        }
    )


def join(notes: Notes, before: Inheritance | None) -> Notes:
    """The notes with what was taken over. The task is not here: prompts decide whether it is still the same."""
    if before is None:
        return notes
    if not notes.next_steps and not notes.tasks:
        notes.next_steps = list(before.next_steps)
    notes.decisions = list(dict.fromkeys([*notes.decisions, *before.decisions]))[:MOST_DECISIONS]
    if not notes.blockers:
        is_tested = notes.last_run is not None and notes.last_run.is_known
        ended = (TEST_FAILS if is_tested else "", WAITING if notes.asked else "")
        over = tuple([beginning for beginning in ended if beginning])
        notes.blockers = [one for one in before.blockers if not one.startswith(over)]
    return with_files(notes, before)


def with_files(notes: Notes, before: Inheritance | None) -> Notes:
    """The notes with the files that were changed before the session, behind its own."""
    known = {file.path for file in notes.files}
    inherited = before.files if before is not None else ()
    notes.files += [FileNote(path, True, 0, is_inherited=True) for path in inherited if path not in known]
    return notes


def _line(value: object) -> str:
    line = " ".join(value.split()) if isinstance(value, str) else ""
    return line if len(line) <= LONGEST else head(line, LONGEST - 1).rstrip() + "…"


def _lines(value: object, most: int) -> tuple[str, ...]:
    found = [_line(one) for one in value] if isinstance(value, list) else []
    return tuple([line for line in found if line][:most])


def _paths(value: object) -> tuple[str, ...]:
    found = [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
    return tuple([path for path in found if 0 < len(path) <= LONGEST_PATH][:MOST_FILES])
