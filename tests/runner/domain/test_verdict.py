"""What follows from how a run ended."""

from __future__ import annotations

import pytest

from keepfast.runner.domain.limits import LimitHit
from keepfast.runner.domain.protocol import Block, Malformed
from keepfast.runner.domain.verdict import Gate, Observations, counts_as_window, gate, judge, waits_by_clock

PHASE = Block("PHASE_COMPLETE", {"phase": "1"}, {}, [])
OTHER = Block("PHASE_COMPLETE", {"phase": "2"}, {}, [])
TASK = Block("CUSTOM_TASK_COMPLETE", {"summary": "all"}, {}, [])
ASK = Block("USER_QUESTION", {"question": "Why?", "required": "true"}, {}, [])
NEED = Block("DEPENDENCY_REQUEST", {"name": "KEY", "type": "api_key", "required": "true"}, {}, [])
FATAL = Block("ERROR", {"type": "fatal", "message": "no", "recovery": "notify_user"}, {}, [])
RECOVERABLE = Block("ERROR", {"type": "recoverable", "message": "hm", "recovery": "pause_and_retry"}, {}, [])
GIVE_UP = Block("ERROR", {"type": "recoverable", "message": "hm", "recovery": "checkpoint_and_fail"}, {}, [])
LIMIT = LimitHit("session", 1.0, "event", "five_hour")


@pytest.mark.parametrize(
    ("seen", "kind"),
    [
        (Observations(0, blocks=(PHASE,)), "phase"),
        (Observations(0, blocks=(TASK,)), "complete"),
        (Observations(0, blocks=(OTHER,)), "idle"),
        (Observations(0, blocks=(ASK,)), "asked"),
        (Observations(0, blocks=(NEED, ASK)), "needs"),
        (Observations(0, blocks=(PHASE, ASK)), "phase"),
        (Observations(0, blocks=(FATAL, PHASE)), "failed"),
        (Observations(0, blocks=(GIVE_UP,)), "failed"),
        (Observations(0, blocks=(RECOVERABLE, PHASE)), "retry"),
        (Observations(1, limit=LIMIT, failed=True), "limited"),
        (Observations(1, blocks=(PHASE,), limit=LIMIT, failed=True), "limited"),
        (Observations(1, error="authentication_failed", error_text="Invalid API key", failed=True), "failed"),
        (Observations(1, error="authentication_failed", limit=LIMIT, failed=True), "failed"),
        (Observations(0, stop_reason="pause"), "paused"),
        (Observations(143, stop_reason="pause", failed=True), "paused"),
        (Observations(None, stop_reason="pause"), "paused"),
        (Observations(0, stop_reason="cancel", blocks=(PHASE,)), "cancelled"),
        (Observations(0, stop_reason="budget"), "budget"),
        (Observations(0, is_used_up=True), "budget"),
        (Observations(0, blocks=(OTHER,), is_used_up=True), "budget"),
        (Observations(0, blocks=(Malformed("ERROR", "odd"),), is_used_up=True), "budget"),
        (Observations(0, blocks=(PHASE,), is_used_up=True), "phase"),
        (Observations(0, blocks=(ASK,), is_used_up=True), "asked"),
        (Observations(1, is_used_up=True), "crashed"),
        (Observations(0, stop_reason="stuck"), "retry"),
        (Observations(1), "crashed"),
        (Observations(-9), "crashed"),
        (Observations(None), "crashed"),
        (Observations(143, blocks=(PHASE,)), "crashed"),
        (Observations(0), "idle"),
        (Observations(0, failed=True), "crashed"),
        (Observations(0, completes_on_exit=True), "complete"),
        (Observations(0, completes_on_exit=True, phases=2), "phase"),
        (Observations(1, completes_on_exit=True), "crashed"),
        (Observations(0, denials=("Bash",)), "denied"),
        (Observations(0, blocks=(Malformed("ERROR", "odd"),)), "idle"),
        (Observations(None, never_started="There is no program `x`."), "failed"),
    ],
)
def test_judgement(seen: Observations, kind: str) -> None:
    assert judge(seen).kind == kind


def test_reasons_are_sentences_for_people() -> None:
    assert "Log in again" in judge(Observations(1, error="authentication_failed")).reason
    assert judge(Observations(-9)).reason == "the agent was killed by signal 9"
    assert judge(Observations(3)).reason == "the agent exited with code 3"


def test_questions_are_kept_whatever_stopped_the_run() -> None:
    for seen in (
        Observations(1, limit=LIMIT, blocks=(ASK,)),
        Observations(0, stop_reason="pause", blocks=(ASK,)),
        Observations(1, blocks=(ASK,)),
    ):
        assert ASK in judge(seen).blocks


@pytest.mark.parametrize("beside", [(PHASE,), (TASK,), (ASK,), (NEED,), ()])
def test_what_was_not_understood_is_told_whatever_follows(beside: tuple[Block, ...]) -> None:
    odd = Malformed("DEPENDENCY_REQUEST", "odd")

    assert judge(Observations(0, blocks=(odd, *beside))).malformed == (odd,)


@pytest.mark.parametrize(
    ("passed", "reworks", "review", "last", "expected"),
    [
        (True, 0, True, False, Gate("review")), (None, 0, True, True, Gate("review")), (True, 0, False, False, Gate("next")),
        (None, 0, False, True, Gate("finish")), (False, 0, True, False, Gate("rework")), (False, 2, False, True, Gate("rework")),
        (False, 3, False, True, Gate("review", True)), (True, 3, False, True, Gate("finish")),
    ],
)  # fmt: skip
def test_phase_gates(passed: bool | None, reworks: int, review: bool, last: bool, expected: Gate) -> None:
    assert gate(passed, reworks, review, last) == expected


def test_which_limits_have_a_clock_and_which_count_as_windows() -> None:
    assert waits_by_clock(LIMIT)
    assert not waits_by_clock(LimitHit("minute", None, "text", ""))
    assert counts_as_window(LIMIT)
    assert not counts_as_window(LimitHit("overload", None, "text", ""))


def test_a_marker_of_another_phase_is_named() -> None:
    found = judge(Observations(0, blocks=(OTHER,), phases=2))

    assert found.reason == "the agent said that phase 2 is complete, but it works on phase 1"
