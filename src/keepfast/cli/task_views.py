"""`keepfast task list`, `show`, `log`, `inbox`: show tasks and what they wait for."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from time import sleep
from typing import Any

import click

from keepfast.cli.event_lines import log_line
from keepfast.cli.session import Session, common, write_bytes, write_json
from keepfast.cli.task_session import REF, clock, problem, question_text, remark_unsupervised, tasks_of
from keepfast.model.errors import KeepfastError, NotFound
from keepfast.present.terminal import SECOND, age
from keepfast.runner.actions.recovery import workspaces
from keepfast.runner.actions.view_types import TaskDetails, TaskView

MAX_SHOWN = 10
LABEL_WIDTH = 9
"""Width of the label before a fact."""


@click.command("list")
@click.option("--state", metavar="STATE", default="", help="Show only tasks in this state.")
@click.option("--all", "archived", is_flag=True, help="Also show archived tasks.")
@common
def list_(session: Session, state: str, archived: bool) -> None:
    """List tasks and what each is waiting for."""
    with tasks_of(session) as tasks:
        listed = tasks.views.listing(state=state, archived=archived)
        if not listed and not tasks.views.is_any():
            _say_lost(session)
        if session.json:
            write_json(listed)
            return
        if not listed:
            session.remark("No tasks.")
            return
        rows = [
            [task["id"], task["status"], _phase(task), f"{task['progress']}%", _waits_for(task), task["title"]]
            for task in listed
        ]
        for line in session.paint.table(["TASK", "STATUS", "PHASE", "DONE", "WAITS FOR", "TITLE"], rows, give=5):
            session.print(line)
        if any(_can_continue(task) for task in listed):
            remark_unsupervised(session)
        why = problem(session)
        if why:
            session.warn(f"The supervisor cannot work: {why}")


def _can_continue(task: TaskView) -> bool:
    """Return whether a supervisor can continue this task without a person."""
    return task["state"] in ("queued", "active") and not (task["hold"] and task["hold"]["needs_you"])


def _say_lost(session: Session) -> None:
    """Warn about folders with task documents if the database has no tasks, as after it was lost."""
    with suppress(KeepfastError):  # without a store, no folder is known
        protected = [os.fsdecode(row.path) for row in session.repository.workspaces() if row.path]
        folders = dict.fromkeys([*protected, *workspaces(session.settings["supervisor.roots"])])
        task_folders = [folder for folder in folders if os.path.isfile(folder + "/.metadata/task.json")]
        if task_folders:
            more = f" and {len(task_folders) - MAX_SHOWN} more" if len(task_folders) > MAX_SHOWN else ""
            session.warn(
                f"The task database has no tasks, but task documents were found in {', '.join(task_folders[:MAX_SHOWN])}{more}."
                " Run `keepfast rebuild` to restore them."
            )


def _phase(task: TaskView) -> str:
    return f"{task['phase']}/{len(task['phases'])}" if task["phase"] else ""


def _waits_for(task: TaskView) -> str:
    hold = task["hold"]
    if task["frozen"]:
        return "frozen (you)"
    if hold is None:
        return f"{task['waits_for'][0]}" if task["waits_for"] else ""
    left = f", {clock(hold['seconds_left'])}" if hold["seconds_left"] is not None else ""
    return f"{hold['kind']}{left}{' (you)' if hold['needs_you'] else ''}"


@click.command("show")
@REF
@common
def show(session: Session, ref: str) -> None:
    """Show a task: why it waits, its runs, questions and checkpoints."""
    with tasks_of(session) as tasks:
        task = tasks.views.show(ref)
    if session.json:
        write_json(task)
        return
    session.print(f"{session.paint('bold', task['title'])}  {task['id']}  {task['status']}")
    waiting = [prompt for prompt in task["prompts"] if prompt["status"] in ("pending", "presented")]
    for label, text in [
        *_facts(task),
        *[(prompt["kind"], f"{_prompt_text(prompt)} ({prompt['id']})") for prompt in waiting],
    ]:
        session.print(f"{label:<{LABEL_WIDTH}} {text}")
    runs = [[run["id"].rpartition(":")[2], run["outcome"] or run["state"], run["reason"] or ""] for run in task["runs"]]
    checkpoints = [
        [checkpoint["version"], checkpoint["reason"], _age(session, checkpoint["created_at"])]
        for checkpoint in task["checkpoints"]
    ]
    for head, rows in (
        (["RUN", "OUTCOME", "WHY"], runs[-MAX_SHOWN:]),
        (["VERSION", "REASON", "WHEN"], checkpoints[:MAX_SHOWN]),
    ):
        if rows:
            session.print()
            for line in session.paint.table(head, rows, give=2):
                session.print(line)
            all_of_them = len(runs) if head[0] == "RUN" else task["checkpoints_total"]
            if all_of_them > len(rows):
                session.print(
                    f"… and {all_of_them - len(rows)} older; run `keepfast task show {task['id']} --json` to list them."
                )
    session.print()
    session.print(f"Actions: {', '.join(task['actions'])}")


def _facts(task: TaskDetails) -> list[tuple[str, str]]:
    """Return label and text of each line about a task."""
    hold, used, lines = task["hold"], task["used"], []
    if task["frozen"]:
        lines.append(("frozen", "the agent's processes are stopped until `keepfast task resume`"))
    elif hold is not None:
        left = f", {clock(hold['seconds_left'])} left" if hold["seconds_left"] is not None else ""
        lines.append(("waits", f"{hold['kind']}{left}: {hold['reason'] or ''}"))
    elif task["reason"] and task["state"] != "done":
        lines.append(("because", task["reason"]))
    if task["save_failed"] is not None:
        failed = task["save_failed"]
        lines.append(("not saved", f"{failed['reason']}: {failed['error']}"))
    if task["missing_keys"]:
        lines.append(
            (
                "no key",
                (f"contents sealed with {', '.join(task['missing_keys'])} cannot be decrypted (see `keepfast key`)"),
            )
        )
    lines += [("warning", text) for text in dict.fromkeys([warning["message"] for warning in task["warnings"]])]
    if task["phase"]:
        lines.append(("phase", f"{task['phase']} of {len(task['phases'])}, {task['phases'][task['phase'] - 1]}"))
    lines.append(("used", f"{used['tokens']:,} tokens, ${used['money']:.2f}, {clock(used['seconds'])}"))
    lines.append(("where", task["workspace"]))
    return lines


def _prompt_text(prompt: Mapping[str, Any]) -> str:
    """Return the text of a prompt, with the possible answers or actions."""
    choices = prompt["options"] or prompt.get("actions") or []
    return question_text(prompt, prompt["task"]) + (f" [{' | '.join(choices)}]" if choices else "")


def _age(session: Session, moment: str) -> str:
    """Return the age of a timestamp in a task's JSON form."""
    then = int(datetime.fromisoformat(moment).timestamp()) * SECOND
    return age(then, session.now())


@click.command("log")
@REF
@click.option("-f", "--follow", is_flag=True, help="Follow the log until the task ends.")
@click.option("--output", is_flag=True, help="Show the agent's output instead of events.")
@common
def log(session: Session, ref: str, follow: bool, output: bool) -> None:
    """Show the events of a task."""
    with tasks_of(session) as tasks:
        task = tasks.views.find(ref)
        if output:
            run = tasks.tables.last_run(task.id)
            if run is None:
                raise NotFound("The task has not run yet.")
            try:
                with open(f"{run.folder}/out.log", "rb") as file:
                    write_bytes(file.read())
            except FileNotFoundError:
                pass
            return
        since = 0
        while True:
            for event in tasks.views.log(task.id, since):
                since = event["sequence"]
                if session.json:
                    write_bytes(json.dumps(event, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
                else:
                    session.print(log_line(event))
            sys.stdout.flush()
            if not follow or tasks.views.find(task.id).state in ("done", "failed", "cancelled"):
                return
            sleep(0.5)


@click.command("inbox")
@common
def inbox(session: Session) -> None:
    """List everything that needs you, most urgent first."""
    with tasks_of(session) as tasks:
        entries = tasks.views.inbox()
    if session.json:
        write_json(entries)
        return
    for entry in entries:
        session.print(
            f"{entry['id'] or entry['task']}  {entry['hold'] or entry['kind']}  {entry['title']}: {_prompt_text(entry)}"
        )
    if not entries:
        session.remark("Nothing needs you.")
