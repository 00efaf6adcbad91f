"""When the resident starts and ends, and that there is one of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from keepfast.present.background import LAUNCH
from keepfast.resident import address

from .home import Home, is_running, wait


def test_the_first_hook_starts_it_and_the_next_is_answered_by_it(home: Home) -> None:
    assert not home.state().runs

    home.begin()
    wait(lambda: home.state().facts is not None)
    home.hook("PreToolUse", tool_name="Read", tool_use_id="toolu_1", tool_input={"file_path": "a.txt"})

    assert home.answered() == 1


def test_the_setting_off_keeps_hooks_from_starting_it_and_ends_its_service(home: Home) -> None:
    assert home.run("config", "set", "resident", "off").returncode == 0

    home.begin()
    home.hook("PreToolUse", tool_name="Read", tool_use_id="toolu_1", tool_input={"file_path": "a.txt"})

    assert not home.state().runs
    assert home.run("daemon", "start").returncode == 2


def test_an_agents_shell_never_starts_it(home: Home) -> None:
    home.variables["CLAUDECODE"] = "1"

    assert home.run("daemon", "start").returncode == 2
    assert not home.state().runs


def test_of_many_that_start_at_once_one_stays(home: Home) -> None:
    folders = home.environment.folders
    words = [sys.executable, "-I", "-S", "-B", LAUNCH, "--folders", *folders, "resident"]
    home.data.mkdir(parents=True, exist_ok=True)

    started = [subprocess.Popen(words, env={"PATH": "/usr/bin:/bin"}) for _ in range(6)]
    wait(lambda: home.state().facts is not None)
    wait(lambda: sum(process.poll() is None for process in started) == 1)

    assert [process.pid for process in started if process.poll() is None] == [home.state().process]
    home.stop()
    for process in started:
        process.wait()


def test_it_is_tried_again_only_after_a_while(home: Home) -> None:
    home.begin()
    wait(lambda: home.state().facts is not None)
    home.stop()

    home.hook("Stop")

    assert not home.state().runs, "one that ends at once would be started at every tool call"


def test_it_ends_when_it_is_told_to_and_answers_what_it_has_begun(begun: Home) -> None:
    process = begun.state().process

    assert begun.run("daemon", "stop").returncode == 0

    assert not begun.state().runs
    wait(lambda: not is_running(process))
    assert not (begun.data / "resident/socket").exists()
    assert "told to" in begun.run("daemon", "log").stdout


def test_it_ends_when_its_data_folder_is_gone(begun: Home) -> None:
    process = begun.state().process
    begun.settle()

    shutil.rmtree(begun.data)

    wait(lambda: not is_running(process), 30)


def test_a_socket_whose_path_is_too_long_lies_elsewhere(tmp_path: Path) -> None:
    home = Home(tmp_path / ("long" * 30))
    (home.project / "a.txt").write_text("one\n")
    home.install()
    try:
        home.start()
        found = address.read(str(home.data))
        assert found is not None and len(os.fsencode(found.socket)) < 108
        assert os.stat(os.path.dirname(found.socket)).st_mode & 0o777 == 0o700
        home.begin()
        home.hook("PreToolUse", tool_name="Read", tool_use_id="toolu_1", tool_input={})
        assert home.answered() == 1
    finally:
        os.kill(home.state().process, signal.SIGTERM)
        wait(lambda: not home.state().runs)
    wait(lambda: not os.path.exists(os.path.dirname(found.socket)))

    home.start()
    killed = address.read(str(home.data))
    home.stop()
    home.start()
    home.stop()
    assert killed is not None and not os.path.exists(os.path.dirname(killed.socket)), "the next one cleans up"


def test_an_upgrade_ends_it_and_the_hook_runs_by_itself(tmp_path: Path) -> None:
    """The package is a copy here, so that it can be replaced under the resident."""
    package = tmp_path / "site/keepfast"
    shutil.copytree(Path(LAUNCH).parent.parent, package)
    home = Home(tmp_path)
    (home.project / "a.txt").write_text("one\n")
    home.variables["PYTHONPATH"] = str(package.parent)
    home.install()
    try:
        home.begin()
        wait(lambda: home.state().runs)
        process = home.state().process
        before = len(home.checkpoints())

        shutil.move(package / "entry.py", package / "entry.new")
        shutil.move(package / "entry.new", package / "entry.py")
        (home.project / "a.txt").write_text("two\n")
        home.hook("Stop", last_assistant_message="done")

        assert len(home.checkpoints()) == before + 1
        wait(lambda: not is_running(process))
    finally:
        home.stop()


def test_status_and_doctor_say_whether_it_runs(begun: Home) -> None:
    runs = json.loads(begun.run("status", "--json").stdout)["resident"]
    assert runs["running"] and runs["answers"] and runs["pid"] == begun.state().process

    os.kill(begun.state().process, signal.SIGSTOP)
    time.sleep(0.1)
    stopped = json.loads(begun.run("status", "--json").stdout)["resident"]
    checks = json.loads(begun.run("doctor", "--json").stdout)["checks"]

    assert stopped["running"] and not stopped["answers"] and stopped["why"]
    assert [check["level"] for check in checks if check["name"] == "resident"] == ["note"]
    assert begun.run("daemon", "stop").returncode == 0, "its advice"
    assert not begun.state().runs


def test_no_child_of_it_stays_as_a_zombie(begun: Home) -> None:
    for number in range(3):
        begun.hook("Stop", last_assistant_message=f"done {number}")
    begun.settle()
    process = begun.state().process

    def ends_without_a_trace() -> bool:
        begun.hook("PreToolUse", tool_name="Read", tool_use_id="toolu_1", tool_input={})
        return not zombies_of(process)

    wait(ends_without_a_trace)


def zombies_of(parent: int) -> list[str]:
    """Return the children of a process that have ended and were not waited for."""
    zombies = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] == "Z" and int(fields[1]) == parent:
            zombies.append(name)
    return zombies


def test_a_resting_resident_has_nothing_open_on_a_disk_of_the_users(begun: Home) -> None:
    begun.tool("Write", lambda: (begun.project / "b.txt").write_text("b\n"), file_path="b.txt")
    process = begun.state().process

    assert os.readlink(f"/proc/{process}/cwd") == "/"
    store = str(begun.data / "store")
    wait(lambda: not [path for path in opened_by(process) if path.startswith((store, str(begun.project)))])
    begun.tool("Write", lambda: (begun.project / "b.txt").write_text("c\n"), file_path="b.txt")
    assert begun.state().process == process


def opened_by(process: int) -> list[str]:
    folder = f"/proc/{process}/fd"
    return [os.readlink(f"{folder}/{name}") for name in os.listdir(folder) if os.path.lexists(f"{folder}/{name}")]
