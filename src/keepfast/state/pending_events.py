"""Events that are recorded but not processed yet: one small file each, so that adding or removing one needs no lock."""

from __future__ import annotations

from os import O_CLOEXEC, O_CREAT, O_EXCL, O_WRONLY, close, getpid, listdir, unlink, write
from os import open as open_fd

from keepfast.fsutil.durable import make_folder
from keepfast.model.strict_json import dumps, loads

FOLDER = "/pending"
MAX_EVENT_BYTES = 64 << 10
TEXTS = ("session", "agent", "cwd", "transcript", "reason", "model", "said")


class PendingEvent:
    """An event of a session that needs a checkpoint. `at` is in nanoseconds.

    `client` is the client's process id. `conversed` is not empty if the event brought a prompt or an answer.
    """

    def __init__(
        self,
        trigger: str,
        at: int,
        session: str = "",
        agent: str = "",
        cwd: str = "",
        transcript: str = "",
        client: int = 0,
        model: str = "",
        reason: str = "",
        conversed: str = "",
    ) -> None:
        self.trigger, self.at, self.session, self.agent, self.cwd = trigger, at, session, agent, cwd
        self.transcript, self.client, self.model, self.reason, self.conversed = (
            transcript,
            client,
            model,
            reason,
            conversed,
        )
        self.id = ""
        """The same for every attempt to record the event; empty if there is only one."""
        # Set only for an event that is saved at once, before a command:
        self.command, self.until = "", 0
        self.named: tuple[bytes, ...] = ()
        self.partial: tuple[bytes, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Return the content of its file."""
        return {
            "trigger": self.trigger, "at": self.at, "session": self.session, "agent": self.agent, "cwd": self.cwd,
            "transcript": self.transcript, "client": self.client, "model": self.model, "reason": self.reason,
            "said": self.conversed,
        }  # fmt: skip


def append(folder: str, event: PendingEvent) -> str:
    """Record an event in the folder of its workspace; return its name. Raises `OSError`.

    The file is not synced: after a power cut, the tree that it was about is gone anyway.
    """
    recorded = [name for name in names(folder) if event.id and name.endswith(f"-{event.id}")]
    if recorded:
        return recorded[0]  # by an attempt that did not live to tell
    line = dumps(event.to_json()).encode("ascii")
    stem = f"{max(event.at, 0):020d}-{event.id or getpid()}"
    for number in range(100):
        name = f"{stem}-{number}" if number else stem
        try:
            fd = open_fd(f"{folder}{FOLDER}/{name}", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        except FileExistsError:
            continue
        except FileNotFoundError:
            make_folder(folder.rpartition("/")[0])
            make_folder(folder)
            make_folder(folder + FOLDER)
            continue
        try:
            if write(fd, line) != len(line):
                raise OSError(28, "No space left on device")
        except OSError:
            unlink(f"{folder}{FOLDER}/{name}")
            raise
        finally:
            close(fd)
        return name
    raise FileExistsError(17, "No free file name for an event", folder)


def names(folder: str) -> list[str]:
    """Return the names of all pending events of a workspace, oldest first."""
    try:
        return sorted(listdir(folder + FOLDER))
    except OSError:
        return []


def read(folder: str, name: str) -> PendingEvent | None:
    """Return an event; None if it was already processed. One that is cut off counts as an event `auto`."""
    try:
        with open(f"{folder}{FOLDER}/{name}", "rb") as file:
            text = file.read(MAX_EVENT_BYTES)
    except OSError:
        return None
    try:
        fields = loads(text)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        fields = {}
    texts = {key: fields[key] for key in TEXTS if isinstance(fields.get(key), str)}
    trigger, at, client = fields.get("trigger"), fields.get("at"), fields.get("client")
    digits = name.partition("-")[0]
    return PendingEvent(
        trigger if isinstance(trigger, str) else "auto",
        at if isinstance(at, int) else int(digits) if digits.isdigit() else 0,
        client=client if isinstance(client, int) else 0,
        conversed=texts.pop("said", ""),
        **texts,
    )


def done(folder: str, name: str) -> None:
    try:
        unlink(f"{folder}{FOLDER}/{name}")
    except FileNotFoundError:
        pass
