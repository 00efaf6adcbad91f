"""Pictures of the page for README and docs, taken from the running page: `python tools/screenshots.py`.

`tools/gallery.py` takes every page and state, for somebody to look at.
Needs Chromium and Playwright. Everything happens in a temporary home.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
AGENT = ROOT / "tools/scripted_agent.py"
DESKTOP, PHONE = (1200, 860), (360, 740)
LOOKS = ((DESKTOP, "light", ""), (PHONE, "dark", "-phone"))
QUESTION = (
    "[USER_QUESTION]\ncategory: choice\nquestion: Which database shall the shop use?\noptions:\n"
    "  - SQLite\n  - PostgreSQL\nrequired: true\n[/USER_QUESTION]"
)
GUIDE = "# Guide\n\nEvery price is a number with two digits.\nDiscounts are taken off last.\n"
PRICES = "def price(item, discount=0):\n    # taken off last\n    return round(item.cost * (1 - discount), 2)\n"
DONE = {"say": "=== PHASE 1 COMPLETE ===\nReady for review."}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        _history(home)
        server = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "serve", "--no-open", "--port", "0"],
            env=environment(home), stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert server.stdout is not None
            found = re.search(r"http://[^/]+", server.stdout.readline())
            assert found is not None
            tasks = _tasks(home)
            figures(home, tasks[1])
            _pictures(home, found[0], tasks)
        finally:
            server.terminate()
            server.wait(30)


def environment(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


def holdfast(home: Path, *words: str, cwd: Path | None = None) -> str:
    command = [sys.executable, "-m", "holdfast", *words]
    return subprocess.run(command, env=environment(home), cwd=cwd, check=True, capture_output=True, text=True).stdout


def _history(home: Path) -> None:
    project = home / "shop"
    (project / "src").mkdir(parents=True)
    holdfast(home, "init", cwd=project)
    for number in range(1, 15):
        for part in range(number % 5 + 1):
            (project / f"src/part{part}.py").write_text(f"def price(item):\n    return item.cost * {number}.{part}\n")
        holdfast(home, "save", "-m", f"step {number}: prices", *(["--auto"] if number % 3 else []), cwd=project)
    (project / "src/part1.py").write_text("def price(item):\n    # discounts come later\n    return item.cost\n")


def _tasks(home: Path) -> list[str]:
    made = []
    plans: dict[str, list[Any]] = {
        "Build the shop": [[{"say": QUESTION}], [DONE]],
        "Write the guide": [[{"write": ["guide.md", GUIDE]}, {"write": ["prices.py", PRICES]}, DONE], [DONE]],
        "Translate": [[{"limited": 3600}, {"exit": 1}], [DONE]],
    }
    for title, turns in plans.items():
        name = title.split()[0].lower()
        (home / name).mkdir()
        (home / f"{name}.json").write_text(json.dumps({"turns": turns}))
        task = {
            "title": title, "brief": title, "workspace": str(home / name),
            "agent": {"command": [sys.executable, str(AGENT), str(home / f"{name}.json"), str(home / f"{name}.journal")]},
            "phases": [{"name": "Plan", "prompt": "Plan.", "verify": "ls", "review": True}, {"name": "Build", "prompt": "Build."}],
        }  # fmt: skip
        (home / f"{name}.task.json").write_text(json.dumps(task))
        made += json.loads(holdfast(home, "task", "new", "--file", str(home / f"{name}.task.json"), "--json"))
    return [one["id"] for one in made]


def figures(home: Path, task: str) -> None:
    """Events with figures, as an agent that tells them would have left."""
    import time

    from holdfast.settings import Settings
    from holdfast.supervisor.serving import make_ground

    data = str(home / ".local/share/holdfast")
    ground = make_ground(Settings(), data, os.fsencode(home), time.time_ns, environment(home))
    with ground.tables.write():
        for number, percent in enumerate((4, 12, 21, 33, 41, 52, 61, 68, 74, 81, 86, 18, 26, 37, 49)):
            account = {"five_hour": {"used": (20 + 3 * number) / 100, "resetsAt": None}}
            told = {"request": number + 1, "used": percent * 2_000, "window": 200_000, "percent": percent}
            ground.tables.log(task, time.time_ns(), "context", {**told, "account": account})
    ground.close()


def _pictures(home: Path, origin: str, tasks: list[str]) -> None:
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for size, theme, ending in LOOKS:
            seen = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=theme)  # type: ignore[arg-type]
            page = seen.new_page()
            page.goto(holdfast(home, "serve", "--link").strip())
            page.wait_for_selector("#inbox >> button:has-text('Approve')", timeout=90_000)
            page.wait_for_selector("#inbox >> button:has-text('SQLite')", timeout=90_000)
            project = page.get_attribute("#workspaces a:has-text('shop')", "href")
            for name, path in (("page", "/"), ("task", f"/t/{tasks[1]}"), ("timeline", project or "")):
                page.goto(origin + path)
                page.wait_for_selector("body[data-connected=yes]")
                page.screenshot(path=ROOT / f"docs/{name}{ending}.png")
            seen.close()
        browser.close()


if __name__ == "__main__":
    main()
