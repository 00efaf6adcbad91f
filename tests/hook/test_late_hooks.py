"""A session that hooks hear of only at a tool call is told by its transcript."""

from __future__ import annotations

import json
import os

from keepfast.agents.claude.usage import tokens
from keepfast.state import sessions

from .ground import SESSION, Ground


def test_tokens_and_files_are_those_of_the_transcript(started: Ground) -> None:
    late = "99999999-2222-4333-8444-555555555555"
    started.transcript = started.base / "late.jsonl"
    path = str(started.project / "one.py")
    use = {"type": "tool_use", "id": "toolu_0", "name": "Write", "input": {"file_path": path, "content": "a = 1\n"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_0", "content": "done"}
    lines = [
        {"type": "user", "message": {"role": "user", "content": "Write one.py"}},
        {
            "type": "assistant",
            "message": {"id": "m", "role": "assistant", "model": "claude-opus-5-5", "content": [use]},
        },
        {"type": "user", "message": {"role": "user", "content": [result]}},
    ]
    started.transcript.write_text("".join([json.dumps({**line, "cwd": str(started.project)}) + "\n" for line in lines]))
    (started.project / "one.py").write_text("a = 1\n")
    started.answers(5_000)
    assert late != SESSION

    started.tool("Bash", {"session_id": late}, command="rm -f one.py")

    folder = str(started.folder)
    known = sessions.newest_facts(folder)
    assert (known["session"], known["transcript"]) == (late, str(started.transcript))
    assert tokens(folder, late, known["transcript"], "", 0, {}).used == 5_000
    engine = started.engine
    try:
        row = [one for one in started.checkpoints() if one.trigger == "before_command"][-1]
        header = engine.repository().document(row)[0]
    finally:
        engine.close()
    assert (header.session, header.active_files) == (late, [os.path.basename(path)])
    assert header.tokens_used == 5_000
