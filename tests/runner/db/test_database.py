"""The task database: one set of statements on SQLite and PostgreSQL, and what only a server can do to us."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread, Timer
from time import monotonic, sleep
from typing import Any

import psycopg
import pytest

import keepfast.runner
from keepfast.model.errors import Busy, Conflict, NewerFormat, Unreachable, Usage
from keepfast.model.frozen import SCHEMA
from keepfast.runner.db import connection, rows, tables
from keepfast.runner.db.postgres import FAMILY, SUPERVISOR
from keepfast.runner.db.tables import Tables
from keepfast.runner.scheduler.attempts import Threads
from keepfast.runner.scheduler.supervisor import Supervisor
from tests.equipment.postgres import Cluster
from tests.faults.supervisor.test_kills import begin, claim_all_is_well, finish, supervise
from tests.runner.place import DONE, QUICK, Place

CHILD = Path(__file__).parents[2] / "faults" / "supervisor" / "child.py"
ONLY_ONE_DIALECT = re.compile(
    r"INSERT OR |REPLACE INTO|PRAGMA|AUTOINCREMENT|json\(\?|strftime|ILIKE|RETURNING|::\w+|%s"
)


@pytest.fixture
def shared(tmp_path: Path, cluster: Cluster) -> Any:
    """Makes places that share one database of a server."""
    made: list[Place] = []
    url = cluster.database()

    def make(name: str) -> Place:
        (tmp_path / name).mkdir()
        made.append(Place(tmp_path / name, QUICK.but(database=url)))
        return made[-1]

    yield make
    for place in made:
        place.close()


def test_statements_are_written_for_both_databases() -> None:
    for path in Path(keepfast.runner.__file__).parent.rglob("*.py"):
        if path.name in ("sqlite.py", "postgres.py", "workflows.py"):
            continue
        strings = re.findall(r'"(?:[^"\\\n]|\\.)*"', path.read_text())
        sql = [one for one in strings if re.search(r"\b(SELECT|INSERT|UPDATE|DELETE|WHERE)\b", one)]
        assert not [one for one in sql if ONLY_ONE_DIALECT.search(one)], path.name


@pytest.mark.databases
def test_all_of_a_transaction_or_nothing(place: Place) -> None:
    task = place.task([DONE], start=False)

    with pytest.raises(ValueError, match="half way"), place.runtime.tables.write() as rows:
        rows.change(task.id, 1, title="changed")
        with rows.write():
            rows.log(task.id, 1, "never", {})
        raise ValueError("half way")

    assert place.runtime.tables.task(task.id).title == task.title
    assert "never" not in place.events(task)


@pytest.mark.databases
def test_what_an_agent_can_say_can_be_kept(place: Place) -> None:
    odd = "NUL \0, ' \" % %s ? $1 \\ 한국어 \U0001f600"
    task = place.task([DONE], start=False, budget={"money": 0.1})
    with place.runtime.tables.write() as rows:
        rows.change(task.id, 2**62, reason=odd, told=True, crashes=[1, 2])

    kept = place.runtime.tables.task(task.id)
    assert kept.reason.replace("\ufffd", "\0") == odd
    assert (kept.updated_at, kept.budget_mark, kept.crashes, kept.budget["money"]) == (2**62, 1, [1, 2], 0.1)
    assert [one.id for one in place.runtime.tables.tasks("title != ?", "50% of ?")] == [task.id]


@pytest.mark.databases
def test_writers_come_one_after_another(place: Place) -> None:
    """Each reads, waits and writes: without a lock from the beginning, steps would be lost."""
    task = place.task([DONE], start=False)

    def count() -> None:
        runtime = place.make_runtime()
        for _ in range(20):
            with runtime.tables.write() as rows:
                number = rows.task(task.id).tokens
                sleep(0.001)
                rows.change(task.id, 1, tokens=number + 1)
        runtime.close()

    threads = [Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)

    assert place.runtime.tables.task(task.id).tokens == 80


@pytest.mark.databases
def test_a_newer_database_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "SCHEMA", rows.SCHEMA - 1)

    with pytest.raises(NewerFormat, match="newer keepfast"):
        place.make_runtime()


@pytest.mark.databases
def test_a_durable_workflow_survives_a_kill_on_each_database(place: Place) -> None:
    task = begin(place)
    assert supervise(place, "settle:verified", 1, "durable") == -signal.SIGKILL

    finish(place, task, "durable")

    claim_all_is_well(place, task)


def test_own_rows_and_workflows_lie_in_the_same_database(shared: Any) -> None:
    place = shared("one")
    place.task([DONE])
    assert supervise(place, how="durable") == 0

    rows = place.runtime.tables.all("SELECT table_schema AS name FROM information_schema.tables GROUP BY table_schema")
    assert {SCHEMA, "dbos"} <= {row["name"] for row in rows}
    [done] = place.runtime.tables.all("SELECT status FROM dbos.workflow_status")
    assert done["status"] == "SUCCESS"
    assert not [path.name for path in (place.data / "supervisor").glob("*.db")]


def test_a_second_supervisor_on_one_server_is_refused_and_changes_nothing(shared: Any) -> None:
    first, second = shared("one"), shared("two")
    task = first.task([DONE])
    claim = first.runtime.tables.claim()
    with pytest.raises(Busy, match=r"is already running on this database \(keepfast "):
        second.runtime.tables.claim()
    words = [sys.executable, str(CHILD), str(second.base), "never", "1", "threads"]
    done = subprocess.run([*words, second.options.database], stderr=subprocess.PIPE, timeout=120)

    assert done.returncode == 1
    assert b"is already running on this database" in done.stderr
    assert first.state(task) == ("queued", "")
    assert first.journal() == []
    claim.close()
    first.supervise()
    assert first.state(task) == ("done", "")


def test_the_lock_of_a_supervisor_that_was_killed_is_waited_for(shared: Any) -> None:
    """The server keeps it until it notices; whoever is started meanwhile is not refused."""
    place = shared("one")
    ended = subprocess.Popen(["true"])
    ended.wait()
    name = f"keepfast {os.uname().nodename} {ended.pid}"
    left = psycopg.connect(place.options.database, autocommit=True, application_name=name)
    left.execute("SELECT pg_advisory_lock(%s, %s)", (FAMILY, SUPERVISOR))
    later = Timer(1.5, left.close)
    later.start()

    place.runtime.tables.claim().close()

    assert left.closed
    later.join()


def test_a_server_that_restarts_is_waited_for(shared: Any, cluster: Cluster) -> None:
    place = shared("one")
    go = place.base / "go"
    task = place.task([{"wait_for": str(go)}, DONE])
    workflows = Threads(place.runtime)
    claim = place.runtime.tables.claim()
    supervisor = Supervisor(place.runtime, workflows, claim=claim)
    thread = Thread(target=supervisor.run, args=(True,))
    thread.start()
    wait(lambda: place.journal() == ["begin 0"])

    cluster.stop(signal.SIGQUIT)
    try:
        wait(lambda: bool(supervisor.problem))
    finally:
        cluster.start()
    go.touch()
    thread.join(90)
    workflows.close()
    claim.close()

    assert "cannot be used" in supervisor.problem
    assert place.state(task) == ("done", "")
    assert place.journal() == ["begin 0", "end 0"]


def test_whoever_lost_the_claim_to_another_stops(shared: Any, cluster: Cluster) -> None:
    first, second = shared("one"), shared("two")
    lost = first.runtime.tables.claim()
    lost.check()
    cluster.stop()
    cluster.start()
    taken = second.runtime.tables.claim()

    with pytest.raises(Conflict, match="Another supervisor took over"):
        lost.check()
    taken.check()
    taken.close()


def test_a_run_of_a_host_that_is_gone_waits_for_a_person(shared: Any) -> None:
    first, second = shared("one"), shared("two")
    task = first.task([DONE], [DONE])
    workflows = Threads(first.runtime)
    run = Supervisor(first.runtime, workflows).turns.begin(first.runtime.tables.task(task.id))
    assert run is not None
    second.runtime.host, second.runtime.boot = "elsewhere", "another boot"

    Supervisor(second.runtime, Threads(second.runtime)).reconcile()

    assert first.state(task) == ("active", "host_lost")
    assert "whose supervisor has stopped" in first.runtime.tables.task(task.id).reason
    assert first.outcomes(task) == ["host_lost"]
    assert second.tasks.views.describe(second.runtime.tables.task(task.id))["actions"].count("resume") == 1


@pytest.mark.parametrize(
    ("address", "error", "said"),
    [
        ("mysql://somewhere/tasks", Usage, "must be empty or the address"),
        ("postgresql://tester@127.0.0.1:1/tasks", Unreachable, "cannot be used"),
        ("postgresql://tester:hunter2secret@127.0.0.1:1/tasks", Unreachable, "cannot be used"),
    ],
)
def test_an_address_that_leads_nowhere_is_named_without_its_password(address: str, error: Any, said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        Tables(address)

    assert "hunter2secret" not in str(caught.value)
    assert caught.value.hint


def test_a_database_that_is_not_there_is_named(cluster: Cluster) -> None:
    with pytest.raises(Unreachable, match="does not exist"):
        connection.connect(cluster.url("nothing"), 1, "")


def wait(until: Any, seconds: float = 90) -> None:
    end = monotonic() + seconds
    while not until():
        assert monotonic() < end
        sleep(0.05)
