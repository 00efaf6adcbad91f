"""The root command and the table of commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

import click
from click.shell_completion import shell_complete

from keepfast import __version__
from keepfast.cli.exit_codes import leave
from keepfast.cli.lazy import Entry, LazyGroup
from keepfast.cli.session import Session
from keepfast.model.errors import Usage
from keepfast.present.environment import Environment

NAME = "keepfast"
COMPLETION_VARIABLE = "_KEEPFAST_COMPLETE"
PACKAGE = "keepfast.cli."

TABLE = {
    "init": Entry(PACKAGE + "init", "init", "Protect a folder."),
    "save": Entry(PACKAGE + "save", "save", "Save a checkpoint of the workspace."),
    "checkpoint": Entry(PACKAGE + "save", "checkpoint", "Alias of `save`; `checkpoint list` is `list`."),
    "list": Entry(PACKAGE + "list", "list_", "List checkpoints, newest first."),
    "latest": Entry(PACKAGE + "list", "latest", "Show the newest checkpoint that matches a filter."),
    "show": Entry(PACKAGE + "show", "show", "Show a checkpoint: trigger, changes and excluded paths."),
    "diff": Entry(PACKAGE + "diff", "diff", "Show changes between checkpoints, or a checkpoint and the disk."),
    "cat": Entry(PACKAGE + "cat", "cat", "Print a file from a checkpoint."),
    "search": Entry(PACKAGE + "search", "search", "Find checkpoints by message, name, tag or path."),
    "restore": Entry(PACKAGE + "restore", "restore", "Restore files from a checkpoint."),
    "undo": Entry(PACKAGE + "restore", "undo", "Undo the last restore."),
    "redo": Entry(PACKAGE + "restore", "redo", "Redo the last undone restore."),
    "fork": Entry(PACKAGE + "fork", "fork", "Create a new folder from a checkpoint."),
    "export": Entry(PACKAGE + "bundle", "export", "Write checkpoints to a bundle file."),
    "import": Entry(PACKAGE + "bundle", "import_", "Import checkpoints from a bundle."),
    "mount": Entry(PACKAGE + "mount", "mount", "Mount checkpoints as read-only folders."),
    "watch": Entry(PACKAGE + "watch", "watch", "Save automatically when files change."),
    "serve": Entry(PACKAGE + "serve", "serve", "Serve the web page and run tasks."),
    "hook": Entry(PACKAGE + "hook", "hook", "Handle an event of an agent's client (run by its hooks)."),
    "brief": Entry(PACKAGE + "brief", "brief", "Print a resume brief from a transcript."),
    "resume": Entry(PACKAGE + "resume", "resume", "Print a resume brief from a checkpoint."),
    "keep": Entry(PACKAGE + "resume", "keep", "Keep the checkpoint made by the last clear."),
    "drop": Entry(PACKAGE + "resume", "drop", "Forget the checkpoint made by the last clear."),
    "status": Entry(PACKAGE + "status", "status", "Show the last checkpoint, unsaved changes and problems."),
    "task": Entry(PACKAGE + "task", "task", "Manage unattended tasks."),
    "run": Entry(PACKAGE + "run", "run", "Run one command as a supervised task."),
    "report": Entry(PACKAGE + "report", "report", "Report what tasks did since yesterday and what needs you."),
    "service": Entry(PACKAGE + "service", "service", "Start the supervisor at login (systemd, launchd)."),
    "supervise": Entry(PACKAGE + "supervise", "supervise", "Run the supervisor of unattended tasks."),
    "pin": Entry(PACKAGE + "label", "pin", "Protect a checkpoint from retention."),
    "unpin": Entry(PACKAGE + "label", "unpin", "Remove the pin of a checkpoint."),
    "name": Entry(PACKAGE + "label", "name", "Name a checkpoint."),
    "forget": Entry(PACKAGE + "forget", "forget", "Forget checkpoints, by reference or by retention policy."),
    "unprotect": Entry(PACKAGE + "unprotect", "unprotect", "Stop protecting a folder; keep its checkpoints."),
    "purge": Entry(PACKAGE + "unprotect", "purge", "Delete all checkpoints of a workspace, or the whole store."),
    "compact": Entry(PACKAGE + "forget", "compact", "Free the space of data that no checkpoint needs."),
    "verify": Entry(PACKAGE + "verify", "verify", "Check the store for damage; with --repair, repair it."),
    "rebuild": Entry(PACKAGE + "verify", "rebuild", "Rebuild the ledger from packs and logs."),
    "key": Entry(PACKAGE + "key", "key", "Show, back up or rotate the encryption key."),
    "install": Entry(PACKAGE + "install", "install", "Install hooks into an agent's client."),
    "uninstall": Entry(PACKAGE + "install", "uninstall", "Remove the hooks from an agent's client."),
    "statusline": Entry(PACKAGE + "statusline", "statusline", "Print a line for the client's status line."),
    "doctor": Entry(PACKAGE + "doctor", "doctor", "Check the installation, the store and this workspace."),
    "daemon": Entry(PACKAGE + "daemon", "daemon", "Show, start or stop the process that answers hooks."),
    "clear-check": Entry(
        PACKAGE + "clear_check", "clear_check", "Show unsaved changes before you clear the conversation."
    ),
    "mcp": Entry(PACKAGE + "mcp", "mcp", "Serve checkpoints and recall to an agent (MCP)."),
    "config": Entry(PACKAGE + "config", "config", "Show and change settings."),
    "completion": Entry(PACKAGE + "completion", "completion", "Print the completion script for bash, zsh or fish."),
}


SECTIONS = {
    "Save": "init save checkpoint watch pin unpin name",
    "Inspect": "status list latest show diff cat search mount serve",
    "Restore and copy": "restore undo redo fork export import",
    "Agents": "install uninstall resume clear-check keep drop brief mcp statusline hook",
    "Unattended tasks": "task run report supervise service",
    "Maintenance": "forget unprotect purge compact verify rebuild key doctor daemon config completion",
}


class Root(LazyGroup):
    table = TABLE
    sections = SECTIONS


@click.command(NAME, cls=Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--config", metavar="FILE", help="Read settings from FILE instead of the default file.")
@click.option("-C", "folder", metavar="DIR", help="Run as if started in DIR.")
@click.option("--store", metavar="DIR", help="Use the store in DIR.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing on success.")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    help="When to use colour (default auto: on a terminal).",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.version_option(__version__, "--version", prog_name=NAME, message="%(prog)s %(version)s")
@click.pass_context
def root(
    ctx: click.Context,
    config: str | None,
    folder: str | None,
    store: str | None,
    quiet: bool,
    color: str,
    as_json: bool,
) -> None:
    """Save checkpoints of a workspace, and restore any of them."""
    session: Session = ctx.obj
    session.use(config=config, folder=folder, store=store, quiet=quiet, color=color, as_json=as_json)


def run(
    arguments: Sequence[str],
    environment: Environment,
    clock: Callable[[], int],
    start: Callable[..., int] | None = None,
) -> int:
    """Run one command line; return its exit code.

    `start` runs a server by its name: front ends do not import one another.
    """
    session = Session(environment, clock, monotonic())
    session.start = start
    return leave(
        session,
        arguments,
        lambda: _complete(session) if environment.text(COMPLETION_VARIABLE) else _run(arguments, session),
    )


def _run(arguments: Sequence[str], session: Session) -> int:
    """Let click parse and run the command; turn its errors into ours."""
    try:
        with root.make_context(NAME, list(arguments), obj=session) as ctx:
            result = root.invoke(ctx)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        session.print(error.format_message())
        return 0
    except click.ClickException as error:
        hint = "See `keepfast --help`."
        if isinstance(error, click.UsageError) and error.ctx is not None:
            hint = f"See `{error.ctx.command_path} --help`."
        raise Usage(error.format_message(), hint) from None
    except click.Abort:
        raise KeyboardInterrupt from None


def _complete(session: Session) -> int:
    return shell_complete(
        root, {"obj": session}, NAME, COMPLETION_VARIABLE, session.environment.text(COMPLETION_VARIABLE)
    )
