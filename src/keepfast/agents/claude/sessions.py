"""Claude Code's transcripts: where they lie, which message is the last, and how one becomes another session's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from re import compile, escape
from typing import Any

from keepfast.model.strict_json import dumps, loads

MESSAGES = ("user", "assistant")
UNSAID = ("isSidechain", "isMeta", "isCompactSummary")
COMMANDS = ("<local-command", "<command-name>", "<command-message>", "Caveat:")
"""Beginnings of entries about the client's own commands."""
SIGNED = ("thinking", "redacted_thinking")
"""Blocks that the model's provider has signed: it would refuse a changed one."""
MAX_LINES = 2_000
"""Lines from the end in which the last message is searched: other lines come in between."""


def last_message(lines: bytes) -> str:
    """Return the id of the last message of the main conversation in these lines; empty if there is none."""
    for line in lines.split(b"\n")[: -MAX_LINES - 1 : -1]:
        # A quick look first: most lines are of other kinds, and some are megabytes long.
        if b'"uuid"' not in line:
            continue
        entry = _entry(line)
        if entry.get("type") in MESSAGES and not entry.get("isSidechain") and isinstance(entry.get("uuid"), str):
            return str(entry["uuid"])
    return ""


def has_message(lines: bytes) -> bool:
    """Return whether somebody says something of the main conversation in these lines.

    What the client writes in a person's or the model's place, such as its own commands, is not said by anybody.
    """
    for line in lines.split(b"\n"):
        if b'"user"' not in line and b'"assistant"' not in line:
            continue
        entry = _entry(line)
        if entry.get("type") not in MESSAGES or any(entry.get(mark) for mark in UNSAID):
            continue
        message = entry.get("message")
        message = message if isinstance(message, dict) else {}
        if message.get("model") != "<synthetic>" and not _first_text(message.get("content")).startswith(COMMANDS):
            return True
    return False


def folder(home: str, variables: Mapping[str, str], cwd: str) -> str:
    """Return the folder in which the client looks for the sessions of the folder `cwd`."""
    base = variables.get("CLAUDE_CONFIG_DIR") or home + "/.claude"
    # The client counts as its language does: a character outside of the first 65,536 is two.
    units = cwd.encode("utf-16-le", "surrogatepass")
    pairs = [units[at : at + 2] for at in range(0, len(units), 2)]
    name = [
        chr(pair[0]) if pair[1] == 0 and chr(pair[0]).isascii() and chr(pair[0]).isalnum() else "-" for pair in pairs
    ]
    return f"{base}/projects/{''.join(name)}"


def base_of(path: str) -> str:
    """Return the client's own folder, from the path of a transcript in it; empty if it lies elsewhere."""
    base, separator, _ = path.rpartition("/projects/")
    return base if separator else ""


def forked(lines: Iterable[bytes], session: str, places: Sequence[tuple[str, str]]) -> Iterator[bytes]:
    """Yield the lines of a transcript as those of another session, with paths moved as `places` say.

    Lines that are no JSON objects are left out: the client could not read them either.
    """
    moving = _Moving(places)
    for line in lines:
        entry = _entry(line)
        if not entry:
            continue
        moved = moving.value(entry)
        if "sessionId" in moved:
            moved["sessionId"] = session
        if "session_id" in moved:
            moved["session_id"] = session
        yield dumps(moved).encode("ascii") + b"\n"


def cwd_of(lines: Iterable[bytes]) -> str:
    """Return the folder in which the session began."""
    for line in lines:
        cwd = _entry(line).get("cwd")
        if isinstance(cwd, str) and cwd.startswith("/"):
            return cwd
    return ""


def command(session: str) -> list[str]:
    """Return the command that goes on with a session."""
    return ["claude", "--resume", session]


class _Moving:
    """Puts other paths in the place of old ones, in every text of a value: the agent reads them as its own."""

    def __init__(self, places: Sequence[tuple[str, str]]) -> None:
        self.places = {old: new for old, new in places if old and old != "/" and old != new}
        self.pattern: Any = None
        if self.places:
            old_paths = "|".join([escape(old) for old in sorted(self.places, key=len, reverse=True)])
            # Not in the middle of a longer path, nor of a longer name.
            self.pattern = compile(rf"(?<![\w./-])(?:{old_paths})(?![\w-]|\.\w)")

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            if value.get("type") in SIGNED:
                return value
            return {self._text(key): self.value(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value(item) for item in value]
        return value

    def _text(self, text: str) -> str:
        if self.pattern is None or not any(old in text for old in self.places):
            return text
        return str(self.pattern.sub(lambda match: self.places[match[0]], text))


def _first_text(content: object) -> str:
    if isinstance(content, list):
        content = content[0].get("text") if content and isinstance(content[0], dict) else ""
    return content.lstrip() if isinstance(content, str) else ""


def _entry(line: bytes) -> dict[str, Any]:
    try:
        entry = loads(line)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}
