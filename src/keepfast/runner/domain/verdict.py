"""What follows from a run that has ended: the next state of its task, decided from what was seen. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from keepfast.runner.domain.limits import OVERLOAD, SHORT, LimitHit
from keepfast.runner.domain.protocol import Block, Malformed, sort

# What a verdict says is to be done.
CANCELLED, FAILED, LIMITED, PAUSED, RETRY = "cancelled", "failed", "limited", "paused", "retry"
PHASE, COMPLETE, ASKED, NEEDS, IDLE, CRASHED, BUDGET = (
    "phase", "complete", "asked", "needs", "idle", "crashed", "budget",
)  # fmt: skip
DENIED, FULL = "denied", "full"
LINGERING = "lingering"
"""Why a run is ended whose agent has said its last word: what it said counts as if it had ended by itself."""

FATAL_ERRORS = {
    "authentication_failed": "The agent's account was refused. Log in again or give a valid key.",
    "oauth_org_not_allowed": "The agent's organisation does not allow this account.",
    "invalid_request": "The model refused the request as invalid.",
    "model_not_found": "The model that the task names does not exist.",
}


class Seen(NamedTuple):
    """Everything that counts about a run that has ended."""

    exit_code: int | None
    """None: the process was ended by a signal, or nobody knows."""
    wanted: str = ""
    """What was asked of it from outside: pause, cancel, budget, stuck, lingering, or nothing."""
    blocks: tuple[Block | Malformed, ...] = ()
    limit: LimitHit | None = None
    error: str = ""
    """The client's own word for what failed."""
    error_text: str = ""
    failed: bool = False
    """The client's last word was that the turn failed."""
    denials: tuple[str, ...] = ()
    phase: int = 1
    phases: int = 1
    completes_on_exit: bool = False
    never_started: str = ""
    is_used_up: bool = False
    """Its task's budget of tokens or money."""


class Verdict(NamedTuple):
    """What is to be done, why, and the blocks it concerns."""

    kind: str
    reason: str = ""
    blocks: tuple[Block, ...] = ()
    malformed: tuple[Malformed, ...] = ()
    """What the agent said beside them and could not be understood, whatever is to be done."""


def judge(seen: Seen) -> Verdict:
    """Decide; what a person wanted goes before what the agent said, and that before how its process ended."""
    found = sort(list(seen.blocks))
    malformed = tuple(one for one in found if isinstance(one, Malformed))
    decided = _decide(seen, [one for one in found if isinstance(one, Block)], malformed)
    if decided.kind == IDLE and seen.is_used_up:
        decided = Verdict(BUDGET, "budget")  # whatever it would be told, no run follows that could go on
    return decided._replace(malformed=malformed)


def _decide(seen: Seen, blocks: Sequence[Block], malformed: Sequence[Malformed]) -> Verdict:
    named = {name: tuple(block for block in blocks if block.name == name) for name in {block.name for block in blocks}}
    errors = named.get("ERROR", ())
    if seen.wanted == "cancel":
        return Verdict(CANCELLED, "cancelled by a person")
    if seen.never_started:
        return Verdict(FAILED, seen.never_started)
    if errors and (errors[0].fields["type"] == "fatal" or errors[0].fields["recovery"] == "checkpoint_and_fail"):
        return Verdict(FAILED, errors[0].fields["message"], errors)
    if seen.error in FATAL_ERRORS:
        said = f" It said: {seen.error_text}" if seen.error_text else ""
        return Verdict(FAILED, FATAL_ERRORS[seen.error] + said)
    if seen.error == "prompt_too_long":
        return Verdict(FULL, "the conversation no longer fits the model")
    completed = _completed(seen, named)
    questions, needs = named.get("USER_QUESTION", ()), named.get("DEPENDENCY_REQUEST", ())
    asks = (*needs, *questions)
    if seen.limit is not None:
        return Verdict(LIMITED, seen.limit.raw, (*errors, *asks))
    if seen.wanted == "pause":
        return Verdict(PAUSED, "paused by a person", asks)
    if seen.wanted in ("budget", "stuck"):
        return Verdict(BUDGET if seen.wanted == "budget" else RETRY, seen.wanted, asks)
    if errors:
        return Verdict(RETRY, errors[0].fields["message"], (*errors, *asks))
    if seen.failed or (seen.exit_code != 0 and seen.wanted != LINGERING):
        return Verdict(CRASHED, _ended(seen), asks)
    if completed is not None:
        return completed
    if needs:
        return Verdict(NEEDS, f"needs {', '.join([block.fields['name'] for block in needs])}", asks)
    if questions:
        return Verdict(ASKED, questions[0].fields["question"], questions)
    if seen.denials:
        return Verdict(DENIED, f"was not allowed to use {', '.join(sorted(set(seen.denials)))}")
    if malformed:
        return Verdict(IDLE, malformed[0].why)
    if seen.completes_on_exit:
        return Verdict(PHASE if seen.phases > 1 or seen.phase < seen.phases else COMPLETE, "the command ended")
    return Verdict(IDLE, "the agent ended its turn without saying that it is done")


def has_last_word(blocks: Iterable[Block | Malformed], phase: int) -> bool:
    """Did an agent that works on this phase say something after which it has to end its turn?"""
    said = [block for block in blocks if isinstance(block, Block)]
    return any(block.name != "PHASE_COMPLETE" or int(block.fields["phase"]) == phase for block in said)


def _completed(seen: Seen, named: dict[str, tuple[Block, ...]]) -> Verdict | None:
    if "CUSTOM_TASK_COMPLETE" in named:
        block = named["CUSTOM_TASK_COMPLETE"][0]
        return Verdict(COMPLETE, block.fields.get("summary", ""), (block,))
    for block in named.get("PHASE_COMPLETE", ()):
        # A marker of another phase is a quotation, or an agent that skips ahead; neither completes this one.
        if int(block.fields["phase"]) == seen.phase:
            return Verdict(PHASE, block.fields.get("summary", ""), (block,))
    return None


def _ended(seen: Seen) -> str:
    if seen.error_text:
        return seen.error_text
    if seen.exit_code is None:
        return "the agent's process ended without an exit code"
    if seen.exit_code < 0:
        return f"the agent was ended by signal {-seen.exit_code}"
    return f"the agent ended with exit code {seen.exit_code}"


def waits_by_clock(limit: LimitHit) -> bool:
    """Is the end of this limit known? Else it is waited for by back-off, or by a person."""
    return limit.resets_at is not None and limit.scope not in (OVERLOAD,)


def counts_as_window(limit: LimitHit) -> bool:
    """Only plan limits count against the number of windows that a task may wait through."""
    return limit.scope not in (OVERLOAD, SHORT)


class Gate(NamedTuple):
    """What follows a completed phase once its verification command has run."""

    action: str
    """review, rework, next or finish."""
    flagged: bool = False


def gate(passed: bool | None, reworks: int, review: bool, last: bool, most: int = 3) -> Gate:
    """`passed` is None without a verification command. After the last allowed rework a person decides, flagged."""
    if passed is False:
        return Gate("rework") if reworks < most else Gate("review", flagged=True)
    if review:
        return Gate("review")
    return Gate("finish" if last else "next")
