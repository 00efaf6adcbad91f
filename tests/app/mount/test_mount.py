"""`keepfast mount`: every version can be read as it was saved, and nothing can be changed."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
from pathlib import Path

import pytest

from keepfast.store.factory import open_store
from keepfast.store.rows import CHUNKS
from tests.equipment.box import SOURCE, Box

from .mounts import PATIENCE, is_mounted, mounted, needs_fuse, tree, unmount, wait_for

OURS = {b".keepfast", b".keepfast/workspace.json", b".keepfast/.gitignore"}


def saved_tree(box: Box, *without: bytes) -> dict[bytes, object]:
    found = tree(box.project)
    return {path: facts for path, facts in found.items() if path not in OURS and path.split(b"/")[0] not in without}


@needs_fuse
def test_every_version_is_what_was_saved(box: Box) -> None:
    box.put("src/a.py", "one\n").chmod(0o755)
    box.put("secret", "s").chmod(0o600)
    box.put("empty file")
    box.put("new\nline", "odd")
    box.put(b"not \xff\xfe utf-8", "bytes")
    box.put("한글/이름", "wide")
    (box.project / "empty folder").mkdir(0o750)
    (box.project / "link").symlink_to("src/a.py")
    (box.project / "dangling").symlink_to(os.fsdecode(b"nowhere\xff"))
    os.link(box.project / "secret", box.project / "src/second name")
    box.save()
    first = saved_tree(box)
    box.put("src/a.py", "two\n")
    (box.project / "secret").unlink()
    (box.project / "secret").mkdir()
    box.put("secret/inside", "now a folder")
    (box.project / "link").unlink()
    (box.project / "empty folder").chmod(0o700)
    box.save()
    second = saved_tree(box)

    with mounted(box) as mount:
        assert tree(mount.path / "v1") == first
        assert tree(mount.path / "v2") == second
        assert tree(mount.path / "latest/") == second
        one, other = (mount.path / "v1" / name for name in ("secret", "src/second name"))
        assert os.path.samestat(one.stat(), other.stat())


@needs_fuse
def test_what_was_left_out_is_absent_and_listed(box: Box) -> None:
    box.put("a", "a")
    box.save()
    box.put("node_modules/x/y", "y")
    box.save()

    with mounted(box) as mount:
        assert sorted(path.name for path in (mount.path / "v1").iterdir()) == ["a"]
        assert sorted(path.name for path in (mount.path / "v2").iterdir()) == [".keepfast-left-out", "a"]
        assert (mount.path / "v2/.keepfast-left-out").read_text() == "node_modules\tmatching an exclusion rule\n"


@needs_fuse
def test_parts_of_a_large_file_can_be_read(box: Box) -> None:
    content = random.Random(1).randbytes(9_000_000)
    box.put("large", content)
    box.save()

    with mounted(box) as mount:
        fd = os.open(mount.path / "v1/large", os.O_RDONLY)
        try:
            for offset, length in [(0, 10), (4_194_300, 100_000), (8_999_990, 100), (1, 5_000_000), (9_000_000, 1)]:
                assert os.pread(fd, length, offset) == content[offset : offset + length]
        finally:
            os.close(fd)
        assert (mount.path / "v1/large").read_bytes() == content


@needs_fuse
def test_new_checkpoints_and_names_appear(box: Box) -> None:
    box.put("a", "1")
    box.save()
    with mounted(box) as mount:
        assert sorted(path.name for path in mount.path.iterdir()) == ["latest", "names", "v1"]
        assert not (mount.path / "v2").exists()
        box.put("a", "2")
        box.save("--name", "feature/x")

        assert (mount.path / "v2/a").read_text() == "2"
        assert (mount.path / "names/feature%2Fx/a").read_text() == "2"
        assert wait_for(lambda: os.readlink(mount.path / "latest") == "v2")
        assert "v2" in os.listdir(mount.path)


@needs_fuse
def test_a_new_ledger_is_noticed(box: Box) -> None:
    box.put("a", "1")
    box.save()
    with mounted(box) as mount:
        assert os.listdir(mount.path / "v1") == ["a"]
        assert box.call("rebuild").code == 0
        box.put("a", "2")
        box.save()

        assert (mount.path / "v2/a").read_text() == "2"


@needs_fuse
def test_nothing_can_be_changed(box: Box) -> None:
    box.put("a", "1")
    box.save()
    with mounted(box) as mount:
        path = mount.path / "v1/a"
        assert not os.access(path, os.W_OK)
        for change in (
            lambda: path.write_text("x"),
            lambda: path.unlink(),
            lambda: path.chmod(0o600),
            lambda: (mount.path / "v1/new").mkdir(),
            lambda: (mount.path / "v9").mkdir(),
        ):
            with pytest.raises(OSError) as error:
                change()
            assert error.value.errno == errno.EROFS


@needs_fuse
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_and_leaves_no_mount(box: Box, number: int) -> None:
    box.put("a", "1")
    box.save()
    with mounted(box) as mount:
        code = mount.end(number)

        assert code == 0
        assert not is_mounted(mount.path)
        assert not mount.path.exists()
        assert mount.process.stdout is not None
        said = mount.process.stdout.read().decode()
        assert said == f"Mounted all versions at {mount.path}. Press Ctrl-C to unmount.\nUnmounted.\n"


@needs_fuse
def test_what_a_mount_shows_is_not_swept(box: Box) -> None:
    box.put("a", "only in v1")
    box.save()
    first = saved_tree(box)
    box.put("a", "in v2")
    box.put("b/c", "b")
    box.save()
    box.put("a", "in v3")
    box.save()
    with mounted(box) as mount:
        forgotten = box.call("forget", "v1", "v2", "-y")
        refused = box.call("compact", "--everything")

        assert forgotten.code == 0
        assert "Run `keepfast compact` later to free the space" in forgotten.err
        assert refused.code == 11
        assert f"mounted at {mount.path} (process {mount.process.pid})" in refused.err
        assert tree(mount.path / "v1") == first
        assert (mount.path / "v2/b/c").read_text() == "b"
        assert os.readlink(mount.path / "latest") == "v3"
    assert box.call("compact", "--everything").code == 0
    assert box.call("verify").code == 0
    with mounted(box) as mount:
        assert sorted(os.listdir(mount.path)) == ["latest", "names", "v3"]


@needs_fuse
def test_damage_is_an_input_error_of_that_file_alone(box: Box) -> None:
    box.put("bad", random.Random(2).randbytes(50_000))
    box.save()
    box.put("good", random.Random(3).randbytes(50_000))
    box.save()
    store = open_store(str(box.store))
    (workspace,) = store.ledger.workspaces()
    entry = store.ledger.at(workspace.id, 1, b"bad")
    assert entry is not None
    place = store.ledger.locate([entry.content])[entry.content]
    store.close()
    pack = box.store / "packs" / f"{place.pack}.pack"
    raw = bytearray(pack.read_bytes())
    raw[place.frame + 1 + place.offset + 1000] ^= 1
    pack.chmod(0o600)
    pack.write_bytes(raw)

    with mounted(box) as mount:
        with pytest.raises(OSError) as error:
            (mount.path / "v2/bad").read_bytes()
        assert error.value.errno == errno.EIO
        assert (mount.path / "v2/good").read_bytes() == (box.project / "good").read_bytes()
        assert (mount.path / "v2/bad").stat().st_size == 50_000


@needs_fuse
def test_with_a_reference_its_state_is_at_the_top(box: Box) -> None:
    box.put("a", "1")
    box.save()
    box.put("a", "2")
    box.save()
    with mounted(box, "v1") as mount:
        assert tree(mount.path).keys() == {b"a"}
        box.call("forget", "v1", "-y")

        assert (mount.path / "a").read_text() == "1"


@needs_fuse
def test_in_the_background_it_lasts_until_it_is_unmounted(box: Box) -> None:
    box.put("a", "1")
    box.save()
    folder = box.base / "behind"
    try:
        answer = box.run("mount", "--background", "--json", str(folder))
        assert answer.code == 0
        process = answer.json()["pid"]
        assert answer.json() == {"mounted": str(folder), "version": None, "pid": process}
        assert (folder / "v1/a").read_text() == "1"
        subprocess.run(["fusermount3", "-u", str(folder)], check=True, timeout=PATIENCE)

        assert wait_for(lambda: not Path(f"/proc/{process}").exists() or _is_zombie(process))
        assert wait_for(lambda: not folder.exists())
    finally:
        unmount(folder)


@needs_fuse
def test_what_is_left_of_a_killed_mount_is_explained(box: Box) -> None:
    box.put("a", "1")
    box.save()
    with mounted(box) as mount:
        mount.end(signal.SIGKILL)
        again = box.run("mount", str(mount.path))

        assert again.code == 1
        assert "is a stale mount: its process died" in again.err
        assert f"fusermount3 -u {mount.path}" in again.err
    assert box.call("compact").code == 0


@needs_fuse
def test_a_folder_where_a_mount_would_do_harm_is_refused(box: Box) -> None:
    box.put("a", "1")
    box.save()
    (box.base / "full").mkdir()
    (box.base / "full/x").touch()
    (box.base / "file").touch()

    inside = box.call("mount", str(box.project / "mnt"))
    full = box.call("mount", str(box.base / "full"))
    file = box.call("mount", str(box.base / "file"))
    store = box.call("mount", str(box.store / "mnt"))

    assert [answer.code for answer in (inside, full, file, store)] == [2, 2, 2, 2]
    assert "the next save would include the mounted versions" in inside.err
    assert "is not empty" in full.err
    assert "is not a folder" in file.err
    assert "is inside the store" in store.err
    assert not (box.project / "mnt").exists()
    assert not (box.store / "mnt").exists()


def test_without_the_package_it_says_how_to_get_it(box: Box) -> None:
    box.put("a", "1")
    box.save()
    hidden = box.base / "hidden"
    hidden.mkdir()
    (hidden / "mfusepy.py").write_text("raise ImportError('hidden')\n")

    answer = box.run("mount", str(box.base / "mnt"), PYTHONPATH=f"{hidden}{os.pathsep}{SOURCE}")

    assert answer.code == 1
    assert "pip install '.[mount]'" in answer.err
    assert not (box.base / "mnt").exists()


def test_large_files_are_stored_as_chunks(box: Box) -> None:
    """So that the test of parts above is one of chunks."""
    box.put("large", random.Random(1).randbytes(9_000_000))
    box.save()
    store = open_store(str(box.store))
    (workspace,) = store.ledger.workspaces()
    entry = store.ledger.at(workspace.id, 1, b"large")
    assert entry is not None

    assert store.ledger.locate([entry.content])[entry.content].kind == CHUNKS
    store.close()


def _is_zombie(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
