"""Match paths against ignore files: the rules of gitignore(5), on bytes, exactly as Git applies them.

Hooks load this module on their way, so it imports nothing, and no pattern needs a regular expression.
A pattern is taken apart once. What most patterns are (a name, `*.ext`, `prefix*`, a path) is then found in tables,
whatever the number of rules; the rest is matched in steps bounded by length of pattern times length of path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from typing import TypeVar

Piece = bytes | tuple[bytes, ...]  # Bytes that stand together: these, or one out of each set.
Segment = tuple[Piece, ...]  # Pieces with a `*` between them; speaks of one name.
Run = tuple[Segment, ...]  # Consecutive segments, with a `/` between them.
Pattern = tuple[Run, ...]  # Runs with a `**` between them; matches a path.

# Rank, folders only, column of the table, keys there, pattern. The rank is twice the line number, plus one if the
# rule ignores: of all matching rules the highest rank decides.
Rule = tuple[int, bool, int, list[bytes], Pattern]

Wanted = TypeVar("Wanted", bound=Sized)
Given = TypeVar("Given", bound=Sized)

ANY_BYTE = bytes(byte for byte in range(256) if byte != 47)  # "/"
ANY_NAME: Segment = (b"", b"")
ANY_DEPTH: Segment = ()

DIGIT, UPPER, LOWER = bytes(range(48, 58)), bytes(range(65, 91)), bytes(range(97, 123))
# Git's classes know ASCII only, and neither vertical tab nor form feed is a space to it.
CLASSES = {
    b"alnum": DIGIT + UPPER + LOWER,
    b"alpha": UPPER + LOWER,
    b"blank": b" \t",
    b"cntrl": bytes(range(32)) + b"\x7f",
    b"digit": DIGIT,
    b"graph": bytes(range(33, 127)),
    b"lower": LOWER,
    b"print": bytes(range(32, 127)),
    b"punct": b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    b"space": b" \t\n\r",
    b"upper": UPPER,
    b"xdigit": DIGIT + b"ABCDEFabcdef",
}

NAME, PATH, START, END, GLOB = range(5)
# `[Dd]ebug` is two names in the table, and so on for patterns with at most this many spellings of at most this length.
MAX_SPELLINGS = 32
MAX_SPELLED_LENGTH = 64


def verdict(path: bytes, is_dir: bool, stack: Sequence[tuple[bytes, Rules]]) -> bool:
    """Return whether the rule files above `path` (relative to the root) ignore it.

    `stack` holds (folder, rules) from the root (folder b"") down to the folder of `path`; deeper files win over higher
    ones. The caller walks top-down and has already decided that no parent folder is ignored.
    """
    for folder, rules in reversed(stack):
        is_ignored = rules.match(path[len(folder) + 1 :] if folder else path, is_dir)
        if is_ignored is not None:
            return is_ignored
    return False


def parse(text: bytes) -> Rules:
    """Return the rules of an ignore file. Accepts any bytes: a malformed pattern matches nothing, as in Git."""
    rules: list[Rule] = []
    for number, line in enumerate(text.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line or line[0] == 35:  # "#"
            continue
        # Git removes the carriage return first and then reads the line as a C string.
        line = _without_trailing_spaces(line.removesuffix(b"\r").partition(b"\0")[0])
        negated, folders_only = line.startswith(b"!"), line.endswith(b"/")
        pattern = _compile(line[negated : len(line) - folders_only])
        if pattern:
            rules.append((2 * number + (not negated), folders_only, *_place(pattern), pattern))
    return Rules(rules)


class Rules:
    """The rules of one ignore file; paths are relative to its folder."""

    __slots__ = ("_any", "_for_files", "_for_folders")

    def __init__(self, rules: list[Rule]) -> None:
        self._any = bool(rules)
        self._for_folders = _Table(rules)
        self._for_files = _Table([rule for rule in rules if not rule[1]])

    def match(self, path: bytes, is_dir: bool) -> bool | None:
        """Return True if ignored, False if re-included by a `!` rule, None if no rule matches. The last matching rule wins."""
        rank = (self._for_folders if is_dir else self._for_files).rank(path)
        return bool(rank & 1) if rank else None

    def __bool__(self) -> bool:
        return self._any


class _Table:
    """Finds the last rule that matches.

    The dicts are in order of rank; the tuple beside a dict holds its keys, to ask about all of them at once.
    """

    __slots__ = ("end_ranks", "ends", "globs", "names", "paths", "start_ranks", "starts")

    def __init__(self, rules: list[Rule]) -> None:
        places: list[dict[bytes, int]] = [{}, {}, {}, {}]
        self.names, self.paths, self.start_ranks, self.end_ranks = places
        self.globs: list[tuple[int, bytes, Pattern]] = []
        for rank, _, place, keys, pattern in rules:
            if place == GLOB:
                self.globs.append((rank, keys[0], pattern))
                continue
            for key in keys:
                places[place].pop(key, None)
                places[place][key] = rank
        self.globs.reverse()
        self.starts, self.ends = tuple(self.start_ranks), tuple(self.end_ranks)

    def rank(self, path: bytes) -> int:
        """Return the rank of the last rule that matches, 0 if none does."""
        name = path[path.rfind(b"/") + 1 :]
        best = self.names.get(name, 0)
        if path in self.paths:
            best = max(best, self.paths[path])
        if name.startswith(self.starts):
            best = max(best, _last(self.start_ranks, name.startswith))
        if name.endswith(self.ends):
            best = max(best, _last(self.end_ranks, name.endswith))
        for rank, literal, pattern in self.globs:
            if rank < best:
                break
            if path.find(literal) >= 0 and _spread(pattern, path.split(b"/"), _run_fits):
                return rank
        return best


def _last(ranks: dict[bytes, int], fits: Callable[[bytes], bool]) -> int:
    for key in reversed(ranks):
        if fits(key):
            return ranks[key]
    return 0


def _spread(parts: Sequence[Wanted], target: Given, fits: Callable[[Wanted, Given, int], bool]) -> bool:
    """Return whether `target` has the parts in order, the first at its start, the last at its end, with gaps between them.

    A part in the middle takes the earliest place it fits: a later one would only leave less room. So no choice is ever
    taken back, and the number of steps stays bounded, whatever the pattern.
    """
    first, last = parts[0], parts[-1]
    at, end = len(first), len(target) - len(last)
    if len(parts) == 1:
        return end == 0 and fits(first, target, 0)
    if at > end or not fits(last, target, end) or not fits(first, target, 0):
        return False
    for part in parts[1:-1]:
        while at + len(part) <= end and not fits(part, target, at):
            at += 1
        at += len(part)
        if at > end:
            return False
    return True


def _run_fits(run: Run, names: list[bytes], at: int) -> bool:
    return all(_spread(segment, names[at + index], _piece_fits) for index, segment in enumerate(run))


def _piece_fits(piece: Piece, name: bytes, at: int) -> bool:
    if isinstance(piece, bytes):
        return name.startswith(piece, at)
    return all(name[at + index] in choices for index, choices in enumerate(piece))


def _without_trailing_spaces(line: bytes) -> bytes:
    bare = line.rstrip(b" ")
    backslashes = len(bare) - len(bare.rstrip(b"\\"))
    return line[: len(bare) + backslashes % 2]


def _compile(pattern: bytes) -> Pattern:
    """Parse the pattern; return an empty one if it can match nothing."""
    segments = _segments(pattern.removeprefix(b"/"))
    if not segments:
        return ()
    if b"/" not in pattern:
        segments.insert(0, ANY_DEPTH)
    elif segments[-1] == ANY_DEPTH:
        segments.append(ANY_NAME)
    runs: list[list[Segment]] = [[]]
    for segment in segments:
        if segment == ANY_DEPTH:
            runs.append([])
        else:
            runs[-1].append(segment)
    return tuple([tuple(run) for run in runs])


def _segments(pattern: bytes) -> list[Segment]:
    """Split the pattern at slashes and stars; return an empty one if it is empty or malformed."""
    if pattern == pattern.translate(None, b"?[\\"):
        return [_segment([*part.split(b"*")]) for part in pattern.split(b"/")] if pattern else []
    segments: list[Segment] = []
    pieces: list[list[bytes]] = [[]]
    at = 0
    while at < len(pattern):
        escaped = pattern[at] == 92  # "\"
        at += escaped
        byte = pattern[at : at + 1]
        at += 1
        if byte == b"/":
            segments.append(_segment([_piece(piece) for piece in pieces]))
            pieces = [[]]
            if escaped and segments[-1] == ANY_DEPTH:
                # Only before a plain slash does Git let `**` stand for no folder at all.
                segments.append(ANY_NAME)
            continue
        if byte == b"*" and not escaped:
            pieces.append([])
            continue
        if byte == b"?" and not escaped:
            byte = ANY_BYTE
        elif byte == b"[" and not escaped:
            byte, at = _class(pattern, at)
        if not byte:
            return []
        pieces[-1].append(byte)
    return [*segments, _segment([_piece(piece) for piece in pieces])]


def _segment(pieces: list[Piece]) -> Segment:
    return ANY_DEPTH if len(pieces) > 2 and not any(pieces) else tuple(pieces)


def _piece(choices: list[bytes]) -> Piece:
    return b"".join(choices) if all(len(choice) == 1 for choice in choices) else tuple(choices)


def _class(pattern: bytes, at: int) -> tuple[bytes, int]:
    """Return the bytes that the class after a `[` matches (none if it is malformed), and the position after it."""
    negated = pattern[at : at + 1] in (b"!", b"^")
    at += negated
    members: set[int] = set()
    first, bracket = at, 0
    low = 0  # Where a range may begin: the byte before, unless that one ended a range.
    while (byte := pattern[at : at + 1]) != b"]" or at == first:
        if byte == b"[" and pattern[at + 1 : at + 2] == b":":
            bracket = bracket if bracket > at + 1 else pattern.find(b"]", at + 2)
            if bracket > at + 2 and pattern[bracket - 1] == 58:  # ":"
                name = pattern[at + 2 : bracket - 1]
                if name not in CLASSES:
                    return b"", at
                members.update(CLASSES[name])
                at, low = bracket + 1, 0
                continue
        is_range = byte == b"-" and low > 0 and pattern[at + 1 : at + 2] not in (b"", b"]")
        at += is_range
        at += pattern[at : at + 1] == b"\\"
        if at >= len(pattern) or bracket < 0:
            return b"", at
        members.update(range(low if is_range else pattern[at], pattern[at] + 1))
        low = 0 if is_range else pattern[at]
        at += 1
    return bytes({*ANY_BYTE} - members if negated else members - {47}), at + 1


def _place(pattern: Pattern) -> tuple[int, list[bytes]]:
    """Return the position in the table for this pattern, and its keys there."""
    match pattern:
        case ((), ((piece,),)):
            place, keys = NAME, _spellings(piece)
        case ((), ((piece, b""),)):
            place, keys = START, _spellings(piece)
        case ((), ((b"", piece),)):
            place, keys = END, _spellings(piece)
        case (run,):
            names = [segment[0] for segment in run if len(segment) == 1 and isinstance(segment[0], bytes)]
            place, keys = PATH, [b"/".join(names)] if len(names) == len(run) else []
        case _:
            keys = []
    if keys:
        return place, keys
    # The key of a glob is its longest literal: a path without it cannot match.
    pieces = [piece for run in pattern for segment in run for piece in segment]
    literals = [piece if isinstance(piece, bytes) else _with_gaps(piece) for piece in pieces]
    return GLOB, [max(b"/".join(literals).split(b"/"), key=len)]


def _with_gaps(sets: tuple[bytes, ...]) -> bytes:
    return b"".join([choices if len(choices) == 1 else b"/" for choices in sets])


def _spellings(piece: Piece) -> list[bytes]:
    """Return all texts that the piece can match; empty if there are too many."""
    if isinstance(piece, bytes):
        return [piece]
    spellings = [b""]
    for choices in piece:
        if len(spellings) * len(choices) > MAX_SPELLINGS or len(spellings[0]) == MAX_SPELLED_LENGTH:
            return []
        spellings = [spelling + bytes((byte,)) for spelling in spellings for byte in choices]
    return spellings
