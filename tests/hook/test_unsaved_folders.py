"""A folder that cannot be saved is never silent: the session is told at its start and at the end of a turn."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keepfast.agents.claude import hooks as claude_code
from keepfast.agents.registry import agent
from keepfast.app import checkpoint, checkpoint_save, scan
from keepfast.app.hooks import HookCall
from keepfast.model.errors import TooMany
from keepfast.model.event import Event
from keepfast.state.notices import unsaved

from .background import Inline, attending
from .ground import Ground

FEW = 20


def told(done: subprocess.CompletedProcess[bytes]) -> str:
    """What the user is told, wherever the client shows it."""
    assert done.returncode in (0, 1)
    assert b"Traceback" not in done.stderr
    said = json.loads(done.stdout).get("systemMessage", "") if done.stdout else ""
    return str(said) + done.stderr.decode()


def call(ground: Ground, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", "from keepfast.entry import main; main()", *words],
        env=ground.variables, cwd=ground.project, capture_output=True, timeout=60, check=False,
    )  # fmt: skip


def grow(ground: Ground, files: int = FEW) -> None:
    for name in ("one", "two"):
        (ground.project / name).mkdir(exist_ok=True)
        for number in range(files // 2):
            (ground.project / name / f"{number}").write_text(f"{name} {number}\n")


@pytest.fixture(params=["never saved", "saved before", "prepared"])
def crowded(request: pytest.FixtureRequest, ground: Ground) -> Ground:
    """A tree with more files than are allowed: a new one, one that has grown since, and one that somebody prepared."""
    if request.param == "saved before":
        ground.hook("SessionStart", source="startup", session_id="earlier")
        ground.settle()
    if request.param == "prepared":
        ground.engine.workspaces.init(os.fsencode(ground.project))
    ground.configure(capture={"max_files": FEW})
    grow(ground)
    return ground


def session(ground: Ground, name: str = "s1") -> list[subprocess.CompletedProcess[bytes]]:
    done = [ground.hook("SessionStart", source="startup", session_id=name)]
    ground.settle()
    done += [ground.hook("UserPromptSubmit", prompt="x", session_id=name), ground.hook("Stop", session_id=name)]
    ground.settle()
    return done


def test_a_session_in_a_tree_with_too_many_files_is_told_at_its_start_and_at_the_end_of_a_turn(crowded: Ground) -> None:
    session(crowded, "s1")

    start, prompt, stop = session(crowded, "s2")
    again = crowded.hook("Stop", session_id="s2")

    assert "capture.max_files" in told(start) and told(start).count("\n") == 0
    assert told(prompt) == ""
    assert "capture.max_files" in told(stop) and told(stop).count("\n") == 1
    assert told(again) == ""


def test_the_very_first_session_is_told_too(crowded: Ground) -> None:
    start, _, stop = session(crowded)

    before = (crowded.folder / "cache").exists()  # then it is the first save of this session that finds out
    assert before or "capture.max_files" in told(start)
    assert "capture.max_files" in told(stop)


def test_once_the_limit_is_raised_all_is_saved_and_nothing_is_told(crowded: Ground) -> None:
    session(crowded, "s1")
    crowded.configure(capture={"max_files": 10 * FEW})

    session(crowded, "s2")
    done = session(crowded, "s3")

    assert not any("capture.max_files" in told(one) for one in done)
    assert unsaved(str(crowded.folder)) is None
    assert len(crowded.contents(crowded.checkpoints()[-1])) == FEW + 1


@pytest.mark.parametrize("after", ["a session", "nothing"])
def test_what_a_command_names_is_saved_all_the_same_and_comes_back(crowded: Ground, after: str) -> None:
    """`rm -rf one` was without a sound: exit code 0, no output, nothing saved."""
    crowded.hook("SessionStart", source="startup")
    if after == "a session":
        crowded.settle()
        crowded.hook("Stop")
        crowded.settle()

    assert crowded.tool("Bash", command="rm -rf one") == {}
    row = crowded.checkpoints()[-1]
    shutil.rmtree(crowded.project / "one")
    (crowded.project / "two" / "0").write_text("work that nobody named\n")
    done = call(crowded, "restore", f"v{row.version}", "--yes", "--json")

    assert row.trigger == "before_command"
    assert {path for path in crowded.contents(row) if path.startswith("one/")} == {f"one/{n}" for n in range(FEW // 2)}
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (crowded.project / "one").iterdir()} == {f"{n}" for n in range(FEW // 2)}
    assert (crowded.project / "two" / "0").read_text() == "work that nobody named\n"
    assert (crowded.project / "a.txt").exists()


def test_a_version_of_named_paths_deletes_nothing_beside_them_when_the_limit_is_raised(crowded: Ground) -> None:
    crowded.hook("SessionStart", source="startup")
    crowded.tool("Bash", command="rm -rf one")
    row = crowded.checkpoints()[-1]
    shutil.rmtree(crowded.project / "one")
    crowded.configure(capture={"max_files": 10 * FEW})

    done = call(crowded, "restore", f"v{row.version}", "--yes", "--json")
    back = call(crowded, "undo", "--yes", "--json")

    assert (done.returncode, back.returncode) == (0, 0)
    assert len(list((crowded.project / "two").iterdir())) == FEW // 2
    assert not (crowded.project / "one").exists()
    assert crowded.header(row)["partial"] == ["one"]


def test_a_command_that_means_everything_is_asked_about(crowded: Ground) -> None:
    crowded.hook("SessionStart", source="startup")
    crowded.settle()

    answer = crowded.tool("Bash", command="git clean -fdx")

    assert json.dumps(answer).count(f"{FEW} files") >= 1


def test_git_folders_and_what_is_made_again_are_named_as_in_any_tree(crowded: Ground) -> None:
    (crowded.project / "one" / ".git").mkdir()
    (crowded.project / "one" / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (crowded.project / "one" / "node_modules").mkdir()
    (crowded.project / "one" / "package.json").write_text("{}")
    crowded.hook("SessionStart", source="startup")
    crowded.settle()

    answer = json.dumps(crowded.tool("Bash", command="rm -rf one"))

    assert "one/.git" in answer and "one/node_modules" in answer
    assert "one/0" in crowded.contents(crowded.checkpoints()[-1])


def test_too_much_by_itself_is_not_called_saved(crowded: Ground) -> None:
    for number in range(2 * FEW):
        (crowded.project / "one" / f"more {number}").touch()
    crowded.hook("SessionStart", source="startup")
    crowded.settle()

    answer = crowded.tool("Bash", command="rm -rf one")

    assert f"{FEW} files" in json.dumps(answer)


def test_doctor_fails_in_a_tree_with_too_many_files(crowded: Ground) -> None:
    crowded.hook("SessionStart", source="startup")
    crowded.settle()

    bad = call(crowded, "doctor", "--json")
    crowded.configure(capture={"max_files": 10 * FEW})
    crowded.hook("Stop")
    crowded.settle()
    good = call(crowded, "doctor", "--json")

    assert bad.returncode == 1
    assert [check["level"] for check in json.loads(bad.stdout)["checks"] if check["name"] == "workspace"] == ["problem"]
    assert [check["level"] for check in json.loads(good.stdout)["checks"] if check["name"] == "workspace"] == ["fine"]


# Other reasons why a folder cannot be saved


def break_store(ground: Ground, how: str) -> None:
    store = Path(ground.engine.place.path)
    if how == "missing":
        store.rename(store.with_name("elsewhere"))
    elif how == "no folder":
        store.rename(store.with_name("elsewhere"))
        store.write_text("x")
    elif how == "packs no folder":
        (store / "packs").rename(store / "elsewhere")
        (store / "packs").write_text("x")
    elif how == "ledger gone":
        (store / "ledger.db").unlink()
    elif how == "workspace no folder":
        folder = ground.folder
        folder.rename(folder.with_name("elsewhere"))
        folder.write_text("x")


BROKEN = ["missing", "no folder", "packs no folder", "ledger gone", "workspace no folder"]


@pytest.mark.parametrize("how", BROKEN)
def test_a_store_that_takes_nothing_is_named_at_the_start_and_at_the_end_of_a_turn(started: Ground, how: str) -> None:
    (started.project / "a.txt").write_text("two\n")
    folder = str(started.folder)
    break_store(started, how)

    def at(name: str, **fields: Any) -> str:
        from keepfast.state import workers

        said = told(started.hook(name, session_id="s2", **fields))
        from .ground import wait

        wait(lambda: workers.running_worker(folder, workers.HOOKS) is None)
        return said

    at("SessionStart", source="startup")
    stop = at("Stop")
    start = told(started.hook("SessionStart", session_id="s3", source="startup"))

    assert stop and start
    assert "[Errno" not in stop + start


def test_a_missing_store_is_said_once_by_the_parts_of_a_start(started: Ground) -> None:
    started.settle()
    break_store(started, "missing")
    payload = json.dumps(started.payload("SessionStart", session_id="s2", source="startup")).encode()

    first, second = started.send(payload, "--part", "1"), started.send(payload, "--part", "2")

    assert told(first) and (second.returncode, second.stdout, second.stderr) == (0, b"", b"")


def test_a_command_that_is_the_first_to_meet_too_many_files_is_protected_too(started: Ground) -> None:
    """No save has failed yet: the tree has grown since the last one."""
    started.configure(capture={"max_files": FEW})
    grow(started)

    assert started.tool("Bash", command="rm -rf one") == {}

    assert {f"one/{n}" for n in range(FEW // 2)} <= set(started.contents(started.checkpoints()[-1]))


def refuse(*_: object) -> None:
    raise AssertionError("work that grows with the tree")


def test_a_command_in_a_large_tree_that_was_never_saved_waits_for_no_count(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.engine.workspaces.init(os.fsencode(ground.project))
    ground.configure(capture={"max_files": FEW})
    grow(ground)
    said = {"tool_name": "Bash", "tool_input": {"command": "rm -rf one"}, "tool_use_id": "toolu_1"}
    event = claude_code.read(json.dumps(ground.payload("PreToolUse", **said)).encode(), {})
    monkeypatch.setattr(checkpoint_save, "scan_changes", refuse)
    monkeypatch.setattr(scan, "count", refuse)

    reply = attending(ground.engine, event).answer()

    (row,) = ground.checkpoints()
    assert ground.header(row)["partial"] == ["one"]
    assert set(ground.contents(row)) == {f"one/{n}" for n in range(FEW // 2)}
    assert not (reply.ask or reply.deny or reply.agent_text or reply.user_text)


def test_a_small_tree_that_was_never_saved_is_saved_as_a_whole_before_a_command(ground: Ground) -> None:
    ground.engine.workspaces.init(os.fsencode(ground.project))
    grow(ground)

    assert ground.tool("Bash", command="rm -rf one") == {}

    assert {"a.txt", "one/0", "two/0"} <= set(ground.contents(ground.checkpoints()[-1]))


def test_nobody_waits_for_whoever_counts_a_large_tree(crowded: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is for saving: a tree that cannot be saved, as far as anybody knows, is counted without it."""
    engine, due = crowded.engine, Event(os.fsencode(crowded.project), 0, trigger="auto", adopt=True)
    with pytest.raises(TooMany):
        engine.handle(due)
    monkeypatch.setattr(checkpoint, "Folder", refuse)

    with pytest.raises(TooMany):
        engine.handle(due)


VAGUE = [
    "D=$(cat name); rm -rf $D",
    "for i in $(ls); do rm -rf $i; done",
    "find one -type f -print0 | xargs -0 rm",
    "ls one | xargs -I{} rm -rf one/{}",
    "rm -rf $(echo one)",
    "rm -rf $OLDPWD/one",
    "rm -rf *$X",
    "rm -rf !(two)",
    "find one -execdir rm {} +",
    "find one -exec ls {} + -exec rm {}.c +",
    "eval $X",
    "make clean",
    "git reset --hard",
    "git checkout .",
    "git checkout main",
    "git -c a=b -C one clean -fdx",
    "git rm -r 'one/*'",
]


@pytest.mark.parametrize("command", VAGUE)
def test_a_command_that_may_mean_anything_is_asked_about_or_told(started: Ground, command: str) -> None:
    """With too many files nothing of it can be saved, and it was without a sound."""
    started.configure(capture={"max_files": FEW})
    grow(started)

    first = started.tool("Bash", {"permission_mode": "default"}, command=command)  # nobody knows yet how many they are
    started.hook("Stop")
    started.settle()
    asked = started.tool("Bash", {"permission_mode": "default"}, command=command)
    other = started.tool("Bash", {"permission_mode": "bypassPermissions"}, command=command)

    for said in (first, asked):
        assert said["hookSpecificOutput"]["permissionDecision"] == "ask"
        assert f"{FEW} files" in said["hookSpecificOutput"]["permissionDecisionReason"]
    assert "permissionDecision" not in other["hookSpecificOutput"]
    assert (
        f"{FEW} files" in other["systemMessage"] and f"{FEW} files" in other["hookSpecificOutput"]["additionalContext"]
    )


@pytest.mark.parametrize(
    "command",
    [
        'rm -rf "$PWD/one"',
        'rm -rf "${PWD}"/one',
        "find one -name '*' -exec rm {} +",
        "find one -exec ls {} + -exec rm {} +",
        "git restore one",
        "git checkout HEAD -- one",
    ],
)
def test_what_can_be_read_from_the_words_is_saved_and_nobody_is_asked(crowded: Ground, command: str) -> None:
    crowded.hook("SessionStart", source="startup")
    crowded.settle()

    assert crowded.tool("Bash", {"permission_mode": "default"}, command=command) == {}

    assert {f"one/{n}" for n in range(FEW // 2)} <= set(crowded.contents(crowded.checkpoints()[-1]))


def test_beside_what_cannot_be_told_the_named_paths_are_saved(crowded: Ground) -> None:
    crowded.hook("SessionStart", source="startup")
    crowded.settle()

    said = crowded.tool("Bash", {"permission_mode": "default"}, command="rm -rf one $X")

    assert said["hookSpecificOutput"]["permissionDecision"] == "ask"
    assert {f"one/{n}" for n in range(FEW // 2)} <= set(crowded.contents(crowded.checkpoints()[-1]))


def test_a_tree_that_has_become_small_enough_is_saved_before_a_command_that_may_mean_anything(crowded: Ground) -> None:
    crowded.hook("SessionStart", source="startup")
    crowded.settle()
    shutil.rmtree(crowded.project / "two")

    assert crowded.tool("Bash", {"permission_mode": "default"}, command="make clean") == {}

    assert len(crowded.contents(crowded.checkpoints()[-1])) == FEW // 2 + 1


def test_status_does_not_say_that_nothing_changed_where_it_cannot_tell(started: Ground) -> None:
    started.configure(capture={"max_files": FEW})
    grow(started)

    said, shown = call(started, "status", "--json"), call(started, "status")

    assert (said.returncode, shown.returncode) == (0, 0)
    assert json.loads(said.stdout)["changes"] is None
    assert f"{FEW} files" in " ".join(json.loads(said.stdout)["remarks"])
    assert b"Nothing changed" not in shown.stdout


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf ln/",
        "rm -rf l*/",
        "rm -rf ln/*",
        "rm ln/0",
        "cd ln && rm 0",
        "rm ln/$X",
        "find ln/ -delete",
        "echo > to",
    ],
)
def test_what_lies_behind_a_link_of_the_workspace_is_saved_where_a_command_reaches_through_it(
    crowded: Ground, command: str
) -> None:
    """A slash at its end follows a link: the version had no file, and nothing was said."""
    (crowded.project / "ln").symlink_to("one")
    (crowded.project / "to").symlink_to("one/0")
    crowded.hook("SessionStart", source="startup")
    crowded.settle()

    assert crowded.tool("Bash", {"permission_mode": "default"}, command=command) == {}

    assert "one/0" in crowded.contents(crowded.checkpoints()[-1])


def test_a_link_that_is_removed_itself_does_not_count_for_its_folder(crowded: Ground) -> None:
    (crowded.project / "ln").symlink_to("one")
    (crowded.project / "out").symlink_to(crowded.home)
    crowded.hook("SessionStart", source="startup")
    crowded.settle()

    assert crowded.tool("Bash", {"permission_mode": "default"}, command="rm -rf ln out/") == {}

    row = crowded.checkpoints()[-1]
    assert crowded.header(row)["partial"] == ["ln", "out"]
    assert not any(path.startswith("one/") for path in crowded.contents(row))


def test_the_first_end_of_a_turn_tells_whatever_the_save_is_at(ground: Ground) -> None:
    """No start was told of, and no save has failed yet."""
    ground.engine.workspaces.init(os.fsencode(ground.project))
    ground.configure(capture={"max_files": FEW})
    grow(ground)
    ground.folder.mkdir(parents=True, exist_ok=True)
    held = os.open(ground.folder / "worker.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)  # somebody else saves, and takes his time
    try:
        stop = ground.hook("Stop")
    finally:
        os.close(held)

    assert "capture.max_files" in told(stop) and stop.returncode == 1


class Slow(Inline):
    """The background of a machine on which nothing is done in time."""

    def detach(self, work: Callable[[], object], at: int = 0) -> None:
        pass

    def attempt(self, work: Callable[[], bytes], seconds: float) -> bytes | None:
        return None


def test_what_takes_too_long_to_count_at_the_start_is_told_at_the_end_of_a_turn(ground: Ground) -> None:
    ground.engine.workspaces.init(os.fsencode(ground.project))
    ground.configure(capture={"max_files": FEW})
    grow(ground)

    start, stop = [
        event_with(ground, name, background).answer()
        for name, background in (("SessionStart", Slow()), ("Stop", Inline()))
    ]

    assert (start.user_text, start.failed) == ("", "")
    assert "capture.max_files" in stop.failed


def event_with(ground: Ground, name: str, background: Inline) -> HookCall:
    client, engine = agent("claude-code"), ground.engine
    assert client is not None
    event = client.read(json.dumps(ground.payload(name, source="startup")).encode(), {})
    return HookCall(engine.place, engine.settings, lambda: engine, engine.clock, background, event)
