"""What follows from a run that was judged: the rows of every outcome, written in one transaction."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from holdfast.supervisor import documents, fullness, process, runs, telling, verdict
from holdfast.supervisor.asking import ask, hold_open
from holdfast.supervisor.checkpoints import Taken
from holdfast.supervisor.drivers import driver
from holdfast.supervisor.limits import LimitHit
from holdfast.supervisor.questions import PENDING
from holdfast.supervisor.reading import Output
from holdfast.supervisor.tables import Overtaken, Run, Tables, Task
from holdfast.supervisor.task import APPROVAL, BACKOFF, BUDGET, CRASHED, ENDED, RATE_LIMIT, USER_PAUSE
from holdfast.supervisor.verdict import Verdict
from holdfast.supervisor.waits import NO_PROGRESS, backoff, is_loop, jitter, stagger

if TYPE_CHECKING:
    from holdfast.supervisor.ground import Ground

SECOND = 1_000_000_000
LOGGED = 4_000
RESTARTING = "Task could not be restored from checkpoint. Restarting from beginning."
LOST_SESSION = ("No conversation found", "already in use", "no_conversation")
CUT_OFF = (verdict.CRASHED, verdict.LIMITED, verdict.PAUSED, verdict.RETRY, verdict.BUDGET, verdict.FULL)


class Settlement:
    """What follows from one judged run, written in one transaction."""

    def __init__(
        self,
        ground: Ground,
        task: Task,
        run: Run,
        look: process.Look,
        output: Output,
        judged: Verdict,
        taken: Taken | None,
        passed: bool | None,
        shown: str,
        rebooted: bool,
    ) -> None:
        self.ground, self.task, self.run, self.look, self.output, self.judged = ground, task, run, look, output, judged
        self.taken, self.passed, self.shown, self.rebooted = taken, passed, shown, rebooted
        self.now = ground.now()

    def write(self) -> None:
        with self.ground.tables.write() as tables:
            try:
                self.task = tables.check_epoch(self.run)
            except Overtaken:
                tables.change_run(self.run.id, state=ENDED, outcome="overtaken", ended_at=self.now)
                return
            if tables.run(self.run.id).state == ENDED:
                return
            self._end_run(tables)
            for block in self.judged.blocks:
                ask(self.ground, self.task, self.run, self.now, block)
            _FOLLOWS[self.judged.kind](self, tables)

    # The run itself

    def _end_run(self, tables: Tables) -> None:
        run, output = self.run, self.output
        left = [f"{tool.name} {tool.what}".strip() for tool in output.tools.values()]
        outcome = "host_restart" if self.rebooted and self.judged.kind == verdict.CRASHED else self.judged.kind
        seconds = runs.lasted(self.ground, run, self.look)
        tables.change_run(
            run.id, state=ENDED, outcome=outcome, reason=self.judged.reason[:2000], ended_at=self.now,
            exit_code=self.look.exit_code, tokens=output.tokens, money=output.money, left=left, said=output.last_said(),
        )  # fmt: skip
        session = output.session or run.session
        tables.change(
            self.task.id, self.now, tokens=self.task.tokens + output.tokens, money=self.task.money + output.money,
            seconds=self.task.seconds + seconds, session=session, wanted="", step=output.step or self.task.step,
            fraction=output.fraction,
        )  # fmt: skip
        remembers = output.began and driver(self.task.agent, self.ground.options).can_resume
        remembers = remembers and self.judged.kind != verdict.FULL
        if self.judged.kind in CUT_OFF and not remembers:
            # The agent never read its prompt, or cannot remember it: what was in it is delivered again.
            tables.do("UPDATE prompt SET delivered = '' WHERE delivered = ?", run.id)
        elif self.task.next_prompt:
            tables.change(self.task.id, self.now, next_prompt="")
        facts = {
            "outcome": outcome,
            "exit": self.look.exit_code,
            "reason": self.judged.reason[:500],
            "tokens": output.tokens,
        }
        fullness.tell(self.ground, run, output, fullness.told(self.ground, run))
        tables.log(self.task.id, self.now, "agent_ended", facts, run.id)
        self.task = tables.task(self.task.id)

    # What follows

    def _move(self, tables: Tables, action: str, **columns: Any) -> None:
        tables.move(self.task.id, action, self.now, trigger=self.judged.kind, run=self.run.id, **columns)

    def _cancelled(self, tables: Tables) -> None:
        self._move(tables, "cancel", why=self.judged.reason)

    def _failed(self, tables: Tables) -> None:
        self._move(tables, "fail", why=self.judged.reason)
        tables.notify(self.task.id, self.now, "failed", f"{self.task.title} failed: {self.judged.reason}")

    def _paused(self, tables: Tables) -> None:
        self._move(tables, "hold", hold=USER_PAUSE, why=self.judged.reason, human=1)

    def _over_budget(self, tables: Tables) -> None:
        self._move(tables, "hold", hold=BUDGET, why="The budget is used up.", human=1)
        tables.notify(self.task.id, self.now, "budget", f"{self.task.title}: the budget is used up.")

    def _limited(self, tables: Tables) -> None:
        limit = self.output.limit
        assert limit is not None
        account = self.run.account + (f":{limit.model}" if limit.model else "")
        if limit.needs_human:
            self._limit_account(tables, account, 0, limit)
            self._move(tables, "hold", hold=RATE_LIMIT, why=limit.raw, human=1, account=account)
            tables.notify(self.task.id, self.now, "limit", f"{self.task.title} needs you: {limit.raw}")
            return
        if not verdict.waits_by_clock(limit):
            count = _in_a_row(tables, self.task.id, verdict.LIMITED)
            self._back_off(tables, count, f"limited: {limit.raw}", account)
            return
        windows = self.task.windows + int(verdict.counts_as_window(limit))
        if windows > int(self.task.agent.get("limit_windows", self.ground.options.max_windows)):
            self._move(
                tables,
                "hold",
                hold=RATE_LIMIT,
                why=f"{windows - 1} limits were waited for already",
                human=1,
                account=account,
            )
            tables.notify(
                self.task.id, self.now, "limit", f"{self.task.title} was limited {windows} times; it waits for you."
            )
            return
        assert limit.resets_at is not None
        options = self.ground.options
        resets = int(limit.resets_at * SECOND)
        self._limit_account(tables, account, resets, limit)
        least, most = int(options.limit_jitter_least * SECOND), int(options.limit_jitter_most * SECOND)
        # Seconds of a short limit are not made minutes.
        wait = min(jitter(self.ground.noise(), least, most), max(resets - self.now, SECOND))
        others = [
            hold.due_at
            for hold in tables.holds()
            if hold.account == account and hold.due_at and hold.task != self.task.id
        ]
        due = stagger(others, resets + wait, int(options.stagger * SECOND))
        self._move(tables, "hold", hold=RATE_LIMIT, why=limit.raw, due_at=due, account=account, windows=windows)
        tables.notify(
            self.task.id, self.now, "limit", f"{self.task.title} waits for its limit until {documents.moment(due)}."
        )

    def _limit_account(self, tables: Tables, account: str, until: int, limit: LimitHit) -> None:
        tables.do(
            "INSERT INTO account VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET due_at = excluded.due_at, "
            "human = excluded.human, reason = excluded.reason, since = excluded.since",
            account, until, int(limit.needs_human), limit.raw, self.now,
        )  # fmt: skip

    def _back_off(self, tables: Tables, count: int, why: str, account: str = "") -> None:
        options = self.ground.options
        wait = backoff(count, int(options.backoff_first * SECOND), int(options.backoff_longest * SECOND))
        self._move(
            tables, "hold", hold=BACKOFF, why=why, due_at=self.now + wait, due_boot=self.ground.since_boot() + wait,
            boot=self.ground.boot, account=account,
        )  # fmt: skip

    def _crashed(self, tables: Tables) -> None:
        task = self.task
        if self.rebooted:
            return  # the machine went down, not the agent: it goes on as soon as there is room
        if self.run.resume and any(word in self.judged.reason for word in LOST_SESSION):
            self._begin_anew(tables)
            return
        crashes = [*task.crashes[-20:], self.now]
        tables.change(task.id, self.now, crashes=crashes)
        options = self.ground.options
        if is_loop(crashes, self.now, options.crash_loop, int(options.crash_loop_span * SECOND)):
            why = f"crashed {len(crashes)} times in a row: {self.judged.reason}"
            self._move(tables, "fail", why=why)
            tables.notify(task.id, self.now, "failed", f"{task.title} {why}")
            return
        recent = [at for at in crashes if self.now - at <= int(options.crash_loop_span * SECOND)]
        self._back_off(tables, max(len(recent), 1), self.judged.reason)
        errors = [block for block in self.judged.blocks if block.name == "ERROR"]
        if errors and errors[0].fields["recovery"] == "notify_user":
            tables.notify(task.id, self.now, "error", f"{task.title}: {errors[0].fields['message']}")

    def _full(self, tables: Tables) -> None:
        """A conversation that no longer fits is left behind: a fresh session is told a brief of it."""
        if self.task.agent.get("resume_with", self.ground.options.resume_with) == "history":
            self._failed(tables)
            return
        tables.change(self.task.id, self.now, session="")
        self._crashed(tables)

    def _begin_anew(self, tables: Tables) -> None:
        """The session cannot be gone on with: a fresh one, once; the second time a person decides."""
        restores = self.task.restores + 1
        tables.change(self.task.id, self.now, session="", restores=restores)
        facts = {"checkpointId": None, "success": False, "messages_restored": 0, "environment_variables": 0}
        tables.log(self.task.id, self.now, "checkpoint_restored", facts, self.run.id)
        tables.notify(self.task.id, self.now, "warning", RESTARTING)
        if restores > 1:
            self._move(
                tables, "hold", hold=CRASHED, why="The session could not be restored for the second time.", human=1
            )

    def _asked(self, tables: Tables) -> None:
        hold_open(tables, self.task.id, self.now, self.judged.kind, self.run.id)

    def _denied(self, tables: Tables) -> None:
        why = f"The agent {self.judged.reason}."
        self._move(tables, "hold", hold=APPROVAL, why=why, human=1)
        tables.notify(self.task.id, self.now, "denied", f"{self.task.title}: {why}")

    def _idle(self, tables: Tables) -> None:
        tree = self.taken.tree if self.taken is not None else self.task.tree
        idle = self.task.idle + 1 if tree == self.task.tree else 1
        said = [one.answer() for one in self.judged.malformed]
        if not said:
            said = [
                "You ended your turn without completing the phase. Go on, or say what stops you.\n"
                + telling.completion(self.task)
            ]
        tables.change(self.task.id, self.now, idle=idle, tree=tree, next_prompt="\n\n".join(said))
        if idle >= NO_PROGRESS:
            why = f"No progress in {idle} runs: {self.judged.reason}."
            self._move(tables, "hold", hold=CRASHED, why=why, human=1, idle=0)
            tables.notify(self.task.id, self.now, "stuck", f"{self.task.title}: {why}")
        else:
            hold_open(tables, self.task.id, self.now, self.judged.kind, self.run.id)

    def _complete(self, tables: Tables) -> None:
        self._move(tables, "finish", why=self.judged.reason)
        tables.notify(self.task.id, self.now, "done", f"{self.task.title} is done.")

    def _phase(self, tables: Tables) -> None:
        task = self.task
        phase, last = task.phases[task.phase - 1], task.phase >= len(task.phases)
        most = self.ground.options.max_attempts
        decided = verdict.gate(self.passed, task.reworks, phase["review"], last, most)
        facts = {"phase": task.phase, "passed": self.passed, "gate": decided.action, "flagged": decided.flagged}
        if self.passed is not None:
            facts["output"] = self.shown[-LOGGED:]
        tables.log(task.id, self.now, "phase_complete", facts, self.run.id)
        tables.change(task.id, self.now, crashes=[], idle=0)
        if decided.action == "rework":
            text = telling.rework(self.shown, task.reworks + 1, most)
            tables.change(task.id, self.now, reworks=task.reworks + 1, next_prompt=text)
        elif decided.action == "next":
            text = telling.next_phase(task, task.phase + 1)
            self._move(tables, "next_phase", phase=task.phase + 1, reworks=0, fraction=0.0, next_prompt=text)
        elif decided.action == "finish":
            self._move(tables, "finish")
            tables.notify(task.id, self.now, "done", f"{task.title} is done.")
        else:
            self._review(tables, phase["name"], decided.flagged)

    def _review(self, tables: Tables, name: str, flagged: bool) -> None:
        task = self.task
        id = "a_" + sha256(f"{self.run.id}:approval".encode()).hexdigest()[:12]
        text = f"Phase {task.phase} ({name}) is complete" + (" but its verification still fails." if flagged else ".")
        tree = self.taken.tree if self.taken is not None else ""
        tables.do(
            "INSERT INTO prompt (id, task, run, kind, key, text, status, created_at, phase, tree, flagged, output, "
            "required) VALUES (?, ?, ?, 'approval', ?, ?, ?, ?, ?, ?, ?, ?, 1) ON CONFLICT DO NOTHING",
            id, task.id, self.run.id, f"phase {task.phase}", text, PENDING, self.now, task.phase, tree, int(flagged), self.shown,
        )  # fmt: skip
        self._move(tables, "phase_complete", why=text, prompt=id, human=1)
        tables.notify(task.id, self.now, "approval", f"{task.title}: {text}", id)


def _in_a_row(tables: Tables, task: str, outcome: str) -> int:
    count = 0
    for row in tables.all(
        "SELECT outcome FROM run WHERE task = ? AND state = 'ended' ORDER BY number DESC LIMIT 40", task
    ):
        if row["outcome"] != outcome:
            break
        count += 1
    return max(count, 1)


_FOLLOWS = {
    verdict.CANCELLED: Settlement._cancelled, verdict.FAILED: Settlement._failed, verdict.LIMITED: Settlement._limited,
    verdict.PAUSED: Settlement._paused, verdict.RETRY: Settlement._crashed, verdict.PHASE: Settlement._phase,
    verdict.COMPLETE: Settlement._complete, verdict.ASKED: Settlement._asked, verdict.NEEDS: Settlement._asked,
    verdict.IDLE: Settlement._idle, verdict.CRASHED: Settlement._crashed, verdict.BUDGET: Settlement._over_budget,
    verdict.DENIED: Settlement._denied, verdict.FULL: Settlement._full,
}  # fmt: skip
