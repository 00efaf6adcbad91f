"""What supervision costs: agent time with and without it, and CPU and memory of the supervisor per task.

Run as `python -m bench.supervisor [TASKS] [--only PART…] [--pairs N]`; the parts are tasks, pairs and steps, of which
the last is only measured when asked for.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

AGENT = Path(__file__).parents[1] / "tools" / "scripted_agent.py"
KEEPFAST = [sys.executable, "-m", "keepfast"]
CONCURRENCY = 20
INTERVAL = 5
PAIRS, STEPS, STEP = 3, 24, 2.5
"""Whole runs, and what one consists of: so many steps of so many seconds make ten intervals and some to spare."""
TURNS = 12
GOAL, LEAST = 1.05, 10
"""Agent time with supervision as a multiple of that without; fewer interval checkpoints than these show nothing."""
PARTS = ("tasks", "pairs", "steps")
TICK = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = ArgumentParser(prog="python -m bench.supervisor", description="What supervision costs.")
    parser.add_argument("tasks", nargs="?", type=int, default=200, help="tasks at once")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS[:2], help="measure these parts")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="whole runs, alone and supervised in turn")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"a whole run lasts so many times {STEP} s")
    wanted = parser.parse_args()
    begin = time.monotonic()
    if "tasks" in wanted.only:
        with a_folder() as base:
            many(base, wanted.tasks)
    if "pairs" in wanted.only:
        pairs(wanted.pairs, wanted.steps)
    if "steps" in wanted.only:
        steps()
    print(f"measured in {time.monotonic() - begin:.0f} s")


@contextmanager
def a_folder() -> Iterator[Path]:
    """A temporary folder; ends all processes that run in it, because agents outlive an interrupted supervisor."""
    with tempfile.TemporaryDirectory(prefix="keepfast-bench-") as folder:
        try:
            yield Path(folder)
        finally:
            _end_all(folder.encode())


def _end_all(folder: bytes) -> None:
    """Kill all processes that run in the folder or have it as an argument; the children of a killed shim in the next round."""
    while found := [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _speaks_of(pid, folder)]:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _speaks_of(pid: int, folder: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read()
        return folder in words or os.readlink(f"/proc/{pid}/cwd").encode().startswith(folder)
    except OSError:
        return False


def judge(met: bool, what: str) -> None:
    print(f"{'OK' if met else 'MISSED'}: {what}")


def environment(base: Path, **settings: object) -> dict[str, str]:
    config = base / "home/.config/keepfast"
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
        [*KEEPFAST, "-q", "task", "new", "--file", str(base / "tasks.json")], cwd=base, env=variables, check=True
    )
    idle = _idle()
    begin = time.monotonic()
    child = subprocess.Popen([*KEEPFAST, "-q", "supervise", "--until-idle"], cwd=base, env=variables)
    own, status, used = _watched(child)
    seconds = time.monotonic() - begin
    listed = _answer(base, variables, "task", "list")
    done = sum(one["status"] == "completed" for one in listed)
    cpu = used.ru_utime + used.ru_stime
    print(
        f"{done} of {count} tasks done in {seconds:.0f} s, {CONCURRENCY} at a time (exit {os.waitstatus_to_exitcode(status)})"
    )
    print(
        f"the supervisor: {own:.1f} s CPU, {1000 * (own - idle.own) / count:.0f} ms a task; at most {used.ru_maxrss >> 10} MB, "
        f"{(used.ru_maxrss - idle.memory) / count:.0f} KB a task; without any task {idle.own:.1f} s and {idle.memory >> 10} MB"
    )
    print(
        f"with all shims and agents: {cpu:.1f} s CPU, {1000 * cpu / count:.0f} ms a task; load {os.getloadavg()[0]:.1f}"
    )
    judge(done == count and status == 0, f"{done} tasks done, {CONCURRENCY} at a time (goal: all {count})")


def pairs(count: int, steps: int) -> None:
    """Compare an agent supervised with an interval of 5 s and 10 checkpoints or more with the same agent without supervision."""
    empty = _idle().cpu
    print(f"starting and ending a supervisor that has nothing to do: {empty:.1f} s CPU")
    rounds = _rounds(STEP / 2)
    ratios, costs, kept = [], [], []
    for number in range(count):
        # They alternate in going first, so that a change in load favours none of them.
        timed = {way: _timed(way, steps, rounds) for way in ((False, True) if number % 2 == 0 else (True, False))}
        plain, with_us = timed[False], timed[True]
        ratios.append(with_us.seconds / plain.seconds)
        cost = with_us.cpu - plain.cpu - empty
        costs.append(100 * cost / with_us.seconds)
        kept.append(with_us.kept)
        print(
            f"agent alone {plain.seconds:.1f} s, supervised {with_us.seconds:.1f} s: {ratios[-1]:.3f}x; {with_us.kept} interval "
            f"checkpoints, {cost:.1f} s CPU beside the agent's {plain.cpu:.1f} s; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    middle = statistics.median(ratios)
    judge(
        middle <= GOAL and min(kept) >= LEAST,
        f"agent time with supervision is {middle:.3f}x that without (goal: at most {GOAL}x), median of {count} interleaved "
        f"pairs with {min(kept)} checkpoints or more each (goal: {LEAST}); {statistics.median(costs):.1f} % of one core",
    )


def steps() -> None:
    """Measure one run whose supervisor pauses at every other step: adjacent steps see the same other load."""
    with a_folder() as base:
        variables = environment(base, checkpoint_interval=INTERVAL)
        turn: list[dict[str, object]] = []
        for number in range(2 * TURNS + 1):
            turn += [{"write": [f"{number}.txt", "x" * 10_000]}, {"work": 1.0}, {"sleep": INTERVAL * 0.8}]
        row = task(base, "t", [[*turn, {"say": "=== CUSTOM TASK COMPLETE ==="}]])
        (base / "tasks.json").write_text(json.dumps({"tasks": [row]}))
        subprocess.run(
            [*KEEPFAST, "-q", "task", "new", "--file", str(base / "tasks.json")], cwd=base, env=variables, check=True
        )
        child = subprocess.Popen([*KEEPFAST, "-q", "supervise", "--until-idle"], cwd=base, env=variables)
        load = []
        for number in range(2 * TURNS + 1):
            while not (base / f"t/{number}.txt").exists():
                assert child.poll() is None
                time.sleep(0.02)
            child.send_signal(signal.SIGCONT if number % 2 == 0 else signal.SIGSTOP)
            load.append(os.getloadavg()[0])
        child.send_signal(signal.SIGCONT)
        assert child.wait() == 0
        began = [(base / f"t/{number}.txt").stat().st_mtime for number in range(2 * TURNS + 1)]
        took = [later - at for at, later in pairwise(began)]
        id = _answer(base, variables, "task", "list")[0]["id"]
        shown = _answer(base, variables, "task", "show", id)
    kept = sum(one["reason"] == "interval" for one in shown["checkpoints"])
    with_us, without = took[0::2], took[1::2]
    ratios = [one / other for one, other in zip(with_us, without, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(
        f"{TURNS} pairs of steps, {kept} interval checkpoints: supervised {sum(with_us):.1f} s, alone {sum(without):.1f} s, "
        f"{sum(with_us) / sum(without):.3f}x; median of pairs {middle:.3f}x (quartiles {low:.3f} to {high:.3f}); "
        f"load {min(load):.0f} to {max(load):.0f}"
    )


class Timed(NamedTuple):
    """Seconds from an agent's first file to its end, CPU of everything, checkpoints that were taken meanwhile."""

    seconds: float
    cpu: float
    kept: int = 0


def _rounds(seconds: float) -> int:
    """How often the agent's `compute` goes round in so many seconds here: the same amount is the work of all runs."""
    begin, rounds = time.process_time(), 0
    while time.process_time() - begin < seconds:
        sum(range(1000))
        rounds += 1
    return rounds


def _timed(supervised: bool, steps: int, rounds: int) -> Timed:
    with a_folder() as base:
        variables = environment(base, checkpoint_interval=INTERVAL)
        turn: list[dict[str, object]] = []
        for number in range(steps):
            turn += [{"write": [f"{number}.txt", "x" * 10_000]}, {"compute": rounds}, {"sleep": STEP / 2}]
        row = task(base, "t", [[*turn, {"say": "=== CUSTOM TASK COMPLETE ==="}]])
        kept = 0
        if not supervised:
            command: list[str] = row["agent"]["command"]  # type: ignore[index]
            cpu = _run(command, base / "t", dict(os.environ))
        else:
            (base / "tasks.json").write_text(json.dumps({"tasks": [row]}))
            words = ["-q", "task", "new", "--file", str(base / "tasks.json")]
            subprocess.run([*KEEPFAST, *words], cwd=base, env=variables, check=True)
            cpu = _run([*KEEPFAST, "-q", "supervise", "--until-idle"], base, variables)
            id = _answer(base, variables, "task", "list")[0]["id"]
            shown = _answer(base, variables, "task", "show", id)
            kept = sum(one["reason"] == "interval" for one in shown["checkpoints"])
        first = (base / "t/0.txt").stat().st_mtime
        return Timed((base / "t.journal").stat().st_mtime - first, cpu, kept)


class Idle(NamedTuple):
    """What a supervisor uses that starts, finds nothing to do, and ends: its own CPU, all CPU, and memory in KB."""

    own: float
    cpu: float
    memory: int


def _idle() -> Idle:
    with a_folder() as base:
        child = subprocess.Popen(
            [*KEEPFAST, "-q", "supervise", "--until-idle"], cwd=base, env=environment(base), stdin=subprocess.DEVNULL
        )
        own, status, used = _watched(child)
        assert os.waitstatus_to_exitcode(status) == 0
        return Idle(own, used.ru_utime + used.ru_stime, used.ru_maxrss)


def _watched(child: subprocess.Popen[bytes]) -> tuple[float, int, resource.struct_rusage]:
    """Wait for a process; return the CPU seconds of itself alone, its status, and what it used with all it waited for."""
    own = 0.0
    while True:
        with open(f"/proc/{child.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        own = max(own, (int(fields[11]) + int(fields[12])) / TICK)
        if fields[0] == "Z":
            _, status, used = os.wait4(child.pid, 0)
            return own, status, used
        time.sleep(0.05)


def _run(command: list[str], cwd: Path, variables: dict[str, str]) -> float:
    """CPU seconds of a command and of everything that it waited for."""
    child = subprocess.Popen(command, cwd=cwd, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, command
    return used.ru_utime + used.ru_stime


def _answer(base: Path, variables: dict[str, str], *words: str) -> Any:
    done = subprocess.run([*KEEPFAST, *words, "--json"], cwd=base, env=variables, check=True, capture_output=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the process that was started ends with us
    main()
