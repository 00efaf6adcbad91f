"""The table of the API's operations: the router, the checks of the input and the OpenAPI document come from it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from keepfast.runner.domain.reviews import Remark
from keepfast.web import preferences
from keepfast.web.api import REFERENCE, TASK, WORKSPACE, Operation, Values, as_path
from keepfast.web.queries import Backend
from keepfast.web.sessions import APPROVER, OPERATOR, VIEWER
from keepfast.web.views import to_json
from keepfast.workspace.marker import show

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
    "description": "approve although the verification fails or the workspace changed since the review began",
}  # fmt: skip
REMARKS = {
    "type": "array", "maxItems": 1_000, "default": [],
    "items": {
        "type": "object", "required": ["path", "text"], "additionalProperties": False,
        "properties": {
            "path": PATH, "text": {"type": "string", "minLength": 1, "maxLength": 10_000},
            "line": {
                "type": "integer", "minimum": -10_000_000, "maximum": 10_000_000, "description": "negative for a removed line",
            },
        },
    },
}  # fmt: skip
COMMENTS = {"comments": {"type": "string", "maxLength": 50_000, "default": ""}, "remarks": REMARKS}
UNSEAL = {
    "type": "boolean", "default": False,
    "description": "also return sealed contents; operators only, recorded in the audit trail",
}  # fmt: skip
COUNT = {"type": "integer", "minimum": 0, "maximum": 2**53, "default": 0}


def _restore(backend: Backend, values: Values) -> Any:
    paths = [as_path(path) for path in values.get("paths", [])]
    return backend.restores.restore(
        values["workspace"], values["reference"], paths, values["conflicts"], values["agreed"]
    )


def _preview(backend: Backend, values: Values) -> Any:
    return backend.restores.preview(
        values["workspace"], values["reference"], [as_path(path) for path in values.get("paths", [])]
    )


def _review(values: Values) -> tuple[str, str, str, list[Remark]]:
    """Return a review's prompt, the comments on it, their author, and the remarks on its lines."""
    remarks = [
        Remark(show(as_path(one["path"])), one.get("line", 0), one["text"].strip())
        for one in values["remarks"]
        if one["text"].strip()
    ]
    return values["prompt"], values["comments"], values["by"], remarks


def _diff(backend: Backend, values: Values) -> Any:
    workspace, old, new = values["workspace"], values.get("old", ""), values.get("new", "now")
    if values.get("path"):
        return backend.contents.diff_path(workspace, old, new, as_path(values["path"]))
    return backend.contents.diff(workspace, old, new)


def _action(action: str) -> Callable[[Backend, Values], Any]:
    return lambda backend, values: backend.tasks.act(values["task"], action)


def _file(backend: Backend, values: Values) -> Any:
    facts, content = backend.contents.file(values["workspace"], values["reference"], as_path(values["path"]))
    if content is None:
        return facts
    try:
        return {**to_json(facts), "text": content.decode("utf-8")}
    except UnicodeDecodeError:
        return {**to_json(facts), "base64": base64.b64encode(content).decode("ascii")}


ONE = "/api/workspaces/{workspace}"
OPERATIONS = (
    Operation("GET", "/api/workspaces", "listWorkspaces", "List all workspaces of the store.", VIEWER,
              lambda backend, _: backend.workspaces(), answers="array"),
    Operation("GET", ONE, "showWorkspace", "Show one workspace.", VIEWER,
              lambda backend, values: backend.workspace(values["workspace"])),
    Operation("GET", ONE + "/status", "showStatus", "Show unsaved changes and recent problems.", VIEWER,
              lambda backend, values: backend.status(values["workspace"])),
    Operation("GET", ONE + "/checkpoints", "listCheckpoints", "List checkpoints, newest first.", VIEWER,
              lambda backend, values: backend.checkpoints(values.pop("workspace"), **values),
              query={"limit": LIMIT, "before": COUNT, "trigger": TEXT, "session": TEXT, "tag": TEXT}, answers="array"),
    Operation("POST", ONE + "/checkpoints", "save", "Save a checkpoint now.", OPERATOR,
              lambda backend, values: backend.save(values["workspace"], values.get("message", ""), values.get("name", ""),
                                             values.get("tags", []), values.get("pinned", False)),
              body={"message": TEXT, "name": {"type": "string", "maxLength": 100}, "pinned": {"type": "boolean"},
                    "tags": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 100}, "maxItems": 50}}),
    Operation("GET", ONE + "/checkpoints/{reference}", "showCheckpoint", "Show one checkpoint and its changes.", VIEWER,
              lambda backend, values: backend.checkpoint(values["workspace"], values["reference"])),
    Operation("PATCH", ONE + "/checkpoints/{reference}", "labelCheckpoint", "Pin, unpin or name a checkpoint.", OPERATOR,
              lambda backend, values: backend.label(values["workspace"], values["reference"], values.get("pinned"),
                                                    values.get("name")),
              body={"pinned": {"type": "boolean"}, "name": {"type": "string", "maxLength": 100}}),
    Operation("POST", ONE + "/forget", "forget", "Forget checkpoints permanently.", OPERATOR,
              lambda backend, values: backend.forget(values["workspace"], values["references"]),
              body={"references": {"type": "array", "items": REFERENCE, "minItems": 1, "maxItems": 1_000}}, needed=("references",)),
    Operation("GET", ONE + "/diff", "diff", "Compare two states; `now` is the disk.", VIEWER,
              _diff,
              query={"old": REFERENCE, "new": REFERENCE, "path": PATH, "sealed": UNSEAL}),
    Operation("GET", ONE + "/checkpoints/{reference}/file", "showFile", "Show a file of a checkpoint.", VIEWER, _file,
              query={"path": PATH, "sealed": UNSEAL}, needed=("path",)),
    Operation("GET", ONE + "/checkpoints/{reference}/brief", "showBrief", "Show the resume brief of a checkpoint.", VIEWER,
              lambda backend, values: backend.brief(values["workspace"], values["reference"], values["tokens"]),
              query={"tokens": {"type": "integer", "minimum": 200, "maximum": 20_000, "default": 5_000}}),
    Operation("GET", ONE + "/history", "fileHistory", "List every state of one path.", VIEWER,
              lambda backend, values: backend.contents.history(values["workspace"], as_path(values["path"])),
              query={"path": PATH}, needed=("path",), answers="array"),
    Operation("POST", ONE + "/preview", "previewRestore", "Show what a restore would do.", VIEWER, _preview,
              body={"reference": REFERENCE, "paths": PATHS}, needed=("reference",)),
    Operation("POST", ONE + "/restore", "restore", "Restore files. `agreed` is the digest of the preview.", OPERATOR, _restore,
              body={"reference": REFERENCE, "paths": PATHS, "conflicts": CONFLICTS, "agreed": DIGEST}, needed=("reference",)),
    Operation("POST", ONE + "/undo", "undo", "Undo the last restore.", OPERATOR,
              lambda backend, values: backend.restores.undo(values["workspace"], values["agreed"], values["conflicts"]),
              body={"conflicts": CONFLICTS, "agreed": DIGEST}),
    Operation("POST", ONE + "/redo", "redo", "Redo the last undone restore.", OPERATOR,
              lambda backend, values: backend.restores.undo(values["workspace"], values["agreed"], values["conflicts"], again=True),
              body={"conflicts": CONFLICTS, "agreed": DIGEST}),
    Operation("POST", ONE + "/finish", "finishRestore", "Continue or abort an interrupted restore.", OPERATOR,
              lambda backend, values: backend.restores.finish(values["workspace"], values["abort"]),
              body={"abort": {"type": "boolean", "default": False}}),
    Operation("POST", ONE + "/fork", "fork", "Create a new folder with the files of a checkpoint.", OPERATOR,
              lambda backend, values: backend.restores.fork(values["workspace"], values["reference"], values["folder"]),
              body={"reference": REFERENCE, "folder": {"type": "string", "minLength": 1, "maxLength": 4096}},
              needed=("reference", "folder")),
    Operation("GET", "/api/search", "search", "Search checkpoints and paths.", VIEWER,
              lambda backend, values: backend.search(values["text"], values.get("workspace", ""), values["limit"]),
              query={"text": {"type": "string", "minLength": 1, "maxLength": 500}, "workspace": WORKSPACE, "limit": LIMIT},
              needed=("text",), answers="array"),
    Operation("GET", "/api/tasks", "listTasks", "List unattended tasks and why each waits.", VIEWER,
              lambda backend, values: backend.tasks.all(values.get("status", ""), values["archived"]),
              query={"status": {"type": "string", "maxLength": 40}, "archived": {"type": "boolean", "default": False}},
              answers="array"),
    Operation("POST", "/api/tasks", "newTask", "Create a task and start it, unless `start` is false.", OPERATOR,
              lambda backend, values: backend.tasks.new({key: value for key, value in values.items() if key != "by"}),
              body={"title": {"type": "string", "maxLength": 200}, "brief": {"type": "string", "maxLength": 100_000},
                    "type": {"type": "string", "enum": ["create_app", "modify_app", "custom"]},
                    "workspace": {"type": "string", "minLength": 1, "maxLength": 4096},
                    "phases": {"type": "array", "items": {"type": "object"}, "maxItems": 50}, "agent": {"type": "object"},
                    "budget": {"type": "object"}, "priority": {"type": "string", "enum": ["critical", "high", "normal", "low"]},
                    "after": {"type": "array", "items": TASK, "maxItems": 50},
                    "secrets": {"type": "array", "items": {"type": "string", "maxLength": 200}, "maxItems": 50},
                    "start": {"type": "boolean"}}, needed=("brief", "workspace")),
    Operation("GET", "/api/tasks/{task}", "showTask", "Show a task in full.", VIEWER,
              lambda backend, values: backend.tasks.show(values["task"])),
    Operation("PATCH", "/api/tasks/{task}", "setBudget", "Change the budget of a task.", OPERATOR,
              lambda backend, values: backend.tasks.budget(values["task"], values.get("tokens"), values.get("money"),
                                                     values.get("minutes")),
              body={"tokens": {"type": "integer", "minimum": 0, "maximum": 10**12}, "money": AMOUNT, "minutes": AMOUNT}),
    Operation("DELETE", "/api/tasks/{task}", "deleteTask", "Cancel a task if it is not over, and archive it.", OPERATOR,
              lambda backend, values: backend.tasks.delete(values["task"])),
    *[Operation("POST", f"/api/tasks/{{task}}/{path}", f"{action.replace('-n', 'N')}Task", summary, OPERATOR,
                _action(action))
      for path, action, summary in (
          ("execute", "start", "Start a draft."), ("pause", "pause", "Pause at the next tool boundary."),
          ("freeze", "freeze", "Freeze the agent at once, in the middle of what it does."), ("resume", "resume", "Resume a task."),
          ("accept", "accept", "Accept a task as done although its last state is not saved."),
          ("cancel", "cancel", "Cancel a task."), ("retry", "retry", "Retry a failed task."),
          ("try-now", "try-now", "Stop waiting for a rate limit and try now."), ("archive", "archive", "Archive a task."))],
    Operation("GET", "/api/tasks/{task}/status", "taskStatus", "Show state, phase and hold of a task.", VIEWER,
              lambda backend, values: backend.tasks.status(values["task"])),
    Operation("GET", "/api/tasks/{task}/phases", "taskPhases", "List the phases of a task and their checks.", VIEWER,
              lambda backend, values: backend.tasks.phases(values["task"]), answers="array"),
    Operation("GET", "/api/tasks/{task}/reviews", "taskReviews", "List the reviews of a task.", VIEWER,
              lambda backend, values: backend.tasks.prompts(values["task"], "approval"), answers="array"),
    Operation("GET", "/api/tasks/{task}/questions", "taskQuestions", "List the questions of a task.", VIEWER,
              lambda backend, values: backend.tasks.prompts(values["task"], "question"), answers="array"),
    Operation("GET", "/api/tasks/{task}/verifications", "taskVerifications", "List the verification results of a task.", VIEWER,
              lambda backend, values: backend.tasks.verifications(values["task"]), answers="array"),
    Operation("GET", "/api/tasks/{task}/log", "taskLog", "List events of a task after an event number.", VIEWER,
              lambda backend, values: backend.tasks.log(values["task"], values["since"], values["limit"]),
              query={"since": COUNT, "limit": LIMIT}, answers="array"),
    Operation("POST", "/api/tasks/{task}/restore", "restoreTask", "Restore a task to one of its checkpoints.", OPERATOR,
              lambda backend, values: backend.tasks.restore(values["task"], values["checkpointId"]),
              body={"checkpointId": REFERENCE}, needed=("checkpointId",)),
    Operation("POST", "/api/tasks/{task}/rate-limit-override", "overrideLimit", "Correct the state of a rate limit.", OPERATOR,
              lambda backend, values: backend.tasks.override(values["task"], values["action"]),
              body={"action": {"type": "string", "enum": ["mark_as_rate_limited", "clear_rate_limit", "reset_token_counter"]}},
              needed=("action",)),
    Operation("POST", "/api/tasks/{task}/secret", "provideSecret", "Provide a secret that the agent needs.", APPROVER,
              lambda backend, values: backend.tasks.secret(values["task"], values["name"], values["value"]),
              body={"name": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,199}$"},
                    "value": {"type": "string", "minLength": 1, "maxLength": 65536}}, needed=("name", "value")),
    Operation("PATCH", "/api/reviews/{prompt}/approve", "approve", "Approve a phase.", APPROVER,
              lambda backend, values: backend.tasks.approve(values["prompt"], values["by"], values["anyway"]),
              body={"comments": TEXT, "anyway": ANYWAY}),
    Operation("PATCH", "/api/reviews/{prompt}/request-changes", "requestChanges", "Request changes to a phase.", APPROVER,
              lambda backend, values: backend.tasks.reject(*_review(values)), body=COMMENTS),
    Operation("POST", "/api/reviews/{prompt}/feedback", "commentReview", "Add comments to a review.", APPROVER,
              lambda backend, values: backend.tasks.comment(*_review(values)), body=COMMENTS),
    Operation("POST", "/api/questions/{prompt}/answer", "answer", "Answer a question.", APPROVER,
              lambda backend, values: backend.tasks.answer(values["prompt"], values["answer"], values["by"], values["exactly"]),
              body={"answer": {"type": "string", "minLength": 1, "maxLength": 10_000},
                    "exactly": {"type": "boolean", "default": False}}, needed=("answer",)),
    Operation("GET", "/api/questions/pending", "pendingQuestions", "List open questions.", VIEWER,
              lambda backend, _: backend.tasks.questions(), answers="array"),
    Operation("GET", "/api/inbox", "inbox", "List everything that waits for a person.", VIEWER,
              lambda backend, _: backend.tasks.inbox(),
              answers="array"),
    Operation("GET", "/api/settings", "showSettings", "List settings with their values and origins.", OPERATOR,
              lambda backend, _: preferences.list_settings(backend.engine.settings)),
    Operation("PATCH", "/api/settings", "changeSettings", "Change settings (only amounts, times and choices).", OPERATOR,
              lambda backend, values: preferences.change(backend, values["values"]),
              body={"values": {"type": "object"}}, needed=("values",)),
    Operation("GET", "/api/storage", "showStorage", "Show the size of the store and its retention.", VIEWER,
              lambda backend, _: backend.storage()),
)  # fmt: skip
