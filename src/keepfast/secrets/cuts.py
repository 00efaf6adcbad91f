"""Shorten texts, never within a secret: half of one would not be recognised and would be shown."""

from __future__ import annotations

from keepfast.secrets.redaction import find

NEAR, FAR = 600, 8192
"""How far around a cut a secret is looked for; a private key is longer than others."""
LONG, BESIDE = 12, 80
"""No key is shorter than this; other secrets have a label such as `password` at most this far away."""
TELLING = (
    "pass",
    "pwd",
    "secret",
    "token",
    "key",
    "cred",
    "auth",
    "bearer",
    "dsn",
    "sas",
    "login",
    "user",
    "://",
    "connection",
)


def first_line(text: str, most: int) -> str:
    """Return the first line of prose, shortened; a heading only if there is nothing else."""
    lines = [line for line in [line.strip() for line in text.split("\n")] if line.strip("#-=*_`~ ")]
    sentence = next((line for line in lines if not _is_heading(line)), lines[0].lstrip("# ") if lines else "")
    return head(sentence, most)


def _is_heading(line: str) -> bool:
    """Return whether the line is a Markdown heading, or nothing but bold words."""
    bold = line.rstrip(": ")
    if len(bold) > 4 and bold[:2] == "**" == bold[-2:] and bold.count("**") == 2:
        return True
    marks = len(line) - len(line.lstrip("#"))
    return 0 < marks <= 6 and line[marks : marks + 1] in (" ", "\t")


def head(text: str, most: int) -> str:
    """Return the first `most` characters, or fewer if the cut would leave a part of a secret that is not recognised."""
    if len(text) <= most:
        return text
    first, last = _search_range(text, most)
    lost = [start for start, _ in _secrets_lost(text[first:last], 0, most - first)]
    return text[: min([first + start for start in lost], default=most)]


def tail(text: str, most: int) -> str:
    """Return the last `most` characters, or fewer if the cut would leave a part of a secret that is not recognised."""
    at = len(text) - most
    if at <= 0:
        return text
    first, last = _search_range(text, at)
    lost = [end for _, end in _secrets_lost(text[first:last], at - first, last - first)]
    return text[max([first + end for end in lost], default=at) :]


def _search_range(text: str, at: int) -> tuple[int, int]:
    """Return start and end of the text to search for secrets that a cut at `at` could split; an empty range if none can be."""
    first, last = max(at - FAR, 0), min(at + FAR, len(text))
    if text.find("PRIVATE KEY", first, last) >= 0:
        return first, last
    first, last = max(at - NEAR, 0), min(at + NEAR, len(text))
    before, behind = text[first:at], text[at:last]
    left = len(before.split()[-1]) if before and not before[-1].isspace() else 0
    right = len(behind.split()[0]) if behind and not behind[0].isspace() else 0
    if left + right >= LONG:
        return first, last
    beside = text[max(at - BESIDE, 0) : at + BESIDE].lower()
    return (first, last) if any(map(beside.__contains__, TELLING)) else (at, at)


def _secrets_lost(text: str, first: int, last: int) -> list[tuple[int, int]]:
    """Return the secrets of the text that are not recognised in full when only `text[first:last]` is left."""
    if first == last or not text:
        return []
    whole = [(start, end) for start, end, _ in find(text) if end > first and start < last]
    if not whole:
        return []
    left = [(first + start, first + end) for start, end, _ in find(text[first:last])]
    return [
        (start, end)
        for start, end in whole
        if not any(left_start <= max(start, first) and left_end >= min(end, last) for left_start, left_end in left)
    ]
