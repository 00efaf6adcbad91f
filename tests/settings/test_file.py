"""Files that are odd, broken, hostile or of a later version; and files that change while a server runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from keepfast.model.errors import Failed, Usage
from keepfast.settings import Settings, load
from keepfast.settings.file import REMOVED, change, change_project
from keepfast.settings.live import LiveSettings

BROKEN = {
    "cut off": ('{\n  "hooks": {\n', "line 3"),
    "a comma too many": ('{\n  "adopt": "git",\n}', "line 3"),
    "a comment": ('{\n  "adopt": "git" // mine\n}', "line 2"),
    "not an object": ("[1]", "JSON object"),
    "two values": ("{} {}", "line 1, column 4"),
    "not UTF-8": (b'{"adopt": "\xff"}', "not UTF-8"),
    "a section that is none": ('{"hooks": true}', "'hooks'"),
    "infinite": ('{"capture": {"max_files": Infinity}}', "Infinity"),
    "very deep": ("[" * 100_000, "deep"),
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config.json"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".keepfast").mkdir(parents=True)
    (folder / ".keepfast/workspace.json").write_text(json.dumps({"id": "0" * 32}))
    (tmp_path / "store").mkdir()
    (tmp_path / "store/paths").write_text(f"{'0' * 32} {folder}\n")
    return folder


def stores(workspace: Path) -> str:
    """The data folder of the user whose store knows that workspace."""
    return str(workspace.parent)


def write(path: Path, content: Any) -> Path:
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def project(folder: Path, content: Any) -> Path:
    return write(folder / ".keepfast/config.json", content)


@pytest.mark.parametrize(("text", "said"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_a_sentence_with_its_place_and_defaults_in_a_hook(
    config: Path, text: str | bytes, said: str
) -> None:
    write(config, text)

    with pytest.raises(Usage) as refused:
        load(str(config), {})
    in_hook = load(str(config), {}, hook=True)

    assert said in str(refused.value)
    assert str(config) in str(refused.value)
    assert refused.value.hint
    assert in_hook.values == Settings().values
    assert said in in_hook.warnings[0]


def test_a_folder_a_pipe_and_a_huge_file_are_sentences_and_defaults_in_a_hook(config: Path) -> None:
    huge, pipe = config.with_name("huge"), config.with_name("pipe")
    config.mkdir()
    os.mkfifo(pipe)
    huge.write_bytes(b" " * (2 << 20))

    for path, said in ((config, "a folder"), (pipe, "not a regular file"), (huge, "larger than 1 MB")):
        with pytest.raises(Failed, match=said):
            load(str(path), {})
        assert said in load(str(path), {}, hook=True).warnings[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user to be refused")
def test_an_unreadable_file_is_a_sentence(config: Path) -> None:
    write(config, {"adopt": "never"}).chmod(0o000)
    for folder in [config.parent, *config.parent.parents][:4]:
        if folder != Path("/tmp"):
            folder.chmod(0o755)
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        try:
            load(str(config), {})
        except Failed as error:
            os._exit(7 if "Permission denied" in str(error) else 8)
        finally:
            os._exit(9)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_an_empty_file_and_a_byte_order_mark_are_fine(config: Path) -> None:
    assert load(str(write(config, " \n")), {}).values == Settings().values
    assert load(str(write(config, b'\xef\xbb\xbf{"adopt": "any"}')), {})["adopt"] == "any"


def test_a_missing_file_is_fine_unless_it_was_asked_for(config: Path) -> None:
    assert load(str(config), {}).values == Settings().values
    assert load(str(config / "below"), {}).values == Settings().values
    with pytest.raises(Usage, match="not found"):
        load(str(config), {}, required=True)


def test_unknown_keys_are_warned_about_with_the_nearest_name(config: Path) -> None:
    settings = load(
        str(write(config, {"hook": {"verify_before_clear": False}, "capture": {"max_fils": 3}, "zzz": 1})),
        {"KEEPFAST_HOOKS_VERIFY_BEFORE_CLEER": "1", "KEEPFAST_DEBUG": "1", "KEEPFAST_RUN": "x"},
    )

    assert "did you mean hooks.verify_before_clear?" in settings.warnings[0]
    assert "did you mean capture.max_files?" in settings.warnings[1]
    assert settings.warnings[2].endswith("unknown setting 'zzz'.")
    assert settings.warnings[3] == (
        "KEEPFAST_HOOKS_VERIFY_BEFORE_CLEER is not a setting; did you mean KEEPFAST_HOOKS_VERIFY_BEFORE_CLEAR?"
    )
    assert len(settings.warnings) == 4


def test_a_file_of_a_later_version_is_read_as_far_as_it_is_understood(config: Path) -> None:
    write(config, {"version": 2, "adopt": "telepathy", "hooks": {"checkpoint_threshold_percent": 80, "new": 1}})

    settings = load(str(config), {})

    assert (settings["adopt"], settings["hooks.checkpoint_threshold_percent"]) == ("any", 80)
    assert "later version (2)" in settings.warnings[0]
    assert "adopt" in settings.warnings[1]
    assert len(settings.warnings) == 3


def test_a_schema_line_and_the_present_version_are_not_remarked_on(config: Path) -> None:
    assert load(str(write(config, {"$schema": "x", "version": 1})), {}).warnings == []


# The project's file


def test_a_project_tightens_and_cannot_loosen(config: Path, workspace: Path) -> None:
    write(config, {"hooks": {"checkpoint_threshold_percent": 80}, "capture": {"exclude": ["a/", "b/"]}})
    project(
        workspace,
        {
            "hooks": {
                "checkpoint_threshold_percent": 75,
                "verify_before_clear": False,
                "auto_checkpoint_on_clear": True,
            },
            "capture": {"exclude": ["a/", "secret/"], "max_files": 1},
            "store": {"url": "/evil"},
            "adopt": "never",
            "analysis": {"llm": "command", "command": ["rm", "-rf", "/"]},
        },
    )

    settings = load(str(config), {}, os.fsencode(workspace), stores=stores(workspace))

    assert settings["hooks.checkpoint_threshold_percent"] == 75
    assert settings["hooks.auto_checkpoint_on_clear"] is True
    assert settings["hooks.verify_before_clear"] is True
    assert settings["capture.exclude"] == ["a/", "b/"]
    assert settings["capture.max_files"] == 200_000
    assert (settings["store.url"], settings["adopt"], settings["analysis.llm"]) == ("", "any", "off")
    assert settings["analysis.command"] == []
    assert len(settings.warnings) == 7
    assert {why for heard in settings.considered.values() for _, _, why in heard} == {
        "",
        "it can only tighten the user's settings",
        "only the user can set it",
    }


def test_the_environment_wins_over_the_project(config: Path, workspace: Path) -> None:
    project(workspace, {"capture": {"ignored": "all"}})

    settings = load(str(config), {"KEEPFAST_CAPTURE_IGNORED": "none"}, os.fsencode(workspace), stores=stores(workspace))

    assert settings["capture.ignored"] == "none"


@pytest.mark.parametrize(("text", "said"), BROKEN.values(), ids=BROKEN)
def test_a_broken_project_file_never_stops_a_command(
    config: Path, workspace: Path, text: str | bytes, said: str
) -> None:
    project(workspace, text)

    settings = load(str(config), {}, os.fsencode(workspace), stores=stores(workspace))

    assert settings.values == Settings().values
    assert said in settings.warnings[0]


def test_links_pipes_and_folders_in_the_place_of_a_project_file_lead_nowhere(config: Path, workspace: Path) -> None:
    place = workspace / ".keepfast/config.json"
    elsewhere = write(workspace / "elsewhere.json", {"capture": {"ignored": "all"}})

    place.symlink_to(elsewhere)
    linked = load(str(config), {}, os.fsencode(workspace), stores=stores(workspace))
    with pytest.raises(Failed):
        change_project(os.fsencode(workspace), {"capture.ignored": "all"})
    place.unlink()
    os.mkfifo(place)
    pipe = load(str(config), {}, os.fsencode(workspace), stores=stores(workspace))
    place.unlink()
    place.mkdir()
    folder = load(str(config), {}, os.fsencode(workspace), stores=stores(workspace))

    for settings in (linked, pipe, folder):
        assert settings.values == Settings().values
        assert len(settings.warnings) == 1


# Writing


def test_the_files_own_indent_and_order_stay(config: Path) -> None:
    write(config, '{\n\t"zebra": 1,\n\t"adopt": "git",\n\t"hooks": {"verify_before_clear": true}\n}\n')

    written = change(str(config), {"adopt": "any", "hooks.auto_resume_on_start": False})

    assert list(json.loads(written.new)) == ["zebra", "adopt", "hooks"]
    assert '\n\t"zebra": 1,' in config.read_text()
    assert json.loads(config.read_text())["hooks"] == {"verify_before_clear": True, "auto_resume_on_start": False}


def test_a_key_that_goes_takes_its_empty_section_with_it(config: Path) -> None:
    write(config, {"hooks": {"verify_before_clear": False}, "other": {}})

    change(str(config), {"hooks.verify_before_clear": REMOVED})

    assert json.loads(config.read_text()) == {"other": {}}


def test_a_dry_run_writes_nothing_not_even_folders(tmp_path: Path) -> None:
    written = change(str(tmp_path / "new/config.json"), {"adopt": "any"}, dry_run=True)

    assert json.loads(written.new) == {"adopt": "any"}
    assert not (tmp_path / "new").exists()


def test_the_mode_of_the_file_stays(config: Path) -> None:
    write(config, {}).chmod(0o644)

    change(str(config), {"adopt": "any"})

    assert config.stat().st_mode & 0o777 == 0o644


# A server that stays


def test_a_server_follows_its_files_and_keeps_the_last_good_ones(config: Path, workspace: Path) -> None:
    following = LiveSettings(
        str(config),
        {},
        os.fsencode(workspace),
        flags={"store.url": stores(workspace) + "/store"},
        stores=stores(workspace),
    )
    first = following.now()

    write(config, {"hooks": {"checkpoint_threshold_percent": 90}})
    changed = following.now()
    project(workspace, {"hooks": {"checkpoint_threshold_percent": 80}})
    tightened = following.now()
    write(config, "{")
    broken = following.now()
    trouble, generation = following.problem, following.generation
    config.unlink()
    gone = following.now()

    assert first["hooks.checkpoint_threshold_percent"] == 70
    assert changed["hooks.checkpoint_threshold_percent"] == 90
    assert tightened["hooks.checkpoint_threshold_percent"] == 80
    assert broken is tightened
    assert "not JSON" in trouble
    assert generation == 3
    assert gone["hooks.checkpoint_threshold_percent"] == 70
    assert (following.problem, following.generation) == ("", 4)
    assert gone["store.url"] == stores(workspace) + "/store"
    assert following.now() is gone
