"""Screenshots of every page in every state, for visual review: `python tools/gallery.py FOLDER [NAME …]`.

Desktop and phone, light and dark, English and Korean: four looks, in which each pair of those occurs (`--all`: all eight).
NAMEs take only those pages. Needs Chromium and Playwright. Everything happens in temporary homes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import house as building
from house import DONE, GUIDE, NEVER, PRICES, QUESTION, House, environment, figures, house, keepfast, opened_at

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WIDTHS = {"desktop": (1280, 900), "phone": (360, 740)}
LOOKS = (("desktop", "light", "en"), ("desktop", "dark", "ko"), ("phone", "light", "ko"), ("phone", "dark", "en"))
NEED = (
    "[DEPENDENCY_REQUEST]\ntype: api_key\nname: SHOP_KEY\ndescription: The key of the payment provider\nrequired: true\n"
    "[/DEPENDENCY_REQUEST]"
)
OPEN_QUESTION = (
    "[USER_QUESTION]\ncategory: clarification\nquestion: What is the shop called?\nrequired: true\n[/USER_QUESTION]"
)
LONG = (
    "A title that somebody pasted from a ticket and that is far too long for a card: make the whole shop fast, cheap and "
    "good, by Friday"
)
PLANS: dict[str, tuple[list[Any], str]] = {
    "Build the shop": ([[{"say": QUESTION}], [DONE]], "ls"),
    "Name the shop": ([[{"say": OPEN_QUESTION}], [DONE]], "ls"),
    "Write the guide": (
        [[{"write": ["guide.md", GUIDE]}, {"write": ["prices.py", PRICES]}, DONE], [DONE]], "ls -l; echo 12 passed in 0.34s"
    ),
    "Translate": ([[{"limited": 3600}, {"exit": 1}], [DONE]], "ls"),
    "Take payments": ([[{"say": NEED}], [DONE]], "ls"),
    "Tidy up": ([[{"say": "Tidying."}, {"write": ["a.txt", "1"]}, DONE]], "true"),
    "Measure <b>everything</b>": ([[{"write": ["m.txt", "1"]}, DONE], *[[DONE]] * 5], "echo 3 failed, 9 passed; exit 1"),
    "Crash": ([[{"error": "Segmentation fault"}, {"exit": 139}]] * 9, "ls"),
    LONG: ([[{"say": "Looking at the shop."}, {"wait_for": NEVER}]], "ls"),
    "Stop here": ([[{"wait_for": NEVER}]], "ls"),
}  # fmt: skip
"""Title of a task, the turns of its agent, and its verification."""
LIMITED = "Translate"
SIGNS = {
    "Build the shop": ".badge:has-text('waiting for an answer')", "Name the shop": ".badge:has-text('waiting for an answer')",
    "Write the guide": ".badge:has-text('review')", "Take payments": ".badge:has-text('waiting for a secret')",
    "Tidy up": ".badge:has-text('completed')", LONG: ".badge:has-text('in progress')",
    "Stop here": ".badge:has-text('in progress')",
    "Measure <b>everything</b>": ".prompt", "Crash": ".badge.failed, .warn",
    LIMITED: ".badge:has-text('waiting for a limit')",
}  # fmt: skip
"""How one sees that a task is where its picture is to be taken."""


class Shot(NamedTuple):
    """One page: its address, and the actions before the screenshot."""

    path: str
    first: Callable[[Page], None] = lambda page: None


# What there is to see


def _project(home: Path) -> None:
    project = building.project(home, 60)
    (project / "logo.png").write_bytes(bytes(range(256)) * 8)
    (project / "한국어 파일.txt").write_text("안녕하세요\n")
    for number in range(61, 66):
        (project / "logo.png").write_bytes(bytes(range(number, 256)) * 8)
        (project / "src/part1.py").write_text(f"def price(item):\n    return item.cost * {number}\n")
        keepfast(home, "save", "-m", f"a new logo, number {number - 60}", cwd=project)
    keepfast(home, "name", "v57", "before-the-sale", cwd=project)
    keepfast(home, "pin", "v57", cwd=project)
    (project / "src/part1.py").write_text("def price(item):\n    # discounts come later\n    return item.cost\n")
    (project / "<img src=x onerror=alert(1)>.txt").write_text("a name with markup\n")


def _tasks(home: Path, titles: list[str]) -> dict[str, str]:
    made = {}
    for title in titles:
        number, (turns, verify) = list(PLANS).index(title), PLANS[title]
        phases = ("Plan",) if title == "Tidy up" else ("Plan", "Build")
        made[title] = building.task(home, f"task{number}", title, turns, verify, phases)
    return made


def _draft(home: Path) -> dict[str, str]:
    draft = home / "draft.task.json"
    draft.write_text(
        json.dumps(
            {
                "title": "Next month",
                "brief": "Count what was sold in a month.\nWrite it to report.md.",
                "workspace": str(home / "projects/task0"),
            }
        )
    )
    (found,) = json.loads(keepfast(home, "task", "new", "--file", str(draft), "--draft", "--json"))
    return {"Next month": found["id"]}


def _settled(house: House, page: Page) -> dict[str, str]:
    """All tasks, each where its picture is to be taken. The limited one comes last: a limit holds whoever has that account."""
    page.goto(house.link())
    page.wait_for_selector("#workspaces", state="attached")
    tasks = _tasks(house.home, [title for title in PLANS if title != LIMITED]) | _draft(house.home)
    for title, sign in SIGNS.items():
        if title == LIMITED:
            tasks |= _tasks(house.home, [LIMITED])
        page.goto(f"{opened_at(page)}/t/{tasks[title]}")
        page.wait_for_selector(f"#head >> {sign}", timeout=120_000)
        if title == "Stop here":
            keepfast(house.home, "task", "pause", tasks[title])
            page.wait_for_selector("#head >> .badge:has-text('paused')", timeout=120_000)
    return tasks


def _scrubbed(page: Page) -> None:
    page.focus("#scrub")
    page.keyboard.press("PageDown")
    page.wait_for_selector(".peek")


def _restored(page: Page) -> None:
    """Done and, at the next look, taken back."""
    if not page.locator("main form").count():
        page.goto(page.url.partition("/restore?")[0] + "/back")
    if page.locator("input[value=theirs]").count():
        page.check("input[value=theirs]")
    page.click("main form button.main")
    page.wait_for_selector(".facts")


def _rich(project: str, tasks: dict[str, str]) -> dict[str, Shot]:
    at = {
        name: f"/t/{tasks[title]}"
        for name, title in {
            "question": "Build the shop",
            "open-question": "Name the shop",
            "guide": "Write the guide",
            "limited": "Translate",
            "secret": "Take payments",
            "completed": "Tidy up",
            "unverified": "Measure <b>everything</b>",
            "crashed": "Crash",
            "running": LONG,
            "paused": "Stop here",
            "draft": "Next month",
        }.items()
    }
    one = "&path=src/part1.py"
    return {
        "home": Shot("/"),
        "workspace": Shot(project),
        "older": Shot(f"{project}?before=12"),
        "scrubbed": Shot(project, _scrubbed),
        "checkpoint": Shot(f"{project}/v/v57"),
        "changes": Shot(f"{project}/diff?old=v3&new=v9"),
        "diff": Shot(f"{project}/diff?old=v3&new=now{one}"),
        "side": Shot(f"{project}/diff?old=v3&new=now{one}&view=side"),
        "binary": Shot(f"{project}/diff?old=v61&new=v65&path=logo.png"),
        "same": Shot(f"{project}/diff?old=v60&new=v60"),
        "history": Shot(f"{project}/history?path=src/part1.py"),
        "tree": Shot(f"{project}/v/v62/tree"),
        "file": Shot(f"{project}/v/v9/file?path=src/part1.py"),
        "binary-file": Shot(f"{project}/v/v62/file?path=logo.png"),
        "brief": Shot(f"{project}/v/v57/brief"),
        "restore": Shot(f"{project}/restore?reference=v3"),
        "restore-file": Shot(f"{project}/restore?reference=v3{one}"),
        "fork": Shot(f"{project}/v/v9/fork"),
        "forget": Shot(f"{project}/v/v9/forget"),
        "search": Shot("/search?text=discount"),
        "search-none": Shot("/search?text=zebra"),
        "search-empty": Shot("/search"),
        "storage": Shot("/storage"),
        "health": Shot("/health"),
        "new": Shot("/tasks/new"),
        "review": Shot(f"{at['guide']}/review"),
        "review-open": Shot(f"{at['guide']}/review", lambda page: page.click(".note summary >> nth=1")),
        **{f"task-{name}": Shot(path) for name, path in at.items()},
        "wrong": Shot("/nothing"),
        "unknown-task": Shot("/t/task_unknown"),
        "gone": Shot("/p/q_0"),
        "unknown-version": Shot(f"{project}/v/v999"),
        "refused": Shot(f"{project}/v/v9/fork", lambda page: page.click("main button.main")),
        "restored": Shot(f"{project}/restore?reference=v3", _restored),
        "undo": Shot(f"{project}/back"),
    }


BARE = {
    "bare-home": Shot("/"),
    "bare-search": Shot("/search?text=discount"),
    "bare-storage": Shot("/storage"),
    "bare-health": Shot("/health"),
    "bare-new": Shot("/tasks/new"),
}


def _broken(home: Path) -> None:
    project = home / "projects/shop"
    project.mkdir(parents=True)
    keepfast(home, "init", cwd=project)
    for number in range(1, 4):
        (project / "prices.py").write_text(f"PRICE = {number}\n" * 50)
        keepfast(home, "save", "-m", f"step {number}", cwd=project)
    for pack in (home / ".local/share/keepfast").rglob("packs/**/*"):
        if pack.is_file():
            content = bytearray(pack.read_bytes())
            content[len(content) // 3 :: 7] = b"\xff" * len(content[len(content) // 3 :: 7])
            pack.chmod(0o600)
            pack.write_bytes(content)
    subprocess.run(
        [sys.executable, "-m", "keepfast", "verify"], env=environment(home), cwd=project, capture_output=True
    )


def _damaged(project: str) -> dict[str, Shot]:
    return {
        "damaged-checkpoint": Shot(f"{project}/v/v2"),
        "damaged-diff": Shot(f"{project}/diff?old=v1&new=v2&path=prices.py"),
        "damaged-file": Shot(f"{project}/v/v1/file?path=prices.py"),
        "damaged-restore": Shot(f"{project}/restore?reference=v1"),
        "damaged-health": Shot("/health"),
        "damaged-workspace": Shot(project),
        "damaged-home": Shot("/"),
    }


# Taking them


def _take(browser: Browser, house: House, shots: dict[str, Shot], looks: Any, folder: Path, wanted: list[str]) -> None:
    for width, theme, language in looks:
        size = dict(zip(("width", "height"), WIDTHS[width], strict=True))
        seen = browser.new_context(viewport=size, color_scheme=theme, locale=language, timezone_id="Asia/Seoul")  # type: ignore[arg-type]
        page = seen.new_page()
        page.goto(house.link())
        page.wait_for_selector("#workspaces", state="attached")
        for name, shot in shots.items():
            if wanted and name not in wanted:
                continue
            page.goto(opened_at(page) + shot.path)
            if page.locator("#notify").count():
                page.wait_for_selector("body[data-connected=yes]")
            shot.first(page)
            page.screenshot(path=folder / f"{name}-{width}-{theme}-{language}.png", full_page=True)
        seen.close()


def _door(browser: Browser, house: House, looks: Any, folder: Path) -> None:
    for width, theme, language in looks:
        size = dict(zip(("width", "height"), WIDTHS[width], strict=True))
        seen = browser.new_context(viewport=size, color_scheme=theme, locale=language)  # type: ignore[arg-type]
        page = seen.new_page()
        page.goto(house.origin + "/")
        page.screenshot(path=folder / f"login-{width}-{theme}-{language}.png", full_page=True)
        page.fill("input[name=ticket]", "wrong")
        page.click("#enter button")
        page.wait_for_selector("[role=alert]")
        page.screenshot(path=folder / f"login-wrong-{width}-{theme}-{language}.png", full_page=True)
        seen.close()


def main(folder: Path, wanted: list[str], looks: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as base, building.chromium() as browser:
        rich, bare, broken = (Path(base) / name / "home" for name in ("rich", "bare", "broken"))
        for one in (rich, bare, broken):
            one.mkdir(parents=True)
        if not wanted or any(name.startswith(("bare", "login")) for name in wanted):
            with house(bare) as here:
                _door(browser, here, looks, folder)
                _take(browser, here, BARE, looks, folder, wanted)
        if not wanted or any(name.startswith("damaged") for name in wanted):
            _broken(broken)
            with house(broken) as here:
                _take(browser, here, _damaged(_first(browser, here)), looks, folder, wanted)
        if wanted and all(name.startswith(("bare", "login", "damaged")) for name in wanted):
            return
        _project(rich)
        with house(rich) as here:
            with browser.new_context() as seen:
                tasks = _settled(here, seen.new_page())
            figures(rich, tasks["Write the guide"])
            try:
                _take(browser, here, _rich(_first(browser, here), tasks), looks, folder, wanted)
            finally:
                for title in (LONG, "Stop here"):
                    building.end(rich, tasks[title])


def _first(browser: Browser, house: House) -> str:
    with browser.new_context() as seen:
        page = seen.new_page()
        page.goto(house.link())
        shop = page.get_attribute("#workspaces a:has-text('shop')", "href") or ""
        return "".join(shop.partition("/w/")[1:])


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--all"]
    every = tuple(product(WIDTHS, ("light", "dark"), ("en", "ko")))
    main(Path(words[0]), words[1:], every if "--all" in sys.argv else LOOKS)
