"""The timeline of a task as SVG: phases, runs, holds, checkpoints and compactions.

Horizontal positions are in percent and heights in pixels, so that text keeps its shape on a phone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import NamedTuple

from markupsafe import Markup

from keepfast.web.markup import visible

SECOND = 1_000_000_000
STEPS = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000,
)  # fmt: skip
"""Seconds between two labels of the time axis, so that every label is a round time."""
MAX_TICKS, MAX_SECONDS = 4, 3
"""Labels that a phone has room for; those with seconds are wider."""
MAX_MARKS = 400
LANE, BAR, TOP = 34, 12, 16
"""Height of a lane, of a bar in it, and where in the lane the bar begins; above it stands the lane's name."""


class Span(NamedTuple):
    """A bar. `kind` is its CSS class, `text` its tooltip."""

    begin: int
    end: int
    kind: str
    text: str


class Mark(NamedTuple):
    """A point in time. `kind` is its CSS class, `text` its tooltip."""

    at: int
    kind: str
    text: str


class Course(NamedTuple):
    """Everything a timeline shows, between two times in nanoseconds."""

    begin: int
    end: int
    phases: Sequence[Span] = ()
    runs: Sequence[Span] = ()
    holds: Sequence[Span] = ()
    checkpoints: Sequence[Mark] = ()
    compactions: Sequence[Mark] = ()


def draw(course: Course, words: Callable[[str], str]) -> Markup:
    """Return the timeline as SVG. Times are in UTC; the page's script makes them local."""
    begin, end = course.begin, max(course.end, course.begin + SECOND)

    def place(at: int) -> float:
        return max(0.0, min(100.0, 100 * (at - begin) / (end - begin)))

    lanes: list[tuple[str, list[str]]] = [
        ("Phases", [_bar(place, span) + _name(place, span) for span in course.phases]),
        ("Runs", [_bar(place, span) for span in course.runs] + [_restart(place(span.begin)) for span in course.runs[1:]]),
        ("Holds", [_bar(place, span) for span in course.holds]),
        ("Checkpoints", [_dot(place, mark) for mark in _thinned(course.checkpoints)]),
    ]  # fmt: skip
    lanes[-1][1].extend([_wedge(place, mark) for mark in course.compactions])
    foot = LANE * len(lanes)
    clock = [_tick(place, at, step, foot) for at, step in ticks(begin, end)]
    drawn = [
        f'<g transform="translate(0 {LANE * number})"><text class="lane-name" y="11">{escape(words(name))}</text>'
        f'<line class="ground" x1="0" x2="100%" y1="{TOP + BAR / 2}" y2="{TOP + BAR / 2}"/>{"".join(parts)}</g>'
        for number, (name, parts) in enumerate(lanes)
    ]
    counted = ", ".join([f"{words(name)} {len(parts_of_kind)}" for name, parts_of_kind in _kinds_of(course)])
    label = f"{words('Timeline')}: {_clock_time(begin)} – {_clock_time(end)} UTC; {counted}"
    return Markup(
        f'<svg class="course" width="100%" height="{foot + 18}" role="img" aria-label="{escape(label)}">'
        f"{''.join(clock)}{''.join(drawn)}</svg>"
    )


def ticks(begin: int, end: int) -> list[tuple[int, int]]:
    """Return the round times at which the axis has labels, with the seconds between them."""
    length = (end - begin) / SECOND
    step = next((step for step in STEPS if length / step <= (MAX_TICKS if step >= 60 else MAX_SECONDS)), STEPS[-1])
    first = -(-begin // (step * SECOND)) * step * SECOND
    return [(at, step) for at in range(first, end + 1, step * SECOND)][: MAX_TICKS + 1]


def _tick(place: Callable[[int], float], at: int, step: int, foot: int) -> str:
    x = place(at)
    side = "start" if x < 8 else "end" if x > 92 else "middle"
    moment = datetime.fromtimestamp(at / SECOND, UTC)
    text = moment.strftime("%d %b" if step >= 86_400 else "%H:%M:%S" if step < 60 else "%H:%M")
    return (
        f'<line class="hour" x1="{x:.2f}%" x2="{x:.2f}%" y1="0" y2="{foot}"/>'
        f'<text class="hour" x="{x:.2f}%" y="{foot + 14}" text-anchor="{side}"'
        f' data-time="{moment:%Y-%m-%dT%H:%M:%SZ}" data-step="{step}">{text} UTC</text>'
    )


def _bar(place: Callable[[int], float], span: Span) -> str:
    left, right = place(span.begin), place(span.end)
    return (
        f'<rect class="{escape(span.kind)}" x="{left:.2f}%" width="{right - left:.2f}%" y="{TOP}" height="{BAR}" rx="2">'
        f"<title>{escape(visible(span.text))} {_clock_time(span.begin)} – {_clock_time(span.end)} UTC</title></rect>"
    )


def _name(place: Callable[[int], float], span: Span) -> str:
    """Return the name of a bar, clipped to the bar."""
    left, right = place(span.begin), place(span.end)
    return (
        f'<svg x="{left:.2f}%" width="{right - left:.2f}%" y="{TOP}" height="{BAR}" aria-hidden="true">'
        f'<text class="bar-name" x="5" y="{BAR - 2.5}">{escape(visible(span.text))}</text></svg>'
    )


def _restart(x: float) -> str:
    """Return the mark of a restarted agent: a line through its lane, since adjacent bars look like one."""
    return f'<line class="restart" x1="{x:.2f}%" x2="{x:.2f}%" y1="{TOP - 1}" y2="{TOP + BAR + 4}"/>'


def _dot(place: Callable[[int], float], mark: Mark) -> str:
    title = f"<title>{escape(visible(mark.text))} {_clock_time(mark.at)} UTC</title>"
    return (
        f'<circle class="{escape(mark.kind)}" cx="{place(mark.at):.2f}%" cy="{TOP + BAR / 2}" r="4.5">{title}</circle>'
    )


def _wedge(place: Callable[[int], float], mark: Mark) -> str:
    title = f"<title>{escape(visible(mark.text))} {_clock_time(mark.at)} UTC</title>"
    shape = f'<path class="{escape(mark.kind)}" d="M0 {TOP + 3}l6 9h-12z">{title}</path>'
    return f'<svg x="{place(mark.at):.2f}%" overflow="visible">{shape}</svg>'


def _thinned(marks: Sequence[Mark]) -> Iterable[Mark]:
    """Return at most `MAX_MARKS` marks, the first and the last among them."""
    if len(marks) <= MAX_MARKS:
        return marks
    return [marks[number * (len(marks) - 1) // (MAX_MARKS - 1)] for number in range(MAX_MARKS)]


def _kinds_of(course: Course) -> list[tuple[str, Sequence[object]]]:
    return [
        ("Phases", course.phases), ("Runs", course.runs), ("Holds", course.holds), ("Checkpoints", course.checkpoints),
        ("Compactions", course.compactions),
    ]  # fmt: skip


def _clock_time(at: int) -> str:
    return datetime.fromtimestamp(at / SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S")
