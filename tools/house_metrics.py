"""Figures about how easy the code is to enter.

Usage: python tools/house_metrics.py [SOURCE_FOLDER]
       python tools/house_metrics.py --names [SOURCE_FOLDER]     lists every name that tells nothing
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BRANCHES = (
    ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.comprehension, ast.Assert, ast.match_case,
)  # fmt: skip
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
VAGUE_NAMES = frozenset(
    "apart asked found gone given heard held kept known made meant near odd said shown taken there told wanted".split()
)
"""Participles and the like as names of values: a reader cannot tell what they hold."""


def main(source: Path) -> None:
    trees = {path: ast.parse(path.read_text()) for path in sorted(source.rglob("*.py"))}
    text = "\n".join([path.read_text() for path in trees])
    modules = {name_of(source, path): tree for path, tree in trees.items()}
    cycles = [sorted(group) for group in groups(imports(modules)) if len(group) > 1]
    parents = bases(trees)
    chains = [chain(name, parents) for name in parents]
    complex_ones = sorted(((count, where) for count, where in complexities(modules) if count > 20), reverse=True)
    docs = [path.read_text() for path in (*ROOT.glob("docs/**/*.md"), ROOT / "README.md")]
    rows = {
        "Python files": len(trees),
        "lines": text.count("\n"),
        "modules named by a participle": sum([path.stem.endswith("ing") for path in trees]),
        "lines with dict[str, Any]": sum(["dict[str, Any]" in line for line in text.splitlines()]),
        "import cycles, lazy imports counted": len(cycles),
        "modules in cycles": sum(map(len, cycles)),
        "names that tell nothing": len(list(vague_names(trees))),
        "longest chain of our own classes": max(map(len, chains), default=0),
        "functions with a complexity over 20": len(complex_ones),
        "lines of C": sum([path.read_text().count("\n") for path in source.rglob("*.c")]),
        "words of docs": sum([len(re.findall(r"\S+", page)) for page in docs]),
    }
    for name, number in rows.items():
        print(f"{number:>8,}  {name}")
    for group in cycles:
        print(f"  cycle of {len(group)}: {', '.join(group[:12])}{' …' if len(group) > 12 else ''}")
    for count, where in complex_ones:
        print(f"  complexity {count}: {where}")
    longest: list[str] = max(chains, key=len, default=[])
    print("  longest chain:", " < ".join(longest))


def name_of(source: Path, path: Path) -> str:
    parts = path.relative_to(source.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(modules: dict[str, ast.Module]) -> dict[str, set[str]]:
    """What each module imports of the others, at its top or later, but for types alone."""
    found: dict[str, set[str]] = {name: set() for name in modules}
    for name, tree in modules.items():
        for node in at_run_time(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *[f"{node.module}.{alias.name}" for alias in node.names]]
                if any(one in modules for one in names[1:]):
                    names = names[1:]
            found[name].update([one for one in names if one in modules and one != name])
    return found


def at_run_time(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for one in node.orelse:
                yield from at_run_time(one)
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        else:
            yield from at_run_time(node)


def groups(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the strongly connected groups: modules of which each leads to each."""
    reach: dict[str, set[str]] = {}
    for start in graph:
        seen, todo = set[str](), [start]
        while todo:
            for name in graph[todo.pop()] - seen:
                seen.add(name)
                todo.append(name)
        reach[start] = seen
    found: list[set[str]] = []
    for name in graph:
        if not any(name in group for group in found):
            found.append({name, *[other for other in reach[name] if name in reach[other]]})
    return found


def bases(trees: dict[Path, ast.Module]) -> dict[str, list[str]]:
    known: dict[str, list[str]] = {}
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                known[node.name] = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
    return known


def chain(name: str, known: dict[str, list[str]], seen: tuple[str, ...] = ()) -> list[str]:
    """Return the longest inheritance chain of our own classes from this one upwards, without error classes."""
    ways = [chain(base, known, (*seen, name)) for base in known[name] if base in known and base not in seen]
    longest = max(ways, key=len, default=[])
    return [] if longest and "KeepfastError" in longest else [name, *longest]


def vague_names(trees: dict[Path, ast.Module]) -> Iterator[tuple[Path, int, str]]:
    """Yield file, line and name of every variable, parameter and attribute that is called by one of `VAGUE_NAMES`."""
    for path, tree in trees.items():
        for node in ast.walk(tree):
            name = ""
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name = node.id
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                name = node.attr
            elif isinstance(node, ast.arg):
                name = node.arg
            if name.strip("_") in VAGUE_NAMES:
                yield path, getattr(node, "lineno", 0), name


def complexities(modules: dict[str, ast.Module]) -> Iterator[tuple[int, str]]:
    for module, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, FUNCTIONS):
                inner = [one for child in ast.walk(node) if isinstance(child, FUNCTIONS) and child is not node
                         for one in ast.walk(child)]  # fmt: skip
                own = set(ast.walk(node)) - set(inner)
                ands = sum([len(one.values) - 1 for one in own if isinstance(one, ast.BoolOp)])
                yield 1 + ands + sum([isinstance(one, BRANCHES) for one in own]), f"{module}.{node.name}"


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--names"]
    folder = Path(arguments[0]) if arguments else ROOT / "src" / "keepfast"
    if "--names" in sys.argv:
        for path, line, name in vague_names(
            {path: ast.parse(path.read_text()) for path in sorted(folder.rglob("*.py"))}
        ):
            print(f"{path}:{line}: {name}")
    else:
        main(folder)
