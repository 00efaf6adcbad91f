"""The way of a resume: which checkpoint, what its session knew, what the disk has now, told within a budget."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from holdfast.conversation import disk, earlier
from holdfast.conversation import notes as taking
from holdfast.conversation import transcript as transcripts
from holdfast.conversation.earlier import Earlier
from holdfast.core import brief as briefs
from holdfast.core.brief_clean import clean
from holdfast.core.errors import Damaged, HoldfastError
from holdfast.core.extract import Extract, join
from holdfast.core.notes import Notes
from holdfast.core.redact import redact
from holdfast.core.working import WorkingFile
from holdfast.looking import between, pending
from holdfast.store import conversations, sessions
from holdfast.store.rows import Query
from holdfast.workspace import diff
from holdfast.workspace.find import show

if TYPE_CHECKING:
    from holdfast.conversation.transcript import Conversation
    from holdfast.core.brief import Brief
    from holdfast.engine import Engine
    from holdfast.store.rows import CheckpointRow

MOST_COUNTED, MOST_NAMED = 200, 12
MOST_BUT = 8
LARGEST_COUNTED = 1 << 20
LARGEST_KEPT = 256 << 20
TAIL = 8 << 20
"""How much of a transcript's end is read for a checkpoint's notes; what tells of the rest is carried on from one to the next."""
CARRIED = 16 << 20
"""How much of the rest one checkpoint reads at most: it may be waited for."""


class Told(NamedTuple):
    """What can be told of a checkpoint."""

    row: CheckpointRow
    header: dict[str, Any]
    summary: str

    @property
    def session(self) -> str:
        return str(self.header.get("session") or "")


class Resuming:
    """Briefs of one workspace, and of no other."""

    def __init__(self, engine: Engine, root: bytes, workspace: str) -> None:
        self.engine, self.root, self.workspace = engine, root, workspace
        self.folder = engine.place.folder(workspace)

    def newest(self, session: str = "", but: str = "") -> Told | None:
        """The newest checkpoint, of that session if it has one; None if there is none that can be read.

        `but`: a session that has only begun; its baseline may be made while we look, and tells nothing.
        """
        ledger = self.engine.repository().ledger
        rows = ledger.find(Query(workspace=self.workspace, session=session, limit=1)) if session else []
        rows = rows or ledger.find(Query(workspace=self.workspace, limit=MOST_BUT if but else 1))
        rows = [row for row in rows if not but or row.session != but]
        return self.tell(rows[0]) if rows else None

    def tell(self, row: CheckpointRow) -> Told:
        try:
            header = self.engine.repository().document(row)[0]
        except Damaged:
            header = {}
        summary = str(header.get("summary") or "") or row.message or row.trigger
        return Told(row, header, redact(clean(summary.split("\n")[0]))[:80])

    def brief(self, told: Told, *, tokens: int = briefs.TOKENS, transcript: str = "", exact: bool = False) -> Brief:
        """Everything that lets an agent go on from there: the conversation if it can be read, else the notes kept with it.

        `exact`: the conversation as the checkpoint has it, not as it may have gone on since.
        """
        notes, files = self._known(told, transcript, exact)
        facts = briefs.Facts(
            summary=told.summary,
            checkpoint=told.row.id,
            version=f"v{told.row.version}",
            saved_at=told.row.created_at,
            branch=str((told.header.get("git") or {}).get("branch") or ""),
            commit=str((told.header.get("git") or {}).get("commit") or ""),
        )
        return briefs.build(notes, files, facts=facts, now=self.engine.clock(), tokens=tokens, redact=redact)

    def _known(self, told: Told, transcript: str, exact: bool) -> tuple[Notes, list[WorkingFile]]:
        root = os.fsdecode(self.root)
        places = [] if exact else self._sources(told, transcript)
        for source in [*places, None]:
            try:
                conversation = self._read(told, source) if source is not None else transcripts.read(self._kept(told))
            except (OSError, HoldfastError):
                continue
            notes = taking.take(conversation)
            if not notes.empty:
                join(notes, extract_of(self.folder, told.session))
                return _stated(notes, told), disk.look(conversation.files.newest_first(), root, conversation.cwd)
        kept = told.header.get("notes")
        notes = Notes.from_json(kept) if isinstance(kept, dict) else Notes()
        if not notes.cwd:
            notes.cwd = root
        if not notes.current_task:
            notes.current_task = told.summary
        paths = [file.path for file in notes.files] or [
            f"{root}/{name}" for name in told.header.get("active_files") or []
        ]
        known = [WorkingFile(path, touched=len(paths) - number) for number, path in enumerate(paths)]
        return _stated(notes, told), disk.look(known, root, notes.cwd)

    def _read(self, told: Told, source: str) -> Conversation:
        """A short transcript whole; of a long one the end, where checkpoints have carried on what was before it."""
        known = sessions.earlier(self.folder, told.session) if os.path.getsize(source) > TAIL else {}
        if known.get("transcript") == source:
            found = earlier.recent(source, Earlier.from_json(known.get("earlier")), TAIL + CARRIED)
            if found is not None:
                return found
        return transcripts.read(source)

    def _sources(self, told: Told, transcript: str) -> list[str]:
        """Where the conversation may be found, best first."""
        kept = told.header.get("conversation")
        places = [transcript, str(sessions.facts(self.folder, told.session).get("transcript") or "")]
        if isinstance(kept, dict):
            places.append(str(kept.get("path") or ""))
        return [place for place in dict.fromkeys(places) if place and os.path.isfile(place)]

    def _kept(self, told: Told) -> bytes:
        """The conversation as the checkpoint itself has it; nothing if it has none."""
        kept = conversations.checked(told.header.get("conversation"))
        if kept is None or kept["bytes"] > LARGEST_KEPT:
            return b""
        return b"".join(conversations.load(self.engine.repository(), kept))

    # What changed

    def counted(self, row: CheckpointRow) -> tuple[int, int, list[str]]:
        """Files that the checkpoint changed against the one before it, lines that it added, and the first files' names."""
        repository = self.engine.repository()
        before = repository.ledger.find(Query(workspace=self.workspace, before=row.version, limit=1))
        files = lines = 0
        names: list[str] = []
        for change in between(repository, self.workspace, before[0] if before else None, row):
            if (change.new or change.old) is None or (change.new or change.old).kind == "d":  # type: ignore[union-attr]
                continue
            files += 1
            if files <= MOST_NAMED:
                names.append(f"  {change.kind}: {_shown(change.path)}")
            if (
                files <= MOST_COUNTED
                and max(entry.size for entry in (change.old, change.new) if entry) < LARGEST_COUNTED
            ):
                lines += diff.compare(change.old_content(), change.new_content()).added
        return files, lines, names + ([f"  and {files - MOST_NAMED} more"] if files > MOST_NAMED else [])

    def changed_since(self) -> str:
        """What is different on disk from the newest checkpoint, in a few lines; empty if nothing is."""
        row = self.engine.repository().workspace(self.workspace)
        if row is None or not row.version:
            return ""
        changes, _ = pending(self.engine, self.root, row)
        names = [f"{change.kind}: {_shown(change.path)}" for change in changes[:MOST_NAMED]]
        more = [f"and {len(changes) - MOST_NAMED} more"] if len(changes) > MOST_NAMED else []
        return "\n".join(names + more)


def notes_of(path: str, extract: Extract | None = None, folder: str = "", session: str = "") -> Notes | None:
    """The notes of the transcript, for a checkpoint; None if there is nothing to read."""
    conversation = conversation_of(path, folder, session)
    notes = taking.take(conversation) if conversation is not None else Notes()
    return None if notes.empty else join(notes, extract)


def extract_of(folder: str, session: str) -> Extract | None:
    """What a model read in the session, if one was asked."""
    return Extract.from_json(sessions.extract(folder, session).get("extract")) if session else None


def conversation_of(path: str, folder: str = "", session: str = "") -> Conversation | None:
    """The transcript's end as a conversation, with what still tells of its beginning; None if there is nothing to read.

    That beginning is carried on in the workspace's folder, by the session's name; without both only the end is known.
    """
    if not os.path.isfile(path):
        return None  # a pipe would let us wait for ever
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            start, known = max(0, size - TAIL), Earlier()
            if start and folder and session:
                known = _carried(file, path, folder, session, start)
                if start - known.offset < CARRIED:
                    start = known.offset  # nothing between the two is lost
            file.seek(start)
            data = file.read(size - start)
    except OSError:
        return None
    if start and start != known.offset:
        data = data[data.find(b"\n") + 1 :]
    conversation = transcripts.read(data)
    conversation.earlier = known.turns
    return conversation


def _carried(file: BinaryIO, path: str, folder: str, session: str, until: int) -> Earlier:
    """What tells of everything before `until`, as far as it is read; gone on with and kept for the next time."""
    kept = sessions.earlier(folder, session)
    known = Earlier.from_json(kept.get("earlier")) if kept.get("transcript") == path else Earlier()
    if known.offset > until or not known.belongs(file):
        known = Earlier()
    found = earlier.advance(known, file, until, CARRIED, struck)
    if found is not known:
        try:
            sessions.keep_earlier(folder, session, transcript=path, earlier=found.to_json())
        except OSError:
            pass  # it is read again at the next checkpoint
    return found


def struck(value: Any) -> Any:
    """The same JSON value with every secret in its texts struck out."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [struck(one) for one in value]
    return {key: struck(one) for key, one in value.items()} if isinstance(value, dict) else value


def _stated(notes: Notes, told: Told) -> Notes:
    """What the agent itself stated with the checkpoint comes before what is inferred."""
    kept = told.header.get("notes")
    if not isinstance(kept, dict):
        return notes
    said = kept.get("stated")
    said = said if isinstance(said, dict) else {}
    stated = {key: [str(one) for one in said.get(key) or []] for key in ("decisions", "next_steps")}
    if stated["next_steps"]:
        notes.next_steps = stated["next_steps"]
    notes.decisions = list(dict.fromkeys([*stated["decisions"], *notes.decisions]))
    return notes


def _shown(path: bytes) -> str:
    """A name as one line that a person sees whole."""
    return clean(show(path)).replace("\n", " ")
