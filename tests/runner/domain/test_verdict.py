"""What follows from how a run ended."""

from __future__ import annotations

import pytest

from keepfast.runner.domain.limits import LimitHit
from keepfast.runner.domain.protocol import Block, Malformed
from keepfast.runner.domain.verdict import Gate, Seen, counts_as_window, gate, judge, waits_by_clock

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
        (Seen(0, blocks=(PHASE,)), "phase"),
        (Seen(0, blocks=(TASK,)), "complete"),
        (Seen(0, blocks=(OTHER,)), "idle"),
        (Seen(0, blocks=(ASK,)), "asked"),
        (Seen(0, blocks=(NEED, ASK)), "needs"),
        (Seen(0, blocks=(PHASE, ASK)), "phase"),
        (Seen(0, blocks=(FATAL, PHASE)), "failed"),
        (Seen(0, blocks=(GIVE_UP,)), "failed"),
        (Seen(0, blocks=(RECOVERABLE, PHASE)), "retry"),
        (Seen(1, limit=LIMIT, failed=True), "limited"),
        (Seen(1, blocks=(PHASE,), limit=LIMIT, failed=True), "limited"),
        (Seen(1, error="authentication_failed", error_text="Invalid API key", failed=True), "failed"),
        (Seen(1, error="authentication_failed", limit=LIMIT, failed=True), "failed"),
        (Seen(0, wanted="pause"), "paused"),
        (Seen(143, wanted="pause", failed=True), "paused"),
        (Seen(None, wanted="pause"), "paused"),
        (Seen(0, wanted="cancel", blocks=(PHASE,)), "cancelled"),
        (Seen(0, wanted="budget"), "budget"),
        (Seen(0, is_used_up=True), "budget"),
        (Seen(0, blocks=(OTHER,), is_used_up=True), "budget"),
        (Seen(0, blocks=(Malformed("ERROR", "odd"),), is_used_up=True), "budget"),
        (Seen(0, blocks=(PHASE,), is_used_up=True), "phase"),
        (Seen(0, blocks=(ASK,), is_used_up=True), "asked"),
        (Seen(1, is_used_up=True), "crashed"),
        (Seen(0, wanted="stuck"), "retry"),
        (Seen(1), "crashed"),
        (Seen(-9), "crashed"),
        (Seen(None), "crashed"),
        (Seen(143, blocks=(PHASE,)), "crashed"),
        (Seen(0), "idle"),
        (Seen(0, failed=True), "crashed"),
        (Seen(0, completes_on_exit=True), "complete"),
        (Seen(0, completes_on_exit=True, phases=2), "phase"),
        (Seen(1, completes_on_exit=True), "crashed"),
        (Seen(0, denials=("Bash",)), "denied"),
        (Seen(0, blocks=(Malformed("ERROR", "odd"),)), "idle"),
        (Seen(None, never_started="There is no program `x`."), "failed"),
    ],
)
def test_judgement(seen: Seen, kind: str) -> None:
    assert judge(seen).kind == kind


def test_reasons_are_sentences_for_people() -> None:
    assert "Log in again" in judge(Seen(1, error="authentication_failed")).reason
    assert judge(Seen(-9)).reason == "the agent was ended by signal 9"
    assert judge(Seen(3)).reason == "the agent ended with exit code 3"


def test_questions_are_kept_whatever_stopped_the_run() -> None:
    for seen in (Seen(1, limit=LIMIT, blocks=(ASK,)), Seen(0, wanted="pause", blocks=(ASK,)), Seen(1, blocks=(ASK,))):
        assert ASK in judge(seen).blocks


@pytest.mark.parametrize("beside", [(PHASE,), (TASK,), (ASK,), (NEED,), ()])
def test_what_was_not_understood_is_told_whatever_follows(beside: tuple[Block, ...]) -> None:
    odd = Malformed("DEPENDENCY_REQUEST", "odd")

    assert judge(Seen(0, blocks=(odd, *beside))).malformed == (odd,)


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
