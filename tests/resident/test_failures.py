"""What a hook does when the resident does not answer: it runs by itself, within its deadline, and nothing is lost."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest

from keepfast.resident import address
from keepfast.resident.protocol import MAGIC

from .home import Home, wait

SLOW_SECONDS = 20
SYSTEM_PYTHON = next(filter(os.path.exists, ("/usr/bin/python3", "/usr/local/bin/python3")), "")


def saves_a_turn(home: Home, text: str) -> None:
    """A change and the end of a turn: afterwards a checkpoint has the change."""
    before = len(home.checkpoints())
    (home.project / "a.txt").write_text(text)

    started = time.monotonic()
    home.hook("Stop", last_assistant_message=f"wrote {text}")

    assert time.monotonic() - started < SLOW_SECONDS
    rows = home.checkpoints()
    assert len(rows) == before + 1 and rows[-1].trigger == "turn"
    assert home.run("diff", "--name-only").stdout == ""


def test_killed(begun: Home) -> None:
    os.kill(begun.state().process, signal.SIGKILL)

    saves_a_turn(begun, "two\n")


def test_stopped_by_a_signal(begun: Home) -> None:
    os.kill(begun.state().process, signal.SIGSTOP)

    saves_a_turn(begun, "two\n")


def test_a_stopped_one_that_goes_on_answers_again_and_saves_nothing_twice(begun: Home) -> None:
    process = begun.state().process
    os.kill(process, signal.SIGSTOP)
    saves_a_turn(begun, "two\n")
    count = len(begun.checkpoints())

    os.kill(process, signal.SIGCONT)
    wait(lambda: begun.state().facts is not None)
    time.sleep(0.5)

    assert len(begun.checkpoints()) == count
    saves_a_turn(begun, "three\n")


@pytest.mark.parametrize("what", ["file", "folder", "gone", "dangling link", "pipe", "deaf"])
def test_something_else_in_the_place_of_its_socket(begun: Home, what: str) -> None:
    found = address.read(str(begun.data))
    assert found is not None
    os.kill(found.process, signal.SIGSTOP)
    path = Path(found.socket)
    path.unlink()
    deaf = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if what == "file":
        path.write_text("nobody\n")
    elif what == "folder":
        path.mkdir()
    elif what == "dangling link":
        path.symlink_to("nowhere")
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "deaf":
        deaf.bind(str(path))
        deaf.listen(8)

    saves_a_turn(begun, "two\n")
    deaf.close()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"KFR1\n",
        b"KFR1\nx\n/tmp/none\n",
        b"KFR9\n1\n/tmp/none\n",
        b"KFR1\n1\n/tmp/none\n",
        b"\xff" * 900,
        b"KFR1\n1\n" + b"/x" * 400 + b"\n",
    ],
)  # fmt: skip
def test_a_lock_file_with_another_content(begun: Home, text: bytes) -> None:
    begun.run("daemon", "stop")
    (begun.data / "resident/lock").write_bytes(text)

    saves_a_turn(begun, "two\n")


def test_a_folder_in_the_place_of_the_lock_file_is_replaced_at_the_next_start(begun: Home) -> None:
    begun.run("daemon", "stop")
    (begun.data / "resident/lock").unlink()
    (begun.data / "resident/lock").mkdir()

    saves_a_turn(begun, "two\n")
    begun.start()
    saves_a_turn(begun, "three\n")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"K",
        b"GET / HTTP/1.1\r\n\r\n",
        MAGIC + struct.pack("<IQ", 1 << 31, 5),
        MAGIC + struct.pack("<IQ", 10, 1 << 40),
        MAGIC + struct.pack("<IQ", 8, 0) + struct.pack("<II", 4_000_000_000, 7),
        MAGIC + struct.pack("<IQ", 8, 0) + struct.pack("<II", 1, 4_000_000_000),
        MAGIC + struct.pack("<IQ", 100, 0) + b"half",
        os.urandom(5000),
    ],
)
def test_garbage_costs_it_nothing(begun: Home, data: bytes) -> None:
    found = address.read(str(begun.data))
    assert found is not None
    process = begun.state().process
    for _ in range(20):
        stranger = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stranger.connect(found.socket)
        stranger.sendall(data)
        stranger.close()

    saves_a_turn(begun, "two\n")
    assert begun.state().process == process and begun.answered() >= 1


def test_half_a_request_is_dropped_after_a_moment_and_holds_nobody_up(begun: Home) -> None:
    found = address.read(str(begun.data))
    assert found is not None
    half = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(50)]
    for connection in half:
        connection.connect(found.socket)
        connection.sendall(MAGIC)

    saves_a_turn(begun, "two\n")

    half[0].settimeout(10)
    assert half[0].recv(1) == b"", "it closes the connection"
    for connection in half:
        connection.close()


def test_a_payload_of_many_megabytes(begun: Home) -> None:
    (begun.project / "a.txt").write_text("two\n")
    payload = begun.payload("Stop", last_assistant_message="done", filler="x" * (40 << 20))

    done = begun.send("Stop", payload)

    assert done.returncode == 0 and begun.run("diff", "--name-only").stdout == ""


def test_a_hundred_hooks_at_once(begun: Home) -> None:
    """All are answered or run by themselves; the turn of each session is saved."""
    (begun.project / "a.txt").write_text("two\n")
    codes: list[int] = []

    def end_turn(number: int) -> None:
        payload = begun.payload("Stop", last_assistant_message=f"done {number}", session_id=f"session-{number}")
        codes.append(begun.send("Stop", payload).returncode)

    threads = [threading.Thread(target=end_turn, args=(number,)) for number in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert codes == [0] * 100
    sessions = {row.session for row in begun.checkpoints() if row.trigger == "turn"}
    assert sessions == {f"session-{number}" for number in range(100)}


def test_the_store_is_deleted_under_it(begun: Home) -> None:
    import shutil

    begun.tool("Write", lambda: (begun.project / "b.txt").write_text("b\n"), file_path="b.txt")
    begun.settle()
    shutil.move(begun.data / "store", begun.data / "away")

    (begun.project / "a.txt").write_text("two\n")
    done = begun.send("Stop", begun.payload("Stop", last_assistant_message="done"))

    assert done.returncode == 1 and done.stderr
    assert not (begun.data / "store").exists(), "nothing is made in its place"
    shutil.move(begun.data / "away", begun.data / "store")
    saves_a_turn(begun, "three\n")


def test_the_workspace_is_moved_deleted_and_made_again(begun: Home) -> None:
    import shutil

    begun.tool("Write", lambda: (begun.project / "b.txt").write_text("b\n"), file_path="b.txt")
    shutil.rmtree(begun.project)
    begun.project.mkdir()
    (begun.project / "c.txt").write_text("c\n")

    begun.hook("SessionStart", source="startup")
    begun.tool("Write", lambda: (begun.project / "d.txt").write_text("d\n"), file_path="d.txt")
    begun.settle()

    assert begun.run("diff", "--name-only").stdout == ""
    assert begun.run("cat", "latest", "d.txt").stdout == "d\n"


def test_a_client_that_ends_before_the_answer(begun: Home) -> None:
    command = begun.command("Stop")
    payload = begun.payload("Stop", last_assistant_message="done")
    for _ in range(10):
        child = subprocess.Popen(
            ["/bin/sh", "-c", command], stdin=subprocess.PIPE, cwd=begun.project, env=begun.variables
        )
        assert child.stdin is not None
        child.stdin.write(payload)
        child.stdin.close()
        child.kill()
        child.wait()

    saves_a_turn(begun, "two\n")


def test_no_client_program_means_that_hooks_run_by_themselves(home: Home, tmp_path: Path) -> None:
    """Without a compiler there is none."""
    launcher = home.data / "bin/launch"
    text = launcher.read_text().replace("/resident/keepfast-hook", "/resident/none")
    launcher.write_text(text)

    home.begin()
    saves_a_turn(home, "two\n")

    assert not home.state().runs


@pytest.mark.skipif(os.geteuid() != 0 or not SYSTEM_PYTHON, reason="needs another user, and a Python that it may run")
def test_a_socket_of_another_user_is_not_used(begun: Home) -> None:
    found = address.read(str(begun.data))
    assert found is not None
    os.kill(found.process, signal.SIGSTOP)
    Path(found.socket).unlink()
    strange_path = "/tmp/keepfast-other-user.sock"
    script = (
        "import os, socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); os.chmod(sys.argv[1], 0o777)\n"
        "s.listen(); print('up', flush=True)\n"
        "while True:\n c, _ = s.accept(); got = c.recv(1 << 20); print(len(got), flush=True)\n"
        " c.sendall(b'W' + b'A' + (0).to_bytes(4, 'little') * 3); c.close()\n"
    )
    user = ["setpriv", "--reuid=65534", "--clear-groups"]
    other = subprocess.Popen([*user, SYSTEM_PYTHON, "-I", "-c", script, strange_path], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None and other.stdout.readline() == b"up\n"
        (begun.data / "resident/lock").write_bytes(MAGIC + b"\n1\n/tmp/keepfast-other-user.sock\n")

        saves_a_turn(begun, "two\n")
    finally:
        other.kill()
        Path("/tmp/keepfast-other-user.sock").unlink()
    assert set(other.stdout.read().split()) <= {b"0"}, "it got no byte of the payload"
