"""A marker counts only where it was put: not through a link, not from a repository, and not for another folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from keepfast.present.environment import FOLDERS
from tests.equipment.box import SOURCE, Box

CONFLICT, NOWHERE = 14, 3
STRANGE = "0123456789abcdef" * 2
READING = [
    ("list",), ("show", "v1"), ("cat", "v1", "src/a.py"), ("diff", "v1", "v2"), ("status",), ("search", "first"), ("resume",),
]  # fmt: skip
CHANGING = [
    ("forget", "v1", "-y"), ("pin", "v1"), ("name", "v1", "x"), ("restore", "v1", "-y"), ("undo", "-y"), ("purge", "-y"),
    ("unprotect", "--purge", "-y"),
]  # fmt: skip


def said(folder: Path) -> dict[str, Any]:
    members: dict[str, Any] = json.loads((folder / ".keepfast/workspace.json").read_text())
    return members


def strange(folder: Path, **more: Any) -> Path:
    """Put a marker there as a repository may bring it."""
    (folder / ".keepfast").mkdir(parents=True, exist_ok=True)
    (folder / ".keepfast/workspace.json").write_text(json.dumps({"id": STRANGE, **more}))
    return folder


def held(box: Box) -> list[str]:
    """The ids of everything that the project's own history has."""
    return [row["id"] for row in box.call("list", "--json").json()]


def by_itself(box: Box, folder: Path) -> int:
    """Save as a hook does that knows no session: whatever is not protected yet is protected then."""
    folders = [FOLDERS, str(box.home), str(box.home / ".config"), str(box.home / ".local/share")]
    command = [sys.executable, "-I", "-S", "-B", str(SOURCE / "keepfast/hook/launch.py")]
    return subprocess.run([*command, *folders, "save"], cwd=folder, env=box.variables, timeout=60).returncode


# Links


@pytest.fixture(params=["relative", "absolute", "through another link", "to the marker alone"])
def linked(saved_box: Box, request: pytest.FixtureRequest) -> Path:
    """A repository whose `.keepfast` leads to that of another project."""
    clone = saved_box.home / "clone"
    clone.mkdir()
    (clone / "mine.txt").write_text("mine\n")
    if request.param == "relative":
        (clone / ".keepfast").symlink_to("../project/.keepfast")
    elif request.param == "absolute":
        (clone / ".keepfast").symlink_to(saved_box.project / ".keepfast")
    elif request.param == "through another link":
        (clone / "way").symlink_to("../project")
        (clone / ".keepfast").symlink_to("way/.keepfast")
    else:
        (clone / ".keepfast").mkdir()
        (clone / ".keepfast/workspace.json").symlink_to(saved_box.project / ".keepfast/workspace.json")
    return clone


@pytest.mark.parametrize("words", READING + CHANGING, ids=" ".join)
def test_a_link_in_the_place_of_a_marker_opens_no_other_project(
    saved_box: Box, linked: Path, words: tuple[str, ...]
) -> None:
    before, victim = held(saved_box), saved_box.state(saved_box.project)
    result = saved_box.call(*words, "--json", cwd=linked)

    assert (result.code, result.json()["error"]["kind"]) == (NOWHERE, "no_workspace")
    assert "before-refactoring" not in result.out
    assert held(saved_box) == before
    assert saved_box.state(saved_box.project) == victim


def test_a_save_by_itself_protects_a_folder_whose_marker_is_a_link(saved_box: Box, linked: Path) -> None:
    victim = saved_box.state(saved_box.project)
    before = held(saved_box)
    assert by_itself(saved_box, linked) == 0
    (linked / "mine.txt").write_text("changed\n")
    assert by_itself(saved_box, linked) == 0

    assert [row["version"] for row in saved_box.call("list", "--json", cwd=linked).json()] == ["v2", "v1"]
    assert saved_box.call("cat", "v1", "mine.txt", cwd=linked).out == "mine\n"
    assert held(saved_box) == before
    assert saved_box.state(saved_box.project) == victim


def test_notices_are_not_written_through_a_link(saved_box: Box, linked: Path) -> None:
    if not (linked / ".keepfast").is_symlink():
        pytest.skip("the folder is its own")
    by_itself(saved_box, linked)
    saved_box.store.rename(saved_box.home / "away")
    by_itself(saved_box, linked)

    assert not (saved_box.project / ".keepfast/notices").exists()


def test_the_project_s_settings_are_not_read_through_a_link(saved_box: Box, linked: Path) -> None:
    if not (linked / ".keepfast").is_symlink():
        pytest.skip("the folder is its own")
    by_itself(saved_box, linked)
    (saved_box.project / ".keepfast/config.json").write_text('{"checkpoint": {"capture_files": false}}')

    assert saved_box.call("config", "get", "checkpoint.capture_files", cwd=linked).out == "true\n"
    assert saved_box.call("config", "get", "checkpoint.capture_files").out == "false\n"


# Markers of nobody here


@pytest.mark.parametrize("naming", ["nothing", "the store", "another store", "a store that is gone"])
def test_a_marker_from_a_repository_does_not_divert_protection(saved_box: Box, naming: str) -> None:
    store = {
        "nothing": {},
        "the store": {"store": str(saved_box.store), "store_id": "f" * 32},
        "another store": {"store": str(saved_box.base / "evil"), "store_id": "e" * 32},
        "a store that is gone": {"store": str(saved_box.store), "store_id": "d" * 32},
    }[naming]
    vendor = strange(saved_box.project / "vendor", **store)
    (vendor / "lib.c").write_text("int x;\n")
    result = saved_box.call("save", "--json", cwd=vendor)
    answer = {row["path"] for row in saved_box.call("show", "--json", "--all").json()["changes"]}

    assert result.code == 0, result
    assert result.json()["checkpoint"]["version"] == "v4"
    assert saved_box.versions()[0] == "v4"
    assert {"vendor/lib.c", "vendor/.keepfast/workspace.json"} <= answer
    assert not (saved_box.base / "evil").exists()


def test_what_lies_in_a_marker_folder_of_a_repository_comes_back(saved_box: Box) -> None:
    vendor = strange(saved_box.project / "vendor")
    (vendor / ".keepfast/notes.txt").write_text("mine\n")
    before = (vendor / ".keepfast/workspace.json").read_bytes()
    saved_box.save()
    shutil.rmtree(vendor / ".keepfast")
    saved_box.save()
    assert saved_box.call("restore", "v4", "-y").code == 0

    assert (vendor / ".keepfast/notes.txt").read_text() == "mine\n"
    assert (vendor / ".keepfast/workspace.json").read_bytes() == before


def test_the_settings_beside_a_marker_from_a_repository_do_not_count(saved_box: Box) -> None:
    vendor = strange(saved_box.project / "vendor")
    (vendor / ".keepfast/config.json").write_text('{"checkpoint": {"capture_files": false}}')

    assert saved_box.call("config", "get", "checkpoint.capture_files", cwd=vendor).out == "true\n"


def test_the_marker_of_a_workspace_within_is_not_captured(saved_box: Box) -> None:
    inner = saved_box.project / "inner"
    inner.mkdir()
    assert saved_box.call("init", cwd=inner).code == 0
    (inner / "file").write_text("x")
    saved_box.save()
    rows = {row["path"] for row in saved_box.call("show", "--json", "--all").json()["changes"]}

    assert "inner/file" in rows
    assert not any(path.startswith("inner/.keepfast/") for path in rows)


def test_a_restore_leaves_the_marker_of_a_workspace_within_as_it_is(saved_box: Box) -> None:
    """The folder had a marker of a repository when it was saved, and is a workspace by now."""
    inner = strange(saved_box.project / "inner")
    saved_box.save()
    assert saved_box.call("init", cwd=inner).code == 0
    own = (inner / ".keepfast/workspace.json").read_bytes()
    assert said(inner)["id"] != STRANGE
    assert saved_box.call("restore", "v4", "-y").code == 0

    assert (inner / ".keepfast/workspace.json").read_bytes() == own


def test_a_folder_with_a_marker_from_a_repository_gets_an_id_of_its_own(saved_box: Box) -> None:
    clone = strange(saved_box.home / "clone")

    assert saved_box.call("list", cwd=clone).code == NOWHERE
    assert saved_box.call("init", cwd=clone).code == 0
    assert said(clone)["id"] not in (STRANGE, said(saved_box.project)["id"])


def test_a_marker_that_was_overwritten_from_a_repository_changes_nothing(saved_box: Box) -> None:
    """As a checkout of a branch does that has one."""
    own = said(saved_box.project)["id"]
    strange(saved_box.project)

    assert saved_box.versions() == ["v3", "v2", "v1"]
    assert saved_box.save() == "v4"
    assert said(saved_box.project)["id"] == own


@pytest.fixture(params=["there", "moved", "without a folder", "in another store"])
def overwritten(saved_box: Box, request: pytest.FixtureRequest) -> str:
    """The project's id; its marker is that of another project now, as `cp -r template/. project/` leaves it."""
    own, other = said(saved_box.project)["id"], saved_box.home / "template"
    other.mkdir()
    options = ("--store", str(saved_box.base / "second")) if request.param == "in another store" else ()
    assert saved_box.call(*options, "init", cwd=other).code == 0
    assert saved_box.call("save", "-m", "of the template", cwd=other).code == 0
    shutil.copytree(other / ".keepfast", saved_box.project / ".keepfast", dirs_exist_ok=True)
    assert said(saved_box.project)["id"] != own
    if request.param == "moved":
        other.rename(saved_box.home / "elsewhere")
    elif request.param == "without a folder":
        assert saved_box.call("unprotect", "-y", cwd=other).code == 0
    return str(own)


@pytest.mark.parametrize("way", ["list", "save", "init", "by itself"])
def test_the_history_of_a_path_goes_on_under_the_marker_of_another_project(
    saved_box: Box, overwritten: str, way: str
) -> None:
    code = by_itself(saved_box, saved_box.project) if way == "by itself" else saved_box.call(way).code
    assert code == 0

    assert said(saved_box.project)["id"] == overwritten
    assert saved_box.versions()[-3:] == ["v3", "v2", "v1"]
    assert saved_box.call("cat", "v1", "src/a.py").code == 0


def test_a_marker_that_is_written_again_is_told_once(saved_box: Box, overwritten: str) -> None:
    first, second = saved_box.call("list"), saved_box.call("list")

    assert (first.code, second.code) == (0, 0)
    assert len(first.err.splitlines()) == 1
    assert second.err == ""


def test_a_folder_with_a_history_cannot_be_said_to_have_moved(saved_box: Box, overwritten: str) -> None:
    assert saved_box.call("init", "--moved").code == 2
    assert saved_box.versions() == ["v3", "v2", "v1"]


def test_a_project_that_moved_to_the_path_of_another_is_not_taken_for_it(saved_box: Box) -> None:
    other = saved_box.home / "other"
    other.mkdir()
    assert [saved_box.call(*words, cwd=other).code for words in (("init",), ("save", "-m", "of other"))] == [0, 0]
    saved_box.project.rename(saved_box.home / "away")
    other.rename(saved_box.project)

    assert saved_box.call("list").code == CONFLICT
    assert saved_box.call("init", "--moved").code == 0
    assert [row["message"] for row in saved_box.call("list", "--json").json()] == ["of other"]


# Markers of this user's own projects below a workspace


@pytest.fixture(params=["its own", "another project's", "one without a folder", "one in another store"])
def nested(saved_box: Box, request: pytest.FixtureRequest) -> Path:
    """A folder of the project with a marker that a store of this user knows, for another folder."""
    source, options = (
        saved_box.project,
        ("--store", str(saved_box.base / "second")) if "another store" in request.param else (),
    )
    if request.param != "its own":
        source = saved_box.home / "other"
        source.mkdir()
        assert saved_box.call(*options, "init", cwd=source).code == 0
        assert saved_box.call("save", cwd=source).code == 0
    vendor = saved_box.project / "vendor"
    shutil.copytree(source / ".keepfast", vendor / ".keepfast")
    if request.param == "one without a folder":
        assert saved_box.call("unprotect", "-y", cwd=source).code == 0
    return vendor


def test_a_known_marker_below_a_workspace_diverts_nothing(saved_box: Box, nested: Path) -> None:
    (nested / "lib.c").write_text("int x;\n")
    result = saved_box.call("save", "--json", cwd=nested)
    answer = {row["path"] for row in saved_box.call("show", "--json", "--all").json()["changes"]}

    assert (result.code, result.json()["checkpoint"]["version"]) == (0, "v4")
    assert {"vendor/lib.c", "vendor/.keepfast/workspace.json"} <= answer
    assert len(saved_box.call("list", "--json", cwd=nested).json()) == 4
    assert saved_box.call("status", "--json", cwd=nested).json()["workspace"]["root"] == str(saved_box.project)


def test_a_save_by_itself_below_a_workspace_goes_to_it(saved_box: Box, nested: Path) -> None:
    assert by_itself(saved_box, nested) == 0

    assert saved_box.versions() == ["v4", "v3", "v2", "v1"]
    assert str(nested) not in (saved_box.store / "paths").read_text()


def test_a_folder_below_a_workspace_becomes_one_of_its_own_by_init_alone(saved_box: Box, nested: Path) -> None:
    before = said(nested)["id"]
    assert saved_box.call("init", cwd=nested).code == 0

    assert said(nested)["id"] not in (before, said(saved_box.project)["id"])
    assert saved_box.call("list", "--json", cwd=nested).json() == []


def test_a_workspace_that_moved_within_another_can_be_said_to_have_moved(saved_box: Box) -> None:
    inner = saved_box.project / "inner"
    inner.mkdir()
    assert [saved_box.call(*words, cwd=inner).code for words in (("init",), ("save", "-m", "of inner"))] == [0, 0]
    inner = inner.rename(saved_box.project / "moved")

    assert len(saved_box.call("list", "--json", cwd=inner).json()) == 3
    assert saved_box.call("init", "--moved", cwd=inner).code == 0
    assert [row["message"] for row in saved_box.call("list", "--json", cwd=inner).json()] == ["of inner"]


# Markers that name another folder's history


@pytest.fixture
def cloned(saved_box: Box) -> Path:
    """A repository that carries the very marker of another project, which is there."""
    clone = saved_box.home / "clone"
    (clone / ".keepfast").mkdir(parents=True)
    (clone / ".keepfast/workspace.json").write_bytes((saved_box.project / ".keepfast/workspace.json").read_bytes())
    return clone


@pytest.mark.parametrize("words", READING + CHANGING, ids=" ".join)
def test_the_marker_of_another_folder_shows_and_changes_nothing(
    saved_box: Box, cloned: Path, words: tuple[str, ...]
) -> None:
    before = held(saved_box)
    result = saved_box.call(*words, "--json", cwd=cloned)

    assert (result.code, result.json()["error"]["kind"]) == (CONFLICT, "elsewhere")
    assert "before-refactoring" not in result.out
    assert held(saved_box) == before


@pytest.mark.parametrize("words", READING + CHANGING, ids=" ".join)
def test_a_moved_folder_shows_and_changes_nothing_before_somebody_says_so(
    saved_box: Box, words: tuple[str, ...]
) -> None:
    moved = saved_box.home / "moved"
    saved_box.project.rename(moved)
    result = saved_box.call(*words, "--json", cwd=moved)

    assert (result.code, result.json()["error"]["kind"]) == (CONFLICT, "elsewhere")
    assert "init --moved" in result.json()["error"]["hint"]
    assert len(saved_box.call("list", "--all-workspaces", "--json", cwd=saved_box.home).json()) == 3


def test_one_command_goes_on_with_the_history_of_a_moved_folder(saved_box: Box) -> None:
    saved_box.project.rename(saved_box.home / "moved")
    saved_box.project = saved_box.home / "moved"
    result = saved_box.call("init", "--moved", "--json")

    assert (result.code, result.json()["adopted"]) == (0, False)
    assert saved_box.versions() == ["v3", "v2", "v1"]
    assert saved_box.save() == "v4"


@pytest.mark.parametrize(("answer", "versions"), [(b"y\n", ["v3", "v2", "v1"]), (b"n\n", [])])
def test_a_person_is_asked_once_whether_a_folder_moved(saved_box: Box, answer: bytes, versions: list[str]) -> None:
    saved_box.project.rename(saved_box.home / "moved")
    saved_box.project = saved_box.home / "moved"
    saved_box.terminal("list", typed=answer)

    assert saved_box.versions() == versions


def test_a_moved_folder_is_saved_at_once_and_its_history_can_still_be_taken_over(saved_box: Box) -> None:
    """Hooks come before any person: nothing is unprotected meanwhile, and nothing of either history is lost."""
    saved_box.project.rename(saved_box.home / "moved")
    saved_box.project = saved_box.home / "moved"
    saved_box.put("new.txt", "meanwhile\n")
    assert saved_box.call("save", "--auto").code == 0
    assert saved_box.versions() == ["v1"]
    meanwhile = held(saved_box)
    assert saved_box.call("init", "--moved").code == 0

    assert saved_box.versions() == ["v3", "v2", "v1"]
    assert saved_box.save() == "v4"
    assert saved_box.call("fork", meanwhile[0], "../meanwhile").code == 0
    assert (saved_box.home / "meanwhile/new.txt").read_text() == "meanwhile\n"


@pytest.mark.parametrize("variable", ["CLAUDECODE", "CODEX_SANDBOX", "KEEPFAST_RUN_TOKEN"])
def test_an_agent_cannot_say_that_a_folder_moved(saved_box: Box, variable: str) -> None:
    saved_box.project.rename(saved_box.home / "moved")
    saved_box.project = saved_box.home / "moved"
    saved_box.variables[variable] = "1"
    result = saved_box.call("init", "--moved", "--json")
    del saved_box.variables[variable]

    assert (result.code, result.json()["error"]["kind"]) == (2, "refused")
    assert saved_box.call("list").code == CONFLICT


@pytest.mark.parametrize("words", [("list",), ("init",)], ids=" ".join)
def test_an_agent_on_a_terminal_is_not_asked_whether_a_folder_moved(saved_box: Box, words: tuple[str, ...]) -> None:
    saved_box.project.rename(saved_box.home / "moved")
    saved_box.project = saved_box.home / "moved"
    saved_box.terminal(*words, typed=b"y\n", CLAUDECODE="1")

    assert "v1" not in saved_box.call("list").out


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_history_that_a_clone_took_can_be_brought_back(saved_box: Box, cloned: Path, meanwhile: bool) -> None:
    """Somebody said of the clone that it was moved, while the folder itself was."""
    saved_box.project.rename(saved_box.home / "moved")
    saved_box.project = saved_box.home / "moved"
    if meanwhile:
        assert saved_box.call("save", "--auto").code == 0
    assert saved_box.call("init", "--moved", cwd=cloned).code == 0
    assert saved_box.call("init", "--moved").code == CONFLICT
    assert saved_box.call("unprotect", "-y", cwd=cloned).code == 0

    assert saved_box.call("init", "--moved").code == 0
    assert saved_box.versions() == ["v3", "v2", "v1"]


def test_what_has_no_folder_any_more_is_listed_by_an_id_that_can_be_forked(saved_box: Box) -> None:
    workspace = said(saved_box.project)["id"]
    assert saved_box.call("unprotect", "-y").code == 0
    table = saved_box.call("list", "--all-workspaces", cwd=saved_box.home).out.splitlines()
    rows = saved_box.call("list", "--all-workspaces", "--json", cwd=saved_box.home).json()

    assert [line.endswith(f"{workspace} (was {saved_box.project})") for line in table[1:]] == [True] * 3
    assert [row["workspace"] for row in rows] == [workspace] * 3
    result = saved_box.call("fork", workspace, "again", "--json", cwd=saved_box.home)
    assert (result.code, result.json()["parent"], result.json()["from"]["version"]) == (0, workspace, "v3")
    assert (saved_box.home / "again/src/a.py").exists()


def test_a_folder_that_moved_away_and_back_goes_on(saved_box: Box) -> None:
    away = saved_box.home / "away"
    saved_box.project.rename(away)
    assert saved_box.call("save", "--auto", cwd=away).code == 0
    away.rename(saved_box.project)

    assert saved_box.versions() == ["v3", "v2", "v1"]
    assert saved_box.save() == "v4"


def test_a_folder_that_only_moved_away_and_back_goes_on(saved_box: Box) -> None:
    saved_box.project.rename(saved_box.home / "away")
    (saved_box.home / "away").rename(saved_box.project)

    assert saved_box.save() == "v4"


def test_two_folders_that_changed_places_show_neither_history(saved_box: Box) -> None:
    other = saved_box.home / "other"
    other.mkdir()
    saved_box.call("init", cwd=other)
    (other / "file").write_text("x")
    saved_box.call("save", "-m", "of other", cwd=other)
    for old, new in (
        (saved_box.project, saved_box.home / "tmp"),
        (other, saved_box.project),
        (saved_box.home / "tmp", other),
    ):
        old.rename(new)

    assert [saved_box.call("list", cwd=folder).code for folder in (saved_box.project, other)] == [CONFLICT] * 2
    assert saved_box.call("init", "--moved", cwd=other).code == 0
    assert [row["version"] for row in saved_box.call("list", "--json", cwd=other).json()] == ["v3", "v2", "v1"]
    assert saved_box.call("init", "--moved").code == 0
    assert [row["message"] for row in saved_box.call("list", "--json").json()] == ["of other"]


def test_a_copy_cannot_be_said_to_have_moved(saved_box: Box) -> None:
    copied = saved_box.home / "copied"
    shutil.copytree(saved_box.project, copied)
    result = saved_box.call("init", "--moved", "--json", cwd=copied)

    assert (result.code, result.json()["error"]["kind"]) == (CONFLICT, "elsewhere")
    assert saved_box.save() == "v4"


def test_a_copy_becomes_a_workspace_of_its_own_by_init(saved_box: Box) -> None:
    copied = saved_box.home / "copied"
    shutil.copytree(saved_box.project, copied)

    assert saved_box.call("init", cwd=copied).code == 0
    assert said(copied)["id"] != said(saved_box.project)["id"]
    assert saved_box.call("list", "--json", cwd=copied).json() == []
    assert saved_box.versions() == ["v3", "v2", "v1"]


def test_nothing_can_be_taken_over_where_nothing_was(box: Box, saved_box: Box) -> None:
    fresh = box.home / "fresh"
    fresh.mkdir()

    assert saved_box.call("init", "--moved", cwd=fresh).code == 2
    assert saved_box.call("init", "--moved").code == 2
    assert saved_box.versions() == ["v3", "v2", "v1"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_the_same_folder_by_another_path_did_not_move(saved_box: Box) -> None:
    other = saved_box.home / "other"
    other.mkdir()
    bound = subprocess.run(["mount", "--bind", str(saved_box.project), str(other)], capture_output=True)
    if bound.returncode:
        pytest.skip("no bind mounts here")
    try:
        result = saved_box.call("list", "--json", cwd=other)
        text_result = saved_box.call("save", "--json", cwd=other)
        again = saved_box.call("list", "--json")
    finally:
        subprocess.run(["umount", str(other)], check=True)

    assert len(result.json()) == 3
    assert text_result.json()["checkpoint"]["version"] == "v4"
    assert len(again.json()) == 4
    assert saved_box.save() == "v5"


def test_a_link_to_the_folder_is_the_folder(saved_box: Box) -> None:
    (saved_box.home / "link").symlink_to(saved_box.project)

    assert len(saved_box.call("list", "--json", cwd=saved_box.home / "link").json()) == 3


def test_a_list_of_folders_that_was_lost_is_made_again(saved_box: Box) -> None:
    """What the ledger knows counts; the list is there to be quick."""
    (saved_box.store / "paths").unlink()

    assert saved_box.versions() == ["v3", "v2", "v1"]
    assert saved_box.save() == "v4"
    assert str(saved_box.project) in (saved_box.store / "paths").read_text()


def test_a_page_does_not_restore_into_another_project_s_folder(saved_box: Box) -> None:
    """The folder at the path that the store knows was exchanged for another workspace's."""
    from keepfast.app.wiring import build
    from keepfast.model.errors import Conflict
    from keepfast.present.environment import Environment
    from keepfast.settings import Settings
    from keepfast.web.queries import Backend

    other = saved_box.home / "other"
    other.mkdir()
    (other / "theirs").write_text("another project's\n")
    saved_box.call("init", cwd=other)
    workspace = said(saved_box.project)["id"]
    saved_box.project.rename(saved_box.home / "away")
    other.rename(saved_box.project)
    environment = Environment({name.encode(): value.encode() for name, value in saved_box.variables.items()})
    backend = Backend(
        build(Settings(), environment.data, environment.home, lambda: saved_box.now), lambda: saved_box.now
    )
    try:
        with pytest.raises(Conflict):
            backend.refuse_another(backend.row(workspace))
        with pytest.raises(Conflict):
            backend.restores.preview(workspace, "v1", [])
        with pytest.raises(Conflict):
            backend.restores.restore(workspace, "v1", [], "overwrite", "")
        assert backend.status(workspace).changed == 0, "what lies there says nothing of this workspace"
        assert saved_box.call("init", "--moved").code == 0
        with pytest.raises(Conflict):
            backend.refuse_another(backend.row(workspace))
    finally:
        backend.close()
    assert sorted(path.name for path in saved_box.project.iterdir()) == [".keepfast", "theirs"]


def test_doctor_says_where_something_else_lies_in_the_place_of_a_marker(saved_box: Box) -> None:
    shutil.rmtree(saved_box.project / ".keepfast")
    (saved_box.project / ".keepfast").write_text("mine\n")
    report = saved_box.call("doctor", "--json")
    names = {check["name"] for check in report.json()["checks"] if check["level"] == "problem"}

    assert "git" in names
    assert saved_box.versions() == ["v3", "v2", "v1"]
    assert (saved_box.project / ".keepfast").read_text() == "mine\n"
