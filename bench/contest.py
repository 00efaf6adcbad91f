"""One contest: all tools on one tree, the same changes for each, interleaved in random order."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from statistics import median

from .budget import COMPACTION, MIN_RUNS, Budget
from .changes import Workspace
from .ground import CLEAN_MICROSECONDS, Ground
from .measure import Failed, Usage, shuffled, summarise
from .peer import MARKER, Disk, Peer, digest_of_file
from .peers import PEERS, REFERENCE, SUBJECT
from .plan import CASES, CHECKED_FILES, HISTORY_MIX, HISTORY_TOOLS, SLOW_TOOLS, TREE_CASES, Plan
from .report import Compaction, Conditions, Report, Row
from .trees import Tree, survey


class Contest:
    """All tools on one tree."""

    def __init__(
        self, tree: Tree, plan: Plan, budget: Budget, ground: Ground, report: Report, say: Callable[[str], None]
    ) -> None:
        self.tree = tree
        self.budget = budget
        self.plan = plan
        self.ground = ground
        self.report = report
        self.say = say
        self.copy = ground.copy(tree)
        self.chance = random.Random(f"{plan.seed} {tree.name}")
        self.workspace = Workspace(self.copy, ground.fresh("graveyard"), plan.seed)
        self.tools = plan.tools_on(tree.name)
        self.peers: dict[str, Peer] = {}
        self.past: dict[str, Peer] = {}

    def run(self, finish: Callable[[str], None]) -> None:
        """Run the chosen cases in order; `finish` is told each case that is done."""
        cases = cases_of(self.tree.name, self.plan)
        self._begin_case("first")  # without a first save there is nothing to repeat
        self._first("first" in cases)
        if "first" in cases:
            finish("first")
        for case in cases:
            if case in CASES and self._begin_case(case):
                self._repeat(case)
                finish(case)
        if "history" in cases and self._begin_case("history"):
            self._make_history()
            finish("history")

    def compact(self) -> None:
        """Compact all stores. This deletes many files, so nothing can be measured well after it."""
        if not self._begin_case(COMPACTION):
            return
        for tool, peer in self.peers.items():
            self._compact("all cases", tool, peer)
        for tool, peer in self.past.items():
            self._compact("history", tool, peer)

    def _first(self, measured: bool) -> None:
        usages: dict[str, list[Usage]] = {tool: [] for tool in self.tools}
        begun = self._begin()
        for number in range(self.plan.long if measured else 1):
            if number >= MIN_RUNS and self._is_over("first", number):
                break
            self.say(f"{self.tree.name}: first save, round {number + 1}")
            for tool in shuffled(self.tools, self.chance):
                if self.plan.quick and tool in SLOW_TOOLS and usages[tool]:
                    continue
                peer = PEERS[tool](self.ground.fresh(tool), self.copy)
                usage = self._try(tool, peer.first)
                if usage is None:
                    continue
                usages[tool].append(usage)
                old = self.peers.get(tool)
                self.peers[tool] = peer
                if old is not None:
                    self.ground.retire(old.folder)
        conditions = self._end("first", begun)
        self._check_coverage()
        self._check_contents("first", self.peers)
        for tool in self.tools if measured else ():
            disk = self.peers[tool].disk()
            self._keep("first", tool, usages[tool], disk, disk, conditions)

    def _repeat(self, case: str) -> None:
        # A save of its own before the case: tools that ended the last case early catch up, and caches settle.
        for tool in list(self.tools):
            self._try(tool, self.peers[tool].save)
        before = {tool: self.peers[tool].disk() for tool in self.tools}
        usages: dict[str, list[Usage]] = {tool: [] for tool in self.tools}
        begun = self._begin()
        while active := [tool for tool in self.tools if not self.plan.is_finished(tool, usages[tool])]:
            # Only their comparison counts: the case ends for all tools once tuned git or keepfast has its runs.
            if any(pair in self.tools and pair not in active for pair in (REFERENCE, SUBJECT)):
                break
            least = min((len(usages[tool]) for tool in active), default=0)
            if least >= MIN_RUNS and self._is_over(case, least):
                break
            CASES[case](self.workspace)
            for tool in shuffled(active, self.chance):
                usage = self._try(tool, self.peers[tool].save)
                if usage is not None:
                    usages[tool].append(usage)
        conditions = self._end(case, begun)
        most = max((len(usages[tool]) for tool in self.tools), default=0)
        self._check_contents(case, {tool: self.peers[tool] for tool in self.tools if len(usages[tool]) == most})
        for tool in self.tools:
            after = self.peers[tool].disk()
            growth = per_save(after - before[tool], len(usages[tool]))
            self._keep(case, tool, usages[tool], after, growth, conditions)

    def _make_history(self) -> None:
        tools = [tool for tool in HISTORY_TOOLS if tool in self.tools]
        peers = {tool: PEERS[tool](self.ground.fresh(tool), self.copy) for tool in tools}
        for tool in tools:
            self._try(tool, peers[tool].first)
        peers = {tool: peer for tool, peer in peers.items() if tool in self.tools}
        before = {tool: peer.disk() for tool, peer in peers.items()}
        usages: dict[str, list[Usage]] = {tool: [] for tool in peers}
        begun = self._begin()
        for number in range(self.plan.history):
            if number >= MIN_RUNS and self._is_over("history", number):
                break
            if number % 50 == 0:
                self.say(f"{self.tree.name}: history, checkpoint {number + 1} of {self.plan.history}")
            self.workspace.apply(HISTORY_MIX)
            for tool in shuffled(list(peers), self.chance):
                usage = self._try(tool, peers[tool].save)
                if usage is None:
                    del peers[tool]
                else:
                    usages[tool].append(usage)
        conditions = self._end("history", begun)
        self._check_contents("history", peers)
        peers = {tool: peer for tool, peer in peers.items() if tool in self.tools}
        for tool, peer in peers.items():
            after = peer.disk()
            growth = per_save(after - before[tool], len(usages[tool]))
            self._keep("history", tool, usages[tool], after, growth, conditions)
        quarter = max(1, min(map(len, usages.values()), default=0) // 4)
        for tool in peers:
            early, late = (median(usage.wall for usage in part) for part in ends(usages[tool], quarter))
            self._note(f"{tool}: first {quarter} saves of the history {early * 1e3:.1f} ms, last {late * 1e3:.1f} ms.")
        self.past = peers

    def _compact(self, history: str, tool: str, peer: Peer) -> None:
        self.say(f"{self.tree.name}: compacting {tool} ({history})")
        before = peer.disk()
        try:
            usage = peer.compact(self.budget.share(self.plan.compaction_seconds))
        except Failed as problem:
            self._note(f"{tool} could not be compacted: {problem}")
            return
        if usage is not None:
            saves = self._saves(tool, ("history",) if history == "history" else tuple(CASES))
            after = peer.disk()
            done = Compaction(self.tree.name, history, tool, saves, before, after, usage.wall, usage.cpu, usage.rss)
            self.report.compactions.append(done)

    def _begin(self) -> Conditions:
        return Conditions(os.getloadavg()[0], self.ground.settle())

    def _end(self, case: str, begun: Conditions) -> Conditions:
        cost = max(begun.file_cost, self.ground.file_cost())
        if cost > CLEAN_MICROSECONDS:
            why = f"making a file cost {cost:.0f} µs, as after large deletions"
            self._note(f"POLLUTED in {case}: {why}. A tool with a file per object looks too slow.")
        return Conditions(begun.load, cost)

    def _saves(self, tool: str, cases: tuple[str, ...]) -> int:
        rows = [row for row in self.report.rows if (row.tree, row.tool) == (self.tree.name, tool)]
        return sum(row.summary.runs for row in rows if row.case in cases) + 1

    def _begin_case(self, case: str) -> bool:
        is_time = self.budget.begin(self.tree.name, case)
        if is_time:
            self.say(f"{self.tree.name}: {case} ({self.budget})")
        else:
            self._note(f"{case} was not reached within {self.budget.minutes:g} minutes.")
        return is_time

    def _is_over(self, case: str, rounds: int) -> bool:
        if self.budget.is_over():
            self._note(f"{case} ended after {rounds} rounds: its share of the time was used up.")
            return True
        return False

    def _try(self, tool: str, action: Callable[[], Usage]) -> Usage | None:
        # Without this a tool that syncs would also wait for the bytes that another tool has just written.
        os.sync()
        try:
            return action()
        except Failed as problem:
            self._drop(tool, str(problem))
            return None

    def _drop(self, tool: str, why: str) -> None:
        # A tool that saves nothing is very fast, so its results from here on are not shown.
        self._note(f"{tool} is left out from here on: {why}")
        self.tools = [other for other in self.tools if other != tool]
        self.peers.pop(tool, None)

    def _check_coverage(self) -> None:
        whole = survey(self.tree.name, self.copy, "").files - count_files(self.copy / MARKER)
        for tool in list(self.tools):
            try:
                count = self.peers[tool].count()
            except Failed as problem:
                self._drop(tool, str(problem))
                continue
            if count != whole:
                self._drop(tool, f"it holds {count:,} of {whole:,} files.")

    def _check_contents(self, case: str, peers: dict[str, Peer]) -> None:
        paths = self.workspace.sample(CHECKED_FILES)
        truths = {path: digest_of_file(self.copy / path) for path in paths}
        for tool, peer in list(peers.items()):
            try:
                wrong = [path for path in paths if peer.digest(path) != truths[path]]
            except Failed as problem:
                self._drop(tool, str(problem))
                continue
            if wrong:
                self._drop(tool, f"after {case} it holds other bytes of {wrong[0]}.")

    def _keep(
        self, case: str, tool: str, usages: list[Usage], disk: Disk, growth: Disk, conditions: Conditions
    ) -> None:
        if usages:
            self.report.rows.append(Row(self.tree.name, case, tool, summarise(usages), disk, growth, conditions))

    def _note(self, text: str) -> None:
        self.say(text)
        self.report.notes.append(f"{self.tree.name}: {text}")


def cases_of(tree: str, plan: Plan) -> list[str]:
    return [case for case in TREE_CASES[tree] if case in plan.cases]


def per_save(growth: Disk, saves: int) -> Disk:
    saves = max(1, saves)
    return Disk(growth.apparent // saves, growth.used // saves, growth.files // saves)


def ends(usages: list[Usage], count: int) -> tuple[list[Usage], list[Usage]]:
    return usages[:count], usages[-count:]


def count_files(folder: Path) -> int:
    return survey("", folder, "").files if folder.is_dir() else 0
