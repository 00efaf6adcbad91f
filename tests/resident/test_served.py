"""Who is served, and what: only this user in the same namespaces, with the folders of the installation."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from keepfast.present.background import LAUNCH
from keepfast.resident import address, protocol
from keepfast.resident.protocol import BadRequest, Request

from .home import Home

SYSTEM_PYTHON = next(filter(os.path.exists, ("/usr/bin/python3", "/usr/local/bin/python3")), "")
other_user = pytest.mark.skipif(
    os.geteuid() != 0 or not SYSTEM_PYTHON, reason="needs another user, and a Python that it may run"
)
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces")


def ask(home: Home, cwd: bytes, folder: bytes | None, arguments: list[str], **variables: str) -> protocol.Answer:
    """Send a hook's request as a client of ours would; `folder` is what the descriptor is opened on."""
    found = address.read(str(home.data))
    assert found is not None
    payload = home.payload("PreToolUse", tool_name="Read", tool_use_id="t", tool_input={})
    named = {name.encode(): value.encode() for name, value in variables.items()}
    data = protocol.encode_request(Request("e" * 32, cwd, arguments, named, payload))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(10)
        connection.connect(found.socket)
        if folder is None:
            connection.sendall(data)
        else:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            socket.send_fds(connection, [data], [descriptor])
            os.close(descriptor)
        parts = []
        while part := connection.recv(1 << 16):
            parts.append(part)
    return protocol.decode_answer(b"".join(parts))


def words(home: Home) -> list[str]:
    return [str(home.data / "bin/launch"), LAUNCH, *home.environment.folders, "hook", "claude-code"]


def test_a_request_of_the_client_is_answered(begun: Home) -> None:
    project = os.fsencode(begun.project)
    assert ask(begun, project, project, words(begun)).code == 0


def test_a_path_that_leads_elsewhere_is_declined(begun: Home, tmp_path: Path) -> None:
    """In a container the same path is another folder."""
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(BadRequest, match="another one here"):
        ask(begun, os.fsencode(begun.project), os.fsencode(other), words(begun))
    with pytest.raises(BadRequest, match="no descriptor"):
        ask(begun, os.fsencode(begun.project), None, words(begun))


@pytest.mark.parametrize("place", [1, 2, 3, 4])
def test_other_folders_or_another_installation_are_declined(begun: Home, place: int) -> None:
    project, arguments = os.fsencode(begun.project), words(begun)
    arguments[place] = "/tmp/other"
    with pytest.raises(BadRequest, match="other folders"):
        ask(begun, project, project, arguments)


@pytest.mark.parametrize("variable", ["KEEPFAST_SUPERVISED", "KEEPFAST_RUN"])
def test_what_claims_to_be_a_supervised_run_is_left_to_a_process_that_can_tell(begun: Home, variable: str) -> None:
    project = os.fsencode(begun.project)
    with pytest.raises(BadRequest, match="supervised"):
        ask(begun, project, project, words(begun), **{variable: "claude-code"})


def test_a_repositorys_variables_choose_no_folder_and_turn_nothing_off(begun: Home, tmp_path: Path) -> None:
    evil = tmp_path / "evil"
    (evil / "keepfast").mkdir(parents=True)
    (evil / "keepfast/config.json").write_text(json.dumps({"capture": {"exclude": ["*"]}, "resident": "off"}))
    (begun.project / "a.txt").write_text("two\n")

    done = begun.send(
        "Stop",
        begun.payload("Stop", last_assistant_message="done"),
        HOME=str(evil),
        XDG_CONFIG_HOME=str(evil),
        XDG_DATA_HOME=str(evil),
        KEEPFAST_RESIDENT="off",
        KEEPFAST_CAPTURE_EXCLUDE='["*"]',
        KEEPFAST_CAPTURE_TOOL_CALLS="off",
    )

    assert done.returncode == 0 and begun.checkpoints()[-1].trigger == "turn"
    assert begun.run("diff", "--name-only").stdout == "" and not (evil / "keepfast/store").exists()


@root_only
def test_another_mount_namespace_is_declined_and_saved_all_the_same(begun: Home, tmp_path: Path) -> None:
    """A container-like namespace in which the project's path is another folder: that one is saved, by the hook itself."""
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "b.txt").write_text("inner\n")
    before = len(begun.checkpoints())
    command = begun.command("SessionStart")
    script = f"mount --bind {inner} {begun.project} && cd {begun.project} && {command}"

    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", script],
        input=begun.payload("SessionStart", source="startup", session_id="in-a-container"),
        env={**begun.variables, "CLAUDE_PID": "4243"},
        capture_output=True,
    )

    assert done.returncode == 0, done.stderr
    refused = (begun.state().facts or {})["refused"]
    assert refused >= 1
    assert (begun.project / "a.txt").read_text() == "one\n"
    rows = begun.checkpoints()
    assert len(rows) == before or all(begun.header(row)["counts"].get("f") == 1 for row in rows)


@root_only
def test_another_process_namespace_that_ends(begun: Home) -> None:
    (begun.project / "a.txt").write_text("two\n")
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", "/bin/sh", "-c", begun.command("Stop")],
        input=begun.payload("Stop", last_assistant_message="done"),
        env={**begun.variables, "CLAUDE_PID": "4243"},
        cwd=begun.project,
        capture_output=True,
    )

    assert done.returncode == 0, done.stderr
    assert begun.state().runs, "the resident is not of that namespace"
    # Its worker dies with the namespace: the event stays, and the next command saves it.
    begun.run("list")
    begun.settle()
    assert begun.run("diff", "--name-only").stdout == ""


@other_user
def test_another_user_cannot_connect(begun: Home) -> None:
    found = address.read(str(begun.data))
    assert found is not None
    script = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({found.socket!r})"
    done = subprocess.run(["setpriv", "--reuid=65534", "--clear-groups", SYSTEM_PYTHON, "-c", script])
    assert done.returncode != 0


@other_user
def test_another_user_who_can_reach_the_socket_is_refused(begun: Home) -> None:
    """Even with folders that anybody may enter, the user id decides."""
    found = address.read(str(begun.data))
    assert found is not None
    path = Path(found.socket)
    for folder in (path, *path.parents):
        if os.stat(folder).st_uid == os.geteuid() and str(folder) != "/":
            os.chmod(folder, os.stat(folder).st_mode | 0o077)
    script = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({found.socket!r}); s.settimeout(5); print(s.recv(200))"
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", SYSTEM_PYTHON, "-c", script], capture_output=True, text=True
    )
    assert "another user" in done.stdout
