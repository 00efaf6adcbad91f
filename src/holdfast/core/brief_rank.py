"""Which lines of which files the next edits are likely to need, by worth."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import exp, log, log1p

from holdfast.core.brief_blocks import cut
from holdfast.core.signals import WORD, Signals
from holdfast.core.working import Span, WorkingFile

HALF = 12.0  # tool calls until a sign counts half
NEAR = 8.0  # lines until closeness counts half

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
MOST_TEXT = 700_000
MOST_FILES = 40
AROUND = 60


@dataclass(slots=True)
class Block:
    """Lines `first` to `last` (from 0) of a file, with the signs that speak for them."""

    file: int
    first: int
    last: int
    length: int
    signs: list[float]
    chance: float = 0.0


FEATURES = (
    "touched rank edited edit_rank hunks over near recent_near below above read narrow since small said said_rare asked open_words "
    "last_rare failure removed changed sought found pointed defines imports named named_open named_asked named_failure is_test "
    "read_now edited_now top end prose read_long over_long touched_now over_short length"
).split()


def rank(files: list[WorkingFile], signals: Signals, weights: dict[str, float] | None = None) -> list[Block]:
    """All blocks of `files` (newest first) with the chance that one of the next edits needs them."""
    from holdfast.core.brief_weights import CONSTANT, WEIGHTS

    used = WEIGHTS if weights is None else weights
    vector = [used.get(name, 0.0) for name in FEATURES]
    constant = used.get("constant", CONSTANT)
    blocks = collect(files, signals)
    for block in blocks:
        worth = constant + sum([a * b for a, b in zip(vector, block.signs, strict=True)])
        block.chance = 1 / (1 + exp(-max(-30.0, min(30.0, worth))))
    return blocks


def collect(files: list[WorkingFile], signals: Signals) -> list[Block]:
    """The blocks with their signs, unweighed."""
    cuts = _cuts(files)
    found: list[tuple[WorkingFile, int, list[tuple[int, int]], list[set[str]]]] = []
    spread: dict[str, int] = {}
    total = 0
    for number, file in enumerate(files):
        blocks = cuts.get(number, [])
        words = [set(WORD.findall("\n".join([line or "" for line in file.lines[a : b + 1]]))) for a, b in blocks]
        for of in words:
            for word in of:
                spread[word] = spread.get(word, 0) + 1
        total += len(blocks)
        found.append((file, number, blocks, words))
    rarity = _Rarity(spread, max(total, 1))
    edited = sorted([f for f in files if f.hunks], key=lambda f: (-max(hunk.at for hunk in f.hunks), f.path))
    edit_rank = {file.path: place for place, file in enumerate(edited)}
    ranked = []
    place = 0
    for file, number, blocks, words in found:
        if not blocks:
            continue
        about = _About(file, place, edit_rank.get(file.path), signals)
        place += 1
        for (first, last), of in zip(blocks, words, strict=True):
            ranked.append(_block(file, number, first, last, of, about, signals, rarity))
    return ranked


def _cuts(files: list[WorkingFile]) -> dict[int, list[tuple[int, int]]]:
    cuts = {}
    left = MOST_TEXT
    taken = 0
    for number, file in enumerate(files):
        if taken >= MOST_FILES or left <= 0:
            break
        if file.gone or not file.lines:
            continue
        if len(file.lines) <= WHOLE_LINES:
            blocks = cut(file.lines)
        else:
            blocks = [block for a, b in _windows(file) for block in cut(file.lines, a, b)]
        if not blocks:
            continue
        left -= sum([len(line) for a, b in blocks for line in file.lines[a : b + 1] if line])
        taken += 1
        cuts[number] = blocks
    return cuts


def _windows(file: WorkingFile) -> list[tuple[int, int]]:
    """Of a very long file: around the last changes and the last reads."""
    spans = sorted([(max(0, s.start - 1 - AROUND), s.end - 1 + AROUND) for s in file.hunks[-12:]])
    spans += sorted([(s.start - 1, min(s.end - 1, s.start + 400)) for s in file.reads[-6:]])
    merged: list[tuple[int, int]] = []
    for a, b in sorted(spans):
        if merged and a <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(b, merged[-1][1]))
        else:
            merged.append((a, b))
    return [(a, min(b, len(file.lines) - 1)) for a, b in merged if a < len(file.lines)]


class _Rarity:
    """How telling a word is: one that stands in few blocks tells more."""

    def __init__(self, spread: dict[str, int], total: int) -> None:
        self.by_count: dict[int, float] = {}
        self.spread, self.total = spread, total

    def __call__(self, word: str) -> float:
        count = self.spread.get(word, 1)
        known = self.by_count.get(count)
        if known is None:
            known = self.by_count[count] = log(self.total / count + 1)
        return known


class _About:
    """What is the same for all blocks of a file."""

    def __init__(self, file: WorkingFile, place: int, edit_place: int | None, signals: Signals) -> None:
        now = signals.now
        name = file.path.rsplit("/", 1)[-1]
        lower = name.lower()
        self.last_edit = max((hunk.at for hunk in file.hunks), default=-1)
        placed = [hunk for hunk in file.hunks if hunk.count or hunk.start > 1]
        self.placed = placed[-40:]
        self.reads = file.reads[-40:]
        self.newest: Span | None = max(placed, key=lambda hunk: hunk.at) if placed else None
        self.touched = fading(now - file.touched)
        self.rank = 1 / (1 + place)
        self.edited = 1.0 if file.hunks else 0.0
        self.edit_rank = 0.0 if edit_place is None else 1 / (1 + edit_place)
        self.hunks = log1p(len(file.hunks))
        self.found = signals.found.get(name, [])
        self.pointed = signals.pointed.get(name, [])
        self.named = [float(name in signals.named.get(source, ())) for source in ("recent", "open", "asked", "failure")]
        self.is_test = float("test" in lower or "spec" in lower)
        self.prose = float(lower.endswith((".md", ".txt", ".json", ".yml", ".yaml", ".toml", ".rst")))
        self.edited_now = float(self.last_edit > signals.prompt_at)
        self.touched_now = float(file.touched >= signals.prompt_at)


def fading(age: float, half: float = HALF) -> float:
    return exp(-0.6931471805599453 * max(age, 0) / half)


def _block(
    file: WorkingFile,
    number: int,
    first: int,
    last: int,
    words: set[str],
    about: _About,
    signals: Signals,
    rarity: _Rarity,
) -> Block:
    now = signals.now
    top, bottom = first + 1, last + 1
    over = recent_near = over_long = over_short = 0.0
    closest = 999
    for hunk in about.placed:
        distance = max(0, hunk.start - bottom, top - hunk.end)
        fresh = fading(now - hunk.at)
        closest = min(closest, distance)
        recent_near = max(recent_near, fresh / (1 + distance / NEAR))
        if distance == 0:
            over = max(over, fresh)
            over_long = max(over_long, fading(now - hunk.at, 40))
            over_short = max(over_short, fading(now - hunk.at, 4))
    below = above = 0.0
    if about.newest is not None:
        fresh = fading(now - about.newest.at)
        if top > about.newest.end:
            below = fresh * 0.5 ** ((top - about.newest.end) / 15)
        elif bottom < about.newest.start:
            above = fresh * 0.5 ** ((about.newest.start - bottom) / 15)
    read = narrow = since = small = read_long = read_now = 0.0
    for span in about.reads:
        if span.start <= bottom and span.end >= top:
            fresh = fading(now - span.at)
            read = max(read, fresh)
            read_long = max(read_long, fading(now - span.at, 30))
            narrow = max(narrow, fresh * min(1.0, 60 / max(span.count, 1)))
            if span.at > about.last_edit:
                since = max(since, fresh)
                small = max(small, fresh * min(1.0, 40 / max(span.count, 1)))
            if span.at > signals.prompt_at:
                read_now = 1.0
    recent = signals.of("recent")
    shared = [word for word in words if word in recent]
    lines = file.lines[first : last + 1]
    length = sum([len(line or "") + 1 for line in lines])
    defines = 0.0
    imports = 0
    for line in lines:
        text = line or ""
        match = DEFINES.match(text)
        if match and match[1] in recent:
            defines = 1.0
        if IMPORTS.match(text):
            imports += 1
    signs = [
        about.touched,
        about.rank,
        about.edited,
        about.edit_rank,
        about.hunks,
        over,
        0.5 ** (closest / NEAR) if closest < 999 else 0.0,
        recent_near,
        below,
        above,
        read,
        narrow,
        since,
        small,
        log1p(sum([min(recent[word], 3.0) for word in shared])),
        log1p(sum([min(recent[word], 3.0) * rarity(word) for word in shared])),
        log1p(_count(words, signals.of("asked"))),
        log1p(_count(words, signals.of("open"))),
        log1p(_rare(words, signals.of("last"), rarity, False)),
        signals.failed * log1p(_rare(words, signals.of("failure"), rarity, False)),
        log1p(_rare(words, signals.of("removed"), rarity)),
        log1p(_rare(words, signals.of("changed"), rarity)),
        log1p(_rare(words, signals.of("sought"), None)),
        max([weight for line, weight in about.found if top - 1 <= line <= bottom + 1], default=0.0),
        max([weight for line, weight in about.pointed if top - 3 <= line <= bottom + 3], default=0.0),
        defines,
        about.touched if imports >= 2 else 0.0,
        *about.named,
        about.is_test,
        read_now,
        about.edited_now,
        float(first < 5),
        float(last >= len(file.lines) - 2),
        about.prose,
        read_long,
        over_long,
        about.touched_now,
        over_short,
        log1p(length),
    ]
    return Block(number, first, last, length, signs)


def _count(words: set[str], of: dict[str, float]) -> int:
    return sum([word in of for word in words]) if len(words) < len(of) else sum([word in words for word in of])


def _rare(words: set[str], of: dict[str, float], rarity: _Rarity | None, weighed: bool = True) -> float:
    if not of:
        return 0.0
    both = [word for word in words if word in of]
    return sum([(of[word] if weighed else 1.0) * (rarity(word) if rarity else 1.0) for word in both])
