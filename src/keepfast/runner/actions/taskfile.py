"""Task files, JSON or TOML, checked and completed with defaults (docs/format/task.md)."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, cast

from keepfast.model.errors import Usage
from keepfast.runner.domain.protocol import is_variable
from keepfast.runner.domain.questions import TASK_WEIGHT
from keepfast.runner.domain.records import Agent, Limits, Phase, TaskSpec
from keepfast.runner.domain.task import TYPES
from keepfast.runner.process.redaction import clean_text

KEYS = ("name", "title", "type", "brief", "workspace", "agent", "phases", "budget", "priority", "after", "secrets")
PHASE_KEYS = ("name", "prompt", "verify", "review")
BUDGET_KEYS = ("tokens", "money", "minutes")
AGENT_KEYS = (
    "kind", "command", "model", "permission_mode", "allowed_tools", "arguments", "environment", "set", "resume_with",
    "completes_on", "limit_windows", "input",
)  # fmt: skip
MODES = ("default", "acceptEdits", "bypassPermissions", "plan", "dontAsk", "auto")
MAX_FILE_BYTES = 1 << 20
STANDARD_PHASES = {
    "create_app": ["Planning", "Design", "Implementation", "Testing"],
    "modify_app": ["Analysis", "Plan", "Implementation", "Testing"],
}


def read(path: str) -> list[TaskSpec]:
    """Return the tasks of a file, checked, each after those it waits for. Raises `Usage` that names file and key."""
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise Usage(f"The task file {path} cannot be read: {error.strerror}.") from None
    if len(text) > MAX_FILE_BYTES:
        raise Usage(f"The task file {path} is larger than {MAX_FILE_BYTES >> 20} MB.")
    try:
        content: Any = tomllib.loads(text.decode("utf-8")) if path.endswith(".toml") else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Usage(
            f"Invalid task file {path}: {error}.", "A task file is JSON, or TOML if its name ends in `.toml`."
        ) from None
    if not isinstance(content, dict):
        raise Usage(f"{path} must contain one object.")
    rows = content.get("tasks") if "tasks" in content else [content]
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise Usage(f"{path}: `tasks` must be a list of tasks.")
    if "tasks" in content and len(content) > 1:
        raise Usage(f"{path}: no other key is allowed next to `tasks`.")
    base = os.path.dirname(os.path.abspath(path))
    return ordered([check(row, base, f"{path}: ") for row in rows], path)


def check(row: Mapping[str, Any], base: str, where: str = "") -> TaskSpec:
    """Return a task with every key in its type and every default filled in. Raises `Usage`."""
    _only(row, KEYS, where)
    kind = _choice(row.get("type", "custom"), TYPES, where + "type")
    brief = _text(row.get("brief", ""), where + "brief")
    phases = _phases(row.get("phases"), kind, where)
    if not brief and not any(phase["prompt"] for phase in phases):
        raise Usage(f"{where}a task needs a `brief`.", "Describe the work in `brief`.")
    workspace = _text(row.get("workspace", "."), where + "workspace")
    workspace = os.path.realpath(os.path.join(base, workspace))
    if not os.path.isdir(workspace):
        raise Usage(f"{where}folder {workspace} does not exist.", "Create it, or give another `workspace`.")
    title = _text(row.get("title", ""), where + "title") or head(brief or phases[0]["prompt"])
    return TaskSpec(
        name=_text(row.get("name", ""), where + "name"),
        title=title,
        type=kind,
        brief=brief,
        workspace=workspace,
        agent=_agent(row.get("agent", {}), where),
        phases=phases,
        budget=_budget(row.get("budget", {}), where),
        priority=_choice(row.get("priority", "normal"), tuple(TASK_WEIGHT), where + "priority"),
        after=_texts(row.get("after", []), where + "after"),
        secrets=_names(row.get("secrets", []), where + "secrets"),
    )


def head(text: str) -> str:
    """Return the beginning of a text's first line, redacted before it is cut: half a key would not be recognised."""
    return clean_text(text.strip().split("\n")[0])[:80]


def ordered(tasks: list[TaskSpec], path: str) -> list[TaskSpec]:
    """Return each task after those that it waits for. Raises `Usage` on duplicate names and on cycles."""
    names = [task.name for task in tasks if task.name]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Usage(f"{path}: two tasks have the name {twice[0]!r}.")
    done: list[TaskSpec] = []
    left = list(tasks)
    while left:
        ready = [task for task in left if not any(other.name in task.after for other in left if other.name)]
        if not ready:
            cycle = " → ".join([task.name or task.title for task in left])
            raise Usage(f"{path}: these tasks wait for one another: {cycle}.", "Remove one `after`.")
        done += ready
        left = [task for task in left if task not in ready]
    return done


def _phases(value: Any, kind: str, where: str) -> list[Phase]:
    if value is None:
        value = [{"name": name} for name in STANDARD_PHASES.get(kind, [])]
    if not isinstance(value, list):
        raise Usage(f"{where}phases must be a list.")

    phases: list[Phase] = []
    for number, phase in enumerate(value, 1):
        here = f"{where}phases[{number}]."
        if not isinstance(phase, Mapping):
            raise Usage(f"{where}phases[{number}] must be an object.")
        _only(phase, PHASE_KEYS, here)
        review = phase.get("review", True)
        if not isinstance(review, bool):
            raise Usage(f"{here}review must be true or false.")
        phases.append({
            "name": _text(phase.get("name", f"Phase {number}"), here + "name"),
            "prompt": _text(phase.get("prompt", ""), here + "prompt"),
            "verify": _text(phase.get("verify", ""), here + "verify"),
            "review": review,
        })  # fmt: skip
    return phases


def _agent(value: Any, where: str) -> Agent:
    if isinstance(value, str):
        value = {"kind": value}
    if not isinstance(value, Mapping):
        raise Usage(f"{where}agent must be a name or an object.")
    _only(value, AGENT_KEYS, where + "agent.")
    agent = dict(value)
    if "command" in agent:
        agent["command"] = _texts(agent["command"], where + "agent.command")
        if not agent["command"]:
            raise Usage(f"{where}agent.command is empty.")
    agent.setdefault("kind", "command" if "command" in agent else "claude")
    _choice(agent["kind"], ("claude", "command"), where + "agent.kind")
    if agent["kind"] == "command" and "command" not in agent:
        raise Usage(f"{where}agent.command is missing.")
    if "permission_mode" in agent:
        _choice(agent["permission_mode"], MODES, where + "agent.permission_mode")
    if "resume_with" in agent:
        _choice(agent["resume_with"], ("history", "brief", "auto"), where + "agent.resume_with")
    _choice(agent.setdefault("completes_on", "marker"), ("marker", "exit"), where + "agent.completes_on")
    _choice(agent.setdefault("input", "prompt"), ("prompt", "brief", "none"), where + "agent.input")
    for key in ("allowed_tools", "arguments", "environment"):
        if key in agent:
            agent[key] = _texts(agent[key], f"{where}agent.{key}")
    if not isinstance(agent.get("set", {}), Mapping):
        raise Usage(f"{where}agent.set must be an object.")

    return cast(Agent, agent)


def _budget(value: Any, where: str) -> Limits:
    if not isinstance(value, Mapping):
        raise Usage(f"{where}budget must be an object.")
    _only(value, BUDGET_KEYS, where + "budget.")
    for key, amount in value.items():
        if isinstance(amount, bool) or not isinstance(amount, int | float) or amount < 0:
            raise Usage(f"{where}budget.{key} must be a number, 0 or more.")
    return {
        "tokens": int(value.get("tokens", 0)),
        "money": float(value.get("money", 0)),
        "seconds": int(float(value.get("minutes", 0)) * 60),
    }


def _only(row: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
    for key in row:
        if key not in keys:
            suggestions = get_close_matches(str(key), keys, 1)
            raise Usage(
                f"{where}unknown key {key!r}.",
                f"Did you mean {suggestions[0]!r}?" if suggestions else f"Known keys: {', '.join(keys)}.",
            )


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise Usage(f"{where} must be a string.")
    if "\0" in value:
        raise Usage(f"{where} contains a NUL character.")
    return value


def _texts(value: Any, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) and "\0" not in item for item in value):
        raise Usage(f"{where} must be a list of strings.")
    return list(value)


def _names(value: Any, where: str) -> list[str]:
    """Check names of variables. The error does not repeat an invalid one: it may be the value."""
    names = _texts(value, where)
    for number, name in enumerate(names, 1):
        if not is_variable(name):
            raise Usage(
                f"{where}[{number}] is not a valid name of an environment variable.",
                "Run `keepfast task secret` to provide the value.",
            )
    return names


def _choice(value: Any, choices: tuple[str, ...], where: str) -> str:
    if value not in choices:
        raise Usage(f"{where} = {value!r} is not allowed.", f"Choose one of {', '.join(choices)}.")
    return str(value)
