"""Every block of the source, its JSON form, its limits, and what is answered to a malformed one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from keepfast.runner.domain.protocol import UNSAID, Block, Malformed, Reader, sort

ERROR = "[ERROR]\ntype: recoverable\nmessage: Rate limit exceeded\nrecovery: pause_and_retry\n[/ERROR]\n"
FATAL = "[ERROR]\ntype: fatal\nmessage: no disk\ndetails: /dev/sda\n  is gone\nrecovery: notify_user\n[/ERROR]\n"
NEED = "[DEPENDENCY_REQUEST]\ntype: api_key\nname: STRIPE_KEY\ndescription: payments\nrequired: true\n[/DEPENDENCY_REQUEST]\n"
QUESTION = (
    "[USER_QUESTION]\ncategory: choice\nquestion: Which database?\noptions:\n  - PostgreSQL\n  - SQLite\n"
    "default: SQLite\nrequired: false\n[/USER_QUESTION]\n"
)


def read(text: str) -> list[Block | Malformed]:
    reader = Reader()
    return reader.feed(text) + reader.close()


def only(text: str) -> Block:
    [found] = read(text)
    assert isinstance(found, Block), found
    return found


def test_an_error_block() -> None:
    block = only(FATAL)

    assert (block.name, block.fields["type"], block.fields["recovery"]) == ("ERROR", "fatal", "notify_user")
    assert block.fields["details"] == "/dev/sda\nis gone"


@pytest.mark.parametrize(
    ("text", "kind", "recovery"),
    [
        ("[ERROR]\ntype: recoverable\nmessage: Rate limit exceeded\n[/ERROR]\n", "recoverable", "pause_and_retry"),
        ("[ERROR]\ntype: fatal\nmessage: Rate limit exceeded\n[/ERROR]", "fatal", "checkpoint_and_fail"),
        ("[ERROR]\ntype: fatal\nmessage: Rate limit exceeded\nrecovery:\n[/ERROR]", "fatal", "checkpoint_and_fail"),
        ("[ERROR] type: recoverable, message: Rate limit exceeded", "recoverable", "pause_and_retry"),
        ("[ERROR] type: fatal, message: Rate limit exceeded [/ERROR]\n", "fatal", "checkpoint_and_fail"),
        ("  [ERROR] type: recoverable, message: Rate limit exceeded\n[/ERROR]\n", "recoverable", "pause_and_retry"),
        (
            '[ERROR_JSON]{"type": "recoverable", "message": "Rate limit exceeded"}[/ERROR_JSON]',
            "recoverable",
            "pause_and_retry",
        ),
    ],
)
def test_an_error_needs_no_more_than_its_type_and_message(text: str, kind: str, recovery: str) -> None:
    block = only(text)

    assert (block.name, block.fields) == (
        "ERROR", {"type": kind, "message": "Rate limit exceeded", "recovery": recovery},
    )  # fmt: skip


def test_an_error_on_one_line_is_read_in_pieces_of_any_size_and_ends_with_its_line() -> None:
    text = "Before\n[ERROR] type: recoverable, message: a, b: c\n" + QUESTION
    reader = Reader()
    found = [block for letter in text for block in reader.feed(letter)] + reader.close()

    assert [one.name for one in found] == ["ERROR", "USER_QUESTION"]
    assert isinstance(found[0], Block) and found[0].fields["message"] == "a, b: c"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("[ERROR] something broke badly\n", "recoverable", "something broke badly"),
        ("[ERROR] something broke badly", "recoverable", "something broke badly"),
        ("[ERROR] something: broke badly\nI look at it.\n", "recoverable", "something: broke badly"),
        ("[ERROR] it broke [/ERROR]\n", "recoverable", "it broke"),
        ("[ERROR] it broke\n[/ERROR]\n", "recoverable", "it broke"),
        ("[ERROR] it broke\ntype: fatal\n[/ERROR]\n", "fatal", "it broke"),
        ("[ERROR]\ntype: fatal\nmessage: the disk is gone\nI stop here.\n", "fatal", "the disk is gone"),
        ("[ERROR]\nmessage: no network\n", "recoverable", "no network"),
        ("[ERROR]\nit broke\nand how\n\nMore words.\n", "recoverable", "it broke\nand how"),
        ("[ERROR_JSON]\n{broken", "recoverable", "{broken"),
        ("[ERROR]", "recoverable", UNSAID),
    ],
)
def test_an_error_is_one_in_words_and_without_its_end(text: str, kind: str, message: str) -> None:
    reader = Reader()
    found = [block for letter in text for block in reader.feed(letter)] + reader.close()

    assert found == read(text)
    [block] = found
    assert isinstance(block, Block)
    assert (block.name, block.fields["type"], block.fields["message"]) == ("ERROR", kind, message)


def test_an_error_in_words_ends_with_its_line() -> None:
    found = read(f"[ERROR] it broke\n{QUESTION}[ERROR]\nand again\n{NEED}")

    assert [one.name for one in found] == ["ERROR", "USER_QUESTION", "ERROR", "DEPENDENCY_REQUEST"]


def test_a_dependency_request() -> None:
    block = only(NEED)

    assert block.fields == {
        "type": "api_key", "name": "STRIPE_KEY", "description": "payments", "required": "true",
    }  # fmt: skip


def test_a_question_has_its_options_as_a_list() -> None:
    block = only(QUESTION)

    assert block.lists == {"options": ["PostgreSQL", "SQLite"]}
    assert block.fields["default"] == "SQLite"
    assert not block.flag("required")


@pytest.mark.parametrize(
    ("text", "name", "fields"),
    [
        ('[USER_QUESTION_JSON] {"question": "Go on?", "required": true} [/USER_QUESTION_JSON]', "USER_QUESTION",
         {"question": "Go on?", "required": "true", "category": "clarification"}),
        ('[ERROR_JSON]\n{"type":"fatal","message":"x","recovery":"notify_user"}\n[/ERROR_JSON]', "ERROR",
         {"type": "fatal", "message": "x", "recovery": "notify_user"}),
        ('[DEPENDENCY_REQUEST_JSON]{"type":"service","name":"redis"}[/DEPENDENCY_REQUEST_JSON]', "DEPENDENCY_REQUEST",
         {"type": "service", "name": "redis", "required": "true"}),
        ('[PHASE_COMPLETE_JSON]{"phase": 2, "summary": "done"}[/PHASE_COMPLETE_JSON]', "PHASE_COMPLETE",
         {"phase": "2", "summary": "done"}),
        ('[CUSTOM_TASK_COMPLETE_JSON]{"summary": "all"}[/CUSTOM_TASK_COMPLETE_JSON]', "CUSTOM_TASK_COMPLETE",
         {"summary": "all"}),
        ('[PROGRESS_JSON]{"step": "03_users", "percent": 35}[/PROGRESS_JSON]', "PROGRESS",
         {"step": "03_users", "percent": "35"}),
    ],
)  # fmt: skip
def test_every_block_has_a_json_form(text: str, name: str, fields: dict[str, str]) -> None:
    block = only(text)

    assert (block.name, block.fields) == (name, fields)


def test_a_completed_phase_with_its_notes() -> None:
    block = only(
        "Done.\n=== PHASE 1 COMPLETE ===\nCompleted: Phase 1 (Planning)\nDocuments created:\n"
        "- docs/planning/01_idea.md\n- docs/planning/02_market.md\nReady for review.\nBye"
    )

    assert block.fields == {"phase": "1", "name": "Phase 1 (Planning)"}
    assert block.lists["files"] == ["docs/planning/01_idea.md", "docs/planning/02_market.md"]


def test_a_completed_custom_task() -> None:
    block = only("=== CUSTOM TASK COMPLETE ===\nTask: rename\nSummary: renamed 3 files")

    assert block.fields == {"task": "rename", "summary": "renamed 3 files"}


def test_a_marker_inside_a_sentence_is_none() -> None:
    assert read("I print `=== PHASE 1 COMPLETE ===` when I am done.\nSay === PHASE 2 COMPLETE === then.\n") == []


def test_windows_line_ends_decomposed_letters_and_escapes() -> None:
    block = only("[USER_QUESTION]\r\nquestion: cafe\u0301 a\\nb c\\\\n\r\n[/USER_QUESTION]\r\n")

    assert block.fields["question"] == "café a\nb c\\n"


@pytest.mark.parametrize(
    ("text", "kind", "message", "recovery"),
    [
        ("type: fatal", "fatal", UNSAID, "checkpoint_and_fail"),
        ("type: FATAL\nmessage:", "fatal", UNSAID, "checkpoint_and_fail"),
        ("type: fatal\ndetails: the disk is gone", "fatal", "the disk is gone", "checkpoint_and_fail"),
        ("type: fatal\nmessage: x\nrecovery: run", "fatal", "x", "checkpoint_and_fail"),
        ("type: odd\nmessage: x", "recoverable", "x", "pause_and_retry"),
        ("type: odd\nmessage: x\nrecovery: notify_user", "recoverable", "x", "notify_user"),
        ("type: odd", "recoverable", "odd", "pause_and_retry"),
        ("type: fatal\nmessage: " + "x" * 20_000, "fatal", "x" * 10_000, "checkpoint_and_fail"),
        ("type: recoverable", "recoverable", UNSAID, "pause_and_retry"),
        ("", "recoverable", UNSAID, "pause_and_retry"),
        ("something broke badly", "recoverable", "something broke badly", "pause_and_retry"),
        ("it broke: badly\ntype: fatal", "fatal", "it broke: badly", "checkpoint_and_fail"),
    ],
)
def test_an_error_in_an_odd_form_is_still_one(text: str, kind: str, message: str, recovery: str) -> None:
    """What is fatal must not be tried again because its block was not as it should be."""
    [found] = read(f"[ERROR]\n{text}\n[/ERROR]\n")

    assert isinstance(found, Block) and found.warnings
    assert (found.fields["type"], found.fields["message"], found.fields["recovery"]) == (kind, message, recovery)


@pytest.mark.parametrize(
    "text",
    [
        '[ERROR] {"type": "fatal", "message": "no way"}',
        '  [ERROR]{"type": "fatal", "message": "no way"}  ',
        '[ERROR] {"type": "fatal", "message": "no way"} [/ERROR]',
        '[ERROR] {"type": "fatal", "message": "no way"}\n[/ERROR]',
        '[ERROR]\n{"type": "fatal", "message": "no way"}\n[/ERROR]',
        '[ERROR] {\n  "type": "fatal",\n  "message": "no way"\n}',
        '[ERROR] {"type": "fatal",\n  "message": "no way"}',
    ],
)
def test_an_error_may_be_an_object_after_its_marker(text: str) -> None:
    error, marker = read(f"{text}\n=== PHASE 1 COMPLETE ===\n")

    assert isinstance(error, Block) and not error.warnings
    assert error.fields == {"type": "fatal", "message": "no way", "recovery": "checkpoint_and_fail"}
    assert marker.name == "PHASE_COMPLETE"


def test_an_error_that_only_begins_like_an_object_is_words() -> None:
    error, marker = read("[ERROR] {oops} happened\n=== PHASE 1 COMPLETE ===\n")

    assert isinstance(error, Block) and error.fields["message"] == "{oops} happened"
    assert marker.name == "PHASE_COMPLETE"


@pytest.mark.parametrize(
    ("block", "details"),
    [
        ('[ERROR_JSON]{"type":"%s","message":"x","details":{"reset_at":"R"}}[/ERROR_JSON]', '{"reset_at": "R"}'),
        ('[ERROR_JSON]{"type":"%s","message":"x","details":["R"]}[/ERROR_JSON]', '["R"]'),
        ('[ERROR_JSON]{"type":"%s","message":"x","resetsAt":1794835624}[/ERROR_JSON]', "resetsAt: 1794835624"),
        ('[ERROR_JSON]{"type":"%s","message":"x","limit":{"reset_at":"R"}}[/ERROR_JSON]', 'limit: {"reset_at": "R"}'),
        ("[ERROR]\ntype: %s\nmessage: x\nretry-after: 60\n[/ERROR]", "retry-after: 60"),
        ("[ERROR]\ntype: %s\nmessage: x\nreset_at: R\ndetails: more\n[/ERROR]", "more\nreset_at: R"),
        ("[ERROR]\ntype: %s\nmessage: x\ndetails: reset at R\n[/ERROR]", "reset at R"),
    ],
)
@pytest.mark.parametrize("kind", ["recoverable", "fatal"])
def test_what_an_error_says_of_the_end_of_a_limit_is_kept(block: str, details: str, kind: str) -> None:
    found = only(block % kind)

    assert (found.fields["type"], found.fields["message"], found.fields["details"]) == (kind, "x", details)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[USER_QUESTION]\nquestion: " + "x" * 10_001 + "\n[/USER_QUESTION]", "longer than"),
        ("[USER_QUESTION]\nquestion: x\n" + " y\n" * 40_000 + "[/USER_QUESTION]", "larger than"),
        ("[USER_QUESTION]\nquestion: open\n", "there is no [/USER_QUESTION]"),
        ("[USER_QUESTION]\n[/USER_QUESTION]", "empty"),
        ("[USER_QUESTION]\njust words\n[/USER_QUESTION]", "is not `key: value`"),
        ("[USER_QUESTION]\nquestion: a\nquestion: b\n[/USER_QUESTION]", "twice"),
        ("[USER_QUESTION_JSON]{broken[/USER_QUESTION_JSON]", "not JSON"),
        ("[USER_QUESTION_JSON][1][/USER_QUESTION_JSON]", "not a JSON object"),
        ('[USER_QUESTION_JSON]{"question":"a","options":"b"}[/USER_QUESTION_JSON]', "list of strings"),
        ('[PHASE_COMPLETE_JSON]{"phase":"one"}[/PHASE_COMPLETE_JSON]', "must be a number"),
    ],
)
def test_a_malformed_block_is_answered_back(text: str, why: str) -> None:
    [found] = read(text)

    assert isinstance(found, Malformed)
    assert why in found.why
    assert why in found.answer()
    assert "[ERROR]" in found.answer()


def test_an_unclosed_block_does_not_swallow_the_next() -> None:
    found = read("[USER_QUESTION]\nquestion: open\n" + NEED)

    assert [type(one) for one in found] == [Malformed, Block]


def test_control_characters_are_warned_about() -> None:
    assert "control characters" in only("[USER_QUESTION]\nquestion: a\x07b\n[/USER_QUESTION]").warnings[0]


def test_a_fatal_error_drops_everything_else() -> None:
    assert [one.name for one in sort(read(QUESTION + NEED + FATAL + ERROR))] == ["ERROR"]


def test_urgent_things_come_first_and_a_finished_phase_hides_a_later_question() -> None:
    found = sort(read(QUESTION + NEED + ERROR + "=== PHASE 1 COMPLETE ===\n\nmore\n" + QUESTION))

    assert [one.name for one in found] == ["ERROR", "PHASE_COMPLETE", "DEPENDENCY_REQUEST", "USER_QUESTION"]


@given(some.lists(some.integers(1, 40), max_size=60))
def test_pieces_of_any_size_give_the_same_blocks(cuts: list[int]) -> None:
    text = (
        f'hello\n{ERROR}words\n[ERROR] {{"type": "fatal", "message": "x"}}\n'
        f"{QUESTION}{NEED}=== PHASE 3 COMPLETE ===\nFiles created:\n- a\nReady for review.\nend\n"
    )
    reader, found, at = Reader(), [], 0
    for cut in cuts:
        found += reader.feed(text[at : at + cut])
        at += cut

    assert found + reader.feed(text[at:]) + reader.close() == read(text)


@given(some.text(alphabet="[]/=ERORSUQTINPHASECOMPLETE_JSON123 \n:-{}\"'x", max_size=400))
def test_garbage_never_raises(text: str) -> None:
    read(text)


def test_a_flood_without_line_ends_is_bounded() -> None:
    reader = Reader()
    for _ in range(50):
        assert reader.feed("x" * 1_000_000) == []

    assert len(reader._text) <= 100_000
