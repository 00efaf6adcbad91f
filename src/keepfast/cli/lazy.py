"""Click groups: one that lists its commands in order, and one that imports a command only when it runs."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import click

from keepfast.cli.session import COLOURS, Session


class Entry(NamedTuple):
    """A command: its module and attribute, and its line in the list of commands."""

    module: str
    attribute: str
    help: str


class OrderedGroup(click.Group):
    """A group whose help lists the commands in the order of definition, each with its whole sentence."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = {name: command for name, command in self.commands.items() if not command.hidden}
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(limit=400)) for name, command in commands.items()])


class LazyGroup(click.Group):
    """A group that imports a command of `table` when it runs; help lists them by `sections`, the others at the end."""

    table: dict[str, Entry]
    sections: dict[str, str]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        entry = self.table.get(name)
        if entry is None:
            return None
        return with_globals(getattr(import_module(entry.module), entry.attribute))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.table and not args[0].startswith("-"):
            from difflib import get_close_matches

            similar = get_close_matches(args[0], self.table, 1)
            hint = f" Did you mean `{similar[0]}`?" if similar else ""
            raise click.UsageError(f"Unknown command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        column = max(len(name) for name in self.table)
        placed = [(title, names.split()) for title, names in self.sections.items()]
        rest = [name for name in self.table if all(name not in names for _, names in placed)]
        for title, names in [*placed, ("More", rest)]:
            if names:
                with formatter.section(title):
                    formatter.write_dl([(name.ljust(column), self.table[name].help) for name in names])


def with_globals(command: click.Command) -> click.Command:
    """Add the global options to a command and its subcommands, so that they may follow the name of the command."""
    own_options = {name for parameter in command.params for name in parameter.opts}
    command.params += [option for option in _global_options() if own_options.isdisjoint(option.opts)]
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            with_globals(inner)
    return command


def _global_options() -> list[click.Option]:
    return [
        _global_option(["--config"], "config"),
        _global_option(["-C"], "folder"),
        _global_option(["--store"], "store"),
        _global_option(["-q", "--quiet"], "quiet", is_flag=True),
        _global_option(["--color"], "color", type=click.Choice(COLOURS)),
        _global_option(["--json"], "as_json", is_flag=True),
    ]


def _global_option(words: list[str], name: str, **how: Any) -> click.Option:
    def use(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
        session = ctx.find_object(Session)
        if session is not None and value:
            session.use(**{name: value})

    # Hidden: the help of the root lists them.
    return click.Option([*words, f"given_{name}"], hidden=True, expose_value=False, callback=use, **how)
