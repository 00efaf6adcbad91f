"""Pages that do something with checkpoints: first what would be done, then the doing."""

from __future__ import annotations

from keepfast.model.errors import Usage
from keepfast.web.api import as_text
from keepfast.web.request import Ask, Page


def preview(ask: Ask) -> Page:
    reference, path = ask.fields.get("reference", ""), ask.path()
    found = ask.desk.bring.preview(ask.workspace, reference, (path,) if path else ())
    return Page(
        "restore.html",
        {"here": ask.desk.workspace(ask.workspace), "plan": found, "path": as_text(path) if path else "", "what": "restore",
         "reference": reference},
    )  # fmt: skip


def preview_back(ask: Ask) -> Page:
    what = "redo" if ask.fields.get("again") else "undo"
    found = ask.desk.bring.preview_undo(ask.workspace, what == "redo")
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
        done = ask.desk.bring.undo(ask.workspace, agreed, conflicts, ask.fields["what"] == "redo")
    else:
        path = ask.path()
        done = ask.desk.bring.restore(
            ask.workspace, ask.fields.get("reference", ""), (path,) if path else (), conflicts, agreed
        )
    return Page("restored.html", {"here": ask.desk.workspace(ask.workspace), "done": done})


def finish(ask: Ask) -> Page:
    done = ask.desk.bring.finish(ask.workspace, ask.fields.get("abort") == "yes")
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
    made = ask.desk.bring.fork(ask.workspace, ask.parts["reference"], ask.folder("folder"))
    return Page(goto=f"/w/{made['workspace']}")


def ask_forget(ask: Ask) -> Page:
    found = ask.desk.checkpoint(ask.workspace, ask.parts["reference"])
    return Page("forget.html", {"here": ask.desk.workspace(ask.workspace), "it": found})


def forget(ask: Ask) -> Page:
    ask.desk.forget(ask.workspace, [ask.parts["reference"]])
    return Page(goto=f"/w/{ask.workspace}")
