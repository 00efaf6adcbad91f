"""Scale: what 10,000 checkpoints cost that 100 do not, in time per question and in bytes per checkpoint.

`python -m bench.scale` measures in this process. Checkpoints are made by the real commit path, without a scan.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import mkdtemp

from keepfast.app.inspect import between
from keepfast.model.entry import FILE, Entry
from keepfast.model.ids import checkpoint_id
from keepfast.store.maintenance.space import compact, forget
from keepfast.store.place import Place
from keepfast.store.repository import Repository
from keepfast.store.rows import CheckpointRow, Query
from keepfast.store.search import search

FEW, MANY = 100, 10_000
FILES, CHANGED = 1_000, 10
CONTENT, TINY = 2_000, 200
"""Bytes of a file's content, for times and for counting: noise, so that everything else in a store is metadata."""
RATIO, METADATA, TREE_RATIO = 3.0, 20 << 10, 1.5
RUNS = 60
WORDS = ("parser", "ledger", "restore", "한글 입력", "tests", "build", "refactor", "cache", "scan", "retry")


class Project:
    """Checkpoints of a tree that is on no disk."""

    def __init__(self, store: Path, paths: list[bytes], content: int, seed: int = 1) -> None:
        self.store, self.paths, self.content, self.random = store, sorted(paths), content, random.Random(seed)
        self.workspace, self.clock = "a" * 32, 1_800_000_000_000_000_000
        self.repository: Repository = Place(str(store), durable=False).create()
        self.repository.register(self.workspace, b"/nonexistent/project", self.clock)
        self.save(self.paths, "the first")

    def save(self, paths: list[bytes], message: str) -> CheckpointRow:
        self.clock += 60_000_000_000
        saving = self.repository.begin(self.workspace)
        rows = {path: self._entry(path, saving.small(self.random.randbytes(self.content))) for path in paths}
        changed, old = saving.changes(rows, None)
        header = {
            "id": checkpoint_id(self.clock, self.random.randbytes(10)), "created_at": self.clock,
            "event_at": self.clock, "scan_started": self.clock, "scan_ended": self.clock, "trigger": "turn",
            "created_by": "auto", "message": message, "name": None, "tags": [], "pinned": False,
            "session": f"session-{self.clock // 10**13}", "task": None, "cwd": "",
            "git": {"branch": "main", "commit": "c" * 40, "in_progress": None}, "notices": [], "tool": "0.1.0",
        }  # fmt: skip
        return saving.finish(header, changed, old)

    def _entry(self, path: bytes, content: bytes) -> Entry:
        return Entry(path, FILE, 0o644, 0, self.content, self.clock, 0, content, b"")

    def grow(self, versions: int) -> None:
        """Save until there are so many versions; each changes a few files, mostly the same ones, as work does."""
        row = self.repository.workspace(self.workspace)
        for number in range(row.version if row is not None else 0, versions):
            pool = (
                self.paths if self.random.random() < 0.3 else self.paths[number // 50 % 20 * 50 :][:100] or self.paths
            )
            words = " ".join(self.random.sample(WORDS, 3))
            self.save(self.random.sample(pool, min(CHANGED, len(pool))), f"turn {number}: {words}")

    def size(self) -> int:
        return sum(path.stat().st_size for path in self.store.rglob("*") if path.is_file() and path.name != "reserve")

    def questions(self) -> dict[str, Callable[[], object]]:
        """What is measured, by name. Each asks as a command does, with the store open."""
        repository, ledger, workspace = self.repository, self.repository.ledger, self.workspace
        oldest = ledger.checkpoint(workspace, 1)
        assert oldest is not None
        path = self.paths[len(self.paths) // 2]
        content = ledger.at(workspace, 1, path)
        assert content is not None

        def listing() -> object:
            repository.workspace(workspace)
            return ledger.find(Query(workspace=workspace, limit=20))

        def show() -> object:
            before = ledger.find(Query(workspace=workspace, before=oldest.version, limit=1))
            header, _ = repository.document(oldest)
            return header, list(between(repository, workspace, before[0] if before else None, oldest))

        def show_second() -> object:
            second = ledger.checkpoint(workspace, 2)
            assert second is not None
            return repository.document(second), list(between(repository, workspace, oldest, second))

        def reading() -> object:
            repository.contents.forget_frames()
            entry = ledger.at(workspace, 1, path)
            assert entry is not None
            return repository.contents.load(entry.content)

        return {
            "list, the 20 newest": listing,
            "show the oldest": show,
            "show the second oldest": show_second,
            "search a message": lambda: search(repository, str(self.store), workspace, "refactor", 20),
            "search two Korean letters": lambda: search(repository, str(self.store), workspace, "입력", 20),
            "search a path": lambda: search(repository, str(self.store), workspace, "file_03", 20),
            "search what is not there": lambda: search(repository, str(self.store), workspace, "nowhere", 20),
            "search two absent letters": lambda: search(repository, str(self.store), workspace, "없음", 20),
            "read a file of the oldest": reading,
        }


def measure(project: Project, runs: int) -> dict[str, float]:
    """Medians in seconds."""
    result = {}
    for name, question in project.questions().items():
        question()
        result[name] = median(_timed(question) for _ in range(runs))
    versions = [row.version for row in project.repository.ledger.find(Query(workspace=project.workspace))]
    middle = versions[len(versions) // 10 : -len(versions) // 10]
    result["forget one"] = _forgetting(project, middle[:: max(3, len(middle) // runs)])
    # The same where most are gone: all but one in five, so that the neighbours are further away.
    rest = [row.version for row in project.repository.ledger.find(Query(workspace=project.workspace))]
    keep = rest[2::5]
    forget(project.repository, project.workspace, [version for version in rest[1:] if version not in keep], "bench")
    result["forget one of the rest"] = _forgetting(project, keep[:: max(1, len(keep) // runs)])
    return result


def _forgetting(project: Project, versions: list[int]) -> float:
    def one(version: int) -> Callable[[], object]:
        return lambda: forget(project.repository, project.workspace, [version], "bench")

    return median(_timed(one(version)) for version in versions)


def _timed(question: Callable[[], object]) -> float:
    """CPU seconds: with everything in memory that is the whole of it, and a busy machine does not change it much."""
    started = time.process_time()
    question()
    return time.process_time() - started


def metadata(project: Project, checkpoints: int) -> float:
    """Bytes per checkpoint of ten files that are not the files' own."""
    before = project.size()
    for number in range(checkpoints):
        project.save(project.random.sample(project.paths, CHANGED), f"turn {number}: ten files somewhere")
    return (project.size() - before) / checkpoints - CHANGED * project.content


def small_tree(files: int = FILES) -> list[bytes]:
    return [b"src/module_%02d/file_%02d.py" % divmod(number, 40) for number in range(files)]


def large_tree(files: int = 100_000) -> list[bytes]:
    """Paths as in a node_modules folder: deep, and about 60 bytes long."""
    return [
        b"node_modules/@scope-%02d/package-%03d/dist/esm/components/part-%03d.js"
        % (number % 40, number // 40 % 25, number // 1000)
        for number in range(files)
    ]


@dataclass(frozen=True)
class Line:
    """One figure beside its goal."""

    what: str
    figures: str
    ratio: float
    goal: float

    def __str__(self) -> str:
        verdict = "ok" if self.ratio <= self.goal else "MISSED"
        return f"  {self.what:<28} {self.figures:>28}   {self.ratio:6.2f}  goal {self.goal:g}  {verdict}"


def run(folder: Path, few: int, many: int, runs: int, say: Callable[[str], None]) -> list[Line]:
    """Measure and return every line; `say` hears of progress."""
    times = {}
    for versions in (few, many):
        project = Project(folder / f"store-{versions}", small_tree(), CONTENT)
        say(f"making {versions} checkpoints")
        project.grow(versions)
        say(f"asking with {versions} checkpoints")
        times[versions] = measure(project, runs)
        started = time.perf_counter()
        compact(project.repository, str(project.store))
        say(f"compaction with {versions} checkpoints took {time.perf_counter() - started:.1f} s")
        times[versions].update({f"{name}, packed": seconds for name, seconds in _packed(project, runs).items()})
        project.repository.close()
    lines = [
        Line(name, f"{times[few][name] * 1000:8.3f} → {seconds * 1000:8.3f} ms", seconds / times[few][name], RATIO)
        for name, seconds in times[many].items()
    ]
    say("counting bytes")
    trees = {"small": small_tree(), "large": large_tree()}
    bytes_of = {name: metadata(Project(folder / name, paths, TINY), 300) for name, paths in trees.items()}
    for name, size in bytes_of.items():
        lines.append(Line(f"KB per checkpoint, {name}", f"{size / 1024:8.2f} KB", size / 1024, METADATA / 1024))
    ratio = bytes_of["large"] / bytes_of["small"]
    lines.append(Line("100,000 paths : 1,000 paths", "", ratio, TREE_RATIO))
    return lines


def _packed(project: Project, runs: int) -> dict[str, float]:
    wanted = ("show the oldest", "read a file of the oldest")
    questions = project.questions()
    return {name: median(_timed(questions[name]) for _ in range(runs)) for name in wanted}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--few", type=int, default=FEW)
    parser.add_argument("--many", type=int, default=MANY)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--dir", type=Path, help="folder for the stores (default: a temporary one)")
    options = parser.parse_args()
    folder = options.dir or Path(mkdtemp(prefix="keepfast-scale-"))
    try:
        lines = run(folder, options.few, options.many, options.runs, lambda text: print(f"… {text}", file=sys.stderr))
    finally:
        if options.dir is None:
            shutil.rmtree(folder, ignore_errors=True)
    print(
        f"\nScale: {options.few} → {options.many} checkpoints of {CHANGED} files, CPU, medians of {options.runs} runs"
    )
    print("\n".join(map(str, lines)))
    return int(any(line.ratio > line.goal for line in lines))


if __name__ == "__main__":
    sys.exit(main())
