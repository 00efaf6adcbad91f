"""Which lines of a file a shell command printed (`cat`, `sed -n`, `head`, `nl`), and which programs it runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from keepfast.agents.recorded_files import Files
from keepfast.agents.turns import Call
from keepfast.shell.programs import SHELLS, VALUE_OPTIONS, WRAPPERS
from keepfast.shell.script import MAX_DEPTH, SHELL_KEYWORDS
from keepfast.shell.words import Redirection, Word, tokenize

SED = re.compile(r"^(\d+)(?:,(\d+))?p$")
NUMBERED = re.compile(r"^\s*(\d+)\t")
MAX_OUTPUT_CHARACTERS = 60_000
RUNNERS = frozenset(
    """uv poetry pdm pipenv hatch rye pixi nix direnv mise npx bunx pnpx pnpm yarn npm bun bundle docker podman kubectl
    docker-compose xvfb-run ssh dotenv""".split()
)
"""Programs that run another one, which is named somewhere among their arguments."""
KEEPERS = frozenset("add install i remove rm uninstall update upgrade up why list ls info show pull push build".split())
"""Subcommands that only manage, fetch or show packages, and run none."""
MODULES = ("python", "pypy", "coverage")
"""Programs that run the module behind `-m`."""
MAX_TRIED = 32
PIPES = ("|", "|&")
MAX_PIPED_PROGRAMS = 8
OPENING = frozenset(("if", "while", "until", "for", "case", "select"))
CLOSING = frozenset(("fi", "done", "esac"))
"""Ends of loops and conditions: a command in one may run never or often, and the last one sets the exit code."""
END_SIGNALS = frozenset(("EXIT", "0", "ERR"))
"""Signals of a trap whose handler runs at the end of a shell, or when a command fails."""
DURATION = re.compile(r"\d+(?:\.\d+)?[smhd]?")


def take(files: Files, call: Call, output: str, cwd: str, keep: bool = False) -> None:
    """Record the lines of a file that a successful command printed."""
    printed = printed_lines(call.command, output, cwd)
    if printed is None:
        return
    path, start, lines = printed
    call.path = path
    call.start = start
    if keep:
        call.shown_lines = lines
    files.read(call.number, path, start, lines, 0)


def printed_lines(command: str, output: str, cwd: str) -> tuple[str, int, list[str]] | None:
    """Return file, first line and lines that a plain command printed; None if its output is anything else."""
    if not output or len(output) > MAX_OUTPUT_CHARACTERS or "\n[…]\n" in output or len(command) > 400:
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


class Strictness(NamedTuple):
    """Options of `set` that are on."""

    errexit: bool = False
    pipefail: bool = False

    def after(self, words: list[str]) -> Strictness:
        """Return the options after these words of `set` or of a shell."""
        errexit, pipefail = self
        for word in words:
            sign, letters = word[:1], word[1:]
            if word == "pipefail" or word == "errexit":
                pipefail, errexit = pipefail or word == "pipefail", errexit or word == "errexit"
            elif sign in ("-", "+") and letters.isalpha() and "e" in letters:
                errexit = sign == "-"
        return Strictness(errexit, pipefail and "+o" not in words)


PLAIN = Strictness()


class SimpleCommand(NamedTuple):
    """One simple command of a compound command."""

    programs: list[str]
    """The program that it runs and those that this one runs, each with its unquoted words on one line."""
    is_told: bool
    """Whether exit code 0 of the whole means that this one ran and succeeded."""
    into: frozenset[str]
    """The programs that its output goes through."""


@dataclass(slots=True)
class _Node:
    """A simple command or a group, up to the operator behind it."""

    words: list[Word] = field(default_factory=list)
    bodies: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    """Commands whose output becomes a word of this one."""
    group: list[_Node] = field(default_factory=list)
    after: str = ""

    def name(self) -> str:
        return self.words[0].text.rpartition("/")[2] if self.words else ""

    def leading(self) -> list[str]:
        """Return the shell keywords that it begins with."""
        keywords = []
        for word in self.words:
            if word.is_quoted or word.text not in SHELL_KEYWORDS | OPENING:
                break
            keywords.append(word.text)
        return keywords

    def ends_failing(self, follows_failure: bool = True) -> bool:
        """Return whether it ends the shell with an exit code other than 0."""
        if self.group:
            return self.group[-1].ends_failing(False)
        if self.name() not in ("exit", "return"):
            return False
        if len(self.words) == 1 or not self.words[1].is_sure:
            return follows_failure
        return self.words[1].text != "0"


def programs(command: str) -> Iterator[str]:
    """Yield the programs that a command runs, each with its unquoted words on one line."""
    for part in parts(command):
        yield from part.programs


def parts(
    command: str,
    depth: int = 0,
    is_told: bool = True,
    strictness: Strictness = PLAIN,
    into: frozenset[str] = frozenset(),
) -> Iterator[SimpleCommand]:
    """Yield the simple commands of a command, also those in scripts and substitutions; `is_told` only where it is certain."""
    if depth > MAX_DEPTH:
        return
    for node, is_covered, behind in _judged(_nodes(iter(tokenize(command))), is_told, strictness, into):
        for inner in node.commands:
            yield from parts(inner, depth + 1, False)
        scripts: list[tuple[str, list[str]]] = []
        lines = list(_run(node.words, node.bodies, depth, scripts))
        if lines:
            yield SimpleCommand(lines, is_covered, behind)
        for script, options in scripts:
            yield from parts(script, depth + 1, is_covered, Strictness().after(options), behind)


def _nodes(tokens: Iterator[Word | Redirection | str], depth: int = 0) -> list[_Node]:
    """Return the nodes up to the end, or of a group up to its closing bracket."""
    nodes: list[_Node] = []
    node = _Node()
    for token in tokens:
        if isinstance(token, Word):
            is_first = not node.words and not token.is_quoted
            if is_first and depth and token.text == "}":
                break
            if is_first and depth < MAX_DEPTH and token.text == "{":
                node.group = _nodes(tokens, depth + 1)
            else:
                node.words.append(token)
                node.commands += token.commands
        elif isinstance(token, Redirection):
            node.bodies.append(token.body)
            node.commands += token.commands
        elif token == "(" and not node.words and depth < MAX_DEPTH:
            node.group = _nodes(tokens, depth + 1)
        elif token == ")" and depth:
            break
        else:
            node.after = token
            nodes.append(node)
            node = _Node()
    return [one for one in [*nodes, node] if one.words or one.group or one.commands]


def _judged(
    nodes: list[_Node], is_told: bool, strictness: Strictness, into: frozenset[str]
) -> Iterator[tuple[_Node, bool, frozenset[str]]]:
    """Yield each simple command, whether the exit code covers it, and the programs behind it in its pipes."""
    pipelines = _pipelines(nodes)
    passed_over = _passed_over(pipelines)
    depth, before, has_trap = 0, "", False
    for at, pipeline in enumerate(pipelines):
        leading = [word for node in pipeline for word in node.leading()]
        opened = sum([word in OPENING for word in leading])
        has_trap |= _sets_exit_trap(pipeline[0])
        is_plain = not any((depth, opened, has_trap, "!" in leading))
        depth = max(0, depth + opened - sum([word in CLOSING for word in leading]))
        if pipeline[0].name() == "set":
            strictness = strictness.after([word.text for word in pipeline[0].words[1:]])
        is_seen = passed_over[at] or (strictness.errexit and pipeline[-1].after in (";", "\n"))
        is_seen = all((is_seen, is_told, is_plain, before != "||"))
        for node, behind in zip(pipeline, _behind(pipeline, into), strict=True):
            is_covered = is_seen and (node is pipeline[-1] or strictness.pipefail)
            if node.words or node.commands:
                yield node, is_covered, behind
            yield from _judged(node.group, is_covered, strictness, behind)
        before = pipeline[-1].after


def _sets_exit_trap(node: _Node) -> bool:
    """Return whether it is a trap whose handler may end the shell with 0."""
    return node.name() == "trap" and not END_SIGNALS.isdisjoint([word.text for word in node.words[2:]])


def _pipelines(nodes: list[_Node]) -> list[list[_Node]]:
    pipelines: list[list[_Node]] = [[]]
    for node in nodes:
        pipelines[-1].append(node)
        if node.after not in PIPES:
            pipelines.append([])
    return [pipeline for pipeline in pipelines if pipeline]


def _passed_over(pipelines: list[list[_Node]]) -> list[bool]:
    """Return for each whether its failure is the exit code of the whole, because everything behind it is skipped."""
    verdicts: list[bool] = []
    following: list[_Node] = []
    for pipeline in reversed(pipelines):
        operator = pipeline[-1].after
        if not following:
            verdicts.append(operator != "&")
        elif operator == "||":
            verdicts.append(len(following) == 1 and following[0].ends_failing())
        else:
            verdicts.append(operator == "&&" and verdicts[-1])
        following = pipeline
    return verdicts[::-1]


def _behind(pipeline: list[_Node], into: frozenset[str]) -> list[frozenset[str]]:
    """Return for each the programs that its output goes through (at most `MAX_PIPED_PROGRAMS`)."""
    programs_behind = [into]
    for node in pipeline[:0:-1]:
        programs_behind.append(
            programs_behind[-1] | {node.name()}
            if len(programs_behind[-1]) < MAX_PIPED_PROGRAMS
            else programs_behind[-1]
        )
    return programs_behind[::-1]


def _run(
    words: list[Word], bodies: list[str], depth: int, scripts: list[tuple[str, list[str]]], inside: bool = False
) -> Iterator[str]:
    """The programs of a simple command; `scripts` gets those that a shell runs, with the shell's options.

    `inside`: of a program that runs another one, all of whose words are tried anyway.
    """
    while words and ((words[0].text in SHELL_KEYWORDS and not words[0].is_quoted) or words[0].is_assignment):
        words = words[1:]
    if not words or depth > MAX_DEPTH:
        return
    name = words[0].text.rpartition("/")[2]
    yield " ".join([name, *[word.text for word in words[1:] if not word.is_quoted]])
    if name in WRAPPERS and name not in RUNNERS:
        yield from _run(_carried(name, words[1:]), bodies, depth + 1, scripts, inside)
    elif name in SHELLS:
        options = [word.text for word in words[1:] if not word.is_quoted]
        scripts += [(script, options) for script in _scripts(words, bodies)]
    elif name.startswith(MODULES):
        at = next((at for at, word in enumerate(words) if word.text == "-m"), len(words))
        yield from _run(words[at + 1 :], [], depth + 1, scripts, inside)
    elif name in RUNNERS and not inside and KEEPERS.isdisjoint([word.text for word in words[1:3]]):
        for at in range(1, min(len(words), MAX_TRIED)):
            yield from _run(words[at:], [], depth + 1, scripts, inside=True)


def _scripts(words: list[Word], bodies: list[str]) -> list[str]:
    """Return the scripts that a shell runs: the one behind `-c`, else its input."""
    for word, following in pairwise(words):
        if word.text[:1] == "-" and word.text[-1:] == "c":
            return [following.text]
    return bodies


def _carried(name: str, words: list[Word]) -> list[Word]:
    """Return the command that a wrapper runs, without the wrapper's own options."""
    valued = VALUE_OPTIONS.get(name, ())
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
    """Return file, first line and lines of `nl -ba FILE | sed -n '10,20p'`: the numbers are in the output itself."""
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
