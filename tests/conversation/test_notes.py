"""Notes: precision and recall on labelled sessions, and what each kind of note is taken from."""

from __future__ import annotations

import pytest

from holdfast.conversation import notes, transcript
from holdfast.conversation.phrases import listed_steps, sentences
from sessions import CWD, Session

from .labelled import LABELLED, Label

FLOOR = {"task": (1.0, 1.0), "next steps": (0.9, 0.9), "decisions": (0.8, 0.9), "blockers": (0.8, 0.9)}


def compare(expected: list[str], found: list[str]) -> tuple[int, int, int, int]:
    """(expectations met, expectations, notes that were expected, notes)."""
    met = sum([any(one in note for note in found) for one in expected])
    right = sum([any(one in note for one in expected) for note in found])
    return met, len(expected), right, len(found)


def test_labelled_sessions_are_noted_with_precision_and_recall(capsys: pytest.CaptureFixture[str]) -> None:
    sums = {name: [0, 0, 0, 0] for name in FLOOR}
    for make in LABELLED:
        label: Label = make()
        taken = notes.take(transcript.read(label.session.bytes()))
        pairs = {
            "task": ([label.task], [taken.current_task]),
            "next steps": (label.steps, taken.next_steps),
            "decisions": (label.decisions, taken.decisions),
            "blockers": (label.blockers, taken.blockers),
        }
        for name, (expected, found) in pairs.items():
            for at, value in enumerate(compare(expected, found)):
                sums[name][at] += value
    with capsys.disabled():
        print()
        for name, (met, expected_count, right, found_count) in sums.items():
            print(
                f"{name}: precision {right / found_count:.2f}, recall {met / expected_count:.2f} ({expected_count} labels)"
            )
    for name, (met, expected_count, right, found_count) in sums.items():
        precision, recall = FLOOR[name]
        assert right / found_count >= precision, name
        assert met / expected_count >= recall, name


def taken(session: Session) -> notes.Notes:
    return notes.take(transcript.read(session.bytes()))


def test_prompts_are_kept_word_for_word() -> None:
    session = Session()
    session.asked("First:  keep\n\tthis   spacing")

    assert taken(session).asked == ["First:  keep\n\tthis   spacing"]


def test_the_last_test_counts_with_its_end() -> None:
    session = Session()
    session.asked("test it")
    session.run("npm run test -- cart", "ok\n" * 900 + "✗ cart adds tax\n1 failed", failed=False)

    run = taken(session).last_run

    assert run is not None
    assert not run.passed
    assert run.tail.endswith("1 failed")
    assert len(run.tail) <= 1_200


def test_a_passing_test_has_no_tail() -> None:
    session = Session()
    session.run("cargo test", "test result: ok. 12 passed; 0 failed")

    run = taken(session).last_run

    assert run is not None
    assert run.passed
    assert run.tail == ""


def test_a_command_without_a_result_is_told() -> None:
    session = Session()
    session.asked("deploy")
    session.begin("Bash", {"command": "make deploy"})

    result = taken(session)

    assert result.unfinished == "make deploy"
    assert any("make deploy" in blocker for blocker in result.blockers)


def test_files_packages_documents_and_commands_are_named() -> None:
    session = Session(files={"src/cart/a.py": "a\nb\nc\n", "docs/cart.md": "# Cart\n", "src/cart/b.py": "x\n"})
    session.asked("work")
    session.read("docs/cart.md")
    session.read("src/cart/b.py")
    session.read("src/cart/a.py")
    session.edit("src/cart/a.py", "b", "B")
    session.run("ls -la")
    session.run("git commit -m 'cart'")

    result = taken(session)

    assert [file.path for file in result.files] == [
        f"{CWD}/{name}" for name in ("src/cart/a.py", "src/cart/b.py", "docs/cart.md")
    ]
    assert result.files[0].edited
    assert result.files[0].changed == [(2, 2)]
    assert result.documents == ["docs/cart.md"]
    assert result.packages == ["src/cart", "docs"]
    assert result.commands == ["git commit -m 'cart'"]


def test_a_refused_plan_is_no_decision() -> None:
    session = Session()
    session.asked("plan")
    session.planned("# Rewrite", refused="no way")

    result = taken(session)

    assert result.plan == ""
    assert not any("Rewrite" in decision for decision in result.decisions)


def test_code_is_not_taken_for_sentences() -> None:
    assert sentences("Done.\n```\nlet's use this\n```\n| a | b |") == ["Done."]


def test_steps_that_are_done_do_not_count() -> None:
    assert listed_steps("Next steps:\n- [x] one\n- [ ] two\n✅ three\nThat is all.\n- four") == ["two"]


def test_an_empty_conversation_has_empty_notes() -> None:
    assert notes.take(transcript.read(b"")).empty


def test_a_long_prompt_makes_a_short_summary() -> None:
    session = Session()
    session.asked("fix " + "the very long thing " * 40)

    assert len(taken(session).summary()) <= 80
