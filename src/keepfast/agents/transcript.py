"""Reading a transcript into turns, from where the last reading ended."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from keepfast.agents.claude import transcript as claude
from keepfast.agents.claude.subagents import Subagents
from keepfast.agents.codex import transcript as codex
from keepfast.agents.recorded_files import Files
from keepfast.agents.turns import Call, MessageSize, Turn

# Nothing a client records in one line is longer; what is longer is skipped instead of filling the memory.
MAX_LINE_LENGTH = 64 << 20
GZIP = b"\x1f\x8b"


@dataclass(slots=True)
class Conversation:
    """A session as far as it has been read: the live branch only. It is also the state from which reading goes on."""

    client: str = ""
    session: str = ""
    cwd: str = ""
    branch: str = ""
    model: str = ""
    title: str = ""  # what the client or its user calls the session
    turns: list[Turn] = field(default_factory=list)
    earlier: list[Turn] = field(default_factory=list)  # before all that was read: see `earlier.py`
    files: Files = field(default_factory=Files)
    calls: int = 0
    compactions: int = 0
    started: str = ""
    ended: str = ""
    # (characters, tokens) of tool output, from which a model's characters per token are known.
    measured: list[tuple[int, int]] = field(default_factory=list)

    origin: int = 0  # where reading began
    offset: int = 0
    line: int = 0
    skipped: int = 0
    # Live branch: the prompt each entry belongs to, each prompt's own predecessor, the newest entry's prompt.
    prompt_of: dict[str, int] = field(default_factory=dict)
    before: list[int] = field(default_factory=lambda: [-1])
    current: int = 0
    dead: frozenset[int] = frozenset()
    open_calls: dict[str, Call] = field(default_factory=dict)
    beside: dict[str, int] = field(default_factory=dict)  # how far the file of each subagent is read
    keep: bool = False  # keep what reads showed, for measuring
    # What a client's reader remembers between lines: the newest message by its counts, a prompt that was queued and when.
    newest: MessageSize = field(default_factory=MessageSize)
    queued: tuple[str, int] | None = None

    def asked(self) -> list[Turn]:
        return [turn for turn in self.turns if turn.kind == "asked"]

    def called(self) -> Iterator[Call]:
        for turn in self.turns:
            if turn.call is not None and not turn.side:
                yield turn.call

    def live(self) -> set[int]:
        """The prompts on the way from the first entry to the newest."""
        chain = set()
        at = self.current
        while at >= 0 and at not in chain:
            chain.add(at)
            at = self.before[at]
        return chain


def read(
    source: str | os.PathLike[str] | bytes,
    state: Conversation | None = None,
    *,
    keep: bool = False,
    beside: Sequence[tuple[str, bytes]] = (),
) -> Conversation:
    """Return the conversation that `source` records, going on from `state` if there is one.

    Unknown entries and damaged lines are skipped; a torn last line waits for its rest. A rewind found in new lines
    makes a path be read again from where reading began, without what was rewound. `beside`: name and bytes of each
    subagent's file, for a source that has no folder beside it.
    """
    conversation = state if state is not None and _continues(source, state) else Conversation(keep=keep)
    _take(source, conversation, beside)
    dead = frozenset(range(len(conversation.before))) - conversation.live()
    if dead == conversation.dead:
        return conversation
    if state is not None and isinstance(source, bytes):
        # Only the new bytes are available: rewound turns are dropped, file contents stay as last seen.
        conversation.turns = [turn for turn in conversation.turns if turn.prompt not in dead]
        conversation.dead = dead
        return conversation
    origin = conversation.origin
    again = Conversation(keep=conversation.keep, dead=dead, origin=origin, offset=origin, earlier=conversation.earlier)
    _take(source, again, beside)
    return again


def unpacked(data: bytes) -> bytes:
    return gzip.decompress(data) if data.startswith(GZIP) else data


def _continues(source: str | os.PathLike[str] | bytes, state: Conversation) -> bool:
    """Return whether the source continues what was read: bytes always do, a file if it is at least as long as before."""
    if isinstance(source, bytes):
        return True
    try:
        return os.stat(source).st_size >= state.offset
    except OSError:
        return False


def _take(
    source: str | os.PathLike[str] | bytes, conversation: Conversation, beside: Sequence[tuple[str, bytes]]
) -> None:
    subagents = Subagents(source, conversation.beside, beside)
    for raw, whole in _lines(source, conversation):
        entry = None
        if raw.startswith(b"{"):
            try:
                entry = json.loads(raw)
            except (ValueError, RecursionError):
                entry = None
        if entry is None and not whole:
            break
        conversation.offset += len(raw) if isinstance(raw, bytes) else 0
        conversation.line += 1
        if not isinstance(entry, dict):
            conversation.skipped += bool(raw.strip())
            continue
        for other in subagents.until(entry.get("timestamp")):
            _enter(conversation, other)
        _enter(conversation, entry)
    for other in subagents.rest():
        _enter(conversation, other)


def _enter(conversation: Conversation, entry: dict[str, Any]) -> None:
    """Hand one entry to its client's reader. A shape that nobody foresaw costs that one entry."""
    if not conversation.client:
        conversation.client = codex.NAME if codex.is_ours(entry) else claude.NAME if claude.is_ours(entry) else ""
    take = {codex.NAME: codex.take, claude.NAME: claude.take}.get(conversation.client)
    if take is None:
        conversation.skipped += 1
        return
    try:
        take(conversation, entry)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        conversation.skipped += 1


def _lines(source: str | os.PathLike[str] | bytes, conversation: Conversation) -> Iterator[tuple[bytes, bool]]:
    """Yield each line, and whether it is complete."""
    if isinstance(source, bytes):
        yield from _split(unpacked(source))
        return
    if os.fspath(source).endswith(".gz"):
        with gzip.open(source, "rb") as packed:
            yield from _split(packed.read()[conversation.offset :])
        return
    with open(source, "rb") as file:
        file.seek(conversation.offset)
        while True:
            line = file.readline(MAX_LINE_LENGTH)
            if not line:
                return
            if len(line) == MAX_LINE_LENGTH and not line.endswith(b"\n"):
                conversation.offset += len(line)
                conversation.skipped += 1
                while (rest := file.readline(MAX_LINE_LENGTH)) and not rest.endswith(b"\n"):
                    conversation.offset += len(rest)
                conversation.offset += len(rest)
                continue
            yield line, line.endswith(b"\n")


def skip_line(file: BinaryIO, at: int) -> int:
    """Return where the line that begins at `at` ends; `at` itself if it is not ended."""
    file.seek(at)
    while piece := file.read(1 << 20):
        end = piece.find(b"\n")
        if end >= 0:
            return file.tell() - len(piece) + end + 1
    return at


def _split(data: bytes) -> Iterator[tuple[bytes, bool]]:
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1
        if not end:
            yield data[start:], False
            return
        yield data[start:end], True
        start = end
