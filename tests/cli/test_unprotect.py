"""Protection ends when somebody says so: the marker goes, hooks stay away, and history goes only with `purge`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from keepfast.store.factory import open_store
from keepfast.store.maintenance.space import forget
from tests.equipment.box import SOURCE, Box
from tests.equipment.folders import written


def hook(box: Box, folder: Path, event: str = "SessionStart") -> int:
    payload = {"hook_event_name": event, "session_id": "s", "cwd": str(folder), "source": "startup"}
    done = subprocess.run(
        [sys.executable, "-m", "keepfast", *written(box.home), "hook", "claude-code"],
        input=json.dumps(payload).encode(),
        env={**box.variables, "PYTHONPATH": str(SOURCE)},
        cwd=folder,
        capture_output=True,
        timeout=60,
    )
    return done.returncode


def stored(box: Box, text: bytes) -> list[str]:
    """Files of the store in which the text stands."""
    return [str(path) for path in box.store.rglob("*") if path.is_file() and text in path.read_bytes()]


@pytest.fixture
def two(saved_box: Box) -> Box:
    """Another protected folder beside the project, with one checkpoint."""
    other = saved_box.home / "other"
    other.mkdir()
    (other / "file").write_text("other\n")
    assert saved_box.call("init", cwd=other).code == 0
    assert saved_box.call("save", "-m", "of the other", cwd=other).code == 0
    return saved_box


def test_a_folder_is_no_longer_protected_and_its_history_stays(two: Box) -> None:
    result = two.call("unprotect", "--json")

    assert (result.code, result.json()["unprotected"][0]["checkpoints"], result.json()["purged"]) == (0, 3, False)
    assert not (two.project / ".keepfast").exists()
    assert (two.project / "src/a.py").exists()
    assert [two.call(verb).code for verb in ("list", "save", "status")] == [3, 3, 3]
    assert len(two.call("list", "--all-workspaces", "--json").json()) == 4
    assert two.call("verify").code == 0


def test_what_is_to_be_purged_is_named_by_its_last_folder(two: Box) -> None:
    assert two.call("unprotect", "--all", "-y").code == 0

    result = two.call("purge", "--all", "-n")
    answer = two.call("purge", "--all", "-n", "--json").json()

    assert str(two.project) in result.out
    assert str(two.project) in [one["was"] for one in answer["unprotected"]]
    assert [one["root"] for one in answer["unprotected"]] == [None] * len(answer["unprotected"])


def test_hooks_leave_it_alone_until_init(two: Box) -> None:
    subprocess.run(["git", "init", "-q", str(two.project)], check=True)
    two.call("unprotect")
    (two.project / "sub").mkdir()
    assert hook(two, two.project) == 0
    assert hook(two, two.project / "sub") == 0
    assert two.call("save", "--auto").code == 0
    assert not (two.project / ".keepfast").exists() and not (two.project / "sub/.keepfast").exists()
    assert two.call("init").code == 0

    assert two.versions() == ["v3", "v2", "v1"]
    assert two.save() == "v4"


def test_a_folder_is_given_by_its_path_even_if_it_is_gone(two: Box) -> None:
    import shutil

    shutil.rmtree(two.project)
    result = two.call("unprotect", str(two.project), "--json", cwd=two.home)

    assert (result.code, result.json()["unprotected"][0]["root"]) == (0, str(two.project))


def test_what_is_the_users_stays_in_the_marker(two: Box) -> None:
    (two.project / ".keepfast/config.json").write_text("{}")
    report = two.call("unprotect", "--json").json()

    assert report["unprotected"][0]["left_in_marker"] == ["config.json"]
    assert (two.project / ".keepfast/config.json").exists()
    assert not (two.project / ".keepfast/workspace.json").exists()
    assert two.call("list").code == 3


def test_a_folder_whose_store_is_lost_can_be_unprotected(two: Box) -> None:
    two.store.rename(two.home / "elsewhere")

    assert two.call("unprotect").code == 0
    assert not (two.project / ".keepfast").exists()
    assert not two.store.exists()


def test_everything_is_unprotected_at_once(two: Box) -> None:
    assert two.call("unprotect", "--all").code == 2
    assert two.call("unprotect", "--all", "-y").code == 0

    assert not (two.project / ".keepfast").exists() and not (two.home / "other/.keepfast").exists()
    assert len(two.call("list", "--all-workspaces", "--json").json()) == 4


@pytest.mark.parametrize("words", [("unprotect",), ("unprotect", "--all"), ("purge",), ("purge", "--all")])
def test_a_dry_run_changes_nothing(two: Box, words: tuple[str, ...]) -> None:
    before = two.state(two.home)
    result = two.call(*words, "--dry-run", "--json")

    assert (result.code, result.json()["dry_run"]) == (0, True)
    assert two.state(two.home) == before


@pytest.mark.parametrize("words", [("purge",), ("purge", "--all"), ("unprotect", "--purge")])
def test_removing_asks(two: Box, words: tuple[str, ...]) -> None:
    assert two.call(*words).code == 2
    assert two.versions() == ["v3", "v2", "v1"]


@pytest.mark.parametrize("words", [("purge",), ("unprotect", "--purge")])
def test_purging_removes_the_history_of_one_workspace(two: Box, words: tuple[str, ...]) -> None:
    two.put("src/a.py", "unique-content-here\n" * 10)
    two.save("-m", "unique-message-here")
    two.call("search", "unique")
    result = two.call(*words, "-y", "--json")

    assert (result.code, result.json()["purged"]) == (0, True)
    assert result.json()["bytes_after"] < result.json()["bytes_before"]
    assert (two.project / "src/a.py").exists() and not (two.project / ".keepfast").exists()
    assert two.call("list").code == 3
    assert [row["message"] for row in two.call("list", "--all-workspaces", "--json").json()] == ["of the other"]
    assert two.call("verify").code == 0
    assert stored(two, b"unique-message-here") == [] and stored(two, str(two.project).encode()) == []
    assert two.call("rebuild").code == 0
    assert len(two.call("list", "--all-workspaces", "--json").json()) == 1
    assert two.call("save", cwd=two.home / "other").code == 0
    assert two.call("restore", "v1", "-y", cwd=two.home / "other").code == 0


def test_a_purged_folder_begins_anew(two: Box) -> None:
    two.call("purge", "-y")
    assert two.call("init").code == 0

    assert two.save() == "v1"


def test_purging_everything_removes_the_store_and_its_keys(two: Box) -> None:
    two.put(".env", "PASSWORD=s3cr3t-pA55-phrase\n")
    two.save()
    (two.store / "not created by keepfast").write_text("x")
    keys = two.home / ".local/share/keepfast/keys"
    assert any(keys.iterdir())
    two.config.parent.mkdir(parents=True)
    two.config.write_text("{}")
    report = two.call("purge", "--all", "-y", "--json").json()

    assert (report["store_removed"], report["left_in_store"]) == (True, ["not created by keepfast"])
    assert [path.name for path in two.store.iterdir()] == ["not created by keepfast"]
    assert [path.name for path in keys.iterdir()] == ["lock"]
    assert str(two.config) in report["stays"]
    assert not (two.project / ".keepfast").exists() and not (two.home / "other/.keepfast").exists()
    assert (two.project / "src/a.py").exists()
    assert two.call("init").code == 0
    assert two.save() == "v1"


def test_a_restore_that_was_cut_off_is_ended_first(two: Box) -> None:
    marker: dict[str, Any] = json.loads((two.project / ".keepfast/workspace.json").read_text())
    journal = {"v": 1, "workspace": marker["id"], "target": 1, "from": marker["id"], "before": 3, "paths": [], "made": [],
               "kept": [], "closed": {}, "started_at": 1, "mtimes": False, "note": {}}  # fmt: skip
    (two.store / "workspaces" / marker["id"] / "restore").write_text(json.dumps(journal))

    assert two.call("purge", "-y").code == 14
    assert two.versions() == ["v3", "v2", "v1"]


def test_a_purge_that_was_cut_off_ends_when_it_is_run_again(two: Box) -> None:
    """Cut off after its rows are gone, a workspace comes back from its log with every version hidden."""
    workspace = json.loads((two.project / ".keepfast/workspace.json").read_text())["id"]
    repository = open_store(str(two.store))
    forget(repository, workspace, [1, 2, 3], "purged", str(two.store))
    with repository.ledger.transaction() as tx:
        tx.drop_workspace(workspace)
    repository.close()
    assert two.versions() == []
    assert two.call("verify").code == 0
    assert two.call("purge", "-y").code == 0

    assert two.call("verify").code == 0
    assert [row["message"] for row in two.call("list", "--all-workspaces", "--json").json()] == ["of the other"]


@pytest.fixture
def copied(saved_box: Box) -> Path:
    """A copy of the project, in which nothing was saved yet."""
    import shutil

    copy = saved_box.home / "copy"
    shutil.copytree(saved_box.project, copy)
    return copy


@pytest.mark.parametrize(
    "words",
    [("purge", "-y"), ("purge", "-n"), ("unprotect", "--purge", "-y"), ("forget", "v1", "-y"), ("pin", "v1"), ("unpin", "v3"),
     ("name", "v1", "x"), ("forget", "--policy", "-y"), ("restore", "--abort"), ("restore", "--continue"), ("restore", "-p", "v1")],
    ids=" ".join,
)  # fmt: skip
def test_a_copy_does_not_change_the_history_of_its_original(
    saved_box: Box, copied: Path, words: tuple[str, ...]
) -> None:
    before = saved_box.call("list", "--json").json()
    result = saved_box.call(*words, "--json", cwd=copied)

    assert (result.code, result.json()["error"]["kind"]) == (14, "elsewhere")
    assert saved_box.call("list", "--json").json() == before
    assert (saved_box.project / ".keepfast/workspace.json").exists() and (copied / ".keepfast/workspace.json").exists()


def test_a_copy_is_unprotected_by_itself(saved_box: Box, copied: Path) -> None:
    assert saved_box.call("unprotect", cwd=copied).code == 0

    assert not (copied / ".keepfast").exists()
    assert saved_box.versions() == ["v3", "v2", "v1"]
    assert saved_box.save() == "v4"
    assert saved_box.call("init", cwd=copied).code == 0
    assert saved_box.call("list", "--json", cwd=copied).json() == []


def test_after_its_first_save_a_copy_has_a_history_of_its_own(saved_box: Box, copied: Path) -> None:
    result = saved_box.call("list", cwd=copied)
    assert (result.code, str(saved_box.project) in result.err) == (14, True)
    assert saved_box.call("save", cwd=copied).code == 0
    assert saved_box.call("purge", "-y", cwd=copied).code == 0

    assert saved_box.versions() == ["v3", "v2", "v1"]


@pytest.mark.parametrize("folder", ["typo", "src", "src/a.py"])
@pytest.mark.parametrize(
    "words", [("purge", "-y"), ("purge", "-n"), ("unprotect", "-y"), ("unprotect", "--purge", "-y")]
)
def test_a_folder_in_a_workspace_does_not_mean_the_workspace(
    saved_box: Box, words: tuple[str, ...], folder: str
) -> None:
    result = saved_box.call(words[0], folder, *words[1:], "--json")

    assert (result.code, result.json()["error"]["kind"]) == (3, "no_workspace")
    assert folder in result.json()["error"]["message"]
    assert saved_box.versions() == ["v3", "v2", "v1"]


@pytest.mark.parametrize("words", [("purge", "-y"), ("purge", "-n"), ("unprotect", "--purge", "-y")], ids=" ".join)
def test_what_is_in_a_lost_store_cannot_be_removed(saved_box: Box, words: tuple[str, ...]) -> None:
    saved_box.store.rename(saved_box.home / "elsewhere")
    result = saved_box.call(*words, "--json")

    assert (result.code, result.json()["error"]["kind"]) == (5, "store_missing")
    assert (saved_box.project / ".keepfast/workspace.json").exists()
    (saved_box.home / "elsewhere").rename(saved_box.store)
    assert saved_box.save() == "v4"


def test_a_history_that_goes_on_is_not_said_to_begin(two: Box) -> None:
    two.call("unprotect")
    result = two.call("init")

    assert result.code == 0
    assert "first checkpoint" not in result.err and "3 checkpoints" in result.err


@pytest.mark.parametrize("folder", ["/", "/usr", "/etc", "/usr/local", "/opt", "/tmp", "/var/lib", "/home"])
def test_a_folder_of_the_system_is_refused_also_when_it_is_named(box: Box, folder: str) -> None:
    result = box.call("init", folder, "--json")

    assert (result.code, result.json()["error"]["kind"]) == (2, "refused")
    assert not (Path(folder) / ".keepfast").exists()


@pytest.mark.parametrize("way", ["inside", "path", "id"])
def test_the_history_of_a_folder_that_is_no_longer_protected_is_purged(two: Box, way: str) -> None:
    assert two.call("unprotect").code == 0
    (own,) = [one for one in two.call("purge", "--all", "-n", "--json").json()["unprotected"] if one["was"]]
    words = {"inside": (), "path": (str(two.project),), "id": (own["workspace"][:8],)}[way]

    result = two.call("purge", *words, "-n", "--json")
    assert (result.code, [one["was"] for one in result.json()["unprotected"]]) == (0, [str(two.project)])
    done = two.call("purge", *words, "-y", "--json")
    assert (done.code, done.json()["unprotected"][0]["checkpoints"]) == (0, 3)
    assert [row["message"] for row in two.call("list", "--all-workspaces", "--json").json()] == ["of the other"]
    assert two.call("purge", *words, "-n").code == 3
    assert (two.project / "src/a.py").exists()


def test_what_is_no_longer_protected_is_said_with_the_command_that_removes_its_history(two: Box) -> None:
    assert two.call("unprotect").code == 0

    for words in ((), (str(two.project),)):
        again = two.call("unprotect", *words)
        assert again.code == 3
        assert f"keepfast purge {two.project}" in again.err


def test_all_that_stays_after_everything_is_purged_is_named(two: Box) -> None:
    (two.home / ".claude").mkdir(exist_ok=True)
    assert two.call("install", "claude").code == 0
    two.call("unprotect")
    done = two.call("purge", "--all", "-y", "--json").json()

    data = two.home / ".local/share/keepfast"
    assert {str(path) for path in data.iterdir()} <= set(done["stays"])
    assert any(text.endswith(".claude/settings.json") for text in done["stays"])


def test_doctor_does_not_speak_of_a_store_that_is_not_there(two: Box) -> None:
    assert "would be" not in two.call("doctor").out
    assert two.call("purge", "--all", "-y").code == 0

    (checks,) = [one for one in two.call("doctor", "--json").json()["checks"] if one["name"] == "space"]
    assert "would be" in checks["text"]
