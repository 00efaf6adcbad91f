"""The pages: the operations of the desk as HTML, rendered on the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from holdfast.core.errors import Usage
from holdfast.frontends.paint import age_in_words, plural, size
from holdfast.frontends.web import drawing
from holdfast.frontends.web.api import as_path, as_text
from holdfast.frontends.web.book import APPROVER, OPERATOR, VIEWER, Book, Visitor
from holdfast.frontends.web.desk import NOW, Desk
from holdfast.frontends.web.words import Words

if TYPE_CHECKING:
    Fields = Mapping[str, str]

ROWS = 50
BOARD = {
    "Working": ("active", "queued"),
    "For review": ("review",),
    "Drafts": ("draft",),
    "Done": ("done", "failed", "cancelled"),
}
"""The columns of the board, by state."""
SHOWN = 400


class Ask(NamedTuple):
    """What a page was asked for, by whom, in which language."""

    desk: Desk
    book: Book
    parts: Mapping[str, str]
    fields: Fields
    visitor: Visitor
    words: Words

    @property
    def workspace(self) -> str:
        return self.parts["workspace"]

    def path(self) -> bytes:
        return as_path(self.fields["path"]) if self.fields.get("path") else b""


class Page(NamedTuple):
    """A template and its values; or, after something was done, where to go."""

    template: str = ""
    values: Mapping[str, Any] = {}
    goto: str = ""


class Route(NamedTuple):
    method: str
    path: str
    role: str
    run: Callable[[Ask], Page]


# Looking


def home(ask: Ask) -> Page:
    tasks = ask.desk.tasks.all()
    groups = {name: [task for task in tasks if task["state"] in states] for name, states in BOARD.items()}
    return Page(
        "home.html",
        {"workspaces": ask.desk.workspaces(), "inbox": ask.desk.tasks.inbox(), "groups": groups, "tasks": tasks},
    )


def workspace(ask: Ask) -> Page:
    desk, here = ask.desk, ask.desk.workspace(ask.workspace)
    before = _number(ask.fields.get("before", ""))
    marks = desk.marks(ask.workspace)
    return Page(
        "workspace.html",
        {
            "here": here,
            "status": desk.status(ask.workspace),
            "rows": desk.checkpoints(ask.workspace, limit=ROWS, before=before),
            "before": before,
            "versions": [row.version for row in marks],
            "timeline": drawing.timeline(marks, 0, ask.words("Timeline")),
        },
    )


def checkpoint(ask: Ask) -> Page:
    desk = ask.desk
    found = desk.checkpoint(ask.workspace, ask.parts["reference"])
    return Page("checkpoint.html", {"here": desk.workspace(ask.workspace), "it": found})


def peek(ask: Ask) -> Page:
    """The part of a checkpoint's page that moving through time shows."""
    return Page(
        "peek.html", {"here": {"id": ask.workspace}, "it": ask.desk.checkpoint(ask.workspace, ask.parts["reference"])}
    )


def difference(ask: Ask) -> Page:
    old, new = ask.fields.get("old", ""), ask.fields.get("new", "") or NOW
    path = ask.path()
    found = ask.desk.diff(ask.workspace, old, new, path or None)
    side = ask.fields.get("view") == "side"
    return Page(
        "diff.html",
        {
            "here": ask.desk.workspace(ask.workspace),
            "found": found,
            "old": old,
            "new": new,
            "path": as_text(path) if path else "",
            "side": side,
            "hunks": [
                drawing.sides(path.decode("utf-8", "replace"), hunk)
                for hunk in (found.get("file") or {}).get("hunks", [])
            ],
        },
    )


def view(ask: Ask) -> Page:
    path = ask.path()
    if not path:
        raise Usage("Which file? The address lacks its path.")
    facts, content = ask.desk.file(ask.workspace, ask.parts["reference"], path)
    from holdfast.workspace.diff import is_binary

    lines: list[Any] = []
    plain = not is_binary(content) and len(content) <= (1 << 20)
    if plain:
        lines = drawing.coloured(path.decode("utf-8", "replace"), content.decode("utf-8", "replace").split("\n"))
    return Page(
        "file.html",
        {
            "here": ask.desk.workspace(ask.workspace),
            "facts": facts,
            "lines": lines,
            "plain": plain,
            "path": as_text(path),
        },
    )


def brief(ask: Ask) -> Page:
    tokens = min(max(_number(ask.fields.get("tokens", "")) or 5_000, 200), 20_000)
    found = ask.desk.brief(ask.workspace, ask.parts["reference"], tokens)
    values = {
        "here": ask.desk.workspace(ask.workspace),
        "reference": ask.parts["reference"],
        "found": found,
        "most": tokens,
    }
    return Page("brief.html", values)


def tree(ask: Ask) -> Page:
    path = ask.path()
    entries = ask.desk.folder(ask.workspace, ask.parts["reference"], path)
    return Page(
        "tree.html",
        {
            "here": ask.desk.workspace(ask.workspace),
            "reference": ask.parts["reference"],
            "entries": entries[:5_000],
            "count": len(entries),
            "path": as_text(path) if path else "",
            "up": as_text(path.rpartition(b"/")[0]) if b"/" in path else "",
        },
    )


def history(ask: Ask) -> Page:
    path = ask.path()
    if not path:
        raise Usage("Which file? The address lacks its path.")
    states = ask.desk.history(ask.workspace, path)
    return Page("history.html", {"here": ask.desk.workspace(ask.workspace), "states": states, "path": as_text(path)})


def search(ask: Ask) -> Page:
    text, where = ask.fields.get("text", "")[:500], ask.fields.get("workspace", "")
    return Page("search.html", {"text": text, "hits": ask.desk.search(text, where, 100) if text.strip() else None})


def storage(ask: Ask) -> Page:
    return Page("storage.html", {"it": ask.desk.storage()})


def health(ask: Ask) -> Page:
    notices = [(here, notice) for here in ask.desk.workspaces() for notice in ask.desk.notices(here["id"])]
    return Page("health.html", {"notices": notices, "audited": ask.book.audited(50)})


# Tasks


def task(ask: Ask) -> Page:
    work, name = ask.desk.tasks, ask.parts["task"]
    found = work.show(name)
    found["prompts"] = [{**one, "title": found["title"]} for one in found["prompts"]]
    events = work.log(name, 0, 1_000)
    return Page(
        "task.html",
        {
            "it": found,
            "phases": work.phases(name),
            "waiting": [one for one in found["prompts"] if one["status"] in ("pending", "presented")],
            "answered": [one for one in found["prompts"] if one["status"] not in ("pending", "presented")],
            "changes": work.changes(name),
            "events": events[::-1][:100],
            "output": work.output(name),
            "lanes": drawing.lanes(events, ask.words("Timeline")),
            "filled": drawing.filled(events, ask.words("tokens")),
        },
    )


def new_task(ask: Ask) -> Page:
    return Page("new_task.html", {"workspaces": ask.desk.workspaces()})


def make_task(ask: Ask) -> Page:
    fields = ask.fields
    phases = [{"prompt": text.strip()} for text in fields.get("phases", "").split("\n---\n") if text.strip()]
    values: dict[str, Any] = {
        "brief": fields.get("brief", ""),
        "workspace": fields.get("workspace", ""),
        "start": fields.get("start", "yes") == "yes",
    }
    if fields.get("title"):
        values["title"] = fields["title"]
    if fields.get("command"):
        import shlex

        values["agent"] = {"command": shlex.split(fields["command"])}
    if phases:
        gate = {"verify": fields.get("verify", ""), "review": True}
        values["phases"] = [{**phase, **gate} for phase in phases]
    return Page(goto=f"/t/{ask.desk.tasks.new(values)['id']}")


def act(ask: Ask) -> Page:
    ask.desk.tasks.act(ask.parts["task"], ask.fields.get("action", ""))
    return Page(goto=f"/t/{ask.parts['task']}")


def budget(ask: Ask) -> Page:
    try:
        tokens = int(ask.fields["tokens"]) if ask.fields.get("tokens") else None
        money, minutes = (float(ask.fields[name]) if ask.fields.get(name) else None for name in ("money", "minutes"))
    except ValueError:
        raise Usage("A budget is a number.") from None
    ask.desk.tasks.budget(ask.parts["task"], tokens, money, minutes)
    return Page(goto=f"/t/{ask.parts['task']}")


def secret(ask: Ask) -> Page:
    ask.desk.tasks.secret(ask.parts["task"], ask.fields.get("name", ""), ask.fields.get("value", ""))
    return Page(goto="/" if ask.fields.get("back") == "/" else f"/t/{ask.parts['task']}")


def answer(ask: Ask) -> Page:
    """Answer a question, approve a phase or send it back; an answer that came too late says so."""
    work, prompt, kind = ask.desk.tasks, ask.parts["prompt"], ask.fields.get("kind", "")
    if kind == "approve":
        done = work.approve(prompt, ask.visitor.role)
    elif kind == "reject":
        done = work.reject(prompt, _comments(ask.fields), ask.visitor.role)
    else:
        done = work.answer(prompt, ask.fields.get("answer", ""), ask.visitor.role)
    return Page(goto="/" if ask.fields.get("back") == "/" else f"/t/{done['id']}")


def task_back(ask: Ask) -> Page:
    ask.desk.tasks.restore(ask.parts["task"], ask.fields.get("checkpoint", ""))
    return Page(goto=f"/t/{ask.parts['task']}")


def _comments(fields: Fields) -> str:
    """The general comment, then those that were made at a line."""
    lines = [fields.get("comments", "").strip()]
    for name, text in fields.items():
        if name.startswith("at ") and text.strip():
            lines.append(f"{name[3:]}: {text.strip()}")
    return "\n".join([line for line in lines if line])


# Doing: first what would be done, then the doing


def preview(ask: Ask) -> Page:
    reference, path = ask.fields.get("reference", ""), ask.path()
    found = ask.desk.preview(ask.workspace, reference, (path,) if path else ())
    return Page(
        "restore.html",
        {"here": ask.desk.workspace(ask.workspace), "plan": found, "path": as_text(path) if path else "", "what": "restore",
         "reference": reference},
    )  # fmt: skip


def preview_back(ask: Ask) -> Page:
    what = "redo" if ask.fields.get("again") else "undo"
    found = ask.desk.preview_undo(ask.workspace, what == "redo")
    return Page(
        "restore.html",
        {"here": ask.desk.workspace(ask.workspace), "plan": found, "path": "", "what": what, "reference": ""},
    )


def restore(ask: Ask) -> Page:
    conflicts = ask.fields.get("conflicts") or "ask"
    if conflicts not in ("ask", "mine", "theirs"):
        raise Usage("conflicts must be one of ask, mine, theirs.")
    # Leaving files alone makes a smaller plan than the one that was shown; the digest speaks of the whole.
    agreed = ask.fields.get("agreed", "") if conflicts != "mine" else ""
    if ask.fields.get("what") in ("undo", "redo"):
        done = ask.desk.undo(ask.workspace, agreed, conflicts, ask.fields["what"] == "redo")
    else:
        path = ask.path()
        done = ask.desk.restore(
            ask.workspace, ask.fields.get("reference", ""), (path,) if path else (), conflicts, agreed
        )
    return Page("restored.html", {"here": ask.desk.workspace(ask.workspace), "done": done})


def finish(ask: Ask) -> Page:
    done = ask.desk.finish(ask.workspace, ask.fields.get("abort") == "yes")
    return Page("restored.html", {"here": ask.desk.workspace(ask.workspace), "done": done})


def save(ask: Ask) -> Page:
    made = ask.desk.save(ask.workspace, ask.fields.get("message", "")[:2_000], "", (), False)
    return Page(goto=f"/w/{ask.workspace}/v/{made['version']}")


def label(ask: Ask) -> Page:
    pinned = {"yes": True, "no": False}.get(ask.fields.get("pinned", ""))
    found = ask.desk.label(ask.workspace, ask.parts["reference"], pinned, ask.fields.get("name"))
    return Page(goto=f"/w/{ask.workspace}/v/{found['version']}")


def ask_fork(ask: Ask) -> Page:
    found = ask.desk.checkpoint(ask.workspace, ask.parts["reference"])
    here = ask.desk.workspace(ask.workspace)
    return Page("fork.html", {"here": here, "it": found, "folder": f"{here['root']}-{found['version']}"})


def fork(ask: Ask) -> Page:
    made = ask.desk.fork(ask.workspace, ask.parts["reference"], ask.fields.get("folder", ""))
    return Page(goto=f"/w/{made['workspace']}")


def ask_forget(ask: Ask) -> Page:
    found = ask.desk.checkpoint(ask.workspace, ask.parts["reference"])
    return Page("forget.html", {"here": ask.desk.workspace(ask.workspace), "it": found})


def forget(ask: Ask) -> Page:
    ask.desk.forget(ask.workspace, [ask.parts["reference"]])
    return Page(goto=f"/w/{ask.workspace}")


ONE, AT = "/w/{workspace}", "/w/{workspace}/v/{reference}"
ROUTES = (
    Route("GET", "/", VIEWER, home),
    Route("GET", ONE, VIEWER, workspace),
    Route("GET", ONE + "/diff", VIEWER, difference),
    Route("GET", ONE + "/history", VIEWER, history),
    Route("GET", ONE + "/restore", VIEWER, preview),
    Route("GET", ONE + "/back", VIEWER, preview_back),
    Route("POST", ONE + "/restore", OPERATOR, restore),
    Route("POST", ONE + "/finish", OPERATOR, finish),
    Route("POST", ONE + "/save", OPERATOR, save),
    Route("GET", AT, VIEWER, checkpoint),
    Route("GET", AT + "/peek", VIEWER, peek),
    Route("GET", AT + "/file", VIEWER, view),
    Route("GET", AT + "/brief", VIEWER, brief),
    Route("GET", AT + "/tree", VIEWER, tree),
    Route("POST", AT + "/label", OPERATOR, label),
    Route("GET", AT + "/fork", VIEWER, ask_fork),
    Route("POST", AT + "/fork", OPERATOR, fork),
    Route("GET", AT + "/forget", VIEWER, ask_forget),
    Route("POST", AT + "/forget", OPERATOR, forget),
    Route("GET", "/tasks/new", OPERATOR, new_task),
    Route("POST", "/tasks/new", OPERATOR, make_task),
    Route("GET", "/t/{task}", VIEWER, task),
    Route("POST", "/t/{task}/act", OPERATOR, act),
    Route("POST", "/t/{task}/budget", OPERATOR, budget),
    Route("POST", "/t/{task}/secret", APPROVER, secret),
    Route("POST", "/t/{task}/back", OPERATOR, task_back),
    Route("POST", "/p/{prompt}", APPROVER, answer),
    Route("GET", "/search", VIEWER, search),
    Route("GET", "/storage", VIEWER, storage),
    Route("GET", "/health", VIEWER, health),
)


def environment() -> Environment:
    """The templates. Everything is escaped, and a value that is missing is an error, not a blank."""
    found = Environment(
        loader=PackageLoader("holdfast.frontends.web"),
        autoescape=select_autoescape(default_for_string=True, default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(size=size, visible=drawing.visible, visible_lines=drawing.visible_lines)
    found.globals.update(plural=plural, link=link, age=age_in_words)
    return found


def link(path: str, /, **fields: object) -> str:
    """An address with its fields; those that are empty are left out."""
    given = {name: str(value) for name, value in fields.items() if value}
    return f"{path}?{urlencode(given, errors='surrogateescape')}" if given else path


def fields_of(query: bytes) -> dict[str, str]:
    return dict(parse_qsl(query.decode("ascii", "replace"), keep_blank_values=True, errors="surrogateescape"))


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else 0
