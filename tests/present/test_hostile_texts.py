"""Texts from a store, a bundle or a file name reach a terminal as they are read, never as something that it obeys."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from pathlib import Path

import pytest

from keepfast.present.terminal import Paint, harmless
from keepfast.store.save import ReplacedRows
from tests.equipment.box import Box

EVIL = "a\x1b]0;owned\x07\x1b[2J\r\x08\x9b31m\x7f\u202ecod\u2066\u200b\u2028z"
"""Sets a title, clears the screen, overwrites the line, and turns letters round; in seven- and eight-bit forms."""
FILE = "f\x1b[31m\u202egpj\r\n.txt"
OURS = re.compile(r"\x1b\[(?:0|[12]|3[12346])(?:;(?:[12]|3[12346]))*m")
COMMANDS = [
    ["list"], ["list", "--all"], ["list", "--all-workspaces"], ["latest"], ["show"], ["show", "v1"], ["show", "--all"],
    ["show", "--left-out"], ["diff", "v1", "v2", "--stat"], ["diff", "v1", "v2", "--name-only"],
    ["search", "a"], ["search", "cod"], ["status"], ["verify"], ["forget", "--dry-run"], ["forget", "v1", "-n"],
    ["restore", "v1", "-n"], ["brief"], ["resume"], ["clear-check"], ["purge", "-n"], ["unprotect", "-n"], ["doctor"],
    ["pin", "v1"], ["unpin", "v1"], ["config"], ["cat", "v1", EVIL], ["show", EVIL], ["name", "v1", EVIL],
    ["restore", EVIL], ["diff", EVIL], ["save", "-m", EVIL], ["save", "--tag", EVIL], ["init", EVIL],
    ["fork", "v1", EVIL], ["import", EVIL], ["export", "v1", EVIL], ["config", "get", EVIL], ["config", "set", EVIL, EVIL],
    ["-C", EVIL, "list"], ["--config", EVIL, "list"], [EVIL], ["list", f"--{EVIL}"], ["task", "list"], ["task", "show", EVIL],
    ["report"], ["completion", EVIL], ["install", EVIL], ["key", "import", EVIL], ["undo"], ["redo"], ["rebuild"], ["compact"],
]  # fmt: skip


def obeyed(text: str) -> list[str]:
    """The characters in a text that a terminal would obey, or that hide or reorder others."""
    return [
        f"U+{ord(char):04X}"
        for char in text
        if char not in "\n\t" and unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    ]


def crafted(box: Box) -> None:
    """Versions whose headers say what no front end of ours would have let in."""
    from keepfast.app.wiring import build

    (box.project / FILE).write_text("one\n")
    (box.project / "link").symlink_to(EVIL.replace("/", ""))
    assert box.call("init").code == 0
    for number in range(2):
        (box.project / FILE).write_text(f"{number}\n" * 3)
        (box.project / f"new{number}{FILE}").write_text(EVIL)
        assert box.call("save").code == 0
    around = box.home / ".local/share/keepfast"
    from keepfast.settings import Settings

    settings = Settings()
    settings.put("store.url", str(box.store), "test")
    engine = build(settings, str(around), os.fsencode(box.home), lambda: box.now)
    repository = engine.repository()
    workspace = repository.ledger.workspaces()[0].id
    saving = repository.begin(workspace)
    header, _ = repository.document(repository.ledger.checkpoint(workspace, 2))  # type: ignore[arg-type]
    ours = {"v", "workspace", "version", "parent", "keyframe", "counts", "tree"}
    texts = {
        **{key: value for key, value in header.members.items() if key not in ours}, "id": "cp-" + "0" * 26, "message": EVIL,
        "name": EVIL, "tags": [EVIL], "trigger": EVIL, "created_by": EVIL, "session": EVIL, "task": EVIL, "cwd": EVIL,
        "git": {"branch": EVIL, "commit": EVIL, "in_progress": EVIL}, "agent": EVIL, "command": EVIL, "summary": EVIL,
        "notices": [EVIL], "key_points": [EVIL], "active_files": [EVIL], "tokens_used": 1, "token_budget": 2,
        "notes": {"task": EVIL, "next_steps": [EVIL], "decisions": [EVIL], "blockers": [EVIL]},
    }  # fmt: skip
    saving.finish(texts, [], ReplacedRows())
    engine.close()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Box:
    box = Box(tmp_path_factory.mktemp("hostile"))
    crafted(box)
    return box


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words).encode("unicode_escape").decode())
def test_no_command_prints_what_a_terminal_obeys(hostile: Box, words: list[str]) -> None:
    for more in ([], ["--json"], ["--color", "always"]):
        arguments = [*more, *words] if more[:1] == ["--color"] else [*words, *more]

        done = hostile.call(*arguments)

        printed = OURS.sub("", done.out + done.err) if more[:1] == ["--color"] else done.out + done.err
        assert obeyed(printed) == [], arguments
        assert "Internal error" not in printed
        assert "Traceback" not in printed


def test_what_json_says_is_still_what_was_stored(hostile: Box) -> None:
    assert EVIL in [row["message"] for row in hostile.call("list", "--json").json()]
    assert hostile.call("show", "v3", "--json").json()["session_id"] == EVIL


def test_a_patch_for_a_program_is_byte_for_byte(hostile: Box) -> None:
    assert EVIL.encode() in hostile.call("diff", "v1", "v2").raw


def test_a_patch_on_a_terminal_is_harmless(hostile: Box) -> None:
    result = hostile.terminal("diff", "v1", "v2").decode("utf-8", "replace").replace("\r\n", "\n")

    assert obeyed(OURS.sub("", result)) == []


def test_a_patch_in_colour_is_for_people_wherever_it_goes(hostile: Box) -> None:
    assert obeyed(OURS.sub("", hostile.call("--color", "always", "diff", "v1", "v2").out)) == []


def test_our_colours_stay_and_no_others() -> None:
    paint = Paint(True, None)
    text = paint("bold red", "x") + "\x1b[8m\x1b[5;31m\x1b[38m"

    assert harmless(text, True).startswith("\x1b[1;31mx\x1b[0m")
    assert harmless(text, True).count("\x1b") == 2
    assert harmless(text).count("\x1b") == 0
    assert harmless("한국어\u3000とspace\u00a0\ttab\nline") == "한국어\u3000とspace\u00a0\ttab\nline"


def test_json_for_a_terminal_is_the_same_value(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    import io
    import sys

    from keepfast.cli.session import write_json

    value = {EVIL: [EVIL, "한국어", "\ud800"]}
    out, sys.stdout = sys.stdout, io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    try:
        write_json(value)
        text = sys.stdout.buffer.getvalue().decode()
    finally:
        sys.stdout = out
    assert json.loads(text) == value
    assert obeyed(text) == []


def test_hostile_names_are_not_completed(hostile: Box, tmp_path: Path) -> None:
    done = hostile.run(_KEEPFAST_COMPLETE="bash_complete", COMP_WORDS="keepfast show ", COMP_CWORD="2")

    assert "v3" in done.out
    assert obeyed(done.out) == []
