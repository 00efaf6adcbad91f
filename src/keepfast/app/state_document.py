"""The state document of a checkpoint: files, analysis and context of the work, within the bounds that the settings give."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from keepfast.app.checkpoint_header import made_by_tools
from keepfast.app.inspect import between
from keepfast.app.known_secrets import KnownSecrets
from keepfast.app.session_files import changed_by
from keepfast.model.artefacts import is_made
from keepfast.model.entry import FILE, SEALED, Entry
from keepfast.model.errors import KeepfastError
from keepfast.model.exclusion import excluded_by
from keepfast.secrets.marks import by_name
from keepfast.store.rows import Query
from keepfast.workspace.marker import show

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from keepfast.model.document import Header
    from keepfast.settings import Settings
    from keepfast.store.repository import Repository
    from keepfast.store.rows import CheckpointRow

STATEFUL = "stateful"
MOST_FILES, MOST_FOLDERS, NAMED = 1_000, 50, 40
TOO_LARGE = ("over checkpoint.max_file_size", "over checkpoint.max_checkpoint_size with the others")


class Bounds(NamedTuple):
    """What may be told of the work: settings `checkpoint.*`."""

    mode: str
    capture_files: bool
    capture_analysis: bool
    max_checkpoint_size: int
    max_file_size: int
    exclude_patterns: list[str]


class Analysis(NamedTuple):
    """What was worked on, and how it stands."""

    current_task: str = ""
    next_steps: Sequence[str] = ()
    decisions_made: Sequence[str] = ()
    blockers: Sequence[str] = ()
    relevant_docs: Sequence[str] = ()

    def with_secrets_redacted(self, secrets: KnownSecrets) -> Analysis:
        return Analysis(*[secrets.strike_all(part) for part in (self[0], *map(list, self[1:]))])


class Context(NamedTuple):
    """Where it was worked, and with what."""

    working_directory: str
    relevant_packages: list[str]
    recent_commands: list[str]
    git_branch: str | None
    git_commit: str | None


class StateFile(NamedTuple):
    """A file of the work. `hash` is the SHA-256 of its content, `content` what it is called in the store."""

    path: str
    content: str
    hash: str
    size_bytes: int
    last_modified: int


class Document(NamedTuple):
    files: list[StateFile]
    analysis: Analysis
    context: Context
    total_size_bytes: int


class State(NamedTuple):
    """`document` is None where only a summary is wanted. `left_out` names what did not fit, and why."""

    document: Document | None
    left_out: list[str]


class Working(NamedTuple):
    """The files of a document by name; `size` is that of all of them, `too_large` names those that no room was for.

    `more`: there are more than are looked at.
    """

    names: list[str]
    size: int
    too_large: list[str]
    more: bool = False


class _Judged(NamedTuple):
    """`why` it is not in the document; empty if it is."""

    entry: Entry
    why: str


def state(repository: Repository, row: CheckpointRow, header: Header, root: str, settings: Settings) -> State:
    """Describe the checkpoint: what the session changed, read and decided. The snapshot itself has everything in any case."""
    bounds = bounds_of(header, settings)
    if bounds.mode != STATEFUL:
        return State(None, [])
    files: list[StateFile] = []
    found = _paths(repository, row, header, root) if bounds.capture_files else _Paths([], [])
    left_out = [f"{show(folder)}/: made by a tool" for folder in found.made]
    for path in found.wanted:
        left_out += _never_kept(repository, row, path, bounds.exclude_patterns)
    for entry, refused in _judged(repository, row, found.wanted, bounds):
        described = refused or _described(repository, entry)
        if isinstance(described, str):
            left_out.append(f"{show(entry.path)}: {described}")
        else:
            files.append(described)
    secrets = KnownSecrets(repository, row.workspace)
    context = _context(header, root)
    context = context._replace(recent_commands=secrets.strike_all(context.recent_commands))
    total = sum([file.size_bytes for file in files])
    return State(Document(files, analysis(header, bounds).with_secrets_redacted(secrets), context, total), left_out)


def working_files(repository: Repository, row: CheckpointRow, header: Header, root: str, settings: Settings) -> Working:
    """What that document holds, and what is too large for it; no content is read."""
    bounds = bounds_of(header, settings)
    if bounds.mode != STATEFUL or not bounds.capture_files:
        return Working([], 0, [])
    paths = _paths(repository, row, header, root)
    found = list(_judged(repository, row, paths.wanted, bounds))
    kept = [one.entry for one in found if not one.why]
    large = [f"{show(one.entry.path)} ({in_words(one.entry.size)})" for one in found if one.why.endswith(TOO_LARGE)]
    return Working([show(entry.path) for entry in kept], sum([entry.size for entry in kept]), large, paths.more)


def too_large(repository: Repository, row: CheckpointRow, header: Header, root: str, settings: Settings) -> list[str]:
    """A sentence that names what is too large for the document, as a list; nothing if all of it fits."""
    large = working_files(repository, row, header, root, settings).too_large
    more = f" and {len(large) - NAMED:,} more" if len(large) > NAMED else ""
    return [f"left out of the description, too large: {', '.join(large[:NAMED])}{more}"] if large else []


def in_words(size: int) -> str:
    """Such as 1.5 MB."""
    if size < 1000:
        return f"{size} B"
    return f"{size / 1000:.0f} KB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


def bounds_of(header: Header, settings: Settings) -> Bounds:
    """What may be told: by the settings of now and by those that the checkpoint was made with, whichever is stricter.

    A checkpoint that does not say what it was made with is bounded by the settings of now alone.
    """
    bounds = {key: settings["checkpoint." + key] for key in Bounds._fields}
    for key, value in header.bounds.items():
        now = bounds.get(key)
        if key == "mode" and now == STATEFUL and isinstance(value, str):
            bounds[key] = value
        elif isinstance(now, bool) and isinstance(value, bool):
            bounds[key] = now and value
        elif type(now) is int and type(value) is int:
            bounds[key] = min(now, value)
        elif isinstance(now, list) and isinstance(value, list):
            bounds[key] = list(dict.fromkeys([*now, *[one for one in value if isinstance(one, str)]]))
    return Bounds(**bounds)


def _judged(repository: Repository, row: CheckpointRow, paths: list[bytes], bounds: Bounds) -> Iterator[_Judged]:
    total = 0
    for path in paths:
        entry = repository.at(row.workspace, row.version, path)
        if entry is None or entry.kind != FILE:
            continue
        why = _refused(entry, total, bounds)
        total += 0 if why else entry.size
        yield _Judged(entry, why)


class _Paths(NamedTuple):
    """`made` are folders that a tool makes, in which something changed; `more`: not all that is wanted is named."""

    wanted: list[bytes]
    made: list[bytes]
    more: bool = False


def _paths(repository: Repository, row: CheckpointRow, header: Header, root: str) -> _Paths:
    """Files that the session wrote or read, newest first, then what changed in this version and in its others; each once.

    What lies in a folder that a tool makes counts only if the agent edited it by name.
    """
    edited = list(header.active_files)
    others: list[str] = []
    for file in header.notes.get("files") or []:
        path = file.get("path") if isinstance(file, dict) else None
        if isinstance(path, str):
            (edited if file.get("edited") else others).append(path.removeprefix(root.rstrip("/") + "/"))
    chosen = dict.fromkeys([_bytes(name) for name in edited if name and not name.startswith("/")])
    rest = [_bytes(name) for name in others if name and not name.startswith("/")]
    made: dict[bytes, None] = {}
    made_in = made_by_tools(repository, row.workspace, row.version)
    for path in [*rest, *_changed(repository, row), *_changed_before(repository, row)]:
        folder = b"" if path in chosen else made_in(path)
        (made if folder else chosen)[folder or path] = None
    return _Paths(list(chosen)[:MOST_FILES], list(made)[:MOST_FOLDERS], len(chosen) > MOST_FILES)


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _changed(repository: Repository, row: CheckpointRow) -> Iterator[bytes]:
    before = repository.find(Query(workspace=row.workspace, before=row.version, limit=1))
    if before:  # the first checkpoint has everything, and says nothing about the work
        for change in between(repository, row.workspace, before[0], row):
            if change.new is not None and change.new.kind == FILE:
                yield change.path


def _changed_before(repository: Repository, row: CheckpointRow) -> list[bytes]:
    """What the session's versions before this one changed: a shell command names no file to us."""
    found = changed_by(repository, row, row.session, MOST_FILES) if row.session else []
    return [entry.path for entries in found for entry in entries if entry.kind == FILE]


def _refused(entry: Entry, total: int, bounds: Bounds) -> str:
    path = show(entry.path)
    pattern = excluded_by(path, bounds.exclude_patterns)
    if pattern:
        return f"excluded by {pattern}"
    if by_name(entry.path) or entry.flags & SEALED:
        return "secret"
    if entry.size > bounds.max_file_size:
        return f"{entry.size:,} bytes, {TOO_LARGE[0]}"
    if total + entry.size > bounds.max_checkpoint_size:
        return TOO_LARGE[1]
    return ""


def _never_kept(repository: Repository, row: CheckpointRow, path: bytes, patterns: list[str]) -> list[str]:
    """That a file of the session is not even in the snapshot, where a rule says so."""
    pattern = excluded_by(show(path), patterns)
    if not (pattern or is_made(path)) or repository.at(row.workspace, row.version, path) is not None:
        return []
    return [f"{show(path)}: {f'excluded by {pattern}' if pattern else 'made by a tool'}"]


def _described(repository: Repository, entry: Entry) -> StateFile | str:
    try:
        content = repository.contents.load(entry.content)
    except KeepfastError as error:
        return str(error)
    key, hashed = f"blake3:{entry.content.hex()}", sha256(content).hexdigest()
    return StateFile(show(entry.path), key, hashed, entry.size, entry.mtime)


def analysis(header: Header, bounds: Bounds) -> Analysis:
    """What the agent stated comes before what was read from its conversation."""
    if not bounds.capture_analysis:
        return Analysis()
    inferred, stated = _part(header, "analysis"), _part(header, "stated")
    known = Analysis(**{name: inferred[name] for name in Analysis._fields if name in inferred})
    return Analysis(
        stated.get("current_task") or known.current_task,
        stated.get("next_steps") or known.next_steps,
        list(dict.fromkeys([*(stated.get("decisions") or []), *known.decisions_made])),
        stated.get("blockers") or known.blockers,
        known.relevant_docs,
    )


def _context(header: Header, root: str) -> Context:
    around, git = _part(header, "context"), header.git
    return Context(
        f"{root}/{header.cwd}" if header.cwd else root,
        around.get("relevant_packages", []),
        around.get("recent_commands", []),
        git.branch or None if git is not None else None,
        git.commit or None if git is not None else None,
    )


def _part(header: Header, name: str) -> dict[str, Any]:
    part = header.notes.get(name)
    return part if isinstance(part, dict) else {}
