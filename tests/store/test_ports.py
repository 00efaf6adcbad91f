"""What each port promises, asked of every implementation of it."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from errno import EIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from keepfast.model.entry import SEALED, Entry, gone
from keepfast.model.errors import Damaged, Failed, KeepfastError
from keepfast.store.ledger import sqlite_file
from keepfast.store.ledger.sqlite import ROWS_PER_PAGE, SqliteLedger
from keepfast.store.local import LocalBlobs, LocalRecords
from keepfast.store.ports import Blobs, Ledger, Records, Transaction
from keepfast.store.rows import CheckpointRow, Location, PackRow, Query, WorkspaceRow
from tests.store.memory_store import MemoryBlobs, MemoryLedger, MemoryRecords

KOREAN = "문서/보고서.txt".encode()
EUC_KR = "옛 글.txt".encode("euc-kr")


# -- Blobs


@pytest.fixture(params=["local", "memory"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    if request.param == "memory":
        return MemoryBlobs()
    return local_blobs(tmp_path)


def local_blobs(folder: Path) -> LocalBlobs:
    (folder / "packs").mkdir()
    (folder / "tmp").mkdir()
    return LocalBlobs(str(folder))


def put(blobs: Blobs, name: str, *parts: bytes) -> None:
    upload = blobs.create()
    for part in parts:
        upload.write(part)
    upload.sync()
    upload.finish(name)


def test_an_object_holds_what_was_written_in_order(blobs: Blobs) -> None:
    put(blobs, "aa", b"one", b"", b"two", b"\0\xff")

    assert blobs.read("aa", 0, 8) == b"onetwo\0\xff"
    assert blobs.size("aa") == 8


def test_nobody_sees_an_object_before_it_has_its_name(blobs: Blobs) -> None:
    upload = blobs.create()
    upload.write(b"data")
    upload.sync()

    assert blobs.names() == []
    with pytest.raises(FileNotFoundError):
        blobs.read("aa", 0, 1)

    upload.finish("aa")

    assert blobs.names() == ["aa"]


def test_an_aborted_object_leaves_nothing(blobs: Blobs) -> None:
    upload = blobs.create()
    upload.write(b"data")
    upload.abort()
    upload.abort()

    assert blobs.names() == []
    assert blobs.sweep() == 0


def test_abort_after_finish_takes_nothing_back(blobs: Blobs) -> None:
    upload = blobs.create()
    upload.write(b"data")
    upload.sync()
    upload.finish("aa")
    upload.abort()

    assert blobs.read("aa", 0, 4) == b"data"


def test_a_buffer_may_be_used_again_after_it_was_written(blobs: Blobs) -> None:
    upload = blobs.create()
    buffer = bytearray(b"data")
    upload.write(buffer)  # type: ignore[arg-type]
    buffer[:] = b"junk"
    upload.sync()
    upload.finish("aa")

    assert blobs.read("aa", 0, 4) == b"data"


@pytest.mark.parametrize(("offset", "length"), [(0, 0), (0, 1), (3, 4), (9, 1), (0, 10), (10, 0)])
def test_a_read_gives_exactly_the_bytes_asked_for(blobs: Blobs, offset: int, length: int) -> None:
    put(blobs, "aa", b"0123456789")

    assert blobs.read("aa", offset, length) == b"0123456789"[offset : offset + length]


@pytest.mark.parametrize(
    ("offset", "length"), [(0, 11), (9, 2), (10, 1), (1 << 40, 1), (0, 1 << 50), (1, 1 << 80), (1 << 80, 1)]
)
def test_a_read_past_the_end_is_an_eof_error_and_asks_for_no_memory(blobs: Blobs, offset: int, length: int) -> None:
    put(blobs, "aa", b"0123456789")

    with pytest.raises(EOFError):
        blobs.read("aa", offset, length)


def test_a_missing_object_is_a_file_not_found_error(blobs: Blobs) -> None:
    with pytest.raises(FileNotFoundError):
        blobs.read("aa", 0, 0)
    with pytest.raises(FileNotFoundError):
        blobs.size("aa")


def test_reads_of_several_objects_do_not_mix(blobs: Blobs) -> None:
    put(blobs, "aa", b"first")
    put(blobs, "bb", b"second")

    assert [blobs.read(name, 0, 5) for name in ("aa", "bb", "aa", "bb")] == [b"first", b"secon"] * 2
    with pytest.raises(FileNotFoundError):
        blobs.read("cc", 0, 1)
    assert blobs.read("bb", 0, 6) == b"second"


def test_names_are_sorted_and_only_finished_ones(blobs: Blobs) -> None:
    for name in ("cc", "aa", "bb"):
        put(blobs, name, b"x")
    blobs.create().write(b"y")

    assert blobs.names() == ["aa", "bb", "cc"]


def test_delete_is_done_once_and_no_error_twice(blobs: Blobs) -> None:
    put(blobs, "aa", b"data")
    put(blobs, "bb", b"data")
    blobs.read("aa", 0, 4)
    blobs.delete("aa")
    blobs.delete("aa")
    blobs.delete("never")

    assert blobs.names() == ["bb"]
    with pytest.raises(FileNotFoundError):
        blobs.read("aa", 0, 4)


def test_a_name_that_was_deleted_and_given_again_means_the_new_object(blobs: Blobs) -> None:
    put(blobs, "aa", b"old!")
    blobs.read("aa", 0, 4)
    blobs.delete("aa")
    put(blobs, "aa", b"newer")

    assert blobs.read("aa", 0, 5) == b"newer"


def test_sweep_spares_what_is_being_written(blobs: Blobs) -> None:
    upload = blobs.create()
    upload.write(b"data")

    assert blobs.sweep() == 0

    upload.sync()
    upload.finish("aa")

    assert blobs.read("aa", 0, 4) == b"data"


WRITER = """
import sys
from keepfast.store.local import LocalBlobs
upload = LocalBlobs(sys.argv[1]).create()
upload.write(b"half")
print("writing", flush=True)
sys.stdin.read()
"""


def test_sweep_removes_the_files_of_dead_writers_only(tmp_path: Path) -> None:
    """A writer is dead when the kernel has let go of its lock, however it ended."""
    blobs = local_blobs(tmp_path)
    living = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with living:
        assert living.stdout is not None
        assert living.stdout.readline() == "writing\n"
        (tmp_path / "tmp" / "left behind").write_bytes(b"by a power cut")

        assert blobs.sweep() == 1
        assert len(list((tmp_path / "tmp").iterdir())) == 1

        living.kill()
    assert blobs.sweep() == 1
    assert list((tmp_path / "tmp").iterdir()) == []


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    put(local_blobs(tmp_path), "aa", b"x")

    assert (tmp_path / "packs" / "aa.pack").stat().st_mode & 0o777 == 0o600


# -- Records


@pytest.fixture(params=["local", "memory"])
def records(request: pytest.FixtureRequest, tmp_path: Path) -> Records:
    if request.param == "memory":
        return MemoryRecords()
    (tmp_path / "log").mkdir()
    return LocalRecords(str(tmp_path))


def test_lines_follow_one_another(records: Records) -> None:
    records.append("ws", b"one\n")
    records.append("ws", b"two\nthree\n")

    assert records.read("ws") == b"one\ntwo\nthree\n"
    assert records.size("ws") == 14


def test_a_log_nobody_wrote_is_empty(records: Records) -> None:
    assert records.read("ws") == b""
    assert records.size("ws") == 0
    assert records.logs() == []


def test_logs_are_apart_and_listed_in_order(records: Records) -> None:
    records.append("b", b"1\n")
    records.append("a", b"2\n")

    assert records.logs() == ["a", "b"]
    assert (records.read("a"), records.read("b")) == (b"2\n", b"1\n")


def test_truncate_cuts_the_end_off_and_the_next_line_follows_there(records: Records) -> None:
    records.append("ws", b"one\ntw")
    records.truncate("ws", 4)

    assert records.read("ws") == b"one\n"

    records.append("ws", b"three\n")

    assert records.read("ws") == b"one\nthree\n"
    assert records.size("ws") == 10


def test_truncate_to_nothing_leaves_an_empty_log(records: Records) -> None:
    records.append("ws", b"one\n")
    records.truncate("ws", 0)

    assert records.read("ws") == b""
    assert records.size("ws") == 0


def test_a_log_is_removed_once_and_no_error_twice(records: Records) -> None:
    records.append("one", b"1\n")
    records.append("two", b"2\n")
    records.remove("one")
    records.remove("one")

    assert (records.logs(), records.size("one"), records.read("two")) == (["two"], 0, b"2\n")


def test_truncate_of_no_log_is_an_error_of_the_system(records: Records) -> None:
    with pytest.raises(OSError):
        records.truncate("ws", 0)


# -- Ledger


class Ledgers:
    """One implementation; `again` is what another process would open."""

    def __init__(self, again: Callable[[], Ledger]) -> None:
        self.again = again
        self.ledger = again()


def sqlite_ledger(folder: Path | str) -> Callable[[], SqliteLedger]:
    path, lock = f"{folder}/ledger.db", f"{folder}/lock"
    SqliteLedger(path, lock, durable=False, create=True)
    return lambda: SqliteLedger(path, lock, durable=False)


@pytest.mark.parametrize(("refuses", "kind"), [(True, Failed), (False, Damaged)])
def test_a_read_error_of_the_disk_is_not_called_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: bool, kind: type[KeepfastError]
) -> None:
    """SQLite says that the file is malformed in both cases."""
    ledger = sqlite_ledger(tmp_path)()
    head = bytearray((tmp_path / "ledger.db").read_bytes())
    head[100:4096] = b"\xff" * (len(head[100:4096]))
    (tmp_path / "ledger.db").write_bytes(head)

    def read(fd: int, size: int) -> bytes:
        raise OSError(EIO, "Input/output error")

    if refuses:
        monkeypatch.setattr(sqlite_file, "read", read, raising=False)

    with pytest.raises(KeepfastError) as caught:
        ledger.workspaces()

    assert type(caught.value) is kind
    assert str(tmp_path / "ledger.db") in str(caught.value)
    ledger.close()


@pytest.fixture(params=["sqlite", "memory"])
def ledgers(request: pytest.FixtureRequest, tmp_path: Path) -> Ledgers:
    if request.param == "sqlite":
        return Ledgers(sqlite_ledger(tmp_path))
    only = MemoryLedger()
    return Ledgers(lambda: only)


@pytest.fixture
def ledger(ledgers: Ledgers) -> Ledger:
    return ledgers.ledger


def workspace(name: str = "ws", **fields: Any) -> WorkspaceRow:
    row = WorkspaceRow(name, b"/w/" + name.encode(), 1, "", 0, b"", 0, bytes(32), 0, "0" * 64, "{}")
    return row._replace(**fields)


def checkpoint(version: int, name: str = "ws", **fields: Any) -> CheckpointRow:
    row = CheckpointRow(
        name, version, f"cp-{name}-{version}", bytes([version]) * 32, version, 100 * version, "manual", "user", "", "",
        "", "", "", 0, 0, 1, 1, 1, 1, "0" * 64,
    )  # fmt: skip
    return row._replace(**fields)


def file(path: bytes, content: int = 1, size: int = 10, **fields: Any) -> Entry:
    return Entry(path, "f", 0o644, 0, size, 5, 0, bytes([content]) * 32, b"")._replace(**fields)


def folder(path: bytes) -> Entry:
    return Entry(path, "d", 0o755, 0, 4096, 0, 0, b"", b"")


def link(path: bytes, target: bytes) -> Entry:
    return Entry(path, "l", 0o777, 0, len(target), 0, 0, target, b"")


def place(pack: str, offset: int = 0, kind: int = 0) -> Location:
    return Location(pack, 8, 100, offset, 10, kind)


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def add_workspaces(ledger: Ledger, *names: str) -> None:
    with ledger.transaction() as tx:
        for name in names or ("ws",):
            tx.add_workspace(workspace(name))


def save(ledger: Ledger, version: int, rows: Iterable[Entry] = (), name: str = "ws", **fields: Any) -> None:
    with ledger.transaction() as tx:
        tx.apply(name, version, rows)
        tx.add_checkpoint(checkpoint(version, name, **fields))


def versions(ledger: Ledger, **query: Any) -> list[int]:
    return [row.version for row in ledger.find(Query(**query))]


# Transactions


def everything(ledger: Ledger) -> list[Any]:
    names = [row.id for row in ledger.workspaces()]
    return [
        ledger.workspaces(),
        ledger.find(Query(forgotten=True)),
        ledger.find(Query(tag="red", forgotten=True)),
        [list(ledger.intervals(name)) for name in names],
        list(ledger.locations()),
        ledger.packs(),
        ledger.needed_contents(),
        ledger.meta("seq"),
    ]


def fill(tx: Transaction) -> None:
    tx.add_workspace(workspace("new"))
    tx.update_workspace(workspace("ws", version=9))
    tx.add_pack("bb", 7, [(key(2), place("bb"))])
    tx.drop_packs(["aa"], [])
    tx.add_checkpoint(checkpoint(2, tags="red"))
    tx.update_checkpoint(checkpoint(1, message="changed", forgotten=1))
    tx.apply("ws", 2, [file(b"a", 2), gone(b"b")])
    tx.drop_intervals("ws", 0, 3)
    tx.set_meta("seq", "2")


def prepared(ledger: Ledger) -> list[Any]:
    with ledger.transaction() as tx:
        tx.add_workspace(workspace())
        tx.add_pack("aa", 5, [(key(1), place("aa"))])
        tx.add_checkpoint(checkpoint(1))
        tx.apply("ws", 1, [file(b"a"), file(b"b")])
        tx.set_meta("seq", "1")
    return everything(ledger)


def test_what_a_transaction_wrote_is_there_for_everyone(ledgers: Ledgers) -> None:
    before = prepared(ledgers.ledger)
    with ledgers.ledger.transaction() as tx:
        fill(tx)

    after = everything(ledgers.again())
    assert after == everything(ledgers.ledger)
    assert all(new != old for new, old in zip(after, before, strict=True))


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_inside_a_transaction_leaves_no_trace(ledgers: Ledgers, error: type[BaseException]) -> None:
    before = prepared(ledgers.ledger)
    with pytest.raises(error), ledgers.ledger.transaction() as tx:
        fill(tx)
        raise error

    assert everything(ledgers.ledger) == before
    assert everything(ledgers.again()) == before


def test_after_a_rollback_the_same_can_be_written_again(ledger: Ledger) -> None:
    """Nothing remembered from a transaction that never was."""
    prepared(ledger)
    with pytest.raises(ValueError), ledger.transaction() as tx:
        fill(tx)
        tx.apply("new", 1, [file(b"lost")])
        raise ValueError
    with ledger.transaction() as tx:
        tx.add_workspace(workspace("other"))
        tx.add_workspace(workspace("new"))
        tx.apply("new", 1, [file(b"kept")])

    assert [row.path for row in ledger.state("new", 1)] == [b"kept"]
    assert list(ledger.state("other", 1)) == []


def test_whoever_is_inside_reads_what_it_wrote(ledger: Ledger) -> None:
    prepared(ledger)
    with ledger.transaction() as tx:
        fill(tx)
        inside = everything(ledger)

    assert inside == everything(ledger)
    assert ledger.current("ws", [b"a", b"b"]) == {b"a": file(b"a", 2)}


def test_nobody_outside_sees_a_transaction_before_its_end(ledgers: Ledgers) -> None:
    before = prepared(ledgers.ledger)
    seen: list[Any] = []
    with ledgers.ledger.transaction() as tx:
        fill(tx)
        other = threading.Thread(target=lambda: seen.append(everything(ledgers.again())))
        other.start()
        other.join()

    assert seen == [before]


def test_a_second_writer_waits_for_the_first(ledgers: Ledgers) -> None:
    add_workspaces(ledgers.ledger)
    entered, done = threading.Event(), threading.Event()

    def write() -> None:
        mine = ledgers.again()
        entered.set()
        with mine.transaction() as tx:
            tx.set_meta("seq", (mine.meta("seq") or "") + "second")
        mine.close()
        done.set()

    with ledgers.ledger.transaction() as tx:
        other = threading.Thread(target=write)
        other.start()
        entered.wait()
        assert not done.wait(0.05)
        tx.set_meta("seq", "first ")
    other.join()

    assert ledgers.again().meta("seq") == "first second"


def test_what_is_handed_out_is_not_the_ledgers_own(ledger: Ledger) -> None:
    before = prepared(ledger)
    for answer in (
        ledger.workspaces(),
        ledger.find(Query()),
        ledger.history("ws", b"a"),
        ledger.paths("ws", b"", 10),
        ledger.packs(),
        ledger.needed_contents(),
        ledger.current("ws", [b"a"]),
        ledger.locate([key(1)]),
    ):
        answer.clear()

    assert everything(ledger) == before


def test_lists_given_in_may_be_changed_afterwards(ledger: Ledger) -> None:
    add_workspaces(ledger)
    rows, entries = [file(b"a")], [(key(1), place("aa"))]
    with ledger.transaction() as tx:
        tx.apply("ws", 1, rows)
        tx.add_pack("aa", 5, entries)
        rows.clear()
        entries.clear()

    assert [row.path for row in ledger.state("ws", 1)] == [b"a"]
    assert len(ledger.locate([key(1)])) == 1


def test_rows_may_come_from_generators(ledger: Ledger) -> None:
    add_workspaces(ledger)
    with ledger.transaction() as tx:
        tx.apply("ws", 1, (file(path) for path in (b"a", b"b")))
        tx.apply("ws", 2, (row for row in (gone(b"a"), file(b"b", 2))))
        tx.add_pack("aa", 5, ((key(number), place("aa")) for number in (1, 2)))
        tx.add_pack("bb", 5, ())
        tx.drop_packs(["aa"], ((key(number), place("bb")) for number in (2,)))

    assert list(ledger.state("ws", 2)) == [file(b"b", 2)]
    assert dict(ledger.locations()) == {key(2): place("bb")}


# Workspaces and meta


def test_a_dropped_workspace_is_gone_with_all_that_belongs_to_it(ledger: Ledger) -> None:
    add_workspaces(ledger, "ws", "other")
    for name in ("ws", "other"):
        save(ledger, 1, [file(b"a")], name=name, id=f"cp-{name}", tags="work")
        with ledger.transaction() as tx:
            tx.set_attachments(name, 1, [key(7)])
            tx.set_meta(f"base {name}", "x")
    with ledger.transaction() as tx:
        tx.drop_workspace("ws")

    assert [row.id for row in ledger.workspaces()] == ["other"]
    assert (ledger.workspace("ws"), ledger.checkpoint("ws", 1), ledger.attachments("ws"), ledger.meta("base ws")) == (
        None, None, {}, None,
    )  # fmt: skip
    assert list(ledger.intervals("ws")) == [] and len(list(ledger.intervals("other"))) == 1
    assert (ledger.attachments("other"), ledger.meta("base other")) == ({1: [key(7)]}, "x")
    assert [row.workspace for row in ledger.find(Query(tag="work"))] == ["other"]
    add_workspaces(ledger, "ws")
    save(ledger, 1, [file(b"b")])
    assert [row.path for row in ledger.state("ws", 1)] == [b"b"]


def test_what_restores_made_for_safety_is_left_out_if_asked(ledger: Ledger) -> None:
    add_workspaces(ledger, "ws")
    for version, trigger in enumerate(("manual", "before_restore", "patch", "auto"), 1):
        save(ledger, version, trigger=trigger)

    assert versions(ledger, workspace="ws") == [4, 3, 2, 1]
    assert versions(ledger, workspace="ws", safety=False) == [4, 1]
    assert versions(ledger, workspace="ws", safety=False, limit=1, before=4) == [1]


def test_checkpoints_are_counted_by_workspace(ledger: Ledger) -> None:
    add_workspaces(ledger, "ws", "other")
    save(ledger, 1)
    save(ledger, 2, forgotten=1)

    assert [ledger.count(name) for name in ("ws", "other", "never", "")] == [1, 0, 0, 0]


def test_workspaces_come_back_as_given_in_the_order_they_came(ledger: Ledger) -> None:
    rows = [
        WorkspaceRow(name, b"/w/\xff\n" + KOREAN, 7, "parent", 3, key(3), 99, key(4), 2, "ab" * 32, '{"f":1}')
        for name in ("z", "a", "m")
    ]
    with ledger.transaction() as tx:
        for row in rows:
            tx.add_workspace(row)

    assert ledger.workspaces() == rows
    assert [ledger.workspace(row.id) for row in rows] == rows
    assert ledger.workspace("none") is None


def test_a_workspace_changes_as_a_whole_and_keeps_its_place(ledger: Ledger) -> None:
    add_workspaces(ledger, "a", "b")
    changed = workspace("a", path=b"/moved", version=4, document=key(1), log_size=5, log_head=key(2), keyframe=4)
    with ledger.transaction() as tx:
        tx.update_workspace(changed)

    assert ledger.workspaces() == [changed, workspace("b")]


def test_a_second_workspace_of_the_same_id_is_refused(ledger: Ledger) -> None:
    add_workspaces(ledger)

    with pytest.raises(KeepfastError), ledger.transaction() as tx:
        tx.add_workspace(workspace(path=b"/elsewhere"))
    assert ledger.workspaces() == [workspace()]


def test_meta_keeps_the_last_value(ledger: Ledger) -> None:
    assert ledger.meta("seq") is None

    with ledger.transaction() as tx:
        tx.set_meta("seq", "1")
        tx.set_meta("other", "한글")
    with ledger.transaction() as tx:
        tx.set_meta("seq", "2")

    assert (ledger.meta("seq"), ledger.meta("other")) == ("2", "한글")


def test_close_keeps_everything(ledgers: Ledgers) -> None:
    before = prepared(ledgers.ledger)
    ledgers.ledger.close()
    ledgers.ledger.close()

    assert everything(ledgers.ledger) == before


# Checkpoints


def test_a_checkpoint_comes_back_as_given(ledger: Ledger) -> None:
    add_workspaces(ledger)
    row = CheckpointRow(
        "ws", 3, "cp-x", key(9), 12, 2**62, "turn", "auto", "메시지\n둘째 줄 🎉", "이름", "a\nb c\n태그",
        "s-1", "t-1", 1, 0, 4, 5, 2**53, 7, "ef" * 32,
    )  # fmt: skip
    with ledger.transaction() as tx:
        tx.add_checkpoint(row)

    assert ledger.checkpoint("ws", 3) == row
    assert ledger.find(Query()) == [row]
    assert ledger.checkpoint("ws", 2) is None
    assert ledger.checkpoint("none", 3) is None


@pytest.mark.parametrize("second", [checkpoint(1, id="cp-new"), checkpoint(2, id="cp-ws-1")])
def test_a_second_checkpoint_of_the_same_version_or_id_is_refused(ledger: Ledger, second: CheckpointRow) -> None:
    add_workspaces(ledger)
    save(ledger, 1)

    with pytest.raises(KeepfastError), ledger.transaction() as tx:
        tx.add_checkpoint(second)
    assert ledger.find(Query()) == [checkpoint(1)]


def test_a_checkpoint_changes_as_a_whole(ledger: Ledger) -> None:
    add_workspaces(ledger)
    save(ledger, 1, tags="old\nboth")
    save(ledger, 2, tags="old")
    changed = checkpoint(1, name="named")._replace(workspace="ws", id="cp-ws-1", name="n", pinned=1, tags="both\nnew")
    with ledger.transaction() as tx:
        tx.update_checkpoint(changed)

    assert ledger.checkpoint("ws", 1) == changed
    assert versions(ledger, name="n") == [1]
    assert [versions(ledger, tag=tag) for tag in ("old", "both", "new")] == [[2], [1], [1]]


def test_forgotten_ones_are_hidden_unless_asked_for(ledger: Ledger) -> None:
    add_workspaces(ledger)
    for version in (1, 2, 3):
        save(ledger, version, tags="red", session="s")
    with ledger.transaction() as tx:
        tx.update_checkpoint(checkpoint(2, tags="red", session="s", forgotten=1))

    for query in ({}, {"workspace": "ws"}, {"tag": "red"}, {"session": "s", "workspace": "ws"}, {"id_prefix": "cp-"}):
        assert versions(ledger, **query) == [3, 1]
        assert versions(ledger, **query, forgotten=True) == [3, 2, 1]
    found = ledger.checkpoint("ws", 2)
    assert found is not None
    assert found.forgotten == 1


def test_find_gives_the_newest_first_by_version_in_one_workspace_and_by_sequence_over_all(ledger: Ledger) -> None:
    """Clocks decide nothing."""
    add_workspaces(ledger, "a", "b")
    for seq, (name, version) in enumerate([("a", 1), ("b", 1), ("b", 2), ("a", 2), ("b", 3)], 1):
        save(ledger, version, name=name, seq=seq, created_at=1000 - seq)

    assert [(row.workspace, row.version) for row in ledger.find(Query())] == [
        ("b", 3), ("a", 2), ("b", 2), ("b", 1), ("a", 1),
    ]  # fmt: skip
    assert versions(ledger, workspace="b") == [3, 2, 1]
    assert versions(ledger, workspace="none") == []


def test_find_filters_by_every_field_and_every_combination_of_them(ledger: Ledger) -> None:
    add_workspaces(ledger, "a", "b")
    rows = []
    with ledger.transaction() as tx:
        for number, (name, session, task, trigger, tags) in enumerate(
            itertools.product("ab", ("", "s"), ("", "t"), ("manual", "turn"), ("", "red", "red\nblue"))
        ):
            version = number + 1
            row = checkpoint(
                version, name, id=f"cp-{number % 3}-{number}", session=session, task=task, trigger=trigger, tags=tags,
                forgotten=int(number % 5 == 0), created_at=(number * 37) % 48,
            )._replace(name="n" if number % 2 else "")  # fmt: skip
            rows.append(row)
            tx.add_checkpoint(row)

    choices: dict[str, tuple[Any, ...]] = {
        "workspace": ("", "a"),
        "session": ("", "s"),
        "task": ("", "t"),
        "trigger": ("", "turn"),
        "tag": ("", "red", "blue"),
        "name": ("", "n"),
        "id_prefix": ("", "cp-1"),
        "before": (0, 30),
        "created_until": (0, 25),
        "limit": (0, 2),
        "forgotten": (False, True),
    }
    for values in itertools.product(*choices.values()):
        query = Query(**dict(zip(choices, values, strict=True)))
        expected = [row for row in rows if matches(row, query)]
        expected.sort(key=lambda row: -row.version)
        assert ledger.find(query) == (expected[: query.limit] if query.limit else expected), query


def matches(row: CheckpointRow, query: Query) -> bool:
    """Written the long way round, so that it shares no thought with the implementations."""
    for field in ("workspace", "session", "task", "trigger", "name"):
        wanted = getattr(query, field)
        if wanted and getattr(row, field) != wanted:
            return False
    if query.tag and f"\n{query.tag}\n" not in f"\n{row.tags}\n":
        return False
    if query.id_prefix and row.id[: len(query.id_prefix)] != query.id_prefix:
        return False
    if query.before and not row.version < query.before:
        return False
    if query.created_until and not row.created_at <= query.created_until:
        return False
    return bool(query.forgotten or row.forgotten == 0)


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        ("cp-", ["cp-1b", "cp-1a", "cp-1"]),
        ("cp-1", ["cp-1b", "cp-1a", "cp-1"]),
        ("cp-1a", ["cp-1a"]),
        ("cp-2", []),
        ("CP-1", []),
    ],
)
def test_an_id_is_found_by_how_it_begins(ledger: Ledger, prefix: str, found: list[str]) -> None:
    add_workspaces(ledger)
    for version, name in enumerate(("cp-1", "cp-1a", "cp-1b"), 1):
        save(ledger, version, id=name)

    assert [row.id for row in ledger.find(Query(id_prefix=prefix))] == found


def test_a_tag_is_found_whole_and_as_it_is_written(ledger: Ledger) -> None:
    add_workspaces(ledger, "ws", "other")
    save(ledger, 1, tags="red\n붉은 것")
    save(ledger, 2, tags="redder")
    save(ledger, 1, name="other", tags="red", seq=9)

    assert [(row.workspace, row.version) for row in ledger.find(Query(tag="red"))] == [("other", 1), ("ws", 1)]
    assert versions(ledger, workspace="ws", tag="red") == [1]
    assert versions(ledger, tag="붉은 것") == [1]
    assert versions(ledger, tag="re") == versions(ledger, tag="RED") == []


def test_a_text_that_is_no_unicode_is_refused_with_a_sentence(tmp_path: Path) -> None:
    """SQLite keeps UTF-8; lone surrogate has none."""
    ledger = sqlite_ledger(tmp_path)()
    add_workspaces(ledger)

    with pytest.raises(Failed, match="lone surrogate"):
        ledger.find(Query(session="\udcff"))
    with pytest.raises(Failed), ledger.transaction() as tx:
        tx.add_checkpoint(checkpoint(1, message="cut \ud83d"))
    assert ledger.find(Query()) == []


# States


def lived(ledger: Ledger) -> None:
    """`a` changes, `b` goes and comes back, `c` comes late and becomes a link, `d/` stays."""
    add_workspaces(ledger, "ws", "other")
    save(ledger, 1, [file(b"a", 1), file(b"b", 1), folder(b"d"), file(b"d/x", 1)])
    save(ledger, 2, [file(b"a", 2)])
    save(ledger, 3, [gone(b"b"), file(b"c", 3)])
    save(ledger, 4, [])
    save(ledger, 5, [file(b"a", 5), file(b"b", 5), link(b"c", b"a")])
    save(ledger, 6, [gone(b"b"), gone(b"never was")])
    save(ledger, 1, [file(b"a", 9)], name="other", seq=7)


STATES = {
    0: [],
    1: [file(b"a", 1), file(b"b", 1), folder(b"d"), file(b"d/x", 1)],
    2: [file(b"a", 2), file(b"b", 1), folder(b"d"), file(b"d/x", 1)],
    3: [file(b"a", 2), file(b"c", 3), folder(b"d"), file(b"d/x", 1)],
    4: [file(b"a", 2), file(b"c", 3), folder(b"d"), file(b"d/x", 1)],
    5: [file(b"a", 5), file(b"b", 5), link(b"c", b"a"), folder(b"d"), file(b"d/x", 1)],
    6: [file(b"a", 5), link(b"c", b"a"), folder(b"d"), file(b"d/x", 1)],
    7: [file(b"a", 5), link(b"c", b"a"), folder(b"d"), file(b"d/x", 1)],
}


def test_every_version_is_there_whole_and_sorted(ledger: Ledger) -> None:
    lived(ledger)

    for version, rows in STATES.items():
        assert list(ledger.state("ws", version)) == rows
    assert list(ledger.state("other", 1)) == [file(b"a", 9)]
    assert list(ledger.state("none", 1)) == []


def test_what_the_newest_version_has_sealed_is_one_question(ledger: Ledger) -> None:
    def sealed(path: bytes, size: int) -> Entry:
        return file(path, 1)._replace(flags=SEALED, size=size)

    add_workspaces(ledger, "ws", "other")
    save(ledger, 1, [sealed(b"a", 20), sealed(b"b", 30), sealed(b"c", 15), file(b"d", 1)._replace(size=40)])
    save(ledger, 2, [gone(b"a"), sealed(b"e", 16)])

    assert sorted(ledger.sealed("ws", 16)) == [sealed(b"b", 30), sealed(b"e", 16)]
    assert ledger.sealed("other", 0) == ledger.sealed("none", 0) == []


def test_what_a_version_left_out_is_one_question(ledger: Ledger) -> None:
    def left(path: bytes, kind: str) -> Entry:
        return Entry(path, kind, 0, 0, 0, 0, 0, b"", b"")

    rows = [left(b"a", "x"), left(b"d/b", "o"), left(b"d/c", "i"), left(b"d0", "u"), left(b"e", "s")]
    add_workspaces(ledger, "ws")
    save(ledger, 1, [*rows, file(b"f", 1), folder(b"d"), link(b"l", b"f")])
    save(ledger, 2, [file(b"d/b", 2), gone(b"e")])

    assert ledger.left_out("ws", 1) == rows
    assert ledger.left_out("ws", 2) == [rows[0], *rows[2:4]]
    assert ledger.left_out("ws", 1, b"d") == rows[1:3]
    assert ledger.left_out("ws", 1, b"a") == rows[:1]
    assert ledger.left_out("none", 1) == []


def test_any_path_of_any_version_is_one_question(ledger: Ledger) -> None:
    lived(ledger)

    for version, rows in STATES.items():
        expected = {row.path: row for row in rows}
        for path in (b"a", b"b", b"c", b"d", b"d/x", b"never was", b""):
            assert ledger.at("ws", version, path) == expected.get(path)


def test_current_is_the_newest_state_of_the_paths_asked_for(ledger: Ledger) -> None:
    lived(ledger)

    paths = [b"a", b"b", b"c", b"never was", b"d/x"]
    assert ledger.current("ws", paths) == {b"a": file(b"a", 5), b"c": link(b"c", b"a"), b"d/x": file(b"d/x", 1)}
    assert ledger.current("ws", []) == {}
    assert ledger.current("none", paths) == {}


def test_history_is_one_paths_life_oldest_first(ledger: Ledger) -> None:
    lived(ledger)

    assert ledger.history("ws", b"a") == [(1, 2, file(b"a", 1)), (2, 5, file(b"a", 2)), (5, None, file(b"a", 5))]
    assert ledger.history("ws", b"b") == [(1, 3, file(b"b", 1)), (5, 6, file(b"b", 5))]
    assert ledger.history("ws", b"never was") == []


def test_intervals_are_every_life_by_path_and_time(ledger: Ledger) -> None:
    lived(ledger)

    assert list(ledger.intervals("ws")) == [
        interval for path in (b"a", b"b", b"c", b"d", b"d/x") for interval in ledger.history("ws", path)
    ]


def test_rows_come_back_with_every_field(ledger: Ledger) -> None:
    add_workspaces(ledger)
    rows = [
        Entry(b" \xff\n", "f", 0o7777, 7, 2**63 - 1, -(2**63), 2**63 - 1, key(1), b'{"uid":1}'),
        Entry(KOREAN, "l", 0o777, 0, 3, 2**63 - 1, 0, b"\xff\x01", b""),
        Entry("한글".encode(), "x", 0, 48, 0, 0, 0, b"", b""),
    ]
    rows.sort()
    save(ledger, 1, rows)

    assert list(ledger.state("ws", 1)) == rows


def test_a_whole_state_ends_every_path_that_it_does_not_name(ledger: Ledger) -> None:
    lived(ledger)
    with ledger.transaction() as tx:
        tx.apply("ws", 7, [file(b"a", 7), file(b"e", 7)], whole=True)

    assert list(ledger.state("ws", 7)) == [file(b"a", 7), file(b"e", 7)]
    assert list(ledger.state("ws", 6)) == STATES[6]
    assert ledger.current("ws", [b"c", b"d", b"e"]) == {b"e": file(b"e", 7)}
    assert list(ledger.state("other", 1)) == [file(b"a", 9)]


def test_the_same_path_twice_in_one_version_is_refused(ledger: Ledger) -> None:
    lived(ledger)

    with pytest.raises(KeepfastError), ledger.transaction() as tx:
        tx.apply("ws", 5, [file(b"a", 6)])
    with pytest.raises(KeepfastError), ledger.transaction() as tx:
        tx.apply("ws", 7, [file(b"a", 6), file(b"a", 7)])
    assert list(ledger.state("ws", 7)) == STATES[7]


@pytest.mark.parametrize(
    ("below", "found"),
    [
        (b"a", [b"a", b"a/b", b"a/b/c", b"a/\xff"]),
        (b"a/b", [b"a/b", b"a/b/c"]),
        (b"a/b/c", [b"a/b/c"]),
        (b"a.b", [b"a.b"]),
        (b"a/", []),
        (b"ab", []),
        ("문서".encode(), [KOREAN]),
        (b"\xff", [b"\xff", b"\xff/x"]),
        (b"", [b"a", b"a.b", b"a/b", b"a/b/c", b"a/\xff", b"a0", b"a0/x", KOREAN, b"\xff", b"\xff/x"]),
    ],
)
def test_below_is_one_path_and_what_lies_under_it(ledger: Ledger, below: bytes, found: list[bytes]) -> None:
    add_workspaces(ledger)
    paths = [b"a", b"a.b", b"a/b", b"a/b/c", b"a/\xff", b"a0", b"a0/x", KOREAN, b"\xff", b"\xff/x"]
    save(ledger, 1, [file(path) for path in paths])
    save(ledger, 2, [gone(path) for path in paths])

    assert [row.path for row in ledger.state("ws", 1, below)] == found
    assert list(ledger.state("ws", 2, below)) == []


def test_more_rows_than_one_page_come_whole_and_in_order(ledger: Ledger) -> None:
    add_workspaces(ledger)
    paths = [b"%06d" % number for number in range(4 * ROWS_PER_PAGE + 10)]
    with ledger.transaction() as tx:
        tx.apply("ws", 1, [file(path, size=1)._replace(content=path.rjust(32, b"0")) for path in paths])
        tx.apply("ws", 2, [gone(path) for path in paths[::2]])
        tx.apply("ws", 3, [file(path, 1) for path in paths[:10]])
        tx.add_pack("aa", 1, [(path.rjust(32, b"0"), place("aa")) for path in paths])

    assert [row.path for row in ledger.state("ws", 1)] == paths
    assert [row.path for row in ledger.state("ws", 2)] == paths[1::2]
    assert len(list(ledger.intervals("ws"))) == len(paths) + 10
    assert len(ledger.needed_contents()) == len(paths) + 1
    assert [found for found, _ in ledger.locations()] == [path.rjust(32, b"0") for path in paths]
    assert len(ledger.locate([path.rjust(32, b"0") for path in paths])) == len(paths)
    assert ledger.paths("ws", b"1999", 20) == [b"001999", b"011999", *[b"01999%d" % digit for digit in range(10)]]


# Searching paths


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"readme", [b"README.md", b"docs/ReadMe.txt"]),
        (b"README", [b"README.md", b"docs/ReadMe.txt"]),
        (b"s/r", [b"docs/ReadMe.txt"]),
        ("보고".encode(), [KOREAN]),
        ("보고서.TXT".encode(), [KOREAN]),
        ("É".encode(), ["É.txt".encode()]),
        ("é".encode(), ["é.txt".encode()]),
        (EUC_KR[:2], [EUC_KR]),
        (b"\xff", [b"a\xffB"]),
        (b"A\xffb", [b"a\xffB"]),
        (KOREAN[:2], [KOREAN]),
        (b"%", [b"100%_[x].txt"]),
        (b"_[X]", [b"100%_[x].txt"]),
        (b"nothing", []),
        (b"\0", []),
    ],
)
def test_paths_are_found_by_any_part_whatever_their_bytes(ledger: Ledger, text: bytes, found: list[bytes]) -> None:
    """ASCII letters in either case; all other bytes as they are."""
    add_workspaces(ledger, "ws", "other")
    paths = [
        b"README.md",
        b"docs/ReadMe.txt",
        KOREAN,
        EUC_KR,
        b"a\xffB",
        b"100%_[x].txt",
        "É.txt".encode(),
        "é.txt".encode(),
    ]
    save(ledger, 1, [file(path) for path in sorted(paths)])
    save(ledger, 1, [file(b"readme of another workspace")], name="other", seq=2)

    assert ledger.paths("ws", text, 100) == found


def test_paths_of_every_version_are_found_once_in_order_up_to_the_limit(ledger: Ledger) -> None:
    lived(ledger)

    assert ledger.paths("ws", b"", 100) == [b"a", b"b", b"c", b"d", b"d/x"]
    assert ledger.paths("ws", b"", 2) == [b"a", b"b"]
    assert ledger.paths("none", b"", 2) == []


# Dropping intervals


def test_only_what_versions_strictly_between_need_is_dropped(ledger: Ledger) -> None:
    add_workspaces(ledger)
    save(ledger, 1, [file(b"a", 1, 1), file(b"b", 1, 10)])
    save(ledger, 2, [file(b"a", 2, 100)])
    save(ledger, 3, [file(b"a", 3, 1000), gone(b"b"), file(b"c", 3, 10_000)])
    save(ledger, 4, [file(b"a", 4, 100_000)])
    kept = {version: list(ledger.state("ws", version)) for version in (1, 4)}
    with ledger.transaction() as tx:
        dropped = tx.drop_intervals("ws", 1, 4)

    assert dropped == 1100
    assert ledger.history("ws", b"a") == [(1, 2, file(b"a", 1, 1)), (4, None, file(b"a", 4, 100_000))]
    assert ledger.history("ws", b"b") == [(1, 3, file(b"b", 1, 10))]
    assert ledger.history("ws", b"c") == [(3, None, file(b"c", 3, 10_000))]
    assert {version: list(ledger.state("ws", version)) for version in (1, 4)} == kept


@pytest.mark.parametrize("after", range(7))
@pytest.mark.parametrize("upto", range(8))
def test_dropping_leaves_every_other_version_as_it_was(ledger: Ledger, after: int, upto: int) -> None:
    lived(ledger)
    needed = [
        interval
        for interval in ledger.intervals("ws")
        if any(
            interval[0] <= version and (interval[1] is None or version < interval[1])
            for version in (*range(1, after + 1), *range(upto, 9))
            if version > 0
        )
    ]
    with ledger.transaction() as tx:
        tx.drop_intervals("ws", after, upto)

    for version in STATES:
        if not after < version < upto:
            assert list(ledger.state("ws", version)) == STATES[version]
    if after < upto:
        assert list(ledger.intervals("ws")) == needed
    assert list(ledger.state("other", 1)) == [file(b"a", 9)]


def test_dropping_counts_the_bytes_of_files_alone(ledger: Ledger) -> None:
    """A file left out for its size was never stored, so nothing of it is given back."""
    add_workspaces(ledger)
    left_out = Entry(b"o", "o", 0o644, 0, 10**10, 0, 0, b"", b"")
    rows = [folder(b"d"), file(b"f", 1, 7), link(b"l", b"target"), left_out]
    save(ledger, 1, [])
    save(ledger, 2, rows)
    save(ledger, 3, [gone(row.path) for row in rows])
    with ledger.transaction() as tx:
        dropped = tx.drop_intervals("ws", 1, 3)

    assert dropped == 7
    assert list(ledger.intervals("ws")) == []
    assert ledger.paths("ws", b"", 10) == []


def test_a_path_whose_past_was_dropped_can_go_and_come_back(ledger: Ledger) -> None:
    lived(ledger)
    with ledger.transaction() as tx:
        tx.drop_intervals("ws", 0, 6)
        tx.apply("ws", 7, [file(b"b", 7), gone(b"a")])

    assert ledger.history("ws", b"b") == [(7, None, file(b"b", 7))]
    assert ledger.history("ws", b"a") == [(5, 7, file(b"a", 5))]


# Blobs and packs in the ledger


def test_a_blob_is_located_where_its_pack_said(ledger: Ledger) -> None:
    entries = [(key(number), Location("aa", 8 * number, 100, number, 50, number % 3)) for number in range(1, 4)]
    with ledger.transaction() as tx:
        tx.add_pack("aa", 1234, entries)

    assert ledger.locate([key(3), key(1), key(9), key(1)]) == {key(1): entries[0][1], key(3): entries[2][1]}
    assert ledger.locate([]) == {}
    assert ledger.existing_digests([key(3), key(1), key(9), key(1)]) == {key(1), key(3)}
    assert ledger.existing_digests([key(number) for number in range(700)]) == {digest for digest, _ in entries}
    assert ledger.existing_digests([]) == set()
    assert list(ledger.locations()) == entries
    assert ledger.packs() == [PackRow("aa", 1234)]


def test_a_blob_that_has_a_place_keeps_it(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        tx.add_pack("aa", 1, [(key(1), place("aa"))])
    with ledger.transaction() as tx:
        tx.add_pack("bb", 2, [(key(1), place("bb")), (key(2), place("bb", 10))])

    assert dict(ledger.locations()) == {key(1): place("aa"), key(2): place("bb", 10)}


def test_a_pack_registered_twice_is_one_pack(ledger: Ledger) -> None:
    for entries in ([(key(1), place("aa"))], [(key(1), place("aa", 5)), (key(2), place("aa", 10))]):
        with ledger.transaction() as tx:
            tx.add_pack("aa", 7, entries)

    assert ledger.packs() == [PackRow("aa", 7)]
    assert dict(ledger.locations()) == {key(1): place("aa"), key(2): place("aa", 10)}


def test_dropped_packs_take_their_blobs_along_except_those_that_moved(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        tx.add_pack("aa", 1, [(key(1), place("aa")), (key(2), place("aa", 10))])
        tx.add_pack("bb", 2, [(key(3), place("bb")), (key(4), place("bb", 10))])
        tx.add_pack("cc", 3, [(key(5), place("cc"))])
    with ledger.transaction() as tx:
        tx.add_pack("dd", 4, ())
        tx.drop_packs(["bb", "aa", "never"], [(key(2), place("dd", 20, 1)), (key(3), place("dd", 30))])

    assert dict(ledger.locations()) == {key(2): place("dd", 20, 1), key(3): place("dd", 30), key(5): place("cc")}
    assert ledger.packs() == [PackRow("cc", 3), PackRow("dd", 4)]
    assert ledger.locate([key(1), key(4)]) == {}
    assert ledger.existing_digests([key(1), key(4)]) == set()


def test_what_moved_but_was_unknown_stays_unknown(ledger: Ledger) -> None:
    """A blob swept while it was copied does not come back by the copy."""
    with ledger.transaction() as tx:
        tx.add_pack("aa", 1, [(key(1), place("aa"))])
        tx.drop_packs([], [(key(2), place("aa", 10))])

    assert dict(ledger.locations()) == {key(1): place("aa")}


def test_dropping_no_packs_changes_nothing(ledger: Ledger) -> None:
    before = prepared(ledger)
    with ledger.transaction() as tx:
        tx.drop_packs([], [])

    assert everything(ledger) == before


def test_wanted_is_every_file_content_of_any_interval(ledger: Ledger) -> None:
    lived(ledger)

    assert ledger.needed_contents() == {bytes([number]) * 32 for number in (1, 2, 3, 5, 9)}

    with ledger.transaction() as tx:
        tx.drop_intervals("ws", 1, 5)

    assert ledger.needed_contents() == {bytes([number]) * 32 for number in (1, 5, 9)}


# -- Both ledgers side by side

PATHS = [
    b"a", b"a/b", b"a/b/c", b"a.txt", b"a0", b"A", b"B/a", "한글".encode(), "한글/파일.TXT".encode(), b"\xff\xfe",
    b"x\xb0\xa1", b"x\x80/A",
]  # fmt: skip
WORDS = ["", "one", "둘"]
ROWS = st.one_of(
    st.builds(
        lambda path, content, size: file(path, content, size),
        st.sampled_from(PATHS),
        st.integers(1, 4),
        st.integers(0, 99),
    ),
    st.builds(lambda path, target: link(path, target), st.sampled_from(PATHS), st.sampled_from([b"a", b"\xff"])),
    st.builds(folder, st.sampled_from(PATHS)),
    st.builds(gone, st.sampled_from(PATHS)),
)
CHANGES = st.lists(ROWS, max_size=6, unique_by=lambda row: row.path)
NAMES = st.sampled_from(["ws-1", "ws-2", "ws-3"])
PACKS = st.sampled_from(["p1", "p2", "p3", "p4"])
ENTRIES = st.lists(
    st.tuples(st.integers(0, 12).map(key), st.builds(place, st.just(""), st.integers(0, 9), st.integers(0, 2))),
    max_size=5,
    unique_by=lambda entry: entry[0],
)
TAGS = st.lists(st.sampled_from(["red", "blue", "붉은 것"]), max_size=2, unique=True).map("\n".join)
QUERIES = st.builds(
    Query,
    workspace=st.sampled_from(["", "ws-1", "ws-2", "ws-9"]),
    session=st.sampled_from(WORDS),
    task=st.sampled_from(WORDS),
    trigger=st.sampled_from(["", "manual", "turn"]),
    tag=st.sampled_from(["", "", "red", "붉은 것"]),
    name=st.sampled_from(["", "", "named"]),
    id_prefix=st.sampled_from(["", "cp-", "cp-ws-1", "cp-ws-2-1"]),
    before=st.integers(0, 8),
    created_until=st.integers(0, 900),
    limit=st.integers(0, 4),
    forgotten=st.booleans(),
)


class Undone(Exception):
    pass


class BothLedgers(RuleBasedStateMachine):
    """Whatever is done to SQLite and to memory, and whatever is asked, the answers are equal."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.ledgers: tuple[Ledger, Ledger] = sqlite_ledger(self.folder)(), MemoryLedger()
        self.newest: dict[str, int] = {}
        self.packs: set[str] = set()
        self.seq = 0

    def teardown(self) -> None:
        self.ledgers[0].close()
        shutil.rmtree(self.folder)

    def write(self, work: Callable[[Transaction], Any], undone: bool) -> bool:
        one, other = self.ledgers
        try:
            with one.transaction() as first, other.transaction() as second:
                assert work(first) == work(second)
                self.ask(everything)
                if undone:
                    raise Undone
        except Undone:
            return False
        return True

    def ask(self, question: Callable[[Ledger], Any]) -> None:
        assert question(self.ledgers[0]) == question(self.ledgers[1])

    @initialize()
    def begin(self) -> None:
        self.add_workspace("ws-1", False)

    @rule(name=NAMES, undone=st.booleans())
    def add_workspace(self, name: str, undone: bool) -> None:
        if name not in self.newest and self.write(lambda tx: tx.add_workspace(workspace(name)), undone):
            self.newest[name] = 0

    @rule(name=NAMES, path=st.sampled_from(PATHS), version=st.integers(0, 9), undone=st.booleans())
    def update_workspace(self, name: str, path: bytes, version: int, undone: bool) -> None:
        self.write(lambda tx: tx.update_workspace(workspace(name, path=path, version=version)), undone)

    @rule(
        name=NAMES, rows=CHANGES, whole=st.booleans(), tags=TAGS, session=st.sampled_from(WORDS),
        task=st.sampled_from(WORDS), trigger=st.sampled_from(["manual", "turn"]), at=st.integers(0, 900),
        skip=st.integers(1, 2), undone=st.booleans(),
    )  # fmt: skip
    def save(self, name: str, rows: list[Entry], whole: bool, skip: int, undone: bool, at: int, **fields: str) -> None:
        if name not in self.newest:
            return
        version = self.newest[name] + skip
        row = checkpoint(version, name, seq=self.seq + 1, created_at=at, **fields)

        def work(tx: Transaction) -> None:
            tx.apply(name, version, rows, whole)
            tx.add_checkpoint(row)
            tx.set_meta("seq", str(row.seq))

        if self.write(work, undone):
            self.newest[name], self.seq = version, row.seq

    @rule(
        name=NAMES, version=st.integers(1, 9), tags=TAGS, forgotten=st.integers(0, 1), pinned=st.integers(0, 1),
        title=st.sampled_from(["", "named"]), undone=st.booleans(),
    )  # fmt: skip
    def update(self, name: str, version: int, title: str, undone: bool, **fields: Any) -> None:
        found = self.ledgers[0].checkpoint(name, version)
        assert found == self.ledgers[1].checkpoint(name, version)
        if found is not None:
            changed = found._replace(name=title, **fields)
            self.write(lambda tx: tx.update_checkpoint(changed), undone)

    @rule(name=NAMES, after=st.integers(0, 8), length=st.integers(0, 8), undone=st.booleans())
    def drop_intervals(self, name: str, after: int, length: int, undone: bool) -> None:
        self.write(lambda tx: tx.drop_intervals(name, after, after + length), undone)

    @rule(name=PACKS, entries=ENTRIES, size=st.integers(0, 99), undone=st.booleans())
    def add_pack(self, name: str, entries: list[tuple[bytes, Location]], size: int, undone: bool) -> None:
        if self.write(lambda tx: tx.add_pack(name, size, entries), undone):
            self.packs.add(name)

    @rule(names=st.lists(PACKS, max_size=3, unique=True), moved=ENTRIES, choice=st.integers(0, 9), undone=st.booleans())
    def drop_packs(self, names: list[str], moved: list[tuple[bytes, Location]], choice: int, undone: bool) -> None:
        left = sorted(self.packs - set(names))
        elsewhere = [(key, found._replace(pack=left[choice % len(left)])) for key, found in moved] if left else []
        if self.write(lambda tx: tx.drop_packs(names, elsewhere), undone):
            self.packs -= set(names)

    @rule()
    def close(self) -> None:
        for ledger in self.ledgers:
            ledger.close()

    @rule(query=QUERIES)
    def find(self, query: Query) -> None:
        self.ask(lambda ledger: ledger.find(query))
        self.ask(lambda ledger: ledger.count(query.workspace))

    @rule(name=NAMES, version=st.integers(0, 12), below=st.sampled_from([b"", *PATHS]))
    def states(self, name: str, version: int, below: bytes) -> None:
        self.ask(lambda ledger: list(ledger.state(name, version, below)))
        self.ask(lambda ledger: [ledger.at(name, version, path) for path in PATHS])
        self.ask(lambda ledger: [ledger.history(name, path) for path in PATHS])
        self.ask(lambda ledger: ledger.current(name, PATHS))

    @rule(
        name=NAMES,
        text=st.sampled_from([b"", b"A", b"a", b"/", "글".encode(), b"\xff", b"\x80", b".tXt"]),
        limit=st.integers(0, 9),
    )
    def paths(self, name: str, text: bytes, limit: int) -> None:
        self.ask(lambda ledger: ledger.paths(name, text, limit))

    @rule(digests=st.lists(st.integers(0, 15).map(key)))
    def locate(self, digests: list[bytes]) -> None:
        self.ask(lambda ledger: (ledger.locate(digests), ledger.existing_digests(digests)))

    @invariant()
    def agree(self) -> None:
        self.ask(everything)


BothLedgers.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestBothLedgers = BothLedgers.TestCase
