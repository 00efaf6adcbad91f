"""The start of a session: what it is told of the work before it, by its source, once, and by hooks that share one build."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.agents.base import Reply
from holdfast.core.brief_notes import age
from holdfast.core.messages import text
from holdfast.resuming import Resuming, Told
from holdfast.store import parts, sessions

if TYPE_CHECKING:
    from holdfast.core.agent_event import AgentEvent
    from holdfast.engine import Engine

STARTUP, RESUME, CLEAR, COMPACT, FORK = "startup", "resume", "clear", "compact", "fork"
DAY, SECOND = 86_400_000_000_000, 1_000_000_000
PATIENCE, STEP = 1.0, 0.02
"""Seconds that a new session waits to hear that the checkpoint of the cleared one is made."""
AGAIN = 30 * SECOND
HOOKS = (1, 2)
"""Parts that a client asks for at a session's start, each by a hook of its own."""


class Delivery:
    """The start of a session, and what it is told: by its source, once, for this workspace only."""

    def __init__(
        self, engine: Engine, root: bytes, workspace: str, event: AgentEvent, part: int, language: Callable[[], str]
    ) -> None:
        self.resuming = Resuming(engine, root, workspace)
        self.engine, self.event, self.part, self._language = engine, event, part, language
        self.folder, self.settings = self.resuming.folder, engine.settings

    def reply(self) -> Reply:
        source = self.event.reason or STARTUP
        if source in (RESUME, FORK):
            return self._after_pause() if self.part == 1 else Reply()
        report = self._cleared() if source == CLEAR else ""
        mode = self.settings["hooks.auto_resume_on_start"]
        told = self.resuming.newest(self._session(source), but="" if source == COMPACT else self.event.session)
        if told is None or mode is False or not self._is_wanted(source, told):
            return Reply(told_user=report)
        if mode == "prompt":
            offer = self._offer(told) if self.part == 1 else ""
            return Reply(told_user="\n".join([line for line in (report, offer) if line]))
        if self.part > 1 and not self._is_whole(source):
            return Reply()
        if not self._claim(source):
            return Reply(told_user=report)
        texts = self._parts(source, told)
        if self.part > len(texts):
            return Reply(told_user=report)
        said = self._say("resumed", summary=told.summary, age=age(self.engine.clock() - told.row.created_at))
        user = "\n".join([line for line in (report, said) if line]) if self.part == 1 else ""
        return Reply(told_agent=texts[self.part - 1], told_user=user, checkpoint=told.row.id)

    def _parts(self, source: str, told: Told) -> list[str]:
        """The brief, built by the hook that comes first. Secrets are struck out before anything is left for another."""

        def build() -> list[str]:
            return self.resuming.brief(told, transcript=self._transcript(source)).parts

        if not self._is_whole(source):
            return build()  # no other hook wants any of it
        key = [self.resuming.workspace, self.event.session, source, told.row.id, told.row.document.hex()]
        others = [number for number in HOOKS if number != self.part]
        return parts.shared(self.folder, self.event.session, key, self.part, others, build, self.engine.clock)

    def _is_wanted(self, source: str, told: Told) -> bool:
        """At startup only where somebody goes on with recent work: not unattended, not beside another session, not after weeks."""
        if source != STARTUP:
            return True
        if self.settings["hooks.resume_on_startup"] == "off" or not self.event.attended or not told.session:
            return False
        if told.row.trigger == "session_start" and not told.header.get("notes"):
            return False  # that session had not begun to do anything
        if self.engine.clock() - told.row.created_at > self.settings["hooks.resume_within_days"] * DAY:
            return False
        return not self._others()

    def _is_whole(self, source: str) -> bool:
        return source != STARTUP or self.settings["hooks.resume_on_startup"] == "full" or self._crashed()

    def _session(self, source: str) -> str:
        """The session that is gone on with."""
        if source == COMPACT:
            return self.event.session
        if source == CLEAR:
            return str(sessions.cleared(self.folder, self.event.client).get("session") or "")
        return ""

    def _transcript(self, source: str) -> str:
        if source == COMPACT:
            return self.event.transcript
        if source == CLEAR:
            return str(sessions.cleared(self.folder, self.event.client).get("transcript") or "")
        return ""

    def _others(self) -> bool:
        """Is another session live here?"""
        return any(
            not facts.get("ended") and facts.get("session") != self.event.session and _lives(facts.get("client"))
            for facts in sessions.every(self.folder)
            if str(facts.get("client")) != str(self.event.client)
        )

    def _crashed(self) -> bool:
        """Did the last session end without telling so?"""
        before = [facts for facts in sessions.every(self.folder) if facts.get("session") != self.event.session]
        return bool(before) and not before[0].get("ended") and not _lives(before[0].get("client"))

    def _claim(self, source: str) -> bool:
        """Each part is handed out once: a client may have both the plugin and our settings."""
        return sessions.claim(
            self.folder, self.event.session, f"brief {source} {self.part}", self.engine.clock(), AGAIN
        )

    def _after_pause(self) -> Reply:
        changed = self.resuming.changed_since()
        return Reply(told_agent=self._say("changed_since", changes=changed)) if changed else Reply()

    def _offer(self, told: Told) -> str:
        return self._say("offer", summary=told.summary, age=age(self.engine.clock() - told.row.created_at))

    # After /clear

    def _cleared(self) -> str:
        """What became of the session that was cleared; nothing if there was nothing to save, or another part tells it.

        Every part waits: two that told of different checkpoints would make no whole.
        """
        from time import monotonic, sleep

        end = monotonic() + PATIENCE
        while (found := sessions.cleared(self.folder, self.event.client)) and not found.get("status"):
            if monotonic() >= end:
                return self._say("saving") if self.part == 1 else ""
            sleep(STEP)
        if self.part > 1:
            return ""
        if found.get("status") != "created":
            return self._say("clear_failed") if found.get("status") == "failed" else ""
        row = self.engine.repository().ledger.checkpoint(self.resuming.workspace, int(found["version"]))
        if row is None or row.forgotten:
            return ""
        told = self.resuming.tell(row)
        files, lines, names = self.resuming.counted(row)
        notes = told.header.get("notes")
        analysis = notes.get("analysis", {}) if isinstance(notes, dict) else {}
        parts = [name for name in ("current_task", "next_steps", "decisions_made", "blockers") if analysis.get(name)]
        said = self._say(
            "cleared", summary=told.summary, id=row.id, files=files, lines=lines, captured=row.files,
            analysis=", ".join(parts).replace("_", " ") or "-", size=_size(row.bytes),
        )  # fmt: skip
        rows = [said, *(names if self.settings["hooks.verify_before_clear"] else [])]
        return "\n".join([*rows, self._say("keep_or_drop")] if found.get("ask") else rows)

    def _say(self, name: str, **values: object) -> str:
        return text(name, self._language(), **values)


def _lives(process: object) -> bool:
    try:
        number = int(str(process))
        if number <= 1:
            return False
        os.kill(number, 0)
    except PermissionError:
        return True
    except (ValueError, OverflowError, OSError):
        return False
    return True


def _size(count: int) -> str:
    return f"{count}B" if count < 1024 else f"{count / 1024:.0f}KB" if count < 1 << 20 else f"{count / (1 << 20):.1f}MB"
