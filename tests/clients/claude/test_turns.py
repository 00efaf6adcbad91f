"""Turns of the real client: whatever changed, by whichever hand, is in a checkpoint afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from .bench import Bench, Turn, end
from .endpoint import Rule, call, say, use

both = pytest.mark.parametrize("client", ["newest_client", "older_client"], indirect=True)
QUIETLY = "printf 'by Bash' >> bash.txt"
"""A command that destroys nothing: it is not saved before, only after."""


def triggers(checkpoints: list[dict[str, Any]]) -> list[str]:
    """Oldest first."""
    return [one["trigger"] for one in reversed(checkpoints)]


def hook_runs(turn: Turn) -> list[dict[str, Any]]:
    return [event for event in turn.events if event.get("subtype") == "hook_response"]


def failed(turn: Turn) -> list[dict[str, Any]]:
    """Runs that failed or complained. An asynchronous one may be cancelled where the session ends at once."""
    return [run for run in hook_runs(turn) if (run["exit_code"] and run.get("outcome") != "cancelled") or run["stderr"]]


@both
def test_edit_write_bash_and_a_subagent_come_to_one_checkpoint(hooked: Bench) -> None:
    hooked.put("edit.txt", "old\n")
    path = hooked.path
    subagent = use(
        "Agent", description="sub", prompt="SUBAGENT: write", subagent_type="general-purpose", run_in_background=False
    )
    hooked.script(
        call(use("Read", file_path=path("edit.txt"))),
        call(use("Edit", file_path=path("edit.txt"), old_string="old", new_string="new")),
        call(use("Write", file_path=path("written.txt"), content="by Write")),
        call(use("Bash", command=QUIETLY, description="write")),
        call(subagent),
        say("Finished."),
        rules=[
            Rule(
                [call(use("Write", file_path=path("sub.txt"), content="by a subagent")), say("done")], first="SUBAGENT"
            )
        ],
    )

    turn = hooked.run("do all of it")

    assert turn.code == 0
    made = hooked.settle()
    # An older client may write its last lines after the turn: then the end of the session keeps them.
    assert [one for one in triggers(made) if one not in ("subagent", "session_end")] == ["session_start", "turn"]
    changed = json.loads(hooked.keepfast("diff", "v1", "latest", "--json").stdout)["changes"]
    assert sorted(change["path"] for change in changed) == ["bash.txt", "edit.txt", "sub.txt", "written.txt"]
    contents = {change["path"]: hooked.keepfast("cat", "latest", change["path"]).stdout for change in changed}
    assert contents == {
        "bash.txt": "by Bash",
        "edit.txt": "new\n",
        "sub.txt": "by a subagent",
        "written.txt": "by Write",
    }
    assert made[0]["session_id"] == turn.session


@both
def test_no_hook_fails_and_nothing_is_said_where_there_is_nothing_to_say(hooked: Bench) -> None:
    hooked.script(
        call(use("Bash", command="echo x > a.txt; exit 3", description="fails")),
        call(use("Write", file_path=hooked.path("b.txt"), content="b")),
        say("Finished."),
    )

    turn = hooked.run("go", "--include-hook-events")

    runs = hook_runs(turn)
    assert {run["hook_event"] for run in runs} >= {"SessionStart", "UserPromptSubmit", "PreToolUse", "Stop"}
    assert failed(turn) == []
    assert len(hooked.endpoint.main_requests()) == 3, "no hook costs a model turn"


def test_a_turn_that_changed_no_file_is_kept_for_its_conversation(hooked: Bench) -> None:
    hooked.script(call(use("Bash", command=QUIETLY, description="write")), say("Done."))
    first = hooked.run("write")
    before = hooked.settle()

    hooked.script(call(use("Bash", command="ls", description="look")), say("Looked."))
    hooked.run("look", "--resume", first.session)

    (made, *rest) = hooked.settle()
    assert rest == before
    assert (made["trigger"], made["message"], made["session_id"]) == ("turn", "look", first.session)
    assert json.loads(hooked.keepfast("show", "latest", "--json").stdout)["changes"] == []


@both
def test_rm_rf_by_bash_the_state_before_exists_and_comes_back(hooked: Bench) -> None:
    hooked.put("src/deep/a.py", "print('a')\n")
    hooked.script(
        call(use("Bash", command="echo 'work of this turn' >> src/deep/a.py", description="append")),
        call(use("Bash", command="rm -rf src", description="remove")),
        say("Removed."),
    )

    hooked.run("remove src")

    assert not (hooked.project / "src").exists()
    made = hooked.settle()
    (before,) = [one for one in made if one["trigger"] == "before_command"][:1]
    hooked.keepfast("restore", before["id"], "-y")
    assert (hooked.project / "src/deep/a.py").read_text() == "print('a')\nwork of this turn\n"


def test_an_ignored_database_that_bash_removes_comes_back_and_the_client_shows_what_does_not(hooked: Bench) -> None:
    content = os.urandom(5_000_000)
    hooked.put(".gitignore", "*.sqlite3\n")
    (hooked.base / "made").write_bytes(content)
    hooked.script(
        call(use("Bash", command="cat ../made > db.sqlite3", description="make")),
        call(use("Bash", command="rm -rf db.sqlite3", description="remove")),
        call(use("Bash", command="rm -rf .git", description="remove git")),
        say("Removed."),
    )

    turn = hooked.run("remove the database")

    (before,) = [one for one in hooked.settle() if one["message"] == "before rm -rf db.sqlite3"]
    assert not (hooked.project / "db.sqlite3").exists()
    assert not (hooked.project / ".git").exists()  # nobody is there to be asked
    assert any(".git" in str(event.get("content", "")) and "keepfast" in str(event) for event in turn.events)
    hooked.keepfast("restore", before["id"], "-y")
    assert (hooked.project / "db.sqlite3").read_bytes() == content


@both
@pytest.mark.parametrize(
    "command", ["git reset --hard -q", "ls | xargs rm -rf", "git stash -u -q && git stash drop -q"]
)
def test_work_in_a_folder_excluded_by_its_name_is_kept_before_a_command_that_may_mean_it(
    hooked: Bench, command: str
) -> None:
    identity = ["-c", "user.name=d", "-c", "user.email=d@example.invalid"]
    mine = hooked.put("node_modules/mine.js", "old\n")
    subprocess.run(["git", "add", "-f", "."], cwd=hooked.project, check=True)
    subprocess.run(["git", *identity, "commit", "-qm", "all"], cwd=hooked.project, check=True)
    mine.write_text("my patch\n")
    hooked.script(call(use("Bash", command=command, description="clean")), say("Cleaned."))

    hooked.run("clean up")

    (before,) = [one for one in hooked.settle() if one["trigger"] == "before_command"][:1]
    assert not mine.exists() or mine.read_text() == "old\n"
    assert hooked.keepfast("cat", before["id"], "node_modules/mine.js").stdout == "my patch\n"


@both
def test_a_headless_session_that_ends_at_once_has_its_last_state_stored(hooked: Bench) -> None:
    hooked.script(call(use("Bash", command=QUIETLY, description="write")), say("Bye."))

    hooked.run("write and go")

    hooked.settle()
    assert hooked.unsaved() == []
    assert hooked.keepfast("cat", "latest", "bash.txt").stdout == "by Bash"


def test_what_a_killed_client_left_behind_is_stored_at_the_next_event(hooked: Bench) -> None:
    slow = "echo $$ > pid; echo half > half.txt; sleep 60"
    hooked.script(call(use("Bash", command=slow, description="slow")))
    process = hooked.start("work", "--session-id", "11111111-2222-4333-8444-555555555555")
    try:
        assert hooked.wait_for(lambda: (hooked.project / "half.txt").exists())
    finally:
        end(process, signal.SIGKILL)
        # The tool's shell is in a session of its own and goes on; it is ours, by the id that it wrote down.
        os.kill(int((hooked.project / "pid").read_text()), signal.SIGKILL)

    hooked.script(say("Resumed."))
    hooked.run("go on", "--resume", "11111111-2222-4333-8444-555555555555")

    hooked.settle()
    assert hooked.keepfast("cat", "latest", "half.txt").stdout == "half\n"
    assert hooked.unsaved() == []


def test_three_parallel_tool_calls_are_all_there_and_every_version_is_whole(hooked: Bench) -> None:
    writes = [use("Write", file_path=hooked.path(f"{name}.txt"), content=name) for name in ("one", "two", "three")]
    shells = [use("Bash", command=f"rm -f {name}.gone", description="remove") for name in ("one", "two", "three")]
    for name in ("one", "two", "three"):
        hooked.put(f"{name}.gone", name)
    hooked.script(call(*writes), call(*shells), say("Finished."))

    turn = hooked.run("all at once", "--include-hook-events")

    made = hooked.settle()
    assert failed(turn) == []
    assert sorted(path.name for path in hooked.project.glob("*.txt")) == ["one.txt", "three.txt", "two.txt"]
    assert hooked.unsaved() == []
    numbers = [int(one["version"][1:]) for one in made]
    assert numbers == sorted(numbers, reverse=True) and len(set(numbers)) == len(numbers)
    # A state with all that the three commands removed exists.
    kept = {name: hooked.keepfast("cat", "v1", f"{name}.gone").stdout for name in ("one", "two", "three")}
    assert kept == {"one": "one", "two": "two", "three": "three"}
    assert hooked.keepfast("verify").returncode == 0


def test_a_write_of_three_megabytes_passes_through_the_hooks(hooked: Bench) -> None:
    content = "".join(f"{number:09}\n" for number in range(300_000))
    hooked.script(call(use("Write", file_path=hooked.path("large.txt"), content=content)), say("Finished."))

    turn = hooked.run("write it", "--include-hook-events")

    assert turn.code == 0
    assert failed(turn) == []
    hooked.settle()
    assert hooked.keepfast("cat", "latest", "large.txt").stdout == content


def test_a_folder_without_git_is_protected_from_its_first_session_on(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(git=False)
    bench.keepfast("install", "claude")
    bench.script(call(use("Bash", command=QUIETLY, description="write")), say("Done."))

    turn = bench.run("write", "--include-hook-events")

    assert turn.result["result"] == "Done." and failed(turn) == []
    bench.settle()
    assert bench.keepfast("cat", "latest", "bash.txt").stdout == "by Bash"


def test_a_path_with_spaces_and_hangul(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench("작업 공간", project="내 프로젝트 (1)")
    bench.keepfast("install", "claude")
    bench.script(
        call(use("Write", file_path=bench.path("메모 파일.txt"), content="한글\n")),
        call(use("Bash", command="rm -rf '메모 파일.txt'", description="지우기")),
        say("Done."),
    )

    turn = bench.run("써 줘", "--include-hook-events")

    assert failed(turn) == []
    (before,) = [one for one in bench.settle() if one["trigger"] == "before_command"]
    assert bench.keepfast("cat", before["id"], "메모 파일.txt").stdout == "한글\n"


def test_a_turn_that_fails_is_stored_although_the_client_kills_slow_hooks(hooked: Bench) -> None:
    """StopFailure of a headless client is given less than 0.3 s."""
    hooked.script(
        call(use("Bash", command=QUIETLY, description="write")),
        *[say("", status=400, error={"message": "messages.1: this is off"})] * 9,
    )

    turn = hooked.run("write")

    assert turn.code == 1
    assert hooked.wait_for(lambda: "error" in triggers(hooked.settle()))
    assert hooked.unsaved() == []


def test_user_and_project_hooks_together_run_once(hooked: Bench) -> None:
    hooked.keepfast("install", "claude", "--scope", "project")
    hooked.script(call(use("Bash", command="true", description="nothing")), say("Done."))

    turn = hooked.run("go", "--include-hook-events")

    starts = [run for run in hook_runs(turn) if run["hook_event"] == "SessionStart"]
    stops = [run for run in hook_runs(turn) if run["hook_event"] == "Stop"]
    assert (len(starts), len(stops)) == (2, 1)


def test_the_users_git_is_not_touched(hooked: Bench) -> None:
    def state() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted((hooked.project / ".git").rglob("*")) if path.is_file()}

    before = state()
    hooked.script(call(use("Bash", command="echo x > README.md", description="write")), say("Done."))

    hooked.run("write")

    hooked.settle()
    assert state() == before
    listed = subprocess.run(
        ["git", "status", "--porcelain"],
        cwd=hooked.project,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
    )
    assert listed.stdout == " M README.md\n"


@pytest.mark.parametrize("trouble", ["newer store", "broken settings", "store is a file"])
def test_the_agent_goes_on_whatever_is_wrong_with_us_and_the_user_is_told(hooked: Bench, trouble: str) -> None:
    hooked.run("hello")
    hooked.settle()
    store = hooked.home / ".local/share/keepfast/store"
    if trouble == "newer store":
        format_file = store / "format"
        format_file.write_text(format_file.read_text().replace("version 1", "version 99"))
    elif trouble == "broken settings":
        hooked.put("../home/.config/keepfast/config.json", '{"hooks": {')
    else:
        store.rename(store.with_name("elsewhere"))
        store.write_text("")
    hooked.script(call(use("Bash", command="rm -f nothing", description="remove")), say("Went on."))

    turn = hooked.run("go on", "--include-hook-events")

    assert turn.code == 0 and turn.result["result"] == "Went on."
    assert {run["exit_code"] for run in hook_runs(turn)} <= {0, 1}
    assert len(hooked.endpoint.main_requests()) == 3
    assert "Traceback" not in turn.out
    told = hooked.keepfast("status", check=False)
    assert told.returncode != 0 and "keepfast:" in told.stderr
