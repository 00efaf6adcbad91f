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


def test_a_manual_save_of_an_unchanged_tree_makes_a_version(kept: Box) -> None:
    result = kept.call("save")

    assert kept.plain(result.out) == "Created v4 (Nms)\n"
    assert result.err == ""


def test_an_automatic_save_of_an_unchanged_tree_makes_none(kept: Box) -> None:
    result = kept.call("save", "--auto")

    assert (result.code, result.out, result.err) == (0, "", "")
    assert kept.versions() == ["v3", "v2", "v1"]
    assert kept.call("save", "--auto", "--json").json() == {"status": "unchanged"}


@pytest.mark.parametrize("text", ["{ nonsense", '{"capture": {"max_files": "many"}}'])
@pytest.mark.parametrize("verb", ["save", "checkpoint"])
def test_an_automatic_save_goes_on_by_the_last_good_settings(kept: Box, verb: str, text: str) -> None:
    elsewhere = kept.home / "elsewhere"
    elsewhere.mkdir()
    kept.config.parent.mkdir(parents=True, exist_ok=True)
    kept.config.write_text('{"capture": {"max_file_size": "1KB"}}')
    assert kept.call("status").code == 0
    kept.config.write_text(text)
    kept.put("large", "x" * 2000)

    done, outside = kept.call(verb, "--auto"), kept.call(verb, "--auto", cwd=elsewhere)
    by_hand = kept.call(verb)
    kept.config.unlink()

    assert (done.code, done.out, done.err) == (outside.code, outside.out, outside.err) == (0, "", "")
    assert by_hand.code == 2
    assert kept.versions()[0] == "v4"
    assert kept.call("cat", "v4", "large").code == 4
    told = kept.call("status", "--json").json()["notices"]
    assert [(notice["kind"], str(kept.config) in notice["text"]) for notice in told] == [("noticed", True)]


def test_what_is_too_large_for_the_description_is_named(kept: Box) -> None:
    kept.put("big.csv", b"x" * 1_500_000)

    made = kept.call("save", "--json").json()
    kept.put("big.csv", b"y" * 1_500_000)
    said = kept.call("save", "-m", "again")
    kept.put("big.csv", b"z" * 1_500_000)
    quiet = kept.call("save", "--auto")

    assert ["big.csv" in notice for notice in made["notices"]] == [True]
    assert said.code == 0 and said.err.count("big.csv") == 1
    assert quiet.err == ""


def test_all_that_was_left_out_is_told_without_the_checkpoint(kept: Box) -> None:
    kept.put("node_modules/x.js", "x")
    kept.save()

    told = kept.call("show", "--left-out", "--json").json()

    assert set(told) == {"version", "coverage", "left_out", "not_covered"}
    assert "node_modules" in [one["path"] for one in told["left_out"]]


def test_an_automatic_save_may_have_a_message(kept: Box) -> None:
    kept.put("x", "x")
    kept.call("save", "--auto", "-m", "after the tests")

    row = kept.call("list", "--json", "--limit", "1").json()[0]
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


def test_a_message_does_not_repeat_what_this_save_seals(kept: Box) -> None:
    kept.put(".env", "GREETING=sunny-Meadow-41x\n")
    kept.save("-m", "GREETING is sunny-Meadow-41x now", "--tag", "sunny-Meadow-41x")
    kept.save("-m", "still sunny-Meadow-41x")

    newest, before = kept.call("list", "--json", "--limit", "2").json()
    assert (before["message"], before["tags"]) == ("GREETING is [redacted:secret] now", ["[redacted:secret]"])
    assert newest["message"] == "still [redacted:secret]"
    assert kept.call("cat", "latest", ".env").out == "GREETING=sunny-Meadow-41x\n"


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


def test_quiet_says_nothing(kept: Box) -> None:
    result = kept.call("-q", "save", "-m", "quiet")

    assert (result.code, result.out, result.err) == (0, "", "")


def test_a_message_that_is_not_utf8_is_kept_as_well_as_can_be(box: Box) -> None:
    box.call("init")

    result = box.run("save", "-m", b"caf\xe9")

    assert result.code == 0
    assert box.call("list", "--json").json()[0]["message"] == "caf\ufffd"


def test_a_message_of_several_lines_is_one_line_in_tables(kept: Box) -> None:
    kept.save("-m", "first line\nsecond \x1b[31mline")

    assert '"first line …"' in kept.call("list", "--limit", "1").out
    assert "\x1b" not in kept.call("show").out
    assert kept.call("list", "--json", "--limit", "1").json()[0]["message"] == "first line\nsecond \x1b[31mline"


@pytest.mark.parametrize("words", [["--tag", "a\nb"], ["--tag", " a"], ["--name", "v3"], ["--session", "a\tb"]])
def test_words_that_cannot_be_kept_are_refused_before_anything_happens(kept: Box, words: list[str]) -> None:
    before = kept.state()

    result = kept.call("save", *words)

    assert result.code == 2
    assert kept.state() == before


# What hooks must not tell an agent is told by `status`


def test_a_store_out_of_reach_is_silent_for_hooks_and_shown_by_status(kept: Box) -> None:
    away = kept.store.with_name("away")
    kept.store.rename(away)
    kept.put("new", "x")

    result = kept.call("save", "--auto")
    assert (result.code, result.out, result.err) == (0, "", "")

    away.rename(kept.store)
    kept.now += 5 * MINUTE
    assert "5 minutes ago, a checkpoint (auto) skipped: Store " in kept.call("status").out


def test_a_failed_hook_is_one_line_and_shown_by_status(kept: Box) -> None:
    log = next(path for path in (kept.store / "log").glob("*.log") if path.name != "store.log")
    whole = log.read_bytes()
    log.write_bytes(whole[:-20])
    kept.put("new", "x")

    result = kept.call("save", "--auto")
    assert (result.code, result.out) == (1, "")
    assert result.err.count("\n") == 1

    log.write_bytes(whole)
    found = kept.call("status", "--json").json()["notices"]
    assert [(notice["kind"], notice["trigger"]) for notice in found] == [("failed", "auto")]
    kept.now += 8 * DAY
    assert kept.call("status", "--json").json()["notices"] == []


def test_a_wrong_flag_in_a_hook_never_blocks_the_agent(kept: Box) -> None:
    assert kept.call("save", "--auto", "--nonsense").code == 1
    assert kept.call("save", "--nonsense").code == 2


def test_an_automatic_save_in_a_folder_that_is_gone_is_silent(kept: Box) -> None:
    gone = kept.project / "gone"
    gone.mkdir()

    # The shell of a hook may stand in a folder that the agent removed.
    def leave() -> None:
        os.chdir(gone)
        gone.rmdir()

    result = kept.run("save", "--auto", before=leave)

    assert (result.code, result.out, result.err) == (0, "", "")


def test_notices_are_bounded_and_whole(box: Box) -> None:
    folder = str(box.project)
    for number in range(2_000):
        assert notices.append([folder], number, "failed", "auto", f"the disk is on fire, {number}")

    kept = notices.read([folder])

    assert (box.project / "notices").stat().st_size <= notices.MOST
    assert kept[-1].text == "the disk is on fire, 1999"
    assert [notice.at for notice in kept] == list(range(kept[0].at, 2_000))


def test_notices_that_are_not_whole_are_passed_over(box: Box) -> None:
    notices.append([str(box.project)], 1, "failed", "auto", "good")
    with (box.project / "notices").open("ab") as file:
        file.write(b'{"at": "x"}\n[1]\n\xff\n{"at": 2, "kind": "fa')

    assert [notice.text for notice in notices.read([str(box.project)])] == ["good"]


# status


def test_status_shows_what_changed_and_what_is_left_out(kept: Box) -> None:
    kept.put("src/a.py", "changed")
    kept.put("new.txt", "new")
    (kept.project / "src/b.py").unlink()
    (kept.project / "src").chmod(0o700)
    server = socket.socket(socket.AF_UNIX)
    before = os.getcwd()
    os.chdir(kept.project)
    server.bind("door")
    os.chdir(before)
    kept.now += 2 * HOUR

    found = kept.call("status", "--json").json()

    changed = {(change["path"], change["change"]) for change in found["changes"]}
    assert changed == {
        ("src/a.py", "modified"),
        ("new.txt", "added"),
        ("src/b.py", "deleted"),
        ("src", "mode"),
        ("door", "left_out"),
    }
    assert found["last"]["version"] == "v3"
    assert "2 hours ago" in kept.call("status").out


def test_status_looks_and_does_not_touch(kept: Box) -> None:
    kept.put("src/a.py", "changed")
    before = kept.state()

    assert len(kept.call("status", "--json").json()["changes"]) == 1
    assert len(kept.call("diff", "--json").json()["changes"]) == 1

    assert kept.state() == before
    assert kept.call("save", "--auto").code == 0
    assert kept.versions()[0] == "v4"  # looking did not make the change known


def test_status_outside_says_the_way_in(box: Box) -> None:
    assert "keepfast install claude" in box.call("status").err

    assert box.call("install", "claude").code == 0
    assert "let hooks do it" in box.call("status").err

    (box.project / ".git").mkdir()
    assert "let hooks do it" in box.call("status").err

    box.config.parent.mkdir(parents=True, exist_ok=True)
    box.config.write_text('{"adopt": "marked"}')
    assert "`adopt` keeps hooks from doing it" in box.call("status").err


def test_status_shows_warnings_of_settings(kept: Box) -> None:
    kept.config.parent.mkdir(parents=True)
    kept.config.write_text('{"capture": {"max_fil_size": 1}}')

    assert "unknown setting 'capture.max_fil_size'" in kept.call("status").out


def test_the_hook_keeps_its_notices_in_the_same_place(kept: Box) -> None:
    launch = SOURCE / "keepfast/hook/launch.py"
    away = kept.store.with_name("away")
    kept.store.rename(away)

    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", launch, *written(kept.home), "save", "--cwd", kept.project],
        env=kept.variables,
        capture_output=True,
    )
    away.rename(kept.store)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    found = notices.read([str(kept.project / ".keepfast")])
    assert [(notice.kind, notice.trigger) for notice in found] == [("skipped", "auto")]


def test_a_file_that_is_too_large_is_named_at_every_save(box: Box) -> None:
    box.call("init")
    box.call("config", "set", "capture.max_file_size", "1MB")
    box.put("big.bin", b"x" * 1_100_000)
    first = box.call("save")
    box.put("small", "x")
    second = box.call("save")

    assert "big.bin" in first.err and "big.bin" in second.err
