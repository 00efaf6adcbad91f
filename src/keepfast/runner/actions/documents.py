"""Documents of checkpoints in a workspace, from which a lost database is rebuilt (docs/format/task.md)."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from keepfast.model.errors import Damaged, NewerFormat
from keepfast.runner.actions.folders import CHECKPOINTS, own_folder, point, replace, sync
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.domain.moments import moment

VERSION = 3
KEEP = 10
PLAIN = 3
"""Number of newest documents that are left uncompressed."""


def name(reason: str, phase: int, at: int, number: int = 1) -> str:
    """Return the file name of a checkpoint's document; a `number` above 1 keeps names unique."""
    tail = "" if reason == "interval" else f"_phase{phase}_complete" if reason == "phase_complete" else f"_{reason}"
    stamp = moment(at).replace(":", "-").replace(".", "-").removesuffix("Z")
    return f"checkpoint_{stamp}{f'_{number}' if number > 1 else ''}{tail}.json"


def is_there(workspace: str, name: str) -> bool:
    path = f"{workspace}/{CHECKPOINTS}/{name}"
    return os.path.lexists(path) or os.path.lexists(path + ".gz")


def put(workspace: str, name: str, text: bytes, newest: bool) -> bool:
    """Write a document into its folder, and point `latest.json` to it if it is the newest; False if that failed."""
    folder = own_folder(workspace, CHECKPOINTS)
    if folder is None:
        return False
    try:
        replace(f"{folder}/{name}", text)
        if newest:
            point(folder, "latest.json", name)
        sync(folder)
    except OSError:
        return False
    return True


def prune(workspace: str, order: Iterable[str] = (), keep: int = KEEP, forgotten: Iterable[str] = ()) -> None:
    """Remove old interval documents and those of `forgotten` checkpoints; compress all but the newest of the others.

    `order` has the names from old to new, by their rows: after a clock was set back, new documents have old names.
    The one that `latest.json` points to stays in any case: a lost database is rebuilt from it.
    """
    folder = f"{workspace}/{CHECKPOINTS}"
    age = {name: number for number, name in enumerate(order, 1)}
    try:
        files = [name for name in os.listdir(folder) if name.startswith("checkpoint_")]
        for name in files:
            if name.endswith(".new"):  # a supervisor was killed while it compressed; the original document still exists
                os.unlink(f"{folder}/{name}")
        files = [name for name in files if not name.endswith(".new")]
        names = sorted(files, key=lambda name: (age.get(name.removesuffix(".gz"), 0), name))
        linked = os.path.basename(os.readlink(f"{folder}/latest.json"))
    except OSError:
        return
    interval, without = [name for name in names if is_interval(name)], frozenset(forgotten)
    gone = {*interval[:-keep], *[name for name in names if name.removesuffix(".gz") in without]} - {linked}
    for name in gone:
        with suppress(OSError):
            os.unlink(f"{folder}/{name}")
    names = [name for name in names if name not in gone]
    for name in names[:-PLAIN]:
        if name != linked and name.endswith(".json"):
            with suppress(OSError):
                with open(f"{folder}/{name}", "rb") as file:
                    replace(f"{folder}/{name}.gz", gzip.compress(file.read(), mtime=0))
                os.unlink(f"{folder}/{name}")


def is_interval(name: str) -> bool:
    """Return whether a name has no reason, as those of intervals: `checkpoint_<time>.json`, perhaps numbered."""
    stem = name.removesuffix(".gz").removesuffix(".json").removeprefix("checkpoint_")
    return not stem.lstrip("0123456789-T_")


def read(runtime: Runtime, workspace: str, name: str) -> dict[str, Any]:
    """Read the document of that name, compressed or not. Raises what `load` does."""
    path = f"{workspace}/{CHECKPOINTS}/{name}"
    return load(runtime, path if os.path.exists(path) else path + ".gz")


def load(runtime: Runtime | None, path: str) -> dict[str, Any]:
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
    if runtime is not None and not runtime.key.is_ours(_canonical(document), code):
        raise Damaged(f"{path} has no valid signature: keepfast did not write it, or it was changed.", "It is ignored.")
    return migrate(document, path)


def migrate(document: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Bring an older document to the newest schema. Raises `NewerFormat`."""
    version = document.get("schemaVersion", document.get("version", 0))
    if not isinstance(version, int) or version > VERSION:
        raise NewerFormat(
            f"{path or 'The document'} has schema version {version}, which this keepfast does not support."
        )
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
    """Remove the phase from messages if the task has none: older documents of the same schema have it as 1."""
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
    """Return the incremental form: what `now` has and `base` had not. `files` has `newFiles` and `modifiedFiles`."""
    before, after = base["conversationHistory"]["lastMessageIndex"], now["conversationHistory"]["lastMessageIndex"]
    messages = now["conversationHistory"]["messages"]
    fresh = messages[-(after - before) :] if after > before else []
    return {
        "baseCheckpointId": base["id"],
        "changes": {
            # A document has only the newest messages: the index is that of the first one in it.
            "conversationHistory": {"newMessages": fresh, "startIndex": after + 1 - len(fresh)},
            "workspace": files,
        },
    }


def signed(runtime: Runtime, document: dict[str, Any]) -> bytes:
    """Return the document as bytes, signed with an authentication code."""
    return json.dumps({**document, "mac": runtime.key.code(_canonical(document))}, indent=2, ensure_ascii=False).encode(
        "utf-8", "replace"
    )


def _canonical(document: dict[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
