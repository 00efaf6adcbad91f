"""Large trees: time and peak memory of a save and of a restore at the limit of `capture.max_files`.

`python -m bench.large` makes a tree of its own in a temporary folder, and runs each command in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import mkdtemp

FILES, IN_FOLDER = 200_000, 100
GOAL = 300
"""Megabytes."""
CHANGED = "restore, all changed"
"""Without a goal: what is there and what shall be are both held, and the safety checkpoint reads every file."""


def fill(root: Path, files: int) -> None:
    for number in range(files):
        folder = root / f"d{number // IN_FOLDER // 50:03d}" / f"s{number // IN_FOLDER % 50:02d}"
        if number % IN_FOLDER == 0:
            folder.mkdir(parents=True)
        (folder / f"file_{number % IN_FOLDER:03d}.txt").write_text(f"file {number}\n" * (1 + number % 7 * 5))


def measured(words: list[str], root: Path, home: Path) -> tuple[float, float]:
    """Run one of our commands; return its seconds and the megabytes that it had at most. Raises if it fails."""
    command = [sys.executable, "-c", "from keepfast.entry import main; main()", *words]
    started = time.monotonic()
    process = subprocess.Popen(
        command, cwd=root, env={"HOME": str(home), "PATH": os.defpath}, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"keepfast {words[0]} ended with exit code {process.returncode}.")
    return seconds, usage.ru_maxrss / 1024


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.large", description=__doc__)
    parser.add_argument("--files", type=int, default=FILES)
    options = parser.parse_args()
    base = Path(mkdtemp(prefix="keepfast-large-"))
    root, home = base / "tree", base / "home"
    try:
        root.mkdir()
        home.mkdir()
        fill(root, options.files)
        measured(["init"], root, home)
        figures = {"first save": measured(["save", "-m", "one"], root, home)}
        figures["save, unchanged"] = measured(["save", "-m", "two"], root, home)
        for folder in root.glob("d*"):
            shutil.rmtree(folder)
        figures["restore, all deleted"] = measured(["restore", "v1", "--yes"], root, home)
        measured(["save", "-m", "back"], root, home)
        for file in root.glob("d*/s*/file_*"):
            with file.open("a") as open_file:
                open_file.write("more\n")
        figures[CHANGED] = measured(["restore", "v1", "--yes"], root, home)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print(f"| {options.files:,} files | s | peak MB |\n|---|---|---|")
    for name, (seconds, megabytes) in figures.items():
        print(f"| {name} | {seconds:.1f} | {megabytes:.0f} |")
    return 0 if all(megabytes <= GOAL for name, (_, megabytes) in figures.items() if name != CHANGED) else 1


if __name__ == "__main__":
    sys.exit(main())
