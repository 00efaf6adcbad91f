"""Deliver the resume brief at the start of a session: whether, which checkpoint, and which part by which hook."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

from keepfast.agents.base import Reply
from keepfast.agents.working_file import WorkingFile
from keepfast.app.checkpoint import Engine
from keepfast.app.messages import ago, counted, text
from keepfast.app.resume import Resumer, SavedWork, redacted
from keepfast.app.state_document import Working, analysis, bounds_of, working_files
from keepfast.model.agent_event import AgentEvent
from keepfast.resume import inheritance
from keepfast.resume.notes import Notes
from keepfast.resume.quotation import clean
from keepfast.state import brief_parts as parts
from keepfast.state import sessions

STARTUP, RESUME, CLEAR, COMPACT, FORK = "startup", "resume", "clear", "compact", "fork"
DAY, SECOND = 86_400_000_000_000, 1_000_000_000
CLEAR_WAIT_SECONDS, POLL_SECONDS = 1.0, 0.02
"""How long a new session waits for the checkpoint of the cleared one."""
CRASH_WAIT_SECONDS = 5.0
"""How long it waits for the checkpoint of a crashed session, without which it would begin without that work."""
REPEAT_NS = 30 * SECOND
MAX_CLEAR_TO_START_NS = 15 * SECOND
"""A session that begins later after a clear does not belong to it, unless both come from the same client process."""
MAX_LISTED = 5
HOOK_PARTS = (1, 2)
"""The parts of a brief: at a session's start the client runs one hook for each."""


class Delivery:
    """What a session gets at its start: depending on the kind of start, once, and from this workspace only."""

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
        self.resumer = Resumer(engine, root, workspace)
        self.engine, self.event, self.part = engine, event, part
        self._language, self._program = language, program
        self.folder, self.settings = self.resumer.folder, engine.settings

    def reply(self) -> Reply:
        source = self.event.reason or STARTUP
        if self.part == 1:
            parts.hold_first(self.folder, self.event.session, self.engine.clock())
        if source in (RESUME, FORK):
            return self._after_pause() if self.part == 1 else Reply()
        report = self._clear_report() if source == CLEAR else ""
        mode = self.settings["hooks.auto_resume_on_start"]
        if source == STARTUP and mode is not False and not self._await_crash_saved():
            return Reply(user_text=self._text("saving_crashed") if self.part == 1 else "")
        work = self._work_to_resume(source)
        if work is None or mode is False or not self._is_wanted(source, work):
            return Reply(user_text=report)
        if mode == "prompt":
            offer = self._offer(work) if self.part == 1 else ""
            return Reply(user_text="\n".join([line for line in (report, offer) if line]))
        return self._hand_out(source, work, report)

    def _hand_out(self, source: str, work: SavedWork, report: str) -> Reply:
        """Return this hook's part of the brief, if there is one and no other hook delivered it."""
        if self.part > 1 and not self._is_whole(source):
            return Reply()
        if not self._claim(source):
            return Reply(user_text=report)
        texts = self._parts(source, work)
        if self.part > len(texts):
            return Reply(user_text=report)
        if self.part > 1:
            parts.wait_for_first(self.folder, self.event.session, self.engine.clock)
        resumed = self._text("resumed", summary=work.summary, age=self._age(work))
        user = "\n".join([line for line in (report, resumed) if line]) if self.part == 1 else ""
        return Reply(agent_text=texts[self.part - 1], user_text=user, checkpoint=work.row.id)

    def _work_to_resume(self, source: str) -> SavedWork | None:
        """Return the checkpoint to resume from. A compacted session resumes from its own, whatever that says."""
        session = self._session(source)
        if source == COMPACT:
            return self.resumer.newest_of(session) or self.resumer.latest_work()
        return self.resumer.latest_work(session, excluded=self.event.session)

    def _await_crash_saved(self) -> bool:
        """Wait until crashed sessions are saved, which the first part's hook started; False if they are not in time.

        Every part waits. A session whose saving failed is not waited for.
        """
        event, since, end = self.event, self.engine.clock() - REPEAT_NS, monotonic() + CRASH_WAIT_SECONDS
        while any(
            sessions.last_failed_save(facts) < since
            for facts in sessions.crashed_sessions(self.folder, event.session, event.client, True)
        ):
            if monotonic() >= end:
                return False
            sleep(POLL_SECONDS)
        return True

    def _parts(self, source: str, work: SavedWork) -> list[str]:
        """Return the parts of the brief, built by the hook that comes first and redacted before it leaves them to the others."""

        def build() -> list[str]:
            notes, files = self.resumer.notes_and_files(work, self._transcript(source))
            self._inherit(work, notes, files)
            return self.resumer.render(work, notes, files).parts

        if not self._is_whole(source):
            return build()  # no other hook delivers a part
        key = [self.resumer.workspace, self.event.session, source, work.row.id, work.row.document.hex()]
        others = [number for number in HOOK_PARTS if number != self.part]
        return parts.build_or_take(self.folder, self.event.session, key, self.part, others, build, self.engine.clock)

    def _inherit(self, work: SavedWork, notes: Notes, files: list[WorkingFile]) -> None:
        """Record the resumed work with the new session: its checkpoints have it until the session has work of its own."""
        inherited_work = inheritance.of(notes, files, work.row.id)
        if (
            inherited_work is None
            or work.session == self.event.session
            or not self.settings["checkpoint.capture_analysis"]
        ):
            return
        try:
            sessions.keep_inherited(self.folder, self.event.session, **redacted(inherited_work.to_json()))
        except OSError as error:
            self.engine.workspaces.note(
                self.resumer.root,
                "failed",
                "session_start",
                (f"Unsaved work of the previous session was not recorded: {error.strerror}."),
            )

    def _is_wanted(self, source: str, work: SavedWork) -> bool:
        """Return whether to resume. At startup only recent work, if a person is there and no other session runs here.

        The same holds after a clear of a session that had done nothing yet.
        """
        if source == COMPACT or (source == CLEAR and work.session == self._session(source)):
            return True
        if self.settings["hooks.resume_on_startup"] == "off" or not self.event.attended or not work.session:
            return False
        if self.engine.clock() - self.resumer.worked_at(work) > self.settings["hooks.resume_within_days"] * DAY:
            return False
        return not self._has_other_session()

    def _is_whole(self, source: str) -> bool:
        return source != STARTUP or self.settings["hooks.resume_on_startup"] == "full" or self._has_crashed()

    def _session(self, source: str) -> str:
        """Return the session to resume; empty for the newest work of any."""
        if source == COMPACT:
            return self.event.session
        if source == CLEAR:
            return str(self._clear_facts().get("session") or "")
        return ""

    def _transcript(self, source: str) -> str:
        if source == COMPACT:
            return self.event.transcript
        if source == CLEAR:
            return str(self._clear_facts().get("transcript") or "")
        return ""

    def _has_other_session(self) -> bool:
        """Return whether another session is live here."""
        return any(
            not facts.get("ended") and facts.get("session") != self.event.session and sessions.has_live_client(facts)
            for facts in sessions.all_facts(self.folder)
            if str(facts.get("client")) != str(self.event.client)
        )

    def _has_crashed(self) -> bool:
        """Return whether the last session ended without a SessionEnd event."""
        before = [facts for facts in sessions.all_facts(self.folder) if facts.get("session") != self.event.session]
        last = max(before, key=sessions.last_activity, default={"ended": "none"})
        return last.get("ended") == sessions.CUT_OFF or not (last.get("ended") or sessions.has_live_client(last))

    def _claim(self, source: str) -> bool:
        """Return True once per part: a client may run both the plugin's hooks and our own."""
        return sessions.claim(
            self.folder, self.event.session, f"brief {source} {self.part}", self.engine.clock(), REPEAT_NS
        )

    def _after_pause(self) -> Reply:
        changed = self.resumer.changed_since(self._language())
        return Reply(agent_text=self._text("changed_since", changes=changed)) if changed else Reply()

    def _offer(self, work: SavedWork) -> str:
        # The version, because after one prompt the newest checkpoint may be of other work.
        resume = f"{self._command('resume')} v{work.row.version}"
        return self._text("offer", summary=work.summary, age=self._age(work), resume=resume)

    def _age(self, work: SavedWork) -> str:
        return ago(self.engine.clock() - work.row.created_at, self._language())

    # After /clear

    def _clear_report(self) -> str:
        """Return what became of the cleared session; nothing if there was nothing to save, or another part reports it.

        Every part waits: parts about different checkpoints would not fit together.
        """
        end = monotonic() + CLEAR_WAIT_SECONDS
        while (clear := self._clear_facts()) and not clear.get("status"):
            if monotonic() >= end:
                return self._text("saving") if self.part == 1 else ""
            sleep(POLL_SECONDS)
        if self.part > 1:
            return ""
        if clear.get("status") == "off":
            return self._not_saved_report(int(clear.get("at") or 0))
        if clear.get("status") != "created":
            return self._text("clear_failed") if clear.get("status") == "failed" else ""
        row = self.engine.repository().checkpoint(self.resumer.workspace, int(clear["version"]))
        if row is None or row.forgotten:
            return ""
        work = self.resumer.work_at(row)
        files, lines, names = self.resumer.count_changes(row, self._language())
        added = self._text("at_least", count=f"{lines.added:,}") if lines.uncounted else f"{lines.added:,}"
        working = self._working(work)
        captured, size = self._captured(work, working)
        summary = self._text(
            "cleared", summary=work.summary, id=row.id, files=f"{files:,}", lines=added, captured=captured,
            analysis=self._analysis_words(work), size=_size(size),
        )  # fmt: skip
        large = [self._text("left_out", names=self._list_some(working.too_large))] if working.too_large else []
        rows = [summary, *large, *(names if self.settings["hooks.verify_before_clear"] else [])]
        if clear.get("ask"):
            sessions.note_asked(self.folder, self._client, self.event.session)
            rows.append(self._text("keep_or_drop", keep=self._command("keep"), drop=self._command("drop")))
        return "\n".join(rows)

    @property
    def _client(self) -> int:
        return self.event.client or self.event.likely_client

    def _clear_facts(self) -> dict[str, Any]:
        """Return what is known of the clear that this session follows; empty if there was none."""
        since = 0 if self.event.client else self.engine.clock() - MAX_CLEAR_TO_START_NS
        return sessions.cleared_for(self.folder, self._client, self.event.session, since)

    def _not_saved_report(self, at: int) -> str:
        """Return what changed since the last checkpoint, after a clear that makes none, if the setting asks for it."""
        if not self.settings["hooks.verify_before_clear"]:
            return ""
        version, names = self.resumer.unsaved_at(at)
        if not names:
            return ""
        files = counted(len(names), "file", self._language())
        return self._text("not_kept", version=f"v{version}", files=files, names=self._list_some(names))

    def _command(self, name: str) -> str:
        """Return what the user can type in the client: a command of the plugin if it is installed, else the program."""
        return self.event.slash + name if self.event.slash else f"! {self._program()} {name}"

    def _working(self, work: SavedWork) -> Working:
        root = os.fsdecode(self.resumer.root)
        return working_files(self.engine.repository(), work.row, work.header, root, self.settings)

    def _captured(self, work: SavedWork, working: Working) -> tuple[str, int]:
        """Return the session's files by name and their size; without any, how many files the whole checkpoint has."""
        if not working.names:
            return counted(work.row.files, "file", self._language()), work.row.bytes
        count = counted(len(working.names), "file", self._language())
        count = self._text("more_than", count=count) if working.more else count
        return f"{count} ({self._list_some(working.names)})", working.size

    def _list_some(self, names: list[str]) -> str:
        listed = ", ".join([clean(name).replace("\n", " ") for name in names[:MAX_LISTED]])
        more = f" {self._text('more', count=len(names) - MAX_LISTED)}" if len(names) > MAX_LISTED else ""
        return listed + more

    def _analysis_words(self, work: SavedWork) -> str:
        analysed = analysis(work.header, bounds_of(work.header, self.settings))
        parts = [self._text("current_task")] if analysed.current_task else []
        for lines, word in (
            (analysed.next_steps, "next step"), (analysed.decisions_made, "decision"), (analysed.blockers, "blocker"),
        ):  # fmt: skip
            if lines:
                parts.append(counted(len(lines), word, self._language()))
        return ", ".join(parts) or self._text("no_analysis")

    def _text(self, name: str, **values: object) -> str:
        return text(name, self._language(), **values)


def _size(count: int) -> str:
    return f"{count}B" if count < 1024 else f"{count / 1024:.0f}KB" if count < 1 << 20 else f"{count / (1 << 20):.1f}MB"
