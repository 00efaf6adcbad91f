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
from keepfast.present.environment import Surroundings

NAME = "keepfast"
COMPLETE = "_KEEPFAST_COMPLETE"
HERE = "keepfast.cli."

TABLE = {
    "init": Entry(HERE + "init", "init", "Protect a folder."),
    "save": Entry(HERE + "save", "save", "Make a checkpoint of the workspace."),
    "checkpoint": Entry(HERE + "save", "checkpoint", "The same as `save`; `checkpoint list` is `list`."),
    "list": Entry(HERE + "list", "list_", "List checkpoints, newest first."),
    "latest": Entry(HERE + "list", "latest", "Show the newest checkpoint that fits."),
    "show": Entry(HERE + "show", "show", "Show one checkpoint: why, what changed, what was left out."),
    "diff": Entry(HERE + "diff", "diff", "Show what differs between two checkpoints, or one and the disk now."),
    "cat": Entry(HERE + "cat", "cat", "Write a file as it was to standard output."),
    "search": Entry(HERE + "search", "search", "Find checkpoints by message, name, tag or path."),
    "restore": Entry(HERE + "restore", "restore", "Bring files back to how they were."),
    "undo": Entry(HERE + "restore", "undo", "Take back the last restore."),
    "redo": Entry(HERE + "restore", "redo", "Take back the last undo."),
    "fork": Entry(HERE + "fork", "fork", "Make a new folder with the state of a checkpoint."),
    "export": Entry(HERE + "bundle", "export", "Write checkpoints into one file, to take them along."),
    "import": Entry(HERE + "bundle", "import_", "Take over checkpoints from such a file."),
    "mount": Entry(HERE + "mount", "mount", "Browse checkpoints as folders, read-only."),
    "watch": Entry(HERE + "watch", "watch", "Save whenever the tree settles after changes."),
    "serve": Entry(HERE + "serve", "serve", "Show every checkpoint in a browser, and steer from there."),
    "hook": Entry(HERE + "hook", "hook", "What an agent's client runs at its events."),
    "brief": Entry(HERE + "brief", "brief", "What an agent must know to go on, from a transcript."),
    "resume": Entry(HERE + "resume", "resume", "Tell what an agent must know to go on from a checkpoint."),
    "keep": Entry(HERE + "resume", "keep", "Keep the checkpoint that the last clear left."),
    "drop": Entry(HERE + "resume", "drop", "Forget the checkpoint that a clear has just asked about."),
    "status": Entry(HERE + "status", "status", "Say how this workspace is protected right now."),
    "task": Entry(HERE + "task", "task", "Agents that work while nobody watches."),
    "run": Entry(HERE + "run", "run", "Run one command under supervision."),
    "report": Entry(HERE + "report", "report", "What tasks did since yesterday, and what needs you."),
    "service": Entry(HERE + "service", "service", "Let the supervisor start with the machine."),
    "supervise": Entry(HERE + "supervise", "supervise", "Run tasks until told to stop."),
    "pin": Entry(HERE + "label", "pin", "Keep a checkpoint for good."),
    "unpin": Entry(HERE + "label", "unpin", "Let a checkpoint go with the others again."),
    "name": Entry(HERE + "label", "name", "Give a checkpoint a name."),
    "forget": Entry(HERE + "forget", "forget", "Forget checkpoints, by reference or by the policy."),
    "unprotect": Entry(HERE + "unprotect", "unprotect", "Stop protecting a folder; its history stays."),
    "purge": Entry(HERE + "unprotect", "purge", "Remove the history of a workspace, or of all, for good."),
    "compact": Entry(HERE + "forget", "compact", "Give back the space of what no checkpoint needs."),
    "verify": Entry(HERE + "verify", "verify", "Check everything that is stored; heal what can be healed."),
    "rebuild": Entry(HERE + "verify", "rebuild", "Make the ledger again from packs and logs."),
    "key": Entry(HERE + "key", "key", "Show, back up or rotate the key of what is sealed."),
    "install": Entry(HERE + "install", "install", "Let an agent's client call keepfast by itself."),
    "uninstall": Entry(HERE + "install", "uninstall", "Take keepfast out of an agent's client again."),
    "statusline": Entry(HERE + "statusline", "statusline", "One line for the client's status line."),
    "doctor": Entry(HERE + "doctor", "doctor", "Check the installation, the store and this workspace."),
    "clear-check": Entry(
        HERE + "clear_check", "clear_check", "Say what is unsaved, before you clear the conversation."
    ),
    "mcp": Entry(HERE + "mcp", "mcp", "Serve checkpoints and recall to an agent (MCP)."),
    "config": Entry(HERE + "config", "config", "Show and change settings."),
    "completion": Entry(HERE + "completion", "completion", "Print the completion script for a shell."),
}


SECTIONS = {
    "Keep": "init save checkpoint watch pin unpin name",
    "Look": "status list show diff cat search mount serve",
    "Bring back": "restore undo redo fork export import",
    "Agents": "install uninstall resume clear-check keep drop brief mcp statusline hook",
    "While nobody watches": "task run report supervise service",
    "Upkeep": "forget unprotect purge compact verify rebuild key doctor config completion",
}


class Root(LazyGroup):
    table = TABLE
    sections = SECTIONS


@click.command(NAME, cls=Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--config", metavar="FILE", help="Use this settings file.")
@click.option("-C", "folder", metavar="DIR", help="Run as if started in this folder.")
@click.option("--store", metavar="DIR", help="Use the store in this folder.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing on success.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", help="When to use colour.")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
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
    """Every state of your workspace can come back."""
    session: Session = ctx.obj
    session.use(config=config, folder=folder, store=store, quiet=quiet, color=color, as_json=as_json)


def run(
    arguments: Sequence[str],
    around: Surroundings,
    clock: Callable[[], int],
    start: Callable[..., int] | None = None,
) -> int:
    """Run one command line; return its exit code. No traceback ever reaches a person.

    `start` runs a server by its name: front ends do not import one another.
    """
    session = Session(around, clock, monotonic())
    session.start = start
    return leave(session, arguments, lambda: _complete(session) if around.text(COMPLETE) else _run(arguments, session))


def _run(arguments: Sequence[str], session: Session) -> int:
    """Let click read the words; what it has to say about them goes the way of all errors."""
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

    return shell_complete(root, {"obj": session}, NAME, COMPLETE, session.around.text(COMPLETE))
