"""`keepfast task new`, `start`, `fork`: a task comes into being."""

from __future__ import annotations

import os
from typing import Any

import click

from keepfast.cli.numbers import Number, Whole
from keepfast.cli.session import Session, common, write_json
from keepfast.cli.task_session import REF, remark_unsupervised, say, tasks_of
from keepfast.model.errors import Usage


@click.command("new")
@click.argument("brief", metavar="[BRIEF]", required=False)
@click.option("--file", "path", metavar="FILE", help="Take the task, or several, from a JSON or TOML file.")
@click.option("--title", metavar="TEXT", help="What it is called; the brief's first line if not given.")
@click.option(
    "--type", "kind", type=click.Choice(["create_app", "modify_app", "custom"]), help="What kind of task it is."
)
@click.option("--workspace", metavar="DIR", help="Where it works; the current folder if not given.")
@click.option("--phase", "phases", metavar="PROMPT", multiple=True, help="A phase and what is to be done in it.")
@click.option("--verify", metavar="COMMAND", help="Every phase must pass this command.")
@click.option("--no-review", is_flag=True, help="Phases that pass need nobody's approval.")
@click.option("--agent", metavar="COMMAND", help="Run this command instead of Claude Code; the prompt is its input.")
@click.option("--model", metavar="NAME", help="The model that Claude Code uses.")
@click.option("--permission-mode", metavar="MODE", help="What Claude Code may do unasked.")
@click.option("--allow", "allowed", metavar="TOOL", multiple=True, help="A tool that may be used unasked.")
@click.option("--tokens", type=Whole(0), metavar="N", help="Budget in tokens.")
@click.option("--money", type=Number(0), metavar="DOLLARS", help="Budget in dollars.")
@click.option("--minutes", type=Number(0), metavar="N", help="Budget in minutes of running.")
@click.option("--priority", type=click.Choice(["critical", "high", "normal", "low"]), help="Who comes first.")
@click.option("--after", metavar="TASK", multiple=True, help="Begin when this task is done.")
@click.option("--secret", "secrets", metavar="NAME", multiple=True, help="A variable that must be provided first.")
@click.option("--draft", is_flag=True, help="Do not start it yet.")
@common
def new(session: Session, path: str | None, draft: bool, **flags: Any) -> None:
    """Make a task of a BRIEF, or of a file, and start it."""
    from keepfast.runner.actions import taskfile

    if path is not None:
        if any(value for value in flags.values()):
            raise Usage("Give a file, or flags, not both.")
        specs = taskfile.read(path)
    else:
        specs = [taskfile.check(_described(flags), os.fsdecode(session.cwd))]
    with tasks_of(session) as tasks:
        made = tasks.new_all(specs, start=not draft)
        if session.json:
            write_json([tasks.views.describe(one) for one in made])
            return
        for one in made:
            session.say(f"{'Made' if draft else 'Queued'} {one.id}: {one.title}")
        if not draft:
            remark_unsupervised(session)


def _described(flags: dict[str, Any]) -> dict[str, Any]:
    import shlex

    brief = flags["brief"] or ""
    if not brief and not flags["phases"]:
        raise Usage("Say what is to be done.", 'For example: keepfast task new "Translate the README" --minutes 30')
    agent: dict[str, Any] = {}
    if flags["agent"]:
        agent["command"] = shlex.split(flags["agent"])
    for key, name in (("model", "model"), ("permission_mode", "permission_mode")):
        if flags[key]:
            agent[name] = flags[key]
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
        say(session, tasks, done := tasks.start(ref), f"Queued {done.id}.")
        remark_unsupervised(session)


@click.command("fork")
@REF
@click.argument("folder", metavar="DIR")
@click.option(
    "--git", is_flag=True, help="Make DIR a git repository at the checkpoint's commit, for a branch of its own."
)
@click.option("--start", "begin", is_flag=True, help="Start it at once.")
@common
def fork(session: Session, ref: str, folder: str, git: bool, begin: bool) -> None:
    """A task of its own in a fork of the workspace; `task diff` and `task apply` bring back what it does."""
    with tasks_of(session) as tasks:
        done = tasks.fork(ref, os.path.join(os.fsdecode(session.cwd), folder), git=git, start=begin)
        say(session, tasks, done, f"Made {done.id} in {done.workspace}.")
