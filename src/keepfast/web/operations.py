"""The table of the API's operations: the router, the checks of the input and the OpenAPI document come from it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from keepfast.runner.domain.reviews import Remark
from keepfast.web import preferences
from keepfast.web.api import REFERENCE, TASK, WORKSPACE, Operation, as_path
from keepfast.web.sessions import APPROVER, OPERATOR, VIEWER
from keepfast.workspace.marker import show

if TYPE_CHECKING:
    from keepfast.web.api import Values
    from keepfast.web.queries import Desk

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
AMOUNT = {"type": "number", "minimum": 0, "maximum": 1e12}
ANYWAY = {
    "type": "boolean", "default": False,
    "description": "although its verification fails, or the workspace changed since the review began",
}  # fmt: skip
REMARKS = {
    "type": "array", "maxItems": 1_000, "default": [],
    "items": {
        "type": "object", "required": ["path", "text"], "additionalProperties": False,
        "properties": {
            "path": PATH, "text": {"type": "string", "minLength": 1, "maxLength": 10_000},
            "line": {
                "type": "integer", "minimum": -10_000_000, "maximum": 10_000_000, "description": "negative if it was removed",
            },
        },
    },
}  # fmt: skip
COMMENTS = {"comments": {"type": "string", "maxLength": 50_000, "default": ""}, "remarks": REMARKS}
UNSEAL = {
    "type": "boolean", "default": False,
    "description": "show what is sealed as well; takes an operator, and is recorded",
}  # fmt: skip
COUNT = {"type": "integer", "minimum": 0, "maximum": 2**53, "default": 0}


def _restore(desk: Desk, values: Values) -> Any:
    paths = [as_path(path) for path in values.get("paths", [])]
    return desk.bring.restore(values["workspace"], values["reference"], paths, values["conflicts"], values["agreed"])


def _preview(desk: Desk, values: Values) -> Any:
    return desk.bring.preview(
        values["workspace"], values["reference"], [as_path(path) for path in values.get("paths", [])]
    )


def _said(values: Values) -> tuple[str, str, str, list[Remark]]:
    """A review, the words about it, who says them, and the remarks on its lines."""
    remarks = [
        Remark(show(as_path(one["path"])), one.get("line", 0), one["text"].strip())
        for one in values["remarks"]
        if one["text"].strip()
    ]
    return values["prompt"], values["comments"], values["by"], remarks


def _action(action: str) -> Callable[[Desk, Values], Any]:
    return lambda desk, values: desk.tasks.act(values["task"], action)


def _file(desk: Desk, values: Values) -> Any:
    facts, content = desk.contents.file(values["workspace"], values["reference"], as_path(values["path"]))
    if content is None:
        return facts
    try:
        return {**facts, "text": content.decode("utf-8")}
    except UnicodeDecodeError:
        return {**facts, "base64": base64.b64encode(content).decode("ascii")}


ONE = "/api/workspaces/{workspace}"
OPERATIONS = (
    Operation("GET", "/api/workspaces", "listWorkspaces", "All workspaces of the store.", VIEWER,
              lambda desk, _: desk.workspaces(), answers="array"),
    Operation("GET", ONE, "showWorkspace", "One workspace.", VIEWER, lambda desk, values: desk.workspace(values["workspace"])),
    Operation("GET", ONE + "/status", "showStatus", "What changed since the newest checkpoint, and what went wrong.", VIEWER,
              lambda desk, values: desk.status(values["workspace"])),
    Operation("GET", ONE + "/checkpoints", "listCheckpoints", "Checkpoints, newest first.", VIEWER,
              lambda desk, values: desk.checkpoints(values.pop("workspace"), **values),
              query={"limit": LIMIT, "before": COUNT, "trigger": TEXT, "session": TEXT, "tag": TEXT}, answers="array"),
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
              lambda desk, values: desk.contents.diff(values["workspace"], values.get("old", ""), values.get("new", "now"),
                                             as_path(values["path"]) if values.get("path") else None),
              query={"old": REFERENCE, "new": REFERENCE, "path": PATH, "sealed": UNSEAL}),
    Operation("GET", ONE + "/checkpoints/{reference}/file", "showFile", "A file as it was.", VIEWER, _file,
              query={"path": PATH, "sealed": UNSEAL}, needed=("path",)),
    Operation("GET", ONE + "/checkpoints/{reference}/brief", "showBrief", "What an agent would be told to go on from here.", VIEWER,
              lambda desk, values: desk.brief(values["workspace"], values["reference"], values["tokens"]),
              query={"tokens": {"type": "integer", "minimum": 200, "maximum": 20_000, "default": 5_000}}),
    Operation("GET", ONE + "/history", "fileHistory", "Every state of one path.", VIEWER,
              lambda desk, values: desk.contents.history(values["workspace"], as_path(values["path"])),
              query={"path": PATH}, needed=("path",), answers="array"),
    Operation("POST", ONE + "/preview", "previewRestore", "What a restore would do.", VIEWER, _preview,
              body={"reference": REFERENCE, "paths": PATHS}, needed=("reference",)),
    Operation("POST", ONE + "/restore", "restore", "Bring files back. `agreed` is the digest of the preview.", OPERATOR, _restore,
              body={"reference": REFERENCE, "paths": PATHS, "conflicts": CONFLICTS, "agreed": DIGEST}, needed=("reference",)),
    Operation("POST", ONE + "/undo", "undo", "Take back the last restore.", OPERATOR,
              lambda desk, values: desk.bring.undo(values["workspace"], values["agreed"], values["conflicts"]),
              body={"conflicts": CONFLICTS, "agreed": DIGEST}),
    Operation("POST", ONE + "/redo", "redo", "Take back the last undo.", OPERATOR,
              lambda desk, values: desk.bring.undo(values["workspace"], values["agreed"], values["conflicts"], again=True),
              body={"conflicts": CONFLICTS, "agreed": DIGEST}),
    Operation("POST", ONE + "/finish", "finishRestore", "Go on with a restore that was cut off, or take it back.", OPERATOR,
              lambda desk, values: desk.bring.finish(values["workspace"], values["abort"]),
              body={"abort": {"type": "boolean", "default": False}}),
    Operation("POST", ONE + "/fork", "fork", "A new folder with the state of a checkpoint.", OPERATOR,
              lambda desk, values: desk.bring.fork(values["workspace"], values["reference"], values["folder"]),
              body={"reference": REFERENCE, "folder": {"type": "string", "minLength": 1, "maxLength": 4096}},
              needed=("reference", "folder")),
    Operation("GET", "/api/search", "search", "Find checkpoints and paths by their text.", VIEWER,
              lambda desk, values: desk.search(values["text"], values.get("workspace", ""), values["limit"]),
              query={"text": {"type": "string", "minLength": 1, "maxLength": 500}, "workspace": WORKSPACE, "limit": LIMIT},
              needed=("text",), answers="array"),
    Operation("GET", "/api/tasks", "listTasks", "Unattended tasks, and why each waits.", VIEWER,
              lambda desk, values: desk.tasks.all(values.get("status", ""), values["archived"]),
              query={"status": {"type": "string", "maxLength": 40}, "archived": {"type": "boolean", "default": False}},
              answers="array"),
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
          ("accept", "accept", "Call a task done although its last state is not saved."),
          ("cancel", "cancel", "End a task for good."), ("retry", "retry", "Begin a failed task again."),
          ("try-now", "try-now", "Do not wait for the limit any longer."), ("archive", "archive", "Put a task out of sight."))],
    Operation("GET", "/api/tasks/{task}/status", "taskStatus", "State, phase, hold and countdown.", VIEWER,
              lambda desk, values: desk.tasks.status(values["task"])),
    Operation("GET", "/api/tasks/{task}/phases", "taskPhases", "Phases and their gates.", VIEWER,
              lambda desk, values: desk.tasks.phases(values["task"]), answers="array"),
    Operation("GET", "/api/tasks/{task}/reviews", "taskReviews", "Reviews of a task's phases.", VIEWER,
              lambda desk, values: desk.tasks.prompts(values["task"], "approval"), answers="array"),
    Operation("GET", "/api/tasks/{task}/questions", "taskQuestions", "Questions that the agent asked.", VIEWER,
              lambda desk, values: desk.tasks.prompts(values["task"], "question"), answers="array"),
    Operation("GET", "/api/tasks/{task}/verifications", "taskVerifications", "What the checks of phases said.", VIEWER,
              lambda desk, values: desk.tasks.verifications(values["task"]), answers="array"),
    Operation("GET", "/api/tasks/{task}/log", "taskLog", "Events of a task after a number.", VIEWER,
              lambda desk, values: desk.tasks.log(values["task"], values["since"], values["limit"]),
              query={"since": COUNT, "limit": LIMIT}, answers="array"),
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
              lambda desk, values: desk.tasks.approve(values["prompt"], values["by"], values["anyway"]),
              body={"comments": TEXT, "anyway": ANYWAY}),
    Operation("PATCH", "/api/reviews/{prompt}/request-changes", "requestChanges", "Send a phase back with comments.", APPROVER,
              lambda desk, values: desk.tasks.reject(*_said(values)), body=COMMENTS),
    Operation("POST", "/api/reviews/{prompt}/feedback", "commentReview", "Keep comments until changes are asked for.", APPROVER,
              lambda desk, values: desk.tasks.comment(*_said(values)), body=COMMENTS),
    Operation("POST", "/api/questions/{prompt}/answer", "answer", "Answer a question.", APPROVER,
              lambda desk, values: desk.tasks.answer(values["prompt"], values["answer"], values["by"], values["exactly"]),
              body={"answer": {"type": "string", "minLength": 1, "maxLength": 10_000},
                    "exactly": {"type": "boolean", "default": False}}, needed=("answer",)),
    Operation("GET", "/api/questions/pending", "pendingQuestions", "Questions that wait for somebody.", VIEWER,
              lambda desk, _: desk.tasks.questions(), answers="array"),
    Operation("GET", "/api/inbox", "inbox", "Everything that waits for a person.", VIEWER, lambda desk, _: desk.tasks.inbox(),
              answers="array"),
    Operation("GET", "/api/settings", "showSettings", "Every setting, its value, and where it comes from.", OPERATOR,
              lambda desk, _: preferences.shown(desk.engine.settings)),
    Operation("PATCH", "/api/settings", "changeSettings", "Change settings that start no program and name no place.", OPERATOR,
              lambda desk, values: preferences.change(desk, values["values"]),
              body={"values": {"type": "object"}}, needed=("values",)),
    Operation("GET", "/api/storage", "showStorage", "What the store takes and what keeps it small.", VIEWER,
              lambda desk, _: desk.storage()),
)  # fmt: skip
