"""Start-up: CPU of an unchanged save compared with a bare interpreter, which is the minimum for any hook."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial

from .ground import Ground
from .measure import Failed, Usage, interleave, run, summarise
from .peer import Peer
from .peers import PEERS, SUBJECT, missing
from .plan import Plan
from .report import STARTUP_LIMIT, columns
from .trees import prepare

BARE = [sys.executable, "-I", "-S", "-B", "-c", "pass"]
TOOLS = (SUBJECT, f"{SUBJECT}-py")
TREES = ("small", "project")


def measure_startup(plan: Plan, ground: Ground, say: Callable[[str], None]) -> list[dict[str, object]]:
    """Return the medians of a bare interpreter and of unchanged saves on a small and a larger project.

    Raises `Failed` when keepfast is not there or cannot save, and `Unavailable` when a tree cannot be had.
    """
    reason = missing(SUBJECT)
    if reason is not None:
        raise Failed(f"{reason}.")
    runs = plan.startup
    results: list[dict[str, object]] = []
    for name in TREES:
        tree = prepare(name, plan.cache, say)
        copy = ground.copy(tree)
        peers: dict[str, Peer] = {tool: PEERS[tool](ground.fresh(tool), copy) for tool in TOOLS}
        for peer in peers.values():
            peer.first()
            if peer.count() != tree.files:
                raise Failed(f"{peer.name} does not hold the {tree.files} files of `{name}`.")
            # The second save reads files again whose times were too recent to be trusted in the first.
            peer.save()
        actions: dict[str, Callable[[], Usage]] = {tool: peer.save for tool, peer in peers.items()}
        actions["bare python"] = partial(run, BARE, copy, peers[SUBJECT].env)
        say(f"{name}: {runs} unchanged saves")
        usages: dict[str, list[Usage]] = {tool: [] for tool in actions}
        for tool, usage in interleave(actions, runs, random.Random(plan.seed)):
            usages[tool].append(usage)
        results += judge(name, tree.files, usages)
    return results


def judge(tree: str, files: int, usages: dict[str, list[Usage]]) -> list[dict[str, object]]:
    bare = summarise(usages["bare python"]).cpu.median
    judged: list[dict[str, object]] = []
    for tool, runs in usages.items():
        summary = summarise(runs)
        ratio = summary.cpu.median / bare
        # The goal is for a small project; the larger one is shown for comparison.
        goal = STARTUP_LIMIT if tree == "small" and tool == SUBJECT else None
        word = "" if goal is None else "PASS" if ratio <= goal else "MISS"
        figures = {"tree": tree, "files": files, "tool": tool, "ratio": ratio, "goal": goal, "verdict": word}
        judged.append({**figures, **summary.as_json()})
    return judged


def startup_table(results: list[dict[str, object]]) -> str:
    lines = [["tool", "project", "runs", "CPU ms: median (range)", "wall ms", "peak MB", "× bare", "goal", "verdict"]]
    for result in results:
        cpu, wall, rss = result["cpu"], result["wall"], result["rss"]
        assert isinstance(cpu, dict) and isinstance(wall, dict) and isinstance(rss, int)
        times = f"{cpu['median'] * 1e3:.1f} ({cpu['low'] * 1e3:.1f}..{cpu['high'] * 1e3:.1f})"
        goal = "" if result["goal"] is None else f"≤ {result['goal']:g}"
        line = [str(result["tool"]), f"{result['files']:,} files", str(result["runs"]), times]
        line += [f"{wall['median'] * 1e3:.1f}", f"{rss / 1e6:.0f}", f"{result['ratio']:.2f}", goal]
        lines.append([*line, str(result["verdict"])])
    return f"An unchanged save beside `python -I -S -B -c pass`\n{columns(lines)}"
