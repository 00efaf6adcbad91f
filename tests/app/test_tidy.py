"""The store stays small by itself: saves start a tidying process when packs pile up."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keepfast.app.tidy import tidy
from keepfast.model.retention import DAY, HOUR, oldest_automatic, plan
from keepfast.state import rescues
from keepfast.store.maintenance.space import compact, store_size
from keepfast.store.rows import Query
from tests.equipment.box import Box
from tests.equipment.folders import written
from tests.equipment.saver import Saver

LAUNCH = Path(__file__).parents[2] / "src" / "keepfast" / "hook" / "launch.py"


def test_tidying_forgets_by_policy_and_merges_packs(saver: Saver) -> None:
    for number in range(24):
        (saver.root / "file").write_text(f"state {number}")
        saver.save("auto", session="one")
    before = saver.state(20)

    engine = saver.engine()
    tidy(engine, saver.workspace)
    rows = engine.repository().ledger.find(Query(workspace=saver.workspace))
    packs = len(engine.repository().ledger.packs())
    engine.close()

    assert [row.version for row in rows] == list(range(24, 14, -1))
    assert packs < 8
    assert saver.state(20) == before


def test_a_size_cap_takes_the_oldest_automatic_ones_and_spares_the_rest(make_saver: Callable[..., Saver]) -> None:
    saver = make_saver(retention__max_size=1 << 20, retention__keep_last=50)
    (saver.root / "pinned").write_bytes(os.urandom(300_000))
    saver.save("manual")
    for _ in range(8):
        (saver.root / "pinned").write_bytes(os.urandom(300_000))
        saver.save("auto", session="one")

    engine = saver.engine()
    thinned, over = tidy(engine, saver.workspace)
    rows = engine.repository().ledger.find(Query(workspace=saver.workspace))
    engine.close()

    assert [row.version for row in thinned] == sorted(row.version for row in thinned)
    assert over == 0
    assert thinned and 1 in [row.version for row in rows] and 9 in [row.version for row in rows]


@pytest.mark.parametrize("way", ["hook", "command"])
def test_a_save_starts_tidying_when_packs_pile_up(tmp_path: Path, way: str) -> None:
    """Nobody waits for it: the save has ended when the work begins."""
    root, config = tmp_path / "work", tmp_path / "config.json"
    root.mkdir()
    config.write_text(
        json.dumps(
            {
                "store": {"url": str(tmp_path / "store"), "durable": False},
                "adopt": "any",
                "retention": {"keep_last": 500},
            }
        )
    )
    hook = [sys.executable, "-I", "-S", "-B", str(LAUNCH), *written(tmp_path)]
    hook += ["save", "--cwd", str(root), "--config", str(config)]
    command = [sys.executable, "-m", "keepfast", "--config", str(config), "-C", str(root), "save", "--auto"]
    for number in range(64):
        (root / "file").write_text(f"state {number}")
        last = way == "command" and number == 63
        subprocess.run(command if last else hook, check=True, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})

    deadline = time.monotonic() + 60
    packs = tmp_path / "store" / "packs"
    while len(list(packs.iterdir())) > 8 and time.monotonic() < deadline:
        time.sleep(0.1)

    assert len(list(packs.iterdir())) <= 8


def test_different_files_are_not_packed_so_that_one_costs_as_much_as_four(saver: Saver) -> None:
    chance = random.Random(2)
    for number in range(24):
        (saver.root / f"file{number}").write_bytes(b"%d " % number * 60_000 + chance.randbytes(1000))
        saver.save("manual")
    engine = saver.engine()
    try:
        compact(engine.repository(), str(saver.store))
        ends: dict[tuple[str, int], int] = {}
        for _, place in engine.repository().ledger.locations():
            slot = place.pack, place.frame
            ends[slot] = max(ends.get(slot, 0), place.offset + place.length)
        assert len({pack for pack, _ in ends}) == 1
        assert max(ends.values()) <= 1 << 20 < sum(ends.values())
    finally:
        engine.close()


def test_versions_of_a_file_that_were_packed_at_different_times_come_together(saver: Saver) -> None:
    """Each state of the file cannot be compressed; but every one is nearly the one before it."""
    noise = random.Random(1).randbytes(50_000)
    for turn in range(4):
        for number in range(10):
            (saver.root / "file").write_bytes(noise + b"%d %d" % (turn, number))
            saver.save("manual")
        engine = saver.engine()
        compact(engine.repository(), str(saver.store))
        size = store_size(engine.repository())
        packs = len(engine.repository().ledger.packs())
        engine.close()

    assert packs == 1
    assert size < 1.2 * len(noise) + 40 * 600


@pytest.mark.parametrize("way", ["hook", "command"])
def test_a_store_over_its_cap_is_tidied_without_waiting_for_packs(tmp_path: Path, way: str) -> None:
    """Oldest automatic ones go first, and `status` says so."""
    box = Box(tmp_path)
    assert box.call("config", "set", "retention.max_size", "1MB").code == 0
    assert box.call("init").code == 0
    for number in range(8):
        box.put("big", os.urandom(300_000))
        if way == "hook":
            words = [sys.executable, "-I", "-S", "-B", str(LAUNCH), *written(box.home)]
            words += ["save", "--cwd", str(box.project)]
            subprocess.run(words, env=box.variables, check=True, timeout=60)
        else:
            box.run("save", "--auto", "-m", str(number))

    def told() -> list[str]:
        return [notice["kind"] for notice in box.call("status", "--json").json()["notices"]]

    deadline = time.monotonic() + 30
    while "thinned" not in told() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert "thinned" in told()
    assert "v1" not in box.versions() and "v8" in box.versions()


def test_a_cap_that_cannot_be_met_is_told(tmp_path: Path) -> None:
    """What was made by hand is not taken: the user is told instead, by `status` and `doctor`."""
    box = Box(tmp_path)
    assert box.call("config", "set", "retention.max_size", "1MB").code == 0
    assert box.call("init").code == 0
    for _ in range(5):
        box.put("big", os.urandom(400_000))
        box.run("save")

    def told() -> list[str]:
        return [notice["kind"] for notice in box.call("status", "--json").json()["notices"]]

    deadline = time.monotonic() + 30
    while "over_size" not in told() and time.monotonic() < deadline:
        time.sleep(0.1)
    store = box.call("status", "--json").json()["store"]
    assert "over_size" in told()
    assert store["bytes"] > store["max_bytes"] == 1 << 20
    space = [check["level"] for check in box.call("doctor", "--json").json()["checks"] if check["name"] == "space"]
    assert space[1:] == ["note"]
    assert len(box.versions()) == 5


def test_what_was_taken_before_a_destructive_command_stays_a_day_and_is_thinned_after_it(
    make_saver: Callable[..., Saver],
) -> None:
    saver = make_saver(retention__keep_last=2)
    for number in range(12):
        (saver.root / "file").write_text(f"state {number}")
        saver.save("before_command" if number < 6 else "turn", session="one")
    engine = saver.engine()
    try:
        rows = engine.repository().ledger.find(Query(workspace=saver.workspace))
        told: dict[str, Any] = {"now": rows[0].created_at, "keep_last": 2, "hourly_hours": 0, "daily_days": 0}
        aged = [rows[0]._replace(version=13, created_at=rows[0].created_at + DAY + HOUR), *rows]

        assert plan(rows, **told) == [7, 8, 9, 10]
        assert plan(rows, **told, rescued={8: rows[0].created_at}) == [7, 9, 10]
        assert plan(rows, **told, rescued_for=0) == list(range(1, 11))
        assert plan(aged, **{**told, "now": aged[0].created_at}) == list(range(1, 12))
        assert oldest_automatic(rows, 1) == list(range(1, 12))
    finally:
        engine.close()


def test_notes_of_versions_that_commands_relied_on_go_after_a_day(tmp_path: Path) -> None:
    folder = str(tmp_path)
    for version, at in ((1, 5), (2, DAY), (3, DAY + 5), (2, DAY + 6)):
        rescues.note(folder, version, at)
    (tmp_path / "rescues").open("ab").write(b"4 ")
    assert rescues.read(folder) == {1: 5, 2: DAY + 6, 3: DAY + 5}

    rescues.sweep(folder)

    assert rescues.read(folder) == {2: DAY + 6, 3: DAY + 5}


def test_tool_calls_of_the_newest_two_sessions_stay_and_older_ones_are_thinned_to_turns(
    make_saver: Callable[..., Saver],
) -> None:
    saver = make_saver()
    for session in ("one", "two", "three"):
        for trigger in ("tool", "between", "tool", "turn"):
            (saver.root / "file").write_text(f"{session} {trigger} {os.urandom(4).hex()}")
            saver.save(trigger, session="" if trigger == "between" else session)
    engine = saver.engine()
    try:
        rows = engine.repository().ledger.find(Query(workspace=saver.workspace))
        how: dict[str, Any] = {"now": rows[0].created_at, "keep_last": 10, "hourly_hours": 24, "daily_days": 30}

        assert plan(rows, **how) == [1, 2, 3]
        assert [rows[len(rows) - version].trigger for version in plan(rows, **how, light_sessions=1)] == (
            ["tool", "between", "tool"] * 2
        )
        assert oldest_automatic(rows, 1) == [1, 2, 3, 5, 6, 7, 9, 10, 11]
    finally:
        engine.close()
