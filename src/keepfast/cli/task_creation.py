"""`keepfast task new`, `start`, `fork`: create and start tasks."""

from __future__ import annotations

import os
import shlex
from typing import Any

import click

from keepfast.cli.numbers import Number, Whole
from keepfast.cli.session import Session, common, write_json
from keepfast.cli.task_session import REF, remark_unsupervised, say, tasks_of
from keepfast.model.errors import Usage
from keepfast.runner.actions import taskfile


@click.command("new")
@click.argument("brief", metavar="[BRIEF]", required=False)
@click.option("--file", "path", metavar="FILE", help="Read one or more tasks from a JSON or TOML file.")
@click.option("--title", metavar="TEXT", help="Title (default: the first line of the brief).")
@click.option(
    "--type", "kind", type=click.Choice(["create_app", "modify_app", "custom"]), help="Kind of task (default custom)."
)
@click.option("--workspace", metavar="DIR", help="Folder to work in (default: the current folder).")
@click.option("--phase", "phases", metavar="PROMPT", multiple=True, help="Prompt of a phase; can be repeated.")
@click.option("--verify", metavar="COMMAND", help="Command that every phase must pass.")
@click.option("--no-review", is_flag=True, help="Do not require approval of phases that pass.")
@click.option("--agent", metavar="COMMAND", help="Run this command instead of Claude Code; the prompt is its input.")
@click.option("--model", metavar="NAME", help="Model for Claude Code.")
@click.option("--permission-mode", metavar="MODE", help="Permission mode of Claude Code.")
@click.option(
    "--allow",
    "allowed",
    metavar="TOOL",
    multiple=True,
    help="Tool that the agent may use without asking; can be repeated.",
)
@click.option("--tokens", type=Whole(0), metavar="N", help="Budget in tokens.")
@click.option("--money", type=Number(0), metavar="DOLLARS", help="Budget in dollars.")
@click.option("--minutes", type=Number(0), metavar="N", help="Budget in minutes of running.")
@click.option("--priority", type=click.Choice(["critical", "high", "normal", "low"]), help="Priority (default normal).")
@click.option("--after", metavar="TASK", multiple=True, help="Start after this task is done; can be repeated.")
@click.option(
    "--secret",
    "secrets",
    metavar="NAME",
    multiple=True,
    help="Environment variable whose value must be provided before the start; can be repeated.",
)
@click.option("--draft", is_flag=True, help="Create the task without starting it.")
@common
def new(session: Session, path: str | None, draft: bool, **flags: Any) -> None:
    """Create a task from BRIEF or a file, and start it."""
    if path is not None:
        if any(value for value in flags.values()):
            raise Usage("--file cannot be combined with other options.")
        specs = taskfile.read(path)
    else:
        specs = [taskfile.check(_task_spec(flags), os.fsdecode(session.cwd))]
    with tasks_of(session) as tasks:
        created = tasks.new_all(specs, start=not draft)
        if session.json:
            write_json([tasks.views.describe(task) for task in created])
            return
        for task in created:
            session.say(f"{'Created' if draft else 'Queued'} {task.id}: {task.title}")
        if not draft:
            remark_unsupervised(session)


def _task_spec(flags: dict[str, Any]) -> dict[str, Any]:
    brief = flags["brief"] or ""
    if not brief and not flags["phases"]:
        raise Usage("The brief is missing.", 'For example: keepfast task new "Translate the README" --minutes 30')
    agent: dict[str, Any] = {}
    if flags["agent"]:
        agent["command"] = shlex.split(flags["agent"])
    for key in ("model", "permission_mode"):
        if flags[key]:
            agent[key] = flags[key]
    if flags["allowed"]:
        agent["allowed_tools"] = list(flags["allowed"])
    row: dict[str, Any] = {"brief": brief, "agent": agent, "budget": {}, "workspace": flags["workspace"] or "."}
    for key in ("title", "priority"):
        if flags[key]:
            row[key] = flags[key]
    if flags["kind"]:
        row["type"] = flags["kind"]
    phases = [{"prompt": prompt} for prompt in flags["phases"]]
    if flags["verify"] and not phases:
        phases = [{"prompt": ""}]
    if phases:
        gates = {"verify": flags["verify"] or "", "review": not flags["no_review"]}
        row["phases"] = [{**phase, **gates} for phase in phases]
    for key in ("tokens", "money", "minutes"):
        if flags[key] is not None:
            row["budget"][key] = flags[key]
    return {**row, "after": list(flags["after"]), "secrets": list(flags["secrets"])}


@click.command("start")
@REF
@common
def start(session: Session, ref: str) -> None:
    """Start a draft."""
    with tasks_of(session) as tasks:
        started = tasks.start(ref)
        say(session, tasks, started, f"Queued {started.id}.")
        remark_unsupervised(session)


@click.command("fork")
@REF
@click.argument("folder", metavar="DIR")
@click.option(
    "--git", is_flag=True, help="Make DIR a git repository at the commit of the checkpoint, with its own branch."
)
@click.option("--start", "begin", is_flag=True, help="Start the new task immediately.")
@common
def fork(session: Session, ref: str, folder: str, git: bool, begin: bool) -> None:
    """Create a task in a fork of the workspace. Use `task diff` and `task apply` to get its changes back."""
    with tasks_of(session) as tasks:
        done = tasks.fork(ref, os.path.join(os.fsdecode(session.cwd), folder), git=git, start=begin)
        say(session, tasks, done, f"Created {done.id} in {done.workspace}.")
