"""A session that began with a brief goes on with that work: its own checkpoints and the next brief tell of it."""

from __future__ import annotations

import json
from typing import Any

from tests.equipment.sessions import Session

from .ground import SESSION, Ground
from .test_conversations import command
from .test_delivery import answer, told

NAMES = [
    "22222222-2222-4333-8444-555555555555",
    "33333333-2222-4333-8444-555555555555",
    "44444444-2222-4333-8444-555555555555",
]
TASK = "Build a cache with eviction in a.py"
STEP = "Add a metric for evictions"
DECISION = "Use LRU eviction because reads repeat"


def begin(ground: Ground, session: str = SESSION, source: str = "startup") -> dict[str, Any]:
    ground.variables |= {"CLAUDE_CODE_SESSION_ATTENDED": "1", "CLAUDE_PID": "999999"}
    return answer(ground, "SessionStart", source=source, session_id=session, transcript_path="")


def work(ground: Ground, talk: Session, session: str, number: int, reason: str = "clear") -> None:
    """The session said all that, changed a file by a command, and is ended."""
    transcript = ground.base / f"{session}.jsonl"
    transcript.write_bytes(talk.bytes())
    known: dict[str, Any] = {"session_id": session, "transcript_path": str(transcript)}
    prompt = next(entry["message"]["content"] for entry in talk.entries if entry["type"] == "user")
    answer(ground, "UserPromptSubmit", prompt=prompt, **known)
    (ground.project / f"b{number}.txt").write_text(f"{number}\n")
    answer(ground, "Stop", last_assistant_message="Done.", **known)
    answer(ground, "SessionEnd", reason=reason, **known)


def first(ground: Ground) -> None:
    begin(ground)
    talk = Session(cwd=str(ground.project), branch="feature/auth-middleware", files={"a.py": "one = 1\n"})
    talk.asked(TASK)
    talk.read("a.py")
    talk.edit("a.py", "one", "two")
    talk.said(f"Decision: {DECISION}.\n\nNext: {STEP}.")
    (ground.project / "a.py").write_text("two = 1\n")
    work(ground, talk, SESSION, 0)


def later(ground: Ground, prompt: str, *said: str) -> Session:
    talk = Session(cwd=str(ground.project), branch="feature/auth-middleware")
    talk.asked(prompt)
    talk.run("echo x > b.txt", "")
    for text in said or ("Done.",):
        talk.said(text)
    return talk


def test_the_work_is_carried_over_any_number_of_clears(ground: Ground) -> None:
    first(ground)
    for number, name in enumerate(NAMES, 1):
        reply = begin(ground, name, "clear")

        assert f'"{TASK}"' in reply["systemMessage"]
        assert TASK in told(reply) and STEP in told(reply) and DECISION in told(reply)
        assert "a.py" in told(reply)
        work(ground, later(ground, "continue"), name, number)

    row = ground.checkpoints()[-1]
    header = ground.header(row)
    assert (row.session, header["summary"]) == (NAMES[-1], TASK)
    analysis = header["notes"]["analysis"]
    assert (analysis["current_task"], analysis["next_steps"]) == (TASK, [STEP])
    assert any(DECISION in one for one in analysis["decisions_made"])


def test_the_text_of_files_that_were_changed_before_is_in_the_brief(ground: Ground) -> None:
    first(ground)
    begin(ground, NAMES[0], "clear")
    work(ground, later(ground, "continue"), NAMES[0], 1)

    answer(ground, "SessionStart", source="clear", session_id=NAMES[1], transcript_path="")
    second = answer(ground, "SessionStart", 2, source="clear", session_id=NAMES[1], transcript_path="")

    assert "two = 1" in told(second)


LONG = "".join([f"def function_{number}(a, b):\n    return a * {number} + b\n\n\n" for number in range(1_000)])


def parts(ground: Ground, session: str) -> str:
    """Both parts of what a session is told after a clear."""
    replies = [
        answer(ground, "SessionStart", part, source="clear", session_id=session, transcript_path="") for part in (1, 2)
    ]
    return "\n".join([told(reply) for reply in replies])


def edit_a_long_file(ground: Ground) -> None:
    changed = LONG.replace("a * 500 + b", "a * 500 - b")
    for name in ("long.py", "read.py"):
        (ground.project / name).write_text(LONG)
    begin(ground)
    talk = Session(cwd=str(ground.project), files={"long.py": LONG, "read.py": LONG})
    talk.asked("Subtract in function 500 of long.py")
    talk.read("read.py", 2_401, 20)
    talk.edit("long.py", "a * 500 + b", "a * 500 - b")
    talk.said("Done.")
    (ground.project / "long.py").write_text(changed)
    work(ground, talk, SESSION, 0)


def test_several_clears_in_a_row_do_not_change_which_lines_are_shown(ground: Ground) -> None:
    edit_a_long_file(ground)
    texts = []
    for number, name in enumerate(NAMES, 1):
        texts.append(parts(ground, name))
        talk = Session(cwd=str(ground.project))
        talk.asked("hello")
        talk.said("Fine.")
        work(ground, talk, name, number)
    texts.append(parts(ground, "55555555-2222-4333-8444-555555555555"))

    for text in texts:
        assert "return a * 500 - b" in text and "return a * 600 + b" in text
        assert "M long.py L2002" in text and "r read.py L2401-2420" in text
        assert "### long.py\n@1942-2062\n" in text and "### read.py\n@2401-2420\n" in text


def test_what_was_changed_before_is_shown_beside_what_the_session_changed_in_the_same_file(ground: Ground) -> None:
    edit_a_long_file(ground)
    parts(ground, NAMES[0])
    text = (ground.project / "long.py").read_text()
    talk = Session(cwd=str(ground.project), files={"long.py": text})
    talk.asked("continue")
    talk.edit("long.py", "    return a * 5 + b\n", "    a += 1\n    b += 1\n    return a * 5 - b\n")
    talk.said("Done.")
    (ground.project / "long.py").write_text(talk.files[talk.path("long.py")])
    work(ground, talk, NAMES[0], 1)

    found = parts(ground, NAMES[1])

    assert "M long.py L22-24,2004" in found
    assert "return a * 5 - b" in found and "return a * 500 - b" in found


def test_where_no_conversation_can_be_read_the_lines_come_from_the_notes(ground: Ground) -> None:
    from keepfast.app.resume import Resumer
    from keepfast.model.document import Header

    edit_a_long_file(ground)
    engine = ground.engine
    try:
        resumer = Resumer(engine, str(ground.project).encode(), ground.workspace)
        found = resumer.newest()
        assert found is not None
        members = {key: part for key, part in found.header.members.items() if key != "conversation"}
        lost = found._replace(header=Header(members))
        (ground.base / f"{SESSION}.jsonl").unlink()
        text = resumer.brief(lost).text
    finally:
        engine.close()

    assert "return a * 500 - b" in text


def test_a_larger_request_and_steps_of_its_own_replace_what_was_taken_over(ground: Ground) -> None:
    first(ground)
    begin(ground, NAMES[0], "clear")
    prompt = "Write a parser for nested configuration sections"
    work(ground, later(ground, prompt, "Next: Parse the quoted values."), NAMES[0], 1)

    analysis = ground.header(ground.checkpoints()[-1])["notes"]["analysis"]
    assert (analysis["current_task"], analysis["next_steps"]) == (prompt, ["Parse the quoted values"])
    assert any(DECISION in one for one in analysis["decisions_made"])


def test_a_short_prompt_is_told_behind_the_work_that_was_taken_over(ground: Ground) -> None:
    first(ground)
    begin(ground, NAMES[0], "clear")
    work(ground, later(ground, "now the tests for it"), NAMES[0], 1)

    assert ground.header(ground.checkpoints()[-1])["summary"].startswith(f"{TASK} — ")


def test_before_a_command_the_summary_is_that_work_too(ground: Ground) -> None:
    """Nobody waits for the notes of a conversation there."""
    first(ground)
    begin(ground, NAMES[0], "clear")
    answer(ground, "UserPromptSubmit", prompt="continue", session_id=NAMES[0], transcript_path="")
    (ground.project / "a.py").write_text("three = 1\n")
    fields: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": "rm -rf a.py"}, "tool_use_id": "toolu_1"}
    answer(ground, "PreToolUse", session_id=NAMES[0], transcript_path="", **fields)

    row = ground.checkpoints()[-1]
    assert (row.trigger, ground.header(row)["summary"]) == ("before_command", TASK)


def test_of_a_version_the_same_is_told(ground: Ground) -> None:
    from keepfast.app.resume import Resumer

    first(ground)
    begin(ground, NAMES[0], "clear")
    work(ground, later(ground, "continue"), NAMES[0], 1)
    row = ground.checkpoints()[-1]

    engine = ground.engine
    try:
        resumer = Resumer(engine, str(ground.project).encode(), ground.workspace)
        text = resumer.moment_brief(resumer.work_at(row)).brief.text
    finally:
        engine.close()

    assert TASK in text and STEP in text and DECISION in text


def test_files_that_were_taken_over_are_for_the_brief_and_not_the_checkpoints_own(ground: Ground) -> None:
    first(ground)
    for number, name in enumerate(NAMES, 1):
        begin(ground, name, "clear")
        talk = Session(cwd=str(ground.project))
        talk.asked("Write the unrelated report about taxes")
        talk.write(f"report{number}.md", "taxes\n")
        (ground.project / f"report{number}.md").write_text("taxes\n")
        transcript = ground.base / f"{name}.jsonl"
        transcript.write_bytes(talk.bytes())
        known: dict[str, Any] = {"session_id": name, "transcript_path": str(transcript)}
        answer(ground, "UserPromptSubmit", prompt="Write the unrelated report about taxes", **known)
        (ground.project / f"figures{number}.csv").write_text("1,2\n")
        answer(ground, "SessionEnd", reason="clear", **known)

    files = show(ground)["state"]["files"]
    assert set(files) == {"report3.md", "figures3.csv"}
    reply = begin(ground, "55555555-2222-4333-8444-555555555555", "clear")
    assert "Captured: 2 files" in reply["systemMessage"]
    assert all(name in told(reply) for name in ("report3.md", "report1.md", "a.py"))


def show(ground: Ground, *words: str) -> dict[str, Any]:
    done = command(ground, "show", "--json", *words)
    assert done.returncode == 0, done.stderr
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown
