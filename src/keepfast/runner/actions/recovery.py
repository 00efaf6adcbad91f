"""Rebuild a lost task database from documents in workspaces (never approvals), and finish what an interruption left."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, NamedTuple

from keepfast.model.errors import KeepfastError
from keepfast.runner.actions import checkpoints, documents, event_files, finals, folders, metadata, vault
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.db import queries
from keepfast.runner.db.rows import MARKED
from keepfast.runner.db.tables import Tables
from keepfast.runner.domain.moments import moment, nanoseconds
from keepfast.runner.domain.prompts import aside
from keepfast.runner.domain.questions import PENDING
from keepfast.runner.domain.records import Task, TaskCheckpoint
from keepfast.runner.domain.task import ACTIVE, APPROVAL, DONE, DRAFT, FAILED, REVIEW, TERMINAL, USER_PAUSE
from keepfast.runner.process import shims
from keepfast.store.rows import CheckpointRow, Query

DEPTH = 3
"""Depth below a root to which workspaces are searched."""
PLANNING, DESIGN, MIN_FILE_BYTES = 9, 5, 500
"""Number of documents of a finished planning and of a finished design phase, and minimum length of each."""


class RefusedDocument(NamedTuple):
    """A document that was ignored, and why."""

    file: str
    why: str


class SignedDocument(NamedTuple):
    """A document of a checkpoint with a valid signature."""

    name: str
    content: dict[str, Any]


class RebuiltTask(NamedTuple):
    """The result for one workspace's task."""

    workspace: str
    task: str
    outcome: str
    """rebuilt, there, cold start, or why it could not be used."""
    refused: Sequence[RefusedDocument] = ()
    """Documents without a valid signature, or of another task."""


def workspaces(roots: Iterable[str]) -> Iterator[str]:
    """Yield the folders with a task's metadata, at or below the roots."""
    seen: set[str] = set()
    for root in roots:
        base = os.path.realpath(root)
        for folder, names, _ in os.walk(base):
            deep = folder[len(base) :].count(os.sep)
            if folders.METADATA in names and folder not in seen:
                seen.add(folder)
                yield folder
            names[:] = (
                [name for name in names if not name.startswith(".") and name != "node_modules"] if deep < DEPTH else []
            )


def rebuild(runtime: Runtime, roots: Iterable[str]) -> list[RebuiltTask]:
    """Rebuild every task that the database does not know; each is held for a person.

    New events get numbers above all in the folders' files, so that these can be continued.
    """
    folders = list(workspaces(roots))
    with runtime.tables.write() as tables:
        tables.count_events_on(max(map(event_files.last_number, folders), default=0))
    return [_rebuild_task(runtime, folder) for folder in folders]


def _rebuild_task(runtime: Runtime, workspace: str) -> RebuiltTask:
    path = f"{workspace}/{folders.METADATA}/task.json"
    try:
        task_file = documents.load(runtime, path)
    except KeepfastError as error:
        return RebuiltTask(
            workspace, "", str(error), [RefusedDocument(path, str(error))] if os.path.lexists(path) else ()
        )
    id = str(task_file.get("id", ""))
    if not id or os.path.realpath(str(task_file.get("workspace", ""))) != workspace:
        return RebuiltTask(workspace, id, "Workspace validation failed: the document belongs to another folder.")
    if queries.find_task(runtime.tables, id) is not None:
        return RebuiltTask(workspace, id, "there")
    checkpoint_documents, refused = _documents(runtime, workspace, id)
    cold = not checkpoint_documents and task_file["state"] not in TERMINAL and task_file["attempt"] > 0
    phase = (
        infer_phase(workspace, task_file["type"], task_file["phase"], len(task_file["phases"]))
        if cold
        else task_file["phase"]
    )
    _insert(runtime, task_file, phase, checkpoint_documents, cold)
    return RebuiltTask(workspace, id, "cold start" if cold else "rebuilt", refused)


def _insert(
    runtime: Runtime, task_file: dict[str, Any], phase: int, checkpoint_documents: list[SignedDocument], cold: bool
) -> None:
    latest = checkpoint_documents[-1].content if checkpoint_documents else None
    rows = _kept(runtime, task_file, checkpoint_documents)
    now, id = runtime.now(), str(task_file["id"])
    ended = task_file["state"] in (DONE, FAILED, "cancelled", DRAFT)
    review = None if ended else _review_of(task_file, latest, rows)
    state = task_file["state"] if ended else ACTIVE if review is None else REVIEW
    columns = {name: task_file[name] for name in metadata.COLUMNS if name not in ("state", "phase")}
    columns["attempt"] = max([task_file["attempt"], *[number for task, number, _ in _folders(runtime) if task == id]])
    marked = vault.mark_older(runtime, task_file)
    columns |= marked.value
    columns["step"] = (latest["agent"].get("currentStep") if latest is not None else None) or ""
    with runtime.tables.write() as tables:
        tables.insert("task", **columns, state=state, phase=phase, updated_at=now)
        vault.store(tables, id, marked, now)
        provided = {one["name"]: one for one in task_file.get("dependencies", [])}
        for name, sealed in dict(task_file.get("secrets", {})).items():
            dependency = provided.get(name, {"type": "env_variable", "providedAt": moment(now)})
            tables.keep_secret(id, str(name), str(sealed), dependency["type"], nanoseconds(dependency["providedAt"]))
        for name, sealed in dict(task_file.get("marked", {})).items():
            tables.keep_secret(id, str(name), str(sealed), MARKED, now)
        for place, question in enumerate(task_file.get("questions", [])):
            tables.insert(
                "prompt",
                id=question["id"],
                task=id,
                run="",
                kind="question",
                key=question["question"].casefold(),
                text=question["question"],
                category=question["category"],
                options=question["options"],
                standard=question["default"] or "",
                required=int(question["required"]),
                status=question["status"],
                answer=question["answer"],
                created_at=now + place,
                phase=phase,
                delivered="before" if question["delivered"] else "",
            )
        facts = {"from": "documents", "checkpoint": latest["id"] if latest else None, "cold": cold}
        tables.log(id, now, "rebuilt", facts)
        if not ended:
            _hold(tables, task_file, phase, review, cold, now)
        for row in rows:
            tables.insert("checkpoint", once=True, **row._asdict())


def _hold(tables: Tables, task_file: dict[str, Any], phase: int, review: _Review | None, cold: bool, now: int) -> None:
    """Hold a rebuilt task for a person: for the review of its phase, else paused."""
    id, why = task_file["id"], "The task database was rebuilt. Check the task, then resume it."
    if cold:
        why = f"No checkpoint was found; the task starts again at phase {phase}. Work may be lost."
        lost = aside("Your work so far is in the folder; the conversation about it is lost.")
        tables.change(id, now, next_prompt=lost, session="")
        tables.warn(id, now, f"{task_file['title']}: {why}")
    kind, prompt = USER_PAUSE, ""
    if review is not None:
        kind, prompt, why = APPROVAL, review.id, review.text
        _insert_review(tables, id, review, now)
    tables.insert("hold", task=id, kind=kind, since=now, reason=why, human=1, prompt=prompt)
    tables.change(id, now, reason=why)


class _Review(NamedTuple):
    """The review of a completed phase, which the database has lost."""

    id: str
    phase: int
    text: str
    tree: str
    is_flagged: bool


def _review_of(task_file: dict[str, Any], latest: dict[str, Any] | None, rows: list[TaskCheckpoint]) -> _Review | None:
    """Return the review that the task waits for: its phase is complete, or failed its verification too often; else None."""
    number = task_file["phase"]
    if latest is None or not 1 <= number <= len(task_file["phases"]):
        return None
    is_complete = number in latest["protocols"]["completedPhases"]
    if not is_complete and task_file["state"] != REVIEW:
        return None
    name = task_file["phases"][number - 1]["name"]
    still = "" if is_complete else " but its verification still fails"
    text = f"Phase {number} ({name}) is complete{still}. The task database was rebuilt: review the phase again."
    ends = [row for row in rows if row.reason == "phase_complete" and row.phase == number] or rows
    id = "a_" + sha256(f"{task_file['id']}:rebuilt:{latest['id']}".encode()).hexdigest()[:12]
    return _Review(id, number, text, ends[-1].tree, not is_complete)


def _insert_review(tables: Tables, task: str, review: _Review, now: int) -> None:
    tables.insert(
        "prompt", id=review.id, task=task, run="", kind="approval", key=f"phase {review.phase}", text=review.text,
        status=PENDING, created_at=now, phase=review.phase, tree=review.tree, flagged=int(review.is_flagged), required=1,
    )  # fmt: skip


def _kept(
    runtime: Runtime, task_file: dict[str, Any], checkpoint_documents: list[SignedDocument]
) -> list[TaskCheckpoint]:
    """Return the rows of a task's checkpoints: from its documents, with versions and trees from the store."""
    id = str(task_file["id"])
    rows: dict[str, CheckpointRow] = {}
    with suppress(KeepfastError, OSError), runtime.engine() as engine:
        _, workspace = engine.workspaces.root(os.fsencode(task_file["workspace"]))
        query = Query(workspace=workspace.id, task=id, forgotten=True)
        rows = {row.id: row for row in engine.repository().find(query)}
    records = []
    for name, document in checkpoint_documents:
        row = rows.get(document["id"])
        tags = row.tags.split("\n") if row is not None else []
        key = next((tag for tag in tags if tag.startswith(f"{id}:")), f"{id}:rebuilt:{document['id']}")
        run = ":".join(key.split(":")[:2])
        records.append(TaskCheckpoint(
            key=key, task=id, run=run if run.rpartition(":")[2].isdigit() else "", id=document["id"],
            version=row.version if row is not None else 0, reason=document["reason"],
            phase=document["agent"].get("currentPhase") or 1, tree=row.tree if row is not None else "", file=name,
            made_at=row.created_at if row is not None else nanoseconds(document["createdAt"]),
        ))  # fmt: skip
    return records


def stop_unknown_runs(runtime: Runtime) -> None:
    """Stop agents whose run has no row, as after a lost database: their task may start again in the same folder."""
    for task, number, folder in _folders(runtime):
        run = f"{task}:{number}"
        if shims.status_of(folder, run).kind == shims.ALIVE and queries.find_run(runtime.tables, run) is None:
            shims.wish(folder, "stop", "the task database does not know this run")


def finish_interrupted(runtime: Runtime) -> None:
    """Repeat what follows the last commit of a task, in case the supervisor was killed just then."""
    vault.seal_older(runtime)
    checkpoints.publish_staged(runtime)
    for task in queries.current_tasks(runtime.tables):
        if not os.path.isdir(task.workspace):
            continue
        newest = checkpoints.latest(runtime, task.id)
        if task.state == DONE and task.phases and newest is not None and not _is_changed(runtime, task, newest.tree):
            finals.ensure_saved(runtime, task)
        checkpoints.prune_documents(runtime, task)
        metadata.project(runtime, task.id)


def _is_changed(runtime: Runtime, task: Task, tree: str) -> bool:
    try:
        return checkpoints.changed_since(runtime, task, tree)
    except (KeepfastError, OSError):
        return True  # the workspace cannot be saved now


def _folders(runtime: Runtime) -> Iterator[tuple[str, int, str]]:
    """Yield task, number and folder of each run that has a folder, with or without a row."""
    base = f"{runtime.folder}/runs"
    try:
        names = os.listdir(base)
    except OSError:
        return
    for name in names:
        task, _, number = name.rpartition("-")
        if task and number.isdigit():
            yield task, int(number), f"{base}/{name}"


def _documents(runtime: Runtime, workspace: str, id: str) -> tuple[list[SignedDocument], Sequence[RefusedDocument]]:
    """Return the valid documents of a task, oldest first, and the refused ones."""
    folder = f"{workspace}/{folders.CHECKPOINTS}"
    names: list[str] = []
    newest, own, refused = "", [], list[RefusedDocument]()
    with suppress(OSError):
        names = [name for name in os.listdir(folder) if name.startswith("checkpoint_")]
        newest = os.path.basename(os.readlink(f"{folder}/latest.json"))
    for name in sorted(names):
        path = f"{folder}/{name}"
        try:
            document = documents.load(runtime, path)
        except KeepfastError as error:
            refused.append(RefusedDocument(path, str(error)))
            continue
        if document["taskId"] == id:
            own.append(SignedDocument(name.removesuffix(".gz"), document))
        else:
            refused.append(RefusedDocument(path, f"{path} is a document of another task."))
    return sorted(own, key=lambda one: (one.name == newest, one.content["createdAt"], one.name)), refused


def infer_phase(workspace: str, type: str, phase: int, phases: int) -> int:
    """Return the phase at which a task without any checkpoint restarts, by the files in its folder."""
    number = phase
    if type == "create_app":
        if _count(f"{workspace}/docs/planning") >= PLANNING:
            number = max(number, 2)
            if _count(f"{workspace}/docs/design") >= DESIGN:
                number = max(number, 3)
                if os.path.isdir(f"{workspace}/src"):
                    number = max(number, 4)
    elif type == "modify_app" and _count(f"{workspace}/docs/analysis") >= 1:
        number = max(number, 2)
        if _count(f"{workspace}/docs/plan") >= 1:
            number = max(number, 3)
    return min(number, max(phases, 1))


def _count(folder: str) -> int:
    """Return the number of files in a folder that are long enough to be documents."""
    try:
        return sum(1 for one in os.scandir(folder) if one.is_file() and one.stat().st_size >= MIN_FILE_BYTES)
    except OSError:
        return 0
