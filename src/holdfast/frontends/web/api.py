"""The HTTP API: one table of operations, from which the router, the checks of the input and the OpenAPI document come."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl

from holdfast import __version__
from holdfast.core.errors import Usage
from holdfast.frontends.web.book import APPROVER, OPERATOR, VIEWER

if TYPE_CHECKING:
    from holdfast.frontends.web.desk import Desk

    Values = dict[str, Any]

REFERENCE = {"type": "string", "minLength": 1, "maxLength": 200, "description": "v5, an id, a name, latest, @~2, @{2h}"}
WORKSPACE = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
PATH = {
    "type": "string",
    "minLength": 1,
    "maxLength": 8192,
    "description": "relative to the workspace; base64:… if not UTF-8",
}
PATHS = {"type": "array", "items": PATH, "maxItems": 10_000}
TEXT = {"type": "string", "maxLength": 2_000}
CONFLICTS = {"type": "string", "enum": ["ask", "mine", "theirs"], "default": "ask"}
DIGEST = {"type": "string", "pattern": "^([0-9a-f]{64})?$", "default": ""}
LIMIT = {"type": "integer", "minimum": 1, "maximum": 1_000, "default": 50}
TASK = {"type": "string", "pattern": "^task_[0-9a-f]{10}$"}
PROMPT = {"type": "string", "minLength": 1, "maxLength": 80, "pattern": "^[A-Za-z0-9_:.-]+$"}
AMOUNT = {"type": "number", "minimum": 0, "maximum": 1e12}
COUNT = {"type": "integer", "minimum": 0, "maximum": 2**53, "default": 0}


class Operation(NamedTuple):
    """One thing that can be asked for. Names in `needed` must be given; all others have a default or none."""

    method: str
    path: str
    id: str
    summary: str
    role: str
    run: Callable[[Desk, Values], Any]
    query: Mapping[str, Any] = {}
    body: Mapping[str, Any] = {}
    needed: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        return self.method != "GET" and not self.id.startswith("preview")


def _restore(desk: Desk, values: Values) -> Any:
    paths = [as_path(path) for path in values.get("paths", [])]
    return desk.restore(values["workspace"], values["reference"], paths, values["conflicts"], values["agreed"])


def _preview(desk: Desk, values: Values) -> Any:
    return desk.preview(values["workspace"], values["reference"], [as_path(path) for path in values.get("paths", [])])


def _action(action: str) -> Callable[[Desk, Values], Any]:
    return lambda desk, values: desk.tasks.act(values["task"], action)


def _file(desk: Desk, values: Values) -> Any:
    facts, content = desk.file(values["workspace"], values["reference"], as_path(values["path"]))
    try:
        return {**facts, "text": content.decode("utf-8")}
    except UnicodeDecodeError:
        return {**facts, "base64": base64.b64encode(content).decode("ascii")}


NAMED = (("workspace", WORKSPACE), ("reference", REFERENCE), ("task", TASK), ("prompt", PROMPT))
"""What may stand between braces in a path."""
ONE = "/api/workspaces/{workspace}"
OPERATIONS = (
    Operation("GET", "/api/workspaces", "listWorkspaces", "All workspaces of the store.", VIEWER,
              lambda desk, _: desk.workspaces()),
    Operation("GET", ONE, "showWorkspace", "One workspace.", VIEWER, lambda desk, values: desk.workspace(values["workspace"])),
    Operation("GET", ONE + "/status", "showStatus", "What changed since the newest checkpoint, and what went wrong.", VIEWER,
              lambda desk, values: desk.status(values["workspace"])),
    Operation("GET", ONE + "/checkpoints", "listCheckpoints", "Checkpoints, newest first.", VIEWER,
              lambda desk, values: desk.checkpoints(values.pop("workspace"), **values),
              query={"limit": LIMIT, "before": COUNT, "trigger": TEXT, "session": TEXT, "tag": TEXT}),
    Operation("POST", ONE + "/checkpoints", "save", "Make a checkpoint now.", OPERATOR,
              lambda desk, values: desk.save(values["workspace"], values.get("message", ""), values.get("name", ""),
                                             values.get("tags", []), values.get("pinned", False)),
              body={"message": TEXT, "name": {"type": "string", "maxLength": 100}, "pinned": {"type": "boolean"},
                    "tags": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 100}, "maxItems": 50}}),
    Operation("GET", ONE + "/checkpoints/{reference}", "showCheckpoint", "One checkpoint, and what it changed.", VIEWER,
              lambda desk, values: desk.checkpoint(values["workspace"], values["reference"])),
    Operation("PATCH", ONE + "/checkpoints/{reference}", "labelCheckpoint", "Pin, unpin or name a checkpoint.", OPERATOR,
              lambda desk, values: desk.label(values["workspace"], values["reference"], values.get("pinned"), values.get("name")),
              body={"pinned": {"type": "boolean"}, "name": {"type": "string", "maxLength": 100}}),
    Operation("POST", ONE + "/forget", "forget", "Forget checkpoints for good.", OPERATOR,
              lambda desk, values: desk.forget(values["workspace"], values["references"]),
              body={"references": {"type": "array", "items": REFERENCE, "minItems": 1, "maxItems": 1_000}}, needed=("references",)),
    Operation("GET", ONE + "/diff", "diff", "What leads from one state to another; `now` is the disk.", VIEWER,
              lambda desk, values: desk.diff(values["workspace"], values.get("old", ""), values.get("new", "now"),
                                             as_path(values["path"]) if values.get("path") else None),
              query={"old": REFERENCE, "new": REFERENCE, "path": PATH}),
    Operation("GET", ONE + "/checkpoints/{reference}/file", "showFile", "A file as it was.", VIEWER, _file, query={"path": PATH},
              needed=("path",)),
    Operation("GET", ONE + "/checkpoints/{reference}/brief", "showBrief", "What an agent would be told to go on from here.", VIEWER,
              lambda desk, values: desk.brief(values["workspace"], values["reference"], values["tokens"]),
              query={"tokens": {"type": "integer", "minimum": 200, "maximum": 20_000, "default": 5_000}}),
    Operation("GET", ONE + "/history", "fileHistory", "Every state of one path.", VIEWER,
              lambda desk, values: desk.history(values["workspace"], as_path(values["path"])),
              query={"path": PATH}, needed=("path",)),
    Operation("POST", ONE + "/preview", "previewRestore", "What a restore would do.", VIEWER, _preview,
              body={"reference": REFERENCE, "paths": PATHS}, needed=("reference",)),
    Operation("POST", ONE + "/restore", "restore", "Bring files back. `agreed` is the digest of the preview.", OPERATOR, _restore,
              body={"reference": REFERENCE, "paths": PATHS, "conflicts": CONFLICTS, "agreed": DIGEST}, needed=("reference",)),
    Operation("POST", ONE + "/undo", "undo", "Take back the last restore.", OPERATOR,
              lambda desk, values: desk.undo(values["workspace"], values["agreed"], values["conflicts"]),
              body={"conflicts": CONFLICTS, "agreed": DIGEST}),
    Operation("POST", ONE + "/redo", "redo", "Take back the last undo.", OPERATOR,
              lambda desk, values: desk.undo(values["workspace"], values["agreed"], values["conflicts"], again=True),
              body={"conflicts": CONFLICTS, "agreed": DIGEST}),
    Operation("POST", ONE + "/finish", "finishRestore", "Go on with a restore that was cut off, or take it back.", OPERATOR,
              lambda desk, values: desk.finish(values["workspace"], values["abort"]),
              body={"abort": {"type": "boolean", "default": False}}),
    Operation("POST", ONE + "/fork", "fork", "A new folder with the state of a checkpoint.", OPERATOR,
              lambda desk, values: desk.fork(values["workspace"], values["reference"], values["folder"]),
              body={"reference": REFERENCE, "folder": {"type": "string", "minLength": 1, "maxLength": 4096}},
              needed=("reference", "folder")),
    Operation("GET", "/api/search", "search", "Find checkpoints and paths by their text.", VIEWER,
              lambda desk, values: desk.search(values["text"], values.get("workspace", ""), values["limit"]),
              query={"text": {"type": "string", "minLength": 1, "maxLength": 500}, "workspace": WORKSPACE, "limit": LIMIT},
              needed=("text",)),
    Operation("GET", "/api/tasks", "listTasks", "Unattended tasks, and why each waits.", VIEWER,
              lambda desk, values: desk.tasks.all(values.get("status", ""), values["archived"]),
              query={"status": {"type": "string", "maxLength": 40}, "archived": {"type": "boolean", "default": False}}),
    Operation("POST", "/api/tasks", "newTask", "Make a task, and start it unless it is told otherwise.", OPERATOR,
              lambda desk, values: desk.tasks.new({key: value for key, value in values.items() if key != "by"}),
              body={"title": {"type": "string", "maxLength": 200}, "brief": {"type": "string", "maxLength": 100_000},
                    "type": {"type": "string", "enum": ["create_app", "modify_app", "custom"]},
                    "workspace": {"type": "string", "minLength": 1, "maxLength": 4096},
                    "phases": {"type": "array", "items": {"type": "object"}, "maxItems": 50}, "agent": {"type": "object"},
                    "budget": {"type": "object"}, "priority": {"type": "string", "enum": ["critical", "high", "normal", "low"]},
                    "after": {"type": "array", "items": TASK, "maxItems": 50},
                    "secrets": {"type": "array", "items": {"type": "string", "maxLength": 200}, "maxItems": 50},
                    "start": {"type": "boolean"}}, needed=("brief", "workspace")),
    Operation("GET", "/api/tasks/{task}", "showTask", "Everything about a task.", VIEWER,
              lambda desk, values: desk.tasks.show(values["task"])),
    Operation("PATCH", "/api/tasks/{task}", "setBudget", "Give a task another budget.", OPERATOR,
              lambda desk, values: desk.tasks.budget(values["task"], values.get("tokens"), values.get("money"),
                                                     values.get("minutes")),
              body={"tokens": {"type": "integer", "minimum": 0, "maximum": 10**12}, "money": AMOUNT, "minutes": AMOUNT}),
    Operation("DELETE", "/api/tasks/{task}", "deleteTask", "Cancel a task if need be, and put it out of sight.", OPERATOR,
              lambda desk, values: desk.tasks.delete(values["task"])),
    *[Operation("POST", f"/api/tasks/{{task}}/{path}", f"{action.replace('-n', 'N')}Task", summary, OPERATOR,
                _action(action))
      for path, action, summary in (
          ("execute", "start", "Start a drafted task."), ("pause", "pause", "Pause at the next tool boundary."),
          ("freeze", "freeze", "Stop everything where it stands."), ("resume", "resume", "Let a task go on."),
          ("cancel", "cancel", "End a task for good."), ("retry", "retry", "Begin a failed task again."),
          ("try-now", "try-now", "Do not wait for the limit any longer."), ("archive", "archive", "Put a task out of sight."))],
    Operation("GET", "/api/tasks/{task}/status", "taskStatus", "State, phase, hold and countdown.", VIEWER,
              lambda desk, values: desk.tasks.status(values["task"])),
    Operation("GET", "/api/tasks/{task}/phases", "taskPhases", "Phases and their gates.", VIEWER,
              lambda desk, values: desk.tasks.phases(values["task"])),
    Operation("GET", "/api/tasks/{task}/reviews", "taskReviews", "Reviews of a task's phases.", VIEWER,
              lambda desk, values: desk.tasks.prompts(values["task"], "approval")),
    Operation("GET", "/api/tasks/{task}/questions", "taskQuestions", "Questions that the agent asked.", VIEWER,
              lambda desk, values: desk.tasks.prompts(values["task"], "question")),
    Operation("GET", "/api/tasks/{task}/log", "taskLog", "Events of a task after a number.", VIEWER,
              lambda desk, values: desk.tasks.log(values["task"], values["since"], values["limit"]),
              query={"since": COUNT, "limit": LIMIT}),
    Operation("POST", "/api/tasks/{task}/restore", "restoreTask", "Bring a task's files back to a checkpoint.", OPERATOR,
              lambda desk, values: desk.tasks.restore(values["task"], values["checkpointId"]),
              body={"checkpointId": REFERENCE}, needed=("checkpointId",)),
    Operation("POST", "/api/tasks/{task}/rate-limit-override", "overrideLimit", "Know better about a rate limit.", OPERATOR,
              lambda desk, values: desk.tasks.override(values["task"], values["action"]),
              body={"action": {"type": "string", "enum": ["mark_as_rate_limited", "clear_rate_limit", "reset_token_counter"]}},
              needed=("action",)),
    Operation("POST", "/api/tasks/{task}/secret", "provideSecret", "Give a value that the agent needs.", APPROVER,
              lambda desk, values: desk.tasks.secret(values["task"], values["name"], values["value"]),
              body={"name": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,199}$"},
                    "value": {"type": "string", "minLength": 1, "maxLength": 65536}}, needed=("name", "value")),
    Operation("PATCH", "/api/reviews/{prompt}/approve", "approve", "Let a reviewed phase pass.", APPROVER,
              lambda desk, values: desk.tasks.approve(values["prompt"], values["by"]),
              body={"comments": TEXT}),
    Operation("PATCH", "/api/reviews/{prompt}/request-changes", "requestChanges", "Send a phase back with comments.", APPROVER,
              lambda desk, values: desk.tasks.reject(values["prompt"], values["comments"], values["by"]),
              body={"comments": {"type": "string", "minLength": 1, "maxLength": 50_000}}, needed=("comments",)),
    Operation("POST", "/api/questions/{prompt}/answer", "answer", "Answer a question.", APPROVER,
              lambda desk, values: desk.tasks.answer(values["prompt"], values["answer"], values["by"]),
              body={"answer": {"type": "string", "minLength": 1, "maxLength": 10_000}}, needed=("answer",)),
    Operation("GET", "/api/questions/pending", "pendingQuestions", "Questions that wait for somebody.", VIEWER,
              lambda desk, _: desk.tasks.questions()),
    Operation("GET", "/api/inbox", "inbox", "Everything that waits for a person.", VIEWER, lambda desk, _: desk.tasks.inbox()),
    Operation("GET", "/api/storage", "showStorage", "What the store takes and what keeps it small.", VIEWER,
              lambda desk, _: desk.storage()),
)  # fmt: skip


def read_values(operation: Operation, parts: Mapping[str, str], query: bytes, body: bytes) -> Values:
    """Everything the caller gave, checked. Raises `Usage` with the name of what is wrong."""
    values: dict[str, Any] = dict(parts)
    given = dict(parse_qsl(query.decode("ascii", "replace"), keep_blank_values=True, errors="surrogateescape"))
    for name, text in given.items():
        if name not in operation.query:
            raise Usage(f"{name[:40]} is not known here.", f"Known: {', '.join(operation.query) or 'nothing'}.")
        values[name] = READ.get(operation.query[name]["type"], str)(text)
    if operation.body:
        try:
            sent = json.loads(body or b"{}")
        except (ValueError, RecursionError):
            raise Usage("The body is not JSON.") from None
        if not isinstance(sent, dict):
            raise Usage("The body must be a JSON object.")
        for name, value in sent.items():
            if name not in operation.body:
                raise Usage(f"{name[:40]} is not known here.", f"Known: {', '.join(operation.body)}.")
            values[name] = value
    return checked(operation, values)


def checked(operation: Operation, values: Values) -> Values:
    known = {**_of_path(operation.path), **operation.query, **operation.body}
    for name, schema in known.items():
        if name in values:
            _check(name, values[name], schema)
        elif "default" in schema:
            values[name] = schema["default"]
        elif name in operation.needed:
            raise Usage(f"{name} is missing.")
    return values


def _flag(text: str) -> bool | str:
    return {"true": True, "false": False}.get(text, text)


def _number(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdecimal() and len(text) < 20 and text.isascii() else text


READ: dict[str, Callable[[str], Any]] = {"integer": _number, "boolean": _flag}
"""How a value in an address is read by its type; all others are text."""

TYPES: dict[str, Any] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list,), "object": (dict,),
}  # fmt: skip


def _check(name: str, value: Any, schema: Mapping[str, Any]) -> None:
    """The part of JSON Schema that the table uses."""
    kind = schema["type"]
    if not isinstance(value, TYPES[kind]) or (kind in ("integer", "number") and isinstance(value, bool)):
        raise Usage(f"{name} must be of type {kind}.")
    if "enum" in schema and value not in schema["enum"]:
        raise Usage(f"{name} must be one of {', '.join(schema['enum'])}.")
    if kind in ("integer", "number") and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        raise Usage(f"{name} must lie between {schema['minimum']} and {schema['maximum']}.")
    if kind == "string":
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            raise Usage(f"{name} may have {schema.get('maxLength')} characters at most, and not be empty.")
        if "pattern" in schema:
            import re

            if re.search(schema["pattern"].replace("$", r"\Z"), value) is None:
                raise Usage(f"{name} is not of the right form.")
    if kind == "array":
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
            raise Usage(f"{name} may have {schema.get('maxItems')} entries at most, and not be empty.")
        for item in value:
            _check(name, item, schema["items"])


def as_path(text: str) -> bytes:
    """The bytes of a path as the API writes it. Raises `Usage`."""
    if text.startswith("base64:"):
        try:
            path = base64.b64decode(text[7:], validate=True)
        except (binascii.Error, ValueError):
            raise Usage("path is not base64.") from None
    else:
        path = text.encode("utf-8", "surrogateescape") if text.isprintable() or text else b""
    parts = path.split(b"/")
    if b"\0" in path or path.startswith(b"/") or b".." in parts or b"." in parts or b"" in parts:
        raise Usage("path must be relative, without empty parts, `.` and `..`.")
    return path


def as_text(path: bytes) -> str:
    """A path as the API takes it."""
    try:
        return path.decode("utf-8")
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(path).decode("ascii")


def _of_path(path: str) -> dict[str, Any]:
    return {name: schema for name, schema in NAMED if f"{{{name}}}" in path}


# The document

ERRORS = {
    "400": "Something in the request is wrong; `error` says what.",
    "401": "No session.",
    "403": "The session's role may not do this, or another page asked.",
    "404": "There is no such workspace, checkpoint or path.",
    "409": "Something is in the way: unsaved work, a pin, another restore, or the preview is old.",
    "413": "The request is too large.",
    "429": "Too many requests.",
    "500": "What is stored is damaged, or the store cannot be reached.",
    "503": "Busy.",
}


def document(operations: tuple[Operation, ...] = OPERATIONS) -> dict[str, Any]:
    """The OpenAPI document of exactly what is served."""
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "holdfast",
            "version": __version__,
            "description": "Checkpoints of coding agents' workspaces.",
        },
        "paths": paths,
        "security": [{"session": []}],
        "components": {
            "securitySchemes": {"session": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Error": {
                    "type": "object",
                    "required": ["success", "error"],
                    "properties": {
                        "success": {"const": False},
                        "error": {"type": "string"},
                        "kind": {"type": "string"},
                        "hint": {"type": "string"},
                    },
                }
            },
        },
    }


def _described(operation: Operation) -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    answer = {"type": "object", "required": ["success", "data"], "properties": {"success": {"const": True}, "data": {}}}
    described: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "description": f"Role: {operation.role}.",
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": schema}
            for name, schema in _of_path(operation.path).items()
        ]
        + [
            {"name": name, "in": "query", "required": name in operation.needed, "schema": schema}
            for name, schema in operation.query.items()
        ],
        "responses": {
            "200": {"description": "Done.", "content": {"application/json": {"schema": answer}}},
            **{code: {"description": text, "content": error} for code, text in ERRORS.items()},
        },
    }
    if operation.body:
        schema = {"type": "object", "properties": dict(operation.body), "additionalProperties": False}
        if operation.needed:
            schema["required"] = list(operation.needed)
        described["requestBody"] = {
            "required": bool(operation.needed),
            "content": {"application/json": {"schema": schema}},
        }
    return described
