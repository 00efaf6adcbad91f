"""Accounts of agents and their limits: which of them hold a task back, and until when."""

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
    """When it ends; 0 if a person decides."""
    reason: str

    @property
    def needs_human(self) -> bool:
        return not self.due_at


def limits(runtime: Runtime, task: Task, account: str = "") -> list[Limit]:
    """The limits that were met by the account with which a task's next run begins, ended ones too."""
    rows = queries.accounts(runtime.tables)
    if not rows:
        return []
    account = account or driver(vault.agent_of(runtime, task), runtime.options).account(runtime.variables)
    names = [account, *([f"{account}:{task.agent['model']}"] if task.agent.get("model") else [])]
    by_name = {row.key: Limit(row.key, 0 if row.human else row.due_at, row.reason) for row in rows}
    return [by_name[name] for name in names if name in by_name]


def current_limit(runtime: Runtime, task: Task) -> Limit | None:
    """What a task that is free to run waits for all the same: the limit of its account that ends last."""
    # Whoever asks may have another environment than the supervisor: the account of the last run is the better guess.
    candidates = [
        limit for limit in limits(runtime, task, task.account) if limit.needs_human or limit.due_at > runtime.now()
    ]
    return max(candidates, key=lambda limit: (limit.needs_human, limit.due_at), default=None)
