"""The cost of the search for secrets: `python -m bench.sealing [TREE…]` saves 1,000 changed files with it and without."""

from __future__ import annotations

import argparse
import io
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from keepfast.app.checkpoint import Engine
from keepfast.app.wiring import build
from keepfast.model.event import Event
from keepfast.settings import Settings
from keepfast.store.save import CHUNKED_FROM_BYTES
from keepfast.workspace import reader as read
from keepfast.workspace import secret_check as judge

from .report import columns
from .trees import CACHE

FILES, PAIRS, CHANGED = 3_000, 9, 1_000
SOURCES = (".c", ".h", ".py", ".js", ".ts", ".json", ".md", ".txt", ".yaml", ".toml", ".rs", ".go", ".java")
LIMIT = 10.0
"""Per cent that a save of 1,000 changed files may take longer."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sealing", description=__doc__)
    parser.add_argument("trees", nargs="*", type=Path, help="folders with real code (default: those of the bench)")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="saves with and without, each")
    options = parser.parse_args()
    trees = options.trees or [path for path in sorted((CACHE / "trees").glob("*")) if path.is_dir()]
    if not trees:
        print("There is no tree; `python -m bench.trees` prepares some, or name a folder.", file=sys.stderr)
        return 1
    lines = [["tree", "look a file", "of saves", "sealed by mistake"]]
    for tree in trees:
        sample = list(sources(tree, FILES))
        if len(sample) < 100:
            continue
        lines.append([tree.name, looking(sample), saves(sample, options.pairs), mistakes(tree)])
    print(columns(lines))
    print(f"sealing {sealing_speed():,.0f} MB/s; a save may take at most {LIMIT:.0f} % longer")
    return 0


def sources(tree: Path, most: int) -> Iterator[Path]:
    """A sample of the tree's texts, the same each time."""
    found = [
        Path(folder, name)
        for folder, _, names in os.walk(tree)
        for name in names
        if name.endswith(SOURCES) and not os.path.islink(os.path.join(folder, name))
    ]
    found.sort()
    random.Random(1).shuffle(found)
    yield from found[:most]


def looking(sample: list[Path]) -> str:
    contents = [(bytes(path), path.read_bytes()) for path in sample]
    judge.is_secret(b"warm", b"up")
    best = min(timed(lambda: [judge.is_secret(*one) for one in contents]) for _ in range(3))
    size = sum(len(content) for _, content in contents)
    return f"{best / len(contents) * 1e6:.1f} µs ({size / best / 1e6:,.0f} MB/s)"


def saves(sample: list[Path], pairs: int) -> str:
    """Return the CPU of saves of 1,000 changed files, with and without the search, interleaved."""
    chosen = vars(read)["is_secret"]
    spent: dict[bool, list[float]] = {True: [], False: []}
    folder = Path(tempfile.mkdtemp(prefix="keepfast-bench-"))
    try:
        root = folder / "work"
        for number, path in enumerate(sample):
            target = root / f"{number % 40:02d}" / f"{number}{path.suffix}"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        files = sorted(path for path in root.rglob("*") if path.is_file())
        engine = prepared(root, folder)
        for turn in range(2 * pairs + 2):
            with_it = turn % 2 == 0
            for path in random.Random(turn).sample(files, min(CHANGED, len(files))):
                with open(path, "a") as file:
                    file.write(f"\n{turn}\n")
            time.sleep(0.05)
            vars(read)["is_secret"] = chosen if with_it else lambda path, content: False
            cpu = timed(lambda: engine.handle(Event(bytes(root), time.time_ns(), trigger="auto")), time.process_time)
            if turn >= 2:
                spent[with_it].append(cpu)
        engine.close()
    finally:
        vars(read)["is_secret"] = chosen
        shutil.rmtree(folder, ignore_errors=True)
    more = (median(spent[True]) / median(spent[False]) - 1) * 100
    word = "met" if more <= LIMIT else "MISSED"
    return f"{median(spent[True]) * 1e3:.0f} ms, without {median(spent[False]) * 1e3:.0f} ms: {more:+.1f} % ({word})"


def prepared(root: Path, folder: Path) -> Engine:
    settings = Settings()
    settings.put("store.url", str(folder / "store"), "bench")
    settings.put("store.durable", False, "bench")
    engine = build(settings, str(folder), b"/nonexistent", time.time_ns)
    engine.workspaces.init(bytes(root))
    engine.handle(Event(bytes(root), time.time_ns(), trigger="auto"))
    return engine


def mistakes(tree: Path) -> str:
    """Return how many files of a tree without secrets would be sealed."""
    sealed = count = 0
    for folder, _, names in os.walk(tree):
        for name in names:
            path = Path(folder, name)
            if path.is_symlink() or not path.is_file():
                continue
            count += 1
            size = path.stat().st_size
            content = path.read_bytes() if size <= CHUNKED_FROM_BYTES else None
            sealed += judge.is_secret(bytes(path.relative_to(tree)), content)
    return f"{sealed:,} of {count:,} ({100 * sealed / max(count, 1):.2f} %)"


def sealing_speed() -> float:
    from keepfast.store.factory import create_store

    with tempfile.TemporaryDirectory() as folder:
        repository = create_store(folder + "/store", durable=False)
        content = os.urandom(64 << 20)
        took = timed(lambda: repository.contents.sealer().seal_stream(io.BytesIO(content).read, lambda *_: None))
        repository.close()
    return len(content) / took / 1e6


def timed(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    before = clock()
    work()
    return clock() - before


if __name__ == "__main__":
    sys.exit(main())
