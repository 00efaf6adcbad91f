"""Notes: what an agent must know to go on, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from keepfast.model.header import proper_notes
from keepfast.resume.signals import Signals
from keepfast.secrets.cuts import head

SUMMARY = 80
BETWEEN = " — "
FEWEST = 48
"""Characters that a task keeps beside the newest words about it."""


def shortened(text: str, longest: int = SUMMARY) -> str:
    """The text's first line; where it is too long, of a task and the newest words about it the task gives way first."""
    line = text.strip().split("\n")[0].strip()
    if len(line) <= longest:
        return line
    task, between, newest = line.partition(BETWEEN)
    if not between:
        return _cut(line, longest)
    room = longest - len(between)
    first = _cut(task, max(FEWEST, room - len(newest)))
    return first + between + _cut(newest, room - len(first))


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else head(text, longest - 1).rstrip() + "…"


@dataclass(slots=True)
class Run:
    """A test or build: its command, whether it passed, and the end of its output if not."""

    command: str
    passed: bool
    tail: str = ""
    at: int = 0


@dataclass(slots=True)
class FileNote:
    """A file of the session, and where it was read or changed."""

    path: str
    edited: bool
    lines: int
    changed: list[tuple[int, int]] = field(default_factory=list)
    read: list[tuple[int, int]] = field(default_factory=list)
    is_inherited: bool = False  # changed before the session began, and not touched by it


@dataclass(slots=True)
class Notes:
    """Everything that part 1 of a brief can say. Empty fields are left unsaid."""

    current_task: str = ""
    next_steps: list[str] = field(default_factory=list)
    decisions: list[str] = field(default_factory=list)
    blockers: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    tasks: list[tuple[str, str]] = field(default_factory=list)  # (status, text)
    plan: str = ""
    answers: list[tuple[str, str]] = field(default_factory=list)
    said: str = ""
    last_run: Run | None = None
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
        """Whether there is nothing to tell."""
        return not (self.asked or self.said or self.files or self.current_task or self.next_steps or self.commands)

    def summary(self, longest: int = SUMMARY) -> str:
        """One line: the current task, else the last prompt's first line."""
        return shortened(self.current_task or (self.asked[-1] if self.asked else ""), longest)

    def to_json(self) -> dict[str, Any]:
        """The checkpoint document's shape: `analysis` and `context`, and beside them what the brief needs besides.

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
            "asked": list(self.asked),
            "tasks": [{"status": status, "text": text} for status, text in self.tasks],
            "plan": self.plan,
            "answers": [{"question": question, "answer": answer} for question, answer in self.answers],
            "last_said": self.said,
            "last_test": None
            if self.last_run is None
            else {
                "command": self.last_run.command,
                "passed": self.last_run.passed,
                "tail": self.last_run.tail,
                "at": self.last_run.at,
            },
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
        value = proper_notes(value)
        analysis, around = value.get("analysis") or {}, value.get("context") or {}
        session, run = value.get("session") or {}, value.get("last_test")
        return cls(
            current_task=str(analysis.get("current_task") or ""),
            next_steps=[str(step) for step in analysis.get("next_steps") or []],
            decisions=[str(one) for one in analysis.get("decisions_made") or []],
            blockers=[str(one) for one in analysis.get("blockers") or []],
            documents=[str(one) for one in analysis.get("relevant_docs") or []],
            cwd=str(around.get("working_directory") or ""),
            packages=[str(one) for one in around.get("relevant_packages") or []],
            commands=[str(one) for one in around.get("recent_commands") or []],
            branch=str(around.get("git_branch") or ""),
            asked=[str(one) for one in value.get("asked") or []],
            tasks=[(str(one.get("status", "")), str(one.get("text", ""))) for one in value.get("tasks") or []],
            plan=str(value.get("plan") or ""),
            answers=[(str(one.get("question", "")), str(one.get("answer", ""))) for one in value.get("answers") or []],
            said=str(value.get("last_said") or ""),
            last_run=None
            if not isinstance(run, dict)
            else Run(
                str(run.get("command", "")), bool(run.get("passed")), str(run.get("tail", "")), int(run.get("at", 0))
            ),
            unfinished=str(value.get("unfinished") or ""),
            files=[
                FileNote(
                    str(one.get("path", "")),
                    bool(one.get("edited")),
                    int(one.get("lines", 0)),
                    [(int(a), int(b)) for a, b in one.get("changed") or []],
                    [(int(a), int(b)) for a, b in one.get("read") or []],
                )
                for one in value.get("files") or []
            ],
            session=str(session.get("id") or ""),
            client=str(session.get("client") or ""),
            model=str(session.get("model") or ""),
            ended=str(session.get("ended") or ""),
            characters=float(session.get("characters_per_token") or 2.8),
            signals=Signals.from_json(value.get("signals") or {}),
            read_by=str(value.get("read_by") or ""),
        )
