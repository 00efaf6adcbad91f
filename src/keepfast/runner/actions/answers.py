"""Answers of people to reviews, questions, needs and budgets; each lets a task continue."""

from __future__ import annotations

from collections.abc import Sequence

from keepfast.model.errors import Conflict, Usage
from keepfast.runner.actions import checkpoints, finals, vault
from keepfast.runner.actions.questions import kind_of
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.actions.steps import Steps
from keepfast.runner.actions.views import Views
from keepfast.runner.db import changes, queries
from keepfast.runner.domain import prompts, questions, reviews
from keepfast.runner.domain.protocol import VARIABLES, is_variable
from keepfast.runner.domain.records import Prompt, Task
from keepfast.runner.domain.reviews import Remark
from keepfast.runner.domain.task import BUDGET, NotAllowed


class Answers:
    """Stores answers by compare and set: of two answers to the same prompt only the first counts."""

    def __init__(self, runtime: Runtime, views: Views, steps: Steps) -> None:
        self.runtime, self.tables, self.views, self.steps = runtime, runtime.tables, views, steps

    def approve(self, ref: str, *, by: str = "user", anyway: bool = False) -> Task:
        """Approve a phase. Raises `Conflict` if its verification fails, or the workspace changed since the review began."""
        task, prompt = self._approval(ref)
        if prompt.flagged and not anyway:
            raise Conflict(
                "The verification of this phase failed.", "Read its output. To approve anyway, use --anyway."
            )
        if prompt.tree and not anyway and checkpoints.changed_since(self.runtime, task, prompt.tree):
            raise Conflict(
                "The workspace changed since the review began.", "Review the changes. To approve anyway, use --anyway."
            )
        last = task.phase >= len(task.phases)
        text = "" if last else self.steps.seal_secrets(task.id, prompts.next_phase(task, task.phase + 1))
        more = {"phase": task.phase + 1, "reworks": 0, "step": "", "fraction": 0.0, "next_prompt": text}
        final = finals.save(self.runtime, task, epoch=task.epoch + 1) if last else None
        with self.tables.write():
            self._answer(prompt, "approved", by)
            self.steps.check_epoch(task)
            if not last:
                return self.steps.move(task, "approve", "approve", epoch=task.epoch + 1, reason="", **more)
            finals.finish(self.runtime, task, final, "approve", epoch=task.epoch + 1)
            staged = checkpoints.record(self.runtime, final) if final is not None else None
        if staged is not None:
            checkpoints.publish(self.runtime, staged)
        return self.steps.publish(task.id)

    def reject(self, ref: str, comments: str, remarks: Sequence[Remark] = (), *, by: str = "user") -> Task:
        """Request changes; the comments become the next prompt, after the earlier ones of this review.

        After `max_attempts` reworks, only approve and cancel are allowed.
        """
        task, prompt = self._approval(ref)
        comments, remarks = self._sealed_remarks(task.id, comments, remarks)
        comments, remarks = self._with_earlier(prompt, comments, remarks)
        if not comments and not remarks:
            raise Usage("A comment is required: the agent gets it as its next prompt.")
        if task.reworks >= self.runtime.options.max_attempts:
            raise NotAllowed(
                f"Phase {task.phase} has already been reworked {task.reworks} times.", "Approve it, or cancel the task."
            )
        # Next to the path of a remark, a word may be recognised as a secret that it is not by itself.
        text = self.steps.seal_secrets(task.id, reviews.rejected(comments, remarks))
        with self.tables.write():
            self._answer(prompt, "changes requested", by)
            self.steps.check_epoch(task)
            self._log_remarks("changes_requested", prompt, comments, remarks, by)
            return self.steps.move(
                task,
                "reject",
                "reject",
                epoch=task.epoch + 1,
                reworks=task.reworks + 1,
                next_prompt=text,
                reason="",
            )

    def comment(self, ref: str, comments: str, remarks: Sequence[Remark] = (), *, by: str = "user") -> Task:
        """Store comments on a review that keeps waiting; a later request for changes includes them."""
        _, prompt = self._approval(ref)
        if not comments.strip() and not remarks:
            raise Usage("The comment is empty.")
        comments, remarks = self._sealed_remarks(prompt.task, comments, remarks)
        reviews.rejected(*self._with_earlier(prompt, comments, remarks))  # raises if all of it is too long for a prompt
        with self.tables.write():
            self._log_remarks("review_comment", prompt, comments.strip(), remarks, by)
        return self.steps.publish(prompt.task)

    def _sealed_remarks(self, task: str, comments: str, remarks: Sequence[Remark]) -> tuple[str, Sequence[Remark]]:
        marked_remarks = [
            remark._replace(
                path=self.steps.seal_secrets(task, remark.path), text=self.steps.seal_secrets(task, remark.text)
            )
            for remark in remarks
        ]
        return self.steps.seal_secrets(task, comments), marked_remarks

    def _with_earlier(self, prompt: Prompt, comments: str, remarks: Sequence[Remark]) -> tuple[str, Sequence[Remark]]:
        """Return these comments and remarks after the earlier ones of the review."""
        earlier = self.views.comments(prompt)
        parts = [*[note["comments"] for note in earlier], comments.strip()]
        earlier_remarks = [
            reviews.Remark(note["path"], note["line"], note["text"]) for each in earlier for note in each["remarks"]
        ]
        return "\n\n".join(filter(None, parts)), [*earlier_remarks, *remarks]

    def _log_remarks(self, type: str, prompt: Prompt, comments: str, remarks: Sequence[Remark], by: str) -> None:
        remark_rows = [{"path": remark.path, "line": remark.line, "text": remark.text} for remark in remarks]
        facts = {"id": prompt.id, "phase": prompt.phase, "comments": comments, "by": by, "remarks": remark_rows}
        self.tables.log(prompt.task, self.runtime.now(), type, facts)

    def answer(self, id: str, text: str, *, by: str = "user", exactly: bool = False) -> tuple[Task, str]:
        """Answer a question by its id, or the only open one of a task; return the task and a warning.

        Raises `Conflict` if it is no longer waiting, and, without `exactly`, `Usage` if the answer is nearly one of the options
        or the number of none.
        """
        prompt = self._question(id)
        if prompt.kind == "secret":
            return self._answer_need(prompt, text, by)
        if prompt.kind == "approval":
            raise Usage("This is a review, not a question.", "Run `keepfast task approve` or `keepfast task reject`.")
        checked = questions.check(text, prompt.options, exactly)
        if checked.value is None:
            with self.tables.write():
                changes.count_try(self.tables, prompt.id)
            instead = f"Answer {checked.suggestion!r}" if checked.suggestion else "Choose one of them"
            raise Usage(
                checked.why, f"{instead}, or use --exactly to send your answer as it is." if text.strip() else None
            )
        with self.tables.write():
            self._answer(prompt, self._sealed_answer(prompt, checked.value), by)
            return self.steps.lift_if_answered(prompt.task, "answer"), checked.warning

    def _sealed_answer(self, prompt: Prompt, text: str) -> str:
        """Return an answer with its secrets sealed. The whole answer is one if the question asks for a secret."""
        name = "" if text in prompt.options else vault.secret_name(f"{prompt.key} {prompt.text}")
        return self.steps.seal_secrets(prompt.task, text, name)

    def _answer_need(self, prompt: Prompt, text: str, by: str) -> tuple[Task, str]:
        """Answer a need: refuse it, or, if it is not a variable, confirm that it is met. Return the task and no warning."""
        refused = text.strip().casefold() in questions.REFUSALS
        if refused and not prompt.run:
            raise Usage(f"The task requires {prompt.key}.", "Run `keepfast task secret` to provide it.")
        if prompt.category in VARIABLES and not refused:
            raise Usage(
                "A secret cannot be given as an answer.",
                "Run `keepfast task secret` to enter it unseen, or answer `refused` to let the agent continue without it.",
            )
        if not text.strip():
            raise Usage("The answer is empty.")
        with self.tables.write():
            self._answer(prompt, questions.REFUSED if refused else self._sealed_answer(prompt, text.strip()), by)
            return self.steps.lift_if_answered(prompt.task, "answer"), ""

    def secret(self, ref: str, name: str, value: str, *, type: str = "") -> Task:
        """Store a value, sealed; the agent has it in its environment from its next start on.

        Without a `type` it gets the type of the need.
        """
        task = self.views.find(ref)
        if not is_variable(name):
            raise Usage(f"{name!r} cannot be the name of an environment variable.")
        if not value or "\0" in value:
            raise Usage("The value is empty or contains a NUL character.")
        sealed = self.runtime.seals.seal_value(name, value.encode())
        now = self.runtime.now()
        with self.tables.write():
            needs = queries.needs_of(self.tables, task.id, name)
            type = type or next((prompt.category for prompt in reversed(needs)), "") or "env_variable"
            self.tables.keep_secret(task.id, name, sealed, type, now)
            self.tables.log(task.id, now, "secret_provided", {"name": name})
            for prompt in needs:
                if prompt.status in ("pending", "presented"):
                    self._answer(prompt, questions.PROVIDED, "user")
            return self.steps.lift_if_answered(task.id, "secret")

    def budget(
        self, ref: str, *, tokens: int | None = None, money: float | None = None, minutes: float | None = None
    ) -> Task:
        """Set limits; a task that its budget holds continues if there is budget again."""
        task = self.views.find(ref)
        budget = dict(task.budget)
        for name, amount in (
            ("tokens", tokens),
            ("money", money),
            ("seconds", None if minutes is None else int(minutes * 60)),
        ):
            if amount is not None:
                if amount < 0:
                    raise Usage(f"A budget of {name} cannot be {amount}.")
                budget[name] = amount
        with self.tables.write():
            self.tables.change(task.id, self.runtime.now(), budget=budget, budget_mark=0)
            self.tables.log(task.id, self.runtime.now(), "budget_set", budget)
            hold = self.tables.hold(task.id)
            if hold is not None and hold.kind == BUDGET:
                return self.steps.lift(task, "budget")
        return self.tables.task(task.id)

    def _answer(self, prompt: Prompt, answer: str, by: str) -> None:
        """Store an answer if the prompt is still waiting. Raises `Conflict` if not."""
        now = self.runtime.now()
        changed = self.tables.change_prompt(
            prompt.id,
            only_waiting=True,
            status="answered",
            answer=answer,
            answered_by=by,
            answered_at=now,
        )
        if not changed:
            raise Conflict(
                f"{prompt.id} is no longer waiting for an answer.",
                "It was already answered, or the task continued without it.",
            )
        self.tables.log(
            prompt.task,
            now,
            "answered",
            {"id": prompt.id, "kind": kind_of(prompt.kind, prompt.category), "answer": answer, "by": by},
        )

    def _approval(self, ref: str) -> tuple[Task, Prompt]:
        waiting = queries.find_waiting_prompt(self.tables, ref)
        prompts = [waiting] if waiting is not None and waiting.kind == "approval" else []
        if not prompts:
            task = self.views.find(ref)
            prompts = queries.waiting_prompts_of(self.tables, task.id, "approval")
        if not prompts:
            raise Conflict("No review is waiting.", "Run `keepfast task show` to see the task's state.")
        return self.tables.task(prompts[-1].task), prompts[-1]

    def _question(self, ref: str) -> Prompt:
        named = queries.find_prompt(self.tables, ref)
        prompts = [named] if named is not None else []
        if not prompts:
            task = self.views.find(ref)
            prompts = queries.waiting_prompts_of(self.tables, task.id, "question") or queries.waiting_prompts_of(
                self.tables, task.id, "secret"
            )
            if len(prompts) > 1:
                raise Usage(
                    "Several questions are waiting.",
                    f"Give the id of one: {', '.join([prompt.id for prompt in prompts])}.",
                )
        if not prompts:
            raise Conflict("No question is waiting.", "Run `keepfast task show` to see the task's state.")
        return prompts[-1]
