"""A data folder and a bundle as the commands of November 2026 wrote them open in every later version.

`KEEPFAST_SAMPLE=write pytest tests/store/test_sample_home.py` makes the sample again; that is right only for a new format,
beside this one.
"""

from __future__ import annotations

import json
import os
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from tests.equipment.box import Box

SAMPLE = Path(__file__).parents[1] / "data/home-1"
PASSPHRASE = "walnut glacier trombone velvet orbit 61"
KEEP = ".keep"
"""Stands in an empty folder, which git does not keep."""


def make(box: Box) -> None:
    """Use all that a store remembers: names, pins, sealed files, two key sets, large files, restores, forgotten versions."""
    (box.base / "passphrase").write_text(PASSPHRASE)
    assert box.call("init").code == 0
    box.put("README", "read me\n")
    box.put("src/a.py", "one\ntwo\nthree\n")
    box.put(".env", "DB_PASSWORD=s3cr3t-pA55-phrase\n")
    box.put("large.bin", b"".join([sha256(bytes([n])).digest() * 4096 for n in range(12)]))
    (box.project / "empty").mkdir()
    (box.project / "link").symlink_to("README")
    box.save("-m", "first", "--name", "start", "--tag", "work")
    assert box.call("key", "rotate", "-y").code == 0
    box.put(".env", "DB_PASSWORD=an0ther-pA55-phrase\n")
    box.put("src/a.py", "one\n2\nthree\n")
    box.save("-m", "second", "--pin")
    (box.project / "README").unlink()
    box.put("한글.txt", "체크포인트\n")
    box.save("-m", "third")
    assert box.call("restore", "v2", "-y").code == 0
    box.put("src/b.py", "b\n")
    box.save("-m", "fifth")
    assert box.call("forget", "v3", "-y").code == 0
    words = ("--all", "--with-secrets", "--passphrase-file", str(box.base / "passphrase"))
    assert box.call("export", *words, str(box.base / "bundle")).code == 0


def contents(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.split("/")[0] == ".keepfast":
            continue
        kind = "l" + os.readlink(path) if path.is_symlink() else "d" if path.is_dir() else ""
        found[name] = kind or sha256(path.read_bytes()).hexdigest()
    return found


def facts(box: Box) -> dict[str, object]:
    """What a person finds: every checkpoint of every workspace, and the folder that a fork makes of it."""
    rows = box.call("list", "--all-workspaces", "--all", "--json", cwd=box.base).json()
    told: dict[str, object] = {}
    for row in rows:
        folder = box.base / f"fork-{row['version']}"
        assert box.call("fork", row["id"], str(folder), cwd=box.base).code == 0
        told[row["version"]] = {
            **{name: row[name] for name in ("id", "message", "trigger", "name", "tags", "pinned", "files", "bytes")},
            "contents": contents(folder),
        }
    return told


@pytest.fixture
def older(tmp_path: Path) -> Box:
    """A home with the data folder of then."""
    box = Box(tmp_path)
    if os.environ.get("KEEPFAST_SAMPLE") == "write":
        write(Box(tmp_path / "making"))
    shutil.copytree(SAMPLE / "share", box.store.parent)
    for path in box.store.parent.rglob(KEEP):
        path.unlink()
    return box


def write(box: Box) -> None:
    make(box)
    shutil.rmtree(SAMPLE, ignore_errors=True)
    shutil.copytree(box.store.parent, SAMPLE / "share", ignore=shutil.ignore_patterns("launch*", "reserve"))
    for folder in [path for path in (SAMPLE / "share").rglob("*") if path.is_dir()]:
        if not any(folder.iterdir()):
            (folder / KEEP).touch()
    shutil.copy(box.base / "bundle", SAMPLE / "bundle")
    (SAMPLE / "expected.json").write_text(json.dumps(facts(box), indent=1, ensure_ascii=False) + "\n")


def expected() -> dict[str, dict[str, object]]:
    return json.loads((SAMPLE / "expected.json").read_text())  # type: ignore[no-any-return]


def test_a_data_folder_of_then_opens_whole(older: Box) -> None:
    assert older.call("verify", cwd=older.base).code == 0
    assert facts(older) == expected()


def test_its_ledger_can_be_made_again(older: Box) -> None:
    (older.store / "ledger.db").unlink()

    assert older.call("rebuild", cwd=older.base).code == 0
    assert facts(older) == expected()


def test_a_bundle_of_then_is_imported_whole(tmp_path: Path) -> None:
    box = Box(tmp_path)
    (tmp_path / "passphrase").write_text(PASSPHRASE)
    words = ("--into", str(tmp_path / "here"), "--passphrase-file", str(tmp_path / "passphrase"))

    assert box.call("import", str(SAMPLE / "bundle"), *words, cwd=tmp_path).code == 0

    told = facts(box)
    assert [row["contents"] for row in told.values()] == [row["contents"] for row in expected().values()]  # type: ignore[index]
