"""Keyframes: documents with the whole state of a version, so that older documents can be removed."""

from __future__ import annotations

from keepfast.model import document
from keepfast.model.errors import Damaged
from keepfast.model.steps import step
from keepfast.store.digest import add, digest, weight
from keepfast.store.packs import PackWriter
from keepfast.store.ports import Transaction
from keepfast.store.records import Chain, Record
from keepfast.store.repository import Repository
from keepfast.store.rows import DOCUMENT, CheckpointRow, Query, WorkspaceRow

LEVEL = 9
DOCUMENTS_WORTH_A_KEYFRAME = 64


def write_keyframe(
    repository: Repository, checkpoint: CheckpointRow, header: document.Header, *, instead: bool = False
) -> None:
    """Write the whole state of a version as a keyframe; `instead`: in place of its own document, which is damaged.

    Raises `Damaged` if the stored state does not match the version's tree.
    """
    workspace, version = checkpoint.workspace, checkpoint.version
    step("keyframe:begun")
    rows = list(repository.ledger.state(workspace, version))
    tree = 0
    for row in rows:
        tree = add(tree, plus=weight(row))
    if f"{tree:064x}" != header.tree:
        raise Damaged(f"The stored state of v{version} is inconsistent; no keyframe was written.")
    keyframe_header = header.with_members(version=version, keyframe=True, changed=checkpoint.changed)
    data = document.encode(keyframe_header, rows)
    key = digest(data)
    writer = PackWriter(repository.blobs, level=LEVEL)
    try:
        writer.add(key, data, DOCUMENT)
        writer.sync()
    except BaseException:
        writer.abort()
        raise

    def work(tx: Transaction, row: WorkspaceRow | None) -> list[Record]:
        tx.add_pack(writer.name, writer.size, writer.entries())
        writer.finish()
        record = {"r": "keyframe", "v": version, "doc": key.hex(), "pack": writer.name}
        return [{**record, "instead": True} if instead else record]

    try:
        repository.commit(workspace, work)
    except BaseException:
        repository.discard_packs([writer.name], workspace)
        raise
    step("keyframe:committed")


def write_keyframe_if_due(repository: Repository, workspace: str, everything: bool) -> None:
    """Write a keyframe of the oldest living version if that makes enough documents of forgotten versions unneeded."""
    row = repository.ledger.workspace(workspace)
    living = repository.ledger.find(Query(workspace=workspace))
    if row is None or not living:
        return
    oldest = living[-1]
    behind = oldest.version - row.keyframe
    if behind < (1 if everything else max(DOCUMENTS_WORTH_A_KEYFRAME, oldest.files // 10)):
        return
    try:
        write_keyframe(repository, oldest, repository.document(oldest)[0])
    except Damaged:
        now = repository.ledger.checkpoint(workspace, oldest.version)
        if now is None or not now.forgotten:
            raise
        # Another process has forgotten it meanwhile, and its rows were removed: try the one that is the oldest now.
        write_keyframe_if_due(repository, workspace, everything)


def needed_documents(repository: Repository, workspace: WorkspaceRow) -> set[bytes]:
    """Return the digests of keyframes and documents from which the living versions can be rebuilt."""
    records = [record for record in Chain(repository.records.read(workspace.id)).records if record["r"] == "keyframe"]
    living = repository.ledger.find(Query(workspace=workspace.id))
    oldest = living[-1].version if living else workspace.version
    # A repair may write a keyframe of any version: older documents are unneeded only if no living version precedes it.
    since = max([record["v"] for record in records if record["v"] <= oldest], default=0)
    keys = {bytes.fromhex(record["doc"]) for record in records if record["v"] >= since}
    for row in repository.ledger.find(Query(workspace=workspace.id, forgotten=True)):
        if row.version >= since:
            keys.add(row.document)
    return keys
