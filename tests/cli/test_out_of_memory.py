"""A process that gets no more memory says so, with a way out; nothing else is said of what it could not read."""

from __future__ import annotations

import base64
import json
import os
import random
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from keepfast.cli.exit_codes import _to_keepfast_error
from keepfast.cli.session import Session
from keepfast.model.errors import KeepfastError, OutOfMemory, sentence, shortage
from keepfast.store.compression import Workers
from keepfast.workspace.apply import Apply
from tests.equipment.box import Box

LIMITS = (30, 40, 46)
"""Megabytes of address space: too few for a compaction, and enough to say so."""


class Machine:
    """A home with a store of some megabytes, and commands that get so much memory."""

    def __init__(self, base: Path) -> None:
        self.project, self.variables = base / "project", {"HOME": str(base), "PATH": "/usr/bin:/bin"}
        self.project.mkdir()
        text = base64.b64encode(random.Random(5).randbytes(9 << 20))
        for number in range(6):
            (self.project / f"{number}.txt").write_bytes(text[number << 21 : (number + 1) << 21])
        for words in (["init"], ["save", "-m", "one"]):
            assert self.run(*words).returncode == 0

    def packs(self) -> list[str]:
        return sorted(os.listdir(self.project.parent / ".local/share/keepfast/store/packs"))

    def run(self, *words: str, limit: int = 0) -> subprocess.CompletedProcess[bytes]:
        def limited() -> None:
            if limit:
                resource.setrlimit(resource.RLIMIT_AS, (limit << 20, limit << 20))

        return subprocess.run(
            [sys.executable, "-c", "from keepfast.entry import main; main()", *words],
            cwd=self.project, env=self.variables, capture_output=True, timeout=120, preexec_fn=limited, check=False,
        )  # fmt: skip


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(tmp_path_factory.mktemp("memory"))


@pytest.mark.skipif(sys.platform != "linux", reason="no limit of the address space")
@pytest.mark.parametrize("limit", LIMITS)
def test_a_compaction_without_memory_says_so_and_changes_nothing(machine: Machine, limit: int) -> None:
    packs = machine.packs()

    done = machine.run("compact", "--json", limit=limit)

    assert done.returncode == 1 and b"Traceback" not in done.stderr
    assert json.loads(done.stdout)["error"]["kind"] == "out_of_memory"
    assert machine.packs() == packs


@pytest.mark.skipif(sys.platform != "linux", reason="no limit of the address space")
def test_what_cannot_be_unpacked_for_want_of_memory_is_not_called_damaged(machine: Machine) -> None:
    done = [machine.run("verify", "--json", limit=limit) for limit in LIMITS]

    kinds = {json.loads(one.stdout)["error"]["kind"] for one in done if one.returncode}
    assert kinds == {"out_of_memory"}
    assert {one.returncode for one in done} <= {0, 1}
    assert machine.run("verify").returncode == 0


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        MemoryError("Unable to allocate output buffer."),
        RuntimeError("can't start new thread"),
        OSError(12, os.strerror(12)),
        ImportError("x.so: failed to map segment from shared object"),
        SystemError("<class 'Decompressor'> returned NULL without setting an exception"),
        SystemError("error return without exception set"),
    ],
)
def test_memory_that_ran_out_is_known_whoever_says_so(error: Exception) -> None:
    short = shortage(error)

    assert isinstance(short, OutOfMemory) and short.hint and short.exit_code == 1
    assert sentence(error) == str(short)


@pytest.mark.parametrize("error", [ValueError("x"), OSError(28, os.strerror(28)), KeepfastError("memory of things")])
def test_other_errors_are_not_taken_for_it(error: Exception) -> None:
    assert shortage(error) is None


def test_frames_are_compressed_without_threads_where_there_can_be_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", none)
    workers = Workers(2, lambda: lambda value: value[::-1])

    jobs = [workers.submit(b"one"), workers.submit(b"two")]

    assert [job.result() for job in jobs] == [b"eno", b"owt"]
    workers.close()


@pytest.mark.skipif(sys.platform != "linux", reason="no limit of the address space")
@pytest.mark.parametrize("limit", range(18, 34, 2))
def test_a_command_that_cannot_even_be_loaded_says_so(machine: Machine, limit: int) -> None:
    done = machine.run("status", limit=limit)
    if done.returncode == 0 or b"keepfast" not in done.stderr:
        pytest.skip("all is well, or Python itself does not start")

    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    assert done.stderr.startswith(b"keepfast: ")


def test_memory_that_ran_out_outside_of_the_store_is_said_in_the_same_words() -> None:
    session = cast(Session, SimpleNamespace(store_path=lambda: ""))

    assert isinstance(_to_keepfast_error(OSError(12, os.strerror(12), "/elsewhere"), session), OutOfMemory)
    assert not isinstance(_to_keepfast_error(OSError(5, os.strerror(5), "/elsewhere"), session), OutOfMemory)


def test_a_restore_without_memory_that_has_touched_nothing_leaves_nothing_to_go_on_with(
    saved_box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(self: Apply, plan: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Apply, "run", run)
    done = saved_box.call("restore", "v1", "-y", "--json")
    monkeypatch.undo()

    assert (done.code, done.json()["error"]["kind"]) == (1, "out_of_memory")
    assert saved_box.call("restore", "v1", "-y").code == 0
    assert (saved_box.project / "README").exists()
