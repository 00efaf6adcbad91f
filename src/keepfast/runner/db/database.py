"""Where the tables lie: the port of a database. All differences of SQL end behind it.

Statements are written once, in words that SQLite and PostgreSQL both know, with `?` for values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

WAIT = 30.0
"""Seconds until a database that others hold counts as busy."""
Row = dict[str, Any]


class Claim(Protocol):
    """What makes a supervisor the only one of its database, beside the lock of its folder."""

    def check(self) -> None:
        """Raises `Conflict` if another one has taken over in the meantime."""

    def close(self) -> None: ...


class Database(Protocol):
    """One connection, used by one thread at a time. Raises `Busy`, `DiskFull`, `Damaged`, `Unreachable`."""

    def begin(self) -> None:
        """Begin a transaction that no other one writes beside."""

    def commit(self) -> None: ...

    def rollback(self) -> None:
        """Give up the transaction, if there is one."""

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]: ...

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Change rows; return how many."""

    def count_on(self, table: str, column: str, number: int) -> None:
        """Let a column that counts by itself go on above this number; one that is there already stays where it is."""

    def is_same(self) -> bool:
        """Is what we hold open still what lies at the address?"""

    def claim(self) -> Claim:
        """Be the only supervisor. Raises `Busy` if there is one."""

    def close(self) -> None: ...


def statements(tables: str) -> list[str]:
    return [one for one in tables.split(";\n") if one.strip()]
