"""Passages of a text: the block that defines a name, the lines around some words, or a range of lines."""

from __future__ import annotations

import re
from typing import NamedTuple

from keepfast.resume.quotation import escaped
from keepfast.secrets.redaction import find

MAX_BLOCK, AROUND, MAX_LINE = 160, 4, 2_000
LINES_AROUND, MORE = 60, 500
NAME = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|::|#)[A-Za-z_$][\w$]*)*\Z")
BEFORE = re.compile(r"\s*(?:@|#|//|/\*|\*|--|'''|\"\"\"|\[)")
CLOSING = re.compile(r"\s*(?:[}\])]|end\b|fi\b|done\b|esac\b)")
RANGE = re.compile(r"(.+?):(\d{1,7})(?:-(\d{1,7}))?\Z", re.DOTALL)
MODIFIERS = (
    "export|default|public|private|protected|internal|static|async|abstract|final|override|virtual|inline|open|suspend"
    r"|pub(?:\([^)]*\))?|unsafe|extern|declare|readonly|partial|sealed|data"
)
KEYWORDS = (
    "def|class|function|func|fn|fun|struct|interface|type|const|let|var|val|enum|trait|impl|module|namespace|object|record"
    "|protocol|macro|macro_rules!|sub|procedure|method|union|typedef|message|service|rpc|table|view"
)


class Passage(NamedTuple):
    """Lines `first` to `last`, counted from 1; the greater `weight` is the better answer."""

    first: int
    last: int
    weight: int


def is_name(text: str) -> bool:
    return NAME.match(text) is not None


def with_range(text: str) -> tuple[str, int, int]:
    """Return path, first and last line of `path:10-20`; zeros if no lines are named."""
    match = RANGE.match(text)
    if match is None:
        return text, 0, 0
    first = int(match[2])
    return match[1], first, int(match[3] or first)


def definitions(lines: list[str], name: str) -> list[Passage]:
    """Return the blocks that define the name, the whole of each as far as its indent or its brackets tell."""
    escaped_name = re.escape(re.split(r"\.|::|#", name)[-1])
    named = rf"(?<![\w$]){escaped_name}(?![\w$])"
    strong = re.compile(
        rf"\s*(?:(?:{MODIFIERS})\s+)*(?:{KEYWORDS})(?![\w$])\s*(?:\([^)]*\)\s*|\*\s*|[\w$<>:&'\s]{{0,60}}?[\s.:])?{named}"
    )
    assigned = re.compile(rf"(?:[\w$.\[\]\"']+\.)?{named}\s*(?::[^=\n]*)?=(?!=)")
    method = re.compile(rf"[\w$<>,*&\s:~\[\]]{{0,80}}?{named}\s*\([^;]*$")
    passages = []
    for number, line in enumerate(lines):
        if strong.match(line):
            weight = 3
        elif assigned.match(line):
            weight = 2
        elif method.match(line) and line.rstrip().endswith(("{", "(", ",")) and not line.lstrip().startswith(CALLS):
            weight = 1
        else:
            continue
        passages.append(_block(lines, number, weight))
    return passages


CALLS = ("return ", "if ", "while ", "for ", "await ", "throw ", "raise ", "switch ", "} else", "//", "#", "*")


def around_words(lines: list[str], words: list[str]) -> list[Passage]:
    """Return the surroundings of the lines that hold the most of the words, which are in lower case."""
    counted = []
    for number, line in enumerate(lines):
        low = line.lower()
        count = sum(word in low for word in words)
        if count:
            counted.append((count, number))
    best = max((count for count, _ in counted), default=0)
    passages: list[Passage] = []
    for count, number in counted:
        if count < best:
            continue
        first, last = max(1, number + 1 - AROUND), min(len(lines), number + 1 + AROUND)
        if passages and first <= passages[-1].last + 1:
            passages[-1] = passages[-1]._replace(last=last)
        else:
            passages.append(Passage(first, last, count))
    return passages


def quotable_lines(lines: list[str], first: int, last: int, around: int = LINES_AROUND) -> list[str]:
    """Return lines `first` to `last` as they may be quoted: secrets redacted, long lines cut, hidden characters escaped.

    Bytes that are no UTF-8 stand in `lines` as surrogates; as escapes they would hide a secret that follows.
    Line numbers stay right. `around`: how many lines before and behind are searched with them.
    """
    # A secret can span lines and the place of a cut, and a table says at its top what stands in its columns.
    start = max(0, first - 1 - around)
    seen = [line[: MAX_LINE + MORE] for line in lines[start : last + around]]
    redacted_lines = _redacted("\n".join(seen)).split("\n")[first - 1 - start : last - start]
    return [
        visible(escaped(_cut(line, len(whole))))
        for line, whole in zip(redacted_lines, lines[first - 1 : last], strict=True)
    ]


def _redacted(text: str) -> str:
    parts, at = [], 0
    for begin, end, kind in find(text):
        parts += [text[at:begin], f"[redacted:{kind}]", "\n" * text.count("\n", begin, end)]
        at = end
    return "".join([*parts, text[at:]])


def _cut(text: str, size: int) -> str:
    """Cut a very long line, and say how many characters are missing."""
    return text if size <= MAX_LINE else f"{text[:MAX_LINE]}… [{size - MAX_LINE:,} more characters in this line]"


def visible(text: str) -> str:
    """Return the text with characters that hide or reorder others as escapes."""
    if text.isascii() and not CONTROLS.intersection(text):
        return text
    return "".join([_escape(letter) if letter in CONTROLS or _hides(letter) else letter for letter in text])


CONTROLS = frozenset([chr(code) for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n\r"])
HIDING = (
    (0x00AD, 0x00AD), (0x061C, 0x061C), (0x115F, 0x1160), (0x180E, 0x180E), (0x200B, 0x200F), (0x2028, 0x202E),
    (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0E), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB),
    (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xD800, 0xDFFF), (0xE0000, 0xE0FFF),
)  # fmt: skip
"""Invisible: joiners, direction marks, fillers, variation selectors, tags, surrogates."""


def _hides(letter: str) -> bool:
    code = ord(letter)
    return code > 0xA0 and any(low <= code <= high for low, high in HIDING)


def _escape(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _block(lines: list[str], start: int, weight: int) -> Passage:
    indent, last = _indent(lines[start]), start
    for number in range(start + 1, min(len(lines), start + MAX_BLOCK)):
        line = lines[number]
        if not line.strip():
            continue
        if _indent(line) <= indent:
            # A closing bracket belongs to the block, and so does what goes on behind it: `) -> int:`, `} else {`.
            if not CLOSING.match(line):
                break
            last = number
            if line.rstrip()[-1:] in ("{", ":", "(", ","):
                continue
            break
        last = number
    first = start
    while first > 0 and start - first < 12 and lines[first - 1].strip() and _belongs(lines[first - 1], indent):
        first -= 1
    return Passage(first + 1, last + 1, weight)


def _belongs(line: str, indent: int) -> bool:
    """Return whether a line above a definition is part of it, as decorators and comments are."""
    return _indent(line) == indent and BEFORE.match(line) is not None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
