"""What a mount shows, without mounting anything."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from keepfast.app.mount_tree import Browser, file_name
from keepfast.model.errors import Busy
from keepfast.state.mounts import hold
from keepfast.store.maintenance.space import compact, forget
from keepfast.store.ranges import Ranges
from tests.equipment.saver import Saver


def browse(saver: Saver) -> Browser:
    return Browser(saver.engine(), saver.workspace)


def names(browser: Browser, path: bytes) -> list[bytes]:
    return sorted(name for name, _, _ in browser.names(path))


def test_a_forgotten_version_is_made_again_from_its_documents(saver: Saver, root: Path) -> None:
    for number in range(5):
        (root / f"file{number}").write_text(str(number))
        (root / "same").write_text(str(number))
        saver.save()
    browser = browse(saver)
    forget(saver.engine().repository(), saver.workspace, [2, 3], "test")

    assert names(browser, b"v3") == [b"file0", b"file1", b"file2", b"same"]
    assert browser.read(browser.find(b"v3/same"), 0, 10) == b"2"
    assert browser.read(browser.find(b"v2/same"), 0, 10) == b"1"


def test_a_version_forgotten_before_is_not_shown(saver: Saver, root: Path) -> None:
    for number in range(3):
        (root / "a").write_text(str(number))
        saver.save()
    forget(saver.engine().repository(), saver.workspace, [2], "test")
    browser = browse(saver)

    assert names(browser, b"") == [b"latest", b"names", b"v1", b"v3"]
    with pytest.raises(FileNotFoundError):
        browser.find(b"v2/a")


@pytest.mark.parametrize("path", [b"v0", b"v01", b"v", b"1", b"v99", b"names/none", b"v1/none", b"v1/none/x", b"x/y"])
def test_what_is_not_there_is_not_found(saver: Saver, root: Path, path: bytes) -> None:
    (root / "a").write_text("a")
    saver.save()

    with pytest.raises(OSError):
        browse(saver).find(path)


def test_a_file_of_that_name_comes_before_our_list(saver: Saver, root: Path) -> None:
    (root / ".keepfast-left-out").write_text("mine")
    (root / "node_modules").mkdir()
    saver.save()
    browser = browse(saver)

    assert browser.read(browser.find(b"v1/.keepfast-left-out"), 0, 100) == b"mine"
    assert names(browser, b"v1") == [b".keepfast-left-out"]


def test_the_states_of_many_versions_share_their_memory(saver: Saver, root: Path) -> None:
    for number in range(3):
        (root / "kept").write_text("kept")
        (root / "changed").write_text(str(number))
        saver.save()
    browser = browse(saver)
    for version in (b"v1", b"v2", b"v3"):
        names(browser, version)

    kept = [id(state.folders[b""][b"kept"]) for state in browser._states.values()]
    assert len(set(kept)) == 1


def test_a_small_part_of_a_large_file_loads_few_chunks(saver: Saver, root: Path) -> None:
    content = random.Random(5).randbytes(6_000_000)
    (root / "large").write_bytes(content)
    saver.save()
    row = saver.state()[b"large"]
    ranges = Ranges(saver.engine().repository)

    assert ranges.read(row.content, row.size, 3_000_000, 1000) == content[3_000_000:3_001_000]
    assert len(ranges._pieces) <= 2


def test_a_name_becomes_the_name_of_a_file() -> None:
    assert [file_name(name) for name in ("plain", "a/b", "..", ".")] == [b"plain", b"a%2Fb", b"%2E%2E", b"%2E"]


def test_compaction_waits_for_every_mount(make_saver: Callable[..., Saver], root: Path) -> None:
    saver = make_saver()
    (root / "a").write_text("a")
    saver.save()
    store, repository = str(saver.store), saver.engine().repository()
    one, other = hold(store, "/mnt/one"), hold(store, "/mnt/two")
    with pytest.raises(Busy, match=r"mounted at /mnt/one .*, /mnt/two "):
        compact(repository, store)
    os.close(one)
    with pytest.raises(Busy):
        compact(repository, store)
    os.close(other)

    compact(repository, store)


def hold_as_nobody(store: str) -> str:
    """What a user who may read the store and not write it gets from `hold`, and what stands in the way of a compaction."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            hold(store, "/mnt/one")
            os.write(writing, b"held")
        except BaseException as error:
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        said = file.read().decode()
    os.waitpid(child, 0)
    return said


@pytest.mark.parametrize("mounted_before", [False, True])
def test_a_store_that_cannot_be_written_can_be_held(mounted_before: bool) -> None:
    with TemporaryDirectory(prefix="keepfast-mount-") as name:
        store = Path(name)
        (store / "compact.lock").touch()
        if mounted_before:
            os.close(hold(name, "/mnt/before"))
            (store / "mounted.lock").chmod(0o444)
        store.chmod(0o555)
        said = hold_as_nobody(name)
        store.chmod(0o755)

    assert said == "held"
