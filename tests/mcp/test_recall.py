"""Recall gives exact text: of a path, a definition, or around words; from the disk, and from the checkpoint where they differ."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.resume.passages import around_words, definitions, quotable_lines, visible, with_range
from tests.equipment.box import Box

from .agent import Answer, call

GO = """package main

import "fmt"

// Server answers.
// It never sleeps.
type Server struct {
\tname string
}

func (s *Server) Start(port int) error {
\tif port == 0 {
\t\treturn nil
\t}
\tfmt.Println(port)
\treturn nil
}
"""
TYPESCRIPT = """export interface Options {
  depth: number
}

export const walk = async (options: Options) => {
  return options.depth
}

export default class Walker extends Base {
  private step(): void {
    this.go()
  }
}
"""
PYTHON = '''LIMIT = 3


@decorated
@twice
def first(
    a: int,
    b: int,
) -> int:
    """Say it."""

    return a + b


class Second:
    def inner(self) -> int:
        return first(1, 2)

    def other(self) -> None: ...
'''
RUST = """pub struct Queue<T> {
    items: Vec<T>,
}

impl<T> Queue<T> {
    pub(crate) fn push(&mut self, item: T) {
        self.items.push(item);
    }
}
"""
C = """static int
count_them(const char *text)
{
    return 0;
}

int twice(int value) {
    return 2 * value;
}
"""


def text_of(lines: str, name: str) -> list[str]:
    spans = definitions(lines.split("\n"), name)
    return ["\n".join(lines.split("\n")[one.first - 1 : one.last]) for one in spans]


@pytest.mark.parametrize(
    ("source", "name", "begin", "end"),
    [
        (GO, "Server", "// Server answers.", "}"),
        (GO, "Server.Start", "func (s *Server) Start", "}"),
        (TYPESCRIPT, "Options", "export interface Options", "}"),
        (TYPESCRIPT, "walk", "export const walk", "}"),
        (TYPESCRIPT, "Walker", "export default class", "}"),
        (TYPESCRIPT, "step", "  private step()", "  }"),
        (PYTHON, "LIMIT", "LIMIT = 3", "LIMIT = 3"),
        (PYTHON, "first", "@decorated", "    return a + b"),
        (PYTHON, "Second", "class Second", "    def other(self) -> None: ..."),
        (PYTHON, "Second.inner", "    def inner", "        return first(1, 2)"),
        (RUST, "Queue", "pub struct Queue", "}"),
        (RUST, "Queue::push", "    pub(crate) fn push", "    }"),
        (C, "twice", "int twice(int value) {", "}"),
    ],
)
def test_a_definition_is_found_whole(source: str, name: str, begin: str, end: str) -> None:
    definition = text_of(source, name)

    assert definition, name
    assert definition[0].startswith(begin)
    assert definition[0].split("\n")[-1] == end


def test_a_use_is_no_definition() -> None:
    assert text_of("first(1, 2)\nx = second.first\nif first(\n", "first") == []


@given(
    st.text(st.characters(categories=["L", "P", "S", "Z", "N"], include_characters="\n{}()"), max_size=300),
    st.text(max_size=12),
)
def test_any_text_and_any_name_give_passages_that_are_there(text: str, name: str) -> None:
    lines = text.split("\n")

    for passage in [*definitions(lines, name or "x"), *around_words(lines, [name.lower() or "x"])]:
        assert 1 <= passage.first <= passage.last <= len(lines)


def test_ranges_and_odd_characters() -> None:
    assert with_range("a/b.py:10-20") == ("a/b.py", 10, 20)
    assert with_range("a/b.py:7") == ("a/b.py", 7, 7)
    assert with_range("a/b.py") == ("a/b.py", 0, 0)
    assert visible("a\u202eb\x1b[0m\u200bc\U000e0041\t한\ud800") == "a\\u202eb\\x1b[0m\\u200bc\\U000e0041\t한\\ud800"
    assert quotable_lines(["x" * 5_000_000], 1, 1)[0].endswith("x… [4,998,000 more characters in this line]")


def texts(answer: Answer) -> list[tuple[str, str, str, str]]:
    return [(one["path"], one["source"], one["on_disk"], one["text"]) for one in answer["matches"]]


def test_a_path_gives_the_file_from_disk_and_both_where_they_differ(saved_box: Box) -> None:
    same = call(saved_box, "recall", what="src/a.py")
    saved_box.put("src/a.py", "one\nTWO\nthree\n")
    changed = call(saved_box, "recall", what="src/a.py")
    (saved_box.project / "src/a.py").unlink()
    answer = call(saved_box, "recall", what="src/a.py")

    assert texts(same) == [("src/a.py", "disk", "same", "one\n2\nthree")]
    assert texts(changed) == [
        ("src/a.py", "disk", "changed", "one\nTWO\nthree"),
        ("src/a.py", "checkpoint", "changed", "one\n2\nthree"),
    ]
    assert texts(answer) == [("src/a.py", "checkpoint", "gone", "one\n2\nthree")]


@pytest.mark.parametrize("what", ["a.py", "./src/a.py", "src//a.py", "src/../src/a.py"])
def test_a_path_may_be_given_in_other_ways(saved_box: Box, what: str) -> None:
    assert call(saved_box, "recall", what=what)["matches"][0]["path"] == "src/a.py"


def test_an_absolute_path_and_a_range(saved_box: Box) -> None:
    answer = call(saved_box, "recall", what=f"{saved_box.project}/src/a.py:2-9")

    assert (answer["matches"][0]["text"], answer["matches"][0]["lines"]) == ("2\nthree", "2-3 of 3")
    assert call(saved_box, "recall", what="src/a.py:50")["matches"][0]["remark"] == "it has only 3 lines"


def test_an_older_version_is_recalled_as_it_was(saved_box: Box) -> None:
    answer = call(saved_box, "recall", what="src/a.py", reference="v1")

    assert texts(answer)[-1] == ("src/a.py", "checkpoint", "changed", "one\ntwo\nthree")
    assert texts(call(saved_box, "recall", what="two", reference="v1"))[0][:2] == ("src/a.py", "checkpoint")


def test_a_name_gives_its_definition_and_words_their_surroundings(saved_box: Box) -> None:
    saved_box.put("src/new.py", "def fresh():\n    return 'not saved yet'\n")

    named = call(saved_box, "recall", what="Thing.act")
    fresh = call(saved_box, "recall", what="fresh")
    words = call(saved_box, "recall", what="READ me")

    assert (named["read_as"], named["matches"][0]["text"]) == (
        "symbol",
        "    def act(self):\n        return hello()",
    )
    assert fresh["matches"][0]["on_disk"] == "changed"
    assert (words["read_as"], words["matches"][0]["path"]) == ("words", "README")


def test_binary_large_and_left_out_files_are_named_not_shown(saved_box: Box) -> None:
    saved_box.put("picture.png", bytes(range(256)) * 10)
    saved_box.put("huge.txt", "line of text\n" * 20_000)
    saved_box.put("minified.js", "x" * 5_000_000)
    saved_box.save("-m", "large ones")

    binary = call(saved_box, "recall", what="picture.png")
    huge = call(saved_box, "recall", what="huge.txt")
    minified = call(saved_box, "recall", what="minified.js")

    assert binary["matches"][0]["remark"] == "binary, 2,560 bytes"
    assert "did not fit" in huge["left_out"][0]
    assert len(huge["matches"][0]["text"]) <= 24_000
    assert len(minified["matches"][0]["text"]) < 2_100
    again = huge["left_out"][0].split(" ")[0]
    assert call(saved_box, "recall", what=again)["matches"][0]["text"].startswith("line of text")


def test_what_lies_outside_or_is_never_captured_is_not_read(saved_box: Box) -> None:
    saved_box.put("inside.txt", "inside\n")
    secret = saved_box.home / "outside.txt"
    secret.write_text("outside\n")
    (saved_box.project / "link").symlink_to(saved_box.home)
    (saved_box.project / "direct.txt").symlink_to(secret)
    os.mkfifo(saved_box.project / "pipe")

    for what in ("link/outside.txt", "direct.txt", "../outside.txt", str(secret), ".keepfast/workspace.json", "pipe"):
        answer = call(saved_box, "recall", what=what)
        assert "outside\n" not in answer.text and '"id"' not in answer.text, what
