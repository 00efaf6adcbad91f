"""What happens and what comes of it: Event in, Outcome out. Plain classes, because a hook builds them in microseconds."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CREATED, UNCHANGED, OUTSIDE = "created", "unchanged", "outside"


class Event:
    """Something that may deserve a checkpoint."""

    __slots__ = (
        "adopt",
        "at",
        "created_by",
        "cwd",
        "force",
        "message",
        "name",
        "only",
        "pinned",
        "session",
        "tags",
        "task",
        "trigger",
    )

    def __init__(
        self,
        cwd: bytes,
        at: int,
        *,
        trigger: str = "manual",
        message: str = "",
        name: str = "",
        tags: tuple[str, ...] = (),
        pinned: bool = False,
        session: str = "",
        task: str = "",
        created_by: str = "user",
        adopt: bool = False,
        force: frozenset[bytes] = frozenset(),
        only: tuple[bytes, ...] = (),
    ) -> None:
        self.cwd, self.at, self.trigger, self.message, self.name, self.tags = cwd, at, trigger, message, name, tags
        self.pinned, self.session, self.task, self.created_by, self.adopt = pinned, session, task, created_by, adopt
        self.force, self.only = force, only
        # `force`: files that are captured whatever their size and the ignore rules, because a restore is about to touch
        # them. `only`: nothing but these paths is looked at; everything else is taken to be as it was.


class Outcome:
    """What came of an event. `version` is 0 where no checkpoint was made."""

    __slots__ = ("checkpoint", "counts", "id", "message", "notices", "root", "status", "untidy", "version")

    def __init__(self, status: str, root: bytes = b"", *, version: int = 0, id: str = "", message: str = "") -> None:
        self.status, self.root, self.version, self.id, self.message = status, root, version, id, message
        self.counts: dict[str, int] = {}
        self.notices: list[str] = []
        self.checkpoint: Any = None
        self.untidy = False
        """So much has piled up that somebody should tidy up, at leisure."""
