"""Timers: holds that end, questions that expire, reviews that are overdue, and clocks that were set."""

from __future__ import annotations

from keepfast.model.age import amount
from keepfast.model.errors import KeepfastError
from keepfast.runner.actions import finals
from keepfast.runner.actions.questions import hold_for_open_prompts
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.actions.tasks import Tasks
from keepfast.runner.db import changes, queries
from keepfast.runner.domain import questions, reviews
from keepfast.runner.domain.records import Hold, Prompt
from keepfast.runner.domain.task import ASKING, UNSAVED

SECOND = 1_000_000_000
JUMP = 60 * SECOND
"""A clock that differs by more than this from the clock since boot was set."""


class Timers:
    """Timers, checked with every tick; each row is changed once."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.tables = runtime, runtime.tables
        self._offset = 0

    def follow_clock(self) -> None:
        """Move the time-outs of prompts along with a clock that was set; resets of limits stay at their calendar time."""
        offset = self.runtime.now() - self.runtime.since_boot()
        jump, self._offset = offset - (self._offset or offset), offset

        if abs(jump) > JUMP:
            with self.tables.write() as tables:
                changes.shift_prompts(tables, jump)
        now, timeout = self.runtime.now(), int(self.runtime.options.question_timeout * SECOND)

        if queries.prompts_ahead(self.tables, now + JUMP):
            # The clock was set back while no supervisor ran.
            with self.tables.write() as tables:
                changes.begin_prompts_ahead_anew(tables, now, timeout, now + JUMP)

    def lift_due(self) -> None:
        for hold in self.tables.holds():
            if hold.human or hold.due_at is None or not self.is_due(hold):
                continue
            with self.tables.write():
                now = self.runtime.now()
                if self.tables.hold(hold.task) == hold:
                    self.tables.move(hold.task, "lift", now, trigger="timer", reason="")
                    hold_for_open_prompts(self.tables, hold.task, now, "timer")

    def save_again(self) -> None:
        """Retry saving, once an interval, for tasks whose work is complete but not saved."""
        for hold in self.tables.holds():
            if hold.kind == UNSAVED and hold.due_at is not None and self.is_due(hold):
                finals.retry(self.runtime, hold.task)

    def is_due(self, hold: Hold) -> bool:
        assert hold.due_at is not None
        if hold.due_boot is not None and hold.boot == self.runtime.boot:
            return self.runtime.since_boot() >= hold.due_boot
        return self.runtime.now() >= hold.due_at

    def expire(self) -> None:
        now = self.runtime.now()
        for prompt in queries.late_prompts(self.tables, now):
            late = questions.expire(bool(prompt.required), prompt.standard)
            if prompt.kind == "secret":
                late = late._replace(answer=questions.REFUSED)
            with self.tables.write():
                if late.answer is None:
                    again = now + int(self.runtime.options.question_timeout * SECOND)
                    self.tables.change_prompt(prompt.id, expires_at=again)
                    self.tables.notify(prompt.task, now, "reminder", f"Still waiting: {prompt.text}")
                    continue
                self.tables.change_prompt(
                    prompt.id, status="expired", answer=late.answer, answered_by="timeout", answered_at=now
                )
                self.tables.log(prompt.task, now, "question_expired", {"id": prompt.id, "answer": late.answer})
                hold = self.tables.hold(prompt.task)
                if hold is not None and hold.kind in ASKING:
                    self.tables.move(prompt.task, "lift", now, trigger="timeout", reason="")
                    hold_for_open_prompts(self.tables, prompt.task, now, "timeout")

    def remind(self) -> None:
        """Remind people of reviews, say when they are overdue, and approve them if the settings allow it."""
        now = self.runtime.now()
        for prompt in queries.waiting_reviews(self.tables):
            passes_after = int(self.runtime.options.auto_approve_after * SECOND)
            due = reviews.late(now - prompt.created_at, prompt.tries, bool(prompt.flagged), passes_after)
            if due is None:
                continue
            if due.passes and self._passes(prompt):
                continue
            with self.tables.write():
                kind, word = ("escalation", "Overdue") if due.overdue else ("reminder", "Still waiting")
                if due.reminders > prompt.tries:
                    self.tables.change_prompt(prompt.id, tries=due.reminders)
                    text = f"{word} for {amount(due.hours, 'hour')}: {prompt.text}"
                    self.tables.notify(prompt.task, now, kind, text, prompt.id, again=prompt.tries)

    def _passes(self, prompt: Prompt) -> bool:
        """Approve by policy; return False if that is refused, as when the workspace changed since the review began."""
        try:
            Tasks(self.runtime).answers.approve(prompt.id, by="policy")
        except KeepfastError:
            return False
        return True
