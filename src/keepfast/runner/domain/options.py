"""The settings of unattended tasks, as one value."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

from keepfast.settings import Settings


@dataclass(frozen=True)
class Options:
    """`supervisor.<name>` of the settings; times in seconds."""

    checkpoint_interval: float = 600
    concurrency: int = 4
    tick: float = 5
    reconcile: float = 30
    pause_grace: float = 60
    stop_grace: float = 15
    stuck_after: float = 1800
    silent_after: float = 300
    marker_grace: float = 300
    backoff_first: float = 30
    backoff_longest: float = 600
    max_windows: int = 3
    limit_jitter_least: float = 20
    limit_jitter_most: float = 90
    stagger: float = 15
    question_timeout: float = 1800
    auto_approve_after: float = 0
    verify_timeout: float = 900
    max_attempts: int = 3
    resume_with: str = "auto"
    roots: list[str] = field(default_factory=list)
    environment: list[str] = field(default_factory=list)
    notify_command: list[str] = field(default_factory=list)
    notify_webhook: str = ""
    notify_ntfy: str = ""
    notify_bell: bool = True
    quiet_hours: str = ""
    database: str = ""
    permission_mode: str = "acceptEdits"
    allowed_tools: list[str] = field(default_factory=lambda: ["Read", "Glob", "Grep", "Edit", "Write", "TodoWrite"])
    agent: list[str] = field(default_factory=lambda: ["claude"])
    max_tokens: int = 0
    cold_history: int = 100_000
    freezer: str = "auto"
    language: str = "en"
    context_threshold: int = 70
    context_tokens: int = 0
    context_windows: dict[str, int] = field(default_factory=dict)
    """From `hooks.checkpoint_threshold_percent`, `budget.tokens` and `budget.windows`: when an agent is warned."""

    @classmethod
    def read(cls, settings: Settings) -> Options:
        """Return the options that the settings define; others keep their defaults."""
        values: dict[str, Any] = {}
        for option in fields(cls):
            key = f"supervisor.{option.name}"
            if key in settings.values:
                values[option.name] = settings.values[key]
        if settings.values.get("language") == "ko":
            values["language"] = "ko"
        values["context_threshold"] = settings.values.get("hooks.checkpoint_threshold_percent", 70)
        values["context_tokens"] = settings.values.get("budget.tokens", 0)
        values["context_windows"] = settings.values.get("budget.windows", {})
        return cls(**values)

    def but(self, **changes: Any) -> Options:
        return replace(self, **changes)
