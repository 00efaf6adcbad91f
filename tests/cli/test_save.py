"""Saving: what is printed, what is silent, and what is remembered for `status`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from keepfast.state import notices
from tests.equipment.box import DAY, HOUR, MINUTE, SOURCE, Box
from tests.equipment.folders import written


def test_the_first_save_says_what_was_kept(box: Box) -> None:
    box.call("init")
    box.put("a.txt", "hello")
    box.put("node_modules/x.js", "x")

    result = box.call("save", "-m", "hello")

    assert box.plain(result.out) == 'Created v1 "hello" (Nms)\n'
    assert (
        result.err
        == "Saved 1 file, 5B.\nExcluded: 1 matching an exclusion rule. Run `keepfast show --excluded` to list them.\n"
    )


def test_a_manual_save_of_an_unchanged_tree_makes_a_version(saved_box: Box) -> None:
    result = saved_box.call("save")

    assert saved_box.plain(result.out) == "Created v4 (Nms)\n"
    assert result.err == ""


def test_an_automatic_save_of_an_unchanged_tree_makes_none(saved_box: Box) -> None:
    result = saved_box.call("save", "--auto")

    assert (result.code, result.out, result.err) == (0, "", "")
    assert saved_box.versions() == ["v3", "v2", "v1"]
    assert saved_box.call("save", "--auto", "--json").json() == {"status": "unchanged"}


@pytest.mark.parametrize("text", ["{ nonsense", '{"capture": {"max_files": "many"}}'])
@pytest.mark.parametrize("verb", ["save", "checkpoint"])
def test_an_automatic_save_goes_on_by_the_last_good_settings(saved_box: Box, verb: str, text: str) -> None:
    elsewhere = saved_box.home / "elsewhere"
    elsewhere.mkdir()
    saved_box.config.parent.mkdir(parents=True, exist_ok=True)
    saved_box.config.write_text('{"capture": {"max_file_size": "1KB"}}')
    assert saved_box.call("status").code == 0
    saved_box.config.write_text(text)
    saved_box.put("large", "x" * 2000)

    done, outside = saved_box.call(verb, "--auto"), saved_box.call(verb, "--auto", cwd=elsewhere)
    by_hand = saved_box.call(verb)
    saved_box.config.unlink()

    assert (done.code, done.out, done.err) == (outside.code, outside.out, outside.err) == (0, "", "")
    assert by_hand.code == 2
    assert saved_box.versions()[0] == "v4"
    assert saved_box.call("cat", "v4", "large").code == 4
    notices_stored = saved_box.call("status", "--json").json()["notices"]
    assert [(notice["kind"], str(saved_box.config) in notice["text"]) for notice in notices_stored] == [
        ("noticed", True)
    ]


def test_what_is_too_large_for_the_description_is_named(saved_box: Box) -> None:
    saved_box.put("big.csv", b"x" * 1_500_000)

    answer = saved_box.call("save", "--json").json()
    saved_box.put("big.csv", b"y" * 1_500_000)
    result = saved_box.call("save", "-m", "again")
    saved_box.put("big.csv", b"z" * 1_500_000)
    quiet = saved_box.call("save", "--auto")

    assert ["big.csv" in notice for notice in answer["notices"]] == [True]
    assert result.code == 0 and result.err.count("big.csv") == 1
    assert quiet.err == ""


def test_all_that_was_left_out_is_told_without_the_checkpoint(saved_box: Box) -> None:
    saved_box.put("node_modules/x.js", "x")
    saved_box.save()

    answer = saved_box.call("show", "--left-out", "--json").json()

    assert set(answer) == {"version", "coverage", "left_out", "not_covered"}
    assert "node_modules" in [one["path"] for one in answer["left_out"]]


def test_an_automatic_save_may_have_a_message(saved_box: Box) -> None:
    saved_box.put("x", "x")
    saved_box.call("save", "--auto", "-m", "after the tests")

    row = saved_box.call("list", "--json", "--limit", "1").json()[0]
    assert (row["message"], row["trigger"], row["created_by"]) == ("after the tests", "auto", "auto")


def test_everything_that_was_given_is_kept(box: Box) -> None:
    box.call("init")
    words = [
        "-m",
        "m",
        "--name",
        "n",
        "--tag",
        "b",
        "--tag",
        "a",
        "--tag",
        "b",
        "--pin",
        "--session",
        "s",
        "--task",
        "t",
    ]
    box.call("save", *words)

    row = box.call("list", "--json").json()[0]
    assert (row["message"], row["name"], row["tags"], row["pinned"]) == ("m", "n", ["b", "a"], True)
    assert (row["session_id"], row["task_id"], row["created_by"]) == ("s", "t", "user")
    assert row["created_at"] == "2026-03-01T12:00:00.000000Z"


def test_a_message_does_not_repeat_what_this_save_seals(saved_box: Box) -> None:
    saved_box.put(".env", "GREETING=sunny-Meadow-41x\n")
    saved_box.save("-m", "GREETING is sunny-Meadow-41x now", "--tag", "sunny-Meadow-41x")
    saved_box.save("-m", "still sunny-Meadow-41x")

    newest, before = saved_box.call("list", "--json", "--limit", "2").json()
    assert (before["message"], before["tags"]) == ("GREETING is [redacted:secret] now", ["[redacted:secret]"])
    assert newest["message"] == "still [redacted:secret]"
    assert saved_box.call("cat", "latest", ".env").out == "GREETING=sunny-Meadow-41x\n"


def test_a_save_that_captures_nothing_is_loud(box: Box) -> None:
    box.call("init")

    result = box.call("save")

    assert result.code == 0
    assert "Warning: no file was saved. The folder is empty." in result.err


def test_a_save_that_leaves_out_more_than_it_keeps_is_loud_even_when_quiet(box: Box) -> None:
    box.call("init")
    box.put("a.txt")
    for name in ("x/node_modules/", "y/node_modules/", "z/node_modules/"):
        box.put(name + "package.json")

    result = box.call("-q", "save")

    assert result.out == ""
    assert "Warning: 3 entries were excluded, more than the 1 saved" in result.err


def test_quiet_says_nothing(saved_box: Box) -> None:
    result = saved_box.call("-q", "save", "-m", "quiet")

    assert (result.code, result.out, result.err) == (0, "", "")


def test_a_message_that_is_not_utf8_is_kept_as_well_as_can_be(box: Box) -> None:
    box.call("init")

    result = box.run("save", "-m", b"caf\xe9")

    assert result.code == 0
    assert box.call("list", "--json").json()[0]["message"] == "caf\ufffd"


def test_a_message_of_several_lines_is_one_line_in_tables(saved_box: Box) -> None:
    saved_box.save("-m", "first line\nsecond \x1b[31mline")

    assert '"first line …"' in saved_box.call("list", "--limit", "1").out
    assert "\x1b" not in saved_box.call("show").out
    assert saved_box.call("list", "--json", "--limit", "1").json()[0]["message"] == "first line\nsecond \x1b[31mline"


@pytest.mark.parametrize("words", [["--tag", "a\nb"], ["--tag", " a"], ["--name", "v3"], ["--session", "a\tb"]])
def test_words_that_cannot_be_kept_are_refused_before_anything_happens(saved_box: Box, words: list[str]) -> None:
    before = saved_box.state()

    result = saved_box.call("save", *words)

    assert result.code == 2
    assert saved_box.state() == before


# What hooks must not tell an agent is told by `status`


def test_a_store_out_of_reach_is_silent_for_hooks_and_shown_by_status(saved_box: Box) -> None:
    away = saved_box.store.with_name("away")
    saved_box.store.rename(away)
    saved_box.put("new", "x")

    result = saved_box.call("save", "--auto")
    assert (result.code, result.out, result.err) == (0, "", "")

    away.rename(saved_box.store)
    saved_box.now += 5 * MINUTE
    assert "5 minutes ago, a checkpoint (auto) skipped: Store " in saved_box.call("status").out


def test_a_failed_hook_is_one_line_and_shown_by_status(saved_box: Box) -> None:
    log = next(path for path in (saved_box.store / "log").glob("*.log") if path.name != "store.log")
    whole = log.read_bytes()
    log.write_bytes(whole[:-20])
    saved_box.put("new", "x")

    result = saved_box.call("save", "--auto")
    assert (result.code, result.out) == (1, "")
    assert result.err.count("\n") == 1

    log.write_bytes(whole)
    notices_stored = saved_box.call("status", "--json").json()["notices"]
    assert [(notice["kind"], notice["trigger"]) for notice in notices_stored] == [("failed", "auto")]
    saved_box.now += 8 * DAY
    assert saved_box.call("status", "--json").json()["notices"] == []


def test_a_wrong_flag_in_a_hook_never_blocks_the_agent(saved_box: Box) -> None:
    assert saved_box.call("save", "--auto", "--nonsense").code == 1
    assert saved_box.call("save", "--nonsense").code == 2


def test_an_automatic_save_in_a_folder_that_is_gone_is_silent(saved_box: Box) -> None:
    removed_folder = saved_box.project / "gone"
    removed_folder.mkdir()

    # The shell of a hook may stand in a folder that the agent removed.
    def leave() -> None:
        os.chdir(removed_folder)
        removed_folder.rmdir()

    result = saved_box.run("save", "--auto", before=leave)

    assert (result.code, result.out, result.err) == (0, "", "")


def test_notices_are_bounded_and_whole(box: Box) -> None:
    folder = str(box.project)
    for number in range(2_000):
        assert notices.append([folder], number, "failed", "auto", f"the disk is on fire, {number}")

    notices_stored = notices.read([folder])

    assert (box.project / "notices").stat().st_size <= notices.MAX_FILE_BYTES
    assert notices_stored[-1].text == "the disk is on fire, 1999"
    assert [notice.at for notice in notices_stored] == list(range(notices_stored[0].at, 2_000))


def test_notices_that_are_not_whole_are_passed_over(box: Box) -> None:
    notices.append([str(box.project)], 1, "failed", "auto", "good")
    with (box.project / "notices").open("ab") as file:
        file.write(b'{"at": "x"}\n[1]\n\xff\n{"at": 2, "kind": "fa')

    assert [notice.text for notice in notices.read([str(box.project)])] == ["good"]


# status


def test_status_shows_what_changed_and_what_is_left_out(saved_box: Box) -> None:
    saved_box.put("src/a.py", "changed")
    saved_box.put("new.txt", "new")
    (saved_box.project / "src/b.py").unlink()
    (saved_box.project / "src").chmod(0o700)
    server = socket.socket(socket.AF_UNIX)
    before = os.getcwd()
    os.chdir(saved_box.project)
    server.bind("door")
    os.chdir(before)
    saved_box.now += 2 * HOUR

    answer = saved_box.call("status", "--json").json()

    changed = {(change["path"], change["change"]) for change in answer["changes"]}
    assert changed == {
        ("src/a.py", "modified"),
        ("new.txt", "added"),
        ("src/b.py", "deleted"),
        ("src", "mode"),
        ("door", "left_out"),
    }
    assert answer["last"]["version"] == "v3"
    assert "2 hours ago" in saved_box.call("status").out


def test_status_looks_and_does_not_touch(saved_box: Box) -> None:
    saved_box.put("src/a.py", "changed")
    before = saved_box.state()

    assert len(saved_box.call("status", "--json").json()["changes"]) == 1
    assert len(saved_box.call("diff", "--json").json()["changes"]) == 1

    assert saved_box.state() == before
    assert saved_box.call("save", "--auto").code == 0
    assert saved_box.versions()[0] == "v4"  # looking did not make the change known


def test_status_outside_says_the_way_in(box: Box) -> None:
    assert "keepfast install claude" in box.call("status").err

    assert box.call("install", "claude").code == 0
    assert "let hooks do it" in box.call("status").err

    (box.project / ".git").mkdir()
    assert "let hooks do it" in box.call("status").err

    box.config.parent.mkdir(parents=True, exist_ok=True)
    box.config.write_text('{"adopt": "marked"}')
    assert "`adopt` keeps hooks from doing it" in box.call("status").err


def test_status_shows_warnings_of_settings(saved_box: Box) -> None:
    saved_box.config.parent.mkdir(parents=True)
    saved_box.config.write_text('{"capture": {"max_fil_size": 1}}')

    assert "unknown setting 'capture.max_fil_size'" in saved_box.call("status").out


def test_the_hook_keeps_its_notices_in_the_same_place(saved_box: Box) -> None:
    launch = SOURCE / "keepfast/hook/launch.py"
    away = saved_box.store.with_name("away")
    saved_box.store.rename(away)

    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", launch, *written(saved_box.home), "save", "--cwd", saved_box.project],
        env=saved_box.variables,
        capture_output=True,
    )
    away.rename(saved_box.store)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    notices_stored = notices.read([str(saved_box.project / ".keepfast")])
    assert [(notice.kind, notice.trigger) for notice in notices_stored] == [("skipped", "auto")]


def test_a_file_that_is_too_large_is_named_at_every_save(box: Box) -> None:
    box.call("init")
    box.call("config", "set", "capture.max_file_size", "1MB")
    box.put("big.bin", b"x" * 1_100_000)
    first = box.call("save")
    box.put("small", "x")
    second = box.call("save")

    assert "big.bin" in first.err and "big.bin" in second.err
