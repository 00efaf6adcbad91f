"""Every sentence of the page has its Korean."""

from __future__ import annotations

import re
from importlib.resources import files

from holdfast.frontends.web.korean import KOREAN

TEMPLATES = files("holdfast.frontends.web") / "templates"
SENTENCE = re.compile(r"""_\((?:"([^"]+)"|'([^']+)')\)""")


def test_every_sentence_of_the_templates_is_translated() -> None:
    used = {
        one or other
        for template in TEMPLATES.iterdir()
        for one, other in SENTENCE.findall(template.read_text(encoding="utf-8"))
    }

    assert len(used) > 150
    assert sorted(used - KOREAN.keys()) == []


def test_what_a_task_can_be_is_translated() -> None:
    from holdfast.supervisor import task

    states = [
        task.status(task.State(state, hold))
        for state in (task.DRAFT, task.QUEUED, task.ACTIVE, task.REVIEW, task.DONE, task.FAILED, task.CANCELLED)
        for hold in ("", task.QUESTION, task.SECRET, task.APPROVAL, task.RATE_LIMIT, task.USER_PAUSE)
    ]

    assert {state.replace("_", " ") for state in states} - KOREAN.keys() == set()
