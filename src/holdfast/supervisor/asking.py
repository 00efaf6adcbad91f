"""Questions and needs of agents: each becomes a row, once, and the open ones hold their task."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING

from holdfast.supervisor.protocol import Block
from holdfast.supervisor.questions import PENDING, key
from holdfast.supervisor.tables import Run, Tables, Task
from holdfast.supervisor.task import QUESTION, SECRET

if TYPE_CHECKING:
    from holdfast.supervisor.ground import Ground

SECOND = 1_000_000_000


def ask(ground: Ground, task: Task, run: Run, now: int, block: Block) -> None:
    """Make a row of a question or a need, unless the same is there already. Inside a transaction."""
    tables = ground.tables
    if block.name == "DEPENDENCY_REQUEST":
        name = block.fields["name"]
        if tables.one("SELECT 1 FROM secret WHERE task = ? AND name = ?", task.id, name):
            return
        kind, mark, text = "secret", name, block.fields.get("description", "") or name
    elif block.name == "USER_QUESTION":
        kind, mark, text = "question", key(block.fields["question"]), block.fields["question"]
    else:
        if block.name == "ERROR":
            facts = {"kind": block.fields["type"], "message": block.fields["message"]}
            tables.log(task.id, now, "error", {**facts, "recovery": block.fields["recovery"]}, run.id)
        return
    open_ones = "task = ? AND kind = ? AND key = ? AND status IN ('pending', 'presented')"
    if tables.prompts(open_ones, task.id, kind, mark):
        tables.log(task.id, now, "duplicate_refused", {"kind": kind, "text": text}, run.id)
        return
    id = ("q_" if kind == "question" else "d_") + sha256(f"{run.id}:{kind}:{mark}".encode()).hexdigest()[:12]
    options = json.dumps(block.lists.get("options", []), ensure_ascii=False)
    timeout = int(ground.options.question_timeout * SECOND)
    tables.do(
        "INSERT INTO prompt (id, task, run, kind, key, text, category, options, standard, required, status, "
        "created_at, expires_at, phase) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        id, task.id, run.id, kind, mark, text, block.fields.get("category", block.fields.get("type", "")),
        options, block.fields.get("default", ""), int(block.flag("required")), PENDING,
        now, now + timeout, task.phase,
    )  # fmt: skip
    tables.log(
        task.id,
        now,
        "user_question" if kind == "question" else "dependency_request",
        {"id": id, "text": text},
        run.id,
    )
    tables.notify(task.id, now, kind, f"{task.title}: {text}", id)


def hold_open(tables: Tables, task: str, now: int, trigger: str, run: str = "") -> bool:
    """Hold a task for its open required questions and needs; False if there are none."""
    waiting = tables.prompts("task = ? AND kind IN ('question', 'secret') AND status IN ('pending', 'presented')", task)
    if not waiting:
        return False
    first = next((prompt for prompt in waiting if prompt.kind == "secret"), waiting[0])
    hold = SECRET if first.kind == "secret" else QUESTION
    tables.move(task, "hold", now, trigger=trigger, run=run, hold=hold, why=first.text, prompt=first.id, human=1)
    return True
