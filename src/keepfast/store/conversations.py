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

    from keepfast.model.document import Header
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


class Kept:
    """A transcript as it is kept: its length, the list of its parts, and a proof of what a file with more begins with.

    `name`: of what lies beside another transcript, where.
    """

    def __init__(self, size: int, content: str, proof: str, name: str = "") -> None:
        self.size, self.content, self.proof, self.name = size, content, proof, name

    @property
    def id(self) -> bytes:
        return bytes.fromhex(self.content)

    def to_json(self) -> dict[str, Any]:
        kept = {"bytes": self.size, "content": self.content, "proof": self.proof}
        return {**kept, "name": self.name} if self.name else kept


class Conversation:
    """A session's conversation in a checkpoint. `path`: where its transcript lay; `root`: where the workspace did.

    `last` is the id of its newest message.
    """

    def __init__(
        self, session: str, agent: str, path: str, root: str, last: str, transcript: Kept, beside: list[Kept]
    ) -> None:
        self.session, self.agent, self.path, self.root, self.last = session, agent, path, root, last
        self.transcript, self.beside = transcript, beside

    def transcripts(self) -> list[Kept]:
        """Its own, and what lies beside it."""
        return [self.transcript, *self.beside]

    def to_json(self) -> dict[str, Any]:
        """The form that a header has of it (docs/format/checkpoint.md)."""
        about = {"agent": self.agent, "session": self.session, "path": self.path, "root": self.root, "last": self.last}
        whole = {**about, **self.transcript.to_json()}
        return {**whole, "beside": [one.to_json() for one in self.beside]} if self.beside else whole


def keep(saving: Saving, path: str, before: Kept | None, most_new: int = MOST) -> tuple[Kept | None, bytes]:
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
        start = known.size if known is not None else 0
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
        return Kept(end, _list(saving, ids).hex(), proof), newest
    finally:
        close(fd)


def keep_beside(saving: Saving, folder: str, before: list[Kept], most_new: int) -> list[Kept]:
    """The same for what lies beside a transcript: those of subagents, and outputs that are too long for it."""
    known = {one.name: one for one in before}
    found, size = list[Kept](), 0
    for name in _beside(folder):
        try:
            kept, _ = keep(saving, f"{folder}/{name}", known.get(name), most_new)
        except (OSError, Failed):
            kept = None
        kept = kept or known.get(name)
        if kept is not None:
            size += kept.size
            if size > MOST_BESIDE_BYTES:
                break
            found.append(Kept(kept.size, kept.content, kept.proof, name))
    return found


def latest(repository: Repository, workspace: str, session: str) -> Conversation | None:
    """The conversation in the newest checkpoint of this session."""
    for row in repository.ledger.find(Query(workspace=workspace, session=session, limit=1)) if session else ():
        try:
            header = repository.document(row)[0]
        except KeepfastError:
            return None
        return checked(header.conversation)
    return None


def checked(value: Any) -> Conversation | None:
    """The header's `conversation`, if it is one that can be read: a header is what somebody wrote."""
    if not isinstance(value, dict) or not isinstance(value.get("session"), str) or not _is_kept(value):
        return None
    beside = value.get("beside", [])
    if not isinstance(beside, list) or not all(_is_kept(one) and _is_name(one.get("name")) for one in beside):
        return None
    agent, path, root, last = [
        value[name] if isinstance(value.get(name), str) else "" for name in ("agent", "path", "root", "last")
    ]
    return Conversation(value["session"], agent, path, root, last, _kept(value), [_kept(one) for one in beside])


def _kept(value: dict[str, Any]) -> Kept:
    return Kept(value["bytes"], value["content"], str(value.get("proof") or ""), str(value.get("name") or ""))


def ids_of(header: Header) -> list[bytes]:
    """What a checkpoint needs besides the contents of its files."""
    conversation = checked(header.conversation)
    return [one.id for one in conversation.transcripts()] if conversation is not None else []


def load(repository: Repository, kept: Kept) -> Iterator[bytes]:
    """Yield a kept transcript in parts. Raises `WrongKey`, and `Damaged` if it is not as long as it should be."""
    length = 0
    for part in repository.contents.stream(kept.id):
        length += len(part)
        yield part
    if length != kept.size:
        raise Damaged(f"A conversation has {length} bytes instead of {kept.size}.")


def ends(repository: Repository, kept: Kept, head: int, tail: int) -> tuple[bytes, bytes]:
    """About so many bytes of a kept transcript's beginning, in whole lines, and of its end; what lies between is not opened."""
    parts, last = _ids(repository, kept), list[bytes]()
    first, length, met = b"", 0, Parts()
    for part in repository.contents.stream(kept.id):
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


def _continued(saving: Saving, fd: int, before: Kept | None, end: int) -> Kept | None:
    """What was kept before, if the transcript still begins with it. Clients append, or write all of it anew."""
    if before is None or not 0 < before.size <= end or before.proof not in _proofs(saving.repository, fd, before.size):
        return None
    try:
        ids = _ids(saving.repository, before)
    except KeepfastError:
        return None
    if len(saving.repository.ledger.locate(ids)) != len(set(ids)):
        return None
    return Kept(before.size, before.content, before.proof)


def _proofs(repository: Repository, fd: int, length: int) -> list[str]:
    """Keyed digests of both ends and of samples in between: reading all of it at every turn would be too dear.

    The first is by the keys that are in use. The others are by older ones: a rotation must not store it all again.
    """
    step = max(length // SAMPLES, SAMPLE)
    parts = [_bytes(fd, at, min(SAMPLE, length - at)) for at in range(0, length, step)]
    parts += [_bytes(fd, 0, min(EDGE, length)), _bytes(fd, max(length - EDGE, 0), min(EDGE, length))]
    content = b"".join([length.to_bytes(8, "little"), *parts])
    return [proof.hex() for proof in repository.contents.sealer().proofs(content)]


def _ids(repository: Repository, kept: Kept | None) -> list[bytes]:
    if kept is None:
        return []
    names, kind = repository.contents.blob(kept.id)
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
