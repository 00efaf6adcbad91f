"""`make demo-task`: a scripted agent works unattended: a question, an approval, a limit, a pause; no key, no network."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BOLD, DIM, RESET = ("\x1b[1m", "\x1b[2m", "\x1b[0m") if sys.stdout.isatty() else ("", "", "")
KEEPFAST = [sys.executable, "-m", "keepfast"]
AGENT = Path(__file__).with_name("scripted_agent.py")
QUESTION = (
    "[USER_QUESTION]\ncategory: choice\nquestion: Which greeting should the program use?\noptions:\n"
    "  - Hello\n  - Good morning\nrequired: true\n[/USER_QUESTION]"
)


class Demo:
    def __init__(self, folder: Path) -> None:
        self.folder, self.project = folder, folder / "project"
        for name in ("project", "home"):
            (folder / name).mkdir()
        self.environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(folder / "home"),
            "LANG": "C.UTF-8",
            "TERM": os.environ.get("TERM", "dumb"),
            "COLUMNS": "120",
        }
        self.id = ""

    def say(self, text: str) -> None:
        print(f"\n{BOLD}# {text}{RESET}", flush=True)

    def run(self, *words: str) -> None:
        shown = " ".join(f"'{word}'" if " " in word else word for word in words)
        print(f"{DIM}${RESET} keepfast {shown}", flush=True)
        subprocess.run([*KEEPFAST, *words], cwd=self.project, env=self.environment, check=True)

    def ask(self, *words: str) -> Any:
        done = subprocess.run(
            [*KEEPFAST, *words, "--json"], cwd=self.project, env=self.environment, check=True, capture_output=True
        )
        return json.loads(done.stdout)

    def wait(self, until: Callable[[dict[str, Any]], bool], seconds: float = 180) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while True:
            task: dict[str, Any] = self.ask("task", "show", self.id)
            if until(task):
                return task
            if time.monotonic() > end:
                raise SystemExit(f"The demonstration is stuck: {json.dumps(task, indent=1)}")
            time.sleep(0.3)


def script(demo: Demo) -> Path:
    """What the agent does, turn by turn."""
    go = demo.folder / "go"
    turns = [
        [{"write": ["PLAN.md", "1. greet\n"]}, {"say": QUESTION}],
        [{"write": ["PLAN.md", "1. greet politely\n"]}, {"say": "=== PHASE 1 COMPLETE ===\nReady for review."}],
        [{"write": ["greet.py", "print('Good morning')\n"]}, {"limited": 4}, {"exit": 1}],
        [{"say": "Working…"}, {"wait_for": str(go)}, {"say": "=== PHASE 2 COMPLETE ===\nReady for review."}],
    ]
    path = demo.folder / "script.json"
    path.write_text(json.dumps({"turns": turns}))
    return path


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="keepfast-demo-"))
    demo = Demo(folder)
    supervisor = subprocess.Popen([*KEEPFAST, "-q", "supervise"], cwd=folder, env=demo.environment)
    try:
        play(demo)
        return 0
    finally:
        (folder / "go").touch()  # do not wait for an agent that outlives this process
        supervisor.send_signal(signal.SIGTERM)
        supervisor.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def play(demo: Demo) -> None:
    demo.say("A task of two phases; the agent is a script, so neither key nor network is needed")
    command = [sys.executable, str(AGENT), str(script(demo)), str(demo.folder / "journal")]
    phases = [
        {"name": "Plan", "prompt": "Write PLAN.md.", "review": True},
        {"name": "Build", "prompt": "Write greet.py.", "verify": "python3 greet.py", "review": False},
    ]
    task = {
        "title": "A polite program",
        "brief": "Write a program that greets.",
        "agent": {"command": command},
        "phases": phases,
    }
    (demo.project / "task.json").write_text(json.dumps(task))
    demo.run("task", "new", "--file", "task.json")
    demo.id = demo.ask("task", "list")[0]["id"]

    demo.say("It asks something, and waits")
    demo.wait(lambda task: task["status"] == "waiting_question")
    demo.run("task", "inbox")
    demo.run("task", "answer", demo.id, "good morning")

    demo.say("Phase 1 is complete: look at it, and approve")
    demo.wait(lambda task: task["status"] == "review")
    demo.run("task", "list")
    demo.run("task", "approve", demo.id)

    demo.say("The account is limited for some seconds; the task waits and goes on by itself")
    held = demo.wait(lambda task: task["status"] == "waiting_rate_limit" or len(task["runs"]) == 4)["hold"]
    if held is not None:  # on a busy machine the limit may end before this check
        print(f"  {held['reason']}: {held['seconds_left']} s left")
        demo.run("task", "list")
    demo.wait(lambda task: task["agent_status"] == "running" and len(task["runs"]) == 4)

    demo.say("Pause it: the process ends, nothing is lost")
    demo.run("task", "pause", demo.id)
    demo.wait(lambda task: task["hold"] is not None and task["hold"]["kind"] == "user_pause")
    demo.run("task", "show", demo.id)
    (demo.folder / "go").touch()
    demo.run("task", "resume", demo.id)

    demo.say("And to its end, with a verification command in between")
    demo.wait(lambda task: task["status"] == "completed")
    demo.run("list")
    demo.run("report")


if __name__ == "__main__":
    sys.exit(main())
