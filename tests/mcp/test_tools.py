"""What each tool promises an agent."""

from __future__ import annotations

import json
import os
from random import Random
from string import ascii_letters, digits
from typing import Any

import pytest

from keepfast.state import sessions
from tests.equipment.box import HOUR, Box

from .agent import Agent, call, within

READING = (
    "recall", "checkpoint_list", "checkpoint_search", "checkpoint_show", "checkpoint_diff", "checkpoint_resume",
    "checkpoint_restore_preview", "checkpoint_prepare",
)  # fmt: skip


def tree(box: Box) -> dict[str, bytes]:
    paths = [path for path in box.project.rglob("*") if path.is_file() and ".keepfast" not in path.parts]
    return {str(path): path.read_bytes() for path in paths}


def test_a_save_keeps_what_the_agent_states(saved_box: Box) -> None:
    saved = call(
        saved_box,
        "checkpoint_save",
        summary="JWT middleware  done\n",
        description="Tests pass.",
        decisions=["Use HS256 for now", " "],
        next_steps=["Add token refresh", "Update docs"],
        tags=["auth", "auth"],
    )
    answer = call(saved_box, "checkpoint_show")

    assert saved["checkpoint"]["version"] == "v4"
    assert (saved["checkpoint"]["message"], saved["checkpoint"]["tags"]) == (
        "JWT middleware done\n\nTests pass.",
        ["auth"],
    )
    assert answer["summary"] == "JWT middleware done"
    assert "current_task" not in answer["notes"]["analysis"]
    assert answer["notes"]["stated"]["next_steps"] == ["Add token refresh", "Update docs"]
    assert answer["notes"]["stated"]["decisions"] == answer["key_points"] == ["Use HS256 for now"]
    listed = saved_box.call("list", "--json").json()[0]
    assert (listed["version"], listed["trigger"], listed["created_by"]) == ("v4", "manual", "system")


def test_a_save_keeps_the_task_and_what_stands_in_its_way(saved_box: Box) -> None:
    call(
        saved_box,
        "checkpoint_save",
        summary="JWT middleware done",
        current_task="Token  refresh",
        blockers=["No key for staging", " "],
    )
    answer, reply = call(saved_box, "checkpoint_show"), call(saved_box, "checkpoint_resume")
    state = saved_box.call("show", "--json").json()["state"]["analysis"]

    assert answer["summary"] == "JWT middleware done"
    assert answer["notes"]["analysis"] == {"current_task": "Token refresh", "blockers": ["No key for staging"]}
    assert (state["current_task"], state["blockers"]) == ("Token refresh", ["No key for staging"])
    assert "## Current Task\nToken refresh\n" in reply["text"] and "No key for staging" in reply["text"]


def test_a_save_of_an_unchanged_tree_is_a_version_all_the_same(saved_box: Box) -> None:
    assert call(saved_box, "checkpoint_save", summary="a decision")["checkpoint"]["changed"] == 0


def test_a_save_knows_its_session(saved_box: Box) -> None:
    saved_box.variables["CLAUDE_CODE_SESSION_ID"] = "session-7"

    assert call(saved_box, "checkpoint_save", summary="x")["checkpoint"]["session_id"] == "session-7"
    assert len(call(saved_box, "checkpoint_list", session="session-7")["checkpoints"]) == 1


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"summary": ""}, "summary"),
        ({"summary": " \n"}, "summary"),
        ({"summary": "x" * 501}, "summary"),
        ({}, "summary"),
        ({"summary": "x", "decisions": "not a list"}, "decisions"),
        ({"summary": "x", "decisions": ["y" * 1001]}, "decisions"),
        ({"summary": "x", "tags": ["a\nb"]}, "tags"),
        ({"summary": "x", "next_steps": ["y"] * 51}, "next_steps"),
    ],
)
def test_a_wrong_save_is_refused_with_its_key_and_saves_nothing(
    saved_box: Box, arguments: dict[str, Any], key: str
) -> None:
    answer = call(saved_box, "checkpoint_save", **arguments)

    assert answer.failed
    assert key in answer.text
    assert len(saved_box.call("list", "--json").json()) == 3


@pytest.mark.parametrize("before", range(36, 80, 7))
def test_a_key_in_a_summary_is_struck_out_before_the_summary_is_cut(saved_box: Box, before: int) -> None:
    key = "ghp_" + "".join(Random(before).choices(ascii_letters + digits, k=36))

    call(
        saved_box, "checkpoint_save", summary=f"{'x' * (before - 1)} {key} is the key", decisions=[f"{'y ' * 90} {key}"]
    )

    answer = json.dumps([saved_box.call("show", "latest", "--json").json(), saved_box.call("list", "--json").json()])
    answer += call(saved_box, "checkpoint_show", reference="latest").text + call(saved_box, "checkpoint_resume").text
    assert not [at for at in range(len(key) - 8) if key[at : at + 8] in answer]


@pytest.mark.parametrize("saved_before", [True, False])
def test_values_of_sealed_files_are_redacted_in_all_that_is_stated(saved_box: Box, saved_before: bool) -> None:
    """Also of files that this very save seals: an agent writes a file and says so."""
    values = ["sunny-Meadow-41x", "w1nterHarbour-77"]
    saved_box.put(".env", f"GREETING={values[0]}\n")
    saved_box.put("conf/db.yaml", f"db:\n  password: {values[1]}\n")
    if saved_before:
        saved_box.save("-m", "settings")
    statement = f"set to {values[0]} and {values[1]}"

    call(
        saved_box,
        "checkpoint_save",
        summary=f"{statement} {'x' * 20} {statement}",
        description=statement,
        current_task=statement,
        blockers=[statement],
        decisions=[statement],
        next_steps=[statement],
        tags=[values[0]],
    )

    answer = json.dumps([saved_box.call("show", "latest", "--json").json(), saved_box.call("list", "--json").json()])
    answer += call(saved_box, "checkpoint_show", reference="latest").text
    assert "set to [redacted:secret] and [redacted:secret]" in answer
    assert not [value for value in values if value[:8] in answer]


def test_a_list_is_newest_first_and_pages(saved_box: Box) -> None:
    first = call(saved_box, "checkpoint_list", limit=2)
    rest = call(saved_box, "checkpoint_list", limit=2, before=2)

    assert [row["version"] for row in first["checkpoints"]] == ["v3", "v2"]
    assert first["more"] and not rest["more"]
    assert [row["version"] for row in rest["checkpoints"]] == ["v1"]
    assert first["checkpoints"][1]["age"] == "1 hour ago"
    assert [row["version"] for row in call(saved_box, "checkpoint_list", tag="begin")["checkpoints"]] == ["v1"]


def test_a_resume_tells_what_was_stated_first_and_stays_within_its_tokens(saved_box: Box) -> None:
    call(
        saved_box,
        "checkpoint_save",
        summary="JWT middleware done",
        decisions=["Use HS256 for now"],
        next_steps=["Add token refresh", "Update docs"],
    )
    saved_box.now += HOUR

    resumed = call(saved_box, "checkpoint_resume")
    short = call(saved_box, "checkpoint_resume", reference="v4", tokens=200)

    assert (resumed["version"], resumed["summary"], resumed["age"]) == ("v4", "JWT middleware done", "1 hour ago")
    assert resumed["text"].startswith("Resumed from checkpoint:")
    for text in ("JWT middleware done", "1. Add token refresh", "2. Update docs", "Use HS256 for now"):
        assert text in resumed["text"]
    assert 0 < short["tokens"] <= 200
    assert resumed["tokens"] <= 5_000
    assert call(saved_box, "checkpoint_resume", tokens=50).failed


def test_before_the_first_checkpoint_there_is_nothing_to_resume(box: Box) -> None:
    box.call("init")

    answer = call(box, "checkpoint_resume")

    assert answer.failed
    assert "No checkpoint found to resume from" in answer.text


def test_a_save_belongs_to_the_session_that_its_client_is_in_now(saved_box: Box) -> None:
    folder = str(
        saved_box.store / "workspaces" / json.loads((saved_box.project / ".keepfast/workspace.json").read_text())["id"]
    )
    saved_box.variables["CLAUDE_CODE_SESSION_ID"] = "first"
    client = str(os.getppid())
    sessions.remember(folder, "first", session="first", client=client)
    before = call(saved_box, "checkpoint_save", summary="before")["checkpoint"]["session_id"]
    sessions.remember(folder, "first", ended="clear")
    sessions.remember(folder, "second", session="second", client=client)
    sessions.remember(folder, "other", session="other", client="1")
    after = call(saved_box, "checkpoint_save", summary="after")["checkpoint"]["session_id"]

    assert (before, after) == ("first", "second")


def test_how_many_are_listed_is_a_setting(saved_box: Box) -> None:
    saved_box.call("config", "set", "checkpoint.max_auto_summaries", "1")

    assert len(call(saved_box, "checkpoint_list")["checkpoints"]) == 1

    saved_box.call("config", "set", "checkpoint.max_auto_summaries", "0")
    answer = call(saved_box, "checkpoint_list")

    assert (answer["checkpoints"], answer["more"]) == ([], True)
    assert len(call(saved_box, "checkpoint_list", limit=2)["checkpoints"]) == 2


def test_a_search_finds_messages_and_paths(saved_box: Box) -> None:
    by_message = call(saved_box, "checkpoint_search", text="셋째")["hits"]
    by_path = call(saved_box, "checkpoint_search", text="b.py")["hits"]

    assert [(hit["where"], hit["checkpoint"]["version"]) for hit in by_message] == [("message", "v3")]
    assert [(hit["where"], hit["text"]) for hit in by_path] == [("path", "src/b.py")]


def test_a_difference_has_counts_and_a_patch(saved_box: Box) -> None:
    between = call(saved_box, "checkpoint_diff", old="v1", new="v2")
    saved_box.put("README", "read me\nnow\n")
    disk = call(saved_box, "checkpoint_diff")
    only = call(saved_box, "checkpoint_diff", old="v1", paths=["src"], with_patch=False)

    assert between["changes"] == [{"path": "src/a.py", "change": "modified", "lines_added": 1, "lines_removed": 1}]
    assert "-two\n+2\n" in between["patch"]
    assert (disk["old"], disk["new"]) == ("v3", "disk")
    assert "+now" in disk["patch"]
    assert [change["path"] for change in only["changes"]] == ["src/a.py", "src/b.py"]
    assert only["patch"] == ""


def test_a_preview_says_what_a_restore_would_do_and_changes_nothing(saved_box: Box) -> None:
    saved_box.put("README", "unsaved work\n")
    before = tree(saved_box)

    preview = call(saved_box, "checkpoint_restore_preview", reference="v1", paths=["src", "README"])

    assert {(step["path"], step["action"]) for step in preview["steps"]} == {
        ("README", "write"),
        ("src/a.py", "write"),
        ("src/b.py", "delete"),
    }
    assert preview["conflicts"] == ["README"]
    assert preview["prepared"]["command"] == f"keepfast -C {saved_box.project} restore v1 -- src README"
    assert tree(saved_box) == before
    assert len(saved_box.call("list", "--json").json()) == 3


def test_a_preview_names_what_was_left_out_and_is_missing(saved_box: Box) -> None:
    saved_box.put("node_modules/a/index.js", "x")
    saved_box.save("-m", "fourth")
    answer = call(saved_box, "checkpoint_restore_preview", reference="v4")
    (saved_box.project / "node_modules/a/index.js").unlink()
    (saved_box.project / "node_modules/a").rmdir()
    (saved_box.project / "node_modules").rmdir()
    missing = call(saved_box, "checkpoint_restore_preview", reference="v4")

    assert answer["missing"] == []
    assert [one.partition(":")[0] for one in missing["missing"]] == ["node_modules"]
    assert missing["steps"] == []


@pytest.mark.parametrize("action", ["restore", "forget", "export"])
def test_what_only_a_person_may_do_is_prepared(saved_box: Box, action: str) -> None:
    prepared = call(saved_box, "checkpoint_prepare", action=action, references=["third"])

    assert prepared["command"].startswith(f"keepfast -C {saved_box.project} {action} v3")
    assert "the user decides" in prepared["why"]
    assert len(saved_box.call("list", "--json").json()) == 3


def test_there_is_no_tool_that_restores_forgets_or_exports(saved_box: Box) -> None:
    async def names(agent: Agent) -> dict[str, Any]:
        return {tool.name: tool for tool in (await agent.client.list_tools()).tools}

    tools = within(saved_box, names)

    assert {name for name, tool in tools.items() if not tool.annotations.read_only_hint} == {
        "checkpoint_save",
        "checkpoint_configure",
    }
    assert set(READING) <= set(tools)
    for tool in tools.values():
        assert tool.annotations.destructive_hint in (None, False)
        assert tool.output_schema["type"] == "object"
        assert 20 < len(tool.description) < 200
    always = {name for name, tool in tools.items() if (tool.meta or {}).get("anthropic/alwaysLoad")}
    assert always == {"checkpoint_save", "recall"}


def test_checkpoints_are_resources(saved_box: Box) -> None:
    async def read(agent: Agent) -> tuple[Any, ...]:
        listed = await agent.client.read_resource("checkpoint://list")
        one = await agent.client.read_resource("checkpoint://third")
        templates = await agent.client.list_resource_templates()
        return listed.contents[0], one.contents[0], templates.resource_templates

    listed, one, templates = within(saved_box, read)

    assert [row["version"] for row in json.loads(listed.text)["checkpoints"]] == ["v3", "v2", "v1"]
    assert json.loads(one.text)["checkpoint"]["version"] == "v3"
    assert [template.uri_template for template in templates] == ["checkpoint://{reference}"]


def test_the_server_says_how_it_is_meant_to_be_used(saved_box: Box) -> None:
    async def instructions(agent: Agent) -> str:
        return agent.client.instructions or ""

    answer = within(saved_box, instructions)

    for word in ("checkpoint_save", "recall", "data", "cannot restore"):
        assert word in answer
    assert len(answer) < 1_000


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("checkpoint_show", {"reference": "v99"}),
        ("checkpoint_show", {"reference": "../../etc"}),
        ("checkpoint_diff", {"paths": ["../other"]}),
        ("checkpoint_diff", {"paths": ["/etc"]}),
        ("checkpoint_restore_preview", {"paths": ["a/../../b"]}),
        ("checkpoint_prepare", {"action": "delete", "references": ["v1"]}),
        ("checkpoint_prepare", {"action": "restore", "references": ["v1", "v2"]}),
        ("checkpoint_list", {"limit": 100_000}),
        ("recall", {"what": " "}),
        ("recall", {"what": "nothing of that kind anywhere"}),
        ("recall", {"what": "../../etc/passwd"}),
        ("checkpoint_unknown", {}),
    ],
)
def test_what_cannot_be_answered_is_a_sentence(saved_box: Box, tool: str, arguments: dict[str, Any]) -> None:
    answer = call(saved_box, tool, **arguments)

    assert answer.failed
    assert len(answer.text) > 20
    assert "Traceback" not in answer.text


def test_outside_of_a_workspace_every_tool_says_so(box: Box) -> None:
    for tool in (*READING, "checkpoint_save", "checkpoint_configure"):
        needed = {"summary": "x", "text": "x", "what": "x", "action": "forget", "references": ["v1"]}
        required = {"checkpoint_save": ["summary"], "checkpoint_search": ["text"], "recall": ["what"]}
        keys = ["action", "references"] if tool == "checkpoint_prepare" else required.get(tool, [])
        answer = call(box, tool, **{key: needed[key] for key in keys})
        assert answer.failed
        assert "keepfast init" in answer.text
    assert not box.store.exists()


def test_settings_are_followed_while_the_server_runs(saved_box: Box) -> None:
    async def scenario(agent: Agent) -> tuple[int, int, bool]:
        before = len((await agent.call("checkpoint_list"))["checkpoints"])
        saved_box.config.parent.mkdir(parents=True, exist_ok=True)
        saved_box.config.write_text('{"checkpoint": {"max_auto_summaries": 2}}')
        after = len((await agent.call("checkpoint_list"))["checkpoints"])
        saved_box.config.write_text("{")
        broken = await agent.call("checkpoint_list")
        return before, after, len(broken["checkpoints"]) == 2

    assert within(saved_box, scenario) == (3, 2, True)
