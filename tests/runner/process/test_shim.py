"""The program around an agent: how it ended, what it left, and that everything below it stands still when frozen."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from keepfast.runner.process import shims
from keepfast.runner.process.spellings import forms
from keepfast.runner.process.tree import below

TREE = Path(__file__).with_name("tree.py")
TOKEN = f"token-{os.getpid()}"
"""Of this process alone: tests that run beside it end the strays of their own."""


class Shimmed:
    """One shim in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def start(self, *command: str, **more: Any) -> None:
        environment = {"PATH": os.environ["PATH"], shims.TOKEN: TOKEN}
        job = {"run": "t:1", "command": list(command), "cwd": "/tmp", "environment": environment, "grace": 1, **more}
        assert shims.start(self.folder, job) == "started"

    def end(self) -> shims.RunStatus:
        end = time.monotonic() + 60
        while (look := shims.status_of(self.folder, "t:1")).kind == shims.ALIVE and time.monotonic() < end:
            time.sleep(0.02)
        return look

    def wish(self, what: str) -> shims.ShimState:
        number, end = shims.wish(self.folder, what), time.monotonic() + 20
        while shims.state(self.folder).wish != number and time.monotonic() < end:
            time.sleep(0.001)
        return shims.state(self.folder)

    def wait_for(self, text: str) -> None:
        end = time.monotonic() + 60
        while not (os.path.exists(f"{self.folder}/out.log") and text in self.out) and time.monotonic() < end:
            time.sleep(0.01)

    @property
    def out(self) -> str:
        return Path(self.folder, "out.log").read_text()


@pytest.fixture
def shimmed(tmp_path: Path) -> Iterator[Shimmed]:
    shimmed = Shimmed(tmp_path / "run")
    yield shimmed
    if os.path.exists(shimmed.folder):
        shims.wish(shimmed.folder, "kill")


def test_the_exit_code_is_known_to_whoever_asks_later(shimmed: Shimmed) -> None:
    shimmed.start("sh", "-c", "echo hello; exit 3")

    look = shimmed.end()

    assert (look.kind, look.exit_code, look.signal) == (shims.OVER, 3, None)
    assert shimmed.out == "hello\n"


def test_a_signal_is_told_apart_from_an_exit(shimmed: Shimmed) -> None:
    shimmed.start("sh", "-c", "kill -9 $$")

    assert (shimmed.end().exit_code, shimmed.end().signal) == (None, 9)


def test_a_program_that_is_not_there_is_said_so(shimmed: Shimmed) -> None:
    shimmed.start("no-such-program")

    look = shimmed.end()

    assert not look.started
    assert look.reason == "no-such-program: No such file or directory"


def test_what_the_agent_leaves_behind_is_ended_too(shimmed: Shimmed) -> None:
    shimmed.start("sh", "-c", "(setsid sh -c 'trap \"\" TERM; sleep 600' &) ; sleep 0.2")

    shimmed.end()

    assert shims.end_strays(TOKEN) == 0


def test_an_agent_is_never_started_twice(shimmed: Shimmed) -> None:
    shimmed.start("true")
    shimmed.end()

    job = {"run": "t:1", "command": ["true"], "cwd": "/", "environment": {}}
    assert shims.start(shimmed.folder, job) == "begun"


def test_stop_is_asked_first_and_then_not_asked(shimmed: Shimmed) -> None:
    shimmed.start("sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 0.1; done")
    shimmed.wait_for("deaf\n")
    shims.wish(shimmed.folder, "stop", "enough")

    look = shimmed.end()

    assert (look.signal, look.reason) == (signal.SIGKILL, "enough")


def test_lines_come_whole_and_long_ones_are_cut(shimmed: Shimmed) -> None:
    shimmed.start(sys.executable, "-c", "print('x' * 20_000_000); print('after')")
    shimmed.end()

    assert shimmed.out == "[line cut by keepfast]\nafter\n"


@pytest.mark.parametrize(
    "spelled",
    [
        "print(s)", "print(json.dumps({'k': s}))", "print(json.dumps(json.dumps({'k': s})))",
        "print(urllib.parse.quote(s, safe=''))", "print(base64.b64encode(s.encode()).decode())",
        "print(base64.b64encode(('user:' + s).encode()).decode())", "print(s.encode().hex())",
        "sys.stdout.write(s[:9]); sys.stdout.flush(); time.sleep(0.2); print(s[9:])",
    ],
)  # fmt: skip
def test_a_secret_is_stripped_in_every_spelling(shimmed: Shimmed, spelled: str) -> None:
    secret = 'pa"ss/wörd+&longer'
    code = f"import base64, json, sys, time, urllib.parse; s = {secret!r}; {spelled}"
    shimmed.start(sys.executable, "-c", code, secrets=[secret])

    shimmed.end()

    assert "[secret]" in shimmed.out
    assert "longer" not in shimmed.out
    assert not any(form.decode("utf-8", "replace") in shimmed.out for form in forms([secret]))


@pytest.mark.parametrize("freezer", ["auto", "walk"])
def test_a_tree_of_twenty_processes_stands_still_and_goes_on(shimmed: Shimmed, tmp_path: Path, freezer: str) -> None:
    counters = tmp_path / "counters"
    counters.mkdir()
    shimmed.start(sys.executable, str(TREE), str(counters), freezer=freezer)
    wait_for(lambda: len(list(counters.iterdir())) == 20)
    slowest = 0.0
    for _ in range(5):
        begin = time.monotonic()
        state = shimmed.wish("freeze")
        slowest = max(slowest, time.monotonic() - begin)
        assert state.all and state.frozen, state
        before = read(counters)
        time.sleep(0.05)
        assert read(counters) == before, "something still runs"
        shimmed.wish("thaw")
        wait_for(lambda before=before: all(read(counters)[name] != value for name, value in before.items()))
    print(f"{freezer}: slowest freeze {slowest * 1000:.0f} ms")

    shims.wish(shimmed.folder, "kill")
    assert shimmed.end().kind == shims.OVER
    assert shims.end_strays(TOKEN) == 0


@pytest.mark.campaign
def test_a_thousand_freezes(shimmed: Shimmed, tmp_path: Path, request: Any) -> None:
    if not request.config.getoption("campaign"):
        pytest.skip("the campaign does this")
    counters = tmp_path / "counters"
    counters.mkdir()
    shimmed.start(sys.executable, str(TREE), str(counters), freezer="walk")
    wait_for(lambda: len(list(counters.iterdir())) == 20)
    times = []
    for _ in range(1000):
        begin = time.monotonic()
        state = shimmed.wish("freeze")
        times.append(time.monotonic() - begin)
        assert state.all, state
        before = read(counters)
        assert read(counters) == before
        shimmed.wish("thaw")
        wait_for(lambda before=before: all(read(counters)[name] != value for name, value in before.items()))
    times.sort()
    print(f"1000 freezes of 20 processes: median {times[500] * 1000:.0f} ms, slowest {times[-1] * 1000:.0f} ms")


def test_a_frozen_tree_is_found_again_by_the_next_supervisor(shimmed: Shimmed, tmp_path: Path) -> None:
    """Whoever started the shim is gone; the folder tells that it is frozen, and thaws it."""
    shimmed.start("sleep", "600")
    shimmed.wish("freeze")

    code = f"from keepfast.runner.process import shims; print(shims.state({shimmed.folder!r}).frozen)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert not found.stderr

    assert found.stdout.strip() == "True"
    assert shims.status_of(shimmed.folder, "t:1").kind == shims.ALIVE
    assert not shimmed.wish("thaw").frozen


def test_a_full_disk_costs_lines_and_not_the_exit_code(shimmed: Shimmed) -> None:
    shimmed.start("sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' 'x' | fold -w 100; exit 4", log_most=1000)

    look = shimmed.end()

    assert look.exit_code == 4
    assert len(shimmed.out) <= 1100


def test_only_people_may_answer(shimmed: Shimmed) -> None:
    code = (
        "import os; from keepfast.runner.actions.tasks import only_people\n"
        "try:\n only_people(os.getpid(), 'approve'); print('allowed')\nexcept Exception as error: print(error)"
    )
    shimmed.start(sys.executable, "-c", code)
    shimmed.end()

    assert shimmed.out == "An agent may not approve tasks.\n"


def read(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def wait_for(found: Any, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_the_tree_is_seen_from_its_root() -> None:
    child = subprocess.Popen(["sh", "-c", "sleep 30 & wait"])
    try:
        wait_for(lambda: len(below(child.pid)) == 1)
    finally:
        for pid in below(child.pid):
            os.kill(pid, signal.SIGKILL)
        child.kill()
        child.wait()


def test_the_report_is_json(shimmed: Shimmed) -> None:
    shimmed.start("true")
    shimmed.end()

    assert json.loads(Path(shimmed.folder, "exit.json").read_text())["exit"] == 0


def test_both_ways_of_seeing_the_tree_agree() -> None:
    from keepfast.runner.process.tree import _below_by_parents

    child = subprocess.Popen(["sh", "-c", "sleep 30 & sleep 30 & wait"])
    try:
        wait_for(lambda: len(below(child.pid)) == 2)

        assert set(below(child.pid)) == set(_below_by_parents(child.pid))
    finally:
        for pid in below(child.pid):
            os.kill(pid, signal.SIGKILL)
        child.kill()
        child.wait()
