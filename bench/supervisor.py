"""What supervision costs: agent time with and without it, and CPU and memory of the supervisor per task.

Run as `python -m bench.supervisor [TASKS]`.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

AGENT = Path(__file__).parents[1] / "tools" / "scripted_agent.py"
HOLDFAST = [sys.executable, "-m", "holdfast"]
CONCURRENCY = 20
PAIRS, INTERVAL, STEPS = 3, 5, 11


def main(count: int) -> None:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        many(Path(folder), count)
    if "--no-pairs" not in sys.argv:
        pairs()


def environment(base: Path, **settings: object) -> dict[str, str]:
    config = base / "home/.config/holdfast"
    config.mkdir(parents=True)
    (config / "config.json").write_text(json.dumps({"supervisor": settings}))
    return {"HOME": str(base / "home"), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


def task(base: Path, name: str, turns: list[list[dict[str, object]]]) -> dict[str, object]:
    workspace = base / name
    workspace.mkdir()
    (base / f"{name}.json").write_text(json.dumps({"turns": turns}))
    command = [sys.executable, str(AGENT), str(base / f"{name}.json"), str(base / f"{name}.journal")]
    return {"name": name, "title": name, "brief": "work", "workspace": str(workspace), "agent": {"command": command}}


def many(base: Path, count: int) -> None:
    """So many tasks with scripted agents at once: all done, and what the supervisor used."""
    variables = environment(base, concurrency=CONCURRENCY)
    turns: list[list[dict[str, object]]] = [
        [{"write": ["a.txt", "1"]}, {"sleep": 0.5}, {"say": "=== CUSTOM TASK COMPLETE ==="}]
    ]
    rows = [task(base, f"t{number:03d}", turns) for number in range(count)]
    (base / "tasks.json").write_text(json.dumps({"tasks": rows}))
    subprocess.run(
        [*HOLDFAST, "-q", "task", "new", "--file", str(base / "tasks.json")], cwd=base, env=variables, check=True
    )
    begin = time.monotonic()
    child = subprocess.Popen([*HOLDFAST, "-q", "supervise", "--until-idle"], cwd=base, env=variables)
    _, status, used = os.wait4(child.pid, 0)
    seconds = time.monotonic() - begin
    listed = json.loads(
        subprocess.run(
            [*HOLDFAST, "task", "list", "--json"], cwd=base, env=variables, check=True, capture_output=True
        ).stdout
    )
    done = sum(one["status"] == "completed" for one in listed)
    cpu = used.ru_utime + used.ru_stime
    print(
        f"{done} of {count} tasks done in {seconds:.0f} s, {CONCURRENCY} at a time (exit {os.waitstatus_to_exitcode(status)})"
    )
    print(
        f"supervisor and what it waited for: {cpu:.1f} s CPU, {1000 * cpu / count:.0f} ms a task, {used.ru_maxrss >> 10} MB"
    )


def pairs() -> None:
    """An agent that works, with an interval of 5 s and 10 checkpoints or more, against the same without supervision."""
    ratios = []
    for _ in range(PAIRS):
        plain = _timed(supervised=False)
        with_us = _timed(supervised=True)
        ratios.append(with_us / plain)
        print(f"agent alone {plain:.1f} s, supervised {with_us:.1f} s: {ratios[-1]:.3f}")
    print(f"median over {PAIRS} interleaved pairs: {statistics.median(ratios):.3f}x")


def _timed(supervised: bool) -> float:
    """Seconds that the agent itself took, from its first to its last line."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        base = Path(folder)
        variables = environment(base, checkpoint_interval=INTERVAL)
        turn: list[dict[str, object]] = []
        for number in range(STEPS):
            turn += [{"write": [f"{number}.txt", "x" * 10_000]}, {"work": INTERVAL * 0.5}, {"sleep": INTERVAL * 0.5}]
        row = task(base, "t", [[*turn, {"say": "=== CUSTOM TASK COMPLETE ==="}]])
        begin = base / "t.json"
        if not supervised:
            command = row["agent"]["command"]  # type: ignore[index]
            subprocess.run(command, cwd=base / "t", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
        else:
            (base / "tasks.json").write_text(json.dumps({"tasks": [row]}))
            words = ["-q", "task", "new", "--file", str(base / "tasks.json")]
            subprocess.run([*HOLDFAST, *words], cwd=base, env=variables, check=True)
            subprocess.run([*HOLDFAST, "-q", "supervise", "--until-idle"], cwd=base, env=variables, check=True)
            listed = subprocess.run(
                [*HOLDFAST, "task", "list", "--json"], cwd=base, env=variables, check=True, capture_output=True
            )
            id = json.loads(listed.stdout)[0]["id"]
            shown = subprocess.run(
                [*HOLDFAST, "task", "show", id, "--json"], cwd=base, env=variables, check=True, capture_output=True
            )
            kept = sum(one["reason"] == "interval" for one in json.loads(shown.stdout)["checkpoints"])
            print(f"{kept} interval checkpoints")
        assert begin.exists()
        first = (base / "t/0.txt").stat().st_mtime
        return (base / "t.journal").stat().st_mtime - first


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    main(int(next((word for word in sys.argv[1:] if word.isdigit()), "200")))
