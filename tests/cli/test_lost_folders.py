"""A store that lost one of its own folders: what is lost is named, and the folder is made again where that is safe."""

from __future__ import annotations

import shutil

import pytest

from tests.equipment.box import Box

DAMAGED = 13


@pytest.mark.parametrize("name", ["tmp", "workspaces"])
@pytest.mark.parametrize("words", [("save",), ("verify",), ("verify", "--repair")], ids=" ".join)
def test_a_folder_without_checkpoints_is_made_again_by_any_of_them(
    saved_box: Box, name: str, words: tuple[str, ...]
) -> None:
    shutil.rmtree(saved_box.store / name)
    assert saved_box.call(*words).code == 0

    assert (saved_box.store / name).is_dir()
    assert saved_box.call("restore", "v1", "-y").code == 0
    assert saved_box.call("verify").code == 0


@pytest.mark.parametrize("name", ["packs", "log"])
def test_lost_checkpoints_are_seen_by_save_verify_and_doctor(saved_box: Box, name: str) -> None:
    shutil.rmtree(saved_box.store / name)
    checks = {check["name"]: check["level"] for check in saved_box.call("doctor", "--json").json()["checks"]}

    assert [saved_box.call(verb).code for verb in ("save", "verify")] == [DAMAGED] * 2
    assert checks["store"] == "problem"
    assert not (saved_box.store / name).exists()


def test_a_store_that_lost_its_packs_names_what_is_lost_and_goes_on(saved_box: Box) -> None:
    shutil.rmtree(saved_box.store / "packs")
    repaired = saved_box.call("verify", "--repair", "--json")

    assert repaired.code == DAMAGED and repaired.json()["lost"]
    assert saved_box.save() == "v4"
    assert saved_box.call("restore", "v4", "-y").code == 0


def test_a_store_that_lost_its_logs_is_healed_from_the_ledger(saved_box: Box) -> None:
    shutil.rmtree(saved_box.store / "log")

    assert saved_box.call("verify", "--repair").code == 0
    assert saved_box.call("verify").code == 0
    assert saved_box.save() == "v4"
