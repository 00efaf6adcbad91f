"""What is known of unattended work, as values: a task, what holds it, its runs, and what was asked."""

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
    """How a task's agent is started; what is absent is as the settings have it."""

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
    """The budget of a task; 0 is without limit."""

    tokens: int
    money: float
    seconds: int


@dataclass(frozen=True)
class TaskSpec:
    """A task as somebody wrote it down, checked, with every default filled in."""

    name: str
    """How other tasks of the same file name it; empty if none does."""
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
    """A row of `task`; what is JSON in the table is a value here."""

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
    wanted: str
    session: str
    tree: str
    step: str
    fraction: float
    next_prompt: str
    reason: str
    tokens: int
    money: float
    seconds: float
    told: float
    account: str
    fork_of: str
    archived: int
    created_at: int
    updated_at: int
    started_at: int
    ended_at: int


@dataclass(frozen=True)
class Hold:
    """A row of `hold`."""

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
    """A row of `run`."""

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
    wanted: str
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
    said: str


@dataclass(frozen=True)
class Prompt:
    """A row of `prompt`: a question, a secret that is needed, or an approval."""

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
    """A row of `checkpoint`: a checkpoint that was made for a task, and the document that tells of it."""

    key: str
    """The cause; a cause makes one checkpoint, however often it is tried."""
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
        """The facts."""
        facts: dict[str, Any] = json.loads(self.facts)
        return facts


class Notice(NamedTuple):
    """A row of `notice`: what people are to be told of."""

    id: str
    task: str
    at: int
    kind: str
    text: str
    prompt: str
    sent_at: int
    tries: int


class Secret(NamedTuple):
    """A row of `secret`: a sealed value of a task."""

    task: str
    name: str
    sealed: str
    type: str
    given_at: int


class Account(NamedTuple):
    """A row of `account`: a limit that an account has met."""

    key: str
    due_at: int
    human: int
    reason: str
    since: int
