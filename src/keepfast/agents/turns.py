"""The turns of a conversation, whatever its client: prompts, answers, thoughts, tool calls, compactions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from keepfast.model.frozen import FORMER_TAG
from keepfast.secrets.cuts import head, tail

# What is kept of one text. A prompt is a person's own words; the rest can be looked up in the transcript.
MAX_CHARACTERS = {"asked": 40_000, "said": 12_000, "thought": 6_000, "summary": 40_000}
OUTPUT_HEAD = 2_000
OUTPUT_TAIL = 6_000
INPUT = 24_000
CUT = "\n[…]\n"
"""Replaces the middle of a long output."""

READ, EDIT, WRITE, SEARCH, RUN, PLAN, ASK, TODO, TASK, AGENT, OTHER = (
    "read edit write search run plan ask todo task agent other".split()
)


# Text that the client and our own supervisor put into a prompt.
BESIDE = re.compile(rf"<(system-reminder|keepfast|{FORMER_TAG}|user-prompt-submit-hook|ide_[a-z_]+)>.*?</\1>", re.S)
# Results that the client writes for a call that a person or a rule denied.
REFUSED = re.compile(
    r"\s*(?:<tool_use_error>|Error:)?\s*(?:The user doesn't want to (?:proceed with|take) this|User rejected tool use"
    r"|\[Request interrupted by user for tool use|Permission to use .{1,2000}?\bdenied\b|Claude requested permissions to "
    r"|This command requires approval)",
    re.S,
)


@dataclass(slots=True)
class Call:
    """One tool call and, once recorded, its result."""

    id: str
    name: str
    act: str
    number: int
    input: dict[str, Any]
    path: str = ""
    output: str = ""
    failed: bool = False
    done: bool = False
    # Lines shown by a read, or (old, new) of an edit; kept only when the reader was asked to.
    shown_lines: list[str] | None = None
    start: int = 0
    total: int = 0
    old: str = ""
    new: str = ""
    # What a result says beyond its text, as the client wrote it: of a question, of a task, of a search, of an edit.
    answers: object = None
    task: object = None
    hits: str = ""
    patch: object = None

    @property
    def command(self) -> str:
        value = self.input.get("command", "")
        return value if isinstance(value, str) else ""

    @property
    def refused(self) -> bool:
        """Return whether it was denied and never ran."""
        return self.failed and REFUSED.match(self.output) is not None


@dataclass(slots=True)
class MessageSize:
    """Tokens of a message as the client counted them, and the size of tool outputs since.

    `filled`: tokens of the whole request. `output_characters`: total length of the `outputs`.
    """

    message: object = None
    filled: int = 0
    wrote: int = 0
    output_characters: int = 0
    outputs: int = 0


@dataclass(slots=True)
class Turn:
    """One step of the conversation, in recorded order."""

    kind: str  # asked, command, said, thought, call, compacted, summary
    text: str = ""
    at: str = ""
    number: int = 0  # number of tool calls started up to this turn
    line: int = 0
    prompt: int = 0  # which prompt it belongs to; a rewind removes a prompt and everything after it
    side: bool = False  # said or done by a subagent
    call: Call | None = None
    body: str = ""  # of a command: the text of its skill or file, as the client inserted it into the conversation


def clip(text: str, kind: str) -> str:
    longest = MAX_CHARACTERS[kind]
    return text if len(text) <= longest else head(text, longest * 3 // 4) + "\n[…]\n" + tail(text, longest // 4)


def clip_output(text: str) -> str:
    if len(text) <= OUTPUT_HEAD + OUTPUT_TAIL:
        return text
    return head(text, OUTPUT_HEAD) + CUT + tail(text, OUTPUT_TAIL)


def clip_input(values: dict[str, Any]) -> dict[str, Any]:
    """Return the call's arguments with over-long texts cut."""
    return {key: head(value, INPUT) if isinstance(value, str) else value for key, value in values.items()}
