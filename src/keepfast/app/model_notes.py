"""Notes by a language model, if the user enabled it: asked by the worker after the checkpoint, never waited for."""

from __future__ import annotations

import os
from typing import Any

from keepfast.app.checkpoint import Engine
from keepfast.model.errors import Failed, KeepfastError
from keepfast.resume.model_answer import Extract, checked, mark
from keepfast.secrets.redaction import redact
from keepfast.settings import Settings
from keepfast.state import sessions

OFF, ANTHROPIC, COMMAND = "off", "anthropic", "command"
MINUTE = 60_000_000_000
REST_NS, MIN_REST_NS = 5 * MINUTE, MINUTE // 6
"""Time between two requests of a session: at ends of turns, and at the session's end, which hooks may report twice."""


def analyse(engine: Engine, root: bytes, folder: str, session: str, transcript: str, *, last: bool) -> None:
    """Ask the model if it is time to, and store the answer with the session. A failure becomes a notice."""
    settings = engine.settings
    if not _is_wanted(settings) or not session or not os.path.isfile(transcript):
        return
    size = os.stat(transcript).st_size
    if sessions.extract(folder, session).get("size") == size:
        return
    if not sessions.claim(folder, session, "analysis", engine.clock(), MIN_REST_NS if last else REST_NS):
        return
    try:
        extract = ask(settings, transcript, os.fsdecode(engine.home), folder, session)
    except KeepfastError as error:
        sessions.keep_extract(folder, session, at=engine.clock(), trouble=f"{error} {error.hint}".strip())
        text = (
            f"No notes by a model ({settings['analysis.llm']}): {error} Notes made by rules are used instead. "
            f"{error.hint}"
        )
        engine.workspaces.note(root, "failed", "analysis", text.strip())
        return
    if extract is not None:
        sessions.keep_extract(folder, session, at=engine.clock(), size=size, trouble="", extract=extract.to_json())


def ask(settings: Settings, transcript: str, home: str, folder: str = "", session: str = "") -> Extract | None:
    """Return what the model read; None if there is nothing to read. Raises `Failed`. Request and answer are redacted."""
    from keepfast.app.resume import conversation_of, redacted
    from keepfast.resume import model_client
    from keepfast.resume.model_prompt import render_record

    conversation = conversation_of(transcript, folder, session)
    record = render_record(conversation, redact) if conversation is not None else ""
    if conversation is None or not record:
        return None
    seconds = float(settings["analysis.timeout"])
    answer: Any
    if settings["analysis.llm"] == COMMAND:
        by = "a command"
        answer = model_client.command(record, settings["analysis.command"], home=home, seconds=seconds)
    else:
        by = settings["analysis.model"] or model_client.MODEL
        key = model_client.key_in(settings["analysis.key_file"])
        answer = model_client.anthropic(
            record, key=key, seconds=seconds, url=settings["analysis.url"], model=settings["analysis.model"]
        )
    try:
        return checked(
            redacted(answer), by=by, prompt=mark([turn.text for turn in conversation.asked() if not turn.side])
        )
    except ValueError as error:
        raise Failed(f"The model's answer is invalid: {error}.") from None


def _is_wanted(settings: Settings) -> bool:
    return (
        settings["analysis.llm"] != OFF
        and settings["checkpoint.mode"] != "summary"
        and bool(settings["checkpoint.capture_analysis"])
    )
