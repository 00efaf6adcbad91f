"""The page as a person uses it: every story clicked through in a real browser, at both widths and in both themes."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.clients.claude.client import Unavailable as NoPackage
from tests.web import chromium
from tests.web.chromium import DESKTOP, PHONE
from tests.web.served import Program

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        program = chromium.program()
    except chromium.Unavailable as why:
        pytest.skip(f"NO BROWSER TESTS: {why}")
    assert program
    with chromium.browser() as made:
        yield made


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    home = tmp_path / "home"
    project = home / "project"
    project.mkdir(parents=True)
    made = Program.__new__(Program)
    made.home, made.port = home, 0
    made.run("init", cwd=project)
    for number in range(1, 5):
        (project / "app.py").write_text(f"def answer():\n    return {number}\n")
        (project / f"part{number}.txt").write_text(f"part {number}\n")
        made.run("save", "-m", f"step {number}", cwd=project)
    made.start()
    yield made
    if made.process.poll() is None:
        made.stop()


class Visit:
    """A browser that has come in, and every complaint of its console."""

    def __init__(self, browser: Browser, program: Program, **options: Any) -> None:
        self.program = program
        self.browsing = browser.new_context(**{"viewport": DESKTOP, **options})
        self.page: Page = self.browsing.new_page()
        self.page.set_default_timeout(90_000)
        self.complaints: list[str] = []
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def enter(self) -> Page:
        link = self.program.run("serve", "--link").strip()
        self.page.goto(link)
        self.page.wait_for_selector("#workspaces")
        self.page.wait_for_selector("body[data-connected=yes]")
        # The first page was answered with 401, because nobody was in yet: the browser remarks on that.
        self.complaints = [text for text in self.complaints if "401" not in text]
        return self.page

    def open_project(self) -> Page:
        self.enter().click("text=project")
        self.page.wait_for_selector("#timeline")
        return self.page


@pytest.fixture
def visit(browser: Browser, program: Program, look: dict[str, Any]) -> Iterator[Visit]:
    made = Visit(browser, program, **look)
    yield made
    made.browsing.close()


def test_the_link_lets_one_browser_in_and_leaves_no_trace(visit: Visit) -> None:
    page = visit.page
    page.goto(visit.program.address)
    page.wait_for_selector("#workspaces")

    assert "#" not in page.url
    assert page.locator(".grid .card").count() == 1
    again = page.context.browser
    assert again is not None
    other = again.new_context().new_page()
    other.goto(visit.program.address)
    assert other.locator("#enter").count() == 1


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_can_be_looked_at(browser: Browser, program: Program, size: Any, theme: Any) -> None:
    visit = Visit(browser, program, viewport=size, color_scheme=theme)
    page = visit.open_project()
    base = page.url
    for path in ("", "/v/v3", "/diff?old=v1&new=v4", "/diff?old=v1&new=v4&path=app.py", "/diff?old=v1&new=v4&path=app.py&view=side",
                 "/history?path=app.py", "/v/v2/file?path=app.py", "/v/v2/tree", "/restore?reference=v1", "/v/v1/fork",
                 "/v/v3/brief", "/v/v1/forget"):  # fmt: skip
        answer = page.goto(base + path)
        assert answer is not None
        assert answer.status == 200, path
        assert size != PHONE or chromium.cramped(page) == [], path
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], path
    for path in ("/", "/search?text=step", "/storage", "/health"):
        answer = page.goto(chromium.home(page) + path)
        assert answer is not None
        assert answer.status == 200, path
        assert size != PHONE or chromium.cramped(page) == [], path
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], path

    assert visit.complaints == []
    visit.browsing.close()


def test_before_anything_is_protected_the_page_says_how(browser: Browser, tmp_path: Path) -> None:
    program = Program(tmp_path)
    visit = Visit(browser, program)
    page = visit.enter()
    shown = page.inner_text("#workspaces")
    answers = [
        page.goto(chromium.home(page) + path) for path in ("/search?text=x", "/storage", "/health", "/tasks/new")
    ]
    program.stop()

    assert "keepfast init" in shown
    assert [answer.status for answer in answers if answer] == [200] * 4
    assert visit.complaints == []
    visit.browsing.close()


def test_a_restore_is_shown_confirmed_done_and_taken_back(visit: Visit) -> None:
    project = visit.program.home / "project"
    page = visit.open_project()
    page.click("#list >> text=v2")
    page.click("text=Restore…")
    assert "part3.txt" in page.inner_text("main")
    assert (project / "part3.txt").exists()
    page.click("main form button.main")
    page.wait_for_selector("text=Restore finished.")
    assert (project / "app.py").read_text() == "def answer():\n    return 2\n"
    assert not (project / "part3.txt").exists()
    page.click("text=Undo the last restore")
    page.click("main form button.main")
    page.wait_for_selector("text=Restore finished.")

    assert (project / "app.py").read_text() == "def answer():\n    return 4\n"
    assert (project / "part3.txt").exists()
    assert visit.complaints == []


def test_work_that_no_checkpoint_has_is_asked_about(visit: Visit) -> None:
    project = visit.program.home / "project"
    (project / "app.py").write_text("mine\n")
    page = visit.open_project()
    page.goto(page.url + "/restore?reference=v1")
    page.click("text=Keep them")
    page.click("main form button.main")
    page.wait_for_selector("text=Restore finished.")

    assert (project / "app.py").read_text() == "mine\n"
    assert not (project / "part4.txt").exists()


def test_a_preview_that_is_old_does_nothing(visit: Visit) -> None:
    project = visit.program.home / "project"
    page = visit.open_project()
    page.goto(page.url + "/restore?reference=v1")
    (project / "another.txt").write_text("came after the preview\n")
    visit.program.run("save", "-m", "meanwhile", cwd=project)
    page.click("main form button.main")

    assert "changed after the preview" in page.inner_text("main")
    assert (project / "part4.txt").exists()
    assert (project / "another.txt").exists()


def test_saving_pinning_naming_and_forgetting(visit: Visit) -> None:
    project = visit.program.home / "project"
    (project / "new.txt").write_text("new\n")
    page = visit.open_project()
    page.fill("input[name=message]", "from the page")
    page.click("text=Save now")
    page.wait_for_url(re.compile("/v/v5"))
    assert "from the page" in page.inner_text("main")
    page.click("text=Pin")
    page.wait_for_selector("text=Unpin")
    page.fill("input[name=name]", "good-one")
    page.click("text=Set name")
    page.wait_for_selector(".badge:has-text('good-one')")
    page.goto(page.url.replace("v5", "v1"))
    page.click("text=Forget…")
    page.click("button:has-text('Forget')")
    page.wait_for_selector("#list")

    assert "v1" not in [text.strip() for text in page.locator("#list th[scope=row]").all_inner_texts()]


def test_a_fork_becomes_a_workspace(visit: Visit) -> None:
    page = visit.open_project()
    page.goto(page.url + "/v/v2/fork")
    folder = visit.program.home / "forked"
    page.fill("input[name=folder]", str(folder))
    page.click("button:has-text('Fork')")
    page.wait_for_selector("#timeline")

    assert (folder / "app.py").read_text() == "def answer():\n    return 2\n"
    assert page.inner_text("h1") == "forked"


def test_looking_around_leads_from_one_thing_to_the_next(visit: Visit) -> None:
    page = visit.open_project()
    page.click("#list >> text=v3")
    page.click(".changes >> text=app.py")
    page.wait_for_selector(".diff .plus:has-text('return 3')")
    page.click("text=Side by side")
    page.wait_for_selector(".diff.side .minus:has-text('return 2')")
    page.click("text=History")
    page.click("tr:has-text('v2') >> text=Restore…")
    page.wait_for_selector("h1:has-text('Restore v2')")
    page.click("nav >> text=Search")
    page.fill("input[name=text]", "step 2")
    page.click("main >> button:has-text('Search')")
    page.click(".hits >> text=v2")
    page.click("text=Brief")
    told = page.inner_text("main")
    page.go_back()
    page.click("text=Browse all files")
    page.click(".tree >> text=app.py")
    page.wait_for_selector(".code:has-text('return 2')")
    page.click("nav >> text=Storage")
    stored = page.inner_text("main")

    assert "of 5,000 tokens" in told
    assert "One checkpoint per hour kept for" in stored
    assert visit.complaints == []


def test_moving_through_time_shows_each_state(visit: Visit) -> None:
    page = visit.open_project()
    page.focus("#scrub")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector(".peek:has-text('v3')")
    page.keyboard.press("Home")
    page.wait_for_selector(".peek:has-text('v1')")

    assert visit.complaints == []


def test_two_browsers_see_each_others_changes(browser: Browser, visit: Visit) -> None:
    other = Visit(browser, visit.program, viewport=PHONE)
    one, two = visit.open_project(), other.open_project()
    two.fill("input[name=message]", "seen by the other")
    two.click("text=Save now")
    two.wait_for_url(re.compile("/v/v5"))

    one.wait_for_selector("#list >> text=seen by the other", timeout=90_000)
    other.browsing.close()


def test_a_killed_server_is_found_again_and_nothing_is_missed(visit: Visit) -> None:
    project = visit.program.home / "project"
    page = visit.open_project()
    visit.program.stop(signal.SIGKILL)
    page.wait_for_selector("body[data-connected=no]")
    assert page.is_visible("#lost")
    (project / "while-down.txt").write_text("saved while the server was down\n")
    visit.program.run("save", "-m", "while it was down", cwd=project)
    visit.program.start()
    page.wait_for_selector("body[data-connected=yes]", timeout=90_000)

    page.wait_for_selector("#list >> text=while it was down", timeout=90_000)
    assert page.is_hidden("#lost")


def test_a_gap_in_what_is_told_is_asked_about(browser: Browser, program: Program) -> None:
    """Numbers that are missing between two events are fetched, and the page is made anew."""
    visit = Visit(browser, program)
    page = visit.enter()
    program.run("save", "-m", "something to tell", cwd=program.home / "project")
    page.wait_for_selector("#workspaces >> text=something to tell", timeout=90_000)
    page.reload()
    last = int(page.get_attribute("body", "data-last") or 0)
    event = json.dumps({"sequence": last + 5, "type": "notice", "workspace": "", "taskId": "", "data": {}})
    page.route(
        "**/api/stream?*", lambda route: route.fulfill(content_type="text/event-stream", body=f"data: {event}\n\n")
    )
    asked = []
    page.on("request", lambda one: asked.append(one.url) if "/api/events" in one.url else None)
    with page.expect_request(lambda one: "/api/events?since=" in one.url, timeout=90_000):
        page.reload()

    assert asked[0].endswith(f"/api/events?since={last}")
    visit.browsing.close()


def test_the_page_speaks_korean(visit: Visit) -> None:
    page = visit.enter()
    page.click("text=한국어")
    page.wait_for_selector("h2:has-text('작업 공간')")

    assert page.get_attribute("html", "lang") == "ko"


def test_everything_can_be_done_with_the_keyboard(visit: Visit) -> None:
    project = visit.program.home / "project"
    page = visit.open_project()
    page.goto(page.url + "/restore?reference=v1")
    chromium.press(page, "Restore v1")
    page.wait_for_selector("text=Restore finished.")

    assert (project / "app.py").read_text() == "def answer():\n    return 1\n"


@pytest.mark.parametrize("name", ["desktop-light", "phone-dark"])
def test_no_page_has_a_serious_barrier(browser: Browser, program: Program, name: str) -> None:
    try:
        rules = chromium.axe()
    except NoPackage as why:
        pytest.skip(f"NO ACCESSIBILITY TEST: {why}")
    (program.home / "project" / "app.py").write_text("changed on disk\n")
    visit = Visit(browser, program, **chromium.LOOKS[name], bypass_csp=True)
    page = visit.open_project()
    base = page.url.removeprefix(chromium.home(page))
    addresses = (
        "/", base, base + "/v/v3", base + "/diff?old=v1&new=v4", base + "/diff?old=v1&new=v4&path=app.py",
        base + "/diff?old=v1&new=v4&path=app.py&view=side", base + "/history?path=app.py", base + "/v/v2/tree",
        base + "/v/v2/file?path=app.py", base + "/restore?reference=v1", base + "/v/v1/fork", base + "/v/v1/forget",
        base + "/v/v3/brief", "/search?text=step", "/storage", "/health", "/nothing",
    )  # fmt: skip
    found = chromium.barriers(page, addresses, rules)

    assert found == []
    visit.browsing.close()
