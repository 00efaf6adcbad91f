"""Signals of a session's last steps for ranking: words, places, and times."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{3,}")
# Words that occur in every program and tell nothing.
COMMON = frozenset(
    "this that with from have been will should return function const string true false null none error test tests "
    "file files line lines code func type struct import package export default class self async await interface "
    "public private static void value values when then else what which there here into also only more make need "
    "update added read edit".split()
)
# Each run of letters is tried from its beginning only, and not for ever: a page of them would be tried from everywhere.
POINTER = re.compile(r"(?<![\w./@+-])([\w./@+-]{1,255}\.[A-Za-z]{1,5})(?::|#L|\(|\", line )(\d{1,6})")

SOURCES = ("recent", "last", "asked", "open", "current", "failure", "removed", "changed", "sought")


def words(text: str) -> dict[str, int]:
    """Return how often each identifier occurs, without common ones."""
    counts: dict[str, int] = {}
    for word in WORD.findall(text):
        if word not in COMMON and word.lower() not in COMMON:
            counts[word] = counts.get(word, 0) + 1
    return counts


@dataclass(slots=True)
class Signals:
    """All that ranking needs of a session; a checkpoint stores them with its notes."""

    now: int = 0  # tool calls so far
    prompt_at: int = 0  # tool calls before the last prompt
    # What each source says: identifier → weight.
    words: dict[str, dict[str, float]] = field(default_factory=dict)
    # Base name → (line, weight): from texts and failing output, and from search hits.
    pointed: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    hits: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    # Base names of files that a source names.
    named: dict[str, list[str]] = field(default_factory=dict)
    failed: float = 0.0  # how fresh the last failure is, 1 is now

    def of(self, source: str) -> dict[str, float]:
        return self.words.get(source, {})

    def to_json(self) -> dict[str, Any]:
        return {
            "now": self.now,
            "prompt_at": self.prompt_at,
            "words": {
                source: {word: round(weight, 3) for word, weight in of.items()} for source, of in self.words.items()
            },
            "pointed": {name: [[line, round(w, 3)] for line, w in places] for name, places in self.pointed.items()},
            "found": {name: [[line, round(w, 3)] for line, w in places] for name, places in self.hits.items()},
            "named": self.named,
            "failed": round(self.failed, 3),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Signals:
        return cls(
            now=int(value.get("now", 0)),
            prompt_at=int(value.get("prompt_at", 0)),
            words={str(k): {str(w): float(x) for w, x in v.items()} for k, v in value.get("words", {}).items()},
            pointed={str(k): [(int(a), float(b)) for a, b in v] for k, v in value.get("pointed", {}).items()},
            hits={str(k): [(int(a), float(b)) for a, b in v] for k, v in value.get("found", {}).items()},
            named={str(k): [str(name) for name in v] for k, v in value.get("named", {}).items()},
            failed=float(value.get("failed", 0.0)),
        )
