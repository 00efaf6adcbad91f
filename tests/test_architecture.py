"""The code is laid out as docs/architecture.md says: layers, packages, and the files of each walk."""

from __future__ import annotations

import ast
import importlib.util
import re
import runpy
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "keepfast"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
WALKS = re.findall(r"^\*\*(.+?)\*\*\n((?:\d+\. .+\n)+)", PAGE, re.M)

OPTIONAL = {
    "backports", "compression", "cryptography", "dbos", "jinja2", "mcp", "mfusepy", "psycopg", "pyfastcdc", "pygments",
    "starlette", "uvicorn", "watchfiles",
}  # fmt: skip
SLOW = {"asyncio", "ctypes", "difflib", "http", "sqlite3", "tempfile", "urllib", "webbrowser"}
"""Packages that may be imported in functions: those that are optional or needed rarely, and of Python those that load slowly."""
LATE = {
    "keepfast.agents.claude.transcript", "keepfast.agents.codex.transcript", "keepfast.agents.transcript",
    "keepfast.app.command_report", "keepfast.app.model_notes", "keepfast.app.resume",
    "keepfast.resume.brief", "keepfast.resume.extractor", "keepfast.resume.model_client", "keepfast.resume.task_name",
    "keepfast.store._unpack", "keepfast.store.maintenance.verify",
}  # fmt: skip
"""Modules of ours that may be imported in functions: most hooks and commands do not need them, and they load slowly."""
LOADERS = {"keepfast.entry", "keepfast.hook.start"}
"""Modules that load whole front ends, one at a time."""
BESIDE_PACKAGES = {"bench", "clients", "data", "equipment", "faults", "tools"}
"""Folders of tests that no package gives its name: programs beside it, campaigns, real clients, and what tests share."""
MAX_BRANCHES = 20
EXCEPTIONS: dict[str, str] = {}
"""Functions of more branches, each with the reason: a split that was measured, and costs speed in a hot loop."""


def named(text: str) -> list[str]:
    return re.findall(r"`([a-z_/]+\.py)`", text)


def test_imports_point_down_only() -> None:
    done = subprocess.run([Path(sys.executable).parent / "lint-imports"], cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout


def house_metrics() -> ModuleType:
    spec = importlib.util.spec_from_file_location("house_metrics", ROOT / "tools" / "house_metrics.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_modules_import_one_another_in_a_circle() -> None:
    """Imports inside of functions count too: a cycle that they hide is one all the same."""
    metrics = house_metrics()
    modules = {metrics.name_of(SOURCE, path): ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}

    assert [sorted(group) for group in metrics.groups(metrics.imports(modules)) if len(group) > 1] == []


def trees() -> dict[str, ast.Module]:
    metrics = house_metrics()
    return {metrics.name_of(SOURCE, path): ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}


def targets(node: ast.AST, modules: Iterable[str]) -> set[str]:
    """Return the modules that an import names; of ours those that exist, of others the full name."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    assert isinstance(node, ast.ImportFrom) and node.module
    inner = {f"{node.module}.{alias.name}" for alias in node.names}
    return {name if name in modules or name in LATE else node.module for name in inner}


def imports_in(tree: ast.AST, modules: Iterable[str], *, functions: bool) -> set[str]:
    """Return what is imported in functions, or what is imported with the module; imports for types alone do not count."""
    found: set[str] = set()
    todo: list[tuple[ast.AST, bool]] = [(tree, False)]
    while todo:
        node, is_inside = todo.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import | ast.ImportFrom) and is_inside is functions:
            found |= targets(node, modules)
        is_inside = is_inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        todo += [(child, is_inside) for child in ast.iter_child_nodes(node)]
    return found


def test_no_module_imports_what_is_private_to_python() -> None:
    modules = trees()
    found = {
        name: imported
        for name, tree in modules.items()
        for functions in (False, True)
        for imported in imports_in(tree, modules, functions=functions)
        if imported == "posix" or (imported.startswith("_") and imported != "__future__")
    }

    assert found == {}


def test_imports_stand_at_the_top_but_for_what_is_optional_or_slow() -> None:
    """A module of ours that loads something optional or slow is as slow, for modules that do not load it anyway."""
    modules = trees()
    loaded = {name: imports_in(tree, modules, functions=False) for name, tree in modules.items()}
    slow = {name: {root for root in map(root_of, found) if root in OPTIONAL | SLOW} for name, found in loaded.items()}
    for name in LATE & slow.keys():
        slow[name].add(name)
    for _ in modules:  # long enough for the longest chain
        for name, found in loaded.items():
            slow[name] = slow[name].union(*[slow.get(one, set()) for one in found])

    odd = {
        f"{name} imports {imported} in a function"
        for name, tree in modules.items()
        if name not in LOADERS
        for imported in imports_in(tree, modules, functions=True)
        if root_of(imported) not in OPTIONAL | SLOW
        and imported not in LATE
        and not slow.get(imported, set()) - slow[name]
    }

    assert odd == set()


def root_of(module: str) -> str:
    return module.partition(".")[0]


def test_every_file_that_the_page_names_exists() -> None:
    assert [name for name in named(PAGE) if not (SOURCE / name).exists()] == []


def test_there_are_five_walks_of_at_most_eight_files() -> None:
    assert len(WALKS) == 5
    assert {title: len(set(named(steps))) for title, steps in WALKS if len(set(named(steps))) > 8} == {}


def test_the_page_names_every_package() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    rows = re.findall(r"^\| (`[a-z]+/`(?:, `[a-z]+/`)*) \|", PAGE, re.M)

    assert packages == {name for row in rows for name in re.findall(r"`([a-z]+)/`", row)}


def test_the_page_is_short() -> None:
    assert len(PAGE.split()) <= 1_500


def test_every_module_says_what_it_is() -> None:
    silent = [path for path in SOURCE.rglob("*.py") if not path.read_text().startswith('"""')]

    assert silent == []


def test_tests_mirror_packages() -> None:
    """Imports begin at `tests`, so that no folder needs a path of its own and none can hide a library of its name."""
    tests = ROOT / "tests"
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    folders = {path.relative_to(tests).parts[0] for path in tests.rglob("*.py") if path.parent != tests}
    homeless = [path for path in tests.rglob("*.py") if not (path.parent / "__init__.py").exists()]

    assert folders | {"data"} == packages | BESIDE_PACKAGES
    assert [path.name for path in tests.glob("test_*.py")] == ["test_architecture.py"]
    assert homeless == []


@pytest.mark.parametrize("name", sorted(path.name for path in SOURCE.rglob("*ing.py")))
def test_modules_are_nouns(name: str) -> None:
    """A module named by a participle tells what somebody does, not what it is."""
    assert name in ("ranking.py", "wiring.py")


def test_only_the_store_asks_the_ledger() -> None:
    """Everybody else asks the repository."""
    others = [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] != "store"]

    assert [str(path) for path in others if re.search(r"\.ledger\b(?! import)", path.read_text())] == []


def test_sql_of_tasks_is_in_one_place() -> None:
    """Everybody else asks `runner/db/queries.py` and `runner/db/changes.py`."""
    sql = re.compile(r"\bSELECT |\bINSERT INTO |\bUPDATE |\bDELETE FROM |\bstatus IN \(|\btables\.(?:all|one|do)\(")
    others = [path for name in ("runner", "web", "cli", "mcp") for path in (SOURCE / name).rglob("*.py")]
    others = [
        path for path in others if path.parent.name != "db" and path.name != "sessions.py"
    ]  # of the page, not of tasks

    assert {str(path.relative_to(SOURCE)): found for path in others if (found := sql.findall(path.read_text()))} == {}


def test_no_function_has_more_branches_than_a_reader_can_follow() -> None:
    """Counted as tools/house_metrics.py does."""
    metrics = runpy.run_path(str(ROOT / "tools" / "house_metrics.py"))
    modules = {metrics["name_of"](SOURCE, path): ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}
    counted = [(name, count) for count, name in metrics["complexities"](modules)]

    assert [one for one in counted if one[1] > MAX_BRANCHES and one[0] not in EXCEPTIONS] == []
    assert [name for name in EXCEPTIONS if max([0, *[n for one, n in counted if one == name]]) <= MAX_BRANCHES] == []
