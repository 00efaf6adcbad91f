"""The JSON forms of tasks, prompts and the inbox, as `Views` returns them; docs/json.md describes their keys."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from keepfast.runner.domain.records import Limits


class HoldView(TypedDict):
    """Why a task does not run."""

    kind: str
    reason: str | None
    since: str
    until: str | None
    seconds_left: int | None
    needs_you: bool
    prompt: str | None


class LimitView(TypedDict):
    """The usage limit that a task without a hold waits for."""

    until: str | None
    reason: str | None
    needs_you: bool


class AskView(TypedDict):
    """A waiting prompt of a task, in short."""

    id: str
    kind: str
    name: str | None
    text: str


class UsedView(TypedDict):
    """What a task has used."""

    tokens: int
    money: float
    seconds: int


class SpentView(TypedDict):
    """What a task has used, and its budget."""

    used: UsedView
    budget: Limits


RequestView = TypedDict("RequestView", {"wanted": "str | None"})  # noqa: UP013
"""A person's request to the live run of a task; the key of the JSON form is not used as a name elsewhere."""


class TaskView(SpentView, RequestView):
    """A task."""

    id: str
    title: str
    type: str
    status: str
    state: str
    hold: HoldView | None
    agent_status: str
    frozen: bool
    phase: int | None
    phases: list[str]
    step: str | None
    progress: int
    attempt: int
    reworks: int
    priority: str
    workspace: str
    agent: str | None
    session: str | None
    reason: str | None
    waits_for: list[str]
    limit: LimitView | None
    asks: list[AskView]
    actions: list[str]
    archived: bool
    created_at: str
    updated_at: str
    started_at: str | None
    ended_at: str | None


class AnsweredView(TaskView):
    """A task after an answer, with the answer's warning."""

    warning: str | None


class RemarkView(TypedDict):
    """A reviewer's comment on a file or a line; see `reviews.Remark`."""

    path: str
    line: int
    text: str


class CommentView(TypedDict):
    """Comments on a waiting review."""

    comments: str
    remarks: list[RemarkView]
    by: str


class PromptView(TypedDict):
    """A question, a need or a review."""

    id: str
    task: str
    kind: str
    text: str
    name: str | None
    category: str | None
    options: list[str]
    default: str | None
    required: bool
    status: str
    answer: str | None
    answered_by: str | None
    flagged: bool
    output: str | None
    phase: int | None
    created_at: str
    comments: list[CommentView]


class TitledPromptView(PromptView):
    """A prompt with the title of its task."""

    title: str


class InboxEntry(TypedDict):
    """What waits for a person: a prompt, or a hold without one, of which `kind` is `hold`."""

    id: str
    task: str
    kind: str
    title: str
    hold: str | None
    phase: int | None
    text: str
    created_at: str
    options: list[str]
    actions: list[str]
    priority: int
    used: NotRequired[UsedView]
    budget: NotRequired[Limits]
    name: NotRequired[str | None]
    category: NotRequired[str | None]
    default: NotRequired[str | None]
    required: NotRequired[bool]
    status: NotRequired[str]
    answer: NotRequired[str | None]
    answered_by: NotRequired[str | None]
    flagged: NotRequired[bool]
    output: NotRequired[str | None]
    comments: NotRequired[list[CommentView]]


class RunView(TypedDict):
    """One agent process of a task."""

    id: str
    state: str
    phase: int | None
    session: str
    resumed: bool
    outcome: str | None
    reason: str | None
    exit_code: int | None
    tokens: int
    money: float
    started_at: str
    ended_at: str | None
    log: str


class TaskCheckpointView(TypedDict):
    """A checkpoint of a task."""

    id: str
    version: str
    reason: str
    phase: int | None
    created_at: str
    file: str | None


class GateView(TypedDict):
    """What ends a phase: its verification command, and whether a person reviews it."""

    name: str
    verify: str
    review: bool


class WarningView(TypedDict):
    """A warning in a task's log."""

    message: str
    at: str


class FailureView(TypedDict):
    """The last attempt to save a task, which failed."""

    reason: str
    error: str
    since: str


class TaskDetails(TaskView):
    """A task with its runs, prompts and checkpoints."""

    brief: str
    gates: list[GateView]
    prompts: list[PromptView]
    runs: list[RunView]
    checkpoints: list[TaskCheckpointView]
    checkpoints_total: int
    secrets: list[str]
    incremental: dict[str, Any] | None
    save_failed: FailureView | None
    missing_keys: list[str]
    warnings: list[WarningView]
