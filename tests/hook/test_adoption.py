"""A session's folder is protected from its first event on, with git or without; what is not is said once."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.equipment.judge import judge

from .ground import Ground


@pytest.fixture
def plain(tmp_path: Path) -> Ground:
    """A project without git."""
    made = Ground(tmp_path, git=False)
    (made.project / "a.txt").write_text("one\n")
    return made


def told(done: subprocess.CompletedProcess[bytes]) -> str:
    assert (done.returncode, done.stderr) == (0, b"")
    judge("SessionStart", done.stdout, done.returncode)
    return str(json.loads(done.stdout).get("systemMessage", "")) if done.stdout else ""


def marked(ground: Ground) -> list[str]:
    return sorted(str(path.parent.relative_to(ground.base)) for path in ground.base.rglob(".keepfast"))


def test_a_folder_without_git_is_protected_by_its_first_session(plain: Ground) -> None:
    assert told(plain.hook("SessionStart", source="startup")) == ""

    assert plain.triggers() == ["session_start"]
    assert plain.contents(plain.checkpoints()[0]) == {"a.txt": b"one\n"}


@pytest.mark.parametrize("name", ["UserPromptSubmit", "Stop", "SessionEnd", "PreCompact"])
def test_any_first_event_of_a_session_protects_its_folder(plain: Ground, name: str) -> None:
    plain.hook(name, prompt="go", reason="other")

    assert plain.contents(plain.checkpoints()[0]) == {"a.txt": b"one\n"}


def test_a_folder_below_the_sessions_own_makes_no_workspace_of_its_own(plain: Ground) -> None:
    """Hooks were installed while a session was open, and its agent had gone into a folder."""
    below = plain.project / "sub"
    below.mkdir()
    plain.variables["CLAUDE_PROJECT_DIR"] = str(plain.project)

    plain.hook("UserPromptSubmit", prompt="go", cwd=str(below))
    plain.hook("SessionStart", source="startup", cwd=str(below), session_id="another")
    (below / ".git").mkdir()
    plain.hook("SessionStart", source="startup", cwd=str(below), session_id="third")
    plain.settle()

    assert marked(plain) == ["project"]


def test_a_folder_that_becomes_a_repository_stays_the_same_workspace(plain: Ground) -> None:
    plain.hook("SessionStart", source="startup")
    workspace = plain.workspace
    (plain.project / ".git").mkdir()
    plain.hook("Stop")

    assert plain.workspace == workspace
    assert marked(plain) == ["project"]


@pytest.mark.parametrize("name", ["", "Desktop", "Documents", "Downloads"])
def test_a_home_folder_is_named_once_and_left_alone(plain: Ground, name: str) -> None:
    folder = plain.home / name
    folder.mkdir(exist_ok=True)

    said = told(plain.hook("SessionStart", source="startup", cwd=str(folder)))
    others = [
        plain.hook(event, cwd=str(folder), source=source, prompt="x")
        for event, source in (
            ("SessionStart", "compact"),
            ("SessionStart", "resume"),
            ("UserPromptSubmit", ""),
            ("Stop", ""),
        )
    ]
    second = plain.send(
        json.dumps(plain.payload("SessionStart", source="startup", cwd=str(folder))).encode(), "--part", "2"
    )

    assert str(folder) in said and "keepfast init" in said and "\n" not in said
    assert [(done.returncode, done.stdout, done.stderr) for done in [*others, second]] == [(0, b"", b"")] * 5
    assert marked(plain) == [] and not (plain.home / ".local").exists()


@pytest.mark.parametrize("folder", ["/", "/etc", "/usr/share", "/tmp"])
def test_a_folder_of_the_system_is_named_and_left_alone(plain: Ground, folder: str) -> None:
    assert folder in told(plain.hook("SessionStart", source="startup", cwd=os.path.realpath(folder)))
    assert not (plain.home / ".local").exists()


@pytest.mark.parametrize("git", [True, False])
def test_a_tree_with_too_many_files_is_named_and_protected_all_the_same(tmp_path: Path, git: bool) -> None:
    """Nothing of it is saved whole; what a command names is (see test_limits.py)."""
    ground = Ground(tmp_path, git=git)
    ground.configure(capture={"max_files": 20})
    for number in range(21):
        (ground.project / f"{number}").touch()

    assert "capture.max_files" in told(ground.hook("SessionStart", source="startup"))
    assert marked(ground) == ["project"]
    assert ground.triggers() == []


def test_files_that_would_not_be_kept_are_not_too_many(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.configure(capture={"max_files": 20})
    (ground.project / ".gitignore").write_text("target/\n")
    (ground.project / "Cargo.toml").touch()
    for name in ("node_modules", "target"):
        (ground.project / name).mkdir()
        for number in range(30):
            (ground.project / name / f"{number}").touch()

    assert told(ground.hook("SessionStart", source="startup")) == ""
    assert ground.triggers() == ["session_start"]


@pytest.mark.parametrize("mode", ["git", "marked", "never"])
def test_who_does_not_want_it_is_left_in_peace(plain: Ground, mode: str) -> None:
    plain.configure(adopt=mode)

    assert told(plain.hook("SessionStart", source="startup")) == ""
    assert told(plain.hook("SessionStart", source="startup", cwd="/tmp")) == ""
    assert marked(plain) == []


def test_a_folder_of_which_nothing_could_ever_be_saved_is_named_at_the_end_of_a_turn(plain: Ground) -> None:
    """Its files could not be counted in time, and then they were too many."""
    plain.engine.workspaces.init(os.fsencode(plain.project))
    plain.configure(capture={"max_files": 5})
    for number in range(6):
        (plain.project / f"{number}").touch()
    plain.hook("SessionStart", source="startup")
    plain.settle()

    first, second = plain.hook("Stop"), plain.hook("Stop")

    assert (first.returncode, first.stdout, first.stderr.count(b"\n")) == (1, b"", 1)
    assert b"not protected" in first.stderr
    assert (second.returncode, second.stderr) == (0, b"")
