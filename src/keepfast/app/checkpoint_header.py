"""What a checkpoint says of itself: its header, the conversation that belongs to it, and rows made without a disk."""

from __future__ import annotations

from posix import urandom

from keepfast.model.errors import KeepfastError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Any

    from keepfast.model.entry import Entry
    from keepfast.model.event import Event
    from keepfast.settings import Settings
    from keepfast.store.conversations import Conversation
    from keepfast.store.repository import Repository
    from keepfast.store.save import CheckpointWriter
    from keepfast.workspace.git import GitFacts

AWAITED = frozenset(("before_command", "auto_70", "auto_80", "auto_90"))
MOST_AWAITED = 4 << 20
"""Somebody waits for these saves: of a conversation they take over this much, or leave it to the next one."""
MOST_NAMED, MOST_ACTIVE = 3, 50
TOOL = "0.1.0"
BOUNDS = ("mode", "capture_files", "capture_analysis", "max_checkpoint_size", "max_file_size", "exclude_patterns")
"""Settings `checkpoint.*` that say what may be told of the work: those of the save hold for whoever shows it later."""


def conversation_of(event: Event, root: bytes, saving: CheckpointWriter, notices: list[str]) -> Conversation | None:
    """What the header says of the conversation. Whatever is wrong with a transcript, the save goes on."""
    from keepfast.agents.registry import sessions
    from keepfast.store.conversations import (
        LONGEST_TRANSCRIPT,
        Conversation,
        latest_conversation,
        store_side_files,
        store_transcript,
    )

    before = latest_conversation(saving.repository, saving.row.id, event.session)
    most = MOST_AWAITED if event.trigger in AWAITED else LONGEST_TRANSCRIPT
    client = sessions(event.agent)
    try:
        kept, newest = store_transcript(
            saving, event.transcript, before.transcript if before is not None else None, most
        )
        if kept is None:
            return before
        known = before.side_files if before is not None else []
        beside = store_side_files(saving, event.transcript.removesuffix(".jsonl"), known, most)
    except FileNotFoundError:
        return before  # a client makes the file when it has something to say
    except (OSError, KeepfastError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        notices.append(f"The conversation was not saved: {why}.".replace("..", "."))
        return before
    last = (client.last_message(newest) if client is not None else "") or (before.last if before is not None else "")
    text = root.decode("utf-8", "surrogateescape")
    return Conversation(event.session, event.agent, event.transcript, text, last, kept, beside)


def active_of(event: Event, changed: Sequence[Entry], saving: CheckpointWriter, patterns: list[str]) -> tuple[str, ...]:
    """The files that the session worked on: those that tools named, then what its versions show as changed, newest first.

    A shell command names none. Each version carries on what the one before it had; what was found at the start is not its work.
    Saves outside of sessions that nobody words do the same, from one to the next.
    """
    if event.trigger == "session_start" or len(event.active_files) >= MOST_ACTIVE:
        return event.active_files
    from keepfast.model.entry import GONE
    from keepfast.model.event import BY_THEMSELVES
    from keepfast.store.rows import Query

    if not event.session and event.trigger not in BY_THEMSELVES:
        return event.active_files
    rows = saving.repository.find(Query(workspace=saving.row.id, session=event.session, limit=1))
    if not event.session:
        rows = [row for row in rows if row.trigger in BY_THEMSELVES and not row.session]
    try:
        carried = saving.repository.document(rows[0])[0].active_files if rows else []
    except KeepfastError:
        carried = []
    gone = {entry.path for entry in changed if entry.kind == GONE}
    names = dict.fromkeys(event.active_files)
    if saving.row.version and (rows or event.trigger != "prompt"):
        is_made = made_by_tools(saving.repository, saving.row.id, saving.row.version, {entry.path for entry in changed})
        names.update(dict.fromkeys(_changed_names(changed, patterns, is_made, MOST_ACTIVE - len(names))))
    for name in carried:
        if name.encode("utf-8", "replace") not in gone:
            names[name] = None
    return tuple(names)[:MOST_ACTIVE]


def made_by_tools(
    repository: Repository, workspace: str, version: int, new: Collection[bytes] = ()
) -> Callable[[bytes], bytes]:
    """Return the function that names the folder which a tool makes and a file of this version lies in, or nothing.

    `new`: paths that the version after it brings.
    """
    from functools import lru_cache

    from keepfast.model.artefacts import generated_folder

    @lru_cache(4096)
    def is_there(path: bytes) -> bool:
        return path in new or repository.at(workspace, version, path) is not None

    return lambda path: generated_folder(path, is_there)


def _changed_names(
    changed: Sequence[Entry], patterns: list[str], is_made: Callable[[bytes], bytes], most: int
) -> list[str]:
    """Files that a summary of the work may name: no secrets, nothing that a tool makes, nothing excluded."""
    from keepfast.model.entry import FILE, SEALED
    from keepfast.model.exclusion import excluded_by
    from keepfast.secrets.marks import is_secret_by_name

    found: list[str] = []
    for entry in changed:
        if len(found) >= most:
            break
        if entry.kind != FILE or entry.flags & SEALED or is_secret_by_name(entry.path) or is_made(entry.path):
            continue
        try:
            name = entry.path.decode("utf-8")
        except UnicodeDecodeError:
            continue  # it has no place in a JSON header
        if not excluded_by(name, patterns):
            found.append(name)
    return found


def is_unworded(event: Event) -> bool:
    """Is what it changes all that the checkpoint can say of the work: nobody worded it, and no session is known?"""
    from keepfast.model.event import BY_THEMSELVES

    if event.summary or event.session or event.trigger not in BY_THEMSELVES:
        return False
    return event.message == "auto" or event.trigger == "watch"


def title_of(changed: Sequence[Entry], version: int) -> str:
    """What a version says of itself where nothing is known of the work: what it changed against `version`."""
    from keepfast.model.entry import FILE, FOLDER, LINK
    from keepfast.workspace.marker import show

    if not version:
        kept = len([entry for entry in changed if entry.kind in (FILE, LINK)])
        return f"First checkpoint: {kept:,} file{'' if kept == 1 else 's'}"
    names = [entry.path for entry in changed if entry.kind != FOLDER] or [entry.path for entry in changed]
    if not names:
        return f"No file changed since v{version}"
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return f"Changed: {', '.join([show(name) for name in sorted(names)[:MOST_NAMED]])}{more}"


def filled(entry: Entry, saving: CheckpointWriter, data: bytes) -> Entry:
    """The row with another content."""
    from io import BytesIO

    from keepfast.model.entry import SEALED
    from keepfast.workspace.secret_check import is_secret

    if entry.flags & SEALED or is_secret(entry.path, data) or saving.is_copy(len(data), data):
        return entry._replace(content=saving.sealed(BytesIO(data).read), size=len(data), flags=entry.flags | SEALED)
    return entry._replace(content=saving.store_content(data), size=len(data))


def header_of(
    event: Event,
    root: bytes,
    cwd: bytes,
    started: int,
    ended: int,
    git: GitFacts | None,
    notices: list[str],
    settings: Settings,
) -> dict[str, Any]:
    """What a checkpoint says of itself, apart from what the store adds (docs/format/checkpoint.md)."""
    from keepfast.secrets.light_redaction import without_secrets

    header = {
        "id": _new_id(event.at),
        "created_at": event.at,
        "event_at": event.at,
        "scan_started": started,
        "scan_ended": ended,
        "trigger": event.trigger,
        "created_by": event.created_by,
        "message": without_secrets(event.message),
        "name": without_secrets(event.name) or None,
        "tags": [without_secrets(tag) for tag in event.tags],
        "pinned": event.pinned,
        "session": event.session or None,
        "task": event.task or None,
        "cwd": cwd[len(root) + 1 :].decode("utf-8", "surrogateescape"),
        "git": {"branch": git.branch, "commit": git.commit, "in_progress": git.in_progress}
        if git is not None
        else None,
        "notices": [without_secrets(notice) for notice in notices],
        "tool": TOOL,
        "bounds": {key: settings["checkpoint." + key] for key in BOUNDS},
    }
    # What only agents tell is there only if one did.
    told = {
        "agent": event.agent,
        "summary": without_secrets(event.summary),
        "tokens_used": event.tokens_used,
        "token_budget": event.token_budget,
        "active_files": list(event.active_files),
        "key_points": [without_secrets(point) for point in event.key_points],
        "notes": event.notes,
    }
    if event.command:
        told["command"] = without_secrets(event.command)
    header.update({key: value for key, value in told.items() if value})
    if not event.only:
        header["git_files"] = True  # the whole tree was looked at: a `.git` file that is not in it was not there
    return header


def _new_id(now: int) -> str:
    from keepfast.model.ids import checkpoint_id

    return checkpoint_id(now, urandom(10))
