"""Unattended tasks for pages and API, through the functions that `keepfast task` uses."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keepfast.model.errors import Conflict, NotFound, Usage
from keepfast.runner.actions import taskfile
from keepfast.runner.actions.checkpoints import PhaseBase, phase_base, stored_rows
from keepfast.runner.actions.event_files import event
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.actions.tasks import Tasks
from keepfast.runner.actions.view_types import AnsweredView, InboxEntry, PromptView, TaskView, TitledPromptView
from keepfast.runner.db import queries
from keepfast.runner.domain.moments import moment
from keepfast.runner.domain.records import Task
from keepfast.runner.domain.reviews import Remark
from keepfast.web.task_timeline import Course, Mark, Span
from keepfast.web.views import Comparison, Patch, PhaseView, VerificationView

if TYPE_CHECKING:
    from keepfast.web.queries import Backend

LOG_TAIL = 64 << 10
MAX_FILES, MAX_LINES = 60, 3_000
"""Limits of a review page: each line has a form field for comments."""
ACTIONS = ("start", "pause", "freeze", "resume", "accept", "cancel", "retry", "try-now", "archive")
OVERRIDES = ("mark_as_rate_limited", "clear_rate_limit", "reset_token_counter")


class WebTasks:
    """Queries and actions on tasks for one request."""

    def __init__(self, runtime: Runtime, backend: Backend) -> None:
        self.runtime, self.backend, self.tasks = runtime, backend, Tasks(runtime)

    # Queries

    def all(self, status: str = "", archived: bool = False) -> list[TaskView]:
        return self.tasks.views.listing(state=status, archived=archived)

    def show(self, task: str) -> dict[str, Any]:
        row = self._row(task)
        view = self.tasks.views.show(row.id)
        return {**view, "workspace_id": row.workspace_id, "needs": row.needs, "fork_of": row.fork_of or None}

    def status(self, task: str) -> TaskView:
        return self.tasks.views.describe(self._row(task))

    def phases(self, task: str) -> list[PhaseView]:
        """List the phases with their checks and status."""
        row = self._row(task)
        state = row.state
        views = []
        for number, phase in enumerate(row.phases, 1):
            done = number < row.phase or state == "done"
            now = number == row.phase and not done
            status = "completed" if done else ("review" if state == "review" else "in_progress") if now else "pending"
            views.append(
                PhaseView(
                    number=number,
                    name=phase["name"],
                    status=status,
                    verify=phase["verify"] or None,
                    review=phase["review"],
                )
            )
        return views

    def prompts(self, task: str, kind: str) -> list[PromptView]:
        return [
            self.tasks.views.prompt(one) for one in queries.prompts_of(self.runtime.tables, self._row(task).id, kind)
        ]

    def board(
        self, lanes: Mapping[str, tuple[Sequence[str], bool | None]], most: int
    ) -> dict[str, tuple[int, list[TaskView]]]:
        """Return for each column how many tasks it has, and its newest tasks in full."""
        lanes_in_full = {}
        for name, (states, is_held) in lanes.items():
            lane = queries.lane(self.runtime.tables, states, is_held, most)
            lanes_in_full[name] = (lane.total, [self.tasks.views.describe(one) for one in lane.newest])
        return lanes_in_full

    def inbox(self) -> list[InboxEntry]:
        """List what `task inbox` lists, oldest first."""
        return sorted(self.tasks.views.inbox(), key=lambda entry: entry["created_at"])

    def titles(self) -> dict[str, str]:
        """Return the titles of all tasks, by their ids."""
        return queries.titles(self.runtime.tables)

    def questions(self) -> list[InboxEntry]:
        return [entry for entry in self.tasks.views.inbox() if entry["kind"] == "question"]

    def log(self, task: str, since: int = 0, limit: int = 500) -> list[dict[str, Any]]:
        return self.tasks.views.log(task, since, limit)

    def recent(self, task: str, limit: int) -> list[dict[str, Any]]:
        """Return the newest events of a task, oldest first."""
        rows = queries.newest_events(self.runtime.tables, self._row(task).id, limit)
        return [event(row) for row in reversed(rows)]

    def course(self, task: str) -> Course:
        """Return the timeline of a task; what has not ended lasts until now."""
        row, now = self._row(task), self.runtime.now()
        runs = queries.runs_of(self.runtime.tables, row.id)
        holds = self.runtime.tables.all_holds(row)
        points = stored_rows(self.runtime, row)[::-1]
        begin, end = row.started_at or row.created_at, row.ended_at or now
        # A phase begins with its first run, and ends with the first run of the next one.
        starts: dict[int, int] = {}
        for run in runs:
            starts.setdefault(run.phase, run.started_at if starts else begin)
        ends = [*list(starts.values())[1:], end] if starts else []
        names = {number: phase["name"] for number, phase in enumerate(row.phases, 1)}
        return Course(
            begin,
            end,
            [
                Span(at, until, f"phase{number % 2}", f"{number}. {names.get(number, '')}")
                for (number, at), until in zip(starts.items(), ends, strict=True)
            ],
            [
                Span(run.started_at, run.ended_at or now, run.outcome or run.state, run.outcome or run.state)
                for run in runs
            ],
            [
                Span(one.since, one.lifted_at or end, one.kind, one.reason or one.kind.replace("_", " "))
                for one in holds
            ],
            [Mark(one.made_at, one.reason, f"v{one.version} {one.reason.replace('_', ' ')}") for one in points],
            self.backend.compactions(row.workspace_id, begin, end) if row.workspace_id else [],
        )

    def waiting(self, prompt: str) -> TitledPromptView:
        """Return one prompt, answered or not."""
        row = queries.find_prompt(self.runtime.tables, prompt)
        if row is None:
            raise NotFound(
                f"There is no question or review {prompt[:40]}.",
                "The overview page lists everything that waits for an answer.",
            )
        return {**self.tasks.views.prompt(row), "title": self._row(row.task).title}

    def verifications(self, task: str) -> list[VerificationView]:
        """List the verification results of the task's phases, newest first."""
        rows = queries.newest_events(self.runtime.tables, self._row(task).id, 50, "phase_complete")
        facts = [(moment(row.at), row.read()) for row in rows]
        return [
            VerificationView(
                timestamp=at,
                phase=fact.get("phase"),
                passed=fact["passed"],
                gate=fact.get("gate"),
                output=fact.get("output"),
            )
            for at, fact in facts
            if fact.get("passed") is not None
        ]

    def output(self, task: str) -> str:
        """Return the end of the agent's output; the shim has redacted it."""
        run = self.runtime.tables.last_run(self._row(task).id)
        if run is None:
            return ""
        try:
            with open(f"{run.folder}/out.log", "rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - LOG_TAIL))
                text = file.read(LOG_TAIL)
        except OSError:
            return ""
        if size > LOG_TAIL:
            text = text[text.find(b"\n") + 1 :]
        return text.decode("utf-8", "replace")

    def changes(self, task: str) -> Comparison:
        """Compare the disk with the start of the task's phase."""
        row, base = self._row(task), self._phase_base(task)
        if base is None:
            return Comparison(old=None, new="now", changes=[], changed=0)
        return self.backend.contents.diff(row.workspace_id, _reference(base), "now")

    def patch(self, task: str) -> Patch:
        """Return the same line by line; `is_exact` is false if the start of the phase is no longer stored."""
        row, base = self._row(task), self._phase_base(task)
        if base is None:
            return Patch(old=None, new="now", changed=0, files=[], rest=[])
        patch = self.backend.contents.patch(row.workspace_id, _reference(base), "now", MAX_FILES, MAX_LINES)
        patch.is_exact = base.is_exact
        return patch

    def _phase_base(self, task: str) -> PhaseBase | None:
        return phase_base(self.runtime, self.backend.repository, self._row(task))

    # Actions

    def new(self, values: dict[str, Any]) -> TaskView:
        start = values.pop("start", True)
        if not os.path.isabs(values.get("workspace", "")):
            raise Usage("workspace must be an absolute path.")
        spec = taskfile.check(values, values["workspace"])
        return self.tasks.views.describe(self.tasks.new(spec, start=start))

    def act(self, task: str, action: str) -> TaskView:
        """Carry out one of `ACTIONS`. Raises `Conflict` if the task's state does not allow it."""
        if action not in ACTIONS:
            raise Usage(f"Unknown action {action[:20]}.", f"Use one of: {', '.join(ACTIONS)}.")
        done = getattr(self.tasks, action.replace("-", "_"))(self._row(task).id)
        return self.tasks.views.describe(done)

    def delete(self, task: str) -> TaskView:
        """Cancel a task if it is not over, and archive it; its files and checkpoints stay."""
        row = self._row(task)
        if row.state not in ("done", "failed", "cancelled"):
            self.tasks.cancel(row.id)
            row = self._row(task)
        if row.state in ("done", "failed", "cancelled"):
            row = self.tasks.archive(row.id)
        return self.tasks.views.describe(row)

    def approve(self, prompt: str, by: str, anyway: bool = False) -> TaskView:
        return self.tasks.views.describe(
            self.tasks.answers.approve(self._waiting(prompt, "approval"), by=by, anyway=anyway)
        )

    def reject(self, prompt: str, comments: str, by: str, remarks: Sequence[Remark] = ()) -> TaskView:
        return self.tasks.views.describe(
            self.tasks.answers.reject(self._waiting(prompt, "approval"), comments, remarks, by=by)
        )

    def comment(self, prompt: str, comments: str, by: str, remarks: Sequence[Remark] = ()) -> TaskView:
        return self.tasks.views.describe(
            self.tasks.answers.comment(self._waiting(prompt, "approval"), comments, remarks, by=by)
        )

    def answer(self, prompt: str, text: str, by: str, exactly: bool = False) -> AnsweredView:
        task, warning = self.tasks.answers.answer(
            self._waiting(prompt, "question", "secret"), text, by=by, exactly=exactly
        )
        return {**self.tasks.views.describe(task), "warning": warning or None}

    def secret(self, task: str, name: str, value: str) -> TaskView:
        return self.tasks.views.describe(self.tasks.answers.secret(self._row(task).id, name, value))

    def budget(self, task: str, tokens: int | None, money: float | None, minutes: float | None) -> TaskView:
        return self.tasks.views.describe(
            self.tasks.answers.budget(self._row(task).id, tokens=tokens, money=money, minutes=minutes)
        )

    def restore(self, task: str, checkpoint: str) -> TaskView:
        """Restore the task's files and conversation from a checkpoint; the task continues from there."""
        done = self.tasks.restore(self._row(task).id, checkpoint)
        assert done is not None
        return self.tasks.views.describe(done)

    def override(self, task: str, action: str) -> TaskView:
        """Correct what the supervisor believes about a rate limit."""
        row = self._row(task)
        if action == "clear_rate_limit":
            return self.act(task, "try-now")
        if action == "mark_as_rate_limited":
            return self.act(task, "pause")
        with self.runtime.tables.write():
            self.runtime.tables.change(row.id, self.runtime.now(), windows=0)
        return self.status(task)

    # Parts

    def _row(self, task: str) -> Task:
        row = queries.find_task(self.runtime.tables, task)
        if row is None:
            raise NotFound(f"There is no task {task[:40]}.", "The overview page lists them all.")
        return row

    def _waiting(self, prompt: str, *kinds: str) -> str:
        """Return the id of a prompt that still waits. Raises `Conflict` if it was answered meanwhile."""
        row = queries.find_prompt(self.runtime.tables, prompt)
        if row is None or row.kind not in kinds:
            raise NotFound(f"There is no {kinds[0]} {prompt[:40]}.")
        if row.status not in ("pending", "presented"):
            by = row.answered_by
            raise Conflict(f"It is no longer waiting: answered by {by}." if by else "It is no longer waiting.")
        return prompt


def _reference(base: PhaseBase) -> str:
    return f"v{base.row.version}" if base.row is not None else ""
