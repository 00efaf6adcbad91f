"""Codex rollout entries as turns."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from keepfast.agents import shell_views as shell
from keepfast.agents.turns import (
    AGENT,
    BESIDE,
    EDIT,
    OTHER,
    RUN,
    TODO,
    Call,
    Turn,
    clip,
    clip_input,
    clip_output,
)

if TYPE_CHECKING:
    from keepfast.agents.transcript import Conversation

NAME = "codex"
TYPES = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
ACTS = {
    "shell": RUN,
    "local_shell": RUN,
    "exec_command": RUN,
    "apply_patch": EDIT,
    "update_plan": TODO,
    "spawn_agent": AGENT,
}
# What the client writes into the person's place: its own elements have an underscore in their names.
NOT_ASKED = re.compile(r"\s*(?:<[a-z]+(?:_[a-z]+)+\b|<permissions|<skill>|<INSTRUCTIONS|# AGENTS\.md)")
REQUEST = "## My request for Codex:"
"""The person's own words follow this line, if an editor first lists open files."""
EXIT = re.compile(r"(?:Process exited with code|Exit code:) (\d+)")
OUTPUT = re.compile(r"\nOutput:\n", re.S)
PATCHED = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$")
MOVED = "*** Move to: "


def is_ours(entry: dict[str, Any]) -> bool:
    return entry.get("type") in TYPES and isinstance(entry.get("payload"), dict)


def take(conversation: Conversation, entry: dict[str, Any]) -> None:
    """Add one entry."""
    payload = entry["payload"]
    kind = entry["type"]
    at = str(entry.get("timestamp") or "")
    conversation.started = conversation.started or at
    conversation.ended = at or conversation.ended
    if kind in ("session_meta", "turn_context"):
        conversation.session = conversation.session or str(payload.get("id") or "")
        conversation.cwd = conversation.cwd or str(payload.get("cwd") or "")
        conversation.model = str(payload.get("model") or conversation.model)
        git = payload.get("git")
        if isinstance(git, dict):
            conversation.branch = str(git.get("branch") or conversation.branch)
    elif kind == "compacted":
        conversation.compactions += 1
        _add(conversation, "compacted", str(payload.get("message") or ""), at)
    elif kind == "response_item":
        _item(conversation, payload, at)


def _add(conversation: Conversation, kind: str, text: str, at: str) -> Turn:
    turn = Turn(kind, text, at, conversation.calls, conversation.line)
    conversation.turns.append(turn)
    return turn


def _item(conversation: Conversation, payload: dict[str, Any], at: str) -> None:
    kind = payload.get("type")
    if kind == "message":
        text = _text(payload.get("content"))
        role = payload.get("role")
        if role == "assistant" and text.strip():
            _add(conversation, "said", clip(text, "said"), at)
        elif role == "user" and not NOT_ASKED.match(text):
            text = BESIDE.sub("", text).strip()
            words = text.partition(REQUEST)[2].strip() or text
            if words:
                _add(conversation, "asked", clip(words, "asked"), at)
    elif kind == "reasoning":
        text = _text(payload.get("summary")) or _text(payload.get("content"))
        if text.strip():
            _add(conversation, "thought", clip(text, "thought"), at)
    elif kind in ("function_call", "custom_tool_call", "local_shell_call"):
        _begin(conversation, payload, at)
    elif kind in ("function_call_output", "custom_tool_call_output"):
        call = conversation.open_calls.get(str(payload.get("call_id")))
        if call is not None and not call.done:
            _end(conversation, call, payload.get("output"))


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join([str(block["text"]) for block in blocks if isinstance(block, dict) and "text" in block])


def _begin(conversation: Conversation, payload: dict[str, Any], at: str) -> None:
    identity = str(payload.get("call_id") or "")
    if not identity or identity in conversation.open_calls:
        return
    name = str(payload.get("name") or "local_shell")
    raw = payload.get("arguments", payload.get("input"))
    try:
        arguments = json.loads(raw) if isinstance(raw, str) else {}
    except ValueError:
        arguments = {"input": raw}
    if not isinstance(arguments, dict):
        arguments = {"input": raw}
    command = arguments.get("cmd", arguments.get("command"))
    act = ACTS.get(name, OTHER)
    if isinstance(command, list):
        words = [str(word) for word in command]
        if words[:1] == ["apply_patch"] and len(words) > 1:
            act, arguments = EDIT, {"input": words[1]}
        command = words[-1] if len(words) == 3 and words[1] in ("-lc", "-c") else " ".join(words)
    if isinstance(command, str):
        arguments["command"] = command
        if command.lstrip().startswith("apply_patch"):
            act, arguments["input"] = EDIT, command
    if name == "update_plan" and isinstance(arguments.get("plan"), list):
        arguments = {
            "todos": [
                {"content": str(step.get("step", "")), "status": str(step.get("status", ""))}
                for step in arguments["plan"]
                if isinstance(step, dict)
            ]
        }
    conversation.calls += 1
    call = Call(identity, name, act, conversation.calls, clip_input(arguments))
    if act == EDIT:
        call.patch = arguments.get("input")
    turn = _add(conversation, "call", "", at)
    turn.call = call
    conversation.open_calls[identity] = call


def _end(conversation: Conversation, call: Call, output: object) -> None:
    text = output if isinstance(output, str) else _text(output)
    failed = False
    if text.startswith("{"):
        try:
            inner = json.loads(text)
        except ValueError:
            inner = None
        if isinstance(inner, dict):
            text = str(inner.get("output", text))
            about = inner.get("metadata")
            failed = isinstance(about, dict) and bool(about.get("exit_code"))
    exited = EXIT.search(text[:600])
    failed = failed or bool(exited and exited[1] != "0")
    parts = OUTPUT.split(text, 1)
    text = parts[1] if len(parts) == 2 else text
    call.done, call.failed, call.output = True, failed, clip_output(text)
    if failed:
        return
    if call.act == RUN:
        folder = call.input.get("workdir")
        shell.take(
            conversation.files, call, text, folder if isinstance(folder, str) else conversation.cwd, conversation.keep
        )
    elif call.act == EDIT:
        patch, call.patch = call.patch, None
        if isinstance(patch, str):
            _apply(conversation, call, patch)


def _apply(conversation: Conversation, call: Call, patch: str) -> None:
    """Apply a patch of Codex's own form to what is known of its files."""
    path, kind, body = "", "", []
    for line in [*patch.split("\n"), "*** End Patch"]:
        if not line.startswith("*** "):
            body.append(line)
            continue
        if path:
            _apply_one(conversation, call, kind, path, body)
        match = PATCHED.match(line)
        if match:
            kind, path, body = match[1], _absolute(match[2].strip(), conversation.cwd), []
        elif line.startswith(MOVED) and path:
            target = _absolute(line[len(MOVED) :].strip(), conversation.cwd)
            conversation.files.rename(call.number, path, target)
            path = target
        elif line.startswith("*** End Patch"):
            path = ""


def _apply_one(conversation: Conversation, call: Call, kind: str, path: str, body: list[str]) -> None:
    call.path = call.path or path
    if kind == "Add":
        conversation.files.write(call.number, path, "\n".join([line[1:] for line in body if line.startswith("+")]), [])
    elif kind == "Delete":
        conversation.files.drop(path)
    else:
        pairs: list[tuple[str, str, bool]] = []
        for hunk in "\n".join(body).split("\n@@"):
            lines = [line for line in hunk.split("\n") if not line.startswith("@@")]
            if hunk and not hunk.startswith("@@"):
                lines = lines[1:] if pairs or body[0].startswith("@@") else lines
            old = [line[1:] for line in lines if line[:1] in (" ", "-")]
            new = [line[1:] for line in lines if line[:1] in (" ", "+")]
            if old or new:
                pairs.append(("\n".join(old), "\n".join(new), False))
        if pairs:
            call.old, call.new = pairs[0][:2]
            conversation.files.edit(call.number, path, None, pairs, [])


def _absolute(path: str, cwd: str) -> str:
    return path if path.startswith("/") or not cwd else f"{cwd.rstrip('/')}/{path}"
