"""One table of exit codes, and every kind of bad input: a sentence, the right code, nothing changed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer

import pytest

from keepfast.state import pending_events
from keepfast.state.pending_events import PendingEvent
from tests.equipment.box import SOURCE, Box, Result
from tests.equipment.stopped_holder import held

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else, or to mount")
NOBODY = 65534


def check(box: Box, result: Result, code: int, words: str) -> None:
    """A sentence with a way out, and no traceback."""
    assert result.code == code, result
    assert words in result.err, result.err
    assert result.err.startswith("keepfast: ")
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        (["list"], 0, ""),
        (["status"], 0, ""),
        (["show", "v9"], 4, "not_found"),
        (["show", "cp-01"], 4, "not_found"),
        (["diff", "nobody"], 4, "not_found"),
        (["diff", "v1", "v2", "v3"], 2, "usage"),
        (["cat", "v1", "nothing.txt"], 4, "not_found"),
        (["cat", "v1", "src"], 2, "usage"),
        (["cat", "v1"], 2, "usage"),
        (["pin", "v9"], 4, "not_found"),
        (["name", "v1"], 2, "usage"),
        (["forget", "v9", "-y"], 4, "not_found"),
        (["forget", "v3", "-y"], 14, "conflict"),
        (["forget", "v1"], 2, "usage"),
        (["forget", "v1", "--policy"], 2, "usage"),
        (["forget", "--keep-size", "much"], 2, "usage"),
        (["verify", "--quick", "--repair"], 2, "usage"),
        (["config", "get", "no.such"], 4, "not_found"),
        (["config", "set", "capture.max_files", "many"], 2, "usage"),
        (["config", "set", "store.url", "not/absolute"], 2, "usage"),
        (["init", "/"], 2, "refused"),
        (["list", "--limit", "-1"], 2, "usage"),
        (["list", "--nonsense"], 2, "usage"),
        (["nonsense"], 2, "usage"),
        (["completion", "tcsh"], 2, "usage"),
    ],
)
def test_each_command_line_has_its_exit_code_and_changes_nothing(
    saved_box: Box, words: list[str], code: int, kind: str
) -> None:
    before = saved_box.state(saved_box.home)

    plain, as_json = saved_box.call(*words), saved_box.call(*words, "--json")

    assert plain.code == code, plain
    assert saved_box.state(saved_box.home) == before
    if code:
        assert plain.err.startswith("keepfast: ")
        error = as_json.json()["error"]
        assert (error["kind"], error["exit_code"], as_json.code) == (kind, code, code)
        assert error["message"]
        assert as_json.err == ""


@pytest.mark.parametrize(
    "words",
    [
        ["save"],
        ["list"],
        ["show"],
        ["diff"],
        ["cat", "v1", "a"],
        ["search", "x"],
        ["status"],
        ["pin", "v1"],
        ["unpin", "v1"],
        ["name", "v1", "x"],
        ["forget", "-y"],
    ],
)
def test_outside_of_any_workspace_the_exit_code_is_3(box: Box, words: list[str]) -> None:
    check(box, box.call(*words), 3, "is not inside a workspace")
    assert not box.store.exists()


@pytest.mark.parametrize("words", [["verify"], ["compact"], ["rebuild"], ["list", "--all-workspaces"]])
def test_without_a_store_the_exit_code_is_3(box: Box, words: list[str]) -> None:
    check(box, box.call(*words), 3, "No store at")
    assert not box.store.exists()


COMMANDS = [
    ["save"],
    ["list"],
    ["show"],
    ["diff"],
    ["cat", "v1", "README"],
    ["search", "first"],
    ["status"],
    ["pin", "v1"],
    ["forget", "-y"],
    ["compact"],
    ["verify"],
    ["rebuild"],
]


@pytest.mark.parametrize("words", COMMANDS)
def test_a_store_path_that_is_a_file_is_unreachable(saved_box: Box, words: list[str]) -> None:
    shutil.rmtree(saved_box.store)
    saved_box.store.write_text("a file")

    check(saved_box, saved_box.call(*words), 5, "is a file, not a folder")
    assert saved_box.store.read_text() == "a file"
    assert saved_box.call("save", "--auto").code == 0


@pytest.mark.parametrize("words", COMMANDS)
def test_a_store_of_a_newer_format_is_left_alone(saved_box: Box, words: list[str]) -> None:
    path = saved_box.store / "format"
    path.write_text(path.read_text().replace("version 1", "version 2"))
    before = saved_box.state()

    check(saved_box, saved_box.call(*words), 5, "has format 2; this keepfast supports only 1")
    assert saved_box.state() == before
    error = saved_box.call(*words, "--json").json()["error"]
    assert (error["kind"], error["exit_code"]) == ("newer_format", 5)


@root_only
@pytest.mark.parametrize("words", COMMANDS)
def test_without_permission_the_store_is_unreachable(visited: Box, words: list[str]) -> None:
    before = visited.state()

    check(visited, visited.call_as(NOBODY, *words), 5, "No permission")
    assert visited.state() == before
    assert visited.call_as(NOBODY, "save", "--auto").code == 0


@root_only
def test_an_unreadable_settings_file_is_named(visited: Box) -> None:
    visited.config.parent.mkdir(parents=True)
    visited.config.write_text("{}")
    visited.config.chmod(0o600)

    check(visited, visited.call_as(NOBODY, "list"), 1, "cannot be read: Permission denied")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a tmpfs with these options below the test's folder."""
    mounted: list[Path] = []

    def mount(options: str) -> Path:
        path = tmp_path / "disk"
        path.mkdir(exist_ok=True)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", path], capture_output=True)
        if done.returncode:
            pytest.skip(f"cannot mount here: {done.stderr.decode()}")
        mounted.append(path)
        return path

    yield mount
    for path in mounted:
        subprocess.run(["umount", "-l", path], capture_output=True)


@root_only
def test_a_read_only_file_system_can_be_read_and_not_written(box: Box, small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("size=20m,mode=700")
    store = str(disk / "store")
    box.call("--store", store, "init")
    box.put("a.txt", "hello")
    box.call("--store", store, "save", "-m", "before")
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    box.put("a.txt", "changed")
    try:
        read = box.call("verify")
        assert read.code == 0 and "not recorded" in read.err, read
        assert box.call("verify", "--quick", "--json").json()["problems"] == []
        for words in (["list"], ["show"], ["cat", "v1", "a.txt"], ["diff"], ["search", "before"], ["status"]):
            result = box.call("--store", store, *words)
            assert result.code == 0, result
        for words in (["save"], ["pin", "v1"], ["compact"], ["rebuild"]):
            result = box.call("--store", store, *words)
            check(box, result, 5, "read")
        assert box.call("--store", store, "save", "--auto").code == 0
    finally:
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    assert len(box.call("--store", store, "list", "--json").json()) == 1


@root_only
def test_what_is_advised_about_a_read_only_store_helps(box: Box, small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("size=20m,mode=700")
    box.put("a.txt", "hello")
    box.call("--store", str(disk / "store"), "init")
    box.save()
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)

    assert "--store DIR init --new-store" in box.call("save", "--json").json()["error"]["hint"]
    assert box.call("--store", str(box.home / "other"), "init", "--new-store").code == 0
    assert box.call("save").code == 0


@root_only
def test_a_store_on_a_read_only_disk_can_be_mounted(box: Box, small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("size=20m,mode=700")
    box.put("a.txt", "hello")
    box.call("--store", str(disk / "store"), "init")
    box.save()
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    where = box.home / "seen"

    behind = box.run("mount", "v1", str(where), "--background", "--json")
    if behind.code and ("FUSE" in behind.out or "mfusepy" in behind.out):
        pytest.skip("no FUSE here")
    try:
        assert behind.code == 0, behind
        assert (where / "a.txt").read_text() == "hello"
    finally:
        subprocess.run(["fusermount3", "-u", str(where)], check=True)


@root_only
def test_a_full_disk_is_a_sentence_and_nothing_is_lost(box: Box, small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("size=4m,mode=700")
    store = str(disk / "store")
    box.call("--store", store, "init")
    box.put("a.txt", "hello")
    assert box.call("--store", store, "save", "-m", "before").code == 0
    box.put("random", os.urandom(8 << 20))

    result = box.run("--store", store, "save")

    check(box, result, 1, "disk is full")
    assert "keepfast forget" in result.err
    assert box.call("--store", store, "save", "--auto").code == 1
    assert len(box.call("--store", store, "list", "--json").json()) == 1
    assert box.call("--store", store, "cat", "v1", "a.txt").out == "hello"
    assert box.call("--store", store, "verify").code == 0
    (box.project / "random").unlink()
    assert box.call("--store", store, "save").code == 0


@pytest.mark.parametrize(
    "words", [["list"], ["show"], ["save"], ["status"], ["cat", "v1", "README"], ["search", "first"]]
)
def test_a_damaged_ledger_is_named_and_can_be_rebuilt(saved_box: Box, words: list[str]) -> None:
    ledger = saved_box.store / "ledger.db"
    ledger.write_bytes(b"\0" * ledger.stat().st_size)
    before = saved_box.state()

    check(saved_box, saved_box.call(*words), 13, "ledger")
    # A save that failed is noted beside the store's contents, for hooks and `doctor` to tell of.
    assert {path: state for path, state in saved_box.state().items() if not path.endswith("/unsaved")} == before
    assert "rebuild" in saved_box.call(*words).err

    assert saved_box.call("rebuild").code == 0
    assert saved_box.versions() == ["v3", "v2", "v1"]
    assert saved_box.call("cat", "v1", "README").out == "read me\n"


def test_a_missing_ledger_is_named_and_can_be_rebuilt(saved_box: Box) -> None:
    (saved_box.store / "ledger.db").unlink()

    check(saved_box, saved_box.call("list"), 13, "is missing")
    assert not (saved_box.store / "ledger.db").exists()
    assert saved_box.call("rebuild").code == 0
    assert saved_box.versions() == ["v3", "v2", "v1"]


def test_a_damaged_pack_is_named_with_its_checkpoints(saved_box: Box) -> None:
    for pack in (saved_box.store / "packs").glob("*.pack"):
        content = bytearray(pack.read_bytes())
        content[20] ^= 0xFF
        pack.write_bytes(content)
    before = saved_box.state()

    result = saved_box.call("verify")
    assert result.code == 13
    assert f"v1 of {saved_box.project}" in result.out
    check(saved_box, saved_box.call("cat", "v1", "src/a.py"), 13, "")
    (saved_box.store / "verified.json").unlink()  # what it found, and nothing else
    assert saved_box.state() == before
    report = saved_box.call("verify", "--json")
    assert report.code == 13
    assert report.json()["problems"]


@pytest.mark.parametrize("text", ["{}", "", "\x00", '{"id": "../../etc"}'])
def test_a_marker_that_says_nothing_is_written_anew(saved_box: Box, text: str) -> None:
    marker = saved_box.project / ".keepfast/workspace.json"
    good = marker.read_text()
    marker.write_text(text)

    assert saved_box.versions() == ["v3", "v2", "v1"]
    assert marker.read_text() == good


@pytest.mark.parametrize("text", ["{", "[]", '{"capture": {"max_files": "many"}}', "\x00"])
def test_a_settings_file_that_cannot_be_used_is_named(saved_box: Box, text: str) -> None:
    saved_box.config.parent.mkdir(parents=True)
    saved_box.config.write_text(text)

    check(saved_box, saved_box.call("list"), 2, str(saved_box.config))
    assert saved_box.call("save", "--auto").code == 0
    assert saved_box.config.read_text() == text


def test_names_with_newlines_and_odd_bytes_are_saved_and_shown_on_one_line(saved_box: Box) -> None:
    saved_box.put(b"a\nb\x1b[2J\xff", "x")

    result = saved_box.call("save", "--json")

    assert result.code == 0
    assert "a\\nb\\x1b[2J\\xff" in saved_box.call("show").out
    assert saved_box.call("diff", "--name-only", "v3", "v4").out.count("\n") == 1


def test_a_folder_that_is_not_there_is_a_usage_error(box: Box) -> None:
    check(box, box.call("-C", "nowhere", "list"), 2, "Cannot change to nowhere")
    check(box, box.call("--config", "nowhere.json", "list"), 2, "nowhere.json")


def test_init_changes_nothing_where_it_cannot_work(box: Box) -> None:
    box.put("file", "x")
    check(box, box.call("init", "file"), 2, "is not a folder")
    check(box, box.call("init", "file/below"), 2, "is not a folder")
    check(box, box.call("init", str(box.home)), 2, "your home folder")

    box.store.parent.mkdir(parents=True)
    box.store.write_text("a file")
    check(box, box.call("init", "new/deep"), 5, "is a file")
    assert not (box.project / "new").exists()
    assert not (box.project / ".keepfast").exists()


def test_a_reader_that_goes_away_is_not_an_error(saved_box: Box) -> None:
    saved_box.put("long", "line\n" * 200_000)
    command = f"{sys.executable} -m keepfast diff | head -c 10"

    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=saved_box.project,
        env={**saved_box.variables, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, b"diff --git", b"")


def test_an_interrupt_is_quiet_and_130(saved_box: Box) -> None:
    lock = next((saved_box.store / "workspaces").iterdir()) / "lock"
    import fcntl

    with lock.open("r+") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        child = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import keepfast.cli.save as s; from keepfast.entry import main; main()",
                "-q",
                "save",
            ],
            cwd=saved_box.project,
            env={**saved_box.variables, "PYTHONPATH": str(SOURCE)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(1.5)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=20)

    assert (child.returncode, out, err) == (130, b"", b"")


def test_the_unexpected_is_one_sentence(saved_box: Box) -> None:
    """A folder where a file must be: nobody thought of it, and still no traceback reaches a person."""
    folder = next((saved_box.store / "workspaces").iterdir())
    (folder / "lock").unlink()
    (folder / "lock").mkdir()

    result = saved_box.call("save")

    assert result.code == 1
    assert "Traceback" not in result.err
    assert result.err.startswith("keepfast: ")


@pytest.fixture
def locked(saved_box: Box) -> Iterator[tuple[Box, int]]:
    """A workspace that another process has locked, and that process."""
    [lock] = saved_box.store.glob("workspaces/*/lock")
    saved_box.put("new", "new")
    with held(lock) as holder:
        yield saved_box, holder


@pytest.mark.parametrize(
    ("lock", "words"),
    [
        ("lock", ("save",)),
        ("lock", ("restore", "v1", "-y")),
        ("lock", ("pin", "v1")),
        ("workspaces", ("init", "other")),
        ("compact.lock", ("verify", "--quick")),
        ("compact.lock", ("rebuild",)),
        ("ledger.db", ("list",)),
        ("ledger.db", ("save",)),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_no_lock_of_the_store_is_waited_for_without_end(
    saved_box: Box, monkeypatch: pytest.MonkeyPatch, lock: str, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr("keepfast.cli.session.COMMAND", 1.2)
    saved_box.put("new", "new")
    with held(saved_box.store / lock) as holder:
        result = saved_box.call(*words)

    assert result.code == 11
    assert "keepfast: " in result.err and "Traceback" not in result.err
    if lock != "ledger.db":
        assert f"process {holder}" in result.err
    assert saved_box.call("save").code == 0
    assert saved_box.call("verify").code == 0


def test_events_stay_pending_while_somebody_has_the_workspace_locked(
    saved_box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that only looks shows what there is; what hooks left is saved once the lock is free."""
    monkeypatch.setattr("keepfast.cli.session.COMMAND", 1.2)
    [folder] = saved_box.store.glob("workspaces/*")
    saved_box.put("new", "new")
    event = PendingEvent("turn", saved_box.now, "s-1", cwd=str(saved_box.project), conversed="yes")
    pending_events.append(str(folder), event)
    with held(folder / "lock"):
        first = saved_box.call("list", "--json")
    between = pending_events.names(str(folder))
    with held(saved_box.store / "lock"):
        second = saved_box.call("list", "--json")
    waiting = pending_events.names(str(folder))
    third = saved_box.call("list", "--json")

    assert [result.code for result in (first, second, third)] == [0, 0, 0]
    assert len(between) == len(waiting) == 1
    assert (len(first.json()), len(second.json()), len(third.json())) == (3, 3, 4)


@pytest.mark.parametrize("words", [("save",), ("restore", "v1", "-y"), ("save", "--json")], ids=" ".join)
def test_a_command_that_waits_too_long_for_a_locked_workspace_is_busy(
    locked: tuple[Box, int], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    box, holder = locked
    monkeypatch.setattr("keepfast.cli.session.COMMAND", 1.2)
    result = box.call(*words)

    assert result.code == 11
    if "--json" in words:
        assert result.json()["error"]["kind"] == "busy" and not result.err
    else:
        assert len(result.err.splitlines()) == 3
    if Path("/proc/locks").exists():
        assert f"process {holder}" in result.err + result.out
    assert (box.project / "new").exists()


def test_a_command_goes_on_when_the_workspace_is_free(locked: tuple[Box, int]) -> None:
    box, holder = locked
    Timer(1.5, lambda: os.kill(holder, signal.SIGKILL)).start()
    result = box.call("save")

    assert result.code == 0 and "v4" in result.out
    assert "Waiting" in result.err
