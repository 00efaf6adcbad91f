"""`keepfast task approve`, `accept`, `reject`, `answer`, `secret`: people's answers to a task."""

from __future__ import annotations

import sys

import click

from keepfast.cli.session import Session, common
from keepfast.cli.task_session import REF, continuation, say, tasks_of
from keepfast.runner.domain.reviews import remark


@click.command("approve")
@REF
@click.option(
    "--anyway",
    is_flag=True,
    help=("Approve even if the verification fails or the workspace changed since the review began."),
)
@common
def approve(session: Session, ref: str, anyway: bool) -> None:
    """Approve a phase that waits for review."""
    with tasks_of(session, "approve") as tasks:
        say(session, tasks, done := tasks.answers.approve(ref, anyway=anyway), f"Approved. {done.id} is {done.state}.")


@click.command("accept")
@REF
@common
def accept(session: Session, ref: str) -> None:
    """Accept a task as done although its last checkpoint failed. To save it again instead, use `task resume`."""
    with tasks_of(session, "accept") as tasks:
        say(session, tasks, done := tasks.accept(ref), f"Accepted. {done.id} is {done.state}.")


@click.command("reject")
@REF
@click.argument("comments", metavar="[COMMENTS]", default="")
@click.option(
    "--comment",
    "at",
    metavar="PATH[:LINE] TEXT",
    type=(str, str),
    multiple=True,
    help="Comment on a file or on a line of it; can be repeated.",
)
@common
def reject(session: Session, ref: str, comments: str, at: tuple[tuple[str, str], ...]) -> None:
    """Request changes. The agent gets the comments."""
    remarks = [remark(where, text) for where, text in at]
    with tasks_of(session, "reject") as tasks:
        say(session, tasks, done := tasks.answers.reject(ref, comments, remarks), f"Requested changes from {done.id}.")


@click.command("answer")
@click.argument("question", metavar="QUESTION")
@click.argument("text", metavar="ANSWER")
@click.option(
    "--exactly", is_flag=True, help="Use the answer literally, even if it is a number or similar to one of the options."
)
@common
def answer(session: Session, question: str, text: str, exactly: bool) -> None:
    """Answer a question, given by its id or by its task if that has only one. ANSWER is an option, its number, or
    free text.
    """
    with tasks_of(session, "answer") as tasks:
        done, warning = tasks.answers.answer(question, text, exactly=exactly)
        if warning:
            session.remark(warning)
        say(session, tasks, done, f"Answered. {done.id} {continuation(tasks.views.describe(done))}.")


@click.command("secret")
@REF
@click.argument("name", metavar="NAME")
@common
def secret(session: Session, ref: str, name: str) -> None:
    """Provide a secret value, from standard input or a hidden prompt. It is stored sealed."""
    value = click.prompt(name, hide_input=True, err=True) if sys.stdin.isatty() else sys.stdin.read().removesuffix("\n")
    with tasks_of(session, "secret") as tasks:
        done = tasks.answers.secret(ref, name, value)
        facts = tasks.views.describe(done)
        more = f" It {continuation(facts)}." if facts["asks"] or facts["limit"] else ""
        say(session, tasks, done, f"{name} is sealed; {done.id} gets it at its next start.{more}")
