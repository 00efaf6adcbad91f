"""Answer one event of an agent: save at once while the client waits, or leave a pending event to the worker."""

from __future__ import annotations

from keepfast.agents.base import Reply
from keepfast.model.agent_event import (
    COMPACTION_STARTS,
    OTHER,
    PROMPT,
    SESSION_ENDS,
    SESSION_STARTS,
    TOOL_ENDED,
    TOOL_STARTS,
    TURN_ENDED,
)
from keepfast.model.errors import Elsewhere, KeepfastError, Refused, TooMany, sentence
from keepfast.model.policy import BUDGET_REST, Ask, Skip, State, decide, failed_trigger_time, rest_period
from keepfast.settings.ownership import HERE, LOST, find
from keepfast.state import pending_events as pending
from keepfast.state import sessions
from keepfast.state.names import UNSAVED
from keepfast.workspace.marker import marker, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from keepfast.app.checkpoint import Engine
    from keepfast.app.checkpoint_save import ReadAhead
    from keepfast.app.threat import Losses
    from keepfast.model.agent_event import AgentEvent
    from keepfast.model.budget import Band, TokenUsage
    from keepfast.model.policy import Decision
    from keepfast.settings import Settings
    from keepfast.shell.destruction import Threat
    from keepfast.state.pending_events import PendingEvent
    from keepfast.store.place import Place
    from keepfast.store.rows import CheckpointRow

    class Background(Protocol):
        """How work is done by another process; see `present/background.py`, and `hook/resident.py` for the resident."""

        def leave_to_process(self, why: str) -> None:
            """Raise `Declined` in the resident, which does only what is quick. What was done before is done again."""

        def detach(self, work: Callable[[], object], at: int = 0) -> None:
            """Do the work that an event left; `at`: when the event was recorded."""

        def attempt(self, work: Callable[[], bytes], seconds: float) -> bytes | None: ...
        def tidy(self, folder: bytes) -> None: ...
        def pause(self, seconds: float) -> None: ...

    Deliver = Callable[[Engine, bytes, str, AgentEvent, int], Reply]
    """Engine, root, workspace, the start of a session and the number of the brief's part → the reply to the client."""

PENDING_WAIT_SECONDS, PENDING_POLL_SECONDS = 2.0, 0.005
"""How long a tool that may write waits for a pending checkpoint, and how often the hook checks."""
DEADLINE_MARGIN_SECONDS = 0.1
"""In this time before the deadline the saving process notes its own failure: the waiting process may have given up."""
TRANSCRIPT_POLLS, TRANSCRIPT_POLL_SECONDS, MIN_SEARCH_BYTES, TRANSCRIPT_TAIL_BYTES = 25, 0.02, 4, 64 << 10
MINUTE, DAY = 60_000_000_000, 86_400_000_000_000
MAX_ENTRIES_TO_ADOPT = 20_000
"""A folder with more entries is not adopted while the client waits."""
NAME_COUNT_SECONDS_AT_START, NAME_COUNT_SECONDS_AT_TURN_END = 1.0, 10.0
"""For how long a folder's names are counted at the start of a session or before a command, and at the end of a turn."""
CONTINUING_REASONS = ("resume", "compact")
"""Reasons of a session's start that continue a session: its user has seen the warnings already."""
MAX_COMMAND_CHARS, MAX_LISTED = 1000, 5
MAX_SCRIPT_BYTES = 64 << 10
"""A longer script is not searched for destructive commands."""
LARGE_CACHE_BYTES, MAX_NAMED_PATHS = 2 << 20, 5000
"""With a larger stat cache (about 100 bytes a file) the paths that a command names are saved before the rest; at most so many."""


class SaveResult:
    """What became of a save that the client waits for. The saving process passes it on as JSON."""

    def __init__(self, status: str, id: str = "", version: int = 0, why: str = "") -> None:
        self.status, self.id, self.version, self.why = status, id, version, why
        """`status`: that of the outcome, or `found` or `none`, `failed` for the reason `why`, or `late`."""
        self.trigger = self.summary = ""
        """Of the newest checkpoint, where that was asked for."""
        self.is_covered = False
        """If late: is everything saved but what the rules exclude?"""
        self.is_torn = False
        """If failed: because files of our own are missing?"""
        self.unnamed = ""
        """Why files that the command does not name could not be saved."""
        self.unsaved: list[tuple[str, str]] = []
        """Paths that the command may destroy for good, each with the reason."""
        self.recreatable: list[tuple[str, str | None]] = []
        """Paths that a tool can recreate, each with its command, as in `Losses.recreatable`."""

    def add(self, losses: Losses) -> None:
        """Take over what a command destroys; paths that are listed already stay as they are."""
        listed = {path for path, _ in self.unsaved}
        self.unsaved += [(show(path), why) for path, why in losses.unsaved if show(path) not in listed]
        self.recreatable += [(show(path), command) for path, command in losses.recreatable]

    def to_json(self) -> dict[str, object]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, value: object) -> SaveResult:
        """Return the result that another process passed on; a failure if it did not come to that."""
        if not isinstance(value, dict):
            return cls("failed", why="the saving process was terminated")
        result = cls("")
        vars(result).update(value)
        return result


class HookCall:
    """One call of the hook: an event of an agent, and the reply to its client.

    A client that limits the size of a reply calls the hook once per part of the resume brief, from 1 on. Part 0 is the guard:
    it saves before destructive commands and does nothing else.
    """

    def __init__(
        self,
        place: Place,
        settings: Settings,
        make: Callable[[], Engine],
        clock: Callable[[], int],
        background: Background,
        event: AgentEvent,
        language: Callable[[], str] = lambda: "en",
        part: int = 1,
        deliver: Deliver | None = None,
        event_id: str = "",
        saves_tool_calls: bool = False,
        program: Callable[[], str] = lambda: "keepfast",
    ) -> None:
        """`event_id` is the same for every attempt to handle one event."""
        self.place, self.settings, self.clock, self.background, self.event = place, settings, clock, background, event
        self._make = make
        self._engine: Engine | None = None
        self._language, self.part, self.deliver, self.event_id = language, part, deliver, event_id
        self.saves_tool_calls, self.program = saves_tool_calls, program
        self.root, self.workspace, self.folder = b"", "", ""
        self._at = 0
        """When the event was recorded."""
        self._refused = self._moved = ""
        """Messages to the user: why the folder is not protected; that it was moved or is a copy."""

    @property
    def engine(self) -> Engine:
        """Return the engine, built at first use: most tool calls need none."""
        if self._engine is None:
            self._engine = self._make()
        return self._engine

    def answer(self) -> Reply:
        """Return the reply to the client. Raises a `KeepfastError` or `OSError` where a checkpoint was due and failed."""
        reply = self._answer_event()
        return Reply(user_text=self._moved).beside(reply) if self._moved else reply

    def _answer_event(self) -> Reply:
        kind = self.event.kind
        if kind == OTHER or (not self.part and kind != TOOL_STARTS):
            return Reply()
        if kind in (SESSION_STARTS, COMPACTION_STARTS):
            self.background.leave_to_process("it takes long")
        try:
            if not self._locate():
                return Reply(user_text=self._refused)
        except (KeepfastError, OSError) as error:
            reply = self._reply_without_store(error)
            if reply is None:
                raise
            return reply
        if kind == TOOL_ENDED:
            return self._tool_ended()
        if kind == TOOL_STARTS:
            return self._tool_starts()
        if kind == COMPACTION_STARTS:
            return self._compaction_starts()
        if self.part == 1:
            if not _file_size(self.folder + "/cache"):
                self.background.leave_to_process("nothing was saved here yet")
            if kind in (TURN_ENDED, SESSION_ENDS):
                self._keep_unanswered()
            self._queue_checkpoint()
        if kind == SESSION_STARTS:
            return self._session_starts()
        if kind != TURN_ENDED or self.part != 1:
            return Reply()
        failed = self._broken_settings_warning() or self._failed_save_warning() or self._never_saved_warning()
        return Reply(failed=failed or self._other_store_warning().removeprefix("keepfast: "))

    def _reply_without_store(self, error: KeepfastError | OSError) -> Reply | None:
        """Return the reply where the store is out of reach; None where that is an error.

        The user must hear before a destructive command, not after it, that nothing could be saved.
        """
        if self.event.kind == SESSION_STARTS and self.part != 1:
            return Reply()  # the first part reports it
        if self.event.kind != TOOL_STARTS or not self.root:
            return None
        why = str(self.explained(error))
        threat = self._threat()
        if threat is None or not threat.is_certain:
            self._note_missed_band(why)
            return None
        return self._unsaved_reply(why.rstrip("."), self.settings["hooks.before_command"] == "ask")

    def _session_starts(self) -> Reply:
        reply = Reply()
        if self.part == 1:
            why = self._failed_save_warning()
            lines = (
                self._obstacle_warning(),
                self._other_store_warning(),
                self._settings_warnings(),
                why and f"keepfast: {why}",
            )
            reply.user_text = "\n".join([text for text in lines if text])
        if self.deliver is None:
            return reply
        return reply.beside(self.deliver(self.engine, self.root, self.workspace, self.event, self.part))

    @property
    def trigger(self) -> str:
        """Return the trigger of this event's checkpoint; the kind of the event if it makes none."""
        return decide(self.event, State(self.clock(), {}), self.settings).trigger or self.event.kind

    def explained(self, error: KeepfastError | OSError) -> KeepfastError:
        """Return the error as a sentence with a hint, worded as by `keepfast save`."""
        if isinstance(error, KeepfastError):
            return error
        from keepfast.fsutil.durable import explain

        return explain(error, "Saving", self.place.path)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()

    def _locate(self) -> bool:
        """Find the event's workspace, or adopt its folder; return False if the folder is not protected."""
        event = self.event
        nearest, location = find(event.cwd, self.place.path, self.place.list), None
        if nearest is not None and nearest[2] in (HERE, LOST):
            location = nearest[:2]
        elif nearest is not None or event.kind not in (TOOL_STARTS, TOOL_ENDED):
            self.background.leave_to_process("the folder is not a workspace yet")
            try:
                location = self.engine.workspaces.find_workspace(event.cwd, adopting=True)
            except Elsewhere as error:
                location = self._protect_separately(error)
            if self.engine.workspaces.renewed and location is not None:
                self._report_moved(*location, self._text("renewed", folder=show(self.engine.workspaces.renewed)))
            if location is None and event.kind not in (TOOL_STARTS, TOOL_ENDED):
                location = self._adopt()
        if location is None:
            return False
        self.root, self.workspace = location
        self.folder = self.place.folder(self.workspace)
        self.place.id()  # raises if the store is missing or another one, before anything is written to it
        self.place.check_folders()
        return True

    def _protect_separately(self, error: Elsewhere) -> tuple[bytes, str]:
        """Give a folder that is a copy or was moved a history of its own at once; the user decides later about the old one."""
        location = self.engine.workspaces.protect_separately(error)
        if not error.copied:
            self._report_moved(*location, self._text("moved", why=str(error)))
        return location

    def _report_moved(self, root: bytes, workspace: str, text: str) -> None:
        """Tell the user once, by whichever of the hooks that the client starts together comes first."""
        if sessions.claim(self.place.folder(workspace), self.event.session, "moved", self.clock(), MINUTE):
            self._moved = text
            self.engine.workspaces.note(root, "noticed", self.trigger, text, reported=True)

    def _adopt(self) -> tuple[bytes, str] | None:
        """Protect the session's folder from now on. Of the hooks that a session's start calls only part 1 does so."""
        event = self.event
        is_start = event.kind == SESSION_STARTS
        if self.part != 1:
            return None
        try:
            # After a prompt, tools would wait for the first scan of a large folder: that scan starts at the end of the turn.
            is_unhurried = event.kind in (SESSION_STARTS, TURN_ENDED, SESSION_ENDS)
            return self.engine.workspaces.adopt(event.cwd, event.project, 0 if is_unhurried else MAX_ENTRIES_TO_ADOPT)
        except Refused as refused:
            if is_start and event.reason not in CONTINUING_REASONS:
                self._refused = self._text("not_protected", why=f"{refused} {refused.hint}")
            return None

    def _settings_warnings(self) -> str:
        """Return all warnings about the settings, once a session."""
        warnings = self.settings.warnings
        if not warnings or not self._claim_report("settings"):
            return ""
        if self.settings.broken:
            self._claim_report("broken settings")  # this report includes it
        return "\n".join([f"keepfast: {warning}" for warning in warnings])

    def _broken_settings_warning(self) -> str:
        """Return the warning that the settings file became unreadable during the session; the last good settings stay in force."""
        return self.settings.warnings[0] if self.settings.broken and self._claim_report("broken settings") else ""

    def _claim_report(self, topic: str) -> bool:
        """Return True for the first report of this topic in this session, and note that it was made."""
        return sessions.claim(self.folder, self.event.session, topic, self.clock(), DAY)

    def _obstacle_warning(self) -> str:
        """Return the warning that something else lies in the place of the folder's marker, once a session."""
        folder_marker = marker(self.root)
        if folder_marker is not None and folder_marker[0] == self.workspace:
            return ""  # the usual case
        from keepfast.workspace.marker import obstacle

        blocking_path = obstacle(self.root)
        if not blocking_path or not self._claim_report("obstacle"):
            return ""
        text = self._text("obstacle", path=show(blocking_path))
        self.engine.workspaces.note_once(self.root, "noticed", self.trigger, text)
        return text

    def _other_store_warning(self) -> str:
        """Return the warning that the marker names another store, once at the session's start and once at the end of a turn."""
        folder_marker = marker(self.root)
        if folder_marker is None or not folder_marker[1] or folder_marker[1:] == (self.place.path, self.place.expected):
            return ""  # the usual case
        store = self.engine.workspaces.other_store(self.root)
        if not store or not self._claim_report(f"other store {self.event.kind}"):
            return ""
        text = self._text("strange_store" if store == "?" else "other_store", store=store)
        self.engine.workspaces.note_once(self.root, "noticed", self.trigger, text)
        return text

    def _failed_save_warning(self) -> str:
        """Return why the last save of this folder failed, once at the session's start and once at the end of a turn."""
        from keepfast.state.notices import FailedSave, unsaved

        failure = unsaved(self.folder)
        if failure is None and not _file_size(self.folder + "/cache"):
            # Nothing was saved here yet, and the first save may still be running: tell now if it is bound to fail.
            at_start = self.event.kind == SESSION_STARTS
            reason = self._too_many(NAME_COUNT_SECONDS_AT_START if at_start else NAME_COUNT_SECONDS_AT_TURN_END)
            failure = FailedSave(0, TooMany.kind, reason) if reason else None
        if failure is None or not self._claim_report(f"unsaved {self.event.kind} {failure.kind}"):
            return ""
        return self._text("not_saved", why=failure.text)

    def _too_many(self, seconds: float) -> str:
        """Return why the folder has more files than a save takes; empty if it has not, or that is not known in time.

        A child process counts: finding out which names count takes many seconds in a large tree.
        """

        def count() -> bytes:
            try:
                self.engine.refuse_too_many(self.root, seconds)
            except TooMany as error:
                return f"{error} {error.hint}".encode("utf-8", "replace")
            return b""

        try:
            return (self.background.attempt(count, seconds) or b"").decode("utf-8", "replace")
        except OSError:
            return ""

    def _never_saved_warning(self) -> str:
        """Return why no save of this folder ever succeeded, where not even the failure could be recorded in the store."""
        if _file_size(self.folder + "/cache") or _file_size(self.folder + UNSAVED):
            return ""
        from keepfast.state.notices import read

        failures = [
            notice
            for notice in read(self.engine.workspaces.notice_folders(self.root, self.workspace))
            if notice.kind == "failed"
        ]
        if not failures or not sessions.claim(self.folder, self.event.session, "never saved", self.clock(), DAY):
            return ""
        return f"This folder is not protected: {failures[-1].text} Run `keepfast status` for details."

    # Left to the worker

    def _queue_checkpoint(self) -> None:
        """Record a pending event if a checkpoint is due, and start a worker."""
        event = self.event
        decision = self._decide("")
        if event.kind == SESSION_ENDS and event.reason == "clear":
            self._note_cleared("off" if isinstance(decision, Skip) else "", isinstance(decision, Ask))
        if isinstance(decision, Skip) or not self._claim(decision):
            return
        crashed = self._crashed_sessions() if event.kind == SESSION_STARTS else []
        pending_event = self._pending_event(decision.trigger)
        self._at = pending_event.at
        pending_event.id = self.event_id
        try:
            for new_event in (*crashed, pending_event):
                pending.append(self.folder, new_event)
        except OSError:
            self._shorten_rest(decision.trigger)
            raise
        self.background.detach(self._run_worker, self._at)

    def _keep_unanswered(self) -> None:
        """Keep the checkpoint that a clear asked about: the user went on working without an answer."""
        if self.event.client:
            sessions.close_question(self.folder, self.event.client)
        elif self.event.session:
            sessions.close_question_of(self.folder, self.event.session)

    def _note_cleared(self, status: str, ask: bool) -> None:
        """Record this clear, in place of an earlier one, for the session that begins next. The worker adds its result later."""
        event = self.event
        facts = {"session": event.session, "transcript": event.transcript, "at": self.clock()}
        sessions.note_cleared(self.folder, event.client or event.likely_client, **facts, status=status, ask=ask)

    def _crashed_sessions(self) -> list[PendingEvent]:
        """Return the pending events of sessions that crashed: they are saved before the new session begins."""
        event = self.event
        crashed = sessions.crashed_sessions(self.folder, event.session, event.client, event.reason in ("", "startup"))
        root = self.root.decode("utf-8", "surrogateescape")
        return [
            pending.PendingEvent(
                sessions.CUT_OFF,
                self.clock(),
                agent=facts["agent"] if isinstance(facts.get("agent"), str) else event.agent,
                cwd=root,
                **{key: facts[key] for key in ("session", "transcript", "model") if isinstance(facts.get(key), str)},
            )
            for facts in crashed
        ]

    def _run_worker(self) -> None:
        """Save what is pending, in the detached process. Every failure becomes a notice."""
        from keepfast.app.worker import save_pending

        try:
            if self.event.kind == TURN_ENDED:
                self._await_transcript()
            self._record_session()
            # A turn that ended meanwhile is saved here, too: only this event's own transcript was waited for.
            own = self.event.session if self.event.kind == TURN_ENDED else ""
            save_pending(self.engine, self.root, self.workspace, self.background.tidy, own)
            if self.settings["analysis.llm"] != "off" and self.event.kind in (TURN_ENDED, SESSION_ENDS):
                self._analyse_with_model()
        except Exception as error:
            self.engine.workspaces.note(self.root, "failed", self.trigger, sentence(error))

    def _analyse_with_model(self) -> None:
        """Ask the model for notes after the checkpoint, without its lock: a model takes its time."""
        from keepfast.app.model_notes import analyse

        event = self.event
        last = event.kind == SESSION_ENDS
        analyse(self.engine, self.root, self.folder, event.session, event.transcript, last=last)

    def _record_session(self) -> None:
        """Record the prompt and the answer, redacted: the worker that makes the checkpoint may be another process."""
        event = self.event
        texts = {"prompt": self._requested_task(), "said": _first_line(event.last_answer)}
        if any(texts.values()):
            from keepfast.secrets.redaction import redact

            texts = {key: redact(text) for key, text in texts.items()}
        facts: dict[str, str | int] = {"session": event.session, "transcript": event.transcript, "model": event.model}
        facts["prompted"] = self._at if event.prompt else 0
        facts["heard"] = self._at if event.prompt or event.last_answer else 0
        facts["client"], facts["agent"] = str(event.client) if event.client else "", event.agent
        facts["ended"] = (event.reason or "ended") if event.kind == SESSION_ENDS else ""
        try:
            if event.kind in (SESSION_STARTS, PROMPT):
                sessions.reopen(self.folder, event.session)
            sessions.remember(self.folder, event.session, **facts, **texts)
        except OSError as error:
            # The checkpoint is made without them.
            self.engine.workspaces.note(self.root, "failed", self.trigger, sentence(error))

    def _requested_task(self) -> str:
        """Return what the prompt asks for, joined with the request that a short prompt continues; empty without a prompt."""
        if not self.event.prompt:
            return ""
        from keepfast.agents.claude.transcript import spoken
        from keepfast.resume.task_name import follow

        before = sessions.facts(self.folder, self.event.session).get("prompt")
        before = before or sessions.inherited(self.folder, self.event.session).get("task")
        before = before if isinstance(before, str) else ""
        command, words = spoken(self.event.prompt)
        return follow(before, words) if words or before else command

    def _await_transcript(self) -> None:
        """Wait up to half a second for the turn's last words: the client may call the hook before it has written them."""
        longest = max(_first_line(self.event.last_answer).replace('"', "\\").split("\\"), key=len).encode(
            "utf-8", "ignore"
        )
        for _ in range(TRANSCRIPT_POLLS if len(longest) >= MIN_SEARCH_BYTES and self.event.transcript else 0):
            if longest in _end_of_transcript(self.event.transcript):
                return
            self.background.pause(TRANSCRIPT_POLL_SECONDS)

    def _pending_event(self, trigger: str) -> PendingEvent:
        """Return this event as a pending event with the given trigger."""
        event = self.event
        return pending.PendingEvent(
            trigger,
            self.clock(),
            event.session,
            event.agent,
            event.cwd.decode("utf-8", "surrogateescape"),
            event.transcript,
            event.client or event.likely_client,
            event.model,
            event.reason[:200],
            "yes" if event.prompt or event.last_answer else "",
        )

    # Done at once, while the client waits

    def _tool_starts(self) -> Reply:
        """Save before a destructive command, and where the conversation crossed a band of its token budget."""
        event, settings = self.event, self.settings
        if self.part:
            self._note_session()
        if event.writes:
            self._await_pending()
        usage, band = self._usage_and_band()
        threat = self._threat_to_unsaved() if event.command else None
        if self._is_tool_call_saved():
            from keepfast.app.tool_calls import save_before

            save_before(self.engine, self.root, self.folder, event, self.clock())
        if not event.command:
            threat = self._threat_of_writing()  # after that save, which is enough for a file that is not left out
        if not band and threat is None:
            return Reply()
        self.background.leave_to_process("a checkpoint is due at once")
        decision = self._decide(band, threat is not None)
        if isinstance(decision, Skip) or not self._claim(decision):
            return Reply()
        result = self._save_now(decision.trigger, threat)
        command_reply = Reply()
        if threat is not None and threat.is_certain:
            command_reply = self._command_reply(result, settings["hooks.before_command"] == "ask", threat)
        elif threat is not None:
            self._note_unsaved_paths(result, threat)
        if decision.trigger == "before_command":
            return command_reply
        assert usage is not None
        if result.status == "failed":
            if not self._claim_failure_report(decision.trigger):
                return command_reply
            self.engine.workspaces.note(self.root, "failed", decision.trigger, result.why, reported=True)
        return self._budget_reply(usage, decision.trigger, result).beside(command_reply)

    def _tool_ended(self) -> Reply:
        """Record which files the tool named, and save what it changed."""
        event = self.event
        if self.event.paths:
            sessions.touch(self.folder, event.session, event.paths)
        if self._is_tool_call_saved():
            from keepfast.app.tool_calls import save_after

            row = save_after(self.engine, self.root, self.folder, event, self.clock())
            if row is not None and event.command:
                return Reply(agent_text=self._command_report(row))
        return Reply()

    def _command_report(self, row: CheckpointRow) -> str:
        """Return what the command did beyond what it named; empty if nothing."""
        from keepfast.app.command_report import report

        event, setting = self.event, self.settings["report.commands"]
        repository = self.engine.repository()
        return report(repository, row, self.root, event.command, event.cwd, self.program(), setting)

    def _is_tool_call_saved(self) -> bool:
        """Return whether this is a tool call that makes a checkpoint. The first save of a folder is left to the worker."""
        event = self.event
        return bool(
            self.saves_tool_calls
            and self.part == 1
            and event.writes
            and event.call
            and _file_size(self.folder + "/cache")
        )

    def _note_session(self) -> None:
        """Record a session that began before hooks were installed at its first tool call; its transcript has the rest."""
        event = self.event
        if not event.session or not event.transcript or event.subagent:
            return
        if sessions.facts(self.folder, event.session).get("session"):
            return
        facts = {"session": event.session, "transcript": event.transcript, "model": event.model, "agent": event.agent}
        try:
            client = str(event.client) if event.client else ""
            sessions.remember(self.folder, event.session, **facts, client=client)
        except OSError:
            pass  # the save that follows reports what is wrong

    def _usage_and_band(self) -> tuple[TokenUsage | None, str]:
        """Return the token usage of the main conversation and the trigger of the highest band it crossed; empty below all."""
        event, settings = self.event, self.settings
        if not event.transcript or event.subagent or not self.part:
            return None, ""
        from keepfast.agents.claude.usage import tokens
        from keepfast.model.budget import band

        budget_tokens, windows = settings["budget.tokens"], settings["budget.windows"]
        usage = tokens(self.folder, event.session, event.transcript, event.model, budget_tokens, windows)
        crossed = band(usage.percent, settings["hooks.checkpoint_threshold_percent"])
        return usage, crossed.trigger if crossed is not None else ""

    def _note_missed_band(self, why: str) -> None:
        """Note once in five minutes that a band was crossed and nothing could be saved: no checkpoint records it."""
        from keepfast.state.notices import read

        trigger, since = self._usage_and_band()[1], self.clock() - BUDGET_REST
        notices = read(self.engine.workspaces.notice_folders(self.root, self.workspace)) if trigger else []
        if trigger and not any(notice.trigger == trigger and notice.at > since for notice in notices):
            self.engine.workspaces.note(self.root, "failed", trigger, why)

    def save_queued(self, at: int) -> None:
        """Do what the worker does for this event, which was recorded at that time."""
        self._at = at
        if self._locate():
            self._run_worker()

    def _threat(self) -> Threat | None:
        """Return what the command may destroy here; None if nothing, or if the setting turns the check off."""
        if not self.event.command or self.settings["hooks.before_command"] == "off":
            return None
        from keepfast.shell.destruction import threat_of

        return threat_of(self.event.command, self.event.cwd, self.root, _script_text)

    def _threat_to_unsaved(self) -> Threat | None:
        """Return the threat; of paths that the command only mentions, those that exist and differ from the newest version."""
        threat = self._threat()
        if threat is None or not threat.mentioned:
            return threat
        unsaved = tuple([path for path in threat.mentioned if _exists(self.root + b"/" + path)])
        if unsaved:
            from keepfast.app.threat import unsaved_paths

            unsaved = unsaved_paths(self.engine, self.root, self.workspace, unsaved)
            threat.add(unsaved)
        return threat if threat.is_certain or unsaved else None

    def _threat_of_writing(self) -> Threat | None:
        """Return the threat to files that a tool is about to write, as far as the newest version does not hold them."""
        if not self.event.writes or self.settings["hooks.before_command"] == "off":
            return None
        start = self.root.rstrip(b"/") + b"/"
        written = [path[2:].encode("utf-8", "surrogateescape") for path in self.event.paths if path[:2] == "w "]
        below = tuple([path[len(start) :] for path in written if path.startswith(start) and b"/../" not in path])
        if not below:
            return None
        from keepfast.app.saved_files import unsaved_files

        unsaved = unsaved_files(self.folder, self.root, below)
        if not unsaved:
            return None
        from keepfast.app.threat import unsaved_paths
        from keepfast.shell.destruction import Threat, ThreatBuilder

        unsaved = unsaved_paths(self.engine, self.root, self.workspace, unsaved)
        if not unsaved:
            return None
        threat = Threat(ThreatBuilder("/", self.root.decode("utf-8", "surrogateescape")))
        threat.add(unsaved)
        return threat

    def _compaction_starts(self) -> Reply:
        """Save, and give the agent the checkpoint's id for its summary."""
        decision = self._decide("")
        is_due = not isinstance(decision, Skip) and self._claim(decision)
        due = decision.trigger if is_due else ""
        result = self._run_in_time(lambda: self._newest_checkpoint(due), self._deadline(), due)
        if result.status == "late":
            # Name the previous checkpoint instead.
            result = self._run_in_time(lambda: self._newest_checkpoint(""), PENDING_WAIT_SECONDS, "")
        if result.status == "failed":
            self.engine.workspaces.note(self.root, "failed", self.trigger, result.why, reported=True)
            return Reply(failed=result.why)
        if not result.id:
            return Reply()
        text = self._text(
            "compact", id=result.id, version=result.version, trigger=result.trigger, summary=result.summary
        )
        return Reply(agent_text=text)

    def _save_now(self, trigger: str, threat: Threat | None) -> SaveResult:
        """Save within the deadline. The saving process reports `is_covered` through a pipe."""
        from posix import close, pipe, read, set_blocking

        reading, writing = pipe()
        set_blocking(reading, False)
        try:
            save = self._save if threat is None else self._save_before_command
            result = self._run_in_time(lambda: save(trigger, threat, writing), self._deadline(), trigger)
            if result.status == "late":
                try:
                    result.is_covered = bool(read(reading, 1))
                except BlockingIOError:
                    pass
            return result
        finally:
            close(reading)
            close(writing)

    def _run_in_time(self, work: Callable[[], SaveResult], seconds: float, trigger: str) -> SaveResult:
        """Return the result of the work done by another process. If it fails, its trigger may be tried again soon.

        The caller reports a failure in time. One that nobody waits for any more, or missing files of ours, becomes a notice.
        """
        from time import monotonic

        from keepfast.model.light_json import dumps, loads

        end = monotonic() + seconds - DEADLINE_MARGIN_SECONDS

        def work_to_json() -> bytes:
            try:
                result = work()
            except Exception as error:
                self._shorten_rest(trigger)
                result = SaveResult("failed", why=sentence(error))
                result.is_torn = isinstance(error, ImportError | SyntaxError)
                if result.is_torn or monotonic() >= end:
                    self.engine.workspaces.note(self.root, "failed", trigger or self.trigger, result.why)
            return dumps(result.to_json()).encode("ascii")

        try:
            output = self.background.attempt(work_to_json, seconds)
        except OSError:
            self._shorten_rest(trigger)
            raise
        if output is None:
            return SaveResult("late")
        try:
            value = loads(output)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            self._shorten_rest(trigger)
        result = SaveResult.from_json(value)
        if result.is_torn:
            raise ImportError(result.why)  # files of our own are missing, for this process too
        return result

    def _save_before_command(self, trigger: str, threat: Threat | None, report: int) -> SaveResult:
        """Save before a destructive command, and keep retention from the version with everything in danger for a day."""
        from keepfast.state import rescues

        result = self._save(trigger, threat, report)
        row = self.engine.repository().workspace(self.workspace)
        if row is not None and row.version:
            try:
                rescues.note(self.folder, row.version, self.clock())
            except OSError as error:
                self.engine.workspaces.note(
                    self.root, "failed", trigger, f"v{row.version} could not be kept for a day: {error.strerror}."
                )
        return result

    def _save(self, trigger: str, threat: Threat | None = None, report: int = -1) -> SaveResult:
        """Save all that the rules cover, then what a command may destroy beyond them.

        A byte goes to the descriptor `report` in between. If the tree has too many files, only what the command names is saved.
        """
        from keepfast.app.worker import record, save, save_pending

        pending_event = self._pending_event(trigger)
        until = pending_event.at + int(self._deadline() * 1e9)
        paths: tuple[bytes, ...] = ()
        if threat is not None:
            from keepfast.app.threat import threatened_paths

            if trigger == "before_command":
                from keepfast.secrets.cuts import head

                pending_event.command = head(self._call_in_words(), MAX_COMMAND_CHARS)
            pending_event.until = until
            # Before anything else: past the deadline the command runs, and the paths may be gone.
            paths = threatened_paths(self.root, threat)
        named = pending_event.named = tuple([path for path in paths if path])
        if threat is not None and b"" not in paths and self._is_too_large():
            return self._save_named(pending_event, paths, threat)
        ahead = self._read_ahead(named, until) if named else None
        save_pending(self.engine, self.root, self.workspace, self.background.tidy, self.event.session)
        if ahead is not None:
            record(self.engine, self.root, self.folder, pending_event, ahead)
        elif named and _file_size(self.folder + "/cache") > LARGE_CACHE_BYTES and self.clock() < until:
            save(self.engine, self.root, self.folder, pending_event, _with_paths_below(self.root, named))
        try:
            outcome = save(self.engine, self.root, self.folder, pending_event)
        except TooMany as error:
            if threat is None or b"" in paths:
                raise
            return self._save_named(pending_event, paths, threat, sentence(error))
        if report >= 0:
            _signal(report)
        if outcome.needs_tidying:
            self.background.tidy(self.root)
        result = SaveResult(outcome.status, outcome.id, outcome.version)
        if threat is not None and (paths or threat.is_vague):
            result.add(self._save_excluded(pending_event, paths, threat))
        return result

    def _call_in_words(self) -> str:
        """Return the command, or the tool and the file that it writes."""
        if self.event.command:
            return self.event.command
        from keepfast.app.tool_calls import title_of

        return title_of(self.event, self.root)

    def _is_too_large(self) -> bool:
        """Return whether the tree may have too many files; then the command does not wait until they are counted.

        A tree that was never saved as a whole is counted for a second; if that is not enough it is too large for now.
        """
        from keepfast.state.notices import unsaved

        failure = unsaved(self.folder)
        if failure is None and not _file_size(self.folder + "/cache"):
            return self.engine.is_large(self.root, NAME_COUNT_SECONDS_AT_START) is not False
        return failure is not None and failure.kind == TooMany.kind

    def _save_named(
        self, pending_event: PendingEvent, paths: tuple[bytes, ...], threat: Threat, why: str = ""
    ) -> SaveResult:
        """Save only what the command names. Raises `TooMany` if that alone is too much.

        `why`: the tree as a whole was tried just now and cannot be saved.
        """
        from keepfast.app.threat import save_named
        from keepfast.app.worker import save

        pending_event.partial = paths
        result = SaveResult("unchanged")

        def save_only(only: tuple[bytes, ...], forced: tuple[bytes, ...]) -> None:
            outcome = save(self.engine, self.root, self.folder, pending_event, only, forced)
            result.status, result.id, result.version = outcome.status, outcome.id, outcome.version

        losses = save_named(self.engine, self.root, self.workspace, paths, threat.spared, save_only)
        result.add(losses)
        if threat.is_vague:  # the command may also destroy files that it does not name
            result.unnamed = why
            if not why:
                pending_event.partial = ()
                self._save_whole(pending_event, threat, result)
        return result

    def _save_whole(self, pending_event: PendingEvent, threat: Threat, result: SaveResult) -> None:
        """Save the whole tree, which had too many files at the last attempt; if it still has, say so in `result`."""
        from keepfast.app.worker import save

        try:
            save(self.engine, self.root, self.folder, pending_event)
        except TooMany as error:
            result.unnamed = sentence(error)
            return
        losses = self._save_excluded(pending_event, (), threat)
        losses.recreatable.clear()  # only what the command names is reported as recreatable
        result.add(losses)

    def _read_ahead(self, named: tuple[bytes, ...], until: int) -> ReadAhead | None:
        """Read what the command names while another process saves this folder: scanning a large tree takes long."""
        from keepfast.state.workers import HOOKS, running_worker

        if running_worker(self.folder, HOOKS) is None and running_worker(self.folder, "/lock") is None:
            return None
        from keepfast.app.checkpoint_save import read_ahead

        try:
            return read_ahead(self.engine, self.root, self.workspace, _with_paths_below(self.root, named), until)
        except (KeepfastError, OSError):
            return None  # the save that follows reports what is wrong

    def _save_excluded(self, pending_event: PendingEvent, paths: tuple[bytes, ...], threat: Threat) -> Losses:
        """Save what the rules exclude of the paths that the command may destroy, after all else is safe."""
        from keepfast.app.threat import save_excluded
        from keepfast.app.worker import save

        def save_more(only: tuple[bytes, ...], forced: tuple[bytes, ...]) -> None:
            if self.clock() < pending_event.until:  # once the command runs, nothing is gained
                save(self.engine, self.root, self.folder, pending_event, only, forced)

        return save_excluded(self.engine, self.root, self.workspace, paths, threat, save_more)

    def _newest_checkpoint(self, trigger: str) -> SaveResult:
        """Save if a trigger is given, and return the newest checkpoint: the session's, else the workspace's."""
        if trigger:
            self._save(trigger)
        from keepfast.store.rows import Query

        repository, session = self.engine.repository(), self.event.session
        query = Query(workspace=self.workspace, session=session, limit=1, light=False)
        rows = repository.find(query) if session else []
        rows = rows or repository.find(query._replace(session=""))
        if not rows:
            return SaveResult("none")
        row = rows[0]
        summary = row.message if row.message != row.trigger else repository.document(row)[0].summary
        result = SaveResult("found", row.id, row.version)
        result.trigger, result.summary = row.trigger, summary or f"v{row.version}"
        return result

    def _command_reply(self, result: SaveResult, ask: bool, threat: Threat) -> Reply:
        """Return the reply to a destructive command: nothing if all is safe, else what is not, and what can be recreated."""
        if result.status == "late":
            return self._unsaved_reply(self._late_message(threat, result.is_covered), ask)
        if result.status == "failed":
            return self._unsaved_reply(result.why.rstrip("."), ask)
        unsaved = [f"{path} ({why})" for path, why in result.unsaved]
        if result.unnamed:
            unsaved.insert(0, result.unnamed.rstrip("."))
        recreatable = self._recreatable_reply(result.recreatable)
        return self._unsaved_reply(self._list_some(unsaved), ask).beside(recreatable) if unsaved else recreatable

    def _note_unsaved_paths(self, result: SaveResult, threat: Threat) -> None:
        """Note for `status` which paths that a command only mentions are not safe; it may not touch them, so nobody is asked."""
        why = result.why.rstrip(".")
        if result.status == "late":
            why = self._late_message(threat, result.is_covered)
        unsaved = why or self._list_some([f"{path} ({why})" for path, why in result.unsaved])
        if not unsaved:
            return
        text = self._text("unkept_command", why=unsaved)
        if not self.event.command:
            text = f"{self.event.tool} wrote a file before its former content was saved: {unsaved}."
        self.engine.workspaces.note(self.root, "not protected", "before_command", text)

    def _late_message(self, threat: Threat, saved: bool) -> str:
        """Return which paths are not safe past the deadline. `saved`: everything but what the rules exclude is."""
        from keepfast.app.threat import excluded_paths, threatened_paths
        from keepfast.workspace.marker import show

        reason = self._text("late", seconds=self._deadline())
        paths = threatened_paths(self.root, threat)
        if saved:
            paths = excluded_paths(self.engine, self.root, self.workspace, paths, threat)
        names = self._list_some([show(path) for path in paths if path])
        return f"{names}: {reason}" if names else reason

    def _unsaved_reply(self, why: str, ask: bool) -> Reply:
        """Return the reply where something cannot be saved: a question to the user, else a warning or a refusal by the settings."""
        message = self._text("unkept_command", why=why)
        self.engine.workspaces.note(self.root, "not protected", "before_command", message, reported=True)
        if ask and self.event.can_ask:
            # The client may answer the question by a rule of its own: the user gets the message in any case.
            return Reply(ask=self._text("ask_command", why=why), user_text=message)
        if self.settings["hooks.before_command_unasked"] == "deny":
            refusal = self._text("deny_command", why=why)
            return Reply(deny=refusal, user_text=refusal)
        return Reply(agent_text=message, user_text=message)

    def _recreatable_reply(self, paths: Sequence[tuple[str, str | None]]) -> Reply:
        """Name what a tool can recreate, each path once in a session: agents build and clean over and over."""
        now, session, items = self.clock(), self.event.session, list[str]()
        for path, command in paths:
            text_name = "left_by_settings" if command is None else "made_by" if command else "made_by_itself"
            # Only listed paths are claimed, so that the session's file stays small.
            if len(items) >= MAX_LISTED or sessions.claim(self.folder, session, "remade " + path[:100], now, DAY):
                items.append(self._text(text_name, path=path, command=command))
        if not items:
            return Reply()
        message = self._text("remade_command", what=self._list_some(items))
        self.engine.workspaces.note(self.root, "noticed", "before_command", message, reported=True)
        return Reply(agent_text=message, user_text=message)

    def _list_some(self, texts: list[str]) -> str:
        """Join the first texts by commas, and say how many more there are."""
        more = [self._text("and_more", count=len(texts) - MAX_LISTED)] if len(texts) > MAX_LISTED else []
        return ", ".join([*texts[:MAX_LISTED], *more])

    def _budget_reply(self, usage: TokenUsage, trigger: str, result: SaveResult) -> Reply:
        """Return the messages about a crossed band of the token budget."""
        from keepfast.model.budget import Band

        crossed = Band(int(trigger.rpartition("_")[2]))
        if crossed.is_quiet:
            crossed = self._unreported_band(usage) or crossed
        if crossed.is_quiet:
            return Reply(failed=result.why) if result.status == "failed" else Reply()
        text_name = {"late": "budget_saving", "failed": "budget_failed"}.get(result.status, "budget")
        if crossed.is_warning and text_name == "budget":
            text_name = "budget_warning"
        message = self._text(text_name, percent=usage.reached, why=result.why.rstrip("."))
        checkpoint = result.id
        numbers = {"message": message, "used": usage.used, "budget": usage.budget, "checkpoint": checkpoint}
        for_agent = self._text("budget_agent" if checkpoint else "budget_agent_plain", **numbers)
        if crossed.is_warning:
            for_agent += self._text("budget_agent_warning")
        return Reply(
            agent_text=for_agent, user_text=message, budget=message, checkpoint=checkpoint, warning=crossed.is_warning
        )

    def _unreported_band(self, usage: TokenUsage) -> Band | None:
        """Return the band below a quiet threshold that was crossed without a checkpoint, and so without a message."""
        from keepfast.model.budget import highest_announced_band

        crossed = highest_announced_band(usage.percent)
        if crossed is None or sessions.trigger_times(self.folder, self.event.session).get(crossed.trigger):
            return None
        sessions.claim(self.folder, self.event.session, crossed.trigger, self.clock(), 0)
        return crossed

    def _claim_failure_report(self, trigger: str) -> bool:
        """Return whether to report this failure: saving is tried again and again, and reported once per rest of the trigger."""
        try:
            return sessions.claim(self.folder, self.event.session, "failed " + trigger, self.clock(), BUDGET_REST)
        except OSError:
            return True  # better reported twice than never

    def _await_pending(self) -> None:
        """Wait a moment until pending events are saved, so that the tool does not overwrite their state first."""
        waiting = pending.names(self.folder)
        if not waiting:
            return
        self.background.leave_to_process("saves are pending")
        now, session = self.clock(), self.event.session
        if 0 <= now - sessions.trigger_times(self.folder, session).get("late", -MINUTE) < MINUTE:
            return  # the first scan of a large tree takes long: a session waits for it once
        from time import monotonic

        from keepfast.model.age import amount
        from keepfast.state.workers import HOOKS, running_worker

        if running_worker(self.folder, HOOKS) is None:
            self.background.detach(self._run_worker)
        end = monotonic() + PENDING_WAIT_SECONDS
        while monotonic() < end:
            self.background.pause(PENDING_POLL_SECONDS)
            if not set(waiting) & set(pending.names(self.folder)):
                return
        sessions.claim(self.folder, session, "late", now, 0)
        self.engine.workspaces.note(
            self.root,
            "not protected",
            "pending",
            f"A tool ran before {amount(len(waiting), 'pending event')} could be saved.",
        )

    # Shared

    def _text(self, name: str, **values: object) -> str:
        from keepfast.app.messages import text

        return text(name, self._language(), **values)

    def _decide(self, band: str, is_destructive: bool = False) -> Decision:
        state = State(self.clock(), _TakenTimes(self.folder, self.event.session), band, is_destructive)
        return decide(self.event, state, self.settings)

    def _claim(self, decision: Decision) -> bool:
        """Return True for one of several tools that start at the same instant: it takes the checkpoint for all of them."""
        rest = rest_period(decision.trigger)
        return not rest or sessions.claim(self.folder, self.event.session, decision.trigger, self.clock(), rest)

    def _shorten_rest(self, trigger: str) -> None:
        """Let the next event of this trigger try again soon: its checkpoint failed."""
        if not rest_period(trigger):
            return
        try:
            sessions.set_trigger_time(
                self.folder, self.event.session, trigger, failed_trigger_time(trigger, self.clock())
            )
        except OSError:
            pass  # then the trigger rests as long as after a success

    def _deadline(self) -> float:
        return float(self.settings["hooks.before_command_deadline"])


class _TakenTimes:
    """When each trigger was last taken; the session's file is read only if a rule needs it."""

    def __init__(self, folder: str, session: str) -> None:
        self.folder, self.session = folder, session

    def get(self, trigger: str, otherwise: int) -> int:
        return sessions.trigger_times(self.folder, self.session).get(trigger, otherwise)


def _first_line(text: str) -> str:
    if not text:
        return ""
    from keepfast.secrets.cuts import first_line

    return first_line(text, 1000)


def _with_paths_below(root: bytes, named: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return the paths and everything below them, up to a number that can be saved in time."""
    import os

    paths: dict[bytes, None] = {}
    for path in named:
        paths[path] = None
        if os.path.islink(root + b"/" + path):
            continue  # `os.walk` would follow a link that it starts at
        for folder, folders, files in os.walk(root + b"/" + path):
            below = folder[len(root) + 1 :]
            folders[:] = [name for name in folders if name != b".git"]
            paths.update(dict.fromkeys([below + b"/" + name for name in folders + files]))
            if len(paths) > MAX_NAMED_PATHS:
                return tuple(paths)[:MAX_NAMED_PATHS]
    return tuple(paths)


def _signal(report: int) -> None:
    from posix import write

    try:
        write(report, b"1")
    except OSError:
        pass  # the waiting process has ended


def _end_of_transcript(path: str) -> bytes:
    from os.path import isfile

    if not isfile(path):
        return b""  # opening a pipe could block forever
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - TRANSCRIPT_TAIL_BYTES))
            return file.read(TRANSCRIPT_TAIL_BYTES)
    except OSError:
        return b""


def _script_text(path: str) -> str | None:
    """Return the text of a script that a command runs; empty if it is no script, None if it is too long or unreadable."""
    from _stat import S_ISDIR, S_ISREG
    from posix import O_CLOEXEC, O_NOCTTY, O_NONBLOCK, O_RDONLY, close, fstat, read
    from posix import open as open_fd

    try:
        fd = open_fd(path.encode("utf-8", "surrogateescape"), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        status = fstat(fd)
        if S_ISDIR(status.st_mode):
            return ""
        text = read(fd, MAX_SCRIPT_BYTES + 1) if S_ISREG(status.st_mode) else b"\n" * (MAX_SCRIPT_BYTES + 1)
    except OSError:
        return None
    finally:
        close(fd)
    if b"\0" in text:
        return ""  # a binary
    return text.decode("utf-8", "surrogateescape") if len(text) <= MAX_SCRIPT_BYTES else None


def _exists(path: bytes) -> bool:
    from posix import lstat

    try:
        lstat(path)
    except OSError:
        return False
    return True


def _file_size(name: str) -> int:
    from posix import stat

    try:
        return stat(name).st_size
    except OSError:
        return 0
