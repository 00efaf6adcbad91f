"""Files in the workspace: the source's fields, one `latest`, a code against forgery, and a database made again from them."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from keepfast.model.errors import Conflict, Damaged, NewerFormat
from keepfast.runner.actions import documents, folders, metadata, recovery
from keepfast.store.maintenance import space
from tests.runner.place import DONE, PHASE, Place, say_phase
from tests.runner.scheduler.test_observation import change

ASK = {"say": "[USER_QUESTION]\nquestion: Which one?\noptions:\n - a\n - b\n[/USER_QUESTION]"}


def folder(place: Place) -> Path:
    return place.workspace() / ".checkpoints"


def test_a_checkpoint_has_the_fields_of_the_source(place: Place) -> None:
    task = place.task([{"write": ["docs/idea.md", "x"]}, say_phase(1)], phases=[PHASE])
    place.tasks.answers.secret(task.id, "API_KEY", "value-of-the-key")

    place.supervise()

    assert os.readlink(folder(place) / "latest.json").endswith("_final.json")
    [latest] = folder(place).glob("*_phase1_complete.json")
    document = json.loads(latest.read_text())
    assert set(document) == {
        "schemaVersion", "id", "taskId", "createdAt", "createdBy", "reason", "task", "agent", "conversationHistory",
        "environment", "workspace", "protocols", "mac",
    }  # fmt: skip
    assert set(document["task"]) == {"status", "type", "currentPhase", "progress"}
    assert set(document["agent"]) == {"status", "pid", "currentPhase", "currentStep", "tokensUsed", "blockedBy"}
    assert document["environment"]["variables"]["API_KEY"].startswith("encrypted:")
    assert document["environment"]["dependencies"][0]["name"] == "API_KEY"
    assert document["workspace"]["deliverables"] == ["docs/idea.md"]
    assert (document["reason"], document["createdBy"]) == ("phase_complete", "system")
    assert documents.load(place.runtime, str(latest))["id"] == document["id"]


def test_a_document_that_somebody_changed_is_not_used(place: Place) -> None:
    place.task([DONE])
    place.supervise()
    path = folder(place) / "latest.json"
    document = json.loads(path.read_text())
    document["task"]["status"] = "completed, I promise"
    forged = folder(place) / "checkpoint_forged.json"
    forged.write_text(json.dumps(document))

    with pytest.raises(Damaged, match="has no valid signature"):
        documents.load(place.runtime, str(forged))


def test_ten_of_an_interval_stay_and_all_others(place: Place) -> None:
    where = folder(place)
    where.mkdir()
    for number in range(15):
        (where / f"checkpoint_2026-01-01T00-00-{number:02d}-000.json").write_text("{}")
    (where / "checkpoint_2025-01-01T00-00-00-000_phase1_complete.json").write_text("{}")
    (where / "latest.json").symlink_to("checkpoint_2026-01-01T00-00-14-000.json")

    documents.prune(str(place.workspace()))

    names = sorted(path.name for path in where.iterdir() if path.name.startswith("checkpoint"))
    assert len(names) == 11
    assert names[0] == "checkpoint_2025-01-01T00-00-00-000_phase1_complete.json.gz"
    assert (where / "latest.json").read_text() == "{}"
    assert gzip.decompress((where / names[0]).read_bytes()) == b"{}"


def test_our_folders_are_ignored_by_git_and_not_captured(place: Place) -> None:
    place.task([DONE])
    place.supervise()

    for name in (".metadata", ".checkpoints", ".logs"):
        assert (place.workspace() / name / ".gitignore").read_text().endswith("*\n")
    with place.runtime.engine() as engine:
        _, row = engine.workspaces.root(os.fsencode(place.workspace()))
        paths = [entry.path for entry in engine.repository().ledger.state(row.id, row.version)]
        assert not [path for path in paths if path.startswith((b".metadata/", b".checkpoints/"))]


def test_the_history_is_appended_to_once(place: Place) -> None:
    task = place.task([DONE])
    place.supervise()
    metadata.project(place.runtime, task.id)

    lines = (place.workspace() / ".metadata/history.jsonl").read_text().splitlines()
    numbers = [json.loads(line)["sequence"] for line in lines]
    assert numbers == sorted(set(numbers))
    assert {"task_created", "state_transition", "checkpoint_created"} <= {json.loads(line)["type"] for line in lines}


def test_older_documents_are_migrated_and_newer_ones_refused() -> None:
    old = {"version": 0, "task": {"phase": 2}, "conversationHistory": {"messages": [{"content": "x"}]}}

    found = documents.migrate(old)

    assert found["task"]["currentPhase"] == 2
    assert found["conversationHistory"]["messages"][0]["role"] == "assistant"
    assert found["environment"]["dependencies"] == []
    with pytest.raises(NewerFormat):
        documents.migrate({"schemaVersion": 99})


def test_the_incremental_form(place: Place) -> None:
    task = place.task([{"write": ["a.txt", "1"]}, ASK], [{"write": ["b.txt", "2"]}, DONE])
    place.supervise()
    place.tasks.answers.answer(task.id, "a")
    place.supervise()

    found = place.shown(task)["incremental"]

    assert set(found) == {"baseCheckpointId", "changes"}
    assert found["changes"]["workspace"]["newFiles"] == ["b.txt"]


@pytest.mark.databases
def test_a_lost_database_is_made_again_and_people_decide(place: Place) -> None:
    phases = [{**PHASE, "review": True}, PHASE]
    task = place.task([{"write": ["a.txt", "1"]}, say_phase(1)], [say_phase(2)], phases=phases)
    asked = place.task([ASK], [DONE], name="asked")
    place.tasks.answers.secret(asked.id, "TOKEN", "value-of-it")
    place.supervise()
    place.lose_database()

    found = recovery.rebuild(place.runtime, [str(place.base)])

    assert {one.outcome for one in found} == {"rebuilt"}
    assert place.state(task) == ("review", "approval"), "an approval is never restored, a completed phase is"
    assert (place.shown(task)["phase"], place.shown(task)["progress"]) == (1, 50)
    assert place.shown(asked)["secrets"] == ["TOKEN"]
    waiting = [(one["task"], one["hold"] or one["text"]) for one in place.tasks.views.inbox()]
    review = "Phase 1 (Only) is complete. The task database was rebuilt: review the phase again."
    assert sorted(waiting) == sorted([(task.id, review), (asked.id, "user_pause"), (asked.id, "Which one?")])
    assert recovery.rebuild(place.runtime, [str(place.base)])[0].outcome == "there"
    place.tasks.answers.answer(asked.id, "a")
    place.tasks.resume(asked.id)
    place.supervise()
    assert place.state(asked) == ("done", "")
    place.tasks.answers.approve(task.id)
    place.supervise()
    assert place.state(task) == ("done", "")
    assert place.journal() == ["begin 0", "end 0", "begin 1", "end 1"], "the first phase is not done again"


def test_a_rebuilt_review_is_bound_to_the_files_and_remembers_that_the_verification_fails(place: Place) -> None:
    change(place, max_attempts=1)
    phases = [{**PHASE, "review": True, "verify": "false"}, PHASE]
    task = place.task([{"write": ["a.txt", "1"]}, say_phase(1)], [say_phase(1)], phases=phases)
    good = place.task([say_phase(1)], phases=[{**PHASE, "review": True}], name="good")
    place.supervise()
    before = place.shown(task)["progress"]
    place.lose_database()
    recovery.rebuild(place.runtime, [str(place.base)])
    (place.workspace("good") / "b.txt").write_text("since then")

    assert place.state(task) == ("review", "approval") and place.shown(task)["progress"] == before == 0
    with pytest.raises(Conflict, match="verification"):
        place.tasks.answers.approve(task.id)
    with pytest.raises(Conflict, match="changed since"):
        place.tasks.answers.approve(good.id)


@pytest.mark.parametrize("ending", ["crash", "pause"])
def test_a_task_that_resumes_after_a_rebuild_was_restored_from_its_newest_checkpoint(place: Place, ending: str) -> None:
    change(place, max_attempts=1)
    turn = [
        {"write": ["a.txt", "1"]},
        *([{"exit": 3}] if ending == "crash" else [{"wait_for": str(place.base / "go")}]),
    ]
    task = place.task(turn, [DONE])
    if ending == "pause":
        place.supervise(until=lambda: place.journal() == ["begin 0"])
        place.tasks.pause(task.id, now=True)
    place.supervise()
    newest = place.shown(task)["checkpoints"][0]["id"]
    place.lose_database()
    recovery.rebuild(place.runtime, [str(place.base)])
    place.tasks.resume(task.id)
    (place.base / "work.journal").write_text("begin 0\nend 0\n")
    place.supervise()

    restored = [event for event in place.tasks.views.log(task.id) if event["type"] == "checkpoint_restored"]
    assert [(event["checkpointId"], event["success"]) for event in restored] == [(newest, True)]
    assert place.state(task) == ("done", "")


def test_a_rebuilt_task_knows_all_its_checkpoints_and_what_was_said(place: Place) -> None:
    turns: list[list[dict[str, Any]]] = [
        [{"write": ["a.txt", str(number)]}, {"say": f"turn {number}"}, {"exit": 3}] for number in range(5)
    ]
    change(place, max_attempts=20)
    task = place.task(*turns, [ASK], [DONE])
    place.supervise()
    before = place.shown(task)["checkpoints"]
    index = json.loads((folder(place) / "latest.json").read_text())["conversationHistory"]["lastMessageIndex"]
    assert len(before) == 7 and index > 10
    assert list(folder(place).glob("*.gz")), "compressed ones count as well"
    place.lose_database()
    recovery.rebuild(place.runtime, [str(place.base)])

    assert place.shown(task)["checkpoints"] == before
    place.tasks.answers.answer(task.id, "a")
    place.tasks.resume(task.id)
    place.supervise()
    after = json.loads((folder(place) / "latest.json").read_text())["conversationHistory"]
    assert place.state(task) == ("done", "")
    assert after["lastMessageIndex"] > index
    assert any("turn 4" in one["content"] for one in after["messages"])


def forget(place: Place, *versions: str) -> None:
    with place.runtime.engine() as engine:
        _, workspace = engine.workspaces.root(os.fsencode(place.workspace()))
        space.forget(engine.repository(), workspace.id, [int(version[1:]) for version in versions], "a test")


def test_forgotten_checkpoints_of_a_task_are_not_listed_and_their_documents_go(place: Place) -> None:
    task = place.task([{"write": ["a.txt", "1"]}, ASK], [{"write": ["a.txt", "2"]}, ASK], [DONE])
    place.supervise()
    place.tasks.answers.answer(task.id, "a")
    place.supervise()
    assert [point["version"] for point in place.shown(task)["checkpoints"]] == ["v3", "v2", "v1"]
    forget(place, "v1", "v2")

    shown = place.shown(task)
    assert [point["version"] for point in shown["checkpoints"]] == ["v3"] and shown["checkpoints_total"] == 1
    assert shown["hold"]["kind"] == "question"
    place.supervise(until=lambda: True)
    assert not list(folder(place).glob("*_start.json*")), "a supervisor that starts removes them"
    kept = {path.name.removesuffix(".gz") for path in folder(place).glob("checkpoint_*")}
    assert kept == {shown["checkpoints"][0]["file"]}
    forget(place, "v3")
    place.supervise(until=lambda: True)
    assert (folder(place) / "latest.json").exists(), "the database can still be rebuilt"
    assert place.shown(task)["checkpoints"] == [] and place.shown(task)["checkpoints_total"] == 0


def test_documents_of_another_task_in_the_same_folder_are_not_taken_over(place: Place) -> None:
    one = place.task([{"write": ["a.txt", "1"]}, DONE])
    place.supervise()
    two = place.task([ASK])
    place.supervise()
    shown = place.shown(two)["checkpoints"]
    place.lose_database()
    recovery.rebuild(place.runtime, [str(place.base)])

    assert place.shown(two)["checkpoints"] == shown
    assert [task["id"] for task in place.tasks.views.listing()] == [two.id] != [one.id]


def test_without_any_checkpoint_it_is_a_cold_start(place: Place) -> None:
    task = place.task([ASK], [DONE], type="create_app", phases=[PHASE] * 4)
    place.supervise()
    planning = place.workspace() / "docs/planning"
    planning.mkdir(parents=True)
    for number in range(9):
        (planning / f"{number}.md").write_text("x" * 600)
    for path in folder(place).iterdir():
        path.unlink()
    place.lose_database()

    [found] = recovery.rebuild(place.runtime, [str(place.base)])

    assert found.outcome == "cold start"
    assert place.shown(task)["phase"] == 2


def test_a_cold_start_never_goes_beyond_the_last_phase(tmp_path: Path) -> None:
    (tmp_path / "docs/analysis").mkdir(parents=True)
    (tmp_path / "docs/analysis/a.md").write_text("x" * 600)

    assert recovery.infer_phase(str(tmp_path), "modify_app", 1, 1) == 1
    assert recovery.infer_phase(str(tmp_path), "modify_app", 1, 4) == 2


def test_what_a_killed_supervisor_left_while_it_compressed_goes(tmp_path: Path) -> None:
    folder = tmp_path / folders.CHECKPOINTS
    folder.mkdir(parents=True)
    (folder / "checkpoint_1.json").write_text("{}")
    (folder / "checkpoint_0.json.gz.77.new").write_text("half")
    (folder / "latest.json").symlink_to("checkpoint_1.json")

    documents.prune(str(tmp_path))

    assert sorted(one.name for one in folder.iterdir()) == ["checkpoint_1.json", "latest.json"]


def test_messages_of_a_later_run_have_the_step_of_the_one_before_until_another_is_told(place: Place) -> None:
    step = "[PROGRESS]\nstep: {}\n[/PROGRESS]"
    turns = [
        [{"say": step.format("03_users")}, ASK],
        [{"say": "going on"}, {"say": step.format("04_last")}, say_phase(1)],
    ]
    task = place.task(*turns, [{"say": "another phase"}, say_phase(2)], phases=[PHASE, PHASE])
    place.supervise()
    place.tasks.answers.answer(task.id, "a")
    place.supervise()

    messages = json.loads((folder(place) / "latest.json").read_text())["conversationHistory"]["messages"]
    steps = [(one["metadata"]["phase"], one["metadata"]["step"]) for one in messages if one["role"] == "user"]
    assert steps == [(1, None), (1, "03_users"), (2, None)]
    said = {one["content"].strip(): one["metadata"]["step"] for one in messages}
    assert (said["going on"], said["another phase"]) == ("03_users", None)
    begun = [event["step"] for event in place.tasks.views.log(task.id) if event["type"] == "run_begun"]
    assert begun == [None, "03_users", None]
