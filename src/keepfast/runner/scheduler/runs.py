"""The first steps of a run, baseline and spawn. Each can be interrupted and repeated."""

from __future__ import annotations

import os
from contextlib import suppress

from keepfast.model.errors import KeepfastError
from keepfast.model.steps import step
from keepfast.runner.actions import checkpoints, vault
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.actions.seals import environment_values
from keepfast.runner.db.tables import Overtaken
from keepfast.runner.domain import prompts
from keepfast.runner.domain.records import Run, Task
from keepfast.runner.domain.task import STARTING
from keepfast.runner.process import shims
from keepfast.runner.process.drivers import driver
from keepfast.runner.process.redaction import clean_text, is_secret
from keepfast.runner.process.run_folder import write_file

SECOND = 1_000_000_000
PROMPT_FILE = "KEEPFAST_PROMPT_FILE"
"""The variable that names the file with the whole prompt, for agents that are arbitrary commands."""
ROOM = 1 << 20
"""Minimum free bytes on the disk for an agent to start."""


def baseline(runtime: Runtime, id: str) -> None:
    """Save the workspace before the first run, so that it can always be restored."""
    run = runtime.tables.run(id)
    if run.number == 1 and run.state == STARTING:
        checkpoints.take(runtime, runtime.tables.task(run.task), run, "start", f"{run.task}:start")


def spawn(runtime: Runtime, id: str) -> None:
    """Start the shim, unless the run's folder shows that it was started.

    Raises the error that keeps the task's secrets from being decrypted for now; the run stays as it is for a retry.
    """
    run = runtime.tables.run(id)
    if run.state != STARTING or shims.status_of(run.folder, id).kind != shims.ABSENT:
        return
    try:
        task = runtime.tables.check_epoch(run)
    except Overtaken:
        return
    os.makedirs(run.folder, mode=0o700, exist_ok=True)
    try:
        how = driver(vault.open_agent(runtime, task), runtime.options)
        secrets, hidden = environment_values(runtime, task), vault.secret_values(runtime, task)
        prompt = vault.reveal(runtime, task.id, run.prompt)
        standard_input = vault.reveal(runtime, task.id, prompts.standard_input(task, run.prompt))
    except KeepfastError as error:
        if vault.why_unavailable(runtime, task):
            raise
        _report_not_started(run, str(error))
        return
    why = how.check(runtime.variables) or why_not_runnable(task)
    if why:
        _report_not_started(run, why)
        return
    launch = how.launch(task, run, runtime.variables, secrets, runtime.folders)
    # Hooks that people installed are suspended only if they have this run's token and belong to the client that this run guards.
    run_files = {"prompt": run.prompt, "token": run.token, "client": how.client}
    for name, text in {**launch.files, **run_files}.items():
        _write(f"{run.folder}/{name}", text)
    hidden += [value for name, value in launch.environment.items() if is_secret(name, value)]
    job = {
        "run": id,
        "command": launch.command,
        "cwd": task.workspace,
        "environment": launch.environment,
        "prompt": prompt,
        "input": standard_input,
        "prompt_variable": "" if how.client else PROMPT_FILE,
        "secrets": sorted({value for value in hidden if value}),
        "grace": runtime.options.stop_grace,
        "freezer": runtime.options.freezer,
    }
    step("run:spawning")
    shims.start(run.folder, job)
    step("run:spawned")


def why_not_runnable(task: Task) -> str:
    """Return why no agent can work in the workspace; empty if one can."""
    if not os.path.isdir(task.workspace):
        return f"Workspace validation failed: there is no folder {task.workspace}."
    if _is_full(task.workspace):
        return f"No space left on the disk of {task.workspace}: free some space, then resume the task."
    return ""


def _is_full(folder: str) -> bool:
    """Return whether the disk has no space for an agent; one that does not count its blocks or files is never full."""
    disk = os.statvfs(folder)
    blocks = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail
    files = disk.f_ffree if os.geteuid() == 0 else disk.f_favail
    return (disk.f_blocks > 0 and blocks * disk.f_frsize < ROOM) or (disk.f_files > 0 and files == 0)


def _report_not_started(run: Run, why: str) -> None:
    """Write the exit report in place of the shim: the agent could not be started."""
    report = {"run": run.id, "exit": None, "signal": None, "reason": clean_text(why), "started": False}
    write_file(f"{run.folder}/exit.json", report)


def _write(path: str, text: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
