"""A restore that is killed anywhere says so, and can be finished or taken back."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from pathlib import Path
from random import Random
from time import monotonic, sleep

import pytest

from keepfast.model.errors import Busy, Conflict, NotFound
from tests.app.restore.conftest import Points
from tests.app.restore.ground import Ground, aside, staging_left
from tests.equipment.trees import disk
from tests.faults.stage import report
from tests.faults.tracing import WRITING, Call, needs_strace

from .series import CHANGING, Series

SAMPLE = 12
PATIENCE = 60


@pytest.mark.timeout(3600)
def test_killed_at_any_step_it_can_be_finished_and_taken_back(folder: Path, campaign: bool) -> None:
    series = Series(folder, fast=True)
    listing = folder / "steps"
    series.ask("restore", "--steps", listing)
    assert disk(series.root) == series.target
    seen: Counter[str] = Counter()
    points = []
    for name in listing.read_text().split():
        seen[name] += 1
        points.append(f"{name}:{seen[name]}")
    ours = [point for point in points if point.startswith("restore:")]
    findings = []
    for point in points if campaign else ours:
        series.back_to("base")
        done = series.run("restore", "--kill", point)
        assert done.returncode == -signal.SIGKILL, (point, done)
        findings += [f"{point}: {text}" for text in series.findings()]

    report(f"restore killed at {len(points)} steps", findings)


@needs_strace
@pytest.mark.timeout(7200)
def test_killed_at_any_system_call_it_can_be_finished_and_taken_back(folder: Path, points: Points) -> None:
    series = Series(folder)
    possible = [call for call in series.calls(*CHANGING) if _changes(call)]
    findings = []
    for call in points.of(possible, SAMPLE):
        done = series.disturbed(call, f"signal=KILL:when={call.number}")
        if done.returncode not in (-signal.SIGKILL, 128 + signal.SIGKILL):
            findings.append(f"{call.name} {call.number}: not killed, but ended with {done.returncode}: {done.stderr}")
        findings += [f"{call.name} {call.number} {call.text[:80]}: {text}" for text in series.findings()]

    report(f"restore killed at {points.tried} of {len(possible)} system calls", findings)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("since", ["restore:journal", "save:"], ids=["journal", "safety checkpoint"])
def test_killed_at_any_moment_while_two_threads_write_it_can_be_finished_and_taken_back(
    since: str, folder: Path, campaign: bool
) -> None:
    """With two threads no call has a number: they are killed at random, after the journal was written, or while contents are
    written early and it is not there yet."""
    series, chance, listing = Series(folder, fast=True, large=True), Random(), folder / "steps"
    early = ["--many", 5] if since == "save:" else []

    def begin() -> subprocess.Popen[bytes]:
        series.back_to("base")
        listing.write_text("")
        child = subprocess.Popen(series.command("restore", "--steps", listing, *early), stdout=subprocess.DEVNULL)
        until = monotonic() + PATIENCE
        while since not in listing.read_text() and child.poll() is None:
            assert monotonic() < until
            sleep(0.001)
        return child

    child, begun = begin(), monotonic()
    assert child.wait() == 0 and disk(series.root) == series.target
    span, findings, killed, left = monotonic() - begun, list[str](), 0, 0
    rounds = 200 if campaign else 6
    for _ in range(rounds):
        child = begin()
        sleep(chance.uniform(0, span))
        child.kill()
        killed += child.wait() == -signal.SIGKILL
        left += bool(staging_left(series.root))
        findings += series.findings(again=True)

    report(f"restore by two threads killed {killed} times of {rounds}, {left} left something of their own", findings)


def _changes(call: Call) -> bool:
    return call.name != "openat" or WRITING.search(call.text) is not None


def killed_at(ground: Ground, point: str, *words: str) -> None:
    from tests.app.restore.child import command

    ground.close()
    done = subprocess.run(command("restore", ground.root, ground.saver.store, "--fast", "--kill", point, *words))
    assert done.returncode == -signal.SIGKILL


def test_a_restore_that_was_cut_off_is_told_and_stops_the_next_one(ground: Ground) -> None:
    ground.put("a", "old\n")
    ground.save()
    ground.put("a", "new\n")
    killed_at(ground, "restore:deleted:1")

    restoring = ground.restorer()
    cut = restoring.cut_off()

    assert cut is not None and cut.target == 1
    with pytest.raises(Conflict, match="interrupted"):
        ground.restore(1)
    ground.restorer().abort()
    assert ground.restorer().cut_off() is None
    assert (ground.root / "a").read_text() == "new\n"
    with pytest.raises(NotFound):
        ground.restorer().abort()
    with pytest.raises(NotFound):
        ground.undo()  # what was aborted was never done


@pytest.mark.parametrize("way", ["resume", "abort"])
def test_what_somebody_edits_after_the_cut_is_kept_and_named(ground: Ground, way: str) -> None:
    for name in ("a", "b"):
        ground.put(name, "old\n")
    ground.save()
    for name in ("a", "b"):
        ground.put(name, "new\n")
    killed_at(ground, "restore:deleted:1")
    ground.put("a", "edited after the cut\n")
    ground.put("more", "made after the cut\n")

    done = getattr(ground.restorer(), way)()

    assert {path for path, _ in done.applied.untouched} == {b"a", b"more"}
    assert (ground.root / "a").read_text() == "edited after the cut\n"
    assert (ground.root / "more").read_text() == "made after the cut\n"
    assert (ground.root / "b").read_text() == ("old\n" if way == "resume" else "new\n")


def test_cut_off_after_it_was_done_it_counts_once_and_can_be_undone(ground: Ground) -> None:
    ground.put("a", "old\n")
    ground.save()
    ground.put("a", "new\n")
    killed_at(ground, "restore:recorded:1")

    ground.restorer().resume()

    assert (ground.root / "a").read_text() == "old\n"
    ground.undo()
    assert (ground.root / "a").read_text() == "new\n"
    with pytest.raises(NotFound):
        ground.undo()


def test_aborted_after_it_was_done_it_counts_as_undone(ground: Ground) -> None:
    ground.put("a", "old\n")
    ground.save()
    ground.put("a", "new\n")
    killed_at(ground, "restore:recorded:1")

    ground.restorer().abort()

    assert (ground.root / "a").read_text() == "new\n"
    with pytest.raises(NotFound):
        ground.undo()
    ground.redo()
    assert (ground.root / "a").read_text() == "old\n"


def test_a_restore_of_one_file_that_was_cut_off_ends_within_its_scope(ground: Ground) -> None:
    ground.put("d/a", "old\n")
    ground.put("b", "old\n")
    ground.save()
    subprocess.run(["rm", "-r", str(ground.root / "d")], check=True)
    ground.put("b", "new\n")
    killed_at(ground, "restore:folders:1", "--path", "d/a")

    ground.restorer().resume()

    assert (ground.root / "d/a").read_text() == "old\n"
    assert (ground.root / "b").read_text() == "new\n"


def test_the_staging_of_a_restore_that_was_cut_off_is_swept_and_nothing_in_it_is_lost(ground: Ground) -> None:
    ground.put("a", "old\n")
    ground.save()
    ground.put("a", "new\n")
    killed_at(ground, "restore:staged:1")
    (left,) = staging_left(ground.root)
    (ground.root / ".keepfast" / left / "77").write_text("somebody's work that no checkpoint has\n")
    (ground.root / ".keepfast" / left / "78").symlink_to("somewhere unknown")

    done = ground.restorer().resume()

    assert (ground.root / "a").read_text() == "old\n"
    assert not staging_left(ground.root)
    assert len(done.applied.aside) == 2
    texts = [path.read_text() if not path.is_symlink() else os.readlink(path) for path in aside(ground.root)]
    assert sorted(texts) == ["somebody's work that no checkpoint has\n", "somewhere unknown"]


def test_two_restores_at_once_do_not_mix(ground: Ground) -> None:
    ground.put("a", "old\n")
    ground.save()
    ground.put("a", "new\n")

    def ask(preview: object) -> bool:
        other = Ground(ground.root.parent)
        try:
            with pytest.raises(Busy):
                other.restore(1)
        finally:
            other.close()
        assert other.restorer().is_running()
        other.close()
        return True

    done = ground.restore(1, ask=ask)

    assert done is not None and not ground.restorer().is_running()
