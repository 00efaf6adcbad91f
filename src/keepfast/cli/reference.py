"""The type of a checkpoint reference on the command line; completes to versions and names."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from keepfast.cli.session import Session
from keepfast.model.errors import KeepfastError
from keepfast.present.terminal import one_line
from keepfast.store.rows import Query

MAX_COMPLETIONS = 20


class Reference(click.types.StringParamType):
    name = "ref"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        session = ctx.find_object(Session)
        if session is None:
            return []
        try:
            row = session.workspace()[1]
            rows = session.repository.find(Query(workspace=row.id, limit=MAX_COMPLETIONS))
        except (KeepfastError, OSError):
            return []
        items = [CompletionItem("latest", help="the newest checkpoint")]
        items += [CompletionItem(f"v{row.version}", help=one_line(row.message or row.trigger)) for row in rows]
        items += [
            CompletionItem(row.name, help=f"v{row.version}") for row in rows if row.name.isprintable() and row.name
        ]
        return [item for item in items if item.value.startswith(incomplete)]


REFERENCE = Reference()
