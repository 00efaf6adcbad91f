"""What follows from a run that has ended: the next state of its task, decided from what was seen. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
    blocks = [one for one in found if isinstance(one, Block)]
    named = {name: tuple(one for one in blocks if one.name == name) for name in {one.name for one in blocks}}
    case = _Case(seen, named, malformed)
    decided = next(filter(None, (rule(case) for rule in _RULES)), _NOT_DONE)
    if decided.kind == IDLE and seen.is_used_up:
        decided = Verdict(BUDGET, "budget")  # whatever it would be told, no run follows that could go on
    return decided._replace(malformed=malformed)


class _Case(NamedTuple):
    """What the rules look at."""

    seen: Seen
    named: Mapping[str, tuple[Block, ...]]
    """What the agent said that counts, by the names of the blocks."""
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
        """What is asked beside whatever else is to be done."""
        return (*self.needs, *self.questions)


def _cancelled(case: _Case) -> Verdict | None:
    return Verdict(CANCELLED, "cancelled by a person") if case.seen.wanted == "cancel" else None


def _never_started(case: _Case) -> Verdict | None:
    return Verdict(FAILED, case.seen.never_started) if case.seen.never_started else None


def _fatal(case: _Case) -> Verdict | None:
    """The agent itself said that it cannot go on."""
    for error in case.errors[:1]:
        if error.fields["type"] == "fatal" or error.fields["recovery"] == "checkpoint_and_fail":
            return Verdict(FAILED, error.fields["message"], case.errors)
    return None


def _refused(case: _Case) -> Verdict | None:
    """The client failed in a way that another try does not mend."""
    if case.seen.error not in FATAL_ERRORS:
        return None
    said = f" It said: {case.seen.error_text}" if case.seen.error_text else ""
    return Verdict(FAILED, FATAL_ERRORS[case.seen.error] + said)


def _full(case: _Case) -> Verdict | None:
    too_long = case.seen.error == "prompt_too_long"
    return Verdict(FULL, "the conversation no longer fits the model") if too_long else None


def _limited(case: _Case) -> Verdict | None:
    limit = case.seen.limit
    return Verdict(LIMITED, limit.raw, (*case.errors, *case.asks)) if limit is not None else None


def _wanted(case: _Case) -> Verdict | None:
    wanted = case.seen.wanted
    if wanted == "pause":
        return Verdict(PAUSED, "paused by a person", case.asks)
    return Verdict(_ENDED_FOR[wanted], wanted, case.asks) if wanted in _ENDED_FOR else None


def _recoverable(case: _Case) -> Verdict | None:
    errors = case.errors
    return Verdict(RETRY, errors[0].fields["message"], (*errors, *case.asks)) if errors else None


def _crashed(case: _Case) -> Verdict | None:
    seen = case.seen
    crashed = seen.failed or (seen.exit_code != 0 and seen.wanted != LINGERING)
    return Verdict(CRASHED, _ended(seen), case.asks) if crashed else None


def _completed(case: _Case) -> Verdict | None:
    for block in case.named.get("CUSTOM_TASK_COMPLETE", ())[:1]:
        return Verdict(COMPLETE, block.fields.get("summary", ""), (block,))
    for block in case.named.get("PHASE_COMPLETE", ()):
        # A marker of another phase is a quotation, or an agent that skips ahead; neither completes this one.
        if int(block.fields["phase"]) == case.seen.phase:
            return Verdict(PHASE, block.fields.get("summary", ""), (block,))
    return None


def _needs(case: _Case) -> Verdict | None:
    names = ", ".join([block.fields["name"] for block in case.needs])
    return Verdict(NEEDS, f"needs {names}", case.asks) if case.needs else None


def _asked(case: _Case) -> Verdict | None:
    questions = case.questions
    return Verdict(ASKED, questions[0].fields["question"], questions) if questions else None


def _denied(case: _Case) -> Verdict | None:
    tools = ", ".join(sorted(set(case.seen.denials)))
    return Verdict(DENIED, f"was not allowed to use {tools}") if tools else None


def _unclear(case: _Case) -> Verdict | None:
    return Verdict(IDLE, case.malformed[0].why) if case.malformed else None


def _exited(case: _Case) -> Verdict | None:
    """The end of a command that says nothing by protocol is the end of its phase."""
    seen = case.seen
    if not seen.completes_on_exit:
        return None
    return Verdict(PHASE if seen.phases > 1 or seen.phase < seen.phases else COMPLETE, "the command ended")


_ENDED_FOR = {"budget": BUDGET, "stuck": RETRY}
_NOT_DONE = Verdict(IDLE, "the agent ended its turn without saying that it is done")
_RULES: tuple[Callable[[_Case], Verdict | None], ...] = (
    _cancelled, _never_started, _fatal, _refused, _full, _limited, _wanted, _recoverable, _crashed, _completed, _needs,
    _asked, _denied, _unclear, _exited,
)  # fmt: skip
"""The first rule that says anything decides."""


def has_last_word(blocks: Iterable[Block | Malformed], phase: int) -> bool:
    """Did an agent that works on this phase say something after which it has to end its turn?"""
    said = [block for block in blocks if isinstance(block, Block)]
    return any(block.name != "PHASE_COMPLETE" or int(block.fields["phase"]) == phase for block in said)


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
