"""The verdict on an ended run: what happens to its task, decided from everything that was observed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from keepfast.runner.domain.limits import OVERLOAD, SHORT, LimitHit
from keepfast.runner.domain.protocol import Block, Malformed, sort

# Kinds of verdicts.
CANCELLED, FAILED, LIMITED, PAUSED, RETRY = "cancelled", "failed", "limited", "paused", "retry"
PHASE, COMPLETE, ASKED, NEEDS, IDLE, CRASHED, BUDGET = (
    "phase", "complete", "asked", "needs", "idle", "crashed", "budget",
)  # fmt: skip
DENIED, FULL = "denied", "full"
LINGERING = "lingering"
"""Why the supervisor ends a run whose agent has finished but does not exit: it counts as if it had exited by itself."""

FATAL_ERRORS = {
    "authentication_failed": "Authentication failed. Log in again, or provide a valid key.",
    "oauth_org_not_allowed": "The agent's organisation does not allow this account.",
    "invalid_request": "The model rejected the request as invalid.",
    "model_not_found": "The model that the task names does not exist.",
}


class Observations(NamedTuple):
    """Everything about an ended run that its verdict depends on."""

    exit_code: int | None
    """None if the process was ended by a signal, or if it is unknown."""
    stop_reason: str = ""
    """Why the supervisor ended it: pause, cancel, budget, stuck, lingering; empty if it did not."""
    blocks: tuple[Block | Malformed, ...] = ()
    limit: LimitHit | None = None
    error: str = ""
    """The client's own code for what failed."""
    error_text: str = ""
    failed: bool = False
    """The last result that the client reported was a failure."""
    denials: tuple[str, ...] = ()
    phase: int = 1
    phases: int = 1
    completes_on_exit: bool = False
    never_started: str = ""
    is_used_up: bool = False
    """The task's budget of tokens or money is used up."""


class Verdict(NamedTuple):
    """What happens to the task, why, and the blocks that led to it."""

    kind: str
    reason: str = ""
    blocks: tuple[Block, ...] = ()
    malformed: tuple[Malformed, ...] = ()
    """Blocks that could not be parsed, whatever the kind of the verdict."""


def judge(seen: Observations) -> Verdict:
    """Decide: a person's request comes before what the agent said, and that before how its process ended."""
    statements = sort(list(seen.blocks))
    malformed = tuple(one for one in statements if isinstance(one, Malformed))
    blocks = [one for one in statements if isinstance(one, Block)]
    named = {name: tuple(one for one in blocks if one.name == name) for name in {one.name for one in blocks}}
    case = _Case(seen, named, malformed)
    decided = next(filter(None, (rule(case) for rule in _RULES)), Verdict(IDLE, NOT_DONE))
    if decided.kind == IDLE and seen.is_used_up:
        decided = Verdict(BUDGET, "budget")  # no further run could use a correction
    return decided._replace(malformed=malformed)


class _Case(NamedTuple):
    """The input of the rules."""

    seen: Observations
    named: Mapping[str, tuple[Block, ...]]
    """The agent's blocks that count, by name."""
    malformed: tuple[Malformed, ...]

    @property
    def errors(self) -> tuple[Block, ...]:
        return self.named.get("ERROR", ())

    @property
    def needs(self) -> tuple[Block, ...]:
        return self.named.get("DEPENDENCY_REQUEST", ())

    @property
    def questions(self) -> tuple[Block, ...]:
        return self.named.get("USER_QUESTION", ())

    @property
    def asks(self) -> tuple[Block, ...]:
        """Questions and needs: people are asked whatever the kind of the verdict."""
        return (*self.needs, *self.questions)


def _judge_cancelled(case: _Case) -> Verdict | None:
    return Verdict(CANCELLED, "cancelled by a person") if case.seen.stop_reason == "cancel" else None


def _judge_never_started(case: _Case) -> Verdict | None:
    return Verdict(FAILED, case.seen.never_started) if case.seen.never_started else None


def _judge_fatal(case: _Case) -> Verdict | None:
    """Return the verdict on an agent that reported an error after which it cannot continue; None otherwise."""
    for error in case.errors[:1]:
        if error.fields["type"] == "fatal" or error.fields["recovery"] == "checkpoint_and_fail":
            return Verdict(FAILED, error.fields["message"], case.errors)
    return None


def _judge_refused(case: _Case) -> Verdict | None:
    """Return the verdict if the client failed in a way that a retry does not fix; None otherwise."""
    if case.seen.error not in FATAL_ERRORS:
        return None
    client_text = f" Message: {case.seen.error_text}" if case.seen.error_text else ""
    return Verdict(FAILED, FATAL_ERRORS[case.seen.error] + client_text)


def _judge_full(case: _Case) -> Verdict | None:
    too_long = case.seen.error == "prompt_too_long"
    return Verdict(FULL, "the conversation no longer fits the model") if too_long else None


def _judge_limited(case: _Case) -> Verdict | None:
    limit = case.seen.limit
    return Verdict(LIMITED, limit.raw, (*case.errors, *case.asks)) if limit is not None else None


def _judge_stopped(case: _Case) -> Verdict | None:
    stop_reason = case.seen.stop_reason
    if stop_reason == "pause":
        return Verdict(PAUSED, "paused by a person", case.asks)
    return Verdict(_ENDED_FOR[stop_reason], stop_reason, case.asks) if stop_reason in _ENDED_FOR else None


def _judge_recoverable(case: _Case) -> Verdict | None:
    errors = case.errors
    return Verdict(RETRY, errors[0].fields["message"], (*errors, *case.asks)) if errors else None


def _judge_crashed(case: _Case) -> Verdict | None:
    seen = case.seen
    crashed = seen.failed or (seen.exit_code != 0 and seen.stop_reason != LINGERING)
    return Verdict(CRASHED, _describe_end(seen), case.asks) if crashed else None


def _judge_completed(case: _Case) -> Verdict | None:
    for block in case.named.get("CUSTOM_TASK_COMPLETE", ())[:1]:
        return Verdict(COMPLETE, block.fields.get("summary", ""), (block,))
    for block in case.named.get("PHASE_COMPLETE", ()):
        # A marker of another phase is a quotation, or an agent that skips ahead; neither completes this one.
        if int(block.fields["phase"]) == case.seen.phase:
            return Verdict(PHASE, block.fields.get("summary", ""), (block,))
    return None


def _judge_needs(case: _Case) -> Verdict | None:
    names = ", ".join([block.fields["name"] for block in case.needs])
    return Verdict(NEEDS, f"needs {names}", case.asks) if case.needs else None


def _judge_asked(case: _Case) -> Verdict | None:
    questions = case.questions
    return Verdict(ASKED, questions[0].fields["question"], questions) if questions else None


def _judge_denied(case: _Case) -> Verdict | None:
    tools = ", ".join(sorted(set(case.seen.denials)))
    return Verdict(DENIED, f"was not allowed to use {tools}") if tools else None


def _judge_other_phase(case: _Case) -> Verdict | None:
    for block in case.named.get("PHASE_COMPLETE", ()):
        named = int(block.fields["phase"])
        return Verdict(IDLE, f"the agent said that phase {named} is complete, but it works on phase {case.seen.phase}")
    return None


def _judge_unclear(case: _Case) -> Verdict | None:
    return Verdict(IDLE, case.malformed[0].why) if case.malformed else None


def _judge_exited(case: _Case) -> Verdict | None:
    """Return the verdict on a command without the protocol, which completes its phase by exiting; None otherwise."""
    seen = case.seen
    if not seen.completes_on_exit:
        return None
    return Verdict(PHASE if seen.phases > 1 or seen.phase < seen.phases else COMPLETE, "the command ended")


_ENDED_FOR = {"budget": BUDGET, "stuck": RETRY}
NOT_DONE = "the agent ended its turn without saying that it is done"
_RULES: tuple[Callable[[_Case], Verdict | None], ...] = (
    _judge_cancelled, _judge_never_started, _judge_fatal, _judge_refused, _judge_full, _judge_limited, _judge_stopped,
    _judge_recoverable, _judge_crashed, _judge_completed, _judge_needs, _judge_asked, _judge_denied, _judge_unclear,
    _judge_exited, _judge_other_phase,
)  # fmt: skip
"""The first rule that returns a verdict decides."""


def has_final_block(blocks: Iterable[Block | Malformed], phase: int) -> bool:
    """Return whether an agent that works on this phase sent a block after which it has to end its turn."""
    spoken = [block for block in blocks if isinstance(block, Block)]
    return any(block.name != "PHASE_COMPLETE" or int(block.fields["phase"]) == phase for block in spoken)


def _describe_end(seen: Observations) -> str:
    if seen.error_text:
        return seen.error_text
    if seen.exit_code is None:
        return "the agent's process ended without an exit code"
    if seen.exit_code < 0:
        return f"the agent was killed by signal {-seen.exit_code}"
    return f"the agent exited with code {seen.exit_code}"


def waits_by_clock(limit: LimitHit) -> bool:
    """Return whether the end of this limit is known; otherwise the task backs off, or waits for a person."""
    return limit.resets_at is not None and limit.scope not in (OVERLOAD,)


def counts_as_window(limit: LimitHit) -> bool:
    """Return whether a limit counts against the number of windows that a task may wait through: only plan limits do."""
    return limit.scope not in (OVERLOAD, SHORT)


class Gate(NamedTuple):
    """What follows a completed phase after its verification command has run."""

    action: str
    """review, rework, next or finish."""
    flagged: bool = False


def gate(passed: bool | None, reworks: int, review: bool, last: bool, most: int = 3) -> Gate:
    """Decide what follows a completed phase. `passed` is None without a verification command.

    After the last allowed rework a person decides: the review is flagged.
    """
    if passed is False:
        return Gate("rework") if reworks < most else Gate("review", flagged=True)
    if review:
        return Gate("review")
    return Gate("finish" if last else "next")
