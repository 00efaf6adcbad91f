"""Notes by a model: what it may answer, and how that joins the notes of our own rules. Nothing here needs a model."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from keepfast.resume.notes import Notes
from keepfast.resume.quotation import clean
from keepfast.secrets.cuts import head

MAX_ITEMS, MAX_ITEM_CHARACTERS = 8, 300
MAX_BLOCKERS = 5
LISTS = ("next_steps", "decisions", "blockers")
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "current_task": {"type": "string", "description": "What is being worked on now, in one sentence."},
        "next_steps": {"type": "array", "items": {"type": "string"}, "description": "What remains to do, in order."},
        "decisions": {"type": "array", "items": {"type": "string"}, "description": "Decisions made, with reasons."},
        "blockers": {"type": "array", "items": {"type": "string"}, "description": "What stands in the way now."},
    },
    "required": ["current_task", *LISTS],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Extract:
    """What a model read in a conversation, as of one prompt of it."""

    current_task: str = ""
    next_steps: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()
    by: str = ""  # the model, or "command"
    prompt: str = ""  # `mark` of the last prompt that it was shown

    def to_json(self) -> dict[str, Any]:
        lists = {name: list(getattr(self, name)) for name in LISTS}
        return {"current_task": self.current_task, **lists, "by": self.by, "prompt": self.prompt}

    @classmethod
    def from_json(cls, value: object) -> Extract | None:
        """Read back what was kept; None if it is not of our form."""
        if not isinstance(value, dict):
            return None
        try:
            return checked(value, by=str(value.get("by") or ""), prompt=str(value.get("prompt") or ""))
        except ValueError:
            return None


def checked(answer: object, *, by: str = "", prompt: str = "") -> Extract:
    """The answer as a value: texts of one line without hidden characters, and no more of them than we asked for.

    Raises `ValueError` with what is wrong where it is not of the form of `SCHEMA`; keys that we do not know are passed over.
    """
    if not isinstance(answer, dict):
        raise ValueError("it is no JSON object")
    task = answer.get("current_task", "")
    if not isinstance(task, str):
        raise ValueError("current_task is no text")
    lists: dict[str, tuple[str, ...]] = {}
    for name in LISTS:
        items = answer.get(name, [])
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise ValueError(f"{name} is no list of texts")
        lists[name] = tuple([line for line in map(_line, items[: MAX_ITEMS * 2]) if line][:MAX_ITEMS])
    if not task.strip() and not any(lists.values()):
        raise ValueError("it says nothing")
    return Extract(_line(task), **lists, by=_line(by), prompt=prompt[:64])


def join(notes: Notes, extract: Extract | None) -> Notes:
    """The notes with what a model read: after what the agent itself stated, before what our rules inferred.

    Once there is a newer prompt, only decisions hold: task, steps and blockers are those of the prompt before.
    """
    if extract is None:
        return notes
    stated = "decisions" in notes.declared
    first, then = (notes.decisions, extract.decisions) if stated else (extract.decisions, notes.decisions)
    notes.decisions = list(dict.fromkeys([*first, *then]))[:MAX_ITEMS]
    if extract.prompt == mark(notes.prompts):
        if "current_task" not in notes.declared:
            notes.current_task = extract.current_task or notes.current_task
        if "next_steps" not in notes.declared:
            notes.next_steps = list(extract.next_steps) or notes.next_steps
        # A failing test is a fact, whatever a model says of it.
        notes.blockers = list(dict.fromkeys([*notes.blockers, *extract.blockers]))[:MAX_BLOCKERS]
    notes.read_by = extract.by
    return notes


def mark(prompts: list[str]) -> str:
    """Return a digest of the last prompt, by which a later look sees whether it is still the same."""
    return sha256(prompts[-1].encode("utf-8", "replace")).hexdigest()[:16] if prompts else ""


def _line(text: str) -> str:
    line = " ".join(clean(text[: MAX_ITEM_CHARACTERS * 8]).split())
    return line if len(line) <= MAX_ITEM_CHARACTERS else head(line, MAX_ITEM_CHARACTERS - 1).rstrip() + "…"
