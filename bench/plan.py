"""What to run: trees, tools, cases and how often, and the options that choose among them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from .changes import Mix, Workspace
from .measure import Usage
from .peers import PEERS
from .trees import CACHE, GB, MEASURED

LONG_SECONDS = 1.0
HISTORY_TOOLS = ("keepfast", "keepfast-py", "git-tuned", "git-cline")
HISTORY_MIX = Mix(edited=7, added=1, deleted=1, renamed=1)
SLOW_TOOLS = ("restic", "borg", "git-tuned+fsync")
FEW_TOOLS = ("keepfast", "keepfast-py", "git-tuned")
"""What the goals are judged by."""
CHECKED_FILES = 3

CASES: dict[str, Callable[[Workspace], None]] = {
    "none": lambda workspace: None,
    "edit-10": lambda workspace: workspace.apply(Mix(edited=10)),
    "mixed-10": lambda workspace: workspace.apply(Mix(added=4, deleted=3, renamed=3)),
    "edit-1000": lambda workspace: workspace.apply(Mix(edited=1000)),
    "mixed-1000": lambda workspace: workspace.apply(Mix(added=400, deleted=300, renamed=300)),
    "edit-1mb": Workspace.overwrite,
    "insert-1mb": Workspace.insert,
}
TREE_CASES = {
    "linux": ("first", "none", "edit-10", "mixed-10", "edit-1000", "mixed-1000"),
    "node_modules": ("first", "none", "edit-10", "mixed-10", "edit-1000", "mixed-1000"),
    "project": ("first", "none", "edit-10", "mixed-10", "edit-1000", "mixed-1000", "history"),
    "binaries": ("first", "none", "edit-1mb", "insert-1mb"),
}
ALL_CASES = ("first", *CASES, "history")


@dataclass(frozen=True)
class Plan:
    """What to run and how often."""

    trees: tuple[str, ...] = MEASURED
    tools: tuple[str, ...] = tuple(PEERS)
    cases: tuple[str, ...] = ALL_CASES
    long: int = 5
    short: int = 30
    history: int = 200
    startup: int = 40
    compaction_seconds: float = 1800.0
    quick: bool = False
    seed: int = 1
    cache: Path = CACHE
    limit: int = 10 * GB
    minutes: float | None = None
    few: tuple[str, ...] = ()

    def tools_on(self, tree: str) -> list[str]:
        return [tool for tool in self.tools if tree not in self.few or tool in FEW_TOOLS]

    def is_finished(self, tool: str, usages: list[Usage]) -> bool:
        """A short case has 30 runs; one whose runs take over a second has 5, as has a slow tool where time is short."""
        if len(usages) < self.long:
            return False
        slow = (self.quick or self.minutes is not None) and tool in SLOW_TOOLS
        return len(usages) >= self.short or slow or median(usage.wall for usage in usages) > LONG_SECONDS


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only", choices=("saves", "startup", "hooks", "client", "restores"), help="one of the parts alone"
    )
    parser.add_argument("--client", action="store_true", help="the same as --only client: hooks in the real client")
    parser.add_argument("--tree", help=f"which trees, with commas: {', '.join(MEASURED)}")
    parser.add_argument("--tools", help=f"which tools: {', '.join(PEERS)}")
    parser.add_argument("--case", help=f"which cases: {', '.join(ALL_CASES)}")
    parser.add_argument("--quick", action="store_true", help="few runs on the project only, to see that all works")
    parser.add_argument("--pairs", type=int, metavar="N", help="N runs of every tool in every case")
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="N",
        help="end the saves after about N minutes: every case has its share, at least two rounds, and says if it was cut",
    )
    parser.add_argument("--few", metavar="TREES", help=f"trees on which only {', '.join(FEW_TOOLS)} run")
    parser.add_argument("--history", type=int, metavar="N", help="checkpoints in the history case (default 200)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the changes and of the order")
    parser.add_argument("--dir", type=Path, default=CACHE, help="folder for trees and stores (default .bench)")
    parser.add_argument(
        "--disk-limit", type=int, default=10, metavar="GB", help="empty the stores of old first saves above this"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results there, after every case")


def plan_of(options: argparse.Namespace, parser: argparse.ArgumentParser) -> Plan:
    """Return the plan that the options ask for, or end with a sentence about the wrong one."""
    plan = Plan(quick=options.quick, seed=options.seed, cache=options.dir.resolve(), limit=options.disk_limit * GB)
    if options.quick:
        plan = replace(plan, trees=("project",), long=2, short=8, history=20, startup=10, compaction_seconds=120.0)
    if options.pairs:
        plan = replace(plan, long=options.pairs, short=options.pairs)
    if options.history:
        plan = replace(plan, history=options.history)
    if options.minutes:
        plan = replace(plan, minutes=options.minutes)
    chosen: dict[str, tuple[str, ...]] = {}
    known = (
        ("tree", "trees", MEASURED),
        ("few", "few", MEASURED),
        ("tools", "tools", tuple(PEERS)),
        ("case", "cases", ALL_CASES),
    )
    for option, key, names in known:
        if not (text := getattr(options, option)):
            continue
        words = tuple(text.split(","))
        for word in words:
            if word not in names:
                parser.error(f"--{option}: there is no `{word}`; there are {', '.join(names)}.")
        chosen[key] = words
    return replace(
        plan,
        trees=chosen.get("trees", plan.trees),
        few=chosen.get("few", ()),
        tools=chosen.get("tools", plan.tools),
        cases=chosen.get("cases", plan.cases),
    )
