"""The hook as the client starts it: what is saved, what is said, and what happens when something is in the way."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from keepfast.app.hooks import LARGE_CACHE_BYTES
from keepfast.state import pending_events as pending
from keepfast.state import sessions, workers
from tests.equipment import stopped_holder
from tests.equipment.judge import judge

from .ground import SESSION, Ground, wait


@contextmanager
def held(ground: Ground) -> Iterator[None]:
    """Nobody can save the project for as long as this lasts."""
    with (ground.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def start(ground: Ground, name: str, **fields: object) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        ground.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ground.project, env=ground.variables
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(ground.payload(name, **fields)).encode())
    process.stdin.close()
    return process


# What is saved


@pytest.mark.parametrize(
    ("name", "fields", "trigger"),
    [
        ("SessionStart", {"source": "resume"}, "session_start"),
        ("UserPromptSubmit", {"prompt": "go on"}, "prompt"),
        ("Stop", {"last_assistant_message": "Done."}, "turn"),
        ("StopFailure", {"error": "rate_limit"}, "rate_limit"),
        ("StopFailure", {"error": "server_error"}, "error"),
        ("SubagentStop", {"agent_id": "a1", "agent_type": "general-purpose"}, "subagent"),
        ("PreCompact", {"trigger": "auto"}, "before_compact"),
        ("SessionEnd", {"reason": "other"}, "session_end"),
        ("SessionEnd", {"reason": "clear"}, "before_clear"),
    ],
)
def test_an_event_saves_what_anybody_changed(started: Ground, name: str, fields: dict[str, str], trigger: str) -> None:
    (started.project / "a.txt").write_text("two\n")
    (started.project / "한글 파일").write_text("new\n")

    done = started.hook(name, **fields)

    judge(name, done.stdout, done.returncode)
    assert (done.returncode, done.stderr) == (0, b"")
    assert started.triggers() == ["session_start", trigger]
    row = started.checkpoints()[-1]
    assert started.contents(row) == {"a.txt": b"two\n", "한글 파일": b"new\n"}
    assert (row.session, started.header(row)["agent"]) == (SESSION, "claude-code")


@pytest.mark.parametrize("name", ["SessionStart", "UserPromptSubmit", "Stop", "SubagentStop", "SessionEnd"])
def test_nothing_changed_makes_no_version(started: Ground, name: str) -> None:
    done = started.hook(name, source="startup", reason="clear", agent_type="x")

    judge(name, done.stdout, done.returncode)
    assert (done.returncode, done.stderr) == (0, b"")
    assert started.triggers() == ["session_start"]


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("SubagentStop", {"agent_type": ""}),
        ("Notification", {}),
        ("PostCompact", {}),
        ("Unheard", {}),
        ("PostToolUse", {"tool_name": "Write", "tool_input": {"file_path": "/x"}}),
    ],
)
def test_events_that_save_nothing(started: Ground, name: str, fields: dict[str, object]) -> None:
    (started.project / "a.txt").write_text("two\n")

    done = started.hook(name, **fields)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert started.triggers() == ["session_start"]


def test_a_turn_tells_of_its_tokens_and_files(started: Ground) -> None:
    started.answers(96_700)
    started.hook("PostToolUse", tool_name="Read", tool_input={"file_path": str(started.project / "a.txt")})
    started.hook("PostToolUse", tool_name="Write", tool_input={"file_path": str(started.project / "sub" / "b.txt")})
    started.hook("PostToolUse", tool_name="Edit", tool_input={"file_path": str(started.project / "c.txt")})
    started.hook("PostToolUse", tool_name="Write", tool_input={"file_path": "/elsewhere/d.txt"})
    (started.project / "c.txt").write_text("c\n")
    started.hook("Stop", last_assistant_message="Done.")

    header = started.header(started.checkpoints()[-1])

    assert (header["tokens_used"], header["token_budget"]) == (96_700, 967_000)
    assert header["active_files"] == ["c.txt", "sub/b.txt"]


@pytest.mark.parametrize(
    ("asked", "has_secrets"),
    [
        ("Implement JWT validation in the auth middleware, with refresh tokens and tests for expiry.", False),
        ("Log in to the billing service with password=k9Zq2 and token=m7XwR4, then export all its invoices.", True),
    ],
)
def test_a_summary_has_eighty_characters_at_most_and_redacts_no_words(
    started: Ground, asked: str, has_secrets: bool
) -> None:
    for prompt in (asked, "commit it and push to the branch please"):
        started.hook("UserPromptSubmit", prompt=prompt)
        (started.project / "a.txt").open("a").write("more\n")
        started.hook("Stop", last_assistant_message="Done.")

        header = started.header(started.checkpoints()[-1])

        assert len(header["message"]) <= 80 and len(header["summary"]) <= 80
        assert header["message"].startswith(asked[:15])
        assert ("[redacted:" in header["message"]) <= has_secrets
        assert "k9Zq2" not in header["message"] and "m7XwR4" not in header["message"]


def test_a_project_with_spaces_and_hangul_in_its_path(tmp_path: Path) -> None:
    ground = Ground(tmp_path, project="내 프로젝트 (1)")
    (ground.project / "a").write_text("x")

    ground.hook("SessionStart", source="startup")

    assert ground.triggers() == ["session_start"]


def test_a_folder_below_the_root_belongs_to_its_workspace(started: Ground) -> None:
    below = started.project / "deep" / "er"
    below.mkdir(parents=True)

    started.hook("Stop", cwd=str(below))

    assert started.triggers() == ["session_start", "turn"]
    assert not (below / ".keepfast").exists()


def test_a_folder_that_is_gone_does_not_keep_its_workspace_from_being_saved(started: Ground) -> None:
    (started.project / "a.txt").write_text("two\n")

    started.hook("Stop", cwd=str(started.project / "removed" / "since"))

    assert started.triggers() == ["session_start", "turn"]


def test_hooks_that_come_first_together_adopt_one_workspace(ground: Ground) -> None:
    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(lambda _: ground.hook("UserPromptSubmit", prompt="x"), range(6)))

    assert [one.returncode for one in done] == [0] * 6
    assert len(ground.engine.repository().ledger.workspaces()) == 1
    assert ground.triggers() == ["prompt"]


def test_people_reach_the_same_by_the_command(started: Ground) -> None:
    (started.project / "a.txt").write_text("two\n")
    command = [str(Path(started.command()[0]).parent / "keepfast"), *started.written, "hook", "claude-code"]
    payload = json.dumps(started.payload("Stop")).encode()

    done = subprocess.run(command, input=payload, env=started.variables, cwd=started.project, check=False)

    assert done.returncode == 0
    assert started.triggers() == ["session_start", "turn"]


# Later


@pytest.mark.parametrize(
    "name", ["Stop", "UserPromptSubmit", "StopFailure", "SessionEnd", "SubagentStop", "SessionStart"]
)
def test_the_client_does_not_wait_for_a_checkpoint_that_needs_no_answer(started: Ground, name: str) -> None:
    (started.project / "a.txt").write_text("two\n")

    with held(started):
        done = started.hook(name, error="x", agent_type="x", source="startup")

        assert (done.returncode, done.stderr) == (0, b"")
        assert not done.stdout or name == "SessionStart"  # which has its brief
        assert len(pending.names(str(started.folder))) == 1
    assert len(started.checkpoints()) == 2


def test_the_worker_outlives_a_client_that_kills_all_that_it_started(started: Ground) -> None:
    (started.project / "a.txt").write_text("two\n")

    with held(started):
        hook = subprocess.Popen(
            started.command(), stdin=subprocess.PIPE, cwd=started.project, env=started.variables, start_new_session=True
        )
        assert hook.stdin is not None
        hook.stdin.write(json.dumps(started.payload("SessionEnd", reason="other")).encode())
        hook.stdin.close()
        ended = os.WEXITED | os.WNOWAIT | os.WNOHANG
        wait(lambda: os.waitid(os.P_PID, hook.pid, ended) is not None)
        os.killpg(hook.pid, signal.SIGKILL)  # nobody has waited for it: the group is still its own
        hook.wait()
    assert started.triggers() == ["session_start", "session_end"]


def test_events_that_pile_up_become_one_checkpoint_of_each_kind(started: Ground) -> None:
    (started.project / "a.txt").write_text("two\n")

    with held(started):
        for _ in range(4):
            started.hook("Stop")
            started.hook("StopFailure", error="server_error")
        assert len(pending.names(str(started.folder))) == 5  # an error is not told twice within five minutes
    assert started.triggers() == ["session_start", "turn", "error"]


def kill_worker(ground: Ground) -> None:
    def pid() -> int:
        worker = workers.running_worker(str(ground.folder), workers.HOOKS)
        return worker.pid if worker is not None else 0

    wait(lambda: pid() > 1)
    victim = pid()
    assert victim > 1, "0 would be ourselves"
    os.kill(victim, signal.SIGKILL)
    wait(lambda: workers.running_worker(str(ground.folder), workers.HOOKS) is None)


@pytest.mark.parametrize("name", ["Stop", "UserPromptSubmit", "SessionStart"])
def test_what_a_killed_worker_left_is_done_at_the_next_event(started: Ground, name: str) -> None:
    (started.project / "a.txt").write_text("two\n")
    with held(started):
        started.hook("StopFailure", error="server_error")
        kill_worker(started)

    started.hook(name, source="startup")

    assert started.triggers() == ["session_start", "error"]


def test_what_a_killed_worker_left_is_done_by_the_next_command(started: Ground) -> None:
    (started.project / "a.txt").write_text("two\n")
    with held(started):
        started.hook("Stop")
        kill_worker(started)
    command = [str(Path(started.command()[0]).parent / "keepfast"), "list", "--json"]

    done = subprocess.run(command, env=started.variables, cwd=started.project, capture_output=True, check=True)

    assert [row["trigger"] for row in json.loads(done.stdout)] == ["turn", "session_start"]
    assert pending.names(str(started.folder)) == []


def test_an_event_that_was_cut_off_in_its_writing_is_still_an_event(started: Ground) -> None:
    (started.project / "a.txt").write_text("two\n")
    (started.folder / "pending").mkdir(exist_ok=True)
    for number, text in enumerate((b"", b'{"trigger":"tu', b"[]", b'{"trigger":5,"at":"x","cwd":null}')):
        (started.folder / "pending" / f"{number:020d}-1").write_bytes(text)

    started.hook("Stop")

    assert started.triggers() == ["session_start", "auto"]


def test_a_tool_that_may_write_waits_for_what_is_pending(started: Ground) -> None:
    """Message and files agree: the turn's checkpoint holds what the turn left, not what the next tool made of it."""
    (started.project / "a.txt").write_text("of the turn\n")
    with held(started):
        started.hook("Stop")
        tool = start(started, "PreToolUse", tool_name="Write", tool_input={"file_path": "x"})
        reader = start(started, "PreToolUse", tool_name="Read", tool_input={"file_path": "x"})
        assert reader.wait(20) == 0  # whoever only reads does not wait
        assert tool.poll() is None
    assert tool.wait(20) == 0
    (started.project / "a.txt").write_text("of the tool\n")

    assert started.contents(started.checkpoints()[-1])["a.txt"] == b"of the turn\n"
    assert started.notices() == []


def test_a_tool_does_not_wait_for_ever_and_not_twice(started: Ground) -> None:
    (started.project / "a.txt").write_text("two\n")
    with held(started):
        started.hook("Stop")

        assert started.tool("Write", file_path="x") == {}
        assert started.tool("Write", file_path="x") == {}
        assert len(pending.names(str(started.folder))) == 1  # nobody has saved it, and yet both went on
    assert started.notices() == ["not protected (pending): A tool ran before 1 pending event could be saved."]


def test_a_checkpoint_that_fails_later_is_told_by_status(started: Ground) -> None:
    """The settings allow fewer files than there are: the worker has nobody to tell but `status`."""
    started.configure(capture={"max_files": 1})
    for number in range(5):
        (started.project / f"{number}").write_text("x")

    assert started.hook("Stop").returncode == 0
    started.settle()

    assert len(started.notices()) == 1
    assert started.notices()[0].startswith("failed (turn): ")
    command = [str(Path(started.command()[0]).parent / "keepfast"), "status"]
    shown = subprocess.run(
        command, env=started.variables, cwd=started.project, capture_output=True, text=True, check=True
    )
    assert "a checkpoint (turn) failed" in shown.stdout


def test_a_checkpoint_of_nothing_is_told_by_status(tmp_path: Path) -> None:
    ground = Ground(tmp_path)

    ground.hook("SessionStart", source="startup")

    assert ground.triggers() == ["session_start"]
    assert ground.notices() == ["empty (session_start): v1 has no files."]


def test_status_rounds_the_percentage_down(started: Ground) -> None:
    started.configure(budget={"tokens": 100_000})
    started.answers(79_500)
    started.hook("UserPromptSubmit", prompt="x")
    started.settle()

    command = [str(Path(started.command()[0]).parent / "keepfast"), "status"]
    shown = subprocess.run(
        command, env=started.variables, cwd=started.project, capture_output=True, text=True, check=True
    )

    assert "(79%)" in shown.stdout


def test_status_shows_what_is_under_way(started: Ground) -> None:
    command = [str(Path(started.command()[0]).parent / "keepfast"), "status", "--json"]
    started.answers(500_000)
    started.hook("UserPromptSubmit", prompt="x")
    started.settle()
    (started.project / "a.txt").write_text("two\n")
    folder = str(started.folder)
    pending.append(folder, pending.PendingEvent("turn", time.time_ns(), "s"))
    lock = workers.try_to_become_worker(folder, time.time_ns())
    try:
        shown = subprocess.run(command, env=started.variables, cwd=started.project, capture_output=True, check=True)
    finally:
        os.close(lock)

    said = json.loads(shown.stdout)
    assert [event["trigger"] for event in said["pending"]] == ["turn"]
    assert [(worker["kind"], worker["pid"]) for worker in said["workers"]] == [("hooks", os.getpid())]
    assert said["tokens"] == {
        "used": 500_000,
        "used_from": "the transcript",
        "budget": 967_000,
        "budget_from": "the table of models (claude-opus-5-5)",
        "model": "claude-opus-5-5",
    }


# Before a destructive command


def test_what_rm_removes_was_saved_before(started: Ground) -> None:
    source = started.project / "src"
    source.mkdir()
    (source / "main.py").write_text("never saved until now\n")

    assert started.tool("Bash", command="rm -rf src") == {}
    subprocess.run(["rm", "-rf", str(source)], check=True)

    row = started.checkpoints()[-1]
    assert row.trigger == "before_command"
    assert started.contents(row)["src/main.py"] == b"never saved until now\n"


def test_a_harmless_command_saves_nothing(started: Ground) -> None:
    (started.project / "b.txt").write_text("new\n")

    assert started.tool("Bash", command="ls && git status") == {}
    assert started.triggers() == ["session_start"]


@pytest.mark.parametrize("mode", ["deadline", "ask"])
def test_past_the_deadline_the_command_goes_on_or_the_user_is_asked(started: Ground, mode: str) -> None:
    started.configure(hooks={"before_command": mode, "before_command_deadline": 1})
    (started.project / "a.txt").write_text("two\n")
    with held(started):
        said = started.tool("Bash", {"permission_mode": "default"}, command="rm a.txt")

    if mode == "ask":
        assert said["hookSpecificOutput"]["permissionDecision"] == "ask"
    else:
        assert said["systemMessage"]
        assert "permissionDecision" not in said["hookSpecificOutput"]
    assert [notice.partition(":")[0] for notice in started.notices()] == ["not protected (before_command)"]
    wait(lambda: started.triggers() == ["session_start", "before_command"])  # late, and still made


def test_it_can_be_switched_off(started: Ground) -> None:
    started.configure(hooks={"before_command": "off"})
    (started.project / "a.txt").write_text("two\n")

    assert started.tool("Bash", command="rm a.txt") == {}
    assert started.triggers() == ["session_start"]


# The budget


def test_eighty_percent_is_told_once(started: Ground) -> None:
    started.answers(int(967_000 * 0.82) + 1)

    said = started.tool("Read", file_path="x")
    again = started.tool("Read", file_path="x")

    row = started.checkpoints()[-1]
    specific = said["hookSpecificOutput"]
    assert said["systemMessage"] == specific["message"] == "Checkpoint created (tokens 82%)"
    assert (specific["checkpoint"], specific["warning"]) == (row.id, False)
    assert row.id in specific["additionalContext"]
    assert again == {}
    assert started.triggers() == ["session_start", "auto_80"]


def test_ninety_percent_is_a_warning_in_the_language_of_the_user(started: Ground) -> None:
    started.variables["LANG"] = "ko_KR.UTF-8"
    started.answers(int(967_000 * 0.91) + 1)

    said = started.tool("Read", file_path="x")

    assert said["hookSpecificOutput"]["message"] == "⚠️ 토큰 91% - 작업 마무리 권장"
    assert said["hookSpecificOutput"]["warning"] is True
    assert started.triggers() == ["session_start", "auto_90"]


def test_the_threshold_makes_a_checkpoint_without_a_word(started: Ground) -> None:
    started.configure(hooks={"checkpoint_threshold_percent": 75}, budget={"tokens": 1000})
    started.answers(760)

    assert started.tool("Read", file_path="x") == {}
    assert started.triggers() == ["session_start", "auto_75"]


@pytest.mark.parametrize(("threshold", "used", "warning"), [(95, 955, True), (85, 855, False)])
def test_a_threshold_above_a_band_does_not_silence_it(
    started: Ground, threshold: int, used: int, warning: bool
) -> None:
    """A session may jump past both: the checkpoint is named after the threshold, and the band below it is told."""
    started.configure(hooks={"checkpoint_threshold_percent": threshold}, budget={"tokens": 1000})
    started.answers(used)

    said = started.tool("Read", file_path="x")

    assert said["hookSpecificOutput"]["warning"] is warning
    assert said["hookSpecificOutput"]["checkpoint"] == started.checkpoints()[-1].id
    assert started.triggers() == ["session_start", f"auto_{threshold}"]


def test_a_band_that_was_told_is_not_told_again_by_the_threshold_above_it(started: Ground) -> None:
    started.configure(hooks={"checkpoint_threshold_percent": 95}, budget={"tokens": 1000})
    started.answers(910)
    assert started.tool("Read", file_path="x")["hookSpecificOutput"]["warning"] is True
    started.answers(955)

    assert started.tool("Read", file_path="x") == {}
    assert started.triggers() == ["session_start", "auto_90", "auto_95"]


def test_tools_that_start_at_the_same_instant_are_told_once(started: Ground) -> None:
    started.answers(900_000)

    with ThreadPoolExecutor(3) as pool:
        said = list(pool.map(lambda _: started.tool("Read", file_path="x"), range(3)))

    assert len([one for one in said if one]) == 1
    assert started.triggers() == ["session_start", "auto_90"]


def test_another_session_is_told_as_well(started: Ground) -> None:
    started.answers(900_000)
    first = started.tool("Read", file_path="x")

    second = started.hook("PreToolUse", tool_name="Read", tool_input={}, session_id="another")

    assert first["hookSpecificOutput"]["checkpoint"] != json.loads(second.stdout)["hookSpecificOutput"]["checkpoint"]


def test_a_subagent_is_not_told_of_a_memory_that_is_not_its_own(started: Ground) -> None:
    started.answers(900_000)

    done = started.hook("PreToolUse", tool_name="Read", tool_input={}, agent_id="a1", agent_type="explore")

    assert done.stdout == b""


def test_nothing_is_said_to_be_saved_before_it_is(started: Ground) -> None:
    started.configure(hooks={"before_command_deadline": 1})
    started.answers(800_000)
    with held(started):
        said = started.tool("Read", file_path="x")

    assert said["hookSpecificOutput"]["message"] == "Checkpoint is being saved (tokens 82%)"
    assert said["hookSpecificOutput"]["checkpoint"] is None


def test_the_status_line_knows_the_window_better(started: Ground) -> None:
    folder = started.folder / "sessions"
    folder.mkdir(exist_ok=True)
    (folder / f"{SESSION}.usage").write_text(json.dumps({"window": 200_000, "model": "claude-opus-5-5"}))
    started.answers(185_000)

    assert started.tool("Read", file_path="x")["hookSpecificOutput"]["warning"] is True


# Compaction and clear


def test_the_summariser_is_told_of_the_last_checkpoint_twice_if_asked_twice(started: Ground) -> None:
    first = started.hook("PreCompact", trigger="auto", custom_instructions=None)
    second = started.hook("PreCompact", trigger="auto", custom_instructions=None)

    row = started.checkpoints()[-1]
    assert started.triggers() == ["session_start", "before_compact"]
    assert first.stdout == second.stdout
    assert f"{row.id} (v2, before_compact)".encode() in first.stdout
    judge("PreCompact", first.stdout, first.returncode)


def test_the_summariser_is_told_of_the_checkpoint_before_if_the_new_one_takes_too_long(started: Ground) -> None:
    started.configure(hooks={"before_command_deadline": 1})
    first = started.checkpoints()[0]
    with held(started):
        done = started.hook("PreCompact", trigger="auto")

    assert f"{first.id} (v1, session_start)".encode() in done.stdout


def test_a_cleared_session_is_found_by_the_client_that_goes_on(started: Ground) -> None:
    (started.project / "a.txt").write_text("two\n")

    started.hook("SessionEnd", reason="clear")

    row = started.checkpoints()[-1]
    found = sessions.cleared(str(started.folder), 4242)
    assert row.trigger == "before_clear"
    assert (found["session"], found["status"], found["id"], found["ask"]) == (SESSION, "created", row.id, True)
    assert sessions.cleared(str(started.folder), 1) == {}


def test_a_clear_without_changes_is_known_to_be_one(started: Ground) -> None:
    started.hook("SessionEnd", reason="clear")
    started.settle()

    assert sessions.cleared(str(started.folder), 4242)["status"] == "unchanged"


def test_no_checkpoint_on_clear_where_the_user_wants_none(started: Ground) -> None:
    started.configure(hooks={"auto_checkpoint_on_clear": False})
    (started.project / "a.txt").write_text("two\n")

    started.hook("SessionEnd", reason="clear")

    assert started.triggers() == ["session_start"]
    assert sessions.cleared(str(started.folder), 4242)["status"] == "off"


def test_only_the_first_part_of_a_start_saves(started: Ground) -> None:
    (started.project / "a.txt").write_text("two\n")

    done = started.send(json.dumps(started.payload("SessionStart", source="startup")).encode(), "--part", "2")

    assert (done.returncode, done.stdout) == (0, b"")
    assert started.triggers() == ["session_start"]


# Many at once, and what must not be written down


def test_a_storm_of_events_loses_nothing_and_leaves_nobody_waiting(started: Ground) -> None:
    """Whatever was on disk when the last of them began is saved; no event stays behind without a worker."""
    names = ["Stop", "UserPromptSubmit", "SubagentStop", "SessionEnd", "StopFailure"]

    def send(number: int) -> int:
        (started.project / f"file {number}").write_text(f"{number}\n")
        return started.hook(names[number % 5], agent_type="x", error="e", session_id=f"s{number % 3}").returncode

    with ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(send, range(40)))

    assert codes == [0] * 40
    started.settle(60)
    assert started.notices() == []
    contents = started.contents(started.checkpoints()[-1])
    assert {f"file {number}" for number in range(40)} <= set(contents)


def test_no_secret_of_the_conversation_is_written_down_in_the_clear(started: Ground) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
    (started.project / "a.txt").write_text("two\n")
    started.hook("UserPromptSubmit", prompt=f"Deploy with token {secret}\nand more")
    started.settle()
    (started.project / "a.txt").write_text("three\n")
    started.hook("Stop", last_assistant_message=f"I used {secret} to deploy.")

    rows = started.checkpoints()
    header = started.header(rows[-1])
    assert rows[-1].message == header["summary"]
    assert header["summary"].startswith("Deploy with token ")
    assert header["key_points"][0].startswith("I used ")
    for path in Path(started.engine.place.path).rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path


def test_a_summary_is_one_line_of_eighty_characters_at_most(started: Ground) -> None:
    (started.project / "a.txt").write_text("two\n")

    started.hook("UserPromptSubmit", prompt="\n\n  긴 요청 " + "아주 " * 100 + "\nsecond line")

    summary = started.header(started.checkpoints()[-1])["summary"]
    assert summary.startswith("긴 요청 아주")
    assert len(summary) <= 80


def test_a_turn_waits_for_its_last_words_to_be_in_the_transcript(started: Ground) -> None:
    """The client tells of the end of a turn before it has written the answer; its checkpoint is made after that."""
    started.answers(1000)
    (started.project / "a.txt").write_text("two\n")
    with held(started):
        started.hook("Stop", last_assistant_message='It said "finished the parser" just now.')
        started.answers(2000, text='It said "finished the parser" just now.')

    assert started.header(started.checkpoints()[-1])["tokens_used"] == 2000


def test_in_a_large_tree_the_paths_that_a_command_names_are_saved_first(started: Ground) -> None:
    (started.project / "src" / "deep").mkdir(parents=True)
    (started.project / "src" / "deep" / "named.py").write_text("named\n")
    (started.project / "other.txt").write_text("other\n")
    cache = started.folder / "cache"
    with cache.open("ab") as file:
        file.truncate(LARGE_CACHE_BYTES + 1)  # a cache that cannot be read is no cache: everything is looked at

    assert started.tool("Bash", command="rm -rf src") == {}

    first, second = started.checkpoints()[1:]
    assert (first.trigger, second.trigger) == ("before_command", "before_command")
    assert set(started.contents(first)) == {"a.txt", "src/deep/named.py"}
    assert set(started.contents(second)) == {"a.txt", "src/deep/named.py", "other.txt"}


@pytest.mark.parametrize("name", ["lock", "ledger.db"])
def test_what_is_due_stays_pending_while_a_stopped_process_holds_the_store(started: Ground, name: str) -> None:
    """The client is answered, and a worker saves once the holder is gone."""
    before = len(started.checkpoints())
    (started.project / "new").write_text("new")
    with stopped_holder.held(started.base / "home/.local/share/keepfast/store" / name):
        done = started.hook("Stop", last_assistant_message="Done.")
        waiting = pending.names(str(started.folder))

    assert done.returncode in (0, 1) and waiting
    assert len(started.checkpoints()) == before + 1
