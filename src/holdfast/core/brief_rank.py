"""Which lines of which files the next edits are likely to need, by worth."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import exp, log, log1p

from holdfast.core.brief_blocks import cut
from holdfast.core.brief_weights import WEIGHTS
from holdfast.core.signals import Signals
from holdfast.core.working import WorkingFile

LN2 = 0.6931471805599453
HALF = 12.0  # tool calls until a sign counts half
LONG = 40.0
NEAR = 8.0  # lines until closeness counts half
FAR = 25.0
NARROW = 60  # a read of so many lines or fewer was meant for them
SMALL = 40
NEIGHBOUR = 0.3  # share of a better neighbour's lead that a block is given: edits cross the borders of blocks

# Never worth an excerpt: made by tools, or no text.
GENERATED = re.compile(
    r"(^|/)(node_modules|dist|build|\.git|\.holdfast|vendor|__pycache__|\.venv)/"
    r"|\.(lock|png|jpe?g|gif|ico|svg|bin|pdf|zip|gz|woff2?|map|min\.(js|css)|jsonl|ipynb)$"
    r"|(^|/)(package-lock\.json|go\.sum|pnpm-lock\.yaml)$|(^|/)\.claude/",
    re.I,
)


def is_generated(path: str, cwd: str) -> bool:
    """Is the file made by tools, no text, or somebody's scratch? Seen from the working folder, wherever that lies."""
    below = cwd.rstrip("/") + "/"
    if cwd and path.startswith(below):
        return GENERATED.search(path[len(below) :]) is not None
    return path.startswith("/tmp/") or GENERATED.search(path) is not None


DEFINES = re.compile(
    r"^\s*(?:(?:export|pub(?:\([a-z]+\))?|public|private|protected|static|async|default|abstract|final)\s+)*"
    r"(?:func|def|class|function|fn|interface|type|struct|enum|trait|impl|const|let|var|module|describe|it|test)\b"
    r"[\s(]*(?:\([^)]*\)\s*)?[\"'`]?([A-Za-z_$][\w$]*)"
)
IMPORTS = re.compile(r"^\s*(?:import|from|use|using|#include|package|const .*require\()\b|^\s+(?:\w+ )?\"[\w./@-]+\"$")

# Beyond this much text only what was read or changed is looked at: a brief must be ready in 100 ms.
WHOLE_LINES = 2_500
MOST_TEXT = 450_000
MOST_FILES = 40
AROUND = 60
IMPORTS_END = 120
MOST_SPANS = 20

FEATURES = (
    "touched near read narrow said length touched_now named last_rare named_open imports pointed overs near_long defines "
    "removed small"
).split()

SEPARATORS = {code: " " for code in range(128) if not (chr(code).isalnum() or chr(code) == "_")}


@dataclass(slots=True)
class Block:
    """Lines `first` to `last` (from 0) of a file, with the signs that speak for them."""

    file: int
    first: int
    last: int
    length: int
    signs: list[float]
    chance: float = 0.0


def rank(files: list[WorkingFile], signals: Signals, weights: dict[str, float] | None = None) -> list[Block]:
    """All blocks of `files` (newest first) with the chance that one of the next edits needs them."""
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
    """The blocks with their signs, unweighed."""
    cuts = _cuts(files)
    telling = {*signals.of("recent"), *signals.of("last"), *signals.of("removed")}
    spread: dict[str, int] = {}
    found: list[tuple[int, list[tuple[int, int]], list[set[str]]]] = []
    total = 0
    for number, blocks in cuts.items():
        lines = files[number].lines
        words = []
        for first, last in blocks:
            text = "\n".join([line or "" for line in lines[first : last + 1]])
            of = telling.intersection(text.translate(SEPARATORS).split())
            words.append(of)
            for word in of:
                spread[word] = spread.get(word, 0) + 1
        total += len(blocks)
        found.append((number, blocks, words))
    # A word that stands in few blocks tells more.
    rarity = {word: log(total / count + 1) for word, count in spread.items()}
    ranked = []
    for number, blocks, words in found:
        about = _About(files[number], signals)
        for (first, last), of in zip(blocks, words, strict=True):
            ranked.append(_block(about, number, first, last, of, signals, rarity))
    return ranked


def _cuts(files: list[WorkingFile]) -> dict[int, list[tuple[int, int]]]:
    cuts: dict[int, list[tuple[int, int]]] = {}
    left = MOST_TEXT
    for number, file in enumerate(files):
        if len(cuts) >= MOST_FILES or left <= 0:
            break
        if file.gone or not file.lines:
            continue
        if len(file.lines) <= WHOLE_LINES:
            blocks = cut(file.lines)
        else:
            blocks = [block for a, b in _windows(file) for block in cut(file.lines, a, b)]
        if blocks:
            left -= sum([len(line) for a, b in blocks for line in file.lines[a : b + 1] if line])
            cuts[number] = blocks
    return cuts


def _windows(file: WorkingFile) -> list[tuple[int, int]]:
    """Of a very long file: around the last changes and the last reads."""
    spans = [(max(0, span.start - 1 - AROUND), span.end - 1 + AROUND) for span in file.hunks[-12:]]
    spans += [(span.start - 1, min(span.end - 1, span.start + 400)) for span in file.reads[-6:]]
    merged: list[tuple[int, int]] = []
    for a, b in sorted(spans):
        if merged and a <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(b, merged[-1][1]))
        else:
            merged.append((a, b))
    return [(a, min(b, len(file.lines) - 1)) for a, b in merged if a < len(file.lines)]


def fading(age: float, half: float = HALF) -> float:
    return exp(-LN2 * max(age, 0) / half)


class _About:
    """What is the same for all blocks of a file."""

    def __init__(self, file: WorkingFile, signals: Signals) -> None:
        now = signals.now
        name = file.path.rsplit("/", 1)[-1]
        last_edit = max([hunk.at for hunk in file.hunks], default=-1)
        self.lines = file.lines
        # A hunk without a place says only that the file was changed.
        placed = [hunk for hunk in file.hunks if hunk.count or hunk.start > 1][-MOST_SPANS:]
        self.hunks = [(hunk.start, hunk.end, fading(now - hunk.at, LONG)) for hunk in placed]
        self.reads = []
        for span in file.reads[-MOST_SPANS:]:
            fresh = fading(now - span.at)
            small = fresh * min(1.0, SMALL / max(span.count, 1)) if span.at > last_edit else 0.0
            self.reads.append((span.start, span.end, fresh, fresh * min(1.0, NARROW / max(span.count, 1)), small))
        self.touched = fading(now - file.touched)
        self.touched_now = float(file.touched >= signals.prompt_at)
        self.named = float(name in signals.named.get("recent", ()))
        self.named_open = float(name in signals.named.get("open", ()))
        self.pointed = signals.pointed.get(name, [])


def _block(
    about: _About, number: int, first: int, last: int, words: set[str], signals: Signals, rarity: dict[str, float]
) -> Block:
    top, bottom = first + 1, last + 1
    near_long = 0.0
    overs = 0
    closest = 999
    # Thousands of blocks by dozens of spans: comparisons, because calls of `min` and `max` cost three times as much.
    for start, end, fresh_long in about.hunks:
        distance = start - bottom if start > bottom else top - end if top > end else 0
        if distance < closest:
            closest = distance
        closeness = fresh_long / (1 + distance / FAR)
        if closeness > near_long:
            near_long = closeness
        if distance == 0:
            overs += 1
    read = narrow = small = 0.0
    for start, end, fresh, fresh_narrow, fresh_small in about.reads:
        if start <= bottom and end >= top:
            read = fresh if fresh > read else read
            narrow = fresh_narrow if fresh_narrow > narrow else narrow
            small = fresh_small if fresh_small > small else small
    recent, last_said, removed = signals.of("recent"), signals.of("last"), signals.of("removed")
    lines = about.lines[first : last + 1]
    shared = [word for word in words if word in recent]
    length = sum([len(line or "") + 1 for line in lines])
    signs = [
        about.touched,
        exp(-LN2 * closest / NEAR) if closest < 999 else 0.0,
        read,
        narrow,
        log1p(sum([min(recent[word], 3.0) for word in shared])),
        log1p(length),
        about.touched_now,
        about.named,
        log1p(sum([rarity[word] for word in words if word in last_said])),
        about.named_open,
        about.touched if first < IMPORTS_END and _imports(lines) else 0.0,
        max([weight for line, weight in about.pointed if top - 3 <= line <= bottom + 3], default=0.0)
        if about.pointed
        else 0.0,
        log1p(overs),
        near_long,
        float(bool(shared) and _defines(lines, shared)),
        log1p(sum([removed[word] * rarity[word] for word in words if word in removed])),
        small,
    ]
    return Block(number, first, last, length, signs)


def _imports(lines: list[str | None]) -> bool:
    return sum([bool(IMPORTS.match(line or "")) for line in lines]) >= 2


def _defines(lines: list[str | None], names: list[str]) -> bool:
    """Whether a definition of one of the names begins here."""
    for line in lines:
        match = DEFINES.match(line or "")
        if match and match[1] in names:
            return True
    return False
