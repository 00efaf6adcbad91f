"""A transcript becomes turns and file contents: the live branch, from any offset, whatever else is in the file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from keepfast.agents import transcript
from tests.equipment.sessions import CWD, Session

CART = "def total(items):\n    return sum(items)\n\n\ndef empty():\n    return []\n"


def worked() -> Session:
    session = Session(files={"cart.py": CART})
    session.asked("add tax to the cart")
    session.thought("total() needs a rate")
    session.said("I'll look at the cart first.")
    session.read("cart.py")
    session.edit("cart.py", "return sum(items)", "return sum(items) * RATE")
    return session


def test_turns_come_in_recorded_order_with_their_calls() -> None:
    conversation = transcript.read(worked().bytes())

    assert [turn.kind for turn in conversation.turns] == ["asked", "thought", "said", "call", "call"]
    assert [call.name for call in conversation.called()] == ["Read", "Edit"]
    assert conversation.cwd == CWD
    assert conversation.client == "claude-code"


def test_files_are_rebuilt_from_reads_and_edits() -> None:
    conversation = transcript.read(worked().bytes())

    file = conversation.files.by_path[f"{CWD}/cart.py"]
    assert file.lines == CART.replace("sum(items)", "sum(items) * RATE").split("\n")
    assert [(hunk.start, hunk.count) for hunk in file.hunks] == [(2, 1)]


def test_reading_goes_on_where_it_ended(tmp_path: Path) -> None:
    """Saved states are continued: the same as reading all at once."""
    session = worked()
    path = session.save(tmp_path / "t.jsonl")
    state = transcript.read(path)
    session.said("Now the tests.")
    session.write("test_cart.py", "def test_total(): ...\n")
    session.save(path)

    continued = transcript.read(path, state)

    whole = transcript.read(path)
    assert [(turn.kind, turn.text) for turn in continued.turns] == [(turn.kind, turn.text) for turn in whole.turns]
    assert continued.offset == path.stat().st_size
    assert continued.files == whole.files


def test_a_shorter_file_is_read_from_its_start(tmp_path: Path) -> None:
    path = worked().save(tmp_path / "t.jsonl")
    state = transcript.read(path)
    other = Session()
    other.asked("something else")
    other.save(path)

    assert [turn.text for turn in transcript.read(path, state).asked()] == ["something else"]


def test_new_bytes_can_be_added_without_the_file() -> None:
    session = worked()
    before = session.bytes()
    state = transcript.read(before)
    session.said("Done.")

    continued = transcript.read(session.bytes()[len(before) :], state)

    assert continued.turns[-1].text == "Done."


def test_a_torn_last_line_waits_for_its_rest(tmp_path: Path) -> None:
    session = worked()
    data = session.bytes()
    path = tmp_path / "t.jsonl"
    path.write_bytes(data[:-40])
    state = transcript.read(path)
    assert len(list(state.called())) == 2
    assert not list(state.called())[-1].done

    path.write_bytes(data)

    assert list(transcript.read(path, state).called())[-1].done


def test_a_rewind_leaves_only_the_live_branch() -> None:
    session = Session(files={"cart.py": CART})
    session.asked("add tax")
    start = session.said("Which rate?")
    session.asked("19 percent")
    session.read("cart.py")
    session.edit("cart.py", "sum(items)", "sum(items) * 1.19")
    session.rewind_to(start)
    session.asked("no tax after all, add a discount")

    conversation = transcript.read(session.bytes())

    assert [turn.text for turn in conversation.asked()] == ["add tax", "no tax after all, add a discount"]
    assert not conversation.files.by_path


def test_a_rewind_in_new_bytes_drops_what_was_rewound() -> None:
    session = Session()
    session.asked("first")
    start = session.said("Shall I?")
    session.asked("wrong turn")
    before = session.bytes()
    state = transcript.read(before)
    session.rewind_to(start)
    session.asked("right turn")

    continued = transcript.read(session.bytes()[len(before) :], state)

    assert [turn.text for turn in continued.asked()] == ["first", "right turn"]


def test_parallel_calls_are_all_live() -> None:
    """Results of parallel calls hang on different entries; only whole prompts can be rewound."""
    session = Session(files={"a.py": "a\n", "b.py": "b\n"})
    session.asked("look at both")
    first = session.begin("Bash", {"command": "make a"})
    fork = session.parent
    second = session.begin("Bash", {"command": "make b"})
    last = session.parent
    session.parent = fork
    session.end(first, "a is made")
    session.parent = last
    session.end(second, "b is made")
    session.said("Both are made.")

    conversation = transcript.read(session.bytes())

    assert [call.output for call in conversation.called()] == ["a is made", "b is made"]
    assert conversation.dead == frozenset()


def test_a_compaction_is_a_boundary_and_no_new_conversation() -> None:
    session = worked()
    session.compacted("This session is being continued from a previous conversation. The user wants tax.")
    session.said("Going on.")

    conversation = transcript.read(session.bytes())

    assert conversation.compactions == 1
    assert [turn.kind for turn in conversation.turns][-3:] == ["compacted", "summary", "said"]
    assert [turn.text for turn in conversation.asked()] == ["add tax to the cart"]


@pytest.mark.parametrize(
    "text",
    [
        "<local-command-stdout>ok</local-command-stdout>",
        "<task-notification>done</task-notification>",
        "Caveat: The messages below were generated by the user while running local commands.",
        "[Request interrupted by user]",
        "<command-name>/clear</command-name><command-args></command-args>",
        "<system-reminder>be careful</system-reminder>",
        '{"task_id":"b1","task_type":"local_bash"}',
        ' {"task_id": "b1",\n "nested": {"a": []}}\n',
    ],
)
def test_what_the_client_writes_is_not_taken_for_a_prompt(text: str) -> None:
    session = Session()
    session.asked(text)

    assert transcript.read(session.bytes()).asked() == []


@pytest.mark.parametrize("text", ['{"a": 1} why is this refused?', "{a, b} are sets", "[1, 2]", "{" * 5000 + "}"])
def test_words_about_an_object_are_a_prompt(text: str) -> None:
    session = Session()
    session.asked(text)

    assert [turn.text for turn in transcript.read(session.bytes()).asked()] == [text]


def test_what_our_supervisor_says_beside_a_task_is_passed_over() -> None:
    session = Session()
    session.asked("# Task: a shop\n\nSell tea.\n\n<keepfast>\nnever ask for it\n</keepfast>\n\nAnd coffee.")

    asked = transcript.read(session.bytes()).asked()

    assert [turn.text.split() for turn in asked] == ["# Task: a shop Sell tea. And coffee.".split()]


@pytest.mark.parametrize(
    ("name", "words", "asked"),
    [
        ("/review", "", []),
        ("/review", "the cart", []),
        ("/security-review", "of the cart and its totals", ["of the cart and its totals"]),
    ],
)
def test_a_slash_command_is_no_prompt_but_the_sentence_behind_it_is(name: str, words: str, asked: list[str]) -> None:
    session = Session()
    session.asked(
        f"<command-message>x</command-message><command-name>{name}</command-name><command-args>{words}</command-args>"
    )
    session.asked(f"{name} {words}".strip())

    conversation = transcript.read(session.bytes())

    assert [turn.text for turn in conversation.asked()] == asked * 2
    assert [turn.text for turn in conversation.turns if turn.kind == "command"] == [f"{name} {words}".strip()] * 2


def test_a_path_at_the_beginning_of_a_prompt_is_no_command() -> None:
    session = Session()
    session.asked("/etc/hosts has a wrong line, mend it")

    assert [turn.text for turn in transcript.read(session.bytes()).asked()] == ["/etc/hosts has a wrong line, mend it"]


def test_words_with_a_refusal_are_the_persons_own() -> None:
    session = Session()
    session.asked("plan it")
    session.planned("# Plan\nRewrite all.", refused="no, keep the old module")

    assert [turn.text for turn in transcript.read(session.bytes()).asked()] == ["plan it", "no, keep the old module"]


def test_a_queued_prompt_counts_once() -> None:
    session = Session()
    session.asked("start")
    session.entries.append({"type": "queue-operation", "operation": "enqueue", "content": "also the docs"})
    session.asked("also the docs")

    assert [turn.text for turn in transcript.read(session.bytes()).asked()] == ["start", "also the docs"]


def test_an_attached_queued_prompt_counts() -> None:
    session = Session()
    session.asked("start")
    session._entry("attachment", attachment={"type": "queued_command", "prompt": "and the changelog"})

    assert [turn.text for turn in transcript.read(session.bytes()).asked()] == ["start", "and the changelog"]


def test_subagents_are_kept_apart() -> None:
    session = Session()
    session.asked("delegate")
    session._entry("user", message={"role": "user", "content": "you are a subagent"}, isSidechain=True)
    session._entry(
        "assistant", message={"id": "m", "content": [{"type": "text", "text": "subagent speaking"}]}, isSidechain=True
    )

    conversation = transcript.read(session.bytes())

    assert [turn.text for turn in conversation.asked()] == ["delegate"]
    assert [turn.text for turn in conversation.turns if turn.side] == ["subagent speaking"]


def test_copied_entries_count_once() -> None:
    """A forked session's file begins with entries that were there before."""
    session = worked()

    conversation = transcript.read(session.bytes() + session.bytes())

    assert conversation.calls == 2
    assert len(conversation.asked()) == 1


def test_unknown_types_and_damaged_lines_cost_nothing_else() -> None:
    session = worked()
    lines = session.bytes().split(b"\n")
    lines.insert(2, b'{"type":"holo-projection","uuid":"x","payload":[1]}')
    lines.insert(3, b"{not json")
    lines.insert(4, b"\xff\xfe\x00")
    lines.insert(5, b"[1, 2]")
    lines.insert(6, b'{"type":"assistant","message":{"content":[{"type":"tool_use","id":7},null,3]}}')
    lines.insert(7, b'{"type":"user","message":"oddly plain"}')

    conversation = transcript.read(b"\n".join(lines))

    assert [call.name for call in conversation.called()] == ["Read", "Edit"]
    assert conversation.skipped >= 3


def test_another_clients_file_is_silence() -> None:
    conversation = transcript.read(b'{"role":"user","content":"hello"}\n{"role":"assistant","content":"hi"}\n')

    assert conversation.turns == []
    assert conversation.client == ""


def test_a_packed_transcript_is_read_like_a_plain_one(tmp_path: Path) -> None:
    data = worked().bytes()
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress(data))

    assert transcript.read(path).calls == transcript.read(gzip.compress(data)).calls == 2


def test_an_overlong_line_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript, "MAX_LINE_LENGTH", 5_000)
    session = Session()
    session.asked("x" * 20_000)
    session.asked("short")
    path = session.save(tmp_path / "t.jsonl")

    conversation = transcript.read(path)

    assert [turn.text for turn in conversation.asked()] == ["short"]
    assert conversation.offset == path.stat().st_size


def test_a_session_knows_how_many_characters_its_model_puts_into_a_token() -> None:
    session = Session(files={"big.py": "x = 1\n" * 2_000})
    session.asked("look")
    for _ in range(10):
        session.filled += 50
        session.read("big.py")
    session.said("Seen.")

    conversation = transcript.read(session.bytes())

    assert len(conversation.measured) >= 9
    assert json.dumps(conversation.measured)


def test_outside_of_git_there_is_no_branch() -> None:
    """The client says `HEAD` then, and where no branch is checked out."""
    session = Session(branch="HEAD")
    session.asked("begin")

    assert transcript.read(session.bytes()).branch == ""
