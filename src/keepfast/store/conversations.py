"""Store agents' transcripts in sealed parts; each save stores only what is new (docs/format/sealed.md)."""

from __future__ import annotations

from collections.abc import Iterator
from os import O_CLOEXEC, O_NONBLOCK, O_RDONLY, close, fstat, pread, scandir
from os import open as open_fd
from stat import S_ISREG
from typing import TYPE_CHECKING, Any

from keepfast.model.document import Header
from keepfast.model.errors import Damaged, Failed, KeepfastError
from keepfast.store.contents import PartCounter
from keepfast.store.digest import digest
from keepfast.store.rows import LIST, SEALED, Query
from keepfast.store.save import CheckpointWriter

if TYPE_CHECKING:
    from keepfast.store.repository import Repository

PART = 1 << 20
PARTS_PER_LIST = 64
"""So many parts become a list of their own, so that a long conversation needs few ids."""
MAX_TRANSCRIPT_LENGTH = 1 << 30
"""Longer transcripts are not stored; no client could resume one."""
SAMPLE, SAMPLES = 4 << 10, 16
EDGE = 64 << 10
SIDE_FILES, SIDE_FILE_BYTES = 500, 64 << 20
FOLDERS = ("subagents", "tool-results")


class StoredTranscript:
    """A stored transcript: its length, the id of the list of its parts, and a keyed digest by which a longer file is
    recognised as its continuation.

    `name`: of a side file, its path in the folder beside the main transcript.
    """

    def __init__(self, size: int, content: str, proof: str, name: str = "") -> None:
        self.size, self.content, self.proof, self.name = size, content, proof, name

    @property
    def id(self) -> bytes:
        return bytes.fromhex(self.content)

    def to_json(self) -> dict[str, Any]:
        members = {"bytes": self.size, "content": self.content, "proof": self.proof}
        return {**members, "name": self.name} if self.name else members


class SavedConversation:
    """A session's conversation in a checkpoint.

    `path` and `root` are where transcript and workspace lay; `last` is the id of the newest message; `side_files` are
    transcripts of subagents and long outputs, which lie in a folder beside the transcript.
    """

    def __init__(
        self,
        session: str,
        agent: str,
        path: str,
        root: str,
        last: str,
        transcript: StoredTranscript,
        side_files: list[StoredTranscript],
    ) -> None:
        self.session, self.agent, self.path, self.root, self.last = session, agent, path, root, last
        self.transcript, self.side_files = transcript, side_files

    def transcripts(self) -> list[StoredTranscript]:
        """Return the main transcript and the side files."""
        return [self.transcript, *self.side_files]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of the header's member `conversation` (docs/format/checkpoint.md)."""
        about = {"agent": self.agent, "session": self.session, "path": self.path, "root": self.root, "last": self.last}
        whole = {**about, **self.transcript.to_json()}
        return {**whole, "beside": [file.to_json() for file in self.side_files]} if self.side_files else whole


def store_transcript(
    checkpoint_writer: CheckpointWriter,
    path: str,
    before: StoredTranscript | None,
    most_new: int = MAX_TRANSCRIPT_LENGTH,
) -> tuple[StoredTranscript | None, bytes]:
    """Store what a transcript has more than `before`, up to its last whole line; return it as stored, and its newest lines.

    None if it has no line yet, or more than `most_new` new bytes; then `before` is still valid. Raises `OSError` if it
    cannot be read, and `Failed` if it is not a regular file or too large.
    """
    fd = open_fd(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
    try:
        seen = fstat(fd)
        if not S_ISREG(seen.st_mode):
            raise Failed("it is not a file")
        if seen.st_size > MAX_TRANSCRIPT_LENGTH:
            raise Failed(f"it has more than {MAX_TRANSCRIPT_LENGTH >> 20} MB")
        end = _end_of_last_line(fd, seen.st_size)
        if not end:
            return None, b""
        previous = _still_begins_with(checkpoint_writer, fd, before, end)
        start = previous.size if previous is not None else 0
        if end - start > most_new:
            return None, b""
        newest = _read_at(fd, max(end - PART, 0), min(end, PART))
        if previous is not None and start == end:
            return previous, newest
        ids = _part_ids(checkpoint_writer.repository, previous)
        checkpoint_writer.reused.update(ids)
        for at in range(start, end, PART):
            sealed = checkpoint_writer.repository.contents.sealer().seal(
                _read_at(fd, at, min(PART, end - at)), compressed=True
            )
            ids.append(digest(sealed))
            checkpoint_writer.store_blob(ids[-1], sealed, SEALED)
        proof = _proofs(checkpoint_writer.repository, fd, end)[0]
        return StoredTranscript(end, _store_part_list(checkpoint_writer, ids).hex(), proof), newest
    finally:
        close(fd)


def store_side_files(
    checkpoint_writer: CheckpointWriter, folder: str, before: list[StoredTranscript], most_new: int
) -> list[StoredTranscript]:
    """Store the side files of a transcript: transcripts of subagents, and long outputs."""
    previous_by_name = {file.name: file for file in before}
    transcripts, size = list[StoredTranscript](), 0
    for name in _side_file_names(folder):
        try:
            transcript, _ = store_transcript(
                checkpoint_writer, f"{folder}/{name}", previous_by_name.get(name), most_new
            )
        except (OSError, Failed):
            transcript = None
        transcript = transcript or previous_by_name.get(name)
        if transcript is not None:
            size += transcript.size
            if size > SIDE_FILE_BYTES:
                break
            transcripts.append(StoredTranscript(transcript.size, transcript.content, transcript.proof, name))
    return transcripts


def latest_conversation(repository: Repository, workspace: str, session: str) -> SavedConversation | None:
    """Return the conversation in the newest checkpoint of this session; None if there is none."""
    for row in (
        repository.ledger.find(Query(workspace=workspace, session=session, limit=1, light=False)) if session else ()
    ):
        try:
            header = repository.document(row)[0]
        except KeepfastError:
            return None
        return conversation_from_json(header.conversation)
    return None


def conversation_from_json(value: Any) -> SavedConversation | None:
    """Return the conversation from a header's JSON; None if the JSON is invalid, as a header may be crafted."""
    if not isinstance(value, dict) or not isinstance(value.get("session"), str) or not _is_transcript_json(value):
        return None
    beside = value.get("beside", [])
    if not isinstance(beside, list) or not all(
        _is_transcript_json(file) and _is_side_file_name(file.get("name")) for file in beside
    ):
        return None
    agent, path, root, last = [
        value[name] if isinstance(value.get(name), str) else "" for name in ("agent", "path", "root", "last")
    ]
    return SavedConversation(
        value["session"],
        agent,
        path,
        root,
        last,
        _transcript_from_json(value),
        [_transcript_from_json(file) for file in beside],
    )


def _transcript_from_json(value: dict[str, Any]) -> StoredTranscript:
    return StoredTranscript(
        value["bytes"], value["content"], str(value.get("proof") or ""), str(value.get("name") or "")
    )


def attachment_ids(header: Header) -> list[bytes]:
    """Return the ids of contents that a checkpoint needs besides those of its files."""
    conversation = conversation_from_json(header.conversation)
    return [transcript.id for transcript in conversation.transcripts()] if conversation is not None else []


def load_transcript(repository: Repository, transcript: StoredTranscript) -> Iterator[bytes]:
    """Yield a stored transcript in parts. Raises `WrongKey`, and `Damaged` if it has the wrong length."""
    length = 0
    for part in repository.contents.stream(transcript.id):
        length += len(part)
        yield part
    if length != transcript.size:
        raise Damaged(f"A conversation has {length} bytes instead of {transcript.size}.")


def read_ends(repository: Repository, transcript: StoredTranscript, head: int, tail: int) -> tuple[bytes, bytes]:
    """Return about `head` bytes of a stored transcript's beginning, in whole lines, and `tail` bytes of its end.

    The parts between are not read.
    """
    parts, last = _part_ids(repository, transcript), list[bytes]()
    first, length, counter = b"", 0, PartCounter()
    for part in repository.contents.stream(transcript.id):
        first += part
        if len(first) >= head:
            break
    while parts and length < tail:
        data, kind = repository.contents.blob(part := parts.pop())
        if kind == LIST:
            parts += counter.split_list(data)
            continue
        last.append(repository.contents.load(part))
        length += len(last[-1])
    return first[: first.rfind(b"\n") + 1], b"".join(last[::-1])


def _is_transcript_json(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("content"), str)
        and len(value["content"]) == 64
        and not value["content"].strip("0123456789abcdef")
        and type(value.get("bytes")) is int
        and 0 <= value["bytes"] <= MAX_TRANSCRIPT_LENGTH
    )


def _is_side_file_name(name: Any) -> bool:
    if not isinstance(name, str):
        return False
    folder, _, last = name.partition("/")
    return folder in FOLDERS and bool(last) and "/" not in last and "\0" not in last and last not in (".", "..")


def _end_of_last_line(fd: int, size: int) -> int:
    """Return where the last complete line ends: the client may be writing the next one."""
    at = size
    while at > 0:
        start = max(at - EDGE, 0)
        newline = _read_at(fd, start, at - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        at = start
    return 0


def _still_begins_with(
    checkpoint_writer: CheckpointWriter, fd: int, before: StoredTranscript | None, end: int
) -> StoredTranscript | None:
    """Return `before` if the transcript still begins with it, else None. Clients append, or rewrite the whole file."""
    if (
        before is None
        or not 0 < before.size <= end
        or before.proof not in _proofs(checkpoint_writer.repository, fd, before.size)
    ):
        return None
    try:
        ids = _part_ids(checkpoint_writer.repository, before)
    except KeepfastError:
        return None
    if len(checkpoint_writer.repository.ledger.locate(ids)) != len(set(ids)):
        return None
    return StoredTranscript(before.size, before.content, before.proof)


def _proofs(repository: Repository, fd: int, length: int) -> list[str]:
    """Return keyed digests of both ends and of samples in between: reading the whole file at every turn would be too slow.

    The first is made with the current key set, the others with older ones: after a rotation the transcript must not be
    stored again.
    """
    step = max(length // SAMPLES, SAMPLE)
    parts = [_read_at(fd, at, min(SAMPLE, length - at)) for at in range(0, length, step)]
    parts += [_read_at(fd, 0, min(EDGE, length)), _read_at(fd, max(length - EDGE, 0), min(EDGE, length))]
    content = b"".join([length.to_bytes(8, "little"), *parts])
    return [proof.hex() for proof in repository.contents.sealer().proofs(content)]


def _part_ids(repository: Repository, transcript: StoredTranscript | None) -> list[bytes]:
    if transcript is None:
        return []
    names, kind = repository.contents.blob(transcript.id)
    if kind != LIST:
        raise Damaged("A conversation is not a list of parts.")
    return [names[at : at + 32] for at in range(0, len(names), 32)]


def _store_part_list(checkpoint_writer: CheckpointWriter, ids: list[bytes]) -> bytes:
    """Store the list of these parts and return its id; many loose parts at its end are moved into a list of their own."""
    lists = {key for key, place in checkpoint_writer.repository.ledger.locate(ids).items() if place.kind == LIST}
    loose = next((at for at in range(len(ids), 0, -1) if ids[at - 1] in lists), 0)
    while len(ids) - loose >= 2 * PARTS_PER_LIST:
        ids[loose : loose + PARTS_PER_LIST] = [_store_list(checkpoint_writer, ids[loose : loose + PARTS_PER_LIST])]
        loose += 1
    return _store_list(checkpoint_writer, ids)


def _store_list(checkpoint_writer: CheckpointWriter, ids: list[bytes]) -> bytes:
    names = b"".join(ids)
    key = digest(names)
    checkpoint_writer.store_blob(key, names, LIST)
    return key


def _side_file_names(folder: str) -> list[str]:
    names = []
    for below in FOLDERS:
        try:
            with scandir(f"{folder}/{below}") as entries:
                names += [f"{below}/{entry.name}" for entry in entries if entry.is_file(follow_symlinks=False)]
        except OSError:
            continue
    return sorted(name for name in names if _is_side_file_name(name))[:SIDE_FILES]


def _read_at(fd: int, offset: int, length: int) -> bytes:
    parts = []
    while length > 0:
        part = pread(fd, min(length, PART), offset)
        if not part:
            raise Failed("it was truncated while it was read")
        parts.append(part)
        offset += len(part)
        length -= len(part)
    return b"".join(parts)
