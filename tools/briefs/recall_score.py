"""The share of what a session needed next that a brief would have contained: the measure of `keepfast eval`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from keepfast.agents import transcript
from keepfast.agents.transcript import Conversation
from keepfast.agents.turns import EDIT, READ, SEARCH, WRITE
from keepfast.agents.working_file import WorkingFile
from keepfast.resume import extractor as noting
from keepfast.resume.notes import Notes
from keepfast.resume.ranking import is_generated

CALLS = 20
MIN_CALLS = 16
SHARES = (25, 50, 75)
BLANK = "\0"

Shown = dict[str, set[int]]


@dataclass(slots=True)
class Need:
    """Lines that a later call needed: `spans` (from 0) are all places of an edit's text; none if the session never saw it."""

    path: str
    after: int
    spans: list[tuple[int, int]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)  # of a read


@dataclass(slots=True)
class Cut:
    """A session stopped at one moment, and what it did next."""

    project: str
    session: str
    kind: str  # 25, 50, 75, compaction, or sample
    before: Conversation
    notes: Notes
    files: list[WorkingFile]
    edits: list[Need]
    reads: list[Need]
    unseen: int  # edits and reads of files never seen before
    searches: int
    read_again: int  # characters of reads of files that were known


def project_of(path: str, folder: str) -> str:
    """The project that a transcript belongs to: its folder below the given one, else its name without a number."""
    inner = path[len(folder.rstrip("/")) + 1 :] if folder and path.startswith(folder.rstrip("/") + "/") else path
    if "/" in inner:
        return inner.rsplit("/", 1)[0].rsplit("/", 1)[-1]
    name = inner.split(".", 1)[0]
    stem, _, number = name.rpartition("-")
    return stem if stem and number.isdigit() else name


def cuts(path: str, project: str, every: int = 0, calls: int = CALLS) -> Iterator[Cut]:
    """The moments at which a recorded session is stopped: after 25, 50 and 75 % of its calls and at compactions.

    With `every`, at every n-th call instead: for weight_fit.
    """
    with open(path, "rb") as file:
        data = transcript.unpacked(file.read())
    full = transcript.read(data, keep=True)
    begun = [turn for turn in full.turns if turn.call is not None and not turn.side]
    if len(begun) < MIN_CALLS:
        return
    moments: list[tuple[int, int, str]] = []
    if every:
        moments = [(turn.line, turn.number, "sample") for turn in begun[every : len(begun) - 4 : every]]
    else:
        for share in SHARES:
            turn = begun[len(begun) * share // 100]
            moments.append((turn.line, turn.number, str(share)))
        moments += [(turn.line, turn.number + 1, "compaction") for turn in full.turns if turn.kind == "compacted"]
    lines = data.split(b"\n")
    state: Conversation | None = None
    at = 0
    for line, number, kind in sorted(moments):
        state = transcript.read(b"".join([one + b"\n" for one in lines[at:line]]), state)
        at = line
        cut = _cut(full, state, number, calls)
        if cut is not None:
            cut.project, cut.session, cut.kind = project, path, kind
            yield cut


def _cut(full: Conversation, before: Conversation, number: int, calls: int) -> Cut | None:
    """What the session needed in its next calls; None where nothing was edited yet or too little follows."""
    files = [file for file in before.files.newest_first() if not is_generated(file.path, before.cwd)]
    if not any(file.hunks for file in files):
        return None
    # A shell's output shows a file too, but the measure counts what the client's own tools had opened.
    opened = {call.path for call in before.called() if call.done and not call.failed and call.path}
    texts: dict[str, str] = {}
    edits: list[Need] = []
    reads: list[Need] = []
    changed: set[str] = set()
    unseen = searches = again = seen = 0
    for call in full.called():
        if call.number < number:
            continue
        if seen == calls:
            break
        seen += 1
        if call.act == SEARCH:
            searches += 1
        if call.failed or not call.path or is_generated(call.path, before.cwd):
            continue
        file = before.files.by_path.get(call.path)
        known = file is not None and bool(file.lines) and call.path in opened
        if call.act == EDIT and call.old:
            if file is None or not known:
                unseen += call.path not in changed
            else:
                if call.path not in texts:
                    texts[call.path] = "\n".join([BLANK if line is None else line for line in file.lines])
                spans = _places(texts[call.path], call.old)
                if spans or (BLANK in texts[call.path] and call.path not in changed):
                    edits.append(Need(call.path, call.number - number, spans))
            changed.add(call.path)
        elif call.act == WRITE:
            changed.add(call.path)
        elif call.act == READ and call.shown_lines is not None:
            if known:
                reads.append(Need(call.path, call.number - number, lines=call.shown_lines))
                again += sum([len(line) + 8 for line in call.shown_lines])
            else:
                unseen += 1
    if seen < 5 or not (edits or reads):
        return None
    return Cut("", "", "", before, noting.take(before), files, edits, reads, unseen, searches, again)


def _places(text: str, wanted: str) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    at = text.find(wanted)
    while at >= 0 and len(found) < 20:
        first = text.count("\n", 0, at)
        found.append((first, first + wanted.count("\n")))
        at = text.find(wanted, at + 1)
    return found


@dataclass(slots=True)
class Score:
    """Sums over cuts."""

    cuts: int = 0
    edits: int = 0
    hits: int = 0
    firsts: int = 0
    first_hits: int = 0
    reads: int = 0
    covered: float = 0.0
    whole: int = 0  # reads of which at least 95 % were shown
    saved: float = 0.0  # characters of reads that were shown
    tokens: float = 0.0

    def add(self, cut: Cut, shown: Shown, tokens: float) -> None:
        self.cuts += 1
        self.tokens += tokens
        for place, need in enumerate(cut.edits):
            lines = shown.get(need.path, set())
            hit = any(all(line in lines for line in range(a, b + 1)) for a, b in need.spans)
            self.edits += 1
            self.hits += hit
            if place == 0:
                self.firsts += 1
                self.first_hits += hit
        by_path = {file.path: file for file in cut.files}
        for need in cut.reads:
            file = by_path[need.path]
            texts = {(file.lines[line] or "").strip() for line in shown.get(need.path, ())}
            wanted = [line for line in need.lines if line.strip()]
            found = [line for line in wanted if line.strip() in texts]
            share = len(found) / len(wanted) if wanted else 1.0
            self.reads += 1
            self.covered += share
            self.whole += share >= 0.95
            self.saved += sum([len(line) + 8 for line in found])

    def merge(self, other: Score) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def edit_span(self) -> float:
        return self.hits / self.edits if self.edits else 0.0

    @property
    def first_edit(self) -> float:
        return self.first_hits / self.firsts if self.firsts else 0.0

    @property
    def read_coverage(self) -> float:
        return self.covered / self.reads if self.reads else 0.0


# Other ways to fill the same number of characters.

HEADING = 40


def _whole(files: list[WorkingFile], room: float, fitting: bool = False) -> Shown:
    shown: Shown = {}
    left = room
    for file in files:
        known = [(number, len(line) + 1) for number, line in enumerate(file.lines) if line is not None]
        if not known:
            continue
        cost = HEADING + sum([length for _, length in known])
        if fitting:
            if cost <= left:
                left -= cost
                shown[file.path] = {number for number, _ in known}
            continue
        left -= HEADING
        lines = shown.setdefault(file.path, set())
        for number, length in known:
            if length > left:
                return shown
            left -= length
            lines.add(number)
    return shown


def git_order(cut: Cut, room: float) -> Shown:
    """The source document's method: modified files whole, in `git status` order, until the room is full."""
    return _whole(sorted([file for file in cut.files if file.hunks], key=lambda file: file.path), room)


def recent_edited(cut: Cut, room: float) -> Shown:
    edited = [file for file in cut.files if file.hunks]
    return _whole(sorted(edited, key=lambda file: -max(hunk.at for hunk in file.hunks)), room)


def recent(cut: Cut, room: float) -> Shown:
    return _whole(cut.files, room)


def recent_fitting(cut: Cut, room: float) -> Shown:
    return _whole(cut.files, room, fitting=True)


def around_changes(cut: Cut, room: float) -> Shown:
    """Fifteen lines around the last changes, newest first."""
    shown: Shown = {}
    left = room
    hunks = [(hunk, file) for file in cut.files for hunk in file.hunks]
    for hunk, file in sorted(hunks, key=lambda one: -one[0].at):
        lines = shown.get(file.path, set())
        span = range(max(0, hunk.start - 16), min(len(file.lines), hunk.end + 15))
        new = [line for line in span if line not in lines and file.lines[line] is not None]
        cost = sum([len(file.lines[line] or "") + 1 for line in new]) + (14 if lines else HEADING)
        if new and cost <= left:
            left -= cost
            shown.setdefault(file.path, set()).update(new)
    return shown


BASELINES: dict[str, Callable[[Cut, float], Shown]] = {
    "modified files whole, git status order": git_order,
    "edited files whole, newest first": recent_edited,
    "recent files, whole": recent,
    "recent files, whole if they fit": recent_fitting,
    "fifteen lines around changes": around_changes,
}
