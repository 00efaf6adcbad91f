"""What ignore files say about a path is what Git says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keepfast.workspace import ignore

IGNORED, KEPT, UNSAID = True, False, None

CASES: list[tuple[str, bytes, bytes, bool | None]] = [
    # (what the case shows, the ignore file, a path with a slash at the end if it is a folder, what the rules say)
    ("a blank line says nothing", b"\n\n", b"a", UNSAID),
    ("a comment says nothing", b"#a", b"#a", UNSAID),
    ("a space before the hash makes a pattern", b" #a", b" #a", IGNORED),
    ("an escaped hash is a hash", b"\\#a", b"#a", IGNORED),
    ("an escaped exclamation mark is one", b"\\!a", b"!a", IGNORED),
    ("a second exclamation mark is part of the name", b"!!a", b"!a", KEPT),
    ("a lone exclamation mark says nothing", b"!", b"!", UNSAID),
    ("a lone slash says nothing", b"/", b"a/", UNSAID),
    ("a name matches at the top", b"a", b"a", IGNORED),
    ("a name matches in any folder", b"a", b"x/y/a", IGNORED),
    ("a name matches a folder", b"a", b"x/a/", IGNORED),
    ("a name is matched whole", b"a", b"ab", UNSAID),
    ("case counts", b"a", b"A", UNSAID),
    ("the last rule wins", b"*.log\n!a.log", b"a.log", KEPT),
    ("the last rule wins whatever its kind", b"!a.log\n*.log\n!a*", b"a.log", KEPT),
    ("the last ending wins", b"*.log\n!*a.log", b"a.log", KEPT),
    ("the last ending wins, however short", b"!*a.log\n*.log", b"a.log", IGNORED),
    ("the last beginning wins", b"a*\n!a.*", b"a.log", KEPT),
    ("a repeated rule counts where it stands last", b"*.log\n!*a.log\n*.log", b"a.log", IGNORED),
    ("a path before a name loses", b"/a\n!a", b"a", KEPT),
    ("a path after a name wins", b"!a\n/a", b"a", IGNORED),
    ("a glob before a name loses", b"?.log\n!a.log", b"a.log", KEPT),
    ("a glob after a name wins", b"!a.log\n?.log", b"a.log", IGNORED),
    ("a slash at the end means folders", b"a/", b"a/", IGNORED),
    ("a slash at the end leaves files alone", b"a/", b"a", UNSAID),
    ("a rule for folders leaves the file to an earlier rule", b"a\n!a/", b"a", IGNORED),
    ("a slash at the end does not anchor", b"a/", b"x/a/", IGNORED),
    ("a slash at the start anchors", b"/a", b"x/a", UNSAID),
    ("a slash at the start is no part of the name", b"/a", b"a", IGNORED),
    ("a slash in the middle anchors", b"a/b", b"x/a/b", UNSAID),
    ("a slash in the middle matches the path", b"a/b", b"a/b", IGNORED),
    ("two slashes match nothing", b"a//b", b"a/b", UNSAID),
    ("two slashes at the start match nothing", b"//a", b"a", UNSAID),
    ("two slashes at the end match nothing", b"a//", b"a/", UNSAID),
    ("spaces at the end are cut", b"a  ", b"a", IGNORED),
    ("an escaped space at the end stays", b"a\\ ", b"a ", IGNORED),
    ("spaces after an escaped space are cut", b"a\\   ", b"a ", IGNORED),
    ("an escaped backslash does not escape the space after it", b"a\\\\ ", b"a\\", IGNORED),
    ("spaces in front stay", b" a", b" a", IGNORED),
    ("a tab at the end stays", b"a\t", b"a\t", IGNORED),
    ("a carriage return at the end is cut", b"a\r\nb\r\n", b"a", IGNORED),
    ("only one carriage return is cut", b"a\r\r\n", b"a\r", IGNORED),
    ("a carriage return at the end of the file is cut", b"a\r", b"a", IGNORED),
    ("spaces before a carriage return are cut", b"a \r\n", b"a", IGNORED),
    ("a line of nothing but a carriage return says nothing", b"\r\n", b"\r", UNSAID),
    ("a byte order mark at the start is skipped", b"\xef\xbb\xbfa", b"a", IGNORED),
    ("a byte order mark before a comment is skipped", b"\xef\xbb\xbf#a", b"#a", UNSAID),
    ("a byte order mark further on is part of the name", b"\n\xef\xbb\xbfa", b"a", UNSAID),
    ("a line ends at a zero byte", b"a\0b", b"a", IGNORED),
    ("bytes that are no UTF-8 are bytes", b"\xff\xfe", b"\xff\xfe", IGNORED),
    ("a question mark is one byte", b"?", b"\xff", IGNORED),
    ("a question mark is not two bytes", b"?", "é".encode(), UNSAID),
    ("a question mark is no slash", b"/a?b", b"a/b", UNSAID),
    ("a star matches an ending", b"*.o", b"x/a.o", IGNORED),
    ("a star may stand for nothing", b"*.o", b".o", IGNORED),
    ("a star matches a beginning", b"a*", b"x/abc", IGNORED),
    ("a star matches everything", b"*", b"x/.a", IGNORED),
    ("a star in the middle", b"a*c", b"x/abbc", IGNORED),
    ("two parts around a star do not overlap", b"ab*ba", b"aba", UNSAID),
    ("stars all over", b"*a*b*", b"x/1a2b3", IGNORED),
    ("a star stops at a slash", b"/a*c", b"ab/c", UNSAID),
    ("a star in a path is one name", b"a/*/c", b"a/b/c", IGNORED),
    ("a star in a path is not two names", b"a/*/c", b"a/b/b/c", UNSAID),
    ("a star under the root", b"/*", b"a", IGNORED),
    ("a star under the root stays there", b"/*b", b"a/b", UNSAID),
    ("leading two stars match at the top", b"**/a", b"a", IGNORED),
    ("leading two stars match below", b"**/a", b"x/y/a", IGNORED),
    ("leading two stars before a path", b"**/a/b", b"x/a/b", IGNORED),
    ("leading two stars match whole names", b"**/a/b", b"xa/b", UNSAID),
    ("trailing two stars match inside", b"a/**", b"a/b/c", IGNORED),
    ("trailing two stars leave the folder itself", b"a/**", b"a/", UNSAID),
    ("two stars in the middle may stand for nothing", b"a/**/b", b"a/b", IGNORED),
    ("two stars in the middle", b"a/**/b", b"a/x/y/b", IGNORED),
    ("two stars in the middle match whole names", b"a/**/b", b"a/xb", UNSAID),
    ("two stars twice", b"a/**/b/**/c", b"a/x/b/c", IGNORED),
    ("the first place for a middle part is not the last", b"**/a/b*/**/a/c", b"a/x/a/b/y/a/c", IGNORED),
    ("two stars alone are everything", b"**", b"x/a", IGNORED),
    ("two stars after a slash are everything", b"/**", b"x/a", IGNORED),
    ("two stars beside a name are one", b"a**b", b"x/axb", IGNORED),
    ("two stars beside a name stop at a slash", b"/a**/b", b"ax/y/b", UNSAID),
    ("two stars beside a name need their slash", b"/a**/b", b"ab", UNSAID),
    ("two stars beside a name may stand for nothing", b"/a**/b", b"a/b", IGNORED),
    ("three stars are two", b"a/***/b", b"a/x/y/b", IGNORED),
    ("two stars before an escaped slash are at least one folder", b"a/**\\/b", b"a/b", UNSAID),
    ("two stars before an escaped slash", b"a/**\\/b", b"a/x/y/b", IGNORED),
    ("a class", b"a[bc]", b"x/ac", IGNORED),
    ("a class is one byte", b"a[bc]", b"abc", UNSAID),
    ("a class negated with an exclamation mark", b"a[!b]", b"ac", IGNORED),
    ("a class negated with a caret", b"a[^b]", b"ab", UNSAID),
    ("a caret further on is a caret", b"a[b^]", b"a^", IGNORED),
    ("a range", b"[a-c]", b"b", IGNORED),
    ("a range the wrong way round is its first byte", b"[c-a]", b"c", IGNORED),
    ("a range the wrong way round is not its last byte", b"[c-a]", b"a", UNSAID),
    ("a dash at the end of a class is a dash", b"[a-]", b"-", IGNORED),
    ("a dash at the start of a class is a dash", b"[-a]", b"-", IGNORED),
    ("a dash after a range is a dash", b"[a-c-e]", b"d", UNSAID),
    ("a range up to an escaped bracket", b"[Z-\\]]", b"[", IGNORED),
    ("a range from an escaped byte", b"[\\a-c]", b"b", IGNORED),
    ("a range over bytes that are no ASCII", b"[\x80-\xff]", b"\xfe", IGNORED),
    ("a bracket at the start of a class is a bracket", b"[]a]", b"]", IGNORED),
    ("a bracket at the start of a negated class is a bracket", b"[!]a]", b"]", UNSAID),
    ("an opening bracket in a class is a bracket", b"[[a]", b"[", IGNORED),
    ("a named class", b"a[[:digit:]]", b"a7", IGNORED),
    ("a named class among others", b"[x[:upper:]-]", b"-", IGNORED),
    ("a named class negated", b"[![:alpha:]]", b"a", UNSAID),
    ("an unknown named class matches nothing", b"[[:word:]a]", b"a", UNSAID),
    ("a named class of no name matches nothing", b"[[::]a]", b"a", UNSAID),
    ("a named class without its end is a class of bytes", b"[[:a]", b":", IGNORED),
    ("a named class without its name is a class of bytes", b"[[:]", b":", IGNORED),
    ("no range begins with a named class", b"[a[:digit:]-z]", b"m", UNSAID),
    ("a class has no slash", b"a[/]b", b"a/b", UNSAID),
    ("a slash in a class anchors", b"[a/b]", b"x/a", UNSAID),
    ("a negated class has no slash", b"/a[!x]b", b"a/b", UNSAID),
    ("a class after a star", b"*.py[cod]", b"x/a.pyc", IGNORED),
    ("a class of many after a star", b"*.s[a-w][a-z]", b"x/.a.swp", IGNORED),
    ("a class of many before a star", b"[a-z][0-9]*", b"x/a0b", IGNORED),
    ("a class between stars", b"*[0-9]*", b"x/a0b", IGNORED),
    ("an open bracket matches nothing", b"[", b"[", UNSAID),
    ("an open class matches nothing", b"a[bc", b"a[bc", UNSAID),
    ("an empty class matches nothing", b"[]", b"[]", UNSAID),
    ("an open class spoils no other rule", b"a[\nb", b"b", IGNORED),
    ("an escaped bracket is a bracket", b"a\\[b", b"a[b", IGNORED),
    ("an escaped star is a star", b"\\*", b"*", IGNORED),
    ("an escaped star is no more", b"\\*", b"a", UNSAID),
    ("an escaped question mark is a question mark", b"/a\\?", b"ab", UNSAID),
    ("an escaped backslash is a backslash", b"a\\\\b", b"a\\b", IGNORED),
    ("an escaped letter is the letter", b"\\a", b"x/a", IGNORED),
    ("an escaped letter in a path", b"x/\\a", b"x/a", IGNORED),
    ("a backslash at the end matches nothing", b"a\\", b"a\\", UNSAID),
    ("a backslash before the last slash matches nothing", b"a\\/", b"a/", UNSAID),
    ("an escaped slash is a slash", b"a\\/b", b"a/b", IGNORED),
]


@pytest.mark.parametrize(("text", "path", "said"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_rules_say(text: bytes, path: bytes, said: bool | None) -> None:
    rules = ignore.parse(text)

    assert rules.match(path.removesuffix(b"/"), path.endswith(b"/")) is said


def test_rules_are_true_if_any_of_them_can_match() -> None:
    assert ignore.parse(b"# only\na\n")
    assert not ignore.parse(b"# only\n\n[\n!\n/\n")


def test_deeper_files_win_over_higher_ones() -> None:
    stack = [(b"", ignore.parse(b"*.log\n")), (b"a", ignore.parse(b"!keep.log\n")), (b"a/b", ignore.parse(b"/x\n"))]

    assert not ignore.verdict(b"a/b/keep.log", False, stack)
    assert ignore.verdict(b"a/b/other.log", False, stack)
    assert ignore.verdict(b"a/b/x", False, stack)
    assert not ignore.verdict(b"a/b/c/x", False, stack)


def test_the_root_file_wins_over_the_exclude_file() -> None:
    stack = [(b"", ignore.parse(b"*\n")), (b"", ignore.parse(b"!a\n"))]

    assert not ignore.verdict(b"a", False, stack)
    assert ignore.verdict(b"b", False, stack)


def test_nothing_is_ignored_without_rules() -> None:
    assert not ignore.verdict(b"a", False, [])
    assert not ignore.verdict(b"a", False, [(b"", ignore.parse(b""))])


# Held against Git. A tree is its files with their contents, and its folders, whose paths end with a slash, with None.

Tree = dict[bytes, bytes | None]
GitSays = Callable[[Tree], dict[bytes, bool | None]]

needs_git = pytest.mark.skipif(
    shutil.which("git") is None or sys.platform == "darwin",
    reason="needs Git, and a file system that takes any bytes for a name",
)

# Before 2.52, Git took the stars of `/foo**/bar` for whole folders, against its own manual.
STARS_BESIDE_A_LITERAL = re.compile(rb"(?m)^!?/?[^*?\[\\\n]*[^*?\[\\\n/]\*\*+(?=\\?/|\s*$)")


@pytest.fixture(scope="module")
def git_says() -> Iterator[GitSays]:
    """Return a function that builds a tree and returns what Git says of everything in it."""
    with tempfile.TemporaryDirectory() as home:
        work = os.fsencode(home) + b"/work/"
        environment = {"PATH": os.environ["PATH"], "HOME": home, "LC_ALL": "C", "GIT_CEILING_DIRECTORIES": home}
        environment |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
        subprocess.run(["git", "init", "-q", work], env=environment, check=True)

        def says(tree: Tree) -> dict[bytes, bool | None]:
            for entry in set(os.listdir(work)) - {b".git"}:
                (shutil.rmtree if os.path.isdir(work + entry) else os.remove)(work + entry)
            for path, content in sorted(tree.items()):
                if content is None:
                    os.makedirs(work + path, exist_ok=True)
                else:
                    Path(os.fsdecode(work + path)).write_bytes(content)
            paths = [path for path in tree if not path.startswith(b".git/")]
            # A colon at the start of a path would mean something to Git, hence the dot.
            asked = b"".join(b"./" + path.removesuffix(b"/") + b"\0" for path in paths)
            command = ["git", "check-ignore", "--stdin", "-z", "--no-index", "-v", "-n"]
            done = subprocess.run(command, cwd=work, input=asked, env=environment, capture_output=True, check=False)
            assert done.returncode in (0, 1), done.stderr
            patterns = done.stdout.split(b"\0")[2::4]
            said = [None if not pattern else not pattern.startswith(b"!") for pattern in patterns]
            return dict(zip(paths, said, strict=True))

        yield says


def folders_above(path: bytes) -> list[bytes]:
    return [path[: place + 1] for place, byte in enumerate(path[:-1]) if byte == 47]


@needs_git
def test_git_says_so_too(git_says: GitSays) -> None:
    """Every case above, each in a folder of its own."""
    cases = {b"%d/" % number: case for number, case in enumerate(CASES) if not STARS_BESIDE_A_LITERAL.search(case[1])}
    tree: Tree = {}
    for folder, (_, text, path, _) in cases.items():
        tree |= {folder + above: None for above in (b"", *folders_above(path))}
        tree |= {folder + path: None if path.endswith(b"/") else b"", folder + b".gitignore": text}

    said = git_says(tree)

    assert {case[0]: said[folder + case[2]] for folder, case in cases.items()} == {
        case[0]: case[3] for case in cases.values()
    }


@needs_git
def test_named_classes_hold_the_bytes_that_git_puts_there(git_says: GitSays) -> None:
    names = [b"x%c" % byte for byte in range(1, 256) if byte != 47]
    tree: Tree = {}
    for name in ignore.CLASSES:
        tree |= {name + b"/": None, name + b"/.gitignore": b"x[[:%s:]]" % name}
        tree |= {name + b"/" + entry: b"" for entry in names}

    said = git_says(tree)

    for name in ignore.CLASSES:
        rules = ignore.parse(b"x[[:%s:]]" % name)
        assert {entry: rules.match(entry, False) for entry in names} == {
            entry: said[name + b"/" + entry] for entry in names
        }


NAMES = (
    b"a|b|ab|ba|abc|.a|a.b|b.a|A|0|a0|-|a-b|a b|a | a|[|]|a]|!a|#a|\\|a\\|*|?|a*|^|:a|\xff|\xc3\xa9|a\r|a\t"
).split(b"|")
WILD = (
    b"*|**|***|?|/|**/|/**|/**/|\\|\\/|\\*|\\[|\\ | |\r|!|#|[|]|-|^|:|[ab]|[!a]|[^a]|[a-c]|[c-a]|[]a]|"
    b"[!]a]|[a-]|[[]|[\\]]|[[:alpha:]]|[![:digit:]]|[[:space:]a]|[[:nothing:]]|[[:]|[a/b]|[\x80-\xff]"
).split(b"|")

names = st.sampled_from(NAMES[:8]) | st.sampled_from(NAMES)
likely_patterns = st.tuples(
    st.sampled_from([b"", b"", b"!"]),
    st.sampled_from([b"", b"", b"/", b"**/", b"*", b"?"]),
    st.lists(names | st.sampled_from([b"*", b"**", b"a*", b"*a", b"[a-b]", b"?"]), min_size=1, max_size=3).map(
        b"/".join
    ),
    st.sampled_from([b"", b"", b"/", b"/*", b"/**", b"*", b" ", b"\r"]),
).map(b"".join)
wild_patterns = st.lists(st.sampled_from(WILD) | names, max_size=7).map(b"".join)
ignore_files = st.builds(
    lambda mark, lines, end: STARS_BESIDE_A_LITERAL.sub(b"*", mark + b"\n".join(lines) + end),
    st.sampled_from([b"", b"", b"", b"\xef\xbb\xbf"]),
    st.lists(likely_patterns | wild_patterns | st.binary(max_size=12), max_size=10),
    st.sampled_from([b"", b"\n", b"\r\n"]),
)


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    paths = draw(st.lists(st.lists(names, min_size=1, max_size=4).map(b"/".join), min_size=1, max_size=40))
    tree: Tree = {folder: None for path in paths for folder in folders_above(path)}
    homes = [b"", *draw(st.lists(st.sampled_from(sorted(tree)), max_size=2))] if tree else [b""]
    tree |= {path: b"" for path in paths if path + b"/" not in tree}
    tree |= {home + b".gitignore": draw(ignore_files) for home in homes}
    return tree | {b".git/info/exclude": draw(ignore_files)}


def walk(tree: Tree) -> dict[bytes, bool]:
    """Ask about everything in the tree as the callers of `verdict` do, from the top down."""
    rules = {path.removesuffix(b".gitignore"): ignore.parse(content) for path, content in tree.items() if content}
    exclude = (b"", rules.pop(b".git/info/exclude", ignore.parse(b"")))
    said: dict[bytes, bool] = {}
    for path in sorted(path for path in tree if not path.startswith(b".git/")):
        folders = folders_above(path)
        stack = [exclude, *((folder[:-1], rules[folder]) for folder in (b"", *folders) if folder in rules)]
        is_inside = any(said[folder] for folder in folders)
        said[path] = is_inside or ignore.verdict(path.removesuffix(b"/"), path.endswith(b"/"), stack)
    return said


@needs_git
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tree=trees())
def test_any_tree_is_ignored_as_git_ignores_it(git_says: GitSays, tree: Tree) -> None:
    said = git_says(tree)

    assert walk(tree) == {path: bool(ignored) for path, ignored in said.items()}


# Hostile patterns and the cost of loading.

# Start and end fit and no literal is missing, so that only the long way round can tell.
HOSTILE = [
    (b"*a" * 40 + b"*b*a", b"b/" + b"a" * 250),
    (b"*?" * 40 + b"*b*", b"b/" + b"a" * 250),
    (b"*[ab]" * 40 + b"*c*", b"c/" + b"a" * 250),
    (b"*" + b"[ab]" * 40 + b"c*", b"c/" + b"a" * 250),
    (b"*" + b"?" * 100 + b"b*", b"b/" + b"a" * 250),
    (b"**/a/" * 40 + b"**/b/**", b"a/" * 2000 + b"a"),
    (b"a/**/" * 40 + b"b/**/a", b"a/" * 2000 + b"a"),
    (b"**/" + b"a/" * 40 + b"b/**", b"a/" * 2000 + b"a"),
    (b"**/*a*a*a*a/" * 40 + b"**/b/**/a", b"aaaaaaaa/" * 400 + b"a"),
]


@pytest.mark.parametrize(("pattern", "path"), HOSTILE, ids=[repr(pattern[:16]) for pattern, _ in HOSTILE])
def test_hostile_pattern_costs_no_more_than_its_length_times_that_of_the_path(pattern: bytes, path: bytes) -> None:
    rules = ignore.parse(pattern)
    steps = 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        steps += 1
        assert steps < 10 * len(pattern) * len(path)  # Here, for otherwise it might never come to an end.
        return count

    tracer = sys.gettrace()
    sys.settrace(count)
    try:
        said = rules.match(path, False)
    finally:
        sys.settrace(tracer)

    assert said is None
    assert steps > 250, "The pattern was not hostile enough to show anything."


LONG = [b"[", b"[[:", b"[a]", b"[ab]", b"*", b"a*", b"a/", b"**/", b"\\", b"\\ ", b" "]


@pytest.mark.parametrize("pattern", [part * 100_000 + end for part in LONG for end in (b"c", b"]", b"/")])
def test_very_long_patterns_are_read_and_match_nothing(pattern: bytes) -> None:
    rules = ignore.parse(pattern)

    assert rules.match(b"a/b/a", False) is None


@given(text=st.binary(), path=st.binary(min_size=1), is_dir=st.booleans())
def test_no_bytes_are_refused(text: bytes, path: bytes, is_dir: bool) -> None:
    assert ignore.parse(text).match(path, is_dir) in (True, False, None)
