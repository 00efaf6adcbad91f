"""`resume vN` tells of N: its own conversation, its own files, and what is different now."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from keepfast.app.moment import TAIL_BYTES
from keepfast.app.wiring import build
from keepfast.app.worker import save
from keepfast.present.environment import Environment
from keepfast.settings import load
from keepfast.state.pending_events import PendingEvent
from tests.equipment.box import HOUR, Box
from tests.equipment.sessions import Session
from tests.equipment.token_count import count
from tests.mcp.agent import call
from tests.resume.brief_samples import module

STEPS = ["Paint the door red", "Sand the floor", "Fix the window", "Clean the roof"]


class Work:
    """A client that works in a project and saves through the way of its hooks."""

    def __init__(self, box: Box) -> None:
        self.box = box
        assert box.call("init").code == 0
        self.talk = Session(cwd=str(box.project), files={"house.py": module(1, 12)})
        self.session = "5e551011"
        box.put("house.py", self.talk.files[self.talk.path("house.py")])

    @property
    def transcript(self) -> Path:
        return self.box.home / f"{self.session}.jsonl"

    def step(self, text: str) -> None:
        """Something is asked for, and done in the one file; the transcript says so."""
        self.talk.asked(text)
        self.talk.read("house.py")
        path = self.talk.path("house.py")
        line = next(line for line in self.talk.files[path].split("\n") if line.startswith("import"))
        self.talk.edit("house.py", line, f"import json  # {text}")
        self.box.put("house.py", self.talk.files[path])
        self.talk.said(f"Done: {text}.")
        self.talk.save(self.transcript)

    def save(self, trigger: str = "turn", transcript: Path | str | None = None) -> str:
        environment = Environment({name.encode(): value.encode() for name, value in self.box.variables.items()})
        engine = build(load(environment.config, {}), environment.data, environment.home, lambda: self.box.now)
        try:
            root, row = engine.workspaces.root(os.fsencode(self.box.project))
            path = str(self.transcript if transcript is None else transcript)
            seen = PendingEvent(trigger, self.box.now, self.session, "claude-code", str(self.box.project), path)
            version = save(engine, root, engine.place.folder(row.id), seen).version
        finally:
            engine.close()
        self.box.now += HOUR
        return f"v{version}"

    def told(self, *words: str) -> dict[str, Any]:
        done = self.box.call("resume", *words, "--json")
        assert done.code == 0, done
        found: dict[str, Any] = done.json()
        return found


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(Box(tmp_path))


@pytest.fixture
def done(work: Work) -> Work:
    """A session with four turns, v1 to v4; then its transcript goes on, and its file changes once more."""
    for text in STEPS:
        work.step(text)
        work.save()
    work.step("Sell the house")
    return work


def test_each_version_is_told_by_its_own_conversation_and_files(done: Work) -> None:
    briefs = {number: done.told(f"v{number}") for number in range(1, 5)}

    assert len({brief["text"] for brief in briefs.values()}) == 4
    for number, brief in briefs.items():
        assert (brief["conversation"], brief["files"]) == (f"v{number}", f"v{number}")
        assert f"Done: {STEPS[number - 1]}." in brief["text"]
        assert f"import json  # {STEPS[number - 1]}" in brief["text"]
        assert "Sell the house" not in brief["text"]
        assert not [text for text in STEPS[number:] if text in brief["text"]]


def test_a_file_that_the_disk_has_otherwise_is_marked_and_no_other(done: Work) -> None:
    before = done.told("v4")["text"]
    assert done.box.call("restore", "v4", "-y", "--theirs").code == 0
    same = done.told("v4")["text"]
    (done.box.project / "house.py").unlink()
    gone = done.told("v4")["text"]

    assert "### house.py (the disk differs now)" in before
    assert "### house.py\n" in same
    assert "### house.py (gone from the disk now)" in gone
    assert all(f"import json  # {STEPS[3]}" in text for text in (before, same, gone))


def test_a_file_that_was_not_there_then_is_not_shown(work: Work) -> None:
    work.step(STEPS[0])
    (work.box.project / "house.py").unlink()
    version = work.save()
    work.box.put("house.py", "import json  # built anew\n")

    brief = work.told(version)

    assert "house.py (no longer there)" in brief["left_out"]
    assert "built anew" not in brief["text"]


def test_what_is_told_does_not_change_with_what_comes_later(done: Work) -> None:
    """Same checkpoint, disk and clock: same brief, whatever became of the client's transcript."""
    now = done.box.now
    first = done.told("v2")
    done.talk.asked("And something else")
    done.talk.save(done.transcript)
    done.save()
    done.transcript.unlink()
    done.box.now = now

    assert done.told("v2") == first


def test_the_newest_without_a_reference_is_told_with_what_is_now(done: Work) -> None:
    brief = done.told()

    assert (brief["version"], brief["conversation"], brief["files"]) == ("v4", "live", "disk")
    assert "Sell the house" in brief["text"]


@pytest.mark.parametrize("how", ["by hand", "before_command"])
def test_a_version_without_a_conversation_takes_the_newest_before_it_and_says_so(done: Work, how: str) -> None:
    done.box.put("house.py", "import json  # by hand\n" + module(1, 3))
    if how == "by hand":
        version = done.box.save("-m", "by hand")
    else:
        done.session = "another"
        version = done.save("before_command", transcript="")
    done.box.put("house.py", "import json  # later\n")
    done.session = "5e551011"
    done.step(STEPS[0])
    done.save()

    brief = done.told(version)

    assert (brief["version"], brief["conversation"], brief["files"]) == ("v5", "v4", "v5")
    assert f"Done: {STEPS[3]}." in brief["text"]
    assert "import json  # by hand" in brief["text"]
    assert "Sell the house" not in brief["text"]
    assert "conversation of v4, files of v5" in brief["text"].split("\n")[0]


def test_the_newest_conversation_of_its_own_session_comes_before_that_of_others(work: Work) -> None:
    work.step(STEPS[0])
    work.save()
    mine, work.session = work.talk, "another"
    work.talk = Session(cwd=mine.cwd, files={"house.py": (work.box.project / "house.py").read_text()})
    work.step(STEPS[1])
    work.save()
    work.session = "5e551011"
    work.box.put("other.py", "x = 1\n")
    # Its transcript cannot be read now; the header still has what was kept of this session.
    version = work.save("manual", transcript="")

    brief = work.told(version)

    assert brief["conversation"] in ("v1", version)
    assert STEPS[1] not in brief["text"].partition("## Files")[0]
    assert f"Done: {STEPS[0]}." in brief["text"]


def test_before_the_first_conversation_there_is_none_to_tell(work: Work) -> None:
    first = work.box.save("-m", "an empty house")
    work.step(STEPS[0])
    work.save()

    brief = work.told(first)

    assert (brief["conversation"], brief["files"]) == (None, "v1")
    assert "an empty house" in brief["text"]
    assert STEPS[0] not in brief["text"]


def test_the_tool_tells_the_same(done: Work) -> None:
    for number in range(1, 5):
        by_command, by_tool = done.told(f"v{number}"), call(done.box, "checkpoint_resume", reference=f"v{number}")

        assert by_tool["text"] == by_command["text"]
        assert (by_tool["conversation"], by_tool["files"]) == (f"v{number}", f"v{number}")
    assert call(done.box, "checkpoint_resume")["text"] == done.told()["text"]


@pytest.mark.parametrize("tokens", [200, 1_000, 5_000])
def test_no_brief_of_a_moment_is_over_its_budget(work: Work, tokens: int) -> None:
    for number in range(20):
        work.talk.files[work.talk.path(f"part{number}.py")] = module(number, 60)
        work.box.put(f"part{number}.py", module(number, 60))
        work.talk.read(f"part{number}.py")
    work.step(STEPS[0])
    version = work.save()

    brief = work.told(version, "--tokens", str(tokens))

    assert 0 < brief["tokens"] <= tokens
    assert count(brief["text"]) <= tokens


def test_what_subagents_did_up_to_then_is_told(work: Work) -> None:
    helper = Session(cwd=str(work.box.project), files={"garden.py": module(2, 6)})
    helper.read("garden.py")
    helper.edit("garden.py", "import json", "import json  # planted")
    work.box.put("garden.py", helper.files[helper.path("garden.py")])
    place = work.transcript.with_suffix("") / "subagents"
    place.mkdir(parents=True)
    helper.save(place / "agent-1.jsonl")
    work.step(STEPS[0])
    version = work.save()
    (place / "agent-1.jsonl").unlink()

    assert "### garden.py" in work.told(version)["text"]


def test_a_long_conversation_is_told_by_both_of_its_ends(work: Work) -> None:
    work.step("Build a whole village")
    work.talk.todos(("completed", "The mill"), ("in_progress", "The church"))
    work.talk.save(work.transcript)
    with work.transcript.open("a") as file:
        noise = {"type": "attachment", "uuid": "x", "content": os.urandom(500_000).hex()}
        for _ in range(TAIL_BYTES // 900_000 + 3):
            file.write(json.dumps(noise) + "\n")
    known = len(work.talk.entries)
    work.talk.asked("Now the bridge")
    work.talk.said("Done: the bridge.")
    with work.transcript.open("ab") as file:
        file.write(b"".join([json.dumps(entry).encode() + b"\n" for entry in work.talk.entries[known:]]))
    version = work.save()

    brief = work.told(version)

    assert brief["conversation"] == version
    for text in ("Build a whole village", "The church", "Now the bridge", "Done: the bridge."):
        assert text in brief["text"]


def test_a_secret_of_that_time_is_struck_out_and_a_file_that_held_one_not_shown(work: Work) -> None:
    key = "sk-ant-" + "api03-Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MA"
    path = work.talk.path("house.py")
    work.talk.files[path] = f'KEY = "{key}"\n' + work.talk.files[path]
    work.step(f"Use {key}")
    version = work.save()
    work.box.put("house.py", "import json\n")

    brief = work.told(version)

    assert key not in json.dumps(brief)
    assert "Use [redacted" in brief["text"]
    assert "house.py (sealed, not shown)" in brief["left_out"]
