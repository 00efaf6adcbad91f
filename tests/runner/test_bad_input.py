"""What goes wrong outside of us: a clear state with a reason and a way out; and the tasks of others go on."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from keepfast.model.errors import Damaged, KeepfastError, Unreachable, Usage
from keepfast.runner.actions import recovery, taskfile
from keepfast.runner.domain.records import Task
from keepfast.runner.scheduler.attempts import Threads
from keepfast.runner.scheduler.lock import SupervisorLock, supervisor_problem
from keepfast.runner.scheduler.supervisor import Supervisor
from tests.faults.disks import formatted, needs, tmpfs

from .place import DONE, PHASE, QUICK, Place, say_phase

GARBAGE = """
import os, random
noise = random.Random(3)
os.write(1, bytes(noise.randrange(256) for _ in range(300_000)))
for line in (b'{"type":', b'[' * 100_000, b'{"type":"result","is_error":"maybe"}', b'\\x1b[2J\\x1b]0;title\\x07',
             b'null', b'"\\ud800"',
             b'[USER_QUESTION]', b'=== PHASE 99999999999999999999 COMPLETE ===', b'\\r\\n' * 5000):
    os.write(1, b'\\n' + line + b'\\n')
    os.write(2, line + b'\\n')
"""


def reason(place: Place, task: Task) -> str:
    return place.runtime.tables.task(task.id).reason


def actions(place: Place, task: Task) -> list[str]:
    """The ways out that people are shown."""
    found: list[str] = place.tasks.views.describe(place.runtime.tables.task(task.id))["actions"]
    return found


def wait(until: Callable[[], bool], what: object = "") -> None:
    end = time.monotonic() + 90
    while not until():
        assert time.monotonic() < end, what
        time.sleep(0.02)


class Running:
    """A supervisor in a thread, as `supervise` runs it; `error` is what it ended with."""

    def __init__(self, place: Place) -> None:
        self.workflows = Threads(place.runtime)
        self.supervisor = Supervisor(place.runtime, self.workflows)
        self.lock = SupervisorLock(place.runtime.folder)
        self.supervisor.note = self.lock.note
        self.error: KeepfastError | None = None
        self.thread = Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.supervisor.run()
        except KeepfastError as error:
            self.error = error

    def close(self) -> None:
        self.supervisor.stop.set()
        self.thread.join(60)
        self.workflows.close()
        self.lock.close()


# Task files


@pytest.mark.parametrize(
    ("content", "said", "hint"),
    [
        ({"brief": "x", "breif": "y"}, "unknown key 'breif'", "brief"),
        ({"brief": "x", "workspace": "nowhere"}, "does not exist", "Create it, or give"),
        ({"brief": "x", "agent": {"kind": "command"}}, "agent.command", ""),
        ({"tasks": [{"name": "a", "brief": "x", "after": ["a"]}]}, "wait for one another: a", "Remove one `after`"),
        ({"tasks": [{"name": "a", "brief": "x", "after": ["b"]}, {"name": "b", "brief": "x", "after": ["a"]}]},
         "wait for one another: a → b", "Remove one `after`"),
        ({"tasks": []}, "must be a list of tasks", ""),
        ({"tasks": [{"brief": "x"}], "title": "y"}, "no other key is allowed", ""),
    ],
)  # fmt: skip
def test_a_task_file_that_is_wrong_makes_no_task_at_all(place: Place, content: Any, said: str, hint: str) -> None:
    path = place.base / "tasks.json"
    path.write_text(json.dumps(content))

    with pytest.raises(Usage) as caught:
        place.tasks.new_all(taskfile.read(str(path)))

    assert said in str(caught.value)
    assert hint in caught.value.hint
    assert place.tasks.views.listing() == []


def test_a_task_that_waits_for_one_that_is_not_there_is_refused(place: Place) -> None:
    with pytest.raises(KeepfastError, match="There is no task 'nobody'"):
        place.task([DONE], after=["nobody"])

    assert place.tasks.views.listing() == []


# Agents


def test_an_agent_that_was_uninstalled_fails_its_task_and_no_other(place: Place) -> None:
    program = place.base / "agent"
    program.write_text("#!/bin/sh\necho '=== CUSTOM TASK COMPLETE ==='\n")
    program.chmod(0o755)
    task = place.task(name="one", agent={"command": [str(program)]})
    program.rename(place.base / "away")
    other = place.task([DONE], name="two")
    place.supervise()

    assert place.state(other) == ("done", "")
    assert place.state(task) == ("failed", "")
    assert str(program) in reason(place, task)
    assert "retry" in actions(place, task)
    (place.base / "away").rename(program)
    place.tasks.retry(task.id)
    place.supervise()
    assert place.state(task) == ("done", "")


def test_an_agent_that_prints_garbage_waits_for_a_person(place: Place) -> None:
    program = place.base / "garbage.py"
    program.write_text(GARBAGE)
    task = place.task(name="one", agent={"command": [sys.executable, str(program)]})
    other = place.task([DONE], name="two")
    place.supervise()

    assert place.state(other) == ("done", "")
    assert place.state(task) == ("active", "no_progress")
    assert "No progress in 3 runs" in reason(place, task)
    assert reason(place, task).isprintable()
    assert {"resume", "cancel"} <= set(actions(place, task))
    json.dumps(place.shown(task))


def test_a_line_of_100_megabytes_is_cut_while_others_go_on(place: Place) -> None:
    task = place.task([{"flood": 100_000_000}, DONE], name="one")
    other = place.task([DONE], name="two")
    place.supervise()

    assert place.state(other) == place.state(task) == ("done", "")
    [run] = place.runtime.tables.runs("task = ?", task.id)
    assert os.path.getsize(run.folder + "/out.log") < 10_000


# Workspaces


def test_a_workspace_deleted_under_way_can_be_brought_back(place: Place) -> None:
    go = place.base / "go"
    task = place.task([{"write": ["kept", "1"]}, {"wait_for": str(go)}, say_phase(1)], [say_phase(1)],
                      phases=[{**PHASE, "verify": "true"}], name="one")  # fmt: skip
    place.supervise(until=lambda: place.journal("one") == ["begin 0"])
    shutil.rmtree(place.base / "one")
    go.touch()
    other = place.task([DONE], name="two")
    place.supervise()

    assert place.state(other) == ("done", "")
    assert place.state(task) == ("active", "crashed")
    assert f"there is no folder {place.base / 'one'}" in reason(place, task)
    assert "resume" in actions(place, task)
    (place.base / "one").mkdir()
    place.tasks.resume(task.id)
    place.supervise()
    assert place.state(task) == ("done", "")


# Disks and databases


@pytest.mark.root
@needs("mount")
def test_a_full_disk_is_waited_for_and_nothing_is_lost(tmp_path: Path) -> None:
    """The data folder has no room left: agents go on, what they say is kept, and all comes to its end once there is room."""
    with tmpfs(tmp_path / "data", "size=24m"):
        place = Place(tmp_path, QUICK)
        go = tmp_path / "go"
        first = place.task([{"write": ["a", "1"]}, {"wait_for": str(go)}, say_phase(1)], phases=[PHASE], name="one")
        second = place.task([DONE], name="two", start=False)
        running = Running(place)
        try:
            wait(lambda: place.journal("one") == ["begin 0"], place)
            place.tasks.start(second.id)
            fill(tmp_path / "data" / "filler")
            go.touch()
            wait(lambda: place.journal("one") == ["begin 0", "end 0"], "the agent was held up")
            wait(lambda: "no space left" in (supervisor_problem(place.runtime.folder) or ""), place)
            (tmp_path / "data" / "filler").unlink()
            wait(lambda: place.state(first) == place.state(second) == ("done", ""), place)
            wait(lambda: supervisor_problem(place.runtime.folder) == "", "it still complains")
            assert running.error is None
        finally:
            running.close()
            place.close()


def small_disk(kind: str, folder: Path) -> AbstractContextManager[Path]:
    return tmpfs(folder, "size=4m") if kind == "tmpfs" else formatted(folder, kind, 8)


@pytest.mark.root
@needs("mount", "mkfs.ext4", "losetup")
@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
@pytest.mark.parametrize("ends", ["badly", "as if nothing were"])
def test_a_workspace_whose_disk_is_full_waits_for_room(place: Place, kind: str, ends: str) -> None:
    last = {"exit": 1} if ends == "badly" else {"say": "That is it."}
    with small_disk(kind, place.base / "one"):
        task = place.task([{"write": ["a.txt", "1"]}, {"fill": "filler"}, last], [DONE], name="one")
        other = place.task([{"sleep": 0.5}, DONE], name="two")
        place.supervise()

        assert place.state(other) == ("done", "")
        assert place.state(task) == ("active", "crashed")
        assert reason(place, task) == (
            f"No space left on the disk of {place.base / 'one'}: free some space, then resume the task."
        )
        assert "resume" in actions(place, task)
        assert place.shown(task)["hold"]["needs_you"]
        place.tasks.resume(task.id)
        place.supervise()
        assert place.state(task) == ("active", "crashed"), "there still is no room"
        assert place.journal("one") == ["begin 0", "end 0"]

        (place.base / "one/filler").unlink()
        place.tasks.resume(task.id)
        place.supervise()
        assert place.state(task) == ("done", "")
        told = (place.base / "one/.metadata/history.jsonl").read_text().splitlines()
        events = [json.loads(line)["sequence"] for line in told]
        assert events == [event["sequence"] for event in place.tasks.views.log(task.id)], "the copy is whole again"


@pytest.mark.root
@needs("mount")
def test_a_task_for_a_folder_without_room_is_refused_in_a_sentence(place: Place) -> None:
    with tmpfs(place.base / "one", "size=4m"):
        fill(place.base / "one/filler")

        with pytest.raises(KeepfastError, match=r"[Nn]o space left") as caught:
            place.task([DONE], name="one")

        assert caught.value.hint
        assert place.tasks.views.listing() == []


def fill(path: Path) -> None:
    """Use up every byte."""
    with open(path, "wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


@pytest.mark.sqlite
def test_a_database_that_is_gone_ends_the_supervisor_and_is_made_again(place: Place) -> None:
    go = place.base / "go"
    task = place.task([{"wait_for": str(go)}, DONE], [DONE])
    running = Running(place)
    wait(lambda: place.journal() == ["begin 0"], place)
    (place.data / "supervisor/tasks.db").unlink()
    wait(lambda: not running.thread.is_alive(), "it went on with a file that is not there")
    running.close()

    assert isinstance(running.error, Unreachable)
    assert "keepfast rebuild" in running.error.hint
    place.close()
    place.__init__(place.base)  # type: ignore[misc]
    recovery.rebuild(place.runtime, [str(place.base)])
    place.supervise()
    assert place.state(task) == ("active", "user_pause")
    assert "rebuilt" in reason(place, task)
    go.touch()
    place.tasks.resume(task.id)
    place.supervise()
    assert place.state(task) == ("done", "")


@pytest.mark.sqlite
def test_a_damaged_database_is_named_with_the_way_out(place: Place) -> None:
    place.task([DONE])
    place.close()
    path = place.data / "supervisor/tasks.db"
    path.write_bytes(b"no database" * 1000)

    with pytest.raises(Damaged) as caught:
        place.make_runtime()

    assert "keepfast rebuild" in caught.value.hint
    path.unlink()
    place.__init__(place.base)  # type: ignore[misc]
