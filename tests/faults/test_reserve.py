"""The reserve itself: how large it is, who may use it, and that it is whole again afterwards."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from keepfast.model.errors import DiskFull, Failed
from keepfast.store import reserve
from keepfast.store.reserve import (
    MAX_RESERVE_BYTES,
    RESERVE_STEP_BYTES,
    ensure_reserve,
    reserve_size,
    try_ensure_reserve,
    with_reserve,
)

from .disks import needs, tmpfs


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    (tmp_path / "store/format").write_text("1\n")
    return tmp_path / "store"


def size(store: Path) -> int:
    return (store / "reserve").stat().st_size


def with_ledger(store: Path, length: int) -> str:
    with open(store / "ledger.db", "wb") as file:
        file.truncate(length)
    return str(store)


@contextmanager
def somebody_else(store: Path) -> Iterator[None]:
    with open(store / "format") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_it_is_as_large_as_the_ledger_and_more(store: Path) -> None:
    assert reserve_size(str(store)) == RESERVE_STEP_BYTES
    for length, parts in (
        (1, 2),
        (RESERVE_STEP_BYTES, 2),
        (RESERVE_STEP_BYTES + 1, 3),
        (1 << 40, MAX_RESERVE_BYTES // RESERVE_STEP_BYTES),
    ):
        assert reserve_size(with_ledger(store, length)) == parts * RESERVE_STEP_BYTES


def test_it_grows_with_the_ledger_and_is_really_there(store: Path) -> None:
    ensure_reserve(str(store))
    assert size(store) == RESERVE_STEP_BYTES
    ensure_reserve(with_ledger(store, RESERVE_STEP_BYTES))
    assert size(store) == 2 * RESERVE_STEP_BYTES
    assert (store / "reserve").stat().st_blocks * 512 >= 2 * RESERVE_STEP_BYTES
    ensure_reserve(with_ledger(store, 0))
    assert size(store) == 2 * RESERVE_STEP_BYTES


def test_while_somebody_uses_it_nobody_makes_one(store: Path) -> None:
    with somebody_else(store):
        with pytest.raises(DiskFull):
            ensure_reserve(str(store))
        try_ensure_reserve(str(store))
        assert not (store / "reserve").exists()
    ensure_reserve(str(store))
    with somebody_else(store):
        ensure_reserve(str(store))  # there is nothing to do


def test_while_somebody_uses_it_nobody_else_does(store: Path) -> None:
    ensure_reserve(str(store))
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        raise OSError(28, "No space left on device")

    with somebody_else(store), pytest.raises(DiskFull):
        with_reserve(str(store), "Testing", work)

    assert calls == 1
    assert size(store) == RESERVE_STEP_BYTES


@pytest.mark.parametrize(
    "error", [DiskFull("full"), OSError(28, "No space left on device"), OSError(122, "Disk quota")]
)
@pytest.mark.parametrize("again", [True, False])
def test_with_it_what_a_full_disk_stopped_is_done_once_more(store: Path, error: Exception, again: bool) -> None:
    ensure_reserve(str(store))
    for name in ("search.db", "search.db-journal", "ledger.db"):
        (store / name).touch()
    seen: list[set[str]] = []

    def work() -> str:
        seen.append({path.name for path in store.iterdir()})
        if len(seen) == 1 or again:
            raise error
        return "done"

    if again:
        with pytest.raises(DiskFull):
            with_reserve(str(store), "Testing", work)
    else:
        assert with_reserve(str(store), "Testing", work) == "done"
    assert seen == [{"format", "ledger.db", "reserve", "search.db", "search.db-journal"}, {"format", "ledger.db"}]
    assert size(store) == RESERVE_STEP_BYTES


@pytest.mark.parametrize(("error", "told"), [(OSError(5, "Input/output error"), Failed), (Failed("no"), Failed)])
def test_other_errors_do_not_use_it_up(store: Path, error: Exception, told: type[Exception]) -> None:
    ensure_reserve(str(store))
    (store / "search.db").touch()
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        raise error

    with pytest.raises(told):
        with_reserve(str(store), "Testing", work)

    assert calls == 1
    assert size(store) == RESERVE_STEP_BYTES
    assert (store / "search.db").exists()


def test_a_store_without_a_folder_has_none() -> None:
    calls = 0

    def work() -> None:
        nonlocal calls
        calls += 1
        raise DiskFull("full")

    with pytest.raises(DiskFull):
        with_reserve("", "Testing", work)
    assert calls == 1


def test_a_link_in_its_place_makes_no_file_elsewhere(store: Path, tmp_path: Path) -> None:
    (store / "reserve").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(Failed):
        ensure_reserve(str(store))
    assert not (tmp_path / "elsewhere").exists()


@needs("mount")
@pytest.mark.parametrize("by_system", [True, False])
def test_where_there_is_no_room_for_all_of_it_nothing_of_it_stays_taken(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_system: bool
) -> None:
    """`by_system` not: as where the system cannot allocate at once, and zeros are written."""
    if not by_system:
        monkeypatch.setattr(reserve, "posix_fallocate", None)
    with tmpfs(tmp_path / "disk", "size=2560k") as disk:
        (disk / "format").touch()
        (disk / "ledger.db").write_bytes(bytes(RESERVE_STEP_BYTES))
        free = os.statvfs(disk).f_bfree

        with pytest.raises(DiskFull):
            ensure_reserve(str(disk))

        assert size(disk) == 0
        assert os.statvfs(disk).f_bfree == free
        try_ensure_reserve(str(disk))
        assert size(disk) == 0

        calls = iter([DiskFull("full"), None])

        def work() -> None:
            error = next(calls)
            if error is not None:
                raise error

        with_reserve(str(disk), "Testing", work)
        assert size(disk) == RESERVE_STEP_BYTES, "a part is better than nothing"
