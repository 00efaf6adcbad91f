"""What changed between two contents: line hunks, a patch that `git apply` takes, and a table of counts."""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from io import BytesIO
from itertools import pairwise
from stat import S_IFLNK, S_IFMT, S_IFREG, S_ISLNK
from typing import NamedTuple

from keepfast.model.errors import Conflict

# The kinds of a patch line. The last four are also its first character.
HEADER, RANGE, SAME, ADDED, REMOVED, NO_NEWLINE = "header", "@@", " ", "+", "-", "\\"

_HEAD_BYTES = 8_000
_CONTROLS = bytes(code for code in range(128) if (code < 32 and code not in b"\b\t\n\f\r\x1b") or code == 127)
_ESCAPES = {code: b"\\%03o" % code for code in (*range(32), *range(127, 256))}
_ESCAPES |= {code: b"\\%c" % sign for code, sign in zip(b'\a\b\t\n\v\f\r"\\', b'abtnvfr"\\', strict=True)}
# The product of line counts up to which difflib, cubic at worst, decides; the depth from which gaps count as replaced.
_SMALL, _DEPTH = 2_500, 24


class Hunk(NamedTuple):
    """A changed place. Starts count from 1, and name the line before the place if that side has no line in it.

    Lines are (kind, text without its newline); `NO_NEWLINE` follows a line that ends without one.
    """

    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    lines: list[tuple[str, bytes]]


class FileDiff(NamedTuple):
    """What changed in one file. `binary` means that it changed and that lines cannot show how."""

    binary: bool
    added: int
    removed: int
    hunks: list[Hunk]


class Stat(NamedTuple):
    """The size of one file's change: lines, and bytes on both sides for a binary one."""

    path: bytes
    added: int
    removed: int
    binary_sizes: tuple[int, int] | None = None


def is_binary(data: bytes) -> bool:
    """Say whether lines would not show this content well, judged by its first 8,000 bytes.

    Binary is what has a NUL (as in git, so UTF-16 too), or is not UTF-8 and has over 2 % control characters (so EUC-KR
    is text).
    """
    head = data[:_HEAD_BYTES]
    if b"\0" in head:
        return True
    try:
        getincrementaldecoder("utf-8")().decode(head, len(data) <= _HEAD_BYTES)
    except UnicodeDecodeError:
        return 50 * (len(head) - len(head.translate(None, _CONTROLS))) > len(head)
    return False


def compare(old: bytes | None, new: bytes | None, *, context: int = 3) -> FileDiff:
    """Return the hunks that lead from `old` to `new`; None stands for an absent file and has no lines."""
    before, after, context = old or b"", new or b"", max(0, context)
    if before == after or is_binary(before) or is_binary(after):
        return FileDiff(before != after, 0, 0, [])
    a, b = _split(before), _split(after)
    groups: list[list[tuple[int, int, int, int]]] = []
    added, removed, a_start, b_start = len(b), len(a), 0, 0
    for a_end, b_end, size in [*sorted(_matches(a, b)), (len(a), len(b), 0)]:
        if a_start < a_end or b_start < b_end:
            if not groups or a_start - groups[-1][-1][1] > 2 * context:
                groups.append([])
            groups[-1].append((a_start, a_end, b_start, b_end))
        added, removed, a_start, b_start = added - size, removed - size, a_end + size, b_end + size
    return FileDiff(False, added, removed, [_hunk(a, b, group, context) for group in groups])


def apply(old: bytes | None, hunks: Sequence[Hunk], chosen: set[int] | None = None) -> bytes:
    """Return `old` with the hunks of these positions in the list applied, all of them if `chosen` is None.

    Raises `Conflict` if `old` is not the content that the hunks were made from.
    """
    source, result, done = _split(old or b""), list[bytes](), 0
    for number, hunk in enumerate(hunks):
        if chosen is not None and number not in chosen:
            continue
        start = hunk.old_start - 1 if hunk.old_lines else hunk.old_start
        end = start + hunk.old_lines
        if start < done or end > len(source) or source[start:end] != _side(hunk, REMOVED):
            raise Conflict(f"The change does not apply: the lines around line {hunk.old_start} are different now.")
        result += source[done:start] + _side(hunk, ADDED)
        done = end
    return b"".join(result + source[done:])


def unified(
    path_old: bytes | None, path_new: bytes | None, diff: FileDiff, mode_old: int | None, mode_new: int | None
) -> Iterator[tuple[str, bytes]]:
    """Yield the patch as (kind, line without its newline) the way git writes it; nothing if nothing changed.

    An absent side has no path. Modes are those of `lstat`, or bare permission bits for a regular file. `git apply` is
    fine with all but "Binary files … differ", and wants a file that became a link as two patches, deleted and new.
    """
    source, target = path_new if path_old is None else path_old, path_old if path_new is None else path_new
    if source is None or target is None:
        raise ValueError("a patch needs a path")
    head = _head(path_old, path_new, _full_modes(mode_old, mode_new))
    names = [quote(b"a/" + source), quote(b"b/" + target)]
    if head or diff.binary or diff.hunks:
        yield HEADER, b"diff --git %s %s" % (*names,)
    for line in head:
        yield HEADER, line
    names = [b"/dev/null" if path is None else name for path, name in zip((path_old, path_new), names, strict=True)]
    if diff.binary:
        yield HEADER, b"Binary files %s and %s differ" % (*names,)
    for sign, name in zip((b"---", b"+++") if diff.hunks else (), names, strict=False):
        # A tab ends a name with spaces, else other programs take what follows the space for a time.
        yield HEADER, b"%s %s%s" % (sign, name, b"\t" * (b" " in name))
    for hunk in diff.hunks:
        yield RANGE, _range(hunk)
        for kind, text in hunk.lines:
            yield kind, kind.encode() + text


def quote(path: bytes) -> bytes:
    """Return the path as git writes it in a patch: as it is, or in double quotes with escapes as in C.

    Letters beyond ASCII stay (git's `core.quotePath=false`), unless one is not UTF-8 or does not print.
    """
    try:
        readable = all(letter.isprintable() for letter in path.decode() if letter > "\x7f")
    except UnicodeDecodeError:
        readable = False
    singles = (path[at : at + 1] for at in range(len(path)))
    quoted = b"".join(one if one > b"\x7f" and readable else _ESCAPES.get(one[0], one) for one in singles)
    return path if quoted == path else b'"%s"' % quoted


def stat_table(stats: Sequence[Stat], width: int) -> list[tuple[str, str, str]]:
    """Lay out a row per file within `width` columns: name and count, bar of `+`, bar of `-`, to be joined.

    Names give way first, but keep 8 columns even if the width is too small for that.
    """
    names = [quote(one.path).decode() for one in stats]
    sizes = [" {} -> {} bytes".format(*one.binary_sizes) if one.binary_sizes else "" for one in stats]
    counts = ["Bin" if one.binary_sizes else str(one.added + one.removed) for one in stats]
    most = max((one.added + one.removed for one in stats), default=0)
    digits = max(map(len, counts), default=0)
    room = width - len("  |  ") - digits
    reserved = max([min(most, max(6, room * 3 // 8)), *(len(size) - 1 for size in sizes)])
    column = min(max(map(display_width, names), default=0), max(8, room - reserved))
    rows = []
    for stat, name, count, size in zip(stats, names, counts, sizes, strict=True):
        name = _shorten(name, column)
        added, removed = _bars(stat.added, stat.removed, most, max(2, room - column))
        label = f" {name}{' ' * (column - display_width(name))} | {count:>{digits}}{size}"
        rows.append((label + " " * bool(added + removed), "+" * added, "-" * removed))
    return rows


def display_width(text: str) -> int:
    """Return how many terminal columns the text takes: wide letters two, marks drawn into a letter none."""
    return sum(map(_columns, text))


def _split(data: bytes) -> list[bytes]:
    return BytesIO(data).readlines()  # at \n alone; bytes.splitlines would split at \r too


def _matches(old: list[bytes], new: list[bytes]) -> Iterator[tuple[int, int, int]]:
    """Yield runs of equal lines as (old start, new start, length), in any order, never crossing."""
    ids: dict[bytes, int] = {}
    a, b = ([ids.setdefault(line, len(ids)) for line in lines] for lines in (old, new))
    gaps = [(0, a, 0, b, 0)]
    while gaps:
        i, a, j, b, depth = gaps.pop()
        head = _equal(a, b)
        tail = _equal(a[head:][::-1], b[head:][::-1])
        yield i, j, head
        yield i + len(a) - tail, j + len(b) - tail, tail
        i, a, j, b = i + head, a[head : len(a) - tail], j + head, b[head : len(b) - tail]
        if a and b and len(a) * len(b) <= _SMALL:
            for block in SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks():
                yield i + block.a, j + block.b, block.size
        elif a and b and depth < _DEPTH and (anchors := _anchors(a, b)):
            # Every gap but the first begins with an anchor, which is then part of its equal head.
            for (x, y), (x_end, y_end) in pairwise([(0, 0), *anchors, (len(a), len(b))]):
                gaps.append((i + x, a[x:x_end], j + y, b[y:y_end], depth + 1))


def _equal(a: list[int], b: list[int]) -> int:
    return next((at for at, (one, other) in enumerate(zip(a, b, strict=False)) if one != other), min(len(a), len(b)))


def _anchors(a: list[int], b: list[int]) -> list[tuple[int, int]]:
    """Return places that belong together: lines that occur once on either side, as in patience diff.

    Where no line does, stretches of two lines are tried, then of four and so on; where none of those does, the first
    of the longest that are common is the only place.
    """
    places: list[tuple[int, int]] = []
    length = 1
    while shared := set(a).intersection(b):
        times_a, times_b, places_b = Counter(a), Counter(b), {item: at for at, item in enumerate(b)}
        if pairs := [(at, places_b[item]) for at, item in enumerate(a) if times_a[item] == times_b[item] == 1]:
            return _rising(pairs)
        first = next(at for at, item in enumerate(a) if item in shared)
        places = [(first, b.index(a[first]))]
        ids: dict[tuple[int, int], int] = {}
        a, b = ([ids.setdefault(two, len(ids)) for two in zip(s, s[length:], strict=False)] for s in (a, b))
        length *= 2
    return places


def _rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return a longest selection in which the second number rises as the first one does."""
    tops, ends, before = list[int](), list[int](), list[int]()
    for at, (_, second) in enumerate(pairs):
        length = bisect_left(tops, second)
        before.append(ends[length - 1] if length else -1)
        tops[length : length + 1], ends[length : length + 1] = [second], [at]
    chain, at = [], ends[-1]
    while at >= 0:
        chain.append(pairs[at])
        at = before[at]
    return chain[::-1]


def _hunk(a: list[bytes], b: list[bytes], changes: list[tuple[int, int, int, int]], context: int) -> Hunk:
    old, new = max(0, changes[0][0] - context), max(0, changes[0][2] - context)
    old_end, new_end = min(len(a), changes[-1][1] + context), min(len(b), changes[-1][3] + context)
    lines, at = [], old
    for a_start, a_end, b_start, b_end in [*changes, (old_end, old_end, new_end, new_end)]:
        for kind, part in (SAME, a[at:a_start]), (REMOVED, a[a_start:a_end]), (ADDED, b[b_start:b_end]):
            for line in part:
                lines.append((kind, line.removesuffix(b"\n")))
                if not line.endswith(b"\n"):
                    lines.append((NO_NEWLINE, b" No newline at end of file"))
        at = a_end
    return Hunk(old + (old < old_end), old_end - old, new + (new < new_end), new_end - new, lines)


def _side(hunk: Hunk, kind: str) -> list[bytes]:
    """Return the lines of the old side (`REMOVED`) or the new one (`ADDED`), with their newlines."""
    ends = [b"" if following == NO_NEWLINE else b"\n" for following, _ in [*hunk.lines[1:], (SAME, b"")]]
    return [text + end for (one, text), end in zip(hunk.lines, ends, strict=True) if one in (SAME, kind)]


def _head(old: bytes | None, new: bytes | None, modes: list[int]) -> list[bytes]:
    git_modes = [S_IFLNK if S_ISLNK(mode) else S_IFREG | (0o755 if mode & 0o100 else 0o644) for mode in modes]
    if old is None or new is None:
        return [b"new file mode %o" % git_modes[1] if old is None else b"deleted file mode %o" % git_modes[0]]
    # A change that git does not know, such as 644 to 600, is shown in full; `git apply` passes over it.
    before, after = git_modes if git_modes[0] != git_modes[1] else modes
    changed = [b"old mode %o" % before, b"new mode %o" % after] if before != after else []
    return changed + ([b"rename from " + quote(old), b"rename to " + quote(new)] if old != new else [])


def _full_modes(old: int | None, new: int | None) -> list[int]:
    """Return both modes with their file type; an absent side has that of the other one."""
    modes = [next((mode for mode in side if mode is not None), 0o644) for side in ((old, new), (new, old))]
    return [mode if S_IFMT(mode) else mode | S_IFREG for mode in modes]


def _range(hunk: Hunk) -> bytes:
    ranges = ((hunk.old_start, hunk.old_lines), (hunk.new_start, hunk.new_lines))
    return b"@@ -%s +%s @@" % (*(b"%d" % at if size == 1 else b"%d,%d" % (at, size) for at, size in ranges),)


def _bars(added: int, removed: int, most: int, room: int) -> tuple[int, int]:
    """Scale the counts so that `most` fills the room; what is not 0 keeps at least one sign."""
    if most <= room:
        return added, removed
    total, less = (count and 1 + count * (room - 1) // most for count in (added + removed, min(added, removed)))
    more = max(total - less, 1 if total else 0)
    return (less, more) if added < removed else (more, less)


def _shorten(name: str, room: int) -> str:
    if display_width(name) <= room:
        return name
    name = name[-4 * room :]
    while name and (display_width(name) > room - 3 or not _columns(name[0])):
        name = name[1:]
    return "..." + name


def _columns(letter: str) -> int:
    # Vowels and finals of decomposed Korean (macOS names) are drawn into the letter before them.
    if unicodedata.category(letter) in ("Mn", "Me", "Cf") or "\u1160" <= letter <= "\u11ff":
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1
