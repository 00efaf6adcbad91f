"""The token budget in the real client: told in the next request, once, and saved when it is told."""

from __future__ import annotations

import json

import pytest

from .bench import Bench
from .client import OLDER
from .endpoint import Reply, call, say, use

both = pytest.mark.parametrize("client", ["newest_client", "older_client"], indirect=True)
BUDGET = 1000


def budget(bench: Bench, **settings: object) -> None:
    """A budget of our own, so that no table of models decides here."""
    path = bench.home / ".config/keepfast/config.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"budget": {"tokens": BUDGET}, **settings}))


def at(percent: float, command: str) -> Reply:
    """A tool call, by a model that says how full it is."""
    used = {"input_tokens": 10, "cache_read_input_tokens": int(BUDGET * percent / 100) - 10, "output_tokens": 1}
    return call(use("Bash", command=command, description="step"), usage=used)


@both
def test_80_and_90_percent_are_told_in_the_next_request_once_and_saved(hooked: Bench) -> None:
    budget(hooked)
    levels = [20, 82, 82, 83, 84, 91, 91, 92, 93, 93]
    hooked.script(*[at(level, f"echo {step} >> steps") for step, level in enumerate(levels)], say("Finished."))

    turn = hooked.run("many steps")

    assert turn.code == 0
    made = {one["trigger"]: one for one in hooked.settle()}
    assert "auto_80" in made and "auto_90" in made and "auto_70" not in made
    requests = [request.texts() for request in hooked.endpoint.main_requests()]
    assert len(requests) == len(levels) + 1
    assert "Checkpoint created (tokens 8" in requests[-1] and "Tokens at 9" in requests[-1]
    assert made["auto_80"]["id"] in requests[-1] and made["auto_90"]["id"] in requests[-1]
    # Once each: later requests repeat the history, so what is counted is the last of them.
    assert requests[-1].count("Checkpoint created (tokens") == 1
    assert requests[-1].count("⚠️ Tokens at") == 1
    # With the result of the call at which it was crossed, or soon after: the client writes its transcript behind, by one
    # request as a rule and by more on a busy machine. In any case before the next level is crossed.
    first = next(number for number, text in enumerate(requests) if "Checkpoint created (tokens" in text)
    assert 2 <= first <= 6
    if hooked.client.version != OLDER:  # whose stream does not carry what users are shown
        assert any("Checkpoint created (tokens" in json.dumps(event) for event in turn.events)


def test_70_percent_is_saved_quietly(hooked: Bench) -> None:
    budget(hooked)
    hooked.script(*[at(72, f"echo {step} >> steps") for step in range(4)], say("Finished."))

    hooked.run("some steps")

    assert [one["trigger"] for one in hooked.settle()].count("auto_70") == 1
    assert "Checkpoint created" not in hooked.endpoint.main_requests()[-1].raw


def test_korean(hooked: Bench) -> None:
    budget(hooked)
    hooked.variables["LANG"] = "ko_KR.UTF-8"
    hooked.script(*[at(82, f"echo {step} >> steps") for step in range(3)], say("끝."))

    hooked.run("시작")

    assert "체크포인트 생성됨 (토큰 82%)" in hooked.endpoint.main_requests()[-1].texts()


def test_the_models_own_window_counts_where_no_budget_is_set(hooked: Bench) -> None:
    """1,000,000 tokens, of which the client compacts at 967,000."""
    full = {"input_tokens": 10, "cache_read_input_tokens": 800_000, "output_tokens": 1}
    steps = [call(use("Bash", command=f"echo {step} >> steps", description="s"), usage=full) for step in range(3)]
    hooked.script(*steps, say("Finished."))

    hooked.run("go", "--model", "claude-opus-5-5")

    (made,) = [one for one in hooked.settle() if one["trigger"] == "auto_80"]
    assert "800,0" in hooked.endpoint.main_requests()[-1].texts()
    assert made["id"] in hooked.endpoint.main_requests()[-1].texts()
