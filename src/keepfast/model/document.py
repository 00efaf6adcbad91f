"""The bytes of a checkpoint's document: a JSON header and a table in columns (docs/format/checkpoint.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice, repeat
from operator import ge
from struct import pack, unpack
from typing import Any

from keepfast.model.entry import ATTRIBUTES, FILE, GONE, LINK, Entry, checked_path
from keepfast.model.errors import Damaged
from keepfast.model.strict_json import dumps, loads

MAGIC = b"HFDOC01\n"
KINDS = frozenset("fldxoius-")
TEXT, TEXT_OR_NULL = (str,), (str, type(None))
RELATIVE_PARTS = b"//", b"/./", b"/../"
make_tuple: Any = tuple.__new__
SIZES = {"H": 2, "Q": 8, "q": 8}
REQUIRED_MEMBERS: dict[str, tuple[type, ...]] = {
    "id": TEXT,
    "created_at": (int,),
    "keyframe": (bool,),
    "trigger": TEXT,
    "created_by": TEXT,
    "message": TEXT,
    "name": TEXT_OR_NULL,
    "tags": (list,),
    "pinned": (bool,),
    "session": TEXT_OR_NULL,
    "task": TEXT_OR_NULL,
    "counts": (dict,),
    "tree": TEXT,
}
"""Members that every reader relies on, and their types; a header may have more."""


class Header:
    """The header of a checkpoint's document. A member that is missing, or of another type, reads as empty.

    `members` is the JSON object as it is stored, unknown members included.
    """

    def __init__(self, members: dict[str, Any]) -> None:
        self.members = members
        self.id, self.workspace, self.tree = _text(members, "id"), _text(members, "workspace"), _text(members, "tree")
        self.parent = _text(members, "parent")
        """Digest of the previous version's document, in hex."""
        self.version, self.created_at = _number(members, "version"), _number(members, "created_at")
        self.scan_started = _number(members, "scan_started")
        self.changed: int | None = members.get("changed")
        """For a keyframe that was written later: the number of rows in the version's own document."""
        self.keyframe, self.pinned = members.get("keyframe") is True, members.get("pinned") is True
        self.counts: dict[str, int] = _object(members, "counts")
        self.trigger, self.created_by = _text(members, "trigger"), _text(members, "created_by")
        self.message, self.name, self.tags = _text(members, "message"), _text(members, "name"), _texts(members, "tags")
        self.session, self.task = _text(members, "session"), _text(members, "task")
        self.cwd, self.command = _text(members, "cwd"), _text(members, "command")
        self.git = Git(members["git"]) if isinstance(members.get("git"), dict) else None
        self.git_files = members.get("git_files") is True
        """Whether the whole tree was searched for `.git` files."""
        self.agent, self.summary = _text(members, "agent"), _text(members, "summary")
        self.tokens_used, self.token_budget = _number(members, "tokens_used"), _number(members, "token_budget")
        self.active_files, self.key_points = _texts(members, "active_files"), _texts(members, "key_points")
        self.notices, self.partial = _texts(members, "notices"), _texts(members, "partial")
        self.bounds: dict[str, object] = _object(members, "bounds")
        """Settings `checkpoint.*` in effect when it was made."""
        self.tool_call: dict[str, Any] = _object(members, "tool_call")
        """The tool call that it is about: `id`, `name`, `prompt`, `offset`, `overlaps`."""
        self.notes = _object(members, "notes")
        """Read by `resume/notes.py`."""
        self.conversation = _object(members, "conversation")
        """Read by `store/conversations.py`."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Header) and self.members == other.members

    def with_members(self, **members: object) -> Header:
        """Return a copy with these members replaced or added."""
        return Header({**self.members, **members})


class Git:
    """The state of a git repository. The commit is empty before the first one, the branch on a detached HEAD."""

    __slots__ = ("branch", "commit", "in_progress")

    def __init__(self, members: dict[str, Any]) -> None:
        self.branch, self.commit = _text(members, "branch"), _text(members, "commit")
        self.in_progress = _text(members, "in_progress")


def _text(members: dict[str, Any], name: str) -> str:
    value = members.get(name)
    return value if isinstance(value, str) else ""


def _number(members: dict[str, Any], name: str) -> int:
    value = members.get(name)
    return value if type(value) is int else 0


def _texts(members: dict[str, Any], name: str) -> list[str]:
    value = members.get(name)
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _object(members: dict[str, Any], name: str) -> dict[str, Any]:
    value = members.get(name)
    return value if isinstance(value, dict) else {}


def encode(header: Header, rows: Sequence[Entry]) -> bytes:
    """Return the document's bytes; `rows` are sorted by path."""
    return b"".join(_parts(header, rows))  # `_parts` has released the columns by now


def _parts(header: Header, rows: Sequence[Entry]) -> list[bytes]:
    head = dumps(header.members).encode("ascii")
    # One `zip` for all columns: reading every attribute of every row takes twice as long.
    columns: Any = list(zip(*rows, strict=True)) if rows else ((),) * 9
    paths, kinds, modes, flags, sizes, mtimes, groups, contents, extras = columns
    return [
        MAGIC,
        len(head).to_bytes(8, "little"),
        len(rows).to_bytes(8, "little"),
        head,
        "".join(kinds).encode("ascii"),
        _column("H", modes),
        bytes(flags),
        _column("Q", sizes),
        _column("q", mtimes),
        _column("Q", groups),
        b"\0".join([*paths, b""]),
        b"".join([content for content, kind in zip(contents, kinds, strict=True) if kind == FILE]),
        b"".join([content + b"\0" for content, kind in zip(contents, kinds, strict=True) if kind == LINK]),
        *[
            len(extra).to_bytes(4, "little") + extra
            for extra, flag in zip(extras, flags, strict=True)
            if flag & ATTRIBUTES
        ],
    ]


def decode(data: bytes) -> tuple[Header, list[Entry]]:
    """Return header and rows. Raises `Damaged` on anything that violates the format, including crafted paths."""
    try:
        return _decode(data)
    except (ValueError, IndexError, KeyError, TypeError, EOFError, RecursionError) as error:
        raise Damaged(f"a checkpoint's document is not readable: {error}") from None


def header(data: bytes) -> Header:
    """Return the header alone."""
    try:
        return _header(data)[0]
    except (ValueError, IndexError, TypeError, RecursionError) as error:
        raise Damaged(f"a checkpoint's document is not readable: {error}") from None


def _header(data: bytes) -> tuple[Header, int, int]:
    if data[:8] != MAGIC:
        raise ValueError("it has the wrong magic number")
    length, count = int.from_bytes(data[8:16], "little"), int.from_bytes(data[16:24], "little")
    if 24 + length + 28 * count > len(data):
        raise ValueError("it is cut short")
    head = loads(data[24 : 24 + length])
    if not isinstance(head, dict) or head.get("v") != 1:
        raise ValueError("its header is of another version")
    _check_header(head)
    return Header(head), count, 24 + length


def _check_header(head: dict[str, Any]) -> None:
    for key, types in REQUIRED_MEMBERS.items():
        if not isinstance(head.get(key, ...), types):
            raise ValueError(f"its header has an invalid `{key}`")
    if not all(isinstance(tag, str) for tag in head["tags"]):
        raise ValueError("its header has an invalid tag")
    for number in (head["created_at"], head.get("changed", 0), *head["counts"].values()):
        if not isinstance(number, int) or abs(number) >> 63:
            raise ValueError("its header has an invalid time or count")
    if len(head["tree"]) != 64 or head["tree"].strip("0123456789abcdef"):
        raise ValueError("its header has an invalid `tree`")


def _decode(data: bytes) -> tuple[Header, list[Entry]]:
    head, count, at = _header(data)

    def take(size: int) -> bytes:
        nonlocal at
        part = data[at : at + size]
        if len(part) != size:
            raise ValueError("it is cut short")
        at += size
        return part

    def texts(number: int) -> list[bytes]:
        nonlocal at
        parts = data[at:].split(b"\0", number)
        if len(parts) != number + 1:
            raise ValueError("it is cut short")
        at = len(data) - len(parts.pop())
        return parts

    kinds = take(count).decode("ascii")
    if not KINDS.issuperset(kinds):
        raise ValueError("a row has an unknown kind")
    modes = _numbers("H", take(2 * count))
    flags = take(count)
    sizes = _numbers("Q", _bounded(take(8 * count)))
    mtimes = _numbers("q", take(8 * count))
    groups = _numbers("Q", _bounded(take(8 * count)))
    paths = texts(count)
    digests = take(32 * kinds.count(FILE))
    targets = texts(kinds.count(LINK))
    _check_paths(paths)
    if head.keyframe and GONE in kinds:
        raise ValueError("a keyframe has a row for a deleted path")
    files = iter([digests[start : start + 32] for start in range(0, len(digests), 32)])
    links = iter(targets)
    contents = [next(files) if kind == FILE else next(links) if kind == LINK else b"" for kind in kinds]
    extras: Iterable[bytes] = repeat(b"")
    if any(flag & ATTRIBUTES for flag in set(flags)):
        extras = [take(int.from_bytes(take(4), "little")) if flag & ATTRIBUTES else b"" for flag in flags]
    # Creates the rows without a Python call for each: for a large tree, those would take most of the time.
    values = zip(paths, kinds, modes, flags, sizes, mtimes, groups, contents, extras)  # noqa: B905  `extras` may be endless
    rows = list(map(make_tuple, repeat(Entry), values))
    if at != len(data):
        raise ValueError("it has bytes after its end")
    return head, rows


def _check_paths(paths: list[bytes]) -> None:
    """Raise `ValueError` unless all paths are valid and sorted. Checks each by itself only if the joined text is suspicious."""
    text = b"/" + b"/\0/".join(paths) + b"/"
    if paths and any(part in text for part in RELATIVE_PARTS):
        for path in paths:
            checked_path(path)
    if any(map(ge, paths, islice(paths, 1, None))):
        raise ValueError("paths are not sorted, or one is there twice")


def _column(code: str, numbers: Sequence[int]) -> bytes:
    return pack(f"<{len(numbers)}{code}", *numbers)


def _bounded(column: bytes) -> bytes:
    if column and max(column[7::8]) > 127:
        raise ValueError("a number is 2^63 or more")
    return column


def _numbers(code: str, data: bytes) -> tuple[int, ...]:
    return unpack(f"<{len(data) // SIZES[code]}{code}", data)
