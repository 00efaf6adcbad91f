"""The machine restarts: processes end at once, clocks and process ids begin anew, and there is another boot id."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.faults.disks import needs

KEEPFAST = str(Path(sys.executable).with_name("keepfast"))
AGENTS = {
    "works": "echo begun >> begun; [ $(wc -l < begun) = 1 ] && sleep 600; echo '=== CUSTOM TASK COMPLETE ==='",
    "asks": "echo begun >> begun; printf '[USER_QUESTION]\\nquestion: Which one?\\nrequired: true\\n[/USER_QUESTION]\\n'",
    "fails": "echo begun >> begun; [ $(wc -l < begun) = 1 ] && exit 3; echo '=== CUSTOM TASK COMPLETE ==='",
}
TASKS = {"active": "works", "paused": "works", "frozen": "works", "question": "asks", "backoff": "fails"}
FIRST, SECOND = 1_000_000, 0
"""Seconds that the clock since boot is ahead: after the restart it shows less than before."""


class Machine:
    """A home on a machine that can lose its power: each boot is a set of namespaces of its own."""

    def __init__(self, base: Path) -> None:
        self.base, self.home = base, base / "home"
        self.home.mkdir()
        self.variables = {"HOME": str(self.home), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8"}
        self.boot: subprocess.Popen[bytes] | None = None
        self.boots = 0

    def start(self, ahead: int) -> None:
        """Boot, with a supervisor."""
        self.boots += 1
        (self.base / "boot_id").write_text(f"boot-{self.boots}\n")
        script = (
            f'''mount --bind "{self.base}/boot_id" /proc/sys/kernel/random/boot_id && exec "{KEEPFAST}" supervise'''
        )
        namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--time"]
        with (self.base / f"supervisor-{self.boots}.log").open("wb") as log:
            self.boot = subprocess.Popen(
                [*namespaces, "--boottime", str(ahead), "sh", "-c", script],
                env=self.variables,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def lose_power(self) -> None:
        """End every process of this boot at once, without a word to any."""
        if self.boot is not None:
            self.boot.kill()  # the kernel ends all others with the first of them
            self.boot.wait()
            self.boot = None

    def keepfast(self, *arguments: str) -> Any:
        done = subprocess.run(
            [KEEPFAST, *arguments, "--json"], env=self.variables, cwd=self.home, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def states(self) -> dict[str, tuple[str, str]]:
        return {
            task["title"]: (task["status"], (task["hold"] or {}).get("kind", ""))
            for task in self.keepfast("task", "list")
        }

    def wait(self, wanted: dict[str, tuple[str, str]]) -> None:
        until = time.monotonic() + 90
        while (states := self.states()) != wanted:
            assert time.monotonic() < until, (states, wanted)
            time.sleep(0.3)

    def begun(self, task: str) -> int:
        return len((self.base / task / "begun").read_text().splitlines())


@needs("unshare", "mount")
def test_what_people_and_timers_decided_survives_a_restart_of_the_machine(tmp_path: Path) -> None:
    """Whatever a person stopped stays stopped, what waits goes on waiting, and interrupted work goes on by itself."""
    machine = Machine(tmp_path)
    for title, agent in TASKS.items():
        (tmp_path / title).mkdir()
        script = tmp_path / f"{agent}.sh"
        script.write_text(f"cat > /dev/null; {AGENTS[agent]}\n")
        machine.keepfast(
            "task", "new", "Do it.", "--title", title, "--workspace", str(tmp_path / title), "--agent", f"sh {script}"
        )
    waiting = {
        "paused": ("paused", "user_pause"), "frozen": ("paused", "user_pause"), "question": ("waiting_question", "question"),
    }  # fmt: skip
    try:
        machine.start(FIRST)
        machine.wait(
            {
                **dict.fromkeys(("active", "paused", "frozen"), ("in_progress", "")),
                "question": waiting["question"],
                "backoff": ("paused", "backoff"),
            }
        )
        machine.keepfast("task", "pause", "paused")
        machine.keepfast("task", "freeze", "frozen")
        machine.wait({"active": ("in_progress", ""), **waiting, "backoff": ("paused", "backoff")})
        machine.lose_power()
        machine.start(SECOND)
        machine.wait({"active": ("completed", ""), **waiting, "backoff": ("completed", "")})

        assert {title: machine.begun(title) for title in TASKS} == {
            "active": 2,
            "paused": 1,
            "frozen": 1,
            "question": 1,
            "backoff": 2,
        }
        for title in ("paused", "frozen"):
            machine.keepfast("task", "resume", title)
        machine.wait(
            {
                **dict.fromkeys(("active", "paused", "frozen", "backoff"), ("completed", "")),
                "question": waiting["question"],
            }
        )
    finally:
        machine.lose_power()
