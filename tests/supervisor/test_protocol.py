"""Every block of the source, its JSON form, its limits, and what is answered to a malformed one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from holdfast.supervisor.protocol import Block, Malformed, Reader, sort

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
    ("text", "why"),
    [
        ("[ERROR]\ntype: recoverable\n[/ERROR]", "message is missing"),
        ("[ERROR]\ntype: odd\nmessage: x\nrecovery: notify_user\n[/ERROR]", "type must be one of"),
        ("[USER_QUESTION]\nquestion: " + "x" * 10_001 + "\n[/USER_QUESTION]", "longer than"),
        ("[USER_QUESTION]\nquestion: x\n" + " y\n" * 40_000 + "[/USER_QUESTION]", "larger than"),
        ("[USER_QUESTION]\nquestion: open\n", "there is no [/USER_QUESTION]"),
        ("[USER_QUESTION]\n[/USER_QUESTION]", "empty"),
        ("[USER_QUESTION]\njust words\n[/USER_QUESTION]", "is not `key: value`"),
        ("[USER_QUESTION]\nquestion: a\nquestion: b\n[/USER_QUESTION]", "twice"),
        ("[USER_QUESTION_JSON]{broken[/USER_QUESTION_JSON]", "not JSON"),
        ("[USER_QUESTION_JSON][1][/USER_QUESTION_JSON]", "not a JSON object"),
        ('[USER_QUESTION_JSON]{"question":"a","options":"b"}[/USER_QUESTION_JSON]', "list of texts"),
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
        f"hello\n{ERROR}words\n{QUESTION}{NEED}=== PHASE 3 COMPLETE ===\nFiles created:\n- a\nReady for review.\nend\n"
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
