"""The gain of each C module: whole commands with all of them, and without one. `python -m bench.native`.

For each module a copy of the package is made in which it is not built; its Python stand-in then does the work. The
commands run interleaved, in random order; the table shows how much longer a command takes without the module.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from .ground import Ground
from .measure import Usage, run, shuffled
from .peer import PATH
from .trees import CACHE, REPOSITORY, Tree, demand_space, prepare

SOURCE = REPOSITORY / "src" / "keepfast"
ALL = "all"
CASES = ("first save", "nothing changed", "one file changed", "1 % changed", "hook before a command", "restore of all")
TREES = ("small", "project", "linux")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.native", description=__doc__)
    parser.add_argument("--tree", action="append", choices=TREES, help="a tree to measure on (default: project)")
    parser.add_argument("--rounds", type=int, default=7, help="how often each command runs (default: %(default)s)")
    parser.add_argument("--dir", type=Path, default=CACHE, help="where trees and stores go (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    modules = sorted(found.name.partition(".")[0] for found in SOURCE.rglob("*.so"))
    if not modules:
        print("No C module is built here: there is nothing to compare.", file=sys.stderr)
        return 1
    trees = [prepare(name, options.dir, say) for name in options.tree or ("project",)]
    variants = [ALL, *modules]
    for tree in trees:
        demand_space(options.dir, (len(variants) + 1) * 2 * tree.bytes, "this bench")
        with Ground(options.dir, 8 << 30, 0.0, say) as ground:
            measured = measure(tree, variants, ground, options.rounds, random.Random(options.seed))
        print(f"\n{tree}\n\n{table(measured, modules)}", flush=True)
    return 0


@dataclass
class Variant:
    """The package without one module, with a workspace and a store of its own."""

    name: str
    package: Path
    home: Path
    tree: Path
    usages: dict[str, list[Usage]] = field(default_factory=dict)

    @property
    def config(self) -> Path:
        return self.home / "config.json"

    def begin(self) -> None:
        """Forget the store, and begin a new one."""
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.rmtree(self.tree / ".keepfast", ignore_errors=True)
        self.home.mkdir(parents=True)
        capture = {"exclude": [], "exclude_ignored": [], "ignored": "all", "max_files": 1_000_000}
        self.config.write_text(json.dumps({"capture": capture, "adopt": "any"}))
        self.do("init")

    def do(self, *words: str) -> Usage:
        folders = ["--folders", *[str(self.home / name) for name in ("", ".config", ".local/share")]]
        command = [sys.executable, "-P", "-m", "keepfast", *folders, "--config", str(self.config), *words]
        return run(command, self.tree, self.variables)

    def hook(self, payload: Mapping[str, object]) -> Usage:
        folders = [str(self.home / name) for name in ("", ".config", ".local/share")]
        program = self.package / "keepfast" / "hook" / "launch.py"
        text = json.dumps(payload).replace("'", "")
        words = [sys.executable, "-I", "-S", "-B", str(program), "--folders", *folders, "hook", "claude-code"]
        return run(["sh", "-c", f"echo '{text}' | \"$@\"", "sh", *words], self.tree, self.variables)

    @property
    def variables(self) -> dict[str, str]:
        return {"PATH": PATH, "HOME": str(self.home), "LANG": "C.UTF-8", "PYTHONPATH": str(self.package)}


def measure(tree: Tree, names: list[str], ground: Ground, rounds: int, chance: random.Random) -> list[Variant]:
    variants = [make(name, tree, ground) for name in names]
    files = sorted(
        str(path) for path in variants[0].tree.rglob("*") if path.is_file() and ".keepfast" not in path.parts
    )
    names_of = [os.path.relpath(path, variants[0].tree) for path in files]
    for number in range(rounds):
        say(f"Round {number + 1} of {rounds} …")
        changed = chance.sample(names_of, max(2, len(names_of) // 100))
        for case in CASES:
            for variant in shuffled(variants, chance):
                variant.usages.setdefault(case, []).append(one(variant, case, changed, number))
    return variants


def one(variant: Variant, case: str, changed: list[str], number: int) -> Usage:
    """Prepare a case and measure its command."""
    if case == "first save":
        variant.begin()
    elif case in ("one file changed", "1 % changed"):
        for name in changed[:1] if case == "one file changed" else changed:
            with open(variant.tree / name, "a") as file:
                file.write(f"\nround {number} of {case}\n")
    elif case == "restore of all":
        for entry in variant.tree.iterdir():
            if entry.name != ".keepfast":
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    os.sync()
    if case == "restore of all":
        return variant.do("restore", "latest", "-y")
    if case == "hook before a command":
        payload = {
            "hook_event_name": "PreToolUse",
            "session_id": "bench",
            "cwd": str(variant.tree),
            "tool_name": "Bash",
        }
        return variant.hook({**payload, "tool_input": {"command": f"rm {changed[1]}"}})
    return variant.do("save", "--quiet")


def make(name: str, tree: Tree, ground: Ground) -> Variant:
    folder = ground.fresh(f"without-{name.strip('_')}")
    package = folder / "package"
    shutil.copytree(SOURCE, package / "keepfast")
    for built in (package / "keepfast").rglob(f"{name}.*so"):
        built.unlink()
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(package)], env=environment, check=True)
    subprocess.run(["cp", "-a", str(tree.path), str(folder / "tree")], check=True)
    return Variant(name, package, folder / "home", folder / "tree")


def table(variants: list[Variant], modules: list[str]) -> str:
    """Return a line for each command: its time with all modules, and the factor without each."""
    head = ["command", "with all (CPU, wall)", *[f"without {name}" for name in modules]]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    whole = variants[0]
    for case in CASES:
        cpu, wall = middle(whole, case)
        cells = [case, f"{cpu * 1000:.0f} ms, {wall * 1000:.0f} ms"]
        for variant in variants[1:]:
            without_cpu, without_wall = middle(variant, case)
            cells.append(f"{without_cpu / cpu:.2f}, {without_wall / wall:.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def middle(variant: Variant, case: str) -> tuple[float, float]:
    usages = variant.usages[case]
    return median(usage.cpu for usage in usages), median(usage.wall for usage in usages)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
