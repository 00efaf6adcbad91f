"""A running page with a home of its own, and what pictures of it are taken of: for `gallery.py` and `screenshots.py`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[1]
AGENT = ROOT / "tools/scripted_agent.py"
NEVER = "/nonexistent/never"
QUESTION = (
    "[USER_QUESTION]\ncategory: choice\nquestion: Which database shall the shop use?\noptions:\n"
    "  - SQLite\n  - PostgreSQL\nrequired: true\n[/USER_QUESTION]"
)
GUIDE = "# Guide\n\nEvery price is a number with two digits.\nDiscounts are taken off last.\n"
PRICES = "def price(item, discount=0):\n    # taken off last\n    return round(item.cost * (1 - discount), 2)\n"
DONE = {"say": "=== PHASE 1 COMPLETE ===\nReady for review."}
STEPS = (
    "read the price list", "prices with two digits", "a test for rounding", "the cart adds up", "empty carts cost nothing",
    "discounts, first try", "discounts are taken off last", "the discount is shown", "fix a rounding error of one cent",
    "orders are kept", "an order can be cancelled", "send a receipt", "receipts in Korean", "speed up the list of orders",
)  # fmt: skip
"""What the history of a small shop says of itself."""


class House(NamedTuple):
    """A running page. Its workspaces lie in `projects`, so that the page shows them as `~/projects/…`."""

    home: Path
    origin: str

    def link(self) -> str:
        """Return a sign-in link for one browser."""
        return keepfast(self.home, "serve", "--link").strip()


def environment(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


def keepfast(home: Path, *words: str, cwd: Path | None = None) -> str:
    command = [sys.executable, "-m", "keepfast", *words]
    return subprocess.run(command, env=environment(home), cwd=cwd, check=True, capture_output=True, text=True).stdout


def opened_at(page: Page) -> str:
    """Where the pages of the session live that a page belongs to: behind the name, its folder."""
    return "/".join(page.url.split("/")[:4])


@contextmanager
def house(home: Path) -> Iterator[House]:
    """Serve the page of this home while the context lasts."""
    home.mkdir(parents=True, exist_ok=True)
    server = subprocess.Popen(
        [sys.executable, "-m", "keepfast", "serve", "--no-open", "--port", "0"],
        env=environment(home), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        found = re.search(r"http://[^/]+", server.stdout.readline())
        assert found is not None
        yield House(home, found[0])
    finally:
        server.terminate()
        server.wait(30)


@contextmanager
def chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


def project(home: Path, count: int) -> Path:
    """A workspace with so many checkpoints: a shop that somebody and an agent build together."""
    folder = home / "projects/shop"
    (folder / "src").mkdir(parents=True)
    keepfast(home, "init", cwd=folder)
    for number in range(1, count + 1):
        for part in range(number % 5 + 1):
            (folder / f"src/part{part}.py").write_text(f"def price(item):\n    return item.cost * {number}.{part}\n")
        said = STEPS[(number - 1) % len(STEPS)]
        keepfast(home, "save", "-m", said, *(["--auto"] if number % 3 else []), cwd=folder)
    (folder / "src/part1.py").write_text("def price(item):\n    # discounts come later\n    return item.cost\n")
    return folder


def task(
    home: Path, name: str, title: str, turns: list[Any], verify: str, phases: tuple[str, ...] = ("Plan", "Build")
) -> str:
    """Start an unattended task in a workspace of its own, with a scripted agent; its id."""
    folder, script = home / "projects" / name, home / f"{name}.json"
    folder.mkdir(parents=True)
    script.write_text(json.dumps({"turns": turns}))
    first, *others = phases
    described = {
        "title": title, "brief": f"{title}. Ask if something is unclear.", "workspace": str(folder),
        "agent": {"command": [sys.executable, str(AGENT), str(script), str(home / f"{name}.journal")]},
        "phases": [{"name": first, "prompt": f"{first}.", "verify": verify, "review": bool(others)},
                   *[{"name": other, "prompt": f"{other}."} for other in others]],
    }  # fmt: skip
    (home / f"{name}.task.json").write_text(json.dumps(described))
    (made,) = json.loads(keepfast(home, "task", "new", "--file", str(home / f"{name}.task.json"), "--json"))
    return str(made["id"])


def end(home: Path, task: str) -> None:
    """Cancel a task and wait for its agent to end, since it outlives a page that is closed before."""
    keepfast(home, "task", "cancel", task)
    until = time.monotonic() + 60
    while json.loads(keepfast(home, "task", "show", task, "--json"))["status"] != "cancelled":
        if time.monotonic() > until:
            raise TimeoutError(f"{task} did not end.")
        time.sleep(0.5)


def figures(home: Path, task: str) -> None:
    """Write usage events as an agent that reports them would."""
    from keepfast.runner.scheduler.service import make_runtime
    from keepfast.settings import Settings

    data = str(home / ".local/share/keepfast")
    ground = make_runtime(Settings(), data, os.fsencode(home), time.time_ns, environment(home))
    with ground.tables.write():
        for number, percent in enumerate((4, 12, 21, 33, 41, 52, 61, 68, 74, 81, 86, 18, 26, 37, 49)):
            account = {"five_hour": {"used": (20 + 3 * number) / 100, "resetsAt": None}}
            told = {"request": number + 1, "used": percent * 2_000, "window": 200_000, "percent": percent}
            ground.tables.log(task, time.time_ns(), "context", {**told, "account": account})
    ground.close()
