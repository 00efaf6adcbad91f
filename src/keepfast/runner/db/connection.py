"""Choose the database by its address: a path or a PostgreSQL URL."""

from __future__ import annotations

from keepfast.model.errors import Usage, extra
from keepfast.runner.db.database import Database
from keepfast.runner.db.sqlite import Sqlite


def connect(address: str, version: int, tables: str) -> Database:
    """Open the database at a path or at `postgresql://…`, and create its tables if there are none."""
    if address.startswith(("postgresql://", "postgres://")):
        try:
            from keepfast.runner.db.postgres import Postgres
        except ImportError:
            raise Usage("PostgreSQL needs an extra that is not installed.", extra("serve")) from None
        return Postgres(address, version, tables)
    if "://" in address:
        raise Usage(
            "supervisor.database must be empty or the address of a PostgreSQL database.",
            "Use postgresql://user@host/database, or leave it empty for a file in the data folder.",
        )
    return Sqlite(address, version, tables)
