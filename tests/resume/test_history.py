"""A session of any length keeps its first prompt, its decisions, its plan and its tasks, though only its end is read."""

from __future__ import annotations

import io
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.agents import transcript
from keepfast.app import resume
from keepfast.resume import extractor as notes
from keepfast.resume import history as earlier
from keepfast.resume.history import Earlier, advance
from keepfast.resume.notes import Notes
from keepfast.state import sessions
from tests.equipment.sessions import Session

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
FIRST = "Make the totals of the shop exact, to the cent, in every currency."
FILES = {"cart.py": "def total(items):\n    return sum(items)\n" + "# filler\n" * 40}


def begun() -> Session:
    """The beginning of a long session: everything that is not said again."""
    session = Session(files=FILES)
    session.asked(FIRST)
    session.call("ExitPlanMode", {"plan": "# Exact totals\n1. Decimals\n2. Rounding"}, "approved", {})
    session.call(
        "AskUserQuestion",
        {"questions": []},
        "Half up",
        {"answers": {"Which rounding?": "Half up"}},
    )
    session.call("TaskCreate", {"subject": "Use decimals"}, "ok", {"task": {"id": "1"}})
    session.call("TaskCreate", {"subject": "Round half up"}, "ok", {"task": {"id": "2"}})
    session.call(
        "mcp__keepfast__checkpoint_save", {"summary": "Exact totals", "decisions": ["Decimals, not floats"]}, "saved"
    )
    session.said("Half of it is done.\n\n**Decisions Made**:\n- Refunds in a table of their own")
    session.said(f"I decided to keep the old rounding for refunds. The key is {SECRET}.")
    session.call("Bash", {"command": "pytest -q"}, "1 failed\nAssertionError: 0.1", {}, failed=True)
    return session


def filled(session: Session, calls: int = 60) -> Session:
    for number in range(calls):
        session.read("cart.py", 1 + number % 20, 20)
    return session


def ended(session: Session) -> Session:
    session.call("TaskUpdate", {"taskId": "1", "status": "completed"}, "ok", {"statusChange": {}})
    session.edit("cart.py", "sum(items)", "exact(items)")
    session.said("The totals are exact now.")
    return session


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is long begins at a few kilobytes."""
    monkeypatch.setattr(resume, "TAIL_BYTES", 8_000)
    monkeypatch.setattr(resume, "MAX_CARRIED_BYTES", 16_000)
    monkeypatch.setattr(earlier, "PIECE", 4_000)


def told(notes: Notes) -> dict[str, Any]:
    """What must not be lost."""
    return {
        "asked": notes.prompts,
        "plan": notes.plan,
        "answers": notes.answers,
        "tasks": notes.tasks,
        "task": notes.current_task,
        "steps": notes.next_steps,
    }


def work(path: Path, folder: Path, session: Session, steps: int = 12) -> Notes:
    """Checkpoints while the session goes on: notes are taken after each stretch."""
    found = None
    for _ in range(steps):
        filled(session, 10)
        path.write_bytes(session.bytes())
        found = resume.notes_of(str(path), None, str(folder), "s-1")
    assert found is not None
    return found


def test_the_beginning_is_carried_on_from_checkpoint_to_checkpoint(tmp_path: Path, small: None) -> None:
    path, session = tmp_path / "t.jsonl", begun()
    work(path, tmp_path, session)
    path.write_bytes(ended(session).bytes())
    assert path.stat().st_size > 5 * resume.TAIL_BYTES

    found = resume.notes_of(str(path), None, str(tmp_path), "s-1")

    assert found is not None and found.prompts[0] == FIRST
    assert told(found) == told(notes.take(transcript.read(path)))
    assert found.tasks == [("completed", "Use decimals"), ("pending", "Round half up")]
    assert found.decisions[0] == "Decimals, not floats"
    assert any("old rounding" in one for one in found.decisions)
    assert "Refunds in a table of their own" in found.decisions
    assert found.last_run is not None and not found.last_run.passed
    alone = resume.notes_of(str(path))
    assert alone is not None and not alone.plan  # without a session's name only the end is known


def test_a_session_met_late_is_caught_up_with_a_stretch_at_each_checkpoint(tmp_path: Path, small: None) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(filled(begun(), 200).bytes())

    offsets = []
    for _ in range(20):
        resume.notes_of(str(path), None, str(tmp_path), "s-1")
        offsets.append(sessions.earlier(str(tmp_path), "s-1")["earlier"]["offset"])

    assert offsets == sorted(offsets) and offsets[0] < resume.MAX_CARRIED_BYTES + earlier.PIECE < offsets[-1]
    assert path.stat().st_size - offsets[-1] < 2 * resume.TAIL_BYTES


def test_what_is_kept_holds_no_secret_and_is_the_users_alone(tmp_path: Path, small: None) -> None:
    work(tmp_path / "t.jsonl", tmp_path, begun())

    kept = Path(sessions.path(str(tmp_path), "s-1", "earlier"))

    assert "old rounding" in kept.read_text() and SECRET not in kept.read_text()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


@pytest.mark.parametrize("harm", ["rewritten", "shorter", "other", "torn", "shape"])
def test_what_is_not_of_this_transcript_is_not_taken(tmp_path: Path, small: None, harm: str) -> None:
    path, session = tmp_path / "t.jsonl", begun()
    work(path, tmp_path, session)
    kept = Path(sessions.path(str(tmp_path), "s-1", "earlier"))
    other = Session(files=FILES)
    other.asked("Something else entirely, please.")
    if harm in ("rewritten", "shorter"):
        path.write_bytes(filled(other, 300 if harm == "rewritten" else 40).bytes())
    elif harm == "other":
        path = tmp_path / "other.jsonl"
        path.write_bytes(filled(other, 300).bytes())
    else:
        odd = {"transcript": str(path), "earlier": {"offset": 9, "mark": "", "turns": [1]}}
        kept.write_text("{" if harm == "torn" else json.dumps(odd))
        path.write_bytes(filled(other, 300).bytes())

    for _ in range(8):
        found = resume.notes_of(str(path), None, str(tmp_path), "s-1")

    assert found is not None and found.prompts == ["Something else entirely, please."] and not found.plan


def test_a_brief_of_a_long_session_reads_its_end_alone(tmp_path: Path, small: None) -> None:
    path, session = tmp_path / "t.jsonl", begun()
    work(path, tmp_path, session)
    path.write_bytes(ended(session).bytes())
    known = Earlier.from_json(sessions.earlier(str(tmp_path), "s-1")["earlier"])

    found = earlier.recent(path, known, resume.TAIL_BYTES + resume.MAX_CARRIED_BYTES)

    assert found is not None and found.calls < 60
    assert told(notes.take(found)) == told(notes.take(transcript.read(path)))
    assert found.files.by_path[f"{session.cwd}/cart.py"].lines[1] == "    return exact(items)"
    assert earlier.recent(path, known, 100) is None and earlier.recent(path, Earlier(), 1 << 30) is None
    assert earlier.recent(path, Earlier(known.offset, "other", []), 1 << 30) is None


def test_a_rewind_in_the_end_leaves_what_was_before_it(tmp_path: Path, small: None) -> None:
    path, session = tmp_path / "t.jsonl", begun()
    work(path, tmp_path, session)
    place = session.parent
    session.asked("Drop the currencies.")
    session.said("Dropped.")
    session.parent = place
    session.asked("Keep the currencies.")
    path.write_bytes(session.bytes())
    known = Earlier.from_json(sessions.earlier(str(tmp_path), "s-1")["earlier"])

    found = earlier.recent(path, known, resume.TAIL_BYTES + resume.MAX_CARRIED_BYTES)

    assert found is not None and notes.take(found).prompts == [FIRST, "Keep the currencies."]


def redact_text(value: Any) -> Any:
    return value


@given(st.lists(st.integers(1, 9_000), max_size=12))
def test_whatever_the_steps_the_same_is_known(steps: list[int]) -> None:
    data = ended(filled(begun(), 30)).bytes()
    file = io.BytesIO(data)
    once = advance(Earlier(), file, len(data), len(data), redact_text)

    known = Earlier()
    for step in steps:
        known = advance(Earlier.from_json(json.loads(json.dumps(known.to_json()))), file, len(data), step, redact_text)
    known = advance(known, file, len(data), len(data), redact_text)

    assert known.to_json() == once.to_json() and once.offset == len(data)


def test_a_call_and_its_result_are_not_parted(small: None) -> None:
    session = begun()
    before = len(session.bytes())
    waiting = session.begin("TaskCreate", {"subject": "Third"})
    middle = len(session.bytes())
    session.end(waiting, "ok", {"task": {"id": "9"}})
    data = session.bytes()

    assert advance(Earlier(), io.BytesIO(data), middle, 1 << 20, redact_text).offset <= before
    whole = advance(Earlier(), io.BytesIO(data), len(data), 1 << 20, redact_text)
    assert whole.turns[-1].call is not None and whole.turns[-1].call.task == {"id": "9"}


def test_thousands_of_long_prompts_stay_small_and_the_first_stays_whole() -> None:
    session = Session(files=FILES)
    session.asked(FIRST)
    for number in range(1_500):
        session.asked(f"{number} " + "합계를 정확하게 " * 200)
    data = session.bytes()

    known = advance(Earlier(), io.BytesIO(data), len(data), len(data), redact_text)

    assert known.turns[0].text == FIRST and known.turns[-1].text.startswith("1499 ")
    assert len(known.turns) == earlier.MAX_PROMPTS
    assert len(json.dumps(known.to_json())) < sessions.MAX_EARLIER_SIZE // 2


def test_a_stretch_in_which_something_always_waits_is_left_behind_all_the_same(small: None) -> None:
    session = begun()
    session.begin("Bash", {"command": "sleep 1000"})
    filled(session, 30)
    data = session.bytes()

    reached = advance(Earlier(len(begun().bytes())), io.BytesIO(data), len(data), 9_000, redact_text).offset

    assert len(begun().bytes()) + 4_000 < reached < len(data)


def test_a_line_longer_than_a_piece_is_passed_over(small: None) -> None:
    session = Session(files=FILES)
    session.asked("short")
    session.asked("x" * 50_000)
    session.asked("again")
    data = session.bytes()

    known = advance(Earlier(), io.BytesIO(data), len(data), len(data), redact_text)

    assert [turn.text for turn in known.turns] == ["short", "again"] and known.offset == len(data)
