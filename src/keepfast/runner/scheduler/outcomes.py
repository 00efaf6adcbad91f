"""The consequences of a verdict: the rows for every outcome of a run, written in one transaction."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from keepfast.model.age import amount
from keepfast.runner.actions import checkpoints, context_use, finals, restores, run_outputs, vault
from keepfast.runner.actions.checkpoints import SavedCheckpoint, StagedDocument
from keepfast.runner.actions.questions import create_prompt, hold_for_open_prompts, log_progress
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.db import changes, queries
from keepfast.runner.db.tables import Overtaken, Tables
from keepfast.runner.domain import prompts, verdict
from keepfast.runner.domain.limits import OVERLOAD, LimitHit
from keepfast.runner.domain.moments import moment
from keepfast.runner.domain.questions import PENDING
from keepfast.runner.domain.records import Account, Run, Task
from keepfast.runner.domain.task import (
    ACTIVE,
    APPROVAL,
    ASKING,
    BACKOFF,
    BUDGET,
    CRASHED,
    DONE,
    ENDED,
    PAUSING,
    QUEUED,
    RATE_LIMIT,
    STALLED,
    TIMED,
    USER_PAUSE,
)
from keepfast.runner.domain.verdict import Verdict
from keepfast.runner.domain.waits import Budget, Spent, backoff, jitter, stagger, used
from keepfast.runner.process import shims
from keepfast.runner.process.drivers import driver
from keepfast.runner.process.output import Output
from keepfast.runner.process.redaction import MARK, clean_text
from keepfast.runner.scheduler.turns import extend_holds, order_resumes
from keepfast.secrets.cuts import head

SECOND = 1_000_000_000
LOGGED = 4_000
COUNTED = 200
"""Crashes in a row that are stored: more than `supervisor.max_attempts` can be."""
ORDERLY = (verdict.PHASE, verdict.ASKED, verdict.NEEDS, verdict.DENIED)
"""Verdicts that reset the count of crashes."""
QUESTIONS = ("USER_QUESTION", "DEPENDENCY_REQUEST")
CUT_OFF = (verdict.CRASHED, verdict.LIMITED, verdict.PAUSED, verdict.RETRY, verdict.BUDGET, verdict.FULL)


class Settlement:
    """Writes the consequences of the verdict on one run, in one transaction."""

    def __init__(
        self,
        runtime: Runtime,
        task: Task,
        run: Run,
        status: shims.RunStatus,
        output: Output,
        judged: Verdict,
        saved: SavedCheckpoint | None,
        passed: bool | None,
        output_text: str,
        rebooted: bool,
        final: SavedCheckpoint | None,
    ) -> None:
        self.runtime, self.task, self.run, self.status, self.output, self.judged = (
            runtime,
            task,
            run,
            status,
            output,
            judged,
        )
        self.saved, self.passed, self.output_text, self.rebooted, self.final = (
            saved,
            passed,
            output_text,
            rebooted,
            final,
        )
        self.reference = saved.reference if saved is not None else None
        self.now = runtime.now()

    def write(self) -> list[StagedDocument]:
        """Write the rows, then the documents of the checkpoints, which describe them."""
        with self.runtime.tables.write() as tables:
            if tables.run(self.run.id).state == ENDED:
                return []
            self._write_outcome(tables)
            checkpoints_made = [self.saved]
            if self.final is not self.saved and tables.task(self.task.id).state == DONE:
                checkpoints_made.append(self.final)
            return [
                checkpoints.record(self.runtime, checkpoint)
                for checkpoint in checkpoints_made
                if checkpoint is not None
            ]

    def _write_outcome(self, tables: Tables) -> None:
        try:
            self.task = tables.check_epoch(self.run)
        except Overtaken:
            tables.change_run(self.run.id, state=ENDED, outcome="overtaken", ended_at=self.now)
            return
        request = self.task.request
        self._end_run(tables)
        if self.judged.kind == verdict.PAUSED and not request:
            return  # a person resumed it while the agent was still ending: it starts again at once
        if self.judged.kind in ORDERLY and self.task.crashes:
            tables.change(self.task.id, self.now, crashes=[])
        for block in (*self.output.stated, *self.judged.blocks):
            create_prompt(self.runtime, self.task, self.run, self.now, block)
        self._log_malformed(tables)
        _WRITERS[self.judged.kind](self, tables)
        if request in PAUSING:
            self._keep_paused(tables)

    # The run itself

    def _end_run(self, tables: Tables) -> None:
        run, output = self.run, self.output
        left = [f"{tool.name} {tool.what}".strip() for tool in output.tools.values()]
        outcome = "host_restart" if self.rebooted and self.judged.kind == verdict.CRASHED else self.judged.kind
        seconds = run_outputs.duration(self.runtime, run, self.status)
        tables.change_run(
            run.id, state=ENDED, outcome=outcome, reason=head(self.judged.reason, 2000), ended_at=self.now,
            exit_code=self.status.exit_code, tokens=output.tokens, money=output.money, left=left,
            last_message=output.last_message(),
        )  # fmt: skip
        if self.task.request:
            tables.request(self.task.id, "", self.now, self.judged.kind, run.id)
        session = output.session or run.session
        tables.change(
            self.task.id, self.now, tokens=self.task.tokens + output.tokens, money=self.task.money + output.money,
            seconds=self.task.seconds + seconds, session=session, step=output.step or self.task.step,
            fraction=output.fraction or self.task.fraction,
        )  # fmt: skip
        remembers = output.began and driver(self.task.agent, self.runtime.options).can_resume
        remembers = remembers and self.judged.kind != verdict.FULL
        if self.judged.kind in CUT_OFF and not remembers:
            # The agent never read its prompt, or cannot remember it: its answers are delivered again.
            changes.deliver_again(tables, run.id)
        elif self.task.next_prompt:
            tables.change(self.task.id, self.now, next_prompt="")
        facts = {
            "outcome": outcome,
            "exit": self.status.exit_code,
            "reason": head(self.judged.reason, 500),
            "tokens": output.tokens,
        }
        context_use.log_usage(self.runtime, run, output, context_use.logged_requests(self.runtime, run))
        log_progress(tables, run, self.now, output)
        tables.log(self.task.id, self.now, "agent_ended", facts, run.id)
        self.task = tables.task(self.task.id)

    def _log_malformed(self, tables: Tables) -> None:
        """Log blocks that could not be parsed; next to a valid question, also warn people that there was another one."""
        malformed = self.judged.malformed
        for block in malformed:
            tables.log(self.task.id, self.now, "block_refused", {"block": block.name, "why": block.why}, self.run.id)
        if malformed and any(block.name in QUESTIONS for block in self.judged.blocks):
            refused = "; ".join([f"[{block.name}]: {block.why}" for block in malformed])
            tables.warn(self.task.id, self.now, f"The agent also sent a block that was not understood. {refused}")

    # What follows

    def _move(self, tables: Tables, action: str, **columns: Any) -> None:
        tables.move(self.task.id, action, self.now, trigger=self.judged.kind, run=self.run.id, **columns)

    def _settle_cancelled(self, tables: Tables) -> None:
        self._move(tables, "cancel", why=self.judged.reason)

    def _settle_failed(self, tables: Tables) -> None:
        self._move(tables, "fail", why=self.judged.reason)
        tables.notify(self.task.id, self.now, "failed", f"{self.task.title} failed: {self.judged.reason}")

    def _settle_paused(self, tables: Tables) -> None:
        self._move(tables, "hold", hold=USER_PAUSE, why=self.judged.reason, human=1)

    def _keep_paused(self, tables: Tables) -> None:
        """Pause a task whose run ended before the pause or freeze that a person requested, if it can continue by itself."""
        state, hold = tables.state(tables.task(self.task.id))
        if state in (QUEUED, ACTIVE) and hold in ("", *TIMED, *ASKING):
            why = "paused by a person"
            tables.move(
                self.task.id, "hold", self.now, trigger="pause", run=self.run.id, hold=USER_PAUSE, why=why, human=1
            )

    def _settle_over_budget(self, tables: Tables) -> None:
        if self.judged.malformed:
            tables.change(self.task.id, self.now, next_prompt=prompts.aside("\n\n".join(self._corrections())))
        self._move(tables, "hold", hold=BUDGET, why="The budget is used up.", human=1)
        tables.notify(self.task.id, self.now, "budget", f"{self.task.title}: the budget is used up.")

    def _settle_limited(self, tables: Tables) -> None:
        limit = self.output.limit
        assert limit is not None
        account = self.run.account + (f":{limit.model}" if limit.model else "")
        if limit.needs_human:
            self._limit_account(tables, account, 0, limit)
            self._wait_for_person(tables, account, limit.raw)
            return
        if not verdict.waits_by_clock(limit):
            self._limited_for_unknown_time(tables, account, limit)
            return
        windows = self.task.windows + int(verdict.counts_as_window(limit))
        if windows > int(self.task.agent.get("limit_windows", self.runtime.options.max_windows)):
            self._move(
                tables,
                "hold",
                hold=RATE_LIMIT,
                why=f"usage limits already waited for: {windows - 1}",
                human=1,
                account=account,
            )
            tables.notify(
                self.task.id,
                self.now,
                "limit",
                f"{self.task.title} reached {amount(windows, 'usage limit')}; it is waiting for you.",
            )
            return
        assert limit.resets_at is not None
        options = self.runtime.options
        standing = self._limit_account(tables, account, int(limit.resets_at * SECOND), limit)
        if standing.human:
            self._wait_for_person(tables, account, standing.reason)
            return
        resets = standing.due_at
        extend_holds(tables, standing, int(options.stagger * SECOND))
        least, most = int(options.limit_jitter_least * SECOND), int(options.limit_jitter_most * SECOND)
        # A short limit of seconds must not become minutes.
        wait = min(jitter(self.runtime.noise(), least, most), max(resets - self.now, SECOND))
        due = resets + wait
        count = _in_a_row(tables, self.task.id, verdict.LIMITED)
        if not verdict.counts_as_window(limit) and count > 1:
            # A limit of seconds that returns each time would start an agent every second.
            due = max(due, self.now + self._backoff_time(count - 1))
        due = stagger(self._resumes_of(tables, account), due, int(options.stagger * SECOND))
        self._move(tables, "hold", hold=RATE_LIMIT, why=standing.reason, due_at=due, account=account, windows=windows)
        due = self._order(tables, account) or due
        tables.notify(
            self.task.id, self.now, "limit", f"{self.task.title} is waiting for a usage limit until {moment(due)}."
        )

    def _wait_for_person(self, tables: Tables, account: str, why: str) -> None:
        """Hold the task for a limit that no timer lifts."""
        self._move(tables, "hold", hold=RATE_LIMIT, why=why, human=1, account=account)
        tables.notify(self.task.id, self.now, "limit", f"{self.task.title} needs you: {why}")

    def _limited_for_unknown_time(self, tables: Tables, account: str, limit: LimitHit) -> None:
        """Back off from a limit without a reset time, longer each time. An overload does not limit the account."""
        count = _in_a_row(tables, self.task.id, verdict.LIMITED)
        why = f"limit reached: {limit.raw}"
        if limit.scope == OVERLOAD:
            self._back_off(tables, BACKOFF, count, why)
            return
        due = self._back_off(tables, RATE_LIMIT, count, why, account)
        self._limit_account(tables, account, due, limit)

    def _limit_account(self, tables: Tables, account: str, until: int, limit: LimitHit) -> Account:
        """Limit the account, unless a limit stands that ends later; return the one that stands."""
        row = Account(account, until, int(limit.needs_human), clean_text(limit.raw), self.now)
        current = queries.account(tables, account)
        if current is not None and not limit.needs_human and (current.human or current.due_at > until):
            return current
        changes.limit_account(tables, row)
        return row

    def _back_off(self, tables: Tables, hold: str, count: int, why: str, account: str = "") -> int:
        """Hold the task, longer each time, staggered among those of the same account; return when it resumes."""
        due = self.now + self._backoff_time(count)
        if account:
            due = stagger(self._resumes_of(tables, account), due, int(self.runtime.options.stagger * SECOND))
        self._move(
            tables, "hold", hold=hold, why=why, due_at=due, due_boot=self.runtime.since_boot() + due - self.now,
            boot=self.runtime.boot, account=account,
        )  # fmt: skip
        return (self._order(tables, account) if account else 0) or due

    def _order(self, tables: Tables, account: str) -> int:
        """Order the tasks of an account by rank; return when this one resumes."""
        order_resumes(tables, account)
        hold = tables.hold(self.task.id)
        return (hold.due_at or 0) if hold is not None else 0

    def _backoff_time(self, count: int) -> int:
        """Return the nanoseconds to wait after this many failures in a row."""
        options = self.runtime.options
        return backoff(count, int(options.backoff_first * SECOND), int(options.backoff_longest * SECOND))

    def _resumes_of(self, tables: Tables, account: str) -> list[int]:
        """Return when the other tasks of an account resume."""
        holds = [hold for hold in tables.holds() if hold.account == account and hold.task != self.task.id]
        return [hold.due_at for hold in holds if hold.due_at]

    def _settle_crashed(self, tables: Tables) -> None:
        task = self.task
        if self.rebooted:
            return  # the machine went down, not the agent: the task starts again with the next free slot
        if restores.is_refused(tables.run(self.run.id)):
            return  # the next run begins with the conversation of a checkpoint, or a fresh one
        crashes = [*task.crashes[-COUNTED:], self.now]
        tables.change(task.id, self.now, crashes=crashes)
        attempts = len(crashes) + task.idle
        if attempts >= self.runtime.options.max_attempts:
            why = self.judged.reason
            if attempts > 1:
                why = f"crashed {attempts} times in a row: {why}"
            if task.idle:
                why = f"No progress in {attempts} runs: {self.judged.reason}."
            self._move(tables, "hold", hold=CRASHED, why=why, human=1)
            tables.notify(task.id, self.now, "error", f"{task.title}: {why}")
            return
        if is_used_up(task):
            self._settle_over_budget(tables)
        else:
            self._back_off(tables, BACKOFF, attempts, self.judged.reason)
        errors = [block for block in self.judged.blocks if block.name == "ERROR"]
        if errors and errors[0].fields["recovery"] == "notify_user":
            tables.notify(task.id, self.now, "error", f"{task.title}: {errors[0].fields['message']}")

    def _settle_full(self, tables: Tables) -> None:
        """Continue in a fresh session, with a brief of the conversation that no longer fits the model."""
        if self.task.agent.get("resume_with", self.runtime.options.resume_with) == "history":
            self._settle_failed(tables)
            return
        tables.change(self.task.id, self.now, session="")
        self._settle_crashed(tables)

    def _settle_asked(self, tables: Tables) -> None:
        if hold_for_open_prompts(tables, self.task.id, self.now, self.judged.kind, self.run.id):
            tables.change(self.task.id, self.now, idle=0)
            if self.judged.malformed:
                tables.change(self.task.id, self.now, next_prompt=prompts.aside("\n\n".join(self._corrections())))
            return
        # The agent asks for values that it already has, and would ask for ever.
        names = [block.fields["name"] for block in self.judged.blocks if block.name == "DEPENDENCY_REQUEST"]
        self._count_idle_turn(tables, [f"{name} is already in your environment." for name in names])

    def _settle_denied(self, tables: Tables) -> None:
        why = f"The agent {self.judged.reason}."
        self._move(tables, "hold", hold=APPROVAL, why=why, human=1)
        tables.notify(self.task.id, self.now, "denied", f"{self.task.title}: {why}")

    def _settle_idle(self, tables: Tables) -> None:
        corrections = self._corrections()
        if not corrections:
            corrections = [prompts.not_done(self.task, self.judged.reason)]
        self._count_idle_turn(tables, corrections)

    def _corrections(self) -> list[str]:
        """Return the corrections for blocks that could not be parsed."""
        return [one.answer() for one in self.judged.malformed]

    def _count_idle_turn(self, tables: Tables, corrections: list[str]) -> None:
        """Count a turn without a result as a failed attempt, whatever files it changed: that could go on for ever.

        The next run gets the `corrections`, after a back-off; after the last attempt a person decides.
        """
        tree = self.reference.tree if self.reference is not None else self.task.tree
        idle = self.task.idle + 1
        attempts = idle + len(self.task.crashes)
        tables.change(self.task.id, self.now, idle=idle, tree=tree, next_prompt=prompts.aside("\n\n".join(corrections)))
        if attempts < self.runtime.options.max_attempts:
            self._back_off(tables, BACKOFF, attempts, self.judged.reason)
            return
        why = f"No progress in {attempts} runs: {self.judged.reason}."
        self._move(tables, "hold", hold=STALLED, why=why, human=1, idle=0)
        tables.notify(self.task.id, self.now, "stuck", f"{self.task.title}: {why}")

    def _settle_complete(self, tables: Tables) -> None:
        self._finish(tables, why=self.judged.reason)

    def _finish(self, tables: Tables, **columns: Any) -> None:
        finals.finish(self.runtime, self.task, self.final, self.judged.kind, self.run.id, **columns)
        if self.final is not None:
            finals.notify_done(tables, self.task, self.now)

    def _settle_phase(self, tables: Tables) -> None:
        task = self.task
        phase, last = task.phases[task.phase - 1], task.phase >= len(task.phases)
        most = self.runtime.options.max_attempts
        decided = verdict.gate(self.passed, task.reworks, phase["review"], last, most)
        facts = {"phase": task.phase, "passed": self.passed, "gate": decided.action, "flagged": decided.flagged}
        if self.passed is not None:
            facts["output"] = self.output_text[-LOGGED:]
        tables.log(task.id, self.now, "phase_complete", facts, self.run.id)
        tables.change(task.id, self.now, idle=0)
        if decided.action == "rework":
            command = MARK.sub("[secret]", phase["verify"])  # a mark would become the value when the agent starts
            text = prompts.rework(command, self.output_text, task.reworks + 1, most)
            tables.change(task.id, self.now, reworks=task.reworks + 1, next_prompt=text)
        elif decided.action == "next":
            marked = vault.mark(self.runtime, prompts.next_phase(task, task.phase + 1))
            text = vault.store(tables, task.id, marked, self.now)
            self._move(tables, "next_phase", phase=task.phase + 1, reworks=0, step="", fraction=0.0, next_prompt=text)
        elif decided.action == "finish":
            self._finish(tables)
        else:
            self._review(tables, phase["name"], decided.flagged)

    def _review(self, tables: Tables, name: str, flagged: bool) -> None:
        task = self.task
        id = "a_" + sha256(f"{self.run.id}:approval".encode()).hexdigest()[:12]
        text = f"Phase {task.phase} ({name}) is complete" + (" but its verification still fails." if flagged else ".")
        tree = self.reference.tree if self.reference is not None else ""
        tables.insert(
            "prompt", once=True, id=id, task=task.id, run=self.run.id, kind="approval", key=f"phase {task.phase}", text=text,
            status=PENDING, created_at=self.now, phase=task.phase, tree=tree, flagged=int(flagged), output=self.output_text,
            required=1,
        )  # fmt: skip
        self._move(tables, "phase_complete", why=text, prompt=id, human=1)
        tables.notify(task.id, self.now, "approval", f"{task.title}: {text}", id)


def is_used_up(task: Task, output: Output | None = None) -> bool:
    """Return whether the budget of tokens or money is used up, counting the `output` of a run that the task does not count yet."""
    tokens, money = (output.tokens, output.money) if output is not None else (0, 0.0)
    spent = Spent(task.tokens + tokens, task.money + money, int(task.seconds))
    return used(Budget.of(task.budget), spent)[0] >= 1.0


def _in_a_row(tables: Tables, task: str, outcome: str) -> int:
    count = 0
    for run_outcome in queries.outcomes(tables, task):
        if run_outcome != outcome:
            break
        count += 1
    return max(count, 1)


_WRITERS = {
    verdict.CANCELLED: Settlement._settle_cancelled, verdict.FAILED: Settlement._settle_failed,
    verdict.LIMITED: Settlement._settle_limited, verdict.PAUSED: Settlement._settle_paused,
    verdict.RETRY: Settlement._settle_crashed, verdict.PHASE: Settlement._settle_phase,
    verdict.COMPLETE: Settlement._settle_complete, verdict.ASKED: Settlement._settle_asked,
    verdict.NEEDS: Settlement._settle_asked, verdict.IDLE: Settlement._settle_idle,
    verdict.CRASHED: Settlement._settle_crashed, verdict.BUDGET: Settlement._settle_over_budget,
    verdict.DENIED: Settlement._settle_denied, verdict.FULL: Settlement._settle_full,
}  # fmt: skip
