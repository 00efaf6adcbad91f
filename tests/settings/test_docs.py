"""docs/settings.md says what the schema says, and the examples are right."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from keepfast.model.schema import ALIASES, CHOICE, TABLE, Setting
from keepfast.model.setting_values import limits, shown
from keepfast.settings import Settings, load

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs/settings.md"
EXAMPLES = sorted((REPOSITORY / "examples").glob("*.json"))


def given(key: str, setting: Setting) -> str:
    if setting.kind == CHOICE:
        return ", ".join([f"`{choice}`" for choice in setting.allowed or ()])
    return setting.kind + (f", {limits(key)}" if setting.allowed else "")


def tighter(key: str, setting: Setting) -> str:
    rule = setting.tighter
    if isinstance(rule, tuple):
        return " → ".join([f"`{shown(key, choice)}`" for choice in rule])
    return rule or ("" if setting.from_environment else "*your file only*")


def default(key: str, setting: Setting) -> str:
    text = shown(key, setting.default)
    if isinstance(setting.default, list) and len(setting.default) > 3:
        text = ", ".join(setting.default[:3]) + f", … ({len(setting.default)} in all)"
    return f"`{text}`" if text else "empty"


def settings_table() -> str:
    rows = [
        f"| `{key}` | {setting.meaning} | {given(key, setting)} | {default(key, setting)} | {tighter(key, setting)} |"
        for key, setting in TABLE.items()
    ]
    return (
        "\n".join(["| setting | meaning | what it may be | default | tighter |", "|---|---|---|---|---|", *rows]) + "\n"
    )


def test_the_table_says_what_the_schema_says() -> None:
    text = PAGE.read_text()
    before, rest = text.split("<!-- begin settings -->\n")
    written, after = rest.split("<!-- end settings -->")
    if os.environ.get("KEEPFAST_DOCS") == "write":
        written = settings_table()
        PAGE.write_text(before + "<!-- begin settings -->\n" + written + "<!-- end settings -->" + after)

    assert written == settings_table()


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
