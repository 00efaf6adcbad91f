"""Scheduling: which task may start next, what holds it back, and the row of its next run."""

from __future__ import annotations

import os
import uuid

from keepfast.runner.actions import accounts, checkpoints, memory, restores, vault
from keepfast.runner.actions.memory import Start
from keepfast.runner.actions.questions import hold_for_open_prompts
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.db import changes, queries
from keepfast.runner.db.tables import Tables
from keepfast.runner.domain import prompts, questions
from keepfast.runner.domain.records import Account, Hold, Run, Task
from keepfast.runner.domain.task import ACTIVE, BACKOFF, BUDGET, QUEUED, RATE_LIMIT, SECRET, STALLED, STARTING
from keepfast.runner.domain.waits import HOUR, RUNAWAY_FACTOR, Budget, Spent, backoff, stagger, used
from keepfast.runner.scheduler import runs

SECOND = 1_000_000_000


def rank(task: Task) -> tuple[int, bool]:
    """Return the sort key of a task, smallest first: by priority, then tasks that have begun before those that have not."""
    return -questions.TASK_WEIGHT[task.priority], task.state == QUEUED


def order_resumes(tables: Tables, account: str) -> None:
    """Exchange the due times of tasks that wait for the same account, so that they resume by rank. Inside a transaction.

    A reason goes with its time.
    """
    holds = [hold for hold in tables.holds() if hold.account == account and hold.due_at and not hold.human]
    moments = sorted(holds, key=lambda hold: hold.due_at or 0)
    waiting = sorted(moments, key=lambda hold: rank(tables.task(hold.task)))
    for hold, moment in zip(waiting, moments, strict=True):
        if hold.id != moment.id:
            until = {"due_at": moment.due_at, "due_boot": moment.due_boot, "boot": moment.boot}
            tables.change_hold(hold.id, **until, reason=moment.reason)
            tables.change(hold.task, tables.task(hold.task).updated_at, reason=moment.reason)


def extend_holds(tables: Tables, limit: Account, distance: int) -> None:
    """Let the tasks that wait for an account, or for a model of it, wait until its new limit ends. Inside a transaction."""
    waiting = [hold for hold in tables.holds() if hold.due_at and not hold.human and _waits_for(hold, limit.key)]
    due = [hold.due_at for hold in waiting if hold.account == limit.key and hold.due_at and hold.due_at >= limit.due_at]
    for hold in sorted(waiting, key=lambda hold: rank(tables.task(hold.task))):
        if hold.due_at and hold.due_at < limit.due_at:
            due.append(stagger(due, limit.due_at, distance))
            until = {"due_at": due[-1], "due_boot": None, "boot": ""}
            tables.change_hold(hold.id, **until, reason=limit.reason, account=limit.key)
            tables.change(hold.task, tables.task(hold.task).updated_at, reason=limit.reason)


def _waits_for(hold: Hold, account: str) -> bool:
    return hold.kind == RATE_LIMIT and account in (hold.account, hold.account.rpartition(":")[0])


class Turns:
    """Chooses among all tasks, or looks at one alone (`only`)."""

    def __init__(self, runtime: Runtime, only: str) -> None:
        self.runtime, self.tables, self.only = runtime, runtime.tables, only

    def candidates(self) -> list[Task]:
        rows = queries.free_tasks(self.tables)
        mine = [task for task in rows if self.only in ("", task.id)]
        ready = [task for task in mine if all(self.tables.task(id).state == "done" for id in task.after)]
        return sorted(ready, key=lambda task: (*rank(task), task.updated_at))

    def is_held_back(self, task: Task) -> bool:
        """Hold a task that runs away, or that its workspace, budget, secrets or account keep from starting; return whether."""
        now = self.runtime.now()
        why = runs.why_not_runnable(task)
        if why:
            with self.tables.write():
                self.tables.move(task.id, "hold", now, trigger="validation", hold="crashed", why=why, human=1)
                self.tables.notify(task.id, now, "error", f"{task.title}: {why}")
            return True
        part, what = used(Budget.of(task.budget), Spent(task.tokens, task.money, int(task.seconds)))
        if part >= 1.0:
            # The last run may have used it up at its very end: not even one more request is made.
            why = f"The budget of {what} is used up."
            with self.tables.write():
                self.tables.move(task.id, "hold", now, trigger="budget", hold=BUDGET, why=why, human=1)
                self.tables.notify(task.id, now, "budget", f"{task.title}: {why}")
            return True
        if self._is_running_away(task, now):
            return True
        names = {row.name for row in queries.variables_of(self.tables, task.id)}
        missing = [name for name in task.needs if name not in names]
        if missing:
            with self.tables.write():
                for name in missing:
                    self.tables.insert(
                        "prompt", once=True, id=f"d_{task.id[5:]}_{name}", task=task.id, run="", kind="secret", key=name,
                        text=f"The task needs {name}.", category="env_variable", status="pending", created_at=now,
                        phase=task.phase,
                    )  # fmt: skip
                if not hold_for_open_prompts(self.tables, task.id, now, "needs"):
                    self.tables.move(
                        task.id, "hold", now, trigger="needs", hold=SECRET, why=f"needs {missing[0]}", human=1
                    )
            return True
        for limit in accounts.limits(self.runtime, task):
            holds = [hold for hold in self.tables.holds() if hold.account == limit.account and hold.due_at]
            others = [hold.due_at for hold in holds if hold.due_at]
            # A task that reached the limit resumes before a less urgent one begins. A task that only queues behind the limit
            # waits for no other.
            others_rank = [(rank(self.tables.task(hold.task)), hold.due_at) for hold in holds if hold.due_at]
            begun = [due for (weight, queued), due in others_rank if not queued and weight <= rank(task)[0]]
            first = min(begun, default=0) if task.state == QUEUED else 0
            if not limit.needs_human and max(limit.due_at, first) <= now:
                continue
            due = None
            if not limit.needs_human:
                due = stagger(others, max([limit.due_at, *others]), int(self.runtime.options.stagger * SECOND))
            with self.tables.write():
                self.tables.move(
                    task.id, "hold", now, trigger="account", hold=RATE_LIMIT, why=limit.reason, due_at=due,
                    account=limit.account, human=int(limit.needs_human),
                )  # fmt: skip
                order_resumes(self.tables, limit.account)
            return True
        return False

    def _is_running_away(self, task: Task, now: int) -> bool:
        """Hold a task whose phase was started too often within an hour without a person; return whether.

        Each kind of outcome has a bound of its own; this one is for all of them together. Runs that a limit ended do not
        count.
        """
        since = max(now - HOUR, queries.last_lifted_by_person(self.tables, task.id))
        begun = queries.counted_runs(self.tables, task, since)
        if len(begun) < RUNAWAY_FACTOR * self.runtime.options.max_attempts:
            return False
        why = f"No progress in {len(begun)} runs: {begun[-1].reason}."
        with self.tables.write():
            self.tables.move(task.id, "hold", now, trigger="runaway", hold=STALLED, why=why, human=1)
            self.tables.notify(task.id, now, "stuck", f"{task.title}: {why}")
        return True

    def begin(self, task: Task) -> Run | None:
        """Create the row of the next run, with all that it needs; None if it cannot begin now."""
        account = accounts.account_of(self.runtime, task)
        started = self.runtime.since_boot()
        start = memory.plan_start(self.runtime, task, self.tables.last_run(task.id))
        if start.unknown:
            self._put_off(task, f"Its files cannot be compared with its checkpoints: {start.unknown}")
            return None
        away = vault.why_unavailable(self.runtime, task)
        if away:
            self._put_off(task, f"Its secrets cannot be opened now: {away}")
            return None
        now, resumes, session_before = self.runtime.now(), start.resumes, task.session
        milliseconds = (self.runtime.since_boot() - started) // 1_000_000
        has_checkpoints = start.restored is not None or checkpoints.is_any_left(self.runtime, task)
        with self.tables.write() as tables:
            task = tables.task(task.id)
            if not _is_free(tables, task) or task.session != session_before:
                return None
            if start.is_lost and not restores.record_failure(tables, task, now, milliseconds, start.why):
                return None
            last = tables.last_run(task.id)
            number, epoch = task.attempt + 1, task.epoch + 1
            id = f"{task.id}:{number}"
            prompt = self._prompt(tables, task, last, start, id, now)
            session = start.session if resumes else str(uuid.UUID(bytes=os.urandom(16), version=4))
            if task.state == QUEUED:
                tables.move(task.id, "start", now, trigger="scheduler", run=id, started_at=task.started_at or now)
            tables.change(task.id, now, attempt=number, epoch=epoch, session=session, account=account)
            tables.insert(
                "run", id=id, task=task.id, number=number, phase=task.phase, epoch=epoch, state=STARTING, session=session,
                resume=int(resumes), prompt=prompt, folder=self.runtime.runs_folder(id), token=os.urandom(16).hex(),
                boot=self.runtime.boot, host=self.runtime.host, started_at=now, account=account,
            )  # fmt: skip
            origin = start.restored.checkpoint.id if start.restored is not None else restores.origin(tables, task, last)
            if origin and not start.is_lost and has_checkpoints:
                restores.log(
                    tables,
                    task.id,
                    now,
                    origin,
                    success=True,
                    milliseconds=milliseconds,
                    messages=start.messages,
                    run=id,
                )
            facts = {
                "attempt": number,
                "phase": task.phase if task.phases else None,
                "step": task.step or None,
                "resumed": resumes,
                "why": start.why,
            }
            tables.log(task.id, now, "run_begun", facts, id)
            return tables.run(id)

    def _put_off(self, task: Task, why: str) -> None:
        """Hold a task that cannot begin without the store, longer each time; people are notified once."""
        options = self.runtime.options
        with self.tables.write() as tables:
            now, last = self.runtime.now(), tables.last_run(task.id)
            if not _is_free(tables, tables.task(task.id)):
                return
            tries = 1 + queries.backoffs_since(tables, task.id, last.ended_at if last is not None else 0)
            wait = backoff(tries, int(options.backoff_first * SECOND), int(options.backoff_longest * SECOND))
            tables.move(
                task.id, "hold", now, trigger="store", hold=BACKOFF, why=why, due_at=now + wait,
                due_boot=self.runtime.since_boot() + wait, boot=self.runtime.boot,
            )  # fmt: skip
            if tries == options.max_attempts:
                tables.notify(task.id, now, "error", f"{task.title}: {why}")

    def _prompt(self, tables: Tables, task: Task, last: Run | None, start: Start, run: str, now: int) -> str:
        """Return the prompt of the run, and record which answers it delivers."""
        settled = queries.settled_prompts(tables, task.id)
        answers = [prompt_row for prompt_row in settled if not prompt_row.delivered]
        # A resumed session has delivered answers in its history.
        earlier = [prompt_row for prompt_row in settled if prompt_row.delivered and not start.resumes]
        left = last.left if last is not None and last.outcome != "phase" else []
        prompt = prompts.compose(task, last, start.resumes, answers, left, start.brief, start.missing, earlier)
        for prompt_row in answers:
            changes.deliver(tables, prompt_row.id, run)
        # A secret that only the words around it give away is sealed here: if it were redacted, the agent would never get it.
        return str(vault.store(tables, task.id, vault.mark(self.runtime, prompt), now))


def _is_free(tables: Tables, task: Task) -> bool:
    """Return whether a run of this task may begin."""
    is_busy = tables.hold(task.id) is not None or tables.open_run(task.id) is not None
    return task.state in (QUEUED, ACTIVE) and not is_busy
