"""A restore in a script starts fast: its words are understood without click, and mean the same as with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from keepfast.cli import scripted
from keepfast.model import steps
from tests.equipment.box import SOURCE, Box, Result

LINES = [
    "restore v1 -y",
    "restore v1 -y --theirs",
    "restore v1 --yes --keep-mine",
    "restore -y --theirs v1 -- sub/b.txt",
    "restore v1 -y --theirs -- sub",
    "restore v1 -y --theirs -- .",
    "restore v1 -y --theirs -- sub/b.txt a.txt gone.txt",
    "restore v1 -y --theirs -- never-there",
    "restore v1 -y -- ../elsewhere",
    "restore v1 -y -- /etc/passwd",
    "restore v1 -y --theirs --",
    "restore v1 -y --theirs --mtimes --files",
    "restore v1 -n",
    "restore v1 --dry-run --json -- sub",
    "restore v1 -y --json",
    "restore v1 -y --json --theirs",
    "restore v1 -y --json --keep-mine",
    "restore v2 -y --theirs",
    "restore v9 -y",
    "restore v9 -y --json",
    "restore nothing-of-the-kind -y",
    "restore latest -y --theirs",
    "restore @~1 -y --theirs -- a.txt",
    "restore @{100d} -y",
    "restore cp- -y",
    "restore second -y --theirs",
    "restore -y",
    "restore -n --json",
    "restore --continue",
    "restore --abort --json",
    "restore --abort --continue",
    "restore v1 --continue",
    "-q restore v1 -y --theirs",
    "--quiet restore v1 -y",
    "-C sub restore v1 -y --theirs -- b.txt",
    "-C nowhere restore v1 -y",
    "--store /nonexistent/store restore v1 -y",
    "--config /nonexistent/config.json undo -y",
    "undo -y",
    "undo -y --theirs",
    "undo -n",
    "undo -n --json --theirs",
    "undo --yes --json --keep-mine",
    "redo -y",
    "redo --json -y",
    "redo -n",
]


def make(base: Path) -> Box:
    """A workspace with two versions, a restore that can be undone, an undo that can be redone, and unsaved work."""
    box = Box(base)
    box.call("init")
    for number in (1, 2):
        box.put("a.txt", f"a{number}\n")
        box.put("sub/b.txt", f"b{number}\n")
        box.put("sub/run.sh", "#!/bin/sh\n").chmod(0o755 if number == 1 else 0o600)
        box.put("same.txt", "same\n")
        if number == 1:
            box.put("gone.txt", "gone\n")
        else:
            (box.project / "gone.txt").unlink()
            box.put("new.txt", "new\n")
        box.save(*(("--name", "second") if number == 2 else ()))
        box.now += 60_000_000_000
    box.call("restore", "v1", "-y", "--", "a.txt")
    box.call("restore", "v1", "-y", "--", "sub/b.txt")
    box.call("undo", "-y")
    box.put("sub/b.txt", "unsaved\n")
    return box


def everything(box: Box) -> object:
    """What is on disk, and what the checkpoints are."""
    tree = {name.removeprefix(str(box.base)): state for name, state in box.state(box.project).items()}
    del tree["/home/project/.keepfast/workspace.json"]  # a workspace's id is its own
    status = [line for line in box.call("status").out.splitlines() if not line.startswith("Store ")]
    return tree, box.plain(box.call("list", "--json").out), box.plain("\n".join(status))


def told(box: Box, result: Result) -> tuple[int, str, str]:
    return result.code, box.plain(result.out), box.plain(result.err)


@pytest.mark.parametrize("line", LINES)
def test_both_ways_say_and_do_the_same(line: str, tmp_path: Path) -> None:
    with_click, without = make(tmp_path / "one"), make(tmp_path / "two")

    result = told(with_click, with_click.call(*line.split()))

    assert told(without, without.through(scripted.run, *line.split())) == result
    assert everything(without) == everything(with_click)


@pytest.mark.parametrize("word", ["--continue", "--abort"])
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_both_ways_end_a_restore_that_was_cut_off(word: str, more: list[str], tmp_path: Path) -> None:
    boxes = [make(tmp_path / name) for name in ("one", "two")]

    class Cut(BaseException):
        pass

    def cut(name: str) -> None:
        if name == "restore:placed":
            raise Cut

    for box in boxes:
        steps.observer = cut
        try:
            with pytest.raises(Cut):
                box.call("restore", "v1", "-y", "--theirs")
        finally:
            steps.observer = None
    with_click, without = boxes

    result = told(with_click, with_click.call("restore", word, *more))

    assert result[0] == 0, result
    assert told(without, without.through(scripted.run, "restore", word, *more)) == result
    assert everything(without) == everything(with_click)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "restore",
        "restore v1",
        "restore v1 v2 -y",
        "restore v1 --patch -y",
        "restore v1 -p",
        "restore v1 -yn",
        "restore v1 --th -y",
        "restore v1 --help -y",
        "restore v1 --theirs=yes -y",
        "restore -y -v1",
        "undo",
        "undo v1 -y",
        "undo -y -- a.txt",
        "redo -y --mtimes",
        "-C restore",
        "--config -q restore v1 -y",
        "--color never restore v1 -y",
        "--version restore v1 -y",
        "save -y",
        "list -y",
        "checkpoint restore v1 -y",
    ],
)
def test_whatever_is_not_plain_is_left_to_click(line: str) -> None:
    assert scripted.read(line.split()) is None


def test_an_empty_word_is_left_to_click() -> None:
    assert scripted.read(["restore", "", "-y"]) is None
    assert scripted.read(["-C", "", "restore", "v1", "-y"]) is None


def test_every_word_that_is_understood_is_one_that_click_has(box_words: dict[str, set[str]]) -> None:
    for verb, words in scripted.VERB_OPTIONS.items():
        assert set(words) <= box_words[verb]
    assert {*scripted.GLOBAL_FLAGS, *scripted.GLOBAL_OPTIONS_WITH_VALUE} <= box_words[""]


@pytest.fixture
def box_words() -> dict[str, set[str]]:
    """All options of the commands concerned, and of the root under an empty name."""
    from keepfast.cli import restore
    from keepfast.cli.root import root

    commands = {"": root, "restore": restore.restore, "undo": restore.undo, "redo": restore.redo}
    return {name: {word for option in command.params for word in option.opts} for name, command in commands.items()}


HEAVY = {
    *("click", "json", "re", "subprocess", "pathlib", "dataclasses", "typing", "enum", "datetime", "sqlite3"),
    *("contextlib", "inspect", "logging", "shutil", "tempfile", "asyncio", "cryptography"),
}


def test_a_file_comes_back_without_anything_heavy_being_loaded(tmp_path: Path) -> None:
    box = make(tmp_path)
    # Without the site module: what the installation itself loads at every start of Python is not ours.
    start = (
        "import sys; sys.path[:0] = sys.argv.pop(1).split(':'); from keepfast.cli.scripted import run;"
        "from keepfast.present.environment import now_ns, command_environment;"
        "code = run(sys.argv[1:], command_environment(), now_ns); print(code, *sorted(sys.modules), file=sys.stderr)"
    )
    paths = [str(SOURCE), *(path for path in sys.path if path.endswith("site-packages"))]
    words = ["restore", "v1", "-y", "--theirs", "--", "sub/b.txt"]

    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", start, ":".join(paths), *words],
        cwd=box.project,
        env=box.variables,
        capture_output=True,
        text=True,
        check=True,
    )

    code, *modules = done.stderr.split()
    assert code == "0"
    assert (box.project / "sub/b.txt").read_text() == "b1\n"
    assert sorted(HEAVY.intersection(modules)) == []


def test_the_program_itself_goes_this_way(tmp_path: Path) -> None:
    """`python -m keepfast` and the installed script both: click is taken away, and the restore works all the same."""
    box = make(tmp_path)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/click.py").write_text("raise SystemExit('click was loaded')\n")
    script = Path(sys.executable).with_name("keepfast")
    starts = [[sys.executable, "-m", "keepfast"], *([[str(script)]] if script.exists() else [])]
    path = os.pathsep.join((str(tmp_path / "broken"), str(SOURCE)))

    for start in starts:
        box.put("sub/b.txt", "changed\n")
        done = subprocess.run(
            [*start, "restore", "v1", "-y", "--theirs", "--", "sub/b.txt"],
            cwd=box.project,
            env={**box.variables, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )

        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("Restored v1: 1 written (")
        assert (box.project / "sub/b.txt").read_text() == "b1\n"
