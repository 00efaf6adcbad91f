"""The port of a database; `sqlite.py` and `postgres.py` implement it and hide the differences of their SQL.

Statements are written once, in the SQL that both understand, with `?` for values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

WAIT = 30.0
"""Seconds after which a locked database counts as busy."""
Row = dict[str, Any]


class Claim(Protocol):
    """The claim of the only supervisor of a database, in addition to the lock of its folder."""

    def check(self) -> None:
        """Raise `Conflict` if another supervisor has taken over in the meantime."""

    def close(self) -> None: ...


class Database(Protocol):
    """One connection, used by one thread at a time. Raises `Busy`, `DiskFull`, `Damaged`, `Unreachable`."""

    def begin(self) -> None:
        """Begin a transaction; other writers wait."""

    def commit(self) -> None: ...

    def rollback(self) -> None:
        """Give up the transaction, if there is one."""

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]: ...

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Change rows; return how many."""

    def count_on(self, table: str, column: str, number: int) -> None:
        """Continue an automatically numbered column above this number, if it is not there yet."""

    def is_same(self) -> bool:
        """Return whether the open database is still the one at the address."""

    def claim(self) -> Claim:
        """Claim the database for one supervisor. Raises `Busy` if there is another."""

    def close(self) -> None: ...


def statements(tables: str) -> list[str]:
    return [one for one in tables.split(";\n") if one.strip()]
