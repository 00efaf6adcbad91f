"""Save what each tool call changed: what had changed before it was somebody else's, what changes until its end is its own."""

from __future__ import annotations

import os

from keepfast.app.checkpoint import Engine
from keepfast.model.agent_event import AgentEvent
from keepfast.model.errors import Busy, TooMany
from keepfast.model.event import BETWEEN, CREATED, TOOL, Event, Outcome
from keepfast.secrets.cuts import first_line
from keepfast.secrets.light_redaction import without_secrets
from keepfast.state import notices, open_calls, sessions
from keepfast.store.rows import CheckpointRow

BETWEEN_MESSAGE = "Changed between tool calls"
MAX_TITLE_CHARS, MAX_PROMPT_CHARS = 80, 200


def save_before(engine: Engine, root: bytes, folder: str, event: AgentEvent, now: int) -> Outcome | None:
    """Save what changed since the last checkpoint, unless another call is open: then it may be that call's.

    None if nothing could be saved; the tool call goes on all the same, and `status` says so.
    """
    if open_calls.begin(folder, event.call, now):
        return None
    return _save(engine, root, folder, Event(root, now, trigger=BETWEEN, message=BETWEEN_MESSAGE, created_by="auto"))


def save_after(engine: Engine, root: bytes, folder: str, event: AgentEvent, now: int) -> CheckpointRow | None:
    """Save what the call changed; return the checkpoint, None if there is none or it may hold what others changed, too."""
    overlaps = open_calls.end(folder, event.call)
    facts = sessions.facts(folder, event.session)
    prompt = facts.get("prompt")
    tool_call = {
        "id": event.call,
        "name": event.tool,
        "prompt": first_line(prompt, MAX_PROMPT_CHARS) if isinstance(prompt, str) else "",
        "prompted_at": facts.get("prompted") if isinstance(facts.get("prompted"), int) else 0,
        "offset": _size_of(event.transcript),
        "overlaps": overlaps,
        "subagent": event.subagent,
    }
    save = Event(
        root,
        now,
        trigger=TOOL,
        message=title_of(event, root),
        session=event.session[:200],
        agent=event.agent,
        created_by="auto",
        tool_call={key: value for key, value in tool_call.items() if value},
    )
    outcome = _save(engine, root, folder, save)
    is_its_own = outcome is not None and outcome.status == CREATED and not overlaps
    return outcome.checkpoint if outcome is not None and is_its_own else None


def title_of(event: AgentEvent, root: bytes) -> str:
    """Return one line about the call: the tool, and the command or the file that it was given."""
    subject = event.command
    written = [path[2:] for path in event.paths if path.startswith("w ")]
    if not subject and written:
        subject = written[0].removeprefix(os.fsdecode(root).rstrip("/") + "/")
    text = " ".join(without_secrets(f"{event.tool}: {subject}" if subject else event.tool).split())
    return text if len(text) <= MAX_TITLE_CHARS else text[: MAX_TITLE_CHARS - 1] + "…"


def _save(engine: Engine, root: bytes, folder: str, event: Event) -> Outcome | None:
    failure = notices.unsaved(folder)
    if failure is not None and failure.kind == TooMany.kind:
        return None  # the session was told; it is not counted again at every call
    try:
        return engine.handle(event)
    except Busy as error:
        engine.workspaces.note(
            root, "not protected", event.trigger, f"{error} The next checkpoint contains the changes."
        )
        return None


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size if path else 0
    except OSError:
        return 0
