"""The steps of one run attempt: baseline, spawn, observe. Each can be cut off anywhere and done again."""

from __future__ import annotations

import os
import select
from contextlib import suppress
from threading import Event as Flag
from time import monotonic
from typing import TYPE_CHECKING

from holdfast.core.errors import HoldfastError
from holdfast.core.steps import step
from holdfast.supervisor import checkpoints, fullness, process
from holdfast.supervisor.drivers import driver
from holdfast.supervisor.limits import LimitNear
from holdfast.supervisor.reading import Output, Tail
from holdfast.supervisor.run_folder import write_file
from holdfast.supervisor.sealing import opened
from holdfast.supervisor.tables import Overtaken, Run, Task
from holdfast.supervisor.task import ENDED, LIVE, STARTING, STOPPING
from holdfast.supervisor.waits import Budget, Spent, nudge, used

if TYPE_CHECKING:
    from holdfast.supervisor.ground import Ground

SECOND = 1_000_000_000
POLL = 0.2
ASK = 0.5
TELL = 5.0
AFTER_GRACE = 20.0
ROOM = 1 << 20
"""Free bytes with which an agent may begin."""


def baseline(ground: Ground, id: str) -> None:
    """Save the workspace as it was before the first run: whatever an agent does, that comes back."""
    run = ground.tables.run(id)
    if run.number == 1 and run.state == STARTING:
        checkpoints.take(ground, ground.tables.task(run.task), run, "start", f"{run.task}:start")


def spawn(ground: Ground, id: str) -> None:
    """Start the shim, unless the run's folder shows that it was started."""
    run = ground.tables.run(id)
    if run.state != STARTING or process.look(run.folder, id).kind != process.ABSENT:
        return
    try:
        task = ground.tables.check_epoch(run)
    except Overtaken:
        return
    how = driver(task.agent, ground.options)
    why = how.check(ground.variables) or missing(task)
    os.makedirs(run.folder, mode=0o700, exist_ok=True)
    if why:
        _never(run, why)
        return
    try:
        secrets = opened(ground, task)
    except HoldfastError as error:
        _never(run, str(error))
        return
    launch = how.launch(task, run, ground.variables, secrets)
    for name, text in {**launch.files, "prompt": run.prompt}.items():
        _write(f"{run.folder}/{name}", text)
    job = {
        "run": id,
        "command": launch.command,
        "cwd": task.workspace,
        "environment": launch.environment,
        "stdin": f"{run.folder}/prompt",
        "secrets": [value for value in secrets.values() if value],
        "grace": ground.options.stop_grace,
        "freezer": ground.options.freezer,
    }
    step("run:spawning")
    process.start(run.folder, job)
    step("run:spawned")


def missing(task: Task) -> str:
    """Why no agent can work in the workspace; empty if one can."""
    if not os.path.isdir(task.workspace):
        return f"Workspace validation failed: there is no folder {task.workspace}."
    if _is_full(task.workspace):
        return f"No space left on the disk of {task.workspace}: make room there, then resume the task."
    return ""


def _is_full(folder: str) -> bool:
    """Is there no room for what any agent writes? A disk that does not count its blocks or files is never full."""
    disk = os.statvfs(folder)
    blocks = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail
    files = disk.f_ffree if os.geteuid() == 0 else disk.f_favail
    return (disk.f_blocks > 0 and blocks * disk.f_frsize < ROOM) or (disk.f_files > 0 and files == 0)


def observe(ground: Ground, id: str, halt: Flag) -> bool:
    """Follow a run until its process has ended; False if we were told to halt before."""
    run = ground.tables.run(id)
    if run.state == ENDED:
        return True
    return _Observer(ground, run).follow(halt)


def read(ground: Ground, run: Run) -> Output:
    """Everything that a run said, from its files."""
    task = ground.tables.task(run.task)
    # "Resets 3am" was said when the run ended, which may be a night ago: nobody need have looked since.
    said_at = min(process.look(run.folder, run.id).ended_at or ground.now(), ground.now())
    output = driver(task.agent, ground.options).output(said_at / SECOND, ground.zone)
    for name, feed in _files(output):
        tail = Tail(f"{run.folder}/{name}")
        while lines := tail.lines():
            for line in lines:
                feed(line)
    return output


def lasted(ground: Ground, run: Run, look: process.Look) -> float:
    """Seconds that an ended run took. A clock that was set must not use up a budget; what nobody measured is taken from the
    kernel's clock, and only after a restart of the machine from the calendar."""
    if look.seconds is not None:
        return look.seconds
    if run.boot == ground.boot:
        return _age(ground, run)
    return max((look.ended_at or ground.now()) - run.started_at, 0) / SECOND


def _age(ground: Ground, run: Run) -> float:
    """Seconds since the agent was started, by the kernel's clock, which nobody can set."""
    start = process.agent(run.folder).get("start")
    if not start or run.boot != ground.boot:
        return 0.0
    return max(ground.since_boot() / SECOND - int(start) / os.sysconf("SC_CLK_TCK"), 0.0)


def _files(output: Output):  # type: ignore[no-untyped-def]
    return (
        ("out.log", output.feed), ("err.log", output.feed_error), ("tools.jsonl", output.feed_call),
        ("failures.jsonl", output.feed_failure),
    )  # fmt: skip


class _Observer:
    """Follows one live run: its output, its clocks, and what people want of it."""

    def __init__(self, ground: Ground, run: Run) -> None:
        self.ground, self.run, self.folder = ground, run, run.folder
        self.task = ground.tables.task(run.task)
        self.driver = driver(self.task.agent, ground.options)
        self.output = self.driver.output(ground.now() / SECOND, ground.zone)
        self.tails = [(Tail(f"{run.folder}/{name}"), feed) for name, feed in _files(self.output)]
        self.heard_at = monotonic()
        self.began_at = self.heard_at - _age(ground, run)
        self.told_at = self.asked_at = 0.0
        self.pause_at = self.stop_at = 0.0
        self.silent = False
        self.near: LimitNear | None = None
        self.saved_at = monotonic() - self._since_last_save()
        self.known: tuple[object, ...] = ()
        self.figures, self.bands = fullness.told(ground, run), fullness.bands(ground, run)

    def follow(self, halt: Flag) -> bool:
        while not halt.is_set():
            look = process.look(self.folder, self.run.id)
            self._listen()
            if look.kind != process.ALIVE:
                return True
            now = monotonic()
            if now - self.asked_at >= ASK:
                self.asked_at = now
                try:
                    self._obey(now)
                except Overtaken:
                    process.wish(self.folder, "stop", "overtaken")
            self._wait(look.pid)
        return False

    def _listen(self) -> None:
        for tail, feed in self.tails:
            for line in tail.lines():
                feed(line)
                self.heard_at, self.silent = monotonic(), False

    def _wait(self, pid: int) -> None:
        try:
            fd = os.pidfd_open(pid) if pid else -1
        except (OSError, AttributeError):
            fd = -1
        try:
            poll = select.poll()
            if fd >= 0:
                poll.register(fd, select.POLLIN)
            poll.poll(POLL * 1000)
        finally:
            if fd >= 0:
                os.close(fd)

    def _obey(self, now: float) -> None:
        tables = self.ground.tables
        self.run, self.task = tables.run(self.run.id), tables.task(self.run.task)
        if self.run.state == ENDED:
            return
        tables.check_epoch(self.run)
        self._tell(now)
        wanted = self.task.wanted
        if self.stop_at:
            if now - self.stop_at > self.ground.options.stop_grace + AFTER_GRACE:
                self.stop_at = now
                process.wish(self.folder, "kill", self.run.wanted)
            return
        if wanted == "freeze":
            if process.last_wish(self.folder) != "freeze":
                process.wish(self.folder, "freeze", "frozen by a person")
            return
        if process.last_wish(self.folder) == "freeze":
            process.wish(self.folder, "thaw")
            self.heard_at = now
        if wanted == "cancel":
            self._end("cancel", now)
        elif wanted in ("pause", "pause_now"):
            self._pause(now, at_once=wanted == "pause_now")
        elif process.last_wish(self.folder) == "stop":
            self.stop_at = now  # told before we were restarted
        else:
            self._watch(now)

    def _pause(self, now: float, at_once: bool) -> None:
        """At the next tool boundary; after that, or when none comes, by a signal."""
        if not self.pause_at:
            self.pause_at = now
            self._want("pause")
            if self.driver.stops_at_tools:
                with open(f"{self.folder}/pause", "wb"):
                    pass
        waited = now - self.pause_at > self.ground.options.pause_grace
        if at_once or waited or not self.driver.stops_at_tools or os.path.exists(f"{self.folder}/stopped"):
            self._end("pause", now)

    def _watch(self, now: float) -> None:
        """Budget, silence, interval: what concerns a run that nobody has asked anything of."""
        options = self.ground.options
        budget = Budget(*[self.task.budget.get(name, 0) for name in ("tokens", "money", "seconds")])
        spent = Spent(
            self.task.tokens + self.output.tokens,
            self.task.money + self.output.money,
            int(self.task.seconds + now - self.began_at),
        )
        part, what = used(budget, spent)
        if part >= 1.0:
            self._log("budget_exceeded", {"what": what})
            self._end("budget", now)
            return
        mark = nudge(budget, spent, self.task.told)
        if mark:
            self._nudge(mark, what)
        said = fullness.act(self.ground, self.task, self.run, self.output, self.bands)
        if said:
            self._say(said)
        quiet = now - self.heard_at
        if quiet > options.stuck_after:
            self._log("stuck", {"seconds": int(quiet)})
            self._end("stuck", now)
        elif quiet > options.silent_after and not self.silent:
            self.silent = True
            self._log("silent", {"seconds": int(quiet)})
        if now - self.saved_at >= options.checkpoint_interval:
            self.saved_at = now
            key = f"{self.run.id}:interval:{self.ground.now() // SECOND}"
            checkpoints.take(self.ground, self.task, self.run, "interval", key, self.output)

    def _nudge(self, mark: float, what: str) -> None:
        self._say(f"You have used {mark:.0%} of your budget of {what}. Finish what matters most.")
        with self.ground.tables.write() as tables:
            tables.check_epoch(self.run)
            tables.change(self.task.id, self.ground.now(), told=mark)
            tables.log(self.task.id, self.ground.now(), "budget_told", {"part": mark, "what": what}, self.run.id)

    def _say(self, text: str) -> None:
        """Let the agent know, at its next tool."""
        answer = {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": text}}
        write_file(f"{self.folder}/nudge", answer, durable=False)

    def _end(self, why: str, now: float) -> None:
        self._want(why)
        self.stop_at = now
        process.wish(self.folder, "stop", why)

    def _want(self, why: str) -> None:
        if self.run.wanted != why:
            with self.ground.tables.write() as tables:
                tables.check_epoch(self.run)
                tables.change_run(self.run.id, wanted=why, state=STOPPING)
                tables.log(self.task.id, self.ground.now(), "stopping", {"why": why}, self.run.id)

    def _tell(self, now: float) -> None:
        """Write down that the run lives, what it says of its progress, and what it used."""
        if self.run.state == STARTING:
            pid = process.agent(self.folder).get("pid")
            if pid:
                with self.ground.tables.write() as tables:
                    tables.check_epoch(self.run)
                    at = self.ground.now()
                    tables.change_run(self.run.id, state=LIVE, pid=int(pid), live_at=at)
                    tables.log(
                        self.task.id, at, "agent_started", {"pid": int(pid), "session": self.run.session}, self.run.id
                    )
        near = self.output.near
        if near is not None and (self.near is None or near.scope != self.near.scope):
            self.near = near
            self._log("limit_near", {"scope": near.scope, "used": near.used, "resetsAt": near.resets_at})
            key = f"{self.run.id}:limit_near:{near.scope}"
            checkpoints.take(self.ground, self.task, self.run, "limit", key, self.output)
        output = self.output
        known = (output.step, output.fraction, output.tokens, output.retrying, len(output.figures))
        if known != self.known and now - self.told_at >= TELL:
            self.known, self.told_at = known, now
            with self.ground.tables.write() as tables:
                tables.check_epoch(self.run)
                offset = self.tails[0][0].offset
                tables.change_run(self.run.id, offset=offset, tokens=self.output.tokens, money=self.output.money)
                step_, fraction = self.output.step or self.task.step, self.output.fraction or self.task.fraction
                tables.change(self.task.id, self.ground.now(), step=step_, fraction=fraction)
                facts = {
                    "step": step_,
                    "fraction": fraction,
                    "tokens": self.output.tokens,
                    "retrying": self.output.retrying,
                }
                tables.log(self.task.id, self.ground.now(), "progress", facts, self.run.id)
                self.figures = fullness.tell(self.ground, self.run, self.output, self.figures)

    def _log(self, type: str, facts: dict[str, object]) -> None:
        with self.ground.tables.write() as tables:
            tables.log(self.task.id, self.ground.now(), type, facts, self.run.id)

    def _since_last_save(self) -> float:
        row = self.ground.tables.one("SELECT MAX(made_at) AS at FROM checkpoint WHERE run = ?", self.run.id)
        at = (row["at"] if row is not None else None) or self.run.started_at
        # A clock that was set in between must not make it wait for ever, nor save at once.
        return min(max((self.ground.now() - at) / SECOND, 0.0), self.ground.options.checkpoint_interval)


def _never(run: Run, why: str) -> None:
    """Say in the shim's stead that the agent could not be started."""
    report = {"run": run.id, "exit": None, "signal": None, "reason": why, "started": False}
    write_file(f"{run.folder}/exit.json", report)


def _write(path: str, text: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
