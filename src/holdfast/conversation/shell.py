"""What a shell command showed of a file, or did to it: `cat`, `sed -n`, `head`, `nl`, `git mv`, `rm`."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.conversation.files import Files
    from holdfast.conversation.turns import Call

SED = re.compile(r"^(\d+)(?:,(\d+))?p$")
NUMBERED = re.compile(r"^\s*(\d+)\t")
LONGEST = 60_000


def take(files: Files, call: Call, output: str, cwd: str, keep: bool = False) -> None:
    """Learn from one command that ran without failing."""
    found = shown(call.command, output, cwd)
    if found is None:
        return
    path, start, lines = found
    call.path = path
    call.start = start
    if keep:
        call.shown = lines
    files.read(call.number, path, start, lines, 0)


def shown(command: str, output: str, cwd: str) -> tuple[str, int, list[str]] | None:
    """The file, first line and lines that a plain command printed, or None where the output is anything else."""
    if not output or len(output) > LONGEST or "\n[…]\n" in output or len(command) > 400:
        return None
    try:
        words = shlex.split(command.strip())
    except ValueError:
        return None
    while len(words) > 3 and words[0] == "cd" and words[2] == "&&":
        cwd = words[1] if words[1].startswith("/") else f"{cwd}/{words[1]}"
        words = words[3:]
    if any(word in ("|", ";", "&&", "||", ">", ">>", "<", "&") or word.endswith(";") for word in words):
        numbered = _numbered(words, output)
        return None if numbered is None else (_absolute(numbered[0], cwd), numbered[1], numbered[2])
    path, start = _plain(words)
    if not path:
        return None
    lines = output.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    return _absolute(path, cwd), start, lines


def _plain(words: list[str]) -> tuple[str, int]:
    if len(words) == 2 and words[0] == "cat":
        return _path(words[1]), 1
    if len(words) == 4 and words[:2] == ["sed", "-n"] and (span := SED.match(words[2])):
        return _path(words[3]), int(span[1])
    if words and words[0] == "head" and len(words) in (2, 3, 4):
        return _path(words[-1]), 1
    return "", 0


def _path(word: str) -> str:
    return "" if word.startswith("-") or any(sign in word for sign in "*?[]{}$`") else word


def _numbered(words: list[str], output: str) -> tuple[str, int, list[str]] | None:
    """`nl -ba FILE | sed -n '10,20p'`: the numbers are in the output itself."""
    if words[:2] != ["nl", "-ba"] or len(words) < 4 or words[3] != "|" or words[4:6] != ["sed", "-n"]:
        return None
    lines, first = [], 0
    for line in output.rstrip("\n").split("\n"):
        match = NUMBERED.match(line)
        if match is None:
            return None
        first = first or int(match[1])
        lines.append(line[match.end() :])
    return (words[2], first, lines) if first and _path(words[2]) else None


def _absolute(path: str, cwd: str) -> str:
    while path.startswith("./"):
        path = path[2:]
    return path if path.startswith("/") or not cwd else f"{cwd.rstrip('/')}/{path}"
