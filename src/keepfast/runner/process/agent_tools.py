"""The MCP server for a supervised agent: its tools do the same as the blocks in its text.

Run as `python -I -m keepfast.runner.process.agent_tools FOLDER NAME…`. A call is checked, appended to the run's journal and
answered; the supervisor reads the journal. Nothing else is touched: no database, no network. With `--failure` it records the
input of the client's StopFailure hook. The values of the named variables, and everything that looks like a secret, are redacted.
"""

from __future__ import annotations

import json
import os
import sys
from typing import IO, Any, NamedTuple

from keepfast.runner.domain.protocol import Malformed, check
from keepfast.runner.process.filter import MARK
from keepfast.runner.process.redaction import clean
from keepfast.runner.process.spellings import forms

PROTOCOLS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
MAX_FILE_BYTES = 8 << 20
WORDS = {"type": "string"}
END = "Recorded. End your turn now; the answer comes with your next prompt."


def _tool(description: str, required: list[str], /, **properties: Any) -> dict[str, Any]:
    return {
        "description": description,
        "inputSchema": {"type": "object", "properties": properties, "required": required},
    }


class Tool(NamedTuple):
    """A tool: the block that a call stands for, the block's fields by argument, the answer, and its entry in `tools/list`."""

    block: str
    names: dict[str, str]
    answer: str
    listed: dict[str, Any]


TOOLS: dict[str, Tool] = {
    "phase_complete": Tool(
        "PHASE_COMPLETE", {"phase": "phase", "evidence": "summary", "files": "files"},
        "Recorded. End your turn now; the phase is verified and reviewed.",
        _tool("Report that the phase is complete, with evidence.", ["phase"], phase={"type": "integer"}, evidence=WORDS,
              files={"type": "array", "items": WORDS}),
    ),
    "ask_user": Tool(
        "USER_QUESTION",
        {"question": "question", "category": "category", "options": "options", "default": "default", "required": "required"},
        END,
        _tool("Ask a person something that only a person can decide.", ["question"], question=WORDS, default=WORDS,
              category={"enum": ["business", "clarification", "choice", "confirmation"]},
              options={"type": "array", "items": WORDS}, required={"type": "boolean"}),
    ),
    "request_secret": Tool(
        "DEPENDENCY_REQUEST", {"name": "name", "description": "description", "type": "type", "required": "required"},
        "Recorded. End your turn now; the value is in your environment when you are started again.",
        _tool("Ask for a value that you need as an environment variable.", ["name"], name=WORDS, description=WORDS,
              type={"enum": ["api_key", "env_variable", "service", "file", "permission", "package"]},
              required={"type": "boolean"}),
    ),
    "report_error": Tool(
        "ERROR", {"type": "type", "message": "message", "details": "details", "recovery": "recovery"},
        "Recorded. End your turn now.",
        _tool("Report an error that stops you.", ["type", "message"], type={"enum": ["recoverable", "fatal"]}, message=WORDS,
              details=WORDS, recovery={"enum": ["pause_and_retry", "checkpoint_and_fail", "notify_user"]}),
    ),
    "report_progress": Tool(
        "PROGRESS", {"step": "step", "percent": "percent", "message": "message"}, "Recorded. Go on.",
        _tool("Report what you are doing and how far the phase is.", [], step=WORDS, percent={"type": "number"}, message=WORDS),
    ),
}  # fmt: skip
DEFAULTS = {"DEPENDENCY_REQUEST": {"type": "env_variable"}}


def call(folder: str, name: str, arguments: dict[str, Any], hidden: list[bytes] | None = None) -> tuple[str, bool]:
    """Record a call; return the answer for the agent, and whether the call was refused."""
    if name not in TOOLS:
        return f"There is no tool {name!r}.", True
    block, names, answer, _ = TOOLS[name]
    fields: dict[str, str] = dict(DEFAULTS.get(block, {}))
    lists: dict[str, list[str]] = {}
    for key, value in arguments.items():
        if key not in names:
            return f"There is no argument {key!r}.", True
        if isinstance(value, list):
            lists[names[key]] = [str(item) for item in value]
        elif isinstance(value, bool):
            fields[names[key]] = "true" if value else "false"
        elif value is not None:
            fields[names[key]] = str(value)
    checked = check(block, fields, lists)
    if isinstance(checked, Malformed):
        return checked.why, True
    _append(f"{folder}/tools.jsonl", {"name": block, "fields": checked.fields, "lists": checked.lists}, hidden or [])
    return answer, False


def note_failure(folder: str, source: IO[bytes], hidden: list[bytes]) -> None:
    """Record what the client reports about a failed turn."""
    try:
        facts = json.loads(source.read(MAX_FILE_BYTES))
    except (ValueError, RecursionError):
        return
    if isinstance(facts, dict):
        _append(f"{folder}/failures.jsonl", facts, hidden)


def values_of(names: list[str]) -> list[bytes]:
    """Return every spelling of these variables' values, from our environment and from the client's, which may not pass them on."""
    environment: dict[str, str] = {}
    for process in ("self", str(os.getppid())):
        try:
            with open(f"/proc/{process}/environ", "rb") as file:
                parts = file.read().decode("utf-8", "surrogateescape").split("\0")
        except OSError:
            continue
        for name, _, value in [part.partition("=") for part in parts]:
            environment.setdefault(name, value)
    return forms([environment[name] for name in names if environment.get(name)])


def _append(path: str, value: dict[str, Any], hidden: list[bytes]) -> None:
    line = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    for form in hidden:
        line = line.replace(form, MARK)
    try:
        line = json.dumps(clean(json.loads(line)), ensure_ascii=False).encode("utf-8", "replace")
    except ValueError:
        line = b"{}"  # the replaced value was a part of the JSON syntax
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, line + b"\n")
        os.fsync(fd)
    finally:
        os.close(fd)


def serve(folder: str, requests: IO[bytes], answers: IO[bytes], hidden: list[bytes] | None = None) -> None:
    """Answer requests until the client closes its end."""
    for line in requests:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(request, dict) or "id" not in request:
            continue
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            answer["result"] = _result(folder, str(request.get("method")), request.get("params") or {}, hidden or [])
        except LookupError as error:
            answer["error"] = {"code": -32601, "message": str(error)}
        except (OSError, TypeError, ValueError, AttributeError) as error:
            answer["error"] = {"code": -32603, "message": str(error)}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def _result(folder: str, method: str, parameters: dict[str, Any], hidden: list[bytes]) -> dict[str, Any]:
    if method == "initialize":
        version = parameters.get("protocolVersion")
        return {
            "protocolVersion": version if version in PROTOCOLS else PROTOCOLS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "keepfast", "version": "1"},
            "instructions": "Use these tools to talk to the supervisor of this task; nobody reads the conversation.",
        }
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": [{"name": name, **tool.listed} for name, tool in TOOLS.items()]}
    if method == "tools/call":
        text, refused = call(folder, str(parameters.get("name")), dict(parameters.get("arguments") or {}), hidden)
        return {"content": [{"type": "text", "text": text}], "isError": refused}
    raise LookupError(f"There is no method {method}.")


if __name__ == "__main__":
    if sys.argv[1] == "--failure":
        note_failure(sys.argv[2], sys.stdin.buffer, values_of(sys.argv[3:]))
    else:
        serve(sys.argv[1], sys.stdin.buffer, sys.stdout.buffer, values_of(sys.argv[2:]))
