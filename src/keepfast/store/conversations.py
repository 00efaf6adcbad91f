"""Conversations: transcripts in sealed parts, of which only what is new is stored (docs/format/sealed.md)."""

from __future__ import annotations

from posix import O_CLOEXEC, O_NONBLOCK, O_RDONLY, close, fstat, pread, scandir
from posix import open as open_fd
from stat import S_ISREG

from keepfast.model.errors import Damaged, Failed, KeepfastError
from keepfast.store.contents import Parts
from keepfast.store.digest import digest
from keepfast.store.rows import LIST, SEALED, Query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from keepfast.store.repository import Repository
    from keepfast.store.save import Saving

PART = 1 << 20
GROUP = 64
"""So many parts become a list of their own: a long conversation is told by few ids."""
MOST = 1 << 30
"""A longer transcript is not kept; nobody could go on with it."""
SAMPLE, SAMPLES = 4 << 10, 16
EDGE = 64 << 10
MOST_BESIDE, MOST_BESIDE_BYTES = 500, 64 << 20
FOLDERS = ("subagents", "tool-results")


def keep(
    saving: Saving, path: str, before: dict[str, Any] | None, most_new: int = MOST
) -> tuple[dict[str, Any] | None, bytes]:
    """Store what a transcript has more than `before`; return where it lies, and its newest lines.

    It ends with its last whole line. None: it has no line yet, or more new ones than the save may take over now; then
    what was kept before still holds. Raises `OSError` if it cannot be read, and `Failed` if it is none.
    """
    fd = open_fd(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
    try:
        seen = fstat(fd)
        if not S_ISREG(seen.st_mode):
            raise Failed("it is not a file")
        if seen.st_size > MOST:
            raise Failed(f"it has more than {MOST >> 20} MB")
        end = _last_line(fd, seen.st_size)
        if not end:
            return None, b""
        known = _continued(saving, fd, before, end)
        start = known["bytes"] if known is not None else 0
        if end - start > most_new:
            return None, b""
        newest = _bytes(fd, max(end - PART, 0), min(end, PART))
        if known is not None and start == end:
            return known, newest
        ids = _ids(saving.repository, known)
        saving.relied.update(ids)
        for at in range(start, end, PART):
            sealed = saving.repository.contents.sealer().seal(_bytes(fd, at, min(PART, end - at)), squeeze=True)
            ids.append(digest(sealed))
            saving.keep(ids[-1], sealed, SEALED)
        proof = _proofs(saving.repository, fd, end)[0]
        return {"bytes": end, "content": _list(saving, ids).hex(), "proof": proof}, newest
    finally:
        close(fd)


def keep_beside(saving: Saving, folder: str, before: list[dict[str, Any]], most_new: int) -> list[dict[str, Any]]:
    """The same for what lies beside a transcript: those of subagents, and outputs that are too long for it."""
    known = {one["name"]: one for one in before}
    found, size = [], 0
    for name in _beside(folder):
        try:
            kept, _ = keep(saving, f"{folder}/{name}", known.get(name), most_new)
        except (OSError, Failed):
            kept = None
        kept = kept or known.get(name)
        if kept is not None:
            size += kept["bytes"]
            if size > MOST_BESIDE_BYTES:
                break
            found.append({**kept, "name": name})
    return found


def latest(repository: Repository, workspace: str, session: str) -> dict[str, Any] | None:
    """The conversation in the newest checkpoint of this session."""
    for row in repository.ledger.find(Query(workspace=workspace, session=session, limit=1)) if session else ():
        try:
            header = repository.document(row)[0]
        except KeepfastError:
            return None
        return checked(header.get("conversation"))
    return None


def checked(told: Any) -> dict[str, Any] | None:
    """The header's `conversation`, if it is one that can be read: a header is what somebody wrote."""
    if not isinstance(told, dict) or not isinstance(told.get("session"), str) or not _is_kept(told):
        return None
    beside = told.get("beside", [])
    if not isinstance(beside, list) or not all(_is_kept(one) and _is_name(one.get("name")) for one in beside):
        return None
    return told


def ids_of(header: dict[str, Any]) -> list[bytes]:
    """What a checkpoint needs besides the contents of its files."""
    told = checked(header.get("conversation"))
    return [bytes.fromhex(one["content"]) for one in (told, *told.get("beside", []))] if told is not None else []


def load(repository: Repository, kept: dict[str, Any]) -> Iterator[bytes]:
    """Yield a kept transcript in parts. Raises `WrongKey`, and `Damaged` if it is not as long as it should be."""
    length = 0
    for part in repository.contents.stream(bytes.fromhex(kept["content"])):
        length += len(part)
        yield part
    if length != kept["bytes"]:
        raise Damaged(f"A conversation has {length} bytes instead of {kept['bytes']}.")


def ends(repository: Repository, kept: dict[str, Any], head: int, tail: int) -> tuple[bytes, bytes]:
    """About so many bytes of a kept transcript's beginning, in whole lines, and of its end; what lies between is not opened."""
    parts, last = _ids(repository, kept), list[bytes]()
    first, length, met = b"", 0, Parts()
    for part in repository.contents.stream(bytes.fromhex(kept["content"])):
        first += part
        if len(first) >= head:
            break
    while parts and length < tail:
        data, kind = repository.contents.blob(part := parts.pop())
        if kind == LIST:
            parts += met.named(data)
            continue
        last.append(repository.contents.load(part))
        length += len(last[-1])
    return first[: first.rfind(b"\n") + 1], b"".join(last[::-1])


def _is_kept(one: Any) -> bool:
    return (
        isinstance(one, dict)
        and isinstance(one.get("content"), str)
        and len(one["content"]) == 64
        and not one["content"].strip("0123456789abcdef")
        and type(one.get("bytes")) is int
        and 0 <= one["bytes"] <= MOST
    )


def _is_name(name: Any) -> bool:
    if not isinstance(name, str):
        return False
    folder, _, last = name.partition("/")
    return folder in FOLDERS and bool(last) and "/" not in last and "\0" not in last and last not in (".", "..")


def _last_line(fd: int, size: int) -> int:
    """Where the last line ends that has its end: the client may be writing the next one."""
    at = size
    while at > 0:
        start = max(at - EDGE, 0)
        found = _bytes(fd, start, at - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        at = start
    return 0


def _continued(saving: Saving, fd: int, before: dict[str, Any] | None, end: int) -> dict[str, Any] | None:
    """What was kept before, if the transcript still begins with it. Clients append, or write all of it anew."""
    if (
        before is None
        or not 0 < before["bytes"] <= end
        or before.get("proof") not in _proofs(saving.repository, fd, before["bytes"])
    ):
        return None
    try:
        ids = _ids(saving.repository, before)
    except KeepfastError:
        return None
    if len(saving.repository.ledger.locate(ids)) != len(set(ids)):
        return None
    return {key: before[key] for key in ("bytes", "content", "proof")}


def _proofs(repository: Repository, fd: int, length: int) -> list[str]:
    """Keyed digests of both ends and of samples in between: reading all of it at every turn would be too dear.

    The first is by the keys that are in use. The others are by older ones: a rotation must not store it all again.
    """
    step = max(length // SAMPLES, SAMPLE)
    parts = [_bytes(fd, at, min(SAMPLE, length - at)) for at in range(0, length, step)]
    parts += [_bytes(fd, 0, min(EDGE, length)), _bytes(fd, max(length - EDGE, 0), min(EDGE, length))]
    content = b"".join([length.to_bytes(8, "little"), *parts])
    return [proof.hex() for proof in repository.contents.sealer().proofs(content)]


def _ids(repository: Repository, kept: dict[str, Any] | None) -> list[bytes]:
    if kept is None:
        return []
    names, kind = repository.contents.blob(bytes.fromhex(kept["content"]))
    if kind != LIST:
        raise Damaged("A conversation is not a list of parts.")
    return [names[at : at + 32] for at in range(0, len(names), 32)]


def _list(saving: Saving, ids: list[bytes]) -> bytes:
    """Store the list of these parts; where many have gathered at its end, they become one entry."""
    lists = {key for key, place in saving.repository.ledger.locate(ids).items() if place.kind == LIST}
    loose = next((at for at in range(len(ids), 0, -1) if ids[at - 1] in lists), 0)
    while len(ids) - loose >= 2 * GROUP:
        ids[loose : loose + GROUP] = [_stored(saving, ids[loose : loose + GROUP])]
        loose += 1
    return _stored(saving, ids)


def _stored(saving: Saving, ids: list[bytes]) -> bytes:
    names = b"".join(ids)
    key = digest(names)
    saving.keep(key, names, LIST)
    return key


def _beside(folder: str) -> list[str]:
    found = []
    for below in FOLDERS:
        try:
            with scandir(f"{folder}/{below}") as entries:
                found += [f"{below}/{entry.name}" for entry in entries if entry.is_file(follow_symlinks=False)]
        except OSError:
            continue
    return sorted(name for name in found if _is_name(name))[:MOST_BESIDE]


def _bytes(fd: int, offset: int, length: int) -> bytes:
    parts = []
    while length > 0:
        part = pread(fd, min(length, PART), offset)
        if not part:
            raise Failed("it became shorter while it was read")
        parts.append(part)
        offset += len(part)
        length -= len(part)
    return b"".join(parts)
