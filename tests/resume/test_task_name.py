"""What the work is called, whatever the last prompt was: a nod, a notice, pasted output or "commit it"."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from keepfast.agents import transcript
from keepfast.resume import extractor as notes
from keepfast.resume.notes import shortened
from keepfast.resume.task_name import follow, heading, weight
from tests.equipment.sessions import Session

ROOT = Path(__file__).parent.parent.parent
PLAN = (
    "Implement the following plan:\n\n# Plan: Rate limits for the public API\n\n## Context\n\nThere are too many calls."
)


def summary(*prompts: str, **facts: Any) -> str:
    """The summary of a session in which these things were asked for, one after another."""
    session = Session(**facts)
    for prompt in prompts:
        session.asked(prompt)
        session.said("Done.")
    return taken(session)


def taken(session: Session) -> str:
    return notes.take(transcript.read(session.bytes())).summary()


@pytest.mark.parametrize(
    ("prompt", "name"),
    [
        (PLAN, "Rate limits for the public API"),
        ("Implement the following plan:\n\n# Retry uploads\n\nOnce a minute.", "Retry uploads"),
        ("Hi! Please give the invoices a due date.", "Please give the invoices a due date."),
        ("ok, not bad.\n\nThe sidebar flickers when the window is narrow", "The sidebar flickers when the window is narrow"),
        ("can you take a look:\n\n1. High: the parser drops rows of sheets", "High: the parser drops rows of sheets"),
        ("Low severity\n\nThe importer reads binary sheets as text.", "The importer reads binary sheets as text."),
        ("Mend the importer's warnings:\n\n[lint] importer.py:3: unused name", "Mend the importer's warnings"),
        ("주문 목록에 페이지 나누기를 추가해 주세요", "주문 목록에 페이지 나누기를 추가해 주세요"),
    ],
)  # fmt: skip
def test_a_prompt_is_called_by_what_it_asks_for(prompt: str, name: str) -> None:
    assert summary(prompt) == name


def test_a_command_alone_is_called_as_it_was_typed() -> None:
    assert summary("/commit").startswith("/commit")


@pytest.mark.parametrize(
    "follow", ["yes", "continue", "1", "go ahead", "/compact", "<task-notification>x</task-notification>"]
)
def test_a_nod_leaves_the_work_its_name(follow: str) -> None:
    assert summary(PLAN, follow) == "Rate limits for the public API"


@pytest.mark.parametrize(
    "follow",
    ["commit, push and pr it", "lint fails again", "no, keep the old name", "can you do the same for those?", "what is missing?"],
)  # fmt: skip
def test_a_short_follow_up_is_told_with_the_request_that_it_belongs_to(follow: str) -> None:
    assert summary(PLAN, "ok", follow) == f"Rate limits for the public API — {follow}"


def test_a_new_request_is_the_work() -> None:
    assert (
        summary(PLAN, "commit it", "Export the statistics as a spreadsheet") == "Export the statistics as a spreadsheet"
    )


def test_pasted_output_is_told_by_its_failure_with_the_request_that_it_belongs_to() -> None:
    pasted = "$ make check\nok   billing  0.2s\n--- FAIL: TestRefund (0.01s)\n    refund_test.go:7: got 3\nFAIL"

    assert summary(PLAN, pasted) == "Rate limits for the public API — FAIL: TestRefund (0.01s)"
    assert summary(PLAN, f"{pasted}\ncan you see why refunds of the billing service are rounded?") == (
        "can you see why refunds of the billing service are rounded?"
    )


def test_the_to_do_in_progress_is_the_work() -> None:
    session = Session()
    session.asked(PLAN)
    session.todos(("completed", "Count calls"), ("in_progress", "Answer 429 beyond the limit of a customer"))

    assert taken(session) == "Answer 429 beyond the limit of a customer"


def test_a_to_do_that_any_work_has_is_told_with_the_plan() -> None:
    session = Session()
    session.asked(PLAN)
    session.todos(("completed", "Count calls"), ("in_progress", "Run tests and lint"))

    assert taken(session) == "Rate limits for the public API — Run tests and lint"


def test_a_new_request_is_newer_than_the_to_do_in_progress() -> None:
    session = Session()
    session.asked(PLAN)
    session.todos(("in_progress", "Answer 429 beyond the limit of a customer"))
    session.asked("Export the statistics as a spreadsheet")

    assert taken(session) == "Export the statistics as a spreadsheet"


def test_an_approved_plan_is_the_work() -> None:
    session = Session()
    session.asked("why do uploads hang when the disk of the server is full?")
    session.planned("# Plan: Give up uploads after a minute without progress\n\n1. Watch the bytes")
    session.asked("commit and push")

    assert taken(session) == "Give up uploads after a minute without progress — commit and push"


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ({"type": "ai-title", "aiTitle": "Speed up the nightly import"}, "Speed up the nightly import — commit it"),
        ({"type": "custom-title", "customTitle": "nightly-import-speed"}, "nightly import speed — commit it"),
    ],
)
def test_without_a_request_the_clients_title_is_told(entry: dict[str, str], name: str) -> None:
    session = Session()
    session.asked("commit it")
    session.entries.append(entry)

    assert taken(session) == name


def test_without_a_request_the_commit_is_told() -> None:
    session = Session()
    session.asked("commit it")
    session.run("git add -A && git commit -m 'Round totals half up' && git push")

    assert taken(session) == "Round totals half up — commit it"


def test_without_a_request_the_agents_own_heading_is_told() -> None:
    session = Session()
    session.asked("<command-name>/review</command-name><command-args>12</command-args>")
    session.said("I have read it.\n\n## Code review: retries of the mail queue\n\n### Summary\nFine.")

    assert taken(session) == "Code review: retries of the mail queue — review 12"


SKILL = "Base directory for this skill: /home/ann/.claude/skills/e2e-debug\n\n# Debug external agent failures\n\nRead the logs."
DEBUG = "<command-message>e2e-debug</command-message>\n<command-name>/e2e-debug</command-name>"


@pytest.mark.parametrize(
    ("body", "follow", "name"),
    [
        ([{"type": "text", "text": SKILL}], [], "Debug external agent failures"),
        ([{"type": "text", "text": SKILL}], ["recent"], "Debug external agent failures — recent"),
        ("Debug the failures of the kiro suite", [], "Debug the failures of the kiro suite"),
        (f"---\ndescription: Fix it\nallowed-tools: Bash\n---\n\n{SKILL[66:]}", [], "Debug external agent failures"),
        ("---\nname: fix\ndescription: 'Repair the broken payment tests'\n---\nDo it.\n", [], "Repair the broken payment tests"),
        (SKILL, ["Export the statistics as a spreadsheet"], "Export the statistics as a spreadsheet"),
        ("You are an expert code reviewer. Follow these steps:", [], "Looking at the kiro suite's failures. — /e2e-debug"),
    ],
)  # fmt: skip
def test_a_session_that_begins_with_a_command_is_called_by_what_the_command_says(
    body: object, follow: list[str], name: str
) -> None:
    session = Session()
    session.asked(DEBUG)
    session.entries.append({"type": "user", "isMeta": True, "message": {"role": "user", "content": body}})
    session.said("Looking at the kiro suite's failures.")
    for prompt in follow:
        session.asked(prompt)
        session.said("Done.")

    assert taken(session) == name


def test_a_prompt_that_begins_with_a_path_is_no_command() -> None:
    """A short path keeps its folders."""
    assert heading("/home/me/x.py fails with a decoding error") == "/home/me/x.py fails with a decoding error"


def test_a_command_is_no_name_for_work_that_has_one() -> None:
    session = Session()
    session.asked(PLAN)
    session.asked(DEBUG)
    session.entries.append({"type": "user", "isMeta": True, "message": {"role": "user", "content": SKILL}})

    assert taken(session) == "Rate limits for the public API"


def test_a_remark_on_a_picture_is_told_by_what_the_agent_answers() -> None:
    session = Session()
    session.asked("[Image #1] this is wrong")
    session.said("The header overlaps the nav at 390 px. I fixed the z-index.")

    assert taken(session) == "The header overlaps the nav at 390 px. — this is wrong"


def test_without_a_request_the_branch_is_told() -> None:
    assert summary("can you review the changes", branch="ann/mail-queue-retries") == (
        "can you review the changes — branch ann/mail-queue-retries"
    )


def test_without_a_request_the_files_are_told() -> None:
    session = Session(files={"queue.py": "x = 1\n", "mail.py": "y = 1\n"})
    session.asked("please check")
    session.read("queue.py")
    session.edit("mail.py", "y = 1", "y = 2")

    assert taken(session) == "please check — mail.py, queue.py"


def test_who_is_told_what_to_be_has_not_been_told_what_to_do() -> None:
    session = Session(files={"queue.py": "x = 1\n"})
    session.asked("You are a careful reviewer. Your job is to read changes and to write helpful remarks.")
    session.read("queue.py")

    assert taken(session).endswith(" — queue.py")


def test_of_a_long_task_and_the_newest_words_both_are_shown() -> None:
    short = shortened("a" * 100 + " — commit and push")

    assert len(short) == 80
    assert short.endswith("a… — commit and push")
    assert len(shortened("a" * 100 + " — " + "b" * 100)) == 80


def test_links_to_a_change_name_the_work_and_digests_do_not() -> None:
    assert weight("see https://example.org/shop/pull/12") >= 3
    assert weight("see 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b") == 0


@pytest.mark.parametrize(
    "text", ["", "\n", "```", "```\nx\n", "# ", "{", "/", "????", "a" * 100_000, "( " * 30_000, "\u2028"]
)
def test_any_prompt_has_a_name_or_none(text: str) -> None:
    assert isinstance(heading(text), str)
    assert len(summary(text)) <= 80


def queued(content: str, **more: Any) -> dict[str, Any]:
    return {"type": "queue-operation", "operation": "enqueue", "content": content, **more}


@pytest.mark.parametrize(
    "entry",
    [
        queued(json.dumps({"task_id": "b1", "task_type": "local_bash", "status": "completed"})),
        queued("<task-notification>\n<task-id>b1</task-id>\n</task-notification>\nRead the output file: /tmp/b1.output"),
        {"type": "attachment", "attachment": {"type": "queued_command", "prompt": "b1 ended", "commandMode": "task-notification"}},
        {"type": "user", "message": {"role": "user", "content": "<background-task-ended>b1</background-task-ended>"}},
        {"type": "user", "message": {"role": "user", "content": "<post-tool-use-hook>tidy up</post-tool-use-hook>"}},
        {"type": "user", "message": {"role": "user", "content": "Operation stopped by hook: another session is active"}},
    ],
)  # fmt: skip
def test_notices_are_no_prompts(entry: dict[str, Any]) -> None:
    session = Session()
    session.asked(PLAN)
    session.entries.append(entry)

    taken = notes.take(transcript.read(session.bytes()))

    assert taken.prompts == [PLAN]
    assert taken.current_task == "Rate limits for the public API"


def test_what_an_editor_tells_beside_a_prompt_is_passed_over() -> None:
    session = Session()
    session.asked("<ide_opened_file>The user opened a.py</ide_opened_file>Rename the customer's table")

    assert notes.take(transcript.read(session.bytes())).prompts == ["Rename the customer's table"]


def rollout(*texts: str) -> bytes:
    entries = [
        {"type": "response_item", "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}}
        for text in texts
    ]  # fmt: skip
    return b"".join([json.dumps(entry).encode() + b"\n" for entry in entries])


def test_notices_of_codex_are_no_prompts() -> None:
    texts = (
        "<environment_context>\n<cwd>/x</cwd>\n</environment_context>",
        "# Files mentioned by the user:\n\n## a.png: /tmp/a.png\n\n## My request for Codex:\nMove the logo to the left edge",
        '<subagent_notification>\n{"agent_path": "a1", "status": "done"}\n</subagent_notification>',
    )

    assert notes.take(transcript.read(rollout(*texts))).prompts == ["Move the logo to the left edge"]


def test_the_tool_counts_summaries_that_say_nothing() -> None:
    tool = [sys.executable, str(ROOT / "tools" / "summaries.py")]

    done = subprocess.run(
        [*tool, str(ROOT / "tests" / "data" / "transcripts")], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("0 of 24 summaries of 6 sessions ")


def test_the_tool_fails_where_too_many_say_nothing(tmp_path: Path) -> None:
    session = Session()
    session.asked("continue")
    session.save(tmp_path / "s.jsonl")

    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "summaries.py"), str(tmp_path)], capture_output=True, check=False
    )

    assert done.returncode == 1


@pytest.mark.parametrize("nod", ["go on", "go on please", "yes continue now", "ok, go ahead", "yes, keep going!"])
def test_a_nod_of_several_words_is_told_as_none(nod: str) -> None:
    assert follow("Rate limits for the public API", nod) == "Rate limits for the public API"


def test_a_notice_of_the_client_after_a_command_is_not_what_the_command_means() -> None:
    session = Session()
    session.asked("<command-message>review</command-message>\n<command-name>/review</command-name>")
    session.asked(
        "<local-command-caveat>The command below was run directly in Claude Code</local-command-caveat>", isMeta=True
    )

    assert taken(session).startswith("/review")


def test_what_a_command_means_names_the_work_behind_a_notice_of_the_client() -> None:
    session = Session()
    session.asked("<command-message>review</command-message>\n<command-name>/review</command-name>")
    session.asked(
        "<local-command-caveat>The command below was run directly in Claude Code</local-command-caveat>", isMeta=True
    )
    session.asked("# Review pull requests of the storefront\n\nList them.", isMeta=True)

    assert taken(session) == "Review pull requests of the storefront"


def test_a_session_of_shell_commands_alone_is_called_by_the_first() -> None:
    session = Session()
    session.asked("<bash-input>ls -la</bash-input>")
    session.asked("<bash-stdout>total 0</bash-stdout><bash-stderr></bash-stderr>")

    assert taken(session) == "! ls -la"


def test_the_folders_of_a_short_path_stay() -> None:
    prompt = "/etc/nginx/nginx.conf gives 502 on reload since yesterday"

    assert summary(prompt) == follow("", prompt) == prompt
