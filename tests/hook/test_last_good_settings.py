"""A broken settings file does not split the history: hooks go on by the last good settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from keepfast.settings import load
from keepfast.settings.last_good import place, recall, remember

from .ground import Ground

STORE = "another-store"


@pytest.fixture
def elsewhere(ground: Ground) -> Ground:
    """A user whose store is not where stores are by default, with one turn saved."""
    ground.configure(store={"url": str(ground.base / STORE)}, hooks={"checkpoint_threshold_percent": 75})
    assert ground.hook("SessionStart", source="startup").returncode == 0
    ground.settle()
    return ground


def config(ground: Ground) -> Path:
    return ground.home / ".config/keepfast/config.json"


def versions(ground: Ground) -> int:
    """How many checkpoints the user's own store has, by its settings mended."""
    broken = config(ground).read_bytes()
    ground.configure(store={"url": str(ground.base / STORE)})
    try:
        return len(ground.checkpoints())
    finally:
        config(ground).write_bytes(broken)


@pytest.mark.parametrize(
    "break_it",
    [
        lambda path: path.write_text('{"store": {"url": '),
        lambda path: path.write_text("[]"),
        lambda path: path.write_text('{"store": "here"}'),
        lambda path: path.write_text('{"store": {"url": 7}}'),
        lambda path: path.write_bytes(b"\xff\xfe"),
        lambda path: path.write_text(" " * (2 << 20)),
    ],
)
def test_hooks_go_on_in_the_same_store(elsewhere: Ground, break_it: Any) -> None:
    break_it(config(elsewhere))
    (elsewhere.project / "a.txt").write_text("changed\n")

    done = elsewhere.hook("Stop", last_assistant_message="Done.")

    assert b"config.json" in done.stderr  # it is told, once
    assert versions(elsewhere) == 2
    assert not (elsewhere.home / ".local/share/keepfast/store").exists()


def test_what_can_be_read_counts_and_the_rest_is_as_it_was(elsewhere: Ground) -> None:
    config(elsewhere).write_text(json.dumps({"store": {"url": 7}, "language": "ko"}))
    data = str(elsewhere.home / ".local/share/keepfast")

    found = load(str(config(elsewhere)), {}, hook=True, data=data)

    assert found.broken
    assert found["store.url"] == str(elsewhere.base / STORE) and found["language"] == "ko"
    assert found["hooks.checkpoint_threshold_percent"] == 75
    assert len(found.warnings) == 1


def test_a_file_that_was_moved_away_means_the_defaults(elsewhere: Ground) -> None:
    config(elsewhere).unlink()

    found = load(str(config(elsewhere)), {}, hook=True, data=str(elsewhere.home / ".local/share/keepfast"))

    assert found["store.url"] == "" and not found.broken


def test_a_later_version_of_the_file_is_not_broken(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"version": 9, "language": "tlh", "hooks": {"verify_before_clear": False}}))

    found = load(str(path), {}, hook=True, data=str(tmp_path / "data"))

    assert not found.broken and found["hooks.verify_before_clear"] is False


def test_the_copy_follows_the_file_and_no_command_is_stopped_by_it(tmp_path: Path) -> None:
    path, data = tmp_path / "config.json", tmp_path / "data"
    for language in ("ko", "en"):
        path.write_text(json.dumps({"language": language}))
        load(str(path), {}, data=str(data))
        assert recall(place(str(data), str(path))) == path.read_bytes()

    data.chmod(0o700)
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    remember(place(str(blocked), str(path)), b"{}")

    assert recall(place(str(blocked), str(path))) is None
    assert [one.name for one in (data / "settings").iterdir()] == [place("", str(path)).rpartition("/")[2]]
