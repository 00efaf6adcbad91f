"""Whatever is wrong, the agent goes on: exit code 0 or 1, at most one line on stderr, and `status` knows."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from keepfast.agents.claude import hooks as claude_code
from keepfast.app.wiring import build
from keepfast.present.environment import Environment
from keepfast.settings import load
from keepfast.state import sessions
from tests.equipment.judge import judge
from tests.faults.disks import needs, tmpfs

from .background import attending
from .ground import SESSION, Ground

EVENTS: dict[str, dict[str, object]] = {
    "SessionStart": {"source": "startup"},
    "UserPromptSubmit": {"prompt": "x"},
    "PreToolUse": {"tool_name": "Bash", "tool_input": {"command": "rm -rf src"}},
    "PostToolUse": {"tool_name": "Write", "tool_input": {"file_path": "/x"}},
    "SubagentStop": {"agent_type": "x"},
    "PreCompact": {"trigger": "auto"},
    "Stop": {"last_assistant_message": "All of it is done."},
    "StopFailure": {"error": "rate_limit"},
    "SessionEnd": {"reason": "clear"},
}


def every_event(ground: Ground) -> Iterator[tuple[str, subprocess.CompletedProcess[bytes]]]:
    """The answers to all events; each of them is one that the client accepts, and none is loud."""
    for name, fields in EVENTS.items():
        (ground.project / "a.txt").write_text(f"before {name}\n")
        done = ground.hook(name, **fields)
        judge(name, done.stdout, done.returncode)
        assert done.stderr.count(b"\n") == (1 if done.returncode else 0), done.stderr
        assert b"Traceback" not in done.stderr
        yield name, done


def shown_by(ground: Ground, *command: str) -> str:
    program = str(Path(ground.command()[0]).parent / "keepfast")
    done = subprocess.run(
        [program, *command], env=ground.variables, cwd=ground.project, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "payload", [b"", b"\n", b"not json", b'{"hook_event_name":"Stop"', b"[]", b"null", b"\xff\xfe\x00", b"{" * 100_000]
)
def test_broken_json(started: Ground, payload: bytes) -> None:
    done = started.send(payload)

    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"keepfast: The client's payload cannot be read: ")
    assert done.stderr.count(b"\n") == 1
    assert "skipped: The client's payload cannot be read" in shown_by(started, "status")


def test_broken_json_where_nobody_is_protected(tmp_path: Path) -> None:
    ground = Ground(tmp_path, git=False)

    assert ground.send(b"not json").returncode == 1
    assert not (ground.home / ".local").exists()


def test_a_huge_payload(started: Ground) -> None:
    content = 'x "y" \\ 한글\n' * 400_000
    for name in ("PreToolUse", "PostToolUse"):
        fields = {"tool_response": {"originalFile": content}} if name == "PostToolUse" else {}

        done = started.hook(
            name,
            tool_name="Write",
            tool_input={"file_path": str(started.project / "big"), "content": content},
            **fields,
        )

        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert sessions.touched(str(started.folder), SESSION) == [f"w {started.project}/big"]


@pytest.mark.parametrize("name", ["Unheard", "", "stop", "PreToolUse ", "\ud800", "x" * 10_000])
def test_an_unknown_event(started: Ground, name: str) -> None:
    (started.project / "a.txt").write_text("two\n")

    done = started.send(json.dumps(started.payload(name)).encode())

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert started.triggers() == ["session_start"]


def test_an_unknown_agent_and_unknown_options(started: Ground) -> None:
    for command in (started.command()[:-1], [*started.command()[:-1], "cursor"], [*started.command(), "--what"]):
        done = subprocess.run(command, input=b"{}", capture_output=True, env=started.variables, check=False)

        assert done.returncode == 1
        assert done.stderr.startswith(b"usage: ")


@pytest.mark.parametrize("what", ["missing", "folder", "loop", "socket", "empty", "binary"])
def test_a_transcript_that_is_none(started: Ground, what: str) -> None:
    path = started.transcript
    if what == "folder":
        path.mkdir()
    elif what == "loop":
        path.symlink_to(path)
    elif what == "socket":
        os.mkfifo(path)
    elif what == "empty":
        path.touch()
    elif what == "binary":
        path.write_bytes(bytes(range(256)) * 10_000)

    for name, done in every_event(started):
        assert done.returncode == 0, (name, done.stderr)
    assert "failed" not in " ".join(started.notices())
    assert started.contents(started.checkpoints()[-1])["a.txt"] == b"before SessionEnd\n"


def test_a_home_that_cannot_be_written(ground: Ground) -> None:
    ground.data = Path("/proc/keepfast")

    said = [name for name, done in every_event(ground) if done.returncode]

    assert {"SessionStart", "Stop"} <= set(said)
    assert not {"PreToolUse", "PostToolUse", "UserPromptSubmit"} & set(said)


@pytest.mark.parametrize("what", ["newer", "damaged", "a file", "gone"])
def test_a_store_that_is_not_for_us(started: Ground, what: str) -> None:
    store = Path(started.engine.place.path)
    started.settle()
    if what == "newer":
        (store / "format").write_text((store / "format").read_text().replace("version 1", "version 99"))
    elif what == "damaged":
        (store / "format").write_text("nonsense\n")
    else:
        store.rename(store.with_name("elsewhere"))
        if what == "a file":
            store.write_text("")
    before = (
        sorted(path.name for path in store.rglob("*") if path.suffix in (".db", ".log", ".pack"))
        if store.is_dir()
        else []
    )

    said = {name: done.stderr for name, done in every_event(started) if done.returncode}

    assert {"SessionStart", "Stop", "SessionEnd"} <= set(said)
    assert not {"PreToolUse", "PostToolUse", "UserPromptSubmit"} & set(said)
    after = (
        sorted(path.name for path in store.rglob("*") if path.suffix in (".db", ".log", ".pack"))
        if store.is_dir()
        else []
    )
    assert after == before
    if what == "newer":
        assert b"has format 99" in said["Stop"]
        assert "format 99" in shown_by(started, "status")
        assert "format 99" in shown_by(started, "doctor")


@needs("mount")
@pytest.mark.root
def test_a_full_disk(ground: Ground) -> None:
    with tmpfs(ground.base / "small", "size=6m") as disk:
        ground.data = disk
        ground.hook("SessionStart", source="startup")
        ground.settle()
        filler = os.open(disk / "filler", os.O_WRONLY | os.O_CREAT)
        try:
            while os.write(filler, b"x" * 4096):
                pass
        except OSError:
            os.close(filler)

        codes = {name: done.returncode for name, done in every_event(ground)}

        assert codes["PreToolUse"] == codes["PostToolUse"] == codes["UserPromptSubmit"] == 0
        (disk / "filler").unlink()
        ground.hook("Stop")
        assert ground.contents(ground.checkpoints()[-1])["a.txt"] == b"before SessionEnd\n"


@pytest.mark.parametrize("text", ["{", "[]", '{"hooks": 5}', '{"hooks": {"before_command": "perhaps"}}', "\x00"])
def test_a_broken_settings_file(started: Ground, text: str) -> None:
    place = started.home / ".config" / "keepfast"
    place.mkdir(parents=True)
    (place / "config.json").write_text(text)

    done = dict(every_event(started))

    assert [name for name, one in done.items() if b"config.json" in one.stdout + one.stderr] == ["SessionStart"]
    assert not [name for name, one in done.items() if one.returncode]  # it is told once, and no hook has failed
    assert started.contents(started.checkpoints()[-1])["a.txt"] == b"before SessionEnd\n"
    assert "config.json" in shown_by(started, "status")
    assert "config.json" in shown_by(started, "doctor")


def test_a_clock_in_1970(started: Ground) -> None:
    environment = Environment({b"HOME": os.fsencode(started.home)})
    started.answers(900_000)
    for now in (0, 5, -1, 2**62):
        engine = build(load(environment.config, {}), environment.data, environment.home, partial(int, now))
        for name, fields in EVENTS.items():
            (started.project / "a.txt").write_text(f"{now} {name}")
            event = claude_code.read(json.dumps(started.payload(name, **fields)).encode(), {})

            reply = attending(engine, event).answer()

            judge(name, *claude_code.answer(event, reply))
        engine.close()
    assert "failed" not in " ".join(started.notices())


def test_a_session_whose_name_is_no_name_for_a_file(started: Ground) -> None:
    for session in ("../../../escape", "/etc/passwd", "a/b", "", "x" * 5000, "한글", ".", "..", "a\nb", "\ud800"):
        (started.project / "a.txt").write_text(f"for {session!r}")
        payload = started.payload("PostToolUse", tool_name="Edit", tool_input={"file_path": "/x"})

        assert started.send(json.dumps({**payload, "session_id": session}).encode()).returncode == 0
        for name in ("SessionStart", "Stop"):
            assert started.send(json.dumps(started.payload(name) | {"session_id": session}).encode()).returncode == 0
    started.settle()

    assert started.notices() == []
    below = {path.parent for path in started.folder.rglob("*.touched")}
    assert below == {started.folder / "sessions"}
    assert started.contents(started.checkpoints()[-1])["a.txt"] == b"for '\\ud800'"
