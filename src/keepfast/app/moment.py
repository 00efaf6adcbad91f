"""A past moment: a checkpoint's conversation up to its last message, and its session's files as the checkpoint has them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import BytesIO
from typing import Any, NamedTuple

from keepfast.agents import transcript as transcripts
from keepfast.agents.claude.subagents import FOLDER as SUBAGENTS
from keepfast.agents.transcript import Conversation
from keepfast.agents.working_file import WorkingFile
from keepfast.app.checkpoint import Engine
from keepfast.model.document import Header
from keepfast.model.entry import FILE, FOLDER, LEFT_OUT, LINK
from keepfast.model.errors import KeepfastError
from keepfast.model.restore_plan import parents
from keepfast.resume import disk_files as disk
from keepfast.resume import history as earlier
from keepfast.resume.history import Earlier
from keepfast.store import conversations
from keepfast.store.repository import Repository
from keepfast.store.rows import CheckpointRow, Query

TAIL_BYTES, HEAD_BYTES = 4 << 20, 1 << 20
"""A longer conversation is read at both ends; the checkpoint's notes have the middle."""
MAX_SUBAGENT_BYTES = 8 << 20
"""So much of the subagents' transcripts is read."""
MAX_CHECKPOINTS_SEARCHED = 100
"""How many earlier checkpoints are searched for a conversation if one has none."""
DIFFERS, DELETED = "the disk differs now", "gone from the disk now"
NOT_SAVED = "not in the checkpoint"
KINDS = {LINK: disk.LINK, FOLDER: disk.FOLDER}


class ConversationSource(NamedTuple):
    """A checkpoint with a conversation."""

    row: CheckpointRow
    header: Header
    conversation: conversations.SavedConversation


def source(repository: Repository, row: CheckpointRow, header: Header) -> ConversationSource | None:
    """Return the checkpoint if it has a conversation, else the newest before it that has one.

    Those of its own session come first, then any other of the workspace.
    """
    own = conversations.conversation_from_json(header.conversation)
    if own is not None:
        return ConversationSource(row, header, own)
    for other in _before(repository, row):
        try:
            header = repository.document(other)[0]
        except KeepfastError:
            continue
        earlier_one = conversations.conversation_from_json(header.conversation)
        if earlier_one is not None:
            return ConversationSource(other, header, earlier_one)
    return None


def read(
    repository: Repository, saved: conversations.SavedConversation, redact_text: Callable[[Any], Any]
) -> Conversation:
    """Return the saved conversation; `redact_text` redacts a JSON value. Raises `KeepfastError`."""
    if saved.transcript.size <= TAIL_BYTES:
        whole = b"".join(conversations.load_transcript(repository, saved.transcript))
        return transcripts.read(whole, beside=_subagent_parts(repository, saved))
    head, tail = conversations.read_ends(repository, saved.transcript, HEAD_BYTES, TAIL_BYTES)
    tail = tail[tail.find(b"\n") + 1 :]
    conversation = transcripts.read(tail, beside=_subagent_parts(repository, saved))
    conversation.earlier = earlier.advance(Earlier(), BytesIO(head), len(head), len(head), redact_text).turns
    return conversation


def is_whole(saved: conversations.SavedConversation) -> bool:
    """Return whether `read` reads all of the conversation."""
    return saved.transcript.size <= TAIL_BYTES


def files(
    engine: Engine, root: bytes, row: CheckpointRow, seen_files: list[WorkingFile], cwd: str
) -> list[WorkingFile]:
    """Return the session's files with their text from the checkpoint, and a remark if the disk differs now.

    A file that the checkpoint does not have is deleted. Excluded files, and those without text, are only named. Files outside
    the workspace stay as the session saw them, with a remark.
    """
    repository, top = engine.repository(), os.fsdecode(root)
    base = os.path.realpath(top)
    result = []
    for number, file in enumerate(seen_files):
        inner = disk.below(file.path, base, top, cwd) if number < disk.MAX_FILES else None
        result.append(
            replace(file, remark=disk.AS_SEEN) if inner is None else _file_at(repository, row, file, inner, base)
        )
    return result


def _before(repository: Repository, row: CheckpointRow) -> Iterator[CheckpointRow]:
    find = repository.find
    if row.session:
        yield from find(
            Query(
                workspace=row.workspace,
                session=row.session,
                before=row.version,
                limit=MAX_CHECKPOINTS_SEARCHED,
                light=False,
            )
        )
    others = find(Query(workspace=row.workspace, before=row.version, limit=MAX_CHECKPOINTS_SEARCHED, light=False))
    yield from [other for other in others if other.session and other.session != row.session]


def _subagent_parts(repository: Repository, saved: conversations.SavedConversation) -> list[tuple[str, bytes]]:
    """Return the saved transcripts of subagents, up to a total size."""
    parts, bytes_left = [], MAX_SUBAGENT_BYTES
    for part in saved.side_files:
        folder, _, name = part.name.partition("/")
        if folder != SUBAGENTS or part.size > bytes_left:
            continue
        try:
            parts.append((name, b"".join(conversations.load_transcript(repository, part))))
        except KeepfastError:
            continue  # the conversation itself mentions them
        bytes_left -= part.size
    return parts


def _file_at(repository: Repository, row: CheckpointRow, file: WorkingFile, inner: str, base: str) -> WorkingFile:
    path = os.fsencode(inner)
    entry = repository.at(row.workspace, row.version, path)
    if entry is None:
        above = [repository.at(row.workspace, row.version, folder) for folder in parents([path])]
        is_left_out = any(folder is not None and folder.kind in LEFT_OUT for folder in above)
        return disk.unshown(file, NOT_SAVED) if is_left_out else replace(file, lines=[], is_missing=True)
    if entry.kind != FILE:
        return disk.unshown(file, KINDS.get(entry.kind, NOT_SAVED))
    if entry.size > disk.MAX_FILE_BYTES:
        return disk.unshown(file, disk.TOO_LARGE)
    try:
        content = repository.contents.load(entry.content)
    except KeepfastError:
        return disk.unshown(file, disk.UNREADABLE)
    result = disk.matched(file, content)
    result.changed = bool(result.lines) and disk.content_of(base, inner) != content
    if result.changed:
        result.remark = DIFFERS if os.path.lexists(os.path.join(base, inner)) else DELETED
    return result
