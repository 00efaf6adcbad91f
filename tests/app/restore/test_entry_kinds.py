"""Kinds of files and folders that need care on their way back."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from keepfast.app.preview import Preview
from keepfast.app.restore import MINE
from keepfast.model.errors import Conflict, NotFound
from tests.faults.disks import needs, tmpfs

from .ground import Ground, aside

ROOT = os.geteuid() == 0
NOBODY = 65534
needs_root = pytest.mark.skipif(not ROOT, reason="only root can become somebody else")


def test_hard_links_come_back_as_one_file_whatever_is_left_of_them(ground: Ground) -> None:
    first = ground.put("a", "shared\n")
    for name in ("b", "c"):
        os.link(first, ground.root / name)
    ground.save()

    for gone in (("a", "b", "c"), ("b",), ("a", "c")):
        for name in gone:
            (ground.root / name).unlink()
        ground.restore(1)
        assert len({(ground.root / name).stat().st_ino for name in "abc"}) == 1, gone


def test_a_mode_is_not_set_on_other_names_of_the_file(ground: Ground) -> None:
    """Linked since: one file under two names, of which the checkpoint knows different modes."""
    ground.put("a", "same\n", 0o644)
    ground.put("b", "same\n", 0o600)
    ground.save()
    (ground.root / "b").unlink()
    os.link(ground.root / "a", ground.root / "b")
    outside = ground.root.parent / "outside"
    os.link(ground.root / "a", outside)

    ground.restore(1)

    modes = [(ground.root / name).stat().st_mode & 0o777 for name in "ab"]
    assert modes == [0o644, 0o600]
    assert outside.stat().st_mode & 0o777 == 0o644


def test_a_sparse_file_is_sparse_again(ground: Ground) -> None:
    path = ground.put("image", b"head")
    os.truncate(path, 40 << 20)
    with open(path, "r+b") as file:
        file.seek(20 << 20)
        file.write(b"middle")
    data = path.read_bytes()
    ground.save()
    path.unlink()

    ground.restore(1)

    assert path.read_bytes() == data
    assert path.stat().st_blocks * 512 < 1 << 20


def test_extended_attributes_come_back(ground: Ground) -> None:
    path = ground.put("a", "content\n")
    try:
        os.setxattr(path, "user.note", b"\0\xff")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    ground.save()
    path.unlink()

    ground.restore(1)

    assert os.getxattr(path, "user.note") == b"\0\xff"


@needs_root
def test_what_root_restores_belongs_to_the_owner_of_the_tree_or_to_whom_it_belonged(ground: Ground) -> None:
    os.chown(ground.root, 1234, 1235)
    for name, owner in {"his": 1234, "other": 4321}.items():
        os.chown(ground.put(f"folder/{name}", name), owner, owner + 1)
    os.chown(ground.root / "folder", 1234, 1235)
    ground.save()
    shutil.rmtree(ground.root / "folder")

    ground.restore(1)

    owners = {name: (ground.root / name).stat() for name in ("folder", "folder/his", "folder/other")}
    assert {name: (seen.st_uid, seen.st_gid) for name, seen in owners.items()} == {
        "folder": (1234, 1235), "folder/his": (1234, 1235), "folder/other": (4321, 4322),
    }  # fmt: skip


def test_one_file_comes_back_with_the_folders_above_it_and_undo_takes_them_away(ground: Ground) -> None:
    ground.put("a/b/c/one", "one\n")
    ground.put("a/b/c/two", "two\n")
    (ground.root / "a").chmod(0o750)
    ground.save()
    shutil.rmtree(ground.root / "a")

    ground.restore(1, "a/b/c/one")

    assert (ground.root / "a/b/c/one").read_text() == "one\n"
    assert not (ground.root / "a/b/c/two").exists()
    assert (ground.root / "a").stat().st_mode & 0o777 == 0o750
    ground.undo()
    assert not (ground.root / "a").exists()


def test_a_checkpoint_of_a_few_paths_knows_that_with_a_folder_all_below_it_is_gone(ground: Ground) -> None:
    ground.put("a", "a file\n")
    ground.save()
    (ground.root / "a").unlink()
    ground.put("a/inside", "inside\n")
    ground.save()
    shutil.rmtree(ground.root / "a")
    ground.put("a", "another file\n")

    done = ground.restore(1, "a")

    assert done is not None
    assert set(ground.saver.state(done.before)) == {b"a"}
    assert (ground.root / "a").read_text() == "a file\n"


def test_a_path_through_what_is_no_folder_any_more_is_refused(ground: Ground) -> None:
    ground.put("a/one", "one\n")
    ground.save()
    shutil.rmtree(ground.root / "a")
    outside = ground.root.parent / "outside"
    outside.mkdir()
    (outside / "one").write_text("not ours\n")
    (ground.root / "a").symlink_to(outside)

    with pytest.raises(Conflict, match="no longer a folder"):
        ground.restore(1, "a/one")

    assert (outside / "one").read_text() == "not ours\n"
    ground.restore(1, "a")
    assert (ground.root / "a/one").read_text() == "one\n"
    assert (outside / "one").read_text() == "not ours\n"


def test_an_over_size_file_in_the_way_is_saved_although_it_is_over_size(folder: Path) -> None:
    ground = Ground(folder, capture__max_file_size=1000)
    path = ground.put("log", "small\n")
    ground.save()
    big = b"x" * 5000
    ground.put("log", big)
    ground.save()  # recorded as left out, and unchanged since

    with pytest.raises(Conflict, match="log"):
        ground.restore(1, conflicts="ask")
    ground.restore(1)

    assert path.read_bytes() == b"small\n"
    ground.undo()
    assert path.read_bytes() == big
    ground.close()


def test_an_over_size_file_that_the_checkpoint_does_not_have_is_left_alone(folder: Path) -> None:
    ground = Ground(folder, capture__max_file_size=1000)
    ground.put("a", "a\n")
    ground.save()
    big = ground.put("output", b"x" * 5000)
    ground.put("a", "b\n")
    before = big.stat()

    done = ground.restore(1)

    assert done is not None
    assert dict(done.plan.untouched)[b"output"]
    assert (big.stat().st_ino, big.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    ground.close()


def test_a_pipe_in_the_place_of_a_file_is_moved_aside_and_named(ground: Ground) -> None:
    ground.put("a", "a\n")
    ground.save()
    (ground.root / "a").unlink()
    os.mkfifo(ground.root / "a")

    done = ground.restore(1)

    assert done is not None
    assert (ground.root / "a").read_text() == "a\n"
    assert [path for path, _ in done.applied.aside] == [b"a"]
    assert aside(ground.root)[0].is_fifo()


def test_a_pipe_in_the_place_of_a_folder_does_not_keep_its_files_away(ground: Ground) -> None:
    ground.put("d/a", "a\n")
    ground.save()
    shutil.rmtree(ground.root / "d")
    os.mkfifo(ground.root / "d")

    ground.restore(1)

    assert (ground.root / "d/a").read_text() == "a\n"


def test_names_with_newlines_and_no_utf8_and_paths_over_4096_bytes_come_back(ground: Ground) -> None:
    names = [b"new\nline", b"\xff\xfe", b" ", b"-rf", b"\\n", b"n" * 255]
    for name in names:
        (ground.root / os.fsdecode(name)).write_bytes(name)
    fd = os.open(ground.root, os.O_RDONLY)
    for _ in range(700):  # deeper than Python recurses, longer than the kernel takes at once
        os.mkdir(b"deepdeep", dir_fd=fd)
        inside = os.open(b"deepdeep", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inside
    with open(os.open(b"end", os.O_WRONLY | os.O_CREAT, dir_fd=fd), "wb") as file:
        file.write(b"the end")
    os.close(fd)
    ground.save()
    state = ground.saver.contents(1)
    subprocess.run(["sh", "-c", "rm -rf -- *"], cwd=ground.root, check=True)

    ground.restore(1)

    assert ground.save() and ground.saver.contents() == state
    subprocess.run(["rm", "-rf", str(ground.root / "deepdeep")], check=True)


def test_case_twins_come_back_where_cases_are_told_apart(ground: Ground) -> None:
    for name in ("Readme", "README", ".GIT/config", "git~1"):
        ground.put(name, name)
    ground.save()
    for name in ("Readme", "README", ".GIT/config", "git~1"):
        (ground.root / name).unlink()

    ground.restore(1)

    for name in ("Readme", "README", ".GIT/config", "git~1"):
        assert (ground.root / name).read_text() == name


def test_a_type_can_change_in_every_direction(ground: Ground) -> None:
    root = ground.root
    ground.put("file", "file\n")
    ground.put("folder/inside", "inside\n")
    (root / "link").symlink_to("nowhere")
    ground.save()
    (root / "file").unlink()
    ground.put("file/now/a/folder", "x")
    shutil.rmtree(root / "folder")
    (root / "folder").symlink_to("file")
    (root / "link").unlink()
    ground.put("link", "a file")
    second = ground.save()

    ground.restore(1)
    assert (root / "file").read_text() == "file\n"
    assert (root / "folder/inside").read_text() == "inside\n"
    assert os.readlink(root / "link") == "nowhere"

    ground.restore(second)
    assert (root / "file/now/a/folder").read_text() == "x"
    assert os.readlink(root / "folder") == "file"
    assert (root / "link").read_text() == "a file"


def test_what_changes_between_question_and_answer_is_kept(ground: Ground) -> None:
    ground.put("asked", "old\n")
    ground.put("other", "old\n")
    ground.save()
    ground.put("asked", "new\n")

    def edit_meanwhile(preview: Preview) -> bool:
        ground.put("asked", "newer\n")
        ground.put("other", "edited\n")
        ground.put("late", "late\n")
        return True

    done = ground.restore(1, conflicts="ask", ask=edit_meanwhile)

    assert done is not None
    names = ("asked", "other", "late")
    assert [(ground.root / name).read_text() for name in names] == ["newer\n", "edited\n", "late\n"]
    assert {path for path, _ in done.applied.untouched} == {b"asked", b"other", b"late"}


def test_what_changes_between_question_and_answer_is_saved_before_theirs_replaces_it(ground: Ground) -> None:
    ground.put("asked", "old\n")
    ground.save()
    ground.put("asked", "new\n")

    def edit_meanwhile(preview: Preview) -> bool:
        ground.put("asked", "newer\n")
        return True

    done = ground.restore(1, ask=edit_meanwhile)

    assert done is not None
    assert (ground.root / "asked").read_text() == "old\n"
    assert ground.saver.read("asked", done.before) == b"newer\n"


def test_restores_can_be_undone_and_redone_several_steps(ground: Ground) -> None:
    for number in range(4):
        ground.put("a", f"{number}\n")
        ground.save()
    path = ground.root / "a"
    for version in (1, 2, 3):
        ground.restore(version)

    seen = [path.read_text()]
    for _ in range(3):
        ground.undo()
        seen.append(path.read_text())
    for _ in range(3):
        ground.redo()
        seen.append(path.read_text())

    assert seen == [f"{number}\n" for number in (2, 1, 0, 3, 0, 1, 2)]
    with pytest.raises(NotFound):
        ground.redo()


def test_undo_leaves_what_had_come_back_by_other_ways_before_the_restore(ground: Ground) -> None:
    """It is as the checkpoint has it, so the restore does not touch it; no version since then has it."""
    ground.put("x/sub/file", "kept\n")
    ground.put("y/file", "1\n")
    ground.save()
    (ground.root / "x").rename(ground.root.parent / "x")
    ground.put("y/file", "2\n")
    ground.save()
    (ground.root.parent / "x").rename(ground.root / "x")

    ground.restore(1, "x", "y")
    ground.undo()

    assert (ground.root / "x/sub/file").read_text() == "kept\n"
    assert (ground.root / "y/file").read_text() == "2\n"


def test_an_undo_with_nothing_left_to_do_is_done_all_the_same(ground: Ground) -> None:
    """Else the restores before it could never be undone."""
    ground.put("a", "1\n")
    ground.save()
    ground.put("a", "2\n")
    ground.save()
    ground.put("a", "3\n")
    ground.restore(1)
    ground.restore(2)
    ground.put("a", "1\n")  # by hand

    ground.undo()
    ground.undo()

    assert (ground.root / "a").read_text() == "3\n"


def test_undo_works_after_other_versions_were_forgotten(ground: Ground) -> None:
    from keepfast.store.maintenance.space import compact, forget

    for number in range(3):
        ground.put("a", f"{number}\n")
        ground.save()
    ground.put("a", "unsaved\n")
    ground.restore(2)
    engine = ground.saver.engine()
    forget(engine.repository(), ground.saver.workspace, [1, 2, 3], "test", folder=engine.place.path)
    compact(engine.repository(), engine.place.path, everything=True)
    engine.close()

    ground.undo()

    assert (ground.root / "a").read_text() == "unsaved\n"


def test_a_newest_version_that_was_forgotten_does_not_confuse_a_restore(ground: Ground) -> None:
    from keepfast.store.maintenance.space import forget

    ground.put("a", "1\n")
    ground.save()
    ground.put("a", "2\n")
    ground.put("b", "2\n")
    ground.save()
    engine = ground.saver.engine()
    forget(engine.repository(), ground.saver.workspace, [2], "test", folder=engine.place.path)
    engine.close()

    ground.restore(1)

    assert (ground.root / "a").read_text() == "1\n"
    assert not (ground.root / "b").exists()


def test_a_copied_folder_is_restored_by_itself_and_the_original_is_left_alone(ground: Ground, folder: Path) -> None:
    ground.put("a", "1\n")
    ground.save()
    for number in range(3):
        ground.put("a", f"later {number}\n")
        ground.save()
    copy = folder / "copy"
    shutil.copytree(ground.root, copy, symlinks=True)
    original, ground.root = ground.root, copy
    ground.save(cwd=copy)
    ground.put("a", "of the copy\n")
    ground.save(cwd=copy)

    done = ground.restore(1)

    assert done is not None
    assert (copy / "a").read_text() == "later 2\n"
    assert (original / "a").read_text() == "later 2\n"
    ground.undo()
    assert (copy / "a").read_text() == "of the copy\n"


def test_keep_mine_keeps_what_is_mine_and_the_folder_it_is_in(ground: Ground) -> None:
    ground.put("a", "a\n")
    ground.save()
    ground.put("new/theirs", "saved\n")
    ground.save()
    ground.put("new/mine", "mine\n")

    ground.restore(1, conflicts=MINE)

    assert [path.name for path in (ground.root / "new").iterdir()] == ["mine"]


@needs("mount")
def test_what_lies_on_a_file_system_of_its_own_is_kept_and_named_or_comes_back(ground: Ground) -> None:
    with tmpfs(ground.root / "mounted", "size=1m"):
        ground.put("mounted/a", "old\n")
        ground.put("b", "old\n")
        ground.save()
        ground.put("mounted/a", "new\n")
        ground.put("b", "new\n")

        done = ground.restore(1)

        assert done is not None
        assert (ground.root / "b").read_text() == "old\n"
        kept = dict(done.applied.untouched)
        assert (ground.root / "mounted/a").read_text() == ("new\n" if b"mounted/a" in kept else "old\n")


@pytest.mark.skipif(shutil.which("chattr") is None, reason="no chattr")
@needs_root
def test_an_immutable_file_is_kept_and_named_and_all_others_come_back(ground: Ground) -> None:
    path = ground.put("fixed", "old\n")
    ground.put("other", "old\n")
    ground.save()
    ground.put("fixed", "new\n")
    ground.put("other", "new\n")
    if subprocess.run(["chattr", "+i", str(path)], capture_output=True).returncode:
        pytest.skip("no immutable files here")
    try:
        done = ground.restore(1)
    finally:
        subprocess.run(["chattr", "-i", str(path)], check=True)

    assert done is not None
    assert [kept for kept, _ in done.applied.untouched] == [b"fixed"]
    assert (path.read_text(), (ground.root / "other").read_text()) == ("new\n", "old\n")


@needs_root
def test_an_ordinary_user_restores_closed_folders_and_unreadable_files(folder: Path) -> None:
    """Folders that are closed to their owner are opened meanwhile and closed again."""
    folder.chmod(0o777)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            _restore_closed_folders(folder)
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def _restore_closed_folders(folder: Path) -> None:
    ground = Ground(folder)
    root = ground.root
    ground.put("closed/deep/a", "old\n")
    ground.put("closed/deep/gone", "gone\n")
    ground.put("secret", "old\n")
    for name in ("closed/deep", "closed"):
        (root / name).chmod(0o555)
    ground.save()
    (root / "closed/deep").chmod(0o755)
    ground.put("closed/deep/a", "new\n")
    (root / "closed/deep/gone").unlink()
    ground.put("closed/deep/more", "more\n")
    (root / "closed/deep").chmod(0o555)
    (root / "secret").chmod(0o000)

    done = ground.restore(1)

    assert done is not None
    assert not done.applied.untouched, done.applied.untouched
    assert {path.name: path.read_text() for path in (root / "closed/deep").iterdir()} == {
        "a": "old\n",
        "gone": "gone\n",
    }
    assert [(root / name).stat().st_mode & 0o777 for name in ("closed", "closed/deep", "secret")] == [
        0o555,
        0o555,
        0o644,
    ]
    assert (root / "secret").read_text() == "old\n"
    ground.undo()
    assert (root / "closed/deep/a").read_text() == "new\n"
    assert (root / "closed/deep").stat().st_mode & 0o777 == 0o555
    ground.close()
