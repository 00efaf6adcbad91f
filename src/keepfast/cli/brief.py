"""`keepfast brief`: a resume brief from a transcript."""

from __future__ import annotations

import os

import click

from keepfast.app.session_files import without_excluded, without_sealed
from keepfast.cli.numbers import Whole
from keepfast.cli.session import Session, common, write_json
from keepfast.model.errors import Failed
from keepfast.resume import disk_files as disk
from keepfast.secrets.redaction import redact

TRANSCRIPT_HINT = (
    "Give a transcript of Claude Code (~/.claude/projects/…/SESSION.jsonl) or Codex "
    "(~/.codex/sessions/…/rollout-….jsonl)."
)


@click.command()
@click.option("--transcript", required=True, metavar="FILE", help="Transcript file of the session.")
@click.option("--tokens", type=Whole(200, 100_000), default=5_000, metavar="N", help="Token limit (default 5000).")
@click.option(
    "--root",
    metavar="DIR",
    help="Read file contents from this folder and report differences (default: rebuild them from the transcript).",
)
@common
def brief(session: Session, transcript: str, tokens: int, root: str | None) -> None:
    """Print the resume brief of a session from its Claude Code or Codex transcript.

    File contents are rebuilt from the transcript unless --root is given. If there is no content for a brief, nothing
    is printed.
    """
    from keepfast.agents import transcript as transcripts
    from keepfast.resume import brief as briefs
    from keepfast.resume import extractor as notes

    try:
        conversation = transcripts.read(transcript)
        is_empty = os.path.getsize(transcript) == 0
    except OSError as error:
        raise Failed(f"The transcript {transcript} cannot be read: {error.strerror or error}.") from None
    if not conversation.client and not is_empty:
        raise Failed(f"{transcript} is not a transcript that keepfast can read.", TRANSCRIPT_HINT)
    files = conversation.files.newest_first()
    if root is not None:
        files = disk.look(files, root, conversation.cwd)
    session_notes, files = without_excluded(
        notes.take(conversation), files, session.settings["checkpoint.exclude_patterns"], root or conversation.cwd
    )
    files = without_sealed(files, root or conversation.cwd, conversation.cwd)
    built = briefs.build(session_notes, files, now=session.now(), tokens=tokens, redact=redact)
    if session.json:
        write_json({"text": built.text, "parts": built.parts, "tokens": built.tokens, "left_out": built.left_out})
    elif built.text:
        session.print(built.text)
    else:
        session.remark("The transcript has no content for a brief.")
