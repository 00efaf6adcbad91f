"""Usage limits of agent accounts: which of them hold a task, and until when."""

from __future__ import annotations

from typing import NamedTuple

from keepfast.model.errors import KeepfastError
from keepfast.runner.actions import vault
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.actions.seals import environment_values
from keepfast.runner.db import queries
from keepfast.runner.domain.records import Task
from keepfast.runner.process.drivers import driver


class Limit(NamedTuple):
    """A limit of an account, or of one model of it."""

    account: str
    due_at: int
    """When it resets; 0 if a person has to decide."""
    reason: str

    @property
    def needs_human(self) -> bool:
        return not self.due_at


def account_of(runtime: Runtime, task: Task) -> str:
    """Return the key of the account that a task's next run uses, by the environment that its agent gets."""
    try:
        secrets = environment_values(runtime, task)
    except KeepfastError:
        secrets = {}  # they cannot be decrypted now; the agent does not start either
    return driver(vault.agent_of(runtime, task), runtime.options).account(runtime.variables, secrets)


def limits(runtime: Runtime, task: Task, account: str = "") -> list[Limit]:
    """Return the limits of the account that a task's next run uses, the last to end first, ended ones too."""
    rows = queries.accounts(runtime.tables)
    if not rows:
        return []
    account = account or account_of(runtime, task)
    model = str(task.agent.get("model", "")).lower()
    own = [
        Limit(row.key, 0 if row.human else row.due_at, row.reason) for row in rows if _is_of(row.key, account, model)
    ]
    return sorted(own, key=_end, reverse=True)


def current_limit(runtime: Runtime, task: Task) -> Limit | None:
    """Return the limit that a task without a hold waits for: the one of its account that ends last; None if there is none."""
    # This process may have another environment than the supervisor: the account of the last run is the better guess.
    candidates = [
        limit for limit in limits(runtime, task, task.account) if limit.needs_human or limit.due_at > runtime.now()
    ]
    return max(candidates, key=_end, default=None)


def _is_of(key: str, account: str, model: str) -> bool:
    """Return whether a limit is of this account, or of the model that the task names: `opus` is also `claude-opus-4-5`."""
    base, _, limited = key.rpartition(":")
    return key == account or (base == account and limited in model)


def _end(limit: Limit) -> tuple[bool, int]:
    return limit.needs_human, limit.due_at
