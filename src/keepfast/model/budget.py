"""The token budget: how full the agent's context is, and which band of it has been crossed."""

from __future__ import annotations

from collections.abc import Mapping

NOTICE, WARNING = 80, 90

WINDOWS = (("haiku", 200_000), ("opus", 1_000_000), ("sonnet", 1_000_000))
"""Part of a model's name → tokens it can hold, as measured with the client of 2026."""
OLD_MODELS = ("claude-2", "claude-3", "claude-instant", "-4-0", "-4-1", "opus-4", "sonnet-4")
OLD_WINDOW = 200_000
COMPACTED_AT = {1_000_000: 967_000}
"""Window → tokens at which the client compacts by itself. It fills smaller windows completely."""


class TokenUsage:
    """Tokens used, the budget, and the source of both figures. `used` or `budget` is 0 if unknown."""

    __slots__ = ("budget", "budget_from", "model", "used", "used_from")

    def __init__(self, used: int, used_from: str, budget: int, budget_from: str, model: str = "") -> None:
        self.used, self.used_from, self.budget, self.budget_from = used, used_from, budget, budget_from
        self.model = model

    @property
    def percent(self) -> float:
        return 100 * self.used / self.budget if self.budget > 0 else 0.0

    @property
    def reached(self) -> int:
        """The percentage for display: rounded down, so that no band is shown before it is crossed."""
        return 100 * self.used // self.budget if self.budget > 0 else 0


class Band:
    """A threshold of the budget that has been crossed: the checkpoint's trigger, and how prominently to announce it."""

    __slots__ = ("at", "is_quiet", "is_warning", "trigger")

    def __init__(self, at: int) -> None:
        self.at, self.trigger = at, f"auto_{at}"
        self.is_warning, self.is_quiet = at == WARNING, at not in (NOTICE, WARNING)


def band(percent: float, threshold: int) -> Band | None:
    """Return the highest band that `percent` has crossed: the setting's threshold (quiet), 80 or 90; None below all."""
    crossed = [at for at in (threshold, NOTICE, WARNING) if percent >= at]
    return Band(max(crossed)) if crossed else None


def highest_announced_band(percent: float) -> Band | None:
    """Return the higher of the announced bands, 80 and 90, that `percent` has crossed; None below both."""
    crossed = [at for at in (NOTICE, WARNING) if percent >= at]
    return Band(crossed[-1]) if crossed else None


def window(model: str) -> int:
    """Return the context window of a model by its name; 0 if the name does not tell."""
    name = model.lower()
    if "[1m]" in name:
        return 1_000_000
    if any(part in name for part in OLD_MODELS):
        return OLD_WINDOW
    for part, size in WINDOWS:
        if part in name:
            return size
    return 0


def usage(
    used: int, model: str, configured: int, windows: Mapping[str, int], record: Mapping[str, object]
) -> TokenUsage:
    """Combine the transcript (`used`, `model`), the settings (`configured`, `windows`) and the status line's `record`."""
    used_from = "the transcript" if used else ""
    reported = record.get("used")
    if not used and isinstance(reported, int):
        used, used_from = reported, "the status line"
    model = model or str(record.get("model") or "")
    if configured:
        return TokenUsage(used, used_from, configured, "the setting budget.tokens", model)
    reported = record.get("window")
    for start, size in windows.items():
        if model and model.startswith(start):
            return TokenUsage(used, used_from, size, "the setting budget.windows", model)
    if isinstance(reported, int) and reported > 0:
        return TokenUsage(used, used_from, COMPACTED_AT.get(reported, reported), "the status line", model)
    size = window(model)
    return TokenUsage(
        used, used_from, COMPACTED_AT.get(size, size), f"the table of models ({model})" if size else "", model
    )
