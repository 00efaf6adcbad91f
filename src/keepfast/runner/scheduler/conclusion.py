"""The last step of a run: judge how it ended, save, verify, and write the outcome in one transaction."""

from __future__ import annotations

from keepfast.model.steps import step
from keepfast.runner.actions import checkpoints, dialogue, finals, logs, metadata, run_outputs
from keepfast.runner.actions.gates import verify
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.db.tables import Overtaken
from keepfast.runner.domain import verdict
from keepfast.runner.domain.protocol import VARIABLES
from keepfast.runner.domain.records import Run, Task
from keepfast.runner.domain.task import ENDED
from keepfast.runner.domain.verdict import Observations, Verdict, gate, judge
from keepfast.runner.process import shims
from keepfast.runner.process.output import Output
from keepfast.runner.scheduler.outcomes import Settlement, is_used_up

TRIGGERS = {
    verdict.CANCELLED: "cancel", verdict.FAILED: "error", verdict.LIMITED: "rate_limit", verdict.PAUSED: "user_pause",
    verdict.RETRY: "error", verdict.PHASE: "phase_complete", verdict.COMPLETE: "final", verdict.ASKED: "question",
    verdict.NEEDS: "secret", verdict.IDLE: "turn", verdict.CRASHED: "crash", verdict.BUDGET: "budget",
    verdict.DENIED: "approval", verdict.FULL: "error",
}  # fmt: skip


def settle(runtime: Runtime, id: str) -> None:
    """Decide what follows from an ended run, and write it. Repeating it changes nothing."""
    tables = runtime.tables
    run = tables.run(id)
    if run.state == ENDED:
        return
    status = shims.status_of(run.folder, id)
    if status.kind == shims.ALIVE:
        return
    if status.kind == shims.LOST:
        shims.end_strays(run.token)
    try:
        task = tables.check_epoch(run)
    except Overtaken:
        with tables.write():
            tables.change_run(id, state=ENDED, outcome="overtaken", ended_at=runtime.now())
        return
    output = run_outputs.read(runtime, run)
    # The exit code of an agent that we ended says nothing about its work.
    output.close(status.exit_code if run.request != verdict.LINGERING else None)
    rebooted = status.kind in (shims.LOST, shims.ABSENT) and run.boot != runtime.boot
    judged = _judge(task, run, status, output)
    step("settle:judged")
    dialogue.save(runtime, run, output)
    _log_start(runtime, run)
    saved = checkpoints.save(runtime, task, run, _reason(judged), f"{id}:{judged.kind}", output)
    step("settle:saved")
    passed, output_text = verify(runtime, task, judged)
    step("settle:verified")
    final = finals.save(runtime, task, run, output) if _is_last(runtime, task, judged, passed) else saved
    step("settle:kept")
    staged = Settlement(runtime, task, run, status, output, judged, saved, passed, output_text, rebooted, final).write()
    step("settle:written")
    for document in staged:
        checkpoints.publish(runtime, document)
    metadata.project(runtime, task.id)
    logs.write(runtime, run)


def _log_start(runtime: Runtime, run: Run) -> None:
    """Log that the agent was started, if it ended before it was observed: before anything that came after its end."""
    pid = shims.agent(run.folder).pid
    if not pid:
        return
    with runtime.tables.write() as tables:
        if tables.run(run.id).live_at:
            return
        at = run_outputs.began_at(runtime, run)
        tables.change_run(run.id, pid=int(pid), live_at=at)
        tables.log(run.task, at, "agent_started", {"pid": int(pid), "session": run.session}, run.id)


def _reason(judged: Verdict) -> str:
    """Return the reason of the checkpoint after this verdict."""
    needs = [block for block in judged.blocks if block.name == "DEPENDENCY_REQUEST"]
    if judged.kind == verdict.NEEDS and not any(block.fields["type"] in VARIABLES for block in needs):
        return "dependency"
    return TRIGGERS[judged.kind]


def _is_last(runtime: Runtime, task: Task, judged: Verdict, passed: bool | None) -> bool:
    """Return whether the task ends with this phase."""
    if judged.kind != verdict.PHASE:
        return False
    review, last = task.phases[task.phase - 1]["review"], task.phase >= len(task.phases)
    return gate(passed, task.reworks, review, last, runtime.options.max_attempts).action == "finish"


def _judge(task: Task, run: Run, look: shims.RunStatus, output: Output) -> Verdict:
    code = look.exit_code if look.kind == shims.OVER else None
    if look.signal is not None:
        code = -look.signal
    seen = Observations(
        exit_code=code,
        stop_reason="cancel" if task.request == "cancel" else run.request,
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
        is_used_up=is_used_up(task, output),
    )
    judged = judge(seen)
    if judged.kind == verdict.COMPLETE and task.phases:
        return judged._replace(kind=verdict.PHASE)
    if judged.kind == verdict.PHASE and not task.phases:
        return judged._replace(kind=verdict.COMPLETE)
    return judged
