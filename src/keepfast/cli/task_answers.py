"""`keepfast task approve`, `accept`, `reject`, `answer`, `secret`: what a task is told by people."""

from __future__ import annotations

import sys

import click

from keepfast.cli.session import Session, common
from keepfast.cli.task_session import REF, goes_on, say, tasks_of


@click.command("approve")
@REF
@click.option(
    "--anyway", is_flag=True, help="Although the verification fails, or the workspace changed since the review began."
)
@common
def approve(session: Session, ref: str, anyway: bool) -> None:
    """Let a reviewed phase pass."""
    with tasks_of(session, "approve") as tasks:
        say(session, tasks, done := tasks.answers.approve(ref, anyway=anyway), f"Approved; {done.id} is {done.state}.")


@click.command("accept")
@REF
@common
def accept(session: Session, ref: str) -> None:
    """Call a task done although its last checkpoint failed; `task resume` saves it again instead."""
    with tasks_of(session, "accept") as tasks:
        say(session, tasks, done := tasks.accept(ref), f"Accepted; {done.id} is {done.state}.")


@click.command("reject")
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
    from keepfast.runner.domain.reviews import remark

    remarks = [remark(where, text) for where, text in at]
    with tasks_of(session, "reject") as tasks:
        say(session, tasks, done := tasks.answers.reject(ref, comments, remarks), f"{done.id} is asked for changes.")


@click.command("answer")
@click.argument("question", metavar="QUESTION")
@click.argument("text", metavar="ANSWER")
@click.option("--exactly", is_flag=True, help="Take the answer to the letter, also if it is nearly one of the options.")
@common
def answer(session: Session, question: str, text: str, exactly: bool) -> None:
    """Answer a question by its id, or the only open one of a task: with an option, its number, or words of your own."""
    with tasks_of(session, "answer") as tasks:
        done, warning = tasks.answers.answer(question, text, exactly=exactly)
        if warning:
            session.remark(warning)
        say(session, tasks, done, f"Answered; {done.id} {goes_on(tasks.views.describe(done))}.")


@click.command("secret")
@REF
@click.argument("name", metavar="NAME")
@common
def secret(session: Session, ref: str, name: str) -> None:
    """Provide a value, read from standard input or asked for without showing it; it is sealed."""
    value = click.prompt(name, hide_input=True, err=True) if sys.stdin.isatty() else sys.stdin.read().removesuffix("\n")
    with tasks_of(session, "secret") as tasks:
        done = tasks.answers.secret(ref, name, value)
        shown = tasks.views.describe(done)
        more = f" It {goes_on(shown)}." if shown["asks"] or shown["limit"] else ""
        say(session, tasks, done, f"{name} is sealed; {done.id} gets it at its next start.{more}")
