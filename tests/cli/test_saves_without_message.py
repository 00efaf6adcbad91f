"""Saves that nobody words say what they changed, and a resume goes on from them."""

from __future__ import annotations

import pytest

from tests.equipment.box import MINUTE, Box


def resumed(box: Box) -> tuple[str, str]:
    answer = box.call("resume", "--json").json()
    return answer["version"], answer["text"]


@pytest.fixture
def worked(box: Box) -> Box:
    """A first version, and one that somebody worded."""
    box.put("one.py", "a = 1\n")
    assert box.call("init").code == 0
    box.call("save", "--auto")
    box.now += MINUTE
    box.put("one.py", "a = 2\n")
    box.save("-m", "Half of the parser")
    box.now += MINUTE
    return box


def test_an_automatic_save_says_what_it_changed(worked: Box) -> None:
    worked.put("two.py", "b = 1\n")
    worked.call("save", "--auto")
    answer = worked.call("show", "--json").json()

    assert (answer["message"], answer["trigger"], answer["summary"]) == ("auto", "auto", "Changed: two.py")
    assert answer["active_files"] == ["two.py"]


def test_a_resume_goes_on_from_it_behind_the_task_before(worked: Box) -> None:
    worked.put("two.py", "b = 1\n")
    worked.call("save", "--auto")
    version, text = resumed(worked)

    assert version == "v3"
    assert "## Current Task\nHalf of the parser — Changed: two.py\n" in text
    assert "### two.py" in text


def test_without_a_task_before_it_what_changed_is_told(box: Box) -> None:
    box.put("one.py", "a = 1\n")
    box.call("init")
    box.call("save", "--auto")
    box.put("one.py", "a = 2\n")
    box.call("save", "--auto")

    assert resumed(box)[0] == "v2"
    assert "## Current Task\nChanged: one.py\n" in resumed(box)[1]


def test_each_carries_on_the_files_of_the_one_before(worked: Box) -> None:
    for name in ("two.py", "three.py"):
        worked.put(name, "b = 1\n")
        worked.call("save", "--auto")

    assert worked.call("show", "--json").json()["active_files"] == ["three.py", "two.py"]


def test_one_that_somebody_worded_is_the_work(worked: Box) -> None:
    worked.put("two.py", "b = 1\n")
    worked.call("save", "--auto", "-m", "The tests pass")

    assert resumed(worked)[0] == "v3"
    assert "## Current Task\nThe tests pass\n" in resumed(worked)[1]


def test_the_state_that_a_history_begins_with_is_no_work(box: Box) -> None:
    box.put("one.py", "a = 1\n")
    box.call("init")
    box.call("save", "--auto")

    assert box.call("show", "--json").json()["summary"] == "First checkpoint: 1 file"
    assert "First checkpoint" not in resumed(box)[1]
