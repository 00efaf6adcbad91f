"""The pages that look, the table of all of them, and their templates."""

from __future__ import annotations

import re
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from keepfast.model.errors import Usage
from keepfast.present.terminal import plural, rfc3339, size
from keepfast.web import action_pages as deeds
from keepfast.web import audit_trail as trail
from keepfast.web import log_lines, task_pages
from keepfast.web import markup as drawing
from keepfast.web.api import as_text
from keepfast.web.contents import NOW
from keepfast.web.request import Ask, Page, Route, link, number, path_of
from keepfast.web.sessions import APPROVER, OPERATOR, VIEWER

ROWS, HITS = 50, 100
BOARD = {
    "Working": (("active", "queued"), False),
    "On hold": (("active", "queued"), True),
    "For review": (("review",), None),
    "Drafts": (("draft",), None),
    "Done": (("done", "failed", "cancelled"), None),
}
"""The columns of the board: states, and whether something holds the task, where that tells two columns apart."""
LANE = 25
"""Tasks of a lane that the board shows; the others are counted."""
KEPT_UNITS = {"retention.hourly_hours": "hours", "checkpoint.cleanup_after_days": "days"}
LEVELS = ("problem", "note", "fine")


# Looking


def home(ask: Ask) -> Page:
    groups, verified = ask.desk.tasks.board(BOARD, LANE), ask.desk.verified()
    return Page(
        "home.html",
        {
            "workspaces": ask.desk.workspaces(),
            "inbox": ask.desk.tasks.inbox(),
            "groups": groups,
            "damaged_parts": verified.problems if verified else 0,
        },
    )


def workspace(ask: Ask) -> Page:
    desk, here = ask.desk, ask.desk.workspace(ask.workspace)
    before = number(ask.fields.get("before", ""))
    marks = desk.marks(ask.workspace)
    return Page(
        "workspace.html",
        {
            "here": here,
            "status": desk.status(ask.workspace),
            "rows": desk.checkpoints(ask.workspace, limit=ROWS, before=before),
            "before": before,
            "ways": desk.bring.ways_back(ask.workspace),
            "versions": [row.version for row in marks],
            "ends": [rfc3339(marks[0].created_at), rfc3339(marks[-1].created_at)] if marks else [],
            "timeline": drawing.timeline(marks, 0, ask.words("Timeline")),
            "kinds": drawing.kinds(marks),
            "meanings": drawing.MEANINGS,
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
    found = ask.desk.contents.diff(ask.workspace, old, new, path or None)
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
        raise Usage("The address names no file path.")
    facts, content = ask.desk.contents.file(ask.workspace, ask.parts["reference"], path)
    from keepfast.workspace.diff import is_binary

    lines: list[Any] = []
    plain = content is not None and not is_binary(content) and len(content) <= (1 << 20)
    if content is not None and plain:
        text = content.decode("utf-8", "replace").removesuffix("\n")
        lines = drawing.coloured(path.decode("utf-8", "replace"), text.split("\n")) if content else []
    return Page(
        "file.html",
        {
            "here": ask.desk.workspace(ask.workspace),
            "facts": facts,
            "lines": lines,
            "plain": plain,
            "closed": content is None,
            "path": as_text(path),
        },
    )


def brief(ask: Ask) -> Page:
    tokens = min(max(number(ask.fields.get("tokens", "")) or 5_000, 200), 20_000)
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
    entries = ask.desk.contents.folder(ask.workspace, ask.parts["reference"], path)
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
        raise Usage("The address names no file path.")
    states = ask.desk.contents.history(ask.workspace, path)
    return Page("history.html", {"here": ask.desk.workspace(ask.workspace), "states": states, "path": as_text(path)})


def search(ask: Ask) -> Page:
    text, where = ask.fields.get("text", "")[:500], ask.fields.get("workspace", "")
    hits = ask.desk.search(text, where, HITS) if text.strip() else None
    return Page("search.html", {"text": text, "hits": hits, "most": HITS})


def storage(ask: Ask) -> Page:
    return Page("storage.html", {"it": ask.desk.storage(), "kept_units": KEPT_UNITS})


def health(ask: Ask) -> Page:
    workspaces = ask.desk.workspaces()
    notices = [(here, notice) for here in workspaces for notice in ask.desk.notices(here["id"])]
    names = ask.desk.tasks.titles() | {here["id"]: here["name"] for here in workspaces}
    checks = sorted(ask.doctor(), key=lambda check: LEVELS.index(check.level))
    return Page(
        "health.html",
        {
            "checks": checks,
            "verified": ask.desk.verified(),
            "failed": [(here, notice) for here, notice in notices if notice["kind"] == "failed"],
            "skipped": [(here, notice) for here, notice in notices if notice["kind"] != "failed"],
            "audited": [trail.said(row, names) for row in ask.book.audited(50)],
        },
    )


ONE, AT = "/w/{workspace}", "/w/{workspace}/v/{reference}"
ROUTES = (
    Route("GET", "/", VIEWER, home),
    Route("GET", ONE, VIEWER, workspace),
    Route("GET", ONE + "/diff", VIEWER, difference),
    Route("GET", ONE + "/history", VIEWER, history),
    Route("GET", ONE + "/restore", VIEWER, deeds.preview),
    Route("GET", ONE + "/back", VIEWER, deeds.preview_back),
    Route("POST", ONE + "/restore", OPERATOR, deeds.restore),
    Route("POST", ONE + "/finish", OPERATOR, deeds.finish),
    Route("POST", ONE + "/save", OPERATOR, deeds.save),
    Route("GET", AT, VIEWER, checkpoint),
    Route("GET", AT + "/peek", VIEWER, peek),
    Route("GET", AT + "/file", VIEWER, view),
    Route("GET", AT + "/brief", VIEWER, brief),
    Route("GET", AT + "/tree", VIEWER, tree),
    Route("POST", AT + "/label", OPERATOR, deeds.label),
    Route("GET", AT + "/fork", VIEWER, deeds.ask_fork),
    Route("POST", AT + "/fork", OPERATOR, deeds.fork),
    Route("GET", AT + "/forget", VIEWER, deeds.ask_forget),
    Route("POST", AT + "/forget", OPERATOR, deeds.forget),
    Route("GET", "/tasks/new", OPERATOR, task_pages.new_task),
    Route("POST", "/tasks/new", OPERATOR, task_pages.make_task),
    Route("GET", "/t/{task}", VIEWER, task_pages.task),
    Route("POST", "/t/{task}/act", OPERATOR, task_pages.act),
    Route("POST", "/t/{task}/budget", OPERATOR, task_pages.budget),
    Route("POST", "/t/{task}/secret", APPROVER, task_pages.secret),
    Route("POST", "/t/{task}/back", OPERATOR, task_pages.task_back),
    Route("GET", "/t/{task}/review", VIEWER, task_pages.review),
    Route("GET", "/p/{prompt}", VIEWER, task_pages.prompt),
    Route("POST", "/p/{prompt}", APPROVER, task_pages.answer),
    Route("GET", "/search", VIEWER, search),
    Route("GET", "/storage", VIEWER, storage),
    Route("GET", "/health", VIEWER, health),
)


def _size(count: int) -> str:
    """The size as commands write it, with the space that a page has room for."""
    text = size(count)
    unit = text.lstrip("0123456789.")
    return f"{text.removesuffix(unit)}\u00a0{unit}"


ADDRESS = re.compile(r'( (?:href|action)=")/(?!static/)')
"""An address of ours in a page. What is text there has no quotes: they are escaped."""


def at_home(page: str, folder: str) -> str:
    """The page with all its links and forms within the folder of its session; templates name places without it."""
    return ADDRESS.sub(rf"\g<1>{folder}/", page) if folder else page


def environment(home: str = "") -> Environment:
    """The templates. Everything is escaped, and a value that is missing is an error, not a blank.

    Paths below `home` are shown with `~`.
    """
    found = Environment(
        loader=PackageLoader("keepfast.web"),
        autoescape=select_autoescape(default_for_string=True, default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(size=_size, visible=drawing.visible, visible_lines=drawing.visible_lines)
    found.filters.update(coded=drawing.coded, browser=drawing.browser, told=log_lines.told, amount=drawing.amount)
    found.filters.update(raised=drawing.raised)
    found.filters.update(short=lambda text: drawing.short(text, home), sentence=drawing.sentence)
    found.globals.update(plural=plural, link=link, path_of=path_of)
    return found
