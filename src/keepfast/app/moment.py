"""A moment of the past by itself: a checkpoint's conversation up to its last message, and its session's files as it holds them."""

from __future__ import annotations

import os
from dataclasses import replace
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

from keepfast.agents import transcript as transcripts
from keepfast.agents.claude.subagents import FOLDER as SUBAGENTS
from keepfast.agents.working_file import WorkingFile
from keepfast.model.entry import FILE, FOLDER, LEFT_OUT, LINK
from keepfast.model.errors import KeepfastError
from keepfast.model.restore_plan import parents
from keepfast.resume import disk_files as disk
from keepfast.resume import history as earlier
from keepfast.resume.history import Earlier
from keepfast.store import conversations
from keepfast.store.rows import Query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keepfast.agents.transcript import Conversation
    from keepfast.app.checkpoint import Engine
    from keepfast.model.document import Header
    from keepfast.store.repository import Repository
    from keepfast.store.rows import CheckpointRow

TAIL, HEAD = 4 << 20, 1 << 20
"""A longer conversation is read at both ends; what lies between is told by the notes that were kept with the checkpoint."""
BESIDE = 8 << 20
"""So much of what subagents did is read."""
MOST_LOOKED = 100
"""Checkpoints in which a conversation is looked for, for one that has none."""
DIFFERS, LOST = "the disk differs now", "gone from the disk now"
NOT_KEPT = "not in the checkpoint"
KINDS = {LINK: disk.LINK, FOLDER: disk.FOLDER}


class Source(NamedTuple):
    """A checkpoint that holds a conversation."""

    row: CheckpointRow
    header: Header
    conversation: conversations.Conversation


def source(repository: Repository, row: CheckpointRow, header: Header) -> Source | None:
    """The checkpoint itself, if it has a conversation; else the newest before it that has one.

    Its own session comes first, then any other of the workspace.
    """
    own = conversations.conversation_from_json(header.conversation)
    if own is not None:
        return Source(row, header, own)
    for other in _before(repository, row):
        try:
            header = repository.document(other)[0]
        except KeepfastError:
            continue
        earlier_one = conversations.conversation_from_json(header.conversation)
        if earlier_one is not None:
            return Source(other, header, earlier_one)
    return None


def read(repository: Repository, kept: conversations.Conversation, strike: Callable[[Any], Any]) -> Conversation:
    """The conversation as it was kept; `strike` takes the secrets out of a JSON value. Raises `KeepfastError`."""
    if kept.transcript.size <= TAIL:
        whole = b"".join(conversations.load_transcript(repository, kept.transcript))
        return transcripts.read(whole, beside=_beside(repository, kept))
    head, tail = conversations.read_ends(repository, kept.transcript, HEAD, TAIL)
    tail = tail[tail.find(b"\n") + 1 :]
    conversation = transcripts.read(tail, beside=_beside(repository, kept))
    conversation.earlier = earlier.advance(Earlier(), BytesIO(head), len(head), len(head), strike).turns
    return conversation


def is_whole(kept: conversations.Conversation) -> bool:
    """Is all of the conversation read?"""
    return kept.transcript.size <= TAIL


def files(engine: Engine, root: bytes, row: CheckpointRow, known: list[WorkingFile], cwd: str) -> list[WorkingFile]:
    """The session's files with their text from the checkpoint, and a remark where the disk has another now.

    What the checkpoint has not is gone; of what it does not cover, and of what is no text, nothing is shown. What lies
    outside of the workspace stays as the session knew it, and says so.
    """
    repository, top = engine.repository(), os.fsdecode(root)
    base = os.path.realpath(top)
    found = []
    for number, file in enumerate(known):
        inner = disk.below(file.path, base, top, cwd) if number < disk.MOST_FILES else None
        found.append(replace(file, remark=disk.AS_SEEN) if inner is None else _at(repository, row, file, inner, base))
    return found


def _before(repository: Repository, row: CheckpointRow) -> Iterator[CheckpointRow]:
    find = repository.find
    if row.session:
        yield from find(Query(workspace=row.workspace, session=row.session, before=row.version, limit=MOST_LOOKED))
    others = find(Query(workspace=row.workspace, before=row.version, limit=MOST_LOOKED))
    yield from [other for other in others if other.session and other.session != row.session]


def _beside(repository: Repository, kept: conversations.Conversation) -> list[tuple[str, bytes]]:
    """What was kept of subagents, as far as there is room for it."""
    found, room = [], BESIDE
    for one in kept.side_files:
        folder, _, name = one.name.partition("/")
        if folder != SUBAGENTS or one.size > room:
            continue
        try:
            found.append((name, b"".join(conversations.load_transcript(repository, one))))
        except KeepfastError:
            continue  # the conversation itself says what they were for
        room -= one.size
    return found


def _at(repository: Repository, row: CheckpointRow, file: WorkingFile, inner: str, base: str) -> WorkingFile:
    path = os.fsencode(inner)
    entry = repository.at(row.workspace, row.version, path)
    if entry is None:
        above = [repository.at(row.workspace, row.version, one) for one in parents([path])]
        is_left_out = any(one is not None and one.kind in LEFT_OUT for one in above)
        return disk.unshown(file, NOT_KEPT) if is_left_out else replace(file, lines=[], gone=True)
    if entry.kind != FILE:
        return disk.unshown(file, KINDS.get(entry.kind, NOT_KEPT))
    if entry.size > disk.LARGEST:
        return disk.unshown(file, disk.TOO_LARGE)
    try:
        content = repository.contents.load(entry.content)
    except KeepfastError:
        return disk.unshown(file, disk.UNREADABLE)
    then = disk.matched(file, content)
    then.changed = bool(then.lines) and disk.content_of(base, inner) != content
    if then.changed:
        then.remark = DIFFERS if os.path.lexists(os.path.join(base, inner)) else LOST
    return then
