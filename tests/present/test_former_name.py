"""What a version of the former name has kept is taken over by the first command or hook, whole, with one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from keepfast.model.frozen import FORMER, FORMER_MARKER
from tests.equipment.box import SOURCE, Box

MARKER = os.fsdecode(FORMER_MARKER)


def data(box: Box, name: str = "keepfast") -> Path:
    return box.home / ".local/share" / name


def config(box: Box, name: str = "keepfast") -> Path:
    return box.home / ".config" / name


def as_before(box: Box) -> None:
    """Give everything the name that it had."""
    data(box).rename(data(box, FORMER))
    if config(box).exists():
        config(box).rename(config(box, FORMER))
    old = str(data(box, FORMER))
    (box.project / ".keepfast").rename(box.project / MARKER)
    marker = box.project / MARKER / "workspace.json"
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "store": old + "/store"}))
    for name in ("stores", "folders"):
        path = data(box, FORMER) / name
        if path.exists():
            path.write_text(path.read_text().replace(str(data(box)), old))


@pytest.fixture
def older(tmp_path: Path) -> Box:
    """A home in which the former name was used: two versions, a sealed file, settings, hooks in a client."""
    box = Box(tmp_path)
    assert box.run("init").code == 0
    box.put("file", "one\n")
    box.put(".env", "DB_PASSWORD=s3cr3t-pA55-phrase\n")
    assert box.run("save", "-m", "first").code == 0
    box.put("file", "two\n")
    assert box.run("save", "-m", "second").code == 0
    assert box.run("config", "set", "capture.max_file_size", "5MB").code == 0
    assert box.run("install", "claude").code == 0
    as_before(box)
    return box


def hook(box: Box, name: str, **fields: object) -> subprocess.CompletedProcess[bytes]:
    payload = {"hook_event_name": name, "session_id": "s1", "cwd": str(box.project), **fields}
    folders = [str(box.home), str(box.home / ".config"), str(box.home / ".local/share")]
    return subprocess.run(
        [sys.executable, "-m", "keepfast", "--folders", *folders, "hook", "claude-code"],
        input=json.dumps(payload).encode(), capture_output=True, timeout=60, cwd=box.project,
        env={**box.variables, "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip


def test_the_first_command_takes_everything_over_with_one_line(older: Box) -> None:
    first, second = older.run("list", "--json"), older.run("list", "--json")

    assert (first.code, second.code) == (0, 0)
    assert [row["message"] for row in first.json()] == ["second", "first"] == [row["message"] for row in second.json()]
    assert len(first.err.splitlines()) == 1 and FORMER in first.err and second.err == ""
    assert data(older).is_dir() and not data(older).is_symlink()
    assert os.readlink(data(older, FORMER)) == os.readlink(config(older, FORMER)) == "keepfast"
    assert (older.project / ".keepfast/workspace.json").exists() and not (older.project / MARKER).exists()
    assert older.run("config", "get", "capture.max_file_size", "--json").out.strip() not in ("", "null")


def test_what_was_sealed_opens_and_everything_verifies(older: Box) -> None:
    older.put(".env", "gone")

    assert older.run("restore", "v1", "-y").code == 0
    assert (older.project / ".env").read_text() == "DB_PASSWORD=s3cr3t-pA55-phrase\n"
    assert (older.project / "file").read_text() == "one\n"
    assert older.run("verify").code == 0
    assert older.run("undo", "-y").code == 0
    assert (older.project / "file").read_text() == "two\n"


def test_a_hook_takes_it_over_and_says_so_in_the_client(older: Box) -> None:
    done = hook(older, "SessionStart", source="startup")
    older.put("file", "three\n")
    turn = hook(older, "Stop")

    assert (done.returncode, turn.returncode) == (0, 0)
    assert FORMER in json.loads(done.stdout)["systemMessage"]
    assert data(older).is_dir() and data(older, FORMER).is_symlink()
    assert FORMER.encode() not in turn.stdout


def test_hooks_in_a_client_go_on_by_the_path_that_they_name(older: Box) -> None:
    launcher = data(older, FORMER) / "bin/launch"
    assert older.run("list").code == 0
    older.put("file", "three\n")
    payload = {"hook_event_name": "SessionStart", "source": "startup", "session_id": "s1", "cwd": str(older.project)}
    done = subprocess.run(
        [launcher, "hook", "claude-code"], input=json.dumps(payload).encode(), capture_output=True, timeout=60,
        env=older.variables,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, b"")
    assert not Path(f"{launcher}.failing").exists()
    assert older.run("doctor", "--json").code in (0, 1)


def test_a_launcher_that_settings_of_the_former_name_lead_to_is_mended_by_init(older: Box) -> None:
    settings = older.home / ".claude/settings.json"
    settings.write_text(settings.read_text().replace(str(data(older)), str(data(older, FORMER))))
    assert older.run("list").code == 0
    (data(older) / "bin/launch").write_text("")
    answer = older.run("status", "--json").json()["remarks"]

    assert older.run("init").code == 0
    assert "damaged" in answer[-1]
    assert older.run("status", "--json").json()["remarks"] == answer[:-1]
    assert os.access(data(older, FORMER) / "bin/launch", os.X_OK)


def test_what_was_unprotected_goes_on_with_init_after_the_upgrade(older: Box) -> None:
    assert older.run("uninstall", "claude").code == 0
    assert older.run("unprotect", "-y").code == 0
    assert older.run("status").code == 3
    assert older.run("init").code == 0
    assert older.run("install", "claude").code == 0

    assert [row["message"] for row in older.run("list", "--json").json()] == ["second", "first"]
    assert "Hooks" not in "".join(older.run("status", "--json").json()["remarks"])
    assert older.run("verify").code == 0


def test_a_process_that_is_killed_between_the_two_steps_leaves_the_rest_to_the_next(older: Box) -> None:
    old = data(older, FORMER)
    (old.parent / ".keepfast-link").symlink_to("keepfast")
    old.rename(data(older))

    assert older.run("list").code == 0
    assert os.readlink(old) == "keepfast"
    assert not os.path.lexists(old.parent / ".keepfast-link")


def test_folders_of_another_program_are_left_alone(tmp_path: Path) -> None:
    box = Box(tmp_path)
    for folder in (data(box, FORMER), config(box, FORMER)):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text('{"theirs": 1}')
    done = box.run("init")

    assert done.code == 0 and FORMER not in done.err
    assert not data(box, FORMER).is_symlink() and (config(box, FORMER) / "config.json").exists()


def test_folders_of_the_new_name_are_never_replaced(older: Box) -> None:
    data(older).mkdir()
    (data(older) / "mine").write_text("x")

    older.run("list")

    assert (data(older) / "mine").exists() and (data(older, FORMER) / "store").is_dir()


def test_a_command_in_an_agents_shell_changes_nothing(older: Box) -> None:
    older.run("list", CLAUDECODE="1")

    assert not data(older, FORMER).is_symlink()


def test_a_marker_of_the_former_name_is_read_and_never_captured(older: Box) -> None:
    assert older.run("list").code == 0
    (older.project / ".keepfast").rename(older.project / MARKER)
    older.put("file", "three\n")

    assert older.run("save").code == 0
    names = [one["path"] for one in older.run("diff", "v1", "v3", "--json").json()["changes"]]
    assert names == ["file"]
    assert len(older.run("list", "--json").json()) == 3
