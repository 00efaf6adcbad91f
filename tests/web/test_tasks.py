"""Tasks in the page: what waits for a person is answered there, and the agent goes on."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.clients.claude.client import Unavailable as NoPackage
from tests.web import chromium
from tests.web.chromium import PHONE
from tests.web.served import Program
from tests.web.test_browser import Visit

if TYPE_CHECKING:
    from playwright.sync_api import Browser

AGENT = Path(__file__).parents[2] / "tools/scripted_agent.py"
QUESTION = (
    "[USER_QUESTION]\ncategory: choice\nquestion: Which colour?\noptions:\n  - red\n  - blue\n"
    "required: true\n[/USER_QUESTION]"
)
NEED = "[DEPENDENCY_REQUEST]\ntype: api_key\nname: SHOP_KEY\ndescription: The shop's key\nrequired: true\n[/DEPENDENCY_REQUEST]"
VALUE = "s3cr3t-value-of-the-shop-0123456789"


def phase(number: int) -> dict[str, str]:
    return {"say": f"=== PHASE {number} COMPLETE ===\nReady for review."}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        chromium.program()
    except chromium.Unavailable as why:
        pytest.skip(f"NO BROWSER TESTS: {why}")
    with chromium.browser() as made:
        yield made


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    home = tmp_path / "home"
    (home / "project").mkdir(parents=True)
    made = Program.__new__(Program)
    made.home, made.port = home, 0
    made.run("init", cwd=home / "project")
    made.start()
    yield made
    if made.process.poll() is None:
        made.stop()


def make(program: Program, name: str, *turns: list[dict[str, Any]], phases: int = 1, verify: str = "") -> str:
    """A task whose agent plays these turns; its id."""
    folder = program.home / name
    folder.mkdir(exist_ok=True)
    script = program.home / f"{name}.json"
    script.write_text(json.dumps({"turns": turns}))
    file = program.home / f"{name}.task.json"
    file.write_text(
        json.dumps(
            {
                "title": name,
                "brief": f"Do {name}.",
                "workspace": str(folder),
                "agent": {"command": [sys.executable, str(AGENT), str(script), str(program.home / f"{name}.journal")]},
                "phases": [
                    {"prompt": f"Phase {number + 1}", "verify": verify, "review": True} for number in range(phases)
                ],
            }
        )
    )
    listed = json.loads(program.run("task", "new", "--file", str(file), "--json"))
    return str(listed[0]["id"])


@pytest.fixture
def visit(browser: Browser, program: Program, look: dict[str, Any]) -> Iterator[Visit]:
    made = Visit(browser, program, **look)
    yield made
    made.browsing.close()


def test_a_question_is_answered_in_one_tap_and_a_phase_approved(visit: Visit) -> None:
    name = make(
        visit.program, "shop", [{"say": QUESTION}], [{"write": ["a.txt", "blue"]}, phase(1)], verify="test -e a.txt"
    )
    page = visit.enter()
    page.wait_for_selector("#inbox >> text=Which colour?", timeout=90_000)
    page.click("#inbox >> button:has-text('blue')")
    page.wait_for_selector("#inbox >> button:has-text('Approve')", timeout=90_000)
    page.click("#inbox >> button:has-text('Approve')")
    page.wait_for_selector("#board >> .badge:has-text('completed')", timeout=90_000)

    shown = json.loads(visit.program.run("task", "show", name, "--json"))
    assert shown["status"] == "completed"
    assert [one["answered_by"] for one in shown["prompts"]] == ["operator", "operator"]
    assert visit.complaints == []


def test_changes_are_requested_with_comments_that_become_the_prompt(visit: Visit) -> None:
    make(
        visit.program,
        "site",
        [{"write": ["page.html", "<p>"]}, phase(1)],
        [{"write": ["page.html", "<p></p>"]}, phase(1)],
    )
    page = visit.enter()
    page.wait_for_selector("#inbox >> button:has-text('Approve')", timeout=90_000)
    page.click("#inbox >> a:has-text('site')")
    page.click("text=Review the changes")
    page.fill("textarea[name=comments]", "Close the tag.")
    page.click("tr:has-text('<p>') >> summary")
    page.fill("textarea[name='at page.html:1']", "the paragraph\nhere")
    page.click("button:has-text('Request changes')")
    told = visit.program.home / "site.journal.told"
    page.wait_for_selector("#head >> button:has-text('Approve')", timeout=90_000)

    assert "Close the tag." in told.read_text()
    assert json.dumps("\n- page.html, line 1: the paragraph\n  here\n")[1:-1] in told.read_text()


def test_a_phase_whose_verification_fails_passes_only_for_somebody_who_says_so(visit: Visit) -> None:
    name = make(visit.program, "shaky", *[[phase(1)]] * 4, verify="echo 3 failed; exit 1")
    page = visit.enter()
    page.wait_for_selector("#inbox >> text=its verification still fails", timeout=150_000)
    page.click("#inbox >> button:has-text('Approve anyway')")
    held_back = page.locator("#inbox input[name=anyway]:invalid").count()
    prompt = json.loads(visit.program.run("task", "show", name, "--json"))["prompts"][-1]["id"]
    unasked = page.evaluate(
        """([path, token]) => fetch(location.pathname.match("/~[0-9a-f]+")[0] + path, { method: "PATCH", body: "{}",
            headers: { "Content-Type": "application/json", "X-Keepfast-Token": token } }).then((one) => one.json())""",
        [f"/api/reviews/{prompt}/approve", page.get_attribute("body", "data-token")],
    )
    page.check("#inbox >> input[name=anyway]")
    page.click("#inbox >> button:has-text('Approve anyway')")
    page.wait_for_selector("#board >> .badge:has-text('completed')", timeout=90_000)

    assert held_back == 1
    assert (unasked["success"], unasked["error"]) == (False, "The verification of this phase failed.")


def test_a_secret_is_taken_and_never_shown(visit: Visit) -> None:
    name = make(
        visit.program,
        "keys",
        [{"say": NEED}],
        [{"show_variable": "SHOP_KEY"}, {"say": "=== CUSTOM TASK COMPLETE ==="}],
        phases=0,
    )
    page = visit.enter()
    page.wait_for_selector("#inbox >> input[name=value]", timeout=90_000)
    page.fill("#inbox >> input[name=value]", VALUE)
    page.click("#inbox >> button:has-text('Provide')")
    page.wait_for_selector("#board >> .badge:has-text('completed')", timeout=90_000)
    page.goto(f"{chromium.home(page)}/t/{name}")

    assert VALUE not in page.content()
    assert "SHOP_KEY is" in page.inner_text("#output")
    stored = [path for path in visit.program.home.rglob("*") if path.is_file() and VALUE.encode() in path.read_bytes()]
    assert stored == []


def test_a_need_that_is_no_value_is_answered_and_another_is_done_without(visit: Visit) -> None:
    service = "[DEPENDENCY_REQUEST]\ntype: service\nname: a mail server\n[/DEPENDENCY_REQUEST]"
    key = NEED.replace("required: true", "required: false")
    make(visit.program, "mail", [{"say": service}, {"say": key}], [{"say": "=== CUSTOM TASK COMPLETE ==="}], phases=0)
    page = visit.enter()
    page.wait_for_selector("#inbox >> input[name=answer]", timeout=90_000)
    page.fill("#inbox >> input[name=answer]", "It listens on 2525.")
    page.click("#inbox >> button:has-text('Answer')")
    page.wait_for_selector("#inbox >> input[name=answer]", state="detached", timeout=90_000)
    page.click("#inbox >> button:has-text('Continue without it')", timeout=90_000)
    page.wait_for_selector("#board >> .badge:has-text('completed')", timeout=90_000)

    told = json.loads((visit.program.home / "mail.journal.told").read_text().splitlines()[-1])
    assert "You needed: a mail server\nThe answer: It listens on 2525." in told
    assert "SHOP_KEY is not provided; do without it." in told


def test_a_task_is_made_paused_resumed_and_cancelled(visit: Visit) -> None:
    page = visit.enter()
    wait = visit.program.home / "go"
    script = visit.program.home / "slow.json"
    script.write_text(
        json.dumps({"turns": [[{"wait_for": str(wait)}], [{"wait_for": str(wait)}], [{"wait_for": str(wait)}]]})
    )
    command = f"{sys.executable} {AGENT} {script} {visit.program.home}/slow.journal"
    page.click("text=New task")
    page.fill("input[name=title]", "slow one")
    page.fill("textarea[name=brief]", "Wait.")
    page.fill("input[name=workspace]", str(visit.program.home / "project"))
    page.fill("input[name=command]", command)
    page.click("text=Create task")
    page.wait_for_url(re.compile("/t/task_"))
    page.wait_for_selector("button:has-text('freeze')", timeout=90_000)
    page.wait_for_function("document.querySelector('#log').innerText.includes('Run started')", timeout=90_000)
    page.click("button:has-text('pause')")
    page.wait_for_selector("#head >> .badge:has-text('paused')", timeout=150_000)
    page.click("button:has-text('resume')")
    page.wait_for_selector("#head >> .badge:has-text('in progress')", timeout=90_000)
    page.click("button:has-text('cancel')")

    page.wait_for_selector("#head >> .badge:has-text('cancelled')", timeout=150_000)
    assert visit.complaints == []


def test_a_limit_is_counted_down_a_budget_set_and_the_task_tried_now(visit: Visit) -> None:
    name = make(visit.program, "limited", [{"limited": 3600}, {"exit": 1}], [phase(1)])
    page = visit.enter()
    page.wait_for_selector("#board >> .badge:has-text('waiting for a limit')", timeout=90_000)
    page.wait_for_selector("#board >> [data-until]:has-text('continues in')")
    page.goto(f"{chromium.home(page)}/t/{name}")
    page.fill("input[name=tokens]", "50000")
    page.click("text=Set limits")
    page.wait_for_selector(".facts:has-text('of 50,000')")
    page.click("#head >> button:has-text('Try now')")
    page.wait_for_selector("#head >> button:has-text('Approve')", timeout=150_000)
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    lanes = page.locator(".course rect").count()
    clock = page.locator(".course text.hour").all_text_contents()

    assert wide <= 0
    assert lanes >= 4  # a phase, two runs, two holds at least
    assert clock and all(re.fullmatch(r"\d\d:\d\d(:\d\d)?", text) for text in clock)
    assert visit.complaints == []


def test_an_answer_that_came_too_late_says_so(browser: Browser, visit: Visit) -> None:
    make(visit.program, "late", [{"say": QUESTION}], [phase(1)])
    other = Visit(browser, visit.program, viewport=PHONE)
    page, phone = visit.enter(), other.enter()
    for one in (page, phone):
        one.wait_for_selector("#inbox >> text=Which colour?", timeout=90_000)
    phone.evaluate("document.querySelectorAll('[data-follow]').forEach(part => part.removeAttribute('data-follow'))")
    page.click("#inbox >> button:has-text('blue')")
    page.wait_for_load_state()
    phone.click("#inbox >> button:has-text('red')")

    assert "no longer waiting" in phone.inner_text("main")
    other.browsing.close()


def test_tasks_go_on_after_the_server_was_killed(visit: Visit) -> None:
    go = visit.program.home / "go"
    name = make(visit.program, "hardy", [{"wait_for": str(go)}, {"write": ["a.txt", "1"]}, phase(1)])
    page = visit.enter()
    page.wait_for_selector("#board >> .badge:has-text('in progress')", timeout=90_000)
    visit.program.stop(signal.SIGKILL)
    visit.program.start()
    go.touch()
    page.wait_for_selector("#inbox >> button:has-text('Approve')", timeout=150_000)

    shown = json.loads(visit.program.run("task", "show", name, "--json"))
    assert (visit.program.home / "hardy/a.txt").read_text() == "1"
    assert len(shown["runs"]) == 1


def test_a_browser_is_notified_of_what_waits_and_led_to_it(browser: Browser, program: Program) -> None:
    visit = Visit(browser, program, permissions=["notifications"])
    page = visit.enter()
    make(program, "news", [{"say": QUESTION}], [phase(1)])
    shown = """navigator.serviceWorker.getRegistration("/static/").then((found) => found ? found.getNotifications() : [])
        .then((list) => list.map((one) => ({ title: one.title, body: one.body, address: one.data })))"""
    told, end = page.evaluate(shown), time.monotonic() + 90
    while not told and time.monotonic() < end:
        page.wait_for_timeout(200)
        told = page.evaluate(shown)
    page.goto(program.origin + told[0]["address"])
    page.click("button:has-text('blue')")
    page.wait_for_load_state()
    page.goto(program.origin + told[0]["address"])

    assert [(one["title"], one["body"]) for one in told] == [("news", "Which colour?")]
    assert "no longer waiting" in page.inner_text("main")
    assert visit.complaints == []
    visit.browsing.close()


TOUCH = """registration.getNotifications().then((shown) => {
    const touched = shown.find((one) => one.title === TITLE);
    if (touched) self.dispatchEvent(new NotificationEvent("notificationclick", { notification: touched }));
    return touched ? touched.data : "";
})"""
"""What the browser does when somebody touches a notification. Headless nobody can, so the worker gets the browser's event."""


def test_a_touched_notification_leads_the_open_page_to_its_question(browser: Browser, program: Program) -> None:
    visit = Visit(browser, program, permissions=["notifications"])
    page = visit.enter()
    name = make(program, "touched", [{"say": QUESTION}], [phase(1)])
    script = TOUCH.replace("TITLE", '"touched"')
    address, end = "", time.monotonic() + 90
    while not address and time.monotonic() < end:
        workers = page.context.service_workers
        address = workers[0].evaluate(script) if workers else ""
        page.wait_for_timeout(200)
    page.wait_for_url(re.compile("/p/q_"), timeout=90_000)
    (prompt,) = json.loads(program.run("task", "show", name, "--json"))["prompts"]
    shown = page.inner_text("#prompt")
    left = page.context.service_workers[0].evaluate("registration.getNotifications().then((list) => list.length)")

    assert page.url == f"{chromium.home(page)}/p/{prompt['id']}" == program.origin + address
    assert "Which colour?" in shown
    assert left == 0
    visit.browsing.close()


def test_a_notification_touched_after_the_answer_leads_to_no_longer_waiting(browser: Browser, program: Program) -> None:
    visit = Visit(browser, program, permissions=["notifications"])
    page = visit.enter()
    name = make(program, "late", [{"say": QUESTION}], [phase(1)])
    count = "registration.getNotifications().then((list) => list.length)"
    end = time.monotonic() + 90
    while not (page.context.service_workers and page.context.service_workers[0].evaluate(count)):
        assert time.monotonic() < end
        page.wait_for_timeout(200)
    (prompt,) = json.loads(program.run("task", "show", name, "--json"))["prompts"]
    program.run("task", "answer", prompt["id"], "blue")
    page.context.service_workers[0].evaluate(TOUCH.replace("TITLE", '"late"'))
    page.wait_for_url(re.compile(prompt["id"]), timeout=90_000)

    assert "no longer waiting" in page.inner_text("main")
    visit.browsing.close()


def test_nobody_is_notified_unasked(visit: Visit) -> None:
    page = visit.enter()

    assert (page.get_attribute("#notify", "title"), page.is_enabled("#notify")) == ("Notify me", True)
    assert page.evaluate("navigator.serviceWorker.getRegistration('/static/').then((found) => found === undefined)")


def test_a_task_goes_on_from_any_checkpoint_and_shows_what_checks_said(visit: Visit) -> None:
    name = make(
        visit.program, "again",
        [{"write": ["a.txt", "one"]}, phase(1)], [{"write": ["a.txt", "two"]}, phase(1)], [phase(1)],
        verify="echo the check says; cat a.txt; grep -q two a.txt",
    )  # fmt: skip
    page = visit.enter()
    page.wait_for_selector("#inbox >> button:has-text('Approve')", timeout=150_000)
    page.goto(f"{chromium.home(page)}/t/{name}")
    shown = page.inner_text("main")
    points = page.locator("#points button")
    count = points.count()
    points.last.click()
    page.wait_for_selector("#log >> text=checkpoint restored", timeout=90_000)

    assert "the check says" in shown
    assert count >= 2
    assert visit.complaints == []


def test_what_is_gone_to_by_the_keyboard_is_kept_when_the_page_changes(visit: Visit) -> None:
    go = visit.program.home / "go"
    name = make(visit.program, "slow", [{"wait_for": str(go)}, phase(1)])
    page = visit.enter()
    page.goto(f"{chromium.home(page)}/t/{name}")
    page.wait_for_selector("#head >> button[value=cancel]", timeout=90_000)
    page.wait_for_selector("body[data-connected=yes]")
    page.focus("#head >> button[value=cancel]")
    page.evaluate("document.querySelector('#head button[value=cancel]').dataset.old = 'yes'")
    go.touch()
    page.wait_for_selector("#head >> .badge:has-text('review')", timeout=90_000)

    focused = page.evaluate("[document.activeElement.value, document.activeElement.dataset.old || '']")
    assert focused == ["cancel", ""]


def test_answer_approve_pause_and_resume_by_the_keyboard_alone(visit: Visit) -> None:
    go = visit.program.home / "go"
    name = make(visit.program, "keys", [{"say": QUESTION}], [phase(1)], [{"wait_for": str(go)}], [phase(2)], phases=2)
    page = visit.enter()
    page.wait_for_selector("#inbox >> button:has-text('blue')", timeout=90_000)
    chromium.press(page, "blue")
    page.wait_for_selector("#inbox >> button:has-text('Approve')", timeout=90_000)
    chromium.press(page, "Approve")
    page.goto(f"{chromium.home(page)}/t/{name}")
    page.wait_for_selector("button:has-text('pause')", timeout=90_000)
    chromium.press(page, "Pause")
    page.wait_for_selector("#head >> .badge:has-text('paused')", timeout=150_000)
    chromium.press(page, "Resume")

    page.wait_for_selector("#head >> .badge:has-text('in progress')", timeout=90_000)
    go.touch()  # the agent outlives the server otherwise
    assert visit.complaints == []


@pytest.mark.parametrize("name", ["desktop-light", "phone-dark"])
def test_no_page_of_a_task_has_a_serious_barrier(browser: Browser, program: Program, name: str) -> None:
    try:
        rules = chromium.axe()
    except NoPackage as why:
        pytest.skip(f"NO ACCESSIBILITY TEST: {why}")
    asking = make(program, "asking", [{"say": QUESTION}], [phase(1)])
    waiting = make(program, "waiting", [{"write": ["page.html", "<p>"]}, phase(1)])
    visit = Visit(browser, program, **chromium.LOOKS[name], bypass_csp=True)
    page = visit.enter()
    page.wait_for_selector("#inbox >> button:has-text('blue')", timeout=90_000)
    page.wait_for_selector("#inbox >> button:has-text('Approve')", timeout=90_000)
    prompts = [
        one["id"]
        for name in (asking, waiting)
        for one in json.loads(program.run("task", "show", name, "--json"))["prompts"]
    ]
    addresses = (
        "/",
        "/tasks/new",
        f"/t/{asking}",
        f"/t/{waiting}",
        f"/t/{waiting}/review",
        *[f"/p/{id}" for id in prompts],
    )

    assert len(prompts) == 2
    assert chromium.barriers(page, addresses, rules) == []
    for address in addresses if name.startswith("phone") else ():
        page.goto(chromium.home(page) + address)
        assert chromium.cramped(page) == [], address
    visit.browsing.close()
