"""The state machine of a task: its transitions, and the names of states in JSON and on the page. Pure."""

from __future__ import annotations

from typing import NamedTuple

from keepfast.model.errors import KeepfastError

DRAFT, QUEUED, ACTIVE, REVIEW = "draft", "queued", "active", "review"
DONE, FAILED, CANCELLED = "done", "failed", "cancelled"
STATES = (DRAFT, QUEUED, ACTIVE, REVIEW, DONE, FAILED, CANCELLED)
TERMINAL = frozenset((DONE, FAILED, CANCELLED))

USER_PAUSE, RATE_LIMIT, QUESTION, SECRET, APPROVAL = "user_pause", "rate_limit", "question", "secret", "approval"
DEPENDENCY = "dependency"
"""A need that only a person can meet and that is not an environment variable: a service, a file, a permission."""
BUDGET, BACKOFF, CRASHED, HOST_LOST = "budget", "backoff", "crashed", "host_lost"
STALLED, UNSAVED = "no_progress", "unsaved"
HOLDS = (
    USER_PAUSE, RATE_LIMIT, QUESTION, SECRET, DEPENDENCY, APPROVAL, BUDGET, BACKOFF, CRASHED, HOST_LOST, STALLED, UNSAVED,
)  # fmt: skip
ASKING = frozenset((QUESTION, SECRET, DEPENDENCY))
"""Holds that an answer lifts."""
TIMED = frozenset((RATE_LIMIT, BACKOFF))
"""Holds that a timer lifts; all others wait for a person. For `unsaved`, saving is also retried."""

STARTING, LIVE, STOPPING, ENDED = "starting", "live", "stopping", "ended"
RUN_STATES = (STARTING, LIVE, STOPPING, ENDED)

TYPES = ("create_app", "modify_app", "custom")
PAUSED, PAUSED_NOW, FROZEN, CANCEL = "pause", "pause_now", "freeze", "cancel"
"""A person's request to a live run; the supervisor carries it out."""
PAUSING = frozenset((PAUSED, PAUSED_NOW, FROZEN))
"""Requests after which nothing runs until a person says so, however the run ends."""


class NotAllowed(KeepfastError):
    """The action is not allowed in the task's state."""

    exit_code = 14
    kind = "not_allowed"
    hint = "Run `keepfast task show` to see what it is waiting for."


class State(NamedTuple):
    """A task's state and the kind of its hold; `hold` is empty if the task is free to run."""

    state: str
    hold: str = ""


# action → (from states, to state, hold afterwards); None keeps the current value, HOLD is passed with the action.
HOLD = "<given>"
ACTIONS: dict[str, tuple[tuple[str, ...], str | None, str | None]] = {
    "submit": ((DRAFT,), QUEUED, ""),
    "start": ((QUEUED,), ACTIVE, ""),
    "hold": ((QUEUED, ACTIVE, REVIEW), None, HOLD),
    "lift": ((QUEUED, ACTIVE, REVIEW), None, ""),
    "phase_complete": ((ACTIVE,), REVIEW, APPROVAL),
    "next_phase": ((ACTIVE, REVIEW), ACTIVE, ""),
    "approve": ((REVIEW,), ACTIVE, ""),
    "reject": ((REVIEW,), ACTIVE, ""),
    "finish": ((ACTIVE, REVIEW), DONE, ""),
    "unsaved": ((ACTIVE, REVIEW), ACTIVE, UNSAVED),
    "fail": ((QUEUED, ACTIVE, REVIEW), FAILED, ""),
    "cancel": ((DRAFT, QUEUED, ACTIVE, REVIEW), CANCELLED, ""),
    "retry": ((FAILED, CANCELLED), QUEUED, ""),
    "follow_up": ((DONE,), QUEUED, ""),
    "restore": ((QUEUED, ACTIVE, REVIEW, FAILED, CANCELLED, DONE), QUEUED, ""),
    "rebuild": ((QUEUED, ACTIVE, REVIEW), ACTIVE, USER_PAUSE),
}


def move(now: State, action: str, hold: str = "") -> State:
    """Return the state after an action. Raises `NotAllowed` if the table has no such transition."""
    allowed, to, after = ACTIONS[action]
    if now.state not in allowed:
        raise NotAllowed(f"Cannot {action.replace('_', ' ')}: the task is {now.state}.")
    if after == HOLD:
        if hold not in HOLDS:
            raise ValueError(f"{hold!r} is not a hold")
        after = hold
    return State(to if to is not None else now.state, now.hold if after is None else after)


_STATUS = {
    DRAFT: "draft", QUEUED: "pending", ACTIVE: "in_progress", REVIEW: "review",
    DONE: "completed", FAILED: "failed", CANCELLED: "cancelled",
}  # fmt: skip
_HELD = {
    QUESTION: "waiting_question", SECRET: "waiting_dependency", DEPENDENCY: "waiting_dependency", APPROVAL: "waiting_review",
    RATE_LIMIT: "waiting_rate_limit",
}  # fmt: skip


def status(now: State) -> str:
    """Return the task's status by its name in documents and JSON."""
    if now.state == ACTIVE and now.hold:
        return _HELD.get(now.hold, "paused")
    return _STATUS[now.state]


def agent_status(now: State, run: str) -> str:
    """Return the agent's status by its name in documents and JSON; `run` is the state of the newest run, empty if none."""
    if now.state in (DONE, FAILED):
        return _STATUS[now.state]
    if now.hold:
        return _HELD.get(now.hold, "paused")
    if now.state == REVIEW:
        return "waiting_review"
    return "running" if run in (STARTING, LIVE, STOPPING) else "idle"


def progress(complete: int, phases: int, fraction: float, state: str) -> int:
    """Return the progress of a task, 0 to 100: completed phases, and the fraction of the next one that the agent reported.

    Only completed phases give 100: what an agent reports is not proof.
    """
    if state == DONE or (phases and complete >= phases):
        return 100
    return min(99, int(100 * (complete + min(max(fraction, 0.0), 1.0)) / max(phases, 1)))


def actions(now: State, is_frozen: bool = False) -> list[str]:
    """Return what a person can do with a task in this state. A frozen task has a process, which a pause would end."""
    possible = {
        DRAFT: ["start", "cancel"],
        QUEUED: ["pause", "cancel"],
        ACTIVE: ["pause", "freeze", "cancel"],
        REVIEW: ["approve", "reject", "cancel"],
        DONE: ["archive", "fork", "restore"],
        FAILED: ["retry", "archive", "fork", "restore"],
        CANCELLED: ["retry", "archive"],
    }[now.state]
    extra = {
        USER_PAUSE: ["resume"], CRASHED: ["resume"], HOST_LOST: ["resume"], QUESTION: ["answer"], SECRET: ["secret", "answer"],
        DEPENDENCY: ["answer"],
        STALLED: ["resume"], UNSAVED: ["resume", "accept"], BUDGET: ["budget"], RATE_LIMIT: ["try-now"], BACKOFF: ["try-now"],
        APPROVAL: ["resume"] if now.state == ACTIVE else [],  # a tool was denied; `resume --allow` lets it
    }.get(now.hold, [])  # fmt: skip
    useless = ("freeze",) if is_frozen or now.hold in TIMED else ("pause", "freeze") if now.hold else ()
    return extra + [action for action in possible if action not in useless]
