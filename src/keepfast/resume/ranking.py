"""Ranks blocks of files by the chance that one of the next edits needs them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import exp, log, log1p

from keepfast.agents.working_file import Span, WorkingFile
from keepfast.resume.blocks import cut
from keepfast.resume.signals import Signals
from keepfast.resume.spans import LN2, MAX_SPANS, Nearness, fading
from keepfast.resume.weights import WEIGHTS

NEAR = 8.0  # lines until closeness counts half
LATELY = 60  # tool calls
NEIGHBOUR = 0.3  # share of a better neighbour's lead that a block is given: edits cross the borders of blocks

# Never worth an excerpt: generated, or no text.
GENERATED = re.compile(
    r"(^|/)(node_modules|dist|build|\.git|\.keepfast|vendor|__pycache__|\.venv)/"
    r"|\.(lock|png|jpe?g|gif|ico|svg|bin|pdf|zip|gz|woff2?|map|min\.(js|css)|jsonl|ipynb)$"
    r"|(^|/)(package-lock\.json|go\.sum|pnpm-lock\.yaml)$|(^|/)\.claude/",
    re.I,
)
# Folders that may hold sources as well: what an agent edited there by name is its work.
SOURCES_TOO = re.compile(r"(^|/)(dist|build|vendor)(?=/)", re.I)


def is_generated(path: str, cwd: str, edited: bool = False) -> bool:
    """Return whether the file is generated, no text, or temporary, as seen from the working folder.

    `edited`: a tool of the agent wrote it by its name.
    """
    below = cwd.rstrip("/") + "/"
    is_below = bool(cwd) and path.startswith(below)
    name = path[len(below) :] if is_below else path
    if edited:
        name = SOURCES_TOO.sub(r"\1src", name)
    return GENERATED.search(name) is not None or (not is_below and path.startswith("/tmp/"))


DEFINES = re.compile(
    r"^\s*(?:(?:export|pub(?:\([a-z]+\))?|public|private|protected|static|async|default|abstract|final)\s+)*"
    r"(?:func|def|class|function|fn|interface|type|struct|enum|trait|impl|const|let|var|module|describe|it|test)\b"
    r"[\s(]*(?:\([^)]*\)\s*)?[\"'`]?([A-Za-z_$][\w$]*)"
)
IMPORTS = re.compile(r"^\s*(?:import|from|use|using|#include|package|const .*require\()\b|^\s+(?:\w+ )?\"[\w./@-]+\"$")

# Beyond this much text only what was read or changed is looked at: a brief must be ready in 100 ms.
WHOLE_LINES = 2_500
MAX_TEXT = 450_000
MAX_FILES = 40
AROUND, MAX_WINDOWS = 60, 12
BEGINNING, MIN_BEGINNING = 16_000, 1_000
"""Characters taken from the beginning of very long files without known places: of all together, and at least of one."""
IMPORTS_END = 120

FEATURES = (
    "touched near read narrow said length touched_now named last_rare named_open imports pointed overs near_long defines "
    "removed small latest read_lately open found sibling edits"
).split()

SOURCES = ("recent", "last", "removed", "open")
"""Sources of the words that are searched for in blocks."""
MAX_COUNTED = 3.0  # of one word
MAX_DISTANCE = 999
TESTING = re.compile(r"^tests?_|[._-]?(?:tests?|spec)$", re.I)

SEPARATORS = {code: " " for code in range(128) if not (chr(code).isalnum() or chr(code) == "_")}


@dataclass(slots=True)
class Block:
    """Lines `first` to `last` (from 0) of a file, with the value of each feature."""

    file: int
    first: int
    last: int
    length: int
    signs: list[float]
    ascii: bool = True
    chance: float = 0.0


def rank(files: list[WorkingFile], signals: Signals, weights: dict[str, float] | None = None) -> list[Block]:
    """Return all blocks of `files` (newest first) with the chance that one of the next edits needs them."""
    used = WEIGHTS if weights is None else weights
    vector = [used.get(name, 0.0) for name in FEATURES]
    constant = used["constant"]
    blocks = collect(files, signals)
    worths = [constant + sum([a * b for a, b in zip(vector, block.signs, strict=True)]) for block in blocks]
    for at, block in enumerate(blocks):
        worth = best = worths[at]
        if at and _adjoin(blocks[at - 1], block):
            best = max(best, worths[at - 1])
        if at + 1 < len(blocks) and _adjoin(block, blocks[at + 1]):
            best = max(best, worths[at + 1])
        worth += NEIGHBOUR * (best - worth)
        block.chance = 1 / (1 + exp(-max(-30.0, min(30.0, worth))))
    return blocks


def _adjoin(upper: Block, lower: Block) -> bool:
    return upper.file == lower.file and upper.last + 1 == lower.first


def collect(files: list[WorkingFile], signals: Signals) -> list[Block]:
    """Return the blocks with their features, unweighted."""
    signal_words = {word for source in SOURCES for word in signals.of(source)}
    spread: dict[str, int] = {}
    candidates: list[tuple[int, list[tuple[int, int]], list[set[str]], list[str]]] = []
    total = 0
    for number, blocks in _cuts(files).items():
        lines = files[number].lines
        texts = ["\n".join([line or "" for line in lines[first : last + 1]]) for first, last in blocks]
        words = [signal_words.intersection(text.translate(SEPARATORS).split()) for text in texts]
        for of in words:
            for word in of:
                spread[word] = spread.get(word, 0) + 1
        total += len(blocks)
        candidates.append((number, blocks, words, texts))
    # A word that occurs in few blocks says more.
    rarity = {word: log(total / count + 1) for word, count in spread.items()}
    session = _Session(files, signals)
    ranked = []
    for number, blocks, words, texts in candidates:
        about = _About(files[number], blocks, session)
        for at, ((first, last), of, text) in enumerate(zip(blocks, words, texts, strict=True)):
            signs = about.signs(at, first, last, len(text) + 1, of, rarity)
            ranked.append(Block(number, first, last, len(text) + 1, signs, text.isascii()))
    return ranked


def _cuts(files: list[WorkingFile]) -> dict[int, list[tuple[int, int]]]:
    cuts: dict[int, list[tuple[int, int]]] = {}
    left = MAX_TEXT
    windows = {number: _windows(file) for number, file in enumerate(files) if len(file.lines) > WHOLE_LINES}
    unplaced = sum([not spans for spans in windows.values()])
    for number, file in enumerate(files):
        if len(cuts) >= MAX_FILES or left <= 0:
            break
        if file.is_missing or not file.lines:
            continue
        if number not in windows:
            blocks = cut(file.lines)
        elif not windows[number]:
            blocks = cut(file.lines, 0, _end_of_beginning(file, max(MIN_BEGINNING, BEGINNING // unplaced)))
        else:
            blocks = [block for a, b in windows[number] for block in cut(file.lines, a, b)]
        if blocks:
            left -= sum([len(line) for a, b in blocks for line in file.lines[a : b + 1] if line])
            cuts[number] = blocks
    return cuts


def _windows(file: WorkingFile) -> list[tuple[int, int]]:
    """Return the line ranges around the last changes and reads of a very long file."""
    hunks = [span for span in file.hunks[-2 * MAX_WINDOWS :] if span.is_placed][-MAX_WINDOWS:]
    spans = [(max(0, span.start - 1 - AROUND), span.end - 1 + AROUND) for span in hunks]
    spans += [(span.start - 1, min(span.end - 1, span.start + 400)) for span in file.reads[-6:]]
    merged: list[tuple[int, int]] = []
    for a, b in sorted(spans):
        if merged and a <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(b, merged[-1][1]))
        else:
            merged.append((a, b))
    return [(a, min(b, len(file.lines) - 1)) for a, b in merged if a < len(file.lines)]


def _end_of_beginning(file: WorkingFile, most: int) -> int:
    """Return the last of the first lines (from 0) that have at most so many characters."""
    for number, line in enumerate(file.lines):
        most -= len(line or "") + 1
        if most < 0:
            return max(0, number - 1)
    return len(file.lines) - 1


class _Session:
    """Facts about the session that are the same for all files."""

    def __init__(self, files: list[WorkingFile], signals: Signals) -> None:
        self.signals, self.now = signals, signals.now
        self.words = {source: signals.of(source) for source in SOURCES}
        # A long session has thousands of changes, in the order of time.
        changes = [
            (hunk.at, -number, file.path, hunk) for number, file in enumerate(files) for hunk in file.hunks[-MAX_SPANS:]
        ]
        self.latest: tuple[str, Span] | None = None
        if changes:
            _, _, path, hunk = max(changes, key=lambda change: change[:2])
            self.latest = path, hunk
        self.edited: dict[str, list[tuple[float, str]]] = {}
        for file in files:
            if file.hunks:
                fresh = fading(signals.now - max([hunk.at for hunk in file.hunks[-MAX_SPANS:]]))
                self.edited.setdefault(stem(file.path), []).append((fresh, file.path))

    def sibling(self, path: str) -> float:
        """Return how recent the last change of a file with the same stem is: a module and its test change in turn."""
        return max([fresh for fresh, other in self.edited.get(stem(path), ()) if other != path], default=0.0)


class _About:
    """Facts about a file that are the same for all its blocks, and the features of each block."""

    def __init__(self, file: WorkingFile, blocks: list[tuple[int, int]], session: _Session) -> None:
        signals, now = session.signals, session.now
        name = file.path.rsplit("/", 1)[-1]
        self.lines, self.words = file.lines, session.words
        self.nearness = Nearness(file, blocks, now)
        self.latest = session.latest[1] if session.latest is not None and session.latest[0] == file.path else None
        self.touched = fading(now - file.touched)
        self.touched_now = float(file.touched >= signals.prompt_at)
        self.named = float(name in signals.named.get("recent", ()))
        self.named_open = float(name in signals.named.get("open", ()))
        self.pointed = signals.pointed.get(name, [])
        self.hits: dict[int, float] = {}
        for line, weight in signals.hits.get(name, ()):
            for number in self.nearness.covered(line, line):
                self.hits[number] = max(weight, self.hits.get(number, 0.0))
        self.sibling = session.sibling(file.path)
        self.edits = log1p(len({hunk.at for hunk in file.hunks[-LATELY:] if now - hunk.at < LATELY}))

    def signs(
        self, at: int, first: int, last: int, length: int, words: set[str], rarity: dict[str, float]
    ) -> list[float]:
        nearness, lines = self.nearness, self.lines[first : last + 1]
        shared: list[str] = []
        recent_overlap = last_rare = removed_overlap = still_open = 0.0
        if words:  # most blocks have none
            recent, last_said, removed, open_ = self.words.values()
            shared = [word for word in words if word in recent]
            recent_overlap = log1p(sum([min(recent[word], MAX_COUNTED) for word in shared]))
            last_rare = log1p(sum([rarity[word] for word in words if word in last_said]))
            removed_overlap = log1p(sum([removed[word] * rarity[word] for word in words if word in removed]))
            still_open = log1p(sum([min(open_[word], MAX_COUNTED) * rarity[word] for word in words if word in open_]))
        closest = nearness.closest[at]
        return [
            self.touched,
            exp(-LN2 * closest / NEAR) if closest < MAX_DISTANCE else 0.0,
            nearness.read[at],
            nearness.narrow[at],
            recent_overlap,
            log1p(length),
            self.touched_now,
            self.named,
            last_rare,
            self.named_open,
            self.touched if first < IMPORTS_END and _imports(lines) else 0.0,
            max([weight for line, weight in self.pointed if first - 2 <= line <= last + 4], default=0.0)
            if self.pointed
            else 0.0,
            log1p(nearness.overs[at]),
            nearness.near_long[at],
            float(bool(shared) and _defines(lines, shared)),
            removed_overlap,
            nearness.small[at],
            1 / (1 + nearness.distance(at, self.latest) / NEAR) if self.latest is not None else 0.0,
            nearness.read_lately[at],
            still_open,
            self.hits.get(at, 0.0),
            self.sibling,
            self.edits,
        ]


def stem(path: str) -> str:
    """Return a file's name without its ending and without the marks of a test file."""
    return TESTING.sub("", path.rsplit("/", 1)[-1].split(".", 1)[0]).lower()


def _imports(lines: list[str | None]) -> bool:
    return sum([bool(IMPORTS.match(line or "")) for line in lines]) >= 2


def _defines(lines: list[str | None], names: list[str]) -> bool:
    """Return whether a definition of one of the names begins here."""
    for line in lines:
        match = DEFINES.match(line or "")
        if match and match[1] in names:
            return True
    return False
