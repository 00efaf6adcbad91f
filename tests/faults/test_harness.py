"""The tools of the fault tests do what they say."""

from __future__ import annotations

from pathlib import Path
from random import Random

from .powerloss import FLUSH, MARK, WRITE, Entry, crashed, crashes
from .stage import Stage
from .test_power_loss import promised
from .tracing import after_start, parse
from .workload import BALLAST, LARGE, contents, put

TRACE = """\
77    openat(AT_FDCWD</root>, "/usr/lib/libc.so", O_RDONLY|O_CLOEXEC) = 3</usr/lib/libc.so>
77    openat(AT_FDCWD</root>, "/stage/store/lock", O_RDWR|O_CREAT|O_CLOEXEC, 0600) = 7</stage/store/lock>
77    openat(AT_FDCWD</root>, "/stage/store/format", O_RDONLY|O_CLOEXEC) = 8</stage/store/format>
78    write(6</stage/store/tmp/f9d1>, "HFPACK1\\n", 8) = 8
77    rename("/stage/store/tmp/f9d1", "/stage/store/packs/5afb.pack") = 0
77    +++ exited with 0 +++
"""


def test_calls_are_counted_per_name_as_strace_counts_them() -> None:
    calls = parse(TRACE)

    assert [(call.name, call.number) for call in calls] == [
        ("openat", 1), ("openat", 2), ("openat", 3), ("write", 1), ("rename", 1)
    ]  # fmt: skip


def test_only_calls_on_our_folder_that_change_something_are_crash_points() -> None:
    points = [call for call in after_start(parse(TRACE), Path("/stage")) if call.changes]

    assert [(call.name, call.number) for call in points] == [("openat", 2), ("write", 1), ("rename", 1)]
    assert points[1].paths() == ["/stage/store/tmp/f9d1"]
    assert points[2].renamed() == ("/stage/store/tmp/f9d1", "/stage/store/packs/5afb.pack")


def test_a_crash_keeps_what_was_flushed_and_some_of_the_rest() -> None:
    durable = bytearray(2048)
    flight = [Entry(WRITE, 0, b"a" * 1024), Entry(WRITE, 1024, b"b" * 1024)]

    images = {mode: bytes(crashed(durable, flight, mode, Random(1))) for mode in ("none", "all", "some", "torn")}

    assert images["none"] == bytes(2048)
    assert images["all"] == b"a" * 1024 + b"b" * 1024
    assert images["some"][:1024] in (bytes(1024), b"a" * 1024)
    assert images["torn"] not in (images["none"], images["all"], images["some"])
    assert durable == bytearray(2048)


def test_a_crash_knows_what_had_been_promised() -> None:
    log = [
        Entry(MARK, 0, b"START"),
        Entry(WRITE, 0, b"one"),
        Entry(FLUSH, 0, b""),
        Entry(MARK, 0, b"ACK 1"),
        Entry(WRITE, 0, b"two"),
        Entry(MARK, 0, b"ACK 2"),
        Entry(MARK, 0, b"END"),
    ]

    found = {crash.at: (crash.marks, crash.in_flight) for crash in crashes(log, 1, 100, Random(1))}

    assert found[2] == (["START"], 1)
    assert found[4] == (["START", "ACK 1"], 0)
    assert found[6] == (["START", "ACK 1", "ACK 2"], 1)
    assert all(bytes(crash.image[:3]) in (b"one", b"two") for crash in crashes(log, 1, 100, Random(2)) if crash.at > 2)


def test_nothing_is_promised_about_a_version_that_is_being_forgotten() -> None:
    assert promised(["ACK 1", "ACK 2", "FORGET 1"]) == ({2}, set())
    assert promised(["ACK 1", "ACK 2", "FORGET 1", "FORGOT 1"]) == ({2}, {1})


def test_a_state_follows_from_its_number_alone(tmp_path: Path) -> None:
    for extra in ("", LARGE, BALLAST):
        for number in (1, 7, 2):
            put(tmp_path, number, extra)
            found = {
                str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
            }

            assert found == contents(number, extra)
    assert contents(3) != contents(4)


def test_the_judge_sees_a_lost_a_wrong_and_a_hidden_version(folder: Path) -> None:
    """Acknowledged but not there; there but with other contents; forgotten but not hidden."""
    stage = Stage(folder)
    stage.saved(2)
    stage.put(9)
    assert stage.hook().returncode == 0

    findings = stage.audit({1, 2, 5}, {2}, saving=False)

    assert findings[0] == "lost: [5]"
    assert findings[1] == "forgotten, but back: [2]"
    assert findings[2].startswith("v3 loads, but is wrong in")
