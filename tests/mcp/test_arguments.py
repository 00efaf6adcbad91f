"""Every tool takes the arguments that it declares and no others, and says what is wrong with those it is given."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.equipment.box import Box

from .agent import Agent, Answer, call, outside, within
from .test_programs import started

NEEDED: dict[str, dict[str, Any]] = {
    "checkpoint_save": {"summary": "x"},
    "recall": {"what": "README"},
    "checkpoint_list": {},
    "checkpoint_search": {"text": "x"},
    "checkpoint_show": {},
    "checkpoint_diff": {},
    "checkpoint_resume": {},
    "checkpoint_restore_preview": {},
    "checkpoint_prepare": {"action": "forget", "references": ["v1"]},
    "checkpoint_configure": {},
}
WITH_REFERENCE = ("recall", "checkpoint_show", "checkpoint_resume", "checkpoint_restore_preview")


def objects(schema: Any) -> list[dict[str, Any]]:
    """Every schema of an object, however deep."""
    if isinstance(schema, list):
        return [nested for one in schema for nested in objects(one)]
    if not isinstance(schema, dict):
        return []
    here = [schema] if schema.get("type") == "object" or "properties" in schema else []
    return here + [nested for one in schema.values() for nested in objects(one)]


async def schemas(agent: Agent) -> dict[str, dict[str, Any]]:
    return {tool.name: tool.input_schema for tool in (await agent.client.list_tools()).tools}


def test_every_schema_is_closed_and_so_are_the_objects_in_it(saved_box: Box) -> None:
    answer = within(saved_box, schemas)

    assert set(answer) == set(NEEDED)
    for name, schema in answer.items():
        for one in objects(schema):
            assert one.get("additionalProperties") is False, (name, one)


@pytest.mark.parametrize("tool", NEEDED)
def test_an_unknown_argument_is_an_error_that_names_it_and_the_known_ones(saved_box: Box, tool: str) -> None:
    answer = call(saved_box, tool, **NEEDED[tool], surprise=1)
    reply = within(saved_box, schemas)[tool]["properties"]

    assert answer.failed
    assert "'surprise'" in answer.text
    assert all(name in answer.text for name in reply)
    assert len(saved_box.versions()) == 3


@pytest.mark.parametrize(
    ("tool", "given", "meant"),
    [
        ("checkpoint_show", {"ref": "v999"}, "'reference'"),
        ("checkpoint_resume", {"ref": "v1"}, "'reference'"),
        ("checkpoint_restore_preview", {"ref": "v3"}, "'reference'"),
        ("checkpoint_restore_preview", {"reference": "v1", "path": ["src"]}, "'paths'"),
        ("checkpoint_save", {"summary": "x", "decisions_made": ["y"]}, "'decisions'"),
        ("checkpoint_save", {"summary": "x", "next": ["y"]}, "'next_steps'"),
        ("checkpoint_prepare", {"action": "forget", "references": ["v1"], "reference": "v2"}, "'references'"),
        ("checkpoint_list", {"limits": 2}, "'limit'"),
        ("recall", {"what": "README", "refrence": "v1"}, "'reference'"),
    ],
)
def test_the_name_that_was_meant_is_offered(saved_box: Box, tool: str, given: dict[str, Any], meant: str) -> None:
    answer = call(saved_box, tool, **given)

    assert answer.failed
    assert f"Did you mean {meant}?" in answer.text


@pytest.mark.parametrize("reference", ["v999", "v0", "nobody", "cp-zzz", "@~99", "@{900d}", "\ud800", "v1 v2", "-1"])
@pytest.mark.parametrize("tool", WITH_REFERENCE)
def test_a_wrong_reference_is_an_error_and_never_another_checkpoint(saved_box: Box, tool: str, reference: str) -> None:
    assert call(saved_box, tool, **NEEDED[tool], reference=reference).failed


@pytest.mark.parametrize("given", [{"old": "v999"}, {"new": "v999"}, {"old": "v1", "new": "nobody"}, {"a": "v1"}])
def test_a_wrong_side_of_a_difference_is_an_error(saved_box: Box, given: dict[str, str]) -> None:
    assert call(saved_box, "checkpoint_diff", **given).failed


def wrong(name: str, schema: dict[str, Any]) -> list[Any]:
    """Values of another kind than the schema says, too many of them, too long or too deep."""
    deep: Any = "x"
    for _ in range(100):
        deep = [deep]
    values: list[Any] = [deep, {"x": deep}, {name: {name: 1}}]
    kinds = schema.get("type", "")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "null" not in kinds and None not in schema.get("enum", []) and "anyOf" not in schema:
        values.append(None)
    if "string" in kinds:
        values += [1, True, ["x"], "x" * (schema.get("maxLength", 10**6) + 1)]
    if "integer" in kinds:
        values += ["many", 1.5, True, [1], -1, 10**30]
    if "array" in kinds:
        values += [1, True, "x", [1], [None], [["x"]], ["v1"] * (schema.get("maxItems", 10**6) + 1)]
        values.append(["x" * (schema["items"].get("maxLength", 10**6) + 1)])
    if "boolean" in kinds:
        values += ["perhaps", 7, [True]]
    if "enum" in schema:
        values += ["sometimes", 7]
    return values


@pytest.mark.parametrize("tool", NEEDED)
def test_each_wrong_value_of_each_argument_is_an_error_that_names_the_argument(saved_box: Box, tool: str) -> None:
    async def scenario(agent: Agent) -> None:
        for name, schema in (await schemas(agent))[tool]["properties"].items():
            for value in wrong(name, schema):
                answer = await agent.call(tool, **{**NEEDED[tool], name: value})
                assert answer.failed, (name, repr(value)[:80])
                assert name in answer.text, (name, repr(value)[:80], answer.text[:300])
                assert 20 < len(answer.text) < 2_000, (name, repr(value)[:80], answer.text[:300])
                assert "pydantic" not in answer.text

    within(saved_box, scenario)

    assert len(saved_box.versions()) == 3
    assert not (saved_box.project / ".keepfast/config.json").exists()


@pytest.mark.parametrize("tool", [name for name, needed in NEEDED.items() if needed])
def test_each_missing_argument_is_named(saved_box: Box, tool: str) -> None:
    for name in NEEDED[tool]:
        answer = call(saved_box, tool, **{key: value for key, value in NEEDED[tool].items() if key != name})

        assert answer.failed
        assert name in answer.text


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("checkpoint_diff", {"old": "v1", "paths": ["nothing-here"]}),
        ("checkpoint_diff", {"old": "v1", "new": "v2", "paths": ["src/b.py"]}),
        ("checkpoint_diff", {"paths": ["a\0b"]}),
        ("checkpoint_restore_preview", {"paths": ["a\0b"]}),
        ("checkpoint_restore_preview", {"paths": ["nothing-here"]}),
        ("checkpoint_prepare", {"action": "export", "references": ["v1"], "file": "a\0b"}),
        ("checkpoint_search", {"text": " "}),
        ("checkpoint_save", {"summary": "x", "tags": ["a\0b"]}),
        ("recall", {"what": "src/a.py:3-1"}),
        ("recall", {"what": "a\0b"}),
    ],
)
def test_what_is_on_no_side_or_means_nothing_is_an_error_and_not_an_empty_answer(
    saved_box: Box, tool: str, given: dict[str, Any]
) -> None:
    answer = call(saved_box, tool, **given)

    assert answer.failed
    assert len(answer.text) > len(f"Error executing tool {tool}: ")
    assert len(saved_box.versions()) == 3


def test_a_path_that_one_side_has_is_compared(saved_box: Box) -> None:
    saved_box.put("new.txt", "x\n")

    assert [one["path"] for one in call(saved_box, "checkpoint_diff", paths=["new.txt"])["changes"]] == ["new.txt"]
    assert [one["path"] for one in call(saved_box, "checkpoint_diff", old="v1", paths=["src/b.py"])["changes"]] == [
        "src/b.py"
    ]
    assert call(saved_box, "checkpoint_diff", paths=["README"])["changes"] == []
    assert call(saved_box, "checkpoint_diff", paths=["."])["changes"]


def test_a_folder_is_named_as_one_and_lines_are_counted_as_the_file_has_them(saved_box: Box) -> None:
    folder = call(saved_box, "recall", what="src")
    words = call(saved_box, "recall", what="read me")

    assert folder["matches"] == []
    assert "src" in folder["left_out"][0]
    assert words["matches"][0]["lines"] == "1-1 of 1"


async def refusals(agent: Agent) -> list[Answer]:
    return [
        await agent.call("checkpoint_show", ref="v999"),
        await agent.call("checkpoint_show", reference="v999"),
        await agent.call("checkpoint_show", reference="v1"),
    ]


def test_over_standard_streams_it_is_the_same(saved_box: Box) -> None:
    unknown, absent, right = outside(saved_box, refusals)

    assert [unknown.failed, absent.failed, right.failed] == [True, True, False]
    assert "Did you mean 'reference'?" in unknown.text


def test_over_http_it_is_the_same(saved_box: Box) -> None:
    async def play(address: str, token: str) -> list[Answer]:
        credentials = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"})
        async with credentials, Client(streamable_http_client(address, http_client=credentials)) as client:
            return await refusals(Agent(client))

    with started(saved_box, "-m", "keepfast", "mcp", "--http", "--port", "0") as (address, _):
        token = (saved_box.home / ".local/share/keepfast/mcp.token").read_text().strip()
        unknown, absent, right = asyncio.run(play(address, token))

    assert [unknown.failed, absent.failed, right.failed] == [True, True, False]
    assert "Did you mean 'reference'?" in unknown.text
