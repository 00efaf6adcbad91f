"""All errors, with their exit codes and hints."""


def extra(name: str) -> str:
    """Return how to install a missing extra. Never by a name that a package index resolves: there it belongs to others."""
    return f"Run `pip install '.[{name}]'` in the repository of keepfast."


SHORT_OF_MEMORY = (
    "not enough memory",
    "out of memory",
    "can't start new thread",
    "Cannot allocate memory",
    "failed to map segment",
    "without setting an exception",
    "without exception set",
)
"""Messages of libraries, SQLite, threads and the import system that mean `MemoryError`."""


class Declined(Exception):
    """The resident leaves a hook to a process of its own; the text says why. Not an error: nothing was changed yet."""


class KeepfastError(Exception):
    """An error with a message for people: what happened, to what. `hint` says what to do next."""

    exit_code = 1
    kind = "failed"
    hint = ""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        if hint is not None:
            self.hint = hint


class Failed(KeepfastError):
    """The work could not be done; nothing was changed, or the message says what was."""


class DiskFull(KeepfastError):
    """No space left on the disk of the store."""

    kind = "disk_full"
    hint = "Free some space, or run `keepfast forget`, which works on a full disk."


class OutOfMemory(KeepfastError):
    """The process cannot get more memory."""

    kind = "out_of_memory"
    hint = "Close other programs, or raise the limit of this shell (`ulimit -v`), and run it again."


class Usage(KeepfastError):
    """Invalid command line."""

    exit_code = 2
    kind = "usage"


class Refused(KeepfastError):
    """The folder must not be protected as a whole."""

    exit_code = 2
    kind = "refused"


class TooMany(Refused):
    """The tree has more files than the setting `capture.max_files` allows."""

    kind = "too_many_files"


class NoWorkspace(KeepfastError):
    """The folder is not inside a workspace, or there is no store yet."""

    exit_code = 3
    kind = "no_workspace"
    hint = "Run `keepfast init` in the folder to protect."


class NotFound(KeepfastError):
    """No checkpoint, path or setting of that name."""

    exit_code = 4
    kind = "not_found"
    hint = "Run `keepfast list` to see all checkpoints."


class Unreachable(KeepfastError):
    """The store exists but cannot be opened."""

    exit_code = 5
    kind = "unreachable"


class NewerFormat(Unreachable):
    """The store was written by a newer keepfast."""

    kind = "newer_format"
    hint = "Upgrade keepfast; nothing was changed."


class MissingStore(Unreachable):
    """The store with the folder's checkpoints was not found."""

    kind = "store_missing"
    hint = (
        "If it was moved, run `keepfast --store NEWPATH init`. To start a new history without it, run "
        "`keepfast init --new-store`."
    )


class OtherStore(Unreachable):
    """The folder's marker names a store that this command does not use."""

    kind = "other_store"


class Busy(KeepfastError):
    """Another process holds a lock for too long."""

    exit_code = 11
    kind = "busy"
    hint = "Try again in a moment."


class WrongKey(KeepfastError):
    """Sealed contents cannot be decrypted with the available keys."""

    exit_code = 12
    kind = "wrong_key"


class Damaged(KeepfastError):
    """Stored bytes no longer match their digest."""

    exit_code = 13
    kind = "damaged"
    hint = "Run `keepfast verify --repair`. Undamaged checkpoints remain usable."


class Conflict(KeepfastError):
    """Unsaved changes or other work would be overwritten."""

    exit_code = 14
    kind = "conflict"


class Elsewhere(Conflict):
    """The folder's marker names the history of another folder."""

    kind = "elsewhere"

    def __init__(self, message: str, hint: str, root: bytes, workspace: str, copied: bool) -> None:
        super().__init__(message, hint)
        self.root, self.workspace, self.copied = root, workspace, copied


class NotCompacted(KeepfastError):
    """Forgotten or removed, but not all space was freed."""

    exit_code = 15
    kind = "not_compacted"
    hint = "Run `keepfast compact` later."


class Limited(KeepfastError):
    """The agent's usage limit is reached; run the command again later."""

    exit_code = 75
    kind = "limited"


def shortage(error: BaseException) -> OutOfMemory | None:
    """Return our own error if memory ran out, whatever reported it; otherwise None."""
    if isinstance(error, OutOfMemory):
        return error
    text = str(error)
    if isinstance(error, MemoryError) or any(sign in text for sign in SHORT_OF_MEMORY):
        return OutOfMemory("Not enough memory.")
    return None


def sentence(error: BaseException) -> str:
    """Return the text of an error for a notice: our own message if there is one."""
    ours = error if isinstance(error, KeepfastError) else shortage(error)
    return str(ours) if ours is not None else f"{type(error).__name__}: {error}"
