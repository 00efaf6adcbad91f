"""What may be told of the work is bounded when a checkpoint is made; whoever shows it later can only bound it further."""

from __future__ import annotations

from typing import Any

import pytest

from keepfast.model.document import Header
from tests.hook.ground import Ground
from tests.hook.test_conversations import Talk
from tests.hook.test_inheritance import show


def made(ground: Ground, **checkpoint: Any) -> None:
    """A turn that wrote two files, with these settings; those of now are the defaults."""
    ground.configure(checkpoint=checkpoint)
    talk = Talk(ground, "a")
    talk.start()
    talk.ask("Write the report about taxes")
    for name, text in (("report.md", "taxes " * 100), ("figures.csv", "1,2\n")):
        talk.session.write(name, text)
        (ground.project / name).write_text(text)
    talk.reply("Done.")
    ground.settle()
    ground.configure()


def test_made_as_a_summary_it_is_shown_as_one(ground: Ground) -> None:
    made(ground, mode="summary")

    assert "state" not in show(ground)


def test_the_environment_of_the_hook_counts(ground: Ground) -> None:
    ground.variables["KEEPFAST_CHECKPOINT_MODE"] = "summary"
    made(ground)
    del ground.variables["KEEPFAST_CHECKPOINT_MODE"]

    assert "state" not in show(ground)


@pytest.mark.parametrize(
    ("bound", "files"),
    [
        ({}, {"report.md", "figures.csv"}),
        ({"capture_files": False}, set()),
        ({"max_file_size": 100}, {"figures.csv"}),
        ({"max_checkpoint_size": 100}, {"figures.csv"}),
        ({"exclude_patterns": ["*.csv"]}, {"report.md"}),
    ],
)
def test_files_are_bounded_as_when_it_was_made(ground: Ground, bound: dict[str, Any], files: set[str]) -> None:
    made(ground, **bound)

    assert set(show(ground)["state"]["files"]) == files


@pytest.mark.parametrize(
    ("bound", "files"), [({"max_file_size": 100}, {"figures.csv"}), ({"exclude_patterns": ["*.csv"]}, {"report.md"})]
)
def test_stricter_settings_of_now_hold_too(ground: Ground, bound: dict[str, Any], files: set[str]) -> None:
    made(ground)
    ground.configure(checkpoint=bound)

    assert set(show(ground)["state"]["files"]) == files


def test_a_checkpoint_without_the_record_is_bounded_by_the_settings_of_now(ground: Ground) -> None:
    from keepfast.app.state_document import bounds_of

    settings = ground.engine.settings
    odd = {"mode": 7, "capture_files": "no", "max_file_size": True, "exclude_patterns": [3], "more": 1}

    headers: list[dict[str, Any]] = [{}, {"bounds": odd}, {"bounds": []}]
    found = [bounds_of(Header(members), settings) for members in headers]

    assert found[0] == found[1] == found[2]
    assert found[0].mode == "stateful"


def test_what_is_excluded_or_made_again_is_in_no_list_and_named_as_left_out(ground: Ground) -> None:
    talk = Talk(ground, "a")
    talk.start()
    talk.ask("Patch the parser")
    for name in (
        "src/parser.py",
        "bin/deploy",
        "node_modules/x/index.js",
        ".venv/lib/y.py",
        "node_modules/x/README.md",
    ):
        place = ground.project / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("x\n")
        talk.session.write(name, "x\n")
        talk.tell("PostToolUse", tool_name="Write", tool_input={"file_path": str(place)}, tool_response={})
    talk.reply("Done.")
    ground.settle()

    told = show(ground)
    assert set(told["active_files"]) == set(told["state"]["files"]) == {"src/parser.py", "bin/deploy"}
    assert set(told["state"]["context"]["relevant_packages"]) == {"src", "bin"}
    assert told["state"]["analysis"]["relevant_docs"] == []
    assert {line.partition(":")[0] for line in told["state_left_out"]} >= {
        "node_modules/x/index.js", "node_modules/x/README.md", ".venv/lib/y.py",
    }  # fmt: skip
