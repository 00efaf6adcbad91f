"""The report: what tasks ran, waited, cost and changed since a moment, and what needs a person."""

from __future__ import annotations

from collections import Counter
from typing import Any

from keepfast.app.inspect import between
from keepfast.model.entry import FILE, LINK
from keepfast.model.errors import KeepfastError
from keepfast.runner.actions import finals
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.actions.seals import missing_keys
from keepfast.runner.actions.tasks import Tasks
from keepfast.runner.db import queries
from keepfast.runner.domain.moments import moment
from keepfast.store.rows import Query

SECOND = 1_000_000_000


def report(runtime: Runtime, since: int) -> dict[str, Any]:
    """Return the report on everything after `since`, as JSON."""
    tasks, tables, now = Tasks(runtime), runtime.tables, runtime.now()
    tasks_found: list[dict[str, Any]] = []
    for task in queries.tasks_since(tables, since):
        runs = queries.runs_since(tables, task.id, since)
        waited: dict[str, float] = {}
        for hold in tables.all_holds(task):
            if (hold.lifted_at or now) >= since:
                span = ((hold.lifted_at or now) - max(hold.since, since)) / SECOND
                waited[hold.kind] = round(waited.get(hold.kind, 0.0) + max(span, 0.0), 1)
        reasons = Counter(sorted(row.reason for row in queries.checkpoints_since(tables, task.id, since)))
        description = tasks.views.describe(task)
        failed = finals.last_failure(tables, task.id)
        tasks_found.append({
            **{name: description[name] for name in ("id", "title", "status", "hold", "phase", "progress", "workspace", "reason")},
            "runs": len(runs),
            "ran_seconds": round(sum(max((run.ended_at or now) - run.started_at, 0) for run in runs) / SECOND),
            "tokens": sum(run.tokens for run in runs),
            "money": round(sum(run.money for run in runs), 4),
            "waited_seconds": waited,
            "checkpoints": dict(reasons),
            "changed_files": _changed(runtime, task.id, since),
            "save_failed": failed._asdict() if failed is not None else None,
            "warnings": tasks.views.warnings(task.id, since),
        })  # fmt: skip
    return {
        "since": moment(since),
        "until": moment(now),
        "needs_you": tasks.views.inbox(),
        "missing_keys": missing_keys(runtime),
        "tasks": tasks_found,
        "tokens": sum(task["tokens"] for task in tasks_found),
        "money": round(sum(task["money"] for task in tasks_found), 4),
    }


def _changed(runtime: Runtime, task: str, since: int) -> int | None:
    """Return how many files differ between the first and the last checkpoint since then; None if there are not two."""
    rows = queries.checkpoints_since(runtime.tables, task, since)
    if len(rows) < 2:
        return None
    try:
        with runtime.engine() as engine:
            repository = engine.repository()
            first, last = (repository.find(Query(id_prefix=row.id, limit=1)) for row in (rows[0], rows[-1]))
            if not first or not last:
                return None
            changes = between(repository, first[0].workspace, first[0], last[0])
            return sum(
                1 for change in changes if any(side and side.kind in (FILE, LINK) for side in (change.old, change.new))
            )
    except KeepfastError:
        return None
