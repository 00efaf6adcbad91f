"""Rows that no scan could have made are refused as a whole: nothing is written, wherever they come from."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.model import document
from keepfast.model.entry import FILE, FOLDER, LINK, Entry
from keepfast.model.errors import Conflict, Damaged
from keepfast.model.restore_plan import plan
from keepfast.store.digest import digest
from keepfast.store.save import ReplacedRows
from keepfast.workspace.case_folds import fold
from tests.equipment.trees import disk
from tests.faults.disks import loop_device, mounted, needs

from .ground import Ground

GOOD = Entry(b"good", FILE, 0o644, 0, 4, 0, 0, digest(b"good"), b"")
UNSAFE = [
    b"/etc/passwd", b"//etc", b"/", b"", b".", b"..", b"../x", b"a/../../x", b"a/..", b"a/./b", b"./a", b"a//b", b"a/", b"a\0b",
    b"\0", b"a/\0", b"../../../../../../etc/cron.d/x", b"..\0", b"a/b/../../..", b"/proc/self/fd/0", b"/dev/sda",
]  # fmt: skip
OURS = [
    b".git/.git", b".git/config", b".git/hooks/pre-commit", b"a/.git/config", b"a/.git/b/.git", b".keepfast",
    b".keepfast/workspace.json",
    b".keepfast/a/.keepfast/x", b".git/../x", b".keepfast/restore-1/1", b"sub/.git/modules/x",
]  # fmt: skip
KINDS = ["c", "b", "p", "S", "", "ff", "-", "F", "\0", "h"]
MODES = [0o100644, 0o40755, 0o60000, 1 << 20, -1, 0o20000]
TARGETS = [b"", b"a\0b", b"\0"]
DIGESTS = [b"", b"short", bytes(31), bytes(33)]


def row(path: bytes, kind: str = FILE, mode: int = 0o644, content: bytes | None = None) -> Entry:
    default = {FILE: digest(b"good"), LINK: b"target"}.get(kind, b"")
    return Entry(path, kind, mode, 0, 4, 0, 0, default if content is None else content, b"")


CRAFTED: list[list[Entry]] = [
    *[[row(path)] for path in UNSAFE + OURS],
    *[[row(path, LINK)] for path in UNSAFE[:12] + OURS[:6]],
    *[[row(path, FOLDER)] for path in [*UNSAFE[:12], *OURS[:6], b".git", b"a/b/.git"]],
    *[[row(b"odd", kind)] for kind in KINDS],
    *[[row(b"odd", FILE, mode)] for mode in MODES],
    *[[row(b"odd", LINK, 0o777, target)] for target in TARGETS],
    *[[row(b"odd", FILE, 0o644, key)] for key in DIGESTS],
    [row(b"twice"), row(b"twice", LINK)],
    [row(b"twice"), row(b"twice")],
    [row(b"link", LINK, content=b"/etc"), row(b"link/passwd")],
    [row(b"link", LINK, content=b".."), row(b"link/d", FOLDER), row(b"link/d/x")],
    [row(b"file"), row(b"file/x")],
    [row(b"file"), row(b"file/d/x")],
    [row(b"a" * 256)],
    [row(b"d/" + b"a" * 300)],
    [row(b"d/" + b"a" * 300, FOLDER)],
]


def test_there_are_a_hundred_of_them() -> None:
    assert len(CRAFTED) >= 100


@pytest.mark.parametrize("number", range(len(CRAFTED)))
def test_a_crafted_plan_is_refused_as_a_whole(number: int) -> None:
    rows = [GOOD, *CRAFTED[number]]
    kinds = {entry.path: entry.kind for entry in rows}

    with pytest.raises(Damaged):
        plan([(None, entry) for entry in rows], lambda path: kinds.get(path, ""), lambda path: "")


@pytest.mark.parametrize("entries", [CRAFTED[len(UNSAFE)], CRAFTED[len(UNSAFE) + 3], CRAFTED[-5], CRAFTED[-3]])
def test_a_crafted_checkpoint_is_refused_and_nothing_is_written(ground: Ground, entries: list[Entry]) -> None:
    """Rows that the document's own checks let through."""
    ground.put("good", "good")
    ground.save()
    engine = ground.saver.engine()
    repository = engine.repository()
    saving = repository.begin(ground.saver.workspace)
    header, _ = repository.document(repository.ledger.checkpoint(ground.saver.workspace, 1))  # type: ignore[arg-type]
    ours = {"v", "workspace", "parent", "keyframe", "counts", "tree"}
    members = {key: value for key, value in header.members.items() if key not in ours} | {"id": "cp-crafted"}
    saving.finish(members, sorted([*entries, row(b"zzz")]), ReplacedRows())
    engine.close()
    before, config = disk(ground.root), ground.root / ".git/config"

    with pytest.raises(Damaged):
        ground.restore(2)

    assert disk(ground.root) == before
    assert not config.exists()
    assert ground.restorer().cut_off() is None


@given(st.sampled_from(UNSAFE))
def test_a_document_with_such_a_path_does_not_even_load(path: bytes) -> None:
    counts = {"f": 1}
    header = {
        "v": 1, "id": "cp-x", "created_at": 1, "keyframe": True, "trigger": "manual", "created_by": "user", "message": "",
        "name": None, "tags": [], "pinned": False, "session": None, "task": None, "counts": counts, "tree": "0" * 64,
    }  # fmt: skip

    with pytest.raises(Damaged):
        document.decode(document.encode(document.Header(header), [row(path)]))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("README", "Readme"),
        ("Straße", "STRASSE"),
        ("é", "e\u0301"),
        (".GIT", ".git"),
        (".g\u200cit", ".git"),
        ("K", "k"),
    ],
)
def test_spellings_of_one_name_fold_to_the_same(one: str, other: str) -> None:
    assert fold(one.encode()) == fold(other.encode())


@needs("mount", "mkfs.ext4", "losetup", "chattr")
def test_case_twins_and_disguised_names_are_refused_where_the_folder_folds_case(folder: Path) -> None:
    image = folder / "image"
    with open(image, "wb") as file:
        file.truncate(16 << 20)
    made = subprocess.run(["mkfs.ext4", "-qF", "-O", "casefold", str(image)], capture_output=True)
    if made.returncode:
        pytest.skip("this mkfs.ext4 knows no casefold")
    (folder / "work").mkdir()
    with loop_device(image) as device:
        try:
            disk_there = mounted(device, folder / "work", "ext4")
            disk_there.__enter__()
        except OSError:
            pytest.skip("this kernel knows no casefold")
        try:
            _on_a_folding_disk(folder)
        finally:
            disk_there.__exit__(None, None, None)


def _on_a_folding_disk(folder: Path) -> None:
    ground = Ground(folder)
    for name in ("plain/A", "plain/a", "plain/.GIT/config", "folding/one", "folding/.keep"):
        ground.put(name, name)
    ground.save()
    (ground.root / "plain/A").unlink()
    (ground.root / "plain/a").unlink()
    ground.restore(1)  # cases are told apart here
    assert (ground.root / "plain/A").read_text() == "plain/A"

    crafted = sorted([row(b"plain/B"), row(b"plain/b")])
    with_twins, with_git = ([*crafted, row(b"folding/B"), row(b"folding/b")], [*crafted, row(b"folding/.GIT/config")])
    subprocess.run(["rm", "-r", str(ground.root / "folding")], check=True)
    (ground.root / "folding").mkdir()
    if subprocess.run(["chattr", "+F", str(ground.root / "folding")], capture_output=True).returncode:
        pytest.skip("folders here cannot fold case")
    (ground.root / "folding/.git").mkdir()
    (ground.root / "folding/.git/config").write_text("the user's own\n")
    for rows, error in ((with_twins, Conflict), (with_git, Damaged)):
        version = _crafted(ground, rows)
        before = disk(ground.root)
        with pytest.raises(error):
            ground.restore(version)
        assert disk(ground.root) == before
        assert (ground.root / "folding/.git/config").read_text() == "the user's own\n"
        assert ground.restorer().cut_off() is None
    ground.close()


def _crafted(ground: Ground, rows: list[Entry]) -> int:
    ground.save()
    engine = ground.saver.engine()
    repository = engine.repository()
    saving = repository.begin(ground.saver.workspace)
    header, _ = repository.document(repository.ledger.checkpoint(ground.saver.workspace, saving.row.version))  # type: ignore[arg-type]
    ours = {"v", "workspace", "parent", "keyframe", "counts", "tree"}
    key = saving.store_content(b"good")
    members = {name: value for name, value in header.members.items() if name not in ours}
    members["id"] = f"cp-{os.urandom(4).hex()}"
    done = saving.finish(members, sorted(entry._replace(content=key) for entry in rows), ReplacedRows())
    engine.close()
    return done.version
