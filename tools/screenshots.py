"""Pictures of the page for README and docs, taken from the running page: `python tools/screenshots.py`.

`python tools/screenshots.py FOLDER` takes every page at both widths and in both themes, for somebody to look at.
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
LOOKS = ((DESKTOP, "light", ""), (DESKTOP, "dark", ""), (PHONE, "light", "-phone"), (PHONE, "dark", "-phone"))
KEPT = ((DESKTOP, "light"), (PHONE, "dark"))
"""The looks of which README and docs show pictures."""
QUESTION = (
    "[USER_QUESTION]\ncategory: choice\nquestion: Which database shall the shop use?\noptions:\n"
    "  - SQLite\n  - PostgreSQL\nrequired: true\n[/USER_QUESTION]"
)
GUIDE = "# Guide\n\nEvery price is a number with two digits.\nDiscounts are taken off last.\n"
PRICES = "def price(item, discount=0):\n    # taken off last\n    return round(item.cost * (1 - discount), 2)\n"
DONE = {"say": "=== PHASE 1 COMPLETE ===\nReady for review."}


def main(everything: Path | None = None) -> None:
    if everything is not None:
        everything.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        _history(home)
        server = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "serve", "--no-open", "--port", "0"],
            env=_environment(home), stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert server.stdout is not None
            found = re.search(r"http://[^/]+", server.stdout.readline())
            assert found is not None
            tasks = _tasks(home)
            _figures(home, tasks[1])
            _pictures(home, found[0], tasks, everything)
        finally:
            server.terminate()
            server.wait(30)


def _environment(home: Path) -> dict[str, str]:
    return {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


def _holdfast(home: Path, *words: str, cwd: Path | None = None) -> str:
    command = [sys.executable, "-m", "holdfast", *words]
    return subprocess.run(command, env=_environment(home), cwd=cwd, check=True, capture_output=True, text=True).stdout


def _history(home: Path) -> None:
    project = home / "shop"
    (project / "src").mkdir(parents=True)
    _holdfast(home, "init", cwd=project)
    for number in range(1, 15):
        for part in range(number % 5 + 1):
            (project / f"src/part{part}.py").write_text(f"def price(item):\n    return item.cost * {number}.{part}\n")
        _holdfast(home, "save", "-m", f"step {number}: prices", *(["--auto"] if number % 3 else []), cwd=project)
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
        made += json.loads(_holdfast(home, "task", "new", "--file", str(home / f"{name}.task.json"), "--json"))
    return [one["id"] for one in made]


def _figures(home: Path, task: str) -> None:
    """Events with figures, as an agent that tells them would have left."""
    import time

    from holdfast.settings import Settings
    from holdfast.supervisor.serving import make_ground

    data = str(home / ".local/share/holdfast")
    ground = make_ground(Settings(), data, os.fsencode(home), time.time_ns, _environment(home))
    with ground.tables.write():
        for number, percent in enumerate((4, 12, 21, 33, 41, 52, 61, 68, 74, 81, 86, 18, 26, 37, 49)):
            account = {"five_hour": {"used": (20 + 3 * number) / 100, "resetsAt": None}}
            told = {"request": number + 1, "used": percent * 2_000, "window": 200_000, "percent": percent}
            ground.tables.log(task, time.time_ns(), "context", {**told, "account": account})
    ground.close()


def _pictures(home: Path, origin: str, tasks: list[str], everything: Path | None) -> None:
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for size, theme, ending in LOOKS:
            seen = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=theme)  # type: ignore[arg-type]
            page = seen.new_page()
            page.goto(_holdfast(home, "serve", "--link").strip())
            page.wait_for_selector("#inbox >> button:has-text('Approve')", timeout=90_000)
            page.wait_for_selector("#inbox >> button:has-text('SQLite')", timeout=90_000)
            project = page.get_attribute("#workspaces a:has-text('shop')", "href")
            if everything is not None:
                for name, path in _addresses(project or "", tasks).items():
                    page.goto(origin + path)
                    page.screenshot(path=everything / f"{name}-{theme}-{size[0]}.png", full_page=True)
            elif (size, theme) in KEPT:
                for name, path in (("page", "/"), ("task", f"/t/{tasks[1]}"), ("timeline", project or "")):
                    page.goto(origin + path)
                    page.wait_for_selector("body[data-connected=yes]")
                    page.screenshot(path=ROOT / f"docs/{name}{ending}.png")
            seen.close()
        browser.close()


def _addresses(project: str, tasks: list[str]) -> dict[str, str]:
    """Every page, by a name for its picture."""
    return {
        "home": "/", "workspace": project, "checkpoint": f"{project}/v/v9", "changes": f"{project}/diff?old=v3&new=v9",
        "diff": f"{project}/diff?old=v3&new=v9&path=src/part1.py", "tree": f"{project}/v/v9/tree",
        "side": f"{project}/diff?old=v3&new=v9&path=src/part1.py&view=side", "history": f"{project}/history?path=src/part1.py",
        "file": f"{project}/v/v9/file?path=src/part1.py",
        "brief": f"{project}/v/v9/brief", "restore": f"{project}/restore?reference=v3", "undo": f"{project}/back",
        "fork": f"{project}/v/v9/fork", "forget": f"{project}/v/v9/forget", "search": "/search?text=prices", "storage": "/storage",
        "health": "/health", "new": "/tasks/new", "task": f"/t/{tasks[1]}", "review": f"/t/{tasks[1]}/review",
        "question": f"/t/{tasks[0]}", "limited": f"/t/{tasks[2]}", "wrong": "/nothing", "gone": "/p/q_0",
    }  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
