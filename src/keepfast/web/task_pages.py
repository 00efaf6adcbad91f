"""Pages of tasks: a task, its review, a prompt, a new task, and their actions."""

from __future__ import annotations

import shlex
from typing import Any

from keepfast.model.errors import Usage
from keepfast.runner.domain.reviews import Remark
from keepfast.web import markup
from keepfast.web import task_timeline as lanes
from keepfast.web.api import as_path
from keepfast.web.request import Fields, Page, PageRequest, number
from keepfast.workspace.marker import show


def task(request: PageRequest) -> Page:
    work, name = request.backend.tasks, request.parts["task"]
    view = work.show(name)
    prompts: list[dict[str, Any]] = [{**prompt, "title": view["title"]} for prompt in view["prompts"]]
    events, course = work.recent(name, 1_000), work.course(name)
    return Page(
        "task.html",
        {
            "task": view,
            "phases": work.phases(name),
            "waiting": [prompt for prompt in prompts if prompt["status"] in ("pending", "presented")],
            "answered": [prompt for prompt in prompts if prompt["status"] not in ("pending", "presented")],
            "changes": work.changes(name),
            "events": [event for event in events[::-1] if event["type"] != markup.CONTEXT][:100],  # those are drawn
            "output": work.output(name),
            "course": course,
            "lanes": lanes.draw(course, request.words) if view["started_at"] else "",
            "filled": markup.usage_plot(
                events, _threshold(request), request.words, request.words("Context and limits")
            ),
            "verifications": work.verifications(name)[:10],
        },
    )


def review(request: PageRequest) -> Page:
    """Return the changes of the phase, line by line; each line can be commented on."""
    work, name = request.backend.tasks, request.parts["task"]
    view, patch = work.show(name), work.patch(name)
    waiting = [
        prompt
        for prompt in view["prompts"]
        if prompt["status"] in ("pending", "presented") and prompt["kind"] == "approval"
    ]
    rows = [[markup.hunk_rows(file.lines.path, hunk) for hunk in file.lines.hunks] for file in patch.files]
    return Page("review.html", {"task": view, "patch": patch, "rows": rows, "waiting": waiting})


def prompt(request: PageRequest) -> Page:
    """Return the page of one prompt, to which notifications lead, also after it was answered."""
    view = request.backend.tasks.waiting(request.parts["prompt"])
    return Page("prompt.html", {"prompt": view, "open": view["status"] in ("pending", "presented")})


def new_task(request: PageRequest) -> Page:
    return Page("new_task.html", {"workspaces": request.backend.workspaces()})


def make_task(request: PageRequest) -> Page:
    fields = request.fields
    phases = [{"prompt": text.strip()} for text in _lines(fields, "phases").split("\n---\n") if text.strip()]
    values: dict[str, Any] = {
        "brief": _lines(fields, "brief"),
        "workspace": request.folder("workspace"),
        "start": fields.get("start", "yes") == "yes",
    }
    if fields.get("title"):
        values["title"] = fields["title"]
    if fields.get("command"):
        values["agent"] = {"command": shlex.split(fields["command"])}
    verify = fields.get("verify", "").strip()
    if phases or verify:
        # A verification belongs to a phase, so a task without phases gets one.
        values["phases"] = [{**phase, "verify": verify, "review": True} for phase in phases or [{"prompt": ""}]]
    return Page(goto=f"/t/{request.backend.tasks.new(values)['id']}")


def act(request: PageRequest) -> Page:
    request.backend.tasks.act(request.parts["task"], request.fields.get("action", ""))
    return Page(goto=f"/t/{request.parts['task']}")


def budget(request: PageRequest) -> Page:
    try:
        tokens = int(request.fields["tokens"]) if request.fields.get("tokens") else None
        money, minutes = (
            float(request.fields[name]) if request.fields.get(name) else None for name in ("money", "minutes")
        )
    except ValueError:
        raise Usage("A budget must be a number.") from None
    request.backend.tasks.budget(request.parts["task"], tokens, money, minutes)
    return Page(goto="/" if request.fields.get("back") == "/" else f"/t/{request.parts['task']}")


def secret(request: PageRequest) -> Page:
    request.backend.tasks.secret(request.parts["task"], request.fields.get("name", ""), request.fields.get("value", ""))
    return Page(goto="/" if request.fields.get("back") == "/" else f"/t/{request.parts['task']}")


def answer(request: PageRequest) -> Page:
    """Answer a question, approve a phase, or request changes to it."""
    work, prompt, kind = request.backend.tasks, request.parts["prompt"], request.fields.get("kind", "")
    if kind == "approve":
        done = work.approve(prompt, request.visitor.role, request.fields.get("anyway") == "yes")
    elif kind == "reject":
        done = work.reject(prompt, _lines(request.fields, "comments"), request.visitor.role, _remarks(request.fields))
    else:
        exactly = request.fields.get("exactly") == "yes"
        done = work.answer(prompt, request.fields.get("answer", ""), request.visitor.role, exactly)
    return Page(goto="/" if request.fields.get("back") == "/" else f"/t/{done['id']}")


def task_back(request: PageRequest) -> Page:
    request.backend.tasks.restore(request.parts["task"], request.fields.get("checkpoint", ""))
    return Page(goto=f"/t/{request.parts['task']}")


def _threshold(request: PageRequest) -> int:
    """Return the percentage of the context at which a checkpoint is saved."""
    return int(request.backend.engine.settings["hooks.checkpoint_threshold_percent"])


def _lines(fields: Fields, name: str) -> str:
    """Return a multi-line field with plain line feeds; forms send CRLF."""
    return fields.get(name, "").replace("\r\n", "\n")


def _remarks(fields: Fields) -> list[Remark]:
    """Return the comments on lines: fields named `at path:12`, or `at path:-12` for a removed line."""
    remarks = []
    for name in fields:
        text = _lines(fields, name).strip()
        if name.startswith("at ") and text:
            path, _, line = name[3:].rpartition(":")
            removed, digits = line.startswith("-"), line.removeprefix("-")
            remarks.append(Remark(show(as_path(path)), -number(digits) if removed else number(digits), text))
    return remarks
