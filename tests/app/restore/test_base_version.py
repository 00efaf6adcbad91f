"""After a restore everything relates to what was restored; what the restore made for safety stays out of the way."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import pytest

from keepfast.app.restore import Restorer
from keepfast.store.restore_journal import RestoreInProgress
from tests.cli.conftest import fill
from tests.equipment.box import Box


@pytest.fixture
def kept(tmp_path: Any) -> Box:
    return fill(Box(tmp_path))


def standing(box: Box) -> tuple[str, list[str]]:
    """What `status` says the folder is at, and what differs from that."""
    said = box.call("status", "--json").json()
    return said["base"]["version"], sorted(change["path"] for change in said["changes"])


def at(box: Box) -> str:
    return str(box.call("show", "@", "--json").json()["version"])


def differing(box: Box) -> tuple[str, list[str]]:
    said = box.call("diff", "--json").json()
    return said["old"], sorted(change["path"] for change in said["changes"])


def everything(box: Box) -> list[str]:
    return [row["version"] for row in box.call("list", "--all", "--json").json()]


def test_after_a_restore_status_diff_and_at_relate_to_what_was_restored(kept: Box) -> None:
    assert kept.call("restore", "v1", "-y").code == 0

    assert standing(kept) == ("v1", [])
    assert differing(kept) == ("v1", [])
    assert at(kept) == "v1"
    kept.put("README", "changed\n")
    assert standing(kept) == ("v1", ["README"])


def test_steps_back_are_counted_from_what_was_restored(kept: Box) -> None:
    kept.call("restore", "v2", "-y")

    assert kept.call("show", "@~1", "--json").json()["version"] == "v1"
    assert kept.call("show", "@~2", "--json").code == 4
    assert kept.call("show", "latest", "--json").json()["version"] == "v3"


def test_the_next_save_is_what_the_folder_is_at(kept: Box) -> None:
    kept.call("restore", "v1", "-y")
    kept.put("new", "n")
    version = kept.save()

    assert (version, standing(kept), at(kept)) == ("v5", ("v5", []), "v5")
    assert kept.call("show", "@~1", "--json").json()["version"] == "v3"


def test_undo_and_redo_go_back_and_forth(kept: Box) -> None:
    kept.put("src/a.py", "not saved\n")
    kept.call("restore", "v1", "-y")
    kept.call("undo", "-y")
    assert standing(kept) == ("v3", ["src/a.py"])
    kept.call("redo", "-y")
    assert standing(kept) == ("v1", [])
    kept.call("undo", "-y")
    assert standing(kept) == ("v3", ["src/a.py"])

    assert (kept.project / "src/a.py").read_text() == "not saved\n"


def test_redo_goes_back_to_what_was_saved_in_between(kept: Box) -> None:
    kept.call("restore", "v1", "-y")
    kept.put("new", "n")
    saved = kept.save()
    kept.call("undo", "-y")
    assert standing(kept)[0] == "v3"
    kept.call("redo", "-y")

    assert standing(kept) == (saved, [])


def test_a_restore_of_a_path_stays_at_the_version(kept: Box) -> None:
    assert kept.call("restore", "v1", "-y", "--", "src/a.py").code == 0
    assert standing(kept) == ("v3", ["src/a.py"])
    kept.call("undo", "-y")

    assert standing(kept) == ("v3", [])


def test_a_path_after_a_whole_restore_stays_at_what_was_restored(kept: Box) -> None:
    kept.call("restore", "v1", "-y")
    kept.call("restore", "v2", "-y", "--", "src/b.py")

    assert standing(kept) == ("v1", ["src/b.py"])


def test_what_the_folder_is_at_survives_a_rebuild_and_is_verified(kept: Box) -> None:
    kept.call("restore", "v1", "-y")
    kept.put("src/b.py", "x")
    kept.call("restore", "v2", "-y", "--", "src/b.py")
    assert kept.call("verify").code == 0
    assert kept.call("rebuild").code == 0

    assert standing(kept) == ("v1", ["src/b.py"])
    assert kept.call("verify").code == 0


def test_a_forgotten_version_is_nothing_to_be_at(kept: Box) -> None:
    kept.call("restore", "v1", "-y")
    assert kept.call("forget", "v1", "-y").code == 0

    assert at(kept) == "v4"


def test_list_hides_what_restores_made_for_safety(kept: Box) -> None:
    kept.call("restore", "v1", "-y")
    kept.call("undo", "-y")

    assert kept.versions() == ["v3", "v2", "v1"]
    assert everything(kept) == ["v5", "v4", "v3", "v2", "v1"]
    assert [row["version"] for row in kept.call("list", "--trigger", "before_restore", "--json").json()] == ["v5", "v4"]
    assert [row["version"] for row in kept.call("list", "--limit", "1", "--json").json()] == ["v3"]
    assert [row["version"] for row in kept.call("checkpoint", "list", "--json").json()] == ["v3", "v2", "v1"]


def test_yes_means_yes(kept: Box) -> None:
    """The safety checkpoint has what was not saved."""
    kept.put("src/a.py", "not saved\n")
    kept.put("src/new.py", "not saved either\n")
    result = kept.call("restore", "v1", "-y", "--json")

    assert (result.code, result.json()["kept"]) == (0, [])
    assert (kept.project / "src/a.py").read_text() == "one\ntwo\nthree\n"
    kept.put("src/a.py", "not saved again\n")
    assert kept.call("undo", "-y").code == 0
    assert (kept.project / "src/a.py").read_text() == "not saved\n"
    assert (kept.project / "src/new.py").read_text() == "not saved either\n"
    assert kept.call("cat", "v5", "src/a.py").out == "not saved again\n"


def test_without_yes_a_script_is_still_told_of_conflicts(kept: Box) -> None:
    kept.put("src/a.py", "not saved\n")

    assert kept.call("restore", "v1").code == 14
    assert kept.call("restore", "v1", "-y", "--keep-mine").code == 0
    assert (kept.project / "src/a.py").read_text() == "not saved\n"


def test_choosing_hunks_makes_one_version(kept: Box) -> None:
    lines = [f"{number}\n" for number in range(40)]
    kept.put("long", "".join(lines))
    target = kept.save()
    now = "".join(["first\n", *lines[1:39], "not saved\n"])
    chosen = "".join([*lines[:39], "not saved\n"])
    kept.put("long", now)
    before, listed = everything(kept), kept.versions()
    kept.terminal("restore", target, "-p", "--", "long", typed=b"y\nn\n")

    assert (kept.project / "long").read_text() == chosen
    assert len(everything(kept)) == len(before) + 1
    assert kept.versions() == listed
    assert kept.call("cat", everything(kept)[0], "long").out == now
    assert standing(kept) == (target, ["long"])
    assert kept.call("undo", "-y").code == 0
    assert (kept.project / "long").read_text() == now
    assert kept.call("redo", "-y").code == 0
    assert (kept.project / "long").read_text() == chosen
    assert kept.call("verify").code == 0


class Older:
    """Runs commands as a program does that knows nothing of `base`: its records have none, its ledger is left as it was."""

    def __init__(self, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
        self.box, self.patch = box, monkeypatch

    def call(self, *words: str) -> None:
        before = self._meta()
        record = Restorer._record

        def without(restorer: Restorer, journal: Any, restore: RestoreInProgress) -> None:
            restore.was = restore.base = None
            record(restorer, journal, restore)

        with self.patch.context() as patch:
            patch.setattr(Restorer, "_record", without)
            assert self.box.call(*words).code == 0
        db = sqlite3.connect(self.box.store / "ledger.db")
        with db:
            db.execute("DELETE FROM meta WHERE key LIKE 'base %'")
            db.executemany("INSERT INTO meta VALUES(?, ?)", before)
        db.close()

    def _meta(self) -> list[tuple[str, str]]:
        db = sqlite3.connect(self.box.store / "ledger.db")
        rows = db.execute("SELECT key, value FROM meta WHERE key LIKE 'base %'").fetchall()
        db.close()
        return rows


@pytest.fixture
def older(kept: Box, monkeypatch: pytest.MonkeyPatch) -> Older:
    return Older(kept, monkeypatch)


@pytest.mark.parametrize("rebuilt", [False, True])
@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        ([("restore", "v2", "-y")], "v2"),
        ([("restore", "v2", "-y"), ("undo", "-y")], "v3"),
        ([("restore", "v2", "-y"), ("undo", "-y"), ("redo", "-y")], "v2"),
        ([("restore", "v2", "-y", "--", "src/a.py")], "v3"),
    ],
    ids=["restore", "undo", "redo", "path"],
)
def test_what_an_older_program_restored_is_what_the_folder_is_at(
    kept: Box, older: Older, commands: list[tuple[str, ...]], expected: str, rebuilt: bool
) -> None:
    for words in commands:
        older.call(*words)
    if rebuilt:
        assert kept.call("rebuild").code == 0

    assert (standing(kept)[0], at(kept)) == (expected, expected)
    assert kept.call("verify").code == 0


def test_older_and_newer_programs_may_take_turns(kept: Box, older: Older) -> None:
    kept.call("restore", "v1", "-y")
    older.call("restore", "v2", "-y")
    assert (standing(kept), kept.call("verify").code) == (("v2", []), 0)
    older.call("restore", "v1", "-y", "--", "README")
    assert (standing(kept), kept.call("verify").code) == (("v2", []), 0)
    kept.call("restore", "v1", "-y")
    older.call("undo", "-y")
    assert kept.call("verify").code == 0
    kept.call("restore", "v1", "-y")
    kept.call("undo", "-y")
    kept.put("new", "n")
    version = kept.save()

    assert (standing(kept), kept.call("verify").code) == ((version, []), 0)


def test_status_counts_what_was_restored(kept: Box) -> None:
    before = kept.call("show", "v1", "--json").json()["coverage"]
    kept.put("more", "not saved\n")
    kept.call("restore", "v1", "-y")

    assert kept.call("status", "--json").json()["coverage"] == before


@pytest.fixture
def cut_off(kept: Box) -> Box:
    """A restore of v1 that ended after its safety checkpoint and its journal."""
    kept.call("restore", "v1", "-y")
    kept.call("undo", "-y")
    marker = json.loads((kept.project / ".keepfast/workspace.json").read_text())["id"]
    journal = {"v": 1, "workspace": marker, "target": 1, "from": marker, "before": 5, "paths": [], "made": [],
               "kept": [], "closed": {}, "started_at": 1, "mtimes": False, "note": {}}  # fmt: skip
    (kept.store / "workspaces" / marker / "restore").write_text(json.dumps(journal))
    return kept


@pytest.mark.parametrize("word", ["undo", "redo"])
def test_a_restore_that_was_cut_off_is_ended_before_another_is_taken_back(cut_off: Box, word: str) -> None:
    result = cut_off.call(word, "-y", "--json")

    assert (result.code, "v1" in result.json()["error"]["message"]) == (14, True)


def test_while_a_restore_is_cut_off_the_folder_is_at_nothing(cut_off: Box) -> None:
    lines = [line for line in cut_off.call("status").out.splitlines() if line.startswith("At ")]

    assert len(lines) == 1 and "v" not in lines[0].split()[1]
    assert cut_off.call("status", "--json").json()["restore"]["state"] == "cut off"


def test_the_safety_checkpoint_of_hunks_names_what_the_person_named(kept: Box) -> None:
    kept.terminal("restore", "v1", "-p", "--", "src/a.py", typed=b"y\n")

    assert kept.call("list", "--all", "--limit", "1", "--json").json()[0]["message"] == "before restoring v1"


def test_the_version_of_chosen_hunks_is_the_next_number(kept: Box) -> None:
    """No number is used up by a version that `list --all` does not show."""
    kept.put("README", "not saved\n")
    kept.terminal("restore", "v1", "-p", "--", "src/a.py", typed=b"y\n")

    assert everything(kept) == ["v4", "v3", "v2", "v1"]
    assert kept.call("status", "--json").json()["versions"] == {"kept": 4, "forgotten": 0}
    assert "forgotten" not in kept.call("status").out
    kept.call("undo", "-y")
    assert everything(kept)[0] == "v5"
