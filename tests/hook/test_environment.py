"""A repository's own client settings can set any variable of a hook: none of them moves, loosens or silences it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from keepfast.agents import launcher
from keepfast.present import supervision
from keepfast.present.environment import Environment, default_folders
from keepfast.runner.process import shims
from tests.equipment.box import Box

from .ground import LAUNCH, Ground, wait

RUN = "20260301-task:1"
TOKEN = "0123456789abcdef0123456789abcdef"


def hostile(ground: Ground) -> Path:
    """A configuration in the repository that runs a command and keeps nothing; return what the command would leave."""
    proof = ground.base / "proof"
    program = ground.project / "evil"
    program.write_text(f"#!/bin/sh\necho ran >> {proof}\necho '{{}}'\n")
    program.chmod(0o755)
    config = {
        "analysis": {"llm": "command", "command": [str(program)]},
        "capture": {"exclude": ["*"]},
        "store": {"url": str(ground.project / "their-store")},
    }
    for place in (".cfg/keepfast", ".config/keepfast"):
        (ground.project / place).mkdir(parents=True)
        (ground.project / place / "config.json").write_text(json.dumps(config))
    return proof


@pytest.mark.parametrize(
    "variables",
    [
        {"XDG_CONFIG_HOME": "/proc/self/cwd/.cfg"},
        {"XDG_CONFIG_HOME": "{project}/.cfg"},
        {"HOME": "/proc/self/cwd"},
        {"HOME": "{project}"},
        {"XDG_DATA_HOME": "/proc/self/cwd/.data"},
        {"HOME": "{project}", "XDG_CONFIG_HOME": "{project}/.cfg", "XDG_DATA_HOME": "{project}/.data"},
        {"KEEPFAST_CAPTURE_EXCLUDE": '["*"]', "KEEPFAST_ADOPT": "never", "KEEPFAST_CAPTURE_MAX_FILE_SIZE": "1"},
        {"KEEPFAST_SUPERVISED": "claude-code"},
        {"KEEPFAST_SUPERVISED": "claude-code", "KEEPFAST_RUN": "../../..", "KEEPFAST_RUN_TOKEN": "x"},
        {"PYTHONPATH": "{project}", "PYTHONHOME": "{project}", "PYTHONSTARTUP": "{project}/evil"},
        {"GIT_DIR": "{project}/.cfg", "GIT_EXTERNAL_DIFF": "{project}/evil", "GIT_CONFIG_GLOBAL": "{project}/evil"},
        {"TMPDIR": "{project}/.data", "CLAUDE_CONFIG_DIR": "{project}/.cfg"},
    ],
    ids=lambda given: "+".join(given),
)
def test_no_variable_of_a_repository_moves_a_hook_or_runs_a_command(ground: Ground, variables: dict[str, str]) -> None:
    proof = hostile(ground)
    ground.variables.update({name: value.format(project=ground.project) for name, value in variables.items()})

    for event, fields in (("SessionStart", {"source": "startup"}), ("Stop", {"last_assistant_message": "Done."})):
        assert ground.hook(event, **fields).returncode == 0

    newest = ground.checkpoints()[-1]
    assert ground.contents(newest)["a.txt"] == b"one\n"
    assert Path(ground.engine.place.path).is_relative_to(ground.home)
    assert not proof.exists()
    assert not [name for name in (".data", "their-store", ".local") if (ground.project / name).exists()]


def test_without_written_folders_a_hook_goes_by_the_passwd_entry(tmp_path: Path) -> None:
    """As hooks that an earlier version installed are started."""
    shown = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from keepfast.present.environment import hook_environment\n"
        "print('\\n'.join(hook_environment(None).folders))"
    )
    variables = {name: str(tmp_path) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")}
    source = str(LAUNCH.parents[2])

    done = subprocess.run([sys.executable, "-I", "-c", shown, source], env=variables, capture_output=True, text=True)

    assert done.stdout.splitlines() == list(default_folders())


# Supervision


class Shimmed:
    """An agent under a real shim, in the run's folder of a supervisor of this user."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.folder = ground.data / "keepfast/supervisor/runs" / RUN.replace(":", "-")
        self.variables = {
            **ground.variables,
            "KEEPFAST_SUPERVISED": "claude-code",
            "KEEPFAST_RUN": RUN,
            "KEEPFAST_RUN_TOKEN": TOKEN,
        }

    def run(self, *command: str, stdin: Path, client: str = "claude-code") -> None:
        self.folder.mkdir(parents=True)
        (self.folder / "token").write_text(TOKEN)
        (self.folder / "client").write_text(client)
        job = {
            "run": RUN,
            "command": list(command),
            "cwd": str(self.ground.project),
            "environment": self.variables,
            "stdin": str(stdin),
            "grace": 1,
        }
        assert shims.start(str(self.folder), job) == "started"

    def end(self) -> shims.RunStatus:
        wait(lambda: shims.status_of(str(self.folder), RUN).kind != shims.ALIVE, 60)
        return shims.status_of(str(self.folder), RUN)


def kinds(ground: Ground) -> list[str]:
    return [notice.partition(" ")[0] for notice in ground.notices()]


def stop(ground: Ground, **fields: Any) -> bytes:
    return json.dumps(ground.payload("Stop", last_assistant_message="Done.", **fields)).encode()


def test_a_hook_below_the_shim_of_a_living_run_stands_down_and_says_so_once(started: Ground) -> None:
    (started.project / "a.txt").write_text("two\n")
    before = len(started.checkpoints())
    payload = started.base / "payload"
    payload.write_bytes(stop(started))
    shimmed = Shimmed(started)
    again = " ".join(started.command())

    shimmed.run("sh", "-c", f"{again} <{payload}; {again} <{payload}; sh -c '{again} <{payload}'", stdin=payload)

    assert shimmed.end().exit_code == 0
    assert len(started.checkpoints()) == before
    assert kinds(started) == ["stood_down"]


@pytest.mark.parametrize("client", ["", "codex"])
def test_a_hook_in_a_run_of_another_agent_works_as_always(started: Ground, client: str) -> None:
    """The supervisor of a command agent brings no guard for a client that the command starts."""
    (started.project / "precious.txt").write_text("precious\n")
    payload = started.base / "payload"
    said = started.payload("PreToolUse", tool_name="Bash", tool_input={"command": "rm precious.txt"})
    payload.write_text(json.dumps(said))
    shimmed = Shimmed(started)

    shimmed.run("sh", "-c", f"{' '.join(started.command())} <{payload}", stdin=payload, client=client)

    assert shimmed.end().exit_code == 0
    assert "before_command" in started.triggers()
    assert kinds(started) == ["not_believed"]


def test_what_a_run_knows_is_worth_nothing_outside_of_it(started: Ground) -> None:
    """An agent can write all of its variables into the settings of a project, for the next one who works there."""
    (started.project / "a.txt").write_text("two\n")
    before = len(started.checkpoints())
    payload = started.base / "payload"
    payload.write_bytes(b"")
    shimmed = Shimmed(started)
    shimmed.run("sleep", "600", stdin=payload)
    try:
        started.variables.update(shimmed.variables)

        done = [started.send(stop(started)).returncode for _ in range(2)]
    finally:
        shims.wish(str(shimmed.folder), "kill")
        shimmed.end()

    assert done == [0, 0]
    assert len(started.checkpoints()) == before + 1
    assert kinds(started) == ["not_believed"]


def test_a_run_that_is_over_lets_hooks_work_again(started: Ground) -> None:
    payload = started.base / "payload"
    payload.write_bytes(stop(started))
    (started.project / "a.txt").write_text("two\n")
    before = len(started.checkpoints())
    shimmed = Shimmed(started)
    shimmed.run("true", stdin=payload)
    shimmed.end()
    started.variables.update(shimmed.variables)

    assert started.send(stop(started)).returncode == 0

    assert len(started.checkpoints()) == before + 1


def test_the_guard_before_a_destructive_command_cannot_be_switched_off(started: Ground) -> None:
    started.variables["KEEPFAST_SUPERVISED"] = "claude-code"
    (started.project / "precious.txt").write_text("precious\n")

    started.tool("Bash", command="rm -rf precious.txt")

    assert "before_command" in started.triggers()


@pytest.mark.parametrize(
    ("value", "said"),
    [("claude-code", ["not_believed"]), ("1", ["not_believed"]), ("codex", ["not_believed"]), ("", [])],
)
def test_whatever_claims_a_supervisor_where_none_runs_is_noticed(started: Ground, value: str, said: list[str]) -> None:
    started.variables["KEEPFAST_SUPERVISED"] = value
    (started.project / "a.txt").write_text("two\n")
    before = len(started.checkpoints())

    assert [started.send(stop(started)).returncode for _ in range(2)] == [0, 0]

    assert len(started.checkpoints()) == before + 1
    assert kinds(started) == said


def test_a_client_that_a_supervised_one_of_another_kind_starts_is_no_reason_for_a_notice(started: Ground) -> None:
    (started.project / "precious.txt").write_text("precious\n")
    payload = started.base / "payload"
    said = started.payload("PreToolUse", tool_name="Bash", tool_input={"command": "rm precious.txt"})
    payload.write_text(json.dumps(said))
    shimmed = Shimmed(started)
    shimmed.variables["KEEPFAST_SUPERVISED"] = "codex"

    shimmed.run("sh", "-c", f"{' '.join(started.command())} <{payload}", stdin=payload, client="codex")

    assert shimmed.end().exit_code == 0
    assert "before_command" in started.triggers()
    assert kinds(started) == []


def test_status_and_doctor_say_that_hooks_were_told_to_stand_down(started: Ground) -> None:
    started.variables["KEEPFAST_SUPERVISED"] = "claude-code"
    started.send(stop(started))
    started.settle()
    box = Box.__new__(Box)
    box.base, box.home, box.project = started.base, started.home, started.project
    box.variables, box.now = {"HOME": str(started.home), "PATH": os.environ["PATH"]}, time.time_ns()

    status = box.call("status", "--json").json()
    doctor = [check for check in box.call("doctor", "--json").json()["checks"] if check["name"] == "supervision"]

    assert [notice["kind"] for notice in status["notices"]] == ["not_believed"]
    assert box.call("status").code == 0
    assert [check["level"] for check in doctor] == ["note"]


# The launcher


def installed(ground: Ground, *words: str) -> Path:
    variables = {**ground.variables, "PYTHONPATH": str(LAUNCH.parents[2])}
    del variables["CLAUDE_PID"]  # a person's own shell
    command = [sys.executable, "-m", "keepfast", *words]
    done = subprocess.run(command, cwd=ground.project, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return ground.data / "keepfast/bin" / launcher.NAME


def test_hooks_that_are_installed_keep_to_the_folders_of_whoever_installed_them(ground: Ground) -> None:
    proof = hostile(ground)
    path = installed(ground, "install", "claude")
    tools = ground.project / "tools"
    tools.mkdir()
    for name in ("cat", "find", "rm", "setsid", "sh", "env", "python", "keepfast", "git"):
        (tools / name).write_text(f"#!/bin/sh\necho {name} >> {proof}\n")
        (tools / name).chmod(0o755)
    variables = {
        "HOME": str(ground.project),
        "XDG_CONFIG_HOME": "/proc/self/cwd/.cfg",
        "XDG_DATA_HOME": "/proc/self/cwd/.data",
        "PATH": f"{tools}:/usr/bin:/bin",
        "PYTHONPATH": str(ground.project),
    }

    for words in (["hook", "claude-code"], ["detach", "hook", "claude-code"]):
        done = subprocess.run(
            [path, *words], cwd=ground.project, env=variables, input=stop(ground), capture_output=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, b"")
    line = subprocess.run(
        [path, "statusline"], cwd=ground.project, env=variables, input=stop(ground), capture_output=True, check=False
    )

    wait(lambda: "turn" in ground.triggers())
    assert ground.contents(ground.checkpoints()[-1])["a.txt"] == b"one\n"
    assert line.returncode == 0 and b"not protected" not in line.stdout
    assert not proof.exists()
    assert not (ground.project / ".data").exists() and not (ground.project / ".local").exists()


def test_a_command_that_the_client_starts_by_the_launcher_has_the_folders_too(ground: Ground) -> None:
    """So the plugin runs commands and the MCP server."""
    hostile(ground)
    path = installed(ground, "install", "claude")
    installed(ground, "init")
    variables = {
        "HOME": str(ground.project),
        "XDG_CONFIG_HOME": "/proc/self/cwd/.cfg",
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(ground.project / "nothing"),
    }

    done = subprocess.run(
        [path, "run", "save", "--json"], cwd=ground.project, env=variables, capture_output=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["coverage"]["files"] >= 1
    assert not (ground.project / "their-store").exists()


def older(path: Path) -> None:
    """The launcher as a version before this one wrote it."""
    text = path.read_text()
    names = ("home", "config", "data")
    path.write_text(
        "".join(line for line in text.splitlines(True) if not line.startswith(tuple(f"{n}=" for n in names)))
    )
    assert launcher.folders(path.read_text()) is None


def test_init_writes_the_folders_into_a_launcher_of_an_earlier_version(ground: Ground) -> None:
    path = installed(ground, "install", "claude")
    older(path)

    installed(ground, "init")

    assert launcher.folders(path.read_text()) == ground.folders


def test_an_agents_command_does_not_change_the_folders_of_hooks(ground: Ground) -> None:
    path = installed(ground, "install", "claude")
    other = ground.base / "other"
    other.mkdir()
    variables = {
        **ground.variables,
        "CLAUDECODE": "1",
        "XDG_CONFIG_HOME": str(other),
        "PYTHONPATH": str(LAUNCH.parents[2]),
    }

    for words in (["install", "claude"], ["init"]):
        subprocess.run([sys.executable, "-m", "keepfast", *words], cwd=ground.project, env=variables, check=True)

    assert launcher.folders(path.read_text()) == ground.folders


@pytest.mark.parametrize("told", [True, False], ids=["ancestors", "token alone"])
def test_a_run_counts_only_while_its_lock_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: bool) -> None:
    """A number that the shim of an old run had may be another's by now; some systems tell no ancestors."""
    folder = tmp_path / "keepfast/supervisor/runs/t-1"
    folder.mkdir(parents=True)
    (folder / "lock").write_text(json.dumps({"run": "t:1", "pid": os.getppid()}))
    (folder / "token").write_text(TOKEN)
    if not told:
        monkeypatch.setattr(supervision, "ancestors", list)
    here = str(tmp_path)

    def found(token: str) -> str:
        variables = {b"KEEPFAST_RUN": b"t:1", b"KEEPFAST_RUN_TOKEN": token.encode()}
        return supervision.run_above(Environment(variables, (here, here, here)))

    free = found(TOKEN)
    with open(folder / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        held, wrong = found(TOKEN), found("another")

    assert (free, held, wrong) == ("", str(folder), str(folder) if told else "")


@pytest.mark.parametrize("name", ["../elsewhere", "..", ".hidden", "/tmp", "a/b", "", "t\n1", "../../../project/run"])
def test_a_run_lies_in_the_folder_of_runs_and_nowhere_else(tmp_path: Path, name: str) -> None:
    """A repository that names a folder of its own, with a lock that its own program holds, switches nothing off."""
    folder = tmp_path / "keepfast/supervisor/runs" / name
    (tmp_path / "keepfast/supervisor/runs").mkdir(parents=True)
    folder = folder if name.startswith((".", "a", "t")) else tmp_path / "keepfast/supervisor/runs"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lock").write_text(json.dumps({"run": name, "pid": os.getppid()}))
    here = str(tmp_path)

    with open(folder / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = supervision.run_above(Environment({b"KEEPFAST_RUN": name.encode()}, (here, here, here)))

    assert found == ""


def test_no_token_is_not_the_token_of_a_run_that_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "ancestors", list)  # as on a system that tells none
    folder = tmp_path / "keepfast/supervisor/runs/t-1"
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    here = str(tmp_path)

    with open(folder / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for token in (None, ""):
            if token is not None:
                (folder / "token").write_text(token)
            assert supervision.run_above(Environment({b"KEEPFAST_RUN": b"t:1"}, (here, here, here))) == ""


def test_a_run_is_told_once_that_hooks_stand_down(tmp_path: Path) -> None:
    assert [supervision.note_suspension(str(tmp_path)) for _ in range(3)] == [True, False, False]
    assert not supervision.note_suspension(str(tmp_path / "gone"))


# Libraries

LIBRARY = """
#include <stdio.h>
__attribute__((constructor)) static void run(void) { FILE *file = fopen("%s", "a"); if (file) fclose(file); }
"""
OPENSSL = "openssl_conf = i\n[i]\nproviders = p\n[p]\nevil = e\n[e]\nmodule = %s\nactivate = 1\n"


@pytest.mark.skipif(shutil.which("cc") is None, reason="cc is missing (Debian: gcc)")
def test_no_library_of_a_repository_is_loaded(ground: Ground) -> None:
    proof, library = ground.base / "proof", ground.project / "evil.so"
    (ground.base / "evil.c").write_text(LIBRARY % proof)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(ground.base / "evil.c")], check=True)
    (ground.project / "o.cnf").write_text(OPENSSL % library)
    named = {"OPENSSL_CONF": str(ground.project / "o.cnf"), "FUSE_LIBRARY_PATH": str(library)}
    ground.variables.update(named)
    loads = subprocess.run([sys.executable, "-c", "import hashlib; hashlib.new('sha512')"], env={**os.environ, **named})
    assert loads.returncode == 0 and proof.exists()
    proof.unlink()

    for part in "1", "2":
        payload = json.dumps(ground.payload("SessionStart", source="startup")).encode()
        assert ground.send(payload, "--part", part).returncode == 0
    assert ground.hook("Stop", last_assistant_message="Done.").returncode == 0
    for words in (["show", "v1"], ["resume"], ["doctor"]):
        command = [sys.executable, "-m", "keepfast", *ground.written, *words]
        variables = {**ground.variables, "CLAUDECODE": "1"}
        subprocess.run(command, cwd=ground.project, env=variables, capture_output=True, timeout=60)

    assert not proof.exists()


def test_the_package_that_mounts_is_told_of_no_library_by_an_agent() -> None:
    shown = (
        "from keepfast.present.environment import command_environment\n"
        "command_environment()\n"
        "import os; print(sorted(os.environ))"
    )
    for name, kept in (("CLAUDECODE", False), ("SHELL", True)):
        variables = {name: "1", "FUSE_LIBRARY_PATH": "/proc/self/cwd/evil.so"}
        done = subprocess.run([sys.executable, "-c", shown], env=variables, capture_output=True, text=True)

        assert ("FUSE_LIBRARY_PATH" in done.stdout) is kept


def test_a_variable_for_completion_does_not_stand_in_for_a_command(ground: Ground) -> None:
    variables = {**ground.variables, "_KEEPFAST_COMPLETE": "bash_source"}
    command = [sys.executable, "-m", "keepfast", *ground.written]

    made = subprocess.run([*command, "init", "--json"], cwd=ground.project, env=variables, capture_output=True)
    asked = subprocess.run(command, cwd=ground.project, env=variables, capture_output=True, text=True)

    assert json.loads(made.stdout)["root"] == str(ground.project)
    assert "complete" in asked.stdout
