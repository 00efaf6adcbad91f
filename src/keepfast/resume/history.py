"""A summary of a long conversation's beginning: prompts, plans, tasks, answers and decisions, advanced at every checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, BinaryIO

from keepfast.agents import transcript
from keepfast.agents.transcript import Conversation
from keepfast.agents.turns import ASK, OTHER, PLAN, RUN, TASK, TODO, Call, Turn
from keepfast.resume import extractor as notes
from keepfast.resume import phrases
from keepfast.secrets.cuts import head, tail

PIECE = 1 << 20
MARK = 256
"""Bytes before the offset that identify a transcript: a rewritten file has other ones."""
STILL_OPEN = 40
"""Number of later calls after which a call without a result will not get one."""

# How many turns of a kind are kept, the newest, and how much of a text. Prompts are all kept, those in the middle in short.
FIRST_PROMPTS, LAST_PROMPTS, MAX_PROMPTS = 3, 8, 400
FIRST, LAST, MIDDLE = 4_000, 1_000, 80
MAX_COUNTS = {TODO: 1, PLAN: 1, ASK: 6, TASK: 300, OTHER: 12, RUN: 1, "said": 12}
MAX_CHARACTERS = {PLAN: 4_000, TODO: 12_000, TASK: 400, OTHER: 3_000, ASK: 1_500, RUN: 1_500}
WANTED = {PLAN: ("plan",), TODO: ("todos",), ASK: (), RUN: ("command", "run_in_background")}
SENTENCE = 320


@dataclass(slots=True)
class Earlier:
    """The turns before `offset` that notes are made from, redacted. Empty if the beginning was not read yet."""

    offset: int = 0
    mark: str = ""
    turns: list[Turn] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {"offset": self.offset, "mark": self.mark, "turns": [_turn_record(turn) for turn in self.turns]}

    @classmethod
    def from_json(cls, value: object) -> Earlier:
        """Read back what was kept; what is not of our form is nothing."""
        if not isinstance(value, dict):
            return cls()
        offset, mark, turns = value.get("offset"), value.get("mark"), value.get("turns")
        if type(offset) is not int or offset < 0 or not isinstance(mark, str) or not isinstance(turns, list):
            return cls()
        try:
            return cls(offset, mark, [_turn(one) for one in turns])
        except (KeyError, TypeError, AttributeError):
            return cls()

    def belongs(self, file: BinaryIO) -> bool:
        """Return whether it is of this transcript, by the bytes before the offset."""
        return self.offset == 0 or self.mark == _mark(file, self.offset)


def advance(earlier: Earlier, file: BinaryIO, until: int, most: int, redact_text: Callable[[Any], Any]) -> Earlier:
    """Read on up to `until`, at most `most` bytes, and stop where no call waits for its result.

    `redact_text` redacts the secrets of a JSON value; earlier turns are redacted already.
    """
    end = min(until, earlier.offset + most)
    state = Conversation()
    reached = at = earlier.offset
    fresh: list[Turn] = []
    while at < end:
        file.seek(at)
        piece = file.read(min(PIECE, until - at))
        whole = piece[: piece.rfind(b"\n") + 1]
        if whole:
            state = transcript.read(whole, state)
            at += len(whole)
        else:
            line = transcript.skip_line(file, at)
            if not at < line <= until:
                break
            at = line  # a line longer than a piece is no person's text
            state.open_calls.clear()
        stuck = at >= end and end < until and reached == earlier.offset
        if stuck or not any(_is_open(call, state) for call in state.open_calls.values()):
            fresh += [turn for turn in state.turns if _tells(turn)]
            state.turns = []
            reached = at
    if reached == earlier.offset:
        return earlier
    fresh_turns = [_turn(redact_text(_turn_record(turn))) for turn in fresh]
    return Earlier(reached, _mark(file, reached), _thinned([*earlier.turns, *fresh_turns]))


def _is_open(call: Call, state: Conversation) -> bool:
    return not call.done and call.number > state.calls - STILL_OPEN


def _mark(file: BinaryIO, offset: int) -> str:
    start = max(0, offset - MARK)
    file.seek(start)
    return sha256(file.read(offset - start)).hexdigest()[:32]


def _tells(turn: Turn) -> bool:
    if turn.side:
        return False
    call = turn.call
    if call is None:
        return turn.kind == "asked" or (turn.kind == "said" and bool(_deciding(turn.text)))
    if call.act == OTHER:
        return notes.STATED.search(call.name) is not None and not call.failed
    if call.act == RUN:
        return call.done and not call.refused and notes.TEST.search(call.command) is not None
    return call.act in (TODO, PLAN, ASK, TASK) and not (call.act in (PLAN, ASK) and (call.failed or not call.done))


def _deciding(text: str) -> list[str]:
    return [one for one in phrases.decisions(text[: notes.SEARCHED]) if len(one) <= SENTENCE]


def _thinned(turns: list[Turn]) -> list[Turn]:
    """Return the newest turns of each kind and all prompts, shortened between the first and the last ones."""
    counts: dict[str, int] = {}
    newest: list[Turn] = []
    prompts = [turn for turn in turns if turn.kind == "asked"]
    if len(prompts) > MAX_PROMPTS:
        prompts = [*prompts[:FIRST_PROMPTS], *prompts[FIRST_PROMPTS - MAX_PROMPTS :]]
    whole = {id(turn): FIRST for turn in prompts[:FIRST_PROMPTS]}
    whole |= {id(turn): LAST for turn in prompts[-LAST_PROMPTS:] if id(turn) not in whole}
    stay = {id(turn) for turn in prompts}
    for turn in reversed(turns):
        if turn.kind == "asked":
            if id(turn) in stay:
                turn.text = _short(turn.text, whole.get(id(turn), MIDDLE))
                newest.append(turn)
            continue
        kind = turn.call.act if turn.call is not None else turn.kind
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] <= MAX_COUNTS.get(kind, 0):
            newest.append(turn)
    return newest[::-1]


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else head(text, longest - 1) + "…"


def _turn_record(turn: Turn) -> dict[str, Any]:
    """Return a turn as JSON with only what notes are made from."""
    call = turn.call
    if call is None:
        # In a list under this heading a decision is recognised again, whatever its words.
        listed = "\n".join(["Decisions:", *[f"- {one}" for one in _deciding(turn.text)[-4:]]])
        text = _short(turn.text, FIRST) if turn.kind == "asked" else listed
        return {"kind": turn.kind, "text": text, "at": turn.at}
    longest = MAX_CHARACTERS[call.act]
    input_names = WANTED.get(call.act)
    inputs = {key: value for key, value in call.input.items() if input_names is None or key in input_names}
    optional = {"answers": call.answers, "task": call.task}
    facts = {key: value for key, value in optional.items() if value is not None}
    output = tail(call.output, longest) if call.act in (RUN, ASK) else ""
    result = {"name": call.name, "act": call.act, "failed": call.failed, "done": call.done, "output": output}
    return {"kind": "call", "at": turn.at, **result, "input": _cut(inputs, longest), "facts": _cut(facts, longest)}


def _cut(value: Any, longest: int) -> Any:
    if isinstance(value, str):
        return head(value, longest)
    if isinstance(value, list):
        return [_cut(one, longest // 4) for one in value[:60]]
    return {key: _cut(one, longest) for key, one in list(value.items())[:20]} if isinstance(value, dict) else value


def _turn(record: dict[str, Any]) -> Turn:
    """Return the turn of such a record. Its number is 0: it is older than all that is read now."""
    turn = Turn(str(record["kind"]), str(record.get("text", "")), str(record.get("at", "")))
    if turn.kind == "call":
        facts = dict(record["facts"])
        turn.call = Call(
            id="",
            name=str(record["name"]),
            act=str(record["act"]),
            number=0,
            input=dict(record["input"]),
            output=str(record["output"]),
            failed=bool(record["failed"]),
            done=bool(record["done"]),
            answers=facts.get("answers"),
            task=facts.get("task"),
        )
    return turn


def recent(path: str | os.PathLike[str], earlier: Earlier, most: int) -> Conversation | None:
    """Return the transcript from the end of `earlier`, with its turns; None if it is of another transcript or too far back."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not 0 < earlier.offset <= size or size - earlier.offset > most or not earlier.belongs(file):
            return None
    return transcript.read(path, Conversation(offset=earlier.offset, origin=earlier.offset, earlier=earlier.turns))
