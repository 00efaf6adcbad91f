"""A store that lost one of its own folders: what is lost is named, and the folder is made again where that is safe."""

from __future__ import annotations

import shutil

import pytest

from tests.equipment.box import Box

DAMAGED = 13


@pytest.mark.parametrize("name", ["tmp", "workspaces"])
@pytest.mark.parametrize("words", [("save",), ("verify",), ("verify", "--repair")], ids=" ".join)
def test_a_folder_without_checkpoints_is_made_again_by_any_of_them(
    kept: Box, name: str, words: tuple[str, ...]
) -> None:
    shutil.rmtree(kept.store / name)
    assert kept.call(*words).code == 0

    assert (kept.store / name).is_dir()
    assert kept.call("restore", "v1", "-y").code == 0
    assert kept.call("verify").code == 0


@pytest.mark.parametrize("name", ["packs", "log"])
def test_lost_checkpoints_are_seen_by_save_verify_and_doctor(kept: Box, name: str) -> None:
    shutil.rmtree(kept.store / name)
    checks = {check["name"]: check["level"] for check in kept.call("doctor", "--json").json()["checks"]}

    assert [kept.call(verb).code for verb in ("save", "verify")] == [DAMAGED] * 2
    assert checks["store"] == "problem"
    assert not (kept.store / name).exists()


def test_a_store_that_lost_its_packs_names_what_is_lost_and_goes_on(kept: Box) -> None:
    shutil.rmtree(kept.store / "packs")
    repaired = kept.call("verify", "--repair", "--json")

    assert repaired.code == DAMAGED and repaired.json()["lost"]
    assert kept.save() == "v4"
    assert kept.call("restore", "v4", "-y").code == 0


def test_a_store_that_lost_its_logs_is_healed_from_the_ledger(kept: Box) -> None:
    shutil.rmtree(kept.store / "log")

    assert kept.call("verify", "--repair").code == 0
    assert kept.call("verify").code == 0
    assert kept.save() == "v4"
