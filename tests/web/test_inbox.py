"""What waits for a person is on the first page, oldest first, each with what answers it; who may only look sees no buttons."""

from __future__ import annotations

import re

from keepfast.runner.actions.runtime import Runtime
from tests.web.scene import Scene, begin, submit, unsaved
from tests.web.served import Served
from tests.web.test_bad_input import post


def needs_someone(ground: Runtime, task: str) -> None:
    """A limit that no waiting ends."""
    with ground.tables.write():
        ground.tables.move(
            task,
            "hold",
            ground.now(),
            trigger="test",
            hold="rate_limit",
            human=1,
            why="usage limits already waited for: 3",
        )


def inbox(served: Served, session: str = "") -> str:
    headers = {"Authorization": f"Bearer {session or served.session}"}
    page = served.ask("GET", "/", headers=headers).body.decode()
    return page.partition('<div id="inbox"')[2].partition('<section aria-labelledby="tasks-title"')[0]


def test_everything_that_waits_is_there_oldest_first_with_what_answers_it(served: Served) -> None:
    scene = Scene(served)
    question = scene.prompt("question", options=["blue", "red"])
    limited = scene.task(submit, begin, needs_someone)
    secret, approval = scene.prompt("secret", category="env_variable"), scene.prompt("approval")
    shown = inbox(served)

    places = [shown.index(f'id="prompt-{one}"') for one in (question, limited, secret, approval)]
    assert places == sorted(places)
    assert re.findall(r'<article class="card prompt (\w+)"', shown) == ["question", "hold", "secret", "approval"]
    assert '<button name="answer" value="blue"' in shown
    assert '<input name="value" type="password"' in shown
    assert 'name="kind" value="approve"' in shown
    assert '<button name="action" value="try-now"' in shown
    assert "Usage limits already waited for: 3" in shown


def test_a_viewer_sees_what_waits_and_an_approver_may_answer_it(served: Served) -> None:
    scene = Scene(served)
    scene.prompt("question", options=["blue"])
    limited = scene.task(submit, begin, needs_someone)
    viewer, approver = (
        inbox(served, served.web_database.create_session(role, "a test")) for role in ("viewer", "approver")
    )

    assert "Which?" in viewer and "<button" not in viewer
    assert '<button name="answer" value="blue"' in approver
    assert f'action="/t/{limited}/act"' not in approver


def test_no_page_offers_a_viewer_what_is_refused(served: Served) -> None:
    scene = Scene(served)
    scene.prompt("approval")
    task = scene.task(submit, begin)
    headers = {"Authorization": f"Bearer {served.web_database.create_session('viewer', 'a test')}"}
    at = f"/w/{served.saver.workspace}"
    for path in (
        "/",
        at,
        f"{at}/v/v1",
        f"{at}/restore?reference=v1",
        f"{at}/v/v1/fork",
        f"{at}/v/v1/forget",
        f"/t/{task}",
    ):
        page = served.ask("GET", path, headers=headers)
        buttons = re.findall(r"<button[^>]*>", page.body.decode().partition("<main")[2].partition("</main>")[0])

        assert page.status == 200, path
        assert buttons == [], path


def test_a_checkpoint_under_the_slider_tells_its_figures(served: Served) -> None:
    """Trigger, time, files, size and what it cost to store; the session where there is one."""
    (served.root / "new.txt").write_text("newer\n")
    served.saver.save("turn", message="by an agent", session="11111111-2222-3333-4444-555555555555")
    shown = served.ask("GET", f"/w/{served.saver.workspace}/v/latest/peek").body.decode()
    facts = dict(re.findall(r"<dt>([^<]+)</dt><dd>(?:<code>)?([^<]+)", shown))

    assert '<span class="badge turn">' in shown and "<time datetime=" in shown
    assert facts["files"] == "2"
    assert {"size", "stored"} <= facts.keys()
    assert facts["session"] == "11111111-2222"


def test_a_task_whose_last_state_is_not_saved_can_be_saved_or_accepted_from_the_inbox(served: Served) -> None:
    task = Scene(served).task(submit, begin, unsaved)
    shown = inbox(served)

    assert "No room" in shown
    assert '<button name="action" value="resume"' in shown and '<button name="action" value="accept"' in shown
    assert served.ask("POST", f"/api/tasks/{task}/accept", {}).json()["data"]["status"] == "completed"
    assert f'id="prompt-{task}"' not in inbox(served)


def frozen(ground: Runtime, task: str) -> None:
    with ground.tables.write():
        ground.tables.change(task, ground.now(), wanted="freeze")


def test_a_frozen_task_is_thawed_from_its_page_and_from_the_inbox(served: Served) -> None:
    task = Scene(served).task(submit, begin, frozen)
    page = served.ask("GET", f"/t/{task}").body.decode()

    for shown in (inbox(served), page):
        assert '<button name="action" value="resume"' in shown
        assert 'value="freeze"' not in shown
    assert served.ask("POST", f"/api/tasks/{task}/resume", {}).json()["data"]["status"] == "in_progress"
    assert f'id="prompt-{task}"' not in inbox(served)


def test_a_choice_takes_words_of_ones_own_on_the_page_and_by_the_api(served: Served) -> None:
    scene = Scene(served)
    one, other, near = (scene.prompt("question", options=["blue", "red"]) for _ in range(3))
    form = inbox(served).partition(f'id="prompt-{one}"')[2].partition("</article>")[0]
    assert '<input name="answer" required' in form and 'name="exactly" value="yes"' in form

    typed = post(served, f"/p/{one}", answer="blues", exactly="yes")
    told = served.ask("POST", f"/api/questions/{other}/answer", {"answer": "something in between"})
    refused = served.ask("POST", f"/api/questions/{near}/answer", {"answer": "blu"})

    assert typed.status == 303
    assert told.status == 200 and told.json()["data"]["warning"]
    assert refused.status == 400
    assert served.ask("POST", f"/api/questions/{near}/answer", {"answer": "blu", "exactly": True}).status == 200


def used_up(ground: Runtime, task: str) -> None:
    with ground.tables.write():
        now = ground.now()
        ground.tables.change(task, now, tokens=1200, seconds=30.0, budget={"tokens": 1000, "money": 0, "seconds": 600})
        ground.tables.move(task, "hold", now, trigger="budget", hold="budget", human=1, why="The budget is used up.")


def test_a_budget_that_is_used_up_can_be_raised_where_it_is_told(served: Served) -> None:
    """What is used up is offered twice over; what is not stays as it is."""
    task = Scene(served).task(submit, begin, used_up)
    page = served.ask("GET", f"/t/{task}").body.decode()

    for shown in (inbox(served), page.partition('<div id="head"')[2].partition("</form>")[0]):
        assert f'action="/t/{task}/budget"' in shown
        assert re.search(r'name="tokens"[^>]* value="2400"', shown)
        assert re.search(r'name="minutes"[^>]* value=""', shown)
    form = f"_token={served.token()}&tokens=2400&money=&minutes=&back=/".encode()
    headers = {**served.browser(), "Content-Type": "application/x-www-form-urlencoded"}
    raised = served.ask("POST", served.at(f"/t/{task}/budget"), form, bare=True, headers=headers)

    assert (raised.status, raised.headers["location"]) == (303, served.at("/"))
    after = served.ask("GET", f"/api/tasks/{task}").json()["data"]
    assert after["hold"] is None
    assert after["budget"] == {"tokens": 2400, "money": 0, "seconds": 600}


def test_who_may_only_look_cannot_raise_a_budget(served: Served) -> None:
    task = Scene(served).task(submit, begin, used_up)
    headers = {"Authorization": f"Bearer {served.web_database.create_session('approver', 'a test')}"}

    assert "/budget" not in served.ask("GET", f"/t/{task}", headers=headers).body.decode()
    assert "/budget" not in inbox(served, served.web_database.create_session("approver", "a test"))
