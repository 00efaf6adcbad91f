"""The commands about tasks, as a person types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from .place import AGENT, say_phase


class Person:
    """A home, a project, and a terminal."""

    def __init__(self, base: Path) -> None:
        self.base, self.project = base, base / "home" / "project"
        self.project.mkdir(parents=True)
        self.variables = {"HOME": str(base / "home"), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TZ": "UTC"}

    def run(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "keepfast", *words],
            cwd=self.project, env=self.variables, input=given, capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    def json(self, *words: str) -> Any:
        done = self.run(*words, "--json")
        assert done.returncode == 0, done
        return json.loads(done.stdout)

    def supervise(self, until: Callable[[], bool], seconds: float = 60) -> None:
        """Let a supervisor run until something is so."""
        words = [sys.executable, "-m", "keepfast", "supervise"]
        end = monotonic() + seconds
        with subprocess.Popen(words, cwd=self.project, env=self.variables, stdout=subprocess.DEVNULL) as supervisor:
            try:
                while not until():
                    assert monotonic() < end
                    sleep(0.2)
            finally:
                supervisor.terminate()

    def told(self) -> list[str]:
        """What the agent was given on standard input, start by start."""
        return [json.loads(line) for line in (self.base / "journal.told").read_text().splitlines()]

    def agent(self, *turns: list[dict[str, Any]]) -> str:
        (self.base / "script.json").write_text(json.dumps({"turns": turns}))
        return f"{sys.executable} {AGENT} {self.base / 'script.json'} {self.base / 'journal'}"


@pytest.fixture
def person(tmp_path: Path, database: str) -> Iterator[Person]:
    person = Person(tmp_path.resolve())
    if database:
        assert person.run("config", "set", "supervisor.database", database).returncode == 0
    yield person
    assert not database or not list(tmp_path.rglob("tasks.db")), "tasks lay elsewhere"


def test_a_task_from_flags_to_its_approval(person: Person) -> None:
    agent = person.agent([{"write": ["a.txt", "1"]}, say_phase(1)], [{"write": ["a.txt", "2"]}, say_phase(1)])
    made = person.run(
        "task", "new", "Write a.txt", "--phase", "Write it.", "--verify", "test -e a.txt", "--agent", agent
    )
    assert made.returncode == 0, made
    assert made.stdout.startswith("Queued task_")
    assert "No supervisor is running" in made.stderr
    id = made.stdout.split()[1].rstrip(":")

    assert person.run("supervise", "--until-idle").returncode == 0
    assert person.json("task", "list")[0]["status"] == "review"
    assert person.run("task", "reject", id, "Write 2.").returncode == 0
    assert person.run("supervise", "--until-idle").returncode == 0
    shown = person.run("task", "show", id[:9])
    assert "Actions: approve, reject, cancel" in shown.stdout
    assert person.run("task", "approve", id).returncode == 0

    assert person.json("task", "show", id)["status"] == "completed"
    assert (person.project / "a.txt").read_text() == "2"
    assert "completed" in person.run("report").stdout
    assert person.run("task", "archive", id).returncode == 0
    assert person.json("task", "list") == []
    assert "phase_complete" in person.run("task", "log", id).stdout
    assert "PHASE 1 COMPLETE" in person.run("task", "log", id, "--output").stdout


def test_run_shows_what_the_command_says_and_ends_as_it_ends(person: Person) -> None:
    done = person.run("run", "--", "sh", "-c", "echo hello; echo careful >&2; echo made > made.txt")

    assert (done.returncode, done.stdout) == (0, "hello\n"), done
    assert "careful" in done.stderr
    assert person.json("list")[0]["trigger"] == "final"


def test_run_gives_the_command_what_it_is_to_read_and_nothing_else(person: Person) -> None:
    read, empty = person.run("run", "--input", "-", "--", "cat", given="hello"), person.run("run", "--", "cat")

    assert (read.returncode, read.stdout) == (0, "hello\n"), read
    assert (empty.returncode, empty.stdout) == (0, ""), empty


def test_run_ends_with_75_at_a_limit_if_nobody_waits(person: Person) -> None:
    done = person.run("run", "--no-wait", "--", "sh", "-c", "echo 'Rate limit hit, retry after 60 seconds' >&2; exit 1")

    assert done.returncode == 75, done


def test_a_secret_is_read_from_standard_input_and_never_shown(person: Person) -> None:
    agent = person.agent([{"show_variable": "TOKEN"}, {"say": "=== CUSTOM TASK COMPLETE ==="}])
    id = person.json("task", "new", "x", "--agent", agent, "--secret", "TOKEN")[0]["id"]
    assert person.run("supervise", "--until-idle").returncode == 0
    assert person.json("task", "list")[0]["status"] == "pending"

    given = person.run("task", "secret", id, "TOKEN", given="very-secret-value\n")
    assert given.returncode == 0, given
    assert person.run("supervise", "--until-idle").returncode == 0

    shown = person.run("task", "show", id, "--json").stdout + person.run("task", "log", id, "--output").stdout
    assert '"completed"' in shown
    assert "TOKEN is [secret]" in shown
    assert "very-secret-value" not in shown


def test_a_fork_and_its_way_back(person: Person) -> None:
    (person.project / "a.txt").write_text("old\n")
    id = person.json("task", "new", "x", "--agent", "true", "--draft")[0]["id"]
    forked = person.json("task", "fork", id, "../trial")
    (Path(forked["workspace"]) / "a.txt").write_text("new\n")

    assert "+new" in person.run("task", "diff", forked["id"]).stdout
    assert person.run("task", "apply", forked["id"], "--dry-run").returncode == 0
    applied = person.run("task", "apply", forked["id"])

    assert applied.returncode == 0, applied
    assert (person.project / "a.txt").read_text() == "new\n"


def test_a_fork_comes_back_as_a_patch_file_or_as_a_branch(person: Person) -> None:
    def git(*words: str, at: str = "") -> str:
        told = ["-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.run(
            ["git", *told], cwd=at or person.project, check=True, capture_output=True, text=True
        ).stdout

    git("init", "-q")
    (person.project / "a.txt").write_text("old\n")
    git("add", "a.txt")
    git("commit", "-qm", "first")
    id = person.json("task", "new", "x", "--agent", "true", "--draft")[0]["id"]
    forked = person.json("task", "fork", id, "../trial", "--git")
    (Path(forked["workspace"]) / "a.txt").write_text("new\n")
    git("commit", "-qam", "second", at=forked["workspace"])

    written = person.run("task", "diff", forked["id"], "--patch", "../work.patch")
    again = person.run("task", "diff", forked["id"], "--patch", "../work.patch")
    said = person.json("task", "apply", forked["id"], "--branch", "theirs")

    assert written.returncode == 0 and "+new" in (person.project / "../work.patch").read_text(), written
    assert again.returncode == 14, "a file that is there is not replaced"
    assert said["command"][:2] == ["git", "fetch"]
    git(*said["command"][1:])
    assert git("show", "theirs:a.txt") == "new\n"
    assert (person.project / "a.txt").read_text() == "old\n"


def test_a_choice_is_answered_in_words_of_ones_own(person: Person) -> None:
    ask = "[USER_QUESTION]\ncategory: choice\nquestion: Which?\noptions:\n - PostgreSQL 15\n - SQLite\n[/USER_QUESTION]"
    agent = person.agent([{"say": ask}], [{"say": "=== CUSTOM TASK COMPLETE ==="}])
    id = person.json("task", "new", "x", "--agent", agent)[0]["id"]
    assert person.run("supervise", "--until-idle").returncode == 0

    near = person.run("task", "answer", id, "PostgreSQL 16")
    exact = person.run("task", "answer", id, "PostgreSQL 16", "--exactly")

    assert near.returncode == 2 and "--exactly" in near.stderr
    assert exact.returncode == 0, exact
    assert person.json("task", "show", id)["prompts"][0]["answer"] == "PostgreSQL 16"


def test_what_is_still_asked_is_named_after_an_answer(person: Person) -> None:
    ask = "[USER_QUESTION]\nquestion: {}?\n[/USER_QUESTION]"
    need = "[DEPENDENCY_REQUEST]\ntype: api_key\nname: OPENAI_API_KEY\ndescription: to ask the model\n[/DEPENDENCY_REQUEST]"
    agent = person.agent([{"say": ask.format("Which")}, {"say": ask.format("When")}, {"say": need}])
    id = person.json("task", "new", "x", "--agent", agent)[0]["id"]
    command = f"keepfast task secret {id} OPENAI_API_KEY"
    supervised = person.run("supervise", "--until-idle")
    assert supervised.returncode == 0 and command in supervised.stdout
    assert command in person.run("task", "inbox").stdout and command in person.run("task", "show", id).stdout
    asked = {one["text"]: one["id"] for one in person.json("task", "inbox")}

    first = person.run("task", "answer", asked["Which?"], "a")
    assert (first.returncode, "continues" in first.stdout) == (0, False)
    assert "When?" in first.stdout and command in first.stdout
    second = person.run("task", "answer", asked["When?"], "b", "--json")
    assert [(one["kind"], one["name"]) for one in json.loads(second.stdout)["asks"]] == [("secret", "OPENAI_API_KEY")]
    assert person.run("task", "secret", id, "OPENAI_API_KEY", given="value-of-it\n").returncode == 0
    assert person.json("task", "list")[0]["asks"] == []


@pytest.mark.sqlite
@pytest.mark.parametrize("is_own", [True, False])
def test_an_answer_while_the_account_is_limited_says_when_the_task_goes_on(person: Person, is_own: bool) -> None:
    """Its own run met the limit, or that of another task of the account."""
    ask = {"say": "[USER_QUESTION]\nquestion: Which?\n[/USER_QUESTION]"}
    limited = [{"limited": 3600}, {"exit": 1}]
    agent = person.agent(*([[ask, *limited]] if is_own else [[ask], limited]))
    id = person.json("task", "new", "x", "--agent", agent)[0]["id"]
    person.supervise(lambda: person.json("task", "inbox") != [])
    if not is_own:
        (person.project.parent / "other").mkdir()
        person.json("task", "new", "y", "--agent", agent, "--workspace", str(person.project.parent / "other"))
    person.supervise(
        lambda: any((one["hold"] or {}).get("kind") == "rate_limit" for one in person.json("task", "list"))
    )

    said = person.run("task", "answer", id, "a")

    shown = person.json("task", "show", id)
    until = datetime.fromisoformat((shown["limit"] or shown["hold"])["until"])
    assert said.returncode == 0
    assert until.strftime("%Y-%m-%d %H:%M:%S") in said.stdout, said
    assert (shown["limit"] is None) == is_own


def test_a_task_without_its_client_is_not_made(person: Person) -> None:
    person.variables["PATH"] = "/nowhere"
    made = person.run("task", "new", "x")

    assert made.returncode == 2 and "'claude' was not found" in made.stderr, made
    assert person.json("task", "list", "--all") == []
    assert list(person.project.iterdir()) == []


def test_comments_on_lines_are_what_the_agent_is_told(person: Person) -> None:
    finish = {"say": "=== PHASE 1 COMPLETE ==="}
    agent = person.agent([{"write": ["a.txt", "1"]}, finish], [finish])
    id = person.json("task", "new", "--phase", "work", "--agent", agent)[0]["id"]
    assert person.run("supervise", "--until-idle").returncode == 0

    words = ["--comment", "a.txt:1", "say one", "--comment", "b.txt", "is missing"]
    refused, done = person.run("task", "reject", id), person.run("task", "reject", id, "Nearly.", *words)

    assert refused.returncode == 2 and "comment" in refused.stderr
    assert done.returncode == 0, done
    assert person.run("supervise", "--until-idle").returncode == 0
    told = person.told()[-1]
    assert "Nearly." in told and "- a.txt, line 1: say one\n- b.txt: is missing" in told


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["task", "show", "nothing"], 4, "There is no task 'nothing'"),
        (["task", "new"], 2, "The brief is missing"),
        (["task", "new", "--file", "nowhere.json"], 2, "cannot be read"),
        (["task", "new", "x", "--agent", "no-such-agent"], 2, "'no-such-agent' was not found"),
        (["task", "budget", "x"], 2, "Give --tokens"),
        (["run"], 2, "COMMAND"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(person: Person, words: list[str], code: int, said: str) -> None:
    done = person.run(*words)

    assert done.returncode == code, done
    assert said in done.stderr


@pytest.mark.sqlite
def test_lost_tasks_come_back_by_rebuild(person: Person) -> None:
    id = person.json("task", "new", "x", "--agent", "true")[0]["id"]
    (person.base / "home/.local/share/keepfast/supervisor/tasks.db").unlink()

    listed = person.run("task", "list")
    assert listed.returncode == 0
    assert str(person.project) in listed.stderr and "keepfast rebuild" in listed.stderr
    rebuilt = person.json("rebuild")

    assert [(one["task"], one["outcome"]) for one in rebuilt["tasks"]] == [(id, "rebuilt")]
    assert person.json("task", "list")[0]["status"] == "paused"


@pytest.mark.sqlite
@pytest.mark.parametrize("form", ["json", "text"])
def test_rebuild_names_documents_that_are_not_ours(person: Person, form: str) -> None:
    id = person.json("task", "new", "x", "--agent", "true")[0]["id"]
    folder = person.project / ".checkpoints"
    folder.mkdir(exist_ok=True)
    forged = folder / "checkpoint_2026-01-01T00-00-00-000.json"
    forged.write_text(json.dumps({"schemaVersion": 3, "taskId": id, "mac": "0" * 64}))
    (person.base / "home/.local/share/keepfast/supervisor/tasks.db").unlink()

    if form == "text":
        done = person.run("rebuild")
        assert done.returncode == 0 and str(forged) in done.stderr
        return
    [found] = person.json("rebuild")["tasks"]
    assert (found["task"], found["outcome"]) == (id, "rebuilt")
    assert [one["file"] for one in found["refused"]] == [str(forged)]
    assert "has no valid signature" in found["refused"][0]["why"]


@pytest.mark.sqlite
def test_rebuild_names_a_refused_task_once(person: Person) -> None:
    person.json("task", "new", "x", "--agent", "true")
    document = person.project / ".metadata/task.json"
    document.write_text(document.read_text().replace('"x"', '"y"'))
    (person.base / "home/.local/share/keepfast/supervisor/tasks.db").unlink()
    done = person.run("rebuild")

    assert (done.stdout + done.stderr).count(str(document)) == 1


@pytest.mark.sqlite
def test_folders_of_lost_tasks_that_are_not_named_are_counted(person: Person) -> None:
    folders = [person.project / f"part{number:02}" for number in range(12)]
    for folder in folders:
        folder.mkdir()
    tasks = [{"brief": "x", "workspace": str(folder), "agent": {"command": ["true"]}} for folder in folders]
    (person.base / "tasks.json").write_text(json.dumps({"tasks": tasks}))
    made = person.json("task", "new", "--file", str(person.base / "tasks.json"), "--draft")
    (person.base / "home/.local/share/keepfast/supervisor/tasks.db").unlink()

    listed = person.run("task", "list")

    assert len(made) == 12
    assert sum(str(folder) in listed.stderr for folder in folders) == 10
    assert "and 2 more" in listed.stderr
