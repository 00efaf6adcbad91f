"""The rows of a ledger: workspaces, checkpoints, packs and locations of blobs."""

from __future__ import annotations

from typing import NamedTuple

from keepfast.model.document import Header
from keepfast.model.event import BETWEEN, TOOL
from keepfast.store.records import Record


class Location(NamedTuple):
    """Where a blob lies: its pack, the frame (offset, stored length), and its place in the decompressed frame."""

    pack: str
    frame: int
    stored: int
    offset: int
    length: int
    kind: int


class PackRow(NamedTuple):
    name: str
    size: int


class WorkspaceRow(NamedTuple):
    """One workspace. `log_size` and `log_head` say up to where its log has been replayed into the ledger."""

    id: str
    path: bytes
    created_at: int
    parent: str
    version: int
    document: bytes
    log_size: int
    log_head: bytes
    keyframe: int
    tree: str
    counts: str


class CheckpointRow(NamedTuple):
    workspace: str
    version: int
    id: str
    document: bytes
    seq: int
    created_at: int
    trigger: str
    created_by: str
    message: str
    name: str
    tags: str
    session: str
    task: str
    pinned: int
    forgotten: int
    changed: int
    files: int
    bytes: int
    added: int
    tree: str


class Query(NamedTuple):
    """A filter for checkpoints; empty fields do not limit."""

    workspace: str = ""
    session: str = ""
    task: str = ""
    trigger: str = ""
    tag: str = ""
    name: str = ""
    id_prefix: str = ""
    before: int = 0
    created_until: int = 0
    limit: int = 0
    forgotten: bool = False
    safety: bool = True
    """False: without those of `SAFETY_TRIGGERS`."""
    light: bool = True
    """False: without those of `LIGHT_TRIGGERS`."""


SAFETY_TRIGGERS = ("before_restore", "patch")
"""Triggers of checkpoints that restores make: the safety checkpoint, and the chosen hunks of `restore --patch`."""
LIGHT_TRIGGERS = (TOOL, BETWEEN)
"""Triggers of checkpoints around single tool calls: they have neither notes nor a conversation of their own."""
CONTENT, CHUNKS, DOCUMENT, SEALED, LIST = 0, 1, 2, 3, 4


def checkpoint_row(workspace: str, record: Record, header: Header, rows: int) -> CheckpointRow:
    """Return the ledger's row of a checkpoint, from its log record and its document's header and number of rows."""
    changed = header.changed if header.changed is not None else rows
    return CheckpointRow(
        workspace, record["v"], header.id, bytes.fromhex(record["doc"]), record["seq"], header.created_at,
        storable(header.trigger), storable(header.created_by), storable(header.message),
        storable(header.name), storable("\n".join(header.tags)),
        storable(header.session), storable(header.task), int(header.pinned), 0, changed,
        header.counts.get("f", 0), header.counts.get("bytes", 0), record.get("size", 0), header.tree,
    )  # fmt: skip


def storable(text: str) -> str:
    """Return the text with `?` for lone surrogates, which SQLite does not take; the document keeps the original."""
    return text.encode("utf-8", "replace").decode("utf-8")
