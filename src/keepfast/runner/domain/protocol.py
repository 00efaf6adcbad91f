"""The protocol between agent and supervisor: blocks, markers and their JSON forms, parsed as they arrive. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple
from unicodedata import category, normalize

from keepfast.runner.domain.limits import mentions_reset

FIELD, MESSAGE = 10_000, 100_000
"""Maximum length of a field in characters, and of a block in bytes."""


class Rule(NamedTuple):
    """The rule of a field: whether it is required, its allowed values, and its default."""

    required: bool = False
    values: tuple[str, ...] = ()
    default: str | None = None


FLAG = ("true", "false")
BLOCKS: dict[str, dict[str, Rule]] = {
    "ERROR": {
        "type": Rule(True, ("recoverable", "fatal")),
        "message": Rule(True),
        "details": Rule(),
        "recovery": Rule(False, ("pause_and_retry", "checkpoint_and_fail", "notify_user")),
    },
    "DEPENDENCY_REQUEST": {
        "type": Rule(True, ("api_key", "env_variable", "service", "file", "permission", "package")),
        "name": Rule(True),
        "description": Rule(),
        "required": Rule(False, FLAG, "true"),
        "default": Rule(),
    },
    "USER_QUESTION": {
        "category": Rule(False, ("business", "clarification", "choice", "confirmation"), "clarification"),
        "question": Rule(True),
        "options": Rule(),
        "default": Rule(),
        "required": Rule(False, FLAG, "true"),
    },
    "PHASE_COMPLETE": {"phase": Rule(True), "name": Rule(), "files": Rule(), "summary": Rule()},
    "CUSTOM_TASK_COMPLETE": {"task": Rule(), "summary": Rule()},
    "PROGRESS": {"step": Rule(), "percent": Rule(), "message": Rule()},
}
RECOVERY = {"recoverable": "pause_and_retry", "fatal": "checkpoint_and_fail"}
"""The recovery of an error that names none, by its type: the run is repeated, or the task fails."""
UNSAID = "The agent reported an error without a message."
LISTS = frozenset(("options", "files"))
VARIABLES = frozenset(("api_key", "env_variable"))
"""Types of needs that a value in the agent's environment meets; a person meets all others and confirms it."""
TOOL = "mcp__keepfast__"
"""The prefix that Claude Code gives to the names of our tools."""
PRIORITY = ("ERROR", "PHASE_COMPLETE", "CUSTOM_TASK_COMPLETE", "DEPENDENCY_REQUEST", "USER_QUESTION", "PROGRESS")

_OPEN = re.compile(r"^[ \t]*\[(" + "|".join(BLOCKS) + r")(_JSON)?\][ \t]*", re.MULTILINE)
_PHASE = re.compile(r"^[ \t]*===[ \t]*PHASE[ \t]+(\d{1,4})[ \t]+COMPLETE[ \t]*===[ \t]*$", re.MULTILINE | re.IGNORECASE)
_TASK = re.compile(r"^[ \t]*===[ \t]*CUSTOM[ \t]+TASK[ \t]+COMPLETE[ \t]*===[ \t]*$", re.MULTILINE | re.IGNORECASE)
_ONE_LINE = re.compile(
    r"type:[ \t]*(recoverable|fatal)[ \t]*,[ \t]*message:[ \t]*(.+?)[ \t]*(?:\[/ERROR\])?", re.IGNORECASE
)
_END_OF_ERROR = re.compile(r"\s*\[/ERROR(?:_JSON)?\]")
_UNFINISHED = re.compile(r"\{(?:.*[,{\[])?")
"""The first line of a JSON object that continues on the next one."""
_FIELD = re.compile(r"[ \t]*(" + "|".join(BLOCKS["ERROR"]) + r")[ \t]*:[ \t]?(.*)", re.IGNORECASE)
_KEY = re.compile(r"^([A-Za-z_]+):[ \t]?(.*)$")
_NOTE = re.compile(r"^(phase|completed|task|summary|(?:documents|files) created):[ \t]*(.*)$", re.IGNORECASE)
_ESCAPE = re.compile(r"\\([nrt\\])")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}


class Block(NamedTuple):
    """A block of an agent's output. `lists` has `options` and `files`; `warnings` are deviations that were tolerated."""

    name: str
    fields: dict[str, str]
    lists: dict[str, list[str]]
    warnings: list[str]

    def flag(self, key: str) -> bool:
        return self.fields.get(key) == "true"


class Malformed(NamedTuple):
    """A block that could not be parsed, and why; the agent is told."""

    name: str
    why: str

    def answer(self) -> str:
        """Return the correction that the agent gets, in the form that it should have used."""
        return (
            f"[ERROR]\ntype: fatal\nmessage: Your [{self.name}] block was not understood: {self.why}\n"
            "recovery: notify_user\n[/ERROR]\nSend the block again, complete and in the documented form."
        )


class _Parsed(NamedTuple):
    """A block that was parsed from a text, and where the rest of the text begins."""

    block: Block | Malformed
    end: int


class Reader:
    """Parses an agent's text as it arrives, in pieces of any size, into whole blocks."""

    def __init__(self) -> None:
        self._text = ""
        self._open = False
        """The text begins with a block whose end has not come."""

    def feed(self, text: str) -> list[Block | Malformed]:
        """Add text; return the blocks that it completes."""
        piece = clean(text)
        self._text += piece
        if self._open and "]" not in piece and len(self._text) <= MESSAGE:
            return []  # the block cannot have ended: do not search it again for each of its lines
        self._open = False
        return list(self._take(final=False))

    def close(self) -> list[Block | Malformed]:
        """End the text: an open error counts, any other open block is malformed, a marker at the very end is complete."""
        blocks = list(self._take(final=True))
        self._text, self._open = "", False
        return blocks

    def peek(self) -> list[Block | Malformed]:
        """Return what `close` would, without a block that is still open: more text may come."""
        other = Reader()
        other._text = "" if self._open else self._text
        return other.close()

    @property
    def is_within(self) -> bool:
        """Return, after a whole line, whether a block or marker is still open."""
        return bool(self._text)

    def _take(self, final: bool) -> Iterator[Block | Malformed]:
        while True:
            begun = [match for match in (_OPEN.search(self._text), _marker(self._text, final)) if match is not None]
            if not begun:
                # An unfinished line may be the beginning of a tag; whole lines without one are dropped.
                self._text = "" if final else self._text[self._text.rfind("\n") + 1 :][-MESSAGE:]
                return
            first = min(begun, key=lambda match: match.start())
            result = self._take_block(first, final) if first.re is _OPEN else self._take_marker(first, final)
            if result is None:
                self._text = self._text[first.start() :]
                return
            yield result.block
            self._text = self._text[result.end :]

    def _take_marker(self, first: re.Match[str], final: bool) -> _Parsed | None:
        body, after, whole = _notes(self._text, first.end(), final)
        return _Parsed(_completed(first, body), after) if whole else None

    def _take_block(self, first: re.Match[str], final: bool) -> _Parsed | None:
        """Parse the block that begins there; None if its end has not arrived."""
        if first[1] == "ERROR" and not first[2]:
            line, after = _rest_of_line(self._text, first.end(), final)
            goes_on = _goes_on(self._text, line, after, final)
            if goes_on is None:
                return None
            whole = _object_at(self._text, first.end())
            if whole is not None and after >= 0:
                closed = _END_OF_ERROR.match(self._text, whole)
                stop = closed.end() if closed is not None else whole
                return _Parsed(_error(self._text[first.end() : whole], is_json=True), max(after, stop))
            short = _ONE_LINE.fullmatch(line)
            if short is not None:
                return _Parsed(check("ERROR", {"type": short[1], "message": _unescape(short[2])}, {}), after)
            if not goes_on:
                return _Parsed(_error(line, is_json=False), after)
        end = re.compile(rf"\[/{first[1]}{first[2] or ''}\]").search(self._text, first.end())
        other = _OPEN.search(self._text, first.end())
        if end is not None and (other is None or end.start() <= other.start()):
            return _Parsed(_block(first[1], bool(first[2]), self._text[first.end() : end.start()]), end.end())
        if other is None and not final and len(self._text) - first.end() <= MESSAGE:
            self._open = True
            return None
        stop = other.start() if other is not None else len(self._text)
        if first[1] == "ERROR":
            return _Parsed(_error(self._text[first.end() : stop], bool(first[2])), stop)
        return _Parsed(Malformed(first[1], f"there is no [/{first[1]}{first[2] or ''}]"), stop)


def _object_at(text: str, at: int) -> int | None:
    """Return where the JSON object ends that begins there, after white space; None if none does, or not yet."""
    begin = len(text) - len(text[at:].lstrip())
    if not text.startswith("{", begin):
        return None
    try:
        return json.JSONDecoder().raw_decode(text, begin)[1]
    except (ValueError, RecursionError):
        return None


def _rest_of_line(text: str, at: int, final: bool) -> tuple[str, int]:
    """Return the rest of a line, and where it ends; below 0 if more of it may come."""
    end = text.find("\n", at)
    if end < 0 and not final and len(text) - at <= MESSAGE:
        return "", -1
    end = end if end >= 0 else len(text)
    return text[at:end].strip(), end


def _goes_on(text: str, line: str, after: int, final: bool) -> bool | None:
    """Return whether an error continues after its first line, of which `line` is the rest; None if that is not known yet.

    One that says in plain words what happened is complete, unless a field or the end of the block follows.
    """
    if after < 0:
        return None
    if not line or "[/ERROR]" in line or _FIELD.match(line) or _UNFINISHED.fullmatch(line):
        return True
    following, end = _rest_of_line(text, after + 1, final)
    if end < 0:
        return None
    return bool(_FIELD.match(following)) or following.startswith("[/ERROR]")


def clean(text: str) -> str:
    """Return the text in NFC, with `\\n` as line end."""
    return normalize("NFC", text.replace("\r\n", "\n"))


def sort(statements: list[Block | Malformed]) -> list[Block | Malformed]:
    """Return the statements of one run that count, the most urgent first.

    A fatal error drops everything else, a recoverable one comes first; a completed phase hides a question after it.
    """
    fatal = [
        statement
        for statement in statements
        if isinstance(statement, Block) and statement.name == "ERROR" and statement.fields["type"] == "fatal"
    ]
    if fatal:
        return [fatal[0]]
    names = [statement.name for statement in statements if isinstance(statement, Block)]
    selected: list[Block | Malformed] = []
    completed = False
    for statement in statements:
        completed = completed or (isinstance(statement, Block) and statement.name == "PHASE_COMPLETE")
        if completed and statement.name == "USER_QUESTION" and "PHASE_COMPLETE" in names:
            continue
        selected.append(statement)
    return sorted(
        selected,
        key=lambda statement: PRIORITY.index(statement.name) if isinstance(statement, Block) else len(PRIORITY),
    )


def _marker(text: str, final: bool) -> re.Match[str] | None:
    """Return the first marker on a line of its own. At the very end of the text it counts only if `final`."""
    markers = [match for match in (_PHASE.search(text), _TASK.search(text)) if match is not None]
    if not markers:
        return None
    first = min(markers, key=lambda match: match.start())
    return first if final or text[first.end() : first.end() + 1] == "\n" else None


def _notes(text: str, at: int, final: bool) -> tuple[list[str], int, bool]:
    """Return the lines that belong to a marker, where they end, and whether they are complete."""
    lines: list[str] = []
    while True:
        end = text.find("\n", at)
        line = text[at : end if end >= 0 else len(text)]
        belongs = not line.strip() or _NOTE.match(line.strip()) or line.strip().startswith("- ")
        if line.strip().lower().startswith("ready for review"):
            return lines, (end if end >= 0 else len(text)), True
        if not belongs or len(lines) > 200:
            return lines, at, end >= 0 or final or not _may_belong(line)
        if end < 0:
            return [*lines, line], len(text), final
        lines.append(line)
        at = end + 1


def _may_belong(line: str) -> bool:
    words = (
        "phase:",
        "completed:",
        "task:",
        "summary:",
        "documents created:",
        "files created:",
        "ready for review",
        "- ",
    )
    start = line.strip().lower()
    return any(word.startswith(start) for word in words)


def _completed(match: re.Match[str], lines: list[str]) -> Block:
    fields: dict[str, str] = {}
    files: list[str] = []
    names = {"phase": "name", "completed": "name", "task": "task", "summary": "summary"}
    for line in lines:
        note = _NOTE.match(line.strip())
        if note and note[1].lower() in names:
            fields[names[note[1].lower()]] = note[2].strip()[:FIELD]
        elif line.strip().startswith("- "):
            files.append(line.strip()[2:].strip()[:FIELD])
    if match.re is _PHASE:
        return Block("PHASE_COMPLETE", {"phase": str(int(match[1])), **fields}, {"files": files}, [])
    return Block("CUSTOM_TASK_COMPLETE", fields, {}, [])


def _block(name: str, is_json: bool, body: str) -> Block | Malformed:
    if name == "ERROR":
        return _error(body, is_json)
    if len(body.encode("utf-8", "surrogatepass")) > MESSAGE:
        return Malformed(name, f"it is larger than {MESSAGE} bytes")
    fields: dict[str, str] = {}
    lists: dict[str, list[str]] = {}
    why = _read_json(body, fields, lists) if is_json else _read_lines(body, fields, lists)
    return Malformed(name, why) if why else check(name, fields, lists)


def _error(body: str, is_json: bool) -> Block | Malformed:
    """Parse an error in whatever form it comes: the agent is not asked to repeat it."""
    fields: dict[str, str] = {}
    why = _read_json(body, fields, {}, nested=True) if is_json else _read_lines(body, fields, {})
    problems = [why] if why else []
    beside = body[:MESSAGE].split("\n") if not is_json else [f"{key}: {value}" for key, value in fields.items()]
    if why or not fields.keys() & BLOCKS["ERROR"].keys():
        fields = _read_loosely(body)
    problems += _mend_error(fields)
    _keep_resets(fields, beside)
    block = check("ERROR", fields, {})
    return block._replace(warnings=[*problems, *block.warnings]) if isinstance(block, Block) else block


def _keep_resets(fields: dict[str, str], lines: list[str]) -> None:
    """Add to the details of an error the lines beside its fields that say when a limit ends, such as `retry-after: 60`."""
    stated = "\n".join(fields.get(key, "") for key in ("message", "details"))
    reset_lines = [_unescape(line.strip()) for line in lines if not _FIELD.match(line) and mentions_reset(line)]
    new_lines = [line for line in reset_lines if line not in stated]
    if new_lines:
        fields["details"] = "\n".join([*filter(None, [fields.get("details", "")]), *new_lines])[:FIELD]


def _read_loosely(body: str) -> dict[str, str]:
    """Return the fields of an error mixed with other text; without a message field, the first paragraph is the message."""
    fields: dict[str, str] = {}
    words: list[str] = []
    for line in body[:MESSAGE].strip().split("\n"):
        match = _FIELD.fullmatch(line.rstrip())
        if match is not None:
            fields.setdefault(match[1].lower(), _unescape(match[2].strip()))
        elif line.strip() or not words:
            words.append(line.strip())
        elif not fields.get("message"):
            break  # the first paragraph is enough
    if not fields.get("message", "").strip() and "".join(words):
        fields["message"] = "\n".join(words).strip()
    return fields


def check(name: str, fields: dict[str, str], lists: dict[str, list[str]]) -> Block | Malformed:
    """Return the block if its fields obey the rules of its name."""
    warnings = [f"unknown field {key!r}" for key in fields if key not in BLOCKS[name]]
    for key in fields.keys() - BLOCKS[name].keys():
        del fields[key]
    too_long, letter_warnings = _look_at_letters(fields, lists)
    why = too_long or _fill_in(BLOCKS[name], fields)
    if not why and name in _CHECKS:
        why = _CHECKS[name](fields)
    if why:
        return Malformed(name, why)
    return Block(name, fields, {key: items for key, items in lists.items() if items}, [*warnings, *letter_warnings])


def _look_at_letters(fields: dict[str, str], lists: dict[str, list[str]]) -> tuple[str, list[str]]:
    """Return which field is too long, if any, and warnings about control characters."""
    warnings: list[str] = []
    for key, value in [*fields.items(), *[(key, item) for key, items in lists.items() for item in items]]:
        if len(value) > FIELD:
            return f"{key} is longer than {FIELD} characters", warnings
        if any(category(letter) == "Cc" and letter not in "\n\r\t" for letter in value):
            warnings.append(f"{key} holds control characters")
    return "", warnings


def _fill_in(rules: dict[str, Rule], fields: dict[str, str]) -> str:
    """Normalise fields and add defaults as the rules say; return what is wrong, empty if nothing is."""
    for key, rule in rules.items():
        if key in LISTS:
            continue
        if rule.default is not None:
            fields.setdefault(key, rule.default)
        if rule.required and not fields.get(key, "").strip():
            return f"the field {key} is missing"
        if rule.values and fields.get(key):
            fields[key] = fields[key].strip().lower()
            if fields[key] not in rule.values:
                return f"{key} must be one of {', '.join(rule.values)}"
    return ""


def _check_error(fields: dict[str, str]) -> str:
    fields["recovery"] = fields.get("recovery") or RECOVERY[fields["type"]]
    return ""


def _check_phase(fields: dict[str, str]) -> str:
    number = fields["phase"]
    return "" if number.isascii() and number.isdigit() else "phase must be a number"


def _check_need(fields: dict[str, str]) -> str:
    if fields["type"] not in VARIABLES or is_variable(fields["name"].strip()):
        return ""
    return f"name must be the name of an environment variable where type is {fields['type']}"


_CHECKS = {"ERROR": _check_error, "PHASE_COMPLETE": _check_phase, "DEPENDENCY_REQUEST": _check_need}
"""Checks of a block beyond the rules of its fields."""


def _mend_error(fields: dict[str, str]) -> list[str]:
    """Correct the fields of a malformed error, so that a fatal one is never retried because of its form. Return warnings."""
    warnings: list[str] = []
    for key in ("message", "details"):
        if len(fields.get(key, "")) > FIELD:
            fields[key] = fields[key][:FIELD]
            warnings.append(f"{key} was cut")
    kind = fields.get("type", "").strip()[:FIELD]
    if kind.lower() not in RECOVERY:
        warnings.append(f"unknown type {kind!r}" if kind else "the field type is missing")
        fields["type"] = "recoverable"
    if not fields.get("message", "").strip():
        warnings.append("the field message is missing")
        unknown_kind = kind if kind.lower() not in RECOVERY else ""
        fields["message"] = fields.get("details", "").strip() or unknown_kind or UNSAID
    recovery = fields.get("recovery", "").strip()
    if recovery and recovery.lower() not in BLOCKS["ERROR"]["recovery"].values:
        warnings.append(f"unknown recovery {recovery!r}")
        del fields["recovery"]
    return warnings


def is_variable(name: str) -> bool:
    """Return whether an environment variable can have this name."""
    return name.isascii() and name.isidentifier()


def _read_lines(body: str, fields: dict[str, str], lists: dict[str, list[str]]) -> str:
    key = ""
    for line in body.strip("\n").split("\n"):
        match = None if line[:1] in (" ", "\t") and key else _KEY.match(line.strip())
        if match is not None:
            key = match[1].lower()
            if key in fields or key in lists:
                return f"{key} appears twice"
            if key in LISTS:
                lists[key] = [match[2].strip()] if match[2].strip() else []
            else:
                fields[key] = _unescape(match[2].strip())
        elif not line.strip():
            continue
        elif not key:
            return f"{line.strip()[:60]!r} is not `key: value`"
        elif key in LISTS:
            item = line.strip()
            lists[key].append(_unescape(item[1:].strip() if item.startswith("-") else item))
        elif line[:1] in (" ", "\t"):
            fields[key] += "\n" + _unescape(line.strip())
        else:
            return f"{line.strip()[:60]!r} is not `key: value`"
    return "" if fields or lists else "it is empty"


def _read_json(body: str, fields: dict[str, str], lists: dict[str, list[str]], nested: bool = False) -> str:
    """Parse the fields of an object, with `nested` also objects and lists, as JSON text; return what is wrong."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        return f"it is not JSON ({error})"
    if not isinstance(content, dict):
        return "it is not a JSON object"
    for key, value in content.items():
        if key in LISTS:
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                return f"{key} must be a list of strings"
            lists[key] = [clean(item) for item in value]
        elif isinstance(value, bool):
            fields[key] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            fields[key] = clean(str(value))
        elif value is not None and nested:
            fields[key] = clean(_json_text(value))
        elif value is not None:
            return f"{key} must be a string"
    return ""


def _json_text(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "…"


def _unescape(text: str) -> str:
    # One pass: `\\n` is a backslash and an n, not a line end.
    return _ESCAPE.sub(lambda match: _ESCAPED[match[1]], text)
