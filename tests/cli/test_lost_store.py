"""A workspace knows its store: one that is missing is named, and never replaced without a word."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.equipment.box import SOURCE, Box
from tests.equipment.folders import written

MISSING = 5


def marker(box: Box, folder: Path | None = None) -> dict[str, Any]:
    members: dict[str, Any] = json.loads(((folder or box.project) / ".keepfast/workspace.json").read_text())
    return members


def kind(result: Any) -> str:
    return str(result.json()["error"]["kind"])


def hooks(box: Box) -> Iterator[tuple[str, int, int]]:
    """Each event of a session with the hook's exit code, and how many lines it said."""
    for event in ("SessionStart", "UserPromptSubmit", "PreToolUse", "Stop"):
        payload = {"hook_event_name": event, "session_id": "s", "cwd": str(box.project), "source": "startup",
                   "transcript_path": "", "tool_name": "Bash", "tool_input": {"command": "rm -rf src"}}  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "keepfast", *written(box.home), "hook", "claude-code"],
            input=json.dumps(payload).encode(),
            env={**box.variables, "PYTHONPATH": str(SOURCE)},
            cwd=box.project,
            capture_output=True,
            timeout=60,
        )
        yield event, done.returncode, len(done.stderr.splitlines())


COMMANDS = [
    ("init",), ("save",), ("list",), ("status",), ("show",), ("diff",), ("restore", "v1", "-y"), ("undo", "-y"), ("verify",),
    ("forget", "-y"), ("compact",), ("search", "a"), ("export", "--all", "x.bundle"), ("fork", "v1", "../fork"),
]  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: str(words[0]))
def test_every_command_says_that_the_store_is_not_there(saved_box: Box, words: tuple[str, ...]) -> None:
    saved_box.store.rename(saved_box.home / "elsewhere")
    result = saved_box.call(*words, "--json")

    assert (result.code, kind(result)) == (MISSING, "store_missing")
    assert not saved_box.store.exists()


def test_a_lost_store_is_missed_without_the_marker_too(saved_box: Box) -> None:
    """The list in the user's data folder knows that there was one."""
    saved_box.store.rename(saved_box.home / "elsewhere")
    shutil.rmtree(saved_box.project / ".keepfast")

    assert [saved_box.call(verb).code for verb in ("list", "save", "init")] == [MISSING] * 3
    assert not saved_box.store.exists()
    assert not (saved_box.project / ".keepfast").exists()


def test_another_store_in_its_place_is_not_taken_for_it(saved_box: Box) -> None:
    saved_box.store.rename(saved_box.home / "elsewhere")
    other = saved_box.home / "other"
    other.mkdir()
    assert saved_box.call("init", "--new-store", cwd=other).code == 0
    result = saved_box.call("save", "--json")

    assert (result.code, kind(result)) == (MISSING, "store_missing")
    assert saved_box.call("list", "--all-workspaces", "--json", cwd=other).json() == []


def test_a_store_that_comes_back_is_used_again(saved_box: Box) -> None:
    saved_box.store.rename(saved_box.home / "elsewhere")
    saved_box.call("save")
    (saved_box.home / "elsewhere").rename(saved_box.store)

    assert saved_box.save() == "v4"


def test_a_new_store_is_made_when_asked_for(saved_box: Box) -> None:
    saved_box.store.rename(saved_box.home / "elsewhere")
    assert saved_box.call("init", "--new-store").code == 0

    assert saved_box.save() == "v1"
    assert saved_box.call("list").code == 0


@pytest.mark.parametrize("words", [("init",), ("init", "--new-store")], ids=" ".join)
def test_a_store_that_the_data_folder_cannot_take_note_of_is_an_error(box: Box, words: tuple[str, ...]) -> None:
    """Only the list there would tell the next command where the store is."""
    (box.home / ".local/share/keepfast/stores").mkdir(parents=True)  # root may write into any folder, but not into this
    result = box.call("--store", str(box.home / "st"), *words, "--json")

    assert (result.code, kind(result)) == (1, "failed")
    assert str(box.home / ".local/share/keepfast/stores") in result.json()["error"]["message"]
    assert not (box.project / ".keepfast").exists()


def test_a_store_of_the_settings_needs_no_note(box: Box) -> None:
    (box.home / ".local/share/keepfast/stores").mkdir(parents=True)
    box.variables["KEEPFAST_STORE_URL"] = str(box.home / "st")

    assert box.call("init").code == 0
    assert box.save() == "v1"


def test_a_hook_says_so_in_one_line_and_makes_nothing(saved_box: Box) -> None:
    saved_box.store.rename(saved_box.home / "elsewhere")
    answers = {event: (code, lines) for event, code, lines in hooks(saved_box)}

    assert answers == {"SessionStart": (1, 1), "UserPromptSubmit": (0, 0), "PreToolUse": (0, 0), "Stop": (1, 1)}
    assert not saved_box.store.exists()


def test_save_auto_passes_over_a_lost_store(saved_box: Box) -> None:
    saved_box.store.rename(saved_box.home / "elsewhere")
    result = saved_box.call("save", "--auto")

    assert (result.code, result.out, result.err) == (0, "", "")
    assert not saved_box.store.exists()


def test_a_store_that_moved_is_found_once_it_is_told(saved_box: Box) -> None:
    moved = saved_box.home / "elsewhere"
    saved_box.store.rename(moved)
    result = saved_box.call("--store", str(moved), "init", "--json")

    assert (result.code, result.json()["store"], result.json()["adopted"]) == (0, str(moved), False)
    assert saved_box.save() == "v4"
    assert marker(saved_box)["store"] == str(moved)


def test_a_store_that_moved_is_found_through_the_settings(saved_box: Box) -> None:
    moved = saved_box.home / "elsewhere"
    saved_box.store.rename(moved)
    assert saved_box.call("config", "set", "store.url", str(moved)).code == 0

    assert saved_box.save() == "v4"
    assert marker(saved_box)["store"] == str(moved)


def test_the_store_of_init_is_remembered(box: Box) -> None:
    own = box.home / "own"
    assert box.call("--store", str(own), "init").code == 0
    box.put("a", "one")

    assert box.save() == "v1"
    assert box.call("status", "--json").json()["store"]["path"] == str(own)
    assert not box.store.exists()


def test_a_wiped_marker_is_found_again_in_a_store_of_its_own(box: Box) -> None:
    own = box.home / "own"
    box.call("--store", str(own), "init")
    box.put("a", "one")
    box.save()
    shutil.rmtree(box.project / ".keepfast")

    assert box.save() == "v2"
    assert not box.store.exists()


def test_another_store_by_flag_is_an_error_with_a_hint(saved_box: Box) -> None:
    other = saved_box.home / "other"
    result = saved_box.call("--store", str(other), "save", "--json")
    again = saved_box.call("--store", str(other), "init", "--json")

    assert result.code == 2 and again.code == 2 and again.json()["error"]["hint"]
    assert not other.exists()
    assert saved_box.save() == "v4"


def test_switching_the_store_is_possible_when_asked_for(saved_box: Box) -> None:
    other = saved_box.home / "other"
    assert saved_box.call("--store", str(other), "init", "--new-store").code == 0

    assert saved_box.save() == "v1"
    assert marker(saved_box)["store"] == str(other)


def test_another_store_can_be_checked_from_within_a_workspace(saved_box: Box) -> None:
    other, folder = saved_box.home / "other", saved_box.home / "folder"
    folder.mkdir()
    saved_box.call("--store", str(other), "init", cwd=folder)

    assert saved_box.call("--store", str(other), "verify").code == 0


def test_a_marker_of_an_older_version_gets_the_store_id_at_the_next_save(saved_box: Box) -> None:
    members = marker(saved_box)
    store_id = members.pop("store_id")
    (saved_box.project / ".keepfast/workspace.json").write_text(json.dumps(members))

    assert saved_box.call("list").code == 0
    assert saved_box.save() == "v4"
    assert marker(saved_box)["store_id"] == store_id


def test_a_marker_from_a_repository_opens_no_store_elsewhere(saved_box: Box) -> None:
    """Somebody's marker names a store that this user never used: it is neither opened, written to nor made."""
    foreign, clone = saved_box.base / "foreign", saved_box.home / "clone"
    (clone / ".keepfast").mkdir(parents=True)
    stranger = Box(saved_box.base / "stranger")
    stranger.call("--store", str(foreign), "init")
    stranger.put("a", "one")
    stranger.save()
    (clone / ".keepfast/workspace.json").write_bytes((stranger.project / ".keepfast/workspace.json").read_bytes())
    before = saved_box.state(foreign)
    codes = {verb: saved_box.call(verb, cwd=clone).code for verb in ("list", "save", "status")}

    assert codes == dict.fromkeys(codes, MISSING)
    assert saved_box.call("init", cwd=clone).code == MISSING
    assert saved_box.state(foreign) == before
    shutil.rmtree(foreign)
    assert [saved_box.call(verb, cwd=clone).code for verb in ("save", "init")] == [MISSING] * 2
    assert saved_box.call("init", "--new-store", cwd=clone).code == 0
    assert not foreign.exists()
    assert marker(saved_box, clone)["store"] == str(saved_box.store)
    assert marker(saved_box, clone)["id"] != marker(stranger)["id"]


def test_a_workspace_may_be_told_to_trust_a_store(saved_box: Box) -> None:
    """The same folder and store, seen by a user whose data folder is new."""
    shutil.move(saved_box.home / ".local", saved_box.home / "old")
    (saved_box.home / ".local/share/keepfast").mkdir(parents=True)
    shutil.move(saved_box.home / "old/share/keepfast/store", saved_box.home / "disk")
    members = {**marker(saved_box), "store": str(saved_box.home / "disk")}
    (saved_box.project / ".keepfast/workspace.json").write_text(json.dumps(members))
    assert saved_box.call("list").code == MISSING
    assert saved_box.call("--store", str(saved_box.home / "disk"), "init").code == 0

    assert saved_box.save() == "v4"


def test_a_store_that_lost_only_its_format_file_is_damaged_and_keeps_its_id(saved_box: Box) -> None:
    before = (saved_box.store / "format").read_bytes()
    (saved_box.store / "format").unlink()

    assert saved_box.call("list").code == 13
    assert saved_box.call("verify", "--repair").code == 0
    assert (saved_box.store / "format").read_bytes() == before
    assert saved_box.save() == "v4"


def test_a_damaged_format_file_is_written_again_with_the_same_id(saved_box: Box) -> None:
    before = (saved_box.store / "format").read_bytes()
    (saved_box.store / "format").write_bytes(b"x")

    assert saved_box.call("save").code == 13
    assert saved_box.call("verify", "--repair").code == 0
    assert (saved_box.store / "format").read_bytes() == before


@pytest.fixture
def swapped(saved_box: Box) -> Box:
    """A new history was begun while the store was away; then the old store came back to its place."""
    saved_box.store.rename(saved_box.home / "old")
    assert saved_box.call("init", "--new-store", "--json").json()["adopted"] is True
    saved_box.save("-m", "newhist")
    saved_box.store.rename(saved_box.home / "new")
    (saved_box.home / "old").rename(saved_box.store)
    return saved_box


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: str(words[0]))
def test_the_store_of_an_older_history_is_not_taken_for_the_newer_one(swapped: Box, words: tuple[str, ...]) -> None:
    before = swapped.state(swapped.store)
    result = swapped.call(*words, "--json")

    assert (result.code, kind(result)) == (MISSING, "store_missing")
    assert swapped.state(swapped.store) == before


@pytest.mark.parametrize(("store", "versions"), [("new", ["v1"]), (".local/share/keepfast/store", ["v3", "v2", "v1"])])
def test_a_store_that_knows_the_folder_is_taken_when_it_is_named(swapped: Box, store: str, versions: list[str]) -> None:
    result = swapped.call("--store", str(swapped.home / store), "init", "--json")

    assert (result.code, result.json()["store"]) == (0, str(swapped.home / store))
    assert swapped.versions() == versions


def test_of_two_stores_that_know_the_folder_the_named_one_is_taken(saved_box: Box) -> None:
    saved_box.store.rename(saved_box.home / "old")
    saved_box.call("init", "--new-store")
    saved_box.save("-m", "newhist")

    assert saved_box.call("--store", str(saved_box.home / "old"), "init").code == 0
    assert saved_box.versions() == ["v3", "v2", "v1"]
    assert saved_box.call("--store", str(saved_box.store), "init").code == 0
    assert saved_box.versions() == ["v1"]


def test_a_folder_without_a_marker_hears_that_its_store_may_be_another(saved_box: Box) -> None:
    saved_box.store.rename(saved_box.home / "elsewhere")
    shutil.rmtree(saved_box.project / ".keepfast")
    other = saved_box.home / "other"
    other.mkdir()
    assert str(saved_box.store) in saved_box.call("init", "--new-store", cwd=other).err
    result = saved_box.call("init")

    assert (result.code, str(saved_box.store) in result.err) == (0, True)


# The data folder is gone, and the list of stores with it


@pytest.fixture
def bereft(saved_box: Box) -> Box:
    (saved_box.home / ".local").rename(saved_box.home / "away")
    return saved_box


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: str(words[0]))
def test_every_command_says_that_the_store_went_with_its_list(bereft: Box, words: tuple[str, ...]) -> None:
    before = marker(bereft)
    result = bereft.call(*words, "--json")

    assert (result.code, kind(result)) == (MISSING, "store_missing")
    assert not bereft.store.exists()
    assert marker(bereft) == before


def test_a_store_that_went_with_its_list_is_missed_in_a_folder_below_and_by_doctor(bereft: Box) -> None:
    below = bereft.project / "src"
    checks = {check["name"]: check["level"] for check in bereft.call("doctor", "--json").json()["checks"]}

    assert bereft.call("list", cwd=below).code == MISSING
    assert bereft.call("doctor").code == 1
    assert "problem" in (checks.get("store"), checks.get("workspace"))


def test_save_auto_is_silent_about_a_store_that_went_with_its_list(bereft: Box) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", str(SOURCE / "keepfast/hook/launch.py"), *written(bereft.home), "save"],
        cwd=bereft.project,
        capture_output=True,
        timeout=60,
    )

    result = bereft.call("save", "--auto")

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert bereft.call("status").code == 5
    assert not bereft.store.exists()


def test_a_data_folder_that_comes_back_is_used_again(bereft: Box) -> None:
    bereft.call("save", "--auto")
    shutil.rmtree(bereft.home / ".local", ignore_errors=True)
    (bereft.home / "away").rename(bereft.home / ".local")

    assert bereft.save() == "v4"


def test_a_new_history_is_begun_without_the_list_when_asked_for(bereft: Box) -> None:
    assert bereft.call("init", "--new-store").code == 0

    assert bereft.save() == "v1"


def test_a_new_store_in_the_place_of_the_lost_one_is_not_taken_for_it(bereft: Box) -> None:
    other = bereft.home / "other"
    other.mkdir()
    assert bereft.call("init", cwd=other).code == 0
    result = bereft.call("list", "--json")

    assert (result.code, kind(result)) == (MISSING, "store_missing")
    assert bereft.call("init").code == MISSING
    assert marker(bereft)["store_id"] != marker(bereft, other)["store_id"]


# Another environment than the one in which the folder was protected


@pytest.fixture
def bare(box: Box) -> Box:
    """A project whose store lies where XDG_DATA_HOME said; the variable is not there any more, as under cron."""
    box.variables["XDG_DATA_HOME"] = str(box.home / "disk")
    box.put("a", "one")
    assert box.call("init").code == 0
    assert box.call("install", "claude").code == 0
    box.save()
    del box.variables["XDG_DATA_HOME"]
    return box


@pytest.mark.parametrize("verb", ["list", "status", "save", "init"])
def test_a_store_that_the_marker_names_is_told_with_a_way_out(bare: Box, verb: str) -> None:
    before = marker(bare)
    result = bare.call(verb, "--json")
    error = result.json()["error"]

    assert (result.code, error["kind"]) == (MISSING, "other_store")
    assert str(bare.home / "disk/keepfast/store") in error["message"]
    assert f"XDG_DATA_HOME={bare.home / 'disk'}" in error["hint"]
    assert marker(bare) == before
    assert not bare.store.exists()


@pytest.mark.parametrize("verb", ["save", "checkpoint"])
@pytest.mark.parametrize("is_there", [True, False])
def test_hooks_are_silent_where_the_marker_names_another_homes_store(bare: Box, verb: str, is_there: bool) -> None:
    """`status` finds it by itself: nothing needs to be kept for it."""
    if not is_there:
        shutil.rmtree(bare.home / "disk")
    result = bare.call(verb, "--auto")

    assert (result.code, result.out, result.err) == (0, "", "")
    assert not bare.store.exists()
    assert bare.call("status").code == MISSING


@pytest.mark.parametrize("words", [["save", "--auto"], ["list"]])
def test_a_home_that_is_not_absolute_is_told(box: Box, words: list[str]) -> None:
    """The command uses another home than the one that was meant, and so another store."""
    box.put("a", "one")
    assert box.call("init").code == 0
    box.variables |= {"XDG_DATA_HOME": str(box.home / "elsewhere"), "XDG_CONFIG_HOME": str(box.home / "settings")}
    absolute = box.call(*words).err
    home, box.variables["HOME"] = box.variables["HOME"], "."
    result = box.call(*words)
    box.variables["HOME"] = home

    assert "HOME is not an absolute path" not in absolute
    assert result.err.startswith("keepfast: HOME is not an absolute path; /")


def test_the_store_that_the_marker_names_can_be_given(bare: Box) -> None:
    assert len(bare.call("--store", str(bare.home / "disk/keepfast/store"), "list", "--json").json()) == 1


def test_a_person_is_asked_before_a_marker_that_names_another_store_is_rewritten(bare: Box) -> None:
    before = marker(bare)
    bare.terminal("init", typed=b"n\n")
    assert marker(bare) == before
    bare.terminal("init", typed=b"y\n")

    assert marker(bare)["store"] == str(bare.store)


def test_doctor_finds_hooks_that_use_other_folders_than_this_command(bare: Box) -> None:
    def problems() -> list[str]:
        checks = bare.call("doctor", "--json").json()["checks"]
        return [check["name"] for check in checks if check["level"] == "problem"]

    here = problems()
    bare.variables["XDG_DATA_HOME"] = str(bare.home / "disk")

    assert "claude" in here and {"store", "workspace"} & {*here}
    assert problems() == []


def test_doctor_finds_hooks_without_a_launcher_that_use_other_folders(bare: Box) -> None:
    """As an earlier version wrote them: Python by itself, and no word of folders."""
    bare.variables["XDG_DATA_HOME"] = str(bare.home / "disk")
    launch = SOURCE / "keepfast/hook/launch.py"
    line = {"type": "command", "command": f"{sys.executable} -I -S -B {launch} hook claude-code"}
    (bare.home / ".claude/settings.json").write_text(json.dumps({"hooks": {"Stop": [{"hooks": [line]}]}}))
    checks = bare.call("doctor", "--json").json()["checks"]

    assert "problem" in [check["level"] for check in checks if check["name"] == "claude"]


# The store is on a disk of its own, and the marker is gone


@pytest.fixture
def unplugged(box: Box) -> Box:
    """A project whose store was on a disk that is away; its marker was wiped."""
    box.put("a", "one")
    assert box.call("--store", str(box.base / "disk/store"), "init").code == 0
    box.save("-m", "first")
    (box.base / "disk").rename(box.base / "away")
    shutil.rmtree(box.project / ".keepfast")
    return box


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: str(words[0]))
def test_a_store_on_a_lost_disk_is_missed_without_the_marker(unplugged: Box, words: tuple[str, ...]) -> None:
    """A store takes its list of folders along: the user's own data folder remembers them."""
    result = unplugged.call(*words, "--json")

    assert (result.code, kind(result)) == (MISSING, "store_missing")
    assert str(unplugged.base / "disk/store") in result.json()["error"]["message"]
    assert not unplugged.store.exists() and not (unplugged.base / "disk").exists()
    assert not (unplugged.project / ".keepfast").exists()


def test_a_folder_below_misses_the_store_too_and_another_folder_does_not(unplugged: Box) -> None:
    (unplugged.project / "below").mkdir()
    other = unplugged.home / "other"
    other.mkdir()

    assert unplugged.call("list", cwd=unplugged.project / "below").code == MISSING
    assert unplugged.call("init", cwd=other).code == 0


def test_another_store_does_not_take_a_folder_of_a_lost_disk_unless_asked(unplugged: Box) -> None:
    other = unplugged.home / "other"
    assert unplugged.call("--store", str(other), "init").code == MISSING
    assert not other.exists()

    assert unplugged.call("--store", str(other), "init", "--new-store").code == 0
    assert unplugged.save() == "v1"


def test_hooks_say_in_one_line_that_the_store_of_an_unmarked_folder_is_away(unplugged: Box) -> None:
    answers = {event: (code, lines) for event, code, lines in hooks(unplugged)}

    assert answers["SessionStart"] == (1, 1) and answers["Stop"] == (1, 1)
    assert not unplugged.store.exists()
    assert not (unplugged.project / ".keepfast").exists()


def test_a_disk_that_comes_back_has_its_history(unplugged: Box) -> None:
    unplugged.call("save")
    (unplugged.base / "away").rename(unplugged.base / "disk")

    assert unplugged.save() == "v2"


def test_a_folder_that_is_no_longer_protected_misses_no_store(unplugged: Box) -> None:
    assert unplugged.call("unprotect").code == 0

    assert unplugged.call("list").code == 3
    assert unplugged.call("init").code == 0


def test_a_folder_in_a_store_that_was_purged_misses_no_store(box: Box) -> None:
    box.put("a", "one")
    box.call("--store", str(box.base / "disk/store"), "init")
    box.save()
    assert box.call("purge", "--all", "-y").code == 0

    assert box.call("init").code == 0


def test_a_folder_of_an_older_version_is_noted_at_its_next_save(box: Box) -> None:
    box.put("a", "one")
    box.call("--store", str(box.base / "disk/store"), "init")
    (box.home / ".local/share/keepfast/folders").unlink()
    box.save()
    (box.base / "disk").rename(box.base / "away")
    shutil.rmtree(box.project / ".keepfast")

    assert box.call("init").code == MISSING


def test_a_folder_that_moved_leaves_its_old_path_to_others(box: Box) -> None:
    box.put("a", "one")
    box.call("--store", str(box.base / "disk/store"), "init")
    box.save()
    moved = box.home / "moved"
    box.project.rename(moved)
    assert box.call("init", "--moved", cwd=moved).code == 0
    (box.base / "disk").rename(box.base / "away")
    box.project.mkdir()
    shutil.rmtree(moved / ".keepfast")

    assert box.call("list", cwd=moved).code == MISSING
    assert box.call("init").code == 0


# A new history


def test_a_new_history_is_begun_in_the_store_of_the_settings(box: Box) -> None:
    """Not at the mount point of the disk that is away."""
    box.put("a", "one")
    own = box.base / "disk/store"
    box.call("--store", str(own), "init")
    box.save()
    (box.base / "disk").rename(box.base / "away")
    result = box.call("init", "--new-store", "--json")

    assert (result.code, result.json()["store"]) == (0, str(box.store))
    assert not own.exists()
    assert box.save() == "v1"
    (box.base / "away").rename(box.base / "disk")
    again = box.call("--store", str(own), "init", "--new-store", "--json").json()
    assert (again["store"], again["shared"]) == (str(own), False)


def test_a_person_who_agrees_to_a_new_history_gets_it_in_the_store_of_the_settings(unplugged: Box) -> None:
    unplugged.terminal("init", typed=b"y\n")

    assert marker(unplugged)["store"] == str(unplugged.store)
    assert not (unplugged.base / "disk").exists()


def test_a_store_that_this_home_has_used_is_never_said_to_be_of_another(saved_box: Box) -> None:
    """Also where another one has been at its path since."""
    own, other = saved_box.base / "disk/store", saved_box.home / "other"
    other.mkdir()
    saved_box.call("--store", str(own), "init", cwd=other)
    (saved_box.base / "disk").rename(saved_box.base / "away")
    saved_box.call("--store", str(own), "init", "--new-store", cwd=other)
    shutil.rmtree(saved_box.base / "disk")
    (saved_box.base / "away").rename(saved_box.base / "disk")

    assert saved_box.call("--store", str(own), "init", "--json", cwd=other).json()["shared"] is False
