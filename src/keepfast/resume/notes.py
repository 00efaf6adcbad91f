"""Notes of a conversation: task, steps, decisions, files and tests, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from keepfast.agents.working_file import Span, WorkingFile
from keepfast.model.header import valid_notes
from keepfast.resume.signals import Signals
from keepfast.secrets.cuts import head

SUMMARY = 80
BETWEEN = " — "
MIN_TASK_CHARACTERS = 48
"""Characters of a task that are kept when the newest words about it are added."""


def shortened(text: str, longest: int = SUMMARY) -> str:
    """Return the text's first line, shortened; of a task and the newest words about it, the task first."""
    line = text.strip().split("\n")[0].strip()
    if len(line) <= longest:
        return line
    task, between, newest = line.partition(BETWEEN)
    if not between:
        return _cut(line, longest)
    room = longest - len(between)
    first = _cut(task, max(MIN_TASK_CHARACTERS, room - len(newest)))
    return first + between + _cut(newest, room - len(first))


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else head(text, longest - 1).rstrip() + "…"


@dataclass(slots=True)
class CommandRun:
    """A test or build: its command, whether it passed, and the end of its output if not.

    `is_known` is False where its exit code was masked (`pytest || true`) and its output does not show the result.
    """

    command: str
    passed: bool
    tail: str = ""
    at: int = 0
    is_known: bool = True

    @property
    def failed(self) -> bool:
        return self.is_known and not self.passed

    def to_json(self) -> dict[str, Any]:
        record = {"command": self.command, "passed": self.passed, "tail": self.tail, "at": self.at}
        return record if self.is_known else {**record, "unknown": True}

    @classmethod
    def from_json(cls, value: Any) -> CommandRun | None:
        """Read back what `Notes.to_json` wrote; None where no run was noted."""
        if not isinstance(value, dict):
            return None
        command, tail = str(value.get("command", "")), str(value.get("tail", ""))
        return cls(command, bool(value.get("passed")), tail, int(value.get("at", 0)), not value.get("unknown"))


@dataclass(slots=True)
class FileNote:
    """A file of the session, and where it was read or changed."""

    path: str
    edited: bool
    lines: int
    changed: list[tuple[int, int]] = field(default_factory=list)
    read: list[tuple[int, int]] = field(default_factory=list)
    is_inherited: bool = False  # changed before the session began, and not touched by it
    is_deleted: bool = False  # by a command of the session

    def as_file(self, touched: int) -> WorkingFile:
        """Return the file with these places, as if all were met at once; its text is not known."""
        changed, read = [_span(*lines) for lines in self.changed], [_span(*lines) for lines in self.read]
        return WorkingFile(self.path, touched=touched, hunks=changed, reads=read)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> FileNote:
        """Read back what `Notes.to_json` wrote."""
        path, lines = str(value.get("path", "")), int(value.get("lines", 0))
        return cls(path, bool(value.get("edited")), lines, _spans(value, "changed"), _spans(value, "read"))


@dataclass(slots=True)
class Notes:
    """Everything that part 1 of a brief can say. Empty fields are omitted."""

    current_task: str = ""
    next_steps: list[str] = field(default_factory=list)
    decisions: list[str] = field(default_factory=list)
    blockers: list[str] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    tasks: list[tuple[str, str]] = field(default_factory=list)  # (status, text)
    plan: str = ""
    answers: list[tuple[str, str]] = field(default_factory=list)
    last_answer: str = ""
    last_run: CommandRun | None = None
    unfinished: str = ""  # a command that was begun and has no recorded result
    commands: list[str] = field(default_factory=list)
    documents: list[str] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)
    files: list[FileNote] = field(default_factory=list)
    cwd: str = ""
    branch: str = ""
    model: str = ""
    client: str = ""
    session: str = ""
    ended: str = ""
    characters: float = 2.8  # per token, of the session's model
    signals: Signals = field(default_factory=Signals)
    declared: frozenset[str] = frozenset()  # fields that the agent itself stated
    read_by: str = ""  # a model that read the conversation, too

    @property
    def empty(self) -> bool:
        """Whether the notes have nothing for a brief."""
        return not (
            self.prompts or self.last_answer or self.files or self.current_task or self.next_steps or self.commands
        )

    def summary(self, longest: int = SUMMARY) -> str:
        """Return one line: the current task, else the last prompt's first line."""
        return shortened(self.current_task or (self.prompts[-1] if self.prompts else ""), longest)

    def to_json(self) -> dict[str, Any]:
        """Return the members of the checkpoint document: `analysis` and `context`, and what only a brief needs.

        Files are those of the session: inherited ones stand in what it inherited.
        """
        return {
            "analysis": {
                "current_task": self.current_task,
                "next_steps": list(self.next_steps),
                "decisions_made": list(self.decisions),
                "blockers": list(self.blockers),
                "relevant_docs": list(self.documents),
            },
            "context": {
                "working_directory": self.cwd,
                "relevant_packages": list(self.packages),
                "recent_commands": list(self.commands),
                "git_branch": self.branch,
            },
            "asked": list(self.prompts),
            "tasks": [{"status": status, "text": text} for status, text in self.tasks],
            "plan": self.plan,
            "answers": [{"question": question, "answer": answer} for question, answer in self.answers],
            "last_said": self.last_answer,
            "last_test": None if self.last_run is None else self.last_run.to_json(),
            "unfinished": self.unfinished,
            "files": [
                {
                    "path": file.path,
                    "edited": file.edited,
                    "lines": file.lines,
                    "changed": [list(span) for span in file.changed],
                    "read": [list(span) for span in file.read],
                }
                for file in self.files
                if not file.is_inherited
            ],
            "session": {
                "id": self.session,
                "client": self.client,
                "model": self.model,
                "ended": self.ended,
                "characters_per_token": self.characters,
            },
            "signals": self.signals.to_json(),
            "read_by": self.read_by,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Notes:
        """Read back what `to_json` wrote; what is missing stays empty, and so does what is something else."""
        value = valid_notes(value)
        analysis, around = value.get("analysis") or {}, value.get("context") or {}
        session = value.get("session") or {}
        return cls(
            current_task=_text(analysis, "current_task"),
            next_steps=_texts(analysis, "next_steps"),
            decisions=_texts(analysis, "decisions_made"),
            blockers=_texts(analysis, "blockers"),
            documents=_texts(analysis, "relevant_docs"),
            cwd=_text(around, "working_directory"),
            packages=_texts(around, "relevant_packages"),
            commands=_texts(around, "recent_commands"),
            branch=_text(around, "git_branch"),
            prompts=_texts(value, "asked"),
            tasks=_pairs(value, "tasks", "status", "text"),
            plan=_text(value, "plan"),
            answers=_pairs(value, "answers", "question", "answer"),
            last_answer=_text(value, "last_said"),
            last_run=CommandRun.from_json(value.get("last_test")),
            unfinished=_text(value, "unfinished"),
            files=[FileNote.from_json(one) for one in value.get("files") or []],
            session=_text(session, "id"),
            client=_text(session, "client"),
            model=_text(session, "model"),
            ended=_text(session, "ended"),
            characters=float(session.get("characters_per_token") or 2.8),
            signals=Signals.from_json(value.get("signals") or {}),
            read_by=_text(value, "read_by"),
        )


def _text(value: dict[str, Any], name: str) -> str:
    return str(value.get(name) or "")


def _texts(value: dict[str, Any], name: str) -> list[str]:
    return [str(one) for one in value.get(name) or []]


def _pairs(value: dict[str, Any], name: str, first: str, second: str) -> list[tuple[str, str]]:
    return [(str(one.get(first, "")), str(one.get(second, ""))) for one in value.get(name) or []]


def _span(first: int, last: int) -> Span:
    """Return the lines as a span; a change without a place is stored as one of line 1."""
    return Span(0, first, last - first + 1 if last > 1 else 0)


def _spans(value: dict[str, Any], name: str) -> list[tuple[int, int]]:
    return [(int(start), int(end)) for start, end in value.get(name) or []]
