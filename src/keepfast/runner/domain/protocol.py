"""What an agent says in its output: blocks, markers and their JSON forms, read as they come. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple
from unicodedata import category, normalize

from keepfast.runner.domain.limits import mentions_reset

FIELD, MESSAGE = 10_000, 100_000
"""Most characters of a field, most bytes of a block."""


class Rule(NamedTuple):
    """A field of a block: is it required, which values it may have, and the value where it is absent."""

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
"""What an error leads to that says no more than its type: it is tried again, or the task fails."""
UNSAID = "The agent reported an error and did not say which."
LISTS = frozenset(("options", "files"))
VARIABLES = frozenset(("api_key", "env_variable"))
"""Needs that are met by a value in the agent's environment; all others by a person who sees to it and says so."""
TOOL = "mcp__keepfast__"
"""How the names of our tools begin where Claude Code calls them."""
PRIORITY = ("ERROR", "PHASE_COMPLETE", "CUSTOM_TASK_COMPLETE", "DEPENDENCY_REQUEST", "USER_QUESTION", "PROGRESS")

_OPEN = re.compile(r"^[ \t]*\[(" + "|".join(BLOCKS) + r")(_JSON)?\][ \t]*", re.MULTILINE)
_PHASE = re.compile(r"^[ \t]*===[ \t]*PHASE[ \t]+(\d{1,4})[ \t]+COMPLETE[ \t]*===[ \t]*$", re.MULTILINE | re.IGNORECASE)
_TASK = re.compile(r"^[ \t]*===[ \t]*CUSTOM[ \t]+TASK[ \t]+COMPLETE[ \t]*===[ \t]*$", re.MULTILINE | re.IGNORECASE)
_ONE_LINE = re.compile(
    r"type:[ \t]*(recoverable|fatal)[ \t]*,[ \t]*message:[ \t]*(.+?)[ \t]*(?:\[/ERROR\])?", re.IGNORECASE
)
_FIELD = re.compile(r"[ \t]*(" + "|".join(BLOCKS["ERROR"]) + r")[ \t]*:[ \t]?(.*)", re.IGNORECASE)
_KEY = re.compile(r"^([A-Za-z_]+):[ \t]?(.*)$")
_NOTE = re.compile(r"^(phase|completed|task|summary|(?:documents|files) created):[ \t]*(.*)$", re.IGNORECASE)
_ESCAPE = re.compile(r"\\([nrt\\])")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}


class Block(NamedTuple):
    """One thing that an agent said. `lists` holds `options` and `files`; `warnings` what was odd but understood."""

    name: str
    fields: dict[str, str]
    lists: dict[str, list[str]]
    warnings: list[str]

    def flag(self, key: str) -> bool:
        return self.fields.get(key) == "true"


class Malformed(NamedTuple):
    """A block that could not be understood, and why: it is answered back to the agent."""

    name: str
    why: str

    def answer(self) -> str:
        """What the agent is told, in the form that it should have used."""
        return (
            f"[ERROR]\ntype: fatal\nmessage: Your [{self.name}] block was not understood: {self.why}\n"
            "recovery: notify_user\n[/ERROR]\nSend the block again, complete and in the documented form."
        )


class _Taken(NamedTuple):
    """What was found in a text, and where the text behind it begins."""

    found: Block | Malformed
    end: int


class Reader:
    """Takes an agent's text as it comes, in pieces of any size; gives back whole blocks."""

    def __init__(self) -> None:
        self._text = ""
        self._open = False
        """The text begins with a block whose end has not come."""

    def feed(self, text: str) -> list[Block | Malformed]:
        """Add text; return what became complete by it."""
        piece = clean(text)
        self._text += piece
        if self._open and "]" not in piece and len(self._text) <= MESSAGE:
            return []  # nothing can have ended: thousands of lines in an open block are not searched again and again
        self._open = False
        return list(self._take(final=False))

    def close(self) -> list[Block | Malformed]:
        """No more text comes: an open error is one, any other open block is malformed, a marker at the very end is complete."""
        found = list(self._take(final=True))
        self._text, self._open = "", False
        return found

    def peek(self) -> list[Block | Malformed]:
        """What `close` would give, without what is only half said: more text may come."""
        other = Reader()
        other._text = "" if self._open else self._text
        return other.close()

    @property
    def is_within(self) -> bool:
        """After a whole line: has a block or a marker begun whose end has not been seen?"""
        return bool(self._text)

    def _take(self, final: bool) -> Iterator[Block | Malformed]:
        while True:
            begun = [match for match in (_OPEN.search(self._text), _marker(self._text, final)) if match is not None]
            if not begun:
                # Half a line may be the beginning of a tag; whole lines without one are done with.
                self._text = "" if final else self._text[self._text.rfind("\n") + 1 :][-MESSAGE:]
                return
            first = min(begun, key=lambda match: match.start())
            taken = self._take_block(first, final) if first.re is _OPEN else self._take_marker(first, final)
            if taken is None:
                self._text = self._text[first.start() :]
                return
            yield taken.found
            self._text = self._text[taken.end :]

    def _take_marker(self, first: re.Match[str], final: bool) -> _Taken | None:
        body, after, whole = _notes(self._text, first.end(), final)
        return _Taken(_completed(first, body), after) if whole else None

    def _take_block(self, first: re.Match[str], final: bool) -> _Taken | None:
        """What begins there, and where it ends; None if more text must come before anybody can tell."""
        if first[1] == "ERROR" and not first[2]:
            line, after = _rest_of_line(self._text, first.end(), final)
            goes_on = _goes_on(self._text, line, after, final)
            if goes_on is None:
                return None
            short = _ONE_LINE.fullmatch(line)
            if short is not None:
                return _Taken(check("ERROR", {"type": short[1], "message": _unescape(short[2])}, {}), after)
            if not goes_on:
                return _Taken(_error(line, is_json=False), after)
        end = re.compile(rf"\[/{first[1]}{first[2] or ''}\]").search(self._text, first.end())
        other = _OPEN.search(self._text, first.end())
        if end is not None and (other is None or end.start() <= other.start()):
            return _Taken(_block(first[1], bool(first[2]), self._text[first.end() : end.start()]), end.end())
        if other is None and not final and len(self._text) - first.end() <= MESSAGE:
            self._open = True
            return None
        stop = other.start() if other is not None else len(self._text)
        if first[1] == "ERROR":
            return _Taken(_error(self._text[first.end() : stop], bool(first[2])), stop)
        return _Taken(Malformed(first[1], f"there is no [/{first[1]}{first[2] or ''}]"), stop)


def _rest_of_line(text: str, at: int, final: bool) -> tuple[str, int]:
    """What a line holds from there on, and where it ends; below 0 if more of it may come."""
    end = text.find("\n", at)
    if end < 0 and not final and len(text) - at <= MESSAGE:
        return "", -1
    end = end if end >= 0 else len(text)
    return text[at:end].strip(), end


def _goes_on(text: str, line: str, after: int, final: bool) -> bool | None:
    """Does an error go on behind its first line, of which `line` is the rest? None if that is not seen yet.

    One that says in words what happened is complete, unless a field or the end of the block follows.
    """
    if after < 0:
        return None
    if not line or "[/ERROR]" in line or _FIELD.match(line):
        return True
    following, end = _rest_of_line(text, after + 1, final)
    if end < 0:
        return None
    return bool(_FIELD.match(following)) or following.startswith("[/ERROR]")


def clean(text: str) -> str:
    """NFC, and one kind of line end."""
    return normalize("NFC", text.replace("\r\n", "\n"))


def sort(found: list[Block | Malformed]) -> list[Block | Malformed]:
    """What of one burst counts, the most urgent first.

    A fatal error drops everything else, a recoverable one comes first; a completed phase hides a question after it.
    """
    fatal = [one for one in found if isinstance(one, Block) and one.name == "ERROR" and one.fields["type"] == "fatal"]
    if fatal:
        return [fatal[0]]
    names = [one.name for one in found if isinstance(one, Block)]
    kept: list[Block | Malformed] = []
    completed = False
    for one in found:
        completed = completed or (isinstance(one, Block) and one.name == "PHASE_COMPLETE")
        if completed and one.name == "USER_QUESTION" and "PHASE_COMPLETE" in names:
            continue
        kept.append(one)
    return sorted(kept, key=lambda one: PRIORITY.index(one.name) if isinstance(one, Block) else len(PRIORITY))


def _marker(text: str, final: bool) -> re.Match[str] | None:
    """The first marker on a line of its own. At the very end of the text it counts only when no more text comes."""
    found = [match for match in (_PHASE.search(text), _TASK.search(text)) if match is not None]
    if not found:
        return None
    first = min(found, key=lambda match: match.start())
    return first if final or text[first.end() : first.end() + 1] == "\n" else None


def _notes(text: str, at: int, final: bool) -> tuple[list[str], int, bool]:
    """The lines that belong to a marker, where they end, and whether that end has been seen."""
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
    """An error in whatever form it is said: nobody is asked to say it again."""
    fields: dict[str, str] = {}
    why = _read_json(body, fields, {}, nested=True) if is_json else _read_lines(body, fields, {})
    odd = [why] if why else []
    beside = body[:MESSAGE].split("\n") if not is_json else [f"{key}: {value}" for key, value in fields.items()]
    if why or not fields.keys() & BLOCKS["ERROR"].keys():
        fields = _read_loosely(body)
    odd += _mend_error(fields)
    _keep_resets(fields, beside)
    found = check("ERROR", fields, {})
    return found._replace(warnings=[*odd, *found.warnings]) if isinstance(found, Block) else found


def _keep_resets(fields: dict[str, str], lines: list[str]) -> None:
    """Keep with the details what is said beside the fields of an error of when a limit ends, as in `retry-after: 60`."""
    known = "\n".join(fields.get(key, "") for key in ("message", "details"))
    said = [_unescape(line.strip()) for line in lines if not _FIELD.match(line) and mentions_reset(line)]
    kept = [line for line in said if line not in known]
    if kept:
        fields["details"] = "\n".join([*filter(None, [fields.get("details", "")]), *kept])[:FIELD]


def _read_loosely(body: str) -> dict[str, str]:
    """The fields of an error among other words; without a message, the first of these are one."""
    fields: dict[str, str] = {}
    words: list[str] = []
    for line in body[:MESSAGE].strip().split("\n"):
        found = _FIELD.fullmatch(line.rstrip())
        if found is not None:
            fields.setdefault(found[1].lower(), _unescape(found[2].strip()))
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
    too_long, odd = _look_at_letters(fields, lists)
    why = too_long or _fill_in(BLOCKS[name], fields)
    if not why and name in _CHECKS:
        why = _CHECKS[name](fields)
    if why:
        return Malformed(name, why)
    return Block(name, fields, {key: items for key, items in lists.items() if items}, [*warnings, *odd])


def _look_at_letters(fields: dict[str, str], lists: dict[str, list[str]]) -> tuple[str, list[str]]:
    """Return why a field is too long, if one is, and what is odd about the letters of the others."""
    odd: list[str] = []
    for key, value in [*fields.items(), *[(key, item) for key, items in lists.items() for item in items]]:
        if len(value) > FIELD:
            return f"{key} is longer than {FIELD} characters", odd
        if any(category(letter) == "Cc" and letter not in "\n\r\t" for letter in value):
            odd.append(f"{key} holds control characters")
    return "", odd


def _fill_in(rules: dict[str, Rule], fields: dict[str, str]) -> str:
    """Bring fields into the form that the rules ask for, with the values of absent ones; return why that cannot be."""
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
"""What is asked of the fields of a block beyond the rule of each."""


def _mend_error(fields: dict[str, str]) -> list[str]:
    """Understand an error whose form is odd: what is fatal must not be tried again because of it. Return what was odd."""
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
        known = kind if kind.lower() not in RECOVERY else ""
        fields["message"] = fields.get("details", "").strip() or known or UNSAID
    recovery = fields.get("recovery", "").strip()
    if recovery and recovery.lower() not in BLOCKS["ERROR"]["recovery"].values:
        warnings.append(f"unknown recovery {recovery!r}")
        del fields["recovery"]
    return warnings


def is_variable(name: str) -> bool:
    """Can a variable of the environment have this name?"""
    return name.isascii() and name.isidentifier()


def _read_lines(body: str, fields: dict[str, str], lists: dict[str, list[str]]) -> str:
    key = ""
    for line in body.strip("\n").split("\n"):
        found = None if line[:1] in (" ", "\t") and key else _KEY.match(line.strip())
        if found is not None:
            key = found[1].lower()
            if key in fields or key in lists:
                return f"{key} is there twice"
            if key in LISTS:
                lists[key] = [found[2].strip()] if found[2].strip() else []
            else:
                fields[key] = _unescape(found[2].strip())
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
    """Read the fields of an object; with `nested`, objects and lists in it count as their JSON."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        return f"it is not JSON ({error})"
    if not isinstance(content, dict):
        return "it is not a JSON object"
    for key, value in content.items():
        if key in LISTS:
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                return f"{key} must be a list of texts"
            lists[key] = [clean(item) for item in value]
        elif isinstance(value, bool):
            fields[key] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            fields[key] = clean(str(value))
        elif value is not None and nested:
            fields[key] = clean(_json_text(value))
        elif value is not None:
            return f"{key} must be a text"
    return ""


def _json_text(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "…"


def _unescape(text: str) -> str:
    # One pass: `\\n` is a backslash and an n, not a line end.
    return _ESCAPE.sub(lambda match: _ESCAPED[match[1]], text)
