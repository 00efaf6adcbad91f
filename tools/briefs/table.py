"""The measurement of briefs as a table, and as a picture."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from measurement import BRIEF, CLAIM, SOURCE, SOURCE_ALL, Report

if TYPE_CHECKING:
    from keepfast.present.terminal import Paint

GOAL_MEDIAN, GOAL_P95 = 50, 100
BAR = 360
LEFT = 270
ROW = 46


def lines(report: Report, paint: Paint) -> list[str]:
    """Return the table, and below it the sizes of its samples."""
    if not report.cuts:
        return ["No session has enough calls with edits to be measured."]
    rows = []
    for method in _ordered(report):
        rows.append(
            [
                method,
                f"{report.mean(method, 'edit_span'):.3f}",
                f"{report.mean(method, 'first_edit'):.3f}",
                f"{report.mean(method, 'read_coverage'):.3f}",
                f"{report.mean(method, 'tokens'):,.0f}",
            ]
        )
    weights = "weights fitted on the other projects" if report.refitted else "weights as shipped"
    out = [
        f"{report.cuts} moments of {report.sessions} sessions, the next {report.calls} calls, "
        f"{report.tokens:,} tokens in all, {weights}; each project counts the same",
        *paint.table(["METHOD", "EDIT-SPAN", "FIRST-EDIT", "READ", "TOKENS"], rows, right="lrrrr"),
        "",
    ]
    for project, score in sorted(report.scores[BRIEF].items()):
        rival = report.scores[SOURCE][project]
        out.append(
            f"{project}: edit-span {score.edit_span:.3f} ({score.hits} of {score.edits}), first-edit {score.first_edit:.3f}; "
            f"git status order {rival.edit_span:.3f}, {rival.first_edit:.3f}"
        )
    out.append(
        f"edit-span {_times(report, 'edit_span', SOURCE)} and first-edit {_times(report, 'first_edit', SOURCE)} times the source "
        f"document's method in the same room; {_times(report, 'edit_span', SOURCE_ALL)} and "
        f"{_times(report, 'first_edit', SOURCE_ALL)} times where it has all tokens and no notes"
    )
    for name, (low, high) in report.bounds.items():
        out.append(f"edit-span above “{name}” by {low:+.3f} to {high:+.3f} (95 % of draws of sessions)")
    out.append(
        f"built in {report.percentile(0.5):.0f} ms (median), {report.percentile(0.95):.0f} ms (95 %) of processor time"
        f" after parsing, secrets struck out (goals {GOAL_MEDIAN} and {GOAL_P95}); largest {max(report.sizes):,} tokens,"
        f" longest part {report.longest_part:,} characters"
    )
    out.append(
        f"files never seen before that the next calls used: {report.unseen}; no brief from a transcript can hold them"
    )
    if report.compactions.cuts:
        out += _compactions(report)
    return out


def _times(report: Report, figure: str, rival: str) -> str:
    theirs = report.mean(rival, figure)
    return f"{report.mean(BRIEF, figure) / theirs:.1f}" if theirs else "∞"


def _compactions(report: Report) -> list[str]:
    after = report.after
    saved = after["tokens_spared"]
    share = saved / after["read_again_tokens"] if after["read_again_tokens"] else 0.0
    return [
        f"after {report.compactions.cuts} real compactions, in the next {report.calls} calls: {after['reads']:.1f} reads of known "
        f"files ({after['read_again_tokens']:,.0f} tokens) and {after['searches']:.1f} searches each",
        f"a brief of {after['brief_tokens']:,.0f} tokens holds {after['reads_spared']:.1f} of these reads whole and "
        f"{saved:,.0f} of their tokens ({share:.0%}); the source document claims {CLAIM:.0%}",
    ]


def _ordered(report: Report) -> list[str]:
    return sorted(report.scores, key=lambda method: -report.mean(method, "edit_span"))


def picture(report: Report) -> str:
    """Bars for edit-span and first-edit of each method, as SVG."""
    methods = _ordered(report)
    height = 50 + ROW * len(methods)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + BAR + 60}" height="{height}" '
        'font-family="sans-serif" font-size="13">',
        f'<text x="10" y="22" font-weight="bold">Next edits that the context held, at {report.tokens:,} tokens</text>',
        f'<rect x="{LEFT}" y="32" width="12" height="8" fill="#2b6cb0"/>'
        f'<text x="{LEFT + 16}" y="40" font-size="11">edit-span</text>',
        f'<rect x="{LEFT + 90}" y="32" width="12" height="8" fill="#90cdf4"/>'
        f'<text x="{LEFT + 106}" y="40" font-size="11">first edit</text>',
    ]
    for number, method in enumerate(methods):
        top = 50 + ROW * number
        weight = ' font-weight="bold"' if method == BRIEF else ""
        parts.append(f'<text x="{LEFT - 10}" y="{top + 20}" text-anchor="end"{weight}>{escape(method)}</text>')
        for offset, figure, colour in ((4, "edit_span", "#2b6cb0"), (20, "first_edit", "#90cdf4")):
            value = report.mean(method, figure)
            parts.append(
                f'<rect x="{LEFT}" y="{top + offset}" width="{BAR * value:.1f}" height="14" fill="{colour}"/>'
                f'<text x="{LEFT + BAR * value + 5:.1f}" y="{top + offset + 11}" font-size="11">{value:.2f}</text>'
            )
    return "\n".join([*parts, "</svg>", ""])
