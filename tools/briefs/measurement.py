"""Measuring briefs on many recorded sessions: scores by method, by project, with bounds and times."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import recall_score
import weight_fit
from recall_score import BASELINES, Cut, Score, Shown

from keepfast.resume import brief as briefs
from keepfast.resume import extractor as noting
from keepfast.resume.quotation import clean
from keepfast.secrets.redaction import redact

BRIEF = "the brief"
SOURCE = "modified files whole, git status order"
SOURCE_ALL = "modified files whole, git status order, all tokens"
RECENT = "recent files, whole"
ENDINGS = (".jsonl", ".jsonl.gz")
ROUNDS = 1_000
CLAIM = 0.9  # of the tokens of catching up, says the source document


@dataclass(slots=True)
class Report:
    """Results: scores by method and project, and what real compactions cost."""

    tokens: int
    calls: int
    sessions: int = 0
    cuts: int = 0
    unseen: int = 0
    refitted: bool = False
    scores: dict[str, dict[str, Score]] = field(default_factory=dict)
    by_session: dict[str, dict[str, Score]] = field(default_factory=dict)
    milliseconds: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    longest_part: int = 0
    compactions: Score = field(default_factory=Score)
    after: dict[str, float] = field(default_factory=dict)
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)
    weights: dict[str, dict[str, float]] = field(default_factory=dict)

    def mean(self, method: str, figure: str) -> float:
        """The figure, each project counting the same; projects without any case do not count."""
        enough = {"edit_span": "edits", "first_edit": "firsts", "read_coverage": "reads", "tokens": "cuts"}[figure]
        scores = [score for score in self.scores[method].values() if getattr(score, enough)]
        values = [score.tokens / score.cuts if figure == "tokens" else getattr(score, figure) for score in scores]
        return sum(values) / len(values) if values else 0.0

    def percentile(self, share: float) -> float:
        ordered = sorted(self.milliseconds)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0

    def to_json(self) -> dict[str, Any]:
        figures = ("edit_span", "first_edit", "read_coverage", "tokens")
        return {
            "tokens": self.tokens,
            "calls": self.calls,
            "sessions": self.sessions,
            "cuts": self.cuts,
            "unseen": self.unseen,
            "refitted": self.refitted,
            "methods": [
                {
                    "method": method,
                    **{figure: round(self.mean(method, figure), 4) for figure in figures},
                    "projects": [
                        {
                            "project": project,
                            "edits": score.edits,
                            "edit_span": round(score.edit_span, 4),
                            "first_edit": round(score.first_edit, 4),
                            "read_coverage": round(score.read_coverage, 4),
                        }
                        for project, score in sorted(by.items())
                    ],
                }
                for method, by in self.scores.items()
            ],
            "bounds": [{"over": name, "low": round(a, 4), "high": round(b, 4)} for name, (a, b) in self.bounds.items()],
            "build": {
                "median_ms": round(self.percentile(0.5), 1),
                "p95_ms": round(self.percentile(0.95), 1),
                "largest_tokens": max(self.sizes, default=0),
                "longest_part": self.longest_part,
            },
            "compactions": {
                "count": self.compactions.cuts,
                **{name: round(value, 1) for name, value in self.after.items()},
                "claim": CLAIM,
            },
        }


def find(given: Iterable[str]) -> list[tuple[str, str]]:
    """Transcripts below what is given, each with its project."""
    found = []
    for one in given:
        if os.path.isdir(one):
            for folder, folders, names in os.walk(one):
                folders.sort()
                for name in sorted(names):
                    if name.endswith(ENDINGS):
                        path = os.path.join(folder, name)
                        found.append((path, recall_score.project_of(path, one)))
        elif os.path.isfile(one):
            found.append((one, recall_score.project_of(one, os.path.dirname(one))))
    return found


def measure(
    paths: list[tuple[str, str]],
    *,
    tokens: int,
    calls: int,
    refit: bool,
    clock: Callable[[], float],
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Cut every session, build the brief and those of the other methods, and count."""
    report = Report(tokens, calls, refitted=refit)
    weights = _refitted(paths, calls) if refit else {}
    report.weights = weights
    for number, (path, project) in enumerate(paths):
        if progress is not None:
            progress(number, len(paths))
        before = report.cuts
        for cut in recall_score.cuts(path, project, calls=calls):
            _measure(report, cut, weights.get(project), clock)
        report.sessions += report.cuts > before
    _conclude(report)
    return report


def _refitted(paths: list[tuple[str, str]], calls: int) -> dict[str, dict[str, float]]:
    """For each project the weights that the sessions of all others give."""
    rows: list[weight_fit.Sample] = []
    for path, project in paths:
        for cut in recall_score.cuts(path, project, every=weight_fit.SAMPLE_EVERY, calls=calls):
            rows += weight_fit.samples(cut)
    fitted = {}
    for project in sorted({project for _, project in paths}):
        try:
            fitted[project] = weight_fit.fit([row for row in rows if row.project != project])
        except ValueError:
            continue
    return fitted


def _measure(report: Report, cut: Cut, weights: dict[str, float] | None, clock: Callable[[], float]) -> None:
    started = clock()
    notes = noting.take(cut.before)
    brief = briefs.build(notes, cut.files, tokens=report.tokens, redact=redact, weights=weights)
    report.milliseconds.append((clock() - started) * 1000)
    report.cuts += 1
    report.unseen += cut.unseen
    report.sizes.append(brief.tokens)
    report.longest_part = max([report.longest_part, *[len(part) for part in brief.parts]])
    shown = _exact(brief, cut)
    _count(report, BRIEF, cut, shown, brief.tokens)
    # The other methods have the same notes; only the rest differs.
    room = (report.tokens - notes_tokens(brief, notes.characters)) * notes.characters
    for name, choose in BASELINES.items():
        _count(report, name, cut, choose(cut, room), report.tokens)
    _count(report, SOURCE_ALL, cut, recall_score.git_order(cut, report.tokens * notes.characters), report.tokens)
    if cut.kind == "compaction":
        report.compactions.add(cut, shown, brief.tokens)
        after = report.after
        after["searches"] = after.get("searches", 0) + cut.searches
        after["read_again_tokens"] = after.get("read_again_tokens", 0) + cut.read_again / notes.characters


def _exact(brief: briefs.Brief, cut: Cut) -> Shown:
    """The lines that the brief shows as they are: a redacted line is of no use to an edit."""
    known = {file.path: file.lines for file in cut.files}
    shown: Shown = {}
    for excerpt in brief.excerpts:
        lines = known[excerpt.path]
        shown.setdefault(excerpt.path, set()).update(
            [
                at
                for at, text in enumerate(excerpt.text.split("\n"), excerpt.start - 1)
                if text == clean(lines[at] or "")
            ]
        )
    return shown


def notes_tokens(brief: briefs.Brief, characters: float) -> float:
    """What the brief spends on anything but excerpts."""
    shown = sum([len(excerpt.text) + 1 for excerpt in brief.excerpts])
    return max(0.0, brief.tokens - shown / characters)


def _count(report: Report, method: str, cut: Cut, shown: Shown, tokens: float) -> None:
    for by, key in ((report.scores, cut.project), (report.by_session, cut.session)):
        by.setdefault(method, {}).setdefault(key, Score()).add(cut, shown, tokens)


def _conclude(report: Report) -> None:
    count = max(report.compactions.cuts, 1)
    for name in list(report.after):
        report.after[name] /= count
    report.after["reads"] = report.compactions.reads / count
    report.after["reads_spared"] = report.compactions.whole / count
    report.after["brief_tokens"] = report.compactions.tokens / count
    report.after["tokens_spared"] = report.compactions.saved / 2.8 / count
    if BRIEF in report.scores:
        for rival in (SOURCE, SOURCE_ALL, RECENT):
            report.bounds[rival] = _bound(report.by_session[BRIEF], report.by_session[rival])


def _bound(ours: dict[str, Score], theirs: dict[str, Score]) -> tuple[float, float]:
    """Between what our edit-span recall lies above theirs in 95 of 100 draws of sessions."""
    sessions = sorted(ours)
    draw = random.Random(1)
    differences = []
    for _ in range(ROUNDS):
        chosen = draw.choices(sessions, k=len(sessions))
        edits = sum([ours[one].edits for one in chosen]) or 1
        differences.append(sum([ours[one].hits - theirs[one].hits for one in chosen]) / edits)
    differences.sort()
    return differences[int(ROUNDS * 0.025)], differences[int(ROUNDS * 0.975) - 1]
