"""Tasks as JSON, for the command line, the page and the API. Nothing is changed here."""

from __future__ import annotations

from typing import Any, cast

from keepfast.app.inspect import pairs_between
from keepfast.model.entry import FILE, LINK
from keepfast.model.errors import KeepfastError, NotFound, Usage
from keepfast.runner.actions import accounts, checkpoints, descriptions, documents, event_files, finals, run_outputs
from keepfast.runner.actions.questions import kind_of
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.actions.seals import missing_keys
from keepfast.runner.actions.view_types import (
    CommentView,
    HoldView,
    InboxEntry,
    LimitView,
    PromptView,
    RunView,
    SpentView,
    TaskDetails,
    TaskView,
    UsedView,
    WarningView,
)
from keepfast.runner.db import queries
from keepfast.runner.domain import questions
from keepfast.runner.domain import task as machine
from keepfast.runner.domain.moments import moment
from keepfast.runner.domain.records import Hold, Prompt, Run, Task
from keepfast.runner.process import shims

SECOND = 1_000_000_000
MAX_CHECKPOINTS = 50
"""Number of newest checkpoints of a task that are listed."""


class Views:
    """Reads tasks, prompts, events and the inbox."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.tables = runtime, runtime.tables

    def find(self, ref: str) -> Task:
        """Return the task with this id or title, or the only one whose id or title begins so. Raises `NotFound`, `Usage`."""
        # An id is ASCII, and a database refuses invalid Unicode.
        named = queries.find_task(self.tables, ref) if ref.isascii() else None
        rows = [named] if named is not None else []
        if not rows and ref:
            tasks = self.tables.tasks()
            current = [task for task in tasks if not task.archived]
            rows = [task for task in current if task.title == ref]
            rows = rows or [task for task in tasks if task.id.startswith(ref)]
            rows = rows or [task for task in current if task.title.startswith(ref)]
        if not rows:
            raise NotFound(f"There is no task {ref!r}.", "Run `keepfast task list` to see all tasks.")
        if len(rows) > 1:
            raise Usage(
                f"{ref!r} is ambiguous: {', '.join([task.id for task in rows[:5]])}.", "Give more characters of the id."
            )
        return rows[0]

    def listing(self, *, state: str = "", archived: bool = False) -> list[TaskView]:
        tasks = queries.current_tasks(self.tables) if not archived else self.tables.tasks()
        descriptions = [self.describe(task) for task in tasks]
        return [
            description
            for description in descriptions
            if not state or state in (description["state"], description["status"])
        ]

    def is_any(self) -> bool:
        """Return whether there is any task, archived ones too."""
        return queries.is_any_task(self.tables)

    def describe(self, task: Task) -> TaskView:
        """Return a task as JSON, with `status` next to our own `state` and `hold`."""
        hold, run = self.tables.shown_hold(task), self.tables.last_run(task.id)
        is_frozen = task.request == machine.FROZEN
        state = machine.State(task.state, hold.kind if hold else "")
        waiting = queries.waiting_prompts_of(self.tables, task.id)
        return {
            "id": task.id,
            "title": task.title,
            "type": task.type,
            "status": machine.status(state),
            "state": task.state,
            "hold": self._hold(hold),
            "agent_status": machine.agent_status(state, run.state if run else ""),
            "frozen": is_frozen,
            "wanted": task.request or None,
            "phase": _phase(task, task.phase),
            "phases": [phase["name"] for phase in task.phases],
            "step": task.step or None,
            "progress": descriptions.progress(task, waiting, task.fraction),
            "attempt": task.attempt,
            "reworks": task.reworks,
            "priority": task.priority,
            "workspace": task.workspace,
            "agent": task.agent.get("kind"),
            "session": task.session or None,
            "reason": task.reason or None,
            "waits_for": self._waits_for(task),
            "limit": self._limit(task, hold),
            "asks": [
                {"id": one.id, "kind": kind_of(one.kind, one.category), "name": _name(one), "text": one.text}
                for one in waiting
            ],
            **self._spent(task),
            "actions": machine.actions(state, is_frozen),
            "archived": bool(task.archived),
            "created_at": moment(task.created_at),
            "updated_at": moment(task.updated_at),
            "started_at": moment(task.started_at) if task.started_at else None,
            "ended_at": moment(task.ended_at) if task.ended_at else None,
        }

    def show(self, ref: str) -> TaskDetails:
        """Return everything about a task as JSON: runs, prompts, checkpoints, and the newest document's incremental form."""
        task = self.find(ref)
        rows = checkpoints.stored_rows(self.runtime, task)
        failed = finals.last_failure(self.tables, task.id)
        return {
            **self.describe(task),
            "brief": task.brief,
            "gates": [{"name": one["name"], "verify": one["verify"], "review": one["review"]} for one in task.phases],
            "prompts": [self.prompt(one) for one in queries.prompts_of(self.tables, task.id)],
            "runs": [self._run(task, run) for run in queries.runs_of(self.tables, task.id)],
            "checkpoints": [
                {
                    "id": row.id, "version": f"v{row.version}", "reason": row.reason,
                    "phase": _phase(task, row.phase),
                    "created_at": moment(row.made_at), "file": row.file or None,
                }
                for row in rows[:MAX_CHECKPOINTS]
            ],
            "checkpoints_total": len(rows),
            "secrets": [row.name for row in queries.variables_of(self.tables, task.id)],
            "incremental": self._incremental(task),
            "save_failed": {"reason": failed.reason, "error": failed.error, "since": failed.since} if failed is not None else None,
            "missing_keys": missing_keys(self.runtime),
            "warnings": self.warnings(task.id),
        }  # fmt: skip

    def warnings(self, task: str, since: int = 0) -> list[WarningView]:
        """Return the warnings of a task, oldest first, each with `message` and `at`."""
        events = queries.events_of_type(self.tables, task, "warning", since)
        return [{"message": one.read()["message"], "at": moment(one.at)} for one in events]

    def log(self, ref: str, since: int = 0, limit: int = 1000) -> list[dict[str, Any]]:
        """Return the events of a task in order, after the one with the number `since`."""
        task = self.find(ref)
        rows = queries.events_of(self.tables, task.id, since, limit)
        return [event_files.event(row) for row in rows]

    def inbox(self) -> list[InboxEntry]:
        """Return everything that waits for a person, the most urgent first: prompts, and holds without a prompt."""
        entries = [self._asked(prompt) for prompt in queries.waiting_prompts(self.tables)]
        prompt_ids = {entry["id"] for entry in entries}
        frozen = [self.tables.shown_hold(task) for task in queries.frozen_tasks(self.tables)]
        for hold in [*self.tables.holds(), *[hold for hold in frozen if hold is not None and not hold.id]]:
            if hold.human and hold.prompt not in prompt_ids:
                entries.append(self._held(hold))
        return sorted(entries, key=lambda entry: -entry["priority"])

    def _asked(self, prompt: Prompt) -> InboxEntry:
        task = self.tables.task(prompt.task)
        weight = questions.priority(task.priority, prompt.category, self.runtime.now() - prompt.created_at)
        entry = {**self.prompt(prompt), "title": task.title, "priority": weight, "hold": None, "actions": []}
        return cast("InboxEntry", entry)

    def _held(self, hold: Hold) -> InboxEntry:
        task = self.tables.task(hold.task)
        spent = self._spent(task)
        return {
            "id": "", "task": task.id, "kind": "hold", "title": task.title, "hold": hold.kind,
            "phase": _phase(task, task.phase),
            "text": hold.reason or hold.kind.replace("_", " "), "created_at": moment(hold.since), "options": [],
            "actions": machine.actions(machine.State(task.state, hold.kind), task.request == machine.FROZEN),
            "used": spent["used"], "budget": spent["budget"],
            "priority": questions.priority(task.priority, "", self.runtime.now() - hold.since),
        }  # fmt: skip

    def _spent(self, task: Task) -> SpentView:
        """Return what a task has used, including its live run, and its budget."""
        tokens, money, seconds = task.tokens, task.money, task.seconds
        run = self.tables.open_run(task.id)
        if run is not None:
            tokens, money = tokens + run.tokens, money + run.money
            seconds += run_outputs.duration(self.runtime, run, shims.status_of(run.folder, run.id))
        used: UsedView = {"tokens": tokens, "money": round(money, 4), "seconds": round(seconds)}
        return {"used": used, "budget": task.budget}

    def prompt(self, prompt: Prompt) -> PromptView:
        task = self.tables.task(prompt.task)
        return {
            "id": prompt.id,
            "task": prompt.task,
            "kind": kind_of(prompt.kind, prompt.category),
            "text": prompt.text,
            "name": _name(prompt),
            "category": prompt.category or None,
            "options": prompt.options,
            "default": prompt.standard or None,
            "required": bool(prompt.required),
            "status": prompt.status,
            "answer": prompt.answer if prompt.kind != "secret" else None,
            "answered_by": prompt.answered_by or None,
            "flagged": bool(prompt.flagged),
            "output": prompt.output or None,
            "phase": _phase(task, prompt.phase or task.phase),
            "created_at": moment(prompt.created_at),
            "comments": self.comments(prompt) if prompt.kind == "approval" else [],
        }

    def comments(self, prompt: Prompt) -> list[CommentView]:
        """Return the comments on a waiting review, oldest first, each with `comments`, `remarks` and `by`."""
        notes = [note.read() for note in queries.events_of_type(self.tables, prompt.task, "review_comment")]
        return [
            {"comments": note["comments"], "remarks": note["remarks"], "by": note["by"]}
            for note in notes
            if note["id"] == prompt.id
        ]

    def _hold(self, hold: Hold | None) -> HoldView | None:
        if hold is None:
            return None
        left = max(hold.due_at - self.runtime.now(), 0) // SECOND if hold.due_at else None
        return {
            "kind": hold.kind, "reason": hold.reason or None, "since": moment(hold.since),
            "until": moment(hold.due_at) if hold.due_at else None, "seconds_left": left,
            "needs_you": bool(hold.human), "prompt": hold.prompt or None,
        }  # fmt: skip

    def _limit(self, task: Task, hold: Hold | None) -> LimitView | None:
        """Return the limit that a task without a hold waits for; None if there is none."""
        if hold is not None or task.state not in (machine.QUEUED, machine.ACTIVE) or self.tables.open_run(task.id):
            return None
        limit = accounts.current_limit(self.runtime, task)
        if limit is None:
            return None
        until = None if limit.needs_human else moment(limit.due_at)
        return {"until": until, "reason": limit.reason or None, "needs_you": limit.needs_human}

    def _waits_for(self, task: Task) -> list[str]:
        if task.state != machine.QUEUED:
            return []
        return [id for id in task.after if self.tables.task(id).state != machine.DONE]

    def _run(self, task: Task, run: Run) -> RunView:
        return {
            "id": run.id, "state": run.state, "phase": _phase(task, run.phase), "session": run.session,
            "resumed": bool(run.resume),
            "outcome": run.outcome or None, "reason": run.reason or None, "exit_code": run.exit_code, "tokens": run.tokens,
            "money": round(run.money, 4), "started_at": moment(run.started_at),
            "ended_at": moment(run.ended_at) if run.ended_at else None, "log": f"{run.folder}/out.log",
        }  # fmt: skip

    def _incremental(self, task: Task) -> dict[str, Any] | None:
        rows = queries.documented_checkpoints(self.tables, task.id, 2)
        if len(rows) < 2:
            return None
        try:
            newest, base = [documents.read(self.runtime, task.workspace, row.file) for row in rows]
            return documents.incremental(base, newest, self._files(task, rows[1].version, rows[0].version))
        except (KeepfastError, KeyError, TypeError):
            return None

    def _files(self, task: Task, old: int, new: int) -> dict[str, list[str]]:
        """Return the files that are new or changed from one version to another."""
        result: dict[str, list[str]] = {"newFiles": [], "modifiedFiles": []}
        with self.runtime.engine() as engine:
            repository = engine.repository()
            base, newest = (repository.checkpoint(task.workspace_id, version) for version in (old, new))
            if base is None or newest is None:
                raise NotFound("One of these versions is not in the store.")
            for before, after in pairs_between(repository, task.workspace_id, base, newest):
                if after is not None and after.kind in (FILE, LINK):
                    kind = "newFiles" if before is None else "modifiedFiles"
                    result[kind].append(after.path.decode("utf-8", "replace"))
        return result


def _phase(task: Task, number: int) -> int | None:
    """Return the number of a phase; None if the task has no phases, whatever its rows count."""
    return number if task.phases else None


def _name(prompt: Prompt) -> str | None:
    """Return the name of a need; None for other prompts."""
    return prompt.key if prompt.kind == "secret" else None
