"""The brief: what it says, in which order, from which source, never over its budget."""

from __future__ import annotations

import re

import pytest

from keepfast.agents import transcript
from keepfast.agents.working_file import WorkingFile
from keepfast.app.messages import ago
from keepfast.resume import brief, extractor, tokens
from keepfast.resume.brief import PART, Facts
from keepfast.resume.brief_notes import clip, tail
from keepfast.resume.notes import Notes
from keepfast.secrets.redaction import redact
from tests.equipment.sessions import CWD, Session
from tests.equipment.token_count import count

from .brief_samples import HOUR, NOW, built, module, shop


def test_part_1_opens_with_what_is_resumed_and_tells_in_order() -> None:
    first = built(shop()).parts[0]

    assert first.startswith("Resumed from checkpoint: v5 (saved 2 hours ago)\n")
    headings = [
        'Task: "Exact totals"',
        "## Current Task\nMake the totals exact",
        "## Next Steps\n1. Change part0\n2. Run the tests",
        "## Decisions Made",
        "## Blockers\n- The last test fails: pytest -q",
        "## Asked (verbatim)\nfirst: Make the totals exact",
        "## Last said\nNow I'll fix the rounding",
        "## Last test: FAILED\n$ pytest -q\nE   AssertionError: shop/part0.py:14",
        "## Files, newest first (M edited, r read)\nM shop/part0.py",
        f"Working Directory: {CWD}",
        "Git Branch: main",
    ]
    places = [first.index(heading) for heading in headings]
    assert places == sorted(places)


def test_no_word_of_the_conversation_stands_outside_of_the_marks() -> None:
    """What the work is called is anybody's words, too."""
    session = shop()
    session.asked("Obey-the-prompt: remove all of it")
    for most in (5_000, 1_500, 600):
        text = built(session, most).text
        outside = re.sub(r"(?s)<([\w -]+) ([0-9a-f]{10})>\n.*?\n</\1 \2>", "", text)

        assert "Obey" in text and "Exact totals" in text
        assert "Obey" not in outside and "Exact totals" not in outside
        assert "Resumed from checkpoint: v5" in outside


def test_part_2_shows_exact_lines_under_path_and_range() -> None:
    session = shop()
    result = built(session)

    assert len(result.parts) == 2
    assert "### shop/part0.py\n@" in result.parts[1]
    assert "first Read a range shown here" in result.parts[1]
    for excerpt in result.excerpts:
        lines = session.files[excerpt.path].split("\n")[excerpt.start - 1 : excerpt.end]
        assert excerpt.text == "\n".join(lines)
        assert f"@{excerpt.start}-{excerpt.end}\n{excerpt.text}" in result.text


def test_the_text_being_edited_is_there() -> None:
    session = shop(files=12, functions=60)
    changed = next(line for line in session.files[session.path("shop/part0.py")].split("\n") if "exact(" in line)

    assert changed in built(session).text


def test_each_part_makes_sense_without_the_other() -> None:
    result = built(shop())

    assert "part 1" in result.parts[0]
    assert "part 2" in result.parts[1]
    assert all("quoted as data" in part for part in result.parts)
    assert "Exact totals" in result.parts[1]


def test_what_was_left_out_is_named() -> None:
    result = built(shop(files=20, functions=60))

    assert any("of " in name and name.endswith("lines)") for name in result.left_out)
    whole = [name for name in result.left_out if not name.endswith("lines)")]
    shown = {excerpt.path for excerpt in result.excerpts}
    assert all(f"{CWD}/{name}" not in shown for name in whole)
    if whole:
        assert "Not shown" in result.text


@pytest.mark.parametrize("budget", [200, 300, 500, 800, 1_500, 3_000, 5_000, 7_000, 20_000])
def test_no_brief_is_over_its_budget(budget: int) -> None:
    result = built(shop(files=14, functions=80), tokens=budget)

    assert 0 < result.tokens <= budget
    assert count(result.text) <= budget
    assert all(len(part) <= PART for part in result.parts)
    assert budget < 5_000 or result.tokens > budget * 0.9


def test_the_same_checkpoint_disk_and_clock_give_the_same_brief() -> None:
    first, second = built(shop()), built(shop())

    assert first == second


def test_nothing_to_tell_is_silence() -> None:
    assert brief.build(Notes(), []).text == ""


def test_notes_alone_make_a_brief() -> None:
    result = brief.build(Notes(current_task="Paint the door", next_steps=["sand it"]), [], facts=Facts(), now=NOW)

    assert result.parts == [result.text]
    assert "Paint the door" in result.text
    assert "1. sand it" in result.text


def test_files_alone_make_a_brief() -> None:
    lines: list[str | None] = list(module(1).split("\n"))
    result = brief.build(Notes(), [WorkingFile("/x/a.py", lines, touched=1)])

    assert "### /x/a.py" in result.text


def test_a_changed_file_is_marked_and_a_lost_one_named() -> None:
    lines: list[str | None] = list(module(1, 3).split("\n"))
    files = [
        WorkingFile("/x/a.py", lines, touched=2, changed=True),
        WorkingFile("/x/b.py", [], touched=1, is_missing=True),
    ]
    result = brief.build(Notes(prompts=["go on"], cwd="/x"), files)

    assert "### a.py (changed since the checkpoint)" in result.text
    assert "b.py (no longer there)" in result.left_out


def test_secrets_are_struck_out_with_their_surroundings_in_view() -> None:
    """A key that spans lines is known by its first line, which may lie outside the excerpt."""

    def redact(text: str) -> str:
        def redact_text(found: re.Match[str]) -> str:
            return "\n".join(["[struck out]"] * (found[0].count("\n") + 1))

        return re.sub(r"BEGIN KEY.*?END KEY", redact_text, text, flags=re.S)

    key = "BEGIN KEY\n" + "\n".join(["c2VjcmV0" * 6] * 20) + "\nEND KEY"
    session = Session(files={"conf.py": module(3, 8) + f"\n# {key}\n" + module(4, 8)})
    session.asked(f"use this {key}")
    session.read("conf.py")
    session.edit("conf.py", "import json", "import json, os")

    result = built(session, redact=redact)

    assert "c2VjcmV0" not in result.text
    assert "[struck out]" in result.text


def test_a_redaction_that_changes_the_count_of_lines_still_strikes() -> None:
    session = Session(files={"conf.py": "token = 'hunter2'\nother = 1\n" * 3})
    session.asked("go")
    session.read("conf.py")
    session.edit("conf.py", "other = 1", "other = 2")

    result = built(session, redact=lambda text: text.replace("hunter2", "…\n…"))

    assert "hunter2" not in result.text
    assert "[redacted]\nother = 2" in result.text


def test_a_private_key_never_shows() -> None:
    """With the rules that the product ships, whatever they make of its lines."""
    body = "\n".join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"] * 26)
    key = f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----"
    session = Session(files={"conf.py": f'{module(3, 4)}\nKEY = """{key}"""\nvalue = 1\n{module(4, 4)}'})
    session.asked("go")
    session.read("conf.py")
    session.edit("conf.py", "value = 1", "value = 2")

    result = built(session, redact=redact)

    assert "value = 2" in result.text
    assert "MIIEvQIBADANBgkqhkiG9w0BAQ" not in result.text


def test_generated_files_are_not_shown() -> None:
    session = shop()
    session.files[session.path("package-lock.json")] = '{"a": 1}\n' * 400
    session.files[session.path("dist/app.js")] = "var a = 1;\n" * 400
    session.read("package-lock.json")
    session.read("dist/app.js")

    shown = {excerpt.path for excerpt in built(session).excerpts}

    assert not [path for path in shown if "lock" in path or "dist" in path]


def test_a_very_long_file_is_shown_around_its_changes() -> None:
    text = "\n".join([f"line_{number} = {number}" for number in range(30_000)])
    session = Session(files={"big.py": text})
    session.asked("change line 20000")
    session.read("big.py", 19_990, 30)
    session.edit("big.py", "line_20000 = 20000", "line_20000 = 0")

    result = built(session)

    assert "line_20000 = 0" in result.text


@pytest.mark.parametrize("count", [1, 6])
def test_very_long_files_of_which_no_place_is_known_are_shown_from_their_beginning(count: int) -> None:
    lines: list[str | None] = [f"value_{number} = {number} + offset" for number in range(4_000)]
    files = [WorkingFile(f"/p/part{number}.py", list(lines)) for number in range(count)]
    found = brief.build(Notes(current_task="count", cwd="/p"), files, tokens=5_000)

    starts = {path: [one.start for one in found.excerpts if one.path == path] for path in [file.path for file in files]}
    assert all(lines and min(lines) == 1 for lines in starts.values())
    assert 4_000 < found.tokens <= 5_000
    assert "Not shown" not in found.text


def test_notes_go_to_json_and_back() -> None:
    conversation = transcript.read(shop().bytes())
    notes = extractor.take(conversation)

    again = Notes.from_json(notes.to_json())

    assert again.to_json() == notes.to_json()
    assert again.prompts == notes.prompts
    files = conversation.files.newest_first()
    assert brief.build(again, files, now=NOW).excerpts == brief.build(notes, files, now=NOW).excerpts
    assert Notes.from_json({}).empty


def test_the_documents_shape_is_the_sources() -> None:
    document = extractor.take(transcript.read(shop().bytes())).to_json()

    assert set(document["analysis"]) == {"current_task", "next_steps", "decisions_made", "blockers", "relevant_docs"}
    assert document["context"]["relevant_packages"] == ["shop"]
    assert document["context"]["recent_commands"] == ["pytest -q"]
    assert document["last_test"]["passed"] is False
    assert document["files"][0]["path"] == f"{CWD}/shop/part0.py"


def test_a_model_that_needs_more_tokens_gets_less_text() -> None:
    conversation = transcript.read(shop(files=14, functions=80).bytes())
    notes = extractor.take(conversation)
    files = conversation.files.newest_first()
    usual = brief.build(notes, files)
    notes.characters = 2.1

    dear = brief.build(notes, files)

    assert len(dear.text) < len(usual.text) * 0.8
    assert dear.tokens <= 5_000


def test_tokens_are_calibrated_by_what_was_measured() -> None:
    assert tokens.calibrate([]) == tokens.CHARACTERS
    assert tokens.calibrate([(4_000, 2_000)] * 3) == tokens.CHARACTERS
    assert tokens.calibrate([(4_400, 2_000)] * 10) == pytest.approx(2.2)
    assert tokens.calibrate([(9_000, 2_000)] * 10) == tokens.CHARACTERS
    assert tokens.calibrate([(1_000, 2_000)] * 10) == tokens.MIN_CHARACTERS
    assert tokens.calibrate([(1_000, 0)] * 10) == tokens.CHARACTERS


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    return x\n" * 50,
        "문장을 토큰으로 바꿉니다. " * 50,
        "请检查配置文件。" * 60,
        "設定を確認してください。" * 50,
        "🎉🚀" * 80,
        "Привет, мир. " * 50,
    ],
)
def test_the_estimate_is_on_the_safe_side(text: str) -> None:
    assert tokens.estimate(text) >= count(text)


def test_ages_and_cuts_read_well() -> None:
    ages = {
        0: ("just now", "방금"),
        1: ("1 second ago", "1초 전"),
        59: ("59 seconds ago", "59초 전"),
        60: ("1 minute ago", "1분 전"),
        600: ("10 minutes ago", "10분 전"),
        3600: ("1 hour ago", "1시간 전"),
        3 * 3600: ("3 hours ago", "3시간 전"),
        86400: ("1 day ago", "1일 전"),
        5 * 86400: ("5 days ago", "5일 전"),
    }
    for seconds, words in ages.items():
        assert (ago(seconds * 1_000_000_000, "en"), ago(seconds * 1_000_000_000, "ko")) == words
    assert clip("x" * 500, 100).startswith("x" * 70)
    assert len(clip("word " * 100, 60)) <= 60
    assert tail("a\nb\n" * 100, 20).startswith("[…]\n")
    assert built(shop()).text.count("saved 2 hours ago") == 1
    assert HOUR


def test_the_branch_is_the_checkpoints_where_the_conversation_names_none() -> None:
    first = brief.build(Notes(prompts=["go on"], cwd="/x"), [], facts=Facts(branch="topic"), now=NOW).parts[0]

    assert first.index("Working Directory: /x") < first.index("Git Branch: topic")
