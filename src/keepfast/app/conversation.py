"""Restore the conversation of a checkpoint as a new session, which the client can continue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from os import O_CLOEXEC, O_CREAT, O_EXCL, O_WRONLY, close, fsync, link, mkdir, unlink, urandom
from os import open as open_fd

from keepfast.agents.base import Sessions
from keepfast.agents.registry import sessions
from keepfast.fsutil.durable import write_all
from keepfast.model.errors import Failed, NotFound
from keepfast.store.conversations import SavedConversation, conversation_from_json, load_transcript
from keepfast.store.repository import Repository
from keepfast.store.rows import CheckpointRow


class NewSession:
    """A new session with the conversation up to a checkpoint."""

    def __init__(self, id: str, path: str, folder: str, command: list[str], agent: str) -> None:
        self.id, self.path, self.folder, self.command, self.agent = id, path, folder, command, agent
        """`folder` is where the command is to be run."""


class ConversationRestorer:
    """The conversation of one checkpoint, for the user with this home and the workspace in this root."""

    def __init__(
        self, repository: Repository, row: CheckpointRow, root: bytes, home: bytes, variables: Mapping[str, str]
    ) -> None:
        self.repository, self.row, self.variables = repository, row, variables
        self.root, self.home = (path.decode("utf-8", "surrogateescape").rstrip("/") for path in (root, home))
        self.conversation = self._saved_conversation()
        self.sessions = self._sessions()
        self.lines: list[bytes] = []
        self.beside: dict[str, bytes] = {}

    def read(self) -> None:
        """Read the whole conversation. Raises `WrongKey` if its key is missing, `Damaged` if a part is."""
        self.lines = list(_lines(load_transcript(self.repository, self.conversation.transcript)))
        self.beside = {
            one.name: b"".join(load_transcript(self.repository, one)) for one in self.conversation.side_files
        }

    def restore(self) -> NewSession:
        """Write the conversation as a new session of its client; the original session is not changed.

        Raises `NotFound` if the checkpoint has none, `WrongKey` if its key is missing.
        """
        conversation, sessions, new = self.conversation, self.sessions, _uuid()
        if not self.lines:
            self.read()  # before anything is written: a missing key must not leave half a session
        old_cwd = sessions.cwd_of(self.lines) or conversation.root or self.root
        places = self._places(old_cwd)
        cwd = _moved(old_cwd, places)
        folder = sessions.folder(self.home, self.variables, cwd)
        own = f"{folder}/{new}"
        old_path = conversation.path
        places += [(old_path.removesuffix(".jsonl"), own), (old_path, own + ".jsonl")]
        places.append((old_path.rpartition("/")[0], folder))
        try:
            _make_folders(folder)
            for name, data in self.beside.items():
                _make_folders(f"{own}/{name.partition('/')[0]}")
                parts = sessions.forked(_lines([data]), new, places) if name.endswith(".jsonl") else iter([data])
                _write(f"{own}/{name}", parts)
            _write(own + ".jsonl", sessions.forked(self.lines, new, places))
        except OSError as error:
            raise Failed(f"The conversation cannot be written to {folder}: {error.strerror}.") from None
        return NewSession(new, own + ".jsonl", cwd, sessions.command(new), conversation.agent)

    def _saved_conversation(self) -> SavedConversation:
        header = self.repository.document(self.row)[0]
        conversation = conversation_from_json(header.conversation)
        if conversation is not None:
            return conversation
        if header.conversation.get("left_out"):
            raise NotFound(
                f"The conversation of v{self.row.version} was excluded when its bundle was exported.",
                "Export it again with `--with-secrets`.",
            )
        raise NotFound(f"v{self.row.version} has no conversation.", "Run `keepfast list --session ID` to see others.")

    def _sessions(self) -> Sessions:
        agent = self.conversation.agent
        client = sessions(agent)
        if client is None:
            raise Failed(f"keepfast cannot resume a conversation of {agent or 'this agent'}.")
        return client

    def _places(self, cwd: str) -> list[tuple[str, str]]:
        """Return pairs of old and new paths: of the workspace, the client's own folder and the home."""
        conversation, sessions = self.conversation, self.sessions
        old_base = sessions.base_of(conversation.path)
        new_base = sessions.base_of(sessions.folder(self.home, self.variables, cwd) + "/")
        places = [(conversation.root, self.root), (old_base, new_base)]
        if old_base.rpartition("/")[2].startswith("."):
            places.append((old_base.rpartition("/")[0], self.home))
        return places


def _moved(path: str, places: list[tuple[str, str]]) -> str:
    for old, new in sorted(places, key=lambda place: -len(place[0])):
        if old and (path == old or path.startswith(old + "/")):
            return new + path[len(old) :]
    return path


def _lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _write(path: str, parts: Iterable[bytes]) -> None:
    """Write a new file, which gets its name when it is complete."""
    temporary = f"{path}.{urandom(6).hex()}"
    fd = open_fd(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
    try:
        try:
            for part in parts:
                write_all(fd, part)
            fsync(fd)
        finally:
            close(fd)
        link(temporary, path)
    finally:
        unlink(temporary)


def _make_folders(path: str) -> None:
    try:
        mkdir(path, 0o700)
    except FileNotFoundError:
        _make_folders(path.rpartition("/")[0])
        mkdir(path, 0o700)
    except FileExistsError:
        pass


def _uuid() -> str:
    text = (int.from_bytes(urandom(16), "big") & ~(0xF << 76) & ~(3 << 62)) | 4 << 76 | 2 << 62
    digits = f"{text:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
