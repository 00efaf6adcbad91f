"""A real PostgreSQL for tests: a cluster of its own in a temporary folder, reached by a socket, started by nobody else."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from threading import Lock
from typing import Any

import psycopg

from keepfast.model.frozen import SCHEMA
from tests.equipment import programs

PORT = 54329
"""Names the socket; nothing listens on the network."""
SETTINGS = ["listen_addresses=", "fsync=off", "max_connections=200", "shared_buffers=16MB", "log_min_messages=fatal"]
PATIENCE = 60


def find() -> str | None:
    """The folder of the server's programs; the Debian package is installed if they are nowhere."""
    for _ in range(2):
        folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
        found = shutil.which("initdb") or (str(folders[0]) if folders else None)
        if found:
            return os.path.dirname(os.path.realpath(found))
        programs.find("postgresql", "initdb")
    return None


class Cluster:
    """Started when made, stopped and deleted by `close`. PostgreSQL refuses to run as root: then it is `nobody`'s."""

    def __init__(self, programs_folder: str) -> None:
        self.programs = programs_folder
        self.folder = tempfile.mkdtemp(prefix="hf-pg-", dir="/tmp")
        self.user = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
        if os.geteuid() == 0:
            os.chown(self.folder, self.user.pw_uid, self.user.pw_gid)
        self.made: set[str] = set()
        self.making = Lock()
        try:
            subprocess.run(
                [f"{self.programs}/initdb", "-D", self.folder + "/data", "-U", "tester", "-A", "trust", "-N", "-E", "UTF8"],
                check=True, capture_output=True, timeout=PATIENCE, **self._as_user(),
            )  # fmt: skip
            self.start()
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def start(self) -> None:
        # A test run that is killed leaves no server behind.
        bound = ["setpriv", "--pdeathsig", "INT", "--"] if shutil.which("setpriv") else []
        words = [*bound, f"{self.programs}/postgres", "-D", self.folder + "/data", "-k", self.folder, "-p", str(PORT)]
        for setting in SETTINGS:
            words += ["-c", setting]
        self.process = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, **self._as_user()
        )
        end = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.url("postgres")).close()
                return
            except psycopg.Error:
                assert time.monotonic() < end, "PostgreSQL does not answer"
                assert self.process.poll() is None, "PostgreSQL ended"
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends all sessions at once; SIGQUIT ends the server as a crash would."""
        self.process.send_signal(how)
        self.process.wait(PATIENCE)

    def url(self, database: str) -> str:
        return f"postgresql://tester@/{database}?host={self.folder}&port={PORT}"

    def database(self, name: str = "tasks") -> str:
        """The address of an empty database: one for all tests, swept each time, because a thousand files each are slow.

        What runs side by side takes one name each.
        """
        with self.making, psycopg.connect(self.url("postgres"), autocommit=True) as sql:
            if name not in self.made:
                sql.execute(f"CREATE DATABASE {name}")
                self.made.add(name)
            sql.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        sweep(self.url(name))
        return self.url(name)

    def close(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _as_user(self) -> dict[str, Any]:
        shared: dict[str, Any] = {"cwd": "/", "env": {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TZ": "UTC"}}
        if os.geteuid() != 0:
            return shared
        return {**shared, "user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}


def sweep(url: str) -> None:
    """Take everything out of a database."""
    with psycopg.connect(url, autocommit=True) as sql:
        for schema in (SCHEMA, "dbos"):
            sql.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


def dump(url: str) -> list[str]:
    """Every row of the tables of tasks, as a text, in an order of its own."""
    found: list[str] = []
    with psycopg.connect(url, autocommit=True) as sql:
        names = sql.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY 1", (SCHEMA,)).fetchall()
        for (name,) in names:
            rows = sql.execute(f'SELECT t::text FROM {SCHEMA}."{name}" AS t ORDER BY 1').fetchall()
            found += [f"{name} {row}" for (row,) in rows]
    return found
