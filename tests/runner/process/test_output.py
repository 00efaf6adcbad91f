"""What is read of an agent's output; above all, that talk about limits is no limit."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC
from pathlib import Path
from random import Random
from typing import Any

import pytest

from keepfast.runner.domain.limits import Window
from keepfast.runner.process.filter import OutputWriter
from keepfast.runner.process.output import ClaudeOutput, Figure, Output, PlainOutput, Tail
from tests.runner.domain.test_limits import CORPUS, NOW

TALK = [row[0] for row in CORPUS] + [
    "The test expects 'rate limit exceeded' and HTTP 429.",
    "gh: API rate limit exceeded for user ID 1. Please wait a few minutes before retrying.",
    'FAILED test_limits.py::test_reset - "You\'ve hit your limit · resets 3pm"',
    '{"type":"rate_limit_event","rate_limit_info":{"status":"rejected"}}',
    '{"type":"turn.failed","error":{"message":"You\'ve hit your usage limit. Try again in 5 minutes."}}',
    '{"type":"error","message":"429 Too Many Requests"}',
]


def claude() -> ClaudeOutput:
    return ClaudeOutput(NOW, UTC)


def feed(output: Output, *events: dict[str, Any]) -> Output:
    for event in events:
        output.feed(json.dumps(event).encode())
    return output


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "assistant", "message": {"id": str(id(text)), "content": [{"type": "text", "text": text}]}, **more}


def tool_result(text: str) -> dict[str, Any]:
    return {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "t", "content": text}]}}


RESULT = {"type": "result", "subtype": "success", "is_error": False, "result": "done", "total_cost_usd": 0.5}
LIMITED = {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": NOW + 60}}


def test_five_thousand_lines_of_talk_about_limits_are_no_limit() -> None:
    random = Random(3)
    for make in (claude, lambda: PlainOutput(NOW, UTC)):
        output = make()
        for _ in range(5000):
            text = f"{random.choice(['', 'He said: ', '> ', 'log: '])}{random.choice(TALK)}"
            if isinstance(output, ClaudeOutput):
                feed(output, random.choice([said(text), tool_result(text)]))
            else:
                output.feed(text.encode())
        if isinstance(output, ClaudeOutput):
            feed(output, {**RESULT, "result": random.choice(TALK)})
        output.close(0)

        assert output.limit is None
        assert output.lines >= 5000


@pytest.mark.parametrize("code", [0, 3])
def test_an_agent_that_prints_lines_of_codex_is_not_limited(code: int) -> None:
    output = PlainOutput(NOW, UTC)
    feed(output, {"type": "error", "message": "You've hit your usage limit. Try again in 5 minutes."})
    output.close(code)

    assert output.limit is None
    assert not output.failed


def test_codex_that_ends_well_was_not_stopped_by_a_limit() -> None:
    output = PlainOutput(NOW, UTC)
    feed(output, {"type": "thread.started"}, {"type": "error", "message": "429 Too Many Requests, retrying"})
    output.close(0)

    assert output.limit is None


def test_a_rejection_counts_only_with_a_failing_result() -> None:
    failing = {**RESULT, "is_error": True, "api_error_status": 429, "result": "You've hit your 5-hour limit"}

    assert feed(claude(), LIMITED, RESULT).limit is None
    assert feed(claude(), LIMITED, failing).limit is not None
    assert feed(claude(), LIMITED, failing, RESULT).limit is None, "one process may say several results"


def test_the_subtype_lies_and_is_error_does_not() -> None:
    output = feed(
        claude(), {**RESULT, "is_error": True, "api_error_status": 529, "result": "API Error: 529 Overloaded"}
    )

    assert output.failed
    assert output.limit is not None
    assert output.limit.scope == "overload"


def test_a_warning_comes_before_the_limit() -> None:
    info = {"status": "allowed_warning", "resetsAt": NOW + 60, "utilization": 0.93}
    output = feed(claude(), {"type": "rate_limit_event", "rate_limit_info": info}, RESULT)

    assert output.limit is None
    assert output.limit_near is not None
    assert output.limit_near.used == 0.93


def test_the_whole_length_of_a_message_is_counted_once_the_transcript_has_it() -> None:
    """The client tells of a message before its answer has ended; messages of earlier runs are no matter of this one."""

    def message(id: str, output: int) -> dict[str, Any]:
        usage = {"input_tokens": 10, "cache_read_input_tokens": 1000, "output_tokens": output}
        return {"type": "assistant", "message": {"id": id, "content": [], "usage": usage}}

    output = claude()
    for id, tokens in (("earlier", 500), ("2", 200)):
        output.feed_transcript(json.dumps(message(id, tokens)).encode())
    feed(output, message("1", 1), message("2", 1))
    assert output.tokens == 11 + 210

    output.feed_transcript(json.dumps(message("1", 100)).encode())

    assert output.tokens == 110 + 210
    output.feed_transcript(b'{"output_tokens": [')
    output.feed_transcript(b'{"type": "assistant", "message": {"id": "1", "usage": {"output_tokens": {}}}}')
    assert output.tokens == 110 + 210


def test_tokens_are_counted_once_per_message() -> None:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 1000, "output_tokens": 5}
    message = {"type": "assistant", "message": {"id": "m1", "content": [], "usage": usage}}

    assert feed(claude(), message, message).tokens == 15


def test_open_tools_are_those_without_a_result() -> None:
    use = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "make"}}
    begun = {"type": "assistant", "message": {"id": "m", "content": [use]}}

    assert [tuple(tool) for tool in feed(claude(), begun).tools.values()] == [("Bash", "make")]
    assert feed(claude(), begun, tool_result("ok")).tools == {}


def test_what_a_subagent_says_is_not_for_us() -> None:
    assert feed(claude(), said("=== PHASE 1 COMPLETE ===", parent_tool_use_id="x")).blocks == []
    assert len(feed(claude(), said("=== PHASE 1 COMPLETE ===")).blocks) == 1


def test_the_hook_of_a_failed_stop_is_the_second_source() -> None:
    output = feed(claude(), {**RESULT, "is_error": True, "result": "something"})
    output.feed_failure(json.dumps({"error": "rate_limit", "error_details": "429 Too Many Requests"}).encode())

    assert output.limit is not None
    assert output.limit.source == "hook"


def test_calls_of_our_tools_are_blocks() -> None:
    output = claude()
    output.feed_call(b'{"name": "PHASE_COMPLETE", "fields": {"phase": "1"}}')
    output.feed_call(b"garbage")

    assert [block.name for block in output.blocks] == ["PHASE_COMPLETE"]


def test_calls_of_our_tools_are_protocol_and_tell_the_step_from_there_on() -> None:
    def used(name: str, /, **given: Any) -> dict[str, Any]:
        part = {"type": "tool_use", "id": name, "name": name, "input": given}
        return {"type": "assistant", "message": {"id": name, "model": "m", "content": [part]}}

    output = feed(
        claude(), said("before"), used("mcp__keepfast__report_progress", step="03_users", percent=35), said("after"),
        used("Bash", command="ls"), used("mcp__keepfast__request_secret", name="TOKEN"),
        said("[PROGRESS]\nstep: 04_last\n[/PROGRESS]"),
    )  # fmt: skip
    output.feed_call(b'{"name": "PROGRESS", "fields": {"step": "03_users", "percent": "35"}}')

    told = [(one.step, one.type) for one in output.messages]
    assert told == [
        ("", "log"), ("03_users", "protocol"), ("03_users", "log"), ("03_users", "log"), ("03_users", "protocol"),
        ("04_last", "protocol"),
    ]  # fmt: skip
    assert (output.step, output.fraction) == ("04_last", 0.35)
    assert output.blocks == [], "what a tool refused was not said"


def test_what_a_command_said_last_is_what_came_together_without_blocks() -> None:
    output = PlainOutput(NOW, UTC)
    second = 1_000_000_000
    for at, line in (
        (1, "I begin."), (60, "The tests pass."), (61, ""), (61, "Only the name is open."),
        (62, "[USER_QUESTION]"), (62, "question: Which name?"), (62, "[/USER_QUESTION]"),
    ):  # fmt: skip
        output.at = at * second
        output.feed(line.encode())
    bare = PlainOutput(NOW, UTC)
    for line in ("[USER_QUESTION]", "question: Which name?", "[/USER_QUESTION]"):
        bare.feed(line.encode())

    assert output.last_message() == "The tests pass.\nOnly the name is open."
    assert bare.last_message() == "[USER_QUESTION]\nquestion: Which name?\n[/USER_QUESTION]"


@pytest.mark.parametrize(
    "lines",
    [
        ["[ERROR] type: recoverable, message: Rate limit exceeded, resets at 2026-11-16T13:00:00Z"],
        ["[ERROR]", "type: recoverable", "message: Rate limit exceeded", "details: reset at 2026-11-16T13:00:00Z", "[/ERROR]"],
        ["[ERROR]", "type: recoverable", "message: Rate limit exceeded", "retry-after: 3600", "[/ERROR]"],
        ["[ERROR]", "type: recoverable", "message: Too many requests", "Retry-After: Mon, 16 Nov 2026 13:00:00 GMT", "[/ERROR]"],
        ['[ERROR_JSON]{"type":"recoverable","message":"Rate limit exceeded","details":{"reset_at":"2026-11-16T13:00:00Z"}}'
         "[/ERROR_JSON]"],
        ['[ERROR_JSON]{"type":"recoverable","message":"Rate limit exceeded","resetsAt":1794834000000}[/ERROR_JSON]'],
    ],
)  # fmt: skip
def test_an_agent_that_reports_a_limit_is_waited_for_until_its_reset(lines: list[str]) -> None:
    output = PlainOutput(NOW, UTC)
    for line in lines:
        output.feed(line.encode() + b"\n")
    output.close(1)

    assert output.limit is not None
    assert output.limit.resets_at == NOW + 3600


def test_codex_lines() -> None:
    output = PlainOutput(NOW, UTC)
    message = "You've hit your usage limit. Try again in 5 minutes."
    feed(
        output, {"type": "thread.started", "thread_id": "abc"},
        {"type": "item.completed", "item": {"type": "agent_message", "text": "=== PHASE 1 COMPLETE ==="}},
        {"type": "token_count", "rate_limits": {"primary": {"used_percent": 95.0, "resets_at": NOW + 60}}},
        {"type": "turn.failed", "error": {"message": message}},
    )  # fmt: skip
    output.close(1)
    assert output.limit is not None
    assert output.limit.resets_at == NOW + 300
    assert output.limit_near is not None


def measured(id: str, cached: int, written: int, **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10, "cache_read_input_tokens": cached, "output_tokens": written}
    return {"type": "assistant", "message": {"id": id, "model": "m", "content": [], "usage": usage}, **more}


def test_each_request_of_the_main_conversation_is_measured_once() -> None:
    output = claude()
    feed(
        output, measured("a", 100, 1), measured("a", 100, 40), measured("s", 5000, 1, parent_tool_use_id="t"),
        measured("b", 200, 5), {"type": "assistant", "message": {"id": "c", "content": []}},
    )  # fmt: skip

    assert output.figures == [Figure(150, "m"), Figure(215, "m")]


def test_windows_of_the_account_are_known_before_they_are_used_up() -> None:
    output = claude()
    windows = {
        "five_hour": {"utilization": 0.4, "resetsAt": NOW + 60},
        "seven_day": {"utilization": 0.93, "status": "allowed_warning"},
    }
    feed(output, {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed", "unifiedWindows": windows}})

    assert output.windows == {"five_hour": Window(0.4, NOW + 60), "seven_day": Window(0.93, None)}
    assert output.limit_near is not None
    assert (output.limit_near.scope, output.limit_near.used) == ("weekly", 0.93)


def test_figures_of_codex() -> None:
    info = {"last_token_usage": {"total_tokens": 1234}, "model_context_window": 200_000}
    output = PlainOutput(NOW, UTC)
    feed(output, {"type": "token_count", "info": info, "rate_limits": {"primary": {"used_percent": 12.0}}})

    assert output.figures == [Figure(1234, "", 200_000)]
    assert output.windows == {"primary": Window(0.12, None)}


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[1]", b'{"type":"assistant"}', b"\xff\xfe", b"null", b'{"type":"result","usage":3}']
)
def test_garbage_is_counted_and_never_raises(line: bytes) -> None:
    for output in (claude(), PlainOutput(NOW, UTC)):
        output.feed(line)
        output.feed_error(line)
        output.feed_failure(line)
        output.close(0)

        assert output.limit is None


def types(output: Output) -> list[str]:
    return [message.type for message in output.messages]


def test_lines_of_blocks_and_markers_are_protocol_and_all_others_a_log() -> None:
    output = PlainOutput(NOW, UTC)
    for line in (
        "I begin.", "[USER_QUESTION]", "question: Which?", "[/USER_QUESTION]", "And on.", "=== PHASE 1 COMPLETE ===",
        "Files created:", "- a.md", "Ready for review.", "Bye.", "=== CUSTOM TASK COMPLETE ===", "That is it.",
    ):  # fmt: skip
        output.feed(line.encode())

    assert types(output) == ["log", *["protocol"] * 3, "log", *["protocol"] * 4, "log", "protocol", "log"]


def test_what_a_client_says_is_protocol_error_or_log_and_its_tools_are_not_its_last_word() -> None:
    use = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "make"}}
    output = feed(
        claude(),
        said("I begin."),
        said("[PROGRESS]\nstep: 02\n[/PROGRESS]"),
        {"type": "assistant", "message": {"id": "3", "content": [use]}},
        said("API Error: 500", error="server_error"),
    )

    assert types(output) == ["log", "protocol", "log", "error"]
    assert [message.step for message in output.messages] == ["", "02", "02", "02"]
    assert output.last_message() == "[PROGRESS]\nstep: 02\n[/PROGRESS]"


def test_each_line_has_the_time_at_which_it_was_written(tmp_path: Path) -> None:
    path = str(tmp_path / "out.log")
    stream, tail = OutputWriter(path, ["secret"], 1 << 20), Tail(path)
    stream.write(b"one\nt")
    [(one, first)] = tail.timed_lines()
    time.sleep(0.15)
    stream.write(b"wo secret\nthree\n")
    stream.close()

    [(two, second), (three, third)] = tail.timed_lines()

    assert (one, two, three) == (b"one", b"two [secret]", b"three")
    assert 0 < first < second == third == os.stat(path).st_mtime_ns
    assert [at for _, at in Tail(path).timed_lines()] == [first, second, third]


def test_lines_whose_times_nobody_noted_have_none(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_bytes(b"one\ntwo\n")
    (tmp_path / "out.log.times").write_bytes(b"4 17\nodd 12 3\n9 18")

    assert Tail(str(tmp_path / "out.log")).timed_lines() == [(b"one", 0), (b"two", 17)]


def test_progress_that_was_told_by_a_tool_is_reported_once() -> None:
    output = ClaudeOutput(0.0, UTC)
    use = {
        "type": "tool_use",
        "id": "t1",
        "name": "mcp__keepfast__report_progress",
        "input": {"step": "02", "percent": 40},
    }
    output.feed(json.dumps({"type": "assistant", "message": {"id": "m1", "content": [use]}}).encode())
    output.feed_call(json.dumps({"name": "PROGRESS", "fields": {"step": "02", "percent": "40"}}).encode())

    assert [(one.step, one.percent) for one in output.reports] == [("02", 40)]
