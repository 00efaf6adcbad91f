"""The way of a resume: which checkpoint, what its session knew, what the disk has now, told within a budget."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from keepfast.agents import transcript as transcripts
from keepfast.agents.working_file import WorkingFile
from keepfast.app import moment, session_files
from keepfast.app.inspect import between, compare, pending
from keepfast.app.known_secrets import KnownSecrets
from keepfast.app.messages import change as said
from keepfast.app.messages import text
from keepfast.model.document import Header
from keepfast.model.entry import FOLDER
from keepfast.model.errors import Damaged, KeepfastError
from keepfast.model.event import BY_THEMSELVES
from keepfast.resume import brief as briefs
from keepfast.resume import disk_files as disk
from keepfast.resume import extractor as taking
from keepfast.resume import history as earlier
from keepfast.resume.history import Earlier
from keepfast.resume.inheritance import Inheritance, with_files, with_places
from keepfast.resume.model_answer import Extract, join
from keepfast.resume.notes import BETWEEN, FileNote, Notes, shortened
from keepfast.resume.quotation import clean
from keepfast.secrets.redaction import redact
from keepfast.state import sessions
from keepfast.store import conversations
from keepfast.store.rows import Query
from keepfast.workspace import diff
from keepfast.workspace.marker import show

if TYPE_CHECKING:
    from keepfast.agents.transcript import Conversation
    from keepfast.app.checkpoint import Engine
    from keepfast.app.inspect import Change
    from keepfast.resume.brief import Brief
    from keepfast.store.rows import CheckpointRow

MOST_COUNTED, LARGEST, MOST_NAMED = 2_000, 8 << 20, 12
"""Files, and their bytes, whose lines are counted after a clear, and how many are named: somebody waits."""
MOST_WORK = 64
"""How far back a checkpoint is looked for that says what was worked on."""
LARGEST_COUNTED = 1 << 20
ATTEMPTS = 3
LARGEST_KEPT = 256 << 20
TAIL = 8 << 20
"""How much of a transcript's end is read for a checkpoint's notes; what tells of the rest is carried on from one to the next."""
CARRIED = 16 << 20
"""How much of the rest one checkpoint reads at most: it may be waited for."""


class Told(NamedTuple):
    """What can be told of a checkpoint.

    `session` and `known` are of the work that it holds: of a save by hand, outside of any session, of the newest work before it.
    """

    row: CheckpointRow
    header: Header
    summary: str
    before: Header | None = None  # that work's header

    @property
    def session(self) -> str:
        return self.known.session

    @property
    def known(self) -> Header:
        """The header that tells of conversation, notes and files."""
        return self.header if self.before is None else self.before

    @property
    def is_unworded(self) -> bool:
        """Was it made by itself and outside of any session, so that it says what changed, and not what for?"""
        is_known = self.header.session or self.header.notes
        is_worded = self.row.message != self.row.trigger and self.row.trigger != "watch"
        return self.row.trigger in BY_THEMSELVES and not is_known and not is_worded

    def behind(self, task: str) -> Told:
        """The same, with the task that it goes on with before what it changed."""
        return self._replace(summary=shortened(f"{task}{BETWEEN}{self.summary}"))

    @property
    def is_work(self) -> bool:
        """Does it say what was worked on, or was it asked for? A baseline and what changed outside of sessions do not."""
        if self.is_unworded and self.row.version == 1:
            return False
        notes = self.header.notes
        analysis = notes.get("analysis")
        return bool(
            self.header.summary
            or notes.get("stated")
            or (isinstance(analysis, dict) and any(analysis.values()))
            or self.row.trigger == "manual"
        )


def _beginning(told: Told) -> str:
    """What there is to say of the state that a history begins with: nobody's work."""
    return f"No work yet: v{told.row.version} is the first state of this history."


class Lines(NamedTuple):
    """Lines that were added; `uncounted` is the number of files, large ones or after many, whose lines are not among them."""

    added: int
    uncounted: int


class Own(NamedTuple):
    """The brief of a moment; `conversation` is the version whose conversation it tells, empty if there was none."""

    brief: Brief
    conversation: str


class Resuming:
    """Briefs of one workspace, and of no other."""

    def __init__(self, engine: Engine, root: bytes, workspace: str) -> None:
        self.engine, self.root, self.workspace = engine, root, workspace
        self.folder = engine.place.folder(workspace)

    def newest(self) -> Told | None:
        """The newest checkpoint that says what was worked on, else the newest; None if there is none."""
        rows = self.engine.repository().find(Query(workspace=self.workspace, limit=1))
        return self.work() or (self.tell(rows[0]) if rows else None)

    def newest_of(self, session: str) -> Told | None:
        """The newest checkpoint of that session; None if it has none."""
        query = Query(workspace=self.workspace, session=session, limit=1)
        rows = self.engine.repository().find(query) if session else []
        return self.tell(rows[0]) if rows else None

    def work(self, session: str = "", but: str = "") -> Told | None:
        """The newest checkpoint that says what was worked on, of that session if it has one; None if there is none.

        `but`: a session that has only begun. A save by hand, or by itself, after the last session holds that session's work.
        """
        by_hand: list[Told] = []  # and those that were made by themselves
        for name in [session, ""] if session else [""]:
            late, others = self._worked_on(name, but)
            by_hand += others
            if late:
                told = max(late, key=self.worked_at)
                return _newest(by_hand, told) if by_hand else told
        return _newest(by_hand) if by_hand else None

    def _worked_on(self, session: str, but: str) -> tuple[list[Told], list[Told]]:
        """Checkpoints that hold work, newest first, to the last that a session ended with; and those outside of sessions.

        There are several of sessions where some have crashed: what such a session left was kept after others may have ended.
        """
        late, by_hand = list[Told](), list[Told]()
        for row in self.engine.repository().find(Query(workspace=self.workspace, session=session, limit=MOST_WORK)):
            if but and row.session == but:
                continue
            told = self.tell(row)
            if not told.is_work and not (told.header.conversation and not self._summarises):
                continue
            if not (told.session or told.header.notes):
                by_hand.append(told)
                continue
            late.append(told)
            if row.trigger != sessions.CUT_OFF or session:
                break
        return late, by_hand

    def worked_at(self, told: Told) -> int:
        """When the work that the checkpoint holds was last gone on with, as far as that is known."""
        heard = (
            sessions.last_activity(sessions.facts(self.folder, told.session))
            if told.row.trigger == sessions.CUT_OFF
            else 0
        )
        return min(heard or told.row.created_at, told.row.created_at)

    @property
    def _summarises(self) -> bool:
        return bool(self.engine.settings["checkpoint.auto_summary_enabled"])

    def tell(self, row: CheckpointRow) -> Told:
        try:
            header = self.engine.repository().document(row)[0]
        except Damaged:
            header = Header({})
        said = row.message if row.message != row.trigger else ""
        summary = header.summary or said or f"v{row.version}"
        return Told(row, header, redact(clean(summary.split("\n")[0]))[:80])

    def brief(self, told: Told, *, tokens: int = briefs.TOKENS, transcript: str = "", exact: bool = False) -> Brief:
        """Everything that lets an agent go on from there: the conversation if it can be read, else the notes kept with it.

        `exact`: the conversation as the checkpoint has it, not as it may have gone on since.
        """
        notes, files = self.settled(told, transcript, exact)
        return self.written(told, notes, files, tokens)

    def settled(self, told: Told, transcript: str = "", exact: bool = False) -> tuple[Notes, list[WorkingFile]]:
        """What a brief of that checkpoint tells, as values."""
        notes, files = self._known(told, transcript, exact)
        repository, settings = self.engine.repository(), self.engine.settings
        root = os.fsdecode(self.root)
        return session_files.settled(repository, told.row, root, notes, files, settings, told.session)

    def written(self, told: Told, notes: Notes, files: list[WorkingFile], tokens: int = briefs.TOKENS) -> Brief:
        """The same as a text."""
        return self._build(told.row, notes, files, self._facts(told), tokens)

    def _build(
        self, row: CheckpointRow, notes: Notes, files: list[WorkingFile], facts: briefs.Facts, tokens: int
    ) -> Brief:
        repository, root = self.engine.repository(), os.fsdecode(self.root)
        files = session_files.without_sealed(files, root, notes.cwd, repository, row)
        secrets = KnownSecrets(repository, self.workspace)
        return briefs.build(notes, files, facts=facts, now=self.engine.clock(), tokens=tokens, redact=secrets.strike)

    def _facts(self, told: Told, source: str = "") -> briefs.Facts:
        return briefs.Facts(
            summary=told.summary if told.is_work else "",  # then the conversation says it better
            checkpoint=told.row.id,
            version=f"v{told.row.version}",
            saved_at=told.row.created_at,
            branch=told.header.git.branch if told.header.git is not None else "",
            commit=told.header.git.commit if told.header.git is not None else "",
            source=source,
        )

    def own(self, told: Told, *, tokens: int = briefs.TOKENS) -> Own:
        """The brief of that moment: the checkpoint's own conversation, and the files as it holds them.

        Without a conversation of its own it is told with the newest one before it, and says so.
        """
        repository = self.engine.repository()
        source = moment.source(repository, told.row, told.header)
        notes, known, cwd = self._then(told, source)
        root = os.fsdecode(self.root)
        session = told.session or (source.header.session if source is not None else "")
        notes, known, more = session_files.gathered(
            repository, told.row, root, notes, known, self.engine.settings, session
        )
        files = moment.files(self.engine, self.root, told.row, [*known, *more], cwd)
        version = f"v{told.row.version}"
        since = f"v{source.row.version}" if source is not None and not notes.empty else ""
        said = [f"conversation of {since}"] if since else []
        facts = self._facts(told, ", ".join([*said, f"files of {version}"]))
        return Own(self._build(told.row, notes, files, facts, tokens), since)

    def _then(self, told: Told, source: moment.Source | None) -> tuple[Notes, list[WorkingFile], str]:
        """Notes and files of that moment, the files as the session knew them, and the root as it was called."""
        if source is not None:
            try:
                conversation = moment.read(self.engine.repository(), source.conversation, struck)
            except KeepfastError:
                conversation = None
            before = _inherited(source.header)
            notes = taking.take(conversation, before) if conversation is not None else Notes()
            if conversation is not None and not notes.empty:
                kept = source.header.notes
                if kept and (kept.get("read_by") or not moment.is_whole(source.conversation)):
                    _take_over(notes, Notes.from_json(kept))
                root = source.conversation.root or conversation.cwd
                return _stated(notes, told), with_places(notes, conversation.files.newest_first(), before), root
        notes, known = self._noted(told)
        return notes, known, notes.cwd

    def _known(self, told: Told, transcript: str, exact: bool) -> tuple[Notes, list[WorkingFile]]:
        root = os.fsdecode(self.root)
        places = [] if exact else self._sources(told, transcript)
        before = inheritance_of(self.folder, told.session) or _inherited(told.known)
        for source in [*places, None]:
            try:
                conversation = self._read(told, source) if source is not None else transcripts.read(self._kept(told))
            except (OSError, KeepfastError):
                continue
            notes = taking.take(conversation, before)
            if not notes.empty:
                join(notes, extract_of(self.folder, told.session))
                files = with_places(notes, conversation.files.newest_first(), before)
                return _stated(notes, told), disk.look(files, root, conversation.cwd)
        notes, known = self._noted(told)
        return notes, disk.look(known, root, notes.cwd)

    def _noted(self, told: Told) -> tuple[Notes, list[WorkingFile]]:
        """What the checkpoint's own notes say, where there is no conversation to be read."""
        root = os.fsdecode(self.root)
        notes = Notes.from_json(told.known.notes)
        with_files(notes, _inherited(told.known))
        if not notes.cwd:
            notes.cwd = root
        if not notes.current_task:
            notes.current_task = told.summary if told.is_work or told.row.version > 1 else _beginning(told)
        noted = notes.files or [FileNote(f"{root}/{name}", False, 0) for name in told.known.active_files]
        known = [file.as_file(len(noted) - number) for number, file in enumerate(noted)]
        return _stated(notes, told), known

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
        places = [transcript, str(sessions.facts(self.folder, told.session).get("transcript") or "")]
        places.append(str(told.known.conversation.get("path") or ""))
        return [place for place in dict.fromkeys(places) if place and os.path.isfile(place)]

    def _kept(self, told: Told) -> bytes:
        """The conversation as the checkpoint itself has it; nothing if it has none."""
        kept = conversations.conversation_from_json(told.known.conversation)
        if kept is None or kept.transcript.size > LARGEST_KEPT:
            return b""
        return b"".join(conversations.load_transcript(self.engine.repository(), kept.transcript))

    # What changed

    def counted(self, row: CheckpointRow, language: str = "en") -> tuple[int, Lines, list[str]]:
        """Files that the checkpoint changed against the one before it, lines that it added, and the first files' names."""
        repository = self.engine.repository()
        before = repository.find(Query(workspace=self.workspace, before=row.version, limit=1))
        files = added = uncounted = 0
        left = LARGEST
        names: list[str] = []
        for change in between(repository, self.workspace, before[0] if before else None, row):
            if not _is_file(change):
                continue
            files += 1
            if files <= MOST_NAMED:
                names.append(f"  {said(change.kind, language)}: {_shown(change.path)}")
            sizes = [entry.size for entry in (change.old, change.new) if entry]
            if max(sizes) < LARGEST_COUNTED and left > 0 and files <= MOST_COUNTED:
                added += diff.compare(change.old_content(), change.new_content()).added
                left -= sum(sizes)
            else:
                uncounted += change.new is not None
        return files, Lines(added, uncounted), names + _more(files, "  ", language)

    def unsaved_at(self, at: int) -> tuple[int, list[str]]:
        """The version that was the newest then, and the files that differ from it now: the session that begins saves them."""
        rows = self.engine.repository().find(Query(workspace=self.workspace, created_until=at, limit=1))
        row = self.engine.repository().workspace(self.workspace)
        changes: list[Change] = []
        for _ in range(ATTEMPTS if rows else 0):
            if row is None:
                break
            changes = compare(self.engine, self.root, row, rows[0], None)
            before, row = row.version, self.engine.repository().workspace(self.workspace)
            if row is None or row.version == before:
                break  # else the worker of this very start was faster: what is on disk is compared with its version
        return rows[0].version if rows else 0, [_shown(one.path) for one in changes if _is_file(one)]

    def changed_since(self, language: str = "en") -> str:
        """What is different on disk from the newest checkpoint, in a few lines; empty if nothing is."""
        row = self.engine.repository().workspace(self.workspace)
        if row is None or not row.version:
            return ""
        changes, _ = pending(self.engine, self.root, row)
        names = [f"{said(change.kind, language)}: {_shown(change.path)}" for change in changes[:MOST_NAMED]]
        return "\n".join(names + _more(len(changes), "", language))


def _newest(by_hand: list[Told], work: Told | None = None) -> Told:
    """The newest save outside of sessions, with the task that it goes on with: worded by hand, or that of the work before."""
    told = by_hand[0]._replace(before=work.header) if work is not None else by_hand[0]
    worded = [one.summary for one in by_hand if not one.is_unworded]
    task = worded[0] if worded else work.summary if work is not None else ""
    return told.behind(task) if told.is_unworded and task else told


def _is_file(change: Change) -> bool:
    entry = change.new or change.old
    return entry is not None and entry.kind != FOLDER


def _more(count: int, before: str, language: str) -> list[str]:
    """How many are not named, if any."""
    return [before + text("more", language, count=count - MOST_NAMED)] if count > MOST_NAMED else []


def notes_of(path: str, extract: Extract | None = None, folder: str = "", session: str = "") -> Notes | None:
    """The notes of the transcript, for a checkpoint; None if there is nothing to read."""
    conversation = conversation_of(path, folder, session)
    before = inheritance_of(folder, session)
    notes = taking.take(conversation, before) if conversation is not None else Notes()
    return None if notes.empty else join(notes, extract)


def extract_of(folder: str, session: str) -> Extract | None:
    """What a model read in the session, if one was asked."""
    return Extract.from_json(sessions.extract(folder, session).get("extract")) if session else None


def inheritance_of(folder: str, session: str) -> Inheritance | None:
    """The work that the session was resumed from, if there was any."""
    return Inheritance.from_json(sessions.inherited(folder, session)) if session else None


def _inherited(header: Header) -> Inheritance | None:
    """The same, as the checkpoint itself has it."""
    return Inheritance.from_json(header.notes.get("inherited"))


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


def _take_over(notes: Notes, kept: Notes) -> None:
    """What was noted at the checkpoint comes before what a part of its conversation tells, or a model did not read again."""
    notes.current_task = kept.current_task or notes.current_task
    notes.next_steps = kept.next_steps or notes.next_steps
    notes.decisions = kept.decisions or notes.decisions
    notes.blockers = kept.blockers
    notes.tasks = kept.tasks or notes.tasks
    notes.last_run = kept.last_run or notes.last_run
    notes.read_by = kept.read_by


def _stated(notes: Notes, told: Told) -> Notes:
    """What the agent itself stated with the checkpoint comes before what is inferred."""
    said = told.known.notes.get("stated")
    said = said if isinstance(said, dict) else {}
    stated = {key: [str(one) for one in said.get(key) or []] for key in ("decisions", "next_steps", "blockers")}
    if stated["next_steps"]:
        notes.next_steps = stated["next_steps"]
    notes.decisions = list(dict.fromkeys([*stated["decisions"], *notes.decisions]))
    notes.blockers = stated["blockers"] or notes.blockers
    notes.current_task = str(said.get("current_task") or "") or notes.current_task
    return notes


def _shown(path: bytes) -> str:
    """A name as one line that a person sees whole."""
    return clean(show(path)).replace("\n", " ")
