"""Usage limits of agent accounts: which of them hold a task, and until when."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from keepfast.runner.actions import vault
from keepfast.runner.db import queries
from keepfast.runner.process.drivers import driver

if TYPE_CHECKING:
    from keepfast.runner.actions.runtime import Runtime
    from keepfast.runner.domain.records import Task


class Limit(NamedTuple):
    """A limit of an account, or of one model of it."""

    account: str
    due_at: int
    """When it resets; 0 if a person has to decide."""
    reason: str

    @property
    def needs_human(self) -> bool:
        return not self.due_at


def limits(runtime: Runtime, task: Task, account: str = "") -> list[Limit]:
    """Return the limits of the account that a task's next run uses, ended ones too."""
    rows = queries.accounts(runtime.tables)
    if not rows:
        return []
    account = account or driver(vault.agent_of(runtime, task), runtime.options).account(runtime.variables)
    names = [account, *([f"{account}:{task.agent['model']}"] if task.agent.get("model") else [])]
    by_name = {row.key: Limit(row.key, 0 if row.human else row.due_at, row.reason) for row in rows}
    return [by_name[name] for name in names if name in by_name]


def current_limit(runtime: Runtime, task: Task) -> Limit | None:
    """Return the limit that a task without a hold waits for: the one of its account that ends last; None if there is none."""
    # This process may have another environment than the supervisor: the account of the last run is the better guess.
    candidates = [
        limit for limit in limits(runtime, task, task.account) if limit.needs_human or limit.due_at > runtime.now()
    ]
    return max(candidates, key=lambda limit: (limit.needs_human, limit.due_at), default=None)
