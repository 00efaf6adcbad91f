"""Pages that change something: previews and confirmations, then the action."""

from __future__ import annotations

from keepfast.model.errors import Usage
from keepfast.web.api import as_text
from keepfast.web.request import Page, PageRequest


def preview(request: PageRequest) -> Page:
    reference, path = request.fields.get("reference", ""), request.path()
    plan = request.backend.restores.preview(request.workspace, reference, (path,) if path else ())
    return Page(
        "restore.html",
        {
            "here": request.backend.workspace(request.workspace),
            "plan": plan,
            "path": as_text(path) if path else "",
            "what": "restore",
            "reference": reference,
        },
    )


def preview_back(request: PageRequest) -> Page:
    what = "redo" if request.fields.get("again") else "undo"
    plan = request.backend.restores.preview_undo(request.workspace, what == "redo")
    return Page(
        "restore.html",
        {"here": request.backend.workspace(request.workspace), "plan": plan, "path": "", "what": what, "reference": ""},
    )


def restore(request: PageRequest) -> Page:
    conflicts = request.fields.get("conflicts") or "ask"
    if conflicts not in ("ask", "mine", "theirs"):
        raise Usage("conflicts must be one of ask, mine, theirs.")
    # With `mine` the plan is smaller than the one that was shown, so its digest differs.
    agreed = request.fields.get("agreed", "") if conflicts != "mine" else ""
    if request.fields.get("what") in ("undo", "redo"):
        done = request.backend.restores.undo(request.workspace, agreed, conflicts, request.fields["what"] == "redo")
    else:
        path = request.path()
        done = request.backend.restores.restore(
            request.workspace, request.fields.get("reference", ""), (path,) if path else (), conflicts, agreed
        )
    return Page("restored.html", {"here": request.backend.workspace(request.workspace), "done": done})


def finish(request: PageRequest) -> Page:
    done = request.backend.restores.finish(request.workspace, request.fields.get("abort") == "yes")
    return Page("restored.html", {"here": request.backend.workspace(request.workspace), "done": done})


def save(request: PageRequest) -> Page:
    saved = request.backend.save(request.workspace, request.fields.get("message", "")[:2_000], "", (), False)
    return Page(goto=f"/w/{request.workspace}/v/{saved.version}")


def label(request: PageRequest) -> Page:
    pinned = {"yes": True, "no": False}.get(request.fields.get("pinned", ""))
    labelled = request.backend.label(request.workspace, request.parts["reference"], pinned, request.fields.get("name"))
    return Page(goto=f"/w/{request.workspace}/v/{labelled.version}")


def ask_fork(request: PageRequest) -> Page:
    checkpoint = request.backend.checkpoint(request.workspace, request.parts["reference"])
    here = request.backend.workspace(request.workspace)
    return Page("fork.html", {"here": here, "checkpoint": checkpoint, "folder": f"{here.root}-{checkpoint.version}"})


def fork(request: PageRequest) -> Page:
    forked = request.backend.restores.fork(request.workspace, request.parts["reference"], request.folder("folder"))
    return Page(goto=f"/w/{forked.workspace}")


def ask_forget(request: PageRequest) -> Page:
    checkpoint = request.backend.checkpoint(request.workspace, request.parts["reference"])
    return Page("forget.html", {"here": request.backend.workspace(request.workspace), "checkpoint": checkpoint})


def forget(request: PageRequest) -> Page:
    request.backend.forget(request.workspace, [request.parts["reference"]])
    return Page(goto=f"/w/{request.workspace}")
