"""What we read from a repository's files is what git says, and no file makes us hang, raise or stray."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keepfast.workspace.git import HOPS, PACKED, SMALL, GitFacts, facts

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="compares with git")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git(folder: Path, *words: str | bytes, check: bool = True) -> str | None:
    """Run git without anybody's settings; return what it says, or None if it fails."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.org",
        "GIT_EDITOR": "true",
    }
    command = ["git", "-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout.decode("utf-8", "backslashreplace").rstrip("\n") if done.returncode == 0 else None


def commit(folder: Path, content: str = "x", file: str = "file") -> None:
    (folder / file).write_text(content)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", content)


def facts_of(folder: Path) -> GitFacts | None:
    return facts(os.fsencode(folder))


def checked(folder: Path) -> GitFacts:
    """Return our facts, after they were found equal to git's."""
    found = facts_of(folder)
    assert found is not None
    assert found.commit == git(folder, "rev-parse", "--verify", "-q", "HEAD", check=False)
    ref = git(folder, "symbolic-ref", "-q", "HEAD", check=False)
    assert found.branch == (ref and ref.removeprefix("refs/heads/"))
    assert os.fsdecode(found.git_dir) == git(folder, "rev-parse", "--absolute-git-dir")
    assert os.fsdecode(found.work_tree) == git(folder, "rev-parse", "--show-toplevel")
    return found


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A repository without a commit."""
    folder = tmp_path.resolve() / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    return folder


@pytest.fixture
def repository(empty: Path) -> Path:
    commit(empty)
    return empty


# -- what git says


def test_branch_and_commit_are_those_of_git(repository: Path) -> None:
    found = checked(repository)

    assert (found.branch, found.in_progress) == ("main", None)


def test_folder_below_the_work_tree_has_its_facts(repository: Path) -> None:
    (repository / "deep" / "er").mkdir(parents=True)

    assert checked(repository / "deep" / "er").work_tree == os.fsencode(repository)
    assert facts(os.fsencode(repository) + b"//deep/er//") is not None


def test_unborn_branch_has_a_name_and_no_commit(empty: Path) -> None:
    found = checked(empty)

    assert (found.branch, found.commit) == ("main", None)


def test_detached_head_has_a_commit_and_no_branch(repository: Path) -> None:
    git(repository, "checkout", "-q", "--detach")

    found = checked(repository)

    assert found.branch is None
    assert found.commit is not None


def test_packed_refs_are_found_and_loose_ones_win(repository: Path) -> None:
    for number in range(50):
        git(repository, "branch", f"main{number}")
    git(repository, "tag", "-a", "-m", "t", "main")
    git(repository, "pack-refs", "--all")
    assert not (repository / ".git/refs/heads/main").exists()

    packed = checked(repository).commit
    commit(repository, "more")

    assert checked(repository).commit != packed


@pytest.mark.parametrize("name", ["feature/a/b", "한글/가지", "a@b", "x.y", "main{0}"])
def test_branch_names_of_all_kinds(repository: Path, name: str) -> None:
    git(repository, "checkout", "-q", "-b", name)

    assert checked(repository).branch == name
    git(repository, "pack-refs", "--all")
    assert checked(repository).branch == name


def test_branch_name_that_is_not_utf8_stays_printable(repository: Path) -> None:
    git(repository, "checkout", "-q", "-b", b"odd\xff")

    assert checked(repository).branch == "odd\\xff"


def test_sha256_repository(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--object-format=sha256")
    commit(tmp_path)

    assert len(checked(tmp_path.resolve()).commit or "") == 64


def test_worktree_has_its_own_head_and_the_common_refs(repository: Path) -> None:
    other = repository.parent / "other"
    git(repository, "worktree", "add", "-q", "-b", "topic/x", str(other))
    commit(other, "in the worktree")

    assert checked(other).branch == "topic/x"
    git(repository, "pack-refs", "--all")
    assert checked(other).commit != checked(repository).commit


def test_worktree_named_by_a_relative_path(repository: Path) -> None:
    other = repository.parent / "other"
    git(repository, "worktree", "add", "-q", str(other))
    (other / ".git").write_text("gitdir: ../repository/.git/worktrees/other\r\n")

    assert checked(other).git_dir == os.fsencode(repository / ".git/worktrees/other")


def test_ref_that_a_worktree_has_for_itself(repository: Path) -> None:
    other = repository.parent / "other"
    git(repository, "worktree", "add", "-q", str(other))
    git(other, "update-ref", "refs/worktree/own", "HEAD")
    git(other, "symbolic-ref", "HEAD", "refs/worktree/own")

    found = checked(other)

    assert found.branch == "refs/worktree/own"
    assert found.commit is not None


def test_submodule_has_facts_of_its_own(repository: Path) -> None:
    parent = repository.parent / "parent"
    parent.mkdir()
    git(parent, "init", "-q")
    git(parent, "submodule", "--quiet", "add", str(repository), "libs/sub")
    commit(parent)

    assert checked(parent / "libs/sub").git_dir == os.fsencode(parent / ".git/modules/libs/sub")
    assert checked(parent).work_tree == os.fsencode(parent)


def test_separate_git_folder(tmp_path: Path) -> None:
    folder = tmp_path.resolve() / "tree"
    folder.mkdir()
    git(folder, "init", "-q", "--separate-git-dir", str(tmp_path.resolve() / "apart of it"))
    commit(folder)

    assert checked(folder).git_dir.endswith(b"/apart of it")


def test_head_that_is_a_symbolic_link(repository: Path) -> None:
    (repository / ".git/HEAD").unlink()
    (repository / ".git/HEAD").symlink_to("refs/heads/main")

    assert checked(repository).branch == "main"


@pytest.mark.parametrize("length", range(1, HOPS + 3))
def test_refs_of_refs_are_followed_as_far_as_git_does(repository: Path, length: int) -> None:
    heads = repository / ".git/refs/heads"
    (heads / "step0").write_text((heads / "main").read_text())
    for number in range(1, length):
        (heads / f"step{number}").write_text(f"ref: refs/heads/step{number - 1}\n")
    (repository / ".git/HEAD").write_text(f"ref: refs/heads/step{length - 1}\n")

    found = checked(repository)

    assert (found.branch, found.commit is None) == (("step0", False) if length < HOPS else (None, True))


def test_branch_inside_a_folder_named_like_a_packed_one(repository: Path) -> None:
    git(repository, "pack-refs", "--all")
    (repository / ".git/refs/heads/main").mkdir()

    assert checked(repository).commit is not None


# -- work in progress


def conflict(repository: Path) -> None:
    git(repository, "checkout", "-q", "-b", "other")
    commit(repository, "theirs")
    git(repository, "checkout", "-q", "main")
    commit(repository, "ours")


@pytest.mark.parametrize(
    ("command", "word"),
    [
        (["merge", "other"], "merge"),
        (["rebase", "other"], "rebase"),
        (["rebase", "--apply", "other"], "rebase"),
        (["cherry-pick", "other"], "cherry-pick"),
        (["revert", "HEAD~1"], "revert"),
        (["bisect", "start"], "bisect"),
    ],
)
def test_work_in_progress_is_named(repository: Path, command: list[str], word: str) -> None:
    conflict(repository)

    git(repository, *command, check=False)

    assert checked(repository).in_progress == word


def test_patches_being_applied_are_named(repository: Path) -> None:
    conflict(repository)
    git(repository, "format-patch", "-q", "-1", "other")

    git(repository, "am", "0001-theirs.patch", check=False)

    assert checked(repository).in_progress == "am"


# -- no repository, or one that tells nothing


def test_folder_outside_any_repository(tmp_path: Path) -> None:
    assert facts_of(tmp_path.resolve()) is None


@pytest.mark.parametrize("root", [b"", b"relative", b"/nonexistent/folder", b"/with\0nul", b"/"])
def test_odd_roots_have_no_facts(root: bytes) -> None:
    assert facts(root) is None or os.path.exists("/.git")


def test_git_folder_without_head_is_passed_over_as_git_does(repository: Path) -> None:
    (repository / "sub/.git").mkdir(parents=True)

    assert checked(repository / "sub").work_tree == os.fsencode(repository)


def test_repository_with_its_refs_in_a_table(repository: Path) -> None:
    """Its HEAD is a stub in most versions; where it is not, the branch is believed and the commit is not known."""
    (repository / ".git/reftable").mkdir()

    (repository / ".git/HEAD").write_text("ref: refs/heads/.invalid\n")
    stub = facts_of(repository)
    (repository / ".git/HEAD").write_text("ref: refs/heads/main\n")
    named = facts_of(repository)

    assert stub is not None
    assert (stub.branch, stub.commit) == (None, None)
    assert named is not None
    assert (named.branch, named.commit) == ("main", None)


# -- hostile contents


def test_loop_of_refs_ends(repository: Path) -> None:
    heads = repository / ".git/refs/heads"
    (heads / "main").write_text("ref: refs/heads/other\n")
    (heads / "other").write_text("ref: refs/heads/main\n")

    found = checked(repository)

    assert (found.branch, found.commit) == (None, None)


@pytest.mark.parametrize(
    "name",
    [
        "refs/heads/../../../secret",
        "refs/../secret",
        "/etc/passwd",
        "refs/heads/a b",
        "refs/heads/.hidden",
        "refs/heads/x.lock",
        "refs/heads//x",
        "refs/heads/x/",
        "refs/heads/x.",
        "refs/heads/x@{1}",
        "refs/heads/\x1b[31m",
        "refs/heads/a\nrefs/heads/b",
        "",
    ],
)
def test_names_that_are_no_refs_are_refused(repository: Path, name: str) -> None:
    (repository.parent / "secret").write_text(COMMIT)
    (repository / ".git/HEAD").write_text(f"ref: {name}\n")

    found = facts_of(repository)

    assert found is not None
    assert (found.branch, found.commit) == (None, None)


@pytest.mark.parametrize("size", [SMALL + 1, 1 << 40])
def test_huge_files_are_not_read(repository: Path, size: int) -> None:
    os.truncate(repository / ".git/refs/heads/main", size)
    loose = facts_of(repository)
    os.truncate(repository / ".git/HEAD", size)
    head = facts_of(repository)

    assert loose is not None
    assert (loose.branch, loose.commit) == ("main", None)
    assert head is None


def test_huge_packed_refs_are_searched_up_to_a_limit(repository: Path) -> None:
    (repository / ".git/refs/heads/main").unlink()
    packed = repository / ".git/packed-refs"
    packed.write_text(f"# pack-refs with: sorted \n{COMMIT} refs/heads/main\n")
    os.truncate(packed, 1 << 40)
    near = facts_of(repository)
    with packed.open("r+b") as file:
        file.write(b"\n" * 200)
        file.seek(PACKED)
        file.write(f"\n{COMMIT} refs/heads/main\n".encode())
    far = facts_of(repository)

    assert near is not None
    assert near.commit == COMMIT
    assert far is not None
    assert far.commit is None


@pytest.mark.parametrize("name", ["HEAD", "refs/heads/main", "packed-refs", "commondir"])
def test_pipes_do_not_hold_us_up(repository: Path, name: str) -> None:
    git(repository, "pack-refs", "--all")
    (repository / ".git" / name).unlink(missing_ok=True)
    os.mkfifo(repository / ".git" / name)

    found = facts_of(repository)

    assert found is None or (found.branch, found.commit) == ("main", None)


def test_pipe_named_git_is_passed_over(repository: Path) -> None:
    (repository / "sub").mkdir()
    os.mkfifo(repository / "sub/.git")

    found = facts_of(repository / "sub")

    assert found is not None
    assert found.work_tree == os.fsencode(repository)


def test_symbolic_links_to_elsewhere_tell_nothing(repository: Path) -> None:
    (repository.parent / "secret").write_text(COMMIT + "\n")
    (repository / ".git/refs/heads/main").unlink()
    (repository / ".git/refs/heads/main").symlink_to("/dev/zero")
    ref = facts_of(repository)
    (repository / ".git/HEAD").unlink()
    (repository / ".git/HEAD").symlink_to(repository.parent / "secret")
    head = facts_of(repository)

    assert ref is not None
    assert (ref.branch, ref.commit) == ("main", None)
    assert head is None


def test_link_that_names_itself(repository: Path) -> None:
    shutil.rmtree(repository / ".git")
    (repository / ".git").symlink_to(".git")

    assert facts_of(repository) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"gitdir: ", b"gitdir: \0", b"gitdir: .git", b"gitdir: ../../../../../../..", b"gitdir: /", b"x" * 100_000],
)
def test_odd_git_files_have_no_facts(repository: Path, content: bytes) -> None:
    (repository / "sub").mkdir()
    (repository / "sub/.git").write_bytes(content)

    assert facts_of(repository / "sub") is None


@pytest.mark.parametrize("content", ["", "0" * 40, "0" * 64, "z" * 40, COMMIT[:-1], COMMIT + "0", "\0" * 40])
def test_what_is_no_commit_is_none(repository: Path, content: str) -> None:
    (repository / ".git/refs/heads/main").write_text(content)

    found = facts_of(repository)

    assert found is not None
    assert (found.branch, found.commit) == ("main", None)


@given(st.sampled_from(["HEAD", "commondir", "packed-refs", "refs/heads/main"]), st.binary(), st.booleans())
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_anywhere_raise_nothing(empty: Path, name: str, content: bytes, prefixed: bool) -> None:
    git_dir = empty / ".git"
    for other in ("commondir", "packed-refs", "refs/heads/main"):
        (git_dir / other).unlink(missing_ok=True)
    (git_dir / "HEAD").write_text("ref: refs/heads/main\n")
    (git_dir / name).write_bytes(b"ref: refs/heads/" * prefixed + content)

    found = facts_of(empty)

    assert found is None or found.commit is None or set(found.commit) <= set("0123456789abcdef")


def test_neither_index_nor_settings_are_read(repository: Path) -> None:
    for name in ("index", "config"):
        (repository / ".git" / name).unlink()
        os.mkfifo(repository / ".git" / name)

    found = facts_of(repository)

    assert found is not None
    assert found.commit is not None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", [".git", ".git/HEAD", ".git/refs", ".git/refs/heads/main", "."])
def test_what_may_not_be_read_is_not_known(repository: Path, name: str) -> None:
    """The repository around it must not be taken for it."""
    inner = repository / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    commit(inner)
    (inner / name).chmod(0)

    try:
        found = facts_of(inner)
    finally:
        (inner / name).chmod(0o755)

    assert found is None or (found.work_tree, found.branch, found.commit) == (os.fsencode(inner), "main", None)
