"""Changes of rows other than transitions of the state machine. All are called inside a transaction."""

from __future__ import annotations

from keepfast.runner.db.queries import WAITING
from keepfast.runner.db.tables import Tables
from keepfast.runner.domain.records import Account, TaskCheckpoint

# Checkpoints


def keep_checkpoint(tables: Tables, row: TaskCheckpoint) -> None:
    """Insert the row of a checkpoint; of an existing one, update the name of its document."""
    tables.do(
        "INSERT INTO checkpoint VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET file = excluded.file",
        *row,
    )


def keep_restored(tables: Tables, row: TaskCheckpoint) -> None:
    """Insert the row of a restore to a checkpoint, once."""
    tables.do("INSERT INTO checkpoint VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", *row)


# Prompts


def count_try(tables: Tables, prompt: str) -> None:
    tables.do("UPDATE prompt SET tries = tries + 1 WHERE id = ?", prompt)


def deliver(tables: Tables, prompt: str, run: str) -> None:
    """Record which run an answer was delivered to."""
    tables.do("UPDATE prompt SET delivered = ? WHERE id = ?", run, prompt)


def deliver_again(tables: Tables, run: str) -> None:
    """Mark the answers that were delivered to a run as undelivered."""
    tables.do("UPDATE prompt SET delivered = '' WHERE delivered = ?", run)


def shift_prompts(tables: Tables, by: int) -> None:
    """Move the times of all waiting prompts along with a clock that was set."""
    tables.do(f"UPDATE prompt SET created_at = created_at + ? WHERE {WAITING}", by)
    tables.do(f"UPDATE prompt SET expires_at = expires_at + ? WHERE {WAITING} AND expires_at > 0", by)


def begin_prompts_ahead_anew(tables: Tables, now: int, timeout: int, ahead: int) -> None:
    """Treat prompts that were created after the moment `ahead` as created now."""
    after = f"{WAITING} AND created_at > ?"
    tables.do(f"UPDATE prompt SET expires_at = ? WHERE {after} AND expires_at > 0", now + timeout, ahead)
    tables.do(f"UPDATE prompt SET created_at = ? WHERE {after}", now, ahead)


# Accounts and notices


def limit_account(tables: Tables, row: Account) -> None:
    tables.do(
        "INSERT INTO account VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET due_at = excluded.due_at, "
        "human = excluded.human, reason = excluded.reason, since = excluded.since",
        *row,
    )


def forget_account(tables: Tables, key: str) -> None:
    tables.do("DELETE FROM account WHERE key = ?", key)


def sent(tables: Tables, notice: str, now: int) -> None:
    tables.do("UPDATE notice SET sent_at = ? WHERE id = ?", now, notice)


def count_failure(tables: Tables, notice: str) -> None:
    tables.do("UPDATE notice SET tries = tries + 1 WHERE id = ?", notice)
