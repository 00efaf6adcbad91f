"""What a workspace itself tells of its task: files that a lost database is rebuilt from (docs/format/task.md)."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from threading import get_native_id
from typing import TYPE_CHECKING, Any, NamedTuple

from keepfast.model.errors import Damaged, NewerFormat
from keepfast.model.frozen import SUPERVISED_IGNORE
from keepfast.runner.actions import dialogue
from keepfast.runner.actions.dialogue import Dialogue
from keepfast.runner.db.rows import MARKED
from keepfast.runner.db.tables import Prompt, Run, Tables, Task
from keepfast.runner.domain import task as machine
from keepfast.runner.domain.protocol import VARIABLES
from keepfast.runner.domain.questions import REFUSED
from keepfast.runner.domain.task import State
from keepfast.runner.process import shims as process
from keepfast.runner.process.redaction import clean

if TYPE_CHECKING:
    from keepfast.runner.actions.environment import Ground
    from keepfast.runner.process.output import Output
    from keepfast.store.conversations import Conversation

VERSION = 3
KEEP = 10
TRIES = 3
METADATA, CHECKPOINTS, LOGS = ".metadata", ".checkpoints", ".logs"
BY = {"interval": "auto", "user_pause": "user", "cancel": "user", "manual": "user"}
PLAIN = 3
"""So many of the newest documents are left uncompressed."""
DELIVERABLES, MOST_SEEN = 500, 20_000
"""So many of the newest files are listed, of so many that are looked at."""
COLUMNS = (
    "id", "title", "type", "brief", "workspace", "workspace_id", "agent", "phases", "budget", "priority", "after", "needs",
    "state", "phase", "attempt", "reworks", "session", "tokens", "money", "seconds", "fork_of", "created_at", "started_at",
)  # fmt: skip


def prepare(workspace: str) -> None:
    """Make our folders before anything is saved, so that their coming is no change of the workspace."""
    for name in (METADATA, CHECKPOINTS, LOGS):
        own_folder(workspace, name)


class Seen(NamedTuple):
    """What a document tells that is in no row: found out when the checkpoint is made, before anything else changes."""

    dialogue: Dialogue
    workspace: dict[str, Any]
    session: str
    pid: int | None
    step: str
    fraction: float
    tokens: int
    """Of a run that goes on: what its row does not count yet."""


def look(ground: Ground, task: Task, run: Run | None, output: Output | None) -> Seen:
    """Look at everything that takes time: what was said, and the workspace."""
    return Seen(
        dialogue=(
            dialogue.read(ground, run, output)
            if run is not None
            else dialogue.documented(ground, task.id, ground.now())
        ),
        workspace={"path": task.workspace, **_deliverables(task.workspace)},
        session=(output.session if output is not None else "") or (run.session if run is not None else task.session),
        pid=process.agent(run.folder).get("pid") if run is not None else None,
        step=output.step if output is not None else "",
        fraction=output.fraction if output is not None else 0.0,
        tokens=output.tokens if output is not None else 0,
    )


def describe(
    ground: Ground, task: Task, run: Run | None, seen: Seen, head: dict[str, Any], kept: Conversation | None
) -> dict[str, Any]:
    """The document of a checkpoint: the source's fields, redacted and bounded, and a schema version.

    It tells what the rows say now: whoever changes a state because of a checkpoint describes it afterwards, in the same
    transaction. `head` holds `id`, `reason` and `createdAt`; `kept` says where the whole conversation lies in the store.
    """
    tables = ground.tables
    state = tables.shown_state(task)
    lives = run is not None and run.state != machine.ENDED
    prompts = tables.prompts("task = ? AND status IN ('pending', 'presented')", task.id)
    secrets = tables.variables(task.id)
    fraction = (seen.fraction if lives else 0.0) or task.fraction
    return {
        "schemaVersion": VERSION,
        "id": head["id"],
        "taskId": task.id,
        "createdAt": head["createdAt"],
        "createdBy": BY.get(head["reason"], "system"),
        "reason": head["reason"],
        "task": {
            "status": machine.status(state),
            "type": task.type,
            "currentPhase": task.phase if task.phases else None,
            "progress": progress(task, prompts, fraction),
        },
        "agent": {
            "status": machine.agent_status(state, run.state if run is not None and seen.pid else ""),
            "pid": seen.pid,
            "currentPhase": (run.phase if run is not None else task.phase) if task.phases else None,
            "currentStep": seen.step or task.step or None,
            "tokensUsed": task.tokens + (seen.tokens if lives else 0),
            "blockedBy": state.hold or None,
        },
        "conversationHistory": {
            "messages": [_message(message, bool(task.phases)) for message in seen.dialogue.messages],
            "lastMessageIndex": seen.dialogue.total - 1,
            "session": seen.session,
            "digest": kept.transcript.content if kept is not None else None,
            "bytes": kept.transcript.size if kept is not None else None,
        },
        "environment": {
            "variables": {row["name"]: row["sealed"] for row in secrets},
            "dependencies": dependencies(tables, task.id),
        },
        "workspace": seen.workspace,
        "protocols": {
            "pendingDependencies": [_need(prompt) for prompt in prompts if prompt.kind == "secret"],
            "pendingQuestions": [_question(prompt) for prompt in prompts if prompt.kind == "question"],
            "completedPhases": completed(task, prompts),
        },
    }


def name(reason: str, phase: int, at: int, number: int = 1) -> str:
    """What the document of a checkpoint is called; a `number` above 1 tells apart what else would be called the same."""
    tail = "" if reason == "interval" else f"_phase{phase}_complete" if reason == "phase_complete" else f"_{reason}"
    stamp = moment(at).replace(":", "-").replace(".", "-").removesuffix("Z")
    return f"checkpoint_{stamp}{f'_{number}' if number > 1 else ''}{tail}.json"


def is_there(workspace: str, name: str) -> bool:
    path = f"{workspace}/{CHECKPOINTS}/{name}"
    return os.path.lexists(path) or os.path.lexists(path + ".gz")


def put(workspace: str, name: str, text: bytes, newest: bool) -> bool:
    """Put a document into its folder, and let `latest.json` point to it if it is the newest; False if that failed."""
    folder = own_folder(workspace, CHECKPOINTS)
    if folder is None:
        return False
    try:
        replace(f"{folder}/{name}", text)
        if newest:
            point(folder, "latest.json", name)
        _sync(folder)
    except OSError:
        return False
    return True


def dependencies(tables: Tables, id: str) -> list[dict[str, Any]]:
    """What a task was provided with: values for its environment, and what else it needed and somebody has seen to."""
    values = tables.variables(id)
    met = tables.prompts("task = ? AND kind = 'secret' AND status = 'answered' AND answer != ?", id, REFUSED)
    found = [(row["given_at"], row["type"], row["name"]) for row in values]
    found += [(one.answered_at, one.category, one.key) for one in met if one.category not in VARIABLES]
    return [{"type": type, "name": name, "providedAt": moment(at)} for at, type, name in sorted(found)]


def project(ground: Ground, id: str) -> None:
    """Bring `.metadata/` up to date: the task's row and its newest events. A failure costs the copy, nothing else."""
    from keepfast.runner.actions import logs

    folder = own_folder(ground.tables.task(id).workspace, METADATA)
    if folder is None:
        return
    try:
        for _ in range(TRIES):
            task = ground.tables.task(id)
            replace(f"{folder}/task.json", signed(ground, _projected(ground.tables, task)))
            if ground.tables.task(id).updated_at == task.updated_at:
                break  # else somebody else may have written a newer one, over which ours has come
        logs.extend(ground, id, f"{folder}/history.jsonl", line)
    except OSError:
        pass


def _projected(tables: Tables, task: Task) -> dict[str, Any]:
    """What `task.json` tells."""
    id, hold = task.id, tables.shown_hold(task)
    document = {name: getattr(task, name) for name in COLUMNS}
    return document | {
        "schemaVersion": VERSION,
        "status": machine.status(tables.shown_state(task)),
        "hold": hold.kind if hold else None,
        "updatedAt": moment(task.updated_at),
        "secrets": {row["name"]: row["sealed"] for row in tables.variables(id)},
        "marked": {
            row["name"]: row["sealed"]
            for row in tables.all("SELECT name, sealed FROM secret WHERE task = ? AND type = ?", id, MARKED)
        },
        "dependencies": dependencies(tables, id),
        "questions": [
            {**_question(prompt), "answer": prompt.answer, "status": prompt.status, "delivered": bool(prompt.delivered)}
            for prompt in tables.prompts("task = ? AND kind = 'question'", id)
        ],
    }


def line(told: dict[str, Any]) -> str:
    return json.dumps(told, ensure_ascii=False)


def event(row: Any) -> dict[str, Any]:
    """An event as it is told outside. States are called as the source calls them, whenever the row was written."""
    head = {
        "sequence": row["sequence"],
        "timestamp": moment(row["at"]),
        "taskId": row["task"],
        "run": row["run"] or None,
    }
    facts = json.loads(row["facts"])
    if row["type"] == "state_transition":
        facts = _transition(facts)
    return {**facts, **head, "type": row["type"]}


def _transition(facts: dict[str, Any]) -> dict[str, Any]:
    """Rows have the names of the state machine; these stand beside, as `state` does beside `status` of a task."""
    about = facts["metadata"]
    before, after = State(facts["from"], about.get("lifted", "")), State(facts["to"], about["hold"])
    named = {"from": machine.status(before), "to": machine.status(after)}
    return {**facts, **named, "fromState": before.state, "toState": after.state}


def prune(workspace: str, order: Iterable[str] = (), keep: int = KEEP) -> None:
    """Keep the newest interval documents, compress older ones; all others stay with their checkpoints.

    `order` are the names from old to new, as their rows say: a clock that was set back gives new ones old names.
    """
    folder = f"{workspace}/{CHECKPOINTS}"
    age = {name: number for number, name in enumerate(order, 1)}
    try:
        found = [name for name in os.listdir(folder) if name.startswith("checkpoint_")]
        for name in found:
            if name.endswith(".new"):  # a supervisor was killed while it compressed; the document is there
                os.unlink(f"{folder}/{name}")
        found = [name for name in found if not name.endswith(".new")]
        names = sorted(found, key=lambda name: (age.get(name.removesuffix(".gz"), 0), name))
        linked = os.path.basename(os.readlink(f"{folder}/latest.json"))
    except OSError:
        return
    interval = [name for name in names if is_interval(name)]
    for name in interval[:-keep]:
        if name != linked:
            with suppress(OSError):
                os.unlink(f"{folder}/{name}")
    for name in names[:-PLAIN]:
        if name != linked and name.endswith(".json") and name not in interval[:-keep]:
            with suppress(OSError):
                with open(f"{folder}/{name}", "rb") as file:
                    replace(f"{folder}/{name}.gz", gzip.compress(file.read(), mtime=0))
                os.unlink(f"{folder}/{name}")


def is_interval(name: str) -> bool:
    """Names without a reason are those of intervals: `checkpoint_<time>.json`, perhaps numbered."""
    stem = name.removesuffix(".gz").removesuffix(".json").removeprefix("checkpoint_")
    return not stem.lstrip("0123456789-T_")


def read(ground: Ground, workspace: str, name: str) -> dict[str, Any]:
    """Read the document of that name, compressed or not. Raises what `load` does."""
    path = f"{workspace}/{CHECKPOINTS}/{name}"
    return load(ground, path if os.path.exists(path) else path + ".gz")


def load(ground: Ground | None, path: str) -> dict[str, Any]:
    """Read a document, migrated to the newest schema. Raises `Damaged` if it was changed, `NewerFormat` if too new."""
    try:
        with open(path, "rb") as file:
            text = file.read(64 << 20)
        if path.endswith(".gz"):
            text = gzip.decompress(text)
        document = json.loads(text)
        code = document.pop("mac", None)
    except (OSError, ValueError, AttributeError, EOFError) as error:
        raise Damaged(f"{path} cannot be read: {error}.") from None
    if ground is not None and not ground.key.is_ours(_canonical(document), code):
        raise Damaged(f"{path} does not carry our code: somebody else wrote or changed it.", "It is not used.")
    return migrate(document, path)


def migrate(document: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Bring an older document to the newest schema. Raises `NewerFormat`."""
    version = document.get("schemaVersion", document.get("version", 0))
    if not isinstance(version, int) or version > VERSION:
        raise NewerFormat(f"{path or 'The document'} has schema version {version}.")
    for number in range(version, VERSION):
        document = MIGRATIONS[number](document)
    return {**_unphased(document), "schemaVersion": VERSION}


def _roles(document: dict[str, Any]) -> dict[str, Any]:
    history = document.get("conversationHistory") or {}
    messages = [{**message, "role": message.get("role", "assistant")} for message in history.get("messages", [])]
    return {**document, "conversationHistory": {**history, "messages": messages}}


def _dependencies(document: dict[str, Any]) -> dict[str, Any]:
    environment = document.get("environment") or {}
    return {**document, "environment": {"variables": {}, "dependencies": [], **environment}}


def _phase(document: dict[str, Any]) -> dict[str, Any]:
    task = dict(document.get("task") or {})
    phase = task.get("currentPhase")
    if isinstance(phase, dict):
        task["currentPhase"] = phase.get("number")
    elif "phase" in task:
        task["currentPhase"] = task.pop("phase")
    return {**document, "task": task} if task else document


def _unphased(document: dict[str, Any]) -> dict[str, Any]:
    """Leave out the phase of messages where the task has none: older documents of the same schema have it as 1."""
    history = document.get("conversationHistory") or {}
    if "task" not in document or document["task"].get("currentPhase") is not None or not history.get("messages"):
        return document
    messages = [
        {**one, "metadata": {key: value for key, value in one["metadata"].items() if key != "phase"}}
        if "phase" in (one.get("metadata") or {})
        else one
        for one in history["messages"]
    ]
    return {**document, "conversationHistory": {**history, "messages": messages}}


MIGRATIONS = (_roles, _dependencies, _phase)


def incremental(base: dict[str, Any], now: dict[str, Any], files: dict[str, list[str]]) -> dict[str, Any]:
    """The source's incremental form: what `now` has that `base` had not. `files` are `newFiles` and `modifiedFiles`."""
    before, after = base["conversationHistory"]["lastMessageIndex"], now["conversationHistory"]["lastMessageIndex"]
    messages = now["conversationHistory"]["messages"]
    fresh = messages[-(after - before) :] if after > before else []
    return {
        "baseCheckpointId": base["id"],
        "changes": {
            # Of very many new messages only the newest are at hand: the index is that of the first one given.
            "conversationHistory": {"newMessages": fresh, "startIndex": after + 1 - len(fresh)},
            "workspace": files,
        },
    }


def moment(nanoseconds: int) -> str:
    """ISO 8601 in UTC, to the millisecond."""
    whole = datetime.fromtimestamp(nanoseconds / 1e9, UTC)
    return whole.strftime("%Y-%m-%dT%H:%M:%S.") + f"{nanoseconds // 1_000_000 % 1000:03d}Z"


def nanoseconds(moment: str) -> int:
    """The other way round."""
    return round(datetime.fromisoformat(moment).timestamp() * 1000) * 1_000_000


def _touched(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


def _message(message: dict[str, Any], has_phases: bool) -> dict[str, Any]:
    about = {key: value for key, value in message["metadata"].items() if has_phases or key != "phase"}
    return {
        "role": message["role"], "content": message["content"], "timestamp": moment(message["at"]), "metadata": about,
    }  # fmt: skip


def progress(task: Task, waiting: Iterable[Prompt], fraction: float) -> int:
    """How far a task is; of a phase that is complete, the agent's own figure no longer counts."""
    complete = completed(task, waiting)
    part = 0.0 if task.phase in complete else fraction
    return machine.progress(len(complete), len(task.phases), part, task.state)


def completed(task: Task, waiting: Iterable[Prompt]) -> list[int]:
    """Phases that are behind a task: one that waits for its review is complete, unless its verification fails."""
    if not task.phases:
        return []
    flagged = any(prompt.kind == "approval" and prompt.flagged for prompt in waiting)
    complete = task.state == machine.DONE or (task.state == machine.REVIEW and not flagged)
    return list(range(1, task.phase + int(complete)))


def _deliverables(workspace: str) -> dict[str, Any]:
    """Names of files, oldest rules first: hidden folders and dependency folders are no deliverables."""
    found: list[tuple[int, str]] = []
    for folder, folders, names in os.walk(workspace):
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and name not in ("node_modules", "__pycache__")
        )
        for name in sorted(names):
            path = os.path.join(folder, name)
            with suppress(OSError):
                found.append((os.lstat(path).st_mtime_ns, os.path.relpath(path, workspace)))
        if len(found) >= MOST_SEEN:
            break
    newest = max([at for at, _ in found], default=0) or _touched(workspace)
    listed = sorted(name.encode("utf-8", "replace").decode() for _, name in sorted(found, reverse=True)[:DELIVERABLES])
    # Names of files look random often enough; only keys of known forms are none.
    return {"deliverables": [clean(name, "id") for name in listed], "lastModified": moment(newest) if newest else None}


def _question(prompt: Prompt) -> dict[str, Any]:
    return {
        "id": prompt.id, "category": prompt.category, "question": prompt.text, "options": prompt.options,
        "default": prompt.standard or None, "required": bool(prompt.required), "createdAt": moment(prompt.created_at),
    }  # fmt: skip


def _need(prompt: Prompt) -> dict[str, Any]:
    return {
        "id": prompt.id, "type": prompt.category, "name": prompt.key, "description": prompt.text,
        "default": prompt.standard or None, "required": bool(prompt.required), "createdAt": moment(prompt.created_at),
    }  # fmt: skip


def signed(ground: Ground, document: dict[str, Any]) -> bytes:
    """A document as it is written, with its code."""
    return json.dumps({**document, "mac": ground.key.code(_canonical(document))}, indent=2, ensure_ascii=False).encode(
        "utf-8", "replace"
    )


def _canonical(document: dict[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def own_folder(workspace: str, name: str) -> str | None:
    """The folder of that name in a workspace, self-ignoring; None if it cannot be had, or is a link."""
    path = f"{workspace}/{name}"
    try:
        if not os.path.isdir(workspace):
            return None
        os.makedirs(path, mode=0o700, exist_ok=True)
        if os.path.islink(path):
            return None  # a link that came with a repository must not lead our writing elsewhere
        if not os.path.exists(path + "/.gitignore"):
            replace(path + "/.gitignore", SUPERVISED_IGNORE)
    except OSError:
        return None
    return path


def replace(path: str, text: bytes) -> None:
    """Write a file beside its place, sync it, and put it there."""
    fresh = f"{path}.{os.getpid()}-{get_native_id()}.new"
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        view = memoryview(text)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    except OSError:
        os.unlink(fresh)
        raise
    finally:
        os.close(fd)
    os.rename(fresh, path)


def point(folder: str, link: str, name: str) -> None:
    """Let a relative link point to a file beside it, at once."""
    fresh = f"{folder}/.{link}.{os.getpid()}-{get_native_id()}"
    with suppress(FileNotFoundError):
        os.unlink(fresh)
    os.symlink(name, fresh)
    os.rename(fresh, f"{folder}/{link}")


def _sync(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
