"""Many calls, one after another and at once, over a real process's streams: none fails, nothing is lost."""

from __future__ import annotations

import asyncio
from itertools import cycle

import pytest

from tests.equipment.box import Box

from .agent import Agent, outside

CALLS = [
    ("checkpoint_list", {}),
    ("recall", {"what": "hello"}),
    ("checkpoint_show", {"reference": "v2"}),
    ("recall", {"what": "src/a.py"}),
    ("checkpoint_diff", {"old": "v1"}),
    ("checkpoint_configure", {}),
    ("checkpoint_search", {"text": "second"}),
    ("checkpoint_restore_preview", {"reference": "v1"}),
]


@pytest.mark.parametrize(
    ("in_a_row", "at_once"),
    [(60, 16), pytest.param(1000, 50, marks=pytest.mark.campaign)],
)
def test_calls_in_a_row_and_at_once_all_succeed(
    saved_box: Box, in_a_row: int, at_once: int, request: pytest.FixtureRequest
) -> None:
    if in_a_row > 100 and not request.config.getoption("campaign"):
        pytest.skip("a campaign")

    async def scenario(agent: Agent) -> list[str]:
        failed = []
        for number, (tool, arguments) in zip(range(in_a_row), cycle(CALLS), strict=False):
            answer = await agent.call(tool, **arguments)
            failed += [f"{number} {tool}: {answer.text}"] if answer.failed else []
        saves = [agent.call("checkpoint_save", summary=f"parallel {number}") for number in range(at_once)]
        looks = [
            agent.call(tool, **arguments) for _, (tool, arguments) in zip(range(at_once), cycle(CALLS), strict=False)
        ]
        answers = await asyncio.gather(*saves, *looks)
        failed += [answer.text for answer in answers if answer.failed]
        versions = {answer["checkpoint"]["version"] for answer in answers[:at_once] if not answer.failed}
        assert len(versions) == at_once
        return failed

    assert outside(saved_box, scenario) == []

    messages = [row["message"] for row in saved_box.call("list", "--json").json()]
    assert sorted(messages[:at_once]) == sorted([f"parallel {number}" for number in range(at_once)])
    assert saved_box.call("verify").code == 0
