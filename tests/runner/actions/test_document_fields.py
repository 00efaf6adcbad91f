"""Checkpoint documents tell what is so after the checkpoint: each field of the source's structure, for each reason."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from keepfast.runner.actions import descriptions, documents, recovery, run_outputs
from keepfast.runner.domain.moments import moment
from keepfast.runner.domain.records import Run, Task
from keepfast.runner.process import shims
from keepfast.secrets.redaction import redact
from tests.runner.place import DONE, PHASE, QUICK, Place, say_phase

USAGE = {"say": '{"type":"turn.completed","usage":{"input_tokens":1000,"output_tokens":200}}'}
BEGIN: list[dict[str, Any]] = [
    {"write": ["docs/idea.md", "x"]},
    {"say": "I begin."},
    {"sleep": 0.4},
    {"say": "[PROGRESS]\nstep: 03_users\npercent: 35\n[/PROGRESS]"},
    USAGE,
]
SAID = ["I begin.", "[PROGRESS]", "step: 03_users", "percent: 35", "[/PROGRESS]"]
"""What the messages of that beginning are, behind the prompt."""
ASK = {
    "say": "[USER_QUESTION]\ncategory: choice\nquestion: Which one?\noptions:\n - a\n - b\ndefault: a\n[/USER_QUESTION]"
}
KEY = {
    "say": "[DEPENDENCY_REQUEST]\ntype: api_key\nname: PAYMENT_KEY\ndescription: for payments\n[/DEPENDENCY_REQUEST]"
}
SERVER = {"say": "[DEPENDENCY_REQUEST]\ntype: service\nname: postgres\ndescription: a server\n[/DEPENDENCY_REQUEST]"}
RECOVERABLE = {"say": "[ERROR]\ntype: recoverable\nmessage: no network\nrecovery: pause_and_retry\n[/ERROR]"}
FATAL = {"say": "[ERROR]\ntype: fatal\nmessage: no way\nrecovery: checkpoint_and_fail\n[/ERROR]"}
STAY = {"sleep": 600}
REVIEWED, CHECKED = {**PHASE, "review": True}, {**PHASE, "verify": "false"}
TWO = [REVIEWED, PHASE]


NOTHING: dict[str, Any] = {}


class Case(NamedTuple):
    """A task whose newest document of this reason is looked at, and what it must say."""

    reason: str
    turns: list[list[dict[str, Any]]]
    expected: dict[str, Any]
    phases: list[dict[str, Any]] = TWO
    keys: dict[str, Any] = NOTHING


STARTED = {
    "task.status": "in_progress", "task.progress": 0, "agent.status": "idle", "agent.currentStep": None, "agent.tokensUsed": 0,
    "conversationHistory.messages": 0, "workspace.deliverables": [], "agent.pid": None,
}  # fmt: skip
COMPLETED = {"task.status": "completed", "task.progress": 100, "agent.status": "completed"}
BACKED_OFF = {"task.status": "paused", "agent.status": "paused", "agent.blockedBy": "backoff"}
QUESTION = {
    "category": "choice", "question": "Which one?", "options": ["a", "b"], "default": "a", "required": True,
}  # fmt: skip
COMMON: dict[str, Any] = {
    "createdBy": "system", "task.status": "in_progress", "task.currentPhase": 1, "task.progress": 17, "agent.status": "idle",
    "agent.pid": "the agent's", "agent.currentPhase": 1, "agent.currentStep": "03_users", "agent.tokensUsed": 1200,
    "agent.blockedBy": None, "conversationHistory.messages": len(SAID), "environment.dependencies": [],
    "workspace.deliverables": ["docs/idea.md"], "protocols.pendingDependencies": [], "protocols.pendingQuestions": [],
    "protocols.completedPhases": [],
}  # fmt: skip
CASES = {
    "start": Case("start", [[*BEGIN, ASK]], STARTED),
    "question": Case("question", [[*BEGIN, ASK]], {
        "task.status": "waiting_question", "agent.status": "waiting_question", "agent.blockedBy": "question",
        "protocols.pendingQuestions": [QUESTION],
    }),
    "secret": Case("secret", [[*BEGIN, KEY]], {
        "task.status": "waiting_dependency", "agent.status": "waiting_dependency", "agent.blockedBy": "secret",
        "protocols.pendingDependencies": [
            {"type": "api_key", "name": "PAYMENT_KEY", "description": "for payments", "default": None, "required": True}
        ],
    }),
    "dependency": Case("dependency", [[*BEGIN, SERVER]], {
        "task.status": "waiting_dependency", "agent.status": "waiting_dependency", "agent.blockedBy": "dependency",
        "protocols.pendingDependencies": [
            {"type": "service", "name": "postgres", "description": "a server", "default": None, "required": True}
        ],
    }),
    "provided": Case("question", [[*BEGIN, KEY], [ASK]], {
        "task.status": "waiting_question", "agent.status": "waiting_question", "agent.blockedBy": "question",
        "protocols.pendingQuestions": [QUESTION], "environment.dependencies": [("api_key", "PAYMENT_KEY")],
    }),
    "seen to": Case("question", [[*BEGIN, SERVER], [ASK]], {
        "task.status": "waiting_question", "agent.status": "waiting_question", "agent.blockedBy": "question",
        "protocols.pendingQuestions": [QUESTION], "environment.dependencies": [("service", "postgres")],
    }),
    "pause": Case("user_pause", [[*BEGIN, STAY]], {
        "createdBy": "user", "task.status": "paused", "agent.status": "paused", "agent.blockedBy": "user_pause",
    }),
    "cancel": Case("cancel", [[*BEGIN, STAY]], {"createdBy": "user", "task.status": "cancelled"}),
    "limit": Case("rate_limit", [[*BEGIN, {"limited": 3600}, {"exit": 1}]], {
        "task.status": "waiting_rate_limit", "agent.status": "waiting_rate_limit", "agent.blockedBy": "rate_limit",
    }),
    "error": Case("error", [[*BEGIN, RECOVERABLE]], BACKED_OFF),
    "fatal": Case("error", [[*BEGIN, FATAL]], {"task.status": "failed", "agent.status": "failed"}),
    "crash": Case("crash", [[*BEGIN, {"exit": 3}]], BACKED_OFF),
    # Nothing is saved before something changed: it does so when everything has been said.
    "interval": Case("interval", [[*BEGIN[1:], {"sleep": 1}, BEGIN[0], STAY]], {"createdBy": "auto", "agent.status": "running"}),
    "budget": Case("budget", [[*BEGIN, STAY]], {
        "task.status": "paused", "agent.status": "paused", "agent.blockedBy": "budget",
    }, keys={"budget": {"tokens": 1000}}),
    "turn": Case("turn", [BEGIN, [ASK]], BACKED_OFF),
    "review": Case("phase_complete", [[*BEGIN, say_phase(1)]], {
        "task.status": "review", "task.progress": 50, "agent.status": "waiting_review", "agent.blockedBy": "approval",
        "protocols.completedPhases": [1],
    }),
    "next": Case("phase_complete", [[*BEGIN, say_phase(1)], [ASK]], {
        "task.currentPhase": 2, "task.progress": 50, "protocols.completedPhases": [1],
    }, [PHASE, PHASE]),
    "rework": Case("phase_complete", [[*BEGIN, say_phase(1)], [ASK]], {}, [CHECKED, PHASE]),
    "final": Case("final", [[*BEGIN, DONE]], {
        **COMPLETED, "task.currentPhase": None, "agent.currentPhase": None,
    }, []),
    "last phase": Case("final", [[*BEGIN, say_phase(1)]], {**COMPLETED, "protocols.completedPhases": [1]}, [PHASE]),
    "approved": Case("final", [[*BEGIN, say_phase(1)]], {**COMPLETED, "protocols.completedPhases": [1]}, [REVIEWED]),
}  # fmt: skip
FIELDS = [
    "id", "taskId", "createdAt", "reason", *COMMON, "task.type", "conversationHistory.messages.timestamp",
    "conversationHistory.messages.metadata", "conversationHistory.lastMessageIndex", "environment.variables",
    "environment.dependencies.providedAt", "workspace.path", "workspace.lastModified",
]  # fmt: skip


class Story:
    """All tasks at once in one place, each until it has told what it has to tell."""

    def __init__(self, base: Path) -> None:
        options = QUICK.but(
            backoff_first=3600, backoff_longest=7200, concurrency=len(CASES), checkpoint_interval=2, stop_grace=5
        )
        self.place = Place(base, options)
        self.task = {name: self.begin(name, case) for name, case in CASES.items()}
        for task in self.task.values():
            self.place.tasks.answers.secret(task.id, "TOKEN", f"value of {task.id}")
        self.done: set[str] = set()
        self.ended = False
        self.place.supervise(until=self.go_on, seconds=180)
        self.found = {name: self.read(name, case.reason) for name, case in CASES.items()}

    def begin(self, name: str, case: Case) -> Task:
        agent = self.place.agent(name, *case.turns)
        if name == "limit":
            agent["command"].insert(0, "env")  # another program is another account: the others are not limited
        return self.place.task(*case.turns, name=name, phases=case.phases, **case.keys, agent=agent)

    def go_on(self) -> bool:
        """Be the person; True when everything has been told."""
        tasks, place = self.place.tasks, self.place
        for name, do in self.people().items():
            ready, act = do
            if name not in self.done and ready():
                self.done.add(name)
                act()
        told = [name for name, case in CASES.items() if case.reason in place.reasons(self.task[name])]
        settled = len(told) == len(CASES) and len(self.done) == len(self.people())
        if settled and not self.ended:
            self.ended = True
            tasks.cancel(self.task["interval"].id)
            return False
        return settled and not place.runtime.tables.runs("state != 'ended'")

    def people(self) -> dict[str, tuple[Callable[[], bool], Callable[[], object]]]:
        tasks, task, place = self.place.tasks, self.task, self.place

        def has_said(name: str) -> Callable[[], bool]:
            return lambda: any("turn.completed" in line for line in self.log(name))

        return {
            "provided": (place.holds(task["provided"], "secret"),
                         lambda: tasks.answers.secret(task["provided"].id, "PAYMENT_KEY", "4711")),
            "seen to": (place.holds(task["seen to"], "dependency"), lambda: tasks.answers.answer(task["seen to"].id, "it runs")),
            "pause": (has_said("pause"), lambda: tasks.pause(task["pause"].id)),
            "cancel": (has_said("cancel"), lambda: tasks.cancel(task["cancel"].id)),
            "turn": (place.holds(task["turn"], "backoff"), lambda: tasks.try_now(task["turn"].id)),
            "approved": (place.holds(task["approved"], "approval"), lambda: tasks.answers.approve(task["approved"].id)),
        }  # fmt: skip

    def log(self, name: str) -> list[str]:
        run = self.place.runtime.tables.last_run(self.task[name].id)
        path = Path(run.folder, "out.log") if run is not None else Path("/nowhere")
        return path.read_text().splitlines() if path.exists() else []

    def rows(self, name: str, reason: str) -> list[Any]:
        where = "SELECT * FROM checkpoint WHERE task = ? AND reason = ? ORDER BY version"
        return self.place.runtime.tables.all(where, self.task[name].id, reason)

    def read(self, name: str, reason: str) -> dict[str, Any]:
        row = self.rows(name, reason)[-1]
        path = self.place.workspace(name) / ".checkpoints" / row["file"]
        return documents.load(self.place.runtime, str(path if path.exists() else f"{path}.gz"))

    def runs_of(self, name: str) -> list[Run]:
        """The runs up to the one that the document tells of."""
        all_runs = self.place.runtime.tables.runs("task = ?", self.task[name].id)
        return all_runs if CASES[name].reason in ("question", "final", "interval") else all_runs[:1]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    story = Story(tmp_path_factory.mktemp("documents"))
    yield story
    story.place.close()


def value(document: dict[str, Any], field: str) -> Any:
    found: Any = document
    for part in field.split("."):
        found = found[part]
    return found


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("name", CASES)
def test_every_field_is_right_for_every_reason(story: Story, name: str, field: str) -> None:
    case, document, task = CASES[name], story.found[name], story.task[name]
    expected = {**COMMON, **case.expected}
    if field in CLAIMS:
        CLAIMS[field](story, name, task, document, expected.get(field))
        return
    assert value(document, field) == expected[field]


Claim = Callable[[Story, str, Task, dict[str, Any], Any], None]


def claim_id(story: Story, name: str, task: Task, document: dict[str, Any], expected: Any) -> None:
    assert document["id"] == story.rows(name, CASES[name].reason)[-1]["id"]


def claim_created(story: Story, name: str, task: Task, document: dict[str, Any], expected: Any) -> None:
    assert document["createdAt"] == moment(story.rows(name, CASES[name].reason)[-1]["made_at"])


def claim_pid(story: Story, name: str, task: Task, document: dict[str, Any], expected: Any) -> None:
    known = shims.agent(story.runs_of(name)[-1].folder).pid
    assert known is not None and known > 0
    assert document["agent"]["pid"] == (None if expected is None else known)


def spoken(story: Story, name: str, expected: int) -> list[str]:
    """Prompts and lines of the runs, in order: nothing for a document of before the first run's first word."""
    found: list[str] = []
    for run in story.runs_of(name):
        output = run_outputs.read(story.place.runtime, run)
        found += [redact(run.prompt[:4000]), *[message.content for message in output.messages]]
    return found[: 1 + expected] if expected == 0 or CASES[name].reason == "interval" else found


def claim_messages(story: Story, name: str, task: Task, document: dict[str, Any], expected: int) -> None:
    messages = document["conversationHistory"]["messages"]

    assert [message["content"] for message in messages] == spoken(story, name, expected)
    assert [message["content"] for message in messages[1 : 1 + expected]] == SAID[:expected]
    assert [messages[0]["role"], *{message["role"] for message in messages[1 : 1 + expected]}] in (
        ["user"], ["user", "assistant"],
    )  # fmt: skip


def claim_last_index(story: Story, name: str, task: Task, document: dict[str, Any], expected: Any) -> None:
    expected = {**COMMON, **CASES[name].expected}["conversationHistory.messages"]
    assert document["conversationHistory"]["lastMessageIndex"] == len(spoken(story, name, expected)) - 1


def claim_timestamps(story: Story, name: str, task: Task, document: dict[str, Any], expected: Any) -> None:
    messages = document["conversationHistory"]["messages"]
    times = [datetime.fromisoformat(message["timestamp"]) for message in messages]
    begun = moment(story.runs_of(name)[0].started_at)

    assert times == sorted(times)
    assert messages[0]["timestamp"] == begun
    assert times[-1] <= datetime.fromisoformat(document["createdAt"])
    if len(messages) > 1:
        assert (times[2] - times[1]).total_seconds() > 0.2, "each message has its own time"


def claim_metadata(story: Story, name: str, task: Task, document: dict[str, Any], expected: Any) -> None:
    metadata = [message["metadata"] for message in document["conversationHistory"]["messages"]]
    phase = 1 if task.phases else None  # of the runs that are told of

    assert {one.get("phase") for one in metadata} == {phase}
    if len(metadata) > 1:
        assert [one["type"] for one in metadata[1:6]] == ["log", *["protocol"] * 4]
        assert [one["step"] for one in metadata[1:6]] == [None, None, None, None, "03_users"]
        assert {one["type"] for one in metadata[6:]} <= {"protocol", "log"}


def claim_variables(story: Story, name: str, task: Task, document: dict[str, Any], expected: Any) -> None:
    variables = document["environment"]["variables"]
    assert set(variables) == {"TOKEN"} | ({"PAYMENT_KEY"} if name == "provided" else set())
    assert all(sealed.startswith("encrypted:") for sealed in variables.values())


def claim_dependencies(story: Story, name: str, task: Task, document: dict[str, Any], expected: Any) -> None:
    found = [(one["type"], one["name"]) for one in document["environment"]["dependencies"]]
    assert found == [("env_variable", "TOKEN"), *expected]


def claim_provided_at(story: Story, name: str, task: Task, document: dict[str, Any], expected: Any) -> None:
    for one in document["environment"]["dependencies"]:
        events = story.place.tasks.views.log(task.id)
        given = [event["timestamp"] for event in events if event["type"] in ("secret_provided", "answered")]
        assert one["providedAt"] in given


def claim_pending(field: str) -> Claim:
    def claim(story: Story, name: str, task: Task, document: dict[str, Any], expected: Any) -> None:
        found = document["protocols"][field]
        prompts = {prompt["id"]: prompt for prompt in story.place.shown(task)["prompts"]}
        assert [prompts[one["id"]]["created_at"] for one in found] == [one["createdAt"] for one in found]
        assert [{key: one[key] for key in one if key not in ("id", "createdAt")} for one in found] == expected

    return claim


def claim_last_modified(story: Story, name: str, task: Task, document: dict[str, Any], expected: Any) -> None:
    path = story.place.workspace(name) / "docs/idea.md"
    if document["workspace"]["deliverables"]:
        assert document["workspace"]["lastModified"] == moment(path.stat().st_mtime_ns)
    else:
        assert document["workspace"]["lastModified"] <= document["createdAt"]


CLAIMS: dict[str, Claim] = {
    "id": claim_id,
    "taskId": lambda story, name, task, document, _: _equal(document["taskId"], task.id),
    "reason": lambda story, name, task, document, _: _equal(document["reason"], CASES[name].reason),
    "createdAt": claim_created,
    "task.type": lambda story, name, task, document, _: _equal(document["task"]["type"], "custom"),
    "agent.pid": claim_pid,
    "conversationHistory.messages": claim_messages,
    "conversationHistory.messages.timestamp": claim_timestamps,
    "conversationHistory.messages.metadata": claim_metadata,
    "conversationHistory.lastMessageIndex": claim_last_index,
    "environment.variables": claim_variables,
    "environment.dependencies": claim_dependencies,
    "environment.dependencies.providedAt": claim_provided_at,
    "workspace.path": lambda story, name, task, document, _: _equal(document["workspace"]["path"], task.workspace),
    "workspace.lastModified": claim_last_modified,
    "protocols.pendingDependencies": claim_pending("pendingDependencies"),
    "protocols.pendingQuestions": claim_pending("pendingQuestions"),
}


def _equal(one: object, other: object) -> None:
    assert one == other


@pytest.mark.parametrize("name", CASES)
def test_the_state_in_a_document_is_the_one_that_was_logged(story: Story, name: str) -> None:
    """The newest document of a task that has come to rest says what `task show` says."""
    task = story.task[name]
    newest = json.loads((story.place.workspace(name) / ".checkpoints/latest.json").read_text())
    shown = story.place.shown(task)

    assert newest["id"] == shown["checkpoints"][0]["id"]
    assert newest["task"]["status"] == shown["status"]
    assert newest["agent"]["status"] == shown["agent_status"]
    assert newest["task"]["progress"] == shown["progress"]
    assert newest["agent"]["tokensUsed"] == shown["used"]["tokens"]


@pytest.mark.parametrize("name", ["provided", "seen to", "next", "rework", "turn"])
def test_the_incremental_form_gives_what_came_since(story: Story, name: str) -> None:
    task, place = story.task[name], story.place
    files = [row["file"] for row in place.runtime.tables.all(
        "SELECT file FROM checkpoint WHERE task = ? ORDER BY version DESC LIMIT 2", task.id)]  # fmt: skip
    newest, base = [documents.load(place.runtime, f"{place.workspace(name)}/.checkpoints/{file}") for file in files]

    found = place.shown(task)["incremental"]

    history = newest["conversationHistory"]
    start = base["conversationHistory"]["lastMessageIndex"] + 1
    assert found["baseCheckpointId"] == base["id"]
    assert found["changes"]["conversationHistory"] == {
        "newMessages": history["messages"][start:], "startIndex": start,
    }  # fmt: skip
    assert len(found["changes"]["conversationHistory"]["newMessages"]) == history["lastMessageIndex"] + 1 - start > 1
    assert found["changes"]["workspace"] == {"newFiles": [], "modifiedFiles": []}


def test_the_incremental_form_tells_new_and_modified_files(place: Place) -> None:
    task = place.task(
        [{"write": ["a.txt", "1"]}, {"write": ["same.txt", "1"]}, ASK],
        [{"write": ["a.txt", "2"]}, {"write": ["b.txt", "1"]}, ASK],
    )
    place.supervise()
    place.tasks.answers.answer(task.id, "a")
    place.supervise()
    (place.workspace() / "same.txt").write_text("changed after the checkpoint")

    found = place.shown(task)["incremental"]

    assert found["changes"]["workspace"] == {"newFiles": ["b.txt"], "modifiedFiles": ["a.txt"]}


def test_messages_beyond_the_bound_are_counted_and_the_newest_given(place: Place) -> None:
    many = "\n".join([f"line {number}" for number in range(250)])
    task = place.task([ASK], [{"say": many}, ASK])
    place.supervise()
    place.tasks.answers.answer(task.id, "a")
    place.supervise()
    latest = json.loads((place.workspace() / ".checkpoints/latest.json").read_text())["conversationHistory"]

    found = place.shown(task)["incremental"]["changes"]["conversationHistory"]

    first = 1 + 8  # the first run's prompt, and its question line by line
    assert latest["lastMessageIndex"] + 1 == first + 1 + 250 + 8
    assert len(latest["messages"]) == 200
    assert found == {"newMessages": latest["messages"], "startIndex": latest["lastMessageIndex"] + 1 - 200}


def test_what_a_verification_makes_is_in_no_document_of_the_checkpoint_before_it(place: Place) -> None:
    phase = {**PHASE, "verify": "touch made-by-the-verification", "review": True}
    place.task([{"write": ["a.txt", "1"]}, say_phase(1)], phases=[phase])

    place.supervise()

    latest = json.loads((place.workspace() / ".checkpoints/latest.json").read_text())
    assert (place.workspace() / "made-by-the-verification").exists()
    assert latest["workspace"]["deliverables"] == ["a.txt"]


@pytest.mark.parametrize("phases", [1, 2])
def test_a_phase_whose_verification_fails_counts_for_nothing(place: Place, phases: int) -> None:
    place.close()
    place.__init__(place.base, place.options.but(max_attempts=1))  # type: ignore[misc]
    failing = {**PHASE, "verify": "exit 1", "review": True}
    turn: list[dict[str, Any]] = [{"write": ["a", "1"]}, say_phase(1)]
    task = place.task(turn, turn, phases=[failing, PHASE][:phases])

    place.supervise()

    assert place.state(task) == ("review", "approval"), place
    latest = json.loads((place.workspace() / ".checkpoints/latest.json").read_text())
    assert latest["protocols"]["completedPhases"] == []
    assert latest["task"]["progress"] == place.shown(task)["progress"] == 0


def test_turns_of_words_alone_end_with_a_document_that_tells_the_hold(place: Place) -> None:
    task = place.task(*[[{"say": "I think about it."}]] * 4)

    place.supervise()

    assert place.state(task) == ("active", "no_progress"), place
    latest = json.loads((place.workspace() / ".checkpoints/latest.json").read_text())
    assert (latest["reason"], latest["task"]["status"], latest["agent"]["blockedBy"]) == (
        "turn",
        "paused",
        "no_progress",
    )


def test_progress_does_not_fall_back_when_a_run_says_nothing_of_it(place: Place) -> None:
    task = place.task([*BEGIN, ASK], [{"say": "On it."}, ASK])
    place.supervise()
    place.tasks.answers.answer(task.id, "a")
    place.supervise()

    latest = json.loads((place.workspace() / ".checkpoints/latest.json").read_text())
    assert latest["task"]["progress"] == 35
    assert latest["agent"]["currentStep"] == "03_users"


def test_a_rebuilt_task_knows_what_its_dependencies_were(place: Place) -> None:
    from keepfast.runner.actions import recovery

    task = place.task([KEY], [ASK], [DONE])
    place.supervise()
    place.tasks.answers.secret(task.id, "PAYMENT_KEY", "4711")
    place.supervise()
    before = json.loads((place.workspace() / ".checkpoints/latest.json").read_text())["environment"]["dependencies"]
    time.sleep(0.01)
    place.lose_database()

    recovery.rebuild(place.runtime, [str(place.base)])

    assert descriptions.dependencies(place.runtime.tables, task.id) == before
    assert before[0]["type"] == "api_key"


def test_a_restored_task_begins_its_phase_anew(place: Place) -> None:
    task = place.task([*BEGIN, ASK])
    place.supervise()
    assert place.shown(task)["progress"] == 35

    place.tasks.restore(task.id, "v1")

    shown = place.shown(task)
    assert (shown["progress"], shown["step"]) == (0, None)


def test_a_task_without_phases_has_none_in_its_messages_either(place: Place) -> None:
    plain = place.task([{"say": "one"}, DONE], name="plain")
    phased = place.task([{"say": "one"}, say_phase(1)], name="phased", phases=[PHASE])

    place.supervise()

    for task, phase in ((plain, None), (phased, 1)):
        document = json.loads(Path(task.workspace, ".checkpoints/latest.json").read_text())
        assert document["task"]["currentPhase"] == document["agent"]["currentPhase"] == phase
        found = [message["metadata"] for message in document["conversationHistory"]["messages"]]
        assert found and all(one.get("phase") == phase and ("phase" in one) == bool(phase) for one in found)
        begun = next(one for one in place.tasks.views.log(task.id) if one["type"] == "run_begun")
        assert begun["phase"] == phase


def test_an_older_document_of_a_task_without_phases_is_read_without_them(place: Place) -> None:
    task = place.task([{"say": "one"}, {"say": "[ERROR] type: fatal, message: no"}])
    place.supervise()
    path = Path(task.workspace, ".checkpoints/latest.json")
    document = documents.load(place.runtime, str(path))
    for message in document["conversationHistory"]["messages"]:
        message["metadata"]["phase"] = 1
    path.write_bytes(documents.signed(place.runtime, document))

    read = documents.load(place.runtime, str(path))

    assert len(read["conversationHistory"]["messages"]) == len(document["conversationHistory"]["messages"])
    assert not any("phase" in one["metadata"] for one in read["conversationHistory"]["messages"])
    place.lose_database()
    assert [one.outcome for one in recovery.rebuild(place.runtime, [task.workspace])] == ["rebuilt"]
    assert place.runtime.tables.task(task.id).phase == 1
