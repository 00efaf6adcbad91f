"""Output and duration of a run, read from its folder."""

from __future__ import annotations

import os

from keepfast.runner.actions import vault
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.domain.records import Run
from keepfast.runner.process import shims
from keepfast.runner.process.drivers import driver
from keepfast.runner.process.output import Output, Tail, Transcripts

SECOND = 1_000_000_000


def read(runtime: Runtime, run: Run) -> Output:
    """Return the whole output of a run, from its files."""
    task = runtime.tables.task(run.task)
    # "Resets 3am" counts from when the run ended, which may be hours before it is read.
    said_at = min(shims.status_of(run.folder, run.id).ended_at or runtime.now(), runtime.now())
    how = driver(vault.agent_of(runtime, task), runtime.options)
    output = how.output(said_at / SECOND, runtime.zone)
    for name, feed in files(output):
        tail = Tail(f"{run.folder}/{name}")
        while lines := tail.timed_lines():
            for line, output.at in lines:
                feed(line)
    Transcripts().read(how.transcript(output.session or run.session, runtime.variables), output)
    return output


def duration(runtime: Runtime, run: Run, look: shims.RunStatus) -> float:
    """Return the seconds that a run took: as its shim measured, else by the kernel's clock, and only after a reboot by the
    calendar, which may have been set: that must not use up a budget."""
    if look.seconds is not None:
        return look.seconds
    if run.boot == runtime.boot:
        return age(runtime, run)
    return max((look.ended_at or runtime.now()) - run.started_at, 0) / SECOND


def age(runtime: Runtime, run: Run) -> float:
    """Return the seconds since the agent was started, by the kernel's clock, which nobody can set."""
    start = shims.agent(run.folder).start
    if not start or run.boot != runtime.boot:
        return 0.0
    return max(runtime.since_boot() / SECOND - int(start) / os.sysconf("SC_CLK_TCK"), 0.0)


def began_at(runtime: Runtime, run: Run) -> int:
    """Return when the agent's process began."""
    now = runtime.now()
    return min(max(now - int(age(runtime, run) * SECOND), run.started_at), now)


def files(output: Output):  # type: ignore[no-untyped-def]
    """Return the files in a run's folder that are read line by line, each with the method that takes its lines."""
    return (
        ("out.log", output.feed), ("err.log", output.feed_error), ("tools.jsonl", output.feed_call),
        ("failures.jsonl", output.feed_failure),
    )  # fmt: skip
