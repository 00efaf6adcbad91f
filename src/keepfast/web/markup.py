"""Markup for templates: coloured lines, visible control characters, and plots as SVG."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from html import escape
from typing import Any
from unicodedata import category

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_for_filename
from pygments.lexers.special import TextLexer
from pygments.util import ClassNotFound

from keepfast.store.rows import CheckpointRow
from keepfast.web.views import HunkView

MAX_LINE_CHARACTERS = 2_000
"""Characters shown of a line: minified files have lines of megabytes."""
BARS, WIDEST = 240, 24
GROUPS = {
    "manual": "manual", "before_restore": "restore", "patch": "restore", "fork": "restore", "before_command": "guard",
    "before_compact": "guard", "before_clear": "guard", "rate_limit": "alarm", "error": "alarm", "crash": "alarm",
}  # fmt: skip
"""The colour of a bar by trigger; other triggers are `turn`."""
MEANINGS = {
    "turn": "automatic", "manual": "by hand", "guard": "before a risky step", "restore": "before or after a restore",
    "alarm": "limit or error", "kept": "pinned or named",
}  # fmt: skip
"""The legend of the colours."""
CONTEXT, MOMENTS, SERIES = "context", 200, 5
ROOM = 9
"""Minimum distance, in percent, between two labels at the end of a plot."""
BROWSERS = (
    ("Firefox/", "Firefox"),
    ("Edg/", "Edge"),
    ("Chrome/", "Chrome"),
    ("HeadlessC", "Chrome"),
    ("Safari/", "Safari"),
)
SYSTEMS = (
    ("Android", "Android"), ("iPhone", "iPhone"), ("iPad", "iPad"), ("Windows", "Windows"), ("Mac OS", "macOS"), ("Linux", "Linux"),
)  # fmt: skip
_FORMAT = HtmlFormatter(nowrap=True)


def visible(text: str) -> str:
    """Return the text with control and direction characters made visible."""
    if text.isprintable():
        return text
    return "".join([_sign(char) for char in text])


def visible_lines(text: str) -> str:
    """Return the same for a text of several lines."""
    return "\n".join([visible(line) for line in text.replace("\r\n", "\n").split("\n")])


def _sign(char: str) -> str:
    if char == "\t" or char.isprintable():
        return char
    code = ord(char)
    if code < 32:
        return chr(0x2400 + code)
    if category(char) in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp") or code == 127:
        return f"⟨U+{code:04X}⟩"
    return char


def sentence(text: str) -> str:
    """Return the text with a capital first letter."""
    return text[:1].upper() + text[1:]


def short(text: str, home: str) -> str:
    """Return the text with the home folder written as `~` in paths."""
    if len(home) < 2 or home not in text:
        return text
    return re.sub(rf"(?<![\w./~-]){re.escape(home)}(?![\w.-])", "~", text)


def coded(text: str) -> Markup:
    """Return a text with what is between backticks as `<code>`."""
    parts = [escape(part) for part in text.split("`")]
    return Markup("".join([f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts)]))


def browser(who: str) -> str:
    """Return browser and system of a user agent."""
    name = next((label for sign, label in BROWSERS if sign in who), "")
    system = next((label for sign, label in SYSTEMS if sign in who), "")
    return f"{name}, {system}" if name and system else who[:40]


def amount(value: float, of: str) -> str:
    """Return an amount of a budget as text: tokens, dollars or seconds."""
    if of == "money":
        return f"${value:,.2f}"
    if of == "seconds":
        hours, minutes, seconds = int(value) // 3_600, int(value) // 60 % 60, int(value) % 60
        return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
    return f"{value:,}"


def coloured(name: str, lines: Sequence[str]) -> list[Markup]:
    """Return each line with syntax colours, by the file's name."""
    shown_lines = [
        visible(line if len(line) <= MAX_LINE_CHARACTERS else line[:MAX_LINE_CHARACTERS] + " …") for line in lines
    ]
    try:
        html = highlight("\n".join(shown_lines), _lexer(name), _FORMAT)
    except Exception:
        # A lexer that fails on a file must not break the page.
        html = "\n".join([escape(line) for line in shown_lines])
    parts = html.split("\n")
    parts += [""] * (len(lines) - len(parts))
    return [Markup(part) for part in parts[: len(lines)]]


@lru_cache(256)
def _lexer(name: str) -> Lexer:
    try:
        return get_lexer_for_filename(name, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return TextLexer(stripnl=False, ensurenl=False)


def suggested_limits(budget: dict[str, Any], used: dict[str, Any]) -> dict[str, str]:
    """Return doubled limits for those that are used up, as form values; empty for the others."""
    offers = {"tokens": "", "money": "", "minutes": ""}
    for name, field, unit in (("tokens", "tokens", 1), ("money", "money", 1), ("seconds", "minutes", 60)):
        limit, spent = budget.get(name, 0), used.get(name, 0)
        if limit and spent >= limit:
            offers[field] = f"{2 * max(limit, spent) / unit:.2f}".rstrip("0").rstrip(".")
    return offers


def hunk_rows(name: str, hunk: HunkView) -> list[dict[str, Any]]:
    """Return the rows of a hunk: number and markup of old and new line, replaced lines side by side."""
    lines = [line for line in hunk.lines if line.kind in " +-"]
    old = iter(coloured(name, [line.text for line in lines if line.kind in " -"]))
    new = iter(coloured(name, [line.text for line in lines if line.kind in " +"]))
    rows: list[dict[str, Any]] = []
    left, right = list[Any](), list[Any]()
    at_old, at_new = hunk.old_start, hunk.new_start

    def flush() -> None:
        for index in range(max(len(left), len(right))):
            one = left[index] if index < len(left) else None
            other = right[index] if index < len(right) else None
            rows.append({"old": one, "new": other, "same": False})
        left.clear()
        right.clear()

    for line in lines:
        if line.kind == " ":
            flush()
            rows.append({"old": (at_old, next(old)), "new": (at_new, next(new)), "same": True})
            at_old, at_new = at_old + 1, at_new + 1
        elif line.kind == "-":
            left.append((at_old, next(old)))
            at_old += 1
        else:
            right.append((at_new, next(new)))
            at_new += 1
    flush()
    return rows


def timeline(rows: Sequence[CheckpointRow], chosen: int, title: str) -> Markup:
    """Return all checkpoints as bars, oldest left. Height: how much changed; colour: the trigger."""
    size = max(1, math.ceil(len(rows) / BARS))
    bins = [rows[start : start + size] for start in range(0, len(rows), size)]
    step = 1000 / max(len(bins), 1)
    width = min(max(step - 1, 1), WIDEST)
    most = max((math.log2(row.changed + 2) for row in rows), default=1.0)
    # The first bar begins where the slider below it does, and the last one ends there.
    spacing = (1000 - width) / max(len(bins) - 1, 1)
    bars = []
    for number, group in enumerate(bins):
        top = max(group, key=lambda row: row.changed)
        notable = next((row for row in group if GROUPS.get(row.trigger)), top)
        height = max(6.0, 84 * math.log2(top.changed + 2) / most)
        names = [GROUPS.get(notable.trigger, "turn")]
        if any(row.pinned or row.name for row in group):
            names.append("kept")
        if any(row.version == chosen for row in group):
            names.append("chosen")
        bars.append(
            f'<rect class="{" ".join(names)}" x="{number * spacing:.1f}" y="{96 - height:.1f}"'
            f' width="{width:.1f}" height="{height:.1f}" rx="1"/>'
        )
    return Markup(
        f'<svg class="timeline" viewBox="0 0 1000 100" preserveAspectRatio="none" role="img" aria-label="{escape(title)}">'
        f'{"".join(bars)}<line x1="0" y1="97" x2="1000" y2="97"/></svg>'
    )


def kinds(rows: Sequence[CheckpointRow]) -> list[str]:
    """Return the colours that occur among the bars, in the order of the legend."""
    names = {GROUPS.get(row.trigger, "turn") for row in rows}
    if any(row.pinned or row.name for row in rows):
        names.add("kept")
    return [name for name in MEANINGS if name in names]


def usage_plot(
    events: Sequence[dict[str, Any]], threshold: int, words: Callable[[str], str] = str, title: str = ""
) -> Markup:
    """Plot the use of the context and of the account's limits, in percent over time.

    Lines mark the threshold at which a checkpoint is saved, 80 and 90. Drawn from events of type `context`
    (docs/format/task.md).
    """
    moments = [moment for moment in map(figures, events) if moment][-MOMENTS:]
    names = sorted({name for moment in moments for name in moment}, key=lambda name: (name != CONTEXT, name))[:SERIES]
    if len(moments) < 2:
        return Markup("")
    step = 1000 / (len(moments) - 1)
    lines, legend = [], []
    for number, name in enumerate(names):
        points = [
            (index * step, 100 - min(100.0, moment[name])) for index, moment in enumerate(moments) if name in moment
        ]
        drawn = " ".join([f"{x:.1f},{y:.1f}" for x, y in points])
        lines.append(f'<polyline class="series{number}" points="{drawn}"/>')
        last = next(moment[name] for moment in reversed(moments) if name in moment)
        label = words(visible(name).replace("_", " "))
        legend.append(f'<li class="series{number}">{escape(label)} {last:.0f} %</li>')
    return Markup(
        f'<svg class="plot" role="img" aria-label="{escape(title)}">{"".join(_levels(threshold))}'
        f'<svg viewBox="0 0 1000 100" preserveAspectRatio="none">{"".join(lines)}</svg></svg>'
        f'<ul class="legend">{"".join(legend)}</ul>'
    )


def _levels(threshold: int) -> list[str]:
    """Return the threshold lines with their numbers at the right end, or left if there is no room."""
    drawn = []
    for part in sorted({threshold, 80, 90}):
        crowded = part == threshold and any(0 < abs(part - other) < ROOM for other in (80, 90))
        place = f'x="4" y="{100 - part}%" dy="-3"' if crowded else f'x="100%" y="{100 - part}%" dx="6" dy="4"'
        name = f"at{part}" if part in (80, 90) else "threshold"
        drawn.append(
            f'<line class="{name}" x1="0" x2="100%" y1="{100 - part}%" y2="{100 - part}%"/><text {place}>{part}</text>'
        )
    return drawn


def figures(event: dict[str, Any]) -> dict[str, float]:
    """Return the percentages of an event, by name."""
    if event.get("type") != CONTEXT:
        return {}
    percentages, percent, account = dict[str, float](), event.get("percent"), event.get("account")
    if isinstance(percent, int | float):
        percentages[CONTEXT] = float(percent)
    return {**percentages, **account_windows(account if isinstance(account, dict) else {})}


def account_windows(windows: dict[str, Any]) -> dict[str, float]:
    """Return the used percentage of each of the account's windows, by name."""
    return {
        str(name)[:40]: 100 * float(window["used"])
        for name, window in windows.items()
        if isinstance(window, dict) and isinstance(window.get("used"), int | float)
    }
