"""Part 1 of a brief as text: task, next steps, decisions, what was asked and said, files."""

from __future__ import annotations

from dataclasses import dataclass

from keepfast.model.age import ago
from keepfast.resume.notes import FileNote, Notes
from keepfast.resume.ranking import is_generated
from keepfast.secrets.cuts import head
from keepfast.secrets.cuts import tail as end_of

SHARED = 8  # letters of a folder that are worth a place in the heading


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the checkpoint itself; without one, all is empty."""

    summary: str = ""
    checkpoint: str = ""  # its id
    version: str = ""  # such as v5
    saved_at: int | None = None  # nanoseconds
    branch: str = ""
    commit: str = ""
    changed: str = ""  # such as "3 files, +127 -9"
    source: str = ""  # where conversation and files are from, if not from here and now

    def title(self, notes: Notes) -> str:
        return (self.summary or notes.summary() or "a session without a prompt").replace("\n", " ")


def opening(facts: Facts, now: int) -> str:
    """Return the first line: which work is resumed, and from when. It stands before the fence, so it quotes nothing."""
    about = [f"saved {ago(now - facts.saved_at)}" if facts.saved_at is not None else "", facts.source]
    remarks = ", ".join([word for word in about if word])
    return f"Resumed from checkpoint: {facts.version or facts.checkpoint or 'this session'}{f' ({remarks})' if remarks else ''}"


@dataclass(frozen=True, slots=True)
class _Room:
    """How much of each section there is room for."""

    scale: float

    def most(self, characters: int) -> int:
        return max(24, int(characters * self.scale))

    def some(self, items: int) -> int:
        return max(1, round(items * self.scale))


def render_notes(notes: Notes, scale: float = 1.0, facts: Facts | None = None) -> str:
    """Return the body of part 1; `scale` below 1 shortens every section alike."""
    room = _Room(scale)
    rows = [section(notes, room) for section in SECTIONS]
    branch = (facts.branch if facts else "") or notes.branch
    if notes.cwd:
        rows.append(f"Working Directory: {notes.cwd}")
    if branch:
        rows.append(f"Git Branch: {branch}")
    # A heading with nothing below it says nothing.
    return "\n".join([row for row in rows if row and (not row.startswith("## ") or row.partition("\n")[2].strip())])


def _current_task(notes: Notes, room: _Room) -> str:
    return f"## Current Task\n{clip(notes.current_task, room.most(160))}"


def _next_steps(notes: Notes, room: _Room) -> str:
    steps = [clip(step, room.most(130)) for step in notes.next_steps[: room.some(6)]]
    return "\n".join(["## Next Steps", *[f"{number}. {step}" for number, step in enumerate(steps, 1)]])


def _decisions(notes: Notes, room: _Room) -> str:
    return "## Decisions Made\n" + _listed(notes.decisions[: room.some(4)], room.most(150))


def _blockers(notes: Notes, room: _Room) -> str:
    return "## Blockers\n" + _listed(notes.blockers[: room.some(3)], room.most(150))


def _reader(notes: Notes, room: _Room) -> str:
    if not notes.read_by:
        return ""
    return f"(Task, steps, decisions and blockers are in part as read by {clip(notes.read_by, 60)}.)"


def _done(notes: Notes, room: _Room) -> str:
    """Return the completed tasks; open ones are listed among the next steps."""
    done = [text for status, text in notes.tasks if status == "completed"]
    finished = "; ".join([clip(text, room.most(60)) for text in done[-room.some(4) :]])
    return f"## Done ({len(done)} of {len(notes.tasks)} tasks)\n{finished}"


def _plan(notes: Notes, room: _Room) -> str:
    return f"## Plan\n{clip(notes.plan, room.most(700))}"


def _answers(notes: Notes, room: _Room) -> str:
    answers = notes.answers[-room.some(3) :]
    listed = [f"{question} → {answer}" if question else answer for question, answer in answers]
    return "## Answers\n" + _listed(listed, room.most(180))


def _last_said(notes: Notes, room: _Room) -> str:
    return f"## Last said\n{clip(notes.last_answer, room.most(350))}"


def _last_run(notes: Notes, room: _Room) -> str:
    run = notes.last_run
    if run is None:
        return ""
    command = run.command.splitlines()[0] if run.command else ""
    result = "passed" if run.passed else "FAILED" if run.failed else "result not known"
    line = f"## Last test: {result}\n$ {clip(command, room.most(140))}"
    return line if run.passed or not run.tail else f"{line}\n{tail(run.tail, room.most(550 if run.failed else 250))}"


def _unfinished(notes: Notes, room: _Room) -> str:
    """Return the command without a result. Whether it ran is unknown: a checkpoint before a call looks like one during it."""
    if not notes.unfinished:
        return ""
    return f"## Begun, no result recorded\n$ {clip(notes.unfinished.splitlines()[0], room.most(80))}"


def clip(text: str, longest: int) -> str:
    """Return the text's beginning and end, with a mark where it was cut."""
    text = text.strip()
    if len(text) <= longest:
        return text
    if longest < 80:
        return head(text, longest - 1).rstrip() + "…"
    return head(text, longest * 7 // 10).rstrip() + " […] " + end_of(text, longest * 3 // 10 - 5).lstrip()


def tail(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text.strip("\n")
    cut = end_of(text, longest)
    return "[…]\n" + cut[cut.find("\n") + 1 :].strip("\n")


def _listed(items: list[str], longest: int) -> str:
    return "\n".join([f"- {' '.join(clip(item, longest).split())}" for item in items])


def _asked(notes: Notes, room: _Room) -> str:
    """Return the first prompt, the last one, and as many between as there is room for."""
    if not notes.prompts:
        return ""
    first, last = notes.prompts[0], notes.prompts[-1]
    rows = ["## Asked (verbatim)", f"first: {clip(first, room.most(320))}"]
    if len(notes.prompts) > 1:
        between = notes.prompts[1:-1][-room.some(3) :]
        skipped = len(notes.prompts) - 2 - len(between)
        if skipped:
            rows.append(f"[{skipped} more]")
        rows += [f"then: {clip(text, room.most(110))}" for text in between]
        rows.append(f"last: {clip(last, room.most(420))}")
    return "\n".join(rows)


def _files(notes: Notes, room: _Room) -> str:
    if not notes.files:
        return ""
    count = room.some(14)
    listed = [file for file in notes.files if not is_generated(file.path, notes.cwd, file.edited)]
    names = [_name(file, notes.cwd) for file in listed[:count]]
    folder = _common(names)
    deleted = ", D deleted" if any(file.is_deleted for file in listed[:count]) else ""
    title = f"## Files{f' in {folder}' if folder else ''}, newest first (M edited, r read{deleted})"
    rows = [_file(file, name[len(folder) :]) for file, name in zip(listed, names, strict=False)]
    if len(listed) > count:
        rows.append(f"and {len(listed) - count} more")
    return "\n".join([title, *rows])


def _common(names: list[str]) -> str:
    """Return the folder that all names share, if naming it once is shorter."""
    if len(names) < 3:
        return ""
    low, high = min(names), max(names)
    same = next((at for at, sign in enumerate(low) if high[at : at + 1] != sign), len(low))
    folder = low[: low.rfind("/", 0, same) + 1]
    return folder if len(folder) >= SHARED else ""


def _name(file: FileNote, cwd: str) -> str:
    path = file.path
    return path[len(cwd) :].lstrip("/") if cwd and path.startswith(cwd.rstrip("/") + "/") else path


def _file(file: FileNote, name: str) -> str:
    if file.is_deleted:
        return f"D {name}"
    spans = sorted(set(file.changed[-2:] if file.edited else file.read[-1:]))
    where = ",".join([f"{a}-{b}" if b > a else str(a) for a, b in spans if (a, b) != (1, 1)])
    return f"{'M' if file.edited else 'r'} {name}{f' L{where}' if where else ''}"


SECTIONS = (
    _current_task, _next_steps, _decisions, _blockers, _reader, _asked, _done, _plan, _answers, _last_said, _last_run,
    _unfinished, _files,
)  # fmt: skip
"""The sections of part 1, in order."""
