"""The state document of `show --json` has the source's form, and the settings under `checkpoint.*` bound it."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from keepfast.app.worker import event_of
from keepfast.state import sessions
from keepfast.state.pending_events import PendingEvent
from tests.equipment.box import Box
from tests.mcp.agent import access, call


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """A project with work of an agent that said what it decided."""
    box = Box(tmp_path)
    assert box.call("init").code == 0
    box.put("old.py", "old\n")
    box.save("-m", "begin")
    box.put("src/a.py", "one\n")
    box.put("src/b.py", "two\n" * 1000)
    box.put("debug.log", "noise\n")
    box.put(".env", "TOKEN=x\n")
    call(
        box,
        "checkpoint_save",
        summary="Auth done",
        current_task="Auth done",
        description="All tests pass.",
        decisions=["HS256"],
        next_steps=["Docs"],
    )
    return box


def shown(box: Box, **settings: str) -> dict[str, Any]:
    for key, value in settings.items():
        assert box.call("config", "set", f"checkpoint.{key}", value).code == 0
    found: dict[str, Any] = box.call("show", "--json").json()
    return found


def test_it_has_the_form_of_the_source(box: Box) -> None:
    told = shown(box)

    state = told["state"]
    assert (told["summary"], told["description"]) == ("Auth done", "All tests pass.")
    assert set(state) == {"files", "analysis", "context", "total_size_bytes"}
    assert set(state["files"]) == {"src/a.py", "src/b.py"}
    file = state["files"]["src/a.py"]
    assert file["hash"] == sha256(b"one\n").hexdigest()
    assert (file["path"], file["size_bytes"], set(file)) == (
        "src/a.py",
        4,
        {"path", "content", "hash", "size_bytes", "last_modified"},
    )
    assert state["analysis"] == {
        "current_task": "Auth done",
        "next_steps": ["Docs"],
        "decisions_made": ["HS256"],
        "blockers": [],
        "relevant_docs": [],
    }
    assert state["context"]["working_directory"] == str(box.project)
    assert state["total_size_bytes"] == 4004
    assert sorted(told["state_left_out"]) == [".env: secret", "debug.log: excluded by *.log"]


def test_what_is_too_large_is_named_and_the_snapshot_has_it_all_the_same(box: Box) -> None:
    one = shown(box, max_file_size="1000")
    both = shown(box, max_file_size="1MB", max_checkpoint_size="4003")

    assert set(one["state"]["files"]) == {"src/a.py"}
    assert "src/b.py: 4,000 bytes, over checkpoint.max_file_size" in one["state_left_out"]
    assert set(both["state"]["files"]) == {"src/a.py"}
    assert "src/b.py: over checkpoint.max_checkpoint_size with the others" in both["state_left_out"]
    assert box.call("cat", "latest", "src/b.py").out == "two\n" * 1000


def test_what_is_too_large_is_a_notice_that_names_it(box: Box) -> None:
    assert shown(box)["notices"] == []

    (notice,) = shown(box, max_file_size="1000")["notices"]

    assert "src/b.py (4 KB)" in notice and "src/a.py" not in notice
    assert "src/b.py (4 KB)" in box.call("show").out


def test_what_tools_make_is_in_the_snapshot_and_not_in_the_document(box: Box) -> None:
    """Whether .gitignore names these folders or not: a tool's file beside them says that it makes them."""
    for name in ("Makefile", "Cargo.toml", "package.json", "CMakeLists.txt", "sub/Makefile"):
        box.put(name, "made\n")
    box.save("-m", "tools")
    for name in ("build/o.o", "target/x", "dist/out.js", "sub/out/y.txt", "cmake-build-debug/z", "src/c.py"):
        box.put(name, "made\n")
    box.save("-m", "built")

    told = shown(box)

    assert set(told["state"]["files"]) == {"src/c.py"}
    assert {line.partition(":")[0] for line in told["state_left_out"]} == {
        "build/", "target/", "dist/", "sub/out/", "cmake-build-debug/"
    }  # fmt: skip
    assert box.call("cat", "latest", "build/o.o").out == "made\n"


def test_what_lies_in_a_folder_of_such_a_name_without_a_tool_is_in_the_document(box: Box) -> None:
    for name in ("build/report.md", "out/results.csv", "node_modules/x/index.js"):
        box.put(name, "found\n")
    box.save("-m", "found")

    assert set(shown(box)["state"]["files"]) == {"build/report.md", "out/results.csv"}


def test_a_file_that_the_agent_edited_by_name_counts_wherever_it_lies(box: Box) -> None:
    box.put("bin/deploy", "echo\n")
    seen = PendingEvent("turn", box.now, "s", "x")
    with access(box).open() as visit:
        folder = visit.engine.place.folder(visit.row.id)
        sessions.touch(folder, "s", [f"w {box.project}/bin/deploy"])
        visit.engine.handle(event_of(visit.engine, visit.root, folder, seen))

    assert set(shown(box)["state"]["files"]) == {"bin/deploy"}


def test_patterns_files_analysis_and_mode_are_settings(box: Box) -> None:
    assert set(shown(box, exclude_patterns="*/b.py")["state"]["files"]) == {"src/a.py"}  # with those of the save
    assert shown(box, capture_files="false")["state"]["files"] == {}
    assert shown(box, capture_analysis="false")["state"]["analysis"]["current_task"] == ""


def test_the_mode_is_that_of_the_save(box: Box) -> None:
    stateful = shown(box, mode="summary")
    assert "state" in stateful
    box.put("src/a.py", "two\n")
    box.save("-m", "in summary mode")

    assert "state" not in shown(box)
    assert "state" not in shown(box, mode="stateful")
    assert box.call("show", stateful["version"], "--json").json()["state"] == stateful["state"]


@pytest.mark.parametrize(("variable", "value"), [("MODE", "summary"), ("MAX_SIZE", "3")])
def test_the_short_names_of_the_source_bound_it_too(box: Box, variable: str, value: str) -> None:
    box.variables[f"KEEPFAST_CHECKPOINT_{variable}"] = value
    box.save("-m", "bounded")

    assert not shown(box).get("state", {"files": {}})["files"]


def test_automatic_checkpoints_have_a_summary_unless_the_setting_says_no(box: Box) -> None:
    seen = PendingEvent("turn", box.now, "s", "x")

    def summary() -> str:
        with access(box).open() as visit:
            folder = visit.engine.place.folder(visit.row.id)
            sessions.remember(folder, "s", prompt="Make it fast")
            return event_of(visit.engine, visit.root, folder, seen).summary

    assert summary() == "Make it fast"
    box.call("config", "set", "checkpoint.auto_summary_enabled", "false")
    assert summary() == ""
