"""What pages and API show: records that templates read by name and `to_json` turns into the answers of the API."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypedDict

from keepfast.present.json_forms import of_checkpoint, of_path
from keepfast.store.rows import CheckpointRow

Json = dict[str, Any]

OPTIONAL = {"optional": True}
"""Of a field whose key is left out of the JSON where it is None."""


def to_json(value: Any) -> Any:
    """Return a view as JSON: its fields under their names, or under the `key` that a field has."""
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    document: Json = {}
    for member in fields(value):
        part = getattr(value, member.name)
        if part is not None or not member.metadata.get("optional"):
            document[member.metadata.get("key", member.name)] = to_json(part)
    return document


@dataclass(kw_only=True)
class PathView:
    """A path as text; `path_base64` where its name is not UTF-8."""

    path: str
    path_base64: str | None = field(default=None, metadata=OPTIONAL)


class PathFields(TypedDict):
    path: str
    path_base64: str | None


def path_fields(path: bytes) -> PathFields:
    """Return the fields of a `PathView`."""
    text = of_path(path)
    return {"path": text["path"], "path_base64": text.get("path_base64")}


# Workspaces and the store


@dataclass(kw_only=True)
class WorkspaceView:
    id: str
    root: str
    name: str
    created_at: str
    parent: str | None
    exists: bool = field(metadata={"key": "there"})
    checkpoints: int
    last: CheckpointView | None
    coverage: Json


@dataclass(kw_only=True)
class StatusView:
    """What changed since the newest checkpoint, and what went wrong. `changed` counts all changes, `changes` has the first."""

    changes: list[Json]
    changed: int
    remarks: list[str]
    notices: list[Json]
    workers: list[Json]
    restore: Json | None


@dataclass(kw_only=True)
class StoredWorkspaceView:
    id: str
    root: str
    checkpoints: int
    coverage: Json


@dataclass(kw_only=True)
class StorageView:
    """The size of the store, its limit (`cap`), and what retention keeps."""

    path: str
    bytes: int
    free: int
    cap: int
    packs: int
    retention: dict[str, Any]
    workspaces: list[StoredWorkspaceView]


@dataclass(kw_only=True)
class ForgottenView:
    """What was forgotten, and the bytes that compaction gave back."""

    forgotten: list[str]
    rows: int
    given_back: int


# Checkpoints


@dataclass(kw_only=True)
class CheckpointView:
    """A checkpoint as `of_checkpoint` writes it."""

    id: str
    version: str
    message: str
    trigger: str
    created_at: str
    created_by: str
    session_id: str | None
    task_id: str | None
    name: str | None
    tags: list[str]
    pinned: bool
    files: int
    bytes: int
    changed: int


@dataclass(kw_only=True)
class ListedCheckpoint(CheckpointView):
    """With the bytes that it added to the store."""

    added: int


@dataclass(kw_only=True)
class CheckpointDetails(ListedCheckpoint):
    """One checkpoint, its neighbours, what its document says, and the first of the `differing` changes."""

    previous: str | None
    made_after: str | None
    before: str | None
    after: str | None
    summary: str | None
    command: str | None
    agent: str | None
    tokens_used: int | None
    token_budget: int | None
    git: Json | None
    notes: Json | None
    notices: list[str]
    changes: list[Json]
    differing: int


@dataclass(kw_only=True)
class BriefView:
    text: str
    parts: list[str]
    tokens: int
    left_out: list[str]


@dataclass(kw_only=True)
class SearchHit(CheckpointView):
    """A checkpoint whose text, or one of whose paths, matches."""

    workspace: str
    root: str
    where: str
    text: str
    path: str | None = field(default=None, metadata=OPTIONAL)
    path_base64: str | None = field(default=None, metadata=OPTIONAL)


def checkpoint_view(row: CheckpointRow) -> CheckpointView:
    return CheckpointView(**of_checkpoint(row))


# Contents


@dataclass(kw_only=True)
class LineView:
    kind: str
    text: str


@dataclass(kw_only=True)
class HunkView:
    old_start: int
    new_start: int
    lines: list[LineView]


@dataclass(kw_only=True)
class FileLines(PathView):
    """The lines in which a file differs; none if it is sealed, too large or binary. `sizes`: before and after."""

    sizes: list[int]
    binary: bool = False
    too_large: bool = False
    sealed: bool = False
    added: int | None = field(default=None, metadata=OPTIONAL)
    removed: int | None = field(default=None, metadata=OPTIONAL)
    hunks: list[HunkView] = field(default_factory=list)


@dataclass(kw_only=True)
class Comparison:
    """What differs between two states. `changed` counts all changes, `changes` has the first."""

    old: str | None
    new: str
    changes: list[Json]
    changed: int


@dataclass(kw_only=True)
class PathComparison(Comparison):
    """The same for one path, with its lines; None if it does not differ."""

    file: FileLines | None


@dataclass(kw_only=True)
class PatchFile:
    """A change with its lines; `omitted` if there was no room for them."""

    change: Json
    lines: FileLines
    omitted: bool


@dataclass(kw_only=True)
class Patch:
    """The lines of everything that differs, as far as there is room; other changes are named in `rest`."""

    old: str | None
    new: str
    changed: int
    files: list[PatchFile]
    rest: list[Json]
    is_exact: bool = True
    """False where an older state stands in for the one to compare with."""


@dataclass(kw_only=True)
class FileFacts(PathView):
    version: str
    kind: str
    mode: str
    size: int
    sealed: bool


@dataclass(kw_only=True)
class FolderEntry(PathView):
    name: str
    kind: str
    size: int


@dataclass(kw_only=True)
class FileState(CheckpointView):
    """A state of one path, and the first checkpoint that has it."""

    kind: str
    size: int
    mode: str


# Restores


@dataclass(kw_only=True)
class RestoreStep(PathView):
    action: str


@dataclass(kw_only=True)
class RestorePreview:
    """What a restore would do. `count` counts all steps, `steps` has the first; `digest` names exactly this plan."""

    target: str | None = field(default=None, metadata=OPTIONAL)
    steps: list[RestoreStep] = field(default_factory=list)
    count: int = 0
    untouched: list[Json] = field(default_factory=list)
    conflicts: list[dict[str, str]] = field(default_factory=list)
    digest: str = ""
    missing: list[Json] = field(default_factory=list)


@dataclass(kw_only=True)
class ForkView:
    workspace: str
    folder: str
    version: str


# Tasks


@dataclass(kw_only=True)
class PhaseView:
    """A phase of a task: `status` is `completed`, `in_progress`, `review` or `pending`."""

    number: int
    name: str
    status: str
    verify: str | None
    review: bool


@dataclass(kw_only=True)
class VerificationView:
    """The result of a phase's verification command."""

    timestamp: str
    phase: int | None
    passed: bool
    gate: str | None
    output: str | None
