"""The start of a session: what it is told of the work before it, by its source, once, and by hooks that share one build."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from keepfast.agents.base import Reply
from keepfast.app.messages import ago, counted, text
from keepfast.app.resume import Resuming, Told, struck
from keepfast.resume import inheritance
from keepfast.resume.quotation import clean
from keepfast.state import brief_parts as parts
from keepfast.state import sessions

if TYPE_CHECKING:
    from keepfast.agents.working_file import WorkingFile
    from keepfast.app.checkpoint import Engine
    from keepfast.app.state_document import Working
    from keepfast.model.agent_event import AgentEvent
    from keepfast.resume.notes import Notes

STARTUP, RESUME, CLEAR, COMPACT, FORK = "startup", "resume", "clear", "compact", "fork"
DAY, SECOND = 86_400_000_000_000, 1_000_000_000
PATIENCE, STEP = 1.0, 0.02
"""Seconds that a new session waits to hear that the checkpoint of the cleared one is made."""
PATIENCE_CRASH = 5.0
"""The same for that of a crashed one: the session begins without its work otherwise."""
AGAIN = 30 * SECOND
AT_ONCE = 15 * SECOND
"""How long after a clear the next session begins at most, where the client's process does not say that they belong together."""
MOST_LISTED = 5
HOOKS = (1, 2)
"""Parts that a client asks for at a session's start, each by a hook of its own."""


class Delivery:
    """The start of a session, and what it is told: by its source, once, for this workspace only."""

    def __init__(
        self,
        engine: Engine,
        root: bytes,
        workspace: str,
        event: AgentEvent,
        part: int,
        language: Callable[[], str],
        program: Callable[[], str] = lambda: "keepfast",
    ) -> None:
        self.resuming = Resuming(engine, root, workspace)
        self.engine, self.event, self.part = engine, event, part
        self._language, self._program = language, program
        self.folder, self.settings = self.resuming.folder, engine.settings

    def reply(self) -> Reply:
        source = self.event.reason or STARTUP
        if self.part == 1:
            parts.hold_first(self.folder, self.event.session, self.engine.clock())
        if source in (RESUME, FORK):
            return self._after_pause() if self.part == 1 else Reply()
        report = self._cleared() if source == CLEAR else ""
        mode = self.settings["hooks.auto_resume_on_start"]
        if source == STARTUP and mode is not False and not self._await_kept():
            return Reply(told_user=self._say("saving_crashed") if self.part == 1 else "")
        told = self._told(source)
        if told is None or mode is False or not self._is_wanted(source, told):
            return Reply(told_user=report)
        if mode == "prompt":
            offer = self._offer(told) if self.part == 1 else ""
            return Reply(told_user="\n".join([line for line in (report, offer) if line]))
        return self._hand_out(source, told, report)

    def _hand_out(self, source: str, told: Told, report: str) -> Reply:
        """This hook's part of the brief, if there is one and nobody has it yet."""
        if self.part > 1 and not self._is_whole(source):
            return Reply()
        if not self._claim(source):
            return Reply(told_user=report)
        texts = self._parts(source, told)
        if self.part > len(texts):
            return Reply(told_user=report)
        if self.part > 1:
            parts.wait_for_first(self.folder, self.event.session, self.engine.clock)
        said = self._say("resumed", summary=told.summary, age=self._age(told))
        user = "\n".join([line for line in (report, said) if line]) if self.part == 1 else ""
        return Reply(told_agent=texts[self.part - 1], told_user=user, checkpoint=told.row.id)

    def _told(self, source: str) -> Told | None:
        """The checkpoint that is gone on from. A compacted session goes on from its own, whatever that says."""
        session = self._session(source)
        if source == COMPACT:
            return self.resuming.newest_of(session) or self.resuming.work()
        return self.resuming.work(session, but=self.event.session)

    def _await_kept(self) -> bool:
        """See to it that what a crashed session said is kept, which the hook of the first part began; False if it is not yet.

        Every part waits, as after a clear. Where keeping it failed there is nothing to wait for.
        """
        from time import monotonic, sleep

        event, since, end = self.event, self.engine.clock() - AGAIN, monotonic() + PATIENCE_CRASH
        while any(
            sessions.last_failed_save(facts) < since
            for facts in sessions.crashed_sessions(self.folder, event.session, event.client, True)
        ):
            if monotonic() >= end:
                return False
            sleep(STEP)
        return True

    def _parts(self, source: str, told: Told) -> list[str]:
        """The brief, built by the hook that comes first. Secrets are struck out before anything is left for another."""

        def build() -> list[str]:
            notes, files = self.resuming.settled(told, self._transcript(source))
            self._inherit(told, notes, files)
            return self.resuming.written(told, notes, files).parts

        if not self._is_whole(source):
            return build()  # no other hook wants any of it
        key = [self.resuming.workspace, self.event.session, source, told.row.id, told.row.document.hex()]
        others = [number for number in HOOKS if number != self.part]
        return parts.build_or_take(self.folder, self.event.session, key, self.part, others, build, self.engine.clock)

    def _inherit(self, told: Told, notes: Notes, files: list[WorkingFile]) -> None:
        """The new session goes on with that work, and its checkpoints tell of it, until it names other work."""
        left = inheritance.of(notes, files, told.row.id)
        if left is None or told.session == self.event.session or not self.settings["checkpoint.capture_analysis"]:
            return
        try:
            sessions.keep_inherited(self.folder, self.event.session, **struck(left.to_json()))
        except OSError as error:
            self.engine.note(
                self.resuming.root,
                "failed",
                "session_start",
                (f"Unsaved work of the previous session was not recorded: {error.strerror}."),
            )

    def _is_wanted(self, source: str, told: Told) -> bool:
        """At startup only where somebody goes on with recent work: not unattended, not beside another session, not after weeks.

        The same holds after a clear of a session that had not begun to do anything.
        """
        if source == COMPACT or (source == CLEAR and told.session == self._session(source)):
            return True
        if self.settings["hooks.resume_on_startup"] == "off" or not self.event.attended or not told.session:
            return False
        if self.engine.clock() - self.resuming.worked_at(told) > self.settings["hooks.resume_within_days"] * DAY:
            return False
        return not self._others()

    def _is_whole(self, source: str) -> bool:
        return source != STARTUP or self.settings["hooks.resume_on_startup"] == "full" or self._crashed()

    def _session(self, source: str) -> str:
        """The session that is gone on with."""
        if source == COMPACT:
            return self.event.session
        if source == CLEAR:
            return str(self._clear().get("session") or "")
        return ""

    def _transcript(self, source: str) -> str:
        if source == COMPACT:
            return self.event.transcript
        if source == CLEAR:
            return str(self._clear().get("transcript") or "")
        return ""

    def _others(self) -> bool:
        """Is another session live here?"""
        return any(
            not facts.get("ended")
            and facts.get("session") != self.event.session
            and sessions.is_alive(facts.get("client"))
            for facts in sessions.all_facts(self.folder)
            if str(facts.get("client")) != str(self.event.client)
        )

    def _crashed(self) -> bool:
        """Did the last session end without telling so?"""
        before = [facts for facts in sessions.all_facts(self.folder) if facts.get("session") != self.event.session]
        last = max(before, key=sessions.last_activity, default={"ended": "none"})
        return last.get("ended") == sessions.CUT_OFF or not (last.get("ended") or sessions.is_alive(last.get("client")))

    def _claim(self, source: str) -> bool:
        """Each part is handed out once: a client may have both the plugin and our settings."""
        return sessions.claim(
            self.folder, self.event.session, f"brief {source} {self.part}", self.engine.clock(), AGAIN
        )

    def _after_pause(self) -> Reply:
        changed = self.resuming.changed_since(self._language())
        return Reply(told_agent=self._say("changed_since", changes=changed)) if changed else Reply()

    def _offer(self, told: Told) -> str:
        # By its version: after one prompt the newest checkpoint may be of other work.
        resume = f"{self._command('resume')} v{told.row.version}"
        return self._say("offer", summary=told.summary, age=self._age(told), resume=resume)

    def _age(self, told: Told) -> str:
        return ago(self.engine.clock() - told.row.created_at, self._language())

    # After /clear

    def _cleared(self) -> str:
        """What became of the session that was cleared; nothing if there was nothing to save, or another part tells it.

        Every part waits: two that told of different checkpoints would make no whole.
        """
        from time import monotonic, sleep

        end = monotonic() + PATIENCE
        while (found := self._clear()) and not found.get("status"):
            if monotonic() >= end:
                return self._say("saving") if self.part == 1 else ""
            sleep(STEP)
        if self.part > 1:
            return ""
        if found.get("status") == "off":
            return self._not_kept(int(found.get("at") or 0))
        if found.get("status") != "created":
            return self._say("clear_failed") if found.get("status") == "failed" else ""
        row = self.engine.repository().checkpoint(self.resuming.workspace, int(found["version"]))
        if row is None or row.forgotten:
            return ""
        told = self.resuming.tell(row)
        files, lines, names = self.resuming.counted(row, self._language())
        added = self._say("at_least", count=f"{lines.added:,}") if lines.uncounted else f"{lines.added:,}"
        working = self._working(told)
        captured, size = self._captured(told, working)
        said = self._say(
            "cleared", summary=told.summary, id=row.id, files=f"{files:,}", lines=added, captured=captured,
            analysis=self._analysed(told), size=_size(size),
        )  # fmt: skip
        large = [self._say("left_out", names=self._few(working.too_large))] if working.too_large else []
        rows = [said, *large, *(names if self.settings["hooks.verify_before_clear"] else [])]
        if found.get("ask"):
            sessions.note_asked(self.folder, self._client, self.event.session)
            rows.append(self._say("keep_or_drop", keep=self._command("keep"), drop=self._command("drop")))
        return "\n".join(rows)

    @property
    def _client(self) -> int:
        return self.event.client or self.event.likely_client

    def _clear(self) -> dict[str, Any]:
        """What is known of the clear that this session begins after; nothing if there is none."""
        since = 0 if self.event.client else self.engine.clock() - AT_ONCE
        return sessions.cleared_for(self.folder, self._client, self.event.session, since)

    def _not_kept(self, at: int) -> str:
        """After a clear that takes no checkpoint: what has changed since the last one, where that is to be compared."""
        if not self.settings["hooks.verify_before_clear"]:
            return ""
        version, names = self.resuming.unsaved_at(at)
        if not names:
            return ""
        files = counted(len(names), "file", self._language())
        return self._say("not_kept", version=f"v{version}", files=files, names=self._few(names))

    def _command(self, name: str) -> str:
        """What the user can type in the client: a command of the plugin where it is there, else the program itself."""
        return self.event.slash + name if self.event.slash else f"! {self._program()} {name}"

    def _working(self, told: Told) -> Working:
        from keepfast.app.state_document import working_files

        root = os.fsdecode(self.resuming.root)
        return working_files(self.engine.repository(), told.row, told.header, root, self.settings)

    def _captured(self, told: Told, found: Working) -> tuple[str, int]:
        """The session's files by name, with their size; where it has none, how many the whole checkpoint holds."""
        if not found.names:
            return counted(told.row.files, "file", self._language()), told.row.bytes
        count = counted(len(found.names), "file", self._language())
        count = self._say("more_than", count=count) if found.more else count
        return f"{count} ({self._few(found.names)})", found.size

    def _few(self, names: list[str]) -> str:
        listed = ", ".join([clean(name).replace("\n", " ") for name in names[:MOST_LISTED]])
        more = f" {self._say('more', count=len(names) - MOST_LISTED)}" if len(names) > MOST_LISTED else ""
        return listed + more

    def _analysed(self, told: Told) -> str:
        from keepfast.app.state_document import analysis, bounds_of

        known = analysis(told.header, bounds_of(told.header, self.settings))
        parts = [self._say("current_task")] if known.current_task else []
        for lines, word in (
            (known.next_steps, "next step"), (known.decisions_made, "decision"), (known.blockers, "blocker"),
        ):  # fmt: skip
            if lines:
                parts.append(counted(len(lines), word, self._language()))
        return ", ".join(parts) or self._say("no_analysis")

    def _say(self, name: str, **values: object) -> str:
        return text(name, self._language(), **values)


def _size(count: int) -> str:
    return f"{count}B" if count < 1024 else f"{count / 1024:.0f}KB" if count < 1 << 20 else f"{count / (1 << 20):.1f}MB"
