"""Everything that people, the page and agents can do with tasks: rows are written, and the supervisor is woken.

All of it works while no supervisor runs; what needs one happens when it comes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import Conflict, HoldfastError, NotFound, Refused, Usage
from holdfast.supervisor import checkpoints, documents, process, questions, returning, reviews, telling
from holdfast.supervisor import task as machine
from holdfast.supervisor.asking import hold_open
from holdfast.supervisor.drivers import driver
from holdfast.supervisor.settling import keep_final
from holdfast.supervisor.tables import Hold, Prompt, Run, Tables, Task
from holdfast.supervisor.task import ACTIVE, APPROVAL, BUDGET, DRAFT, USER_PAUSE, NotAllowed
from holdfast.supervisor.wake import wake

if TYPE_CHECKING:
    from holdfast.store.rows import CheckpointRow
    from holdfast.supervisor.ground import Ground
    from holdfast.supervisor.reviews import Remark

SECOND = 1_000_000_000
HUMAN_ONLY = frozenset(("restore", "approve", "reject", "secret", "answer", "budget", "resume", "try_now", "cancel"))


def only_people(pid: int, verb: str) -> None:
    """Refuse a process that belongs to a run. An agent under the same user id can get around this; it is no sandbox."""
    if verb in HUMAN_ONLY and process.carries_token(pid):
        raise Refused(
            f"An agent may not {verb.replace('_', ' ')} tasks.", "A person does that from a terminal or the page."
        )


class Tasks:
    """The one layer of functions behind `task …`, the page and MCP."""

    def __init__(self, ground: Ground) -> None:
        self.ground, self.tables = ground, ground.tables

    # Making

    def new(self, spec: dict[str, Any], *, start: bool = False, names: dict[str, str] | None = None) -> Task:
        """Make a task of a checked specification. `names` are the ids of tasks of the same file."""
        now = self.ground.now()
        id = task_id(now, spec["title"])
        after = []
        for name in spec["after"]:
            other = (names or {}).get(name) or self.find(name).id
            after.append(other)
        workspace = self._adopt(spec["workspace"])
        documents.prepare(spec["workspace"])
        budget = {**spec["budget"], "tokens": spec["budget"]["tokens"] or self.ground.options.max_tokens}
        with self.tables.write():
            self.tables.insert(
                "task", id=id, title=spec["title"], type=spec["type"], brief=spec["brief"], workspace=spec["workspace"],
                workspace_id=workspace, agent=spec["agent"], phases=spec["phases"], budget=budget,
                priority=spec["priority"], after=after, needs=spec["secrets"], state=DRAFT, created_at=now, updated_at=now,
            )  # fmt: skip
            self.tables.log(id, now, "task_created", {"title": spec["title"], "taskType": spec["type"]})
        if start:
            return self.start(id)
        documents.project(self.ground, id)
        return self.tables.task(id)

    def new_all(self, specs: Iterable[dict[str, Any]], *, start: bool = False) -> list[Task]:
        """Make the tasks of one file; those that wait for others come after them."""
        made: list[Task] = []
        names: dict[str, str] = {}
        for spec in specs:
            made.append(self.new(spec, start=start, names=names))
            if spec["name"]:
                names[spec["name"]] = made[-1].id
        return made

    def start(self, ref: str) -> Task:
        task = self.find(ref)
        why = driver(task.agent, self.ground.options).check(self.ground.variables)
        if why:
            raise Usage(why, "Install it, or give the program with `agent.command`.")
        return self._move(task, "submit", "start")

    # Looking

    def find(self, ref: str) -> Task:
        """The task with this id, or the only one whose id or title begins so. Raises `NotFound`, `Usage`."""
        rows = self.tables.tasks("id = ?", ref)
        if not rows:
            rows = [task for task in self.tables.tasks() if ref and task.id.startswith(ref)]
        if not rows:
            rows = [task for task in self.tables.tasks("archived = 0") if ref and task.title.startswith(ref)]
        if not rows:
            raise NotFound(f"There is no task {ref!r}.", "`holdfast task list` shows what there is.")
        if len(rows) > 1:
            raise Usage(f"{ref!r} could be {', '.join([task.id for task in rows[:5]])}.", "Give more of the id.")
        return rows[0]

    def listing(self, *, state: str = "", archived: bool = False) -> list[dict[str, Any]]:
        found = self.tables.tasks("archived = 0") if not archived else self.tables.tasks()
        shown = [self.describe(task) for task in found]
        return [one for one in shown if not state or state in (one["state"], one["status"])]

    def describe(self, task: Task) -> dict[str, Any]:
        """A task as JSON: the source's status beside our own state and hold."""
        hold, run = self.tables.hold(task.id), self.tables.last_run(task.id)
        state = machine.State(task.state, hold.kind if hold else "")
        return {
            "id": task.id,
            "title": task.title,
            "type": task.type,
            "status": machine.status(state),
            "state": task.state,
            "hold": self._hold(hold),
            "agent_status": machine.agent_status(state, run.state if run else ""),
            "frozen": task.wanted == machine.FROZEN,
            "wanted": task.wanted or None,
            "phase": task.phase if task.phases else None,
            "phases": [phase["name"] for phase in task.phases],
            "step": task.step or None,
            "progress": machine.progress(task.phase, max(len(task.phases), 1), task.fraction, task.state),
            "attempt": task.attempt,
            "reworks": task.reworks,
            "priority": task.priority,
            "workspace": task.workspace,
            "agent": task.agent.get("kind"),
            "session": task.session or None,
            "reason": task.reason or None,
            "waits_for": self._waits_for(task),
            "used": {"tokens": task.tokens, "money": round(task.money, 4), "seconds": round(task.seconds)},
            "budget": task.budget,
            "actions": machine.actions(state),
            "archived": bool(task.archived),
            "created_at": documents.moment(task.created_at),
            "updated_at": documents.moment(task.updated_at),
            "started_at": documents.moment(task.started_at) if task.started_at else None,
            "ended_at": documents.moment(task.ended_at) if task.ended_at else None,
        }

    def show(self, ref: str) -> dict[str, Any]:
        """Everything about a task: runs, prompts, checkpoints, and the newest document's incremental form."""
        task = self.find(ref)
        rows = self.tables.all("SELECT * FROM checkpoint WHERE task = ? ORDER BY made_at DESC LIMIT 50", task.id)
        return {
            **self.describe(task),
            "brief": task.brief,
            "gates": [{"name": one["name"], "verify": one["verify"], "review": one["review"]} for one in task.phases],
            "prompts": [self.prompt(one) for one in self.tables.prompts("task = ?", task.id)],
            "runs": [self._run(run) for run in self.tables.runs("task = ?", task.id)],
            "checkpoints": [
                {
                    "id": row["id"], "version": f"v{row['version']}", "reason": row["reason"], "phase": row["phase"],
                    "created_at": documents.moment(row["made_at"]), "file": row["file"] or None,
                }
                for row in rows
            ],
            "secrets": [row["name"] for row in self.tables.all("SELECT name FROM secret WHERE task = ? ORDER BY name", task.id)],
            "incremental": self._incremental(task),
        }  # fmt: skip

    def log(self, ref: str, since: int = 0, limit: int = 1000) -> list[dict[str, Any]]:
        """Events of a task in order, after the one with the number `since`."""
        task = self.find(ref)
        rows = self.tables.all(
            "SELECT * FROM event WHERE task = ? AND sequence > ? ORDER BY sequence LIMIT ?", task.id, since, limit
        )
        return [documents.event(row) for row in rows]

    def inbox(self) -> list[dict[str, Any]]:
        """Everything that waits for a person, the most urgent first."""
        now, found = self.ground.now(), []
        for prompt in self.tables.prompts("status IN ('pending', 'presented')"):
            task = self.tables.task(prompt.task)
            weight = questions.priority(task.priority, prompt.category, now - prompt.created_at)
            found.append((weight, {**self.prompt(prompt), "title": task.title, "priority": weight}))
        return [one for _, one in sorted(found, key=lambda pair: -pair[0])]

    def prompt(self, prompt: Prompt) -> dict[str, Any]:
        return {
            "id": prompt.id,
            "task": prompt.task,
            "kind": prompt.kind,
            "text": prompt.text,
            "name": prompt.key if prompt.kind == "secret" else None,
            "category": prompt.category or None,
            "options": prompt.options,
            "default": prompt.standard or None,
            "required": bool(prompt.required),
            "status": prompt.status,
            "answer": prompt.answer if prompt.kind != "secret" else None,
            "answered_by": prompt.answered_by or None,
            "flagged": bool(prompt.flagged),
            "output": prompt.output or None,
            "phase": prompt.phase or None,
            "created_at": documents.moment(prompt.created_at),
        }

    # Pausing and going on

    def pause(self, ref: str, *, now: bool = False) -> Task:
        """Ask for a pause at the next tool boundary, or at once."""
        task = self.find(ref)
        if task.state not in (machine.QUEUED, ACTIVE):
            raise NotAllowed(f"A task that is {task.state} cannot be paused.")
        if self.tables.open_run(task.id) is not None:
            return self._want(task, "pause_now" if now else "pause")
        return self._move(task, "hold", "pause", hold=USER_PAUSE, why="paused by a person", human=1)

    def freeze(self, ref: str) -> Task:
        """Stop everything that the agent runs, where it stands; `resume` lets it go on."""
        task = self.find(ref)
        if self.tables.open_run(task.id) is None:
            raise NotAllowed("Nothing runs that could be frozen.", "`holdfast task pause` keeps it from starting.")
        return self._want(task, machine.FROZEN)

    def resume(self, ref: str, *, allow: Iterable[str] = ()) -> Task:
        """Let a paused, frozen or crashed task go on; `allow` adds tools that it may use from now on."""
        task = self.find(ref)
        if task.wanted:
            if task.wanted == machine.CANCEL:
                raise NotAllowed("The task is being cancelled.")
            return self._want(task, "")
        hold = self.tables.hold(task.id)
        if hold is None:
            if task.state == ACTIVE or task.state == machine.QUEUED:
                return task
            raise NotAllowed(f"A task that is {task.state} cannot be resumed.")
        if hold.kind in (machine.QUESTION, machine.SECRET):
            raise NotAllowed(
                f"The task waits for an answer: {hold.reason}", "`holdfast task answer` or `holdfast task secret`."
            )
        if task.state == machine.REVIEW:
            raise NotAllowed("The task waits for a review.", "`holdfast task approve` or `holdfast task reject`.")
        if hold.kind == BUDGET:
            raise NotAllowed("The budget is used up.", "`holdfast task budget` gives more.")
        if task.attempt and checkpoints.latest(self.ground, task.id) is None:
            raise NotAllowed("No checkpoint found to resume from", "`holdfast task retry` begins anew.")
        with self.tables.write():
            if allow:
                tools = [*(task.agent.get("allowed_tools") or self.ground.options.allowed_tools), *allow]
                self.tables.change(
                    task.id, self.ground.now(), agent={**task.agent, "allowed_tools": sorted(set(tools))}
                )
            return self._lift(task, "resume")

    def try_now(self, ref: str) -> Task:
        """Do not wait for the limit or the back-off any longer."""
        task = self.find(ref)
        hold = self.tables.hold(task.id)
        if hold is None or hold.kind not in machine.TIMED:
            raise NotAllowed("The task waits for no timer.")
        with self.tables.write():
            if hold.account:
                self.tables.do("DELETE FROM account WHERE key = ?", hold.account)
            return self._lift(task, "try now", windows=0)

    def cancel(self, ref: str) -> Task:
        task = self.find(ref)
        if self.tables.open_run(task.id) is not None and task.state not in machine.TERMINAL:
            return self._want(task, machine.CANCEL)
        return self._move(task, "cancel", "cancel", why="cancelled by a person")

    def retry(self, ref: str, *, history: bool = False) -> Task:
        """Begin a failed or cancelled task again, at its phase, with what is on disk.

        A fresh session is told a brief of what was done, unless `history`: what failed once is not dragged along.
        """
        task = self.find(ref)
        session = {} if history else {"session": ""}
        return self._move(
            task, "retry", "retry", crashes=[], idle=0, reworks=0, windows=0, restores=0, ended_at=0, **session
        )

    def follow_up(self, ref: str, text: str) -> Task:
        """Give a finished task more to do."""
        return self._move(self.find(ref), "follow_up", "follow up", next_prompt=text, ended_at=0)

    def archive(self, ref: str) -> Task:
        task = self.find(ref)
        if task.state not in machine.TERMINAL:
            raise NotAllowed(f"A task that is {task.state} cannot be archived.", "Cancel it first.")
        with self.tables.write():
            self.tables.change(task.id, self.ground.now(), archived=1)
            self.tables.log(task.id, self.ground.now(), "archived", {})
        return self.tables.task(task.id)

    # Answering

    def approve(self, ref: str, *, by: str = "user", anyway: bool = False) -> Task:
        """Let a reviewed phase pass. Raises `Conflict` if the workspace is not what was reviewed."""
        task, prompt = self._approval(ref)
        if prompt.tree and not anyway and checkpoints.changed_since(self.ground, task, prompt.tree):
            raise Conflict("The workspace changed since the review began.", "Look again, and approve with --anyway.")
        last = task.phase >= len(task.phases)
        text = "" if last else telling.next_phase(task, task.phase + 1)
        more = {} if last else {"phase": task.phase + 1, "reworks": 0, "fraction": 0.0, "next_prompt": text}
        with self.tables.write():
            self._answer(prompt, "approved", by)
            self._check_epoch(task)
            done = self._move(task, "finish" if last else "approve", "approve", epoch=task.epoch + 1, **more)
        if last:
            keep_final(self.ground, task.id)
        return done

    def reject(self, ref: str, comments: str, remarks: Sequence[Remark] = (), *, by: str = "user") -> Task:
        """Ask for changes; the comments become the next prompt. After three reworks only approve or cancel is left."""
        task, prompt = self._approval(ref)
        if not comments.strip() and not remarks:
            raise Usage("Changes need a comment: it is what the agent is told.")
        if task.reworks >= self.ground.options.max_attempts:
            raise NotAllowed(
                f"Phase {task.phase} was reworked {task.reworks} times already.", "Approve it, or cancel the task."
            )
        with self.tables.write():
            self._answer(prompt, "changes requested", by)
            self._check_epoch(task)
            return self._move(
                task,
                "reject",
                "reject",
                epoch=task.epoch + 1,
                reworks=task.reworks + 1,
                next_prompt=reviews.rejected(comments, remarks),
            )

    def answer(self, id: str, text: str, *, by: str = "user") -> tuple[Task, str]:
        """Answer a question by its id, or the only open one of a task; return the task and a warning.

        Raises `Conflict` if it is no longer waiting, and `Usage` with a suggestion if the answer is none of the options.
        """
        prompt = self._question(id)
        if prompt.kind == "secret":
            raise Usage("A secret is not given as an answer.", "`holdfast task secret` takes it without showing it.")
        if prompt.kind == "approval":
            raise Usage("A review is not a question.", "`holdfast task approve` or `holdfast task reject`.")
        checked = questions.check(text, prompt.options)
        if checked.value is None:
            with self.tables.write():
                self.tables.do("UPDATE prompt SET tries = tries + 1 WHERE id = ?", prompt.id)
            raise Usage(checked.why, f"Answer with {checked.suggestion!r}." if checked.suggestion else None)
        with self.tables.write():
            self._answer(prompt, checked.value, by)
            return self._go_on(prompt.task, "answer"), checked.warning

    def secret(self, ref: str, name: str, value: str, *, type: str = "env_variable") -> Task:
        """Keep a value, sealed; it is in the agent's environment from its next start on."""
        task = self.find(ref)
        if not name.isidentifier() or not name.isascii():
            raise Usage(f"{name!r} cannot be the name of an environment variable.")
        if not value or "\0" in value:
            raise Usage("The value is empty or holds a NUL character.")
        sealed = self.ground.seals.seal_value(name, value.encode())
        now = self.ground.now()
        with self.tables.write():
            self.tables.keep_secret(task.id, name, sealed, type, now)
            self.tables.log(task.id, now, "secret_provided", {"name": name})
            where = "task = ? AND kind = 'secret' AND key = ? AND status IN ('pending', 'presented')"
            for prompt in self.tables.prompts(where, task.id, name):
                self._answer(prompt, "provided", "user")
            return self._go_on(task.id, "secret")

    def budget(
        self, ref: str, *, tokens: int | None = None, money: float | None = None, minutes: float | None = None
    ) -> Task:
        """Set limits; a task that was held by its budget goes on if there is room again."""
        task = self.find(ref)
        budget = dict(task.budget)
        for name, amount in (
            ("tokens", tokens),
            ("money", money),
            ("seconds", None if minutes is None else int(minutes * 60)),
        ):
            if amount is not None:
                if amount < 0:
                    raise Usage(f"A budget of {name} cannot be {amount}.")
                budget[name] = amount
        with self.tables.write():
            self.tables.change(task.id, self.ground.now(), budget=budget, told=0)
            self.tables.log(task.id, self.ground.now(), "budget_set", budget)
            hold = self.tables.hold(task.id)
            if hold is not None and hold.kind == BUDGET:
                return self._lift(task, "budget")
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
        """Bring files and conversation back to a checkpoint and go on from there; None if `ask` said no.

        Without the conversation, a fresh session is told a brief of that checkpoint.
        """
        task = self.find(ref)
        if self.tables.open_run(task.id) is not None:
            raise NotAllowed("The agent is running.", "Pause the task first.")
        started = self.ground.now()
        back = returning.bring_back(self.ground, task, checkpoint, conversation, ask)
        if back is None:
            return None
        target, now = back.checkpoint, self.ground.now()
        row = self.tables.one("SELECT phase FROM checkpoint WHERE task = ? AND id = ?", task.id, target.id)
        phase = row["phase"] if row is not None else task.phase
        secrets = len(self.tables.all("SELECT 1 FROM secret WHERE task = ?", task.id))
        with self.tables.write():
            facts = {
                "checkpointId": target.id, "success": True, "duration_ms": (now - started) // 1_000_000,
                "messages_restored": back.messages, "environment_variables": secrets,
            }  # fmt: skip
            self.tables.log(task.id, now, "checkpoint_restored", facts)
            # From now on this is the newest checkpoint of the task: whoever is told where it stands is told of this one.
            self.tables.do(
                "INSERT INTO checkpoint VALUES (?, ?, '', ?, ?, 'restored', ?, ?, '', ?) ON CONFLICT DO NOTHING",
                f"{task.id}:restored:{task.epoch}", task.id, target.id, target.version, phase, target.tree, now,
            )  # fmt: skip
            return self._move(
                task, "restore", "restore", epoch=task.epoch + 1, phase=phase, session=back.session, ended_at=0,
                next_prompt=telling.restored(f"v{target.version}", bool(back.session)), reworks=0, idle=0, crashes=[],
            )  # fmt: skip

    def fork(self, ref: str, folder: str, *, git: bool = False) -> Task:
        """A new task of the same kind in a fork of the workspace; results come back by `diff` and `apply`."""
        task = self.find(ref)
        folder = os.path.realpath(folder)
        session, _ = returning.branch_off(self.ground, task, folder, git)
        spec = {
            "title": task.title, "type": task.type, "brief": task.brief, "workspace": folder, "agent": task.agent,
            "phases": task.phases, "budget": task.budget, "priority": task.priority, "after": [], "secrets": task.needs, "name": "",
        }  # fmt: skip
        made = self.new(spec)
        with self.tables.write():
            self.tables.change(
                made.id, self.ground.now(), fork_of=task.id, phase=task.phase, session=session,
                next_prompt=telling.forked(folder) if session else "",
            )  # fmt: skip
            for row in self.tables.all("SELECT * FROM secret WHERE task = ?", task.id):
                self.tables.keep_secret(made.id, row["name"], row["sealed"], row["type"], row["given_at"])
        return self.tables.task(made.id)

    def home(self, ref: str) -> Task:
        """The task that a forked one came from. Raises `Usage` if it is no fork."""
        task = self.find(ref)
        if not task.fork_of:
            raise Usage(
                "This task works in its folder itself; there is nothing to bring back.",
                "`holdfast diff` shows changes.",
            )
        return self.tables.task(task.fork_of)

    # Parts

    def _adopt(self, workspace: str) -> str:
        with self.ground.engine() as engine:
            root = os.fsencode(workspace)
            located = engine.locate(root)
            if located is None or located[0] != root:
                return engine.init(root)
            return located[1]

    def _move(self, task: Task, action: str, trigger: str, **columns: Any) -> Task:
        with self.tables.write():
            self.tables.move(task.id, action, self.ground.now(), trigger=trigger, **columns)
        return self._told(task.id)

    def _want(self, task: Task, what: str) -> Task:
        with self.tables.write():
            self.tables.change(task.id, self.ground.now(), wanted=what)
            self.tables.log(task.id, self.ground.now(), "wanted", {"what": what or "go on"})
        return self._told(task.id)

    def _lift(self, task: Task, trigger: str, **columns: Any) -> Task:
        now = self.ground.now()
        with self.tables.write():
            self.tables.move(task.id, "lift", now, trigger=trigger, reason="", **columns)
            hold_open(self.tables, task.id, now, trigger)
        return self._told(task.id)

    def _go_on(self, id: str, trigger: str) -> Task:
        """Lift the hold of a task whose questions are all answered."""
        hold = self.tables.hold(id)
        if hold is None or hold.kind not in (machine.QUESTION, machine.SECRET):
            return self._told(id)
        return self._lift(self.tables.task(id), trigger)

    def _answer(self, prompt: Prompt, answer: str, by: str) -> None:
        """Compare and set: of two answers only the first counts."""
        now = self.ground.now()
        changed = self.tables.do(
            "UPDATE prompt SET status = 'answered', answer = ?, answered_by = ?, answered_at = ? "
            "WHERE id = ? AND status IN ('pending', 'presented')",
            answer, by, now, prompt.id,
        )  # fmt: skip
        if not changed:
            raise Conflict(f"{prompt.id} is no longer waiting.", "It was answered, or the task went on without it.")
        shown = answer if prompt.kind != "secret" else "provided"
        self.tables.log(prompt.task, now, "answered", {"id": prompt.id, "kind": prompt.kind, "answer": shown, "by": by})

    def _approval(self, ref: str) -> tuple[Task, Prompt]:
        waiting = "kind = 'approval' AND status IN ('pending', 'presented')"
        found = self.tables.prompts(f"id = ? AND {waiting}", ref)
        if not found:
            task = self.find(ref)
            found = self.tables.prompts(f"task = ? AND {waiting}", task.id)
        if not found:
            raise Conflict("No review is waiting here.", "`holdfast task show` says what the task does.")
        return self.tables.task(found[-1].task), found[-1]

    def _question(self, ref: str) -> Prompt:
        found = self.tables.prompts("id = ?", ref)
        if not found:
            task = self.find(ref)
            found = self.tables.prompts(
                "task = ? AND kind = 'question' AND status IN ('pending', 'presented')", task.id
            )
            if len(found) > 1:
                raise Usage(
                    "Several questions wait.", f"Give the id of one: {', '.join([prompt.id for prompt in found])}."
                )
        if not found:
            raise Conflict("No question is waiting here.", "`holdfast task show` says what the task does.")
        return found[-1]

    def _check_epoch(self, task: Task) -> None:
        if self.tables.task(task.id).epoch != task.epoch:
            raise Conflict("The task went on in the meantime.", "Look again.")

    def _told(self, id: str) -> Task:
        documents.project(self.ground, id)
        wake(self.ground.folder)
        return self.tables.task(id)

    def _hold(self, hold: Hold | None) -> dict[str, Any] | None:
        if hold is None:
            return None
        left = max(hold.due_at - self.ground.now(), 0) // SECOND if hold.due_at else None
        return {
            "kind": hold.kind, "reason": hold.reason or None, "since": documents.moment(hold.since),
            "until": documents.moment(hold.due_at) if hold.due_at else None, "seconds_left": left,
            "needs_you": bool(hold.human), "prompt": hold.prompt or None,
        }  # fmt: skip

    def _waits_for(self, task: Task) -> list[str]:
        if task.state != machine.QUEUED:
            return []
        return [id for id in task.after if self.tables.task(id).state != machine.DONE]

    def _run(self, run: Run) -> dict[str, Any]:
        return {
            "id": run.id, "state": run.state, "phase": run.phase, "session": run.session, "resumed": bool(run.resume),
            "outcome": run.outcome or None, "reason": run.reason or None, "exit_code": run.exit_code, "tokens": run.tokens,
            "money": round(run.money, 4), "started_at": documents.moment(run.started_at),
            "ended_at": documents.moment(run.ended_at) if run.ended_at else None, "log": f"{run.folder}/out.log",
        }  # fmt: skip

    def _incremental(self, task: Task) -> dict[str, Any] | None:
        rows = self.tables.all(
            "SELECT file FROM checkpoint WHERE task = ? AND file != '' ORDER BY made_at DESC LIMIT 2", task.id
        )
        if len(rows) < 2:
            return None
        folder = f"{task.workspace}/{documents.CHECKPOINTS}"
        try:
            newest, base = [documents.load(self.ground, _stored(f"{folder}/{row['file']}")) for row in rows]
            return documents.incremental(base, newest)
        except (HoldfastError, KeyError, TypeError):
            return None


def _stored(path: str) -> str:
    return path if os.path.exists(path) else path + ".gz"


def task_id(now: int, title: str) -> str:
    """`task_` and ten letters; short enough to type the first few."""
    noise = os.urandom(8).hex()
    return "task_" + sha256(json.dumps([now, title, noise]).encode()).hexdigest()[:10]


__all__ = ["APPROVAL", "Tables", "Tasks", "only_people"]
