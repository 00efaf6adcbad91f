"""`keepfast service`: what is written is what systemd and launchd read."""

from __future__ import annotations

import os
import plistlib
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from keepfast.cli.service import LABEL, launch_agent, run_commands, systemd_unit, unit_of
from keepfast.cli.session import Session
from keepfast.present.environment import Environment
from tests.equipment import programs
from tests.runner.test_commands import Person, person

__all__ = ["person"]
ODD = ["/opt/my tools/py%thon", "-m", "keepfast", 'a"quote', "$HOME", "back\\slash"]


def test_a_unit_is_installed_shown_and_removed(person: Person) -> None:
    unit_text = person.json("service", "install", "--dry-run")
    assert unit_text["kind"] == "systemd"
    assert not Path(unit_text["path"]).exists()

    assert person.run("service", "install", "--no-start").returncode == 0
    assert Path(unit_text["path"]).read_text() == unit_text["text"]
    assert person.json("service", "status") == {
        **{k: unit_text[k] for k in ("kind", "path")}, "installed": True, "running": False, "trouble": None,
    }  # fmt: skip
    assert person.json("service", "uninstall")["removed"]
    assert not Path(unit_text["path"]).exists()
    assert not person.json("service", "uninstall")["removed"]


def verify(person: Person, unit: Path) -> subprocess.CompletedProcess[str]:
    analyze = programs.find("systemd", "systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed and could not be: THE UNIT WAS NOT VERIFIED")
    runtime = person.base / "runtime"
    runtime.mkdir(mode=0o700)
    variables = {**person.variables, "XDG_RUNTIME_DIR": str(runtime)}
    return subprocess.run(
        [analyze, "--user", "verify", str(unit)], env=variables, capture_output=True, text=True, timeout=120
    )


def test_systemd_finds_nothing_wrong_with_the_unit(person: Person) -> None:
    person.run("service", "install", "--no-start")
    [unit] = (person.base / "home/.config/systemd/user").iterdir()

    done = verify(person, unit)

    assert done.returncode == 0, done
    assert unit.name not in done.stderr, done.stderr


def test_systemd_notices_a_unit_that_is_wrong(person: Person) -> None:
    """Else the test before this one would show nothing."""
    wrong = person.base / "wrong.service"
    wrong.write_text(systemd_unit(["/no/such/program"], {}).replace("KillMode=process", "KillMode=sometimes"))

    assert "wrong.service" in verify(person, wrong).stderr


def test_odd_words_survive_systemd(tmp_path: Path) -> None:
    """Read by systemd's own rules: quotes, `%%` and `$$`."""
    [line] = [line for line in systemd_unit(ODD, {"PATH": "/a b:/c%d"}).splitlines() if line.startswith("ExecStart=")]

    read = line.removeprefix("ExecStart=").replace("%%", "%").replace("$$", "$")
    assert shlex.split(read) == ODD
    assert 'Environment="PATH=/a b:/c%%d"' in systemd_unit(ODD, {"PATH": "/a b:/c%d"})


def test_the_property_list_is_one(tmp_path: Path) -> None:
    text = launch_agent(ODD, {"PATH": "/usr/bin:<&>"}, "/logs/err.log")

    read = plistlib.loads(text.encode())
    assert read["Label"] == LABEL
    assert read["ProgramArguments"] == ODD
    assert read["EnvironmentVariables"] == {"PATH": "/usr/bin:<&>"}
    assert (read["RunAtLoad"], read["KeepAlive"], read["AbandonProcessGroup"]) == (True, True, True)
    assert read["Umask"] == 0o077
    lint = shutil.which("plutil")
    if lint:
        assert subprocess.run([lint, "-lint", "-"], input=text.encode()).returncode == 0


def test_the_launch_agent_lies_where_launchd_looks_and_names_whole_paths(tmp_path: Path) -> None:
    """No Mac is at hand: what is written there is read back, and every path in it is one."""
    home = tmp_path / "Ada's Mac & Co <1>"
    environment = Environment(
        {b"HOME": os.fsencode(home), b"PATH": b"/usr/bin:/bin", b"LANG": b"ko_KR.UTF-8", b"OTHER": b"x"}
    )

    unit = unit_of(environment, "darwin")

    read = plistlib.loads(unit.text.encode())
    assert (unit.kind, unit.path) == ("launchd", f"{home}/Library/LaunchAgents/{LABEL}.plist")
    assert read["ProgramArguments"] == [sys.executable, "-m", "keepfast", "-q", "supervise"]
    assert read["EnvironmentVariables"] == {"PATH": "/usr/bin:/bin", "LANG": "ko_KR.UTF-8"}
    assert read["StandardErrorPath"] == f"{home}/.local/share/keepfast/supervisor/supervisor.log"
    assert all(os.path.isabs(path) for path in (read["ProgramArguments"][0], read["StandardErrorPath"]))


def test_launchd_is_told_of_the_file_and_of_the_label(tmp_path: Path) -> None:
    """Not the real one: a program of its name that writes down what it is told."""
    program, journal = tmp_path / "launchctl", tmp_path / "told"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {journal}\n')
    program.chmod(0o755)
    environment = Environment({b"HOME": os.fsencode(tmp_path), b"PATH": os.fsencode(f"{tmp_path}:/usr/bin:/bin")})
    session, unit = Session(environment, time.time_ns, 0.0), unit_of(environment, "darwin")

    assert run_commands(session, unit, "install")
    assert run_commands(session, unit, "uninstall")

    user = f"gui/{os.getuid()}"
    assert journal.read_text().splitlines() == ["bootstrap", user, unit.path, "bootout", f"{user}/{LABEL}"]


def test_what_the_unit_starts_is_a_supervisor(person: Person) -> None:
    text = person.json("service", "install", "--dry-run")["text"]
    words = [f'"{word}"' for word in (sys.executable, "-m", "keepfast", "-q", "supervise")]
    assert f"ExecStart={' '.join(words)}\n" in text
    person.json("task", "new", "x", "--agent", "true")

    done = subprocess.run(
        [sys.executable, "-m", "keepfast", "-q", "supervise", "--until-idle"],
        env=person.variables, cwd="/", capture_output=True, timeout=120,
    )  # fmt: skip

    assert done.returncode == 0
    assert os.path.isdir(person.base / "home/.local/share/keepfast/supervisor/runs")
