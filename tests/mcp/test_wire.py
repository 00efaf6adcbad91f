"""Whatever a client's texts hold, its calls are answered."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from keepfast.mcp.wire import without_lone_surrogates
from tests.equipment.box import SOURCE, Box

from .test_programs import HELLO


@pytest.mark.parametrize(
    ("line", "read"),
    [
        (r'"plain"', "plain"),
        (r'"\ud83d\ude00"', "\U0001f600"),
        (r'"cut \ud83d"', "cut \ufffd"),
        (r'"\ude00 cut"', "\ufffd cut"),
        (r'"\uD83D\uDE00\uD83D"', "\U0001f600\ufffd"),
        (r'"\ude00\ud83d"', "\ufffd\ufffd"),
        (r'"\\ud83d"', r"\ud83d"),
        (r'"\\\ud83d"', "\\\ufffd"),
        (r'"\ud7ff\ue000\n"', "\ud7ff\ue000\n"),
    ],
)
def test_half_a_character_becomes_a_mark_and_nothing_else_changes(line: str, read: str) -> None:
    assert json.loads(without_lone_surrogates(line.encode())) == read


def test_a_call_with_half_a_character_is_answered(saved_box: Box) -> None:
    """What a client in JavaScript sends where it has cut a text in the middle of an emoji; and a long text after it."""
    save = {"name": "checkpoint_save", "arguments": {"summary": "cut \ud83d", "description": "d" * 8_000}}
    messages = [
        HELLO,
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": save},
    ]
    server = subprocess.Popen(
        [sys.executable, "-m", "keepfast", "-C", str(saved_box.project), "mcp"],
        env={**saved_box.variables, "PYTHONPATH": str(SOURCE)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdin is not None and server.stdout is not None
    try:
        server.stdin.write(b"".join([json.dumps(message).encode() + b"\n" for message in messages]))
        server.stdin.flush()
        answers = [json.loads(server.stdout.readline()) for _ in range(2)]
    finally:
        server.stdin.close()
        ended = server.wait(timeout=60)
        server.stdout.close()

    assert answers[1]["id"] == 2
    assert answers[1]["result"]["structuredContent"]["checkpoint"]["message"].startswith("cut \ufffd")
    assert ended == 0
