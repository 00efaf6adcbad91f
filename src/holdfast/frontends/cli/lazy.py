"""A group whose commands are imported when they run, not when the group is asked for help."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

import click


class Entry(NamedTuple):
    """Where a command lives, and what the list of commands says about it."""

    module: str
    attribute: str
    help: str


class LazyGroup(click.Group):
    """`table` has a line per command, in the order in which help shows them."""

    table: dict[str, Entry]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        entry = self.table.get(name)
        if entry is None:
            return None
        command: click.Command = getattr(import_module(entry.module), entry.attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.table and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], self.table, 1)
            hint = f" Did you mean `{near[0]}`?" if near else ""
            raise click.UsageError(f"There is no command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.table.items()])
