"""Hunks are exact, patches are what `git apply` takes, tables fit their width."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from keepfast.model.errors import Conflict
from keepfast.workspace import diff
from keepfast.workspace.diff import FileDiff, Hunk, Stat, apply, compare, display_width, is_binary, quote, stat_table

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="compares with git")
KOREAN = "한글 파일.txt"

LINES = st.lists(st.sampled_from([b"", b"a", b"b", b"\r", b"a\r", b"-x", b"+y", b" z", b"\\ No newline", b"\xb0\xa1"]))
CONTENTS = st.builds(lambda lines, end: b"\n".join(lines) + end, LINES, st.sampled_from([b"", b"\n", b"\r\n"]))
ANY_BYTES = st.one_of(CONTENTS, st.text().map(str.encode), st.binary())


# -- binary or text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"plain\r\n",
        KOREAN.encode() * 1_000,
        "옛 글".encode("euc-kr") * 10,
        "Grüße\n".encode("latin-1"),
        b"\x1b[31mred\x1b[0m \xff",
        b"x" * 8_000 + b"\0",
    ],
)
def test_text_in_any_encoding_is_text(content: bytes) -> None:
    assert not is_binary(content)


@pytest.mark.parametrize("content", [b"\0", b"text\n\0", "UTF-16".encode("utf-16"), b"\x89PNG\r\n\x1a\n\x01\x02\x03"])
def test_what_lines_cannot_show_is_binary(content: bytes) -> None:
    assert is_binary(content)


def test_letter_cut_at_the_end_of_the_judged_bytes_is_no_reason() -> None:
    cut = "가".encode() * 4_000

    assert not any(is_binary(b"\x01" * 500 + b"." * shift + cut) for shift in range(3))


def test_binary_change_has_no_hunks() -> None:
    assert compare(b"a\0", b"b\0") == FileDiff(True, 0, 0, [])
    assert compare(None, b"b\0") == FileDiff(True, 0, 0, [])
    assert compare(b"same\0", b"same\0") == FileDiff(False, 0, 0, [])


# -- hunks


def test_hunk_shows_the_change_between_three_lines_of_context() -> None:
    old = b"".join(b"%d\n" % number for number in range(1, 11))

    change = compare(old, old.replace(b"5\n", b"five\n"))

    lines = [(" ", b"2"), (" ", b"3"), (" ", b"4"), ("-", b"5"), ("+", b"five"), (" ", b"6"), (" ", b"7"), (" ", b"8")]
    assert change == FileDiff(False, 1, 1, [Hunk(2, 7, 2, 7, lines)])


def test_missing_newline_at_the_end_is_a_line_of_its_own() -> None:
    change = compare(b"a\nb", b"a\nb\n")

    end = ("\\", b" No newline at end of file")
    assert change.hunks == [Hunk(1, 2, 1, 2, [(" ", b"a"), ("-", b"b"), end, ("+", b"b")])]


def test_absent_and_empty_files_have_no_lines() -> None:
    assert compare(None, b"") == compare(b"", None) == FileDiff(False, 0, 0, [])
    assert compare(None, b"a\n").hunks == [Hunk(0, 0, 1, 1, [("+", b"a")])]
    assert compare(b"a\n", None).hunks == [Hunk(1, 1, 0, 0, [("-", b"a")])]


def test_changes_farther_apart_than_two_contexts_are_two_hunks() -> None:
    old = b"".join(b"%d\n" % number for number in range(20))

    def hunks(distance: int) -> int:
        return len(compare(old, old.replace(b"3\n", b"x\n", 1).replace(b"\n%d\n" % (4 + distance), b"\ny\n")).hunks)

    assert (hunks(6), hunks(7)) == (1, 2)


@given(CONTENTS, CONTENTS, st.integers(0, 4))
@settings(deadline=None)
def test_hunks_lead_exactly_from_old_to_new(old: bytes, new: bytes, context: int) -> None:
    change = compare(old, new, context=context)

    assert apply(old, change.hunks) == new
    assert change.added == sum(kind == "+" for hunk in change.hunks for kind, _ in hunk.lines)
    assert change.removed == sum(kind == "-" for hunk in change.hunks for kind, _ in hunk.lines)


@given(ANY_BYTES, ANY_BYTES)
@settings(deadline=None)
def test_hunks_are_exact_for_any_bytes_that_are_not_binary(old: bytes, new: bytes) -> None:
    change = compare(old, new)
    assume(not change.binary)

    assert apply(old, change.hunks) == new


@given(CONTENTS, CONTENTS, st.integers(0, 2), st.data())
@settings(deadline=None)
def test_chosen_hunks_leave_the_rest_as_it_was(old: bytes, new: bytes, context: int, data: st.DataObject) -> None:
    hunks = compare(old, new, context=context).hunks
    chosen = data.draw(st.sets(st.sampled_from(range(len(hunks)))) if hunks else st.just(set[int]()))

    result = apply(old, hunks, chosen)

    before, after = old.split(b"\n"), new.split(b"\n")
    before, after = [line + b"\n" for line in before], [line + b"\n" for line in after]
    before[-1], after[-1] = before[-1][:-1], after[-1][:-1]
    expected, done = b"", 0
    for number, hunk in enumerate(hunks):
        start, new_start = hunk.old_start - bool(hunk.old_lines), hunk.new_start - bool(hunk.new_lines)
        end, new_end = start + hunk.old_lines, new_start + hunk.new_lines
        expected += b"".join(before[done:start])
        expected += b"".join(after[new_start:new_end] if number in chosen else before[start:end])
        done = end
    assert result == expected + b"".join(before[done:])


@given(st.integers(0, 2**32), st.integers(2, 60), st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_long_files_are_exact_too(seed: int, variety: int, near: int) -> None:
    """Past 50 × 50 changed lines, anchors decide where difflib looks."""
    chance = random.Random(seed)
    old = [b"%d\n" % chance.randrange(variety) for _ in range(400)]
    new = list(old) if near else [b"%d\n" % chance.randrange(variety) for _ in range(300)]
    for _ in range(10 * near):
        place = chance.randrange(len(new))
        new[place : place + chance.randrange(8)] = [b"%d\n" % chance.randrange(2 * variety) for _ in range(near)]

    change = compare(b"".join(old), b"".join(new))

    assert apply(b"".join(old), change.hunks) == b"".join(new)


def test_hunks_of_another_content_are_refused() -> None:
    hunks = compare(b"a\nb\nc\n", b"a\nB\nc\n").hunks

    for other in (b"a\nx\nc\n", b"a\nb\nc", b"a\nb\n", b"", None):
        with pytest.raises(Conflict, match="around line 1"):
            apply(other, hunks)


NUMBERS = range(50_000)
CHANCE = random.Random(7)
BIG = {
    "all equal, one more": ([0] * 50_000, [0] * 50_001),
    "equal around a change": ([0] * 25_000 + [1] + [0] * 25_000, [0] * 20_000 + [2] + [0] * 30_000),
    "all different": (NUMBERS, range(50_000, 100_000)),
    "reversed": (NUMBERS, NUMBERS[::-1]),
    "shuffled": (NUMBERS, CHANCE.sample(NUMBERS, 50_000)),
    "two kinds of lines": ([CHANCE.randrange(2) for _ in NUMBERS], [CHANCE.randrange(2) for _ in NUMBERS]),
    "two rhythms": ([number % 3 for number in NUMBERS], [number % 2 for number in NUMBERS]),
    "every other line blank": ([number % 2 and number for number in NUMBERS], [n % 2 and -n for n in NUMBERS]),
    "every other line changed": (NUMBERS, [number if number % 2 else -number for number in NUMBERS]),
}


@pytest.mark.parametrize("name", BIG)
def test_fifty_thousand_lines_of_the_worst_kinds_come_out_exact(name: str) -> None:
    old, new = (b"".join(b"%d\n" % number for number in numbers) for numbers in BIG[name])

    assert apply(old, compare(old, new).hunks) == new


def test_few_changes_in_a_long_file_without_unique_lines_stay_few() -> None:
    chance = random.Random(1)
    old = [b"%d\n" % chance.randrange(2) for _ in range(20_000)]
    new = list(old)
    for place in range(1_000, 20_000, 1_000):
        new.insert(place, b"2\n")

    change = compare(b"".join(old), b"".join(new))

    assert (change.added, change.removed, len(change.hunks)) == (19, 0, 19)


# -- patches


def patch(
    old: tuple[bytes, bytes, int] | None, new: tuple[bytes, bytes, int] | None, context: int = 3
) -> list[tuple[str, bytes]]:
    change = compare(old and old[1], new and new[1], context=context)
    return list(diff.unified(old and old[0], new and new[0], change, old and old[2], new and new[2]))


def text(lines: list[tuple[str, bytes]]) -> bytes:
    return b"".join(line + b"\n" for _, line in lines)


def test_patch_lines_carry_their_kind() -> None:
    lines = patch((b"x", b"a\nb", 0o100644), (b"x", b"a\nc\n", 0o100755))

    assert lines == [
        ("header", b"diff --git a/x b/x"),
        ("header", b"old mode 100644"),
        ("header", b"new mode 100755"),
        ("header", b"--- a/x"),
        ("header", b"+++ b/x"),
        ("@@", b"@@ -1,2 +1,2 @@"),
        (" ", b" a"),
        ("-", b"-b"),
        ("\\", b"\\ No newline at end of file"),
        ("+", b"+c"),
    ]


def test_unchanged_file_has_no_patch() -> None:
    assert patch((b"x", b"a", 0o100644), (b"x", b"a", 0o100644)) == []
    assert list(diff.unified(b"x", b"x", compare(b"a", b"a"), None, 0o755)) == []


def test_binary_change_is_only_named() -> None:
    lines = patch(None, (b"pic ture", b"\0", 0o600))

    assert text(lines).splitlines() == [
        b"diff --git a/pic ture b/pic ture",
        b"new file mode 100644",
        b"Binary files /dev/null and b/pic ture differ",
    ]


def test_permission_change_that_git_does_not_know_is_shown() -> None:
    lines = patch((b"key", b"k", 0o100644), (b"key", b"k", 0o100600))

    assert text(lines).splitlines()[1:] == [b"old mode 100644", b"new mode 100600"]


def test_patch_without_a_path_is_refused() -> None:
    with pytest.raises(ValueError, match="path"):
        list(diff.unified(None, None, FileDiff(False, 0, 0, []), None, None))


@pytest.mark.parametrize(
    ("path", "quoted"),
    [
        (b"plain name", b"plain name"),
        (KOREAN.encode(), KOREAN.encode()),
        (b'say "hi"\\', rb'"say \"hi\"\\"'),
        (b"a\nb\tc\x01\x7f", rb'"a\nb\tc\001\177"'),
        (b"\xff\xea", rb'"\377\352"'),
        ("오른쪽\u202e".encode(), b'"' + b"".join(b"\\%03o" % code for code in "오른쪽\u202e".encode()) + b'"'),
        ("\x9b31m".encode(), rb'"\302\23331m"'),
    ],
)
def test_odd_names_are_quoted_as_in_c(path: bytes, quoted: bytes) -> None:
    assert quote(path) == quoted


NAMES = [
    b"plain",
    b"with space",
    b"deep/er/file",
    KOREAN.encode(),
    b"new\nline",
    b"tab\t",
    b' "q" \\',
    b"\xff\xfe",
    b"\x01\x1b[31m",
    "\u202e".encode(),
    b"a b/b a b/b",
    b" ends ",
]
CASES: dict[str, tuple[tuple[bytes, int] | None, tuple[bytes, int] | None]] = {
    "changed": ((b"1\n2\n3\n", 0o644), (b"1\ntwo\n3\n", 0o644)),
    "new": (None, (b"a\nb\n", 0o644)),
    "new and executable": (None, (b"#!/bin/sh\n", 0o755)),
    "new and empty": (None, (b"", 0o644)),
    "deleted": ((b"a\nb", 0o644), None),
    "deleted empty": ((b"", 0o755), None),
    "emptied": ((b"a\n", 0o644), (b"", 0o644)),
    "filled": ((b"", 0o644), (b"a", 0o644)),
    "mode": ((b"a\n", 0o644), (b"a\n", 0o755)),
    "mode unknown to git": ((b"a\n", 0o644), (b"a\n", 0o600)),
    "mode and lines": ((b"a\n", 0o755), (b"b\n", 0o644)),
    "newline lost": ((b"a\nb\n", 0o644), (b"a\nb", 0o644)),
    "newline won": ((b"a\nb", 0o644), (b"a\nb\n", 0o644)),
    "never a newline": ((b"a\nb", 0o644), (b"A\nb", 0o644)),
    "dos": ((b"a\r\nb\r\n", 0o644), (b"a\nb\r\nc\r", 0o644)),
    "far apart": (
        (b"x\n" + b"\n" * 20 + b"y\n", 0o644),
        (b"X\n" + b"\n" * 20 + b"Y\n", 0o644),
    ),
}


def git_apply(folder: Path, text: bytes, *options: str) -> bytes:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CEILING_DIRECTORIES": str(folder.parent),
    }
    command = ["git", "apply", "--whitespace=nowarn", *options, "-"]
    done = subprocess.run(command, cwd=folder, input=text, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, (done.stderr, text)
    return done.stdout


def put(root: bytes, name: bytes, content: bytes, mode: int) -> bytes:
    path = root + b"/" + name
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)
    os.chmod(path, mode)
    return path


@needs_git
@pytest.mark.parametrize("name", NAMES)
def test_git_applies_our_patch(name: bytes, tmp_path: Path) -> None:
    """Every case in one patch of many files."""
    root = os.fsencode(tmp_path / "tree")
    os.mkdir(root)
    patches = []
    for case, (old, new) in CASES.items():
        path = case.encode() + b"/" + name
        if old is not None:
            put(root, path, *old)
        patches.append(text(patch(old and (path, *old), new and (path, *new))))

    git_apply(tmp_path / "tree", b"".join(patches))

    for case, (_, new) in CASES.items():
        path = root + b"/" + case.encode() + b"/" + name
        assert os.path.exists(path) == (new is not None), case
        if new is not None:
            with open(path, "rb") as file:
                assert file.read() == new[0], case
            if case != "mode unknown to git":
                assert os.stat(path).st_mode & 0o111 == new[1] & 0o111, case


@needs_git
@pytest.mark.parametrize("name", NAMES)
def test_git_reads_the_same_counts_and_names_from_our_patch(name: bytes, tmp_path: Path) -> None:
    lines = patch((name, b"a\nb\n", 0o644), (name, b"a\nc\nd\n", 0o644))

    counts = git_apply(tmp_path, text(lines), "--numstat", "-z")

    assert counts == b"2\t1\t" + name + b"\0"


@needs_git
def test_git_applies_a_rename_with_a_change(tmp_path: Path) -> None:
    put(os.fsencode(tmp_path), b"old name", b"a\nb\n", 0o644)

    git_apply(tmp_path, text(patch((b"old name", b"a\nb\n", 0o644), (b"new\nname", b"a\nc\n", 0o644))))

    assert os.listdir(os.fsencode(tmp_path)) == [b"new\nname"]
    assert (tmp_path / "new\nname").read_bytes() == b"a\nc\n"


@needs_git
def test_git_applies_a_link_made_and_one_removed(tmp_path: Path) -> None:
    (tmp_path / "gone").symlink_to("somewhere")

    made = text(patch(None, (b"made", b"target", 0o120777)))
    git_apply(tmp_path, made + text(patch((b"gone", b"somewhere", 0o120777), None)))

    assert os.readlink(tmp_path / "made") == "target"
    assert not (tmp_path / "gone").is_symlink()


@needs_git
@given(CONTENTS, CONTENTS, st.integers(1, 3))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_git_applies_whatever_changed(tmp_path: Path, old: bytes, new: bytes, context: int) -> None:
    """With any context: without, git misplaces its own patches too where a last line without newline occurs twice."""
    assume(old != new)
    path = put(os.fsencode(tmp_path), b"file", old, 0o644)

    git_apply(tmp_path, text(patch((b"file", old, 0o644), (b"file", new, 0o644), context)), "--unidiff-zero")

    with open(path, "rb") as file:
        assert file.read() == new


# -- the table


def rendered(stats: list[Stat], width: int) -> list[str]:
    return ["".join(row) for row in stat_table(stats, width)]


def test_table_counts_lines_and_names_binary_sizes() -> None:
    stats = [Stat(b"src/a.py", 3, 1), Stat(b"b.png", 0, 0, (10, 2_000)), Stat(b"mode", 0, 0), Stat(b"c", 10, 12)]

    assert rendered(stats, 60) == [
        " src/a.py |   4 +++-",
        " b.png    | Bin 10 -> 2000 bytes",
        " mode     |   0",
        " c        |  22 ++++++++++------------",
    ]
    assert stat_table([], 60) == []


def test_korean_names_line_up_with_others() -> None:
    rows = rendered([Stat("한글.txt".encode(), 1, 0), Stat(b"12345678", 1, 0), Stat("한".encode(), 1, 0)], 40)

    assert rows == [" 한글.txt | 1 +", " 12345678 | 1 +", " 한       | 1 +"]


def test_decomposed_korean_takes_the_same_columns() -> None:
    composed, decomposed = "\ud55c\uae00", "\u1112\u1161\u11ab\u1100\u1173\u11af"

    assert display_width(composed) == display_width(decomposed) == 4


def test_long_names_lose_their_beginning() -> None:
    stats = [Stat(b"a/very/long/way/to/the/file.py", 5, 5), Stat("긴/길을/따라/파일".encode() * 5, 5, 0)]

    assert rendered(stats, 30) == [
        " .../the/file.py | 10 ++++----",
        " ...을/따라/파일 |  5 ++++",
    ]


COUNTS = st.integers(0, 10**6)
PATHS = st.one_of(st.text(min_size=1).map(str.encode), st.binary(min_size=1))
STATS = st.one_of(
    st.builds(Stat, PATHS, COUNTS, COUNTS, st.none()),
    st.builds(Stat, PATHS, st.just(0), st.just(0), st.tuples(COUNTS, COUNTS)),
)


@given(st.lists(STATS), st.integers(50, 200))
@settings(deadline=None)
def test_table_fits_its_width_and_shows_every_change(stats: list[Stat], width: int) -> None:
    rows = stat_table(stats, width)

    for one, (label, added, removed) in zip(stats, rows, strict=True):
        assert display_width(label + added + removed) <= width
        assert (bool(added), bool(removed)) == (one.added > 0, one.removed > 0)
        assert label.isprintable()
