"""`keepfast restore`, `undo` and `redo` as a person and a script meet them."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.app.restore.child import command
from tests.equipment.box import SOURCE, Box


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """A project with two checkpoints, and an edit that neither has."""
    box = Box(tmp_path)
    assert box.call("init").code == 0
    box.put("a.txt", "one\n")
    box.put("src/b.txt", "".join(f"line {number}\n" for number in range(30)))
    box.save("-m", "first")
    box.put("a.txt", "two\n")
    box.save("-m", "second")
    return box


def text(box: Box, name: str) -> str:
    return (box.project / name).read_text()


def test_a_dry_run_shows_what_would_be_done_and_does_nothing(box: Box) -> None:
    box.put("c.txt", "new\n")
    before = box.state()

    result = box.call("restore", "v1", "--dry-run")
    listed = box.call("restore", "v1", "--dry-run", "--json").json()

    assert result.code == 0
    assert result.out.index("! c.txt") < result.out.index("~ a.txt")
    assert {step["path"]: step["action"] for step in listed["steps"]} == {"a.txt": "write", "c.txt": "delete"}
    assert [path["path"] for path in listed["conflicts"]] == ["c.txt"]
    assert box.state() == before


def test_a_script_says_yes_and_is_told_what_was_done(box: Box) -> None:
    result = box.call("restore", "v1", "-y", "--json")

    assert result.code == 0
    answer = result.json()
    assert (answer["restored"], answer["target"], answer["before"], answer["written"]) == (True, "v1", "v3", 1)
    assert text(box, "a.txt") == "one\n"


def test_a_script_that_does_not_say_yes_is_told_so(box: Box) -> None:
    result = box.call("restore", "v1")

    assert result.code == 2
    assert "-y" in result.err
    assert text(box, "a.txt") == "two\n"


def test_work_that_no_checkpoint_has_stops_a_script_with_exit_code_14(box: Box) -> None:
    box.put("a.txt", "unsaved\n")
    before = box.state()

    result = box.call("restore", "v1")
    in_json = box.call("restore", "v1", "--json").json()

    assert result.code == 14
    assert "a.txt" in result.err and "--theirs" in result.err and "--keep-mine" in result.err
    assert in_json["error"]["kind"] == "conflict"
    assert box.state() == before


def test_keep_mine_leaves_it_and_theirs_takes_the_checkpoints(box: Box) -> None:
    box.put("a.txt", "unsaved\n")
    (box.project / "src/b.txt").unlink()

    assert box.call("restore", "v1", "-y", "--keep-mine").code == 0
    assert text(box, "a.txt") == "unsaved\n"
    assert (box.project / "src/b.txt").exists()

    box.put("a.txt", "unsaved again\n")
    assert box.call("restore", "v1", "-y", "--theirs").code == 0
    assert text(box, "a.txt") == "one\n"
    assert box.call("undo", "-y").code == 0
    assert text(box, "a.txt") == "unsaved again\n"
    assert box.call("redo", "-y").code == 0
    assert text(box, "a.txt") == "one\n"


def test_only_the_paths_after_the_dashes_come_back(box: Box) -> None:
    (box.project / "src/b.txt").unlink()

    result = box.call("restore", "v1", "-y", "--", "b.txt", cwd=box.project / "src")

    assert result.code == 0, result.err
    assert (box.project / "src/b.txt").exists()
    assert text(box, "a.txt") == "two\n"


@pytest.mark.parametrize("more", [(), ("-y",), ("--dry-run",), ("--patch",)], ids=" ".join)
def test_a_path_that_is_nowhere_is_named(box: Box, more: tuple[str, ...]) -> None:
    before = box.state()

    result = box.call("restore", "v1", *more, "--", "a.txt", "src/typo.txt")

    assert (result.code, result.err.splitlines()[0]) == (4, "keepfast: src/typo.txt is neither in v1 nor on disk.")
    assert box.state() == before


def test_a_path_that_only_the_checkpoint_or_only_the_disk_has_is_known(box: Box) -> None:
    (box.project / "a.txt").unlink()
    box.put("new.txt", "new\n")

    result = box.call("restore", "v1", "-y", "--theirs", "--", "a.txt", "new.txt")

    assert result.code == 0
    assert text(box, "a.txt") == "one\n"
    assert not (box.project / "new.txt").exists()


def test_nothing_to_do_is_said(box: Box) -> None:
    result = box.call("restore", "v2", "-y")

    assert (result.code, "Already at v2." in result.out) == (0, True)
    assert box.call("restore", "v2", "-y", "--json").json() == {
        "restored": False,
        "reason": "nothing to do",
        "missing": [],
        "left_out": [],
        "untouched": [],
    }


def test_a_pointer_that_leads_into_the_folder_is_named_also_where_nothing_else_is_to_be_done(box: Box) -> None:
    box.put(".git", "gitdir: e\n")
    box.call("save", "-m", "with a pointer")
    (box.project / ".git").unlink()

    result = box.call("restore", "v3", "-y", "--json")
    answer = result.json()

    assert (result.code, answer["restored"], [one["path"] for one in answer["untouched"]]) == (0, False, [".git"])
    assert ".git" in box.call("restore", "v3", "-y").err
    box.put("a.txt", "something to do\n")
    assert ".git" in box.call("restore", "v3", "-y").err
    assert not (box.project / ".git").exists()


def test_each_step_names_the_command_that_takes_it_back(box: Box) -> None:
    named = [
        box.call(*words, "-y").out.rpartition("`keepfast ")[2] for words in (("restore", "v1"), ("undo",), ("redo",))
    ]

    assert [words.partition("`")[0] for words in named] == ["undo", "redo", "undo"]
    assert box.call("undo", "-y").code == 0


@pytest.mark.parametrize("words", [("restore", "v1"), ("undo",), ("redo",)])
def test_whose_version_counts_is_said_once(box: Box, words: tuple[str, ...]) -> None:
    for more in ((), ("-y",)):  # with -y the command line is read without click where it can be
        result = box.call(*words, "--keep-mine", "--theirs", *more)

        assert (result.code, result.err.splitlines()[0]) == (
            2,
            "keepfast: --keep-mine and --theirs cannot be combined.",
        )


def test_nothing_to_continue_abort_undo_or_redo_is_said(box: Box) -> None:
    for words in (("restore", "--continue"), ("restore", "--abort"), ("undo", "-y"), ("redo", "-y")):
        assert box.call(*words).code == 4, words


def test_a_restore_that_was_cut_off_is_in_status_and_can_be_ended_either_way(box: Box) -> None:
    for way, content in (("--continue", "one\n"), ("--abort", "two\n")):
        box.put("a.txt", "two\n")
        done = subprocess.run(command("restore", box.project, box.store, "--fast", "--kill", "restore:folders:1"))
        assert done.returncode == -signal.SIGKILL

        answer, listed = box.call("status"), box.call("status", "--json").json()

        assert "The restore of v1 was interrupted" in answer.out
        assert (listed["restore"]["state"], listed["restore"]["target"]) == ("cut off", "v1")
        refused = box.call("restore", "v2", "-y")
        assert refused.code == 14 and "--continue" in refused.err
        ended = box.call("restore", way)
        assert ended.code == 0, ended.err
        assert text(box, "a.txt") == content
        assert box.call("status", "--json").json()["restore"] is None


def test_what_is_kept_as_it_is_is_said_to_be(box: Box) -> None:
    box.put("src/b.txt", "mine\n")
    box.put("a.txt", "mine\n")

    result = box.call("restore", "v1", "-n", "--keep-mine", "--", "a.txt")
    answer = box.call("restore", "v1", "-n", "--keep-mine", "--json").json()
    alone = box.call("restore", "v1", "-y", "--keep-mine", "--", "a.txt")

    assert "a.txt (kept)" in result.out and "excluded" not in result.out and "Already" not in result.out
    assert answer["conflicts"] == answer["steps"] == []
    assert "a.txt" in alone.err and "Already" not in alone.out
    assert text(box, "a.txt") == "mine\n"


def test_what_was_left_out_and_is_gone_is_not_said_to_be_left_alone(box: Box) -> None:
    box.put("node_modules/x.js", "x")
    box.save()
    shutil.rmtree(box.project / "node_modules")

    result = box.call("restore", "v3", "-n")

    assert "Skipped" not in result.out
    assert "node_modules (missing)" in result.err


def test_a_dry_run_of_ending_a_restore_that_was_cut_off_changes_nothing(box: Box) -> None:
    done = subprocess.run(command("restore", box.project, box.store, "--fast", "--kill", "restore:folders:1"))
    assert done.returncode == -signal.SIGKILL
    before, versions = box.state(), len(box.call("list", "--all", "--json").json())

    for way, target in (("--continue", "v1"), ("--abort", "v3")):
        result = box.call("restore", way, "-n")
        answer = box.call("restore", way, "--dry-run", "--json").json()

        assert result.code == 0 and target in result.out
        assert (answer["dry_run"], answer["target"]) == (True, target)
        assert [one["path"] for one in answer["steps"]] == (["a.txt"] if way == "--continue" else [])
    assert box.state() == before and text(box, "a.txt") == "two\n"
    assert len(box.call("list", "--all", "--json").json()) == versions
    assert box.call("status", "--json").json()["restore"]["state"] == "cut off"


def test_without_a_restore_that_was_cut_off_a_dry_run_of_its_end_says_so(box: Box) -> None:
    for way in ("--continue", "--abort"):
        assert box.call("restore", way, "-n").code == 4


def on_a_terminal(box: Box, *words: str, answers: list[tuple[bytes, bytes]]) -> bytes:
    """Run the real program on a terminal; type each answer when its question has been shown."""
    leader, follower = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "keepfast", *words],
        cwd=box.project,
        env={**box.variables, "PYTHONPATH": str(SOURCE), "TERM": "dumb"},
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    output, seen = b"", 0
    waiting = list(answers)
    until = time.monotonic() + 60
    try:
        while time.monotonic() < until:
            output += os.read(leader, 65536)
            while waiting and waiting[0][0] in output[seen:]:
                question, answer = waiting.pop(0)
                seen = output.index(question, seen) + len(question)
                os.write(leader, answer + b"\n")
    except OSError:
        pass  # how Linux says that nobody has the other end any more
    child.wait()
    os.close(leader)
    assert not waiting, output
    return output


def test_single_hunks_are_chosen_one_by_one(box: Box) -> None:
    lines = [f"line {number}\n" for number in range(30)]
    lines[2], lines[15], lines[27] = "changed 2\n", "changed 15\n", "changed 27\n"
    box.put("src/b.txt", "".join(lines))
    (box.project / "src/b.txt").chmod(0o640)

    answers = [(b"hunk 1 of 3", b"y"), (b"hunk 2 of 3", b"n"), (b"hunk 3 of 3", b"y")]
    result = on_a_terminal(box, "restore", "v1", "--patch", "--", "src/b.txt", answers=answers)

    lines[2], lines[27] = "line 2\n", "line 27\n"
    assert text(box, "src/b.txt") == "".join(lines), result
    assert (box.project / "src/b.txt").stat().st_mode & 0o777 == 0o640
    assert text(box, "a.txt") == "two\n"
    assert box.call("undo", "-y").code == 0
    assert "changed 2\n" in text(box, "src/b.txt")


def test_choosing_no_hunk_changes_nothing(box: Box) -> None:
    box.put("src/b.txt", "other\n")
    before = box.state(box.project)

    result = on_a_terminal(box, "restore", "v1", "-p", "--", "src/b.txt", answers=[(b"hunk 1 of 1", b"q")])

    assert b"No hunk chosen" in result
    assert box.state(box.project) == before
    assert box.call("restore", "v1", "--patch").code == 2  # nobody to ask


def test_a_person_is_asked_and_may_say_no(box: Box) -> None:
    box.put("a.txt", "unsaved\n")

    result = on_a_terminal(box, "restore", "v1", answers=[(b"Restore v1?", b"n")])

    assert b"Unsaved changes" in result and b"Nothing changed" in result
    assert text(box, "a.txt") == "unsaved\n"
    on_a_terminal(box, "restore", "v1", answers=[(b"Restore v1?", b"y")])
    assert text(box, "a.txt") == "one\n"


# What was left out


@pytest.fixture
def left(tmp_path: Path) -> Box:
    """A project whose only checkpoint leaves out a large file, the dependencies, and git's own folder."""
    box = Box(tmp_path)
    assert box.call("config", "set", "capture.max_file_size", "1000").code == 0
    assert box.call("init").code == 0
    box.put("a.txt", "one\n")
    box.put("models/big.bin", "y" * 2000)
    box.put("package-lock.json", "{}")
    box.put("node_modules/a/index.js", "x")
    box.put(".git/HEAD", "ref: refs/heads/main\n")
    box.save("-m", "first")
    return box


MISSING = {"models/big.bin": None, "node_modules": "npm ci", ".git": None}


def remove_left_out(box: Box) -> None:
    subprocess.run(["rm", "-rf", *[str(box.project / name) for name in MISSING]], check=True)


def test_what_was_left_out_and_is_missing_is_named_where_nothing_else_is_to_be_done(left: Box) -> None:
    remove_left_out(left)
    result = left.call("restore", "v1", "-y")
    answer = left.call("restore", "v1", "-y", "--json")
    dry = left.call("restore", "v1", "-n", "--json").json()

    assert (result.code, answer.code) == (0, 0)
    assert "Already at v" not in result.out + result.err
    for name in MISSING:
        assert name in result.err
    assert "npm ci" in result.err
    assert answer.json()["restored"] is False
    assert {one["path"]: one["command"] for one in answer.json()["missing"]} == MISSING
    assert {one["path"]: one["command"] for one in dry["missing"]} == MISSING


def test_it_is_named_after_a_restore_that_did_something_too(left: Box) -> None:
    remove_left_out(left)
    left.put("a.txt", "two\n")
    left.save("-m", "second")
    answer = left.call("restore", "v1", "-y", "--json").json()
    (left.project / "a.txt").write_text("one\n")
    result = left.call("undo", "-y", "--theirs")

    assert answer["restored"] is True
    assert {one["path"] for one in answer["missing"]} == set(MISSING)
    assert result.code == 0


def test_nothing_is_named_while_it_is_there(left: Box) -> None:
    answer = left.call("restore", "v1", "-y", "--json").json()

    assert answer["missing"] == []
    assert {one["path"] for one in answer["left_out"]} == set(MISSING)
    assert "Everything" not in left.call("restore", "v1", "-y").out


def test_of_some_paths_nothing_is_said_of_all_others(left: Box) -> None:
    shutil.rmtree(left.project / "node_modules")

    assert "Everything" not in left.call("restore", "v1", "-y", "--", "a.txt").out


def test_what_was_left_out_and_is_not_what_it_was_is_named(left: Box) -> None:
    big, modules = left.project / "models" / "big.bin", left.project / "node_modules"

    def differing() -> list[str]:
        answer = left.call("restore", "v1", "-y", "--json").json()
        assert answer["restored"] is False
        return [one["path"] for one in answer["missing"] if one["state"] != "missing"]

    big.write_text("z" * 2000)
    assert differing() == ["models/big.bin"]
    big.write_text("tiny")
    left.save("-m", "tiny")
    left.call("restore", "v1", "-y", "--json")
    big.unlink(missing_ok=True)
    big.mkdir()
    shutil.rmtree(modules / "a")
    missing = left.call("restore", "v1", "-y", "--json").json()["missing"]
    states = {one["path"]: one["state"] for one in missing if one["state"] != "missing"}
    assert states == {"models/big.bin": "differs", "node_modules": "empty"}
    modules.rmdir()
    modules.write_text("a file")
    missing = left.call("restore", "v1", "-y", "--json").json()["missing"]
    assert ("node_modules", "differs") in {(one["path"], one["state"]) for one in missing}


def test_a_later_version_knows_what_it_left_out_as_it_was_then(left: Box) -> None:
    left.put("models/big.bin", "z" * 3000)
    left.put("a.txt", "two\n")
    left.save("-m", "second")

    assert left.call("restore", "v2", "-y", "--json").json()["missing"] == []
    missing = left.call("restore", "v1", "-y", "--json").json()["missing"]
    assert [one["path"] for one in missing if one["state"] != "missing"] == ["models/big.bin"]


def save_with_big(box: Box, content: str = "") -> None:
    """A version that holds what the others leave out for its size: this content, or what is there."""
    assert box.call("config", "set", "capture.max_file_size", "10000").code == 0
    if content:
        box.put("models/big.bin", content)
    box.save("-m", "with it")
    assert box.call("config", "set", "capture.max_file_size", "1000").code == 0


def test_what_another_version_has_is_named_with_that_version(left: Box) -> None:
    big = left.project / "models" / "big.bin"
    content = big.read_text()
    save_with_big(left)
    big.unlink()
    left.save("-m", "without it")
    result = left.call("restore", "v1", "-y")
    done = left.call("restore", "v1", "-n", "--json").json()
    nothing = left.call("restore", "v1", "-y", "--json").json()
    refused = left.call("restore", "v1", "-y", "--json", "--", "models/big.bin")

    for answer in (done, nothing):
        assert {one["path"]: one["held_by"] for one in answer["missing"]} == {"models/big.bin": "v2"}
        assert {one["path"]: one["held_by"] for one in answer["left_out"]}["models/big.bin"] == "v2"
    assert "keepfast restore v2 -- models/big.bin" in result.err
    assert refused.code == 4
    assert "restore v2 -- models/big.bin" in refused.json()["error"]["hint"]
    assert left.call("restore", "v2", "-y", "--", "models/big.bin").code == 0
    assert big.read_text() == content


def test_a_version_that_has_another_content_does_not_have_it(left: Box) -> None:
    save_with_big(left, "y" * 2001)

    result = left.call("restore", "v1", "-y")
    missing = left.call("restore", "v1", "-n", "--json").json()["missing"]
    refused = left.call("restore", "v1", "-y", "--json", "--", "models/big.bin")

    assert [one["held_by"] for one in missing] == [None]
    assert "v2 has a later state: `keepfast restore v2 -- models/big.bin`" in result.err
    assert refused.code == 4
    assert refused.json()["error"]["hint"].startswith("v2 has a later state: ")


@pytest.mark.parametrize("paths", [(), ("node_modules",), ("node_modules/a/index.js",)])
def test_a_folder_that_is_left_out_now_and_is_not_as_the_version_has_it_is_named(
    left: Box, paths: tuple[str, ...]
) -> None:
    """No version but the one that was made before a command has it, and a restore does not write into what it cannot read."""
    file = left.project / "node_modules" / "a" / "index.js"
    assert left.call("config", "set", "capture.exclude", "other/").code == 0
    left.save("-m", "with it")
    assert left.call("config", "unset", "capture.exclude").code == 0
    left.put("a.txt", "two\n")
    left.save("-m", "without it")
    left.put("a.txt", "one\n")
    same = left.call("restore", "v2", "-y", "--json", "--", *paths or ["."]).json()
    file.write_text("another")
    other = left.call("restore", "v2", "-y", "--json", "--", *paths or ["."])
    result = left.call("restore", "v2", "-y", "--", *paths)

    assert same.get("untouched") == []
    assert [one["path"] for one in other.json()["untouched"]] == list(paths or ("node_modules",))
    assert (other.code, result.code) == (0, 0)
    assert "lready at v" not in result.out
    assert "node_modules" in result.err
    assert file.read_text() == "another"
    shutil.rmtree(left.project / "node_modules")
    assert left.call("restore", "v2", "-y", "--", *paths).code == 0
    assert file.read_text() == "x"


def test_of_two_versions_that_have_it_the_next_one_is_named_and_a_forgotten_one_never(left: Box) -> None:
    big = left.project / "models" / "big.bin"
    content, status = big.read_text(), big.stat()
    save_with_big(left)
    left.put("models/big.bin", "z" * 2001)
    left.save("-m", "changed")
    big.write_text(content)
    os.utime(big, ns=(status.st_atime_ns, status.st_mtime_ns))
    save_with_big(left)
    big.unlink()
    left.save("-m", "without it")

    def named() -> list[str | None]:
        return [one["held_by"] for one in left.call("restore", "v1", "-n", "--json").json()["missing"]]

    assert named() == ["v2"]
    assert left.call("forget", "v2", "-y").code == 0
    assert named() == ["v4"]
    assert left.call("forget", "v4", "-y").code == 0
    assert named() == [None]


def test_of_some_paths_only_what_lies_there_is_named(left: Box) -> None:
    remove_left_out(left)
    (left.project / "models").mkdir(exist_ok=True)
    inside = left.call("restore", "v1", "-y", "--json", "--", "models").json()
    beside = left.call("restore", "v1", "-y", "--json", "--", "a.txt").json()

    assert [one["path"] for one in inside["missing"]] == ["models/big.bin"]
    assert beside["missing"] == []


@pytest.mark.parametrize("path", ["models/big.bin", "node_modules", "node_modules/a/index.js", ".git"])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_path_that_was_left_out_cannot_be_asked_for(left: Box, path: str, is_there: bool) -> None:
    if not is_there:
        remove_left_out(left)
    result = left.call("restore", "v1", "-y", "--", path)

    assert result.code == 4
    assert "excluded from v1" in result.err


def test_status_and_show_name_git_s_own_folder(left: Box) -> None:
    assert [one["path"] for one in left.call("status", "--json").json()["not_covered"]] == [".git"]
    assert [one["path"] for one in left.call("show", "v1", "--json").json()["not_covered"]] == [".git"]
    assert ".git: git's own folder" in left.call("status").out
    assert ".git: git's own folder" in left.call("show", "v1").out


def test_show_left_out_shows_that_only(left: Box) -> None:
    result = left.call("show", "v1", "--left-out")

    assert result.code == 0
    assert [line.strip().partition(":")[0] for line in result.out.splitlines()[1:]] == [
        ".git",
        "models/big.bin",
        "node_modules",
    ]
    assert "a.txt" not in result.out


def test_undo_names_what_a_restore_brought_and_it_leaves_there(left: Box) -> None:
    assert left.call("config", "set", "capture.max_file_size", "5000").code == 0
    left.save("-m", "with the large file")
    assert left.call("config", "set", "capture.max_file_size", "1000").code == 0
    (left.project / "models" / "big.bin").unlink()
    (left.project / "a.txt").unlink()
    left.save("-m", "without")
    assert left.call("restore", "v2", "-y").code == 0
    result = left.call("undo", "-y")

    assert not (left.project / "a.txt").exists()
    assert (left.project / "models" / "big.bin").exists() is ("models/big.bin" in result.err)
