"""Keys: a rotation seals new contents with new ones; whatever old file or folder is put back, nothing else closes."""

from __future__ import annotations

import errno
import io
import multiprocessing
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keepfast.fsutil import durable
from keepfast.model import steps
from keepfast.model.errors import Failed, KeepfastError, WrongKey
from keepfast.store.digest import digest
from keepfast.store.factory import create_store
from keepfast.store.keys import Keys
from keepfast.store.sealed import PART, Sealer

STRONG = "four unrelated words here"


@pytest.fixture
def sealer(tmp_path: Path) -> Sealer:
    create_store(str(tmp_path / "store"), durable=False).close()
    return Sealer(str(tmp_path / "store"), str(tmp_path / "keys"), durable=False)


def again(sealer: Sealer) -> Sealer:
    """What another process would see."""
    return Sealer(sealer.keys.store, sealer.keys.folder, durable=False)


def key_files(sealer: Sealer) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(sealer.keys.folder).glob("*.key")}


def copied(sealer: Sealer, to: Path) -> Sealer:
    """Somebody's copy of store and keys, as they are now."""
    shutil.copytree(sealer.keys.store, to / "store")
    shutil.copytree(sealer.keys.folder, to / "keys")
    return Sealer(str(to / "store"), str(to / "keys"), durable=False)


def put_back(folder: Path, sealer: Sealer) -> None:
    shutil.copytree(folder, sealer.keys.folder, dirs_exist_ok=True)


def set_of(sealed: bytes) -> bytes:
    return sealed[5:13]


# What a rotation does


def test_an_old_copy_of_key_and_store_does_not_open_what_is_sealed_after_a_rotation(
    sealer: Sealer, tmp_path: Path
) -> None:
    old = sealer.seal(b"old")
    thief = copied(sealer, tmp_path / "thief")

    sealer.keys.rotate()
    new = sealer.seal(b"new")

    assert thief.open(old) == b"old"
    with pytest.raises(WrongKey):
        thief.open(new)
    assert [again(sealer).open(one) for one in (old, new)] == [b"old", b"new"]


def test_an_old_key_file_alone_opens_nothing_of_a_store_that_was_rotated(sealer: Sealer, tmp_path: Path) -> None:
    old = sealer.seal(b"old")
    before = key_files(sealer)

    sealer.keys.rotate()

    assert not set(before) & set(key_files(sealer))
    (tmp_path / "thief").mkdir()
    for name, text in before.items():
        (tmp_path / "thief" / name).write_bytes(text)
    with pytest.raises(WrongKey):
        Sealer(sealer.keys.store, str(tmp_path / "thief"), durable=False).open(old)


def test_a_rotation_counts_for_processes_that_have_their_keys_already(sealer: Sealer) -> None:
    old, other = sealer.seal(b"old"), again(sealer)
    other.open(old)

    sealer.keys.rotate()
    new = other.seal(b"new")

    assert set_of(new) == set_of(sealer.seal(b"newest")) != set_of(old)
    again(sealer).keys.rotate()
    newest = again(sealer).seal(b"newest")
    assert other.open(newest) == b"newest"


def test_every_key_file_has_a_name_that_no_other_ever_had(sealer: Sealer) -> None:
    had: dict[str, bytes] = {}

    def look() -> None:
        for name, text in key_files(sealer).items():
            assert had.setdefault(name, text) == text

    sealer.seal(b"first")
    backup = sealer.keys.backup(STRONG)
    look()
    sealer.keys.rotate()
    look()
    for path in Path(sealer.keys.folder).glob("*.key"):
        path.unlink()
    again(sealer).keys.import_backup(backup, STRONG)
    look()
    shutil.rmtree(sealer.keys.folder)
    again(sealer).seal(b"second")
    look()
    shutil.rmtree(sealer.keys.folder)
    again(sealer).keys.import_backup(backup, STRONG)
    look()
    again(sealer).keys.rotate()
    look()
    assert len(had) >= 5


# Old folders


def test_an_old_folder_put_back_over_the_new_one_closes_nothing(sealer: Sealer, tmp_path: Path) -> None:
    contents = [sealer.seal(b"0")]
    for number in range(3):
        shutil.copytree(sealer.keys.folder, tmp_path / f"old{number}")
        sealer.keys.rotate()
        contents.append(sealer.seal(b"%d" % (number + 1)))

    for number in (2, 0, 1):
        put_back(tmp_path / f"old{number}", sealer)
        assert [again(sealer).open(one) for one in contents] == [b"0", b"1", b"2", b"3"]
        assert set_of(again(sealer).seal(b"new")) == set_of(contents[-1])
        os.rename(sealer.keys.seal_file, tmp_path / "seal")
        assert [again(sealer).open(one) for one in contents] == [b"0", b"1", b"2", b"3"]
        os.rename(tmp_path / "seal", sealer.keys.seal_file)
    (tmp_path / "thief").mkdir()
    for path in (tmp_path / "old0").glob("*.key"):
        shutil.copy(path, tmp_path / "thief")
    with pytest.raises(WrongKey):  # the store does not learn from an old copy what was let go
        Sealer(sealer.keys.store, str(tmp_path / "thief"), durable=False).open(contents[0])


def test_an_old_folder_in_place_of_the_new_one_opens_what_it_opened_and_seals_nothing_with_old_keys(
    sealer: Sealer, tmp_path: Path
) -> None:
    old = sealer.seal(b"old")
    shutil.copytree(sealer.keys.folder, tmp_path / "old")
    sealer.keys.rotate()
    new = sealer.seal(b"new")
    os.rename(sealer.keys.folder, tmp_path / "newer")
    shutil.copytree(tmp_path / "old", sealer.keys.folder)

    now = again(sealer)
    assert now.open(old) == b"old"
    with pytest.raises(WrongKey):
        now.open(new)
    newest = now.seal(b"newest")

    assert now.keys.made_new_key
    assert set_of(newest) not in (set_of(old), set_of(new))
    assert again(sealer).open(newest) == b"newest" and again(sealer).open(old) == b"old"
    put_back(tmp_path / "newer", sealer)
    assert [again(sealer).open(one) for one in (old, new, newest)] == [b"old", b"new", b"newest"]


def test_an_old_store_put_back_opens_with_the_keys_of_today_and_is_not_sealed_to_with_old_ones(sealer: Sealer) -> None:
    old, before = sealer.seal(b"old"), Path(sealer.keys.seal_file).read_bytes()
    sealer.keys.rotate()
    new = sealer.seal(b"new")

    Path(sealer.keys.seal_file).write_bytes(before)

    assert [again(sealer).open(one) for one in (old, new)] == [b"old", b"new"]
    assert set_of(again(sealer).seal(b"newest")) == set_of(new)
    shutil.copytree(sealer.keys.folder, sealer.keys.folder + "-kept")
    for path in Path(sealer.keys.folder).glob("*.seal"):
        path.unlink()
    assert [again(sealer).open(one) for one in (old, new)] == [b"old", b"new"]  # the store's part knows all again


def test_a_lost_new_key_is_replaced_and_when_it_comes_back_everything_opens(sealer: Sealer, tmp_path: Path) -> None:
    old = sealer.seal(b"old")
    sealer.keys.rotate()
    new = sealer.seal(b"new")
    lost = key_files(sealer)
    for name in lost:
        os.unlink(f"{sealer.keys.folder}/{name}")

    newest = again(sealer).seal(b"newest")

    with pytest.raises(WrongKey):
        again(sealer).open(new)
    for name, text in lost.items():
        Path(sealer.keys.folder, name).write_bytes(text)
    assert [again(sealer).open(one) for one in (old, new, newest)] == [b"old", b"new", b"newest"]


def test_a_backup_from_before_a_rotation_opens_what_it_knew_and_seals_nothing(sealer: Sealer) -> None:
    old, backup = sealer.seal(b"old"), sealer.keys.backup(STRONG)
    sealer.keys.rotate()
    new, later = sealer.seal(b"new"), sealer.keys.backup(STRONG)
    shutil.rmtree(sealer.keys.folder)

    assert again(sealer).keys.import_backup(backup, STRONG) == 1
    assert again(sealer).open(old) == b"old"
    assert set_of(again(sealer).seal(b"newest")) not in (set_of(old), set_of(new))
    assert again(sealer).keys.import_backup(later, STRONG) == 1
    assert [again(sealer).open(one) for one in (old, new)] == [b"old", b"new"]


def test_a_backup_of_the_keys_in_use_brings_them_back_into_use(sealer: Sealer) -> None:
    sealer.seal(b"old")
    sealer.keys.rotate()
    new, backup = sealer.seal(b"new"), sealer.keys.backup(STRONG)
    shutil.rmtree(sealer.keys.folder)

    assert again(sealer).keys.import_backup(backup, STRONG) == 2

    assert again(sealer).seal(b"new") == new


def test_keys_that_came_with_a_bundle_open_and_never_seal(sealer: Sealer, tmp_path: Path) -> None:
    create_store(str(tmp_path / "there/store"), durable=False).close()
    other = Sealer(str(tmp_path / "there/store"), str(tmp_path / "there/keys"), durable=False)
    theirs = sealer.seal(b"theirs")

    other.keys.import_backup(sealer.keys.backup(STRONG), STRONG)
    ours = again(other).seal(b"ours")

    assert again(other).open(theirs) == b"theirs"
    with pytest.raises(WrongKey):
        again(sealer).open(ours)
    assert len(key_files(other)) == 1
    shutil.rmtree(other.keys.folder)  # also where they are the only ones left
    again(other).keys.import_backup(sealer.keys.backup(STRONG), STRONG)
    assert set_of(again(other).seal(b"ours")) not in (set_of(ours), set_of(theirs))


# Cut off, refused, at once


def count_steps(sealer: Sealer, monkeypatch: pytest.MonkeyPatch) -> int:
    seen: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(steps, "observer", seen.append)
        sealer.keys.rotate()
    return len(seen)


class Killed(BaseException):
    pass


def test_a_rotation_that_is_killed_anywhere_leaves_everything_open(
    sealer: Sealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {sealer.seal(b"first"): b"first"}
    number = count_steps(sealer, monkeypatch)
    assert number >= 6
    for at in range(number):
        passed: list[str] = []

        def kill(name: str, passed: list[str] = passed, last: int = at) -> None:
            passed.append(name)
            if len(passed) > last:
                raise Killed

        current = again(sealer).keys.seals_with()
        with monkeypatch.context() as patch:
            patch.setattr(steps, "observer", kill)
            with pytest.raises(Killed):
                again(sealer).keys.rotate()
        for sealed, content in contents.items():
            assert again(sealer).open(sealed) == content
        new = again(sealer).seal(b"after %d" % at)
        contents[new] = b"after %d" % at
        assert (set_of(new).hex() == current) == (passed == ["key:made"])
        os.rename(sealer.keys.seal_file, sealer.keys.seal_file + "-away")
        assert again(sealer).open(new) == contents[new]  # by the copy
        os.rename(sealer.keys.seal_file + "-away", sealer.keys.seal_file)
        shutil.copytree(sealer.keys.folder, sealer.keys.folder + "-kept")
        for path in Path(sealer.keys.folder).glob("*.seal"):
            path.unlink()
        assert again(sealer).open(new) == contents[new]  # by the store's part
        shutil.rmtree(sealer.keys.folder)
        os.rename(sealer.keys.folder + "-kept", sealer.keys.folder)
    again(sealer).keys.rotate()
    for sealed, content in contents.items():
        assert again(sealer).open(sealed) == content


@pytest.mark.parametrize("at", range(2))
@pytest.mark.parametrize("deed", ["seal", "admit"])
def test_keys_that_are_made_or_taken_over_and_cut_off_close_nothing(
    sealer: Sealer, monkeypatch: pytest.MonkeyPatch, deed: str, at: int
) -> None:
    old, backup = sealer.seal(b"old"), sealer.keys.backup(STRONG)
    shutil.rmtree(sealer.keys.folder)
    passed: list[str] = []

    def kill(name: str) -> None:
        passed.append(name)
        if len(passed) > at:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(steps, "observer", kill)
        with pytest.raises(Killed):
            again(sealer).seal(b"x") if deed == "seal" else again(sealer).keys.import_backup(backup, STRONG)
    new = again(sealer).seal(b"new")

    again(sealer).keys.import_backup(backup, STRONG)
    assert [again(sealer).open(one) for one in (old, new)] == [b"old", b"new"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("at", range(5))
def test_a_rotation_on_a_full_or_closed_disk_is_refused_and_everything_opens(
    sealer: Sealer, monkeypatch: pytest.MonkeyPatch, at: int, code: int
) -> None:
    old, before = sealer.seal(b"old"), key_files(sealer)
    calls: list[str] = []
    really = durable.replace

    def replace(path: str, *given: Any) -> None:
        calls.append(path)
        if len(calls) > at:
            raise OSError(code, os.strerror(code), path)
        really(path, *given)

    monkeypatch.setattr("keepfast.store.keys.replace", replace)
    with pytest.raises(KeepfastError):
        again(sealer).keys.rotate()
    monkeypatch.undo()

    new = again(sealer).seal(b"new")
    assert [again(sealer).open(one) for one in (old, new)] == [b"old", b"new"]
    if at < 3:  # nothing was put into force
        assert key_files(sealer) == before
        assert set_of(new) == set_of(old)
        assert len(again(sealer).keys.sets()) == 1
    else:
        assert set_of(new) != set_of(old)
    again(sealer).keys.rotate()
    assert [again(sealer).open(one) for one in (old, new)] == [b"old", b"new"]
    assert not set(before) & set(key_files(sealer))


def test_a_store_that_cannot_be_written_keeps_its_keys(sealer: Sealer) -> None:
    old, before = sealer.seal(b"old"), key_files(sealer)
    os.rename(sealer.keys.store + "/tmp", sealer.keys.store + "/gone")

    with pytest.raises(KeepfastError):
        again(sealer).keys.rotate()

    assert key_files(sealer) == before
    assert again(sealer).open(old) == b"old"


def _repeat(store: str, folder: str, number: int, rotating: bool, results: Any) -> None:
    sealer = Sealer(store, folder, durable=False)
    made = []
    for at in range(number):
        if rotating:
            sealer.keys.rotate()
        made.append(sealer.seal(b"%d %d" % (os.getpid(), at)))
    results.put(made)


def _open_often(store: str, folder: str, sealed: bytes, number: int, results: Any) -> None:
    results.put([Sealer(store, folder, durable=False).opens(sealed) for _ in range(number)])


def test_whoever_looks_for_keys_during_a_rotation_finds_them(sealer: Sealer) -> None:
    old, forking = sealer.seal(b"old"), multiprocessing.get_context("fork")
    results = forking.Queue()
    looking = forking.Process(target=_open_often, args=(sealer.keys.store, sealer.keys.folder, old, 100, results))
    looking.start()
    while looking.is_alive() and results.empty():
        sealer.keys.rotate()

    assert results.get(timeout=60) == [True] * 100
    looking.join()


def test_keys_that_are_rotated_between_two_reads_are_read_again(
    sealer: Sealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed, reading = sealer.seal(b"old"), again(sealer)
    really, waiting = Keys._own_files, [again(sealer).keys.rotate]

    def own(this: Keys, ending: str) -> list[str]:
        if this is reading.keys and ending == ".key" and waiting:
            waiting.pop()()  # what the store says was read before, which keys there are is read after
        return really(this, ending)

    monkeypatch.setattr(Keys, "_own_files", own)

    assert reading.open(sealed) == b"old"
    assert not waiting


def at_once(sealers: list[tuple[Sealer, bool]], number: int) -> list[list[bytes]]:
    forking = multiprocessing.get_context("fork")
    results = forking.Queue()
    running = [
        forking.Process(target=_repeat, args=(one.keys.store, one.keys.folder, number, rotating, results))
        for one, rotating in sealers
    ]
    for process in running:
        process.start()
    made = [results.get(timeout=60) for _ in running]
    for process in running:
        process.join()
    return made


def test_processes_that_rotate_and_seal_at_once_close_nothing(sealer: Sealer) -> None:
    old = sealer.seal(b"old")

    made = at_once([(sealer, True), (sealer, True), (sealer, False)], 8)

    now = again(sealer)
    assert now.open(old) == b"old"
    for one in [one for several in made for one in several]:
        assert now.open(one)
    assert len(now.keys.sets()) == 17
    assert len(key_files(sealer)) == 1


def test_two_homes_on_one_store_lose_none_of_their_sets(sealer: Sealer, tmp_path: Path) -> None:
    other = Sealer(sealer.keys.store, str(tmp_path / "other"), durable=False)

    made = at_once([(sealer, False), (other, False)], 1)

    sets = dict(again(sealer).keys.sets())
    assert {set_of(one).hex() for several in made for one in several} == set(sets)
    assert sorted(sets.values()) == [False, True]
    sealer.keys.rotate()
    assert again(other).open(next(one for [one] in made if again(other).opens(one)))


@pytest.mark.parametrize("deed", ["seal", "admit", "rotate"])
def test_while_one_home_writes_keys_the_others_wait(
    sealer: Sealer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deed: str
) -> None:
    other = Sealer(sealer.keys.store, str(tmp_path / "other"), durable=False)
    other.seal(b"theirs")
    backup = other.keys.backup(STRONG)
    if deed != "seal":
        sealer.seal(b"ours")
    free: list[bool] = []

    def try_both(_: str) -> None:
        for path in (sealer.keys.store + "/seal.lock", sealer.keys.folder + "/lock"):
            lock = durable.Lock(path)
            free.append(lock.try_now())
            if free[-1]:
                lock.__exit__(None, None, None)

    monkeypatch.setattr(steps, "observer", try_both)
    {
        "seal": lambda: sealer.seal(b"x"),
        "admit": lambda: sealer.keys.import_backup(backup, STRONG),
        "rotate": sealer.keys.rotate,
    }[deed]()

    assert free and not any(free)


def test_two_homes_that_share_their_keys_seal_with_the_same(sealer: Sealer, tmp_path: Path) -> None:
    other = Sealer(sealer.keys.store, str(tmp_path / "other"), durable=False)
    first = sealer.seal(b"same")
    apart = other.seal(b"same")

    other.keys.import_backup(sealer.keys.backup(STRONG), STRONG)

    assert apart != first
    assert again(other).seal(b"same") == first == again(sealer).seal(b"same")
    assert again(other).open(apart) == b"same"


# Contents that were sealed before


class Kept:
    """What a store would keep."""

    def __init__(self) -> None:
        self.blobs: dict[bytes, bytes] = {}
        self.new = 0

    def keep(self, key: bytes, data: bytes, is_list: bool) -> None:
        self.new += 0 if key in self.blobs else len(data)
        self.blobs[key] = data

    def seal(self, sealer: Sealer, content: bytes) -> bytes:
        self.new = 0
        return sealer.seal_stream(io.BytesIO(content).read, self.keep, self.blobs.__contains__)


@pytest.mark.parametrize("content", [b"", b"small", os.urandom(PART), os.urandom(2 * PART + 7)])
def test_an_unchanged_content_keeps_its_id_after_rotations(sealer: Sealer, content: bytes) -> None:
    kept = Kept()
    found = kept.seal(sealer, content)
    for _ in range(3):
        sealer.keys.rotate()

        assert kept.seal(sealer, content) == found
        assert kept.new == 0
        assert sealer.ids_of(io.BytesIO(content).read, kept.blobs.__contains__)[0] == found
        assert found in again(sealer).ids_of(io.BytesIO(content).read)


@pytest.mark.parametrize("content", [b"small", os.urandom(PART + 7)])
def test_a_content_that_is_there_under_old_and_new_keys_goes_by_the_new_ones(sealer: Sealer, content: bytes) -> None:
    """So it is after a bundle from before a rotation was imported."""
    kept, later = Kept(), Kept()
    old = kept.seal(sealer, content)
    sealer.keys.rotate()
    new = later.seal(sealer, content)
    kept.blobs.update(later.blobs)

    assert new != old
    assert kept.seal(sealer, content) == new
    assert kept.new == 0
    found = sealer.ids_of(io.BytesIO(content).read, kept.blobs.__contains__)
    assert found[0] == new and old in found


def test_of_a_changed_content_only_what_is_new_is_sealed_anew_and_with_the_new_keys(sealer: Sealer) -> None:
    kept, content = Kept(), os.urandom(3 * PART)
    kept.seal(sealer, content)
    old = set_of(sealer.seal(b""))
    sealer.keys.rotate()

    changed = content[: 2 * PART] + os.urandom(PART)
    found = kept.seal(sealer, changed)

    ids = [kept.blobs[found][at : at + 32] for at in range(0, len(kept.blobs[found]), 32)]
    assert [set_of(kept.blobs[one]) == old for one in ids] == [True, True, False]
    assert b"".join(again(sealer).open(kept.blobs[one]) for one in ids) == changed
    assert sealer.ids_of(io.BytesIO(changed).read, kept.blobs.__contains__)[0] == found
    assert all(digest(data) == key for key, data in kept.blobs.items())


def test_values_with_a_name_open_after_rotations(sealer: Sealer) -> None:
    text = sealer.seal_value("TOKEN", b"value")

    sealer.keys.rotate()

    assert again(sealer).open_value("TOKEN", text) == b"value"


def test_where_no_key_is_at_hand_there_is_none_to_rotate(sealer: Sealer) -> None:
    sealer.seal(b"old")
    shutil.rmtree(sealer.keys.folder)

    with pytest.raises(Failed):
        again(sealer).keys.rotate()


def test_every_rotation_leaves_one_key_file_and_one_copy(sealer: Sealer) -> None:
    sealer.seal(b"old")
    for _ in range(3):
        again(sealer).keys.rotate()
    kinds: Callable[[str], int] = lambda ending: len(list(Path(sealer.keys.folder).glob("*" + ending)))  # noqa: E731

    assert (kinds(".key"), kinds(".seal")) == (1, 1)
    assert not list(Path(sealer.keys.store, "tmp").iterdir())
