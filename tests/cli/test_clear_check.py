"""`clear-check` in the three modes of the source, with its words, before anything is cleared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.equipment.box import MINUTE, Box

EXAMPLES = Path(__file__).parents[2] / "examples"
CHANGED = """Work changed since last checkpoint:
  - 3 files modified
  - 127 lines added
  - Last checkpoint: 45 minutes ago
"""


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """A project with one checkpoint, and work since then."""
    box = Box(tmp_path)
    assert box.call("init").code == 0
    box.put("a.txt", "one\n")
    box.put("b.txt", "one\ntwo\n")
    box.save("-m", "begin")
    box.now += 45 * MINUTE
    box.put("a.txt", "one\n" + "more\n" * 100)
    box.put("b.txt", "one\n2\n")
    box.put("c.txt", "new\n" * 26)
    return box


def mode(box: Box, name: str, **hooks: Any) -> Box:
    """Use an example file as it is, or with other hooks' settings."""
    box.config.parent.mkdir(parents=True, exist_ok=True)
    content = json.loads((EXAMPLES / f"{name}.json").read_text())
    content["hooks"].update(hooks)
    box.config.write_text(json.dumps(content))
    return box


def versions(box: Box) -> list[str]:
    return [row["version"] for row in box.call("list", "--json").json()]


def test_automatic_saves_without_a_question(box: Box) -> None:
    answer = mode(box, "automatic").call("clear-check", "-m", "Implemented auth middleware")

    newest = box.call("list", "--json").json()[0]
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == (
        'Checkpoint saved: "Implemented auth middleware"\n'
        f"Checkpoint ID: {newest['id']}\n"
        "Files changed: 3, Lines added: 127\n"
    )
    assert (newest["version"], newest["trigger"]) == ("v2", "before_clear")


def test_a_folder_that_is_left_out_is_no_work_to_lose(box: Box) -> None:
    box.save("-m", "all of it")
    box.put("node_modules/x/index.js", "x\n")

    answer = mode(box, "prompt").call("clear-check")

    assert (answer.code, "modified" in answer.out) == (0, False)


def test_empty_folders_are_told_and_count_as_no_files(box: Box) -> None:
    box.save("-m", "all of it")
    (box.project / "empty/inner").mkdir(parents=True)

    result = mode(box, "prompt").call("clear-check", "--json")
    text_result = box.call("clear-check")

    assert (result.code, result.json()["action"], result.json()["files_changed"]) == (1, "ask", 0)
    assert "  - 0 files modified\n  - 0 lines added\n  - 2 folders made or removed\n" in text_result.out
    box.put("empty/new.txt", "x\n")
    assert box.call("clear-check", "--json").json()["files_changed"] == 1
    assert "Files changed: 1, Lines added: 1" in box.call("clear-check", "-y").out


def test_permissions_of_a_folder_are_told_as_that(box: Box) -> None:
    box.put("folder/file.txt", "x\n")
    box.save("-m", "all of it")
    (box.project / "folder").chmod(0o700)

    told = mode(box, "prompt").call("clear-check", "--json")
    shown = box.call("clear-check")

    assert (told.code, told.json()["action"], told.json()["files_changed"]) == (1, "ask", 0)
    assert "1 folder with changed permissions" in shown.out and "made or removed" not in shown.out


def test_automatic_with_verification_shows_the_difference_first(box: Box) -> None:
    answer = mode(box, "automatic", verify_before_clear=True).call("clear-check")

    assert answer.out.startswith(CHANGED + 'Checkpoint saved: "Changed: a.txt, b.txt, c.txt"\n')


@pytest.mark.parametrize(
    ("typed", "code", "saved"), [(b"y\n", 0, True), (b"n\n", 0, False), (b"c\n", 1, False), (b"x\ny\n", 0, True)]
)
def test_prompt_asks_on_a_terminal(box: Box, typed: bytes, code: int, saved: bool) -> None:
    result = mode(box, "prompt").terminal("clear-check", typed=typed, TZ="UTC").replace(b"\r\n", b"\n")

    assert b"Work changed since last checkpoint:\n  - 3 files modified\n  - 127 lines added\n" in result
    assert b"(y) Yes - save and clear\n  (n) No - just clear\n  (c) Cancel" in result
    assert (versions(box)[0] == "v2") == saved
    assert (b"Checkpoint saved:" in result) == saved
    assert (b"Cancelled" in result) == (code == 1)


@pytest.mark.parametrize("verify", [True, False])
def test_prompt_without_a_terminal_takes_an_answer_or_says_how_to_give_one(box: Box, verify: bool) -> None:
    nobody = mode(box, "prompt", verify_before_clear=verify).call("clear-check")
    mode(box, "prompt")
    no = box.call("clear-check", "--no")
    assert (nobody.code, no.code, versions(box)) == (1, 0, ["v1"])
    assert nobody.out.startswith(CHANGED) and nobody.err == ""
    assert "keepfast clear-check -y" in nobody.out and "keepfast clear-check --no" in nobody.out

    yes = box.call("clear-check", "-y")
    assert (yes.code, versions(box)) == (0, ["v2", "v1"])
    assert yes.out.startswith(CHANGED)


def test_manual_goes_on_and_with_verification_it_stops(box: Box) -> None:
    plain = mode(box, "manual").call("clear-check")
    verified = mode(box, "manual", verify_before_clear=True).call("clear-check")

    assert (plain.code, plain.out, plain.err) == (0, "", "")
    assert (verified.code, verified.out) == (1, CHANGED)
    assert verified.err == "keepfast: work changed since last checkpoint - save first\n"
    assert versions(box) == ["v1"]


def test_before_the_first_checkpoint_it_says_that_nothing_was_saved(tmp_path: Path) -> None:
    box = Box(tmp_path)
    assert box.call("init").code == 0
    box.put("a.txt", "one\n")

    result = mode(box, "prompt").call("clear-check")
    text_result = box.call("clear-check", "--json")
    refused = mode(box, "manual", verify_before_clear=True).call("clear-check")

    assert (result.code, text_result.code, refused.code, text_result.json()["last"]) == (1, 1, 1, None)
    assert result.out.startswith("Nothing was saved yet:\n  - 1 file not saved\n")
    assert "modified" not in result.out and "changed since" not in refused.err


@pytest.mark.parametrize("name", ["automatic", "prompt", "manual"])
def test_nothing_changed_is_silence(box: Box, name: str) -> None:
    box.save()

    answer = mode(box, name, verify_before_clear=True).call("clear-check")

    assert (answer.code, answer.out, answer.err) == (0, "", "")
    assert versions(box) == ["v2", "v1"]


def test_a_yes_says_what_is_saved_whoever_saved_it(box: Box) -> None:
    box.save("-m", "by a hook")

    answer = mode(box, "prompt").call("clear-check", "-y")

    newest = box.call("list", "--json").json()[0]
    assert (answer.code, answer.err, newest["version"]) == (0, "", "v2")
    assert all(part in answer.out for part in ("Checkpoint saved:", "by a hook", "v2", newest["id"]))


@pytest.mark.parametrize(
    ("name", "words", "action", "code"),
    [
        ("automatic", [], "saved", 0),
        ("prompt", [], "ask", 1),
        ("prompt", ["-y"], "saved", 0),
        ("prompt", ["--no"], "not_saved", 0),
        ("manual", [], "save_first", 1),
    ],
)
def test_in_json_nobody_is_asked(box: Box, name: str, words: list[str], action: str, code: int) -> None:
    answer = mode(box, name, verify_before_clear=True).call("clear-check", "--json", *words)

    facts = answer.json()
    assert (answer.code, facts["action"], answer.err) == (code, action, "")
    assert (facts["files_changed"], facts["lines_added"], facts["lines_removed"]) == (3, 127, 1)
    assert (facts["last"]["version"], facts["checkpoint"] is not None) == ("v1", action == "saved")


def test_before_the_first_checkpoint_everything_is_unsaved(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.call("init")
    box.put("a.txt", "one\n")

    answer = box.call("clear-check", "-y")

    assert "  - 1 file not saved\n  - 1 line added\n  - Last checkpoint: none yet\n" in answer.out
    assert versions(box) == ["v1"]


def test_outside_of_a_workspace_it_says_so(tmp_path: Path) -> None:
    assert Box(tmp_path).call("clear-check").code == 3
