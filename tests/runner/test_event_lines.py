"""What commands print of tasks: `supervise` as it happens, `task log` and `task show` in words."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time

import pytest

from keepfast.cli.event_lines import log_line, supervisor_line

from .place import DONE
from .test_commands import Person, person

__all__ = ["person"]
ASK = {"say": "[USER_QUESTION]\ncategory: choice\nquestion: Which one?\noptions:\n - a\n - b\n[/USER_QUESTION]"}


def happenings(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_supervise_tells_what_it_saves_recovers_and_waits_for(person: Person) -> None:
    agent = person.agent([{"write": ["a.txt", "1"]}, {"limited": 1}, {"exit": 1}], [ASK], [DONE])
    id = person.json("task", "new", "x", "--agent", agent)[0]["id"]

    supervisor_line = person.run("supervise", "--until-idle", "--json")

    assert supervisor_line.returncode == 0, supervisor_line
    found = happenings(supervisor_line.stdout)
    assert {one["taskId"] for one in found} == {id}
    types = [one["type"] for one in found]
    assert types.index("checkpoint_created") < types.index("checkpoint_restored") < types.index("user_question")
    waits = [one["metadata"] for one in found if one["type"] == "state_transition"]
    assert [one["hold"] for one in waits if one["hold"]] == ["rate_limit", "question"]  # type: ignore[index]
    assert next(one for one in waits if one["hold"] == "rate_limit")["until"]  # type: ignore[index]
    log_line = [one["sequence"] for one in happenings(person.run("task", "log", id, "--json").stdout)]
    assert [one["sequence"] for one in found] == [number for number in log_line if number >= found[0]["sequence"]]  # type: ignore[operator]


def test_supervise_prints_one_line_for_each_and_none_with_quiet(person: Person) -> None:
    agent = person.agent([{"write": ["a.txt", "1"]}, ASK], [{"exit": 3}], [DONE])
    id = person.json("task", "new", "x", "--agent", agent)[0]["id"]
    first = person.run("supervise", "--until-idle")
    assert person.run("task", "answer", id, "a").returncode == 0
    quiet = person.run("-q", "supervise", "--until-idle")

    assert first.returncode == quiet.returncode == 0
    lines = [line for line in first.stdout.splitlines() if id in line]
    assert any("question" in line and "Which one?" in line for line in lines), first
    assert any("start" in line for line in lines) and len(lines) >= 4
    assert (quiet.stdout, quiet.stderr) == ("", "")


@pytest.mark.sqlite
def test_supervise_says_which_tasks_it_finds(person: Person) -> None:
    go = person.base / "go"
    agent = person.agent([{"write": ["a.txt", "1"]}, {"wait_for": str(go)}, ASK])
    id = person.json("task", "new", "x", "--agent", agent)[0]["id"]
    command = [sys.executable, "-m", "keepfast", "supervise"]
    child = subprocess.Popen(command, cwd=person.project, env=person.variables, stdout=subprocess.DEVNULL)
    while not (person.project / "a.txt").exists():
        time.sleep(0.05)
    child.send_signal(signal.SIGTERM)
    assert child.wait(60) == 0
    go.touch()

    supervisor_line = happenings(person.run("supervise", "--until-idle", "--json").stdout)
    again = person.run("supervise", "--until-idle")

    assert [(one["taskId"], one["run"]) for one in supervisor_line if one["type"] == "found"] == [(id, f"{id}:1")]
    assert any(id in line and "question" in line for line in again.stdout.splitlines()), again


def test_the_log_is_told_in_words(person: Person) -> None:
    agent = person.agent([{"write": ["a.txt", "1"]}, ASK], [DONE])
    id = person.json("task", "new", "x", "--agent", agent)[0]["id"]
    person.run("supervise", "--until-idle")
    person.run("task", "answer", id, "a")
    person.run("supervise", "--until-idle")

    supervisor_line = person.run("task", "log", id)

    assert supervisor_line.returncode == 0, supervisor_line
    assert not re.search(r"[{}]|\['|None|True|False", supervisor_line.stdout), supervisor_line.stdout
    assert len(supervisor_line.stdout.splitlines()) == len(happenings(person.run("task", "log", id, "--json").stdout))
    waiting = [
        line for line in supervisor_line.stdout.splitlines() if "state_transition" in line and "question" in line
    ]
    assert waiting and "Which one?" in waiting[0]


def test_labels_stand_apart_from_what_they_label(person: Person) -> None:
    agent = person.agent([ASK])
    id = person.json("task", "new", "x", "--agent", agent)[0]["id"]
    other = person.json("task", "new", "--phase", "y", "--agent", "echo === PHASE 1 COMPLETE ===")[0]["id"]
    person.run("supervise", "--until-idle")

    shown = [person.run("task", "show", one).stdout for one in (id, other)]

    assert re.search(r"^question +Which one\?", shown[0], re.MULTILINE), shown
    assert re.search(r"^approval +Phase 1", shown[1], re.MULTILINE), shown


def test_what_has_several_lines_is_logged_on_one() -> None:
    moved = {
        "type": "state_transition", "timestamp": "2026-01-01T00:00:00.000Z", "taskId": "t", "from": "in_progress", "to": "failed",
        "fromState": "active", "toState": "failed", "trigger": "failed",
        "metadata": {"hold": "", "reason": "no disk\n/dev/sda\n  is gone"},
    }  # fmt: skip

    assert len(log_line(moved).splitlines()) == len(supervisor_line(moved).splitlines()) == 1


def test_transitions_are_told_by_the_names_of_the_source(person: Person) -> None:
    agent = person.agent([{"write": ["a.txt", "1"]}, {"limited": 1}, {"exit": 1}], [ASK], [DONE])
    id = person.json("task", "new", "x", "--agent", agent)[0]["id"]
    live = happenings(person.run("supervise", "--until-idle", "--json").stdout)
    person.run("task", "answer", id, "a")
    live += happenings(person.run("supervise", "--until-idle", "--json").stdout)

    log_line = happenings(person.run("task", "log", id, "--json").stdout)
    history = happenings((person.project / ".metadata/history.jsonl").read_text())
    moves = [one for one in log_line if one["type"] == "state_transition"]

    assert [(one["from"], one["to"]) for one in moves] == [
        ("draft", "pending"), ("pending", "in_progress"), ("in_progress", "waiting_rate_limit"),
        ("waiting_rate_limit", "in_progress"), ("in_progress", "waiting_question"), ("waiting_question", "in_progress"),
        ("in_progress", "completed"),
    ]  # fmt: skip
    assert [one["toState"] for one in moves] == ["queued", *["active"] * 5, "done"]
    assert [one for one in history if one["type"] == "state_transition"] == moves
    assert [one for one in live if one["type"] == "state_transition"] == [one for one in moves if one in live]
    lines = (person.project / ".logs/agent.log").read_text().splitlines()
    assert [json.loads(line.split(" ", 3)[3])["to"] for line in lines if " state_transition " in line] == [
        one["to"] for one in moves
    ]
