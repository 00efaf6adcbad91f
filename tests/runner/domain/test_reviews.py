"""Reviews: remarks become the prompt, somebody is reminded, and only what the settings allow passes by itself."""

from __future__ import annotations

import os

import pytest

from keepfast.app.inspect import compare
from keepfast.model.errors import Usage
from keepfast.runner.actions.checkpoints import phase_base
from keepfast.runner.domain.records import Task
from keepfast.runner.domain.reviews import HOUR, LateReview, Remark, late, rejected, remark
from keepfast.store.maintenance.space import forget
from tests.runner.place import PHASE, Place, say_phase

REVIEWED = [{**PHASE, "review": True}]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("a.py", ("a.py", 0)), ("a.py:12", ("a.py", 12)), ("b/c.py:x", ("b/c.py:x", 0)), ("a:1:2", ("a:1", 2)),
    ],
)  # fmt: skip
def test_where_a_remark_is_made(where: str, found: tuple[str, int]) -> None:
    assert remark(where, " no ") == Remark(*found, "no")


@pytest.mark.parametrize(("where", "text"), [("", "x"), ("a.py", " "), (":3", "x"), ("a\nb", "x")])
def test_a_remark_without_place_or_words_is_refused(where: str, text: str) -> None:
    with pytest.raises(Usage):
        remark(where, text)


def test_remarks_are_told_by_file_and_line_after_what_is_said_of_all() -> None:
    text = rejected("Nearly.", [Remark("b", 9, "x"), Remark("a", 12, "y"), Remark("a", 2, "z")])

    assert "Nearly.\n\n- a, line 2: z\n- a, line 12: y\n- b, line 9: x\n" in text


def test_a_line_that_was_removed_is_named_so_and_long_remarks_stay_in_their_place() -> None:
    text = rejected("", [Remark("a", 12, "one\ntwo"), Remark("a", -12, "why?"), Remark("a", 0, "all")])

    assert "\n- a: all\n- a, removed line 12: why?\n- a, line 12: one\n  two\n" in text


def test_a_review_that_is_too_long_is_refused_and_not_cut(place: Place) -> None:
    task = place.task([say_phase(1)], phases=REVIEWED)
    place.supervise()

    with pytest.raises(Usage, match="limit 100,000"):
        place.tasks.answers.reject(task.id, "x" * 100_001)

    assert place.state(task) == ("review", "approval")
    assert [prompt["status"] for prompt in place.tasks.views.inbox()] == ["pending"]


def test_what_was_asked_for_by_line_is_told_to_the_agent_and_kept_in_the_log(place: Place) -> None:
    task = place.task([say_phase(1)], [say_phase(1)], phases=REVIEWED)
    place.supervise()

    place.tasks.answers.reject(
        task.id, "Nearly.", [Remark("a.py", 3, "shorter"), Remark("a.py", -7, "keep it")], by="ann"
    )
    place.supervise()

    assert "Nearly.\n\n- a.py, line 3: shorter\n- a.py, removed line 7: keep it\n" in place.told()[1]
    [event] = [one for one in place.tasks.views.log(task.id) if one["type"] == "changes_requested"]
    assert (event["comments"], event["by"], event["phase"]) == ("Nearly.", "ann", 1)
    assert event["remarks"] == [
        {"path": "a.py", "line": 3, "text": "shorter"}, {"path": "a.py", "line": -7, "text": "keep it"},
    ]  # fmt: skip


def test_comments_are_kept_while_a_review_waits_and_sent_along_with_the_changes(place: Place) -> None:
    task = place.task([say_phase(1)], [say_phase(1)], phases=REVIEWED)
    place.supervise()

    place.tasks.answers.comment(task.id, "Too long.", by="ann")
    place.tasks.answers.comment(task.id, "", [Remark("a.py", 3, "shorter")], by="bob")

    assert place.state(task) == ("review", "approval")
    [waiting] = place.tasks.views.inbox()
    assert [(one["by"], one["comments"], len(one["remarks"])) for one in waiting["comments"]] == [
        ("ann", "Too long.", 0), ("bob", "", 1),
    ]  # fmt: skip
    place.tasks.answers.reject(task.id, "")
    place.supervise()
    assert "Too long.\n\n- a.py, line 3: shorter\n" in place.told()[1]
    assert place.tasks.views.inbox()[0]["comments"] == []  # the next review of the phase begins afresh


def test_an_empty_comment_and_one_too_many_are_refused(place: Place) -> None:
    task = place.task([say_phase(1)], phases=REVIEWED)
    place.supervise()
    place.tasks.answers.comment(task.id, "x" * 60_000)

    with pytest.raises(Usage, match="comment is empty"):
        place.tasks.answers.comment(task.id, " ")
    with pytest.raises(Usage, match="limit 100,000"):
        place.tasks.answers.comment(task.id, "x" * 60_000)

    assert len(place.tasks.views.inbox()[0]["comments"]) == 1


@pytest.mark.parametrize(
    ("hours", "reminded", "flagged", "after", "found"),
    [
        (23, 0, False, 0, None), (24, 0, False, 0, LateReview(1, False, False)), (30, 1, False, 0, None),
        (49, 1, False, 0, LateReview(2, False, False)), (80, 0, False, 0, LateReview(3, True, False)), (9999, 3, False, 0, None),
        (168, 3, False, 168, LateReview(3, False, True)), (168, 3, True, 168, None), (167, 3, False, 168, None),
    ],
)  # fmt: skip
def test_what_is_due_of_a_review(
    hours: int, reminded: int, flagged: bool, after: int, found: LateReview | None
) -> None:
    assert late(hours * HOUR, reminded, flagged, after * HOUR) == found


def notices(place: Place, task: Task) -> list[str]:
    rows = place.runtime.tables.all("SELECT kind FROM notice WHERE task = ? ORDER BY at, id", task.id)
    return [row["kind"] for row in rows if row["kind"] in ("reminder", "escalation")]


def test_somebody_is_reminded_of_a_review_until_it_is_overdue(place: Place) -> None:
    task = place.task([say_phase(1)], phases=REVIEWED)
    place.supervise()
    for hours in (25, 26, 49, 73, 400):
        place.ahead = hours * HOUR
        place.supervise()

    assert notices(place, task) == ["reminder", "reminder", "escalation"]
    assert place.state(task) == ("review", "approval"), "without a policy it waits for ever"


def test_a_policy_approves_what_nobody_answers_and_nothing_that_changed(place: Place) -> None:
    place.__init__(place.base, place.options.but(auto_approve_after=168 * 3600))  # type: ignore[misc]
    task = place.task([{"write": ["a", "1"]}, say_phase(1)], phases=REVIEWED)
    place.supervise()
    (place.workspace() / "a").write_text("somebody else")
    place.ahead = 200 * HOUR

    place.supervise()
    assert place.state(task) == ("review", "approval"), "it is not what was to be reviewed"
    (place.workspace() / "a").write_text("1")
    place.supervise()

    assert place.state(task) == ("done", "")
    assert place.tasks.views.show(task.id)["prompts"][0]["answered_by"] == "policy"


TWO = [{**PHASE, "name": "A", "review": True}, {**PHASE, "name": "B", "review": True}]
ASKS = {"say": "[USER_QUESTION]\ncategory: choice\nquestion: Which?\nrequired: true\n[/USER_QUESTION]"}


def in_this_phase(place: Place, task: Task) -> list[str]:
    """The files that a review of the task's phase shows."""
    with place.runtime.engine() as engine:
        root, row = engine.workspaces.root(os.fsencode(task.workspace))
        base = phase_base(place.runtime, engine.repository(), place.runtime.tables.task(task.id))
        assert base is not None
        paths = [os.fsdecode(change.path) for change in compare(engine, root, row, base.row, None)]
        return [path for path in paths if path.endswith(".txt")]


def forget_versions(place: Place, task: Task, reason: str) -> None:
    rows = place.runtime.tables.all("SELECT version FROM checkpoint WHERE task = ? AND reason = ?", task.id, reason)
    with place.runtime.engine() as engine:
        row = engine.workspaces.root(os.fsencode(task.workspace))[1]
        forget(engine.repository(), row.id, [row["version"] for row in rows], "asked", engine.place.path)


def ask_in_the_second_phase(place: Place) -> Task:
    """A task whose second phase waits for its review; the agent asked in the middle of it."""
    task = place.task(
        [{"write": ["p1.txt", "1"]}, say_phase(1)],
        [{"write": ["p2a.txt", "2"]}, ASKS],
        [{"write": ["p2b.txt", "2"]}, say_phase(2)],
        [{"write": ["p2c.txt", "2"]}, say_phase(2)],
        phases=TWO,
    )
    place.supervise()
    place.tasks.answers.approve(task.id)
    place.supervise()
    place.tasks.answers.answer(task.id, "this one")
    place.supervise()
    assert place.state(task) == ("review", "approval")
    return task


def test_a_review_shows_all_that_its_phase_changed_whatever_was_saved_in_between(place: Place) -> None:
    task = ask_in_the_second_phase(place)

    assert in_this_phase(place, task) == ["p2a.txt", "p2b.txt"]


def test_a_phase_that_is_done_again_is_reviewed_as_a_whole(place: Place) -> None:
    task = ask_in_the_second_phase(place)
    place.tasks.answers.reject(task.id, "More.")
    place.supervise()

    assert in_this_phase(place, task) == ["p2a.txt", "p2b.txt", "p2c.txt"]


def test_the_review_of_the_first_phase_begins_with_the_start_of_the_task(place: Place) -> None:
    (place.workspace() / "before.txt").write_text("there before\n")
    task = place.task([{"write": ["a.txt", "1"]}, ASKS], [{"write": ["b.txt", "1"]}, say_phase(1)], phases=REVIEWED)
    place.supervise()
    place.tasks.answers.answer(task.id, "this one")
    place.supervise()

    assert in_this_phase(place, task) == ["a.txt", "b.txt"]


@pytest.mark.parametrize(
    ("forgotten", "shown"),
    [
        (("question",), ["p2a.txt", "p2b.txt"]),
        (("phase_complete",), ["p1.txt", "p2a.txt", "p2b.txt"]),
        (("start", "phase_complete", "question"), ["p0.txt", "p1.txt", "p2a.txt", "p2b.txt"]),
    ],
)
def test_a_review_whose_base_is_gone_shows_more_and_never_less(
    place: Place, forgotten: tuple[str, ...], shown: list[str]
) -> None:
    (place.workspace() / "p0.txt").write_text("there before\n")
    task = ask_in_the_second_phase(place)
    for reason in forgotten:
        forget_versions(place, task, reason)

    assert in_this_phase(place, task) == shown


def test_a_review_after_a_restore_begins_with_the_phase_that_led_there(place: Place) -> None:
    """The first phase is done again: what was complete before is not its base."""
    task = ask_in_the_second_phase(place)
    [first] = place.runtime.tables.all(
        "SELECT id FROM checkpoint WHERE task = ? AND reason = 'phase_complete' AND phase = 1", task.id
    )
    place.tasks.restore(task.id, first["id"])

    assert in_this_phase(place, task) == ["p1.txt"]
