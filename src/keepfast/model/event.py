"""The input and output of a save: Event in, Outcome out. Plain classes, because a hook creates them in microseconds."""

from __future__ import annotations

from typing import Any

CREATED, UNCHANGED, OUTSIDE = "created", "unchanged", "outside"
TOOL, BETWEEN = "tool", "between"
"""Triggers around a tool call: what it changed, and what had changed before it."""
ONLY_IF_CHANGED = frozenset(
    (
        TOOL,
        BETWEEN,
        "auto",
        "watch",
        "turn",
        "prompt",
        "interval",
        "before_command",
        "before_clear",
        "session_start",
        "session_end",
        "subagent",
    )
)
"""Frequent triggers: they create no version if the tree has not changed."""
BY_THEMSELVES = frozenset(("auto", "watch"))
"""Triggers of saves without a message: outside of a session, only the changed files describe the work."""
CONVERSED = frozenset(("turn", "before_clear", "session_end"))
"""Those of them that also create a version if only the conversation continued."""


AFTER_TOOL_CALLS = frozenset(("before_command",))
"""Those of them that also create a version if the newest one is of a tool call: lists hide that one."""


def takes(trigger: str, changed: bool, first: bool, moved_on: bool = False) -> bool:
    """Return whether this trigger makes a version. The first checkpoint of a workspace is always made.

    `moved_on`: the conversation went on since the last checkpoint of its session, or a tool call was saved since.
    """
    return changed or first or trigger not in ONLY_IF_CHANGED or (moved_on and trigger in CONVERSED | AFTER_TOOL_CALLS)


class Event:
    """Something that may need a checkpoint."""

    __slots__ = (
        "active_files",
        "adopt",
        "agent",
        "at",
        "chosen",
        "command",
        "created_by",
        "cwd",
        "force",
        "guarded",
        "keep",
        "key_points",
        "message",
        "moved_on",
        "name",
        "named",
        "notes",
        "only",
        "partial",
        "pinned",
        "rest_unchanged",
        "session",
        "summary",
        "tags",
        "task",
        "token_budget",
        "tokens_used",
        "tool_call",
        "transcript",
        "trigger",
        "until",
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
        keep: tuple[bytes, ...] = (),
        command: str = "",
        agent: str = "",
        transcript: str = "",
        summary: str = "",
        tokens_used: int = 0,
        token_budget: int = 0,
        active_files: tuple[str, ...] = (),
        key_points: tuple[str, ...] = (),
        notes: dict[str, Any] | None = None,
        moved_on: bool = False,
        named: tuple[bytes, ...] = (),
        until: int = 0,
        partial: tuple[bytes, ...] = (),
        rest_unchanged: bool = False,
        chosen: dict[bytes, bytes] | None = None,
        guarded: bool = False,
        tool_call: dict[str, Any] | None = None,
    ) -> None:
        self.cwd, self.at, self.trigger, self.message, self.name, self.tags = cwd, at, trigger, message, name, tags
        self.pinned, self.session, self.task, self.created_by, self.adopt = pinned, session, task, created_by, adopt
        self.force, self.only, self.keep, self.command = force, only, keep, command
        # `force`: files to capture whatever their size and the ignore rules, because a restore is about to touch them.
        # `keep`: the same for everything left out at and below these paths, because `command` is about to destroy it.
        # `only`: scan these paths, even ignored ones. Everything else counts as unchanged if the folder is at the newest
        # version; else the whole tree is scanned, too.
        self.agent, self.transcript, self.summary, self.notes = agent, transcript, summary, notes
        self.tokens_used, self.token_budget = tokens_used, token_budget
        self.active_files, self.key_points = active_files, key_points
        # `agent`: the client, such as "claude-code". `transcript`: the file with its conversation. `notes`: facts about the
        # work, already redacted; the other texts are redacted when the checkpoint is made.
        self.named, self.until, self.partial = named, until, partial
        # `named`: paths that existed before `command`. `until`: when the command runs, saved or not.
        # `partial`: the tree has too many files, so the version covers only these paths.
        self.tool_call = tool_call
        """Facts about the tool call that it is about, for the header; texts are redacted."""
        self.rest_unchanged = rest_unchanged
        """Was everything but `only` just found to be as in the newest version?"""
        self.chosen = chosen or {}
        """New contents of files, stored with the checkpoint but not part of it: a restore of hunks is about to write them."""
        self.guarded = guarded
        """Redact values of sealed files in its texts? Hooks have no time for that."""
        self.moved_on = moved_on
        """Whether the conversation has continued since the last checkpoint of its session, or a tool call was saved since."""


class Outcome:
    """The result of an event. `version` is 0 if no checkpoint was made."""

    __slots__ = (
        "checkpoint",
        "chosen",
        "counts",
        "id",
        "message",
        "needs_tidying",
        "notices",
        "root",
        "status",
        "version",
    )

    def __init__(self, status: str, root: bytes = b"", *, version: int = 0, id: str = "", message: str = "") -> None:
        self.status, self.root, self.version, self.id, self.message = status, root, version, id, message
        self.counts: dict[str, int] = {}
        self.notices: list[str] = []
        self.checkpoint: Any = None
        self.chosen: dict[bytes, Any] = {}
        """The rows of the files that the event's `chosen` names, with their new contents."""
        self.needs_tidying = False
        """Whether background maintenance is due."""
