"""What a shell command showed of a file (`cat`, `sed -n`, `head`, `nl`), and the programs that it runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from keepfast.shell.destruction import DEEPEST, WORDS_OF_THE_SHELL
from keepfast.shell.programs import CARRIERS, SHELLS, WITH_VALUE
from keepfast.shell.words import Redirection, Word, read

if TYPE_CHECKING:
    from keepfast.agents.recorded_files import Files
    from keepfast.agents.turns import Call

SED = re.compile(r"^(\d+)(?:,(\d+))?p$")
NUMBERED = re.compile(r"^\s*(\d+)\t")
LONGEST = 60_000
RUNNERS = frozenset(
    """uv poetry pdm pipenv hatch rye pixi nix direnv mise npx bunx pnpx pnpm yarn npm bun bundle docker podman kubectl
    docker-compose xvfb-run ssh dotenv""".split()
)
"""Programs that run another one, which is named somewhere among their arguments."""
KEEPERS = frozenset("add install i remove rm uninstall update upgrade up why list ls info show pull push build".split())
"""Words by which these only keep, fetch or show it."""
MODULES = ("python", "pypy", "coverage")
"""Programs that run the module behind `-m`."""
MOST_TRIED = 32
DURATION = re.compile(r"\d+(?:\.\d+)?[smhd]?")


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


def programs(command: str, depth: int = 0) -> Iterator[str]:
    """The programs that a command runs, each with its words on one line. What is quoted, or in a here-document, is no word."""
    words: list[Word] = []
    bodies: list[str] = []
    for token in [*read(command), ";"] if depth <= DEEPEST else []:
        if isinstance(token, Word):
            words.append(token)
            for inner in token.commands:
                yield from programs(inner, depth + 1)
        elif isinstance(token, Redirection):
            bodies.append(token.body)
            for inner in token.commands:
                yield from programs(inner, depth + 1)
        else:
            yield from _run(words, bodies, depth)
            words, bodies = [], []


def _run(words: list[Word], bodies: list[str], depth: int, inside: bool = False) -> Iterator[str]:
    """`inside`: of a program that runs another one, all of whose words are tried anyway."""
    while words and ((words[0].text in WORDS_OF_THE_SHELL and not words[0].is_quoted) or words[0].is_assignment):
        words = words[1:]
    if not words or depth > DEEPEST:
        return
    name = words[0].text.rpartition("/")[2]
    yield " ".join([name, *[word.text for word in words[1:] if not word.is_quoted]])
    if name in CARRIERS and name not in RUNNERS:
        yield from _run(_carried(name, words[1:]), bodies, depth + 1, inside)
    elif name in SHELLS:
        for script in _scripts(words, bodies):
            yield from programs(script, depth + 1)
    elif name.startswith(MODULES):
        at = next((at for at, word in enumerate(words) if word.text == "-m"), len(words))
        yield from _run(words[at + 1 :], [], depth + 1, inside)
    elif name in RUNNERS and not inside and KEEPERS.isdisjoint([word.text for word in words[1:3]]):
        for at in range(1, min(len(words), MOST_TRIED)):
            yield from _run(words[at:], [], depth + 1, inside=True)


def _scripts(words: list[Word], bodies: list[str]) -> list[str]:
    """What a shell is given to run: behind `-c`, else as its input."""
    for word, following in pairwise(words):
        if word.text[:1] == "-" and word.text[-1:] == "c":
            return [following.text]
    return bodies


def _carried(name: str, words: list[Word]) -> list[Word]:
    """What such a program runs, without its own options."""
    valued = WITH_VALUE.get(name, ())
    while words and (words[0].text[:1] == "-" or words[0].is_assignment or DURATION.fullmatch(words[0].text)):
        words = words[2 if words[0].text in valued else 1 :]
    return words


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
