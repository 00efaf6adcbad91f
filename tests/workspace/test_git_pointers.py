"""A `.git` that is a file is a file: saved, restored, undone; a `.git` that is a folder is named and never touched."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from keepfast.app.fork import Forker
from keepfast.app.inspect import not_covered
from keepfast.model.entry import BY_GIT, EXCLUDED, FILE, FOLDER, GONE, LINK, Entry
from keepfast.model.errors import Damaged, NotFound
from keepfast.model.restore_plan import refuse_crafted
from tests.app.restore.ground import Ground

VARIABLES = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "protocol.file.allow",
    "GIT_CONFIG_VALUE_0": "always",
    **{f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}
POINTER = b"gitdir: ../../.git/modules/vendor/sub\n"


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, env=VARIABLES, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = Ground(tmp_path)
    yield made
    made.close()


def repositories(ground: Ground, tmp_path: Path) -> Path:
    """A repository with a submodule, made by git itself."""
    library = tmp_path / "library"
    library.mkdir()
    (library / "l").write_text("l")
    for folder, name in ((library, "of the library"), (ground.root, "of the project")):
        git(folder, "init", "-q")
        git(folder, "add", ".")
        git(folder, "commit", "-q", "--allow-empty", "-m", name)
    git(ground.root, "submodule", "--quiet", "add", str(library), "vendor/sub")
    git(ground.root, "commit", "-q", "-m", "a submodule")
    return ground.root / "vendor" / "sub"


def test_a_submodule_that_was_removed_and_restored_has_its_own_history(ground: Ground, tmp_path: Path) -> None:
    sub = repositories(ground, tmp_path)
    ground.save()
    subprocess.run(["rm", "-rf", str(sub)], check=True)
    ground.restore(1)

    assert git(sub, "log", "--format=%s") == "of the library\n"
    assert git(ground.root, "status", "--porcelain") == ""


def test_git_s_folders_are_named_at_any_depth(ground: Ground, tmp_path: Path) -> None:
    repositories(ground, tmp_path)
    git(ground.root, "init", "-q", "inner/nested")
    ground.save()
    restorer = ground.restorer()

    assert not_covered(restorer.repository, restorer._checkpoint(1)) == [b".git", b"inner/nested/.git"]


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_pointer_goes_back_and_forth_like_any_file(ground: Ground, kind: str) -> None:
    pointer = ground.root / "sub" / ".git"
    ground.put("sub/a", "a")
    ground.save()
    if kind == "file":
        pointer.write_bytes(POINTER)
    else:
        pointer.symlink_to("../../elsewhere/.git")
    ground.save()
    ground.restore(1)
    before = os.path.lexists(pointer)
    ground.undo()
    after = os.path.lexists(pointer)
    ground.redo()
    again = os.path.lexists(pointer)

    assert (before, after, again) == (False, True, False)


def test_an_edited_pointer_makes_a_version(ground: Ground) -> None:
    pointer = ground.put("sub/.git", POINTER)
    ground.save()
    pointer.write_bytes(b"gitdir: /elsewhere/.git\n")
    outcome = ground.saver.save()
    ground.restore(1)

    assert outcome.version == 2
    assert pointer.read_bytes() == POINTER


def test_a_version_that_does_not_know_of_pointers_removes_none(ground: Ground) -> None:
    """Versions of before such files were captured have none of them, which says nothing; nor does one of some paths."""
    pointer = ground.put("sub/.git", POINTER)
    ground.put("sub/a", "a")
    ground.save(only=(b"sub", b"sub/a"), partial=(b"sub", b"sub/a"))
    ground.put("sub/a", "b")
    ground.save()
    done = ground.restore(1)

    assert done is not None
    assert pointer.read_bytes() == POINTER
    assert (ground.root / "sub" / "a").read_text() == "a"
    assert [path for path, _ in done.plan.untouched] == [b"sub/.git"]


def test_a_folder_in_the_place_of_a_pointer_stays(ground: Ground) -> None:
    pointer = ground.put("sub/.git", POINTER)
    ground.save()
    pointer.unlink()
    ground.put("sub/.git/HEAD", "ref: refs/heads/main\n")
    ground.put("sub/.git/objects/ab", "precious")
    ground.restore(1)

    assert (ground.root / "sub" / ".git" / "objects" / "ab").read_text() == "precious"


def test_a_save_of_some_paths_takes_a_pointer_and_names_a_folder(ground: Ground) -> None:
    ground.put("sub/.git", POINTER)
    ground.put("other/.git/HEAD", "ref")
    ground.saver.save("manual", only=(b"sub", b"sub/.git", b"other", b"other/.git", b"other/.git/HEAD"))

    assert ground.saver.kinds() == {"sub": "d", "sub/.git": "f", "other": "d", "other/.git": "x"}


def test_git_s_folder_that_is_missing_is_named_and_cannot_be_asked_for(ground: Ground) -> None:
    ground.put(".git/HEAD", "ref: refs/heads/main\n")
    ground.put("a", "a")
    ground.save()
    subprocess.run(["rm", "-rf", str(ground.root / ".git")], check=True)
    restorer = ground.restorer()

    assert [one.path for one in restorer.planner.missing(restorer._checkpoint(1))] == [b".git"]
    with pytest.raises(NotFound, match="git"):
        restorer.planner.refuse_unknown(restorer._checkpoint(1), [b".git"])


def row(path: bytes, kind: str) -> Entry:
    content = {FILE: b"c" * 32, LINK: b"target"}.get(kind, b"")
    return Entry(path, kind, 0o644, BY_GIT if kind == EXCLUDED else 0, 0, 0, 0, content, b"")


@pytest.mark.parametrize("beside", [[], [row(b"a", FILE), row(b"z", FILE)]])
@pytest.mark.parametrize(
    ("path", "kind", "is_sound"),
    [
        (b".git", FILE, True),
        (b"sub/.git", FILE, True),
        (b"sub/.git", LINK, True),
        (b".git", EXCLUDED, True),
        (b".git", FOLDER, False),
        (b".git/config", FILE, False),
        (b"sub/.git/hooks/pre-commit", FILE, False),
        (b".git/.git", FILE, False),
        (b"a/.git/b/.git", FILE, False),
        (b".keepfast", FILE, False),
        (b"x.git", FOLDER, True),
    ],
)
def test_only_a_pointer_itself_may_be_written(path: bytes, kind: str, is_sound: bool, beside: list[Entry]) -> None:
    rows = [*beside, row(path, kind)]
    if is_sound:
        refuse_crafted(rows)
        return

    with pytest.raises(Damaged):
        refuse_crafted(rows)


@pytest.mark.parametrize(
    ("pointer", "taken"),
    [(POINTER, True), (b"gitdir: /elsewhere/.git/worktrees/x\n", False), (b"gitdir: ../../../main/.git\n", False)],
)
def test_a_fork_takes_no_pointer_that_leads_out_of_it(
    ground: Ground, tmp_path: Path, pointer: bytes, taken: bool
) -> None:
    """Two folders with one index would undo each other's work."""
    ground.put("vendor/sub/.git", pointer)
    ground.put("vendor/sub/a", "a")
    ground.save()
    restorer = ground.restorer()
    forked = Forker(restorer.engine, restorer.root, restorer.row, restorer._checkpoint(1)).fork(
        os.fsencode(tmp_path / "fork")
    )

    assert (tmp_path / "fork" / "vendor" / "sub" / ".git").exists() == taken
    assert not forked.differs
    assert [path for path, _ in forked.left_out] == ([] if taken else [b"vendor/sub/.git"])


CONFIG = '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = "touch \\"{}\\"; false"\n'


def planted(ground: Ground, ran: Path) -> None:
    """A repository below another name, whose settings run a command."""
    for path, content in (("HEAD", "ref: refs/heads/main\n"), ("config", CONFIG.format(ran)), ("objects/.k", "")):
        ground.put(f"e/{path}", content)
    ground.put("e/refs/.k", "")


def forked_of(ground: Ground, folder: Path) -> list[bytes]:
    restorer = ground.restorer()
    forking = Forker(restorer.engine, restorer.root, restorer.row, restorer._checkpoint(1))
    return [path for path, _ in forking.fork(os.fsencode(folder)).left_out]


@pytest.mark.parametrize(
    "pointer",
    [
        "gitdir: e\n", "gitdir: e", "gitdir: ./e/\r\n", "gitdir:  e\n", "gitdir:\te\n", "gitdir:e\n", "gitdir: e \n",
        "gitdir: {root}/e\n", "gitdir: ../{name}/e\n", "gitdir: .git/../e\n", "gitdir: l/../../e\n", "gitdir: {twin}/e\n",
        "gitdir: /proc/self/cwd/e\n", "gitdir: sub/.git/{name}/e\n", "gitdir: ..\n", "gitdir: .\n", "gitdir: e\0\n",
        "gitdir: /x\ne\n", "gitdir:\n", "nonsense\n", "", "gitdir: ../beside/e\n", "gitdir: /nowhere/e\n",
    ],
)  # fmt: skip
def test_a_pointer_into_the_folder_is_neither_restored_nor_forked_and_is_named(
    ground: Ground, tmp_path: Path, pointer: str
) -> None:
    """Git would take what a checkpoint holds for settings, and settings run commands."""
    ran, twin = tmp_path / "ran", tmp_path / "twin"
    twin.symlink_to(ground.root)
    planted(ground, ran)
    (ground.root / "l").symlink_to("e/objects")
    (ground.root / "sub").mkdir()
    (ground.root / "sub" / ".git").symlink_to("../..")
    own = ground.put(".git", pointer.format(root=ground.root, name=ground.root.name, twin=twin))
    ground.save()
    own.unlink()
    subprocess.run(["rm", "-rf", *(str(ground.root / name) for name in ("e", "l", "sub"))], check=True)
    done = ground.restore(1)
    left = forked_of(ground, tmp_path / "fork")
    for folder in (ground.root, tmp_path / "fork"):
        subprocess.run(["git", "status"], cwd=folder, env=VARIABLES, capture_output=True, check=False)

    assert done is not None
    assert [path for path, _ in done.plan.untouched] == [b".git", b"sub/.git"] == sorted(left)
    assert not own.exists()
    assert not (tmp_path / "fork" / ".git").exists()
    assert not ran.exists()


@pytest.mark.parametrize("target", ["e", "{root}/e", "{twin}/e", "../{name}/e", ".", "..", "l", "e/.."])
def test_a_link_into_the_folder_is_neither_restored_nor_forked(ground: Ground, tmp_path: Path, target: str) -> None:
    twin, pointer = tmp_path / "twin", ground.root / ".git"
    twin.symlink_to(ground.root)
    planted(ground, tmp_path / "ran")
    (ground.root / "l").symlink_to("e")
    pointer.symlink_to(target.format(root=ground.root, name=ground.root.name, twin=twin))
    ground.save()
    pointer.unlink()
    ground.put("a", "a")
    done = ground.restore(1)

    assert done is not None
    assert [path for path, _ in done.plan.untouched] == [b".git"] == forked_of(ground, tmp_path / "fork")
    assert not os.path.lexists(pointer)


@pytest.mark.parametrize("way", ["l/.git/modules/x", "../{name}/l/.git/modules/x"])
def test_a_pointer_goes_through_no_link_of_the_checkpoint(ground: Ground, way: str) -> None:
    """A link on the way to a folder `.git` can lead anywhere."""
    ground.put("e/x", "x")
    (ground.root / "l").symlink_to("e")
    pointer = ground.put(".git", f"gitdir: {way.format(name=ground.root.name)}\n")
    ground.save()
    pointer.unlink()
    (ground.root / "l").unlink()
    ground.restore(1)

    assert not pointer.exists()


def test_a_pointer_of_a_worktree_beside_its_repository_comes_back(ground: Ground) -> None:
    """The repository is below a folder `.git`, which no checkpoint holds."""
    ground.put("main/a", "a")
    git(ground.root / "main", "init", "-q")
    git(ground.root / "main", "add", ".")
    git(ground.root / "main", "commit", "-q", "-m", "first")
    git(ground.root / "main", "worktree", "add", "-q", "../tree")
    ground.save()
    subprocess.run(["rm", "-rf", str(ground.root / "tree")], check=True)
    ground.restore(1)

    assert git(ground.root / "tree", "log", "--format=%s") == "first\n"


def test_a_pointer_that_could_not_come_back_is_not_removed(ground: Ground) -> None:
    """Else no undo would bring it back."""
    ground.put("a", "a")
    ground.save()
    pointer = ground.put(".git", "gitdir: e\n")
    ground.put("a", "b")
    ground.save()
    done = ground.restore(1)

    assert done is not None
    assert [path for path, _ in done.plan.untouched] == [b".git"]
    assert pointer.read_text() == "gitdir: e\n"
    assert (ground.root / "a").read_text() == "a"


def test_a_pointer_that_went_is_gone_in_the_next_version(ground: Ground) -> None:
    pointer = ground.put("sub/.git", POINTER)
    ground.save()
    pointer.unlink()
    ground.save()

    assert GONE not in ground.saver.kinds().values()
    assert ground.saver.kinds() == {"sub": "d"}
