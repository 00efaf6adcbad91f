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
        "blockers": {"type": "array", "items": {"type": "string"}, "description": "What blocks the work now."},
    },
    "required": ["current_task", *LISTS],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Extract:
    """What a model extracted from a conversation up to one of its prompts."""

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
        """Return a stored extract; None if it does not match the schema."""
        if not isinstance(value, dict):
            return None
        try:
            return checked(value, by=str(value.get("by") or ""), prompt=str(value.get("prompt") or ""))
        except ValueError:
            return None


def checked(answer: object, *, by: str = "", prompt: str = "") -> Extract:
    """Return the answer as an `Extract`: single lines without hidden characters, at most as many as requested.

    Raises `ValueError` with a reason if the answer does not match `SCHEMA`; unknown keys are ignored.
    """
    if not isinstance(answer, dict):
        raise ValueError("the answer is not a JSON object")
    task = answer.get("current_task", "")
    if not isinstance(task, str):
        raise ValueError("current_task is not a string")
    lists: dict[str, tuple[str, ...]] = {}
    for name in LISTS:
        items = answer.get(name, [])
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise ValueError(f"{name} is not a list of strings")
        lists[name] = tuple([line for line in map(_line, items[: MAX_ITEMS * 2]) if line][:MAX_ITEMS])
    if not task.strip() and not any(lists.values()):
        raise ValueError("the answer is empty")
    return Extract(_line(task), **lists, by=_line(by), prompt=prompt[:64])


def join(notes: Notes, extract: Extract | None) -> Notes:
    """Return the notes with the extract: after what the agent stated, before what the rules inferred.

    If there is a newer prompt, only decisions are used: task, steps and blockers belong to the earlier prompt.
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
    """Return a digest of the last prompt, to detect later whether it is still the last one."""
    return sha256(prompts[-1].encode("utf-8", "replace")).hexdigest()[:16] if prompts else ""


def _line(text: str) -> str:
    line = " ".join(clean(text[: MAX_ITEM_CHARACTERS * 8]).split())
    return line if len(line) <= MAX_ITEM_CHARACTERS else head(line, MAX_ITEM_CHARACTERS - 1).rstrip() + "…"
