"""The supervisor: what is due is started, what was lost is found again, over and over until told to stop."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from threading import Event as Flag
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from holdfast.core.errors import Busy, DiskFull, HoldfastError, Unreachable
from holdfast.core.steps import step
from holdfast.supervisor import process, questions, recover, remembering, reviews, runs, telling
from holdfast.supervisor.asking import hold_open
from holdfast.supervisor.database import Alone, Claim
from holdfast.supervisor.drivers import driver
from holdfast.supervisor.notify import Notices
from holdfast.supervisor.settling import settle
from holdfast.supervisor.tables import Hold, Prompt, Run, Task
from holdfast.supervisor.task import ACTIVE, ENDED, HOST_LOST, QUEUED, RATE_LIMIT, SECRET, STARTING
from holdfast.supervisor.tasks import Tasks
from holdfast.supervisor.wake import Listener

if TYPE_CHECKING:
    from holdfast.supervisor.ground import Ground

SECOND = 1_000_000_000
JUMP = 60 * SECOND
"""A clock that moves by more than that against the one since boot was set."""


class Workflows(Protocol):
    """Whoever carries out the steps of runs."""

    def start(self, run: str) -> None:
        """Begin, or go on with, a run; at most one at a time for the same run."""

    def is_busy(self, run: str) -> bool: ...

    def close(self) -> None:
        """Stop observing; agents live on."""


def carry_out(ground: Ground, run: str, halt: Flag) -> None:
    """All steps of a run attempt, in order; each skips itself if it was done."""
    runs.baseline(ground, run)
    step("run:baseline")
    runs.spawn(ground, run)
    if runs.observe(ground, run, halt):
        step("run:observed")
        settle(ground, run)


class Threads:
    """Workflows without any engine: a thread per run. What is cut off is found again by `reconcile`."""

    def __init__(self, ground: Ground) -> None:
        self.ground, self.halt = ground, Flag()
        self.threads: dict[str, Thread] = {}
        self.done: Flag = Flag()

    def start(self, run: str) -> None:
        if self.is_busy(run):
            return
        thread = Thread(target=self._run, args=(run,), name=run, daemon=True)
        self.threads[run] = thread
        thread.start()

    def is_busy(self, run: str) -> bool:
        thread = self.threads.get(run)
        return thread is not None and thread.is_alive()

    def close(self) -> None:
        self.halt.set()
        for thread in list(self.threads.values()):
            thread.join(10)

    def _run(self, run: str) -> None:
        try:
            carry_out(self.ground, run, self.halt)
        except (HoldfastError, OSError) as error:
            log_trouble(self.ground, run, error)
        finally:
            self.threads.pop(run, None)


def log_trouble(ground: Ground, run: str, error: Exception) -> None:
    """What a step could not do is kept in the log; reconcile tries again."""
    try:
        with ground.tables.write() as tables:
            tables.log(tables.run(run).task, ground.now(), "trouble", {"error": str(error)}, run)
    except HoldfastError:
        ground.trouble = str(error)  # there is no room even for that


class Supervisor:
    """Tick and reconcile."""

    def __init__(self, ground: Ground, workflows: Workflows, only: str = "", claim: Claim | None = None) -> None:
        self.ground, self.tables, self.workflows = ground, ground.tables, workflows
        self.claim: Claim = claim or Alone()
        self.notices = Notices(ground)
        self.only = only
        """Look after this one task, not after all."""
        self.stop = Flag()
        self.trouble = ""
        """Why something could not be done, the last time that this happened."""
        self.note: Callable[[str], None] = lambda text: None
        """Where it is said what cannot be done now; an empty text takes it back."""
        self._noted = ""
        self._reconciled = 0.0
        self._offset = 0

    def run(self, until_idle: bool = False) -> None:
        """Go on until `stop` is set; with `until_idle`, until no task can go on by itself."""
        listener = Listener(self.ground.folder)
        try:
            if self.ground.options.roots and not self.only:
                recover.rebuild(self.ground, self.ground.options.roots)
            self.reconcile()
            while not self.stop.is_set():
                if not self.tables.is_same_file():
                    raise Unreachable("The task database was moved or deleted.", "Stop, and run `holdfast rebuild`.")
                try:
                    self.claim.check()
                    if monotonic() - self._reconciled >= self.ground.options.reconcile:
                        self.reconcile()
                    self.tick()
                    if until_idle and not self.is_waiting():
                        return
                    pause, trouble = self._pause(), self.ground.trouble
                except (Busy, DiskFull, Unreachable, OSError) as error:
                    # Agents go on without us; what could not be written is written when there is room again.
                    pause, trouble = self.ground.options.tick, str(error)
                self._say(trouble)
                listener.wait(pause)
        finally:
            self.notices.close()
            listener.close()

    def _say(self, trouble: str) -> None:
        self.trouble = trouble or self.trouble
        if trouble != self._noted:
            self._noted = trouble
            self.note(trouble)

    def is_waiting(self) -> bool:
        """Is there anything that goes on without a person?"""
        if self.tables.runs("state != 'ended'"):
            return True
        return any(
            self._can_go_on(task) for task in self.tables.tasks("state IN ('queued', 'active') AND archived = 0")
        )

    def _can_go_on(self, task: Task) -> bool:
        hold = self.tables.hold(task.id)
        if hold is not None:
            return not hold.human
        return all(self.tables.task(id).state not in ("failed", "cancelled") for id in task.after)

    def _pause(self) -> float:
        """Until the next tick, or sooner if a hold ends before."""
        now = self.ground.now()
        due = [(hold.due_at - now) / SECOND for hold in self.tables.holds() if hold.due_at and not hold.human]
        running = 0.5 if self.tables.runs("state != 'ended'") else self.ground.options.tick
        return max(0.05, min([running, self.ground.options.tick, *due]))

    # The tick

    def tick(self) -> None:
        """Lift what is due, expire what is late, start what can start, tell what is to be told."""
        self._follow_clock()
        self._lift_due()
        self._expire()
        self._remind()
        step("tick:lifted")
        self._schedule()
        self.notices.tick()

    def _follow_clock(self) -> None:
        """A clock that was set moves the time-outs of prompts along; resets of limits stay where the calendar has them."""
        offset = self.ground.now() - self.ground.since_boot()
        jump, self._offset = offset - (self._offset or offset), offset
        waiting = "status IN ('pending', 'presented')"
        if abs(jump) > JUMP:
            with self.tables.write() as tables:
                tables.do(f"UPDATE prompt SET created_at = created_at + ? WHERE {waiting}", jump)
                tables.do(f"UPDATE prompt SET expires_at = expires_at + ? WHERE {waiting} AND expires_at > 0", jump)
        now, timeout = self.ground.now(), int(self.ground.options.question_timeout * SECOND)
        ahead = f"{waiting} AND created_at > ?"
        if self.tables.prompts(ahead, now + JUMP):
            # It was set back while nobody looked.
            with self.tables.write() as tables:
                tables.do(
                    f"UPDATE prompt SET expires_at = ? WHERE {ahead} AND expires_at > 0", now + timeout, now + JUMP
                )
                tables.do(f"UPDATE prompt SET created_at = ? WHERE {ahead}", now, now + JUMP)

    def _lift_due(self) -> None:
        for hold in self.tables.holds():
            if hold.human or hold.due_at is None or not self._is_due(hold):
                continue
            with self.tables.write():
                now = self.ground.now()
                if self.tables.hold(hold.task) == hold:
                    self.tables.move(hold.task, "lift", now, trigger="timer", reason="")
                    hold_open(self.tables, hold.task, now, "timer")

    def _is_due(self, hold: Hold) -> bool:
        assert hold.due_at is not None
        if hold.due_boot is not None and hold.boot == self.ground.boot:
            return self.ground.since_boot() >= hold.due_boot
        return self.ground.now() >= hold.due_at

    def _expire(self) -> None:
        now = self.ground.now()
        for prompt in self.tables.prompts(
            "kind = 'question' AND status IN ('pending', 'presented') AND expires_at <= ?", now
        ):
            late = questions.expire(bool(prompt.required), prompt.standard)
            with self.tables.write():
                if late.answer is None:
                    again = now + int(self.ground.options.question_timeout * SECOND)
                    self.tables.do("UPDATE prompt SET expires_at = ? WHERE id = ?", again, prompt.id)
                    self.tables.notify(prompt.task, now, "reminder", f"Still waiting: {prompt.text}")
                    continue
                self.tables.do(
                    "UPDATE prompt SET status = 'expired', answer = ?, answered_by = 'timeout', answered_at = ? WHERE id = ?",
                    late.answer, now, prompt.id,
                )  # fmt: skip
                self.tables.log(prompt.task, now, "question_expired", {"id": prompt.id, "answer": late.answer})
                hold = self.tables.hold(prompt.task)
                if hold is not None and hold.kind == "question":
                    self.tables.move(prompt.task, "lift", now, trigger="timeout", reason="")
                    hold_open(self.tables, prompt.task, now, "timeout")

    def _remind(self) -> None:
        """Reviews that nobody answers: tell again, then say that it is overdue, then do what the settings allow."""
        now = self.ground.now()
        for prompt in self.tables.prompts("kind = 'approval' AND status IN ('pending', 'presented')"):
            passes_after = int(self.ground.options.auto_approve_after * SECOND)
            due = reviews.late(now - prompt.created_at, prompt.tries, bool(prompt.flagged), passes_after)
            if due is None:
                continue
            if due.passes and self._passes(prompt):
                continue
            with self.tables.write():
                kind, word = ("escalation", "Overdue") if due.overdue else ("reminder", "Still waiting")
                if due.reminders > prompt.tries:
                    self.tables.do("UPDATE prompt SET tries = ? WHERE id = ?", due.reminders, prompt.id)
                    text = f"{word} for {due.hours} hours: {prompt.text}"
                    self.tables.notify(prompt.task, now, kind, text, prompt.id, again=prompt.tries)

    def _passes(self, prompt: Prompt) -> bool:
        """Approve in nobody's name; not if the workspace is another one than was to be reviewed."""
        try:
            Tasks(self.ground).approve(prompt.id, by="policy")
        except HoldfastError:
            return False
        return True

    # Starting runs

    def _schedule(self) -> None:
        busy = self.tables.runs("state != 'ended'")
        free = self.ground.options.concurrency - len(busy)
        if free <= 0:
            return
        used = {self.tables.task(run.task).workspace for run in busy}
        for task in self._candidates():
            if free <= 0:
                break
            if task.workspace in used or task.id in {run.task for run in busy} or self._is_held_back(task):
                continue
            run = self._begin(task)
            if run is None:
                continue
            used.add(task.workspace)
            free -= 1
            step("tick:began")
            self.workflows.start(run.id)

    def _candidates(self) -> list[Task]:
        rows = self.tables.tasks(
            "state IN ('queued', 'active') AND archived = 0 AND id NOT IN (SELECT task FROM hold WHERE lifted_at IS NULL)"
        )
        mine = [task for task in rows if self.only in ("", task.id)]
        ready = [task for task in mine if all(self.tables.task(id).state == "done" for id in task.after)]
        # Whoever has begun goes on before anybody else begins.
        return sorted(
            ready, key=lambda task: (-questions.TASK_WEIGHT[task.priority], task.state != ACTIVE, task.updated_at)
        )

    def _is_held_back(self, task: Task) -> bool:
        """Hold a task whose secrets are missing, whose workspace is gone, or whose account is limited."""
        now = self.ground.now()
        why = runs.missing(task)
        if why:
            with self.tables.write():
                self.tables.move(task.id, "hold", now, trigger="validation", hold="crashed", why=why, human=1)
                self.tables.notify(task.id, now, "error", f"{task.title}: {why}")
            return True
        known = {row["name"] for row in self.tables.all("SELECT name FROM secret WHERE task = ?", task.id)}
        lacking = [name for name in task.needs if name not in known]
        if lacking:
            with self.tables.write():
                for name in lacking:
                    self.tables.do(
                        "INSERT INTO prompt (id, task, run, kind, key, text, category, status, created_at) "
                        "VALUES (?, ?, '', 'secret', ?, ?, 'env_variable', 'pending', ?) ON CONFLICT DO NOTHING",
                        f"d_{task.id[5:]}_{name}", task.id, name, f"The task needs {name}.", now,
                    )  # fmt: skip
                if not hold_open(self.tables, task.id, now, "needs"):
                    self.tables.move(
                        task.id, "hold", now, trigger="needs", hold=SECRET, why=f"needs {lacking[0]}", human=1
                    )
            return True
        account = driver(task.agent, self.ground.options).account(self.ground.variables)
        names = [account, *([f"{account}:{task.agent['model']}"] if task.agent.get("model") else [])]
        for name in names:
            row = self.tables.one("SELECT * FROM account WHERE key = ?", name)
            if row is None:
                continue
            if not row["human"] and row["due_at"] <= now:
                continue
            from holdfast.supervisor.waits import stagger

            due = None
            if not row["human"]:
                others = [hold.due_at for hold in self.tables.holds() if hold.account == name and hold.due_at]
                due = stagger(others, row["due_at"], int(self.ground.options.stagger * SECOND))
            with self.tables.write():
                self.tables.move(
                    task.id, "hold", now, trigger="account", hold=RATE_LIMIT, why=row["reason"], due_at=due, account=name,
                    human=row["human"],
                )  # fmt: skip
            return True
        return False

    def _begin(self, task: Task) -> Run | None:
        """Make the row of the next attempt, with everything that it needs."""
        how = driver(task.agent, self.ground.options)
        memory = remembering.recall(self.ground, task, self.tables.last_run(task.id))
        now, resumes, session = self.ground.now(), memory.resumes, task.session
        with self.tables.write() as tables:
            task = tables.task(task.id)
            if (
                task.state not in (QUEUED, ACTIVE)
                or tables.hold(task.id) is not None
                or tables.open_run(task.id) is not None
                or task.session != session
            ):
                return None
            last = tables.last_run(task.id)
            answers = tables.prompts(
                "task = ? AND status IN ('answered', 'expired') AND kind != 'approval' AND delivered = ''", task.id
            )
            number = task.attempt + 1
            id = f"{task.id}:{number}"
            left = last.left if last is not None and last.outcome != "phase" else []
            prompt = telling.compose(task, last, resumes, answers, left, memory.brief)
            session = task.session if resumes else str(uuid.UUID(bytes=os.urandom(16), version=4))
            epoch = task.epoch + 1
            if task.state == QUEUED:
                tables.move(task.id, "start", now, trigger="scheduler", run=id, started_at=task.started_at or now)
            tables.change(
                task.id, now, attempt=number, epoch=epoch, session=session, account=how.account(self.ground.variables)
            )
            for one in answers:
                tables.do("UPDATE prompt SET delivered = ? WHERE id = ?", id, one.id)
            tables.insert(
                "run", id=id, task=task.id, number=number, phase=task.phase, epoch=epoch, state=STARTING, session=session,
                resume=int(resumes), prompt=prompt, folder=self.ground.runs_folder(id), token=os.urandom(16).hex(),
                boot=self.ground.boot, host=self.ground.host, started_at=now, account=how.account(self.ground.variables),
            )  # fmt: skip
            facts = {"attempt": number, "phase": task.phase, "resumed": resumes, "why": memory.why}
            tables.log(task.id, now, "run_begun", facts, id)
            return tables.run(id)

    # Finding again

    def reconcile(self) -> None:
        """Look at every run that is not over, and let somebody go on with it. Doing it twice changes nothing."""
        first, self._reconciled = not self._reconciled, monotonic()
        self.ground.trouble = ""  # whatever could not be done is tried again now
        if not self.only:
            recover.end_unknown(self.ground)
            if first:
                recover.catch_up(self.ground)
        for run in self.tables.runs("state != 'ended'"):
            if self.workflows.is_busy(run.id) or self.only not in ("", run.task):
                continue
            kind = process.look(run.folder, run.id).kind
            if kind == process.ABSENT and self._is_of_another_host(run):
                self._lose(run)
                continue
            if kind == process.ABSENT and run.boot != self.ground.boot:
                with self.tables.write() as tables:
                    # It was never started before the machine went down: it begins now.
                    tables.change_run(run.id, boot=self.ground.boot)
                    tables.log(run.task, self.ground.now(), "found", {"as": kind}, run.id)
            self.workflows.start(run.id)
        step("reconciled")

    def _is_of_another_host(self, run: Run) -> bool:
        """Several hosts can only share a database of their own kind; a host keeps its name or its boot."""
        shared = bool(self.ground.options.database)
        return (
            shared and run.host != self.ground.host and run.boot != self.ground.boot and not os.path.isdir(run.folder)
        )

    def _lose(self, run: Run) -> None:
        """A run of a host whose supervisor is gone: its agent may live there, so a person decides."""
        why = f"It ran on {run.host}, whose supervisor is gone. Resume it here when the agent there has ended."
        with self.tables.write() as tables:
            now, task = self.ground.now(), tables.task(run.task)
            if tables.run(run.id).state == ENDED:
                return
            tables.change_run(run.id, state=ENDED, outcome="host_lost", reason=why, ended_at=now)
            tables.change(task.id, now, epoch=task.epoch + 1, wanted="")
            tables.move(task.id, "hold", now, trigger="host_lost", hold=HOST_LOST, run=run.id, why=why, human=1)
            tables.notify(task.id, now, "error", f"{task.title}: {why}")
