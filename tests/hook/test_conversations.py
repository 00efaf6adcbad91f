"""Talk without a change of files is kept too: at turns, at a clear and at the end, for each session by itself."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from keepfast.app.conversation import ConversationRestorer
from keepfast.model.policy import RULES
from keepfast.model.retention import plan
from keepfast.state import sessions
from keepfast.store.rows import CheckpointRow, Query
from tests.equipment.sessions import Session

from .ground import Ground
from .test_delivery import RESUMED, answer

TRIGGERS = {
    "session_start",
    "session_end",
    "before_clear",
    "turn",
    "prompt",
    "before_compact",
    "subagent",
    "error",
    "auto_80",
}


class Talk:
    """One session of a client, with a transcript of its own."""

    def __init__(self, ground: Ground, name: str, client: int = 0) -> None:
        self.ground, self.name, self.client = ground, name, client or 900_000 + len(name)
        self.transcript = ground.base / f"{name}.jsonl"
        self.session = Session(cwd=str(ground.project))

    def tell(self, event: str, part: int = 1, **fields: Any) -> dict[str, Any]:
        self.ground.variables |= {"CLAUDE_PID": str(self.client), "CLAUDE_CODE_SESSION_ATTENDED": "1"}
        return answer(self.ground, event, part, session_id=self.name, transcript_path=str(self.transcript), **fields)

    def start(self, source: str = "startup") -> str:
        return str(self.tell("SessionStart", source=source).get("systemMessage", ""))

    def ask(self, text: str, **more: Any) -> None:
        self.session.asked(text, **more)
        self.write()
        self.tell("UserPromptSubmit", prompt=text)

    def reply(self, text: str) -> None:
        self.session.said(text)
        self.write()
        self.tell("Stop", last_assistant_message=text)

    def end(self, reason: str = "prompt_input_exit") -> None:
        self.tell("SessionEnd", reason=reason)

    def write(self) -> None:
        self.transcript.write_bytes(self.session.bytes())


@pytest.fixture
def begun(ground: Ground) -> Talk:
    talk = Talk(ground, "a")
    talk.start()
    return talk


def made(ground: Ground, session: str = "") -> list[tuple[str, str]]:
    return [(row.trigger, row.message) for row in ground.checkpoints() if not session or row.session == session]


def kept(ground: Ground, row: CheckpointRow) -> bytes:
    """The conversation of a checkpoint, as its restore brings it back."""
    engine = ground.engine
    try:
        conversing = ConversationRestorer(
            engine.repository(), row, os.fsencode(ground.project), os.fsencode(ground.home), {"HOME": str(ground.home)}
        )
        return Path(conversing.restore().path).read_bytes()
    finally:
        engine.close()


def test_a_turn_of_talk_is_a_version_with_its_conversation(begun: Talk) -> None:
    begun.ask("plan the parser")
    begun.reply("We take a recursive one.")

    assert made(begun.ground)[1:] == [("turn", "plan the parser")]
    assert b"recursive" in kept(begun.ground, begun.ground.checkpoints()[-1])


@pytest.mark.parametrize(("reason", "trigger"), [("clear", "before_clear"), ("other", "session_end")])
def test_talk_that_no_turn_has_saved_is_saved_at_the_end(begun: Talk, reason: str, trigger: str) -> None:
    """Esc ends a turn without an event."""
    begun.ask("plan the parser")
    begun.session.said("I think of a recursive one")
    begun.write()

    begun.end(reason)

    assert made(begun.ground)[1:] == [(trigger, "plan the parser")]
    assert b"recursive" in kept(begun.ground, begun.ground.checkpoints()[-1])


@pytest.mark.parametrize("reason", ["clear", "other"])
def test_an_end_right_after_a_turn_makes_no_second_version(begun: Talk, reason: str) -> None:
    begun.ask("plan the parser")
    begun.reply("We take a recursive one.")

    begun.end(reason)

    assert [trigger for trigger, _ in made(begun.ground)] == ["session_start", "turn"]


def test_last_words_that_came_late_are_kept_at_the_end(begun: Talk) -> None:
    begun.ask("plan the parser")
    begun.tell("Stop", last_assistant_message="We take a recursive one.")
    begun.session.said("We take a recursive one.")
    begun.write()

    begun.end()

    assert [trigger for trigger, _ in made(begun.ground)] == ["session_start", "turn", "session_end"]
    assert b"recursive" in kept(begun.ground, begun.ground.checkpoints()[-1])


def test_a_client_that_keeps_no_transcript_is_heard_all_the_same(begun: Talk) -> None:
    begun.tell("UserPromptSubmit", prompt="plan the parser")
    begun.end()

    assert made(begun.ground)[1:] == [("session_end", "plan the parser")]


@pytest.mark.parametrize("reason", ["clear", "prompt_input_exit"])
@pytest.mark.parametrize("commands", [True, False])
def test_who_opens_and_quits_makes_no_version(begun: Talk, reason: str, commands: bool) -> None:
    """What the client notes of its own commands is nobody's talk."""
    if commands:
        begun.session.asked("<local-command-caveat>Caveat: below</local-command-caveat>", isMeta=True)
        begun.session.asked("<command-name>/clear</command-name>\n<command-message>clear</command-message>")
        begun.session.asked("<local-command-stdout></local-command-stdout>")
        begun.write()
    before = made(begun.ground)

    begun.end(reason)
    again = Talk(begun.ground, "b")
    said = again.start("clear" if reason == "clear" else "startup")
    again.end()

    assert made(begun.ground) == before
    assert said == ""


def test_a_question_and_a_subagent_alone_make_no_version(begun: Talk) -> None:
    begun.ask("plan the parser")
    begun.tell("SubagentStop", agent_id="x", agent_type="explore")

    assert made(begun.ground) == made(begun.ground)[:1]


def test_the_next_session_is_told_the_work_whatever_was_saved_after_it(begun: Talk) -> None:
    ground = begun.ground
    begun.ask("plan the parser")
    begun.reply("We take a recursive one.")
    begun.end()
    (ground.project / "by-hand.txt").write_text("x\n")
    idle = Talk(ground, "idle", client=999_998)
    idle.start()
    idle.end()

    said = Talk(ground, "next", client=999_997).start()

    assert RESUMED in said and '"plan the parser"' in said


def test_a_resume_by_hand_goes_on_from_the_work(begun: Talk) -> None:
    ground = begun.ground
    begun.ask("plan the parser")
    begun.reply("We take a recursive one.")
    begun.end()
    (ground.project / "by-hand.txt").write_text("x\n")
    Talk(ground, "next", client=999_997).start()
    assert made(ground)[-1] == ("session_start", "Changed: by-hand.txt")

    done = command(ground, "resume")

    assert done.returncode == 0 and '"plan the parser"' in done.stdout


def test_a_clear_of_talk_tells_the_work(begun: Talk) -> None:
    begun.ask("plan the parser")
    begun.end("clear")

    said = Talk(begun.ground, "b", client=begun.client).start("clear")

    assert 'Checkpoint saved: "plan the parser"' in said
    assert f'{RESUMED} "plan the parser"' in said


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("en", "Captured: 2 files (b.txt, a.txt), Analysis: Current task, 2 next steps, 1 decision, Size: 8B"),
        ("ko", "저장: 파일 2개 (b.txt, a.txt), 분석: 현재 작업, 다음 단계 2개, 결정 1개, 크기: 8B"),
    ],
)
def test_a_clear_tells_what_was_captured(begun: Talk, language: str, said: str) -> None:
    ground = begun.ground
    ground.configure(language=language)
    begun.ask("plan the parser")
    begun.session.said("I decided to use a recursive one.\n\nNext steps:\n1. Write the lexer\n2. Write the tests")
    for name in ("a.txt", "b.txt"):
        (ground.project / name).write_text("two\n")
        begun.tell("PostToolUse", tool_name="Write", tool_input={"file_path": str(ground.project / name)})
    (ground.project / "untouched.bin").write_bytes(b"x" * 1000)
    begun.write()
    begun.end("clear")

    assert said in Talk(ground, "b", client=begun.client).start("clear").splitlines()


def test_no_version_is_named_after_its_trigger(ground: Ground) -> None:
    """Where nothing is known of the work, a version says what it holds."""
    talk = Talk(ground, "a")
    talk.start()
    for number, (event, fields) in enumerate(
        [
            ("SessionStart", {"source": "resume"}),
            ("UserPromptSubmit", {"prompt": "/cost"}),
            ("SubagentStop", {"agent_type": "x"}),
            ("Stop", {}),
            ("StopFailure", {"error": "server_error"}),
            ("PreCompact", {"trigger": "auto"}),
            ("SessionEnd", {"reason": "clear"}),
            ("SessionEnd", {"reason": "other"}),
        ]
    ):
        if event != "PreCompact":
            (ground.project / f"{number}.txt").write_text("x\n")
        talk.tell(event, 1, **fields)

    rows = ground.checkpoints()
    assert len(rows) == 9
    assert not {row.message for row in rows} & (TRIGGERS | set(RULES) | {""})
    assert "0.txt" in rows[1].message
    for row in rows:
        assert "summary" not in ground.header(row)


def test_a_summary_that_is_not_wanted_is_not_replaced_by_a_trigger(begun: Talk) -> None:
    begun.ground.configure(checkpoint={"auto_summary_enabled": False})
    begun.ask("plan the parser")
    begun.reply("We take a recursive one.")

    (row,) = begun.ground.checkpoints()[1:]
    assert row.trigger == "turn"
    assert row.message and row.message not in TRIGGERS and "parser" not in row.message


# Two sessions in one folder


@pytest.fixture
def both(ground: Ground) -> tuple[Talk, Talk]:
    found = Talk(ground, "a", 999_991), Talk(ground, "b", 999_992)
    for talk in found:
        talk.start()
    return found


def test_each_session_has_its_turn_with_its_own_conversation(both: tuple[Talk, Talk]) -> None:
    a, b = both
    ground = a.ground
    a.ask("write the parser")
    (ground.project / "parser.py").write_text("parse = 1\n")
    b.ask("name the colours")  # this saves what A wrote
    a.reply("The parser is written.")
    b.reply("Red and blue.")

    assert made(ground, "a")[-1:] == [("turn", "write the parser")]
    assert made(ground, "b")[-2:] == [("prompt", "name the colours"), ("turn", "name the colours")]
    conversations = {row.session: kept(ground, row) for row in ground.checkpoints() if row.trigger == "turn"}
    assert b"The parser is written" in conversations["a"] and b"colours" not in conversations["a"]
    assert b"Red and blue" in conversations["b"] and b"parser" not in conversations["b"]


def test_events_that_waited_together_are_done_for_each_session(both: tuple[Talk, Talk]) -> None:
    """Nobody worked on them until now: the worker had been killed."""
    from keepfast.app.worker import save_pending
    from keepfast.state import pending_events as pending

    a, b = both
    folder = str(a.ground.folder)
    for talk, text in ((a, "write the parser"), (b, "name the colours")):
        talk.session.asked(text)
        talk.session.said(f"Done: {text}.")
        talk.write()
    for at, talk in ((1, a), (2, b), (3, a), (4, b)):
        seen = "turn", at, talk.name, "claude-code", str(a.ground.project), str(talk.transcript), 1
        pending.append(folder, pending.PendingEvent(*seen, conversed="yes"))
    engine = a.ground.engine
    try:
        assert save_pending(engine, os.fsencode(a.ground.project), a.ground.workspace)
    finally:
        engine.close()

    assert made(a.ground, "a")[-1] == ("turn", "write the parser")
    assert made(a.ground, "b")[-1] == ("turn", "name the colours")
    assert len(made(a.ground)) == 3


def test_the_commands_know_the_sessions_apart(both: tuple[Talk, Talk]) -> None:
    a, b = both
    for talk, text in ((a, "write the parser"), (b, "name the colours")):
        talk.ask(text)
    for talk in both:
        talk.reply(f"Done by {talk.name}.")

    for talk in both:
        (turn,) = [row for row in listed(a.ground, "--session", talk.name) if row["trigger"] == "turn"]
        done = command(a.ground, "restore", turn["version"], "--conversation", "-y", "--json")
        assert done.returncode == 0, done.stderr
        (brought,) = [
            path for path in (a.ground.home / ".claude").rglob("*.jsonl") if f"Done by {talk.name}." in path.read_text()
        ]
        assert f"Done by {'b' if talk is a else 'a'}." not in brought.read_text()


def command(ground: Ground, *words: str) -> subprocess.CompletedProcess[str]:
    program = str(Path(ground.command()[0]).parent / "keepfast")
    return subprocess.run(
        [program, *words], env=ground.variables, cwd=ground.project, capture_output=True, text=True, check=False
    )


def listed(ground: Ground, *words: str) -> list[dict[str, Any]]:
    return list(json.loads(command(ground, "list", "--json", *words).stdout))


# How many there are


def test_talk_does_not_pile_up_for_ever(begun: Talk) -> None:
    for number in range(25):
        begun.ask(f"question {number}")
        begun.reply(f"answer {number}")
    engine = begun.ground.engine
    try:
        rows = engine.repository().ledger.find(Query(workspace=begun.ground.workspace, limit=1000))
    finally:
        engine.close()

    gone = plan(rows, now=rows[0].created_at, keep_last=10, hourly_hours=24, daily_days=30)

    assert len(rows) == 26
    assert len(rows) - len(gone) <= 12
    assert sessions.facts(str(begun.ground.folder), "a")["prompt"].endswith("question 24")


def test_forgetting_names_the_conversations_that_would_be_lost_and_counts_them(ground: Ground) -> None:
    for name in ("first", "second"):
        talk = Talk(ground, name)
        talk.start()
        talk.ask("plan the parser")
        talk.reply(f"We take a recursive one, says {name}.")
    rows = ground.checkpoints()
    first = [f"v{row.version}" for row in rows if row.session == "first"]

    would = command(ground, "forget", *first, "--dry-run")
    report = json.loads(command(ground, "forget", *first, "--dry-run", "--json").stdout)
    all_but_one = json.loads(command(ground, "forget", *first[:-1], "--dry-run", "--json").stdout)

    assert "No other checkpoint has the conversation of session first;" in would.stderr
    assert "second" not in would.stderr
    assert report["conversations_lost"] == ["first"] and all_but_one["conversations_lost"] == []
    assert report["bytes_unneeded"] > 100
    assert f"Would free {report['bytes_unneeded']}B" in would.stdout
