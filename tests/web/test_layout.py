"""Long commands and long files stay within the page, and line numbers in one line, on a desk and on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.web import chromium
from tests.web.chromium import DESKTOP, PHONE
from tests.web.scene import Scene, begin, submit
from tests.web.served import Served

if TYPE_CHECKING:
    from playwright.sync_api import Page

COMMAND = (
    "cd /srv/app && PYTHONPATH=src:tests ./scripts/run-migrations.sh --database=postgresql://localhost:5432/shop_copy"
    " --from=2024_02_15T10_30_00_add_index_on_orders --to=latest --verbose 2>&1 | tee /tmp/migrations-2026-11-17.log"
    " && find . -name '*.pyc' -print0 | xargs -0 rm -rf -- build/lib.linux-x86_64-cpython-311/keepfast"
)
WORD = "rm -rf /srv/" + "averylongfoldernamewithoutanybreak" * 6
PAGES = (
    "/", "/t/TASK", "/t/TASK/review", "/w/WS", "/w/WS/v/v3", "/w/WS/diff?old=v2&new=v3&path=long.py",
    "/w/WS/diff?old=v2&new=v3&path=long.py&view=side", "/w/WS/v/v3/file?path=long.py", "/p/PROMPT",
)  # fmt: skip
BROKEN = """() => [...document.querySelectorAll('.diff .no')].filter((cell) => {
    const range = document.createRange()
    range.selectNodeContents(cell)
    const text = range.getBoundingClientRect(), place = cell.getBoundingClientRect()
    const lines = new Set([...range.getClientRects()].map((one) => one.top)).size
    return cell.textContent && (lines > 1 || text.right > place.right + 1 || text.left < place.left - 1)
}).map((cell) => cell.textContent)"""


class Shown(NamedTuple):
    served: Served
    parts: dict[str, str]
    pages: dict[str, Page]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    try:
        chromium.program()
    except chromium.Unavailable as why:
        pytest.skip(f"NO BROWSER TESTS: {why}")
    served = Served(tmp_path_factory.mktemp("layout"))
    parts = fill(served)
    with chromium.browser() as browser:
        pages = {}
        for name, size in (("desktop", DESKTOP), ("phone", PHONE)):
            visit: Any = browser.new_context(viewport=size)  # type: ignore[arg-type]
            key, _, value = served.cookie().partition("=")
            visit.add_cookies([{"name": key, "value": value, "url": served.origin + served.at("/")}])
            pages[name] = visit.new_page()
        yield Shown(served, parts, pages)
    served.close()


def fill(served: Served) -> dict[str, str]:
    """A workspace with long files, saved before long commands, and a task that is full of them."""
    long = "".join([f"line {number}\n" for number in range(12_500)])
    file: Path = served.root / "long.py"
    served.saver.save("manual", message="the first")
    file.write_text(long)
    served.saver.save("before_command", message=COMMAND)
    file.write_text(long.replace("line 12300\n", "changed = '" + "x" * 300 + "'\n").replace("line 99\n", "new\nnew\n"))
    served.saver.save("before_command", message=WORD)
    phases = [{"name": name, "prompt": "Go.", "verify": name, "review": True} for name in (COMMAND[:100], WORD[:100])]
    made = served.ask("POST", "/api/tasks", {
        "title": COMMAND[:190], "brief": COMMAND, "workspace": str(served.root), "start": False,
        "agent": {"command": ["true"]}, "phases": phases})  # fmt: skip
    task = str(made.json()["data"]["id"])
    ground = served.ground()
    submit(ground, task)
    begin(ground, task)
    with ground.tables.write() as tables:
        now = ground.now()
        tables.do(
            "INSERT INTO checkpoint VALUES (?, ?, '', 'cp', 2, 'start', 1, '', '', ?)", f"{task}:start", task, now
        )
        facts = {"phase": 1, "passed": False, "gate": "rework", "flagged": False, "output": f"{COMMAND}\n{WORD}"}
        tables.log(task, now, "phase_complete", facts)
        tables.log(task, now, "error", {"kind": "recoverable", "message": WORD, "recovery": "pause_and_retry"})
        tables.change(task, now, tokens=1200, budget={"tokens": 1000, "money": 0, "seconds": 600}, step=COMMAND)
        tables.move(task, "hold", now, trigger="test", hold="budget", human=1, why=WORD)
    prompt = Scene(served).prompt("question", options=["blue", COMMAND, WORD])
    ground.close()
    return {"TASK": task, "WS": served.saver.workspace, "PROMPT": prompt}


@pytest.mark.parametrize("size", ["desktop", "phone"])
@pytest.mark.parametrize("path", PAGES)
def test_long_commands_stay_within_the_page_and_numbers_in_one_line(shown: Shown, path: str, size: str) -> None:
    page = shown.pages[size]
    for name, value in shown.parts.items():
        path = path.replace(name, value)
    answer = page.goto(shown.served.origin + shown.served.at(path))

    assert answer is not None
    assert answer.status == 200
    assert page.evaluate("document.documentElement.scrollWidth") <= {"desktop": DESKTOP, "phone": PHONE}[size]["width"]
    assert page.evaluate(BROKEN) == []
