"""Hooks of Claude Code: read a payload as an event, and write the answer that the client accepts for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keepfast.agents.base import Reply
from keepfast.model.agent_event import (
    COMPACTION_STARTS,
    OTHER,
    PROMPT,
    SESSION_ENDS,
    SESSION_STARTS,
    SUBAGENT_ENDED,
    TOOL_ENDED,
    TOOL_STARTS,
    TURN_ENDED,
    TURN_FAILED,
    AgentEvent,
)
from keepfast.model.strict_json import dumps, load_truncated, loads

NAME = "claude-code"

KINDS = {
    "SessionStart": SESSION_STARTS,
    "SessionEnd": SESSION_ENDS,
    "UserPromptSubmit": PROMPT,
    "PreToolUse": TOOL_STARTS,
    "PostToolUse": TOOL_ENDED,
    "PostToolUseFailure": TOOL_ENDED,
    "PostToolBatch": TOOL_ENDED,
    "Stop": TURN_ENDED,
    "StopFailure": TURN_FAILED,
    "PreCompact": COMPACTION_STARTS,
    "SubagentStop": SUBAGENT_ENDED,
}
CONTEXT_EVENTS = (
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
)
"""Events whose `additionalContext` reaches the model at no cost. On Stop it would start another turn of the model; on
PreCompact, SessionEnd and the rest `hookSpecificOutput` is refused."""
SHELLS = ("Bash", "PowerShell")
ASKING_MODES = ("default", "acceptEdits")
"""Permission modes in which a question of ours reaches a person."""
READ_ONLY_TOOLS = frozenset(
    (
        "Agent", "AskUserQuestion", "BashOutput", "EnterPlanMode", "ExitPlanMode", "Glob", "Grep", "KillShell", "LS",
        "ListMcpResourcesTool", "Monitor", "NotebookRead", "Read", "ReadMcpResourceTool", "SendMessage", "SlashCommand",
        "Task", "TaskCreate", "TaskGet", "TaskList", "TaskOutput", "TaskStop", "TaskUpdate", "TodoWrite", "ToolSearch",
        "WebFetch", "WebSearch",
    )
)  # fmt: skip
"""Tools that change no file themselves; what a subagent does comes with events of its own."""

LARGE, HEAD = 64 << 10, 32 << 10
"""The payload of a Write of 3 MB has 3 MB before and 6 MB after the tool ran. All fields that we need are in its first lines."""
MAX_CONTEXT_CHARACTERS = 9_900
"""Above 10,000 characters the client gives the model a file name instead of the text."""
MAX_TEXT_CHARACTERS, MAX_PATHS = 4_000, 200


def read(payload: bytes, environment: Mapping[bytes, bytes]) -> AgentEvent:
    """Return the event. Raises `ValueError` if the payload is not a JSON object."""
    fields = _members(payload)
    name = _text(fields.get("hook_event_name"))
    event = AgentEvent(NAME, KINDS.get(name, OTHER), name)
    event.session = _whole(fields.get("session_id"))
    event.transcript = _path(fields.get("transcript_path"))
    event.cwd = _path(fields.get("cwd")).encode("utf-8", "surrogateescape")
    event.subagent, event.subagent_kind = _whole(fields.get("agent_id")), _whole(fields.get("agent_type"))
    event.model = _whole(fields.get("model"))
    event.reason = _whole(fields.get("source") or fields.get("reason") or fields.get("error") or fields.get("trigger"))
    event.prompt = _whole(fields.get("prompt"))
    event.last_answer = _whole(fields.get("last_assistant_message"))
    tokens = fields.get("context_tokens")
    event.context_tokens = tokens if type(tokens) is int else 0
    _read_tool(event, fields)
    pid = environment.get(b"CLAUDE_PID", b"")
    event.client = int(pid) if pid.isdigit() and len(pid) < 10 else 0
    # The client sets this for the hooks of a plugin alone; and only the plugin brings commands.
    event.slash = "/keepfast:" if environment.get(b"CLAUDE_PLUGIN_ROOT") else ""
    event.project = _path(environment.get(b"CLAUDE_PROJECT_DIR", b"").decode("utf-8", "surrogateescape")).encode(
        "utf-8", "surrogateescape"
    )
    # In other modes a question is answered by the client itself, or throws the user out of the mode; without a terminal
    # nobody sees it.
    at_a_terminal = not environment.get(b"CLAUDE_CODE_ENTRYPOINT", b"").startswith(b"sdk")
    # Older clients do not set this variable; `-p` and the SDK name themselves in all versions.
    attended = environment.get(b"CLAUDE_CODE_SESSION_ATTENDED", b"")
    event.attended = attended != b"0" if attended else at_a_terminal
    event.can_ask = event.attended and at_a_terminal and fields.get("permission_mode") in ASKING_MODES
    return event


def answer(event: AgentEvent, reply: Reply) -> tuple[bytes, int]:
    """Return the bytes for standard output and the exit code, which is 1 where something failed; 2 would block."""
    code = 1 if reply.failed else 0
    agent_text = reply.agent_text[:MAX_CONTEXT_CHARACTERS]
    if event.name == "PreCompact":
        # Plain text: even a valid JSON answer would be pasted into the summariser's instructions as it stands.
        return agent_text.encode("utf-8", "replace"), code
    if event.name not in CONTEXT_EVENTS:
        return b"", code
    response: dict[str, object] = {}
    if reply.user_text:
        response["systemMessage"] = reply.user_text[:MAX_CONTEXT_CHARACTERS]
    specific: dict[str, object] = {}
    if agent_text:
        specific["additionalContext"] = agent_text
    if event.name == "PreToolUse":
        if reply.budget:
            specific.update(checkpoint=reply.checkpoint or None, message=reply.budget, warning=reply.warning)
        if reply.ask:
            specific.update(permissionDecision="ask", permissionDecisionReason=reply.ask)
        elif reply.deny:
            specific.update(permissionDecision="deny", permissionDecisionReason=reply.deny)
    if specific:
        response["hookSpecificOutput"] = {"hookEventName": event.name, **specific}
    if not response:
        return b"", code
    # The client reads the answer only where the exit code is 0.
    return dumps({"continue": True, **response}).encode("ascii") + b"\n", 0


def _members(payload: bytes) -> dict[str, Any]:
    if len(payload) > LARGE:
        fields = load_truncated(payload[:HEAD].decode("utf-8", "ignore"), "tool_input")
        tool, name = _text(fields.get("tool_name")), _text(fields.get("hook_event_name"))
        if tool and tool not in SHELLS and name in KINDS:
            return fields
    fields = loads(payload)
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    return fields


def _read_tool(event: AgentEvent, fields: dict[str, Any]) -> None:
    event.tool = _text(fields.get("tool_name"))
    event.writes = event.kind in (TOOL_STARTS, TOOL_ENDED) and event.tool not in READ_ONLY_TOOLS
    event.call = _whole(fields.get("tool_use_id"))
    tool_input = fields.get("tool_input")
    if event.tool in SHELLS and isinstance(tool_input, dict):
        event.command = _text(tool_input.get("command"))
    if event.kind not in (TOOL_STARTS, TOOL_ENDED):
        return
    calls = fields.get("tool_calls")
    paths: list[str] = []
    for call in calls[:MAX_PATHS] if isinstance(calls, list) else [fields]:
        if isinstance(call, dict):
            paths += _paths(call)
    event.paths = tuple(dict.fromkeys(paths[:MAX_PATHS]))


def _paths(call: dict[str, Any]) -> list[str]:
    """Return the paths that a call wrote or read, each after `w ` or `r `."""
    mark = "r " if _text(call.get("tool_name")) in READ_ONLY_TOOLS else "w "
    tool_input, result = call.get("tool_input"), call.get("tool_response")
    candidates: list[object] = []
    if isinstance(tool_input, dict):
        candidates = [tool_input.get("file_path"), tool_input.get("notebook_path")]
    if isinstance(result, dict) and isinstance(result.get("bashEditDiff"), dict):
        # A hint and no more: only newer clients have it, and only in git repositories.
        changed = result["bashEditDiff"].get("changedFiles")
        candidates += changed[:MAX_PATHS] if isinstance(changed, list) else []
    return [mark + path for path in map(_path, candidates) if path and "\n" not in path]


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: object) -> str:
    """Return the text as it can be stored: bounded, and without lone surrogates."""
    text = _text(value)[:MAX_TEXT_CHARACTERS]
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text


def _path(value: object) -> str:
    """Return an absolute path that the kernel would accept, or ""."""
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        return ""
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return ""
    return value
