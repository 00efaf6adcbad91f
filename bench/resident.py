"""The resident: what a hook that it answers costs beside a bare interpreter, and a tool call's save beside tuned git.

`python -m bench.resident` runs it alone. The CPU of a hook counts the resident's own share.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from keepfast.present import resident
from keepfast.present.environment import Environment
from keepfast.state import pending_events as pending
from keepfast.state import workers

from .hooks import BARE, PER_FOLDER, SESSION
from .measure import Usage, interleave, run, summarise
from .report import columns
from .shadow_git import GitTuned

FILES = (300, 4_000, 80_000)
CHANGED = 10
HOOK_GOAL = 0.3
"""Share of a bare interpreter that a hook may cost."""
NONE_GOALS, TEN_GOALS = {4_000: 0.35, 80_000: 0.25}, {4_000: 0.5, 80_000: 0.3}
"""Number of files → share of tuned git that a tool call may cost which changed nothing, and one that changed ten files."""


class Place:
    """A home with installed hooks and a resident, a project, and git beside it."""

    def __init__(self, base: Path, files: int) -> None:
        self.files, self.home, self.project = files, base / "home", base / "project"
        self.home.mkdir(parents=True)
        for number in range(files):
            folder = self.project / f"{number // PER_FOLDER:04d}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number:06d}.py").write_text(f"value = {number}\n" * 40)
        self.env = {"HOME": str(self.home), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
        self.keepfast("install", "claude")
        settings = json.loads((self.home / ".claude/settings.json").read_text())
        self.hook: str = settings["hooks"]["PostToolUse"][0]["hooks"][0]["command"]
        self.calls = self.round = 0
        folders = (str(self.home), str(self.home / ".config"), str(self.home / ".local/share"))
        self.environment = Environment({}, folders)
        resident.start(self.environment)
        self.process = resident.await_start(self.environment).process
        self.folder = ""
        self.event("SessionStart", source="startup")
        [found] = (self.home / ".local/share/keepfast/store/workspaces").iterdir()
        self.folder = str(found)
        self.settle()
        time.sleep(0.1)
        self.call("Bash")  # reads again what was too young to be trusted
        self.git = GitTuned(base / "git", self.project)
        self.git.first()

    def keepfast(self, *words: str) -> None:
        subprocess.run(
            [sys.executable, "-m", "keepfast", *words], cwd=self.project, env=self.env, check=True, capture_output=True
        )

    def event(self, name: str, **fields: object) -> Usage:
        """Run the hook as the client does; its CPU and what the resident used for it."""
        common = {"session_id": SESSION, "transcript_path": "", "cwd": str(self.project), "hook_event_name": name}
        payload = self.home.parent / "payload.json"
        payload.write_text(json.dumps({**common, **fields}))
        before = cpu_of(self.process)
        usage = run(["/bin/sh", "-c", f"{{ {self.hook}; }} < {payload}"], self.project, self.env)
        return replace(usage, cpu=usage.cpu + cpu_of(self.process) - before)

    def read(self) -> Usage:
        return self.event("PreToolUse", tool_name="Read", tool_use_id="t", tool_input={"file_path": "x"})

    def call(self, tool: str) -> Usage:
        """The end of a tool call, whose beginning is not counted."""
        self.calls += 1
        fields = {"tool_name": tool, "tool_use_id": f"t{self.calls}", "tool_input": {"command": "make"}}
        return self.event("PostToolUse", **fields)

    def change(self) -> None:
        self.round += 1
        for number in range(CHANGED):
            path = self.project / f"{number % max(1, self.files // PER_FOLDER):04d}"
            name = sorted(os.listdir(path))[number % PER_FOLDER]
            with open(path / name, "a") as file:
                file.write(f"round = {self.round}\n")

    def changed(self, save: Callable[[], Usage]) -> Usage:
        self.change()
        return save()

    def settle(self) -> None:
        while self.folder and (pending.names(self.folder) or workers.running_worker(self.folder, workers.HOOKS)):
            time.sleep(0.005)

    def close(self) -> None:
        resident.stop(self.environment)


def cpu_of(process: int) -> float:
    """Return the seconds of CPU that a process and its threads have used."""
    total = 0
    for thread in Path(f"/proc/{process}/task").iterdir():
        total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


def measure_resident(
    base: Path, sizes: tuple[int, ...], runs: int, say: Callable[[str], None]
) -> list[dict[str, object]]:
    """Return the medians for trees of these sizes."""
    results: list[dict[str, object]] = []
    for files in sizes:
        place = Place(base / str(files), files)
        try:
            say(f"{files:,} files: {runs} rounds; the resident is process {place.process}")
            bash = partial(place.call, "Bash")
            actions: dict[str, Callable[[], Usage]] = {
                "bare python": lambda place=place: run(BARE, place.project, place.env),  # type: ignore[misc]
                "hook answered": place.read,
                "none": bash,
                "none, git": place.git.save,
                "10 files": partial(place.changed, bash),
                "10 files, git": partial(place.changed, place.git.save),
            }
            usages: dict[str, list[Usage]] = {name: [] for name in actions}
            for name, usage in interleave(actions, runs, random.Random(files)):
                usages[name].append(usage)
                if name == "10 files":
                    place.git.save()  # each side saves ten changed files, not those of the other one, too
                if name == "10 files, git":
                    bash()
            results += judge(files, usages)
            say(f"memory of the resident: {memory_of(place.process):.0f} MB")
        finally:
            place.close()
    return results


def memory_of(process: int) -> float:
    [line] = [line for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def judge(files: int, usages: dict[str, list[Usage]]) -> list[dict[str, object]]:
    rows = [("hook answered", "bare python", HOOK_GOAL)]
    rows += [
        ("none", "none, git", NONE_GOALS.get(files, 0.0)),
        ("10 files", "10 files, git", TEN_GOALS.get(files, 0.0)),
    ]
    judged: list[dict[str, object]] = []
    for name, other, goal in rows:
        own, reference = summarise(usages[name]), summarise(usages[other])
        cpu, wall = own.cpu.median / reference.cpu.median, own.wall.median / reference.wall.median
        word = "" if not goal else "PASS" if max(cpu, wall) <= goal else "MISS"
        judged.append(
            {
                "files": files, "case": name, "beside": other, "cpu_ms": own.cpu.median * 1e3, "wall_ms": own.wall.median * 1e3,
                "cpu_ratio": cpu, "wall_ratio": wall, "goal": goal or None, "verdict": word, "runs": own.runs,
            }
        )  # fmt: skip
    return judged


def resident_table(results: list[dict[str, object]]) -> str:
    lines = [["case", "project", "runs", "CPU ms", "wall ms", "beside", "× CPU", "× wall", "goal", "verdict"]]
    for one in results:
        goal = "" if one["goal"] is None else f"≤ {one['goal']:g}"
        lines.append(
            [
                str(one["case"]), f"{one['files']:,} files", str(one["runs"]), f"{one['cpu_ms']:.1f}", f"{one['wall_ms']:.1f}",
                str(one["beside"]), f"{one['cpu_ratio']:.2f}", f"{one['wall_ratio']:.2f}", goal, str(one["verdict"]),
            ]
        )  # fmt: skip
    return f"Hooks answered by the resident (medians; CPU with the resident's share)\n{columns(lines)}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.resident", description="What the resident costs.")
    parser.add_argument("--runs", type=int, default=20, metavar="N", help="rounds, each with every case once")
    parser.add_argument("--files", default=",".join(map(str, FILES)), help="sizes of the trees, with commas")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    options = parser.parse_args()
    sizes = tuple(int(size) for size in options.files.split(","))
    with tempfile.TemporaryDirectory(prefix="bench-resident-") as base:
        results = measure_resident(
            Path(base), sizes, options.runs, lambda text: print(text, file=sys.stderr, flush=True)
        )
    print(resident_table(results))
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
