"""Records of unattended work: a task, its hold, its runs, its prompts. Most are rows of the task database."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict


class Phase(TypedDict):
    """A part of a task that ends with a check or a review."""

    name: str
    prompt: str
    verify: str
    """The command that checks it; empty if there is none."""
    review: bool


class Agent(TypedDict, total=False):
    """How a task's agent is started; for an absent key the settings apply."""

    kind: str
    command: list[str]
    model: str
    permission_mode: str
    allowed_tools: list[str]
    arguments: list[str]
    environment: list[str]
    set: dict[str, str]
    resume_with: str
    completes_on: str
    limit_windows: int
    input: str


class Limits(TypedDict):
    """The budget of a task; 0 means no limit."""

    tokens: int
    money: float
    seconds: int


@dataclass(frozen=True)
class TaskSpec:
    """A task as its author specified it, checked, with every default filled in."""

    name: str
    """The name by which `after` of other tasks in the same file refers to it; may be empty."""
    title: str
    type: str
    brief: str
    workspace: str
    agent: Agent
    phases: list[Phase]
    budget: Limits
    priority: str
    after: list[str]
    secrets: list[str]


@dataclass(frozen=True)
class Task:
    """A row of `task`; columns with JSON are parsed. `request` is what a person wants of its live run."""

    id: str
    title: str
    type: str
    brief: str
    workspace: str
    workspace_id: str
    agent: Agent
    phases: list[Phase]
    budget: Limits
    priority: str
    after: list[str]
    needs: list[str]
    state: str
    phase: int
    attempt: int
    epoch: int
    reworks: int
    crashes: list[int]
    idle: int
    windows: int
    restores: int
    request: str
    session: str
    tree: str
    step: str
    fraction: float
    next_prompt: str
    reason: str
    tokens: int
    money: float
    seconds: float
    budget_mark: float
    account: str
    fork_of: str
    archived: int
    created_at: int
    updated_at: int
    started_at: int
    ended_at: int


@dataclass(frozen=True)
class Hold:
    """A row of `hold`: why a task does not run, and until when."""

    id: int
    task: str
    kind: str
    since: int
    due_at: int | None
    due_boot: int | None
    boot: str
    account: str
    prompt: str
    reason: str
    human: int
    lifted_at: int | None
    lifted_by: str


@dataclass(frozen=True)
class Run:
    """A row of `run`: one agent process. `request` is why the supervisor ends it."""

    id: str
    task: str
    number: int
    phase: int
    epoch: int
    state: str
    session: str
    resume: int
    prompt: str
    folder: str
    token: str
    boot: str
    host: str
    account: str
    request: str
    pid: int
    offset: int
    tokens: int
    money: float
    started_at: int
    live_at: int
    ended_at: int
    exit_code: int | None
    outcome: str
    reason: str
    left: list[str]
    last_message: str


@dataclass(frozen=True)
class Prompt:
    """A row of `prompt`: a question, a need (`secret`) or an approval that waits for a person."""

    id: str
    task: str
    run: str
    kind: str
    key: str
    text: str
    category: str
    options: list[str]
    standard: str
    required: int
    status: str
    answer: str | None
    answered_by: str
    created_at: int
    answered_at: int
    expires_at: int
    tries: int
    delivered: str
    phase: int
    tree: str
    flagged: int
    output: str


class TaskCheckpoint(NamedTuple):
    """A row of `checkpoint`: a checkpoint of a task, and the name of its document."""

    key: str
    """Identifies the cause: retries of the same cause make one checkpoint."""
    task: str
    run: str
    id: str
    version: int
    reason: str
    phase: int
    tree: str
    file: str
    made_at: int


class LoggedEvent(NamedTuple):
    """A row of `event`; `facts` is JSON."""

    sequence: int
    task: str
    run: str
    at: int
    type: str
    facts: str

    def read(self) -> dict[str, Any]:
        """Return the facts, parsed."""
        facts: dict[str, Any] = json.loads(self.facts)
        return facts


class Notification(NamedTuple):
    """A row of `notice`: a notification to people."""

    id: str
    task: str
    at: int
    kind: str
    text: str
    prompt: str
    sent_at: int
    tries: int


class Secret(NamedTuple):
    """A row of `secret`: a sealed value that belongs to a task."""

    task: str
    name: str
    sealed: str
    type: str
    given_at: int


class Account(NamedTuple):
    """A row of `account`: a usage limit that an account has reached."""

    key: str
    due_at: int
    human: int
    reason: str
    since: int
