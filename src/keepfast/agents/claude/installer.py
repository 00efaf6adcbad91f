"""Add our hooks and status line to Claude Code's settings file, or remove them; nothing else in it changes."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from typing import Any, NamedTuple

from keepfast.model.errors import Failed
from keepfast.model.json_text import Part, append, member, parts, remove

SHORT, LONG = 10, 30
"""Seconds after which the client goes on without us. Ours are done long before; a stuck disk must not stop an agent."""

PARTS = 2
"""Parts of the brief: the client cuts each hook's text at 10,000 characters, and runs each command string once."""


WORDS = ("hook", "claude-code")
Command = Callable[..., str]


class Hook(NamedTuple):
    """How one event of the client is hooked."""

    timeout: int
    parts: int = 0
    is_async: bool = False
    is_detached: bool = False
    """Started in a session of its own, which the client cannot end; its output is dropped."""


HOOKS = {
    "SessionStart": Hook(LONG, parts=PARTS),
    "UserPromptSubmit": Hook(SHORT),
    "PreToolUse": Hook(LONG),
    # The client waits: the next call must not change what this one is to be told of.
    "PostToolUse": Hook(SHORT),
    "PostToolUseFailure": Hook(SHORT),
    "Stop": Hook(LONG),
    # A headless client that fails kills this one within a third of a second: too early for a busy machine.
    "StopFailure": Hook(SHORT, is_detached=True),
    "SubagentStop": Hook(SHORT),
    "PreCompact": Hook(LONG),
    # A time limit in a settings file raises the client's own, which is 1.5 s for everybody together.
    "SessionEnd": Hook(SHORT),
}
# The launcher, or what older settings name: Python and our program, or the command for people.
_HOOK = re.compile(r"(?:launch|launch\.py|keepfast)['\"]?(?: detach)? hook claude-code(?:\s|$)")
_STATUS_LINE = re.compile(r"(?:launch|launch\.py|keepfast)['\"]? statusline(?:\s|$)")
THEN = "--then"


class Found(NamedTuple):
    """What a settings file holds."""

    events: list[str]
    commands: list[str]
    foreign: int
    """Number of hooks that are not ours."""
    statusline: str
    """Our status line's command; empty if there is none."""
    disabled: bool


def hooks_for(command: Command) -> dict[str, list[dict[str, Any]]]:
    """Return our entries by event. `command` makes the command that serves them all, from its last words."""
    return {event: [{"hooks": _entries(command, hook)}] for event, hook in HOOKS.items()}


def look(text: str, name: str) -> Found:
    """Return what the settings file holds. Raises `Failed` if it is not a settings file."""
    settings = _checked(text, name)
    entries = [
        (event, entry)
        for event, groups in settings.get("hooks", {}).items()
        for group in groups
        for entry in _hooks_of(group)
    ]
    ours = [(event, entry) for event, entry in entries if _is_ours(entry)]
    line = settings.get("statusLine")
    command = line.get("command", "") if isinstance(line, dict) else ""
    return Found(
        list(dict.fromkeys(event for event, _ in ours)),
        list(dict.fromkeys(str(entry["command"]) for _, entry in ours)),
        len(entries) - len(ours),
        command if isinstance(command, str) and _STATUS_LINE.search(command) else "",
        settings.get("disableAllHooks") is True,
    )


def with_hooks(text: str, name: str, command: Command) -> str:
    """Return the text with our hooks in it, each once. It is the same text if they are all there already."""
    settings = _checked(text, name)
    our_hooks = hooks_for(command)
    if _ours_in(settings) == {event: groups[0]["hooks"] for event, groups in our_hooks.items()}:
        return text
    text = _some(without_hooks(text, name))
    if member(text, _opening(text), "hooks") is None:
        return append(text, _opening(text), our_hooks, "hooks")
    for event, groups in our_hooks.items():
        at = _value(text, "hooks")
        group_list = member(text, at, event)
        text = append(text, group_list.value, groups[0]) if group_list else append(text, at, groups, event)
    return text


def without_hooks(text: str, name: str) -> str:
    """Return the text without our hooks, and without the lists that held nothing else."""
    _checked(text, name)
    while (place := _first_of_ours(text)) is not None:
        event, group, hook = place
        text = _take_out(text, event, group, hook)
    return text


def with_status_line(text: str, name: str, command: Callable[[str], str]) -> str:
    """Return the text with our status line, in front of the user's own if there is one, which `command` is told."""
    settings = _checked(text, name)
    line = settings.get("statusLine")
    if line is None:
        text = _some(text)
        return append(text, _opening(text), {"type": "command", "command": command(""), "padding": 0}, "statusLine")
    own = line.get("command") if isinstance(line, dict) else None
    if not isinstance(own, str):
        raise Failed(f"`statusLine` in {name} is of an unknown form.", "Nothing was changed.")
    return _with_command(text, command(_own(own) if _STATUS_LINE.search(own) else own))


def without_status_line(text: str, name: str) -> str:
    """Return the text with the user's own status line again, or with none."""
    if not look(text, name).statusline:
        return text
    own = _own(look(text, name).statusline)
    if own:
        return _with_command(text, own)
    at = _opening(text)
    index = next(index for index, part in enumerate(parts(text, at)) if part.key == "statusLine")
    return remove(text, at, index)


def _entries(command: Command, hook: Hook) -> list[dict[str, Any]]:
    words = ["detach", *WORDS] if hook.is_detached else [*WORDS]
    commands = [command(*words, "--part", str(part)) for part in range(1, hook.parts + 1)] or [command(*words)]
    more = {"async": True} if hook.is_async else {}
    return [{"type": "command", "command": each, "timeout": hook.timeout, **more} for each in commands]


def _checked(text: str, name: str) -> dict[str, Any]:
    """Return the settings if all that we change in them has the form that we know. Raises `Failed` otherwise."""
    if not text.strip():
        return {}
    advice = "Fix it and try again; nothing was changed."
    try:
        settings = json.loads(text)
    except ValueError as error:
        raise Failed(f"{name} is not valid JSON: {error}.", advice) from None
    except RecursionError:
        raise Failed(f"{name} is nested too deeply.", advice) from None
    if not isinstance(settings, dict):
        raise Failed(f"{name} is not a JSON object.", advice)
    hooks = settings.get("hooks", {})
    if not isinstance(hooks, dict):
        raise Failed(f"`hooks` in {name} is not an object.", advice)
    for event, groups in hooks.items():
        if not isinstance(groups, list):
            raise Failed(f"`hooks.{event}` in {name} is not a list.", advice)
    return settings


def _hooks_of(group: object) -> list[Any]:
    hooks = group.get("hooks") if isinstance(group, dict) else None
    return hooks if isinstance(hooks, list) else []


def _is_ours(entry: object) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("command"), str):
        return False
    arguments = entry.get("args")
    words = [entry["command"], *(arguments if isinstance(arguments, list) else [])]
    return _HOOK.search(" ".join(map(str, words))) is not None


def _ours_in(settings: dict[str, Any]) -> dict[str, list[Any]]:
    entries_by_event = {
        event: [entry for group in groups for entry in _hooks_of(group) if _is_ours(entry)]
        for event, groups in settings.get("hooks", {}).items()
    }
    return {event: entries for event, entries in entries_by_event.items() if entries}


def _first_of_ours(text: str) -> tuple[str, int, int] | None:
    settings = json.loads(text) if text.strip() else {}
    for event, groups in settings.get("hooks", {}).items():
        for index, group in enumerate(groups):
            for number, entry in enumerate(_hooks_of(group)):
                if _is_ours(entry):
                    return event, index, number
    return None


def _take_out(text: str, event: str, group: int, hook: int) -> str:
    """Return the text without one hook, and without its group, its event and `hooks` as far as they are empty then."""

    def at_root() -> int:
        return _opening(text)

    def at_hooks() -> int:
        return _value(text, "hooks")

    def at_event() -> int:
        return _known(member(text, at_hooks(), event)).value

    def at_group() -> int:
        return _known(member(text, parts(text, at_event())[group].value, "hooks")).value

    steps: list[tuple[Callable[[], int], int]] = [
        (at_group, hook),
        (at_event, group),
        (at_hooks, _index(text, at_hooks(), event)),
        (at_root, _index(text, at_root(), "hooks")),
    ]
    for container, index in steps:
        at = container()
        text = remove(text, at, index)
        if parts(text, at):
            break
    return text


def _with_command(text: str, command: str) -> str:
    place = _known(member(text, _value(text, "statusLine"), "command"))
    return text[: place.value] + json.dumps(command, ensure_ascii=False) + text[place.end :]


def _own(command: str) -> str:
    """Return the user's own status line, which ours names at its end; empty if there is none."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""  # somebody has put ours into a command of another kind
    return words[-1] if THEN in words[-2:-1] else ""


def _some(text: str) -> str:
    return text if text.strip() else "{}\n"


def _opening(text: str) -> int:
    return text.index("{")


def _value(text: str, key: str) -> int:
    return _known(member(text, _opening(text), key)).value


def _index(text: str, at: int, key: str) -> int:
    return max(index for index, part in enumerate(parts(text, at)) if part.key == key)


def _known(part: Part | None) -> Part:
    assert part is not None
    return part
