"""What an agent's events lead to: noted, saved at once while the client waits, or left to the worker."""

from __future__ import annotations

from holdfast.agents.base import Reply
from holdfast.core.agent_event import (
    COMPACTION_STARTS,
    OTHER,
    SESSION_ENDS,
    SESSION_STARTS,
    TOOL_ENDED,
    TOOL_STARTS,
    TURN_ENDED,
)
from holdfast.core.errors import HoldfastError
from holdfast.core.policy import Ask, Skip, State, decide, rest_of
from holdfast.store import pending, sessions
from holdfast.workspace.find import find

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Protocol

    from holdfast.core.agent_event import AgentEvent
    from holdfast.core.budget import Usage
    from holdfast.core.policy import Decision
    from holdfast.engine import Engine
    from holdfast.settings import Settings
    from holdfast.store.place import Place

    class Background(Protocol):
        """How work is done by another process; see `frontends/background.py`."""

        def detach(self, work: Callable[[], object]) -> None: ...
        def attempt(self, work: Callable[[], bytes], seconds: float) -> bytes | None: ...
        def tidy(self, folder: bytes) -> None: ...
        def pause(self, seconds: float) -> None: ...

    Deliver = Callable[[Engine, bytes, str, AgentEvent, int], Reply]
    """Engine, root, workspace, the start of a session and the number of the part → what the session is told."""

PATIENCE, STEP = 2.0, 0.005
"""Seconds that a tool which may write waits for a pending checkpoint, and how often it looks."""
LAG_LOOKS, LAG_STEP, FEWEST_WORDS, TAIL = 25, 0.02, 4, 64 << 10
MINUTE, DAY = 60_000_000_000, 86_400_000_000_000
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

    @property
    def engine(self) -> Engine:
        """Made when it is first asked for: most tool calls need none."""
        if self._engine is None:
            self._engine = self._make()
        return self._engine

    def attend(self) -> Reply:
        """Return what the client is told. Raises a `HoldfastError` or `OSError` where something was due and failed."""
        kind = self.event.kind
        if kind == OTHER or (not self.part and kind != TOOL_STARTS) or not self._locate():
            return Reply()
        if kind == TOOL_ENDED:
            if self.event.paths:
                sessions.touch(self.folder, self.event.session, self.event.paths)
            return Reply()
        if kind == TOOL_STARTS:
            return self._tool_starts()
        if kind == COMPACTION_STARTS:
            return self._compaction_starts()
        if self.part == 1:
            self._later()
        if kind == SESSION_STARTS and self.deliver is not None:
            return self.deliver(self.engine, self.root, self.workspace, self.event, self.part)
        return Reply(failed=self._odd_settings()) if kind == TURN_ENDED else Reply()

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()

    def _locate(self) -> bool:
        event, is_tool = self.event, self.event.kind in (TOOL_STARTS, TOOL_ENDED)
        found = find(event.cwd)
        if found is None and not is_tool:
            found = self.engine.locate(event.cwd, adopt=True)
        if found is None:
            return False
        self.root, self.workspace = found
        self.folder = self.place.folder(self.workspace)
        self.place.id()  # a store that is not there, or not for us, is named before anything is written to it
        return True

    def _odd_settings(self) -> str:
        """What is wrong with the settings, once a session: defaults stand, and the agent goes on."""
        warnings, now = self.settings.warnings, self.clock()
        if not warnings or not sessions.claim(self.folder, self.event.session, "settings", now, DAY):
            return ""
        return warnings[0]

    # Later

    def _later(self) -> None:
        event = self.event
        decision = self._decide("")
        if isinstance(decision, Skip) or not self._claim(decision):
            return
        pending.append(self.folder, self._told(decision.trigger))
        if event.kind == SESSION_ENDS and event.reason == "clear" and event.client:
            sessions.note_cleared(
                self.folder,
                event.client,
                session=event.session,
                transcript=event.transcript,
                at=self.clock(),
                status="",
                ask=isinstance(decision, Ask),
            )
        self.background.detach(self._work)

    def _work(self) -> None:
        """What the detached process does. Whatever happens to it, `status` tells."""
        from holdfast.finishing import finish

        try:
            if self.event.kind == TURN_ENDED:
                self._await_transcript()
            self._remember()
            finish(self.engine, self.root, self.workspace, self.background.tidy)
            if self.settings["analysis.llm"] != "off" and self.event.kind in (TURN_ENDED, SESSION_ENDS):
                self._analyse()
        except Exception as error:
            self.engine.note(self.root, "failed", self.event.kind, _why(error))

    def _analyse(self) -> None:
        """After the checkpoint, and after the lock that goes with it: a model takes its time."""
        from holdfast.analysing import analyse

        event = self.event
        last = event.kind == SESSION_ENDS
        analyse(self.engine, self.root, self.folder, event.session, event.transcript, last=last)

    def _remember(self) -> None:
        """Keep what was asked and said, without secrets: the worker that makes the checkpoint may be another process."""
        event = self.event
        texts = {"prompt": _first_line(event.prompt), "said": _first_line(event.said)}
        if any(texts.values()):
            from holdfast.core.redact import redact

            texts = {key: redact(text) for key, text in texts.items()}
        known = {"session": event.session, "transcript": event.transcript, "model": event.model}
        known["client"] = str(event.client) if event.client else ""
        known["ended"] = (event.reason or "ended") if event.kind == SESSION_ENDS else ""
        try:
            sessions.remember(self.folder, event.session, **known, **texts)
        except OSError as error:
            self.engine.note(self.root, "failed", event.kind, _why(error))  # the checkpoint is made all the same

    def _await_transcript(self) -> None:
        """A turn's end may be told before its last words are in the transcript: give them half a second."""
        words = max(_first_line(self.event.said).replace('"', "\\").split("\\"), key=len).encode("utf-8", "ignore")
        for _ in range(LAG_LOOKS if len(words) >= FEWEST_WORDS and self.event.transcript else 0):
            if words in _tail(self.event.transcript):
                return
            self.background.pause(LAG_STEP)

    def _told(self, trigger: str) -> dict[str, Any]:
        event = self.event
        return {
            "trigger": trigger,
            "at": self.clock(),
            "session": event.session,
            "agent": event.agent,
            "cwd": event.cwd.decode("utf-8", "surrogateescape"),
            "transcript": event.transcript,
            "client": event.client,
            "model": event.model,
            "reason": event.reason[:200],
        }

    # At once

    def _tool_starts(self) -> Reply:
        event, settings = self.event, self.settings
        if event.writes:
            self._await_pending()
        usage, band = None, ""
        if event.transcript and not event.subagent and self.part:
            from holdfast.conversation.usage import tokens
            from holdfast.core.budget import band as crossed

            asked, windows = settings["budget.tokens"], settings["budget.windows"]
            usage = tokens(self.folder, event.session, event.transcript, event.model, asked, windows)
            found = crossed(usage.percent, settings["hooks.checkpoint_threshold_percent"])
            band = found.trigger if found is not None else ""
        named: tuple[bytes, ...] | None = None
        if event.command and settings["hooks.before_command"] != "off":
            from holdfast.core.shell import threatened

            named = threatened(event.command, event.cwd, self.root)
        if not band and named is None:
            return Reply()
        decision = self._decide(band, named is not None)
        if isinstance(decision, Skip) or not self._claim(decision):
            return Reply()
        result = self._now(decision.trigger, named or ())
        if decision.trigger == "before_command":
            return self._protected(result, isinstance(decision, Ask))
        assert usage is not None
        return self._budget_reply(usage, decision.trigger, result)

    def _compaction_starts(self) -> Reply:
        decision = self._decide("")
        is_due = not isinstance(decision, Skip) and self._claim(decision)
        result = self._result(lambda: self._newest(decision.trigger if is_due else ""), self._deadline())
        if result["status"] == "late":
            result = self._result(lambda: self._newest(""), PATIENCE)  # then the one before it
        if result.get("status") == "failed":
            return Reply(failed=str(result["why"]))
        if not result.get("id"):
            return Reply()
        told = {key: result[key] for key in ("id", "version", "trigger", "summary")}
        return Reply(told_agent=self._say("compact", **told))

    def _now(self, trigger: str, named: tuple[bytes, ...]) -> dict[str, Any]:
        """Save within the deadline. `status` is that of the outcome, or `failed` with `why`, or `late`."""
        return self._result(lambda: self._save(trigger, named), self._deadline())

    def _result(self, work: Callable[[], dict[str, Any]], seconds: float) -> dict[str, Any]:
        from holdfast.core.light_json import dumps, loads

        def encoded() -> bytes:
            try:
                return dumps(work()).encode("ascii")
            except Exception as error:
                # Whoever waits is told; if nobody does any more, `status` is.
                self.engine.note(self.root, "failed", self.event.kind, _why(error))
                return dumps({"status": "failed", "why": _why(error)}).encode("ascii")

        said = self.background.attempt(encoded, seconds)
        if said is None:
            return {"status": "late"}
        try:
            found = loads(said)
        except ValueError:
            found = None
        return found if isinstance(found, dict) else {"status": "failed", "why": "the saving process was ended"}

    def _save(self, trigger: str, named: tuple[bytes, ...]) -> dict[str, Any]:
        from holdfast.finishing import finish, save

        finish(self.engine, self.root, self.workspace, self.background.tidy)
        told = self._told(trigger)
        if named and _size(self.folder + "/cache") > LARGE_CACHE:
            save(self.engine, self.root, self.folder, told, _with_contents(self.root, named))
        outcome = save(self.engine, self.root, self.folder, told)
        if outcome.untidy:
            self.background.tidy(self.root)
        return {"status": outcome.status, "id": outcome.id, "version": outcome.version}

    def _newest(self, trigger: str) -> dict[str, Any]:
        """Save, if a trigger is given, and return the newest checkpoint."""
        if trigger:
            self._save(trigger, ())
        from holdfast.store.rows import Query

        rows = self.engine.repository().ledger.find(Query(workspace=self.workspace, limit=1))
        if not rows:
            return {"status": "none"}
        row = rows[0]
        return {
            "status": "found",
            "id": row.id,
            "version": row.version,
            "trigger": row.trigger,
            "summary": row.message or row.trigger,
        }

    def _protected(self, result: Mapping[str, Any], ask: bool) -> Reply:
        if result["status"] not in ("late", "failed"):
            return Reply()
        why = self._say("late", seconds=self._deadline()) if result["status"] == "late" else result["why"]
        self.engine.note(
            self.root, "not protected", "before_command", f"A command went on without a checkpoint: {why}."
        )
        return Reply(ask=self._say("ask_command", why=why)) if ask else Reply()

    def _budget_reply(self, usage: Usage, trigger: str, result: Mapping[str, Any]) -> Reply:
        from holdfast.core.budget import Band

        found = Band(int(trigger.rpartition("_")[2]))
        if found.is_quiet:
            return Reply(failed=result["why"]) if result["status"] == "failed" else Reply()
        name = {"late": "budget_saving", "failed": "budget_failed"}.get(result["status"], "budget")
        if found.is_warning and name == "budget":
            name = "budget_warning"
        percent = int(usage.percent)
        message = self._say(name, percent=percent, why=result.get("why", ""))
        checkpoint = str(result.get("id", ""))
        numbers = {"message": message, "used": usage.used, "budget": usage.budget, "checkpoint": checkpoint}
        told = self._say("budget_agent" if checkpoint else "budget_agent_plain", **numbers)
        if found.is_warning:
            told += self._say("budget_agent_warning")
        return Reply(
            told_agent=told, told_user=message, budget=message, checkpoint=checkpoint, warning=found.is_warning
        )

    def _await_pending(self) -> None:
        """See to it that what is pending is saved before a tool writes over it; not for longer than we have patience."""
        waiting = pending.names(self.folder)
        if not waiting:
            return
        now, session = self.clock(), self.event.session
        if 0 <= now - sessions.taken(self.folder, session).get("late", -MINUTE) < MINUTE:
            return  # a first scan of a large tree takes its time; its session waits once
        from time import monotonic

        from holdfast.store.workers import HOOKS, living

        if living(self.folder, HOOKS) is None:
            self.background.detach(self._work)
        end = monotonic() + PATIENCE
        while monotonic() < end:
            self.background.pause(STEP)
            if not set(waiting) & set(pending.names(self.folder)):
                return
        sessions.claim(self.folder, session, "late", now, 0)
        self.engine.note(
            self.root, "not protected", "pending", f"A tool went on before {len(waiting)} pending events were saved."
        )

    # Both

    def _say(self, name: str, **values: object) -> str:
        from holdfast.core.messages import text

        return text(name, self._language(), **values)

    def _decide(self, band: str, is_destructive: bool = False) -> Decision:
        state = State(self.clock(), _Taken(self.folder, self.event.session), band, is_destructive)
        return decide(self.event, state, self.settings)

    def _claim(self, decision: Decision) -> bool:
        """Three tools may start at the same instant: one of them takes the checkpoint that all of them want."""
        rest = rest_of(decision.trigger)
        return not rest or sessions.claim(self.folder, self.event.session, decision.trigger, self.clock(), rest)

    def _deadline(self) -> float:
        return float(self.settings["hooks.before_command_deadline"])


class _Taken:
    """When triggers were taken, read from the session's file only if somebody asks."""

    def __init__(self, folder: str, session: str) -> None:
        self.folder, self.session = folder, session

    def get(self, trigger: str, otherwise: int) -> int:
        return sessions.taken(self.folder, self.session).get(trigger, otherwise)


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, HoldfastError) else f"{type(error).__name__}: {error}"


def _first_line(text: str) -> str:
    for line in text.split("\n"):
        if line.strip():
            return line.strip()[:1000]
    return ""


def _with_contents(root: bytes, named: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The paths and, of folders, what lies below them, up to a number that can be saved in time."""
    import os

    found: dict[bytes, None] = {}
    for path in named:
        found[path] = None
        for folder, folders, files in os.walk(root + b"/" + path):
            below = folder[len(root) + 1 :]
            found.update(dict.fromkeys([below + b"/" + name for name in folders + files]))
            if len(found) > MOST_NAMED:
                return tuple(found)[:MOST_NAMED]
    return tuple(found)


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


def _size(name: str) -> int:
    from posix import stat

    try:
        return stat(name).st_size
    except OSError:
        return 0
