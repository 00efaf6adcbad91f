"""The hooks of an agent's client: what each event costs beside `true` and a bare interpreter, in small and large trees.

`python -m bench.hooks` runs it alone. With the real client the added time per tool call is measured by its own bench.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from keepfast.state import pending_events as pending
from keepfast.state import workers

from .measure import Usage, interleave, run, summarise
from .report import columns

BARE = [sys.executable, "-I", "-S", "-B", "-c", "pass"]
LAUNCH = Path(__file__).parent.parent / "src" / "keepfast" / "hook" / "launch.py"
START = [sys.executable, "-I", "-S", "-B", str(LAUNCH)]
WORDS = ["hook", "claude-code"]
SESSION = "11111111-2222-4333-8444-555555555555"
FEW, MANY, PER_FOLDER = 300, 30_000, 100
TRANSCRIPT = 1 << 30

EVENTS: dict[str, tuple[str, dict[str, object], float]] = {
    "PreToolUse Read": ("PreToolUse", {"tool_name": "Read", "tool_input": {"file_path": "/x"}}, 10.0),
    "PreToolUse Bash": ("PreToolUse", {"tool_name": "Bash", "tool_input": {"command": "pytest -q 2>&1 | tail"}}, 10.0),
    "PostToolUse Edit": ("PostToolUse", {"tool_name": "Edit", "tool_input": {"file_path": "/x"}}, 10.0),
    "Stop": ("Stop", {"last_assistant_message": "Done."}, 10.0),
    "UserPromptSubmit": ("UserPromptSubmit", {"prompt": "go on"}, 10.0),
}
"""Name → event, its fields, and how many times a bare interpreter it may cost."""


class Place:
    """A home and a project with so many files, saved once."""

    def __init__(self, base: Path, files: int) -> None:
        self.files, self.home, self.project = files, base / "home", base / f"project-{files}"
        self.home.mkdir(parents=True)
        for number in range(files):
            folder = self.project / f"{number // PER_FOLDER:04d}"
            if number % PER_FOLDER == 0:
                folder.mkdir(parents=True)
            (folder / f"{number:06d}.py").write_text(f"value = {number}\n")
        (self.project / ".git").mkdir()
        self.transcript = base / "transcript.jsonl"
        with self.transcript.open("wb") as file:
            # Sparse: as long as the longest session, and only its end is ever read.
            file.truncate(TRANSCRIPT)
            file.seek(TRANSCRIPT)
            usage = {"input_tokens": 1000, "output_tokens": 5}
            answer = {"type": "assistant", "message": {"model": "claude-opus-5-5", "usage": usage}}
            file.write(b"\n" + json.dumps(answer).encode() + b"\n")
        self.env = {"HOME": str(self.home), "PATH": "/usr/bin:/bin"}
        self.folder = ""
        folders = [str(self.home / name) for name in ("", ".config", ".local/share")]
        self.hook = [*START, "--folders", *folders, *WORDS]
        self.measured(self.hook, self.payload("SessionStart", source="startup"))
        [found] = (self.home / ".local/share/keepfast/store/workspaces").iterdir()
        self.folder = str(found)
        self.settle()
        time.sleep(0.1)
        self.measured(self.hook, self.payload("Stop"))  # the second save reads again what was too young to be trusted
        self.settle()

    def payload(self, name: str, **fields: object) -> Path:
        path = self.home.parent / f"{name}-{abs(hash(str(fields)))}.json"
        told = {"session_id": SESSION, "transcript_path": str(self.transcript), "cwd": str(self.project)}
        path.write_text(json.dumps({**told, "hook_event_name": name, **fields}))
        return path

    def measured(self, command: list[str], payload: Path) -> Usage:
        """One process as the client starts it: through a shell, with the payload on standard input."""
        text = f"exec {shlex.join(command)} < {shlex.quote(str(payload))}"
        return run(["/bin/sh", "-c", text], self.project, self.env)

    def event(self, command: list[str], payload: Path, changes: bool) -> Usage:
        """One event after a change; what it leaves to the worker is waited for and not counted."""
        if changes:
            (self.project / "0000" / "000000.py").write_text(f"value = {time.time_ns()}\n")
        usage = self.measured(command, payload)
        self.settle()
        return usage

    def settle(self) -> None:
        while self.folder and (pending.names(self.folder) or workers.running_worker(self.folder, workers.HOOKS)):
            time.sleep(0.005)


def measure_hooks(base: Path, sizes: tuple[int, ...], runs: int, say: Callable[[str], None]) -> list[dict[str, object]]:
    """Return the medians of every event, of `true` and of a bare interpreter, in trees of these sizes."""
    results: list[dict[str, object]] = []
    for files in sizes:
        place = Place(base / str(files), files)
        say(f"{files:,} files: {runs} rounds")
        actions: dict[str, Callable[[], Usage]] = {}
        for name, (event, fields, _) in EVENTS.items():
            payload = place.payload(event, **fields)
            actions[name] = partial(place.event, place.hook, payload, event in ("Stop", "UserPromptSubmit"))
        actions["bare python"] = partial(place.event, BARE, payload, False)
        actions["true"] = partial(place.event, ["true"], payload, False)
        usages: dict[str, list[Usage]] = {name: [] for name in actions}
        for name, usage in interleave(actions, runs, random.Random(files)):
            usages[name].append(usage)
        results += judge(files, usages)
    return results


def judge(files: int, usages: dict[str, list[Usage]]) -> list[dict[str, object]]:
    bare = summarise(usages["bare python"])
    judged: list[dict[str, object]] = []
    for name, runs in usages.items():
        summary = summarise(runs)
        cpu, wall = summary.cpu.median / bare.cpu.median, summary.wall.median / bare.wall.median
        goal = EVENTS[name][2] if name in EVENTS else None
        word = "" if goal is None else "PASS" if max(cpu, wall) <= goal else "MISS"
        figures = {"files": files, "event": name, "cpu_ratio": cpu, "wall_ratio": wall, "goal": goal, "verdict": word}
        judged.append({**figures, **summary.as_json()})
    return judged


def hooks_table(results: list[dict[str, object]]) -> str:
    lines = [["event", "project", "runs", "CPU ms", "× bare", "wall ms", "× bare", "goal", "verdict"]]
    for result in results:
        cpu, wall = result["cpu"], result["wall"]
        assert isinstance(cpu, dict) and isinstance(wall, dict)
        goal = "" if result["goal"] is None else f"≤ {result['goal']:g}"
        line = [str(result["event"]), f"{result['files']:,} files", str(result["runs"]), f"{cpu['median'] * 1e3:.1f}"]
        line += [f"{result['cpu_ratio']:.2f}", f"{wall['median'] * 1e3:.1f}", f"{result['wall_ratio']:.2f}", goal]
        lines.append([*line, str(result["verdict"])])
    return f"Hooks beside `python -I -S -B -c pass` (medians; a 1 GB transcript)\n{columns(lines)}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.hooks", description="What hooks cost.")
    parser.add_argument("--runs", type=int, default=30, metavar="N", help="rounds, each with every event once")
    parser.add_argument("--files", default=f"{FEW},{MANY}", help="sizes of the trees, with commas")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    options = parser.parse_args()
    sizes = tuple(int(size) for size in options.files.split(","))
    with tempfile.TemporaryDirectory(prefix="bench-hooks-") as base:
        results = measure_hooks(Path(base), sizes, options.runs, lambda text: print(text, file=sys.stderr, flush=True))
    print(hooks_table(results))
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
