"""Results as tables and JSON: figures, goals met and missed, and what durability costs."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .ground import CLEAN_MICROSECONDS
from .measure import Spread, Summary
from .peer import Disk
from .peers import PEERS, REFERENCE, SUBJECT, versions
from .trees import CAPTURE, Tree

MEGABYTE = 1e6
MEMORY_LIMIT = 300.0
GROWTH_LIMIT = 3.0

# Goals against tuned git, as a share of its time or disk. One number serves changed files and mixed changes.
GOALS: dict[str, dict[str, float]] = {
    "linux": {"first": 0.35, "none": 0.7, "10": 0.7, "1000": 0.45, "disk": 0.55},
    "node_modules": {"first": 0.4, "none": 0.55, "10": 0.55, "1000": 0.5, "disk": 0.4},
    "project": {"first": 0.3, "none": 1.25, "10": 1.25, "1000": 0.5, "disk": 0.55},
    "binaries": {"edit-1mb": 0.2, "insert-1mb": 0.2},
}
STARTUP_LIMIT = 10.0


@dataclass(frozen=True)
class Conditions:
    """How the machine was when a case began: its load, and the CPU of making one file in microseconds."""

    load: float
    file_cost: float


@dataclass(frozen=True)
class Row:
    """One tool in one case on one tree."""

    tree: str
    case: str
    tool: str
    summary: Summary
    disk: Disk
    growth: Disk
    conditions: Conditions


@dataclass(frozen=True)
class Compaction:
    """One store before and after its tool made it small."""

    tree: str
    history: str
    tool: str
    saves: int
    before: Disk
    after: Disk
    wall: float
    cpu: float
    rss: int


@dataclass(frozen=True)
class Verdict:
    """One goal beside its measured value."""

    tree: str
    case: str
    measure: str
    value: float
    limit: float
    unit: str
    pure: float | None
    is_doubtful: bool = False

    @property
    def word(self) -> str:
        # Costly file making slows git more than keepfast, so it can only make a PASS doubtful.
        passed = "PASS?" if self.is_doubtful else "PASS"
        return passed if self.value <= self.limit else "MISS"


@dataclass
class Report:
    """Everything one run has found so far."""

    quick: bool
    seed: int
    trees: list[Tree] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    compactions: list[Compaction] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    startup: list[dict[str, object]] = field(default_factory=list)
    restores: list[dict[str, object]] = field(default_factory=list)
    client: list[dict[str, object]] = field(default_factory=list)
    hooks: list[dict[str, object]] = field(default_factory=list)

    def of(self, tree: str, case: str, tool: str) -> Row | None:
        return next((row for row in self.rows if (row.tree, row.case, row.tool) == (tree, case, tool)), None)

    def verdicts(self) -> list[Verdict]:
        """Return every goal that these results can judge."""
        found: list[Verdict] = []
        for tree in self.trees:
            for row in [row for row in self.rows if row.tree == tree.name and row.tool == SUBJECT]:
                found += self._judge(row)
        return found

    def _judge(self, row: Row) -> Iterable[Verdict]:
        goals = GOALS.get(row.tree, {})
        limit = goals.get(row.case, goals.get(row.case.rpartition("-")[2]))
        reference = self.of(row.tree, row.case, REFERENCE)
        pure = self.of(row.tree, row.case, f"{SUBJECT}-py")
        doubtful = row.conditions.file_cost > CLEAN_MICROSECONDS
        if limit is not None and reference is not None:
            for measure in ("wall", "cpu"):
                base = middle(reference, measure)
                value = middle(row, measure) / base
                beside = middle(pure, measure) / base if pure else None
                yield Verdict(row.tree, row.case, measure, value, limit, "×", beside, doubtful)
        if row.case in ("first", "mixed-1000") and "disk" in goals and reference is not None:
            base = reference.disk.used
            beside = pure.disk.used / base if pure else None
            yield Verdict(row.tree, row.case, "disk", row.disk.used / base, goals["disk"], "×", beside)
        if row.case in ("edit-1mb", "insert-1mb"):
            growth = pure.growth.used / MEGABYTE if pure else None
            yield Verdict(row.tree, row.case, "growth", row.growth.used / MEGABYTE, GROWTH_LIMIT, "MB", growth)
        memory = pure.summary.rss / MEGABYTE if pure else None
        yield Verdict(row.tree, row.case, "memory", row.summary.rss / MEGABYTE, MEMORY_LIMIT, "MB", memory)

    def write(self, path: Path) -> None:
        """Write everything as JSON; called after every case, so that an interrupted run leaves its results."""
        content = {
            "machine": machine(),
            "versions": versions(),
            "capture": CAPTURE,
            "quick": self.quick,
            "seed": self.seed,
            "tools": {name: peer.about for name, peer in PEERS.items()},
            "trees": [{**asdict(tree), "path": None} for tree in self.trees],
            "results": [asdict(row) for row in self.rows],
            "compactions": [asdict(compaction) for compaction in self.compactions],
            "goals": [{**asdict(verdict), "verdict": verdict.word} for verdict in self.verdicts()],
            "startup": self.startup,
            "restores": self.restores,
            "client": self.client,
            "hooks": self.hooks,
            "notes": self.notes,
        }
        partial = path.with_name(path.name + ".partial")
        partial.write_text(json.dumps(content, indent=1) + "\n")
        partial.rename(path)


def middle(row: Row, measure: str) -> float:
    spread: Spread = getattr(row.summary, measure)
    return spread.median


def case_table(report: Report, tree: str, case: str) -> str:
    """Return the table of one case: medians with their range, memory, disk, growth, and the share of tuned git."""
    rows = [row for row in report.rows if (row.tree, row.case) == (tree, case)]
    reference = report.of(tree, case, REFERENCE)
    lines = [["tool", "runs", "wall s: median (range)", "CPU s: median (range)", "peak MB"]]
    lines[0] += ["disk MB", "blocks MB", "growth/save MB", "wall ×", "CPU ×"]
    for row in rows:
        summary = row.summary
        shares = ["", ""]
        if reference is not None:
            shares = [f"{middle(row, measure) / middle(reference, measure):.2f}" for measure in ("wall", "cpu")]
        growth = "" if case == "first" else f"{row.growth.used / MEGABYTE:.3f}"
        figures = [row.tool, str(summary.runs), ranged(summary.wall), ranged(summary.cpu)]
        figures += [f"{summary.rss / MEGABYTE:.0f}", f"{row.disk.apparent / MEGABYTE:,.1f}"]
        lines.append([*figures, f"{row.disk.used / MEGABYTE:,.1f}", growth, *shares])
    state = ", ".join({f"load {row.conditions.load:.1f}, new file {row.conditions.file_cost:.0f} µs" for row in rows})
    return f"{tree} · {case} ({state})\n{columns(lines)}"


def compaction_table(report: Report, tree: str) -> str:
    lines = [["store", "saves", "before MB", "after MB", "blocks before", "blocks after", "wall s", "CPU s", "peak MB"]]
    for item in report.compactions:
        if item.tree != tree:
            continue
        sizes = [item.before.apparent, item.after.apparent, item.before.used, item.after.used]
        line = [f"{item.tool} ({item.history})", str(item.saves), *(f"{size / MEGABYTE:,.1f}" for size in sizes)]
        lines.append([*line, f"{item.wall:.2f}", f"{item.cpu:.2f}", f"{item.rss / MEGABYTE:.0f}"])
    return f"{tree} · after git gc and keepfast compact\n{columns(lines)}"


def goal_table(report: Report) -> str:
    lines = [["tree", "case", "measure", "keepfast", "goal", "verdict", "pure Python"]]
    for verdict in report.verdicts():
        pure = "" if verdict.pure is None else f"{verdict.pure:.2f}"
        value, limit = f"{verdict.value:.2f} {verdict.unit}", f"≤ {verdict.limit:g} {verdict.unit}"
        lines.append([verdict.tree, verdict.case, verdict.measure, value, limit, verdict.word, pure])
    missed = sum(verdict.word == "MISS" for verdict in report.verdicts())
    end = f"{len(lines) - 1} goals judged, {missed} missed. × is the share of {REFERENCE}."
    if any(verdict.word == "PASS?" for verdict in report.verdicts()):
        end += " PASS? was measured while making files was costly, which hurts git."
    if report.quick:
        end += " A quick run: too few runs to judge by."
    return f"Goals\n{columns(lines)}\n{end}"


def durability_table(report: Report) -> str:
    """Return what reaching the disk costs each save, for keepfast and for tuned git."""
    lines = [["tree", "case", "keepfast: wall ms", "CPU ms", f"{REFERENCE}: wall ms", "CPU ms"]]
    for tree, case in dict.fromkeys((row.tree, row.case) for row in report.rows):
        ours = difference(report.of(tree, case, SUBJECT), report.of(tree, case, f"{SUBJECT}-nosync"))
        theirs = difference(report.of(tree, case, f"{REFERENCE}+fsync"), report.of(tree, case, REFERENCE))
        if any(ours + theirs):
            lines.append([tree, case, *ours, *theirs])
    return f"What durability costs (median with it minus median without)\n{columns(lines)}"


def difference(durable: Row | None, loose: Row | None) -> list[str]:
    if durable is None or loose is None:
        return ["", ""]
    return [f"{(middle(durable, measure) - middle(loose, measure)) * 1e3:+.1f}" for measure in ("wall", "cpu")]


def ranged(spread: Spread) -> str:
    digits = 3 if spread.median < 10 else 1
    return f"{spread.median:.{digits}f} ({spread.low:.{digits}f}..{spread.high:.{digits}f})"


def columns(lines: list[list[str]]) -> str:
    """Return the lines as a table: the first column to the left, the others to the right."""
    widths = [max(len(line[index]) for line in lines) for index in range(len(lines[0]))]
    texts = []
    for line in lines:
        cells = [
            line[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)),
        ]
        texts.append("  " + "  ".join(cells).rstrip())
    return "\n".join(texts)


def machine() -> dict[str, object]:
    system = platform.uname()
    load = list(os.getloadavg())
    return {"system": f"{system.system} {system.release} {system.machine}", "cores": os.cpu_count(), "load": load}
