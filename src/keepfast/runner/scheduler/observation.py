"""Observation of a live run until its process ends: output, time limits, budget, and requests of people."""

from __future__ import annotations

import os
import select
from contextlib import suppress
from threading import Event as Flag
from time import monotonic

from keepfast.runner.actions import checkpoints, context_use
from keepfast.runner.actions.logs import OutputCopies
from keepfast.runner.actions.questions import log_progress
from keepfast.runner.actions.run_outputs import age, began_at, files
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.actions.vault import agent_of
from keepfast.runner.db import queries
from keepfast.runner.db.tables import Overtaken
from keepfast.runner.domain.limits import LimitNear
from keepfast.runner.domain.records import Run
from keepfast.runner.domain.task import ENDED, LIVE, STARTING, STOPPING
from keepfast.runner.domain.verdict import LINGERING, has_final_block
from keepfast.runner.domain.waits import Budget, Spent, nudge, used
from keepfast.runner.process import shims
from keepfast.runner.process.drivers import driver
from keepfast.runner.process.output import Tail, Transcripts
from keepfast.runner.process.run_folder import write_file

SECOND = 1_000_000_000
POLL = 0.2
REQUEST_INTERVAL = 0.5
WRITE_INTERVAL = 5.0
COPY_INTERVAL = 1.0
AFTER_GRACE = 20.0


def observe(runtime: Runtime, id: str, halt: Flag) -> bool:
    """Follow a run until its process has ended; return False if `halt` was set before."""
    run = runtime.tables.run(id)
    if run.state == ENDED:
        return True
    return _Observer(runtime, run).follow(halt)


class _Observer:
    """Follows one live run: output, time limits, budget, and requests of people."""

    def __init__(self, runtime: Runtime, run: Run) -> None:
        self.runtime, self.run, self.folder = runtime, run, run.folder
        self.task = runtime.tables.task(run.task)
        self.driver = driver(agent_of(runtime, self.task), runtime.options)
        self.output = self.driver.output(runtime.now() / SECOND, runtime.zone)
        self.tails = [(Tail(f"{run.folder}/{name}"), feed) for name, feed in files(self.output)]
        self.transcripts = Transcripts()
        self.outputs, self.copied_at = OutputCopies(run, self.task.workspace), 0.0
        self.output_at = monotonic()
        self.began_at = self.output_at - age(runtime, run)
        self.written_at = self.obeyed_at = 0.0
        self.pause_at = self.stop_at = 0.0
        self.silent = False
        self.frozen = 0
        """The number of the last freeze for which a checkpoint was made."""
        self.limit_near: LimitNear | None = None
        self.saved_at = monotonic() - self._since_last_save()
        self.progress_before = self._figures()
        self.figures, self.bands = context_use.logged_requests(runtime, run), context_use.bands(runtime, run)

    def follow(self, halt: Flag) -> bool:
        while not halt.is_set():
            look = shims.status_of(self.folder, self.run.id)
            self._read_output()
            if look.kind != shims.ALIVE:
                return True
            now = monotonic()
            if now - self.copied_at >= COPY_INTERVAL:
                self.copied_at = now
                self.outputs.look()
            if now - self.obeyed_at >= REQUEST_INTERVAL:
                self.obeyed_at = now
                try:
                    self._follow_request(now)
                except Overtaken:
                    shims.wish(self.folder, "stop", "overtaken")
            self._wait(look.pid)
        return False

    def _read_output(self) -> None:
        for tail, feed in self.tails:
            for line, self.output.at in tail.timed_lines():
                feed(line)
                self.output_at, self.silent = monotonic(), False

    def _read_transcripts(self) -> None:
        session = self.output.session or self.run.session
        path = "" if self.transcripts.is_known else self.driver.transcript(session, self.runtime.variables)
        self.transcripts.read(path, self.output)

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

    def _follow_request(self, now: float) -> None:
        tables = self.runtime.tables
        self.run, self.task = tables.run(self.run.id), tables.task(self.run.task)
        if self.run.state == ENDED:
            return
        tables.check_epoch(self.run)
        self._read_transcripts()
        self._write_progress(now)
        request = self.task.request
        if self.stop_at:
            if now - self.stop_at > self.runtime.options.stop_grace + AFTER_GRACE:
                self.stop_at = now
                shims.wish(self.folder, "kill", self.run.request)
            return
        if request == "freeze":
            self._freeze(now)
            return
        if shims.last_wish(self.folder) == "freeze":
            shims.wish(self.folder, "thaw")
            self.output_at = now
        if request == "cancel":
            self._end("cancel", now)
        elif request in ("pause", "pause_now"):
            self._pause(now, at_once=request == "pause_now")
        elif shims.last_wish(self.folder) == "stop":
            self.stop_at = now  # requested before this supervisor was restarted
        else:
            if self.run.request == "pause":
                self._unpause()
            self._watch(now)

    def _freeze(self, now: float) -> None:
        """Stop all processes where they are, then make a checkpoint, once for each freeze."""
        if shims.last_wish(self.folder) != "freeze":
            shims.wish(self.folder, "freeze", "frozen by a person")
        state = shims.state(self.folder)
        number = state.wish
        if state.done == "freeze" and state.frozen and number != self.frozen:
            self.frozen, self.saved_at = number, now
            key = f"{self.run.id}:freeze:{number}"
            checkpoints.take(self.runtime, self.task, self.run, "user_pause", key, self.output)

    def _unpause(self) -> None:
        """Withdraw a pause. If a hook has already told the agent, it ends, and the next run continues."""
        self.pause_at = 0.0
        with suppress(FileNotFoundError):
            os.unlink(f"{self.folder}/pause")
        with self.runtime.tables.write() as tables:
            tables.check_epoch(self.run)
            tables.change_run(self.run.id, request="", state=LIVE)

    def _pause(self, now: float, at_once: bool) -> None:
        """End the agent at its next tool call; by a signal if it does not stop in time."""
        if not self.pause_at:
            self.pause_at = now
            self._request_stop("pause")
            if self.driver.stops_at_tools:
                with open(f"{self.folder}/pause", "wb"):
                    pass
        waited = now - self.pause_at > self.runtime.options.pause_grace
        if at_once or waited or not self.driver.stops_at_tools or os.path.exists(f"{self.folder}/stopped"):
            self._end("pause", now)

    def _watch(self, now: float) -> None:
        """Check budget, silence and the checkpoint interval of a run without requests."""
        options = self.runtime.options
        budget = Budget.of(self.task.budget)
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
        mark = nudge(budget, spent, self.task.budget_mark)
        if mark:
            self._nudge(mark, what)
        message = context_use.save_at_band(self.runtime, self.task, self.run, self.output, self.bands)
        if message:
            self._tell_agent(message)
        quiet = now - self.output_at
        if quiet > options.marker_grace and self._is_lingering():
            self._end(LINGERING, now)
            return
        if quiet > options.stuck_after:
            self._log("stuck", {"seconds": int(quiet)})
            self._end("stuck", now)
        elif quiet > options.silent_after and not self.silent:
            self.silent = True
            self._log("silent", {"seconds": int(quiet)})
        if now - self.saved_at >= options.checkpoint_interval:
            self.saved_at = now
            key = f"{self.run.id}:interval:{self.runtime.now() // SECOND}"
            checkpoints.take(self.runtime, self.task, self.run, "interval", key, self.output)

    def _is_lingering(self) -> bool:
        """Return whether the agent has finished its work and its turn but does not exit."""
        return self.output.is_over and has_final_block(self.output.words(), self.run.phase)

    def _nudge(self, mark: float, what: str) -> None:
        self._tell_agent(
            f"You have used {mark:.0%} of the {what.removesuffix('s')} budget. Finish the most important work first."
        )
        with self.runtime.tables.write() as tables:
            tables.check_epoch(self.run)
            tables.change(self.task.id, self.runtime.now(), budget_mark=mark)
            tables.log(self.task.id, self.runtime.now(), "budget_told", {"part": mark, "what": what}, self.run.id)

    def _tell_agent(self, text: str) -> None:
        """Send the agent a message, which a hook delivers after its next tool call."""
        answer = {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": text}}
        write_file(f"{self.folder}/nudge", answer, durable=False)

    def _end(self, why: str, now: float) -> None:
        self._request_stop(why)
        self.stop_at = now
        shims.wish(self.folder, "stop", why)

    def _request_stop(self, why: str) -> None:
        if self.run.request != why:
            with self.runtime.tables.write() as tables:
                tables.check_epoch(self.run)
                tables.change_run(self.run.id, request=why, state=STOPPING)
                tables.log(self.task.id, self.runtime.now(), "stopping", {"why": why}, self.run.id)

    def _write_progress(self, now: float) -> None:
        """Write that the run is live, its progress, and what it used."""
        if self.run.state == STARTING:
            pid = shims.agent(self.folder).pid
            if pid:
                with self.runtime.tables.write() as tables:
                    tables.check_epoch(self.run)
                    at = began_at(self.runtime, self.run)
                    tables.change_run(self.run.id, state=LIVE, pid=int(pid), live_at=at)
                    tables.log(
                        self.task.id, at, "agent_started", {"pid": int(pid), "session": self.run.session}, self.run.id
                    )
        limit_near = self.output.limit_near
        if limit_near is not None and (self.limit_near is None or limit_near.scope != self.limit_near.scope):
            self.limit_near = limit_near
            self._log(
                "limit_near", {"scope": limit_near.scope, "used": limit_near.used, "resetsAt": limit_near.resets_at}
            )
            key = f"{self.run.id}:limit_near:{limit_near.scope}"
            checkpoints.take(self.runtime, self.task, self.run, "limit", key, self.output)
        figures = self._figures()
        if figures != self.progress_before and now - self.written_at >= WRITE_INTERVAL:
            self.progress_before, self.written_at = figures, now
            with self.runtime.tables.write() as tables:
                tables.check_epoch(self.run)
                offset = self.tails[0][0].offset
                tables.change_run(self.run.id, offset=offset, tokens=self.output.tokens, money=self.output.money)
                step_, fraction = self.output.step or self.task.step, self.output.fraction or self.task.fraction
                tables.change(self.task.id, self.runtime.now(), step=step_, fraction=fraction)
                facts = {
                    "step": step_,
                    "fraction": fraction,
                    "tokens": self.output.tokens,
                    "retrying": self.output.retrying,
                }
                tables.log(self.task.id, self.runtime.now(), "progress", facts, self.run.id)
                log_progress(tables, self.run, self.runtime.now(), self.output)
                self.figures = context_use.log_usage(self.runtime, self.run, self.output, self.figures)

    def _figures(self) -> tuple[object, ...]:
        """Return the agent's progress and use so far; a change is written."""
        output = self.output
        return output.step, output.fraction, output.tokens, output.retrying, len(output.figures), len(output.reports)

    def _log(self, type: str, facts: dict[str, object]) -> None:
        with self.runtime.tables.write() as tables:
            tables.log(self.task.id, self.runtime.now(), type, facts, self.run.id)

    def _since_last_save(self) -> float:
        at = queries.last_saved(self.runtime.tables, self.run.id) or self.run.started_at
        # If the clock was set in between, it must neither wait for ever nor save at once.
        return min(max((self.runtime.now() - at) / SECOND, 0.0), self.runtime.options.checkpoint_interval)
