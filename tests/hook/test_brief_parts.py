"""The hooks of one start share one build of the brief, and none of them ever waits for one that is dead."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keepfast.agents import transcript
from keepfast.state import brief_parts as parts
from keepfast.state import sessions

from .ground import SESSION, Ground
from .test_delivery import OTHER, answer, start, told, worked

__all__ = ["worked"]

KEY = ["ws", "s-1", "compact", "cp-1", "00"]
TEXTS = ["the notes", "the files"]
HOLDER = """
import os, sys
from keepfast.state import brief_parts as parts

def build():
    print("building", flush=True)
    sys.stdin.read()
    os.abort()

parts.build_or_take(sys.argv[1], "s-1", ["ws", "s-1", "compact", "cp-1", "00"], 1, [2], build, lambda: 0)
"""


class Builds:
    """Builds that are counted, and may be held up."""

    def __init__(self, texts: list[str] | None = None) -> None:
        self.count, self.texts = 0, TEXTS if texts is None else texts
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.may_end.set()

    def __call__(self) -> list[str]:
        self.count += 1
        self.begun.set()
        assert self.may_end.wait(60)
        return self.texts


def ask(
    folder: Path, number: int, build: Callable[[], list[str]], now: int = 0, patience: float = 60.0, **other: Any
) -> list[str]:
    key, session = other.get("key", KEY), other.get("session", "s-1")
    others = [3 - number]
    return parts.build_or_take(str(folder), session, key, number, others, build, lambda: now, patience)


def left(folder: Path, session: str = "s-1") -> Path:
    return Path(sessions.path(str(folder), session, parts.KIND))


def test_the_second_takes_what_the_first_left_for_it(tmp_path: Path) -> None:
    build = Builds()

    assert ask(tmp_path, 1, build)[0] == TEXTS[0]
    assert stat.S_IMODE(left(tmp_path).stat().st_mode) == 0o600
    assert TEXTS[0] not in left(tmp_path).read_text()
    assert ask(tmp_path, 2, build)[1] == TEXTS[1]

    assert build.count == 1 and not left(tmp_path).exists()


@pytest.mark.parametrize("first", [1, 2])
def test_one_that_comes_while_the_other_builds_waits_for_it(tmp_path: Path, first: int) -> None:
    build, got = Builds(), dict[int, list[str]]()
    build.may_end.clear()

    def come(number: int) -> None:
        got[number] = ask(tmp_path, number, build)

    threads = [threading.Thread(target=come, args=(number,)) for number in (first, 3 - first)]
    threads[0].start()
    assert build.begun.wait(60)
    threads[1].start()
    time.sleep(0.05)  # the second is most likely at the lock; if not, it finds what was left
    build.may_end.set()
    for thread in threads:
        thread.join(60)

    assert build.count == 1
    assert {number: texts[number - 1] for number, texts in got.items()} == {1: TEXTS[0], 2: TEXTS[1]}
    assert not left(tmp_path).exists()


def test_however_two_race_one_builds_and_nothing_stays(tmp_path: Path) -> None:
    for _ in range(40):
        build, got, barrier = Builds(), dict[int, str](), threading.Barrier(2)

        def come(number: int, build: Builds = build, got: dict[int, str] = got, barrier: Any = barrier) -> None:
            barrier.wait(60)
            got[number] = ask(tmp_path, number, build)[number - 1]

        threads = [threading.Thread(target=come, args=(number,)) for number in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert (build.count, got, left(tmp_path).exists()) == (1, {1: TEXTS[0], 2: TEXTS[1]}, False)


def test_when_the_first_dies_the_second_builds_at_once(tmp_path: Path) -> None:
    words = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"building\n"
        build, got = Builds(), list[list[str]]()
        second = threading.Thread(target=lambda: got.append(ask(tmp_path, 2, build, patience=90.0)))
        second.start()
        holder.send_signal(signal.SIGKILL)
        second.join(80)

    assert got == [TEXTS] and build.count == 1


def test_one_that_hangs_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    hanging, build = Builds(), Builds()
    hanging.may_end.clear()
    first = threading.Thread(target=ask, args=(tmp_path, 1, hanging))
    first.start()
    assert hanging.begun.wait(60)

    assert ask(tmp_path, 2, build, patience=0.05) == TEXTS and build.count == 1

    hanging.may_end.set()
    first.join(60)


def test_a_build_that_fails_leaves_the_other_to_build(tmp_path: Path) -> None:
    def broken() -> list[str]:
        raise OSError("unreadable")

    with pytest.raises(OSError):
        ask(tmp_path, 1, broken)

    assert ask(tmp_path, 2, Builds()) == TEXTS


@pytest.mark.parametrize(
    "other",
    [
        {"key": ["other", "s-1", "compact", "cp-1", "00"]},
        {"key": ["ws", "s-1", "clear", "cp-1", "00"]},
        {"key": ["ws", "s-1", "compact", "cp-2", "00"]},
        {"session": "s_1", "key": ["ws", "s_1", "compact", "cp-1", "00"]},
        {"session": "s/1", "key": ["ws", "s/1", "compact", "cp-1", "00"]},
        {"now": parts.MAX_AGE},
        {"now": -1},
    ],
)
def test_what_was_built_for_anything_else_is_not_taken(tmp_path: Path, other: dict[str, Any]) -> None:
    ask(tmp_path, 1, Builds(["foreign", "foreign"]), session="s_1" if other.get("session") == "s/1" else "s-1")

    assert ask(tmp_path, 2, Builds(), **other) == TEXTS


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"key": 1}', b'{"key": ["ws"], "at": "x"}', b"\xff" * 99])
def test_a_torn_or_forged_file_is_passed_over(tmp_path: Path, content: bytes) -> None:
    ask(tmp_path, 1, Builds())
    left(tmp_path).write_bytes(content)

    assert ask(tmp_path, 2, Builds()) == TEXTS
    found = json.loads(left(tmp_path).read_text())
    found["parts"] = {"2": 7}
    left(tmp_path).write_text(json.dumps(found))
    assert ask(tmp_path, 2, Builds()) == TEXTS


def test_a_link_or_a_folder_that_cannot_be_had_costs_only_the_sharing(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    left(tmp_path).parent.mkdir()
    left(tmp_path).symlink_to(elsewhere)
    (tmp_path / "file").write_text("")

    assert ask(tmp_path, 1, Builds()) == TEXTS and elsewhere.read_text() == "mine"
    assert ask(tmp_path / "file", 1, Builds()) == TEXTS


def test_parts_that_nobody_came_for_are_swept_and_those_at_work_stay(tmp_path: Path) -> None:
    ask(tmp_path, 1, Builds())
    made = left(tmp_path).stat().st_mtime_ns

    parts.sweep(str(tmp_path), made + parts.MAX_AGE - 1)
    assert left(tmp_path).exists()
    with left(tmp_path).open("r+b") as held:
        assert parts._try_lock(held.fileno())
        parts.sweep(str(tmp_path), made + parts.MAX_AGE)
        assert left(tmp_path).exists()
    parts.sweep(str(tmp_path), made + parts.MAX_AGE)
    assert not left(tmp_path).exists()
    parts.sweep(str(tmp_path / "nowhere"), made)


# In the hook


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What of transcripts is read in this process."""
    found: list[object] = []
    real = transcript.read

    def read(source: Any, *rest: Any, **more: Any) -> Any:
        found.append(source)
        return real(source, *rest, **more)

    monkeypatch.setattr(transcript, "read", read)
    return found


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_both_hooks_of_a_start_read_the_transcript_once(
    worked: Ground, reads: list[object], order: tuple[int, int]
) -> None:
    got = {number: told(start(worked, "compact", number, SESSION)) for number in order}

    assert "make the totals exact" in got[1] and "two" in got[2]
    assert len(reads) == 1
    assert not left(worked.folder, SESSION).exists()


def test_what_lies_between_the_hooks_holds_no_secret_and_is_nobody_elses(worked: Ground) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
    (worked.project / "a.txt").write_text("two\n")
    (worked.project / "b.txt").write_text(f"token = {secret}\n")
    start(worked, "compact", 1, SESSION)

    lying = left(worked.folder, SESSION)
    assert "two" in lying.read_text() and secret not in lying.read_text()
    assert stat.S_IMODE(lying.stat().st_mode) == 0o600
    assert "two" in told(start(worked, "compact", 2, OTHER))  # another session builds its own
    assert lying.exists()


def test_real_hooks_at_the_same_time_tell_both_parts(worked: Ground) -> None:
    worked.settle()
    payload = json.dumps(worked.payload("SessionStart", source="compact")).encode()
    processes = [
        subprocess.Popen(
            worked.command("--part", str(number)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=worked.variables,
            cwd=worked.project,
        )
        for number in (1, 2)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(payload)
        process.stdin.close()
    texts = []
    for process in processes:
        assert process.stdout is not None
        texts.append(told(json.loads(process.stdout.read())))
        assert process.wait(60) == 0
        process.stdout.close()

    assert "make the totals exact" in texts[0] and "### a.txt" in texts[1]
    assert not left(worked.folder, SESSION).exists()


def test_the_baseline_of_the_new_session_does_not_hide_the_work_before_it(worked: Ground) -> None:
    answer(worked, "SessionEnd", reason="prompt_input_exit")
    (worked.project / "b.txt").write_text("changed by hand\n")

    # The worker is done before the brief is asked for: its checkpoint is the newest.
    assert "make the totals exact" in told(start(worked))
    assert worked.triggers()[-1] == "session_start"


def test_the_second_parts_hook_ends_after_the_firsts(worked: Ground) -> None:
    """The client joins texts in the order in which hooks end, whichever of them began first."""
    payload = json.dumps(
        {**worked.payload("SessionStart"), "source": "clear", "session_id": OTHER, "transcript_path": ""}
    )
    ended: dict[str, float] = {}

    def run(part: str) -> None:
        done = worked.send(payload.encode(), "--part", part)
        ended[part] = time.monotonic()
        assert told(json.loads(done.stdout))

    second, first = (threading.Thread(target=run, args=[part]) for part in ("2", "1"))
    second.start()
    until = time.monotonic() + 60
    while not any(path.stat().st_size for path in worked.folder.glob("sessions/*.brief")):
        assert time.monotonic() < until, "nothing is built"
        time.sleep(0.01)
    first.start()  # the other one has built both parts, and has nothing left to do
    first.join()
    second.join()

    assert ended["1"] < ended["2"]


def test_a_second_part_waits_only_so_long_for_a_first_that_never_comes(tmp_path: Path) -> None:
    parts.wait_for_first(str(tmp_path), "s-1", lambda: 0, patience=0.05)


def test_a_first_part_of_an_earlier_start_is_not_waited_for_in_vain_nor_taken_for_this_one(tmp_path: Path) -> None:
    parts.hold_first(str(tmp_path), "s-1", 0)
    name = sessions.path(str(tmp_path), "s-1", parts.FIRST)

    assert parts._has_ended(name, 1)
    assert not parts._has_ended(name, parts.MAX_AGE + 1)
