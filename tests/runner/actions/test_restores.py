"""Restores: a lost conversation comes back from its sealed checkpoint; where it cannot, people are told once and then asked."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from keepfast.app.unprotect import at, purge
from keepfast.cli.event_lines import log_line, supervisor_line
from keepfast.model.event import Event
from keepfast.runner.actions.report import report
from keepfast.runner.actions.restores import HELD, RESTARTING
from keepfast.runner.domain.records import Task
from keepfast.runner.domain.task import NotAllowed
from keepfast.runner.process import shims
from keepfast.store.maintenance.space import forget
from keepfast.store.rows import Query
from tests.runner.actions.test_finals import without_store
from tests.runner.place import DONE, Place
from tests.runner.scheduler.test_observation import change, client, result, spoken

ASK = "[USER_QUESTION]\nquestion: Which one?\n[/USER_QUESTION]"
END = [spoken(DONE["say"]), result()]
REFUSED = [result(is_error=True, result="No conversation found with session ID"), {"exit": 1}]
WORDS = ("Do it.", "the word is walnut", "and what now?", "I wait.")


def transcripts(place: Place) -> list[Path]:
    return sorted((place.home / ".claude/projects").glob("*/*.jsonl"))


def keep_session(place: Place, session: str) -> None:
    """The client keeps its conversation where it keeps them all."""
    folder = place.home / ".claude/projects/work"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        {"type": role, "uuid": f"{session}-{number}", "sessionId": session, "cwd": str(place.workspace()),
         "message": {"role": role, "content": text if role == "user" else [{"type": "text", "text": text}]}}
        for number, (role, text) in enumerate(zip(("user", "assistant") * 2, WORDS, strict=True))
    ]  # fmt: skip
    (folder / f"{session}.jsonl").write_text("".join([json.dumps(line) + "\n" for line in lines]))


def asked(place: Place, *turns: list[dict[str, Any]], **keys: Any) -> Task:
    """A task of a client that remembers, and waits for an answer."""
    go = place.base / "go"
    task = client(place, [{"wait_for": str(go)}, spoken(ASK), result()], *turns, **keys)
    place.supervise(until=lambda: place.journal() == ["begin 0"])
    keep_session(place, place.runtime.tables.task(task.id).session)
    go.touch()
    place.supervise()
    assert place.state(task) == ("active", "question"), place
    return task


def restored(place: Place, task: Task) -> list[dict[str, Any]]:
    return [one for one in place.tasks.views.log(task.id) if one["type"] == "checkpoint_restored"]


def warnings(place: Place, task: Task) -> list[str]:
    rows = place.runtime.tables.all("SELECT text FROM notice WHERE task = ? AND kind = 'warning'", task.id)
    return [row["text"] for row in rows]


def resumed(place: Place, task: Task) -> list[int]:
    return [run.resume for run in place.runtime.tables.runs("task = ?", task.id)]


@pytest.mark.databases
def test_a_conversation_lost_during_a_question_comes_back_from_its_checkpoint(place: Place) -> None:
    task = asked(place, END)
    [lost] = transcripts(place)
    lost.unlink()

    place.tasks.answers.answer(task.id, "the second")
    place.supervise()

    assert place.state(task) == ("done", ""), place
    [first, second] = place.runtime.tables.runs("task = ?", task.id)
    assert second.resume and second.session != first.session
    [back] = transcripts(place)
    lines = [json.loads(line) for line in back.read_text().splitlines()]
    assert back.stem == second.session and {line["sessionId"] for line in lines} == {second.session}
    assert "walnut" in back.read_text() and len(lines) == len(WORDS)
    assert "The answer: the second" in second.prompt and "# Task" not in second.prompt
    [event] = restored(place, task)
    kept = next(one for one in place.tasks.views.show(task.id)["checkpoints"] if one["reason"] == "question")
    assert (event["success"], event["checkpointId"], event["messages_restored"]) == (True, kept["id"], len(WORDS))
    assert warnings(place, task) == []


@pytest.mark.parametrize("left", [1, 3], ids=["a message", "all but the last"])
@pytest.mark.parametrize("is_longer", [False, True], ids=["shorter", "longer"])
def test_a_conversation_cut_short_during_a_question_comes_back_from_its_checkpoint(
    place: Place, left: int, is_longer: bool
) -> None:
    task = asked(place, END)
    [cut] = transcripts(place)
    rest = "".join(cut.read_text().splitlines(keepends=True)[:left])
    cut.write_text(rest + (json.dumps({"type": "system", "content": "x" * 4000}) + "\n" if is_longer else ""))

    place.tasks.answers.answer(task.id, "the second")
    place.supervise()

    assert place.state(task) == ("done", ""), place
    [first, second] = place.runtime.tables.runs("task = ?", task.id)
    assert second.resume and second.session != first.session
    back = next(path for path in transcripts(place) if path.stem == second.session)
    assert [json.loads(line)["uuid"] for line in back.read_text().splitlines()] == [
        f"{first.session}-{number}" for number in range(len(WORDS))
    ]
    assert [(one["success"], one["messages_restored"]) for one in restored(place, task)] == [(True, len(WORDS))]


def test_a_conversation_that_has_grown_is_gone_on_with(place: Place) -> None:
    task = asked(place, END)
    [grown] = transcripts(place)
    with grown.open("a") as file:
        file.write(json.dumps({"type": "user", "uuid": "later", "message": {"role": "user", "content": "and"}}) + "\n")

    place.tasks.answers.answer(task.id, "the second")
    place.supervise()

    [first, second] = place.runtime.tables.runs("task = ?", task.id)
    assert second.resume and second.session == first.session
    assert transcripts(place) == [grown] and restored(place, task) == []


def test_a_conversation_restored_in_another_form_counts_as_whole(place: Place) -> None:
    """A session that was made of a checkpoint may be shorter than the one that the checkpoint holds."""
    task = asked(place, END)
    place.tasks.restore(task.id, "latest")
    session = place.runtime.tables.task(task.id).session
    made = next(path for path in transcripts(place) if path.stem == session)
    lines = [json.loads(line) for line in made.read_text().splitlines()]
    made.write_text("".join([json.dumps({**line, "cwd": "/"}) + "\n" for line in lines]))

    place.supervise()

    assert place.runtime.tables.runs("task = ?", task.id)[-1].session == session


def test_without_its_key_a_fresh_session_begins_and_people_are_warned(place: Place) -> None:
    task = asked(place, END)
    [lost] = transcripts(place)
    lost.unlink()
    for key in (place.data / "keys").glob("*.key"):
        key.rename(place.base / key.name)

    place.tasks.answers.answer(task.id, "the second")
    place.supervise(until=lambda: bool(warnings(place, task)))
    for key in place.base.glob("*.key"):
        key.rename(place.data / "keys" / key.name)
    place.supervise()

    assert place.state(task) == ("done", ""), place
    assert resumed(place, task) == [0, 0]
    assert warnings(place, task).count(RESTARTING) == 1
    assert [(one["success"], one["messages_restored"]) for one in restored(place, task)] == [(False, 0)]
    prompt = place.runtime.tables.runs("task = ?", task.id)[-1].prompt
    assert "# Task: Do it." in prompt and "The answer: the second" in prompt


def test_whoever_brings_the_key_back_and_resumes_gets_the_conversation_back(place: Place) -> None:
    go = place.base / "again"
    task = asked(place, [{"wait_for": str(go)}, spoken(ASK.replace("?", " again?")), result()], END)
    transcripts(place)[0].unlink()
    hide_keys(place)
    place.tasks.answers.answer(task.id, "the first")
    place.supervise(until=lambda: place.journal().count("begin 1") == 1)
    why = [one["why"] for one in place.tasks.views.log(task.id) if one["type"] == "run_begun"][-1]
    assert "restored" in why and "no session" not in why
    show_keys(place)
    keep_session(place, place.runtime.tables.task(task.id).session)
    go.touch()
    place.supervise(until=place.holds(task, "question"))
    for path in transcripts(place):
        path.unlink()
    hide_keys(place)
    place.tasks.answers.answer(task.id, "the second")
    place.supervise()
    assert place.state(task) == ("active", "crashed"), place
    [held] = place.tasks.views.inbox()
    assert why.partition(":")[0] in held["text"]

    show_keys(place)
    place.tasks.resume(task.id)
    place.supervise()

    assert place.state(task) == ("done", ""), place
    assert resumed(place, task) == [0, 0, 1]
    assert [one["success"] for one in restored(place, task)] == [False, False, True]
    assert restored(place, task)[-1]["messages_restored"] == 4


def test_whoever_resumes_without_the_key_begins_anew(place: Place) -> None:
    task = asked(place, END)
    transcripts(place)[0].unlink()
    hide_keys(place)
    with place.runtime.tables.write() as tables:
        tables.change(task.id, place.now(), restores=1)
    place.tasks.answers.answer(task.id, "the second")
    place.supervise()
    assert place.state(task) == ("active", "crashed"), place

    place.tasks.resume(task.id)
    place.supervise()

    assert place.state(task) == ("done", ""), place
    assert resumed(place, task) == [0, 0]


def hide_keys(place: Place) -> None:
    for key in (place.data / "keys").glob("*.key"):
        key.rename(place.base / key.name)


def show_keys(place: Place) -> None:
    for key in place.base.glob("*.key"):
        key.rename(place.data / "keys" / key.name)


def test_the_warning_is_shown_where_people_look(place: Place) -> None:
    task = asked(place, REFUSED, REFUSED, END)

    place.tasks.answers.answer(task.id, "the second")
    place.supervise()

    [event] = [one for one in place.tasks.views.log(task.id) if one["type"] == "warning"]
    assert event["message"] == RESTARTING
    assert RESTARTING in supervisor_line(event) and RESTARTING in log_line(event)
    assert [one["message"] for one in report(place.runtime, 0)["tasks"][0]["warnings"]] == [RESTARTING]
    assert [one["message"] for one in place.tasks.views.show(task.id)["warnings"]] == [RESTARTING]


def test_a_missing_key_is_told_in_the_log_and_in_the_report(place: Place) -> None:
    task = place.task(
        [{"write": [".env", "PASSWORD=one-17"]}, {"say": ASK}], [{"write": [".env", "PASSWORD=two-17"]}, DONE]
    )
    place.supervise()
    keys = place.data / "keys"
    [old] = keys.glob("*.key")
    keys.rename(place.base / "away")

    place.tasks.answers.answer(task.id, "the second")
    place.supervise()

    assert place.state(task) == ("done", ""), place
    assert not old.exists()
    [missing] = place.tasks.views.show(task.id)["missing_keys"]
    assert report(place.runtime, 0)["missing_keys"] == [missing]
    [warning] = warnings(place, task)
    assert missing in warning
    assert [one["message"] for one in place.tasks.views.log(task.id) if one["type"] == "warning"] == [warning]
    (place.base / "away" / old.name).rename(old)
    assert place.tasks.views.show(task.id)["missing_keys"] == []


def test_a_conversation_that_the_client_refuses_comes_back_from_its_checkpoint(place: Place) -> None:
    task = asked(place, REFUSED, END)

    place.tasks.answers.answer(task.id, "the second")
    place.supervise()

    assert place.state(task) == ("done", ""), place
    assert resumed(place, task) == [0, 1, 1]
    sessions = [run.session for run in place.runtime.tables.runs("task = ?", task.id)]
    assert sessions[0] == sessions[1] != sessions[2]
    assert "The answer: the second" in place.runtime.tables.runs("task = ?", task.id)[-1].prompt
    assert [one["success"] for one in restored(place, task)] == [True]


def test_refused_again_it_begins_anew_and_then_a_person_decides(place: Place) -> None:
    cut = [spoken("I work."), {"exit": 3}]
    change(place, backoff_first=600, backoff_longest=600, resume_with="history")
    task = asked(place, REFUSED, REFUSED, cut, REFUSED, REFUSED)
    place.tasks.answers.answer(task.id, "the second")
    place.supervise(until=place.holds(task, "backoff"))
    assert resumed(place, task) == [0, 1, 1, 0]
    assert warnings(place, task) == [RESTARTING]
    keep_session(place, place.runtime.tables.task(task.id).session)

    place.tasks.try_now(task.id)
    place.supervise()

    assert place.state(task) == ("active", "crashed"), place
    assert resumed(place, task) == [0, 1, 1, 0, 1, 1]
    assert [one["success"] for one in restored(place, task)][-1] is False
    assert [one["hold"] for one in place.tasks.views.inbox()] == ["crashed"]
    assert warnings(place, task) == [RESTARTING, HELD], "what is not restarted is not said to be"


def test_whoever_wants_a_brief_gets_one_and_no_conversation_is_written(place: Place) -> None:
    change(place, resume_with="brief")
    task = asked(place, END)
    [lost] = transcripts(place)
    lost.unlink()

    place.tasks.answers.answer(task.id, "the second")
    place.supervise()

    assert resumed(place, task) == [0, 0] and transcripts(place) == []
    assert warnings(place, task) == []


def test_a_restored_session_that_is_lost_before_it_began_comes_back_again(place: Place) -> None:
    task = asked(place, END)
    place.tasks.restore(task.id, "latest")
    for path in transcripts(place):
        path.unlink()

    place.supervise()

    assert place.state(task) == ("done", ""), place
    assert resumed(place, task) == [0, 1]
    assert [one["success"] for one in restored(place, task)] == [True, True]


@pytest.mark.databases
@pytest.mark.parametrize(
    ("cut", "reason"),
    [
        ([{"exit": 3}], "crash"),
        ([{"limited": 1}, {"exit": 1}], "rate_limit"),
        ([{"say": "[ERROR]\ntype: recoverable\nmessage: no\nrecovery: pause_and_retry\n[/ERROR]"}], "error"),
    ],
)
def test_a_run_that_was_cut_off_is_restored_from_its_checkpoint(
    place: Place, cut: list[dict[str, Any]], reason: str
) -> None:
    task = place.task([{"write": ["a.txt", "1"]}, *cut], [DONE])
    place.tasks.answers.secret(task.id, "TOKEN", "value-of-it")
    place.supervise()

    assert place.state(task) == ("done", ""), place
    [event] = restored(place, task)
    kept = next(one for one in place.tasks.views.show(task.id)["checkpoints"] if one["reason"] == reason)
    assert (event["success"], event["checkpointId"], event["run"]) == (True, kept["id"], f"{task.id}:2")
    assert (event["messages_restored"], event["environment_variables"]) == (0, 1) and event["duration_ms"] >= 0


def test_a_resumed_pause_is_a_restore_with_the_messages_of_its_history(place: Place) -> None:
    task = client(place, [{"sleep": 60}], END)
    place.supervise(until=lambda: place.journal() == ["begin 0"])
    keep_session(place, place.runtime.tables.task(task.id).session)
    place.tasks.pause(task.id, now=True)
    place.supervise()
    (place.base / "work.journal").write_text("begin 0\nend 0\n")

    place.tasks.resume(task.id)
    place.supervise()

    [event] = restored(place, task)
    kept = next(one for one in place.tasks.views.show(task.id)["checkpoints"] if one["reason"] == "user_pause")
    assert (event["checkpointId"], event["messages_restored"]) == (kept["id"], len(WORDS))


def test_a_turn_that_ended_by_itself_is_not_restored(place: Place) -> None:
    task = asked(place, [spoken("hm"), result()], END)
    place.tasks.answers.answer(task.id, "the second")
    place.supervise()

    assert place.outcomes(task) == ["asked", "idle", "complete"]
    assert restored(place, task) == []


def test_what_a_person_restored_is_told_once(place: Place) -> None:
    task = place.task([{"write": ["a.txt", "1"]}, {"exit": 3}], [DONE])
    place.supervise(until=place.holds(task, "backoff"))
    place.tasks.restore(task.id, "v1")
    place.supervise()

    assert place.state(task) == ("done", ""), place
    assert len(restored(place, task)) == 1


def test_a_client_that_keeps_nothing_is_started_afresh_each_time_without_a_warning(place: Place) -> None:
    hm = [spoken("hm"), result()]
    task = client(place, hm, hm, END)
    place.supervise()

    assert place.state(task) == ("done", ""), place
    assert resumed(place, task) == [0, 0, 0] and warnings(place, task) == []


# What the task has made


def paused_after(place: Place, *made: str) -> Task:
    """A task that was paused after it made these files."""
    files: list[dict[str, Any]] = [{"write": [name, "x"]} for name in made]
    go = place.base / "go"
    task = place.task([*files, {"wait_for": str(go)}], [DONE])
    place.supervise(until=lambda: all((place.workspace() / name).exists() for name in made))
    place.tasks.pause(task.id, now=True)
    place.supervise()
    assert place.state(task) == ("active", "user_pause"), place
    go.touch()
    return task


def test_work_that_is_gone_is_not_gone_on_with_as_if_it_were_there(place: Place) -> None:
    task = paused_after(place, "a.txt", "b.txt")
    for name in ("a.txt", "b.txt"):
        (place.workspace() / name).unlink()

    place.tasks.resume(task.id)
    place.supervise()

    assert place.state(task) == ("done", ""), place
    assert warnings(place, task) == [RESTARTING]
    assert [one["success"] for one in restored(place, task)] == [False]
    assert "a.txt, b.txt" in place.told()[1]


def crashed_after(place: Place, *turns: list[dict[str, Any]], lost: tuple[str, ...], with_shim: bool = True) -> Task:
    """A task that was saved after it made `a.txt`; no supervisor saw how its agent was killed and these files went."""
    change(place, checkpoint_interval=0.5)
    task = place.task([{"write": ["a.txt", "1"]}, {"sleep": 600}], *turns)
    place.supervise(until=lambda: "interval" in place.reasons(task))
    run = place.runtime.tables.last_run(task.id)
    assert run is not None
    pid = shims.agent(run.folder).pid
    assert pid
    shim = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    for one in (shim, pid) if with_shim else (pid,):
        os.kill(one, signal.SIGKILL)
    for name in lost:
        (place.workspace() / name).unlink()
    with (place.base / "work.journal").open("a") as journal:
        journal.write("end 0\n")
    return task


@pytest.mark.parametrize("with_shim", [True, False])
def test_work_that_is_gone_after_a_crash_is_missed_though_the_checkpoint_of_the_crash_has_none(
    place: Place, with_shim: bool
) -> None:
    task = crashed_after(place, [DONE], lost=("a.txt",), with_shim=with_shim)

    place.supervise()

    assert place.state(task) == ("done", ""), place
    assert "crash" in place.reasons(task)
    assert warnings(place, task) == [RESTARTING]
    assert [one["success"] for one in restored(place, task)] == [False]
    [begun] = [one for one in place.tasks.views.log(task.id) if one["type"] == "run_begun"][1:]
    assert "Workspace validation failed" in begun["why"]
    assert "a.txt" in place.told()[1]


def test_work_that_a_crash_lost_is_missed_once(place: Place) -> None:
    """What the run after it does not make again is no second loss."""
    task = crashed_after(place, [{"exit": 3}], [DONE], lost=("a.txt",))

    place.supervise()

    assert place.state(task) == ("done", ""), place
    assert [one["success"] for one in restored(place, task)] == [False, True]


def test_work_that_a_crash_left_is_gone_on_with(place: Place) -> None:
    """Also if the agent had put it elsewhere since it was saved."""
    task = crashed_after(place, [DONE], lost=())
    (place.workspace() / "a.txt").rename(place.workspace() / "b.txt")

    place.supervise()

    assert place.state(task) == ("done", ""), place
    assert warnings(place, task) == []
    assert [one["success"] for one in restored(place, task)] == [True]


def checked_later(place: Place, task: Task) -> None:
    """The store is away: the task is held and tried again, and nobody says that it was restored."""
    held = place.holds(task, "backoff")
    with without_store(place):
        place.tasks.resume(task.id)
        place.supervise(until=held)
        [first] = place.runtime.tables.holds()
        place.supervise(until=lambda: held() and place.runtime.tables.holds()[0].id > first.id)

        assert "cannot be compared" in first.reason and first.due_at and not first.human
        assert restored(place, task) == [] and place.outcomes(task) == ["paused"]
    assert warnings(place, task) == []


def test_without_the_store_a_task_whose_files_are_gone_waits_until_that_can_be_told(place: Place) -> None:
    task = paused_after(place, "a.txt", "b.txt")
    for name in ("a.txt", "b.txt"):
        (place.workspace() / name).unlink()

    checked_later(place, task)
    place.supervise()

    assert place.state(task) == ("done", ""), place
    assert warnings(place, task) == [RESTARTING]
    assert [one["success"] for one in restored(place, task)] == [False]


def test_without_the_store_and_documents_nobody_knows_what_is_gone(place: Place) -> None:
    task = paused_after(place, "a.txt")
    shutil.rmtree(place.workspace() / ".checkpoints")

    checked_later(place, task)
    place.supervise()

    assert place.state(task) == ("done", ""), place
    assert [one["success"] for one in restored(place, task)] == [True]


def test_without_the_store_the_documents_tell_that_all_files_are_there(place: Place) -> None:
    task = paused_after(place, "a.txt", "b.txt")
    with without_store(place):
        place.tasks.resume(task.id)
        place.supervise()

    assert place.state(task) == ("active", "unsaved"), place
    assert [one["success"] for one in restored(place, task)] == [True]
    assert place.outcomes(task) == ["paused", "idle", "complete"]


def test_an_agent_is_told_which_of_its_files_are_gone(place: Place) -> None:
    task = paused_after(place, "a.txt", "b.txt")
    (place.workspace() / "b.txt").unlink()

    place.tasks.resume(task.id)
    place.supervise()

    assert warnings(place, task) == []
    assert [one["success"] for one in restored(place, task)] == [True]
    assert ": b.txt." in place.told()[1]


def test_a_task_whose_checkpoints_were_all_forgotten_is_not_resumed(place: Place) -> None:
    task = paused_after(place, "a.txt")
    with place.runtime.engine() as engine:
        rows = engine.repository().ledger.find(Query())
        forget(engine.repository(), rows[0].workspace, [row.version for row in rows], "by a person")

    with pytest.raises(NotAllowed, match="No checkpoint found to resume from"):
        place.tasks.resume(task.id)

    assert place.state(task) == ("active", "user_pause")


@pytest.mark.parametrize("saved_again", [False, True])
def test_a_task_whose_history_was_purged_is_not_resumed(place: Place, saved_again: bool) -> None:
    """Not even if a new history of the folder has the same version numbers."""
    task = paused_after(place, "a.txt")
    with place.runtime.engine() as engine:
        purge(engine, [at(engine, os.fsencode(place.workspace()))])
        if saved_again:
            for number in range(6):
                (place.workspace() / "other.txt").write_text(str(number))
                engine.handle(Event(os.fsencode(place.workspace()), engine.clock(), adopt=True))

    with pytest.raises(NotAllowed, match="No checkpoint found to resume from"):
        place.tasks.resume(task.id)

    assert place.tasks.views.show(task.id)["checkpoints"] == []
    assert place.tasks.views.show(task.id)["checkpoints_total"] == 0
