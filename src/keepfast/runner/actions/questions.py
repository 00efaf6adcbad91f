"""Questions and needs of agents: each becomes a prompt, once; open ones hold their task. Errors and progress are logged."""

from __future__ import annotations

from hashlib import sha256

from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.db import queries
from keepfast.runner.db.tables import Tables
from keepfast.runner.domain.protocol import VARIABLES, Block
from keepfast.runner.domain.questions import PENDING, key
from keepfast.runner.domain.records import Run, Task
from keepfast.runner.domain.task import DEPENDENCY, SECRET
from keepfast.runner.process.output import Output
from keepfast.runner.process.redaction import clean

SECOND = 1_000_000_000


def create_prompt(runtime: Runtime, task: Task, run: Run, now: int, block: Block) -> None:
    """Create the prompt of a question or a need, unless the same is open already; log an error. Inside a transaction."""
    tables = runtime.tables
    block = block._replace(fields=clean(block.fields), lists=clean(block.lists))
    if block.name == "DEPENDENCY_REQUEST":
        name = block.fields["name"]
        if queries.has_secret(tables, task.id, name):
            return
        kind, mark, text = "secret", name, block.fields.get("description", "") or name
    elif block.name == "USER_QUESTION":
        kind, mark, text = "question", key(block.fields["question"]), block.fields["question"]
    else:
        if block.name == "ERROR":
            facts = {"kind": block.fields["type"], "message": block.fields["message"]}
            tables.log(task.id, now, "error", {**facts, "recovery": block.fields["recovery"]}, run.id)
        return

    if queries.waiting_prompts_with_key(tables, task.id, kind, mark):
        tables.log(task.id, now, "duplicate_refused", {"kind": kind, "text": text}, run.id)
        return
    id = ("q_" if kind == "question" else "d_") + sha256(f"{run.id}:{kind}:{mark}".encode()).hexdigest()[:12]
    timeout = int(runtime.options.question_timeout * SECOND)
    tables.insert(
        "prompt", once=True, id=id, task=task.id, run=run.id, kind=kind, key=mark, text=text,
        category=block.fields.get("category", block.fields.get("type", "")), options=block.lists.get("options", []),
        standard=block.fields.get("default", ""), required=int(block.flag("required")), status=PENDING, created_at=now,
        expires_at=now + timeout, phase=task.phase,
    )  # fmt: skip
    kind_name = kind_of(kind, block.fields.get("type", ""))
    if kind == "question":
        tables.log(task.id, now, "user_question", {"id": id, "text": text}, run.id)
    else:
        tables.log(
            task.id, now, "dependency_request", {"id": id, "kind": kind_name, "name": mark, "text": text}, run.id
        )
    tables.notify(task.id, now, kind_name, f"{task.title}: {need_text(kind, mark, text)}", id)


def log_progress(tables: Tables, run: Run, now: int, output: Output) -> None:
    """Log the agent's progress reports that are not logged yet. Inside a transaction."""
    logged_count = queries.count_events_of_run(tables, run, "progress_report")
    for report in output.reports[logged_count:]:
        tables.log(run.task, now, "progress_report", report._asdict(), run.id)


def need_text(kind: str, key: str, text: str) -> str:
    """Return the text of a prompt, for a need with its name."""
    return f"{key}: {text}" if kind == SECRET and key not in text else text


def kind_of(kind: str, category: str) -> str:
    """Return the kind of a prompt in JSON, and of its hold: a need that is not a variable is a dependency, not a secret."""
    return DEPENDENCY if kind == SECRET and category not in VARIABLES else kind


def hold_for_open_prompts(tables: Tables, task: str, now: int, trigger: str, run: str = "") -> bool:
    """Hold a task for its open required questions and needs; False if there are none."""
    waiting = queries.waiting_prompts_of(tables, task, "question", "secret")
    if not waiting:
        return False
    first = next((prompt for prompt in waiting if prompt.kind == "secret"), waiting[0])
    hold, why = kind_of(first.kind, first.category), need_text(first.kind, first.key, first.text)
    tables.move(task, "hold", now, trigger=trigger, run=run, hold=hold, why=why, prompt=first.id, human=1)
    return True
