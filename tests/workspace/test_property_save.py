"""Whatever was on disk at a save is what its version gives back, byte and mode, and every way of looking agrees."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given

import keepfast
from keepfast.model.entry import BY_GIT, SEALED
from tests.equipment.folders import written
from tests.equipment.saver import Saver
from tests.equipment.trees import Agent, Step, disk, rounds

WAYS: dict[str, dict[str, Any]] = {
    "accelerated": {"capture__accelerator": True},
    "in Python": {"capture__accelerator": False},
    "walk": {},
}
"""The hook's short way with the accelerator and without; and, its cache taken away before each save, the long way."""
pytestmark = pytest.mark.timeout(7200)  # campaigns take long
EVERYTHING = {
    "capture__ignored": "all",
    "capture__exclude": [],
    "capture__exclude_ignored": [],
    "capture__exclude_marked": [],
}


@contextmanager
def savers(**options: Any) -> Iterator[tuple[Path, dict[str, Saver]]]:
    folder = Path(tempfile.mkdtemp(prefix="keepfast-property-"))
    root = folder / "work"
    root.mkdir()
    made = {way: Saver(root, folder / way, new_store=True, **options, **more) for way, more in WAYS.items()}
    try:
        yield root, made
    finally:
        for saver in made.values():
            saver.close()
        shutil.rmtree(folder, ignore_errors=True)


def save_all(made: dict[str, Saver]) -> None:
    """Save in every way; all must say the same and end with the same state."""
    made["walk"].cache().unlink(missing_ok=True)
    outcomes = {way: saver.save() for way, saver in made.items()}
    states = {way: {path: row[1:3] for path, row in saver.state().items()} for way, saver in made.items()}
    contents = {
        # Each store has keys of its own, and so its own ids for what is sealed.
        way: {
            path: saver.load(row) if row.flags & SEALED else row.content
            for path, row in saver.state().items()
            if row.kind in "fld"
        }
        for way, saver in made.items()
    }

    assert states["accelerated"] == states["walk"]
    assert states["in Python"] == states["walk"]
    assert contents["accelerated"] == contents["walk"] == contents["in Python"]
    if not any(row.flags & SEALED for row in made["walk"].state().values()):
        assert len({saver.tree() for saver in made.values()}) == 1
    assert len({outcome.status for outcome in outcomes.values()}) == 1
    assert len({saver.version() for saver in made.values()}) == 1


@given(rounds)
def test_every_version_gives_back_what_was_on_disk(history: list[list[Step]]) -> None:
    with savers(**EVERYTHING) as (root, made):
        agent, truth = Agent(root), {}
        for steps in history:
            for step in steps:
                agent.work(step)
            save_all(made)
            truth[made["walk"].version()] = disk(root)

        for version, there in truth.items():
            captured = {path: entry for path, entry in there.items() if entry[0] != "s"}
            named = {path for path, entry in there.items() if entry[0] == "s"}
            for saver in made.values():
                assert saver.contents(version) == captured
                assert {path for path, row in saver.state(version).items() if row.kind == "s"} == named


@pytest.mark.parametrize("ignored", ["all", "small"])
@given(rounds)
def test_under_any_rules_every_path_is_kept_or_named_and_all_ways_agree(
    ignored: str, history: list[list[Step]]
) -> None:
    limits = {"capture__ignored_file_size": 64, "capture__max_file_size": 60_000}
    with savers(capture__ignored=ignored, **limits) as (root, made):
        agent = Agent(root)
        for steps in history:
            for step in steps:
                agent.work(step)
            save_all(made)
            there, state, kept = disk(root), made["accelerated"].state(), made["accelerated"].contents()

            assert kept == {path: there.get(path) for path in kept}
            assert {path for path, row in state.items() if path not in there and row.flags != BY_GIT} == set()
            left_out = {path for path, row in state.items() if row.kind in "xu"}
            for path in there:
                parts = path.split(b"/")
                above = {b"/".join(parts[:count]) for count in range(1, len(parts))}
                assert path in state or above & left_out


def test_the_hook_as_a_client_starts_it_keeps_what_is_on_disk(root: Path, saver: Saver, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    settings = {"ignored": "all", "exclude": [], "exclude_ignored": [], "exclude_marked": []}
    config.write_text(json.dumps({"store": {"url": str(saver.store), "durable": False}, "capture": settings}))
    launch = Path(keepfast.__file__).parent / "hook" / "launch.py"
    command = [sys.executable, "-I", "-S", "-B", str(launch), *written(tmp_path)]
    command += ["save", "--cwd", str(root), "--config", str(config)]
    agent, chance = Agent(root), Random(5)
    for _ in range(8):
        for _ in range(12):
            agent.work((chance.randrange(10_000), chance.randrange(10_000), chance.randrange(10_000), 1))
        done = subprocess.run(command, capture_output=True, check=False)

        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        assert saver.contents() == {path: entry for path, entry in disk(root).items() if entry[0] != "s"}
