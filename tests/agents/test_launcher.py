"""The command in a client's settings: harmless where keepfast is gone, torn or broken, and never exit code 2."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import keepfast
from keepfast.agents import launcher
from tests.equipment.folders import marketplace

PACKAGE = Path(keepfast.__file__).parent
LARGE = "x" * 300_000
"""More than a pipe holds: a hook that does not read it would break the client's write."""


class Installed:
    """A copy of the package that can be harmed, and hooks of it in the settings of a home of its own."""

    def __init__(self, base: Path) -> None:
        self.base, self.home, self.project = base, base / "home", base / "project"
        self.package = base / "a site/keepfast"  # a blank: paths must be quoted
        shutil.copytree(PACKAGE, self.package)
        for folder in (self.home, self.project / ".git"):
            folder.mkdir(parents=True)
        (self.project / ".git/HEAD").write_text("ref: refs/heads/main\n")
        self.variables = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", "CLAUDE_PID": "4242"}
        self.data = self.home / ".local/share/keepfast"
        self.launcher = self.data / "bin" / launcher.NAME

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "keepfast", *words],
            cwd=self.project,
            env={**self.variables, "PYTHONPATH": str(self.package.parent)},
            capture_output=True,
            text=True,
        )

    def install(self, *words: str) -> None:
        done = self.run("install", "claude", *words)
        assert done.returncode == 0, done.stderr

    def settings(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.home / ".claude/settings.json").read_text())
        return found

    def commands(self, event: str) -> list[str]:
        return [entry["command"] for group in self.settings()["hooks"][event] for entry in group["hooks"]]

    def hook(self, event: str, reads: bool = True, **fields: Any) -> tuple[int, bytes, bytes]:
        """What the first hook of an event does, started as the client starts it."""
        common = {"session_id": "1234", "transcript_path": "", "cwd": str(self.project), "hook_event_name": event}
        return self.shell(self.commands(event)[0], json.dumps({**common, **fields}).encode(), reads)

    def shell(self, command: str, payload: bytes = b"{}", reads: bool = True) -> tuple[int, bytes, bytes]:
        child = subprocess.Popen(
            ["/bin/sh", "-c", command],
            cwd=self.project,
            env=self.variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None
        # A launcher that is whole reads all of it; one that is harmed may end before it does.
        with contextlib.nullcontext() if reads else contextlib.suppress(BrokenPipeError):
            child.stdin.write(payload)
            child.stdin.close()
        out, err = child.stdout.read(), child.stderr.read()
        return child.wait(timeout=60), out, err

    def uninstall_package(self) -> None:
        """As pip does: the package is gone, and the settings are as they were."""
        shutil.rmtree(self.package)

    def notices(self) -> list[dict[str, Any]]:
        """What `status` says went wrong."""
        found: list[dict[str, Any]] = json.loads(self.run("status", "--json").stdout)["notices"]
        return found


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    made = Installed(tmp_path)
    made.install()
    return made


def lose_package(installed: Installed) -> None:
    installed.uninstall_package()


def lose_launcher(installed: Installed) -> None:
    for path in installed.data.glob("bin/*"):
        path.unlink()


def lose_everything(installed: Installed) -> None:
    shutil.rmtree(installed.data, ignore_errors=True)
    installed.uninstall_package()


@pytest.mark.parametrize("lose", [lose_package, lose_launcher, lose_everything])
def test_hooks_without_an_installation_are_silent_and_succeed(
    installed: Installed, lose: Callable[[Installed], None]
) -> None:
    lose(installed)

    events = ["SessionStart", "UserPromptSubmit", "PreToolUse", "StopFailure", "SessionEnd"]
    done = {event: installed.hook(event, prompt=LARGE) for event in events}

    assert done == dict.fromkeys(events, (0, b"", b""))


def test_hooks_without_their_python_are_silent_and_succeed(tmp_path: Path) -> None:
    """A virtual environment that was deleted."""
    path = tmp_path / "launch"
    path.write_text(launcher.script(str(tmp_path / "gone/bin/python"), launcher.__file__, str(path)))
    path.chmod(0o755)

    done = subprocess.run(launcher.hook(str(path), "hook", "claude-code"), shell=True, input=b"{}", capture_output=True)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """One for many tests, each of which mends what it harms."""
    made = Installed(tmp_path_factory.mktemp("upgraded"))
    made.install()
    made.hook("UserPromptSubmit", prompt="begin")
    return made


MODULES = sorted(
    str(path.relative_to(PACKAGE))
    for folder in ("hook", "present", "settings", "model", "agents/claude", "app", "store", "workspace")
    for path in (PACKAGE / folder).glob("*.py")
    if path.name in ("launch.py", "start.py", "main.py", "environment.py", "schema.py", "hooks.py", "wiring.py")
    or (folder, path.name)
    in (("app", "checkpoint.py"), ("app", "checkpoint_save.py"), ("app", "workspaces.py"), ("store", "place.py"))
)


@pytest.mark.parametrize("how", ["missing", "cut"])
@pytest.mark.parametrize("name", MODULES)
def test_in_the_middle_of_an_upgrade_hooks_are_silent_and_succeed(upgraded: Installed, name: str, how: str) -> None:
    """pip removes the package, then writes it file by file: any of them may be missing or half there."""
    installed, harmed = upgraded, upgraded.package / name
    (installed.project / "work.txt").write_text(f"{name} {how}\n")
    text = harmed.read_bytes()
    if how == "missing":
        harmed.unlink()
    else:
        harmed.write_bytes(text[: len(text) // 2] + b"\n(")  # a text cut off anywhere is rarely a program

    done = [
        installed.hook("PreToolUse", tool_name="Bash", tool_input={"command": "rm work.txt"}),
        installed.hook("SessionStart", source="startup"),
        installed.hook("Stop"),
    ]

    harmed.write_bytes(text)
    assert done == [(0, b"", b"")] * 3
    assert installed.hook("Stop") == (0, b"", b"")


def test_an_event_that_an_upgrade_cut_off_is_done_after_it(installed: Installed) -> None:
    workspaces = installed.data / "store/workspaces"
    installed.hook("UserPromptSubmit", prompt="begin")
    wait_for(lambda: not list(workspaces.glob("*/pending/*")))
    (installed.project / "work.txt").write_text("done\n")
    transcript = installed.home / "transcript.jsonl"
    said = {"type": "user", "uuid": "1", "sessionId": "1234", "message": {"role": "user", "content": "begin"}}
    transcript.write_text(json.dumps(said) + "\n")
    making = installed.package / "agents/transcript.py"
    text = making.read_bytes()
    making.unlink()

    installed.hook("Stop", transcript_path=str(transcript))

    wait_for(lambda: any("transcript" in notice["text"] for notice in notices_of(workspaces)))
    assert list(workspaces.glob("*/pending/*"))
    making.write_bytes(text)
    listed = json.loads(installed.run("list", "--json").stdout)
    assert listed[0]["trigger"] == "turn" and not list(workspaces.glob("*/pending/*"))


def wait_for(found: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not found():
        assert time.monotonic() < until, "it does not come"
        time.sleep(0.05)


def notices_of(workspaces: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in workspaces.glob("*/notices") for line in path.read_text().splitlines()]


def test_what_did_not_start_is_in_status_and_doctor(installed: Installed) -> None:
    installed.hook("UserPromptSubmit", prompt="begin")
    starting = installed.package / "hook/main.py"
    text = starting.read_text()
    starting.write_text("import nothing_of_that_name\n")

    installed.hook("Stop")

    assert any("nothing_of_that_name" in notice["text"] for notice in installed.notices())
    found = json.loads(installed.run("doctor", "--json").stdout)["checks"]
    assert [check["level"] for check in found if check["name"] == "claude"] == ["fine", "problem"]
    starting.write_text(text)
    found = json.loads(installed.run("doctor", "--json").stdout)["checks"]
    assert [check["level"] for check in found if check["name"] == "claude"] == ["fine", "note"]


def claude_checks(installed: Installed) -> list[str]:
    """The levels of what `doctor` finds about the client, with the copy of the package that the tests have."""
    done = subprocess.run(
        [sys.executable, "-m", "keepfast", "doctor", "--json"],
        cwd=installed.project,
        env={**installed.variables, "PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
    )
    return [check["level"] for check in json.loads(done.stdout)["checks"] if check["name"] == "claude"]


def test_a_session_while_it_was_not_installed_is_in_status_and_doctor(installed: Installed) -> None:
    installed.hook("SessionStart", source="startup")
    kept = installed.base / "kept"
    installed.package.rename(kept)
    assert installed.hook("Stop") == (0, b"", b"")
    kept.rename(installed.package)

    [notice] = [one for one in installed.notices() if "not installed" in one["text"]]

    assert notice["kind"] == "failed"
    assert "not installed" in installed.run("doctor").stdout


def test_a_lost_data_folder_is_told_by_status_and_init_writes_the_launcher_again(installed: Installed) -> None:
    store = installed.base / "st"
    assert installed.run("--store", str(store), "init").returncode == 0
    assert json.loads(installed.run("status", "--json").stdout)["remarks"] == []
    kept = installed.launcher.read_text()
    shutil.rmtree(installed.data)
    installed.variables["CLAUDECODE"] = "1"
    assert installed.run("--store", str(store), "init").returncode == 0
    del installed.variables["CLAUDECODE"], installed.variables["CLAUDE_PID"]

    [warned] = json.loads(installed.run("status", "--json").stdout)["remarks"]
    again = installed.run("--store", str(store), "init")

    assert str(installed.launcher) in warned and "keepfast install claude" in warned
    assert again.returncode == 0 and "launcher" in again.stderr
    assert installed.launcher.read_text() == kept
    assert json.loads(installed.run("status", "--json").stdout)["remarks"] == []
    assert installed.hook("Stop")[0] == 0


def test_status_warns_of_hooks_whose_program_is_gone(installed: Installed) -> None:
    installed.run("init")
    text = installed.launcher.read_text()
    installed.launcher.write_text(text.replace("/hook/launch.py", "/hook/gone.py"))

    [warned] = json.loads(installed.run("status", "--json").stdout)["remarks"]

    assert "gone.py" in warned


def make_unrunnable(path: Path) -> None:
    path.chmod(0o644)


def empty(path: Path) -> None:
    path.write_text("")


def cut_at_its_first_line(path: Path) -> None:
    path.write_text(path.read_text()[:17])


def cut_at_its_end(path: Path) -> None:
    path.write_text(path.read_text()[:-12])


def overwrite(path: Path) -> None:
    path.write_bytes(b"\xff" * 100)


def without_agent(installed: Installed) -> None:
    del installed.variables["CLAUDE_PID"]


@pytest.mark.parametrize("harm", [make_unrunnable, empty, cut_at_its_first_line, cut_at_its_end, overwrite])
def test_a_harmed_launcher_is_told_by_status_and_doctor_and_mended_by_init(
    installed: Installed, harm: Callable[[Path], None]
) -> None:
    without_agent(installed)
    installed.run("init")
    whole = installed.launcher.read_text()
    harm(installed.launcher)

    [told] = json.loads(installed.run("status", "--json").stdout)["remarks"]
    assert str(installed.launcher) in told and "keepfast install claude" in told
    assert "problem" in claude_checks(installed)
    assert installed.hook("Stop", reads=False)[:2] == (0, b"")
    again = installed.run("init")

    assert again.returncode == 0 and str(installed.launcher) in again.stderr
    assert installed.launcher.read_text() == whole and os.access(installed.launcher, os.X_OK)
    assert json.loads(installed.run("status", "--json").stdout)["remarks"] == []


def test_a_harmed_launcher_of_the_plugin_is_mended_by_init(tmp_path: Path) -> None:
    installed = Installed(tmp_path)
    without_agent(installed)
    installed.install("--plugin")
    installed.run("init")
    empty(installed.launcher)

    [told] = json.loads(installed.run("status", "--json").stdout)["remarks"]
    installed.run("init")

    assert "keepfast install claude --plugin" in told
    assert launcher.is_whole(installed.launcher.read_text())


def test_init_renews_a_launcher_that_an_earlier_version_wrote(installed: Installed) -> None:
    without_agent(installed)
    whole = installed.launcher.read_text()
    installed.launcher.write_text(whole.replace("{ trap exit\\ 0 0; }", "trap exit\\ 0 0"))
    assert installed.launcher.read_text() != whole

    installed.run("init")

    assert installed.launcher.read_text() == whole


@pytest.mark.parametrize("words", [("status",), ("init",)])
def test_a_store_that_went_with_the_launcher_is_told_with_what_became_of_hooks(
    installed: Installed, words: tuple[str, ...]
) -> None:
    without_agent(installed)
    installed.run("init")
    installed.run("save")
    shutil.rmtree(installed.data)

    done = installed.run(*words, "--json")
    hint = json.loads(done.stdout)["error"]["hint"]
    installed.run("init", "--new-store")

    assert done.returncode == 5
    assert str(installed.launcher) in hint and "keepfast install claude" in hint
    assert launcher.is_whole(installed.launcher.read_text())


def test_status_in_a_new_folder_promises_nothing_of_hooks_that_are_not_there_or_dead(installed: Installed) -> None:
    without_agent(installed)

    def hint() -> str:
        return str(json.loads(installed.run("status", "--json").stdout)["error"]["hint"])

    promise = hint()
    installed.launcher.unlink()
    dead = hint()
    (installed.home / ".claude/settings.json").unlink()
    none = hint()

    assert "let hooks do it" in promise
    assert str(installed.launcher) in dead and "by themselves" not in dead
    assert "keepfast install claude" in none and "by themselves" not in none


def test_doctor_finds_a_launcher_that_is_gone_or_finds_nothing(installed: Installed) -> None:
    assert claude_checks(installed) == ["fine", "fine"]
    installed.uninstall_package()
    assert claude_checks(installed) == ["fine", "problem"]
    installed.launcher.unlink()
    assert claude_checks(installed) == ["problem"]


def test_doctor_notes_hooks_that_name_python_themselves_and_install_replaces_them(installed: Installed) -> None:
    settings = installed.home / ".claude/settings.json"
    direct = shlex.join([sys.executable, "-I", "-S", "-B", str(installed.package / "hook/launch.py"), "hook"])
    entry = {"type": "command", "command": f"{direct} claude-code", "timeout": 10}
    settings.write_text(json.dumps({"hooks": {"Stop": [{"hooks": [entry]}]}}))
    # They go by the passwd entry, and this home is another one.
    assert claude_checks(installed)[0] == "problem"

    installed.install()

    assert claude_checks(installed)[0] == "fine" and direct not in settings.read_text()


def test_an_installation_that_stays_broken_is_told_at_the_start_of_a_session(installed: Installed) -> None:
    (installed.package / "hook/start.py").unlink()
    assert installed.hook("SessionStart", source="startup") == (0, b"", b"")
    long_ago = time.time() - 3600
    os.utime(f"{installed.launcher}{launcher.FAILING}", (long_ago, long_ago))

    code, out, err = installed.hook("SessionStart", source="startup")

    assert (code, out, err.count(b"\n")) == (1, b"", 1)
    assert installed.hook("PreToolUse", tool_name="Read") == (0, b"", b"")


def test_a_real_failure_keeps_its_exit_code_and_its_line(installed: Installed) -> None:
    code, out, err = installed.shell(installed.commands("Stop")[0], b"no JSON")

    assert (code, out, err.count(b"\n")) == (1, b"", 1)
    assert err.startswith(b"keepfast: ")


@pytest.mark.parametrize(
    "ending", ["sys.exit(2)", "sys.exit(126)", "os.kill(os.getpid(), 9)", "raise SystemExit('odd')"]
)
def test_no_other_exit_code_leaves_the_launcher(installed: Installed, ending: str) -> None:
    (installed.package / "hook/launch.py").write_text(f"import os, sys\nprint('torn', file=sys.stderr)\n{ending}\n")

    assert installed.hook("PreToolUse", tool_name="Read") == (0, b"", b"")


def test_answers_pass_the_launcher_as_they_are(installed: Installed) -> None:
    text = '{"a": "b\\n"}\\n\\n'
    (installed.package / "hook/launch.py").write_text(f"import sys\nsys.stdout.write('{text}')\n")

    code, out, err = installed.hook("PreToolUse", tool_name="Read")

    assert (code, out, err) == (0, b'{"a": "b\n"}\n\n', b"")


def test_a_launcher_that_cannot_write_is_harmless(installed: Installed) -> None:
    """Redirections that fail end a shell with exit code 2, in some places."""
    (installed.package / "hook/start.py").unlink()
    for suffix in (launcher.LOG, launcher.FAILING):
        Path(f"{installed.launcher}{suffix}").mkdir()

    assert installed.hook("PreToolUse", tool_name="Read") == (0, b"", b"")
    closed = f"exec 1>&-; {installed.commands('PreToolUse')[0]}"
    assert installed.shell(closed)[0] in (0, 1)


@pytest.mark.parametrize("lose", [lose_package, lose_launcher])
def test_the_users_own_status_line_stays_when_keepfast_is_gone(
    tmp_path: Path, lose: Callable[[Installed], None]
) -> None:
    installed = Installed(tmp_path)
    own = """printf '%s' "it's mine: "; cat"""
    (installed.home / ".claude").mkdir()
    (installed.home / ".claude/settings.json").write_text(
        json.dumps({"statusLine": {"type": "command", "command": own}})
    )
    installed.install("--statusline")
    command = installed.settings()["statusLine"]["command"]
    assert installed.shell(command, b"{}")[1].endswith(b"it's mine: {}")

    lose(installed)

    assert installed.shell(command, b"{}") == (0, b"it's mine: {}", b"")


def test_a_status_line_of_ours_alone_is_empty_when_keepfast_is_gone(tmp_path: Path) -> None:
    installed = Installed(tmp_path)
    installed.install("--statusline")
    installed.uninstall_package()

    assert installed.shell(installed.settings()["statusLine"]["command"], LARGE.encode()) == (0, b"", b"")


def test_settings_name_the_launcher_alone_so_that_another_program_can_take_its_place(installed: Installed) -> None:
    installed.install("--statusline")
    text = (installed.home / ".claude/settings.json").read_text()

    assert sys.executable not in text and str(installed.package) not in text
    place = launcher.place_of(installed.commands("Stop")[0])
    Path(place).unlink()
    Path(place).write_text("#!/bin/sh\ncat >/dev/null\necho $*\n")
    Path(place).chmod(0o755)
    assert installed.hook("Stop")[1] == b"hook claude-code\n"


def test_the_launcher_goes_with_the_last_settings_that_name_it(installed: Installed) -> None:
    installed.install("--scope", "local")
    installed.install("--plugin")

    installed.run("uninstall", "claude")
    assert installed.launcher.exists()
    installed.run("uninstall", "claude", "--scope", "local")
    assert installed.launcher.exists()
    installed.run("uninstall", "claude", "--plugin")

    assert list((installed.data / "bin").iterdir()) == []


def test_a_dry_run_writes_no_launcher(tmp_path: Path) -> None:
    installed = Installed(tmp_path)
    installed.install("--dry-run")
    installed.install("--plugin", "--dry-run")

    assert not installed.data.exists()


PLUGIN = Path(__file__).parents[2] / "plugin"


def plugin_command(event: str) -> str:
    (group,) = json.loads((PLUGIN / "hooks/hooks.json").read_text())["hooks"][event]
    return str(group["hooks"][-1]["command"])


@pytest.mark.parametrize(
    "state", ["prepared", "package gone", "launcher gone", "plugin gone", "on a search path, and torn"]
)
def test_the_plugins_hooks_are_harmless_too(tmp_path: Path, state: str) -> None:
    installed = Installed(tmp_path)
    installed.install("--plugin")
    installed.variables["CLAUDE_PLUGIN_ROOT"] = str(marketplace(tmp_path, installed.home) / "plugin")
    if state == "package gone":
        installed.uninstall_package()
    elif state == "launcher gone":
        installed.launcher.unlink()
    elif state == "plugin gone":
        installed.variables["CLAUDE_PLUGIN_ROOT"] = str(tmp_path / "gone")
    elif state != "prepared":
        installed.uninstall_package()
        program = installed.home / ".local/bin/keepfast"
        program.parent.mkdir()
        program.write_text(f"#!{sys.executable} -I\nimport sys\nsys.exit(2)\n")
        program.chmod(0o755)

    done = {}
    for event in ("SessionStart", "UserPromptSubmit", "StopFailure"):
        payload = {"hook_event_name": event, "cwd": str(installed.project), "session_id": "s", "prompt": LARGE}
        done[event] = installed.shell(plugin_command(event), json.dumps(payload).encode())

    assert done == dict.fromkeys(done, (0, b"", b""))


def cut_short(text: str) -> list[int]:
    """Lengths of a torn file: every one of its first lines, around each end of a line, and every fifth of the rest."""
    ends = [at for at, sign in enumerate(text) if sign == "\n"]
    return sorted({*range(120), *[end + step for end in ends for step in (-1, 0, 1)], *range(0, len(text), 5)})


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_a_launcher_that_was_cut_short_does_nothing(tmp_path: Path, shell: str) -> None:
    """A shell ends with 2, which would block the agent, where it misses the end of a block."""
    program = shutil.which(shell) or pytest.skip(f"there is no {shell}")
    place = tmp_path / "launch"
    text = launcher.script(
        sys.executable, str(tmp_path / "said.py"), str(place), ("/h", "/h/.config", "/h/.local/share")
    )
    (tmp_path / "said.py").write_text("raise SystemExit(3)\n")
    safe = text.index("\n", text.index("\n{ trap ") + 1)
    wrong: list[tuple[int, int]] = []
    for length in cut_short(text):
        place.write_text(text[:length])
        line = launcher.hook(str(place), "hook", "claude-code", shell=program)
        # Before the trap is set, the command in the settings turns every end but 1 into 0.
        words = [program, str(place), "hook", "claude-code"] if length >= safe else [program, "-c", line]
        code = subprocess.run(words, input=b"{}", capture_output=True, env={"PATH": "/usr/bin:/bin"}).returncode
        if code:
            wrong.append((length, code))

    assert wrong == []


@pytest.mark.parametrize(("code", "seen"), [(0, 0), (1, 1), (2, 0), (3, 0), (126, 0), (127, 0)])
def test_the_command_of_a_hook_knows_no_other_end_than_0_and_1(tmp_path: Path, code: int, seen: int) -> None:
    place = tmp_path / "launch"
    place.write_text(f"#!/bin/sh\nexit {code}\n")
    place.chmod(0o755)

    done = subprocess.run(["/bin/sh", "-c", launcher.hook(str(place), "hook", "claude-code")], input=b"{}")

    assert done.returncode == seen
