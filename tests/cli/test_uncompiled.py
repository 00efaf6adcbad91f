"""The package as it is where there was no compiler: it keeps the same, and `doctor` says what is missing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from keepfast.model.entry import SEALED
from keepfast.store.factory import open_store
from tests.equipment.box import SOURCE, Box

COMPILED = {"workspace._check", "workspace._marks", "workspace._place", "store._unpack"}
KEY = "sk-ant-" + "api03-Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MA"


@pytest.fixture(scope="module")
def uncompiled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The sources without anything that a compiler made."""
    folder = tmp_path_factory.mktemp("uncompiled")
    shutil.copytree(SOURCE / "keepfast", folder / "keepfast", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return str(folder)


def check(box: Box, source: str) -> dict[str, Any]:
    checks: list[dict[str, Any]] = box.run("doctor", "--json", PYTHONPATH=source).json()["checks"]
    return next(one for one in checks if one["name"] == "accelerator")


def test_doctor_names_what_is_missing(box: Box, uncompiled: str) -> None:
    result = check(box, uncompiled)

    assert result["level"] == "note"
    assert all(name in result["text"] for name in COMPILED)


def test_doctor_names_one_that_is_missing_where_others_are_there(box: Box, tmp_path: Path) -> None:
    folder = tmp_path / "partly"
    shutil.copytree(
        SOURCE / "keepfast", folder / "keepfast", ignore=shutil.ignore_patterns("_marks*.so", "__pycache__")
    )
    if not list((folder / "keepfast").rglob("*.so")):
        pytest.skip("built without a compiler")

    result = check(box, str(folder))

    assert result["level"] == "note"
    assert "workspace._marks" in result["text"]
    assert "workspace._check" not in result["text"]


def test_the_same_is_kept_sealed_and_brought_back(tmp_path: Path, uncompiled: str) -> None:
    """Two homes with the same tree: one with the compiled modules, where there are any, one without."""
    trees = []
    for number, source in enumerate((str(SOURCE), uncompiled)):
        box = Box(tmp_path / str(number))
        box.put("plain.py", "x = 1\n" * 500)
        box.put("keys.py", f'KEY = "{KEY}"\n')
        box.put(".env", "PASSWORD=s3cr3t-pA55-phrase\n")
        box.put("address.txt", "postgres://user:s3cr3t-pA55@host/base\n")
        box.put("folder/data.bin", bytes(range(256)) * 2_000)
        assert box.run("init", PYTHONPATH=source).code == 0
        assert box.run("save", "-m", "first", PYTHONPATH=source).code == 0
        box.put("plain.py", "x = 2\n")
        (box.project / "folder/data.bin").unlink()
        assert box.run("save", "-m", "second", PYTHONPATH=source).code == 0
        assert box.run("restore", "v1", "-y", PYTHONPATH=source).code == 0
        assert box.run("verify", PYTHONPATH=source).code == 0
        files = {path.name: path.read_bytes() for path in box.project.rglob("*") if path.suffix in (".py", ".bin")}
        repository = open_store(str(box.store), keys=str(box.home / ".local/share/keepfast/keys"))
        rows = repository.ledger.state(repository.ledger.workspaces()[0].id, 1)
        row_facts = sorted([(row.path, row.kind, row.size, row.flags) for row in rows])
        repository.close()
        trees.append((files, row_facts))

    assert trees[0] == trees[1]
    assert len(trees[0][0]["plain.py"]) == 3_000
    sealed = {path for path, _, _, flags in trees[0][1] if flags & SEALED}
    assert sealed == {b".env", b"keys.py", b"address.txt"}


STALE = """
def load(marks):
    return True
"""
CRASHES = """
import os
from keepfast.model.compiled import DIGESTS
__doc__ = DIGESTS[__name__]
def load(*_):
    os.kill(os.getpid(), 11)
"""


def with_marks(tmp_path: Path, uncompiled: str, text: str) -> str:
    """The sources beside a module that is found where the compiled one would be."""
    shutil.copytree(Path(uncompiled) / "keepfast", tmp_path / "with" / "keepfast")
    (tmp_path / "with/keepfast/workspace/_marks.py").write_text(text)
    return str(tmp_path / "with")


def test_a_module_of_other_sources_is_not_used_and_doctor_says_so(box: Box, tmp_path: Path, uncompiled: str) -> None:
    source = with_marks(tmp_path, uncompiled, STALE)
    box.put("a.py", "x = 1\n")

    assert box.run("init", PYTHONPATH=source).code == 0
    assert box.run("save", PYTHONPATH=source).code == 0
    result = box.run("doctor", "--json", PYTHONPATH=source)

    problems = [one for one in result.json()["checks"] if one["level"] == "problem"]
    assert result.code == 1
    assert [one["name"] for one in problems] == ["accelerator"] and "workspace._marks" in problems[0]["text"]


def test_doctor_tries_a_save_and_survives_its_crash(box: Box, tmp_path: Path, uncompiled: str) -> None:
    result = box.run("doctor", "--json", PYTHONPATH=with_marks(tmp_path, uncompiled, CRASHES))

    levels = {one["name"]: one["level"] for one in result.json()["checks"]}
    assert (result.code, levels["saving"]) == (1, "problem")
    assert {one["name"]: one["level"] for one in box.run("doctor", "--json").json()["checks"]}["saving"] == "fine"
