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
    found: dict[str, Any] = json.loads((folder / ".keepfast/workspace.json").read_text())
    return found


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
def linked(kept: Box, request: pytest.FixtureRequest) -> Path:
    """A repository whose `.keepfast` leads to that of another project."""
    clone = kept.home / "clone"
    clone.mkdir()
    (clone / "mine.txt").write_text("mine\n")
    if request.param == "relative":
        (clone / ".keepfast").symlink_to("../project/.keepfast")
    elif request.param == "absolute":
        (clone / ".keepfast").symlink_to(kept.project / ".keepfast")
    elif request.param == "through another link":
        (clone / "way").symlink_to("../project")
        (clone / ".keepfast").symlink_to("way/.keepfast")
    else:
        (clone / ".keepfast").mkdir()
        (clone / ".keepfast/workspace.json").symlink_to(kept.project / ".keepfast/workspace.json")
    return clone


@pytest.mark.parametrize("words", READING + CHANGING, ids=" ".join)
def test_a_link_in_the_place_of_a_marker_opens_no_other_project(
    kept: Box, linked: Path, words: tuple[str, ...]
) -> None:
    before, victim = held(kept), kept.state(kept.project)
    result = kept.call(*words, "--json", cwd=linked)

    assert (result.code, result.json()["error"]["kind"]) == (NOWHERE, "no_workspace")
    assert "before-refactoring" not in result.out
    assert held(kept) == before
    assert kept.state(kept.project) == victim


def test_a_save_by_itself_protects_a_folder_whose_marker_is_a_link(kept: Box, linked: Path) -> None:
    victim = kept.state(kept.project)
    before = held(kept)
    assert by_itself(kept, linked) == 0
    (linked / "mine.txt").write_text("changed\n")
    assert by_itself(kept, linked) == 0

    assert [row["version"] for row in kept.call("list", "--json", cwd=linked).json()] == ["v2", "v1"]
    assert kept.call("cat", "v1", "mine.txt", cwd=linked).out == "mine\n"
    assert held(kept) == before
    assert kept.state(kept.project) == victim


def test_notices_are_not_written_through_a_link(kept: Box, linked: Path) -> None:
    if not (linked / ".keepfast").is_symlink():
        pytest.skip("the folder is its own")
    by_itself(kept, linked)
    kept.store.rename(kept.home / "away")
    by_itself(kept, linked)

    assert not (kept.project / ".keepfast/notices").exists()


def test_the_project_s_settings_are_not_read_through_a_link(kept: Box, linked: Path) -> None:
    if not (linked / ".keepfast").is_symlink():
        pytest.skip("the folder is its own")
    by_itself(kept, linked)
    (kept.project / ".keepfast/config.json").write_text('{"checkpoint": {"capture_files": false}}')

    assert kept.call("config", "get", "checkpoint.capture_files", cwd=linked).out == "true\n"
    assert kept.call("config", "get", "checkpoint.capture_files").out == "false\n"


# Markers of nobody here


@pytest.mark.parametrize("naming", ["nothing", "the store", "another store", "a store that is gone"])
def test_a_marker_from_a_repository_does_not_divert_protection(kept: Box, naming: str) -> None:
    store = {
        "nothing": {},
        "the store": {"store": str(kept.store), "store_id": "f" * 32},
        "another store": {"store": str(kept.base / "evil"), "store_id": "e" * 32},
        "a store that is gone": {"store": str(kept.store), "store_id": "d" * 32},
    }[naming]
    vendor = strange(kept.project / "vendor", **store)
    (vendor / "lib.c").write_text("int x;\n")
    made = kept.call("save", "--json", cwd=vendor)
    shown = {row["path"] for row in kept.call("show", "--json", "--all").json()["changes"]}

    assert made.code == 0, made
    assert made.json()["checkpoint"]["version"] == "v4"
    assert kept.versions()[0] == "v4"
    assert {"vendor/lib.c", "vendor/.keepfast/workspace.json"} <= shown
    assert not (kept.base / "evil").exists()


def test_what_lies_in_a_marker_folder_of_a_repository_comes_back(kept: Box) -> None:
    vendor = strange(kept.project / "vendor")
    (vendor / ".keepfast/notes.txt").write_text("mine\n")
    before = (vendor / ".keepfast/workspace.json").read_bytes()
    kept.save()
    shutil.rmtree(vendor / ".keepfast")
    kept.save()
    assert kept.call("restore", "v4", "-y").code == 0

    assert (vendor / ".keepfast/notes.txt").read_text() == "mine\n"
    assert (vendor / ".keepfast/workspace.json").read_bytes() == before


def test_the_settings_beside_a_marker_from_a_repository_do_not_count(kept: Box) -> None:
    vendor = strange(kept.project / "vendor")
    (vendor / ".keepfast/config.json").write_text('{"checkpoint": {"capture_files": false}}')

    assert kept.call("config", "get", "checkpoint.capture_files", cwd=vendor).out == "true\n"


def test_the_marker_of_a_workspace_within_is_not_captured(kept: Box) -> None:
    inner = kept.project / "inner"
    inner.mkdir()
    assert kept.call("init", cwd=inner).code == 0
    (inner / "file").write_text("x")
    kept.save()
    rows = {row["path"] for row in kept.call("show", "--json", "--all").json()["changes"]}

    assert "inner/file" in rows
    assert not any(path.startswith("inner/.keepfast/") for path in rows)


def test_a_restore_leaves_the_marker_of_a_workspace_within_as_it_is(kept: Box) -> None:
    """The folder had a marker of a repository when it was saved, and is a workspace by now."""
    inner = strange(kept.project / "inner")
    kept.save()
    assert kept.call("init", cwd=inner).code == 0
    own = (inner / ".keepfast/workspace.json").read_bytes()
    assert said(inner)["id"] != STRANGE
    assert kept.call("restore", "v4", "-y").code == 0

    assert (inner / ".keepfast/workspace.json").read_bytes() == own


def test_a_folder_with_a_marker_from_a_repository_gets_an_id_of_its_own(kept: Box) -> None:
    clone = strange(kept.home / "clone")

    assert kept.call("list", cwd=clone).code == NOWHERE
    assert kept.call("init", cwd=clone).code == 0
    assert said(clone)["id"] not in (STRANGE, said(kept.project)["id"])


def test_a_marker_that_was_overwritten_from_a_repository_changes_nothing(kept: Box) -> None:
    """As a checkout of a branch does that has one."""
    own = said(kept.project)["id"]
    strange(kept.project)

    assert kept.versions() == ["v3", "v2", "v1"]
    assert kept.save() == "v4"
    assert said(kept.project)["id"] == own


@pytest.fixture(params=["there", "moved", "without a folder", "in another store"])
def overwritten(kept: Box, request: pytest.FixtureRequest) -> str:
    """The project's id; its marker is that of another project now, as `cp -r template/. project/` leaves it."""
    own, other = said(kept.project)["id"], kept.home / "template"
    other.mkdir()
    options = ("--store", str(kept.base / "second")) if request.param == "in another store" else ()
    assert kept.call(*options, "init", cwd=other).code == 0
    assert kept.call("save", "-m", "of the template", cwd=other).code == 0
    shutil.copytree(other / ".keepfast", kept.project / ".keepfast", dirs_exist_ok=True)
    assert said(kept.project)["id"] != own
    if request.param == "moved":
        other.rename(kept.home / "elsewhere")
    elif request.param == "without a folder":
        assert kept.call("unprotect", "-y", cwd=other).code == 0
    return str(own)


@pytest.mark.parametrize("way", ["list", "save", "init", "by itself"])
def test_the_history_of_a_path_goes_on_under_the_marker_of_another_project(
    kept: Box, overwritten: str, way: str
) -> None:
    code = by_itself(kept, kept.project) if way == "by itself" else kept.call(way).code
    assert code == 0

    assert said(kept.project)["id"] == overwritten
    assert kept.versions()[-3:] == ["v3", "v2", "v1"]
    assert kept.call("cat", "v1", "src/a.py").code == 0


def test_a_marker_that_is_written_again_is_told_once(kept: Box, overwritten: str) -> None:
    first, second = kept.call("list"), kept.call("list")

    assert (first.code, second.code) == (0, 0)
    assert len(first.err.splitlines()) == 1
    assert second.err == ""


def test_a_folder_with_a_history_cannot_be_said_to_have_moved(kept: Box, overwritten: str) -> None:
    assert kept.call("init", "--moved").code == 2
    assert kept.versions() == ["v3", "v2", "v1"]


def test_a_project_that_moved_to_the_path_of_another_is_not_taken_for_it(kept: Box) -> None:
    other = kept.home / "other"
    other.mkdir()
    assert [kept.call(*words, cwd=other).code for words in (("init",), ("save", "-m", "of other"))] == [0, 0]
    kept.project.rename(kept.home / "away")
    other.rename(kept.project)

    assert kept.call("list").code == CONFLICT
    assert kept.call("init", "--moved").code == 0
    assert [row["message"] for row in kept.call("list", "--json").json()] == ["of other"]


# Markers of this user's own projects below a workspace


@pytest.fixture(params=["its own", "another project's", "one without a folder", "one in another store"])
def nested(kept: Box, request: pytest.FixtureRequest) -> Path:
    """A folder of the project with a marker that a store of this user knows, for another folder."""
    source, options = kept.project, ("--store", str(kept.base / "second")) if "another store" in request.param else ()
    if request.param != "its own":
        source = kept.home / "other"
        source.mkdir()
        assert kept.call(*options, "init", cwd=source).code == 0
        assert kept.call("save", cwd=source).code == 0
    vendor = kept.project / "vendor"
    shutil.copytree(source / ".keepfast", vendor / ".keepfast")
    if request.param == "one without a folder":
        assert kept.call("unprotect", "-y", cwd=source).code == 0
    return vendor


def test_a_known_marker_below_a_workspace_diverts_nothing(kept: Box, nested: Path) -> None:
    (nested / "lib.c").write_text("int x;\n")
    made = kept.call("save", "--json", cwd=nested)
    shown = {row["path"] for row in kept.call("show", "--json", "--all").json()["changes"]}

    assert (made.code, made.json()["checkpoint"]["version"]) == (0, "v4")
    assert {"vendor/lib.c", "vendor/.keepfast/workspace.json"} <= shown
    assert len(kept.call("list", "--json", cwd=nested).json()) == 4
    assert kept.call("status", "--json", cwd=nested).json()["workspace"]["root"] == str(kept.project)


def test_a_save_by_itself_below_a_workspace_goes_to_it(kept: Box, nested: Path) -> None:
    assert by_itself(kept, nested) == 0

    assert kept.versions() == ["v4", "v3", "v2", "v1"]
    assert str(nested) not in (kept.store / "paths").read_text()


def test_a_folder_below_a_workspace_becomes_one_of_its_own_by_init_alone(kept: Box, nested: Path) -> None:
    before = said(nested)["id"]
    assert kept.call("init", cwd=nested).code == 0

    assert said(nested)["id"] not in (before, said(kept.project)["id"])
    assert kept.call("list", "--json", cwd=nested).json() == []


def test_a_workspace_that_moved_within_another_can_be_said_to_have_moved(kept: Box) -> None:
    inner = kept.project / "inner"
    inner.mkdir()
    assert [kept.call(*words, cwd=inner).code for words in (("init",), ("save", "-m", "of inner"))] == [0, 0]
    inner = inner.rename(kept.project / "moved")

    assert len(kept.call("list", "--json", cwd=inner).json()) == 3
    assert kept.call("init", "--moved", cwd=inner).code == 0
    assert [row["message"] for row in kept.call("list", "--json", cwd=inner).json()] == ["of inner"]


# Markers that name another folder's history


@pytest.fixture
def cloned(kept: Box) -> Path:
    """A repository that carries the very marker of another project, which is there."""
    clone = kept.home / "clone"
    (clone / ".keepfast").mkdir(parents=True)
    (clone / ".keepfast/workspace.json").write_bytes((kept.project / ".keepfast/workspace.json").read_bytes())
    return clone


@pytest.mark.parametrize("words", READING + CHANGING, ids=" ".join)
def test_the_marker_of_another_folder_shows_and_changes_nothing(
    kept: Box, cloned: Path, words: tuple[str, ...]
) -> None:
    before = held(kept)
    result = kept.call(*words, "--json", cwd=cloned)

    assert (result.code, result.json()["error"]["kind"]) == (CONFLICT, "elsewhere")
    assert "before-refactoring" not in result.out
    assert held(kept) == before


@pytest.mark.parametrize("words", READING + CHANGING, ids=" ".join)
def test_a_moved_folder_shows_and_changes_nothing_before_somebody_says_so(kept: Box, words: tuple[str, ...]) -> None:
    moved = kept.home / "moved"
    kept.project.rename(moved)
    result = kept.call(*words, "--json", cwd=moved)

    assert (result.code, result.json()["error"]["kind"]) == (CONFLICT, "elsewhere")
    assert "init --moved" in result.json()["error"]["hint"]
    assert len(kept.call("list", "--all-workspaces", "--json", cwd=kept.home).json()) == 3


def test_one_command_goes_on_with_the_history_of_a_moved_folder(kept: Box) -> None:
    kept.project.rename(kept.home / "moved")
    kept.project = kept.home / "moved"
    result = kept.call("init", "--moved", "--json")

    assert (result.code, result.json()["adopted"]) == (0, False)
    assert kept.versions() == ["v3", "v2", "v1"]
    assert kept.save() == "v4"


@pytest.mark.parametrize(("answer", "versions"), [(b"y\n", ["v3", "v2", "v1"]), (b"n\n", [])])
def test_a_person_is_asked_once_whether_a_folder_moved(kept: Box, answer: bytes, versions: list[str]) -> None:
    kept.project.rename(kept.home / "moved")
    kept.project = kept.home / "moved"
    kept.terminal("list", typed=answer)

    assert kept.versions() == versions


def test_a_moved_folder_is_saved_at_once_and_its_history_can_still_be_taken_over(kept: Box) -> None:
    """Hooks come before any person: nothing is unprotected meanwhile, and nothing of either history is lost."""
    kept.project.rename(kept.home / "moved")
    kept.project = kept.home / "moved"
    kept.put("new.txt", "meanwhile\n")
    assert kept.call("save", "--auto").code == 0
    assert kept.versions() == ["v1"]
    meanwhile = held(kept)
    assert kept.call("init", "--moved").code == 0

    assert kept.versions() == ["v3", "v2", "v1"]
    assert kept.save() == "v4"
    assert kept.call("fork", meanwhile[0], "../meanwhile").code == 0
    assert (kept.home / "meanwhile/new.txt").read_text() == "meanwhile\n"


@pytest.mark.parametrize("variable", ["CLAUDECODE", "CODEX_SANDBOX", "KEEPFAST_RUN_TOKEN"])
def test_an_agent_cannot_say_that_a_folder_moved(kept: Box, variable: str) -> None:
    kept.project.rename(kept.home / "moved")
    kept.project = kept.home / "moved"
    kept.variables[variable] = "1"
    result = kept.call("init", "--moved", "--json")
    del kept.variables[variable]

    assert (result.code, result.json()["error"]["kind"]) == (2, "refused")
    assert kept.call("list").code == CONFLICT


@pytest.mark.parametrize("words", [("list",), ("init",)], ids=" ".join)
def test_an_agent_on_a_terminal_is_not_asked_whether_a_folder_moved(kept: Box, words: tuple[str, ...]) -> None:
    kept.project.rename(kept.home / "moved")
    kept.project = kept.home / "moved"
    kept.terminal(*words, typed=b"y\n", CLAUDECODE="1")

    assert "v1" not in kept.call("list").out


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_history_that_a_clone_took_can_be_brought_back(kept: Box, cloned: Path, meanwhile: bool) -> None:
    """Somebody said of the clone that it was moved, while the folder itself was."""
    kept.project.rename(kept.home / "moved")
    kept.project = kept.home / "moved"
    if meanwhile:
        assert kept.call("save", "--auto").code == 0
    assert kept.call("init", "--moved", cwd=cloned).code == 0
    assert kept.call("init", "--moved").code == CONFLICT
    assert kept.call("unprotect", "-y", cwd=cloned).code == 0

    assert kept.call("init", "--moved").code == 0
    assert kept.versions() == ["v3", "v2", "v1"]


def test_what_has_no_folder_any_more_is_listed_by_an_id_that_can_be_forked(kept: Box) -> None:
    workspace = said(kept.project)["id"]
    assert kept.call("unprotect", "-y").code == 0
    table = kept.call("list", "--all-workspaces", cwd=kept.home).out.splitlines()
    rows = kept.call("list", "--all-workspaces", "--json", cwd=kept.home).json()

    assert [line.endswith(f"{workspace} (was {kept.project})") for line in table[1:]] == [True] * 3
    assert [row["workspace"] for row in rows] == [workspace] * 3
    made = kept.call("fork", workspace, "again", "--json", cwd=kept.home)
    assert (made.code, made.json()["parent"], made.json()["from"]["version"]) == (0, workspace, "v3")
    assert (kept.home / "again/src/a.py").exists()


def test_a_folder_that_moved_away_and_back_goes_on(kept: Box) -> None:
    away = kept.home / "away"
    kept.project.rename(away)
    assert kept.call("save", "--auto", cwd=away).code == 0
    away.rename(kept.project)

    assert kept.versions() == ["v3", "v2", "v1"]
    assert kept.save() == "v4"


def test_a_folder_that_only_moved_away_and_back_goes_on(kept: Box) -> None:
    kept.project.rename(kept.home / "away")
    (kept.home / "away").rename(kept.project)

    assert kept.save() == "v4"


def test_two_folders_that_changed_places_show_neither_history(kept: Box) -> None:
    other = kept.home / "other"
    other.mkdir()
    kept.call("init", cwd=other)
    (other / "file").write_text("x")
    kept.call("save", "-m", "of other", cwd=other)
    for old, new in ((kept.project, kept.home / "tmp"), (other, kept.project), (kept.home / "tmp", other)):
        old.rename(new)

    assert [kept.call("list", cwd=folder).code for folder in (kept.project, other)] == [CONFLICT] * 2
    assert kept.call("init", "--moved", cwd=other).code == 0
    assert [row["version"] for row in kept.call("list", "--json", cwd=other).json()] == ["v3", "v2", "v1"]
    assert kept.call("init", "--moved").code == 0
    assert [row["message"] for row in kept.call("list", "--json").json()] == ["of other"]


def test_a_copy_cannot_be_said_to_have_moved(kept: Box) -> None:
    copied = kept.home / "copied"
    shutil.copytree(kept.project, copied)
    result = kept.call("init", "--moved", "--json", cwd=copied)

    assert (result.code, result.json()["error"]["kind"]) == (CONFLICT, "elsewhere")
    assert kept.save() == "v4"


def test_a_copy_becomes_a_workspace_of_its_own_by_init(kept: Box) -> None:
    copied = kept.home / "copied"
    shutil.copytree(kept.project, copied)

    assert kept.call("init", cwd=copied).code == 0
    assert said(copied)["id"] != said(kept.project)["id"]
    assert kept.call("list", "--json", cwd=copied).json() == []
    assert kept.versions() == ["v3", "v2", "v1"]


def test_nothing_can_be_taken_over_where_nothing_was(box: Box, kept: Box) -> None:
    fresh = box.home / "fresh"
    fresh.mkdir()

    assert kept.call("init", "--moved", cwd=fresh).code == 2
    assert kept.call("init", "--moved").code == 2
    assert kept.versions() == ["v3", "v2", "v1"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_the_same_folder_by_another_path_did_not_move(kept: Box) -> None:
    other = kept.home / "other"
    other.mkdir()
    bound = subprocess.run(["mount", "--bind", str(kept.project), str(other)], capture_output=True)
    if bound.returncode:
        pytest.skip("no bind mounts here")
    try:
        shown = kept.call("list", "--json", cwd=other)
        made = kept.call("save", "--json", cwd=other)
        again = kept.call("list", "--json")
    finally:
        subprocess.run(["umount", str(other)], check=True)

    assert len(shown.json()) == 3
    assert made.json()["checkpoint"]["version"] == "v4"
    assert len(again.json()) == 4
    assert kept.save() == "v5"


def test_a_link_to_the_folder_is_the_folder(kept: Box) -> None:
    (kept.home / "link").symlink_to(kept.project)

    assert len(kept.call("list", "--json", cwd=kept.home / "link").json()) == 3


def test_a_list_of_folders_that_was_lost_is_made_again(kept: Box) -> None:
    """What the ledger knows counts; the list is there to be quick."""
    (kept.store / "paths").unlink()

    assert kept.versions() == ["v3", "v2", "v1"]
    assert kept.save() == "v4"
    assert str(kept.project) in (kept.store / "paths").read_text()


def test_a_page_does_not_restore_into_another_project_s_folder(kept: Box) -> None:
    """The folder at the path that the store knows was exchanged for another workspace's."""
    from keepfast.app.wiring import build
    from keepfast.model.errors import Conflict
    from keepfast.present.environment import Surroundings
    from keepfast.settings import Settings
    from keepfast.web.queries import Backend

    other = kept.home / "other"
    other.mkdir()
    (other / "theirs").write_text("another project's\n")
    kept.call("init", cwd=other)
    workspace = said(kept.project)["id"]
    kept.project.rename(kept.home / "away")
    other.rename(kept.project)
    around = Surroundings({name.encode(): value.encode() for name, value in kept.variables.items()})
    backend = Backend(build(Settings(), around.data, around.home, lambda: kept.now), lambda: kept.now)
    try:
        with pytest.raises(Conflict):
            backend.refuse_another(backend.row(workspace))
        with pytest.raises(Conflict):
            backend.restores.preview(workspace, "v1", [])
        with pytest.raises(Conflict):
            backend.restores.restore(workspace, "v1", [], "overwrite", "")
        assert backend.status(workspace).changed == 0, "what lies there says nothing of this workspace"
        assert kept.call("init", "--moved").code == 0
        with pytest.raises(Conflict):
            backend.refuse_another(backend.row(workspace))
    finally:
        backend.close()
    assert sorted(path.name for path in kept.project.iterdir()) == [".keepfast", "theirs"]


def test_doctor_says_where_something_else_lies_in_the_place_of_a_marker(kept: Box) -> None:
    shutil.rmtree(kept.project / ".keepfast")
    (kept.project / ".keepfast").write_text("mine\n")
    report = kept.call("doctor", "--json")
    names = {check["name"] for check in report.json()["checks"] if check["level"] == "problem"}

    assert "git" in names
    assert kept.versions() == ["v3", "v2", "v1"]
    assert (kept.project / ".keepfast").read_text() == "mine\n"
