"""A store in which every operation of the API can succeed: workspaces, and tasks in each of their states."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Mapping
from itertools import count
from types import MappingProxyType
from typing import Any, NamedTuple

from keepfast.runner.actions.runtime import Runtime
from keepfast.runner.actions.tasks import Tasks
from tests.app.restore.child import command
from tests.web.served import Served


class Request(NamedTuple):
    """What fills an operation's path, query and body."""

    parts: Mapping[str, str] = MappingProxyType({})
    query: Mapping[str, str] = MappingProxyType({})
    body: dict[str, Any] | None = None


class Scene:
    """Makes what an operation needs, as often as it is asked."""

    def __init__(self, served: Served) -> None:
        self.served, self.numbers = served, count(1)
        self.workspace = served.saver.workspace

    def task(self, *steps: Callable[[Runtime, str], None]) -> str:
        """A new task, brought into its state by these steps; its id."""
        number = next(self.numbers)
        folder = self.served.base / f"task{number}"
        folder.mkdir()
        (folder / "a.txt").write_text(f"{number}\n")
        made = self.served.ask("POST", "/api/tasks", {
            "title": f"task {number}", "brief": "Do it.", "workspace": str(folder), "start": False,
            "agent": {"command": ["true"]}, "phases": [{"name": "One", "prompt": "Go.", "review": True}]})  # fmt: skip
        id = str(made.json()["data"]["id"])
        ground = self.served.ground()
        try:
            for step in steps:
                step(ground, id)
        finally:
            ground.close()
        return id

    def prompt(self, kind: str, **columns: Any) -> str:
        """A new task that waits for a person's answer; the prompt's id."""
        id = f"{kind[0]}_{next(self.numbers):06d}"

        def ask(ground: Runtime, task: str) -> None:
            with ground.tables.write():
                ground.tables.insert(
                    "prompt", id=id, task=task, run="", kind=kind, key="KEY", text="Which?", status="pending",
                    created_at=ground.now(), phase=1, **columns,
                )  # fmt: skip
                if kind == "approval":
                    ground.tables.move(task, "phase_complete", ground.now(), trigger="test")
                else:
                    ground.tables.move(
                        task, "hold", ground.now(), trigger="test", hold=kind, prompt=id, human=1, why="Which?"
                    )

        self.task(submit, begin, ask)
        return id

    def saved(self, task: str) -> None:
        """A checkpoint of the task's folder."""
        workspace = self.served.ask("GET", f"/api/tasks/{task}").json()["data"]["workspace_id"]
        self.served.ask("POST", f"/api/workspaces/{workspace}/checkpoints", {})


def unsaved(ground: Runtime, task: str) -> None:
    with ground.tables.write():
        ground.tables.move(task, "unsaved", ground.now(), trigger="test", human=1, why="No room")


def submit(ground: Runtime, task: str) -> None:
    Tasks(ground).start(task)


def begin(ground: Runtime, task: str) -> None:
    with ground.tables.write():
        ground.tables.move(task, "start", ground.now(), trigger="test")


def pause(ground: Runtime, task: str) -> None:
    Tasks(ground).pause(task)


def fail(ground: Runtime, task: str) -> None:
    with ground.tables.write():
        ground.tables.move(task, "fail", ground.now(), trigger="test", why="it broke")


def limit(ground: Runtime, task: str) -> None:
    with ground.tables.write():
        due = ground.now() + 3600 * 10**9
        ground.tables.move(task, "hold", ground.now(), trigger="test", hold="rate_limit", due_at=due, why="limit")


def live(ground: Runtime, task: str) -> None:
    """A run that a supervisor would look after."""
    with ground.tables.write():
        ground.tables.insert(
            "run", id=f"run:{task}:1", task=task, number=1, phase=1, epoch=0, state="live", prompt="", folder="/nonexistent",
            session="", resume=0,
            token="", boot="", host="", started_at=ground.now(),
        )  # fmt: skip


def in_task(
    *steps: Callable[[Runtime, str], None], body: dict[str, Any] | None = None, **query: str
) -> Callable[[Scene], Request]:
    return lambda scene: Request({"task": scene.task(*steps)}, query, body)


def here(body: dict[str, Any] | None = None, **query: str) -> Callable[[Scene], Request]:
    return lambda scene: Request({"workspace": scene.workspace, "reference": "v2"}, query, body)


def of_prompt(kind: str, body: dict[str, Any], **columns: Any) -> Callable[[Scene], Request]:
    return lambda scene: Request({"prompt": scene.prompt(kind, **columns)}, {}, body)


def new(scene: Scene) -> Request:
    folder = scene.served.base / f"new{next(scene.numbers)}"
    folder.mkdir()
    return Request({}, {}, {"brief": "Do it.", "workspace": str(folder), "agent": {"command": ["true"]}})


def back(scene: Scene) -> Request:
    task = scene.task(submit, begin, fail)
    scene.saved(task)
    return Request({"task": task}, {}, {"checkpointId": "latest"})


def fork(scene: Scene) -> Request:
    folder = str(scene.served.base / f"fork{next(scene.numbers)}")
    return Request({"workspace": scene.workspace}, {}, {"reference": "v1", "folder": folder})


def forget(scene: Scene) -> Request:
    made = scene.served.ask("POST", f"/api/workspaces/{scene.workspace}/checkpoints", {}).json()["data"]
    return Request({"workspace": scene.workspace}, {}, {"references": [made["version"]]})


def undo(scene: Scene) -> Request:
    restore = f"/api/workspaces/{scene.workspace}/restore"
    scene.served.ask("POST", restore, {"reference": "v1", "conflicts": "theirs"})
    return Request({"workspace": scene.workspace}, {}, {})


def redo(scene: Scene) -> Request:
    found = undo(scene)
    scene.served.ask("POST", f"/api/workspaces/{scene.workspace}/undo", {"conflicts": "theirs"})
    return found


def cut_off(scene: Scene) -> Request:
    """A restore that was killed on its way."""
    (scene.served.root / "new.txt").write_text(f"number {next(scene.numbers)}\n")
    killed = command("restore", scene.served.root, scene.served.base / "store", "--fast", "--kill", "restore:folders:1")
    assert subprocess.run(killed, capture_output=True).returncode == -signal.SIGKILL
    return Request({"workspace": scene.workspace}, {}, {})


SUCCEEDS: dict[str, Callable[[Scene], Request]] = {
    "listWorkspaces": here(), "showWorkspace": here(), "showStatus": here(), "listCheckpoints": here(limit="2"),
    "save": here({"message": "x", "tags": ["a"]}), "showCheckpoint": here(), "labelCheckpoint": here({"pinned": True}),
    "forget": forget, "diff": here(old="v1", new="v2"), "showFile": here(path="new.txt"), "showBrief": here(),
    "fileHistory": here(path="new.txt"), "previewRestore": here({"reference": "v1"}),
    "restore": here({"reference": "v1", "conflicts": "theirs"}), "undo": undo, "redo": redo, "fork": fork,
    "search": here(text="first"), "listTasks": here(), "newTask": new, "showTask": in_task(),
    "setBudget": in_task(body={"tokens": 5}), "deleteTask": in_task(), "startTask": in_task(body={}),
    "pauseTask": in_task(submit, body={}), "freezeTask": in_task(submit, begin, live, body={}),
    "resumeTask": in_task(submit, pause, body={}), "cancelTask": in_task(body={}), "retryTask": in_task(submit, fail, body={}),
    "acceptTask": in_task(submit, begin, unsaved, body={}),
    "tryNowTask": in_task(submit, limit, body={}), "archiveTask": in_task(submit, fail, body={}), "taskStatus": in_task(),
    "taskPhases": in_task(), "taskReviews": in_task(), "taskQuestions": in_task(), "taskLog": in_task(limit="5"),
    "restoreTask": back, "overrideLimit": in_task(submit, limit, body={"action": "clear_rate_limit"}),
    "provideSecret": in_task(body={"name": "KEY", "value": "hush-hush-hush"}), "approve": of_prompt("approval", {}),
    "requestChanges": of_prompt("approval", {"comments": "More."}), "commentReview": of_prompt("approval", {"comments": "Hm."}),
    "answer": of_prompt("question", {"answer": "yes"}),
    "taskVerifications": in_task(), "showSettings": here(), "changeSettings": here({"values": {"retention.keep_last": 9}}),
    "pendingQuestions": here(), "inbox": here(), "showStorage": here(),
    "finishRestore": cut_off,
}  # fmt: skip
"""For every operation, what makes it succeed."""
