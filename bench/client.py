"""Hooks in the real client: how long our hooks delay it, compared with `true` and with a bare interpreter."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import IO, TYPE_CHECKING, Any

from tests.clients.claude.client import Unavailable, newest
from tests.clients.claude.endpoint import call, say, use

from .measure import Failed, shuffled, spread
from .plan import Plan
from .report import columns

if TYPE_CHECKING:
    from tests.clients.claude.bench import Bench

THINKING, PAUSE = 0.4, 0.3
"""Seconds that the model takes for an answer, and that a person waits before the next prompt: as quick as it gets."""
TREES = {"small": 300, "large": 20_000}
NOTHING, OURS, BARE = "nothing", "keepfast", "bare python"
ORDER = (NOTHING, "true", BARE, OURS)
LIMITS = {"PreToolUse": 2.0, "PostToolUse": 2.0, "UserPromptSubmit": 2.5, "Stop": 2.5}
"""How many times as long as a bare interpreter the client may be held."""
TOGETHER = (("UserPromptSubmit", "PreToolUse", "Stop"), ("PostToolUse",))
"""Events whose times do not touch are measured in one session."""


def measure_client(plan: Plan, say_so: Callable[[str], None]) -> list[dict[str, object]]:
    """Return medians by tree, event and hook. Raises `Failed` if the client cannot be had or does not answer."""
    try:
        client = newest()
    except Unavailable as reason:
        raise Failed(f"The real client cannot be had: {reason}") from None
    from tests.clients.claude.bench import Bench

    turns, rounds = (3, 1) if plan.quick else (8, 3)
    trees = {"small": TREES["small"]} if plan.quick else TREES
    results: list[dict[str, object]] = []
    for tree, files in trees.items():
        held: dict[tuple[str, str], list[float]] = {}
        with tempfile.TemporaryDirectory(prefix="bench-client-") as folder:
            bench = Bench(Path(folder), client)
            try:
                commands = _prepare(bench, files)
                sessions = [(name, events) for name in commands for events in TOGETHER]
                chance = random.Random(plan.seed)
                for number in range(rounds):
                    say_so(f"client {client.version}, {files:,} files: round {number + 1} of {rounds}")
                    for name, events in shuffled(sessions, chance):
                        _hook(bench, events, commands[name])
                        for event, seconds in _session(bench, turns):
                            if event in events:
                                held.setdefault((event, name), []).append(seconds)
            finally:
                bench.close()
        results += _judge(tree, files, held, plan.quick)
    return results


def _prepare(bench: Bench, files: int) -> dict[str, Any]:
    """Fill the project, protect it, and return the hooks to compare."""
    for number in range(files):
        folder = bench.project / f"folder-{number // 100}"
        if number % 100 == 0:
            folder.mkdir()
        (folder / f"file-{number}.txt").write_text(f"{number}\n")
    bench.keepfast("init")
    bench.keepfast("install", "claude")
    hooks = json.loads(bench.settings_path.read_text())["hooks"]
    bench.keepfast("-q", "save")
    time.sleep(2.5)  # what was written just now is read again by the next save
    bench.keepfast("-q", "save")

    def same(command: str) -> dict[str, Any]:
        entry = {"type": "command", "command": command, "timeout": 10}
        return {event: [{"hooks": [entry]}] for event in LIMITS}

    bare = f"'{sys.executable}' -I -S -B -c pass"
    return {NOTHING: {}, "true": same("true"), BARE: same(bare), OURS: hooks}


def _hook(bench: Bench, events: tuple[str, ...], hooks: dict[str, Any]) -> None:
    bench.settings({"hooks": {event: hooks[event] for event in events if event in hooks}})


def _session(bench: Bench, turns: int) -> list[tuple[str, float]]:
    """Seconds between the moments that each event lies in, for some turns of one session; the first is not counted."""
    step = call(use("Bash", command="echo x >> touched.txt", description="append"), delay=THINKING)
    bench.script(*[step, say("Done.", delay=THINKING)] * (turns + 1))
    found: list[tuple[str, float]] = []
    with talking(bench) as client:
        for turn in range(turns + 1):
            seen = len(bench.endpoint.main_requests())
            asked = time.time()
            client.send(f"turn {turn}")
            answered = client.result()
            came = [request.at for request in bench.endpoint.main_requests()[seen:]]
            if len(came) != 2:
                raise Failed(f"The client asked {len(came)} times in a turn of two requests.")
            if turn:
                tool = came[1] - came[0] - THINKING
                stop = answered - came[1] - THINKING
                found += [
                    ("UserPromptSubmit", came[0] - asked),
                    ("PreToolUse", tool),
                    ("PostToolUse", tool),
                    ("Stop", stop),
                ]
            time.sleep(PAUSE)
    return found


class Talk:
    """A client that receives prompts while it runs."""

    def __init__(self, told: IO[bytes], said: IO[bytes]) -> None:
        self.told, self.said = told, said

    def send(self, text: str) -> None:
        message = {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": text}]}}
        self.told.write(json.dumps(message).encode() + b"\n")
        self.told.flush()

    def result(self) -> float:
        """Return the time at which the turn ends, including its hooks."""
        for line in self.said:
            if b'"type":"result"' in line:
                return time.time()
        raise Failed("The client ended in the middle of a turn.")


@contextmanager
def talking(bench: Bench) -> Iterator[Talk]:
    """Run the real client until its last prompt."""
    stream = ["--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
    process = subprocess.Popen(
        [bench.client.path, "-p", *stream, "--permission-mode", "bypassPermissions"],
        env=bench.environment(),
        cwd=bench.project,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield Talk(process.stdin, process.stdout)
    finally:
        process.stdin.close()
        process.wait(timeout=120)


def _judge(tree: str, files: int, held: dict[tuple[str, str], list[float]], quick: bool) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for event, limit in LIMITS.items():
        base = median(held[event, NOTHING])
        bare = median(held[event, BARE]) - base
        for name in ORDER:
            seconds = held[event, name]
            added = median(seconds) - base
            ratio = added / bare if bare > 0 else None
            word = ""
            if name == OURS and ratio is not None and not quick:
                word = "PASS" if ratio <= limit else "MISS"
            figures = {"tree": tree, "files": files, "event": event, "hook": name, "runs": len(seconds)}
            times = spread(seconds)
            found.append(
                {**figures, "held": times.median, "low": times.low, "high": times.high, "added": added, "ratio": ratio}
                | {"goal": limit if name == OURS else None, "verdict": word}
            )
    return found


def client_table(results: list[dict[str, Any]]) -> str:
    lines = [["event", "hook", "files", "runs", "ms: median (range)", "added ms", "× bare", "goal", "verdict"]]
    for one in results:
        times = f"{one['held'] * 1e3:.0f} ({one['low'] * 1e3:.0f}..{one['high'] * 1e3:.0f})"
        ratio = "" if one["ratio"] is None or one["hook"] == NOTHING else f"{one['ratio']:.2f}"
        goal = "" if one["goal"] is None else f"≤ {one['goal']:g}"
        line = [str(one["event"]), str(one["hook"]), f"{one['files']:,}", str(one["runs"]), times]
        lines.append([*line, f"{one['added'] * 1e3:.0f}", ratio, goal, str(one["verdict"])])
    return f"What the real client waits for its hooks\n{columns(lines)}"
