"""Resume: choose a checkpoint, gather what its session knew and what is on disk now, and render a brief within a budget."""

from __future__ import annotations

import os
from typing import Any, BinaryIO, NamedTuple

from keepfast.agents import transcript as transcripts
from keepfast.agents.transcript import Conversation
from keepfast.agents.working_file import WorkingFile
from keepfast.app import moment, session_files
from keepfast.app.checkpoint import Engine
from keepfast.app.inspect import Change, between, compare, pending
from keepfast.app.known_secrets import KnownSecrets
from keepfast.app.messages import change as change_word
from keepfast.app.messages import text
from keepfast.model.document import Header
from keepfast.model.entry import FOLDER
from keepfast.model.errors import Damaged, KeepfastError
from keepfast.model.event import BY_THEMSELVES
from keepfast.resume import brief as briefs
from keepfast.resume import disk_files as disk
from keepfast.resume import extractor
from keepfast.resume import history as earlier
from keepfast.resume.brief import Brief
from keepfast.resume.history import Earlier
from keepfast.resume.inheritance import Inheritance, with_files, with_places
from keepfast.resume.model_answer import Extract, join
from keepfast.resume.notes import BETWEEN, FileNote, Notes, shortened
from keepfast.resume.quotation import clean
from keepfast.secrets.redaction import redact
from keepfast.state import sessions
from keepfast.store import conversations
from keepfast.store.rows import CheckpointRow, Query
from keepfast.workspace import diff
from keepfast.workspace.marker import show

MAX_FILES_COUNTED, MAX_BYTES_COUNTED, MAX_NAMED = 2_000, 8 << 20, 12
"""How many changed files, and bytes of them, are compared line by line after a clear, and how many are named: somebody waits."""
MAX_CHECKPOINTS_SEARCHED = 64
"""How many checkpoints are searched for one that says what was worked on."""
MAX_FILE_BYTES_COUNTED = 1 << 20
MAX_ATTEMPTS = 3
MAX_CONVERSATION_BYTES = 256 << 20
TAIL_BYTES = 8 << 20
"""How much of a transcript's end is read for a checkpoint's notes. A summary of the rest is carried on between checkpoints."""
MAX_CARRIED_BYTES = 16 << 20
"""How much of the rest one checkpoint adds to that summary at most: somebody may wait for it."""


class SavedWork(NamedTuple):
    """A checkpoint and the work that it holds.

    `session` and `known` are of that work: for a manual save outside of any session, of the newest work before it.
    """

    row: CheckpointRow
    header: Header
    summary: str
    work_header: Header | None = None

    @property
    def session(self) -> str:
        return self.known.session

    @property
    def known(self) -> Header:
        """Return the header that has conversation, notes and files of the work."""
        return self.header if self.work_header is None else self.work_header

    @property
    def lacks_words(self) -> bool:
        """Return whether it was saved automatically outside of any session: it says what changed, but not why."""
        is_known = self.header.session or self.header.notes
        is_worded = self.row.message != self.row.trigger and self.row.trigger != "watch"
        return self.row.trigger in BY_THEMSELVES and not is_known and not is_worded

    def with_task(self, task: str) -> SavedWork:
        """Return the same with the task that it continues in front of its summary."""
        return self._replace(summary=shortened(f"{task}{BETWEEN}{self.summary}"))

    @property
    def is_work(self) -> bool:
        """Return whether it says what was worked on, or the user asked for it. Not so the first state and automatic saves."""
        if self.lacks_words and self.row.version == 1:
            return False
        notes = self.header.notes
        analysis = notes.get("analysis")
        return bool(
            self.header.summary
            or notes.get("stated")
            or (isinstance(analysis, dict) and any(analysis.values()))
            or self.row.trigger == "manual"
        )


def _first_state_task(work: SavedWork) -> str:
    """Return the task of the state that a history begins with, which is nobody's work."""
    return f"No work yet: v{work.row.version} is the first state of this history."


class LineCount(NamedTuple):
    """Added lines. `uncounted`: the number of files not among them, because they are large or come after too many others."""

    added: int
    uncounted: int


class MomentBrief(NamedTuple):
    """The brief of a past moment. `conversation`: the version that its conversation is from; empty if there was none."""

    brief: Brief
    conversation: str


class Resumer:
    """Builds resume briefs of one workspace."""

    def __init__(self, engine: Engine, root: bytes, workspace: str) -> None:
        self.engine, self.root, self.workspace = engine, root, workspace
        self.folder = engine.place.folder(workspace)

    def newest(self) -> SavedWork | None:
        """Return the newest checkpoint that says what was worked on, else the newest; None if there is none."""
        rows = self.engine.repository().find(Query(workspace=self.workspace, limit=1, light=False))
        return self.latest_work() or (self.work_at(rows[0]) if rows else None)

    def newest_of(self, session: str) -> SavedWork | None:
        """Return the newest checkpoint of that session; None if it has none."""
        query = Query(workspace=self.workspace, session=session, limit=1, light=False)
        rows = self.engine.repository().find(query) if session else []
        return self.work_at(rows[0]) if rows else None

    def latest_work(self, session: str = "", excluded: str = "") -> SavedWork | None:
        """Return the newest checkpoint that says what was worked on, of that session if it has one; None if there is none.

        `excluded`: a session that has just begun. A manual or automatic save after the last session counts as that session's work.
        """
        by_hand: list[SavedWork] = []  # and automatic ones
        for name in [session, ""] if session else [""]:
            late, others = self._session_and_manual_work(name, excluded)
            by_hand += others
            if late:
                work = max(late, key=self.worked_at)
                return _newest(by_hand, work) if by_hand else work
        return _newest(by_hand) if by_hand else None

    def _session_and_manual_work(self, session: str, excluded: str) -> tuple[list[SavedWork], list[SavedWork]]:
        """Return checkpoints of work, newest first, down to the last one that ended a session; and those outside of sessions.

        Several sessions may have crashed: a crashed session is saved after others may have ended.
        """
        of_sessions, by_hand = list[SavedWork](), list[SavedWork]()
        for row in self.engine.repository().find(
            Query(workspace=self.workspace, session=session, limit=MAX_CHECKPOINTS_SEARCHED, light=False)
        ):
            if excluded and row.session == excluded:
                continue
            if row.session and any(row.session == work.row.session for work in of_sessions):
                continue  # a newer one of that session holds all that this one does
            work = self.work_at(row)
            if not work.is_work and not (work.header.conversation and not self._summarises):
                continue
            if not (work.session or work.header.notes):
                by_hand.append(work)
                continue
            of_sessions.append(work)
            if row.trigger != sessions.CUT_OFF or session:
                break
        return of_sessions, by_hand

    def worked_at(self, work: SavedWork) -> int:
        """Return when the work that the checkpoint holds was last continued, as far as that is known."""
        last_heard = (
            sessions.last_activity(sessions.facts(self.folder, work.session))
            if work.row.trigger == sessions.CUT_OFF
            else 0
        )
        return min(last_heard or work.row.created_at, work.row.created_at)

    @property
    def _summarises(self) -> bool:
        return bool(self.engine.settings["checkpoint.auto_summary_enabled"])

    def work_at(self, row: CheckpointRow) -> SavedWork:
        """Return the work that this checkpoint holds."""
        try:
            header = self.engine.repository().document(row)[0]
        except Damaged:
            header = Header({})
        message = row.message if row.message != row.trigger else ""
        summary = header.summary or message or f"v{row.version}"
        return SavedWork(row, header, redact(clean(summary.split("\n")[0]))[:80])

    def brief(
        self, work: SavedWork, *, tokens: int = briefs.TOKENS, transcript: str = "", exact: bool = False
    ) -> Brief:
        """Return the brief to continue from there: from the conversation if it can be read, else from the checkpoint's notes.

        `exact`: the conversation as of the checkpoint, not as it may have gone on since.
        """
        notes, files = self.notes_and_files(work, transcript, exact)
        return self.render(work, notes, files, tokens)

    def notes_and_files(
        self, work: SavedWork, transcript: str = "", exact: bool = False
    ) -> tuple[Notes, list[WorkingFile]]:
        """Return what a brief of that checkpoint says, as values."""
        notes, files = self._notes_and_files_now(work, transcript, exact)
        repository, settings = self.engine.repository(), self.engine.settings
        root = os.fsdecode(self.root)
        return session_files.notes_and_files(repository, work.row, root, notes, files, settings, work.session)

    def render(self, work: SavedWork, notes: Notes, files: list[WorkingFile], tokens: int = briefs.TOKENS) -> Brief:
        """Return notes and files as the text of a brief."""
        return self._build(work.row, notes, files, self._facts(work), tokens)

    def _build(
        self, row: CheckpointRow, notes: Notes, files: list[WorkingFile], facts: briefs.Facts, tokens: int
    ) -> Brief:
        repository, root = self.engine.repository(), os.fsdecode(self.root)
        files = session_files.without_sealed(files, root, notes.cwd, repository, row)
        secrets = KnownSecrets(repository, self.workspace)
        return briefs.build(
            notes, files, facts=facts, now=self.engine.clock(), tokens=tokens, redact=secrets.redact_text
        )

    def _facts(self, work: SavedWork, source: str = "") -> briefs.Facts:
        return briefs.Facts(
            summary=work.summary if work.is_work else "",  # else the conversation says it better
            checkpoint=work.row.id,
            version=f"v{work.row.version}",
            saved_at=work.row.created_at,
            branch=work.header.git.branch if work.header.git is not None else "",
            commit=work.header.git.commit if work.header.git is not None else "",
            source=source,
        )

    def moment_brief(self, work: SavedWork, *, tokens: int = briefs.TOKENS) -> MomentBrief:
        """Return the brief of that moment: the checkpoint's own conversation, and the files as it has them.

        If it has no conversation, the newest one before it is used, and the brief says so.
        """
        repository = self.engine.repository()
        source = moment.source(repository, work.row, work.header)
        notes, seen_files, cwd = self._notes_of_moment(work, source)
        root = os.fsdecode(self.root)
        session = work.session or (source.header.session if source is not None else "")
        notes, seen_files, more = session_files.with_unnamed_files(
            repository, work.row, root, notes, seen_files, self.engine.settings, session
        )
        files = moment.files(self.engine, self.root, work.row, [*seen_files, *more], cwd)
        version = f"v{work.row.version}"
        since = f"v{source.row.version}" if source is not None and not notes.empty else ""
        sources = [f"conversation of {since}"] if since else []
        facts = self._facts(work, ", ".join([*sources, f"files of {version}"]))
        return MomentBrief(self._build(work.row, notes, files, facts, tokens), since)

    def _notes_of_moment(
        self, work: SavedWork, source: moment.ConversationSource | None
    ) -> tuple[Notes, list[WorkingFile], str]:
        """Return notes and files of that moment as the session knew them, and the path that the root had."""
        if source is not None:
            try:
                conversation = moment.read(self.engine.repository(), source.conversation, redacted)
            except KeepfastError:
                conversation = None
            inherited = _inherited(source.header)
            notes = extractor.take(conversation, inherited) if conversation is not None else Notes()
            if conversation is not None and not notes.empty:
                saved_notes = source.header.notes
                if saved_notes and (saved_notes.get("read_by") or not moment.is_whole(source.conversation)):
                    _prefer_saved(notes, Notes.from_json(saved_notes))
                root = source.conversation.root or conversation.cwd
                return _with_stated(notes, work), with_places(notes, conversation.files.newest_first(), inherited), root
        notes, files = self._saved_notes(work)
        return notes, files, notes.cwd

    def _notes_and_files_now(self, work: SavedWork, transcript: str, exact: bool) -> tuple[Notes, list[WorkingFile]]:
        root = os.fsdecode(self.root)
        places = [] if exact else self._sources(work, transcript)
        inherited = inheritance_of(self.folder, work.session) or _inherited(work.known)
        for source in [*places, None]:
            try:
                conversation = (
                    self._read(work, source) if source is not None else transcripts.read(self._saved_conversation(work))
                )
            except (OSError, KeepfastError):
                continue
            notes = extractor.take(conversation, inherited)
            if not notes.empty:
                join(notes, extract_of(self.folder, work.session))
                files = with_places(notes, conversation.files.newest_first(), inherited)
                return _with_stated(notes, work), disk.look(files, root, conversation.cwd)
        notes, files = self._saved_notes(work)
        return notes, disk.look(files, root, notes.cwd)

    def _saved_notes(self, work: SavedWork) -> tuple[Notes, list[WorkingFile]]:
        """Return the checkpoint's own notes, if no conversation can be read."""
        root = os.fsdecode(self.root)
        notes = Notes.from_json(work.known.notes)
        with_files(notes, _inherited(work.known))
        if not notes.cwd:
            notes.cwd = root
        if not notes.current_task:
            notes.current_task = work.summary if work.is_work or work.row.version > 1 else _first_state_task(work)
        file_notes = notes.files or [FileNote(f"{root}/{name}", False, 0) for name in work.known.active_files]
        files = [file.as_file(len(file_notes) - number) for number, file in enumerate(file_notes)]
        return _with_stated(notes, work), files

    def _read(self, work: SavedWork, source: str) -> Conversation:
        """Read a short transcript whole; of a long one the end, with the summary that checkpoints carried on."""
        saved_history = sessions.earlier(self.folder, work.session) if os.path.getsize(source) > TAIL_BYTES else {}
        if saved_history.get("transcript") == source:
            conversation = earlier.recent(
                source, Earlier.from_json(saved_history.get("earlier")), TAIL_BYTES + MAX_CARRIED_BYTES
            )
            if conversation is not None:
                return conversation
        return transcripts.read(source)

    def _sources(self, work: SavedWork, transcript: str) -> list[str]:
        """Return where the conversation may be found, best first."""
        places = [transcript, str(sessions.facts(self.folder, work.session).get("transcript") or "")]
        places.append(str(work.known.conversation.get("path") or ""))
        return [place for place in dict.fromkeys(places) if place and os.path.isfile(place)]

    def _saved_conversation(self, work: SavedWork) -> bytes:
        """Return the conversation that the checkpoint itself has; nothing if it has none."""
        conversation = conversations.conversation_from_json(work.known.conversation)
        if conversation is None or conversation.transcript.size > MAX_CONVERSATION_BYTES:
            return b""
        return b"".join(conversations.load_transcript(self.engine.repository(), conversation.transcript))

    # What changed

    def count_changes(self, row: CheckpointRow, language: str = "en") -> tuple[int, LineCount, list[str]]:
        """Return how many files the checkpoint changed against the one before, the lines it added, and the first names."""
        repository = self.engine.repository()
        previous = repository.find(Query(workspace=self.workspace, before=row.version, limit=1))
        files = added = uncounted = 0
        bytes_left = MAX_BYTES_COUNTED
        names: list[str] = []
        for change in between(repository, self.workspace, previous[0] if previous else None, row):
            if not _is_file(change):
                continue
            files += 1
            if files <= MAX_NAMED:
                names.append(f"  {change_word(change.kind, language)}: {_one_line(change.path)}")
            sizes = [entry.size for entry in (change.old, change.new) if entry]
            if max(sizes) < MAX_FILE_BYTES_COUNTED and bytes_left > 0 and files <= MAX_FILES_COUNTED:
                added += diff.compare(change.old_content(), change.new_content()).added
                bytes_left -= sum(sizes)
            else:
                uncounted += change.new is not None
        return files, LineCount(added, uncounted), names + _more(files, "  ", language)

    def unsaved_at(self, at: int) -> tuple[int, list[str]]:
        """Return the newest version at that time, and the files that differ from it now; the session that begins saves them."""
        rows = self.engine.repository().find(Query(workspace=self.workspace, created_until=at, limit=1))
        row = self.engine.repository().workspace(self.workspace)
        changes: list[Change] = []
        for _ in range(MAX_ATTEMPTS if rows else 0):
            if row is None:
                break
            changes = compare(self.engine, self.root, row, rows[0], None)
            before, row = row.version, self.engine.repository().workspace(self.workspace)
            if row is None or row.version == before:
                break  # else this start's worker has just saved: compare with its version
        return rows[0].version if rows else 0, [_one_line(change.path) for change in changes if _is_file(change)]

    def changed_since(self, language: str = "en") -> str:
        """Return what differs on disk from the newest checkpoint, in a few lines; empty if nothing does."""
        row = self.engine.repository().workspace(self.workspace)
        if row is None or not row.version:
            return ""
        changes, _ = pending(self.engine, self.root, row)
        names = [f"{change_word(change.kind, language)}: {_one_line(change.path)}" for change in changes[:MAX_NAMED]]
        return "\n".join(names + _more(len(changes), "", language))


def _newest(by_hand: list[SavedWork], latest_work: SavedWork | None = None) -> SavedWork:
    """Return the newest save outside of sessions, with the task it continues: that of a manual save, or of the work before."""
    newest = by_hand[0]._replace(work_header=latest_work.header) if latest_work is not None else by_hand[0]
    summaries = [manual.summary for manual in by_hand if not manual.lacks_words]
    task = summaries[0] if summaries else latest_work.summary if latest_work is not None else ""
    return newest.with_task(task) if newest.lacks_words and task else newest


def _is_file(change: Change) -> bool:
    entry = change.new or change.old
    return entry is not None and entry.kind != FOLDER


def _more(count: int, before: str, language: str) -> list[str]:
    """Return a line with the number of files that are not named, if any."""
    return [before + text("more", language, count=count - MAX_NAMED)] if count > MAX_NAMED else []


def notes_of(path: str, extract: Extract | None = None, folder: str = "", session: str = "") -> Notes | None:
    """Return the notes of a transcript, for a checkpoint; None if there is nothing to read."""
    conversation = conversation_of(path, folder, session)
    before = inheritance_of(folder, session)
    notes = extractor.take(conversation, before) if conversation is not None else Notes()
    return None if notes.empty else join(notes, extract)


def extract_of(folder: str, session: str) -> Extract | None:
    """Return what a model read in the session, if one was asked."""
    return Extract.from_json(sessions.extract(folder, session).get("extract")) if session else None


def inheritance_of(folder: str, session: str) -> Inheritance | None:
    """Return the work that the session was resumed from, if any."""
    return Inheritance.from_json(sessions.inherited(folder, session)) if session else None


def _inherited(header: Header) -> Inheritance | None:
    """Return the work that the checkpoint's session was resumed from, if any."""
    return Inheritance.from_json(header.notes.get("inherited"))


def conversation_of(path: str, folder: str = "", session: str = "") -> Conversation | None:
    """Return the end of the transcript as a conversation, with a summary of its beginning; None if there is nothing to read.

    The summary is carried on in the workspace's folder, by session; without both only the end is known.
    """
    if not os.path.isfile(path):
        return None  # opening a pipe could block forever
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            start, history = max(0, size - TAIL_BYTES), Earlier()
            if start and folder and session:
                history = _carry_on(file, path, folder, session, start)
                if start - history.offset < MAX_CARRIED_BYTES:
                    start = history.offset  # leaves no gap between summary and end
            file.seek(start)
            data = file.read(size - start)
    except OSError:
        return None
    if start and start != history.offset:
        data = data[data.find(b"\n") + 1 :]
    conversation = transcripts.read(data)
    conversation.earlier = history.turns
    return conversation


def _carry_on(file: BinaryIO, path: str, folder: str, session: str, until: int) -> Earlier:
    """Return the summary of everything before `until`, as far as it is read; advance it and store it for the next time."""
    saved = sessions.earlier(folder, session)
    history = Earlier.from_json(saved.get("earlier")) if saved.get("transcript") == path else Earlier()
    if history.offset > until or not history.belongs(file):
        history = Earlier()
    advanced = earlier.advance(history, file, until, MAX_CARRIED_BYTES, redacted)
    if advanced is not history:
        try:
            sessions.keep_earlier(folder, session, transcript=path, earlier=advanced.to_json())
        except OSError:
            pass  # it is read again at the next checkpoint
    return advanced


def redacted(value: Any) -> Any:
    """Return the same JSON value with every secret in its texts redacted."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [redacted(item) for item in value]
    return {key: redacted(item) for key, item in value.items()} if isinstance(value, dict) else value


def _prefer_saved(notes: Notes, saved: Notes) -> None:
    """Prefer the checkpoint's notes to those of a part of its conversation, or those that a model did not read again."""
    notes.current_task = saved.current_task or notes.current_task
    notes.next_steps = saved.next_steps or notes.next_steps
    notes.decisions = saved.decisions or notes.decisions
    notes.blockers = saved.blockers
    notes.tasks = saved.tasks or notes.tasks
    notes.last_run = saved.last_run or notes.last_run
    notes.read_by = saved.read_by


def _with_stated(notes: Notes, work: SavedWork) -> Notes:
    """Prefer what the agent itself stated with the checkpoint to what is inferred."""
    saved = work.known.notes.get("stated")
    saved = saved if isinstance(saved, dict) else {}
    stated = {key: [str(item) for item in saved.get(key) or []] for key in ("decisions", "next_steps", "blockers")}
    if stated["next_steps"]:
        notes.next_steps = stated["next_steps"]
    notes.decisions = list(dict.fromkeys([*stated["decisions"], *notes.decisions]))
    notes.blockers = stated["blockers"] or notes.blockers
    notes.current_task = str(saved.get("current_task") or "") or notes.current_task
    return notes


def _one_line(path: bytes) -> str:
    """Return a path as one line for people."""
    return clean(show(path)).replace("\n", " ")
