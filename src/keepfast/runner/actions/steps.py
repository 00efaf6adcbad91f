"""Transitions that people request: each writes the rows, updates the workspace's copy, and wakes the supervisor."""

from __future__ import annotations

from typing import Any

from keepfast.model.errors import Conflict
from keepfast.runner.actions import metadata, vault
from keepfast.runner.actions.questions import hold_for_open_prompts
from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.domain import task as machine
from keepfast.runner.domain.records import Task
from keepfast.runner.process.wake import wake


class Steps:
    """Carries out transitions: writes the rows, updates the workspace's copy, wakes the supervisor; returns the new task."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.tables = runtime, runtime.tables

    def move(self, task: Task, action: str, trigger: str, **columns: Any) -> Task:
        with self.tables.write():
            self.tables.move(task.id, action, self.runtime.now(), trigger=trigger, **columns)
        return self.publish(task.id)

    def request(self, task: Task, what: str, trigger: str) -> Task:
        with self.tables.write():
            now = self.runtime.now()
            self.tables.request(task.id, what, now, trigger)
            self.tables.log(task.id, now, "wanted", {"what": what or "go on"})
        return self.publish(task.id)

    def lift(self, task: Task, trigger: str, **columns: Any) -> Task:
        now = self.runtime.now()
        with self.tables.write():
            self.tables.move(task.id, "lift", now, trigger=trigger, reason="", **columns)
            hold_for_open_prompts(self.tables, task.id, now, trigger)
        return self.publish(task.id)

    def lift_if_answered(self, id: str, trigger: str) -> Task:
        """Lift the hold of a task that waits for answers; `lift` holds it again if any are still open."""
        hold = self.tables.hold(id)
        if hold is None or hold.kind not in machine.ASKING:
            return self.publish(id)
        return self.lift(self.tables.task(id), trigger)

    def seal_secrets(self, task: str, text: str, name: str = "") -> str:
        """Seal the secrets in a person's text, for the task's agent only; return the text with marks in their places."""
        marked = vault.mark(self.runtime, text, name)
        with self.tables.write():
            return str(vault.store(self.tables, task, marked, self.runtime.now()))

    def check_epoch(self, task: Task) -> None:
        if self.tables.task(task.id).epoch != task.epoch:
            raise Conflict("The task changed in the meantime.", "Check its state and try again.")

    def publish(self, id: str) -> Task:
        metadata.project(self.runtime, id)
        wake(self.runtime.folder)
        return self.tables.task(id)
