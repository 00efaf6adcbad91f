"""The actions on tasks, for the command line, the page and MCP: they write rows and wake the supervisor.

All of them work while no supervisor runs; what needs one happens when it starts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

from keepfast.model.errors import Conflict, Refused, Usage
from keepfast.runner.actions import (
    checkpoints,
    event_files,
    finals,
    folders,
    metadata,
    restores,
    rollback,
    vault,
)
from keepfast.runner.actions.answers import Answers
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.actions.steps import Steps
from keepfast.runner.actions.views import Views
from keepfast.runner.db import changes, queries
from keepfast.runner.domain import prompts
from keepfast.runner.domain import task as machine
from keepfast.runner.domain.records import Agent, Task, TaskCheckpoint, TaskSpec
from keepfast.runner.domain.task import ACTIVE, BUDGET, DRAFT, UNSAVED, USER_PAUSE, NotAllowed
from keepfast.runner.process import shims
from keepfast.runner.process.drivers import driver
from keepfast.store.rows import CheckpointRow

HUMAN_ONLY = frozenset(
    ("restore", "approve", "accept", "reject", "secret", "answer", "budget", "resume", "try_now", "cancel")
)


def only_people(pid: int, verb: str) -> None:
    """Raise `Refused` for a process that belongs to a run. An agent with the same user id can evade this: it is not a sandbox."""
    if verb in HUMAN_ONLY and shims.carries_token(pid):
        raise Refused(
            f"An agent may not {verb.replace('_', ' ')} tasks.", "A person can, in a terminal or on the page."
        )


class Tasks:
    """The actions on tasks; `views` reads, `answers` answers prompts."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.tables = runtime, runtime.tables
        self.views, self.steps = Views(runtime), Steps(runtime)
        self.answers = Answers(runtime, self.views, self.steps)

    # Making

    def new(
        self, spec: TaskSpec, *, start: bool = False, names: dict[str, str] | None = None, sealed: bool = False
    ) -> Task:
        """Create a task from a checked specification; its secrets are sealed first, unless they are `sealed` already.

        `names` has the ids of other tasks of the same file, by name.
        """
        if start:
            self._check_agent(spec.agent)
        now = self.runtime.now()
        id = task_id(now, spec.title)
        after = []
        for name in spec.after:
            other = (names or {}).get(name) or self.views.find(name).id
            after.append(other)
        columns = {name: getattr(spec, name) for name in vault.COLUMNS}
        marked = vault.Marked(columns, {}) if sealed else vault.mark_columns(self.runtime, columns)
        workspace = self._adopt(spec.workspace)
        folders.prepare(spec.workspace)
        budget = {**spec.budget, "tokens": spec.budget["tokens"] or self.runtime.options.max_tokens}
        with self.tables.write():
            self.tables.count_events_on(event_files.last_number(spec.workspace))
            self.tables.insert(
                "task", id=id, type=spec.type, workspace=spec.workspace, workspace_id=workspace, budget=budget,
                priority=spec.priority, after=after, needs=spec.secrets, state=DRAFT, created_at=now, updated_at=now,
                **marked.value,
            )  # fmt: skip
            vault.store(self.tables, id, marked, now)
            self.tables.log(id, now, "task_created", {"title": marked.value["title"], "taskType": spec.type})
        if start:
            return self.start(id)
        metadata.project(self.runtime, id)
        return self.tables.task(id)

    def new_all(self, specs: Iterable[TaskSpec], *, start: bool = False) -> list[Task]:
        """Create the tasks of one file, which are in order; none is created if one of them could not start."""
        specs = list(specs)
        for spec in specs if start else ():
            self._check_agent(spec.agent)
        tasks: list[Task] = []
        names: dict[str, str] = {}
        for spec in specs:
            tasks.append(self.new(spec, start=start, names=names))
            if spec.name:
                names[spec.name] = tasks[-1].id
        return tasks

    def start(self, ref: str) -> Task:
        task = self.views.find(ref)
        self._check_agent(vault.open_agent(self.runtime, task))
        return self.steps.move(task, "submit", "start")

    # Pausing and going on

    def pause(self, ref: str, *, now: bool = False) -> Task:
        """Request a pause at the next tool call, or at once."""
        task = self.views.find(ref)
        if task.state not in (machine.QUEUED, ACTIVE):
            raise NotAllowed(f"Cannot pause: the task is {task.state}.")
        hold = self.tables.hold(task.id)
        if hold is not None and hold.kind == UNSAVED:
            raise NotAllowed(
                "The work is complete; there is nothing to pause.", "Run `keepfast task resume` to save it."
            )
        if self.tables.open_run(task.id) is not None:
            return self.steps.request(task, machine.PAUSED_NOW if now else machine.PAUSED, "pause")
        why = "paused by a person"
        return self._rest(task, "hold", "pause", USER_PAUSE, hold=USER_PAUSE, why=why, human=1)

    def freeze(self, ref: str) -> Task:
        """Stop all processes of the agent where they are; `resume` continues them."""
        task = self.views.find(ref)
        if self.tables.open_run(task.id) is None:
            raise NotAllowed(
                "The task has no running agent to freeze.", "Run `keepfast task pause` to keep it from starting."
            )
        return self.steps.request(task, machine.FROZEN, "freeze")

    def resume(self, ref: str, *, allow: Iterable[str] = ()) -> Task:
        """Let a paused, frozen or crashed task continue; `allow` adds tools that it may use from now on."""
        task = self.views.find(ref)
        if task.request:
            if task.request == machine.CANCEL:
                raise NotAllowed("The task is being cancelled.")
            return self.steps.request(task, "", "resume")
        hold = self.tables.hold(task.id)
        if hold is None:
            if task.state == ACTIVE or task.state == machine.QUEUED:
                return task
            raise NotAllowed(f"Cannot resume: the task is {task.state}.")
        if hold.kind in machine.ASKING:
            raise NotAllowed(
                f"The task is waiting for an answer: {hold.reason}",
                "Run `keepfast task answer` or `keepfast task secret`.",
            )
        if task.state == machine.REVIEW:
            raise NotAllowed(
                "The task is waiting for a review.", "Run `keepfast task approve` or `keepfast task reject`."
            )
        if hold.kind == BUDGET:
            raise NotAllowed("The budget is used up.", "Run `keepfast task budget` to raise it.")
        if hold.kind == UNSAVED:
            return self._save_again(task)
        if hold.kind in machine.TIMED and not allow:
            return self.try_now(ref)  # a resume also ends the wait for the account
        if task.attempt and not checkpoints.is_any_left(self.runtime, task):
            raise NotAllowed(
                "No checkpoint found to resume from.",
                "Run `keepfast task cancel`, then `keepfast task retry` to start again.",
            )
        with self.tables.write():
            if allow:
                tools = [*(task.agent.get("allowed_tools") or self.runtime.options.allowed_tools)]
                tools += [self.steps.seal_secrets(task.id, tool) for tool in allow]
                self.tables.change(
                    task.id, self.runtime.now(), agent={**task.agent, "allowed_tools": sorted(set(tools))}
                )
            return self.steps.lift(task, "resume", crashes=[], idle=0, restores=0)

    def _save_again(self, task: Task) -> Task:
        if not finals.retry(self.runtime, task.id):
            failed = finals.last_failure(self.tables, task.id)
            raise Conflict(
                f"The last state could not be saved: {failed.error}" if failed else "The task changed in the meantime.",
                "Fix the cause and run `keepfast task resume` again, or run `keepfast task accept` to finish without saving.",
            )
        return self.steps.publish(task.id)

    def accept(self, ref: str) -> Task:
        """Finish a task whose work is complete although its last state could not be saved."""
        task = self.views.find(ref)
        hold = self.tables.hold(task.id)
        if hold is None or hold.kind != machine.UNSAVED:
            raise NotAllowed("There is nothing to accept.", "Run `keepfast task show` to see the task's state.")
        why = f"accepted by a person without its last checkpoint: {hold.reason}"
        return self.steps.move(task, "finish", "accept", epoch=task.epoch + 1, why=why)

    def try_now(self, ref: str) -> Task:
        """Lift the hold of a limit or a back-off now."""
        task = self.views.find(ref)
        hold = self.tables.hold(task.id)
        if hold is None or hold.kind not in machine.TIMED:
            raise NotAllowed("The task is not waiting for a limit or a back-off.")
        with self.tables.write():
            if hold.account:
                changes.forget_account(self.tables, hold.account)
            return self.steps.lift(task, "try now", windows=0)

    def cancel(self, ref: str) -> Task:
        task = self.views.find(ref)
        if self.tables.open_run(task.id) is not None and task.state not in machine.TERMINAL:
            return self.steps.request(task, machine.CANCEL, "cancel")
        return self._rest(task, "cancel", "cancel", "cancel", why="cancelled by a person")

    def retry(self, ref: str, *, history: bool = False) -> Task:
        """Restart a failed or cancelled task at its phase, with the files on disk.

        A fresh session gets a brief of what was done; with `history` the failed session is resumed.
        """
        task = self.views.find(ref)
        session = {} if history else {"session": ""}
        return self.steps.move(
            task,
            "retry",
            "retry",
            crashes=[],
            idle=0,
            reworks=0,
            windows=0,
            restores=0,
            ended_at=0,
            reason="",
            **session,
        )

    def follow_up(self, ref: str, text: str) -> Task:
        """Give a finished task another prompt."""
        task = self.views.find(ref)
        with self.tables.write():
            return self.steps.move(
                task,
                "follow_up",
                "follow up",
                next_prompt=self.steps.seal_secrets(task.id, text),
                ended_at=0,
                reason="",
            )

    def archive(self, ref: str) -> Task:
        task = self.views.find(ref)
        if task.state not in machine.TERMINAL:
            raise NotAllowed(f"Cannot archive: the task is {task.state}.", "Cancel it first.")
        with self.tables.write():
            self.tables.change(task.id, self.runtime.now(), archived=1)
            self.tables.log(task.id, self.runtime.now(), "archived", {})
        return self.tables.task(task.id)

    # Going back and branching off

    def restore(
        self,
        ref: str,
        checkpoint: str,
        *,
        conversation: bool = True,
        ask: Callable[[CheckpointRow], bool] | None = None,
    ) -> Task | None:
        """Restore files and conversation to a checkpoint and continue from there; None if `ask` returned False.

        Without the conversation, a fresh session gets a brief of that checkpoint.
        """
        task = self.views.find(ref)
        if self.tables.open_run(task.id) is not None:
            raise NotAllowed("The agent is running.", "Pause the task first.")
        started = self.runtime.now()
        result = rollback.restore(self.runtime, task, checkpoint, conversation, ask)
        if result is None:
            return None
        target, now = result.checkpoint, self.runtime.now()
        row = queries.checkpoint_of_id(self.tables, task.id, target.id)
        phase = row.phase if row is not None else task.phase
        with self.tables.write():
            milliseconds = (now - started) // 1_000_000
            restores.log(
                self.tables, task.id, now, target.id, success=True, milliseconds=milliseconds, messages=result.messages
            )
            # From now on this is the newest checkpoint of the task, and the one that a brief is built from.
            restored = TaskCheckpoint(
                f"{task.id}:restored:{task.epoch}", task.id, "", target.id, target.version, "restored", phase, target.tree,
                "", now,
            )  # fmt: skip
            changes.keep_restored(self.tables, restored)
            return self.steps.move(
                task, "restore", "restore", epoch=task.epoch + 1, phase=phase, session=result.session, ended_at=0,
                next_prompt=prompts.restored(f"v{target.version}", bool(result.session)), reworks=0, idle=0, crashes=[],
                step="", fraction=0.0, reason="",
            )  # fmt: skip

    def fork(self, ref: str, folder: str, *, git: bool = False, start: bool = False) -> Task:
        """Create a task of the same specification in a fork of the workspace; `diff` and `apply` bring its results back."""
        task = self.views.find(ref)
        if start:
            self._check_agent(vault.open_agent(self.runtime, task))
        folder = os.path.realpath(folder)
        session, _ = rollback.fork(self.runtime, task, folder, git)
        spec = TaskSpec(
            name="", title=task.title, type=task.type, brief=task.brief, workspace=folder, agent=task.agent,
            phases=task.phases, budget=task.budget, priority=task.priority, after=[], secrets=task.needs,
        )  # fmt: skip
        forked = self.new(spec, sealed=True)
        with self.tables.write():
            self.tables.change(
                forked.id, self.runtime.now(), fork_of=task.id, phase=task.phase, session=session,
                next_prompt=prompts.forked(folder) if session else "",
            )  # fmt: skip
            for row in queries.secrets_of(self.tables, task.id):
                self.tables.keep_secret(forked.id, row.name, row.sealed, row.type, row.given_at)
        return self.start(forked.id) if start else self.tables.task(forked.id)

    def home(self, ref: str) -> Task:
        """Return the task that this one was forked from. Raises `Usage` if it is not a fork."""
        task = self.views.find(ref)
        if not task.fork_of:
            raise Usage(
                "This task is not a fork; its changes are already in its folder.",
                "Run `keepfast diff` to see them.",
            )
        return self.tables.task(task.fork_of)

    # Parts

    def _rest(self, task: Task, action: str, trigger: str, reason: str, **columns: Any) -> Task:
        """Carry out a person's transition of a task that has no live run, with a checkpoint whose document describes it."""
        key = f"{task.id}:{reason}:{self.runtime.now()}"
        has_run = task.attempt > 0 and os.path.isdir(task.workspace)
        saved = checkpoints.save(self.runtime, task, None, reason, key) if has_run else None
        with self.tables.write():
            self.steps.check_epoch(task)
            self.tables.move(task.id, action, self.runtime.now(), trigger=trigger, **columns)
            staged = checkpoints.record(self.runtime, saved) if saved is not None else None
        if staged is not None:
            checkpoints.publish(self.runtime, staged)
        return self.steps.publish(task.id)

    def _check_agent(self, agent: Agent) -> None:
        """Raise `Usage` if the agent's program cannot be started."""
        why = driver(agent, self.runtime.options).check(self.runtime.variables)
        if why:
            raise Usage(why, "Install it, or set `agent.command`.")

    def _adopt(self, workspace: str) -> str:
        with self.runtime.engine() as engine:
            root = os.fsencode(workspace)
            located = engine.workspaces.locate(root)
            if located is None or located[0] != root:
                return engine.workspaces.init(root)
            return located[1]


def task_id(now: int, title: str) -> str:
    """Return a new id: `task_` and ten hexadecimal digits."""
    noise = os.urandom(8).hex()
    return "task_" + sha256(json.dumps([now, title, noise]).encode()).hexdigest()[:10]
