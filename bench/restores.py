"""The restores: everything, one file, and ten files into a large tree, beside tuned git, restic and borg; all durable."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from .changes import Mix, Workspace
from .ground import Ground
from .measure import Failed, Summary, Usage, run, shuffled, summarise
from .peer import MARKER, Peer, digest_of_file
from .peers import PEERS, REFERENCE, SUBJECT, Borg, Keepfast, Restic, missing
from .plan import LONG_SECONDS, Plan
from .report import MEGABYTE, MEMORY_LIMIT, columns
from .shadow_git import GitTuned
from .startup import BARE
from .trees import Tree, Unavailable, demand_space, prepare, walk

TOOLS = (SUBJECT, REFERENCE, "restic", "borg")
TREES = ("project", "node_modules", "linux")
BARE_PYTHON, SCRIPT, SAVE, RESTORE = "bare python", "keepfast (script)", "save of 10", "restore of 10"
FULL_LIMIT, FILE_LIMIT, TEN_LIMIT = 0.65, 5.0, 1.2
SYNC = ["sync", "-f", "."]
TEN = Mix(edited=10)


@dataclass(frozen=True)
class Line:
    """One tool in one case on one tree."""

    tree: str
    case: str
    tool: str
    summary: Summary


@dataclass(frozen=True)
class Goal:
    """One goal beside its measured value; `about` says what was compared."""

    tree: str
    about: str
    value: float
    limit: float
    unit: str

    @property
    def word(self) -> str:
        return "PASS" if self.value <= self.limit else "MISS"


class Restores:
    """Everything that one run has found about restoring."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.notes: list[str] = []

    def keep(self, tree: str, case: str, usages: dict[str, list[Usage]]) -> None:
        self.lines += [Line(tree, case, tool, summarise(runs)) for tool, runs in usages.items() if runs]

    def of(self, tree: str, case: str, tool: str) -> Summary | None:
        found = (line.summary for line in self.lines if (line.tree, line.case, line.tool) == (tree, case, tool))
        return next(found, None)

    def goals(self) -> list[Goal]:
        found: list[Goal] = []
        for tree in dict.fromkeys(line.tree for line in self.lines):
            ours, git = self.of(tree, "full", SUBJECT), self.of(tree, "full", REFERENCE)
            if ours and git:
                found.append(Goal(tree, "full: wall", ours.wall.median / git.wall.median, FULL_LIMIT, "×"))
                found.append(Goal(tree, "full: CPU", ours.cpu.median / git.cpu.median, FULL_LIMIT, "×"))
            if ours:
                found.append(Goal(tree, "full: memory", ours.rss / MEGABYTE, MEMORY_LIMIT, "MB"))
            bare = self.of(tree, "one file", BARE_PYTHON)
            for tool in (SUBJECT, SCRIPT):
                one = self.of(tree, "one file", tool)
                if one and bare:
                    about = f"one file, {tool}: CPU beside bare python"
                    found.append(Goal(tree, about, one.cpu.median / bare.cpu.median, FILE_LIMIT, "×"))
            save, back = self.of(tree, "ten files", SAVE), self.of(tree, "ten files", RESTORE)
            if save and back:
                found.append(
                    Goal(tree, "ten files: wall beside a save", back.wall.median / save.wall.median, TEN_LIMIT, "×")
                )
                found.append(
                    Goal(tree, "ten files: CPU beside a save", back.cpu.median / save.cpu.median, TEN_LIMIT, "×")
                )
        return found

    def as_json(self) -> list[dict[str, object]]:
        return [asdict(line) for line in self.lines]


def measure_restores(plan: Plan, ground: Ground, say: Callable[[str], None]) -> Restores:
    """Run all cases on all trees and print each table when it is done."""
    found = Restores()
    tools = [tool for tool in TOOLS if tool in plan.tools]
    for tool in list(tools):
        if (reason := missing(tool)) is not None:
            found.notes.append(f"{tool} is left out: {reason}.")
            tools.remove(tool)
    for name in [name for name in TREES if name in plan.trees]:
        try:
            tree = prepare(name, plan.cache, say)
            demand_space(plan.cache, 8 * len(tools) * tree.bytes, "the restores")
        except Unavailable as problem:
            found.notes.append(f"{name} is left out: {problem}")
            continue
        contest = Contest(tree, plan, ground, found, tools, say)
        for case in (contest.full, contest.one_file, contest.ten_files):
            case()
            print(f"\n{case_table(found, name)}", flush=True)
    return found


class Contest:
    """All tools on one tree: saved once by each, then damaged and brought back again and again."""

    def __init__(
        self, tree: Tree, plan: Plan, ground: Ground, found: Restores, tools: list[str], say: Callable[[str], None]
    ) -> None:
        self.tree, self.plan, self.ground, self.found, self.say = tree, plan, ground, found, say
        self.chance = random.Random(f"{plan.seed} {tree.name}")
        self.copy = ground.copy(tree)
        self.graves = ground.fresh("graveyard")
        self.workspace = Workspace(self.copy, ground.fresh("changes"), plan.seed)
        self.peers: dict[str, Peer] = {}
        for tool in tools:
            say(f"{tree.name}: {tool} saves")
            self.peers[tool] = PEERS[tool](ground.fresh(tool), self.copy)
            self.peers[tool].first()
        self.sample = {path: digest_of_file(self.copy / path) for path in self.workspace.sample(20)}
        self.count = self._count()

    # Cases

    def full(self) -> None:
        """The folder is empty, and everything comes back."""
        usages: dict[str, list[Usage]] = {tool: [] for tool in self.peers}
        runs = 2 if self.plan.quick else self.plan.long
        for number in range(runs):
            self.say(f"{self.tree.name}: everything, round {number + 1} of {runs}")
            for tool in shuffled(list(self.peers), self.chance):
                self._bury()
                os.sync()
                usage = self._try(tool, COMMANDS[tool](self.peers[tool], None))
                if usage is not None and self._is_whole(tool):
                    usages[tool].append(usage)
        self.found.keep(self.tree.name, "full", usages)

    def one_file(self) -> None:
        """One file was changed, and comes back; a bare interpreter runs beside it."""
        actions: dict[str, Callable[[str], list[list[str]]]] = {
            tool: partial(COMMANDS[tool], peer) for tool, peer in self.peers.items()
        }
        actions[BARE_PYTHON] = lambda path: [BARE]
        subject = self.peers.get(SUBJECT)
        if isinstance(subject, Keepfast):
            actions[SUBJECT] = lambda path: [subject.command("restore", "latest", "-y", "--theirs", "--", path)]
            script = Path(sys.executable).with_name("keepfast")
            if script.exists():
                words = ["--config", str(subject.config), "restore", "latest", "-y", "--theirs", "--"]
                actions[SCRIPT] = lambda path: [[str(script), *words, path]]
        usages: dict[str, list[Usage]] = {tool: [] for tool in actions}
        runs = 4 if self.plan.quick else self.plan.short
        for number in range(runs):
            path = self.chance.choice(list(self.sample))
            for tool in shuffled(list(actions), self.chance):
                slow = len(usages[tool]) >= self.plan.long and summarise(usages[tool]).wall.median > LONG_SECONDS
                if slow:
                    continue
                if subject is not None and tool in (SUBJECT, SCRIPT):
                    subject.save()  # `latest` is then the state that the file comes back to
                with open(self.copy / path, "ab") as file:
                    file.write(b"changed %d\n" % number)
                os.sync()
                usage = self._try(tool, actions[tool](path))
                if tool == BARE_PYTHON:
                    self._mend(path)
                if digest_of_file(self.copy / path) != self.sample[path]:
                    self.found.notes.append(f"{self.tree.name}: {tool} did not bring {path} back.")
                    self._mend(path)
                elif usage is not None:
                    usages[tool].append(usage)
        self.found.keep(self.tree.name, "one file", usages)

    def ten_files(self) -> None:
        """Ten files were changed: saved, or brought back by a restore of the whole tree."""
        subject = self.peers.get(SUBJECT)
        if not isinstance(subject, Keepfast):
            return
        usages: dict[str, list[Usage]] = {SAVE: [], RESTORE: []}
        subject.save()
        for _ in range(4 if self.plan.quick else self.plan.short):
            for action in shuffled([SAVE, RESTORE], self.chance):
                if action == RESTORE:
                    subject.save()  # `latest` is then the state before the ten changes
                self.workspace.apply(TEN)
                os.sync()
                command = subject.command("restore", "latest", "-y", "--theirs")
                usages[action].append(subject.save() if action == SAVE else run(command, self.copy, subject.env))
                if action == RESTORE and subject.ask(subject.command("diff", "@~1", "--name-only")):
                    self.found.notes.append(f"{self.tree.name}: the restore of ten files left a difference.")
        self.found.keep(self.tree.name, "ten files", usages)

    # Parts

    def _try(self, tool: str, commands: list[list[str]]) -> Usage | None:
        peer = self.peers.get(tool, self.peers[SUBJECT] if SUBJECT in self.peers else next(iter(self.peers.values())))
        total = Usage(0.0, 0.0, 0)
        try:
            for command in commands:
                total += run(command, self.copy, peer.env)
        except Failed as problem:
            self.found.notes.append(f"{self.tree.name}: {tool}: {problem}")
            return None
        return total

    def _bury(self) -> None:
        """Empty the folder without deleting: deletions would slow down whoever makes files next."""
        grave = self.graves / f"{len(os.listdir(self.graves))}"
        grave.mkdir()
        for name in os.listdir(self.copy):
            if name != MARKER:
                os.rename(self.copy / name, grave / name)
        self.ground.retire(grave)

    def _mend(self, path: str) -> None:
        (self.copy / path).write_bytes((self.tree.path / path).read_bytes())

    def _is_whole(self, tool: str) -> bool:
        count, wrong = self._count(), [path for path, digest in self.sample.items() if self._digest(path) != digest]
        if count == self.count and not wrong:
            return True
        self.found.notes.append(
            f"{self.tree.name}: {tool} brought back {count:,} of {self.count:,} files, {len(wrong)} of 20 wrong."
        )
        return False

    def _digest(self, path: str) -> str:
        try:
            return digest_of_file(self.copy / path)
        except OSError:
            return ""

    def _count(self) -> int:
        names = [name for name in sorted(os.listdir(self.copy)) if name != MARKER]
        folders = [
            self.copy / name for name in names if (self.copy / name).is_dir() and not (self.copy / name).is_symlink()
        ]
        inside = sum(not entry.is_dir(follow_symlinks=False) for folder in folders for entry in walk(folder))
        return inside + len(names) - len(folders)


# How each tool brings back everything, or one file; the last word is always that it is on disk.


def by_keepfast(peer: Peer, path: str | None) -> list[list[str]]:
    assert isinstance(peer, Keepfast)
    return [peer.command("restore", "v1", "-y", "--theirs", *(["--", path] if path else []))]


def by_git(peer: Peer, path: str | None) -> list[list[str]]:
    assert isinstance(peer, GitTuned)
    git = ["git", "-c", "checkout.workers=0", "-c", "core.fsync=all"]
    if path:
        return [[*git, "restore", f"--source={peer.trees[-1]}", "--worktree", "--", path], ["sync", path, "."]]
    return [[*git, "read-tree", peer.trees[-1]], [*git, "checkout-index", "--all", "--force", "--quiet"], SYNC]


def by_restic(peer: Peer, path: str | None) -> list[list[str]]:
    assert isinstance(peer, Restic)
    only = ["--include", f"/{path}"] if path else []
    restore = ["restic", "restore", "latest", "--quiet", "--host", "bench", "--target", "."]
    return [[*restore, *only], ["sync", path, "."] if path else SYNC]


def by_borg(peer: Peer, path: str | None) -> list[list[str]]:
    assert isinstance(peer, Borg)
    extract = ["borg", "extract", f"::save-{peer.archives}", *([path] if path else [])]
    return [extract, ["sync", path, "."] if path else SYNC]


COMMANDS: dict[str, Callable[[Peer, str | None], list[list[str]]]] = {
    SUBJECT: by_keepfast,
    REFERENCE: by_git,
    "restic": by_restic,
    "borg": by_borg,
}


# Tables


def case_table(found: Restores, tree: str) -> str:
    case = [line for line in found.lines if line.tree == tree][-1].case
    lines = [["tool", "runs", "wall ms: median (range)", "CPU ms: median (range)", "peak MB"]]
    for line in found.lines:
        if (line.tree, line.case) == (tree, case):
            summary = line.summary
            times = [
                f"{one.median * 1e3:,.1f} ({one.low * 1e3:,.1f}..{one.high * 1e3:,.1f})"
                for one in (summary.wall, summary.cpu)
            ]
            lines.append([line.tool, str(summary.runs), *times, f"{summary.rss / MEGABYTE:.0f}"])
    return f"{tree} · restore: {case}\n{columns(lines)}"


def closing_table(found: Restores) -> str:
    lines = [["tree", "goal", "measured", "limit", "verdict"]]
    for goal in found.goals():
        lines.append(
            [goal.tree, goal.about, f"{goal.value:.2f} {goal.unit}", f"≤ {goal.limit:g} {goal.unit}", goal.word]
        )
    notes = "".join(f"\nNote: {note}" for note in found.notes)
    return f"Goals of restoring\n{columns(lines)}{notes}"
