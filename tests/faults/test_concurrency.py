"""Any number of processes work on one store at once: nothing is lost, nothing is mixed up, nobody sees an error."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import pytest

from keepfast.store.maintenance.compaction import Compactor
from keepfast.store.maintenance.space import compact, forget
from keepfast.store.maintenance.verify import verify
from keepfast.store.rows import Location, Query

from .crowd import open_engine, read, save
from .stage import module

SECONDS = 1500


class Crowd:
    """Processes on one store, what they said, and their end."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store, self.root = folder, folder / "store", folder / "shared"
        self.stop, self.acks = folder / "stop", folder / "acks"
        self.root.mkdir()
        self.acks.mkdir()
        (self.root / "same.txt").write_text("the same for all\n")
        engine = open_engine(self.store)
        engine.workspaces.init(str(self.root).encode())
        engine.close()
        self.running: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []

    def start(self, role: str, *options: object, root: Path | None = None) -> subprocess.Popen[bytes]:
        output = TemporaryFile()
        command = module("crowd", role, "--store", self.store, "--root", root or self.root, *options)
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        self.running.append((process, output))
        return process

    def said(self) -> list[dict[str, Any]]:
        """Every line of every process; what is not JSON is a traceback, and so an error."""
        lines = []
        for _, output in self.running:
            output.seek(0)
            for line in output.read().splitlines():
                lines.append(json.loads(line) if line.startswith(b"{") else {"error": line.decode()})
        return lines

    def wait(self, processes: list[subprocess.Popen[bytes]]) -> None:
        until = time.monotonic() + SECONDS
        for process in processes:
            process.wait(max(1.0, until - time.monotonic()))

    def wait_for(self, word: str) -> None:
        until = time.monotonic() + 60
        while not any(word in line for line in self.said()):
            assert time.monotonic() < until, self.said()
            time.sleep(0.01)

    def end(self) -> None:
        for process, output in self.running:
            if process.poll() is None:
                process.kill()
            process.wait()
            output.close()


@pytest.fixture
def crowd(folder: Path) -> Iterator[Crowd]:
    made = Crowd(folder)
    yield made
    made.end()


@pytest.mark.timeout(2 * SECONDS)
def test_everything_acknowledged_by_many_processes_is_stored(crowd: Crowd, campaign: bool) -> None:
    """50 × 20 saves in one workspace (8 × 5 in short), with forget, compaction, verify and reading all the time."""
    processes, saves = (50, 20) if campaign else (8, 5)
    others = [crowd.start(role, "--stop", crowd.stop, "--acks", crowd.acks) for role in ("forget", "compact")]
    others += [crowd.start(role, "--stop", crowd.stop) for role in ("verify", "read")]
    started = time.monotonic()
    savers = [
        crowd.start("save", "--name", number, "--count", saves, "--acks", crowd.acks) for number in range(processes)
    ]
    savers += [crowd.start("auto", "--name", number, "--count", saves) for number in range(2)]
    crowd.wait(savers)
    seconds = time.monotonic() - started
    crowd.stop.touch()
    crowd.wait(others)
    said = crowd.said()
    acknowledged = [line for line in said if "version" in line]
    forgotten = {line["forgotten"] for line in said if "forgotten" in line}
    _print_figures(said, acknowledged, forgotten, seconds)

    assert [line["error"] for line in said if "error" in line] == []
    assert [process.returncode for process, _ in crowd.running] == [0] * len(crowd.running)
    assert len(acknowledged) == processes * saves
    assert len({line["version"] for line in acknowledged}) == processes * saves
    assert [line for line in said if line.get("returned") != line.get("nonce")] == []
    assert sum(line.get("compactions", 0) for line in said) > 0
    assert sum(line.get("verifications", 0) for line in said) > 0
    _look_again(crowd, acknowledged, forgotten, said)


def _print_figures(
    said: list[dict[str, Any]], acknowledged: list[dict[str, Any]], forgotten: set[int], seconds: float
) -> None:
    times = sorted(line["seconds"] for line in acknowledged) or [0.0]
    p50, p99 = times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)]
    done = {word: sum(line.get(word, 0) for line in said) for word in ("compactions", "busy", "verifications", "reads")}
    print(
        f"\n{len(acknowledged)} saves in {seconds:.1f} s: p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms,"
        f" slowest {times[-1] * 1000:.0f} ms; {len(forgotten)} forgotten meanwhile; {done},"
        f" overtaken {sum('overtaken' in line for line in said)}"
    )


def _look_again(
    crowd: Crowd, acknowledged: list[dict[str, Any]], forgotten: set[int], said: list[dict[str, Any]]
) -> None:
    """In the end: every version that was acknowledged and not forgotten still returns its nonce, and verify is clean."""
    engine = open_engine(crowd.store)
    _, row = engine.workspaces.root(str(crowd.root).encode())
    repository = engine.repository()
    rows = repository.ledger.find(Query(workspace=row.id, forgotten=True))
    living = {found.version for found in rows if not found.forgotten}
    automatic = {line["auto"] for line in said if line.get("auto")}
    wrong = [
        line["version"]
        for line in acknowledged
        if line["version"] not in forgotten
        and read(repository, row.id, line["version"], line["path"].encode()).decode() != line["nonce"]
    ]

    assert wrong == []
    assert [found.version for found in rows] == list(range(row.version, 0, -1))
    assert [found.seq for found in rows] == sorted((found.seq for found in rows), reverse=True)
    assert living == ({line["version"] for line in acknowledged} | automatic) - forgotten
    assert verify(repository, str(crowd.store)).problems == []
    engine.close()


# The two windows in which a sweep and a save meet


@pytest.fixture
def shared_past(crowd: Crowd) -> Path:
    """A second folder with a content that the first one had, and has forgotten: only a sweep stands before its end."""
    engine = open_engine(crowd.store)
    (crowd.root / "past.txt").write_text("of no version any more\n" * 100)
    first = save(engine, crowd.root)
    (crowd.root / "past.txt").write_text("another\n")
    save(engine, crowd.root)
    _, row = engine.workspaces.root(str(crowd.root).encode())
    forget(engine.repository(), row.id, [first], "test")
    other = crowd.folder / "other"
    other.mkdir()
    engine.workspaces.init(str(other).encode())
    (other / "again.txt").write_text("of no version any more\n" * 100)
    engine.close()
    return other


def test_a_content_swept_while_it_is_saved_again_is_stored_anew(crowd: Crowd, shared_past: Path) -> None:
    """The saver found it in the store and did not write it; then compaction took it away."""
    go = crowd.folder / "go"
    saver = crowd.start("once", "--pause", "pack:synced", "--go", go, root=shared_past)
    crowd.wait_for("paused")
    engine = open_engine(crowd.store)
    compact(engine.repository(), str(crowd.store), everything=True)
    go.touch()
    crowd.wait([saver])
    said = crowd.said()

    assert [line for line in said if "error" in line] == []
    assert said[-1]["steps"].count("save:scanned") == 2, "it was not noticed, or not tried again"
    assert _again(crowd, shared_past) == "of no version any more\n" * 100
    assert verify(engine.repository(), str(crowd.store)).problems == []
    engine.close()


def test_a_content_saved_again_while_it_is_swept_is_spared(crowd: Crowd, shared_past: Path) -> None:
    """Compaction had marked it as garbage; then a save relied on it and was acknowledged."""
    go = crowd.folder / "go"
    sweeper = crowd.start("compact", "--pause", "compact:copied", "--go", go)
    crowd.wait_for("paused")
    engine = open_engine(crowd.store)
    save(engine, shared_past)
    go.touch()
    crowd.wait([sweeper])
    said = crowd.said()

    assert [line for line in said if "error" in line] == []
    # Once for packs in which nothing lives, then for the others, and for those once more.
    assert said[-1]["steps"].count("compact:marked") == 3, "it was not noticed, or not tried again"
    assert _again(crowd, shared_past) == "of no version any more\n" * 100
    assert verify(engine.repository(), str(crowd.store)).problems == []
    engine.close()


def test_a_pack_that_comes_while_compaction_counts_is_left_for_another_time(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saves end between the list of packs and that of what lies in them."""
    engine = open_engine(crowd.store)
    repository, waste = engine.repository(), Compactor._measure_packs
    packs = repository.ledger.packs
    saved: list[Any] = []

    def packs_and_then_a_save() -> Any:
        found = packs()
        if len(saved) < 9:
            (crowd.root / "late").write_text(f"it came as number {len(saved)}\n")
            other = open_engine(crowd.store)
            saved.append(save(other, crowd.root))
            other.close()
        return found

    def count(compacting: Compactor) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(repository.ledger, "packs", packs_and_then_a_save)
            return waste(compacting)

    monkeypatch.setattr(Compactor, "_measure_packs", count)
    compact(repository, str(crowd.store), everything=True)
    _, row = engine.workspaces.root(str(crowd.root).encode())

    assert saved
    assert [read(repository, row.id, version, b"late") for version in saved] == [
        f"it came as number {number}\n".encode() for number in range(len(saved))
    ]
    assert verify(repository, str(crowd.store)).problems == []
    engine.close()


def test_a_version_forgotten_while_its_keyframe_is_made_does_not_stop_compaction(crowd: Crowd) -> None:
    """Its rows are gone: what is left of it does not add up, and that is no damage."""
    engine = open_engine(crowd.store)
    for number in range(4):
        (crowd.root / "file").write_text(f"{number}\n")
        (crowd.root / f"only-{number}").write_text(f"of one version: {number}\n")
        save(engine, crowd.root)
        (crowd.root / f"only-{number}").unlink()
    _, row = engine.workspaces.root(str(crowd.root).encode())
    repository = engine.repository()
    forget(repository, row.id, [1], "test")
    go = crowd.folder / "go"
    sweeper = crowd.start("compact", "--pause", "keyframe:begun", "--go", go)
    crowd.wait_for("paused")
    forget(repository, row.id, [2], "test")
    go.touch()
    crowd.wait([sweeper])
    said = crowd.said()

    assert [line for line in said if "error" in line] == []
    assert said[-1]["steps"].count("keyframe:begun") == 2, "it was not noticed, or not tried again"
    assert read(repository, row.id, 3, b"only-2") == b"of one version: 2\n"
    assert verify(repository, str(crowd.store)).problems == []
    engine.close()


def test_a_content_that_is_moved_again_and_again_is_read_all_the_same(crowd: Crowd) -> None:
    """A slow reader asks where a content lies; by the time it looks there, compaction has moved it once more."""
    engine = open_engine(crowd.store)
    (crowd.root / "file").write_text("moved\n" * 100)
    version = save(engine, crowd.root)
    _, row = engine.workspaces.root(str(crowd.root).encode())
    repository, moved = engine.repository(), list[str]()
    fetch = repository.contents.fetch

    def slow(place: Location) -> bytes:
        if len(moved) < 3:
            moved.append(place.pack)
            other = open_engine(crowd.store)
            (crowd.root / "other").write_text(f"{len(moved)}\n")
            save(other, crowd.root)
            compact(other.repository(), str(crowd.store), everything=True)
            other.close()
            repository.blobs.close()
        return fetch(place)

    repository.contents.fetch = slow  # type: ignore[method-assign]

    assert read(repository, row.id, version, b"file") == b"moved\n" * 100
    assert len(set(moved)) == 3
    engine.close()


def _again(crowd: Crowd, root: Path) -> str:
    engine = open_engine(crowd.store)
    try:
        _, row = engine.workspaces.root(str(root).encode())
        return read(engine.repository(), row.id, row.version, b"again.txt").decode()
    finally:
        engine.close()


def test_workspaces_with_the_same_contents_survive_each_others_sweeping(crowd: Crowd, campaign: bool) -> None:
    """Each content goes, is forgotten and swept here, while it is saved there, over and over."""
    engine = open_engine(crowd.store)
    roots = [crowd.folder / name for name in ("one", "two")]
    for root in roots:
        root.mkdir()
        engine.workspaces.init(str(root).encode())
    repository = engine.repository()
    sweeper = crowd.start("compact", "--stop", crowd.stop)
    for turn in range(60 if campaign else 12):
        for root, other in (roots, roots[::-1]):
            text = f"content of turn {turn // 2}\n" * 500
            (root / "file").write_text(text)
            version = save(engine, root)
            _, row = engine.workspaces.root(str(root).encode())

            assert read(repository, row.id, version, b"file").decode() == text
            _, row = engine.workspaces.root(str(other).encode())
            old = [found.version for found in repository.ledger.find(Query(workspace=row.id))][1:]
            forget(repository, row.id, old, "test")
    crowd.stop.touch()
    crowd.wait([sweeper])

    assert [line for line in crowd.said() if "error" in line] == []
    assert verify(repository, str(crowd.store)).problems == []
    engine.close()
