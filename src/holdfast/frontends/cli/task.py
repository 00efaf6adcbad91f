"""`holdfast task`: unattended tasks, from a new one to what came of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep
from typing import TYPE_CHECKING, Any

import click

from holdfast.core.errors import NotFound, Usage
from holdfast.frontends.cli.session import Session, common, write_bytes, write_json

if TYPE_CHECKING:
    from holdfast.store.rows import CheckpointRow
    from holdfast.supervisor.ground import Ground
    from holdfast.supervisor.tables import Task
    from holdfast.supervisor.tasks import Tasks

REF = click.argument("ref", metavar="TASK")


@click.group()
def task() -> None:
    """Agents that work while nobody watches; `holdfast supervise` runs them."""


@contextmanager
def ground_of(session: Session) -> Iterator[Ground]:
    """What commands about tasks stand on, for as long as they need it."""
    from holdfast.supervisor.serving import make_ground

    variables = {os.fsdecode(name): os.fsdecode(value) for name, value in session.around.variables.items()}
    ground = make_ground(session.settings, session.around.data, session.around.home, session.now, variables)
    try:
        yield ground
    finally:
        ground.close()


@contextmanager
def tasks_of(session: Session, verb: str = "") -> Iterator[Tasks]:
    """The function layer; human-only verbs refuse processes that belong to a run."""
    from holdfast.supervisor.tasks import Tasks, only_people

    only_people(os.getpid(), verb)
    with ground_of(session) as ground:
        yield Tasks(ground)


def _say(session: Session, tasks: Tasks, done: Task, text: str) -> None:
    if session.json:
        write_json(tasks.describe(done))
    else:
        session.say(text)


@task.command("new")
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
@click.option("--tokens", type=click.IntRange(0), help="Budget in tokens.")
@click.option("--money", type=click.FloatRange(0), help="Budget in dollars.")
@click.option("--minutes", type=click.FloatRange(0), help="Budget in minutes of running.")
@click.option("--priority", type=click.Choice(["critical", "high", "normal", "low"]), help="Who comes first.")
@click.option("--after", metavar="TASK", multiple=True, help="Begin when this task is done.")
@click.option("--secret", "secrets", metavar="NAME", multiple=True, help="A variable that must be provided first.")
@click.option("--draft", is_flag=True, help="Do not start it yet.")
@common
def new(session: Session, path: str | None, draft: bool, **flags: Any) -> None:
    """Make a task of a BRIEF, or of a file, and start it."""
    from holdfast.supervisor import taskfile

    if path is not None:
        if any(value for value in flags.values()):
            raise Usage("Give a file, or flags, not both.")
        specs = taskfile.read(path)
    else:
        specs = [taskfile.check(_described(flags), os.fsdecode(session.cwd))]
    with tasks_of(session) as tasks:
        made = tasks.new_all(specs, start=not draft)
        if session.json:
            write_json([tasks.describe(one) for one in made])
            return
        for one in made:
            session.say(f"{'Made' if draft else 'Queued'} {one.id}: {one.title}")
        if not draft and not _is_supervised(session):
            session.remark("No supervisor is running; `holdfast supervise` starts one.")


def _described(flags: dict[str, Any]) -> dict[str, Any]:
    import shlex

    brief = flags["brief"] or ""
    if not brief and not flags["phases"]:
        raise Usage("Say what is to be done.", 'For example: holdfast task new "Translate the README" --minutes 30')
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


@task.command("start")
@REF
@common
def start(session: Session, ref: str) -> None:
    """Start a draft."""
    with tasks_of(session) as tasks:
        _say(session, tasks, done := tasks.start(ref), f"Queued {done.id}.")


@task.command("list")
@click.option("--state", metavar="STATE", default="", help="Only tasks in this state.")
@click.option("--all", "archived", is_flag=True, help="Archived ones too.")
@common
def list_(session: Session, state: str, archived: bool) -> None:
    """List tasks, and what each waits for."""
    with tasks_of(session) as tasks:
        found = tasks.listing(state=state, archived=archived)
        if session.json:
            write_json(found)
            return
        if not found:
            session.remark("There are no tasks.")
            return
        rows = [
            [one["id"], one["status"], _phase(one), f"{one['progress']}%", _why(one), one["title"]] for one in found
        ]
        for line in session.paint.table(["TASK", "STATUS", "PHASE", "DONE", "WAITS FOR", "TITLE"], rows, give=5):
            session.print(line)
        trouble = _trouble(session)
        if trouble:
            session.warn(f"The supervisor cannot do its work now: {trouble}")


def _phase(one: dict[str, Any]) -> str:
    return f"{one['phase']}/{len(one['phases'])}" if one["phase"] else ""


def _why(one: dict[str, Any]) -> str:
    hold = one["hold"]
    if one["frozen"]:
        return "frozen"
    if hold is None:
        return f"{one['waits_for'][0]}" if one["waits_for"] else ""
    if hold["seconds_left"] is not None:
        return f"{hold['kind']}, {clock(hold['seconds_left'])}"
    return str(hold["kind"]) + (" (you)" if hold["needs_you"] else "")


def clock(seconds: int) -> str:
    """A countdown: `1:02:03`, `4:05`."""
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"


@task.command("show")
@REF
@common
def show(session: Session, ref: str) -> None:
    """Show a task: why it waits, its runs, questions and checkpoints."""
    with tasks_of(session) as tasks:
        one = tasks.show(ref)
    if session.json:
        write_json(one)
        return
    session.print(f"{one['id']}  {one['status']}  {one['title']}")
    hold = one["hold"]
    if hold is not None:
        left = f", {clock(hold['seconds_left'])} left" if hold["seconds_left"] is not None else ""
        session.print(f"  waits: {hold['kind']}{left}: {hold['reason'] or ''}")
    elif one["reason"]:
        session.print(f"  {one['reason']}")
    if one["phase"]:
        session.print(f"  phase: {one['phase']} of {len(one['phases'])} ({one['phases'][one['phase'] - 1]})")
    used = one["used"]
    session.print(f"  used:  {used['tokens']:,} tokens, ${used['money']:.2f}, {clock(used['seconds'])}")
    session.print(f"  where: {one['workspace']}")
    for prompt in one["prompts"]:
        if prompt["status"] in ("pending", "presented"):
            choices = f" [{' | '.join(prompt['options'])}]" if prompt["options"] else ""
            session.print(f"  {prompt['kind']} {prompt['id']}: {prompt['text']}{choices}")
    for run in one["runs"][-10:]:
        session.print(
            f"  run {run['id']}: {run['outcome'] or run['state']}" + (f", {run['reason']}" if run["reason"] else "")
        )
    for checkpoint in one["checkpoints"][:10]:
        session.print(f"  {checkpoint['version']} {checkpoint['reason']} {checkpoint['created_at']}")
    session.print(f"  you can: {', '.join(one['actions'])}")


@task.command("log")
@REF
@click.option("-f", "--follow", is_flag=True, help="Go on until the task ends.")
@click.option("--output", is_flag=True, help="What the agent printed, instead of what happened.")
@common
def log(session: Session, ref: str, follow: bool, output: bool) -> None:
    """Show what happened, in order."""
    import json

    with tasks_of(session) as tasks:
        found = tasks.find(ref)
        if output:
            run = tasks.tables.last_run(found.id)
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
            for event in tasks.log(found.id, since):
                since = event["sequence"]
                if session.json:
                    write_bytes(json.dumps(event, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
                else:
                    hidden = ("sequence", "timestamp", "taskId", "type", "run")
                    facts = ", ".join([f"{key} {value}" for key, value in event.items() if key not in hidden and value])
                    session.print(f"{event['timestamp'][:19]}  {event['type']}  {facts}")
            sys.stdout.flush()
            if not follow or tasks.find(found.id).state in ("done", "failed", "cancelled"):
                return
            sleep(0.5)


@task.command("pause")
@REF
@click.option("--now", is_flag=True, help="Do not wait for the next tool boundary.")
@common
def pause(session: Session, ref: str, now: bool) -> None:
    """Stop at the next tool boundary; nothing is lost."""
    with tasks_of(session) as tasks:
        _say(
            session,
            tasks,
            done := tasks.pause(ref, now=now),
            f"{done.id} {'is being paused' if done.wanted else 'is paused'}.",
        )


@task.command("freeze")
@REF
@common
def freeze(session: Session, ref: str) -> None:
    """Stop every process of the agent where it stands, for a short look; `task resume` lets it go on."""
    with tasks_of(session) as tasks:
        _say(session, tasks, done := tasks.freeze(ref), f"{done.id} is being frozen.")


@task.command("resume")
@REF
@click.option("--allow", "allowed", metavar="TOOL", multiple=True, help="A tool that it may use from now on.")
@common
def resume(session: Session, ref: str, allowed: tuple[str, ...]) -> None:
    """Let a paused, frozen or crashed task go on."""
    with tasks_of(session, "resume") as tasks:
        _say(session, tasks, done := tasks.resume(ref, allow=allowed), f"{done.id} goes on.")


@task.command("restore")
@REF
@click.argument("checkpoint", metavar="CHECKPOINT")
@click.option("--files", "only_files", is_flag=True, help="Leave the conversation; a fresh session is told a brief.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@common
def restore(session: Session, ref: str, checkpoint: str, only_files: bool, yes: bool) -> None:
    """Bring the task's files and conversation back to a checkpoint and go on from there."""

    def ask(target: CheckpointRow) -> bool:
        return session.agreed(f"Restore the task to v{target.version}? The state now is saved first.", yes)

    with tasks_of(session, "restore") as tasks:
        done = tasks.restore(ref, checkpoint, conversation=not only_files, ask=ask)
        if done is None:
            raise click.Abort
        _say(session, tasks, done, f"{done.id} goes on from {checkpoint}.")


@task.command("cancel")
@REF
@common
def cancel(session: Session, ref: str) -> None:
    """End a task for good."""
    with tasks_of(session, "cancel") as tasks:
        _say(
            session,
            tasks,
            done := tasks.cancel(ref),
            f"{done.id} {'is being cancelled' if done.wanted else 'is cancelled'}.",
        )


@task.command("retry")
@REF
@click.option("--history", is_flag=True, help="Go on with its session instead of a fresh one that is told a brief.")
@common
def retry(session: Session, ref: str, history: bool) -> None:
    """Begin a failed or cancelled task again at its phase, with what is on disk."""
    with tasks_of(session) as tasks:
        _say(session, tasks, done := tasks.retry(ref, history=history), f"Queued {done.id} again.")


@task.command("approve")
@REF
@click.option("--anyway", is_flag=True, help="Although the workspace changed since the review began.")
@common
def approve(session: Session, ref: str, anyway: bool) -> None:
    """Let a reviewed phase pass."""
    with tasks_of(session, "approve") as tasks:
        _say(session, tasks, done := tasks.approve(ref, anyway=anyway), f"Approved; {done.id} is {done.state}.")


@task.command("reject")
@REF
@click.argument("comments", metavar="[COMMENTS]", default="")
@click.option(
    "--comment",
    "at",
    metavar="PATH[:LINE] TEXT",
    type=(str, str),
    multiple=True,
    help="A comment on a file, or a line of it.",
)
@common
def reject(session: Session, ref: str, comments: str, at: tuple[tuple[str, str], ...]) -> None:
    """Ask for changes; the comments are what the agent is told."""
    from holdfast.supervisor.reviews import remark

    remarks = [remark(where, text) for where, text in at]
    with tasks_of(session, "reject") as tasks:
        _say(session, tasks, done := tasks.reject(ref, comments, remarks), f"{done.id} is asked for changes.")


@task.command("answer")
@click.argument("question", metavar="QUESTION")
@click.argument("text", metavar="ANSWER")
@common
def answer(session: Session, question: str, text: str) -> None:
    """Answer a question by its id, or the only open one of a task."""
    with tasks_of(session, "answer") as tasks:
        done, warning = tasks.answer(question, text)
        if warning:
            session.remark(warning)
        _say(session, tasks, done, f"Answered; {done.id} goes on.")


@task.command("secret")
@REF
@click.argument("name", metavar="NAME")
@common
def secret(session: Session, ref: str, name: str) -> None:
    """Provide a value, read from standard input or asked for without showing it; it is sealed."""
    value = click.prompt(name, hide_input=True, err=True) if sys.stdin.isatty() else sys.stdin.read().removesuffix("\n")
    with tasks_of(session, "secret") as tasks:
        _say(
            session,
            tasks,
            done := tasks.secret(ref, name, value),
            f"{name} is sealed; {done.id} gets it at its next start.",
        )


@task.command("budget")
@REF
@click.option("--tokens", type=click.IntRange(0), help="Budget in tokens; 0 is without limit.")
@click.option("--money", type=click.FloatRange(0), help="Budget in dollars; 0 is without limit.")
@click.option("--minutes", type=click.FloatRange(0), help="Budget in minutes of running; 0 is without limit.")
@common
def budget(session: Session, ref: str, tokens: int | None, money: float | None, minutes: float | None) -> None:
    """Change what a task may use."""
    if tokens is None and money is None and minutes is None:
        raise Usage("Give --tokens, --money or --minutes.")
    with tasks_of(session, "budget") as tasks:
        done = tasks.budget(ref, tokens=tokens, money=money, minutes=minutes)
        _say(session, tasks, done, f"{done.id} has another budget.")


@task.command("try-now")
@REF
@common
def try_now(session: Session, ref: str) -> None:
    """Do not wait for the limit or the back-off any longer."""
    with tasks_of(session, "try_now") as tasks:
        _say(session, tasks, done := tasks.try_now(ref), f"{done.id} tries again.")


@task.command("fork")
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
        done = tasks.fork(ref, os.path.join(os.fsdecode(session.cwd), folder), git=git)
        if begin:
            done = tasks.start(done.id)
        _say(session, tasks, done, f"Made {done.id} in {done.workspace}.")


@task.command("diff")
@REF
@click.option("--patch", "file", metavar="FILE", help="Write the patch to FILE.")
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@common
def diff(session: Session, ref: str, file: str | None, force: bool) -> None:
    """What a forked task has done, as a patch."""
    from holdfast.frontends.cli.fork import write_patch

    with tasks_of(session) as tasks:
        patch = _patch(session, tasks, ref)
    if file is not None:
        write_patch(os.path.join(os.fsdecode(session.cwd), file), patch, force)
        if session.json:
            write_json({"files": patch.files, "file": file})
        else:
            session.say(f"Wrote a patch of {patch.files} files to {file}; `git apply` takes it.")
        return
    if session.json:
        write_json({"files": patch.files, "patch": _text(patch).decode("utf-8", "replace")})
        return
    write_bytes(_text(patch))


@task.command("apply")
@REF
@click.option("-n", "--dry-run", is_flag=True, help="Only say whether it would go in.")
@click.option("--branch", metavar="NAME", help="Say how to fetch the fork's own branch as NAME, instead.")
@common
def apply(session: Session, ref: str, dry_run: bool, branch: str | None) -> None:
    """Bring what a forked task has done into the folder it came from; a checkpoint is taken first."""
    import subprocess

    from holdfast.core.errors import Conflict
    from holdfast.core.model import Event
    from holdfast.frontends.cli.fork import say_branch

    with tasks_of(session) as tasks:
        if branch is not None:
            _, row = session.engine.root(os.fsencode(tasks.home(ref).workspace))
            say_branch(session, row, os.fsencode(tasks.find(ref).workspace), branch)
            return
        patch, home = _patch(session, tasks, ref), tasks.home(ref)
        if not patch.lines:
            session.say("There is nothing to bring back.")
            return
        # Outside any repository of ours: `git apply` then touches files only, and reads no index.
        words = ["git", "apply", "--whitespace=nowarn", *(["--check"] if dry_run else []), "-"]
        if not dry_run:
            session.engine.handle(
                Event(
                    os.fsencode(home.workspace),
                    session.now(),
                    trigger="before_restore",
                    message="before applying a fork",
                )
            )
        done = subprocess.run(
            words,
            cwd=home.workspace,
            input=_text(patch),
            capture_output=True,
            env={"PATH": session.around.text("PATH"), "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_DIR": "/nonexistent"},
        )
        if done.returncode:
            raise Conflict(
                f"The patch does not go in: {done.stderr.decode('utf-8', 'replace').strip()}",
                "`holdfast task diff` shows it.",
            )
        if session.json:
            write_json({"files": patch.files, "applied": not dry_run, "workspace": home.workspace})
        else:
            session.say(f"{'Would change' if dry_run else 'Changed'} {patch.files} files in {home.workspace}.")


def _text(patch: Any) -> bytes:
    return b"".join([line + b"\n" for line in patch.lines])


def _patch(session: Session, tasks: Tasks, ref: str) -> Any:
    from holdfast.homecoming import bring_home

    found, home = tasks.find(ref), tasks.home(ref)
    _, row = session.engine.root(os.fsencode(home.workspace))
    return bring_home(session.engine, row, os.fsencode(found.workspace))


@task.command("archive")
@REF
@common
def archive(session: Session, ref: str) -> None:
    """Put an ended task out of sight."""
    with tasks_of(session) as tasks:
        _say(session, tasks, done := tasks.archive(ref), f"{done.id} is archived.")


@task.command("inbox")
@common
def inbox(session: Session) -> None:
    """Everything that waits for you, the most urgent first."""
    with tasks_of(session) as tasks:
        found = tasks.inbox()
    if session.json:
        write_json(found)
        return
    for one in found:
        choices = f" [{' | '.join(one['options'])}]" if one["options"] else ""
        session.print(f"{one['id']}  {one['kind']}  {one['title']}: {one['text']}{choices}")
    if not found:
        session.remark("Nothing waits for you.")


def _is_supervised(session: Session) -> bool:
    return _trouble(session) is not None


def _trouble(session: Session) -> str | None:
    """What the supervisor cannot do now; None if there is none."""
    from holdfast.supervisor.lock import trouble_of
    from holdfast.supervisor.serving import FOLDER

    return trouble_of(session.around.data + FOLDER)
