"""The state machine, whole: every state with every action."""

from __future__ import annotations

import pytest

from keepfast.runner.domain import task
from keepfast.runner.domain.task import ACTIONS, HOLDS, STATES, TERMINAL, NotAllowed, State, move, progress, status

AFTER = {
    ("draft", "submit"): "queued", ("draft", "cancel"): "cancelled",
    ("queued", "start"): "active", ("queued", "hold"): "queued", ("queued", "lift"): "queued", ("queued", "fail"): "failed",
    ("queued", "cancel"): "cancelled", ("queued", "restore"): "queued", ("queued", "rebuild"): "active",
    ("active", "hold"): "active", ("active", "lift"): "active", ("active", "phase_complete"): "review",
    ("active", "next_phase"): "active", ("active", "finish"): "done", ("active", "unsaved"): "active", ("active", "fail"): "failed",
    ("active", "cancel"): "cancelled", ("active", "restore"): "queued", ("active", "rebuild"): "active",
    ("review", "hold"): "review", ("review", "lift"): "review", ("review", "next_phase"): "active",
    ("review", "approve"): "active", ("review", "reject"): "active", ("review", "finish"): "done",
    ("review", "unsaved"): "active", ("review", "fail"): "failed",
    ("review", "cancel"): "cancelled", ("review", "restore"): "queued", ("review", "rebuild"): "active",
    ("done", "follow_up"): "queued", ("done", "restore"): "queued",
    ("failed", "retry"): "queued", ("failed", "restore"): "queued",
    ("cancelled", "retry"): "queued", ("cancelled", "restore"): "queued",
}  # fmt: skip


@pytest.mark.parametrize("action", sorted(ACTIONS))
@pytest.mark.parametrize("state", STATES)
def test_every_state_allows_exactly_what_the_table_says(state: str, action: str) -> None:
    expected = AFTER.get((state, action))
    if expected is None:
        with pytest.raises(NotAllowed, match=state):
            move(State(state), action, "question")
        return

    assert move(State(state), action, "question").state == expected


@pytest.mark.parametrize("hold", HOLDS)
def test_a_hold_keeps_the_state_and_is_lifted_without_trace(hold: str) -> None:
    held = move(State("active"), "hold", hold)

    assert held == State("active", hold)
    assert move(held, "lift") == State("active")


def test_nothing_holds_a_task_that_has_ended() -> None:
    for action in ACTIONS:
        for state in TERMINAL:
            try:
                after = move(State(state), action, "budget")
            except NotAllowed:
                continue

            assert after == State("queued"), (state, action)


@pytest.mark.parametrize(
    ("state", "hold", "name"),
    [
        ("draft", "", "draft"), ("queued", "", "pending"), ("active", "", "in_progress"), ("review", "approval", "review"),
        ("done", "", "completed"), ("failed", "", "failed"), ("cancelled", "", "cancelled"),
        ("active", "user_pause", "paused"), ("active", "question", "waiting_question"),
        ("active", "secret", "waiting_dependency"), ("active", "approval", "waiting_review"),
        ("active", "rate_limit", "waiting_rate_limit"), ("active", "budget", "paused"), ("active", "backoff", "paused"),
        ("active", "crashed", "paused"), ("active", "host_lost", "paused"),
        ("active", "no_progress", "paused"), ("active", "unsaved", "paused"),
    ],
)  # fmt: skip
def test_states_have_the_names_of_the_source(state: str, hold: str, name: str) -> None:
    assert status(State(state, hold)) == name


@pytest.mark.parametrize(
    ("state", "hold", "run", "name"),
    [
        ("queued", "", "", "idle"), ("active", "", "live", "running"), ("active", "", "ended", "idle"),
        ("active", "user_pause", "ended", "paused"), ("review", "", "", "waiting_review"), ("done", "", "", "completed"),
        ("failed", "", "", "failed"), ("active", "rate_limit", "ended", "waiting_rate_limit"),
    ],
)  # fmt: skip
def test_agents_have_the_names_of_the_source(state: str, hold: str, run: str, name: str) -> None:
    assert task.agent_status(State(state, hold), run) == name


def test_progress_counts_finished_phases_and_never_passes_100() -> None:
    assert progress(0, 4, 0.0, "active") == 0
    assert progress(0, 4, 0.5, "active") == 12
    assert progress(1, 4, 0.0, "review") == 25
    assert progress(3, 4, 5.0, "active") == 99, "an agent that says so has not completed it"
    assert progress(1, 1, 0.0, "review") == progress(1, 2, 0.0, "done") == progress(0, 0, 0.0, "done") == 100
    assert progress(0, 0, 1.0, "active") == 99


def test_a_person_can_always_do_something_about_a_hold() -> None:
    for state, hold in [("review", "approval"), *[("active", hold) for hold in HOLDS]]:
        assert set(task.actions(State(state, hold))) - {"cancel"}, hold


@pytest.mark.parametrize("hold", ["rate_limit", "backoff"])
def test_a_task_that_waits_for_a_clock_can_be_paused(hold: str) -> None:
    assert task.actions(State("active", hold)) == ["try-now", "pause", "cancel"]
    assert task.actions(State("queued", hold)) == ["try-now", "pause", "cancel"]
