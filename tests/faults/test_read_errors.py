"""A read error of the disk in the ledger is never called damage, whether it lasts or not."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.equipment.box import Box

from .tracing import Call, after_start, inject, needs_strace, trace

READS = ("pread64", "read")


class Reading:
    """A command in a protected project, traced once and then repeated with a fault at one of its calls."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.box = Box(folder)
        assert self.box.call("init").code == 0
        for number in range(3):
            self.box.put(f"file-{number}", "x" * number)
            self.box.save()
        self.words = words

    def command(self) -> list[str]:
        variables = [f"{name}={value}" for name, value in self.box.variables.items()]
        return ["env", "-i", "-C", str(self.box.project), *variables, sys.executable, "-m", "keepfast", *self.words]

    def calls(self, names: tuple[str, ...], where: str) -> list[Call]:
        found, done = trace(self.command(), self.box.base / "trace")
        assert done.returncode == 0, done.stderr
        here = after_start(found, self.box.base)
        return [call for call in here if call.name in names and any(where in path for path in call.paths())]


@needs_strace
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("words", [("list",), ("show", "v1"), ("save",)], ids=" ".join)
def test_a_single_read_error_of_the_ledger_is_not_called_damage(words: tuple[str, ...], tmp_path: Path) -> None:
    reading = Reading(tmp_path, *words)
    points = reading.calls(READS, "/store/ledger.db")

    codes = Counter(inject(reading.command(), call, f"error=EIO:when={call.number}").returncode for call in points)

    assert points
    assert set(codes) <= {0, 1}
    assert reading.box.call("verify").code == 0


@needs_strace
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ["pwrite64", "write", "fsync", "fdatasync"])
def test_an_error_while_compacting_loses_nothing_and_says_what_failed(name: str, tmp_path: Path) -> None:
    reading = Reading(tmp_path, "compact", "--everything")
    box = reading.box
    assert box.call("forget", "v1", "-y").code == 0
    before = tmp_path / "before"
    shutil.copytree(box.store, before)
    points = reading.calls((name,), "/store/")

    for call in points:
        shutil.rmtree(box.store)
        shutil.copytree(before, box.store)
        done = inject(reading.command(), call, f"error=EIO:when={call.number}")

        assert done.returncode in (0, 1), (call, done)
        assert "damaged" not in done.stderr and "Traceback" not in done.stderr
        assert box.call("verify").code == 0
        assert box.call("cat", "v3", "file-2").raw == b"xx"


@needs_strace
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ["pread64", "pwrite64", "write", "fsync", "fdatasync", "rename", "unlink"])
@pytest.mark.parametrize("words", [("forget", "v1", "-y"), ("purge", "-y")], ids=lambda words: str(words[0]))
def test_an_error_while_forgetting_is_told_and_the_next_run_ends_the_work(
    words: tuple[str, ...], name: str, tmp_path: Path
) -> None:
    reading = Reading(tmp_path, *words)
    box = reading.box
    before = tmp_path / "before"
    shutil.copytree(box.base, before, symlinks=True, ignore=shutil.ignore_patterns("before", "trace"))
    points = reading.calls((name,), "/store/")
    if not points:
        pytest.skip(f"{words[0]} calls {name} nowhere in the store")

    for call in points:
        for folder in before.iterdir():
            shutil.rmtree(box.base / folder.name)
            shutil.copytree(folder, box.base / folder.name, symlinks=True)
        done = inject(reading.command(), call, f"error=EIO:when={call.number}")
        again = box.call(*words)

        assert done.returncode in (0, 1, 15), (call, done)
        assert "Traceback" not in done.stderr and "should not happen" not in done.stderr, (call, done)
        if words[0] == "purge":
            assert again.code in (0, 3, 4), (call, done, again)
        else:
            assert again.code == 0 or "v1" in again.err, (call, done, again)
            assert box.call("cat", "v3", "file-2").raw == b"xx"
        assert box.call("verify").code in (0, 3), (call, done, again)
