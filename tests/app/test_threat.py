"""Before a destructive command all that it names is kept, whatever its size and ignore rule; else somebody hears of it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from keepfast.app.preview import Missing, Planner
from keepfast.app.restore import Restorer
from keepfast.app.threat import _expand_braces, threatened_paths
from keepfast.app.tidy import tidy
from keepfast.model.event import Event
from keepfast.present import background
from keepfast.shell.destruction import threat_of
from keepfast.state import notices, rescues
from keepfast.store.rows import CheckpointRow
from tests.hook.ground import Ground, wait

MB = 1_000_000
DEFAULT = {"permission_mode": "default"}


def write(path: Path, content: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def run(ground: Ground, command: str, **fields: Any) -> dict[str, Any]:
    """What the client is told before the command, which is then run."""
    said = ground.tool("Bash", fields, command=command)
    subprocess.run(["sh", "-c", command], cwd=ground.project, check=False, capture_output=True)
    return said


def restore(ground: Ground, target: CheckpointRow) -> None:
    engine = ground.engine
    try:
        root, row = engine.workspaces.root(os.fsencode(ground.project))
        Restorer(engine, root, row).restore(target, conflicts="theirs")
    finally:
        engine.close()


def kinds(ground: Ground, row: CheckpointRow) -> dict[str, str]:
    engine = ground.engine
    try:
        state = engine.repository().ledger.state(row.workspace, row.version)
        return {entry.path.decode(): entry.kind for entry in state}
    finally:
        engine.close()


def decision(said: dict[str, Any]) -> str | None:
    found: str | None = said.get("hookSpecificOutput", {}).get("permissionDecision")
    return found


def test_an_ignored_file_of_five_megabytes_comes_back(started: Ground) -> None:
    write(started.project / ".gitignore", b"*.sqlite3\n")
    content = os.urandom(5 * MB)
    write(started.project / "db.sqlite3", content)

    assert run(started, "rm -rf db.sqlite3") == {}
    restore(started, started.checkpoints()[-1])

    assert (started.project / "db.sqlite3").read_bytes() == content


def test_a_file_over_the_limit_comes_back(started: Ground) -> None:
    write(started.project / ".gitignore", b"*.bin\n")
    content = os.urandom(MB) + bytes(149 * MB)
    write(started.project / "big.bin", content)

    assert run(started, "rm -rf big.bin") == {}
    restore(started, started.checkpoints()[-1])

    assert (started.project / "big.bin").read_bytes() == content


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf models",
        "rm -rf models/*",
        "rm models/*.{bin,log}",
        "rm -rf .",
        "rm -rf ./*",
        "git clean -fdx",
        "git rm -f models/big.bin",
        "find . -name '*.bin' -delete",
        "cd models && rm big.bin",
        "mv models /dev/shm/does/not/exist",
        "echo > models/big.bin",
        "flock /dev/null rm models/big.bin",
        "curl -so models/big.bin file:///dev/null",
        "sort -o models/big.bin /dev/null",
        "trap 'rm models/big.bin' EXIT",
    ],
)
def test_what_a_command_means_without_naming_it_is_kept_too(started: Ground, command: str) -> None:
    started.configure(capture={"max_file_size": 1000})
    big = write(started.project / "models" / "big.bin", b"y" * 2000)
    beside = write(started.project / "beside.bin", b"z" * 2000)

    started.tool("Bash", command=command)
    found = started.contents(started.checkpoints()[-1])

    assert found["models/big.bin"] == big.read_bytes()
    assert ("beside.bin" in found) == (command in ("rm -rf .", "rm -rf ./*", "git clean -fdx") or "find" in command)
    assert beside.exists()


def test_what_a_command_does_not_mean_stays_left_out(started: Ground) -> None:
    started.configure(capture={"max_file_size": 1000})
    write(started.project / "big.bin", b"y" * 2000)
    write(started.project / "small")

    started.tool("Bash", command="rm small")

    assert kinds(started, started.checkpoints()[-1])["big.bin"] == "o"


def test_what_was_kept_stays_in_later_versions_until_it_changes(started: Ground) -> None:
    started.configure(capture={"max_file_size": 1000})
    big = write(started.project / "big.bin", b"y" * 2000)
    started.tool("Bash", command="rm -i big.bin")  # and the answer was no
    kept = started.checkpoints()[-1]
    write(started.project / "other")
    started.hook("Stop")
    started.settle()
    later = started.checkpoints()[-1]
    again = started.tool("Bash", command="rm -i big.bin")
    unchanged = started.checkpoints()[-1]
    big.write_bytes(b"z" * 2001)
    started.hook("Stop")
    started.settle()
    changed = started.checkpoints()[-1]

    assert [kinds(started, row)["big.bin"] for row in (kept, later, changed)] == ["f", "f", "o"]
    assert again == {}
    assert unchanged.version == later.version == changed.version - 1
    assert started.contents(kept)["big.bin"] == b"y" * 2000


def test_what_the_command_removed_is_gone_in_the_next_version_and_comes_back_from_the_one_before(
    started: Ground,
) -> None:
    started.configure(capture={"max_file_size": 1000})
    write(started.project / "big.bin", b"y" * 2000)
    run(started, "rm big.bin")
    kept = started.checkpoints()[-1]
    started.hook("Stop")
    started.settle()
    after = started.checkpoints()[-1]
    restore(started, kept)

    assert (kept.version, after.version) == (after.version - 1, kept.version + 1)
    assert "big.bin" not in kinds(started, after)
    assert (started.project / "big.bin").read_bytes() == b"y" * 2000


@pytest.mark.parametrize("mode", ["small", "none"])
def test_an_ignored_folder_that_the_settings_leave_out_is_kept_when_a_command_names_it(
    started: Ground, mode: str
) -> None:
    started.configure(capture={"ignored": mode, "ignored_folder_files": 3})
    write(started.project / ".gitignore", b"data/\n")
    write(started.project / "source")
    for number in range(5):
        write(started.project / "data" / "deep" / str(number), b"%d" % number)
    started.hook("Stop")
    started.settle()
    before = kinds(started, started.checkpoints()[-1])

    assert run(started, "rm -rf data") == {}
    kept = started.checkpoints()[-1]
    write(started.project / "more")
    started.hook("Stop")
    started.settle()
    after = kinds(started, started.checkpoints()[-1])
    restore(started, kept)

    assert before["data"] == "x"
    assert not [path for path in after if path.startswith("data")]
    assert (started.project / "data" / "deep" / "4").read_bytes() == b"4"


@pytest.mark.parametrize("changed", [False, True], ids=["nothing changed since the session began", "changed"])
def test_no_number_of_later_versions_drops_the_one_that_holds_what_a_command_removed(
    started: Ground, changed: bool
) -> None:
    started.configure(retention={"keep_last": 1, "hourly_hours": 0}, checkpoint={"cleanup_after_days": 1})
    write(started.project / "notes.txt", b"precious")
    write(started.project / "n.txt", b"0")
    started.hook("Stop")
    started.settle()
    if changed:
        write(started.project / "notes.txt", b"precious too")
    run(started, "rm -rf notes.txt")
    kept = started.checkpoints()[-1]
    for number in range(5):
        run(started, f"sed -i s/{number}/{number + 1}/ n.txt")
    started.hook("Stop")
    started.settle()
    engine = started.engine
    try:
        tidy(engine, started.workspace)
    finally:
        engine.close()

    assert kept.trigger == ("before_command" if changed else "turn")
    restore(started, kept)
    assert (started.project / "notes.txt").read_bytes().startswith(b"precious")


# What is not kept


def test_a_folder_that_a_tool_makes_again_is_named_with_its_command_once_a_session(started: Ground) -> None:
    write(started.project / "package-lock.json", b"{}")
    write(started.project / "node_modules" / "a" / "index.js")

    first = started.tool("Bash", DEFAULT, command="rm -rf node_modules/a")
    second = started.tool("Bash", DEFAULT, command="rm -rf node_modules")

    assert "npm ci" in first["systemMessage"]
    assert first["hookSpecificOutput"]["additionalContext"] == first["systemMessage"]
    assert decision(first) is None
    assert second == {}
    assert [notice.partition(" ")[0] for notice in started.notices()] == ["noticed"]


@pytest.mark.parametrize(
    ("folder", "inside", "command"),
    [
        ("node_modules", {"mine/a.js": b"by hand"}, "rm -rf node_modules"),
        ("node_modules", {"mine/a.js": b"by hand", "node_modules/b/c": b"too"}, "rm -rf node_modules"),
        ("sub/node_modules", {"mine/a.js": b"by hand"}, "rm -rf sub"),
        (".venv", {"lib/patched.py": b"by hand"}, "rm -rf .venv"),
        ("env", {"pyvenv.cfg": b"", "lib/patched.py": b"by hand"}, "rm -rf env"),
        ("Pods", {"mine.m": b"by hand"}, "rm -rf ./*"),
        (".yarn/cache", {"a.zip": b"by hand"}, "rm -rf .yarn"),
    ],
)
def test_a_folder_beside_which_nothing_tells_a_tool_what_to_make_is_kept(
    started: Ground, folder: str, inside: dict[str, bytes], command: str
) -> None:
    for name, content in inside.items():
        write(started.project / folder / name, content)
    started.hook("Stop")
    started.settle()

    assert run(started, command, **DEFAULT) == {}
    restore(started, started.checkpoints()[-1])

    for name, content in inside.items():
        assert (started.project / folder / name).read_bytes() == content


@pytest.mark.parametrize(
    ("folder", "evidence", "command"),
    [
        ("node_modules", "package.json", "npm install"),
        (".venv", "requirements.txt", "python -m venv .venv && .venv/bin/pip install -r requirements.txt"),
        (".venv", "pyproject.toml", "python -m venv .venv && .venv/bin/pip install -e ."),
        ("env", "requirements.txt", "python -m venv env && env/bin/pip install -r requirements.txt"),
        (".yarn/cache", "yarn.lock", "yarn install"),
        ("Pods", "Podfile", "pod install"),
    ],
)
def test_a_folder_beside_its_tool_s_own_file_is_named_with_the_command_that_brings_it_back(
    started: Ground, folder: str, evidence: str, command: str
) -> None:
    write(started.project / evidence)
    write(started.project / folder / "pyvenv.cfg")
    write(started.project / folder / "file")

    said = started.tool("Bash", DEFAULT, command=f"rm -rf {folder}")

    assert f"`{command}`" in said["systemMessage"]
    assert f"{folder}/file" not in started.contents(started.checkpoints()[-1])


def test_a_cache_needs_no_evidence(started: Ground) -> None:
    write(started.project / "__pycache__" / "a.pyc")

    said = started.tool("Bash", DEFAULT, command="rm -rf __pycache__")
    assert "__pycache__" in said["systemMessage"]
    assert started.tool("Bash", DEFAULT, command="rm -rf $X") == {}
    assert not [path for path in started.contents(started.checkpoints()[-1]) if "/" in path]


def test_an_ignored_folder_of_results_is_no_build_folder(started: Ground) -> None:
    """`out`, `bin`, `build` hold whatever somebody put there, unless the file of a tool that makes them lies beside them."""
    write(started.project / ".gitignore", b"out/\n")
    write(started.project / "out" / "results.csv", b"1,2,3")

    assert run(started, "rm -rf out") == {}
    restore(started, started.checkpoints()[-1])

    assert (started.project / "out" / "results.csv").read_bytes() == b"1,2,3"


def test_an_ignored_folder_behind_a_link_is_kept_when_a_command_reaches_through_it(started: Ground) -> None:
    started.configure(capture={"ignored": "none"})
    write(started.project / ".gitignore", b"out/\n")
    write(started.project / "out" / "results.csv", b"1,2,3")
    (started.project / "ln").symlink_to("out")

    started.tool("Bash", command="rm -rf ln/")

    assert started.contents(started.checkpoints()[-1])["out/results.csv"] == b"1,2,3"


@pytest.mark.parametrize(
    ("fields", "variables", "asked"),
    [
        ({"permission_mode": "default"}, {}, True),
        ({"permission_mode": "acceptEdits"}, {"CLAUDE_CODE_SESSION_ATTENDED": "1"}, True),
        ({"permission_mode": "acceptEdits"}, {"CLAUDE_CODE_SESSION_ATTENDED": "0"}, False),
        ({"permission_mode": "default"}, {"CLAUDE_CODE_ENTRYPOINT": "sdk-cli"}, False),
        ({"permission_mode": "bypassPermissions"}, {}, False),
        ({"permission_mode": "plan"}, {}, False),
        ({"permission_mode": "auto"}, {}, False),
        ({}, {}, False),
    ],
)
def test_a_person_is_asked_where_there_is_one_and_else_agent_and_user_are_told(
    started: Ground, fields: dict[str, Any], variables: dict[str, str], asked: bool
) -> None:
    started.variables.update(variables)
    said = started.tool("Bash", fields, command="rm -rf .git")

    assert decision(said) == ("ask" if asked else None)
    if asked:
        assert ".git" in said["hookSpecificOutput"]["permissionDecisionReason"]
    else:
        assert ".git" in said["systemMessage"]
        assert ".git" in said["hookSpecificOutput"]["additionalContext"]
    assert [notice.partition(":")[0] for notice in started.notices()] == ["not protected (before_command)"]


def test_the_setting_denies_what_nobody_can_be_asked_about(started: Ground) -> None:
    started.configure(hooks={"before_command_unasked": "deny"})

    assert decision(started.tool("Bash", command="rm -rf .git")) == "deny"
    assert decision(started.tool("Bash", DEFAULT, command="rm -rf .git")) == "ask"


@pytest.mark.parametrize("command", ["git clean -fdx", "git checkout .", "git restore inner", "git rm -r inner"])
def test_git_does_not_touch_git_s_own_folders(started: Ground, command: str) -> None:
    write(started.project / "inner" / ".git" / "HEAD")

    assert started.tool("Bash", DEFAULT, command=command) == {}


def test_a_store_out_of_reach_is_told_before_the_command(started: Ground) -> None:
    shutil.move(started.engine.place.path, started.base / "elsewhere")

    said = started.tool("Bash", DEFAULT, command="rm a.txt")

    assert decision(said) == "ask"
    assert started.tool("Bash", DEFAULT, command="ls") == {}


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_cannot_be_read_is_told(started: Ground) -> None:
    write(started.project / "closed").chmod(0)

    assert decision(started.tool("Bash", DEFAULT, command="rm -f closed")) == "ask"


# What is shown


def test_the_version_before_a_command_shows_the_command(started: Ground) -> None:
    write(started.project / "b.txt")
    started.tool("Bash", command="rm   -rf\nb.txt --token=ghp_" + "a1" * 18)
    row = started.checkpoints()[-1]

    assert row.message.startswith("before rm -rf b.txt")
    assert started.header(row)["command"].startswith("rm   -rf\nb.txt")
    assert "ghp_a1" not in row.message + started.header(row)["command"]


# The parts


@pytest.mark.parametrize(
    ("pattern", "spelled"),
    [
        (b"/a/*.c", [b"/a/*.c"]),
        (b"/a/{b,c}/d", [b"/a/b/d", b"/a/c/d"]),
        (b"/a/{b,c{d,e}}", [b"/a/b", b"/a/cd", b"/a/ce"]),
        (b"/a/{1..9}", [b"/a/*"]),
        (b"/a/{b", [b"/a/*"]),
    ],
)
def test_braces_stand_for_every_pattern_in_them(pattern: bytes, spelled: list[bytes]) -> None:
    assert list(_expand_braces(pattern)) == spelled


@pytest.mark.parametrize(
    ("command", "named", "patterns", "everything", "spared"),
    [
        ("rm a b/c", (b"a", b"b/c"), (), False, set()),
        ("rm *.c", (), (b"/w/r/*.c",), False, set()),
        ("rm src/$X", (b"src",), (), False, set()),
        ("rm src/*.$X", (b"src",), (), False, set()),
        ("rm -rf .", (), (), True, set()),
        ("rm -rf /w", (), (), True, set()),
        ("rm -rf ../*", (), (b"/w/*",), False, set()),
        ("git clean -fdx", (), (), True, {b""}),
        ("git clean -fdx; rm -rf .", (), (), True, set()),
        ("git restore a b", (b"a", b"b"), (), False, {b"a", b"b"}),
        ("git restore a; rm -rf a", (b"a",), (), False, set()),
        ("git checkout .", (), (), False, set()),
        ("git reset --hard", (), (), False, set()),
    ],
)
def test_a_threat_says_what_a_command_names(
    command: str, named: tuple[bytes, ...], patterns: tuple[bytes, ...], everything: bool, spared: set[bytes]
) -> None:
    threat = threat_of(command, b"/w/r", b"/w/r")

    assert threat is not None
    assert (threat.named, threat.patterns) == (named, patterns)
    assert (threat.everything, set(threat.spared)) == (everything, spared)


@contextmanager
def held(ground: Ground) -> Iterator[None]:
    """Somebody else is saving the project for as long as this lasts."""
    with (ground.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_what_a_command_names_is_put_aside_while_somebody_else_is_saving(started: Ground) -> None:
    started.configure(hooks={"before_command": "deadline", "before_command_deadline": 1})
    write(started.project / "d1" / "deep" / "file", b"precious")
    write(started.project / "other", b"kept")
    with held(started):
        run(started, "rm -rf d1 other")
    wait(lambda: len(started.checkpoints()) >= 3)

    _, before, after = started.checkpoints()
    assert before.message == "before rm -rf d1 other"
    assert started.contents(before)["d1/deep/file"] == b"precious"
    assert after.message == "during rm -rf d1 other"
    restore(started, before)
    assert (started.project / "d1" / "deep" / "file").read_bytes() == b"precious"
    assert (started.project / "other").read_bytes() == b"kept"


def test_what_went_before_it_could_be_saved_is_left_out_of_the_version_and_never_deleted_by_it(started: Ground) -> None:
    started.configure(hooks={"before_command": "deadline", "before_command_deadline": 1}, capture={"max_file_size": MB})
    write(started.project / "d1" / "file", b"precious")
    engine, workspace = started.engine, started.workspace
    try:
        root = os.fsencode(started.project)
        told = Event(
            root, engine.clock(), trigger="before_command", message="before rm -rf d1", named=(b"d1",), until=1
        )
        shutil.rmtree(started.project / "d1")
        outcome = engine.handle(told)
    finally:
        engine.close()
    row = started.checkpoints()[-1]

    assert (outcome.message, row.message, row.workspace) == ("during rm -rf d1", "during rm -rf d1", workspace)
    assert any("after the command had started" in notice for notice in outcome.notices)
    assert kinds(started, row)["d1"] == "u"
    write(started.project / "d1" / "file", b"again")
    restore(started, row)
    assert (started.project / "d1" / "file").read_bytes() == b"again"
    shutil.rmtree(started.project / "d1")
    assert [one.path for one in lost(started, row)] == [b"d1"]
    started.hook("Stop")
    assert "d1" not in kinds(started, started.checkpoints()[-1])  # by then it is gone, and nothing else


def lost(ground: Ground, target: CheckpointRow) -> list[Missing]:
    engine = ground.engine
    try:
        root, row = engine.workspaces.root(os.fsencode(ground.project))
        return Restorer(engine, root, row).planner.missing(target)
    finally:
        engine.close()


def test_past_the_deadline_the_paths_that_are_not_safe_are_named(started: Ground) -> None:
    started.configure(hooks={"before_command_deadline": 1})
    write(started.project / "one.db")
    with held(started):
        said = started.tool("Bash", DEFAULT, command="rm -rf one.db")
    wait(lambda: len(started.checkpoints()) == 2)

    assert "one.db" in said["systemMessage"]


def test_what_is_not_saved_and_what_can_be_made_again_are_both_named(started: Ground) -> None:
    write(started.project / "package-lock.json", b"{}")
    write(started.project / "node_modules" / "a" / "index.js")
    said = started.tool("Bash", DEFAULT, command="find . -delete")

    assert ".git" in said["systemMessage"]
    assert "npm ci" in said["systemMessage"]


def test_who_is_asked_by_the_client_hears_of_it_as_well(started: Ground) -> None:
    said = started.tool("Bash", DEFAULT, command="rm -rf .git")

    assert ".git" in said["systemMessage"]


def test_the_first_checkpoint_counts_what_it_keeps(started: Ground) -> None:
    assert started.checkpoints()[0].message == "First checkpoint: 1 file"


@pytest.mark.parametrize(
    "pattern",
    ["{a,b}" * 40, "{a,{b," * 40 + "c" + "}}" * 40, "{a,b}" * 12_000, "{" * 60_000, "{a," * 60 + "b" + "}" * 60],
    ids=["in a row", "nested", "very many", "open", "deep"],
)
def test_a_command_whose_braces_stand_for_more_words_than_any_needs_means_the_folder_around_them(
    tmp_path: Path, pattern: str
) -> None:
    root = os.fsencode(tmp_path)
    write(tmp_path / "sub" / "ab")
    for start, means in (("sub/", b"sub"), ("", b""), ("sub/../", b"")):
        threat = threat_of("rm -rf " + start + pattern[:60_000], root, root)
        assert threat is not None
        assert threatened_paths(root, threat) == (means,)


def test_braces_of_few_words_are_spelled_out(tmp_path: Path) -> None:
    root = os.fsencode(tmp_path)
    for name in ("sub/a1", "sub/b2", "sub/c"):
        write(tmp_path / name)
    threat = threat_of("rm -rf sub/{a,b}{1,2}{" + ",".join(map(str, range(2000))) + ",}", root, root)
    assert threat is not None
    assert sorted(threatened_paths(root, threat)) == [b"sub/a1", b"sub/b2"]


def test_a_pattern_with_more_matches_than_are_counted_means_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keepfast.app.threat.MAX_MATCHES", 3)
    monkeypatch.setattr("keepfast.app.threat.MAX_PATTERNS", 3)
    root = os.fsencode(tmp_path)
    for name in ("a/1", "a/2", "a/3", "b/1", "b/2", "b/3", "b/4"):
        write(tmp_path / name)
    told = {
        command: threatened_paths(root, threat_of(command, root, root))  # type: ignore[arg-type]
        for command in ("rm a/*", "rm b/*", "rm a/{1,2,3,4}*")
    }
    assert {command: sorted(paths) for command, paths in told.items()} == {
        "rm a/*": [b"a/1", b"a/2", b"a/3"],
        "rm b/*": [b"b"],
        "rm a/{1,2,3,4}*": [b"a"],
    }


def test_a_detached_process_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "MAX_SECONDS", 1)
    reading, writing = os.pipe()

    def never() -> None:
        os.write(writing, b"%d" % os.getpid())
        while True:
            pass

    background.detach(never)
    os.close(writing)
    assert os.read(reading, 20).isdigit()
    assert os.read(reading, 1) == b""  # its end of the pipe is closed: it is gone
    os.close(reading)


def test_a_detached_process_gets_no_more_memory_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "MAX_MEMORY_BYTES", 300 << 20)

    def greedy() -> bytes:
        try:
            return b"%d" % len(bytearray(400 << 20))
        except MemoryError:
            return b"refused"

    assert background.attempt(greedy, 20) == b"refused"


def test_a_command_with_braces_beyond_number_is_answered_and_what_it_may_mean_is_saved(started: Ground) -> None:
    write(started.project / "sub" / "kept", b"as it was")
    started.tool("Bash", DEFAULT, command="rm -rf sub/" + "{a,b}" * 40)
    newest = started.checkpoints()[-1]
    assert newest.trigger == "before_command"
    assert started.contents(newest)["sub/kept"] == b"as it was"


# A command whose targets cannot be read


UNREADABLE_TARGETS = [
    "rm -rf $(pwd)/big.bin",
    'F=big.bin; rm -f "$F"',
    "for f in big.bin; do rm $f; done",
    "ls big.bin | xargs rm",
    "rm -f $(ls *.bin)",
    "python3 -c \"import os; os.remove('big.bin')\"",
    "tar xf /dev/null",
    "awk 'BEGIN{system(\"rm big.bin\")}'",
    "fd -e bin -X rm",
]


@pytest.mark.parametrize("command", UNREADABLE_TARGETS)
def test_a_large_file_is_kept_before_a_command_that_may_mean_it(started: Ground, command: str) -> None:
    started.configure(capture={"max_file_size": MB})
    content = os.urandom(2 * MB)
    write(started.project / "big.bin", content)

    assert run(started, command) == {}
    (started.project / "big.bin").unlink(missing_ok=True)
    restore(started, started.checkpoints()[-1])

    assert (started.project / "big.bin").read_bytes() == content


@pytest.mark.parametrize("mode", ["small", "none"])
def test_an_ignored_folder_is_kept_before_a_command_that_may_mean_it(started: Ground, mode: str) -> None:
    started.configure(capture={"ignored": mode, "ignored_folder_files": 3})
    write(started.project / ".gitignore", b"data/\nnode_modules/\n")
    write(started.project / "package-lock.json", b"{}")
    write(started.project / "node_modules" / "a" / "index.js")
    for number in range(5):
        write(started.project / "data" / str(number), b"%d" % number)

    assert started.tool("Bash", DEFAULT, command="rm -rf $X") == {}

    found = started.contents(started.checkpoints()[-1])
    assert found["data/4"] == b"4"
    assert not [path for path in found if path.startswith("node_modules/")]


def test_a_large_file_that_a_command_may_mean_and_has_no_room_is_asked_about(started: Ground) -> None:
    started.configure(capture={"max_file_size": MB})
    with (started.project / "huge.bin").open("wb") as file:
        file.truncate(1 << 42)  # more than any disk here has free
    write(started.project / "big.bin", b"y" * 2 * MB)

    said = started.tool("Bash", DEFAULT, command="ls | xargs rm")

    assert decision(said) == "ask"
    assert "huge.bin" in said["systemMessage"]
    assert "big.bin (" not in said["systemMessage"]
    assert started.contents(started.checkpoints()[-1])["big.bin"] == b"y" * 2 * MB


def test_a_large_file_that_was_kept_once_is_not_read_before_each_vague_command(started: Ground) -> None:
    started.configure(capture={"max_file_size": MB})
    write(started.project / "big.bin", b"y" * 2 * MB)
    started.tool("Bash", command="ls | xargs rm")
    kept = started.checkpoints()[-1].version

    assert started.tool("Bash", command="ls | xargs rm") == {}
    assert started.checkpoints()[-1].version == kept


def test_of_two_versions_of_one_command_the_one_without_the_file_names_the_other(started: Ground) -> None:
    started.configure(capture={"max_file_size": 1000})
    write(started.project / "big.bin", b"y" * 2000)
    write(started.project / "more")
    run(started, "rm -f big.bin")
    without, with_it = started.checkpoints()[-2:]
    engine = started.engine
    try:
        root, row = engine.workspaces.root(os.fsencode(started.project))
        missing = Planner(engine, root, row).missing(without)
    finally:
        engine.close()

    assert without.message == with_it.message == "before rm -f big.bin"
    assert [(one.path, one.held_by) for one in missing] == [(b"big.bin", with_it.version)]


# Folders that are left out by their names, before a command that may mean them


def git(ground: Ground, *words: str, folder: str = ".") -> None:
    identity = ["-c", "user.name=d", "-c", "user.email=d@example.invalid"]
    subprocess.run(["git", *identity, *words], cwd=ground.project / folder, check=True, capture_output=True)


def committed(ground: Ground, *names: str) -> None:
    """A repository that has these files, each as `old`, and work in them since then."""
    shutil.rmtree(ground.project / ".git")
    for name in names:
        write(ground.project / name, b"old")
    git(ground, "init", "-q", "-b", "main")
    git(ground, "add", "-f", "a.txt", *names)
    git(ground, "commit", "-qm", "all")
    for name in names:
        write(ground.project / name, b"my patch")


@pytest.mark.parametrize("folder", ["node_modules", ".venv", "sub/node_modules"])
@pytest.mark.parametrize(
    "command",
    ["ls | xargs rm -rf", "rm -rf $X/*", "git stash -u && git stash drop", "git stash push --all", "npm run clean"],
)
def test_a_folder_without_its_tool_s_file_is_kept_before_a_command_that_may_mean_it(
    started: Ground, command: str, folder: str
) -> None:
    write(started.project / folder / "deep" / "mine.js", b"by hand")
    write(started.project / "app" / "package.json", b"{}")
    write(started.project / "app" / "node_modules" / "a.js")

    assert started.tool("Bash", DEFAULT, command=command) == {}

    found = started.contents(started.checkpoints()[-1])
    assert found[f"{folder}/deep/mine.js"] == b"by hand"
    assert not [path for path in found if path.startswith("app/node_modules/")]


@pytest.mark.parametrize(
    "command",
    [
        "git reset --hard",
        "git checkout .",
        "git restore .",
        "git checkout -f",
        "git switch -f main",
        "git read-tree -u --reset HEAD",
        "git rm -rf .",
        "git stash",
        "git -C . reset --hard",
        "cd src; git reset --hard",
        "ls | xargs rm -rf",
    ],
)
def test_a_folder_that_git_tracks_is_kept_before_git_changes_it(started: Ground, command: str) -> None:
    committed(started, "node_modules/mine.js", ".venv/lib/mine.py", "src/b.txt")

    assert started.tool("Bash", DEFAULT, command=command) == {}

    found = started.contents(started.checkpoints()[-1])
    assert (found["node_modules/mine.js"], found[".venv/lib/mine.py"]) == (b"my patch", b"my patch")


@pytest.mark.parametrize(
    ("command", "is_kept"),
    [
        ("git reset --hard", False),
        ("git -C src checkout .", False),
        ("git add -A && git reset --hard", True),
        ("git add -A; git stash", True),
        ("git --work-tree=. reset --hard", True),
        ("git rebase -x 'rm -r node_modules' main", True),
        ("cd $X && git reset --hard", True),
        ("cd node_modules/inner && git reset --hard", True),
        ("GIT_DIR=x git reset --hard", True),
    ],
)
def test_a_folder_that_git_does_not_track_stays_as_it_is_where_git_changes_what_it_tracks(
    started: Ground, command: str, is_kept: bool
) -> None:
    committed(started, "src/b.txt")
    write(started.project / "node_modules" / "mine.js", b"by hand")
    write(started.project / "node_modules" / "inner" / "x", b"by hand")

    assert started.tool("Bash", DEFAULT, command=command) == {}

    assert ("node_modules/mine.js" in started.contents(started.checkpoints()[-1])) == is_kept


@pytest.mark.parametrize(
    "form", ["plain", "version 4", "split", "a repository inside", "a workspace inside of a repository"]
)
def test_whatever_form_the_index_has_what_it_may_track_is_kept(started: Ground, form: str) -> None:
    if form == "a repository inside":
        write(started.project / "inner" / "node_modules" / "mine.js", b"old")
        git(started, "init", "-q", folder="inner")
        git(started, "add", "-f", "node_modules", folder="inner")
    elif form == "a workspace inside of a repository":
        shutil.rmtree(started.project / ".git")
        write(started.project / "inner" / "node_modules" / "mine.js", b"old")
        git(started, "init", "-q", folder="..")
        git(started, "add", "-f", "inner")
    else:
        committed(started, "node_mix/a", "node_modules/mine.js", "inner/node_modules/mine.js")
    if form == "version 4":
        git(started, "update-index", "--index-version", "4")
    elif form == "split":
        git(started, "update-index", "--split-index")
        git(started, "rm", "-q", "--cached", "a.txt")
    path = "inner/node_modules/mine.js"
    write(started.project / path, b"my patch")

    assert started.tool("Bash", DEFAULT, command="cd inner && git reset --hard") == {}

    assert started.contents(started.checkpoints()[-1])[path] == b"my patch"


def test_a_folder_that_a_version_has_as_it_is_is_not_saved_again_before_each_vague_command(
    started: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = write(started.project / "node_modules" / "mine.js", b"by hand")
    time.sleep(2.1)  # a file must have been so for a while to count as unchanged
    started.tool("Bash", command="ls | xargs rm")
    kept = started.checkpoints()[-1].version
    started.hook("Stop")
    started.settle()
    left = started.checkpoints()[-1]
    again = started.tool("Bash", command="ls | xargs rm")
    unchanged = started.checkpoints()[-1].version
    mine.write_bytes(b"changed")
    started.tool("Bash", command="ls | xargs rm")

    assert again == {}
    assert unchanged == left.version
    assert kept in rescues.read(str(started.folder))
    assert started.contents(started.checkpoints()[-1])["node_modules/mine.js"] == b"changed"


def test_a_folder_that_a_command_may_mean_and_for_which_is_no_room_is_asked_about(started: Ground) -> None:
    (started.project / "node_modules").mkdir()
    with (started.project / "node_modules" / "huge.bin").open("wb") as file:
        file.truncate(1 << 42)  # more than any disk here has free
    write(started.project / ".venv" / "mine.py", b"by hand")

    said = started.tool("Bash", DEFAULT, command="ls | xargs rm")

    assert decision(said) == "ask"
    assert "node_modules (" in said["systemMessage"]
    assert started.contents(started.checkpoints()[-1])[".venv/mine.py"] == b"by hand"


# What is given to a program that nobody knows


@pytest.mark.parametrize(
    "command", ["./tool big.bin", "./tool --input=big.bin", "python3 tool.py big.bin", "sed 'w big.bin' a.txt"]
)
def test_what_a_command_mentions_is_kept_if_no_version_has_it(started: Ground, command: str) -> None:
    started.configure(capture={"max_file_size": 1000})
    write(started.project / "tool.py", b"print('a program that removes nothing')\n")
    write(started.project / "big.bin", b"y" * 2000)
    write(started.project / "beside.bin", b"z" * 2000)

    assert started.tool("Bash", DEFAULT, command=command) == {}
    found = started.contents(started.checkpoints()[-1])

    assert found["big.bin"] == b"y" * 2000
    assert "beside.bin" not in found


def test_what_a_version_has_already_is_not_saved_again_because_it_is_mentioned(started: Ground) -> None:
    started.configure(capture={"max_file_size": 1000})
    write(started.project / "src" / "a.txt", b"1")
    write(started.project / "big.bin", b"y" * 2000)
    started.tool("Bash", command="./tool big.bin src")
    time.sleep(0.1)
    started.tool("Bash", command="rm nothing")
    before = started.checkpoints()[-1]
    write(started.project / "other", b"changed meanwhile")

    for command in (
        "./tool src/a.txt",
        "./tool src",
        "./tool big.bin",
        "./tool nothing",
        "./tool .git",
        "pytest other",
    ):
        assert started.tool("Bash", command=command) == {}
        assert started.checkpoints()[-1].version == before.version

    write(started.project / "src" / "a.txt", b"22")
    started.tool("Bash", command="./tool src")
    assert started.contents(started.checkpoints()[-1])["src/a.txt"] == b"22"


def test_nobody_is_asked_about_what_a_command_only_mentions(started: Ground) -> None:
    write(started.project / "package.json", b"{}")
    write(started.project / "node_modules" / "a" / "index.js")
    started.configure(hooks={"before_command_unasked": "deny"})

    assert started.tool("Bash", DEFAULT, command="./tool .git") == {}
    assert started.tool("Bash", DEFAULT, command="./tool node_modules") == {}
    shutil.move(started.engine.place.path, started.base / "elsewhere")
    assert decision(started.tool("Bash", DEFAULT, command="./tool a.txt")) is None


# Tools that write a file


@pytest.mark.parametrize("tool", ["Write", "Edit", "MultiEdit", "NotebookEdit"])
def test_a_file_that_is_left_out_is_saved_before_a_tool_writes_it(started: Ground, tool: str) -> None:
    started.configure(capture={"max_file_size": 1000})
    big = write(started.project / "data" / "data.csv", b"y" * 2000)
    beside = write(started.project / "beside.bin", b"z" * 2000)

    assert started.tool(tool, DEFAULT, file_path=str(big), content="z" * 100_000) == {}
    row = started.checkpoints()[-1]

    assert (row.trigger, row.message) == ("before_command", f"before {tool}: data/data.csv")
    found = started.contents(row)
    assert found["data/data.csv"] == b"y" * 2000
    assert "beside.bin" not in found and beside.exists()


def test_a_file_that_changed_since_the_newest_version_is_saved_before_a_tool_writes_it(started: Ground) -> None:
    file = write(started.project / "a.txt", b"1")
    started.tool("Bash", command="rm a.txt")
    file.write_bytes(b"by hand")

    assert started.tool("Write", DEFAULT, file_path=str(file), content="x") == {}

    assert started.contents(started.checkpoints()[-1])["a.txt"] == b"by hand"


def test_an_edit_of_a_file_that_the_newest_version_holds_saves_nothing(started: Ground) -> None:
    file = write(started.project / "a.txt", b"1")
    link = started.project / "link"
    link.symlink_to("a.txt")
    time.sleep(0.1)
    started.tool("Bash", command="rm nothing")
    before = started.checkpoints()[-1].version
    write(started.project / "other", b"changed by somebody")

    for path in (file, link, started.project / "new.txt", started.project / ".git" / "HEAD", started.base / "else"):
        assert started.tool("Edit", DEFAULT, file_path=str(path), old_string="1", new_string="2") == {}

    assert started.checkpoints()[-1].version == before


def test_a_file_that_cannot_be_saved_before_it_is_written_is_noted_and_nobody_is_asked(started: Ground) -> None:
    started.configure(capture={"max_file_size": 1000}, hooks={"before_command_deadline": 0.5})
    big = write(started.project / "data.csv", b"y" * 2000)
    started.tool("Bash", command="rm nothing")

    with held(started):
        assert started.tool("Write", DEFAULT, file_path=str(big), content="x") == {}

    told = notices.read([str(started.folder)])
    assert "Write wrote a file before its former content was saved: data.csv" in told[-1].text


def test_reading_what_is_left_out_ends_when_the_command_runs(started: Ground) -> None:
    started.configure(hooks={"before_command_deadline": 1.5})
    started.tool("Bash", command="rm nothing")
    big = started.project / "sparse.img"
    with big.open("wb") as file:
        file.truncate(6 << 30)
    small = write(started.project / "a.txt", b"1")

    said = started.tool("Bash", {"permission_mode": "bypassPermissions"}, command="rm -f sparse.img")
    big.unlink()

    assert "sparse.img" in said["systemMessage"]
    begun = time.monotonic()
    assert started.tool("Bash", command="rm a.txt") == {}
    assert time.monotonic() - begun < 1.5
    assert started.contents(started.checkpoints()[-1])["a.txt"] == small.read_bytes()
