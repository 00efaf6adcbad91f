"""Contents as a browser may show them: coloured lines, visible control characters, and plots as SVG."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any
from unicodedata import category

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from pygments.lexers.special import TextLexer
from pygments.util import ClassNotFound

if TYPE_CHECKING:
    from pygments.lexer import Lexer

    from keepfast.store.rows import CheckpointRow

LONGEST = 2_000
"""A line is shown up to here: minified files have lines of megabytes."""
BARS, WIDEST = 240, 24
GROUPS = {
    "manual": "manual", "before_restore": "restore", "patch": "restore", "fork": "restore", "before_command": "guard",
    "before_compact": "guard", "before_clear": "guard", "rate_limit": "alarm", "error": "alarm", "crash": "alarm",
}  # fmt: skip
"""Triggers by the colour of their bar; all others are the agent's everyday ones."""
MEANINGS = {
    "turn": "automatic", "manual": "by hand", "guard": "before a risky step", "restore": "before or after a restore",
    "alarm": "limit or error", "kept": "pinned or named",
}  # fmt: skip
"""What the colours of the bars say."""
CONTEXT, MOMENTS, SERIES = "context", 200, 5
ROOM = 9
"""Percent between two numbers at the end of a plot, so that neither covers the other."""
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
    """The same text with nothing in it that moves a cursor or turns the direction of reading."""
    if text.isprintable():
        return text
    return "".join([_sign(char) for char in text])


def visible_lines(text: str) -> str:
    """The same for a text of several lines, which stay lines."""
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
    """The same, beginning as a sentence does."""
    return text[:1].upper() + text[1:]


def short(text: str, home: str) -> str:
    """The same with the home folder as `~`, wherever a path in it leads there."""
    if len(home) < 2 or home not in text:
        return text
    return re.sub(rf"(?<![\w./~-]){re.escape(home)}(?![\w.-])", "~", text)


def coded(text: str) -> Markup:
    """A sentence of ours with what stands between backticks as code."""
    parts = [escape(part) for part in text.split("`")]
    return Markup("".join([f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts)]))


def browser(who: str) -> str:
    """What a user agent calls itself, in words that somebody recognises."""
    name = next((label for sign, label in BROWSERS if sign in who), "")
    system = next((label for sign, label in SYSTEMS if sign in who), "")
    return f"{name}, {system}" if name and system else who[:40]


def amount(value: float, of: str) -> str:
    """What was used of a budget, or may be: tokens, dollars or seconds, each as people write them."""
    if of == "money":
        return f"${value:,.2f}"
    if of == "seconds":
        hours, minutes, seconds = int(value) // 3_600, int(value) // 60 % 60, int(value) % 60
        return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
    return f"{value:,}"


def coloured(name: str, lines: Sequence[str]) -> list[Markup]:
    """Each line as markup with the colours of its language, guessed from the file's name."""
    visible_lines_of_file = [visible(line if len(line) <= LONGEST else line[:LONGEST] + " …") for line in lines]
    try:
        html = highlight("\n".join(visible_lines_of_file), _lexer(name), _FORMAT)
    except Exception:
        # A lexer that stumbles over somebody's file must not cost the page.
        html = "\n".join([escape(line) for line in visible_lines_of_file])
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
    """What to offer for limits that are used up, as a form takes them: twice as much; nothing for all others."""
    offers = {"tokens": "", "money": "", "minutes": ""}
    for name, field, unit in (("tokens", "tokens", 1), ("money", "money", 1), ("seconds", "minutes", 60)):
        limit, spent = budget.get(name, 0), used.get(name, 0)
        if limit and spent >= limit:
            offers[field] = f"{2 * max(limit, spent) / unit:.2f}".rstrip("0").rstrip(".")
    return offers


def hunk_rows(name: str, hunk: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a hunk: number and markup of the old and the new line, what was replaced side by side."""
    lines = [line for line in hunk["lines"] if line["kind"] in " +-"]
    old = iter(coloured(name, [line["text"] for line in lines if line["kind"] in " -"]))
    new = iter(coloured(name, [line["text"] for line in lines if line["kind"] in " +"]))
    rows: list[dict[str, Any]] = []
    left, right = list[Any](), list[Any]()
    at_old, at_new = hunk["old_start"], hunk["new_start"]

    def flush() -> None:
        for index in range(max(len(left), len(right))):
            one = left[index] if index < len(left) else None
            other = right[index] if index < len(right) else None
            rows.append({"old": one, "new": other, "same": False})
        left.clear()
        right.clear()

    for line in lines:
        if line["kind"] == " ":
            flush()
            rows.append({"old": (at_old, next(old)), "new": (at_new, next(new)), "same": True})
            at_old, at_new = at_old + 1, at_new + 1
        elif line["kind"] == "-":
            left.append((at_old, next(old)))
            at_old += 1
        else:
            right.append((at_new, next(new)))
            at_new += 1
    flush()
    return rows


def timeline(rows: Sequence[CheckpointRow], chosen: int, title: str) -> Markup:
    """All checkpoints as bars, oldest left: the higher, the more changed; the colour tells why it was made."""
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
    """The colours that occur among the bars, in the order in which they are explained."""
    names = {GROUPS.get(row.trigger, "turn") for row in rows}
    if any(row.pinned or row.name for row in rows):
        names.add("kept")
    return [name for name in MEANINGS if name in names]


def usage_plot(
    events: Sequence[dict[str, Any]], threshold: int, words: Callable[[str], str] = str, title: str = ""
) -> Markup:
    """How full the conversation was, and the account's windows, in percent over time.

    Against the threshold at which a checkpoint is taken, and 80 and 90. Drawn from the events of type `context`
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
    """The lines that a conversation should not cross, with their numbers at the right end, or left if there is no room."""
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
    """The percentages that an event tells, by name."""
    if event.get("type") != CONTEXT:
        return {}
    percentages, percent, account = dict[str, float](), event.get("percent"), event.get("account")
    if isinstance(percent, int | float):
        percentages[CONTEXT] = float(percent)
    return {**percentages, **account_windows(account if isinstance(account, dict) else {})}


def account_windows(windows: dict[str, Any]) -> dict[str, float]:
    """Name and percentage of each of the account's windows."""
    return {
        str(name)[:40]: 100 * float(window["used"])
        for name, window in windows.items()
        if isinstance(window, dict) and isinstance(window.get("used"), int | float)
    }
