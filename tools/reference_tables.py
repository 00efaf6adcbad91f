"""Writes the tables of docs/commands.md and docs/settings.md from the code.

`python tools/reference_tables.py` writes them; tests/cli/test_docs.py and tests/settings/test_docs.py compare them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from keepfast.cli.root import TABLE as COMMANDS
from keepfast.cli.root import root
from keepfast.model import errors
from keepfast.model.schema import (
    CHOICE,
    COMMAND,
    FLAG,
    LIST,
    NUMBER,
    NUMBERS,
    PATH,
    PATHS,
    TABLE,
    TRISTATE,
    URL,
    Setting,
)
from keepfast.model.setting_values import shown
from keepfast.runner.domain.task import NotAllowed

DOCS = Path(__file__).parents[1] / "docs"
KINDS = {
    FLAG: "boolean",
    TRISTATE: "boolean, `prompt`",
    NUMBER: "number",
    LIST: "list",
    NUMBERS: "object of numbers",
    COMMAND: "command",
    PATH: "path",
    PATHS: "paths",
    URL: "URL",
}


def every_command() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(root, info_name="keepfast")
    for name in COMMANDS:
        command = root.get_command(context, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            for subname, subcommand in command.commands.items():
                yield f"{name} {subname}", subcommand


def visible_options(command: click.Command) -> list[click.Option]:
    return [option for option in command.params if isinstance(option, click.Option) and not option.hidden]


def options_table() -> str:
    rows = [f"| {_spelling(option)} | {option.help} |" for option in visible_options(root) if option.help]
    return _table("| option | meaning |", rows)


def commands_table() -> str:
    """Every command once; of a group that only prints its own list, the subcommands alone."""
    rows = []
    for name, command in every_command():
        if (isinstance(command, click.Group) and name == "config") or command.hidden:
            continue
        arguments = [
            argument.make_metavar(click.Context(command))
            for argument in command.params
            if isinstance(argument, click.Argument)
        ]
        words = " ".join([name, *arguments]).replace("|", "\\|")
        text = COMMANDS[name].help if name in COMMANDS else command.get_short_help_str(200)
        rows.append(f"| `{words}` | {text} |")
    return _table("| `keepfast …` | what it does |", rows)


def exit_codes_table() -> str:
    meanings = {0: [("", "done, or nothing to do")], 130: [("", "interrupted by Ctrl-C")]}
    for value in [*vars(errors).values(), NotAllowed]:
        if isinstance(value, type) and issubclass(value, errors.KeepfastError) and value is not errors.KeepfastError:
            meaning = (value.__doc__ or "").split("\n")[0].rstrip(".")
            meanings.setdefault(value.exit_code, []).append((value.kind, meaning))
    rows = []
    for code in sorted(meanings):
        kinds = ", ".join([f"`{kind}`" for kind, _ in meanings[code] if kind])
        rows.append(f"| {code} | {kinds} | {'; '.join([meaning for _, meaning in meanings[code]])} |")
    return _table("| code | `kind` in JSON | meaning |", rows)


def settings_table() -> str:
    rows = [
        f"| `{key}` | {setting.meaning} | {_values_and_tighter(key, setting)} | {_default(key, setting)} |"
        for key, setting in TABLE.items()
        if not _is_own(setting)
    ]
    return _table("| setting | meaning | values | default |", rows)


def own_settings_table() -> str:
    """Settings that neither a project nor the environment can set."""
    rows = [
        f"| `{key}` | {setting.meaning} | {_values(key, setting)} | {_default(key, setting)} |"
        for key, setting in TABLE.items()
        if _is_own(setting)
    ]
    return _table("| setting | meaning | values | default |", rows)


TABLES: dict[str, list[tuple[str, Callable[[], str]]]] = {
    "commands.md": [("options", options_table), ("commands", commands_table), ("exit codes", exit_codes_table)],
    "settings.md": [("settings", settings_table), ("own settings", own_settings_table)],
}
"""By page: the name of each table between `<!-- begin NAME -->` and `<!-- end NAME -->`, and what writes it."""


def with_tables(page: str, text: str) -> str:
    """Return the page's text with its tables as the code has them."""
    for name, table in TABLES[page]:
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        before, rest = text.split(begin)
        text = before + begin + table() + end + rest.split(end)[1]
    return text


def _table(head: str, rows: list[str]) -> str:
    return "\n".join([head, re.sub(r"[^|]+", "---", head), *rows]) + "\n"


def _spelling(option: click.Option) -> str:
    value = "" if option.is_flag else f" {option.make_metavar(click.Context(root))}".replace("|", "\\|")
    return f"`{', '.join(option.opts)}{value}`"


def _values(key: str, setting: Setting) -> str:
    if setting.kind == CHOICE:
        return ", ".join([f"`{choice}`" for choice in setting.allowed or ()])
    kind = KINDS.get(setting.kind) or re.sub(r"^an? | such as .*", "", setting.kind)
    low, high = setting.allowed or (None, None)
    if low is None and high is None:
        return kind
    if high is None:
        return f"{kind} ≥ {shown(key, low)}"
    return f"{kind} {shown(key, low)}–{shown(key, high)}"


def _default(key: str, setting: Setting) -> str:
    text = shown(key, setting.default)
    if isinstance(setting.default, list) and len(setting.default) > 3:
        text = ", ".join(setting.default[:3]) + f", … ({len(setting.default)} in all)"
    return f"`{text}`" if text else "empty"


def _is_own(setting: Setting) -> bool:
    return not setting.from_environment and not setting.tighter


def _values_and_tighter(key: str, setting: Setting) -> str:
    rule = setting.tighter
    if isinstance(rule, tuple):
        return " → ".join([f"`{shown(key, choice)}`" for choice in rule])
    return _values(key, setting) + (f"; tighter: {rule}" if rule else "")


if __name__ == "__main__":
    for page in TABLES:
        path = DOCS / page
        path.write_text(with_tables(page, path.read_text()))
