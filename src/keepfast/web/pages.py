"""The read-only pages, the table of all pages, and the template environment."""

from __future__ import annotations

import re
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from keepfast.model.errors import Usage
from keepfast.present.terminal import plural, rfc3339, size
from keepfast.web import action_pages, audit_trail, log_lines, markup, task_pages
from keepfast.web.api import as_text
from keepfast.web.contents import NOW
from keepfast.web.request import Page, PageRequest, Route, link, number, path_of
from keepfast.web.sessions import APPROVER, OPERATOR, VIEWER
from keepfast.web.views import Comparison, HunkView
from keepfast.workspace.diff import is_binary

ROWS, HITS = 50, 100
BOARD = {
    "Working": (("active", "queued"), False),
    "On hold": (("active", "queued"), True),
    "For review": (("review",), None),
    "Drafts": (("draft",), None),
    "Done": (("done",), None),
    "Failed": (("failed",), None),
    "Cancelled": (("cancelled",), None),
}
"""The columns of the board: task states, and whether the task is held, where that separates two columns."""
LANE = 25
"""Tasks shown per column; the others are counted."""
KEPT_UNITS = {"retention.hourly_hours": "hours", "checkpoint.cleanup_after_days": "days"}
LEVELS = ("problem", "note", "fine")


# Pages


def home(request: PageRequest) -> Page:
    groups, verified = request.backend.tasks.board(BOARD, LANE), request.backend.verified()
    return Page(
        "home.html",
        {
            "workspaces": request.backend.workspaces(),
            "inbox": request.backend.tasks.inbox(),
            "groups": groups,
            "damaged_parts": verified.problems if verified else 0,
        },
    )


def workspace(request: PageRequest) -> Page:
    backend, here = request.backend, request.backend.workspace(request.workspace)
    before = number(request.fields.get("before", ""))
    marks = backend.marks(request.workspace)
    return Page(
        "workspace.html",
        {
            "here": here,
            "status": backend.status(request.workspace),
            "rows": backend.checkpoints(request.workspace, limit=ROWS, before=before),
            "before": before,
            "ways": backend.restores.ways_back(request.workspace),
            "versions": [row.version for row in marks],
            "ends": [rfc3339(marks[0].created_at), rfc3339(marks[-1].created_at)] if marks else [],
            "timeline": markup.timeline(marks, 0, request.words("Timeline")),
            "kinds": markup.kinds(marks),
            "meanings": markup.MEANINGS,
        },
    )


def checkpoint(request: PageRequest) -> Page:
    backend = request.backend
    details = backend.checkpoint(request.workspace, request.parts["reference"])
    return Page("checkpoint.html", {"here": backend.workspace(request.workspace), "checkpoint": details})


def peek(request: PageRequest) -> Page:
    """Return the summary of a checkpoint that the timeline's slider shows."""
    return Page(
        "checkpoint_summary.html",
        {
            "here": {"id": request.workspace},
            "checkpoint": request.backend.checkpoint(request.workspace, request.parts["reference"]),
        },
    )


def difference(request: PageRequest) -> Page:
    old, new = request.fields.get("old", ""), request.fields.get("new", "") or NOW
    path = request.path()
    comparison: Comparison
    hunks: list[HunkView] = []
    if path:
        comparison = request.backend.contents.diff_path(request.workspace, old, new, path)
        hunks = comparison.file.hunks if comparison.file is not None else []
    else:
        comparison = request.backend.contents.diff(request.workspace, old, new)
    side = request.fields.get("view") == "side"
    return Page(
        "diff.html",
        {
            "here": request.backend.workspace(request.workspace),
            "comparison": comparison,
            "old": old,
            "new": new,
            "path": as_text(path) if path else "",
            "side": side,
            "hunks": [markup.hunk_rows(path.decode("utf-8", "replace"), hunk) for hunk in hunks],
        },
    )


def view(request: PageRequest) -> Page:
    path = request.path()
    if not path:
        raise Usage("The address names no file path.")
    facts, content = request.backend.contents.file(request.workspace, request.parts["reference"], path)
    lines: list[Any] = []
    plain = content is not None and not is_binary(content) and len(content) <= (1 << 20)
    if content is not None and plain:
        text = content.decode("utf-8", "replace").removesuffix("\n")
        lines = markup.coloured(path.decode("utf-8", "replace"), text.split("\n")) if content else []
    return Page(
        "file.html",
        {
            "here": request.backend.workspace(request.workspace),
            "facts": facts,
            "lines": lines,
            "plain": plain,
            "closed": content is None,
            "path": as_text(path),
        },
    )


def brief(request: PageRequest) -> Page:
    tokens = min(max(number(request.fields.get("tokens", "")) or 5_000, 200), 20_000)
    resume_brief = request.backend.brief(request.workspace, request.parts["reference"], tokens)
    values = {
        "here": request.backend.workspace(request.workspace),
        "reference": request.parts["reference"],
        "brief": resume_brief,
        "most": tokens,
    }
    return Page("brief.html", values)


def tree(request: PageRequest) -> Page:
    path = request.path()
    entries = request.backend.contents.folder(request.workspace, request.parts["reference"], path)
    return Page(
        "tree.html",
        {
            "here": request.backend.workspace(request.workspace),
            "reference": request.parts["reference"],
            "entries": entries[:5_000],
            "count": len(entries),
            "path": as_text(path) if path else "",
            "up": as_text(path.rpartition(b"/")[0]) if b"/" in path else "",
        },
    )


def history(request: PageRequest) -> Page:
    path = request.path()
    if not path:
        raise Usage("The address names no file path.")
    states = request.backend.contents.history(request.workspace, path)
    return Page(
        "history.html", {"here": request.backend.workspace(request.workspace), "states": states, "path": as_text(path)}
    )


def search(request: PageRequest) -> Page:
    text, where = request.fields.get("text", "")[:500], request.fields.get("workspace", "")
    hits = request.backend.search(text, where, HITS) if text.strip() else None
    return Page("search.html", {"text": text, "hits": hits, "most": HITS})


def storage(request: PageRequest) -> Page:
    return Page("storage.html", {"storage": request.backend.storage(), "kept_units": KEPT_UNITS})


def health(request: PageRequest) -> Page:
    workspaces = request.backend.workspaces()
    notices = [(here, notice) for here in workspaces for notice in request.backend.notices(here.id)]
    names = request.backend.tasks.titles() | {here.id: here.name for here in workspaces}
    checks = sorted(request.doctor(), key=lambda check: LEVELS.index(check.level))
    return Page(
        "health.html",
        {
            "checks": checks,
            "verified": request.backend.verified(),
            "failed": [(here, notice) for here, notice in notices if notice["kind"] == "failed"],
            "skipped": [(here, notice) for here, notice in notices if notice["kind"] != "failed"],
            "audited": [audit_trail.describe(row, names) for row in request.database.audit_rows(50)],
        },
    )


ONE, AT = "/w/{workspace}", "/w/{workspace}/v/{reference}"
ROUTES = (
    Route("GET", "/", VIEWER, home),
    Route("GET", ONE, VIEWER, workspace),
    Route("GET", ONE + "/diff", VIEWER, difference),
    Route("GET", ONE + "/history", VIEWER, history),
    Route("GET", ONE + "/restore", VIEWER, action_pages.preview),
    Route("GET", ONE + "/back", VIEWER, action_pages.preview_back),
    Route("POST", ONE + "/restore", OPERATOR, action_pages.restore),
    Route("POST", ONE + "/finish", OPERATOR, action_pages.finish),
    Route("POST", ONE + "/save", OPERATOR, action_pages.save),
    Route("GET", AT, VIEWER, checkpoint),
    Route("GET", AT + "/peek", VIEWER, peek),
    Route("GET", AT + "/file", VIEWER, view),
    Route("GET", AT + "/brief", VIEWER, brief),
    Route("GET", AT + "/tree", VIEWER, tree),
    Route("POST", AT + "/label", OPERATOR, action_pages.label),
    Route("GET", AT + "/fork", VIEWER, action_pages.ask_fork),
    Route("POST", AT + "/fork", OPERATOR, action_pages.fork),
    Route("GET", AT + "/forget", VIEWER, action_pages.ask_forget),
    Route("POST", AT + "/forget", OPERATOR, action_pages.forget),
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
    """Return a size as commands write it, with a space before the unit."""
    text = size(count)
    unit = text.lstrip("0123456789.")
    return f"{text.removesuffix(unit)}\u00a0{unit}"


ADDRESS = re.compile(r'( (?:href|action)=")/(?!static/)')
"""Our own addresses in a page. Text cannot match: its quotes are escaped."""


def in_session_folder(page: str, folder: str) -> str:
    """Return the page with all links and forms inside the session's folder; templates write addresses without it."""
    return ADDRESS.sub(rf"\g<1>{folder}/", page) if folder else page


def environment(home: str = "") -> Environment:
    """Return the template environment. Everything is escaped; a missing value is an error.

    Paths below `home` are shown with `~`.
    """
    templates = Environment(
        loader=PackageLoader("keepfast.web"),
        autoescape=select_autoescape(default_for_string=True, default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(size=_size, visible=markup.visible, visible_lines=markup.visible_lines)
    templates.filters.update(coded=markup.coded, browser=markup.browser, facts=log_lines.facts, amount=markup.amount)
    templates.filters.update(suggested_limits=markup.suggested_limits)
    templates.filters.update(short=lambda text: markup.short(text, home), sentence=markup.sentence)
    templates.globals.update(plural=plural, link=link, path_of=path_of)
    return templates
