"""What `restore --conversation` and `--both` do: restore the conversation as a new session, and print how to open it."""

from __future__ import annotations

import os
import sys
from shlex import join
from typing import Any

from keepfast.app.conversation import ConversationRestorer, NewSession
from keepfast.cli import restore_flow
from keepfast.cli.session import Session, write_json
from keepfast.model.errors import Failed, Usage
from keepfast.present.terminal import size


def restore(session: Session, reference: str | None, *, files: bool, launch: bool, dry_run: bool, **how: Any) -> int:
    """Restore the conversation of a checkpoint, after its files if `files`; return the exit code."""
    if reference is None:
        raise Usage("No checkpoint given. Give a reference such as v5.", "Run `keepfast list` to see all checkpoints.")
    if how["go_on"] or how["abort"] or how["patch"]:
        raise Usage("--continue, --abort and --patch apply to files only.")
    if launch and session.json:
        raise Usage("--launch and --json cannot be combined.")
    restorer = _open_conversation(session, reference)
    if dry_run:
        return _dry_run(session, restorer, reference, files, how)
    restorer.read()  # before the files change: the conversation may be unreadable
    if not files:
        return _report(session, restorer, launch)
    resumables: list[NewSession] = []

    def also() -> dict[str, Any]:
        resumables.append(restorer.restore())
        return {"conversation": _facts(resumables[0])}

    code = restore_flow.restore(session, reference, (), also=also, **how)
    if resumables and not session.json:
        _tell(session, resumables[0])
        if launch and code == 0:
            _launch(session, resumables[0])
    return code


def _open_conversation(session: Session, reference: str) -> ConversationRestorer:
    root, row = session.workspace()
    variables = {"CLAUDE_CONFIG_DIR": session.environment.text("CLAUDE_CONFIG_DIR")}
    return ConversationRestorer(
        session.repository, session.resolve(row, reference), root, session.environment.home, variables
    )


def _dry_run(session: Session, restorer: ConversationRestorer, reference: str, files: bool, how: dict[str, Any]) -> int:
    conversation = restorer.conversation
    facts = {"agent": conversation.agent, "session": conversation.session, "bytes": conversation.transcript.size}
    if not files:
        if session.json:
            write_json({"dry_run": True, "conversation": facts})
        else:
            session.print(
                f"Would restore {size(conversation.transcript.size)} of session {conversation.session} as a new session."
            )
        return 0
    if not session.json:
        session.print(
            f"Would restore {size(conversation.transcript.size)} of session {conversation.session} as a new session."
        )
    return restore_flow.restore(session, reference, (), dry_run=True, also=lambda: {"conversation": facts}, **how)


def _report(session: Session, restorer: ConversationRestorer, launch: bool) -> int:
    resumable = restorer.restore()
    if session.json:
        write_json({"conversation": _facts(resumable)})
        return 0
    _tell(session, resumable)
    if launch:
        _launch(session, resumable)
    return 0


def _facts(resumable: NewSession) -> dict[str, Any]:
    return {
        "agent": resumable.agent,
        "session": resumable.id,
        "path": resumable.path,
        "folder": resumable.folder,
        "command": resumable.command,
    }


def _tell(session: Session, resumable: NewSession) -> None:
    session.say(f"Restored the conversation as session {resumable.id}. To continue it, run:")
    session.say(f"  cd {join([resumable.folder])} && {join(resumable.command)}")


def _launch(session: Session, resumable: NewSession) -> None:
    """Replace this process by the client. Raises `Failed` if it cannot be started."""
    session.close()
    sys.stdout.flush()
    try:
        os.chdir(resumable.folder)
        os.execvp(resumable.command[0], resumable.command)
    except OSError as error:
        raise Failed(
            f"{resumable.command[0]} cannot be started: {error.strerror}.", "Run the command above yourself."
        ) from None
