"""What waits for a person is on the first page, oldest first, each with what answers it; who may only look sees no buttons."""

from __future__ import annotations

import re

from holdfast.supervisor.ground import Ground
from web.scene import Scene, begin, submit
from web.served import Served


def needs_someone(ground: Ground, task: str) -> None:
    """A limit that no waiting ends."""
    with ground.tables.write():
        ground.tables.move(
            task,
            "hold",
            ground.now(),
            trigger="test",
            hold="rate_limit",
            human=1,
            why="3 limits were waited for already",
        )


def inbox(served: Served, session: str = "") -> str:
    headers = {"Authorization": f"Bearer {session or served.session}"}
    page = served.ask("GET", "/", headers=headers).body.decode()
    return page.partition('<div id="inbox"')[2].partition('<section aria-labelledby="tasks-title"')[0]


def test_everything_that_waits_is_there_oldest_first_with_what_answers_it(served: Served) -> None:
    scene = Scene(served)
    question = scene.prompt("question", options=["blue", "red"])
    limited = scene.task(submit, begin, needs_someone)
    secret, approval = scene.prompt("secret"), scene.prompt("approval")
    shown = inbox(served)

    places = [shown.index(f'id="prompt-{one}"') for one in (question, limited, secret, approval)]
    assert places == sorted(places)
    assert re.findall(r'<article class="card prompt (\w+)"', shown) == ["question", "hold", "secret", "approval"]
    assert '<button name="answer" value="blue"' in shown
    assert '<input name="value" type="password"' in shown
    assert 'name="kind" value="approve"' in shown
    assert '<button name="action" value="try-now"' in shown
    assert "3 limits were waited for already" in shown


def test_a_viewer_sees_what_waits_and_an_approver_may_answer_it(served: Served) -> None:
    scene = Scene(served)
    scene.prompt("question", options=["blue"])
    limited = scene.task(submit, begin, needs_someone)
    viewer, approver = (inbox(served, served.book.enter(role, "a test")) for role in ("viewer", "approver"))

    assert "Which?" in viewer and "<button" not in viewer
    assert '<button name="answer" value="blue"' in approver
    assert f'action="/t/{limited}/act"' not in approver


def test_no_page_offers_a_viewer_what_is_refused(served: Served) -> None:
    scene = Scene(served)
    scene.prompt("approval")
    task = scene.task(submit, begin)
    headers = {"Authorization": f"Bearer {served.book.enter('viewer', 'a test')}"}
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
