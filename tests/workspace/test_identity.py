"""A workspace stays itself when its marker is wiped, and a copy or a folder that moved becomes another one until told so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from keepfast.model.errors import Failed, KeepfastError, MissingStore
from keepfast.model.event import CREATED, OUTSIDE, UNCHANGED, Outcome
from keepfast.workspace.marker import git_root, identity, show
from tests.equipment.saver import Saver

ODD = ["plain", "with space", "new\nline", "back\\slash", "back\\nslash", "ends\\", "\udcff\udcfe", "한글", "#x"]


def copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


def near(saver: Saver, folder: Path) -> tuple[bytes, str] | None:
    engine = saver.engine()
    try:
        return engine.workspaces.nearest(os.fsencode(folder))
    finally:
        engine.close()


@pytest.mark.parametrize("name", ODD)
def test_a_wiped_marker_is_found_again_by_the_path(tmp_path: Path, name: str) -> None:
    """`git clean -fdx` takes it away."""
    root = tmp_path / name
    root.mkdir()
    (root / "file").write_text("one")
    saver = Saver(root, tmp_path / "store")
    saver.save()
    shutil.rmtree(root / ".keepfast")
    (root / "file").write_text("two")
    outcome = saver.save()
    saver.close()

    assert (outcome.status, outcome.version) == (CREATED, 2)
    assert identity(os.fsencode(root)) == saver.workspace


def test_a_wiped_marker_is_found_again_from_a_folder_below(saver: Saver, root: Path) -> None:
    (root / "a" / "b").mkdir(parents=True)
    saver.save()
    shutil.rmtree(root / ".keepfast")

    assert saver.save(cwd=root / "a" / "b").root == os.fsencode(root)
    assert identity(os.fsencode(root)) == saver.workspace


def test_a_wiped_marker_alone_makes_no_version(saver: Saver, root: Path) -> None:
    (root / "file").write_text("one")
    saver.save()
    shutil.rmtree(root / ".keepfast")

    assert saver.save().status == UNCHANGED


def test_a_moved_workspace_is_protected_apart_until_somebody_says_that_it_moved(
    saver: Saver, root: Path, tmp_path: Path
) -> None:
    (root / "file").write_text("one")
    saver.save()
    moved = tmp_path / "elsewhere" / "moved"
    moved.parent.mkdir()
    root.rename(moved)
    (moved / "file").write_text("two")
    apart = saver.save(cwd=moved)
    own = identity(os.fsencode(moved))
    saver.engine().workspaces.continue_history(os.fsencode(moved))
    (moved / "file").write_text("three")
    outcome = saver.save(cwd=moved)
    row = saver.engine().repository().workspace(saver.workspace)
    interim = saver.engine().repository().workspace(str(own))

    assert (apart.version, own not in (None, saver.workspace)) == (1, True)
    assert (outcome.status, outcome.version) == (CREATED, 2)
    assert identity(os.fsencode(moved)) == saver.workspace
    assert row is not None and row.path == os.fsencode(moved)
    assert interim is not None and (interim.path, interim.parent) == (b"", saver.workspace)


def test_a_move_alone_makes_no_version_once_somebody_says_so(saver: Saver, root: Path, tmp_path: Path) -> None:
    (root / "file").write_text("one")
    saver.save()
    root.rename(tmp_path / "moved")
    saver.engine().workspaces.continue_history(os.fsencode(tmp_path / "moved"))
    outcome = saver.save(cwd=tmp_path / "moved")
    shutil.rmtree(tmp_path / "moved" / ".keepfast")
    again = saver.save(cwd=tmp_path / "moved")

    assert outcome.status == again.status == UNCHANGED
    assert identity(os.fsencode(tmp_path / "moved")) == saver.workspace


def test_a_marker_that_was_overwritten_with_that_of_a_workspace_elsewhere_is_written_again(
    saver: Saver, root: Path, tmp_path: Path
) -> None:
    """Both are known here, and the other one is where it was: the path counts."""
    other = tmp_path / "other"
    other.mkdir()
    saver.save()
    stranger = Saver(other, saver.store)
    stranger.save()
    (root / ".keepfast" / "workspace.json").write_bytes((other / ".keepfast" / "workspace.json").read_bytes())
    found = saver.engine().workspaces.root(os.fsencode(root))
    (root / "file").write_text("one")
    outcome = saver.save()

    assert (found[0], found[1].id) == (os.fsencode(root), saver.workspace)
    assert outcome.version == 2
    assert (saver.version(), stranger.version()) == (2, 1)


def test_a_copied_workspace_becomes_another_one(saver: Saver, root: Path, tmp_path: Path) -> None:
    (root / "file").write_text("one")
    saver.save()
    copy(root, tmp_path / "copy")
    (tmp_path / "copy" / "file").write_text("two")
    fork = saver.save(cwd=tmp_path / "copy")
    again = saver.save(cwd=tmp_path / "copy")
    (root / "file").write_text("three")
    original = saver.save()
    other = identity(os.fsencode(tmp_path / "copy"))
    row = saver.engine().repository().workspace(str(other))

    assert other not in (None, saver.workspace)
    assert row is not None and row.parent == saver.workspace
    assert (fork.version, again.status, original.version) == (1, UNCHANGED, 2)
    assert saver.read("file") == b"three"


@pytest.mark.parametrize("attempt", range(8))
def test_a_copy_that_several_processes_notice_at_once_becomes_one_other(
    saver: Saver, root: Path, tmp_path: Path, attempt: int
) -> None:
    (root / "file").write_text("one")
    saver.save()
    target = tmp_path / "copy"
    copy(root, target)
    outcomes = run_at_once([lambda: saver.save(trigger="manual", cwd=target) for _ in range(8)])
    other = identity(os.fsencode(target))
    row = saver.engine().repository().workspace(str(other))

    assert row is not None
    assert sorted(outcome.version for outcome in outcomes) == list(range(1, 9))
    assert row.version == 8


def test_a_folder_that_several_hooks_adopt_at_once_becomes_one_workspace(root: Path, tmp_path: Path) -> None:
    saver = Saver(tmp_path, tmp_path / "store", adopt="git")
    shutil.rmtree(tmp_path / ".keepfast")
    project = tmp_path / "work" / "project"
    (project / ".git").mkdir(parents=True)
    (tmp_path / "store" / "paths").unlink()
    outcomes = run_at_once([lambda: saver.save(trigger="manual", cwd=project, adopt=True) for _ in range(8)])
    row = saver.engine().repository().workspace(str(identity(os.fsencode(project))))

    assert row is not None
    assert sorted(outcome.version for outcome in outcomes) == list(range(1, 9))
    assert row.version == 8


def run_at_once(works: list[Callable[[], Outcome]]) -> list[Outcome]:
    """Run each in a thread of its own, with an engine of its own; raise what any of them raised.

    Threads change places far more often than usual, so that each meets the others between any two steps.
    """
    results: list[Outcome] = []
    errors: list[BaseException] = []
    start = threading.Barrier(len(works))

    def run(work: Callable[[], Outcome]) -> None:
        start.wait()
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(0.00001)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(usual)
    if errors:
        raise errors[0]
    return results


# Markers that came with a repository, or were damaged

GARBAGE = [
    b"",
    b"{}",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"id": 5}',
    b'{"id": "../../../../etc/passwd"}',
    b'{"id": "ABCDEF0123456789ABCDEF0123456789"}',
    b'{"id": "' + b"a" * 10_000_000 + b'"}',
    b'{"id": "0123456789abcdef0123456789abcdef"',
    b"null",
    b'"id"',
]


@pytest.mark.parametrize("text", GARBAGE, ids=range(len(GARBAGE)))
def test_a_marker_that_says_nothing_is_written_anew(saver: Saver, root: Path, text: bytes) -> None:
    (root / "file").write_text("one")
    saver.save()
    (root / ".keepfast" / "workspace.json").write_bytes(text)
    (root / "file").write_text("two")
    outcome = saver.save()

    assert outcome.version == 2
    assert identity(os.fsencode(root)) == saver.workspace


@pytest.mark.parametrize("text", GARBAGE[:4], ids=range(4))
def test_a_marker_that_says_nothing_hides_no_workspace_around_it(saver: Saver, root: Path, text: bytes) -> None:
    """A package that an agent unpacks may carry any marker."""
    inner = root / "unpacked"
    (inner / ".keepfast").mkdir(parents=True)
    (inner / ".keepfast" / "workspace.json").write_bytes(text)

    assert near(saver, inner) == (os.fsencode(root), saver.workspace)
    assert saver.save(cwd=inner).root == os.fsencode(root)


def test_a_marker_cannot_choose_the_store(saver: Saver, root: Path, tmp_path: Path) -> None:
    evil = tmp_path / "evil"
    (root / ".keepfast" / "workspace.json").write_text(f'{{"id": "{saver.workspace}", "store": "{evil}"}}')
    (root / "file").write_text("one")

    assert saver.save().version == 1
    assert not evil.exists()


def test_a_marker_of_a_workspace_that_the_store_does_not_know_counts_for_nothing(saver: Saver, root: Path) -> None:
    (root / "file").write_text("one")
    saver.save()
    stranger = "0123456789abcdef" * 2
    (root / ".keepfast" / "workspace.json").write_text(f'{{"id": "{stranger}"}}')
    (root / "file").write_text("two")
    outcome = saver.save()

    assert outcome.version == 2
    assert identity(os.fsencode(root)) == saver.workspace


@pytest.mark.parametrize("kind", ["link to file", "pipe", "folder", "dangling link"])
def test_a_marker_that_is_no_file_is_none(saver: Saver, root: Path, tmp_path: Path, kind: str) -> None:
    saver.save()
    marker = root / ".keepfast" / "workspace.json"
    copied = tmp_path / "copied.json"
    marker.rename(copied)
    if kind == "pipe":
        os.mkfifo(marker)
    elif kind == "folder":
        marker.mkdir()
    else:
        marker.symlink_to(copied if kind == "link to file" else "nowhere")
    found: list[str | None] = []
    reader = threading.Thread(target=lambda: found.append(identity(os.fsencode(root))), daemon=True)
    reader.start()
    reader.join(30)

    assert found == [None]


@pytest.mark.parametrize("target", ["..", "src", "/nonexistent", "dangling"])
def test_a_link_in_the_place_of_the_marker_folder_leads_nothing_astray(tmp_path: Path, target: str) -> None:
    """A cloned repository may bring a link `.keepfast`; we must not write through it."""
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    for folder in (tmp_path, root, root / "src"):
        (folder / ".gitignore").write_text("mine\n")
    (root / ".keepfast").symlink_to(target)
    with pytest.raises(Failed, match="cannot be marked"):
        Saver(root, tmp_path / "store")

    assert (root / ".keepfast").is_symlink()
    assert not list(tmp_path.rglob("workspace.json"))
    assert {path.read_text() for path in tmp_path.rglob(".gitignore")} == {"mine\n"}


def test_a_marker_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (root / ".keepfast").write_text("mine")
    with pytest.raises(KeepfastError):
        Saver(root, tmp_path / "store")

    assert (root / ".keepfast").read_text() == "mine"


# Finding


def test_the_nearest_marker_counts(saver: Saver, root: Path, tmp_path: Path) -> None:
    inner = root / "a" / "inner"
    inner.mkdir(parents=True)
    other = Saver(inner, saver.store)
    (inner / "deep").mkdir()

    assert near(saver, inner / "deep") == (os.fsencode(inner), other.workspace)
    assert near(saver, root / "a") == (os.fsencode(root), saver.workspace)
    assert near(saver, tmp_path) is None


def test_outside_of_any_workspace_nothing_is_made(saver: Saver, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()

    assert saver.save(cwd=outside).status == OUTSIDE
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize(
    ("mode", "git", "adopted"),
    [("git", True, True), ("git", False, False), ("any", False, True), ("marked", True, False), ("never", True, False)],
)
def test_hooks_adopt_what_the_setting_allows(tmp_path: Path, mode: str, git: bool, adopted: bool) -> None:
    known, project = tmp_path / "known", tmp_path / "project"
    known.mkdir()
    (project / "deep").mkdir(parents=True)
    if git:
        (project / ".git").mkdir()
    saver = Saver(known, tmp_path / "store", adopt=mode)
    outcome = saver.save(cwd=project / "deep", adopt=True)

    assert (outcome.status == CREATED) is adopted
    assert outcome.root == (os.fsencode(project if git else project / "deep") if adopted else b"")


def test_a_worktree_and_a_submodule_are_git_roots_too(tmp_path: Path) -> None:
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / ".git").write_text("gitdir: ../repository/.git/worktrees/tree\n")

    assert git_root(os.fsencode(tmp_path / "tree" / "deep")) == os.fsencode(tmp_path / "tree")


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (b"plain/path", "plain/path"),
        ("한글/é".encode(), "한글/é"),
        (b"a\nb\tc\x1b[31m", "a\\nb\\tc\\x1b[31m"),
        (b"\xff\x80", "\\xff\\x80"),
    ],
)
def test_a_path_is_always_shown_on_one_printable_line(path: bytes, shown: str) -> None:
    assert show(path) == shown
    assert show(path).isprintable()


def test_a_save_after_the_store_moved_away_and_back_goes_on(saver: Saver, root: Path) -> None:
    (root / "file").write_text("one")
    saver.save()
    saver.close()
    away = saver.store.with_name("away")
    saver.store.rename(away)
    with pytest.raises(MissingStore):
        saver.save()
    away.rename(saver.store)
    time.sleep(0.01)
    (root / "file").write_text("two")

    assert saver.save().version == 2
