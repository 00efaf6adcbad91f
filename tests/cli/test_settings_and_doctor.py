"""Settings are changed one at a time and never lost; doctor finds what is wrong and says what to do."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from keepfast.cli.file_systems import file_system, is_remote, synced_folder
from keepfast.model.errors import TooMany
from keepfast.state.notices import note_unsaved
from tests.equipment.box import Box


def checks(box: Box) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in box.call("doctor", "--json").json()["checks"]}


def test_set_keeps_everything_else_in_the_file(box: Box) -> None:
    box.config.parent.mkdir(parents=True)
    box.config.write_text('{"later": {"unknown": [1, "한"]}, "capture": {"ignored": "all"}, "adopt": "any"}')

    assert box.call("config", "set", "capture.max_files", "5").code == 0
    assert box.call("config", "set", "capture.exclude", '["a/", "b,c"]').code == 0
    assert box.call("config", "set", "adopt", "never").code == 0

    assert json.loads(box.config.read_text()) == {
        "later": {"unknown": [1, "한"]},
        "capture": {"ignored": "all", "max_files": 5, "exclude": ["a/", "b,c"]},
        "adopt": "never",
    }
    assert "한" in box.config.read_text()


def test_a_linked_settings_file_stays_a_link(box: Box) -> None:
    real = box.home / "dotfiles.json"
    real.write_text("{}")
    box.config.parent.mkdir(parents=True)
    box.config.symlink_to(real)

    box.call("config", "set", "capture.ignored", "none")

    assert box.config.is_symlink()
    assert json.loads(real.read_text()) == {"capture": {"ignored": "none"}}


@pytest.mark.parametrize("text", ["{", "[1]", '{"capture": 3}'])
def test_a_file_that_cannot_be_read_is_not_overwritten(box: Box, text: str) -> None:
    box.config.parent.mkdir(parents=True)
    box.config.write_text(text)

    assert box.call("config", "set", "capture.max_files", "5").code == 2
    assert box.config.read_text() == text


def test_environment_wins_over_the_file_and_flags_over_both(box: Box) -> None:
    box.call("config", "set", "capture.max_files", "5")
    box.call("config", "set", "store.url", str(box.home / "elsewhere"))
    box.variables["KEEPFAST_CAPTURE_MAX_FILES"] = "7"
    box.variables["KEEPFAST_STORE_URL"] = "/somewhere"

    values = box.call("--store", "here", "config", "list", "--json").json()

    assert values["capture.max_files"] == {"value": 7, "origin": "KEEPFAST_CAPTURE_MAX_FILES"}
    assert values["store.url"] == {"value": str(box.project / "here"), "origin": "--store"}
    assert values["capture.ignored"] == {"value": "all", "origin": "default"}
    assert "KEEPFAST_STORE_URL is ignored in the environment" in box.call("config", "list").err


def test_another_settings_file_is_used_and_written(box: Box) -> None:
    other = box.home / "other.json"
    other.write_text("{}")

    box.call("--config", str(other), "config", "set", "capture.max_files", "5")

    assert json.loads(other.read_text()) == {"capture": {"max_files": 5}}
    assert not box.config.exists()
    assert box.call("--config", "../other.json", "config", "get", "capture.max_files").out == "5\n"


def test_what_get_shows_can_be_set(box: Box) -> None:
    for size in ("100MB", "1536KB", "1000", "3GB"):
        box.call("config", "set", "capture.max_file_size", size)
        output = box.call("config", "get", "capture.max_file_size").out.strip()
        assert box.call("config", "set", "capture.max_file_size", output).code == 0
        assert box.call("config", "get", "capture.max_file_size").out.strip() == output


def test_doctor_is_content_with_a_fresh_home_and_with_a_workspace(box: Box) -> None:
    assert box.call("doctor").code == 0
    assert checks(box)["store"]["level"] == "note"

    box.call("init")
    assert box.call("doctor").code == 0
    results = checks(box)
    assert [results[name]["level"] for name in ("store", "filesystem", "workspace", "git")] == ["fine"] * 4


def test_doctor_finds_a_store_that_others_may_read(saved_box: Box) -> None:
    saved_box.store.chmod(0o755)

    assert saved_box.call("doctor").code == 1
    assert checks(saved_box)["store"]["advice"] == f"Run `chmod 700 {saved_box.store}`."


def test_doctor_finds_a_marker_that_git_would_take(saved_box: Box) -> None:
    (saved_box.project / ".keepfast/.gitignore").unlink()

    assert checks(saved_box)["git"]["level"] == "problem"
    assert saved_box.call("init").code == 0
    assert checks(saved_box)["git"]["level"] == "fine"


def test_doctor_goes_on_after_a_damaged_store(saved_box: Box) -> None:
    (saved_box.store / "format").write_text("nonsense")

    results = checks(saved_box)

    assert results["store"]["level"] == "problem"
    assert "verify --repair" in results["store"]["advice"]
    assert results["space"]["level"] in ("fine", "note")


def test_doctor_says_once_what_stops_many_checks(saved_box: Box) -> None:
    saved_box.config.parent.mkdir(parents=True, exist_ok=True)
    saved_box.config.write_text("not json")

    result = saved_box.call("doctor")

    assert result.code == 1
    assert result.out.count("is not JSON") == 1
    assert "1 problem found." in result.out


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_doctor_finds_a_home_that_takes_no_store(visited: Box) -> None:
    shutil.rmtree(visited.home / ".local")
    shutil.rmtree(visited.project / ".keepfast")

    result = visited.call_as(65534, "doctor")

    assert result.code == 1
    assert f"no write permission for {visited.home}" in result.out


def test_doctor_shows_odd_settings(box: Box) -> None:
    box.config.parent.mkdir(parents=True)
    box.config.write_text('{"colour": 1}')

    assert checks(box)["settings"]["level"] == "note"


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/home/a/store", "nfs4"), ("/home", "nfs4"), ("/homes", "ext4"), ("/mnt/x y/s", "fuse.sshfs"), ("/", "ext4")],
)
def test_the_longest_mount_counts(path: str, kind: str) -> None:
    mounted = [("/", "ext4"), ("/home", "nfs4"), ("/mnt/x y", "fuse.sshfs")]

    assert file_system(path, mounted) == kind
    assert is_remote(kind) == (kind != "ext4")


def test_synced_folders_are_known_by_name() -> None:
    assert synced_folder("/home/a/Dropbox/store") == "Dropbox"
    assert synced_folder("/home/a/NotDropbox/store") is None


@pytest.mark.parametrize("value", ["-1", "-0.5", "-12"])
def test_a_negative_value_is_a_value(box: Box, value: str) -> None:
    answer = box.call("config", "set", "retention.keep_last", value)

    assert answer.code == 2
    assert "retention.keep_last" in answer.err and "option" not in answer.err
    assert box.call("config", "set", "--projct", "retention.keep_last", "5").code == 2
    assert box.call("config", "set", "retention.keep_last", "5", "-x").code == 2


def test_what_may_be_negative_is_set(box: Box) -> None:
    answer = box.call("config", "set", "checkpoint.exclude_patterns", "-1", "-n", "--json")

    assert (answer.code, answer.json()["value"]) == (0, ["-1"])


def test_doctor_says_that_the_last_save_failed_and_why(saved_box: Box) -> None:
    workspace = saved_box.call("status", "--json").json()["workspace"]["id"]
    folder = str(saved_box.store / "workspaces" / workspace)

    def level() -> str:
        return str(checks(saved_box)["workspace"]["level"])

    before = level()
    note_unsaved(folder, saved_box.now, "unreachable", "No permission.")
    assert (before, level()) == ("fine", "problem")
    note_unsaved(folder, saved_box.now, TooMany.kind, "The tree has too many files.")
    assert level() == "fine", "they are counted, and not too many any more"


def test_doctor_names_what_the_last_verify_found(saved_box: Box) -> None:
    """A content that is lost stays lost after the repair that named it."""
    assert saved_box.call("verify").code == 0
    assert [one["level"] for one in _checks(saved_box) if one["name"] == "verified"] == ["fine"]
    for pack in sorted(saved_box.store.glob("packs/**/*")):
        if pack.is_file():
            raw = bytearray(pack.read_bytes())
            raw[len(raw) // 3] ^= 0xFF
            pack.write_bytes(raw)
    repaired = saved_box.call("verify", "--repair", "--json").json()
    assert repaired["lost"]

    results = [one for one in _checks(saved_box) if one["name"] == "verified"]

    assert [one["level"] for one in results] == ["problem"] * len(repaired["lost"])
    assert saved_box.call("doctor").code == 1


def _checks(box: Box) -> list[dict[str, str]]:
    check: list[dict[str, str]] = box.call("doctor", "--json").json()["checks"]
    return check


def test_a_client_that_asks_wrongly_is_told_the_commands_own_usage(saved_box: Box) -> None:
    done = saved_box.run("hook", "claude", "--json")

    assert done.code == 1 and done.err.startswith("usage: keepfast hook")


def test_the_status_line_without_a_payload_is_about_the_current_folder(saved_box: Box) -> None:
    home = str(saved_box.home)
    words = ("--folders", home, f"{home}/.config", f"{home}/.local/share", "statusline")

    assert saved_box.run(*words).out.startswith("v3")
    assert "not protected" in saved_box.run(*words, cwd=saved_box.home).out


def test_a_setting_that_is_none_is_told_where_people_look(saved_box: Box) -> None:
    saved_box.config.parent.mkdir(parents=True, exist_ok=True)
    saved_box.config.write_text('{"capture": {"max_flies": 5}}')
    saved_box.put("new", "x")

    for words in (["save", "-m", "x"], ["list"]):
        assert "max_files" in saved_box.call(*words).err
        assert saved_box.call(*words, "-q").err == saved_box.call(*words, "--json").err == ""
    assert saved_box.call("save", "--auto").err == ""
