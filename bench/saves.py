"""The saves: every tool on every tree, the table of each case, and the goals at the end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

from .budget import Budget
from .contest import Contest, cases_of
from .ground import Ground
from .peers import PEERS, accelerator_is_built, compile_sources, missing, versions
from .plan import Plan
from .report import Report, case_table, compaction_table, durability_table, goal_table
from .trees import CAPTURE, Tree, Unavailable, demand_space, prepare


def measure_saves(
    plan: Plan, ground: Ground, report: Report, keep: Callable[[], None], say: Callable[[str], None]
) -> None:
    """Run the plan tree by tree and print each case when it is done; `keep` is called after each."""
    plan = replace(plan, tools=present(plan.tools, report, say))
    contests: list[Contest] = []
    trees = ready(plan, report, say)
    budget = Budget(plan.minutes, [(tree.name, case) for tree in trees for case in cases_of(tree.name, plan)])
    for tree in trees:
        report.trees.append(tree)
        print(f"\n{tree}", flush=True)

        def finish(case: str, name: str = tree.name) -> None:
            print(f"\n{case_table(report, name, case)}", flush=True)
            keep()

        contest = Contest(tree, plan, budget, ground, report, say)
        contest.run(finish)
        contests.append(contest)
    for contest in contests:
        contest.compact()
        print(f"\n{compaction_table(report, contest.tree.name)}", flush=True)
        keep()


def present(tools: tuple[str, ...], report: Report, say: Callable[[str], None]) -> tuple[str, ...]:
    """Return the tools that are here, and note why the others are not."""
    reasons = {tool: missing(tool) for tool in tools}
    for tool, reason in reasons.items():
        if reason is not None:
            report.notes.append(f"{tool} is left out: {reason}.")
            say(report.notes[-1])
    return tuple(tool for tool, reason in reasons.items() if reason is None)


def ready(plan: Plan, report: Report, say: Callable[[str], None]) -> list[Tree]:
    """Return the trees, all made before the first measurement, and note those that cannot be had."""
    trees: list[Tree] = []
    for name in plan.trees:
        try:
            trees.append(prepare(name, plan.cache, say))
        except Unavailable as problem:
            report.notes.append(f"{name} is left out: {problem}")
            say(report.notes[-1])
    # A copy of each tree and a store of each tool; and what old first saves may hold before they are emptied.
    stores = sum((len(plan.tools_on(tree.name)) + 1) * tree.bytes for tree in trees)
    demand_space(plan.cache, stores + min(plan.limit, plan.long * stores), "the bench")
    return trees


def print_opening() -> None:
    """Say how the figures come about, before the first of them."""
    print(CAPTURE)
    print("Each save is a new process. All tools save the same change, in random order, after a sync.")
    print("Peak MB is the largest process; disk is the store with its index, without the caches of restic and borg.")
    if not accelerator_is_built():
        print("The C accelerator is not built: `keepfast` runs in pure Python here.")
    print(compile_sources())
    print("; ".join(versions().values()))
    for name, peer in PEERS.items():
        print(f"  {name:16} {peer.about}")
    sys.stdout.flush()


def print_closing(report: Report) -> None:
    if report.rows:
        print(f"\n{durability_table(report)}\n\n{goal_table(report)}")
    for note in report.notes:
        print(f"Note: {note}")
