"""Hooks where a marker is not what it seems: another project's history stays closed, and the folder is protected."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from keepfast.store.rows import CheckpointRow, Query

from .ground import Ground, wait


@pytest.fixture
def victim(tmp_path: Path) -> Ground:
    """A project with a session in it, whose brief would tell of its file."""
    made = Ground(tmp_path, project="victim")
    (made.project / "private.txt").write_text("private\n")
    made.hook("SessionStart", source="startup")
    made.hook("UserPromptSubmit", prompt="Mend the private parser")
    (made.project / "private.txt").write_text("changed\n")
    made.hook("Stop", last_assistant_message="Next: test the private parser.")
    made.settle()
    return made


def visit(victim: Ground, name: str) -> Ground:
    return Ground(victim.base, project=name)


def marker(ground: Ground) -> Path:
    return ground.project / ".keepfast"


@pytest.mark.parametrize("way", ["link", "copied marker"])
def test_a_clone_is_told_nothing_of_the_project_that_its_marker_leads_to(victim: Ground, way: str) -> None:
    clone = visit(victim, "clone")
    (clone.project / "mine.txt").write_text("mine\n")
    if way == "link":
        marker(clone).symlink_to("../victim/.keepfast")
    else:
        marker(clone).mkdir()
        (marker(clone) / "workspace.json").write_bytes((marker(victim) / "workspace.json").read_bytes())
    before = [row.id for row in victim.checkpoints()]
    told = [clone.hook("SessionStart", source=source) for source in ("startup", "resume", "clear")]
    command = clone.tool("Bash", command="rm mine.txt")

    assert [done.returncode for done in told] == [0] * 3
    assert not any(b"private" in done.stdout + done.stderr for done in told)
    assert command == {}
    assert [row.id for row in victim.checkpoints()] == before
    assert clone.workspace != victim.workspace
    assert clone.contents(clone.checkpoints()[-1]) == {"mine.txt": b"mine\n"}


def test_a_nested_marker_of_a_repository_diverts_no_hook(victim: Ground) -> None:
    vendor = victim.project / "vendor"
    (vendor / ".keepfast").mkdir(parents=True)
    store = {"store": str(victim.home / ".local/share/keepfast/store"), "store_id": "f" * 32}
    (vendor / ".keepfast/workspace.json").write_text(json.dumps({"id": "ab" * 16, **store}))
    (vendor / "lib.c").write_text("int x;\n")
    answer = victim.tool("Bash", {"cwd": str(vendor)}, command="rm lib.c")

    assert answer == {}
    newest = victim.checkpoints()[-1]
    assert newest.trigger == "before_command"
    assert victim.contents(newest)["vendor/lib.c"] == b"int x;\n"
    assert "vendor/.keepfast/workspace.json" in victim.contents(newest)


def nest(victim: Ground, of: str) -> Path:
    """Put a marker that the store knows for another folder below the project."""
    source = victim
    if of != "its own":
        source = visit(victim, "other")
        source.hook("SessionStart", source="startup", cwd=str(source.project))
        source.settle()
    vendor = victim.project / "vendor"
    (vendor / ".keepfast").mkdir(parents=True)
    (vendor / ".keepfast/workspace.json").write_bytes((marker(source) / "workspace.json").read_bytes())
    return vendor


@pytest.mark.parametrize("of", ["its own", "another project's"])
def test_a_nested_marker_that_the_store_knows_diverts_no_hook(victim: Ground, of: str) -> None:
    vendor = nest(victim, of)
    (victim.project / "top").write_text("top\n")
    registered = (victim.data / "keepfast/store/paths").read_bytes()
    answer = victim.tool("Bash", {"cwd": str(vendor)}, command="rm -rf ../top")

    assert answer == {}
    newest = victim.checkpoints()[-1]
    assert newest.trigger == "before_command"
    assert victim.contents(newest)["top"] == b"top\n"
    assert "vendor/.keepfast/workspace.json" in victim.contents(newest)
    assert (victim.data / "keepfast/store/paths").read_bytes() == registered


@pytest.mark.parametrize("of", ["its own", "another project's"])
def test_a_turn_below_a_nested_marker_is_saved_where_it_belongs(victim: Ground, of: str) -> None:
    vendor = nest(victim, of)
    (vendor / "lib.c").write_text("int x;\n")
    assert victim.hook("Stop", cwd=str(vendor)).returncode == 0
    victim.settle()

    assert victim.contents(victim.checkpoints()[-1])["vendor/lib.c"] == b"int x;\n"


def test_a_project_goes_on_under_the_marker_of_another_and_says_so(victim: Ground) -> None:
    other, own = visit(victim, "template"), victim.workspace
    other.hook("SessionStart", source="startup")
    other.settle()
    (marker(victim) / "workspace.json").write_bytes((marker(other) / "workspace.json").read_bytes())
    before = [row.id for row in victim.engine.repository().ledger.find(Query(workspace=own))]
    first, second = (victim.hook("SessionStart", source="startup", session_id=name) for name in ("one", "two"))

    assert (first.returncode, second.returncode) == (0, 0)
    assert str(victim.project) in json.loads(first.stdout)["systemMessage"]
    assert str(victim.project) not in json.loads(second.stdout or b"{}").get("systemMessage", "")
    assert victim.workspace == own
    assert {row.id for row in victim.checkpoints()} >= set(before) != set()
    assert json.loads((marker(victim) / "workspace.json").read_text())["id"] == own


def test_a_moved_folder_is_protected_at_once_and_a_person_is_told_once(victim: Ground) -> None:
    victim.project.rename(victim.base / "moved")
    moved = Ground(victim.base, git=False, project="moved")
    first, second = (moved.hook("SessionStart", source="startup", session_id=name) for name in ("one", "two"))

    assert (first.returncode, second.returncode) == (0, 0)
    assert "init --moved" in json.loads(first.stdout)["systemMessage"]
    assert b"init --moved" not in second.stdout
    assert b"parser" not in first.stdout + second.stdout
    assert moved.contents(moved.checkpoints()[0])["private.txt"] == b"changed\n"
    assert any("init --moved" in notice for notice in moved.notices())


def test_of_hooks_that_start_together_only_one_tells_that_the_folder_moved(victim: Ground) -> None:
    """A client starts both parts of a session's beginning at once, and both find the folder where it was not."""
    victim.project.rename(victim.base / "moved")
    moved = Ground(victim.base, git=False, project="moved")
    payload = json.dumps(moved.payload("SessionStart", source="startup")).encode()
    held = os.open(os.path.join(victim.engine.place.path, "workspaces"), os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    waiting = f":{os.fstat(held).st_ino} "
    parts = [
        subprocess.Popen(
            moved.command("--part", number),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=moved.project,
            env=moved.variables,
        )
        for number in ("1", "2")
    ]
    try:
        for part in parts:
            assert part.stdin is not None
            part.stdin.write(payload)
            part.stdin.close()
        wait(
            lambda: sum("->" in line and waiting in line for line in Path("/proc/locks").read_text().splitlines()) == 2
        )
    finally:
        os.close(held)
    said = [part.stdout.read() for part in parts if part.stdout is not None]

    assert [part.wait() for part in parts] == [0, 0]
    assert sum(b"init --moved" in json.loads(one or b"{}").get("systemMessage", "").encode() for one in said) == 1
    assert len([notice for notice in moved.notices() if "init --moved" in notice]) == 1


def test_a_moved_folder_is_protected_from_a_command_too(victim: Ground) -> None:
    """Its session began before it moved, or nobody told of a beginning."""
    victim.project.rename(victim.base / "moved")
    moved = Ground(victim.base, git=False, project="moved")
    moved.tool("Bash", command="rm private.txt")

    assert [row.trigger for row in moved.checkpoints()] == ["before_command"]
    assert moved.contents(moved.checkpoints()[0])["private.txt"] == b"changed\n"


def test_a_file_in_the_place_of_a_marker_leaves_nothing_unprotected(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    marker(ground).write_text("mine\n")
    (ground.project / "a.txt").write_text("one\n")
    started = ground.hook("SessionStart", source="startup")
    ground.settle()
    (ground.project / "a.txt").write_text("two\n")
    ground.tool("Bash", command="rm a.txt")

    assert (started.returncode, started.stderr) == (0, b"")
    assert marker(ground).read_text() == "mine\n"
    assert [row.trigger for row in ground.checkpoints()] == ["session_start", "before_command"]
    assert ground.contents(ground.checkpoints()[-1])["a.txt"] == b"two\n"


@pytest.mark.parametrize("kind", ["pipe", "huge", "folder", "not JSON", "hard link"])
def test_a_marker_of_any_kind_stops_no_hook(victim: Ground, kind: str) -> None:
    clone = visit(victim, "clone")
    (clone.project / "mine.txt").write_text("mine\n")
    marker(clone).mkdir()
    place = marker(clone) / "workspace.json"
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        (place / "in").mkdir(parents=True)
    elif kind == "hard link":
        os.link(marker(victim) / "workspace.json", place)
    else:
        place.write_bytes(b'{"id": "' + b"a" * 50_000_000 if kind == "huge" else b"\xff{")
    original = (marker(victim) / "workspace.json").read_bytes()
    done = clone.hook("SessionStart", source="startup")

    assert done.returncode in (0, 1)  # a folder cannot be replaced by a marker, which is said
    assert b"parser" not in done.stdout
    assert (marker(victim) / "workspace.json").read_bytes() == original
    if kind != "folder":
        wait(lambda: len(clone.checkpoints()) == 1)
        assert clone.contents(clone.checkpoints()[0]) == {"mine.txt": b"mine\n"}


# Markers that name a store which these hooks do not use


@pytest.fixture
def upgraded(tmp_path: Path) -> Ground:
    """A project in a store of its own data folder, and hooks of an earlier version, which do not know of that folder."""
    made = Ground(tmp_path)
    (made.project / "a.txt").write_text("one\n")
    made.data = tmp_path / "disk"
    made.hook("SessionStart", source="startup")
    made.settle()
    made.data = made.home / ".local/share"
    return made


def test_hooks_that_use_another_store_say_so_and_leave_the_marker_as_it_is(upgraded: Ground) -> None:
    before = (marker(upgraded) / "workspace.json").read_bytes()
    (upgraded.project / "a.txt").write_text("two\n")
    started = upgraded.hook("SessionStart", source="startup", session_id="new")
    again = upgraded.hook("SessionStart", source="startup", session_id="new")
    stopped = upgraded.hook("Stop", session_id="new", last_assistant_message="Done.")
    upgraded.settle()

    assert started.returncode == 0
    assert str(upgraded.base / "disk") in json.loads(started.stdout)["systemMessage"]
    assert str(upgraded.base / "disk").encode() not in again.stdout
    assert (stopped.returncode, len(stopped.stderr.splitlines())) == (1, 1)
    assert (marker(upgraded) / "workspace.json").read_bytes() == before
    assert upgraded.contents(upgraded.checkpoints()[-1])["a.txt"] == b"two\n"  # kept by its path meanwhile
    assert any(str(upgraded.base / "disk") in notice for notice in upgraded.notices())
    assert (marker(upgraded) / "workspace.json").read_bytes() == before


def test_hooks_that_are_told_the_folders_go_on_with_the_history_of_the_marker(upgraded: Ground) -> None:
    upgraded.hook("SessionStart", source="startup", session_id="new")
    upgraded.settle()
    (upgraded.project / "a.txt").write_text("three\n")
    upgraded.data = upgraded.base / "disk"
    started = upgraded.hook("SessionStart", source="startup", session_id="newer")

    assert started.returncode == 0
    assert b"install claude" not in started.stdout
    assert [row.version for row in upgraded.checkpoints()] == [1, 2]


@pytest.mark.parametrize("where", ["nowhere", "in the project", "below the kernel's folders", "with another id"])
def test_a_repository_s_word_of_a_store_does_not_stop_protection_and_is_not_repeated(
    upgraded: Ground, where: str
) -> None:
    """The store that it names is not one: nothing of it is opened, and its path is not told as if it were."""
    said = json.loads((marker(upgraded) / "workspace.json").read_bytes())
    clone = visit(upgraded, "clone")
    (clone.project / "mine.txt").write_text("mine\n")
    if where == "in the project":
        shutil.copytree(said["store"], clone.project / "store")
        said["store"] = str(clone.project / "store")
    elif where == "with another id":
        said["store_id"] = "f" * 32
    else:
        said["store"] = "/nowhere/at/all" if where == "nowhere" else "/proc/self/cwd/store"
    marker(clone).mkdir()
    (marker(clone) / "workspace.json").write_text(json.dumps(said))
    started = clone.hook("SessionStart", source="startup")
    clone.settle()

    assert started.returncode == 0
    assert said["store"] not in json.loads(started.stdout)["systemMessage"]
    assert json.loads((marker(clone) / "workspace.json").read_bytes()) == said
    assert clone.contents(clone.checkpoints()[-1])["mine.txt"] == b"mine\n"


def test_hooks_of_a_user_whose_data_folder_is_gone_say_so_and_begin_nothing(victim: Ground) -> None:
    shutil.rmtree(victim.data)
    told = {
        name: victim.hook(name, session_id="new", **fields)
        for name, fields in (
            ("SessionStart", {"source": "startup"}),
            ("UserPromptSubmit", {"prompt": "Go on"}),
            ("Stop", {"last_assistant_message": "Done."}),
        )
    }

    assert {name: (done.returncode, len(done.stderr.splitlines())) for name, done in told.items()} == {
        "SessionStart": (1, 1),
        "UserPromptSubmit": (0, 0),
        "Stop": (1, 1),
    }
    assert not (victim.data / "keepfast/store").exists()


# Markers that cannot be believed, or not be written


@pytest.mark.parametrize("store", ["{store}", "/mnt/theirs", ""])
@pytest.mark.parametrize("first", ["SessionStart", "Stop", "tool"])
def test_a_clone_with_a_known_id_and_a_foreign_store_is_protected_apart(victim: Ground, store: str, first: str) -> None:
    clone = visit(victim, "clone")
    (clone.project / "mine.txt").write_text("mine\n")
    said = json.loads((marker(victim) / "workspace.json").read_text())
    said["store_id"] = "f" * 32
    said["store"] = said["store"] if store == "{store}" else store
    marker(clone).mkdir()
    (marker(clone) / "workspace.json").write_text(json.dumps(said))
    before = [row.id for row in victim.checkpoints()]
    if first != "tool":
        assert clone.hook(first).returncode == 0
        clone.settle()
    (clone.project / "mine.txt").write_text("more\n")
    clone.tool("Bash", command="rm mine.txt")

    newest = saved(clone)[-1]
    assert newest.trigger == "before_command"
    assert clone.contents(newest)["mine.txt"] == b"more\n"
    assert [row.id for row in victim.checkpoints()] == before


def saved(ground: Ground) -> list[CheckpointRow]:
    """The checkpoints of the project's folder, which its marker need not name."""
    workspace = ground.engine.place.registered()[os.fsencode(ground.project)]
    return sorted(ground.engine.repository().ledger.find(Query(workspace=workspace)), key=lambda row: row.version)


@pytest.mark.parametrize("name", ["workspace.json", ".gitignore"])
@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
def test_a_folder_in_the_place_of_a_marker_s_file_stops_no_hook(tmp_path: Path, name: str, known: bool) -> None:
    ground = Ground(tmp_path)
    if known:
        ground.hook("SessionStart", source="startup")
        ground.settle()
        shutil.rmtree(marker(ground))
    (marker(ground) / name).mkdir(parents=True)
    (marker(ground) / name / "x").write_text("theirs\n")
    (ground.project / "mine.txt").write_text("mine\n")
    start = ground.hook("SessionStart", source="startup")
    wait(lambda: any("mine.txt" in ground.contents(row) for row in saved(ground)[-1:]))
    (ground.project / "mine.txt").write_text("changed\n")
    command = ground.tool("Bash", command="rm mine.txt")
    (ground.project / "mine.txt").write_text("more\n")
    end = ground.hook("Stop", last_assistant_message="Done.")
    wait(lambda: saved(ground)[-1].trigger == "turn")

    assert (start.returncode, end.returncode, command) == (0, 0, {})
    assert json.loads(start.stdout)["systemMessage"].count(".keepfast") == 1
    assert [row.trigger for row in saved(ground)][-2:] == ["before_command", "turn"]
    assert (marker(ground) / name / "x").read_text() == "theirs\n"
