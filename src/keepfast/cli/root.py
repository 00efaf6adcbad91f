"""The root command and the table of commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

import click

from keepfast import __version__
from keepfast.cli.exit_codes import leave
from keepfast.cli.lazy import Entry, LazyGroup
from keepfast.cli.session import Session
from keepfast.model.errors import Usage
from keepfast.present.environment import Environment

NAME = "keepfast"
COMPLETE = "_KEEPFAST_COMPLETE"
HERE = "keepfast.cli."

TABLE = {
    "init": Entry(HERE + "init", "init", "Protect a folder."),
    "save": Entry(HERE + "save", "save", "Save a checkpoint of the workspace."),
    "checkpoint": Entry(HERE + "save", "checkpoint", "Alias of `save`; `checkpoint list` is `list`."),
    "list": Entry(HERE + "list", "list_", "List checkpoints, newest first."),
    "latest": Entry(HERE + "list", "latest", "Show the newest checkpoint that matches a filter."),
    "show": Entry(HERE + "show", "show", "Show a checkpoint: trigger, changes and excluded paths."),
    "diff": Entry(HERE + "diff", "diff", "Show changes between checkpoints, or a checkpoint and the disk."),
    "cat": Entry(HERE + "cat", "cat", "Print a file from a checkpoint."),
    "search": Entry(HERE + "search", "search", "Find checkpoints by message, name, tag or path."),
    "restore": Entry(HERE + "restore", "restore", "Restore files from a checkpoint."),
    "undo": Entry(HERE + "restore", "undo", "Undo the last restore."),
    "redo": Entry(HERE + "restore", "redo", "Redo the last undone restore."),
    "fork": Entry(HERE + "fork", "fork", "Create a new folder from a checkpoint."),
    "export": Entry(HERE + "bundle", "export", "Write checkpoints to a bundle file."),
    "import": Entry(HERE + "bundle", "import_", "Import checkpoints from a bundle."),
    "mount": Entry(HERE + "mount", "mount", "Mount checkpoints as read-only folders."),
    "watch": Entry(HERE + "watch", "watch", "Save automatically when files change."),
    "serve": Entry(HERE + "serve", "serve", "Serve the web page and run tasks."),
    "hook": Entry(HERE + "hook", "hook", "Handle an event of an agent's client (run by its hooks)."),
    "brief": Entry(HERE + "brief", "brief", "Print a resume brief from a transcript."),
    "resume": Entry(HERE + "resume", "resume", "Print a resume brief from a checkpoint."),
    "keep": Entry(HERE + "resume", "keep", "Keep the checkpoint made by the last clear."),
    "drop": Entry(HERE + "resume", "drop", "Forget the checkpoint made by the last clear."),
    "status": Entry(HERE + "status", "status", "Show the last checkpoint, unsaved changes and problems."),
    "task": Entry(HERE + "task", "task", "Manage unattended tasks."),
    "run": Entry(HERE + "run", "run", "Run one command as a supervised task."),
    "report": Entry(HERE + "report", "report", "Report what tasks did since yesterday and what needs you."),
    "service": Entry(HERE + "service", "service", "Start the supervisor at login (systemd, launchd)."),
    "supervise": Entry(HERE + "supervise", "supervise", "Run the supervisor of unattended tasks."),
    "pin": Entry(HERE + "label", "pin", "Protect a checkpoint from retention."),
    "unpin": Entry(HERE + "label", "unpin", "Remove the pin of a checkpoint."),
    "name": Entry(HERE + "label", "name", "Name a checkpoint."),
    "forget": Entry(HERE + "forget", "forget", "Forget checkpoints, by reference or by retention policy."),
    "unprotect": Entry(HERE + "unprotect", "unprotect", "Stop protecting a folder; keep its checkpoints."),
    "purge": Entry(HERE + "unprotect", "purge", "Delete all checkpoints of a workspace, or the whole store."),
    "compact": Entry(HERE + "forget", "compact", "Free the space of data that no checkpoint needs."),
    "verify": Entry(HERE + "verify", "verify", "Check the store for damage; with --repair, repair it."),
    "rebuild": Entry(HERE + "verify", "rebuild", "Rebuild the ledger from packs and logs."),
    "key": Entry(HERE + "key", "key", "Show, back up or rotate the encryption key."),
    "install": Entry(HERE + "install", "install", "Install hooks into an agent's client."),
    "uninstall": Entry(HERE + "install", "uninstall", "Remove the hooks from an agent's client."),
    "statusline": Entry(HERE + "statusline", "statusline", "Print a line for the client's status line."),
    "doctor": Entry(HERE + "doctor", "doctor", "Check the installation, the store and this workspace."),
    "clear-check": Entry(
        HERE + "clear_check", "clear_check", "Show unsaved changes before you clear the conversation."
    ),
    "mcp": Entry(HERE + "mcp", "mcp", "Serve checkpoints and recall to an agent (MCP)."),
    "config": Entry(HERE + "config", "config", "Show and change settings."),
    "completion": Entry(HERE + "completion", "completion", "Print the completion script for bash, zsh or fish."),
}


SECTIONS = {
    "Save": "init save checkpoint watch pin unpin name",
    "Inspect": "status list latest show diff cat search mount serve",
    "Restore and copy": "restore undo redo fork export import",
    "Agents": "install uninstall resume clear-check keep drop brief mcp statusline hook",
    "Unattended tasks": "task run report supervise service",
    "Maintenance": "forget unprotect purge compact verify rebuild key doctor config completion",
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
        session, arguments, lambda: _complete(session) if environment.text(COMPLETE) else _run(arguments, session)
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
    from click.shell_completion import shell_complete

    return shell_complete(root, {"obj": session}, NAME, COMPLETE, session.environment.text(COMPLETE))
