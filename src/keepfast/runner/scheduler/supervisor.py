"""The supervisor: in a loop, start what is due and take over runs that nobody follows, until it is told to stop."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Event as Flag
from time import monotonic

from keepfast.model.errors import Busy, DiskFull, Unreachable
from keepfast.model.steps import step
from keepfast.runner.actions import recovery
from keepfast.runner.actions.logs import EventCopies
from keepfast.runner.actions.news import News
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.db import queries
from keepfast.runner.db.database import Claim
from keepfast.runner.db.sqlite import Alone
from keepfast.runner.domain.records import Run, Task
from keepfast.runner.domain.task import ENDED, HOST_LOST
from keepfast.runner.notify.notify import Notices
from keepfast.runner.process import shims
from keepfast.runner.process.redaction import clean_text
from keepfast.runner.process.wake import WakeListener
from keepfast.runner.scheduler.attempts import Workflows
from keepfast.runner.scheduler.timers import Timers
from keepfast.runner.scheduler.turns import Turns

SECOND = 1_000_000_000


class Supervisor:
    """The loop of ticks and, less often, of reconciliation."""

    def __init__(self, runtime: Runtime, workflows: Workflows, only: str = "", claim: Claim | None = None) -> None:
        self.runtime, self.tables, self.workflows = runtime, runtime.tables, workflows
        self.claim: Claim = claim or Alone()
        self.notices = Notices(runtime)
        self.timers, self.turns, self.events = Timers(runtime), Turns(runtime, only), EventCopies(runtime, only)
        self.only = only
        """Supervise this one task, not all."""
        self.stop = Flag()
        self.problem = ""
        """The last problem that kept the supervisor from its work."""
        self.note: Callable[[str], None] = lambda text: None
        """Is called with each new problem, and with an empty text when it is over."""
        self.news = News(runtime.tables, None)
        self._noted = ""
        self._reconciled = 0.0

    def run(self, until_idle: bool = False) -> None:
        """Run until `stop` is set; with `until_idle`, until no task can continue without a person."""
        listener = WakeListener(self.runtime.folder)
        try:
            if self.runtime.options.roots and not self.only:
                recovery.rebuild(self.runtime, self.runtime.options.roots)
            self.reconcile()
            while not self.stop.is_set():
                if not self.tables.is_same_file():
                    raise Unreachable(
                        "The task database was moved or deleted.", "Stop the supervisor and run `keepfast rebuild`."
                    )
                try:
                    self.claim.check()
                    if monotonic() - self._reconciled >= self.runtime.options.reconcile:
                        self.reconcile()
                    self.tick()
                    self.news.look()
                    if until_idle and not self.is_waiting():
                        return
                    pause, problem = self._pause(), self.runtime.problem or self.runtime.unread
                except (Busy, DiskFull, Unreachable, OSError) as error:
                    # Agents continue without us; a later tick writes what could not be written.
                    pause, problem = self.runtime.options.tick, str(error)
                self._say(problem)
                listener.wait(pause)
        finally:
            self.notices.close()
            listener.close()

    def _say(self, problem: str) -> None:
        problem = clean_text(problem)
        self.problem = problem or self.problem
        if problem != self._noted:
            self._noted = problem
            self.note(problem)

    def is_waiting(self) -> bool:
        """Return whether any task continues without a person."""
        if queries.open_runs(self.tables):
            return True
        return any(self._can_go_on(task) for task in queries.unfinished_tasks(self.tables))

    def _can_go_on(self, task: Task) -> bool:
        hold = self.tables.hold(task.id)
        if hold is not None:
            return not hold.human
        return all(self.tables.task(id).state not in ("failed", "cancelled") for id in task.after)

    def _pause(self) -> float:
        """Return the seconds until the next tick; less if a hold ends before."""
        now = self.runtime.now()
        due = [(hold.due_at - now) / SECOND for hold in self.tables.holds() if hold.due_at and not hold.human]
        running = 0.5 if queries.open_runs(self.tables) else self.runtime.options.tick
        return max(0.05, min([running, self.runtime.options.tick, *due]))

    # The tick

    def tick(self) -> None:
        """Lift holds, expire prompts, start runs, send notices, and update the copies in workspaces."""
        self.runtime.follow_settings()
        self.timers.follow_clock()
        self.timers.lift_due()
        self.timers.expire()
        self.timers.remind()
        self.timers.save_again()
        step("tick:lifted")
        self._schedule()
        self.notices.tick()
        self.events.look()

    # Starting runs

    def _schedule(self) -> None:
        busy = queries.open_runs(self.tables)
        free = self.runtime.options.concurrency - len(busy)
        if free <= 0:
            return
        used = {self.tables.task(run.task).workspace for run in busy}
        for task in self.turns.candidates():
            if free <= 0:
                break
            if task.workspace in used or task.id in {run.task for run in busy} or self.turns.is_held_back(task):
                continue
            run = self.turns.begin(task)
            if run is None:
                continue
            used.add(task.workspace)
            free -= 1
            step("tick:began")
            self.workflows.start(run.id)

    # Finding again

    def reconcile(self) -> None:
        """Make sure that every open run is followed. Repeating it changes nothing."""
        first, self._reconciled = not self._reconciled, monotonic()
        self.runtime.problem = ""  # everything that failed is tried again now
        if not self.only:
            recovery.stop_unknown_runs(self.runtime)
            if first:
                recovery.finish_interrupted(self.runtime)
        for run in queries.open_runs(self.tables):
            if self.workflows.is_busy(run.id) or self.only not in ("", run.task):
                continue
            kind = shims.status_of(run.folder, run.id).kind
            if kind == shims.ABSENT and self._is_of_another_host(run):
                self._lose(run)
                continue
            rebooted = kind == shims.ABSENT and run.boot != self.runtime.boot
            if first or rebooted:
                with self.tables.write() as tables:
                    if rebooted:
                        # Its agent was not started before the reboot: it starts now.
                        tables.change_run(run.id, boot=self.runtime.boot)
                    tables.log(run.task, self.runtime.now(), "found", {"as": kind}, run.id)
            self.workflows.start(run.id)
        step("reconciled")

    def _is_of_another_host(self, run: Run) -> bool:
        """Return whether a run belongs to another host that shares the database; a host keeps its name or its boot id."""
        shared = bool(self.runtime.options.database)
        return (
            shared and run.host != self.runtime.host and run.boot != self.runtime.boot and not os.path.isdir(run.folder)
        )

    def _lose(self, run: Run) -> None:
        """End a run of a host whose supervisor has stopped: its agent may still run there, so a person decides."""
        why = f"It ran on {run.host}, whose supervisor has stopped. Resume it here when the agent there has ended."
        with self.tables.write() as tables:
            now, task = self.runtime.now(), tables.task(run.task)
            if tables.run(run.id).state == ENDED:
                return
            tables.change_run(run.id, state=ENDED, outcome="host_lost", reason=why, ended_at=now)
            if task.request:
                tables.request(task.id, "", now, "host_lost", run.id)
            tables.change(task.id, now, epoch=task.epoch + 1)
            tables.move(task.id, "hold", now, trigger="host_lost", hold=HOST_LOST, run=run.id, why=why, human=1)
            tables.notify(task.id, now, "error", f"{task.title}: {why}")
