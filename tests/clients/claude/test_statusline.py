"""The status line: what it says, what it keeps for hooks, and how it stands in front of the user's own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import keepfast
from keepfast.present import background
from keepfast.state.figures import figures, path_of, store_figures, stored_figures
from tests.equipment.folders import written

from .bench import Bench
from .endpoint import say
from .terminal import PROMPT, Terminal

PAYLOAD: dict[str, Any] = {
    "session_id": "7bf421eb-ce05-4a6a-bd53-977f6b12cec3",
    "model": {"id": "claude-opus-5-5"},
    "context_window": {
        "context_window_size": 1_000_000,
        "current_usage": {
            "input_tokens": 12,
            "output_tokens": 34,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 823_456,
        },
        "used_percentage": 82,
    },
    "rate_limits": {"five_hour": {"used_percentage": 93, "resets_at": 1_794_783_901}},
}
FRESH: dict[str, Any] = {
    "context_window": {"context_window_size": 200_000, "current_usage": None, "used_percentage": None}
}


class Project:
    """A protected project with one checkpoint."""

    def __init__(self, base: Path) -> None:
        self.home, self.folder = base / "home", base / "work"
        self.home.mkdir()
        self.folder.mkdir()
        self.variables = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", "NO_COLOR": "1"}
        self.run("init")
        self.run("save", "-m", "first")

    def run(self, *words: str) -> str:
        return subprocess.run(
            [sys.executable, "-P", "-m", "keepfast", *words],
            cwd=self.folder,
            env={**self.variables, "PYTHONPATH": str(Path(keepfast.__file__).parents[1])},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    def line(self, payload: object, *words: str, **variables: str) -> str:
        text = payload if isinstance(payload, str) else json.dumps(payload)
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-B", background.LAUNCH, *written(self.home), "statusline", *words],
            cwd="/",
            env={**self.variables, **variables},
            input=text,
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_it_says_checkpoint_context_and_limits(project: Project) -> None:
    said = project.line({**PAYLOAD, "cwd": str(project.folder)})

    version, context, limit = said.rstrip("\n").split(" · ")
    assert version.startswith("v1 ") and version.endswith("s")
    assert (context, limit) == ("context 82%", "5h 93%")


def test_the_figures_are_kept_for_the_hooks_of_the_session(project: Project) -> None:
    project.line({**PAYLOAD, "cwd": str(project.folder)})

    (workspace,) = (project.home / ".local/share/keepfast/store/workspaces").iterdir()
    found = stored_figures(str(workspace), PAYLOAD["session_id"])
    assert found is not None and found.pop("at") > 0
    assert found == {
        "model": "claude-opus-5-5",
        "window": 1_000_000,
        "used": 823_468,
        "percent": 82,
        "limits": {"five_hour": {"percent": 93, "resets_at": 1_794_783_901}},
    }


def test_the_users_own_line_follows_and_reads_the_same_payload(project: Project) -> None:
    own = 'python3 -c \'import json,sys; print(json.load(sys.stdin)["model"]["id"]); print("second line")\''

    said = project.line({**PAYLOAD, "cwd": str(project.folder)}, "--then", own)

    first, second, rest = said.split("\n")
    assert first.startswith("v1 ") and first.endswith(" · claude-opus-5-5")
    assert (second, rest) == ("second line", "")


@pytest.mark.parametrize(
    "payload", ["", "no json", "[]", "{}", '{"cwd": 5, "context_window": [], "rate_limits": {"x": 1}}']
)
def test_whatever_comes_in_one_line_goes_out(project: Project, payload: str) -> None:
    assert project.line(payload) == "not protected\n"
    assert project.line(payload, "--then", "echo mine") == "not protected · mine\n"


def test_a_session_that_has_not_asked_the_model_yet_has_no_percentage(project: Project) -> None:
    assert project.line({**FRESH, "cwd": str(project.folder)}).startswith("v1 ")


def test_colours_warn_at_80_and_90(project: Project) -> None:
    said = project.line({**PAYLOAD, "cwd": str(project.folder)}, NO_COLOR="")

    assert "\x1b[33mcontext 82%\x1b[0m" in said and "\x1b[31m5h 93%\x1b[0m" in said


def test_in_the_real_client_it_stands_in_front_of_the_users_own(bench: Bench) -> None:
    bench.settings({"statusLine": {"type": "command", "command": "echo MY OWN LINE"}})
    bench.keepfast("install", "claude", "--statusline")
    bench.keepfast("init")
    bench.keepfast("save", "-m", "first")
    bench.script(say("Hello there.", usage={"input_tokens": 10, "cache_read_input_tokens": 849_990}))

    with Terminal(bench) as terminal:
        terminal.wait(PROMPT)
        terminal.type("hello")
        terminal.wait("Hello there")
        shown = terminal.wait(r"v\d+ \d+s · context 85%")

    assert re.search(r"v\d+ \d+s · context 85% · MY OWN LINE", shown)
    (usage,) = bench.home.glob(".local/share/keepfast/store/workspaces/*/sessions/*.usage")
    told = json.loads(usage.read_text())
    assert (told["window"], told["used"], told["percent"]) == (1_000_000, 850_000, 85)


@pytest.mark.parametrize("session", ["", "../../etc/passwd", "a/b", "a\0b", "x" * 200, ".."])
def test_a_session_name_is_never_a_path(tmp_path: Path, session: str) -> None:
    assert path_of(str(tmp_path), session) == ""
    assert store_figures(str(tmp_path), session, figures({}, 1)) is False
    assert list(tmp_path.iterdir()) == []
