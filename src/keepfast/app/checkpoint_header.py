"""A checkpoint's header, the conversation that belongs to it, and rows with composed contents."""

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
    from keepfast.store.conversations import SavedConversation
    from keepfast.store.repository import Repository
    from keepfast.store.save import CheckpointWriter
    from keepfast.workspace.git import GitFacts

TRIGGERS_AWAITED = frozenset(("before_command", "auto_70", "auto_80", "auto_90"))
MAX_AWAITED_BYTES = 4 << 20
"""Somebody waits for these saves: they save a conversation up to this size, or leave it to the next save."""
MAX_NAMED, MAX_ACTIVE_FILES = 3, 50
TOOL = "0.1.0"
PRIVACY_SETTINGS = (
    "mode",
    "capture_files",
    "capture_analysis",
    "max_checkpoint_size",
    "max_file_size",
    "exclude_patterns",
)
"""Settings `checkpoint.*` that limit what is shown of the work. The values at the time of the save hold later, too."""


def conversation_of(
    event: Event, root: bytes, saving: CheckpointWriter, notices: list[str]
) -> SavedConversation | None:
    """Save the conversation and return its part of the header. A problem with a transcript becomes a notice."""
    from keepfast.agents.registry import sessions
    from keepfast.store.conversations import (
        MAX_TRANSCRIPT_LENGTH,
        SavedConversation,
        latest_conversation,
        store_side_files,
        store_transcript,
    )

    previous = latest_conversation(saving.repository, saving.row.id, event.session)
    max_bytes = MAX_AWAITED_BYTES if event.trigger in TRIGGERS_AWAITED else MAX_TRANSCRIPT_LENGTH
    client = sessions(event.agent)
    try:
        stored, newest = store_transcript(
            saving, event.transcript, previous.transcript if previous is not None else None, max_bytes
        )
        if stored is None:
            return previous
        known_files = previous.side_files if previous is not None else []
        side_files = store_side_files(saving, event.transcript.removesuffix(".jsonl"), known_files, max_bytes)
    except FileNotFoundError:
        return previous  # a client creates the file with the first message
    except (OSError, KeepfastError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        notices.append(f"The conversation was not saved: {why}.".replace("..", "."))
        return previous
    last = (client.last_message(newest) if client is not None else "") or (
        previous.last if previous is not None else ""
    )
    text = root.decode("utf-8", "surrogateescape")
    return SavedConversation(event.session, event.agent, event.transcript, text, last, stored, side_files)


def active_of(event: Event, changed: Sequence[Entry], saving: CheckpointWriter, patterns: list[str]) -> tuple[str, ...]:
    """Return the files that the session worked on: those that tools named, then those that its versions changed, newest first.

    Shell commands name no files, so changed files count as well, but not those that had changed before the session. Each version
    inherits the list of the one before. Automatic saves outside of sessions inherit from each other.
    """
    if event.trigger == "session_start" or len(event.active_files) >= MAX_ACTIVE_FILES:
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
    deleted = {entry.path for entry in changed if entry.kind == GONE}
    names = dict.fromkeys(event.active_files)
    if saving.row.version and (rows or event.trigger != "prompt"):
        is_made = made_by_tools(saving.repository, saving.row.id, saving.row.version, {entry.path for entry in changed})
        names.update(dict.fromkeys(_changed_names(changed, patterns, is_made, MAX_ACTIVE_FILES - len(names))))
    for name in carried:
        if name.encode("utf-8", "replace") not in deleted:
            names[name] = None
    return tuple(names)[:MAX_ACTIVE_FILES]


def made_by_tools(
    repository: Repository, workspace: str, version: int, new: Collection[bytes] = ()
) -> Callable[[bytes], bytes]:
    """Return a function: given a file of this version, the folder around it that a tool makes, or nothing.

    `new`: paths that the following version adds.
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
    """Return changed files that a summary may name: no secrets, nothing that a tool makes, nothing excluded."""
    from keepfast.model.entry import FILE, SEALED
    from keepfast.model.exclusion import excluded_by
    from keepfast.secrets.marks import is_secret_by_name

    names: list[str] = []
    for entry in changed:
        if len(names) >= most:
            break
        if entry.kind != FILE or entry.flags & SEALED or is_secret_by_name(entry.path) or is_made(entry.path):
            continue
        try:
            name = entry.path.decode("utf-8")
        except UnicodeDecodeError:
            continue  # it does not fit into a JSON header
        if not excluded_by(name, patterns):
            names.append(name)
    return names


def lacks_words(event: Event) -> bool:
    """Return whether nothing but the changed files describes the checkpoint: no message by a person or agent, no session."""
    from keepfast.model.event import BY_THEMSELVES

    if event.summary or event.session or event.trigger not in BY_THEMSELVES:
        return False
    return event.message == "auto" or event.trigger == "watch"


def title_of(changed: Sequence[Entry], version: int) -> str:
    """Return a title made of what changed against `version`, for a checkpoint without a message."""
    from keepfast.model.entry import FILE, FOLDER, LINK
    from keepfast.workspace.marker import show

    if not version:
        files = len([entry for entry in changed if entry.kind in (FILE, LINK)])
        return f"First checkpoint: {files:,} file{'' if files == 1 else 's'}"
    names = [entry.path for entry in changed if entry.kind != FOLDER] or [entry.path for entry in changed]
    if not names:
        return f"No file changed since v{version}"
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return f"Changed: {', '.join([show(name) for name in sorted(names)[:MAX_NAMED]])}{more}"


def with_content(entry: Entry, saving: CheckpointWriter, data: bytes) -> Entry:
    """Return the row with other contents, stored; sealed if the path or the contents are secret."""
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
    """Return a checkpoint's header, without what the store adds (docs/format/checkpoint.md)."""
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
        "bounds": {key: settings["checkpoint." + key] for key in PRIVACY_SETTINGS},
    }
    # Only agents report these: empty ones are left out.
    agent_facts = {
        "agent": event.agent,
        "summary": without_secrets(event.summary),
        "tokens_used": event.tokens_used,
        "token_budget": event.token_budget,
        "active_files": list(event.active_files),
        "key_points": [without_secrets(point) for point in event.key_points],
        "notes": event.notes,
        "tool_call": event.tool_call,
    }
    if event.command:
        agent_facts["command"] = without_secrets(event.command)
    header.update({key: value for key, value in agent_facts.items() if value})
    if not event.only:
        header["git_files"] = True  # the whole tree was scanned: a `.git` file without a row did not exist
    return header


def _new_id(now: int) -> str:
    from keepfast.model.ids import checkpoint_id

    return checkpoint_id(now, urandom(10))
