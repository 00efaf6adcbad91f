"""What `restore --conversation` and `--both` do: the conversation as a new session, and the command to go on with it."""

from __future__ import annotations

from shlex import join
from typing import TYPE_CHECKING, Any

from keepfast.cli import restore_flow as bring
from keepfast.cli.session import Session, write_json
from keepfast.model.errors import Failed, Usage
from keepfast.present.terminal import size

if TYPE_CHECKING:
    from keepfast.app.conversation import ConversationRestorer
    from keepfast.app.conversation import Session as Resumable


def restore(session: Session, reference: str | None, *, files: bool, launch: bool, dry_run: bool, **how: Any) -> int:
    """Bring the conversation of a checkpoint back, after its files if `files`; return the exit code."""
    if reference is None:
        raise Usage("No checkpoint given. Give a reference such as v5.", "Run `keepfast list` to see all checkpoints.")
    if how["go_on"] or how["abort"] or how["patch"]:
        raise Usage("--continue, --abort and --patch apply to files only.")
    if launch and session.json:
        raise Usage("--launch and --json cannot be combined.")
    conversing = _conversing(session, reference)
    if dry_run:
        return _dry_run(session, conversing, reference, files, how)
    conversing.read()  # now: what cannot be read must not leave the files without their conversation
    if not files:
        return _report(session, conversing, launch)
    made: list[Resumable] = []

    def also() -> dict[str, Any]:
        made.append(conversing.bring_back())
        return {"conversation": _facts(made[0])}

    code = bring.restore(session, reference, (), also=also, **how)
    if made and not session.json:
        _tell(session, made[0])
        if launch and code == 0:
            _launch(session, made[0])
    return code


def _conversing(session: Session, reference: str) -> ConversationRestorer:
    from keepfast.app.conversation import ConversationRestorer

    root, row = session.workspace()
    variables = {"CLAUDE_CONFIG_DIR": session.around.text("CLAUDE_CONFIG_DIR")}
    return ConversationRestorer(
        session.repository, session.resolve(row, reference), root, session.around.home, variables
    )


def _dry_run(
    session: Session, conversing: ConversationRestorer, reference: str, files: bool, how: dict[str, Any]
) -> int:
    kept = conversing.conversation
    facts = {"agent": kept.agent, "session": kept.session, "bytes": kept.transcript.size}
    if not files:
        if session.json:
            write_json({"dry_run": True, "conversation": facts})
        else:
            session.print(f"Would restore {size(kept.transcript.size)} of session {kept.session} as a new session.")
        return 0
    if not session.json:
        session.print(f"Would restore {size(kept.transcript.size)} of session {kept.session} as a new session.")
    return bring.restore(session, reference, (), dry_run=True, also=lambda: {"conversation": facts}, **how)


def _report(session: Session, conversing: ConversationRestorer, launch: bool) -> int:
    made = conversing.bring_back()
    if session.json:
        write_json({"conversation": _facts(made)})
        return 0
    _tell(session, made)
    if launch:
        _launch(session, made)
    return 0


def _facts(made: Resumable) -> dict[str, Any]:
    return {
        "agent": made.agent, "session": made.id, "path": made.path, "folder": made.folder, "command": made.command,
    }  # fmt: skip


def _tell(session: Session, made: Resumable) -> None:
    session.say(f"Restored the conversation as session {made.id}. To continue it, run:")
    session.say(f"  cd {join([made.folder])} && {join(made.command)}")


def _launch(session: Session, made: Resumable) -> None:
    """Become the client. Returns only by raising."""
    import os
    import sys

    session.close()
    sys.stdout.flush()
    try:
        os.chdir(made.folder)
        os.execvp(made.command[0], made.command)
    except OSError as error:
        raise Failed(
            f"{made.command[0]} cannot be started: {error.strerror}.", "Run the command above yourself."
        ) from None
