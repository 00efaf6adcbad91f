"""Whose turn it is: which task may start, what holds one back, and the row of its next attempt."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

from holdfast.supervisor import questions, remembering, runs, telling
from holdfast.supervisor.asking import hold_open
from holdfast.supervisor.drivers import driver
from holdfast.supervisor.tables import Run, Task
from holdfast.supervisor.task import ACTIVE, BUDGET, QUEUED, RATE_LIMIT, SECRET, STARTING
from holdfast.supervisor.waits import Budget, Spent, stagger, used

if TYPE_CHECKING:
    from holdfast.supervisor.ground import Ground

SECOND = 1_000_000_000


class Turns:
    """Of all tasks, or of one alone."""

    def __init__(self, ground: Ground, only: str) -> None:
        self.ground, self.tables, self.only = ground, ground.tables, only

    def candidates(self) -> list[Task]:
        rows = self.tables.tasks(
            "state IN ('queued', 'active') AND archived = 0 AND id NOT IN (SELECT task FROM hold WHERE lifted_at IS NULL)"
        )
        mine = [task for task in rows if self.only in ("", task.id)]
        ready = [task for task in mine if all(self.tables.task(id).state == "done" for id in task.after)]
        # Whoever has begun goes on before anybody else begins.
        return sorted(
            ready, key=lambda task: (-questions.TASK_WEIGHT[task.priority], task.state != ACTIVE, task.updated_at)
        )

    def is_held_back(self, task: Task) -> bool:
        """Hold a task whose workspace is gone, whose budget is used up, whose secrets are missing or account is limited."""
        now = self.ground.now()
        why = runs.missing(task)
        if why:
            with self.tables.write():
                self.tables.move(task.id, "hold", now, trigger="validation", hold="crashed", why=why, human=1)
                self.tables.notify(task.id, now, "error", f"{task.title}: {why}")
            return True
        part, what = used(Budget.of(task.budget), Spent(task.tokens, task.money, int(task.seconds)))
        if part >= 1.0:
            # The last run may have used it up with its last words; not even a request more is made.
            why = f"The budget of {what} is used up."
            with self.tables.write():
                self.tables.move(task.id, "hold", now, trigger="budget", hold=BUDGET, why=why, human=1)
                self.tables.notify(task.id, now, "budget", f"{task.title}: {why}")
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

    def begin(self, task: Task) -> Run | None:
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
