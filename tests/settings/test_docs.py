"""docs/settings.md says what the schema says, and the examples are right."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import reference_tables
from keepfast.model.schema import ALIASES, TABLE
from keepfast.settings import Settings, load

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs/settings.md"
EXAMPLES = sorted((REPOSITORY / "examples").glob("*.json"))


def test_the_table_says_what_the_schema_says() -> None:
    text = PAGE.read_text()

    assert text == reference_tables.with_tables("settings.md", text)


def test_every_short_name_is_on_the_page() -> None:
    text = PAGE.read_text()

    for name, key in ALIASES.items():
        assert re.search(rf"`{name}`.*`{re.escape(key)}`", text)


def test_every_setting_that_the_docs_speak_of_is_there() -> None:
    sections = "|".join(sorted({key.partition(".")[0] for key in TABLE if "." in key}))
    pages = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")]
    for path in [page for page in pages if page.name != "json.md"]:  # its keys are those of answers
        for key in re.findall(rf"`((?:{sections})\.[a-z_]+)[`:]", path.read_text()):
            assert key in TABLE or key.endswith((".md", ".py", ".json", ".log", ".db")), f"{path.name}: {key}"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_taken_without_a_remark(path: Path) -> None:
    settings = load(str(path), {})

    assert settings.warnings == []
    assert settings.origins


def test_the_examples_are_the_three_modes_of_the_guide() -> None:
    hooks = {path.stem: json.loads(path.read_text())["hooks"] for path in EXAMPLES}

    assert set(hooks) == {"automatic", "prompt", "manual"}
    assert [hooks[name]["auto_checkpoint_on_clear"] for name in ("automatic", "prompt", "manual")] == [
        True,
        "prompt",
        False,
    ]
    assert Settings().values["hooks.auto_checkpoint_on_clear"] == "prompt"


def test_the_supervisor_goes_by_every_setting_of_its_section_and_by_its_defaults() -> None:
    from dataclasses import fields

    from keepfast.runner.domain.options import Options

    options = Options()
    known = {f"supervisor.{field.name}": getattr(options, field.name) for field in fields(Options)}
    defaults = {key: setting.default for key, setting in TABLE.items() if key.startswith("supervisor.")}

    assert defaults == {key: value for key, value in known.items() if key in defaults}
    assert Options.read(Settings()) == options
