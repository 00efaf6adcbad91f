"""What an agent's events lead to: noted, saved at once while the client waits, or left to the worker."""

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
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Protocol

    from keepfast.app.checkpoint import Engine
    from keepfast.app.checkpoint_save import Aside
    from keepfast.app.threat import Losses
    from keepfast.model.agent_event import AgentEvent
    from keepfast.model.budget import Band, Usage
    from keepfast.model.policy import Decision
    from keepfast.settings import Settings
    from keepfast.shell.destruction import Threat
    from keepfast.state.pending_events import PendingEvent
    from keepfast.store.place import Place

    class Background(Protocol):
        """How work is done by another process; see `present/background.py`."""

        def detach(self, work: Callable[[], object]) -> None: ...
        def attempt(self, work: Callable[[], bytes], seconds: float) -> bytes | None: ...
        def tidy(self, folder: bytes) -> None: ...
        def pause(self, seconds: float) -> None: ...

    Deliver = Callable[[Engine, bytes, str, AgentEvent, int], Reply]
    """Engine, root, workspace, the start of a session and the number of the part → what the session is told."""

PATIENCE, STEP = 2.0, 0.005
"""Seconds that a tool which may write waits for a pending checkpoint, and how often it looks."""
EDGE = 0.1
"""Seconds before a deadline from which on a failure is noted by whoever saves: the one who waits may have left."""
LAG_LOOKS, LAG_STEP, FEWEST_WORDS, TAIL = 25, 0.02, 4, 64 << 10
MINUTE, DAY = 60_000_000_000, 86_400_000_000_000
QUICKLY = 20_000
"""Entries of a folder that an event looks at, before it is protected, where somebody waits."""
SOON, LATER = 1.0, 10.0
"""Seconds for which a folder's names are counted before a session begins or a command runs, and at the end of a turn."""
SAME_SESSION = ("resume", "compact")
"""Starts that go on with a session, which has been told already."""
LONGEST_COMMAND, MOST_TOLD = 1000, 5
LONGEST_SCRIPT = 64 << 10
"""Bytes of a script that are read for what it removes."""
LARGE_CACHE, MOST_NAMED = 2 << 20, 5000
"""Bytes of the stat cache, about 100 a file, above which the paths that a command names are saved first."""


class Attending:
    """One event of one agent, from what was told to what is answered.

    The brief has parts, 1 and on. Part 0 is the guard alone: it saves before commands that destroy, and does nothing else.
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
    ) -> None:
        self.place, self.settings, self.clock, self.background, self.event = place, settings, clock, background, event
        self._make = make
        self._engine: Engine | None = None
        self._language, self.part, self.deliver = language, part, deliver
        self.root, self.workspace, self.folder = b"", "", ""
        self._at = 0
        """When the event was recorded."""
        self._refused = self._moved = ""
        """Why the folder is not protected, for the user."""

    @property
    def engine(self) -> Engine:
        """Made when it is first asked for: most tool calls need none."""
        if self._engine is None:
            self._engine = self._make()
        return self._engine

    def attend(self) -> Reply:
        """Return what the client is told. Raises a `KeepfastError` or `OSError` where something was due and failed."""
        said = self._attend()
        return Reply(told_user=self._moved).beside(said) if self._moved else said

    def _attend(self) -> Reply:
        kind = self.event.kind
        if kind == OTHER or (not self.part and kind != TOOL_STARTS):
            return Reply()
        try:
            if not self._locate():
                return Reply(told_user=self._refused)
        except (KeepfastError, OSError) as error:
            reply = self._out_of_reach(error)
            if reply is None:
                raise
            return reply
        if kind == TOOL_ENDED:
            if self.event.paths:
                sessions.touch(self.folder, self.event.session, self.event.paths)
            return Reply()
        if kind == TOOL_STARTS:
            return self._tool_starts()
        if kind == COMPACTION_STARTS:
            return self._compaction_starts()
        if self.part == 1:
            if kind in (TURN_ENDED, SESSION_ENDS):
                self._settle_question()
            self._later()
        if kind == SESSION_STARTS:
            return self._session_starts()
        if kind != TURN_ENDED or self.part != 1:
            return Reply()
        failed = self._broken_settings() or self._unsaved() or self._never_saved()
        return Reply(failed=failed or self._other_store().removeprefix("keepfast: "))

    def _out_of_reach(self, error: KeepfastError | OSError) -> Reply | None:
        """What is answered where the store is out of reach; None where that is an error.

        Whoever is about to destroy something hears of it before, not after.
        """
        if self.event.kind == SESSION_STARTS and self.part != 1:
            return Reply()  # the first part says it
        if self.event.kind != TOOL_STARTS or not self.root:
            return None
        said = str(self.in_words(error))
        threat = self._threat()
        if threat is None or not threat.is_certain:
            self._note_missed(said)
            return None
        return self._unkept(said.rstrip("."), self.settings["hooks.before_command"] == "ask")

    def _session_starts(self) -> Reply:
        said = Reply()
        if self.part == 1:
            why = self._unsaved()
            lines = (self._obstacle(), self._other_store(), self._odd_settings(), why and f"keepfast: {why}")
            said.told_user = "\n".join([text for text in lines if text])
        if self.deliver is None:
            return said
        return said.beside(self.deliver(self.engine, self.root, self.workspace, self.event, self.part))

    @property
    def trigger(self) -> str:
        """What a checkpoint of this event would be called; the kind of the event if it deserves none."""
        return decide(self.event, State(self.clock(), {}), self.settings).trigger or self.event.kind

    def in_words(self, error: KeepfastError | OSError) -> KeepfastError:
        """The error as a sentence with a way out, as `save` says it."""
        if isinstance(error, KeepfastError):
            return error
        from keepfast.fsutil.durable import explain

        return explain(error, "Saving", self.place.path)

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()

    def _locate(self) -> bool:
        event = self.event
        near, found = find(event.cwd, self.place.path, self.place.list), None
        if near is not None and near[2] in (HERE, LOST):
            found = near[:2]
        elif near is not None or event.kind not in (TOOL_STARTS, TOOL_ENDED):
            try:
                found = self.engine.known(event.cwd, adopting=True)
            except Elsewhere as apart:
                found = self._separate(apart)
            if self.engine.renewed and found is not None:
                self._tell_moved(*found, self._say("renewed", folder=show(self.engine.renewed)))
            if found is None and event.kind not in (TOOL_STARTS, TOOL_ENDED):
                found = self._adopt()
        if found is None:
            return False
        self.root, self.workspace = found
        self.folder = self.place.folder(self.workspace)
        self.place.id()  # a store that is not there, or not for us, is named before anything is written to it
        self.place.check_folders()
        return True

    def _separate(self, apart: Elsewhere) -> tuple[bytes, str]:
        """Protect a folder that is a copy, or was moved, at once and apart; what its marker named is for a person to say."""
        found = self.engine.separate(apart)
        if not apart.copied:
            self._tell_moved(*found, self._say("moved", why=str(apart)))
        return found

    def _tell_moved(self, root: bytes, workspace: str, text: str) -> None:
        """Once, whichever of the hooks that a client starts together is the first to see it."""
        if sessions.claim(self.place.folder(workspace), self.event.session, "moved", self.clock(), MINUTE):
            self._moved = text
            self.engine.note(root, "noticed", self.trigger, text, told=True)

    def _adopt(self) -> tuple[bytes, str] | None:
        """Protect the session's folder from now on. Of the hooks of a start only the first does it."""
        event = self.event
        is_start = event.kind == SESSION_STARTS
        if self.part != 1:
            return None
        try:
            # After a prompt, tools would wait for the first scan of a large folder: it begins at the end of the turn.
            at_leisure = event.kind in (SESSION_STARTS, TURN_ENDED, SESSION_ENDS)
            return self.engine.adopt(event.cwd, event.project, 0 if at_leisure else QUICKLY)
        except Refused as refused:
            if is_start and event.reason not in SAME_SESSION:
                self._refused = self._say("not_protected", why=f"{refused} {refused.hint}")
            return None

    def _odd_settings(self) -> str:
        """All that is odd about the settings, once a session: it is heard, and no hook has failed."""
        warnings = self.settings.warnings
        if not warnings or not self._is_first("settings"):
            return ""
        if self.settings.broken:
            self._is_first("broken settings")  # it is told here
        return "\n".join([f"keepfast: {warning}" for warning in warnings])

    def _broken_settings(self) -> str:
        """What of the user's file came to be not understood since the start: what is known of it stands."""
        return self.settings.warnings[0] if self.settings.broken and self._is_first("broken settings") else ""

    def _is_first(self, what: str) -> bool:
        """Is this to be told, of what is told once a session?"""
        return sessions.claim(self.folder, self.event.session, what, self.clock(), DAY)

    def _obstacle(self) -> str:
        """What lies in the place of the folder's marker, once a session."""
        said = marker(self.root)
        if said is not None and said[0] == self.workspace:
            return ""  # as nearly always
        from keepfast.workspace.marker import obstacle

        there = obstacle(self.root)
        if not there or not self._is_first("obstacle"):
            return ""
        text = self._say("obstacle", path=show(there))
        self.engine.note_once(self.root, "noticed", self.trigger, text)
        return text

    def _other_store(self) -> str:
        """That the folder's marker names another store, once a session at its start and once at the end of a turn."""
        said = marker(self.root)
        if said is None or not said[1] or said[1:] == (self.place.path, self.place.expected):
            return ""  # as nearly always
        store = self.engine.other_store(self.root)
        if not store or not self._is_first(f"other store {self.event.kind}"):
            return ""
        text = self._say("strange_store" if store == "?" else "other_store", store=store)
        self.engine.note_once(self.root, "noticed", self.trigger, text)
        return text

    def _unsaved(self) -> str:
        """Why the last save of this folder failed, once a session at its start and once at the end of a turn."""
        from keepfast.state.notices import FailedSave, unsaved

        found = unsaved(self.folder)
        if found is None and not _size(self.folder + "/cache"):
            # Nothing was ever saved here, and the first save may still be at it: whether that will do is told now.
            try:
                self.engine.refuse_too_many(self.root, SOON if self.event.kind == SESSION_STARTS else LATER)
            except TooMany as error:
                found = FailedSave(0, error.kind, f"{error} {error.hint}")
        if found is None or not self._is_first(f"unsaved {self.event.kind} {found.kind}"):
            return ""
        return self._say("not_saved", why=found.text)

    def _never_saved(self) -> str:
        """Why nothing in this folder could ever be saved, where not even that could be written into the store."""
        if _size(self.folder + "/cache") or _size(self.folder + UNSAVED):
            return ""
        from keepfast.state.notices import read

        found = [one for one in read(self.engine.notice_folders(self.root, self.workspace)) if one.kind == "failed"]
        if not found or not sessions.claim(self.folder, self.event.session, "never saved", self.clock(), DAY):
            return ""
        return f"This folder is not protected: {found[-1].text} Run `keepfast status` for details."

    # Later

    def _later(self) -> None:
        event = self.event
        decision = self._decide("")
        if event.kind == SESSION_ENDS and event.reason == "clear":
            self._note_cleared("off" if isinstance(decision, Skip) else "", isinstance(decision, Ask))
        if isinstance(decision, Skip) or not self._claim(decision):
            return
        lost = self._cut_off() if event.kind == SESSION_STARTS else []
        told = self._told(decision.trigger)
        self._at = told.at
        try:
            for one in (*lost, told):
                pending.append(self.folder, one)
        except OSError:
            self._ease(decision.trigger)
            raise
        self.background.detach(self._work)

    def _settle_question(self) -> None:
        """Work went on: what a clear asked about is kept."""
        if self.event.client:
            sessions.close_question(self.folder, self.event.client)
        elif self.event.session:
            sessions.close_question_of(self.folder, self.event.session)

    def _note_cleared(self, status: str, ask: bool) -> None:
        """What the session that begins next is told of this clear, and of no earlier one. It precedes the worker's note."""
        event = self.event
        known = {"session": event.session, "transcript": event.transcript, "at": self.clock()}
        sessions.note_cleared(self.folder, event.client or event.likely_client, **known, status=status, ask=ask)

    def _cut_off(self) -> list[PendingEvent]:
        """What sessions that crashed leave to be kept, before the new one begins."""
        event = self.event
        found = sessions.crashed_sessions(self.folder, event.session, event.client, event.reason in ("", "startup"))
        root = self.root.decode("utf-8", "surrogateescape")
        return [
            pending.PendingEvent(
                sessions.CUT_OFF,
                self.clock(),
                agent=one["agent"] if isinstance(one.get("agent"), str) else event.agent,
                cwd=root,
                **{key: one[key] for key in ("session", "transcript", "model") if isinstance(one.get(key), str)},
            )
            for one in found
        ]

    def _work(self) -> None:
        """What the detached process does. Whatever happens to it, `status` tells."""
        from keepfast.app.worker import finish

        try:
            if self.event.kind == TURN_ENDED:
                self._await_transcript()
            self._remember()
            finish(self.engine, self.root, self.workspace, self.background.tidy, self.event.session)
            if self.settings["analysis.llm"] != "off" and self.event.kind in (TURN_ENDED, SESSION_ENDS):
                self._analyse()
        except Exception as error:
            self.engine.note(self.root, "failed", self.trigger, sentence(error))

    def _analyse(self) -> None:
        """After the checkpoint, and after the lock that goes with it: a model takes its time."""
        from keepfast.app.model_notes import analyse

        event = self.event
        last = event.kind == SESSION_ENDS
        analyse(self.engine, self.root, self.folder, event.session, event.transcript, last=last)

    def _remember(self) -> None:
        """Keep what was asked and said, without secrets: the worker that makes the checkpoint may be another process."""
        event = self.event
        texts = {"prompt": self._asked(), "said": _first_line(event.last_answer)}
        if any(texts.values()):
            from keepfast.secrets.redaction import redact

            texts = {key: redact(text) for key, text in texts.items()}
        known: dict[str, str | int] = {"session": event.session, "transcript": event.transcript, "model": event.model}
        known["prompted"] = self._at if event.prompt else 0
        known["heard"] = self._at if event.prompt or event.last_answer else 0
        known["client"], known["agent"] = str(event.client) if event.client else "", event.agent
        known["ended"] = (event.reason or "ended") if event.kind == SESSION_ENDS else ""
        try:
            if event.kind in (SESSION_STARTS, PROMPT):
                sessions.reopen(self.folder, event.session)
            sessions.remember(self.folder, event.session, **known, **texts)
        except OSError as error:
            self.engine.note(self.root, "failed", self.trigger, sentence(error))  # the checkpoint is made all the same

    def _asked(self) -> str:
        """What the prompt asks for, with the request that it belongs to if it is a short one; empty for what is no prompt."""
        if not self.event.prompt:
            return ""
        from keepfast.agents.claude.transcript import spoken
        from keepfast.resume.task_name import follow

        before = sessions.facts(self.folder, self.event.session).get("prompt")
        before = before or sessions.inherited(self.folder, self.event.session).get("task")
        return follow(before if isinstance(before, str) else "", spoken(self.event.prompt)[1])

    def _await_transcript(self) -> None:
        """A turn's end may be told before its last words are in the transcript: give them half a second."""
        words = max(_first_line(self.event.last_answer).replace('"', "\\").split("\\"), key=len).encode(
            "utf-8", "ignore"
        )
        for _ in range(LAG_LOOKS if len(words) >= FEWEST_WORDS and self.event.transcript else 0):
            if words in _tail(self.event.transcript):
                return
            self.background.pause(LAG_STEP)

    def _told(self, trigger: str) -> PendingEvent:
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

    # At once

    def _tool_starts(self) -> Reply:
        event, settings = self.event, self.settings
        if self.part:
            self._note_session()
        if event.writes:
            self._await_pending()
        usage, band = self._crossed()
        threat = self._endangered()
        if not band and threat is None:
            return Reply()
        decision = self._decide(band, threat is not None)
        if isinstance(decision, Skip) or not self._claim(decision):
            return Reply()
        result = self._now(decision.trigger, threat)
        protected = Reply()
        if threat is not None and threat.is_certain:
            protected = self._protected(result, settings["hooks.before_command"] == "ask", threat)
        elif threat is not None:
            self._note_unprotected(result, threat)
        if decision.trigger == "before_command":
            return protected
        assert usage is not None
        if result["status"] == "failed":
            if not self._is_news(decision.trigger):
                return protected
            self.engine.note(self.root, "failed", decision.trigger, str(result["why"]), told=True)
        return self._budget_reply(usage, decision.trigger, result).beside(protected)

    def _note_session(self) -> None:
        """A session that began before hooks did is known from its first tool on: its transcript tells the rest."""
        event = self.event
        if not event.session or not event.transcript or event.subagent:
            return
        if sessions.facts(self.folder, event.session).get("session"):
            return
        known = {"session": event.session, "transcript": event.transcript, "model": event.model, "agent": event.agent}
        try:
            client = str(event.client) if event.client else ""
            sessions.remember(self.folder, event.session, **known, client=client)
        except OSError:
            pass  # whatever is to be saved says why it cannot be

    def _crossed(self) -> tuple[Usage | None, str]:
        """How full the main conversation is, and the trigger of the highest band that it crossed; empty below all."""
        event, settings = self.event, self.settings
        if not event.transcript or event.subagent or not self.part:
            return None, ""
        from keepfast.agents.claude.usage import tokens
        from keepfast.model.budget import band

        asked, windows = settings["budget.tokens"], settings["budget.windows"]
        usage = tokens(self.folder, event.session, event.transcript, event.model, asked, windows)
        found = band(usage.percent, settings["hooks.checkpoint_threshold_percent"])
        return usage, found.trigger if found is not None else ""

    def _note_missed(self, why: str) -> None:
        """A band was crossed and nothing can be saved, not even when that was: `status` tells, once in five minutes."""
        from keepfast.state.notices import read

        trigger, since = self._crossed()[1], self.clock() - BUDGET_REST
        known = read(self.engine.notice_folders(self.root, self.workspace)) if trigger else []
        if trigger and not any(one.trigger == trigger and one.at > since for one in known):
            self.engine.note(self.root, "failed", trigger, why)

    def _threat(self) -> Threat | None:
        """What the command may destroy here; None if it destroys nothing, or nobody wants to know."""
        if not self.event.command or self.settings["hooks.before_command"] == "off":
            return None
        from keepfast.shell.destruction import threat_of

        return threat_of(self.event.command, self.event.cwd, self.root, _script)

    def _endangered(self) -> Threat | None:
        """What the command may destroy, and what it mentions, if that is there and the newest version does not have it."""
        threat = self._threat()
        if threat is None or not threat.mentioned:
            return threat
        there = tuple([path for path in threat.mentioned if _is_there(self.root + b"/" + path)])
        if there:
            from keepfast.app.threat import not_kept

            there = not_kept(self.engine, self.root, self.workspace, there)
            threat.add(there)
        return threat if threat.is_certain or there else None

    def _compaction_starts(self) -> Reply:
        decision = self._decide("")
        is_due = not isinstance(decision, Skip) and self._claim(decision)
        due = decision.trigger if is_due else ""
        result = self._result(lambda: self._newest(due), self._deadline(), due)
        if result["status"] == "late":
            result = self._result(lambda: self._newest(""), PATIENCE, "")  # then the one before it
        if result.get("status") == "failed":
            self.engine.note(self.root, "failed", self.trigger, str(result["why"]), told=True)
            return Reply(failed=str(result["why"]))
        if not result.get("id"):
            return Reply()
        told = {key: result[key] for key in ("id", "version", "trigger", "summary")}
        return Reply(told_agent=self._say("compact", **told))

    def _now(self, trigger: str, threat: Threat | None) -> dict[str, Any]:
        """Save within the deadline. `status` is that of the outcome, or `failed` with `why`, or `late`."""
        from posix import close, pipe, read, set_blocking

        reading, writing = pipe()
        set_blocking(reading, False)
        try:
            work = self._save if threat is None else self._rescue
            result = self._result(lambda: work(trigger, threat, writing), self._deadline(), trigger)
            if result["status"] == "late":
                try:
                    result["saved"] = bool(read(reading, 1))
                except BlockingIOError:
                    pass
            return result
        finally:
            close(reading)
            close(writing)

    def _result(self, work: Callable[[], dict[str, Any]], seconds: float, trigger: str) -> dict[str, Any]:
        """What the work returns; if it fails, the trigger that it was done for rests only a little.

        Of a failure in time the caller tells; of one that nobody waits for any more, or of torn files, `status` does.
        """
        from time import monotonic

        from keepfast.model.light_json import dumps, loads

        end = monotonic() + seconds - EDGE

        def encoded() -> bytes:
            try:
                return dumps(work()).encode("ascii")
            except Exception as error:
                self._ease(trigger)
                torn = isinstance(error, ImportError | SyntaxError)
                if torn or monotonic() >= end:
                    self.engine.note(self.root, "failed", trigger or self.trigger, sentence(error))
                return dumps({"status": "failed", "why": sentence(error), "torn": torn}).encode("ascii")

        try:
            said = self.background.attempt(encoded, seconds)
        except OSError:
            self._ease(trigger)
            raise
        if said is None:
            return {"status": "late"}
        try:
            found = loads(said)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            self._ease(trigger)
            return {"status": "failed", "why": "the saving process was terminated"}
        if found.get("torn"):
            raise ImportError(found["why"])  # for both of us: files of our own are missing
        return found

    def _rescue(self, trigger: str, threat: Threat | None, report: int) -> dict[str, Any]:
        """Save before a destructive command, and note the version that has all it may destroy: retention spares that a day."""
        from keepfast.state import rescues

        result = self._save(trigger, threat, report)
        row = self.engine.repository().workspace(self.workspace)
        if row is not None and row.version:
            try:
                rescues.note(self.folder, row.version, self.clock())
            except OSError as error:
                self.engine.note(
                    self.root, "failed", trigger, (f"v{row.version} could not be kept for a day: {error.strerror}.")
                )
        return result

    def _save(self, trigger: str, threat: Threat | None = None, report: int = -1) -> dict[str, Any]:
        """Save all that the rules cover, then what a command means beyond them; `report` is told in between.

        Of a tree that has too many files, what the command names is saved alone.
        """
        from keepfast.app.worker import finish, record, save

        told = self._told(trigger)
        until = told.at + int(self._deadline() * 1e9)
        paths: tuple[bytes, ...] = ()
        if threat is not None:
            from keepfast.app.threat import meant

            if trigger == "before_command":
                from keepfast.secrets.cuts import head

                told.command, told.until = head(self.event.command, LONGEST_COMMAND), until
            paths = meant(self.root, threat)  # first of all: past the deadline the command runs
        named = told.named = tuple([path for path in paths if path])
        if threat is not None and b"" not in paths and self._is_too_large():
            return self._save_named(told, paths, threat)
        aside = self._put_aside(named) if named else None
        finish(self.engine, self.root, self.workspace, self.background.tidy, self.event.session)
        if aside is not None:
            record(self.engine, self.root, self.folder, told, aside)
        elif named and _size(self.folder + "/cache") > LARGE_CACHE and self.clock() < until:
            save(self.engine, self.root, self.folder, told, _with_contents(self.root, named))
        try:
            outcome = save(self.engine, self.root, self.folder, told)
        except TooMany as error:
            if threat is None or b"" in paths:
                raise
            return self._save_named(told, paths, threat, sentence(error))
        if report >= 0:
            _tell(report)
        if outcome.untidy:
            self.background.tidy(self.root)
        result = {"status": outcome.status, "id": outcome.id, "version": outcome.version}
        if threat is None or not (paths or threat.is_vague):
            return result
        return {**result, **self._keep(told, paths, threat)}

    def _is_too_large(self) -> bool:
        """May the tree have too many files? Then the command does not wait until they are counted.

        What was never saved as a whole is looked at for a second: after that the tree is large enough, whatever it has.
        """
        from keepfast.state.notices import unsaved

        found = unsaved(self.folder)
        if found is None and not _size(self.folder + "/cache"):
            return self.engine.is_large(self.root, SOON) is not False
        return found is not None and found.kind == TooMany.kind

    def _save_named(
        self, told: PendingEvent, paths: tuple[bytes, ...], threat: Threat, why: str = ""
    ) -> dict[str, Any]:
        """Save what the command names, whatever lies beside it. Raises `TooMany` if that is too much by itself.

        `why`: the tree as a whole was tried just now and cannot be saved.
        """
        from keepfast.app.threat import keep_named
        from keepfast.app.worker import save

        told.partial = paths
        result: dict[str, Any] = {"status": "unchanged", "id": "", "version": 0}

        def save_only(only: tuple[bytes, ...], kept: tuple[bytes, ...]) -> None:
            outcome = save(self.engine, self.root, self.folder, told, only, kept)
            result.update(status=outcome.status, id=outcome.id, version=outcome.version)

        losses = keep_named(self.engine, self.root, self.workspace, paths, threat.spared, save_only)
        result.update(_told_of(losses))
        if threat.is_vague:  # then it may mean any other file as well
            result["unnamed"] = why
            if not why:
                told.partial = ()
                self._save_whole(told, threat, result)
        return result

    def _save_whole(self, told: PendingEvent, threat: Threat, result: dict[str, Any]) -> None:
        """Save the tree as a whole, which had too many files when it was last tried; else say that it still has."""
        from keepfast.app.worker import save

        try:
            save(self.engine, self.root, self.folder, told)
        except TooMany as error:
            result["unnamed"] = sentence(error)
            return
        known = {path for path, _ in result["unkept"]}
        result["unkept"] += [one for one in self._keep(told, (), threat)["unkept"] if one[0] not in known]

    def _put_aside(self, named: tuple[bytes, ...]) -> Aside | None:
        """Read what the command names while somebody else saves this folder: the scan of a large tree takes its time."""
        from keepfast.state.workers import HOOKS, running_worker

        if running_worker(self.folder, HOOKS) is None and running_worker(self.folder, "/lock") is None:
            return None
        from keepfast.app.checkpoint_save import put_aside

        try:
            return put_aside(self.engine, self.root, self.workspace, _with_contents(self.root, named))
        except (KeepfastError, OSError):
            return None  # the save that follows says what is wrong

    def _keep(self, told: PendingEvent, paths: tuple[bytes, ...], threat: Threat) -> dict[str, Any]:
        """Save what the rules leave out of the paths that the command means or may mean, after all else is safe."""
        from keepfast.app.threat import keep
        from keepfast.app.worker import save

        def again(only: tuple[bytes, ...], kept: tuple[bytes, ...]) -> None:
            save(self.engine, self.root, self.folder, told, only, kept)

        return _told_of(keep(self.engine, self.root, self.workspace, paths, threat, again))

    def _newest(self, trigger: str) -> dict[str, Any]:
        """Save, if a trigger is given, and return the newest checkpoint."""
        if trigger:
            self._save(trigger)
        from keepfast.store.rows import Query

        repository, session = self.engine.repository(), self.event.session
        rows = repository.find(Query(workspace=self.workspace, session=session, limit=1)) if session else []
        rows = rows or repository.find(Query(workspace=self.workspace, limit=1))
        if not rows:
            return {"status": "none"}
        row = rows[0]
        said = row.message if row.message != row.trigger else repository.document(row)[0].summary
        return {
            "status": "found",
            "id": row.id,
            "version": row.version,
            "trigger": row.trigger,
            "summary": said or f"v{row.version}",
        }

    def _protected(self, result: Mapping[str, Any], ask: bool, threat: Threat) -> Reply:
        if result["status"] == "late":
            return self._unkept(self._late(threat, bool(result.get("saved"))), ask)
        if result["status"] == "failed":
            return self._unkept(str(result["why"]).rstrip("."), ask)
        unkept = [f"{path} ({why})" for path, why in result.get("unkept", ())]
        if result.get("unnamed"):
            unkept.insert(0, str(result["unnamed"]).rstrip("."))
        remade = self._remade(result.get("remade", ()))
        return self._unkept(self._few(unkept), ask).beside(remade) if unkept else remade

    def _note_unprotected(self, result: Mapping[str, Any], threat: Threat) -> None:
        """Of what a command only mentions `status` tells: nobody is asked about something that may well stay as it is."""
        why = str(result.get("why", "")).rstrip(".")
        if result["status"] == "late":
            why = self._late(threat, bool(result.get("saved")))
        unkept = why or self._few([f"{path} ({why})" for path, why in result.get("unkept", ())])
        if unkept:
            self.engine.note(self.root, "not protected", "before_command", self._say("unkept_command", why=unkept))

    def _late(self, threat: Threat, saved: bool) -> str:
        """Which paths are not safe past the deadline. `saved`: all are but those that the rules leave out."""
        from keepfast.app.threat import left_out, meant
        from keepfast.workspace.marker import show

        late = self._say("late", seconds=self._deadline())
        paths = meant(self.root, threat)
        if saved:
            paths = left_out(self.engine, self.root, self.workspace, paths, threat)
        names = self._few([show(path) for path in paths if path])
        return f"{names}: {late}" if names else late

    def _unkept(self, why: str, ask: bool) -> Reply:
        """Something cannot be kept: a person is asked if there is one; else it is told, or the command denied."""
        told = self._say("unkept_command", why=why)
        self.engine.note(self.root, "not protected", "before_command", told, told=True)
        if ask and self.event.can_ask:
            # Also where a rule or the client's own question answers for us, the user hears of it.
            return Reply(ask=self._say("ask_command", why=why), told_user=told)
        if self.settings["hooks.before_command_unasked"] == "deny":
            denied = self._say("deny_command", why=why)
            return Reply(deny=denied, told_user=denied)
        return Reply(told_agent=told, told_user=told)

    def _remade(self, found: Sequence[tuple[str, str | None]]) -> Reply:
        """Name what a tool can make again, each once in a session: agents build and clean over and over."""
        now, session, named = self.clock(), self.event.session, list[str]()
        for path, command in found:
            name = "left_by_settings" if command is None else "made_by" if command else "made_by_itself"
            # So few that the session's file stays small.
            if len(named) >= MOST_TOLD or sessions.claim(self.folder, session, "remade " + path[:100], now, DAY):
                named.append(self._say(name, path=path, command=command))
        if not named:
            return Reply()
        told = self._say("remade_command", what=self._few(named))
        self.engine.note(self.root, "noticed", "before_command", told, told=True)
        return Reply(told_agent=told, told_user=told)

    def _few(self, texts: list[str]) -> str:
        more = [self._say("and_more", count=len(texts) - MOST_TOLD)] if len(texts) > MOST_TOLD else []
        return ", ".join([*texts[:MOST_TOLD], *more])

    def _budget_reply(self, usage: Usage, trigger: str, result: Mapping[str, Any]) -> Reply:
        from keepfast.model.budget import Band

        found = Band(int(trigger.rpartition("_")[2]))
        if found.is_quiet:
            found = self._untold(usage) or found
        if found.is_quiet:
            return Reply(failed=result["why"]) if result["status"] == "failed" else Reply()
        name = {"late": "budget_saving", "failed": "budget_failed"}.get(result["status"], "budget")
        if found.is_warning and name == "budget":
            name = "budget_warning"
        message = self._say(name, percent=usage.reached, why=str(result.get("why", "")).rstrip("."))
        checkpoint = str(result.get("id", ""))
        numbers = {"message": message, "used": usage.used, "budget": usage.budget, "checkpoint": checkpoint}
        told = self._say("budget_agent" if checkpoint else "budget_agent_plain", **numbers)
        if found.is_warning:
            told += self._say("budget_agent_warning")
        return Reply(
            told_agent=told, told_user=message, budget=message, checkpoint=checkpoint, warning=found.is_warning
        )

    def _untold(self, usage: Usage) -> Band | None:
        """The band below a quiet threshold that was passed without a checkpoint of its own, which would have told of it."""
        from keepfast.model.budget import highest_announced_band

        found = highest_announced_band(usage.percent)
        if found is None or sessions.trigger_times(self.folder, self.event.session).get(found.trigger):
            return None
        sessions.claim(self.folder, self.event.session, found.trigger, self.clock(), 0)
        return found

    def _is_news(self, trigger: str) -> bool:
        """Is this failure to be told? It is tried again and again, and told once in the time that a success would rest."""
        try:
            return sessions.claim(self.folder, self.event.session, "failed " + trigger, self.clock(), BUDGET_REST)
        except OSError:
            return True  # better twice than never

    def _await_pending(self) -> None:
        """See to it that what is pending is saved before a tool writes over it; not for longer than we have patience."""
        waiting = pending.names(self.folder)
        if not waiting:
            return
        now, session = self.clock(), self.event.session
        if 0 <= now - sessions.trigger_times(self.folder, session).get("late", -MINUTE) < MINUTE:
            return  # a first scan of a large tree takes its time; its session waits once
        from time import monotonic

        from keepfast.model.age import amount
        from keepfast.state.workers import HOOKS, running_worker

        if running_worker(self.folder, HOOKS) is None:
            self.background.detach(self._work)
        end = monotonic() + PATIENCE
        while monotonic() < end:
            self.background.pause(STEP)
            if not set(waiting) & set(pending.names(self.folder)):
                return
        sessions.claim(self.folder, session, "late", now, 0)
        self.engine.note(
            self.root,
            "not protected",
            "pending",
            f"A tool ran before {amount(len(waiting), 'pending event')} could be saved.",
        )

    # Both

    def _say(self, name: str, **values: object) -> str:
        from keepfast.app.messages import text

        return text(name, self._language(), **values)

    def _decide(self, band: str, is_destructive: bool = False) -> Decision:
        state = State(self.clock(), _Taken(self.folder, self.event.session), band, is_destructive)
        return decide(self.event, state, self.settings)

    def _claim(self, decision: Decision) -> bool:
        """Three tools may start at the same instant: one of them takes the checkpoint that all of them want."""
        rest = rest_period(decision.trigger)
        return not rest or sessions.claim(self.folder, self.event.session, decision.trigger, self.clock(), rest)

    def _ease(self, trigger: str) -> None:
        """A checkpoint that failed claims no long rest: the next event of its kind tries again soon."""
        if not rest_period(trigger):
            return
        try:
            sessions.set_trigger_time(
                self.folder, self.event.session, trigger, failed_trigger_time(trigger, self.clock())
            )
        except OSError:
            pass  # then it rests for as long as others

    def _deadline(self) -> float:
        return float(self.settings["hooks.before_command_deadline"])


class _Taken:
    """When triggers were taken, read from the session's file only if somebody asks."""

    def __init__(self, folder: str, session: str) -> None:
        self.folder, self.session = folder, session

    def get(self, trigger: str, otherwise: int) -> int:
        return sessions.trigger_times(self.folder, self.session).get(trigger, otherwise)


def _told_of(losses: Losses) -> dict[str, Any]:
    from keepfast.workspace.marker import show

    return {
        "remade": [[show(path), command] for path, command in losses.remade],
        "unkept": [[show(path), why] for path, why in losses.unkept],
    }


def _first_line(text: str) -> str:
    if not text:
        return ""
    from keepfast.secrets.cuts import first_line

    return first_line(text, 1000)


def _with_contents(root: bytes, named: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The paths and, of folders, what lies below them, up to a number that can be saved in time."""
    import os

    found: dict[bytes, None] = {}
    for path in named:
        found[path] = None
        if os.path.islink(root + b"/" + path):
            continue  # else the walk would begin behind it
        for folder, folders, files in os.walk(root + b"/" + path):
            below = folder[len(root) + 1 :]
            folders[:] = [name for name in folders if name != b".git"]
            found.update(dict.fromkeys([below + b"/" + name for name in folders + files]))
            if len(found) > MOST_NAMED:
                return tuple(found)[:MOST_NAMED]
    return tuple(found)


def _tell(report: int) -> None:
    from posix import write

    try:
        write(report, b"1")
    except OSError:
        pass  # nobody waits any more


def _tail(path: str) -> bytes:
    from os.path import isfile

    if not isfile(path):
        return b""  # a pipe would let us wait for ever
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL))
            return file.read(TAIL)
    except OSError:
        return b""


def _script(path: str) -> str | None:
    """The text of a script that a command runs; empty if it is none, and None if it is too long or cannot be read."""
    from _stat import S_ISDIR, S_ISREG
    from posix import O_CLOEXEC, O_NOCTTY, O_NONBLOCK, O_RDONLY, close, fstat, read
    from posix import open as open_fd

    try:
        fd = open_fd(path.encode("utf-8", "surrogateescape"), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        found = fstat(fd)
        if S_ISDIR(found.st_mode):
            return ""
        text = read(fd, LONGEST_SCRIPT + 1) if S_ISREG(found.st_mode) else b"\n" * (LONGEST_SCRIPT + 1)
    except OSError:
        return None
    finally:
        close(fd)
    if b"\0" in text:
        return ""  # a program
    return text.decode("utf-8", "surrogateescape") if len(text) <= LONGEST_SCRIPT else None


def _is_there(path: bytes) -> bool:
    from posix import lstat

    try:
        lstat(path)
    except OSError:
        return False
    return True


def _size(name: str) -> int:
    from posix import stat

    try:
        return stat(name).st_size
    except OSError:
        return 0
