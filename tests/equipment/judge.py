"""What the real client accepts as the answer of a hook, as measured (docs/hooks.md): the judge of our answers."""

from __future__ import annotations

import json

CONTEXT = {
    "SessionStart", "UserPromptSubmit", "UserPromptExpansion", "PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch",
    "SubagentStart", "Setup",
}  # fmt: skip
"""Events whose `hookSpecificOutput` is in the accepted union and reaches the model without costing a turn."""
PLAIN = {"PreCompact"}
"""Events whose standard output is taken as plain text."""
LIMIT = 10_000


def judge(event: str, output: bytes, code: int) -> dict[str, object]:
    """Return what the client takes from the answer. Raises `AssertionError` for whatever it would refuse or suffer from."""
    assert code in (0, 1), "exit code 2 blocks the agent"
    text = output.decode("utf-8")
    if event in PLAIN:
        assert len(text) <= LIMIT
        assert not text.lstrip().startswith("{"), "JSON would be pasted into the summariser's instructions"
        return {"plain": text}
    if not text:
        return {}
    assert code == 0, "an answer is read only with exit code 0"
    assert event in CONTEXT, f"{event} takes no answer"
    answer = json.loads(text)
    assert isinstance(answer, dict)
    assert answer.get("continue") is True, "the agent goes on"
    assert "decision" not in answer
    assert isinstance(answer.get("systemMessage", ""), str)
    specific = answer.get("hookSpecificOutput")
    if specific is not None:
        assert specific.get("hookEventName") == event, "the client refuses it otherwise"
        told = specific.get("additionalContext", "")
        assert isinstance(told, str)
        assert len(told) <= LIMIT
        assert specific.get("permissionDecision", "ask") == "ask", "we neither allow nor deny"
    return answer
