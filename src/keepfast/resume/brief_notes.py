"""Part 1 of a brief as text: task, next steps, decisions, what was asked and said, files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from keepfast.model.age import ago
from keepfast.resume.notes import FileNote, Notes
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
        return (self.summary or notes.summary() or "session").replace("\n", " ")


def opening(facts: Facts, now: int) -> str:
    """The first line: from what is resumed, and from when. It stands before the fence, so it quotes nothing."""
    about = [f"saved {ago(now - facts.saved_at)}" if facts.saved_at is not None else "", facts.source]
    said = ", ".join([word for word in about if word])
    return (
        f"Resumed from checkpoint: {facts.version or facts.checkpoint or 'this session'}{f' ({said})' if said else ''}"
    )


def render_notes(notes: Notes, scale: float = 1.0, facts: Facts | None = None) -> str:
    """The body of part 1; `scale` below 1 shortens every section alike."""

    def most(count: int) -> int:
        return max(24, int(count * scale))

    def some(count: int) -> int:
        return max(1, round(count * scale))

    rows: list[str] = []
    if notes.current_task:
        rows.append(f"## Current Task\n{clip(notes.current_task, most(160))}")
    if notes.next_steps:
        listed = [f"{number}. {clip(one, most(130))}" for number, one in enumerate(notes.next_steps[: some(6)], 1)]
        rows.append("## Next Steps\n" + "\n".join(listed))
    if notes.decisions:
        rows.append("## Decisions Made\n" + _listed(notes.decisions[: some(4)], most(150)))
    if notes.blockers:
        rows.append("## Blockers\n" + _listed(notes.blockers[: some(3)], most(150)))
    if notes.read_by:
        rows.append(f"(Task, steps, decisions and blockers are in part as read by {clip(notes.read_by, 60)}.)")
    if notes.asked:
        rows.append("## Asked (verbatim)\n" + _asked(notes, most, some))
    done = [text for status, text in notes.tasks if status == "completed"]
    if done:
        # Open tasks stand among the next steps.
        finished = "; ".join([clip(text, most(60)) for text in done[-some(4) :]])
        rows.append(f"## Done ({len(done)} of {len(notes.tasks)} tasks)\n{finished}")
    if notes.plan:
        rows.append(f"## Plan\n{clip(notes.plan, most(700))}")
    if notes.answers:
        listed = [f"{question} → {answer}" if question else answer for question, answer in notes.answers[-some(3) :]]
        rows.append("## Answers\n" + _listed(listed, most(180)))
    if notes.said:
        rows.append(f"## Last said\n{clip(notes.said, most(350))}")
    if notes.last_run is not None:
        run = notes.last_run
        command = run.command.splitlines()[0] if run.command else ""
        line = f"## Last test: {'passed' if run.passed else 'FAILED'}\n$ {clip(command, most(140))}"
        rows.append(line if run.passed or not run.tail else f"{line}\n{tail(run.tail, most(550))}")
    if notes.unfinished:
        # Whether it ran is not known: a checkpoint before a tool call ends like one in the middle of it.
        line = notes.unfinished.splitlines()[0]
        rows.append(f"## Begun, no result recorded\n$ {clip(line, most(80))}")
    if notes.files:
        rows.append(_files(notes, some(14)))
    if notes.cwd:
        rows.append(f"Working Directory: {notes.cwd}")
    branch = (facts.branch if facts else "") or notes.branch
    if branch:
        rows.append(f"Git Branch: {branch}")
    return "\n".join([row for row in rows if not row.startswith("## ") or row.partition("\n")[2].strip()])


def clip(text: str, longest: int) -> str:
    """The text's beginning and end, with a mark where it was cut."""
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


def _asked(notes: Notes, most: Callable[[int], int], some: Callable[[int], int]) -> str:
    """The first prompt, the last one, and as many between as there is room for."""
    first, last = notes.asked[0], notes.asked[-1]
    rows = [f"first: {clip(first, most(320))}"]
    if len(notes.asked) > 1:
        between = notes.asked[1:-1][-some(3) :]
        skipped = len(notes.asked) - 2 - len(between)
        if skipped:
            rows.append(f"[{skipped} more]")
        rows += [f"then: {clip(text, most(110))}" for text in between]
        rows.append(f"last: {clip(last, most(420))}")
    return "\n".join(rows)


def _files(notes: Notes, count: int) -> str:
    from keepfast.resume.ranking import is_generated

    listed = [file for file in notes.files if not is_generated(file.path, notes.cwd, file.edited)]
    names = [_name(file, notes.cwd) for file in listed[:count]]
    folder = _common(names)
    title = f"## Files{f' in {folder}' if folder else ''}, newest first (M edited, r read)"
    rows = [_file(file, name[len(folder) :]) for file, name in zip(listed, names, strict=False)]
    if len(listed) > count:
        rows.append(f"and {len(listed) - count} more")
    return "\n".join([title, *rows])


def _common(names: list[str]) -> str:
    """The folder that all names share, where saying it once is shorter."""
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
    spans = sorted(set(file.changed[-2:] if file.edited else file.read[-1:]))
    where = ",".join([f"{a}-{b}" if b > a else str(a) for a, b in spans if (a, b) != (1, 1)])
    return f"{'M' if file.edited else 'r'} {name}{f' L{where}' if where else ''}"
