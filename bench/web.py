"""The page under load: many listeners, tasks and checkpoints, against the real program: `python -m bench.web`."""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from keepfast.app.checkpoint import Engine
from keepfast.app.wiring import build
from keepfast.model.event import Event
from keepfast.runner.actions import taskfile
from keepfast.runner.actions.tasks import Tasks
from keepfast.runner.scheduler.service import make_runtime
from keepfast.settings import Settings

from .report import columns

KEEPFAST = [sys.executable, "-m", "keepfast"]
GOAL_MILLISECONDS, GOAL_MEGABYTES = 200, 250
PATIENCE = 120


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.web", description=__doc__)
    parser.add_argument("--checkpoints", type=int, default=10_000)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--listeners", type=int, default=50)
    parser.add_argument("--requests", type=int, default=100, help="how often each page is asked for")
    parser.add_argument("--events", type=int, default=200, help="checkpoints and task events made meanwhile, of each")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="keepfast-bench-") as base:
        place = Place(Path(base))
        place.prepare(options.checkpoints, options.tasks)
        with Page(place) as page:
            return asyncio.run(measure(place, page, options))


class Place:
    """A home with a project, its store, and tasks."""

    def __init__(self, base: Path) -> None:
        self.home, self.project, self.data = base, base / "project", base / ".local/share/keepfast"
        self.environment = {"HOME": str(base), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        self.settings = Settings()
        self.settings.put("store.durable", False, "bench")
        self.workspace, self.number = "", 0
        self.tasks: list[str] = []

    def prepare(self, checkpoints: int, tasks: int) -> None:
        self.project.mkdir()
        subprocess.run([*KEEPFAST, "-q", "init"], cwd=self.project, env=self.environment, check=True)
        began = time.monotonic()
        engine = self.engine()
        try:
            self.workspace = engine.repository().ledger.workspaces()[0].id
            for _ in range(checkpoints):
                self.save(engine)
        finally:
            engine.close()
        ground = make_runtime(self.settings, str(self.data), os.fsencode(self.home), time.time_ns, self.environment)
        try:
            for number in range(tasks):
                folder = self.home / f"task{number}"
                folder.mkdir()
                phases = [{"name": f"Phase {part}", "prompt": "Go on.", "review": True} for part in (1, 2, 3)]
                spec = {"title": f"Task {number}", "brief": "Do it.", "workspace": str(folder), "agent": {"command": ["true"]},
                        "phases": phases}  # fmt: skip
                self.tasks.append(Tasks(ground).new(taskfile.check(spec, str(folder)), start=True).id)
        finally:
            ground.close()
        print(f"{checkpoints:,} checkpoints and {tasks} tasks made in {time.monotonic() - began:.0f} s", flush=True)

    def engine(self) -> Engine:
        return build(self.settings, str(self.data), os.fsencode(self.home), time.time_ns)

    def save(self, engine: Engine) -> None:
        self.number += 1
        (self.project / f"part{self.number % 40}.py").write_text(f"value = {self.number}\n")
        trigger = "manual" if self.number % 7 == 0 else "turn"
        engine.handle(Event(os.fsencode(self.project), time.time_ns(), trigger=trigger, message=f"step {self.number}"))

    def happen(self, count: int) -> None:
        """Make this many checkpoints and as many task events."""
        engine = self.engine()
        ground = make_runtime(self.settings, str(self.data), os.fsencode(self.home), time.time_ns, self.environment)
        try:
            for number in range(count):
                self.save(engine)
                with ground.tables.write():
                    ground.tables.log(self.tasks[number % len(self.tasks)], time.time_ns(), "log", {"number": number})
        finally:
            ground.close()
            engine.close()


class Page:
    """`keepfast serve`, and a session in it."""

    def __init__(self, place: Place) -> None:
        words = [*KEEPFAST, "serve", "--no-open", "--no-tasks", "--port", "0"]
        self.process = subprocess.Popen(words, env=place.environment, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        found = re.search(r"http://([^/]+:(\d+))/#(\S+)", self.process.stdout.readline())
        assert found is not None
        self.host, self.port = found[1], int(found[2])
        entered = self.ask("POST", "/session", json.dumps({"ticket": found[3]}).encode())
        self.session = json.loads(entered)["data"]["session"]

    session = ""

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(30)

    @property
    def headers(self) -> dict[str, str]:
        return {"Host": self.host, "Content-Type": "application/json", "Authorization": f"Bearer {self.session}"}

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, self.headers)
            answer = connection.getresponse()
            content = answer.read()
            if answer.status != 200:
                raise SystemExit(f"{path}: {answer.status} {content[:200]!r}")
            return content
        finally:
            connection.close()

    def megabytes(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1e3
        return 0.0

    def processor(self) -> float:
        """Return the CPU seconds that the server has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def last(self) -> int:
        return int(json.loads(self.ask("GET", "/api/events?since=999999999"))["last"])


class Listener:
    """One browser's stream, and the event numbers that it received."""

    def __init__(self, page: Page, since: int) -> None:
        self.page, self.since = page, since
        self.heard: list[int] = []

    async def listen(self) -> None:
        reading, writing = await asyncio.open_connection("127.0.0.1", self.page.port, limit=1 << 22)
        head = [f"{name}: {value}" for name, value in self.page.headers.items()]
        lines = [f"GET /api/stream?since={self.since} HTTP/1.1", *head, "", ""]
        writing.write("\r\n".join(lines).encode())
        try:
            while line := await reading.readline():
                if line.startswith(b"id: "):
                    self.heard.append(int(line[4:]))
        finally:
            writing.close()


async def measure(place: Place, page: Page, options: Any) -> int:
    since = page.last()
    listeners = [Listener(page, since) for _ in range(options.listeners)]
    listening = [asyncio.create_task(one.listen()) for one in listeners]
    pages = {
        "first page": "/", "workspace": f"/w/{place.workspace}", "checkpoint": f"/w/{place.workspace}/v/latest",
        "task": f"/t/{place.tasks[0]}", "search": "/search?text=step", "storage": "/storage", "health": "/health",
    }  # fmt: skip
    happening = asyncio.create_task(asyncio.to_thread(place.happen, options.events))
    times = {name: await asyncio.to_thread(timed, page, path, options.requests) for name, path in pages.items()}
    await happening
    quiet, used = dict[str, list[float]](), dict[str, float]()
    for name, path in pages.items():
        before = page.processor()
        quiet[name] = await asyncio.to_thread(timed, page, path, 20)
        used[name] = (page.processor() - before) / 20 * 1e3
    end = time.monotonic() + PATIENCE
    last = await asyncio.to_thread(settled, page, place)
    while time.monotonic() < end and any(not one.heard or one.heard[-1] < last for one in listeners):
        await asyncio.sleep(0.1)
    for task in listening:
        task.cancel()
    wanted = list(range(since + 1, last + 1))
    missed = sum(len(set(wanted) - set(one.heard)) for one in listeners)
    ordered = all(one.heard == sorted(set(one.heard)) for one in listeners)
    memory = page.megabytes()
    rows = []
    for name, found in times.items():
        figures = (median(found), quantiles(found, n=20)[-1], median(quiet[name]), used[name])
        rows.append([name, *[f"{figure:.0f}" for figure in figures]])
    print(
        f"Milliseconds while {2 * options.events} things happen and {options.listeners} listen, and when nothing does:"
    )
    print(columns([["page", "median", "p95", "quiet", "its CPU"], *rows]))
    first = median(times["first page"])
    told = f"{len(wanted)} events to {len(listeners)} listeners: {missed} missed, {'in order' if ordered else 'OUT OF ORDER'}"
    print(f"{told}; {memory:.0f} MB at most; load {os.getloadavg()[0]:.1f}")
    goals = {
        f"first page within {GOAL_MILLISECONDS} ms at the median": first <= GOAL_MILLISECONDS,
        f"within {GOAL_MEGABYTES} MB": memory <= GOAL_MEGABYTES,
        "nothing missed": missed == 0 and ordered and len(wanted) >= 2 * options.events,
    }
    for goal, met in goals.items():
        print(f"{'met   ' if met else 'MISSED'} {goal}")
    return 0 if all(goals.values()) else 1


def timed(page: Page, path: str, count: int) -> list[float]:
    found = []
    for _ in range(count):
        began = time.perf_counter()
        page.ask("GET", path)
        found.append((time.perf_counter() - began) * 1e3)
    return found


def settled(page: Page, place: Place) -> int:
    """The number of the newest event, once everything that happened has been recorded."""
    last, end = page.last(), time.monotonic() + PATIENCE
    while time.monotonic() < end:
        time.sleep(3)
        if page.last() == last:
            break
        last = page.last()
    return last


if __name__ == "__main__":
    sys.exit(main())
