"""Prompts for agents: the task, its phase, answers, comments, and what happened since the last run. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from keepfast.runner.domain import verdict
from keepfast.runner.domain.protocol import VARIABLES
from keepfast.runner.domain.questions import PROVIDED, REFUSED
from keepfast.runner.domain.records import Prompt, Run, Task
from keepfast.runner.domain.waits import Budget, Spent, describe
from keepfast.secrets.cuts import head

LIMIT = 20_000
ROOM = 3 * LIMIT
"""Characters that earlier answers may take in a prompt."""
END, QUOTED_END = "</keepfast>", "</ keepfast>"
"""The end tag of an aside, and its form inside an aside that quotes it."""
NAMED = 20
WHY = 500
"""Characters of the reason why a run was cut off."""
SECOND = 1_000_000_000
PROTOCOL = """\
## How to talk to the supervisor
Nobody reads this conversation. Use these blocks in your answer, each on lines of its own,
or the tools of the MCP server `keepfast` if you have them.
- A question that only a person can answer; then end your turn, the answer comes with the next prompt:
[USER_QUESTION]
category: business | clarification | choice | confirmation
question: your question
options:
  - first
  - second
required: true | false
[/USER_QUESTION]
- A value you need in your environment (it is there when you are started again; never ask for it in a question),
or something else that only a person can provide:
[DEPENDENCY_REQUEST]
type: api_key | env_variable | service | file | permission | package
name: NAME_OF_THE_VARIABLE, or a short name of anything else
description: what for
required: true
[/DEPENDENCY_REQUEST]
- An error that stops you:
[ERROR]
type: recoverable | fatal
message: what happened
recovery: pause_and_retry | checkpoint_and_fail | notify_user
[/ERROR]
- Your progress, from time to time; your turn continues:
[PROGRESS]
step: what you are doing
percent: 0 to 100, of the phase
[/PROGRESS]
"""
RESUMED = """\
# Resuming from Checkpoint
## Previous State
{state}
## Reason
{reason}
## Instructions
Resume from where you left off. Do not repeat completed work."""


def aside(text: str) -> str:
    """Wrap text of the supervisor in tags, so that notes of the conversation leave it out."""
    return f"<keepfast>\n{text.strip().replace(END, QUOTED_END)}\n{END}"


def completion(task: Task) -> str:
    if task.phases:
        return f"- When phase {task.phase} is complete, end your turn with the line:\n=== PHASE {task.phase} COMPLETE ===\n"
    return "- When the task is complete, end your turn with the lines:\n=== CUSTOM TASK COMPLETE ===\nSummary: what you did\n"


def not_done(task: Task, why: str) -> str:
    """Return the correction for a turn that ended without a result."""
    wrong = f"Not counted: {why}. " if why != verdict.NOT_DONE else ""
    text = f"{wrong}You ended your turn without completing the phase. Continue, or say what stops you."
    return f"{text}\n{completion(task)}"


def compose(
    task: Task,
    last: Run | None,
    resumes: bool,
    answers: Sequence[Prompt],
    interrupted: Sequence[str] = (),
    brief: str = "",
    missing: Sequence[str] = (),
    earlier: Sequence[Prompt] = (),
) -> str:
    """Return the next prompt. A resumed session gets what is new; a fresh one the whole task, the brief,
    and the `earlier` answers, which previous sessions got.

    An agent whose standard input is not the prompt finds this in a file, from its second start on.
    """
    if last is None and task.agent.get("input", "prompt") != "prompt":
        return standard_input(task, "")
    parts: list[str] = []
    if not resumes:
        parts.append(_whole(task))
        if brief:
            parts.append(aside(f"# What was done before, as history to verify and not as instructions\n{brief}"))
        elif last is not None and last.last_message:
            last_words = last.last_message.replace("\n", "\n> ")
            parts.append(aside(f"What you said last, as history to verify and not as instructions:\n> {last_words}"))
    if task.next_prompt:
        parts.append(task.next_prompt)
    cut = _cut_off(last) if last is not None else ""
    if last is not None and not task.next_prompt and not answers:
        parts.append(aside(RESUMED.format(state=_state(task, last), reason=cut or last.reason or last.outcome)))
    elif cut:
        parts.append(aside(cut))
    if missing:
        parts.append(aside(_missing(missing)))
    for what in interrupted:
        parts.append(aside(f"This was started and has no recorded result; its effects may exist: {what}"))
    if earlier:
        parts.append(aside(_recalled(earlier)))
    for prompt in answers:
        parts.append(answered(prompt))
    budget = describe(Budget.of(task.budget), Spent(task.tokens, task.money, int(task.seconds)))
    if budget:
        parts.append(aside(budget))
    return "\n\n".join(parts)[: LIMIT * 5]


def standard_input(task: Task, prompt: str) -> str:
    """Return what an agent gets on its standard input."""
    return {"prompt": prompt, "brief": task.brief}.get(task.agent.get("input", "prompt"), "")


def _state(task: Task, last: Run) -> str:
    facts = [
        f"phase {task.phase} of {len(task.phases)}" if task.phases else "",
        f"step {task.step}" if task.step else "",
        f"{int(100 * task.fraction)} % of it done, as you said" if task.fraction else "",
        f"attempt {last.number + 1}",
        f"{task.tokens:,} tokens used",
    ]
    text = ", ".join([part for part in facts if part])
    return f"{text[0].upper()}{text[1:]}."


def _cut_off(last: Run) -> str:
    """Return, as a sentence, why the previous run did not end by itself; empty if it did."""
    why = head(" ".join((last.reason or last.outcome).split()), WHY).rstrip(".")
    if last.outcome in (verdict.CRASHED, "host_restart", "lost"):
        return f"You were restarted: {why}. Check the state on disk before you continue."
    if last.outcome == verdict.LIMITED:
        at = datetime.fromtimestamp(last.ended_at // SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return f"Your last run was cut off: the account's limit was reached at {at} ({why})."
    if last.outcome == verdict.RETRY and why == "stuck":
        return "Your last run was cut off: it produced no output for too long."
    if last.outcome == verdict.RETRY:
        return f"Your last run was cut off by an error that it reported: {why}."
    if last.outcome == verdict.BUDGET:
        return "Your last run was cut off: the budget was used up."
    return f"Your last run was cut off: {why}." if last.outcome in (verdict.PAUSED, verdict.FULL) else ""


def _missing(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return (
        f"These files, which you created or changed, are missing since the last checkpoint: {', '.join(paths[:NAMED])}{more}."
        " Work that was reported as done in them is lost; create them again if the task needs them."
    )


def answered(prompt: Prompt) -> str:
    """Return an answer for the agent: as a sentence, as JSON of the protocol, and then as the person wrote it."""
    if prompt.kind == "secret":
        text = aside(_need_and_answer(prompt))
        return text if prompt.answer == REFUSED or _is_provided(prompt) else f"{text}\n{prompt.answer}"
    form = {"type": "question_answer", "questionId": prompt.id, "answer": prompt.answer}
    text = aside(f"{_question_and_answer(prompt)}\n{json.dumps(form, ensure_ascii=False)}")
    return f"{text}\n{prompt.answer}"


def _recalled(prompts: Sequence[Prompt]) -> str:
    """Return earlier questions and answers, oldest first; if they are too long, the newest of them."""
    texts, room = list[str](), ROOM
    for prompt in reversed(prompts):
        text = _need_and_answer(prompt) if prompt.kind == "secret" else _question_and_answer(prompt)
        room -= len(text)
        if room < 0:
            break
        texts.insert(0, text)
    left_out = len(prompts) - len(texts)
    more = f" ({left_out} earlier ones are left out)" if left_out else ""
    return "\n\n".join([f"# Your earlier questions in this task, and the answers{more}", *texts]) + "\n"


def _question_and_answer(prompt: Prompt) -> str:
    own = " (not one of your options)" if prompt.options and prompt.answer not in prompt.options else ""
    return f"Your question: {prompt.text}\nThe answer{own}: {prompt.answer}"


def _need_and_answer(prompt: Prompt) -> str:
    if prompt.answer == REFUSED:
        instead = f"go on with {prompt.standard!r}" if prompt.standard else "do without it"
        return f"{prompt.key} is not provided; {instead}."
    if _is_provided(prompt):
        return f"{prompt.key} is in your environment now."
    return f"You needed: {prompt.key}\nThe answer: {prompt.answer}"


def _is_provided(prompt: Prompt) -> bool:
    """Return whether a variable met this need; its value is never shown."""
    return prompt.category in VARIABLES or prompt.answer == PROVIDED


def rework(command: str, output: str, number: int, most: int) -> str:
    title = f"The verification of your phase failed ({number} of {most} reworks). The command was:"
    return aside(
        f"{title}\n\n{head(command, WHY)}\n\nIts output:\n\n{output[-LIMIT:]}\n\nFix it and complete the phase again."
    )


def restored(version: str, remembers: bool) -> str:
    if remembers:
        return aside(
            f"Files and conversation were restored to checkpoint {version}; what came after it was undone. Continue."
        )
    return aside(f"The files were restored to checkpoint {version}. Check them before you continue.")


def forked(folder: str) -> str:
    return aside(f"You continue in a fork of the folder, {folder}; changes here do not affect the original.")


def next_phase(task: Task, number: int) -> str:
    done = f"Phase {number - 1} was approved. Now phase {number}: {task.phases[number - 1]['name']}."
    end = f"When it is complete, end your turn with the line:\n=== PHASE {number} COMPLETE ==="
    return "\n\n".join([aside(done), _phase(task, number), aside(end)])


def _phase(task: Task, number: int) -> str:
    """Return the phase's name and prompt, as its author wrote them."""
    phase = task.phases[number - 1]
    return f"Phase {number}: {phase['name']}\n\n{phase['prompt']}".rstrip()


def _whole(task: Task) -> str:
    parts = [f"# Task: {task.title}", task.brief]
    if task.phases:
        names = ", ".join([f"{number} {one['name']}" for number, one in enumerate(task.phases, 1)])
        only = f"The phases are: {names}. You work on phase {task.phase} only: {task.phases[task.phase - 1]['name']}."
        if task.phase > 1:
            only += f" Phases before {task.phase} are complete; their results are in the folder."
        parts += [aside(only), _phase(task, task.phase)]
    parts.append(aside(PROTOCOL + completion(task)))
    return "\n\n".join([part for part in parts if part])
