"""The gate of a phase: its verification command, run where the agent worked."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

from holdfast.supervisor import verdict
from holdfast.supervisor.sealing import opened, struck_out
from holdfast.supervisor.tables import Task
from holdfast.supervisor.verdict import Verdict

if TYPE_CHECKING:
    from holdfast.supervisor.ground import Ground

OUTPUT = 20_000


def verify(ground: Ground, task: Task, judged: Verdict) -> tuple[bool | None, str]:
    """Run the phase's verification command; None if it has none."""
    command = task.phases[task.phase - 1]["verify"] if judged.kind == verdict.PHASE else ""
    if not command:
        return None, ""
    secrets = opened(ground, task)
    environment = {
        name: value
        for name, value in ground.variables.items()
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
        out, _ = child.communicate(timeout=ground.options.verify_timeout)
        passed = child.returncode == 0
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        out, _ = child.communicate()
        out += f"\nThe verification took longer than {ground.options.verify_timeout:.0f} s and was ended.".encode()
        passed = False
    return passed, struck_out(out.decode("utf-8", "replace"), secrets.values())[-OUTPUT:]
