"""The last step of a run attempt: judge how it ended, keep what there is, and write what follows, all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.steps import step
from holdfast.supervisor import checkpoints, documents, logs, process, runs, verdict
from holdfast.supervisor.following import Settlement
from holdfast.supervisor.gates import verify
from holdfast.supervisor.reading import Output
from holdfast.supervisor.tables import Overtaken, Run, Task
from holdfast.supervisor.task import DONE, ENDED
from holdfast.supervisor.verdict import Seen, Verdict, judge

if TYPE_CHECKING:
    from holdfast.supervisor.ground import Ground

TRIGGERS = {
    verdict.CANCELLED: "cancel", verdict.FAILED: "error", verdict.LIMITED: "rate_limit", verdict.PAUSED: "user_pause",
    verdict.RETRY: "error", verdict.PHASE: "phase_complete", verdict.COMPLETE: "final", verdict.ASKED: "question",
    verdict.NEEDS: "secret", verdict.IDLE: "turn", verdict.CRASHED: "crash", verdict.BUDGET: "budget",
    verdict.DENIED: "question", verdict.FULL: "error",
}  # fmt: skip


def settle(ground: Ground, id: str) -> None:
    """Decide what follows from a run that has ended, and write it. Done twice, it does nothing the second time."""
    tables = ground.tables
    run = tables.run(id)
    if run.state == ENDED:
        return
    look = process.look(run.folder, id)
    if look.kind == process.ALIVE:
        return
    if look.kind == process.LOST:
        process.end_strays(run.token)
    try:
        task = tables.check_epoch(run)
    except Overtaken:
        with tables.write():
            tables.change_run(id, state=ENDED, outcome="overtaken", ended_at=ground.now())
        return
    output = runs.read(ground, run)
    output.close(look.exit_code)
    rebooted = look.kind in (process.LOST, process.ABSENT) and run.boot != ground.boot
    judged = _judge(task, run, look, output)
    step("settle:judged")
    taken = checkpoints.take(ground, task, run, TRIGGERS[judged.kind], f"{id}:{judged.kind}", output)
    step("settle:saved")
    passed, shown = verify(ground, task, judged)
    step("settle:verified")
    Settlement(ground, task, run, look, output, judged, taken, passed, shown, rebooted).write()
    step("settle:written")
    keep_final(ground, task.id, run)
    documents.project(ground, task.id)
    logs.write(ground, run)


def keep_final(ground: Ground, id: str, run: Run | None = None) -> None:
    """The state in which a task was finished, kept for good; once for each time that it is."""
    task = ground.tables.task(id)
    if task.state == DONE and task.phases:
        checkpoints.take(ground, task, run, "final", f"{id}:final:{task.epoch}")


def _judge(task: Task, run: Run, look: process.Look, output: Output) -> Verdict:
    code = look.exit_code if look.kind == process.OVER else None
    if look.signal is not None:
        code = -look.signal
    seen = Seen(
        exit_code=code,
        wanted=run.wanted or ("cancel" if task.wanted == "cancel" else ""),
        blocks=tuple(output.blocks),
        limit=output.limit,
        error=output.error,
        error_text=output.error_text,
        failed=output.failed,
        denials=tuple(output.denials),
        phase=task.phase,
        phases=max(len(task.phases), 1),
        completes_on_exit=task.agent.get("completes_on") == "exit",
        never_started=look.reason if not look.started else "",
    )
    judged = judge(seen)
    if judged.kind == verdict.COMPLETE and task.phases:
        return judged._replace(kind=verdict.PHASE)
    if judged.kind == verdict.PHASE and not task.phases:
        return judged._replace(kind=verdict.COMPLETE)
    return judged
