"""The table of what other tools lose (facts/other-agents.md 3b), row by row, with keepfast: every row is right."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from keepfast.app.restore import MINE, THEIRS
from keepfast.model.errors import Conflict

from .ground import Ground

QUIET = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **QUIET}
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def project(ground: Ground) -> Ground:
    """A repository with everything in it that other tools lose; saved as v1, then damaged as an agent would."""
    root = ground.root
    git(root, "init", "-q", "-b", "main")
    ground.put("tracked.txt", "tracked\n")
    ground.put("steady.txt", "never changed\n")
    ground.put("run.sh", "#!/bin/sh\n", 0o755)
    ground.put(".gitignore", ".env\n")
    (root / "link").symlink_to("tracked.txt")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    ground.put(".env", "SECRET=1\n")
    ground.put("untracked.txt", "never committed\n")
    ground.put("private.key", "key\n", 0o600)
    (root / "empty").mkdir()
    (root / "nested").mkdir()
    git(root / "nested", "init", "-q", "-b", "main")
    ground.put("nested/inside.txt", "inside\n")
    git(root / "nested", "add", ".")
    git(root / "nested", "commit", "-qm", "nested")
    ground.put("model.bin", os.urandom(3 << 20))
    assert ground.save() == 1
    return ground


def test_a_tracked_edit_a_deleted_file_the_exec_bit_and_a_link_come_back(project: Ground) -> None:
    root = project.root
    project.put("tracked.txt", "broken\n")
    (root / "untracked.txt").unlink()
    (root / "run.sh").chmod(0o644)
    (root / "link").unlink()
    project.put("link", "a file\n")

    project.restore(1)

    assert (root / "tracked.txt").read_text() == "tracked\n"
    assert (root / "untracked.txt").read_text() == "never committed\n"
    assert (root / "run.sh").stat().st_mode & 0o777 == 0o755
    assert os.readlink(root / "link") == "tracked.txt"


def test_an_ignored_file_comes_back(project: Ground) -> None:
    (project.root / ".env").unlink()

    project.restore(1)

    assert (project.root / ".env").read_text() == "SECRET=1\n"


def test_a_mode_of_0600_comes_back(project: Ground) -> None:
    (project.root / "private.key").chmod(0o644)
    inode = (project.root / "private.key").stat().st_ino

    project.restore(1)

    assert (project.root / "private.key").stat().st_mode & 0o7777 == 0o600
    assert (project.root / "private.key").stat().st_ino == inode


def test_an_empty_folder_comes_back(project: Ground) -> None:
    (project.root / "empty").rmdir()

    project.restore(1)

    assert (project.root / "empty").is_dir()


def test_the_files_of_a_nested_repository_come_back_and_its_git_is_not_touched(project: Ground) -> None:
    nested = project.root / "nested"
    (nested / "inside.txt").write_text("broken\n")
    before = {path: seen for path, seen in project.stats().items() if b".git/" in path}

    project.restore(1)

    assert (nested / "inside.txt").read_text() == "inside\n"
    assert {path: seen for path, seen in project.stats().items() if b".git/" in path} == before


def test_a_binary_of_3_mb_comes_back(project: Ground) -> None:
    data = (project.root / "model.bin").read_bytes()
    (project.root / "model.bin").unlink()

    project.restore(1)

    assert (project.root / "model.bin").read_bytes() == data


def test_a_file_that_the_user_made_since_survives_by_default(project: Ground) -> None:
    """A script is stopped; nothing is written at all."""
    mine = project.put("mine.txt", "my own work\n")
    project.put("tracked.txt", "broken\n")

    with pytest.raises(Conflict, match=r"mine\.txt"):
        project.restore(1, conflicts="ask")

    assert mine.read_text() == "my own work\n"
    assert (project.root / "tracked.txt").read_text() == "broken\n"


def test_a_file_that_the_user_made_since_survives_with_keep_mine(project: Ground) -> None:
    mine = project.put("mine.txt", "my own work\n")
    (project.root / "tracked.txt").unlink()
    inode = mine.stat().st_ino

    project.restore(1, conflicts=MINE)

    assert (mine.read_text(), mine.stat().st_ino) == ("my own work\n", inode)
    assert (project.root / "tracked.txt").read_text() == "tracked\n"


def test_a_file_that_the_user_made_since_is_saved_before_theirs_removes_it_and_undo_brings_it_back(
    project: Ground,
) -> None:
    mine = project.put("mine.txt", "my own work\n", 0o640)

    done = project.restore(1, conflicts=THEIRS)

    assert done is not None
    assert not mine.exists()
    assert project.saver.read("mine.txt", done.before) == b"my own work\n"
    project.undo()
    assert (mine.read_text(), mine.stat().st_mode & 0o777) == ("my own work\n", 0o640)


def test_a_new_repository_of_the_user_survives(project: Ground) -> None:
    """Its files go, saved, as any other; its `.git` is nobody's business, and the folder stays for it."""
    own = project.root / "own"
    own.mkdir()
    git(own, "init", "-q", "-b", "main")
    project.put("own/work.txt", "work\n")
    git(own, "add", ".")
    git(own, "commit", "-qm", "own")
    commit = git(own, "rev-parse", "HEAD")

    done = project.restore(1)

    assert done is not None
    assert git(own, "rev-parse", "HEAD") == commit
    assert b"own" in done.applied.filled
    project.undo()
    assert (own / "work.txt").read_text() == "work\n"


def test_a_later_commit_of_the_user_stays_on_its_branch_and_its_file_is_asked_about(project: Ground) -> None:
    project.put("later.txt", "later\n")
    git(project.root, "add", "later.txt")
    git(project.root, "commit", "-qm", "later")
    commit, index = git(project.root, "rev-parse", "HEAD"), (project.root / ".git/index").read_bytes()

    with pytest.raises(Conflict):
        project.restore(1, conflicts="ask")
    project.restore(1, conflicts=MINE)

    assert git(project.root, "rev-parse", "main") == commit
    assert (project.root / "later.txt").read_text() == "later\n"
    assert (project.root / ".git/index").read_bytes() == index


def test_files_that_did_not_change_keep_time_and_inode_and_rewritten_ones_are_new(project: Ground) -> None:
    root = project.root
    old = 1_000_000_000 * 10**9
    for name in ("steady.txt", "tracked.txt"):
        os.utime(root / name, ns=(old, old))
    project.save()
    before = (root / "steady.txt").stat()
    project.put("tracked.txt", "broken\n")

    project.restore(2)

    after = (root / "steady.txt").stat()
    assert (after.st_mtime_ns, after.st_ino, after.st_ctime_ns) == (
        before.st_mtime_ns,
        before.st_ino,
        before.st_ctime_ns,
    )
    assert (root / "tracked.txt").stat().st_mtime_ns > old


def test_recorded_times_come_back_on_request(project: Ground) -> None:
    old = 1_000_000_000 * 10**9
    project.put("timed.txt", "timed\n")
    os.utime(project.root / "timed.txt", ns=(old, old))
    version = project.save()
    project.put("timed.txt", "broken\n")

    project.restore(version, mtimes=True)

    assert (project.root / "timed.txt").stat().st_mtime_ns == old
