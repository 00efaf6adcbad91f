"""Everything that can go wrong, with the exit code and the way out."""


class HoldfastError(Exception):
    """A sentence for a person: what happened, to what. `hint` says what to do next."""

    exit_code = 1
    kind = "failed"
    hint = ""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        if hint is not None:
            self.hint = hint


class Failed(HoldfastError):
    """The work could not be done; nothing was changed."""


class DiskFull(HoldfastError):
    """No space left where the store lives."""

    kind = "disk_full"
    hint = "Free some space, or run `holdfast forget`: it works on a full disk."


class Usage(HoldfastError):
    """The command's words are off."""

    exit_code = 2
    kind = "usage"


class Refused(HoldfastError):
    """This folder is not one to protect as a whole."""

    exit_code = 2
    kind = "refused"


class NoWorkspace(HoldfastError):
    """The folder belongs to no workspace, or there is no store yet."""

    exit_code = 3
    kind = "no_workspace"
    hint = "Run `holdfast init` in the folder that you want to protect."


class NotFound(HoldfastError):
    """No checkpoint, path or setting of that name."""

    exit_code = 4
    kind = "not_found"
    hint = "`holdfast list` shows what there is."


class Unreachable(HoldfastError):
    """The store is there but cannot be opened."""

    exit_code = 5
    kind = "unreachable"


class NewerFormat(Unreachable):
    """The store was written by a newer holdfast."""

    kind = "newer_format"
    hint = "Upgrade holdfast; nothing was changed."


class Busy(HoldfastError):
    """Somebody else holds what we need, for longer than we wait."""

    exit_code = 11
    kind = "busy"
    hint = "Try again in a moment."


class WrongKey(HoldfastError):
    """What is sealed cannot be opened with the key at hand."""

    exit_code = 12
    kind = "wrong_key"


class Damaged(HoldfastError):
    """Stored bytes no longer match their digest."""

    exit_code = 13
    kind = "damaged"
    hint = "Run `holdfast verify --repair`; whole checkpoints stay usable."


class Conflict(HoldfastError):
    """Work by someone else is in the way."""

    exit_code = 14
    kind = "conflict"


class Limited(HoldfastError):
    """The agent's account is limited for now; the command can be run again later."""

    exit_code = 75
    kind = "limited"
