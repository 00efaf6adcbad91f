"""Pages about tasks: one task, a new one, and what a person answers or wants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keepfast.model.errors import Usage
from keepfast.runner.domain.reviews import Remark
from keepfast.web import markup as drawing
from keepfast.web import task_timeline as lanes
from keepfast.web.api import as_path
from keepfast.web.request import Ask, Page, number
from keepfast.workspace.marker import show

if TYPE_CHECKING:
    from keepfast.web.request import Fields


def task(ask: Ask) -> Page:
    work, name = ask.desk.tasks, ask.parts["task"]
    found = work.show(name)
    found["prompts"] = [{**one, "title": found["title"]} for one in found["prompts"]]
    events, course = work.recent(name, 1_000), work.course(name)
    return Page(
        "task.html",
        {
            "it": found,
            "phases": work.phases(name),
            "waiting": [one for one in found["prompts"] if one["status"] in ("pending", "presented")],
            "answered": [one for one in found["prompts"] if one["status"] not in ("pending", "presented")],
            "changes": work.changes(name),
            "events": [event for event in events[::-1] if event["type"] != drawing.CONTEXT][:100],  # those are drawn
            "output": work.output(name),
            "course": course,
            "lanes": lanes.draw(course, ask.words) if found["started_at"] else "",
            "filled": drawing.filled(events, _threshold(ask), ask.words, ask.words("Context and limits")),
            "verifications": work.verifications(name)[:10],
        },
    )


def review(ask: Ask) -> Page:
    """What changed in the phase, line by line; each line takes a comment."""
    work, name = ask.desk.tasks, ask.parts["task"]
    found, patch = work.show(name), work.patch(name)
    waiting = [
        one for one in found["prompts"] if one["status"] in ("pending", "presented") and one["kind"] == "approval"
    ]
    for file in patch["files"]:
        file["rows"] = [drawing.sides(file["path"], hunk) for hunk in file["hunks"]]
    return Page("review.html", {"it": found, "patch": patch, "waiting": waiting})


def prompt(ask: Ask) -> Page:
    """What somebody is asked, where a notification leads; or that it is no longer waiting."""
    found = ask.desk.tasks.waiting(ask.parts["prompt"])
    return Page("prompt.html", {"one": found, "open": found["status"] in ("pending", "presented")})


def new_task(ask: Ask) -> Page:
    return Page("new_task.html", {"workspaces": ask.desk.workspaces()})


def make_task(ask: Ask) -> Page:
    fields = ask.fields
    phases = [{"prompt": text.strip()} for text in _lines(fields, "phases").split("\n---\n") if text.strip()]
    values: dict[str, Any] = {
        "brief": _lines(fields, "brief"),
        "workspace": ask.folder("workspace"),
        "start": fields.get("start", "yes") == "yes",
    }
    if fields.get("title"):
        values["title"] = fields["title"]
    if fields.get("command"):
        import shlex

        values["agent"] = {"command": shlex.split(fields["command"])}
    verify = fields.get("verify", "").strip()
    if phases or verify:
        # A verification belongs to a phase: without any, all of the task is one.
        values["phases"] = [{**phase, "verify": verify, "review": True} for phase in phases or [{"prompt": ""}]]
    return Page(goto=f"/t/{ask.desk.tasks.new(values)['id']}")


def act(ask: Ask) -> Page:
    ask.desk.tasks.act(ask.parts["task"], ask.fields.get("action", ""))
    return Page(goto=f"/t/{ask.parts['task']}")


def budget(ask: Ask) -> Page:
    try:
        tokens = int(ask.fields["tokens"]) if ask.fields.get("tokens") else None
        money, minutes = (float(ask.fields[name]) if ask.fields.get(name) else None for name in ("money", "minutes"))
    except ValueError:
        raise Usage("A budget must be a number.") from None
    ask.desk.tasks.budget(ask.parts["task"], tokens, money, minutes)
    return Page(goto="/" if ask.fields.get("back") == "/" else f"/t/{ask.parts['task']}")


def secret(ask: Ask) -> Page:
    ask.desk.tasks.secret(ask.parts["task"], ask.fields.get("name", ""), ask.fields.get("value", ""))
    return Page(goto="/" if ask.fields.get("back") == "/" else f"/t/{ask.parts['task']}")


def answer(ask: Ask) -> Page:
    """Answer a question, approve a phase or send it back; an answer that came too late says so."""
    work, prompt, kind = ask.desk.tasks, ask.parts["prompt"], ask.fields.get("kind", "")
    if kind == "approve":
        done = work.approve(prompt, ask.visitor.role, ask.fields.get("anyway") == "yes")
    elif kind == "reject":
        done = work.reject(prompt, _lines(ask.fields, "comments"), ask.visitor.role, _remarks(ask.fields))
    else:
        exactly = ask.fields.get("exactly") == "yes"
        done = work.answer(prompt, ask.fields.get("answer", ""), ask.visitor.role, exactly)
    return Page(goto="/" if ask.fields.get("back") == "/" else f"/t/{done['id']}")


def task_back(ask: Ask) -> Page:
    ask.desk.tasks.restore(ask.parts["task"], ask.fields.get("checkpoint", ""))
    return Page(goto=f"/t/{ask.parts['task']}")


def _threshold(ask: Ask) -> int:
    """The share of the token budget at which a checkpoint is taken."""
    return int(ask.desk.engine.settings["hooks.checkpoint_threshold_percent"])


def _lines(fields: Fields, name: str) -> str:
    """A text of several lines as people mean it; a form sends each of their ends as two characters."""
    return fields.get(name, "").replace("\r\n", "\n")


def _remarks(fields: Fields) -> list[Remark]:
    """What was said at a line: a field named `at path:12`, or `at path:-12` if that line was removed."""
    found = []
    for name in fields:
        text = _lines(fields, name).strip()
        if name.startswith("at ") and text:
            path, _, line = name[3:].rpartition(":")
            removed, digits = line.startswith("-"), line.removeprefix("-")
            found.append(Remark(show(as_path(path)), -number(digits) if removed else number(digits), text))
    return found
