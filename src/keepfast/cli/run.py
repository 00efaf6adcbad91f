"""`keepfast run -- COMMAND …`: run one command as a supervised task, in the foreground."""

from __future__ import annotations

import os
import sys
from threading import Event as Flag
from threading import Thread
from time import sleep
from typing import Any, TextIO

import click

from keepfast.cli.foreground import run_client
from keepfast.cli.session import Session, common
from keepfast.cli.task_session import clock, open_runtime
from keepfast.model.errors import Busy, KeepfastError, Limited, Usage
from keepfast.runner.actions import taskfile
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.actions.tasks import Tasks
from keepfast.runner.db import queries
from keepfast.runner.domain.records import Hold, Task
from keepfast.runner.process.redaction import clean
from keepfast.runner.process.wake import wake

PRINT_FLAGS = ("-p", "--print")


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--no-wait", is_flag=True, help="At a usage limit, exit with code 75 instead of waiting.")
@click.option(
    "--input",
    "input_file",
    metavar="FILE",
    type=click.File(),
    help="Read the command's standard input from FILE; - is the input of `keepfast run`.",
)
@click.argument("command", nargs=-1, required=True, metavar="-- COMMAND…")
@common
def run(session: Session, no_wait: bool, input_file: TextIO | None, command: tuple[str, ...]) -> int:
    """Run one command as a supervised task: save checkpoints, wait at usage limits, retry after crashes.

    `claude` without -p runs interactively in this terminal, with its hooks only.
    """
    words = list(command)
    if os.path.basename(words[0]) == "claude" and not any(word in PRINT_FLAGS for word in words):
        return run_client(session, words)
    with open_runtime(session) as runtime:
        tasks = Tasks(runtime)
        spec = taskfile.check(_spec(words, input_file.read() if input_file else None), os.fsdecode(session.cwd))
        task = tasks.new(spec, start=True)
        return _follow(session, runtime, task, no_wait)


def _spec(words: list[str], input_text: str | None) -> dict[str, Any]:
    """Return the task for a command. A command other than `claude` gets only its input, no prompt about tasks."""
    title = " ".join(clean(words))[:80]
    if os.path.basename(words[0]) != "claude":
        agent = {"command": words, "completes_on": "exit", "input": "none" if input_text is None else "brief"}
        return {"title": title, "brief": input_text or title, "agent": agent}
    if input_text is not None:
        raise Usage("`claude` needs its prompt with -p.")
    rest, prompt = words[1:], ""
    arguments: list[str] = []
    while rest:
        word = rest.pop(0)
        if word in PRINT_FLAGS:
            continue
        if word.startswith("-"):
            arguments.append(word)
            if rest and not rest[0].startswith("-") and len(rest) > 1:
                arguments.append(rest.pop(0))
        elif not prompt:
            prompt = word
        else:
            arguments.append(word)
    if not prompt:
        raise Usage("Give the prompt with -p.", "For example: keepfast run -- claude -p 'Fix the tests'")
    agent = {"kind": "claude", "command": [words[0]], "arguments": arguments, "completes_on": "exit"}
    return {"brief": prompt, "agent": agent}


def _follow(session: Session, runtime: Runtime, task: Task, no_wait: bool) -> int:
    """Supervise the task in a thread, show the agent's output, and return the exit code of the task."""
    from keepfast.runner.scheduler.service import run as supervise

    stop = Flag()
    troubles: list[KeepfastError] = []

    def work() -> None:
        try:
            supervise(runtime, stop, durable=False, only=task.id)
        except Busy:
            stop.wait()  # a running supervisor takes care of the task
        except KeepfastError as error:
            troubles.append(error)

    thread = Thread(target=work, daemon=True)
    thread.start()
    offsets: dict[str, int] = {}
    last_message = ""
    try:
        while thread.is_alive():
            _show(runtime, task.id, offsets)
            now = runtime.tables.task(task.id)
            hold = runtime.tables.hold(task.id)
            if now.state in ("done", "failed", "cancelled"):
                break
            if hold is not None:
                _raise_if_limited(task, hold, no_wait)
                if hold.human:
                    return _leave_to_person(session, runtime, task.id, hold)
                last_message = _tell_wait(session, hold, last_message)
            sleep(0.2)
    except KeyboardInterrupt:
        Tasks(runtime).cancel(task.id)
        _await_cancelled(runtime, task.id)
        return 130
    finally:
        stop.set()
        wake(runtime.folder)
        thread.join(30)
    _show(runtime, task.id, offsets)
    if troubles:
        raise troubles[0]
    ended = runtime.tables.task(task.id)
    last = runtime.tables.last_run(task.id)
    if ended.state == "done":
        return 0
    session.warn(f"keepfast: {ended.state}: {ended.reason}")
    return last.exit_code or 1 if last is not None else 1


def _raise_if_limited(task: Task, hold: Hold, no_wait: bool) -> None:
    """Raise `Limited` at a usage limit that is not waited for."""
    is_given_up = hold.kind == "rate_limit" and (no_wait or hold.human)
    if is_given_up or (hold.account and no_wait):
        raise Limited(
            f"The agent reached its usage limit: {hold.reason}",
            f"Run `keepfast task try-now {task.id}` to try again.",
        )


def _leave_to_person(session: Session, runtime: Runtime, task: str, hold: Hold) -> int:
    """Print what the task waits for; return 1, or the agent's exit code if it crashed."""
    session.warn(f"keepfast: {task} waits for you ({hold.kind}): {hold.reason}")
    ran = runtime.tables.last_run(task) if hold.kind == "crashed" else None
    return (ran.exit_code if ran is not None else None) or 1


def _tell_wait(session: Session, hold: Hold, last_message: str) -> str:
    """Print how long the task waits: every second on a terminal, else once per reason. Return what was printed last."""
    left = max((hold.due_at or 0) - session.now(), 0) // 1_000_000_000
    text = f"keepfast: {hold.kind}, continues in {clock(left)}"
    if text != last_message and sys.stderr.isatty():
        sys.stderr.write(f"\r{text}\x1b[K")
        sys.stderr.flush()
    elif hold.kind != last_message:
        session.remark(text)
    return text if sys.stderr.isatty() else hold.kind


def _await_cancelled(runtime: Runtime, task: str) -> None:
    for _ in range(100):
        if runtime.tables.task(task).state == "cancelled":
            break
        sleep(0.2)


def _show(runtime: Runtime, task: str, offsets: dict[str, int]) -> None:
    """Print what the agent's logs have beyond `offsets`, and advance these."""
    for run in queries.runs_of(runtime.tables, task):
        for name, stream in (("out.log", sys.stdout), ("err.log", sys.stderr)):
            path = f"{run.folder}/{name}"
            try:
                with open(path, "rb") as file:
                    file.seek(offsets.get(path, 0))
                    part = file.read()
            except OSError:
                continue
            if part:
                offsets[path] = offsets.get(path, 0) + len(part)
                stream.flush()
                stream.buffer.write(part)
                stream.buffer.flush()
