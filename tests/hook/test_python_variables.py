"""Variables by which Python finds its own library, even with `-I -S`: a repository that sets them runs no code of its own.

Each form in which a client starts our Python is tried with the real interpreter, and with a library that leaves a proof.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from keepfast.agents import launcher
from keepfast.runner.process import drivers
from tests.equipment.folders import marketplace

from .ground import LAUNCH, Ground, wait

BASE = Path(getattr(sys, "_base_executable", sys.executable))
NAME = f"python{sys.version_info[0]}.{sys.version_info[1]}"
LOCALE = Path("/usr/lib/locale/C.utf8")
MODULE = """
#include <stdio.h>
__attribute__((constructor)) static void run(void) { FILE *file = fopen("%s", "a"); if (file) fclose(file); }
int gconv_init(void *step) { return 0; }
int gconv(void) { return 1; }
void gconv_end(void *step) {}
"""


class Repository(NamedTuple):
    """A project that brings a standard library, folders of packages and a conversion of its own; each leaves the proof."""

    ground: Ground
    proof: Path
    launch: Path

    def variables(self, given: Mapping[str, str]) -> dict[str, str]:
        named = {name: value.format(project=self.ground.project) for name, value in given.items()}
        return {**self.ground.variables, **named}

    def run(
        self, words: list[str], given: Mapping[str, str], said: bytes = b"{}"
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            words, cwd=self.ground.project, env=self.variables(given), input=said, capture_output=True, timeout=60
        )

    def payload(self, event: str, **fields: object) -> bytes:
        return json.dumps(self.ground.payload(event, **fields)).encode()


@pytest.fixture
def repository(ground: Ground) -> Repository:
    proof = ground.base / "proof"
    plant_library(ground.project / "env", proof)
    (ground.project / "venv").mkdir()
    (ground.project / "venv/pyvenv.cfg").write_text(f"home = {ground.project}/env/bin\n")
    packages = ground.project / "user/lib" / NAME / "site-packages"
    packages.mkdir(parents=True)
    (packages / "evil.pth").write_text(f"import os; os.mkdir({str(proof)!r})\n")
    variables = {**ground.variables, "PYTHONPATH": str(LAUNCH.parents[2])}
    del variables["CLAUDE_PID"]  # a person's own shell
    for words in (["install", "claude", "--plugin"], ["init"]):
        command = [sys.executable, "-m", "keepfast", *words]
        done = subprocess.run(command, cwd=ground.project, env=variables, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return Repository(ground, proof, ground.data / "keepfast/bin" / launcher.NAME)


def plant_library(prefix: Path, proof: Path) -> None:
    """Python's own library, with one more line in a module that every start loads."""
    own, planted = Path(sysconfig.get_path("stdlib")), prefix / "lib" / NAME
    planted.mkdir(parents=True)
    (prefix / "bin").mkdir()
    for path in own.iterdir():
        if path.name not in ("encodings", "site-packages"):
            (planted / path.name).symlink_to(path)
    shutil.copytree(own / "encodings", planted / "encodings", ignore=shutil.ignore_patterns("__pycache__"))
    with (planted / "encodings/__init__.py").open("a") as file:
        file.write(f"\ntry: __import__('posix').mkdir({str(proof)!r})\nexcept OSError: pass\n")


LEADS = [
    {"PYTHONEXECUTABLE": "{project}/env/bin/python3"},
    {"PYTHONEXECUTABLE": "env/bin/python3"},
    {"PYTHONEXECUTABLE": "./env/bin/python3"},
    {"PYTHONEXECUTABLE": "{project}/venv/bin/python3"},
]
"""What today's Python obeys even with `-I -S`."""
OTHERS = [
    {"PYTHONEXECUTABLE": "//nowhere/of/that/name"},
    {"__PYVENV_LAUNCHER__": "{project}/env/bin/python3"},
    {"PYTHONHOME": "{project}/env"},
    {"PYTHONHOME": "env", "PYTHONPLATLIBDIR": "lib"},
    {"PYTHONPLATLIBDIR": "../../../../../../../../{project}/env/lib"},
    {"PYTHONUSERBASE": "{project}/user"},
    {"HOME": "{project}/user", "PYTHONPATH": "{project}/env/lib/" + NAME},
]
EACH = pytest.mark.parametrize(
    "given", [*LEADS, *OTHERS], ids=lambda given: " ".join(f"{name}={value}" for name, value in given.items())
)


@pytest.mark.skipif(sys.platform != "linux", reason="where Python takes its library from differs by system")
@pytest.mark.parametrize("given", LEADS, ids=lambda given: given["PYTHONEXECUTABLE"])
def test_python_alone_would_run_what_the_repository_brings(repository: Repository, given: dict[str, str]) -> None:
    """Or else the tests below could not fail."""
    repository.run([sys.executable, "-I", "-S", "-B", "-c", ""], given)

    assert repository.proof.exists()


@EACH
def test_hooks_run_no_library_of_a_repository_and_save(repository: Repository, given: dict[str, str]) -> None:
    ground, launch = repository.ground, str(repository.launch)
    asked = {"tool_name": "Bash", "tool_input": {"command": "rm a.txt"}, "tool_use_id": "toolu_1"}

    before = repository.run([launch, "hook", "claude-code"], given, repository.payload("PreToolUse", **asked))
    later = repository.payload("StopFailure")
    detached = repository.run([launch, "detach", "hook", "claude-code"], given, later)

    assert (before.returncode, before.stderr, detached.returncode) == (0, b"", 0)
    wait(lambda: len(ground.triggers()) > 1)
    assert "before_command" in ground.triggers()
    assert ground.contents(ground.checkpoints()[0])["a.txt"] == b"one\n"
    assert not Path(f"{launch}{launcher.LOG}").exists()
    assert not repository.proof.exists()


@EACH
def test_status_line_and_commands_run_no_library_of_a_repository(repository: Repository, given: dict[str, str]) -> None:
    launch, payload = str(repository.launch), repository.payload("Status")

    line = repository.run([launch, "statusline"], given, payload)
    own = repository.run([launch, "statusline", "--then", "echo mine"], given, payload)
    saved = repository.run([launch, "run", "save", "--json"], given)

    assert (line.returncode, own.returncode, saved.returncode) == (0, 0, 0), saved.stderr
    assert line.stdout and b"mine\n" in own.stdout
    assert json.loads(saved.stdout)["coverage"]["files"] >= 1
    assert not repository.proof.exists()


@EACH
@pytest.mark.parametrize("state", ["prepared", "launcher gone"])
def test_the_plugin_runs_no_library_of_a_repository(repository: Repository, state: str, given: dict[str, str]) -> None:
    ground, asked = repository.ground, repository.payload("SessionEnd", reason="other")
    if state != "prepared":
        repository.launch.unlink()
    script = ["/bin/sh", str(marketplace(ground.base, ground.home) / "plugin/bin/keepfast")]

    hook = repository.run([*script, "hook", "claude-code"], given, asked)
    saved = repository.run([*script, "save", "--json"], given)

    assert (hook.returncode, saved.returncode) == (0, 0), saved.stderr
    assert json.loads(saved.stdout)["coverage"]["files"] >= 1
    assert not repository.proof.exists()


@EACH
def test_a_program_that_the_plugin_finds_by_its_name_starts_without_them(
    repository: Repository, given: dict[str, str]
) -> None:
    """It does not do the work of a hook here: that goes by the passwd entry, which is the one of this machine."""
    home = repository.ground.home
    (home / ".config/keepfast/interpreter").unlink()
    program = home / ".local/bin/keepfast"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!{sys.executable}\nimport os\nprint('started in', os.environ['HOME'])\n")
    program.chmod(0o755)
    script = ["/bin/sh", str(marketplace(repository.ground.base, home) / "plugin/bin/keepfast")]

    done = [repository.run([*script, *words], given) for words in (["hook", "claude-code"], ["list"])]

    assert [one.stdout.decode() for one in done] == [f"started in {home}\n"] * 2
    assert not repository.proof.exists()


@EACH
def test_what_a_supervised_client_starts_runs_no_library_of_a_repository(
    repository: Repository, given: dict[str, str]
) -> None:
    folder = repository.ground.base / "run"
    folder.mkdir()
    settings = drivers._claude_settings(str(folder), [])
    server = drivers._claude_tools(str(folder), [])["mcpServers"]["keepfast"]
    [failure] = [hook["command"] for group in settings["hooks"]["StopFailure"] for hook in group["hooks"]]
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "report_progress", "arguments": {}},
    }

    noted = repository.run(["/bin/sh", "-c", failure], given, b'{"error": "rate_limit"}')
    called = repository.run([server["command"], *server["args"]], given, json.dumps(request).encode() + b"\n")

    assert noted.returncode == called.returncode == 0
    assert (folder / "failures.jsonl").exists() and (folder / "tools.jsonl").exists()
    assert not repository.proof.exists()


def test_packages_of_a_user_lie_where_no_variable_says(repository: Repository) -> None:
    """A Python that is no virtual environment looks for them, and runs what stands in their `.pth` files, with `-E`, too."""
    given = {"PYTHONUSERBASE": "{project}/user"}
    path, own = repository.ground.base / "launch", repository.ground.folders
    path.write_text(launcher.script(str(BASE), str(LAUNCH), str(path), own))
    if not repository.run([str(BASE), "-E", "-P", "-c", ""], given) or not repository.proof.exists():
        pytest.skip("this Python knows no packages of a user")
    repository.proof.rmdir()

    repository.run(["/bin/sh", str(path), "run", "list"], given)

    assert not repository.proof.exists()


@pytest.mark.skipif(
    not LOCALE.is_dir() or shutil.which("cc") is None, reason="needs cc and a locale of the GNU C library"
)
def test_the_c_library_below_python_is_led_to_no_conversion_of_a_repository(repository: Repository) -> None:
    project = repository.ground.project
    shutil.copytree(LOCALE, project / "locales/evil")
    names = project / "locales/evil/LC_CTYPE"
    names.write_bytes(names.read_bytes().replace(b"UTF-8\0", b"EVIL1\0"))
    (project / "gconv").mkdir()
    (project / "gconv/gconv-modules").write_text("module EVIL1// INTERNAL evil 1\nmodule INTERNAL EVIL1// evil 1\n")
    (repository.ground.base / "evil.c").write_text(MODULE % repository.proof)
    build = [
        "cc",
        "-w",
        "-shared",
        "-fPIC",
        "-o",
        str(project / "gconv/evil.so"),
        str(repository.ground.base / "evil.c"),
    ]
    subprocess.run(build, check=True)
    given = {"GCONV_PATH": "{project}/gconv", "LOCPATH": "{project}/locales", "LC_ALL": "evil"}
    repository.run(["/bin/sh", "-c", "exit 0"], given)
    if repository.proof.exists():
        pytest.skip("this shell obeys them itself")
    repository.run([sys.executable, "-I", "-S", "-c", ""], given)
    assert repository.proof.exists(), "Python does not obey them: the test cannot fail"
    repository.proof.unlink()

    for words in (["hook", "claude-code"], ["statusline"], ["run", "list"]):
        done = repository.run([str(repository.launch), *words], given, repository.payload("SessionEnd", reason="other"))
        assert done.returncode == 0, done.stderr

    assert not repository.proof.exists()


def test_the_plugins_script_forgets_what_the_launcher_forgets() -> None:
    script = Path(__file__).parents[2] / "plugin/bin/keepfast"

    assert launcher.FORGET in script.read_text().splitlines()


def test_init_writes_a_launcher_that_obeyed_them_anew(repository: Repository) -> None:
    path = repository.launch
    path.write_text(path.read_text().replace(launcher.FORGET + "\n", ""))
    variables = {name: value for name, value in repository.ground.variables.items() if name != "CLAUDE_PID"}

    subprocess.run(
        [sys.executable, "-m", "keepfast", "init"],
        cwd=repository.ground.project, env={**variables, "PYTHONPATH": os.fspath(LAUNCH.parents[2])}, check=True,
    )  # fmt: skip

    assert launcher.FORGET in path.read_text().splitlines()
