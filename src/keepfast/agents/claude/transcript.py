"""Claude Code's transcript entries as turns."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from keepfast.agents import shell_views as shell
from keepfast.agents.turns import (
    AGENT,
    ASK,
    BESIDE,
    EDIT,
    OTHER,
    PLAN,
    READ,
    RUN,
    SEARCH,
    TASK,
    TODO,
    WRITE,
    Call,
    MessageSize,
    Turn,
    clip,
    clip_input,
    clip_output,
)
from keepfast.model.frozen import FORMER_COMMANDS
from keepfast.secrets.cuts import head

if TYPE_CHECKING:
    from keepfast.agents.transcript import Conversation

NAME = "claude-code"
TYPES = frozenset(
    "user assistant system summary attachment progress file-history-snapshot queue-operation last-prompt mode "
    "permission-mode ai-title custom-title".split()
)
ACTS = {
    "Read": READ,
    "NotebookRead": READ,
    "Edit": EDIT,
    "MultiEdit": EDIT,
    "NotebookEdit": EDIT,
    "Write": WRITE,
    "Grep": SEARCH,
    "Glob": SEARCH,
    "Bash": RUN,
    "BashOutput": OTHER,
    "ExitPlanMode": PLAN,
    "AskUserQuestion": ASK,
    "TodoWrite": TODO,
    "TaskCreate": TASK,
    "TaskUpdate": TASK,
    "Task": AGENT,
    "Agent": AGENT,
}
# Texts that the client writes in a person's name, although no person said them.
NOT_ASKED = re.compile(
    r"<(?:local-command|bash|task|system|background|teammate|agent|session)-[a-z-]+"
    r"|<[a-z-]+-(?:notification|hook|reminder|message|diagnostics|output)\b"
    r"|Caveat:|\[Request interrupted|This session is being continued from a previous conversation|Stop hook feedback:"
    r"|Operation stopped by hook|The user wants to clarify these questions"
)
CAVEAT = re.compile(r"\s*<local-command-caveat>.*?</local-command-caveat>", re.S)
"""The client's notice before or after a command that was run without the model."""
COMMAND = re.compile(r"<command-name>(.*?)</command-name>", re.S)
SHELL_INPUT = re.compile(r"\s*<bash-input>(.+?)</bash-input>", re.S)
ARGUMENTS = re.compile(r"<command-args>(.*?)</command-args>", re.S)
SKILL_FOLDER = re.compile(r"\s*Base directory for this skill: [^\n]*\n*")
MAX_BODY_LENGTH = 4_000
TYPED = re.compile(r"/[a-z][\w:-]*(?:\s|$)")
REFUSED = re.compile(r"the user said:\n(.+?)(?:\n+Note: The user's next message|\Z)", re.S)
MIN_WORDS = 3
# Commands of the client itself, which are no part of the work.
OUR_COMMANDS = ("/keepfast:", FORMER_COMMANDS)
"""Prefixes of our own plugin's commands, which are no prompts either."""
OWN_COMMANDS = frozenset(
    "/clear /compact /model /cost /context /exit /resume /config /login /help /mcp /usage /status /plugin /hooks "
    "/permissions /rewind /copy /quit /bug /feedback /terminal-setup /statusline /ide /add-dir /bashes /tasks /todos "
    "/export /memory /agents /vim /theme /doctor /release-notes /fast /effort /rename".split()
)
TITLES = {"ai-title": "aiTitle", "custom-title": "customTitle"}
LARGE_OUTPUT = 3_000
KEPT_MEASURES = 200
MAX_HITS = 20_000


def is_ours(entry: dict[str, Any]) -> bool:
    return entry.get("type") in TYPES


def take(conversation: Conversation, entry: dict[str, Any]) -> None:
    """Add one entry."""
    kind = entry.get("type")
    side = bool(entry.get("isSidechain"))
    prompt = _place(conversation, entry, kind, side)
    if prompt is None or prompt in conversation.dead:
        return
    _facts(conversation, entry, side)
    if kind == "assistant":
        _assistant(conversation, entry, prompt, side)
    elif kind == "user":
        _user(conversation, entry, prompt, side)
    elif kind == "system" and entry.get("subtype") == "compact_boundary":
        conversation.compactions += 1
        _add(conversation, entry, "compacted", "", prompt, side)
    elif kind == "queue-operation" and entry.get("operation") == "enqueue":
        _queued(conversation, entry, prompt)
    elif kind == "attachment":
        attached = entry.get("attachment")
        if isinstance(attached, dict) and _is_queued(attached):
            _queued(conversation, {**entry, "content": attached.get("prompt")}, prompt)
    elif kind in TITLES:
        title = entry.get(TITLES[kind])
        conversation.title = title if isinstance(title, str) else conversation.title


def _is_queued(attached: dict[str, Any]) -> bool:
    return attached.get("type") == "queued_command" and attached.get("commandMode", "prompt") == "prompt"


def _place(conversation: Conversation, entry: dict[str, Any], kind: object, side: bool) -> int | None:
    """Return the prompt that the entry belongs to by its parent links; None for an entry that was there already."""
    uuid = entry.get("uuid")
    if not isinstance(uuid, str):
        return conversation.current
    if uuid in conversation.prompt_of:
        return None
    parent = entry.get("parentUuid") or entry.get("logicalParentUuid")
    prompt = conversation.prompt_of.get(parent, conversation.current) if parent else conversation.current
    if kind == "user" and not side and any(_asked(entry)):
        conversation.before.append(prompt)
        prompt = len(conversation.before) - 1
    conversation.prompt_of[uuid] = prompt
    if not side:
        conversation.current = prompt
    return prompt


NO_BRANCH = ("branch", "HEAD")
"""What the client reports outside of git, or if no branch is checked out."""


def _facts(conversation: Conversation, entry: dict[str, Any], side: bool) -> None:
    if side:
        return
    for name, key in (("session", "sessionId"), ("branch", "gitBranch")):
        value = entry.get(key)
        if isinstance(value, str) and value:
            setattr(conversation, name, "" if (name, value) == NO_BRANCH else value)
    folder = entry.get("cwd")
    if isinstance(folder, str) and folder and not conversation.cwd:
        conversation.cwd = folder
    at = entry.get("timestamp")
    if isinstance(at, str) and at:
        conversation.started = conversation.started or at
        conversation.ended = at


def _add(conversation: Conversation, entry: dict[str, Any], kind: str, text: str, prompt: int, side: bool) -> Turn:
    at = entry.get("timestamp")
    turn = Turn(
        kind, text, at if isinstance(at, str) else "", conversation.calls, conversation.line, prompt=prompt, side=side
    )
    conversation.turns.append(turn)
    return turn


def _assistant(conversation: Conversation, entry: dict[str, Any], prompt: int, side: bool) -> None:
    message = entry.get("message")
    if not isinstance(message, dict):
        return
    model = message.get("model")
    if isinstance(model, str) and not model.startswith("<") and not side:
        conversation.model = model
    if not side:
        _measure(conversation, message)
    content = message.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    for block in content if isinstance(content, list) else []:
        if not isinstance(block, dict):
            continue
        kind = block.get("type")
        if kind == "text" and str(block.get("text", "")).strip():
            if not entry.get("isApiErrorMessage"):
                _add(conversation, entry, "said", clip(str(block["text"]), "said"), prompt, side)
        elif kind == "thinking" and str(block.get("thinking", "")).strip():
            _add(conversation, entry, "thought", clip(str(block["thinking"]), "thought"), prompt, side)
        elif kind == "tool_use" and isinstance(block.get("id"), str) and block["id"] not in conversation.open_calls:
            _begin(conversation, entry, block, prompt, side)


def _begin(conversation: Conversation, entry: dict[str, Any], block: dict[str, Any], prompt: int, side: bool) -> None:
    arguments = block.get("input")
    if not side:
        conversation.calls += 1
    name = str(block.get("name", ""))
    call = Call(
        id=block["id"],
        name=name,
        act=ACTS.get(name, OTHER),
        number=conversation.calls,
        input=clip_input(arguments) if isinstance(arguments, dict) else {},
    )
    path = call.input.get("file_path") or call.input.get("notebook_path")
    call.path = path if isinstance(path, str) else ""
    turn = _add(conversation, entry, "call", "", prompt, side)
    turn.call = call
    conversation.open_calls[call.id] = call


def _measure(conversation: Conversation, message: dict[str, Any]) -> None:
    """Record how many tokens one large tool output added to the request, by the client's own count."""
    usage = message.get("usage")
    if not isinstance(usage, dict):
        return
    newest, wrote = conversation.newest, usage.get("output_tokens") or 0
    if message.get("id") == newest.message:
        # The count of written tokens grows from line to line of one message.
        newest.wrote = max(wrote, newest.wrote)
        return
    parts = [usage.get(key) or 0 for key in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")]
    filled = sum(part for part in parts if isinstance(part, int))
    if newest.filled and newest.outputs == 1 and newest.output_characters >= LARGE_OUTPUT:
        grown = filled - newest.filled - newest.wrote
        if newest.output_characters / 8 < grown < newest.output_characters:
            conversation.measured.append((newest.output_characters, grown))
            del conversation.measured[:-KEPT_MEASURES]
    conversation.newest = MessageSize(message.get("id"), filled, wrote)


def _user(conversation: Conversation, entry: dict[str, Any], prompt: int, side: bool) -> None:
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if entry.get("isCompactSummary"):
        _add(conversation, entry, "summary", clip(_text(content), "summary"), prompt, side)
        return
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict) and block.get("type") == "tool_result":
            call = conversation.open_calls.get(block.get("tool_use_id", ""))
            if call is not None and not call.done:
                _end(conversation, call, block, entry, prompt, side)
    if not side:
        if entry.get("isMeta"):
            _expand(conversation, _text(content) if isinstance(content, list) else content)
        typed = SHELL_INPUT.match(content) if isinstance(content, str) else None
        if typed is not None:  # the person's own command, which names a session in which nothing else was asked
            conversation.title = conversation.title or f"! {clip(typed[1].strip(), 'asked')}"
        command, text = _asked(entry)
        if command:
            _add(conversation, entry, "command", clip(command, "asked"), prompt, False)
        if text:
            _ask(conversation, entry, text, prompt)


def _expand(conversation: Conversation, body: object) -> None:
    """Take the text that a command stands for, which the client writes right after the command."""
    last = conversation.turns[-1] if conversation.turns else None
    if last is None or last.kind != "command" or last.body or not isinstance(body, str):
        return
    if not NOT_ASKED.match(body.lstrip()):
        last.body = head(SKILL_FOLDER.sub("", body), MAX_BODY_LENGTH)


def _ask(conversation: Conversation, entry: dict[str, Any], text: str, prompt: int) -> None:
    text = clip(text, "asked")
    queued = conversation.queued
    if queued is not None and queued[0] == text and queued[1] >= len(conversation.turns) - 400:
        conversation.queued = None
        return
    _add(conversation, entry, "asked", text, prompt, False)


def _queued(conversation: Conversation, entry: dict[str, Any], prompt: int) -> None:
    content = entry.get("content")
    # Background work reports here, as JSON.
    if not isinstance(content, str) or content.lstrip().startswith("{"):
        return
    command, text = spoken(content)
    if command:
        _add(conversation, entry, "command", clip(command, "asked"), prompt, False)
    queued = conversation.queued
    if text and not (queued is not None and queued[0] == clip(text, "asked")):
        _add(conversation, entry, "asked", clip(text, "asked"), prompt, False)
        conversation.queued = (clip(text, "asked"), len(conversation.turns))


def _asked(entry: dict[str, Any]) -> tuple[str, str]:
    """Return the command and the person's own words in a user entry; most have neither."""
    if entry.get("isMeta") or entry.get("isCompactSummary") or entry.get("isVisibleInTranscriptOnly"):
        return "", ""
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return spoken(content)
    if not isinstance(content, list):
        return "", ""
    if any(isinstance(block, dict) and block.get("type") == "tool_result" for block in content):
        return "", ""
    parts = [spoken(str(block.get("text", ""))) for block in content if isinstance(block, dict)]
    commands, texts = [command for command, _ in parts if command], [text for _, text in parts if text]
    return " ".join(commands), "\n".join(texts)


def spoken(text: str) -> tuple[str, str]:
    """Return the command and the words. A command is no prompt, but what a person writes after it may be one."""
    if "<" in text:
        text = CAVEAT.sub("", BESIDE.sub("", text))
    text = text.strip()
    if text.startswith("<command-"):
        name, arguments = COMMAND.search(text), ARGUMENTS.search(text)
        text = f"{name[1].strip() if name else ''} {arguments[1].strip() if arguments else ''}".strip()
        text = text if text.startswith("/") else f"/{text}"
    if TYPED.match(text):
        words, _, rest = text.partition(" ")
        if words in OWN_COMMANDS or words.startswith(OUR_COMMANDS):
            return "", ""
        return text, rest.strip() if len(rest.split()) >= MIN_WORDS else ""
    return "", "" if NOT_ASKED.match(text) or _is_notice(text) else text


def _is_notice(text: str) -> bool:
    """Return whether the text is one JSON object and nothing else: a report of a background program, not a prompt of a person."""
    if not (text.startswith("{") and text.endswith("}")):
        return False
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = []
    for block in content:
        if isinstance(block, dict) and block.get("type") == "text":
            parts.append(str(block.get("text", "")))
    return "\n".join(parts)


def _end(
    conversation: Conversation, call: Call, block: dict[str, Any], entry: dict[str, Any], prompt: int, side: bool
) -> None:
    """Record a call's result and what it says about files."""
    output = _text(block.get("content"))
    call.done = True
    call.failed = bool(block.get("is_error"))
    call.output = clip_output(output)
    if not side:
        conversation.newest.output_characters += len(output)
        conversation.newest.outputs += 1
    result = entry.get("toolUseResult")
    if call.failed:
        refused = REFUSED.search(output)
        if refused and not side and not NOT_ASKED.match(refused[1].lstrip()):
            _add(conversation, entry, "asked", clip(refused[1].strip(), "asked"), prompt, False)
        return
    facts: dict[str, Any] = result if isinstance(result, dict) else {}
    if call.act == READ:
        _seen(conversation, call, facts)
    elif call.act == EDIT:
        _edited(conversation, call, facts)
    elif call.act == WRITE:
        content = facts.get("content", call.input.get("content"))
        if call.path and isinstance(content, str):
            call.new = content
            conversation.files.write(call.number, call.path, content, _list(facts.get("structuredPatch")))
    elif call.act == RUN:
        shell.take(conversation.files, call, output, conversation.cwd, conversation.keep)
    elif call.act in (SEARCH, ASK, TASK):
        call.answers, call.task, hits = facts.get("answers"), facts.get("task"), facts.get("content")
        call.hits = hits[:MAX_HITS] if isinstance(hits, str) else ""


def _seen(conversation: Conversation, call: Call, facts: dict[str, Any]) -> None:
    file = facts.get("file")
    if not isinstance(file, dict):
        return
    path = file.get("filePath")
    if not isinstance(path, str):
        return
    call.path = path
    content = file.get("content")
    if not isinstance(content, str) or facts.get("type", "text") != "text":
        conversation.files.touch(call.number, path)
        return
    lines = content.split("\n")
    call.start = _whole(file.get("startLine"), 1)
    call.total = _whole(file.get("totalLines"), len(lines))
    if conversation.keep:
        call.shown_lines = lines
    conversation.files.read(call.number, path, call.start, lines, call.total)


def _edited(conversation: Conversation, call: Call, facts: dict[str, Any]) -> None:
    path = facts.get("filePath") or call.path
    if not isinstance(path, str) or not path:
        return
    call.path = path
    if call.name == "NotebookEdit":
        conversation.files.touch(call.number, path, edited=True)
        return
    edits = facts.get("edits") or call.input.get("edits")
    if isinstance(edits, list):
        pairs = [
            (str(edit.get("old_string", "")), str(edit.get("new_string", "")), bool(edit.get("replace_all")))
            for edit in edits
            if isinstance(edit, dict)
        ]
    else:
        old = facts.get("oldString", call.input.get("old_string"))
        new = facts.get("newString", call.input.get("new_string"))
        pairs = [(str(old or ""), str(new or ""), bool(facts.get("replaceAll", call.input.get("replace_all"))))]
    call.old, call.new = pairs[0][:2] if pairs else ("", "")
    conversation.files.edit(call.number, path, facts.get("originalFile"), pairs, _list(facts.get("structuredPatch")))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _whole(value: object, default: int) -> int:
    return value if isinstance(value, int) and value > 0 else default
