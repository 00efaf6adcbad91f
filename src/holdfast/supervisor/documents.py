"""What a workspace itself tells of its task: files that a lost database is rebuilt from (docs/format/task.md)."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import Damaged, NewerFormat
from holdfast.core.redact import redact
from holdfast.supervisor import task as machine
from holdfast.supervisor.tables import Run, Task
from holdfast.workspace.capture import OWN_IGNORE

if TYPE_CHECKING:
    from holdfast.supervisor.ground import Ground
    from holdfast.supervisor.reading import Output

VERSION = 3
KEEP = 10
METADATA, CHECKPOINTS, LOGS = ".metadata", ".checkpoints", ".logs"
BY = {"interval": "auto", "user_pause": "user", "cancel": "user", "manual": "user"}
PLAIN = 3
"""So many of the newest documents are left uncompressed."""
DELIVERABLES = 500
COLUMNS = (
    "id", "title", "type", "brief", "workspace", "workspace_id", "agent", "phases", "budget", "priority", "after", "needs",
    "state", "phase", "attempt", "reworks", "session", "tokens", "money", "seconds", "fork_of", "created_at", "started_at",
)  # fmt: skip


def prepare(workspace: str) -> None:
    """Make our folders before anything is saved, so that their coming is no change of the workspace."""
    for name in (METADATA, CHECKPOINTS, LOGS):
        own_folder(workspace, name)


def write(
    ground: Ground,
    task: Task,
    run: Run | None,
    reason: str,
    checkpoint: str,
    output: Output | None,
    kept: dict[str, Any] | None = None,
) -> tuple[str, int]:
    """Write the document of a checkpoint, then `latest.json`; return its name and size. A failure is not fatal.

    `kept` is where the whole conversation lies in the store.
    """
    document = describe(ground, task, run, reason, checkpoint, output, kept)
    folder = own_folder(task.workspace, CHECKPOINTS)
    if folder is None:
        return "", 0
    text = _signed(ground, document)
    tail = (
        "" if reason == "interval" else f"_phase{task.phase}_complete" if reason == "phase_complete" else f"_{reason}"
    )
    stamp = moment(ground.now()).replace(":", "-").replace(".", "-").removesuffix("Z")
    name = f"checkpoint_{stamp}{tail}.json"
    number = 1
    try:
        while os.path.lexists(f"{folder}/{name}") or os.path.lexists(f"{folder}/{name}.gz"):
            number += 1
            name = f"checkpoint_{stamp}_{number}{tail}.json"
        replace(f"{folder}/{name}", text)
        point(folder, "latest.json", name)
        _sync(folder)
    except OSError:
        return "", 0
    return name, len(text)


def describe(
    ground: Ground,
    task: Task,
    run: Run | None,
    reason: str,
    checkpoint: str,
    output: Output | None,
    kept: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The document of a checkpoint: the source's fields, redacted and bounded, and a schema version."""
    tables = ground.tables
    state = tables.state(task)
    prompts = tables.prompts("task = ? AND status IN ('pending', 'presented')", task.id)
    secrets = tables.all("SELECT name, type, sealed, given_at FROM secret WHERE task = ? ORDER BY name", task.id)
    messages = _messages(task, run, output, ground.now())
    return {
        "schemaVersion": VERSION,
        "id": checkpoint,
        "taskId": task.id,
        "createdAt": moment(ground.now()),
        "createdBy": BY.get(reason, "system"),
        "reason": reason,
        "task": {
            "status": machine.status(state),
            "type": task.type,
            "currentPhase": task.phase if task.phases else None,
            "progress": machine.progress(task.phase, max(len(task.phases), 1), task.fraction, task.state),
        },
        "agent": {
            "status": machine.agent_status(state, run.state if run else ""),
            "pid": run.pid if run else None,
            "currentPhase": task.phase if task.phases else None,
            "currentStep": task.step or None,
            "tokensUsed": task.tokens,
            "blockedBy": state.hold or None,
        },
        "conversationHistory": {
            "messages": messages,
            "lastMessageIndex": (output.count if output else len(messages)) - 1,
            "session": run.session if run else task.session,
            "digest": kept["content"] if kept is not None else None,
            "bytes": kept["bytes"] if kept is not None else None,
        },
        "environment": {
            "variables": {row["name"]: row["sealed"] for row in secrets},
            "dependencies": [
                {"type": row["type"], "name": row["name"], "providedAt": moment(row["given_at"])} for row in secrets
            ],
        },
        "workspace": {"path": task.workspace, **_deliverables(task.workspace)},
        "protocols": {
            "pendingDependencies": [_pending(prompt) for prompt in prompts if prompt.kind == "secret"],
            "pendingQuestions": [_pending(prompt) for prompt in prompts if prompt.kind == "question"],
            "completedPhases": list(range(1, task.phase)) if task.phases else [],
        },
    }


def project(ground: Ground, id: str) -> None:
    """Bring `.metadata/` up to date: the task's row and its newest events. A failure costs the copy, nothing else."""
    from holdfast.supervisor import logs

    tables = ground.tables
    task = tables.task(id)
    folder = own_folder(task.workspace, METADATA)
    if folder is None:
        return
    hold = tables.hold(id)
    document = {name: getattr(task, name) for name in COLUMNS}
    document |= {
        "schemaVersion": VERSION,
        "status": machine.status(tables.state(task)),
        "hold": hold.kind if hold else None,
        "updatedAt": moment(task.updated_at),
        "secrets": {
            row["name"]: row["sealed"] for row in tables.all("SELECT name, sealed FROM secret WHERE task = ?", id)
        },
        "questions": [
            {**_pending(prompt), "answer": prompt.answer, "status": prompt.status, "delivered": bool(prompt.delivered)}
            for prompt in tables.prompts("task = ? AND kind = 'question'", id)
        ],
    }
    try:
        replace(f"{folder}/task.json", _signed(ground, document))
        logs.extend(ground, id, f"{folder}/history.jsonl", line)
    except OSError:
        pass


def line(told: dict[str, Any]) -> str:
    return json.dumps(told, ensure_ascii=False)


def event(row: Any) -> dict[str, Any]:
    """An event as it is told outside."""
    head = {
        "sequence": row["sequence"],
        "timestamp": moment(row["at"]),
        "taskId": row["task"],
        "run": row["run"] or None,
    }
    return {**json.loads(row["facts"]), **head, "type": row["type"]}


def prune(workspace: str, order: Iterable[str] = (), keep: int = KEEP) -> None:
    """Keep the newest interval documents, compress older ones; all others stay with their checkpoints.

    `order` are the names from old to new, as their rows say: a clock that was set back gives new ones old names.
    """
    folder = f"{workspace}/{CHECKPOINTS}"
    age = {name: number for number, name in enumerate(order, 1)}
    try:
        found = [name for name in os.listdir(folder) if name.startswith("checkpoint_")]
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
    return {**document, "schemaVersion": VERSION}


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


MIGRATIONS = (_roles, _dependencies, _phase)


def incremental(base: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """The source's incremental form: what `now` has that `base` had not."""
    before, after = base["conversationHistory"], now["conversationHistory"]
    start = before["lastMessageIndex"] + 1
    fresh = max(after["lastMessageIndex"] - before["lastMessageIndex"], 0)
    old = set(base["workspace"]["deliverables"])
    since = base["workspace"]["lastModified"] or ""
    files = now["workspace"]["deliverables"]
    return {
        "baseCheckpointId": base["id"],
        "changes": {
            "conversationHistory": {"newMessages": after["messages"][-fresh:] if fresh else [], "startIndex": start},
            "workspace": {
                "newFiles": [name for name in files if name not in old],
                "modifiedFiles": [name for name in files if name in old and _modified(now, name) > since],
            },
        },
    }


def _modified(document: dict[str, Any], name: str) -> str:
    try:
        return moment(os.stat(f"{document['workspace']['path']}/{name}").st_mtime_ns)
    except OSError:
        return ""


def moment(nanoseconds: int) -> str:
    """ISO 8601 in UTC, to the millisecond."""
    whole = datetime.fromtimestamp(nanoseconds / 1e9, UTC)
    return whole.strftime("%Y-%m-%dT%H:%M:%S.") + f"{nanoseconds // 1_000_000 % 1000:03d}Z"


def _messages(task: Task, run: Run | None, output: Output | None, now: int) -> list[dict[str, Any]]:
    stamp = moment(run.started_at if run else now)
    found: list[dict[str, Any]] = []
    if run is not None:
        found.append(
            {"role": "user", "content": redact(run.prompt[:4000]), "timestamp": stamp, "metadata": {"phase": run.phase}}
        )
    for message in output.messages if output is not None else []:
        if "struck" not in message:
            message["struck"] = redact(message["content"])  # once: a run's messages are told of at every checkpoint
        found.append({
            "role": message["role"], "content": message["struck"], "timestamp": stamp,
            "metadata": {"phase": task.phase, "step": task.step or None, "type": message["type"]},
        })  # fmt: skip
    return found


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
        if len(found) >= 4 * DELIVERABLES:
            break
    newest = max([at for at, _ in found], default=0)
    listed = sorted(name.encode("utf-8", "replace").decode() for _, name in sorted(found, reverse=True)[:DELIVERABLES])
    return {"deliverables": listed, "lastModified": moment(newest) if newest else None}


def _pending(prompt: Any) -> dict[str, Any]:
    return {
        "id": prompt.id, "kind": prompt.kind, "name": prompt.key if prompt.kind == "secret" else None, "question": prompt.text,
        "category": prompt.category, "options": prompt.options, "default": prompt.standard or None,
        "required": bool(prompt.required), "createdAt": moment(prompt.created_at),
    }  # fmt: skip


def _signed(ground: Ground, document: dict[str, Any]) -> bytes:
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
            replace(path + "/.gitignore", OWN_IGNORE)
    except OSError:
        return None
    return path


def replace(path: str, text: bytes) -> None:
    """Write a file beside its place, sync it, and put it there."""
    fresh = f"{path}.{os.getpid()}.new"
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
    fresh = f"{folder}/.{link}.{os.getpid()}"
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
