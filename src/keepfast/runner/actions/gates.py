"""The verification command of a phase, run in the workspace."""

from __future__ import annotations

import os
import signal
import subprocess

from keepfast.runner.actions import vault
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.actions.seals import environment_values, redact_spellings
from keepfast.runner.domain import verdict
from keepfast.runner.domain.records import Task
from keepfast.runner.domain.verdict import Verdict
from keepfast.runner.process.redaction import Lines

OUTPUT, LOOKED_AT = 20_000, 1 << 20
"""Characters of the output that are kept, and bytes of its end that are redacted first."""


def verify(runtime: Runtime, task: Task, judged: Verdict) -> tuple[bool | None, str]:
    """Run the phase's verification command; return whether it passed (None if there is none) and its output."""
    command = task.phases[task.phase - 1]["verify"] if judged.kind == verdict.PHASE else ""
    if not command:
        return None, ""
    secrets, hidden = environment_values(runtime, task), vault.secret_values(runtime, task)
    command = vault.reveal(runtime, task.id, command)
    environment = {
        name: value
        for name, value in runtime.variables.items()
        if name in ("PATH", "HOME", "LANG", "TERM", "TZ", "TMPDIR")
    }
    try:
        child = subprocess.Popen(
            ["/bin/sh", "-c", command],
            cwd=task.workspace,
            env={**environment, **secrets},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return False, f"The verification could not be started: {error.strerror}."
    try:
        out, _ = child.communicate(timeout=runtime.options.verify_timeout)
        passed = child.returncode == 0
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        out, _ = child.communicate()
        out += f"\nThe verification took longer than {runtime.options.verify_timeout:.0f} s and was stopped.".encode()
        passed = False
    return passed, _redacted_end(out, hidden)


def _redacted_end(out: bytes, hidden: list[str]) -> str:
    """Return the end of an output: redacted first, cut afterwards."""
    end = out[-LOOKED_AT:].partition(b"\n")[2] if len(out) > LOOKED_AT else out
    return (
        Lines()
        .clean(redact_spellings(end.decode("utf-8", "replace"), hidden).encode())
        .decode("utf-8", "replace")[-OUTPUT:]
    )
