"""Secrets in texts that people give a task: sealed before anything is written, replaced by marks, and revealed to its agent.

A text has a mark (`[redacted:<kind>#<id>]`) in the place of each secret; the sealed value is a row of the task. Every
value of `agent.set` is sealed in place. Only the start of the agent puts the values back.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from keepfast.model.errors import Damaged, KeepfastError, WrongKey
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.db import queries
from keepfast.runner.db.rows import MARKED
from keepfast.runner.db.tables import Tables
from keepfast.runner.domain.records import Agent, Task
from keepfast.runner.process.redaction import KINDS, MARK, SEALED, is_secret, is_telling, option_before, spans

SIGNS = str.maketrans("?!.,:;()[]\"'`", " " * 13)
LIKELY = "Xq7-29fk3Lm"
"""A sample value that is a secret only next to a word that names one."""
COLUMNS = ("title", "brief", "phases", "agent")
"""Columns of a task that people write."""


class Marked(NamedTuple):
    """A value with marks in the place of its secrets, and the sealed secrets by the marks' ids."""

    value: Any
    sealed: dict[str, str]


def mark(runtime: Runtime, value: Any, name: str = "") -> Marked:
    """Seal the secrets in a text, or in the texts of a list or an object; `name` is the name of the value."""
    sealed: dict[str, str] = {}
    return Marked(_marked(runtime, value, name, sealed), sealed)


def secret_name(question: str) -> str:
    """Return the word of a question that names a secret, as in "What is the password of the shop?"; empty if none does."""
    words = [word for word in question.translate(SIGNS).split() if word]
    pairs = [f"{one}_{two}" for one, two in pairwise(words)]
    return next((word for word in (*words, *pairs) if is_secret(word, LIKELY)), "")


def mark_columns(runtime: Runtime, columns: Mapping[str, Any]) -> Marked:
    """Seal the secrets in a task's `COLUMNS`. Every value of `agent.set` is sealed, whatever it looks like."""
    agent = columns["agent"]
    marked = mark(runtime, {**columns, "agent": {name: value for name, value in agent.items() if name != "set"}})
    if "set" in agent:
        marked.value["agent"]["set"] = {
            str(name): _sealed(runtime, str(name), str(value)) for name, value in agent["set"].items()
        }
    return marked


def store(tables: Tables, task: str, marked: Marked, now: int) -> Any:
    """Store the sealed secrets and return the marked value. Inside a transaction."""
    for id, sealed in marked.sealed.items():
        tables.keep_secret(task, id, sealed, MARKED, now)
    return marked.value


def reveal(runtime: Runtime, task: str, value: Any) -> Any:
    """Replace the marks in a value with the task's secrets. Raises `WrongKey` if the key is missing."""
    if isinstance(value, str):
        marked_values = _known(runtime, task) if MARK.search(value) else {}
        return MARK.sub(lambda match: marked_values.get(match[1], match[0]), value)
    if isinstance(value, dict):
        return {name: reveal(runtime, task, item) for name, item in value.items()}
    if isinstance(value, list):
        return [reveal(runtime, task, item) for item in value]
    return value


def open_agent(runtime: Runtime, task: Task) -> Agent:
    """Return the task's `agent` with its secrets. Raises `WrongKey` if the key is missing."""
    agent: Agent = reveal(runtime, task.id, task.agent)
    if "set" in agent:
        agent["set"] = {name: _opened(runtime, name, value) for name, value in task.agent["set"].items()}
    return agent


def agent_of(runtime: Runtime, task: Task) -> Agent:
    """Return the task's `agent` with its secrets, or without them if they cannot be decrypted: for callers that start nothing."""
    try:
        return open_agent(runtime, task)
    except KeepfastError:
        return {**task.agent, "set": {}}


def secret_values(runtime: Runtime, task: Task) -> list[str]:
    """Return all secrets of a task, decrypted, to redact them elsewhere."""
    values = [runtime.seals.open_value(row.name, row.sealed) for row in queries.secrets_of(runtime.tables, task.id)]
    texts = [value.decode("utf-8", "surrogateescape") for value in values]
    chosen = open_agent(runtime, task).get("set", {})
    return [*texts, *[value for name, value in chosen.items() if is_telling(name, value)]]


def why_unavailable(runtime: Runtime, task: Task) -> str:
    """Return why the secrets of a task cannot be decrypted now, if a retry may help; empty if they can, or never will."""
    try:
        secret_values(runtime, task)
    except (WrongKey, Damaged):
        return ""  # the key is missing, or the sealed value was changed
    except (KeepfastError, OSError) as error:
        return str(error)
    return ""


def seal_older(runtime: Runtime) -> None:
    """Seal the secrets that older versions stored in the clear."""
    for task in runtime.tables.tasks():
        before = {name: getattr(task, name) for name in COLUMNS}
        marked = mark_older(runtime, before)
        if marked.value != before:
            with runtime.tables.write() as tables:
                tables.change(task.id, task.updated_at, **store(tables, task.id, marked, runtime.now()))


def mark_older(runtime: Runtime, columns: Mapping[str, Any]) -> Marked:
    """Seal the secrets in a row or a document that may be of an older version; sealed values stay as they are."""
    own = {name: columns[name] for name in COLUMNS}
    chosen = own["agent"].get("set", {})
    if not all(SEALED.fullmatch(str(value)) for value in chosen.values()):
        return mark_columns(runtime, own)
    marked = mark_columns(
        runtime, {**own, "agent": {name: value for name, value in own["agent"].items() if name != "set"}}
    )
    if "set" in own["agent"]:
        marked.value["agent"]["set"] = chosen
    return marked


def _marked(runtime: Runtime, value: Any, name: str, sealed: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _marked(runtime, item, str(key), sealed) for key, item in value.items()}
    if isinstance(value, list):
        return [_marked(runtime, item, option_before(value, number), sealed) for number, item in enumerate(value)]
    if not isinstance(value, str):
        return value
    secrets = spans(value)
    if not secrets and is_secret(name, value):
        secrets = [(0, len(value), "secret")]
    parts, at = [], 0
    for start, end, kind in secrets:
        id = os.urandom(6).hex()
        sealed[id] = _sealed(runtime, id, value[start:end])
        parts += [value[at:start], f"[redacted:{kind if kind in KINDS else 'secret'}#{id}]"]
        at = end
    return "".join([*parts, value[at:]])


def _sealed(runtime: Runtime, name: str, value: str) -> str:
    return runtime.seals.seal_value(name, value.encode("utf-8", "surrogateescape"))


def _opened(runtime: Runtime, name: str, value: Any) -> str:
    if not str(value).startswith("encrypted:"):
        return str(value)  # a row of an older version
    return runtime.seals.open_value(name, str(value)).decode("utf-8", "surrogateescape")


def _known(runtime: Runtime, task: str) -> dict[str, str]:
    rows = [row for row in queries.secrets_of(runtime.tables, task) if row.type == MARKED]
    return {row.name: runtime.seals.open_value(row.name, row.sealed).decode("utf-8", "surrogateescape") for row in rows}
