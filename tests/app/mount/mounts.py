"""A real mount in a process of its own, and taken away again whatever happens."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from keepfast.app.mount import library
from keepfast.model.errors import KeepfastError
from tests.equipment.box import SOURCE, Box

PATIENCE = 60.0


def missing() -> str:
    """Why nothing can be mounted here, or nothing."""
    try:
        library()
    except KeepfastError as error:
        return str(error)
    return ""


needs_fuse = pytest.mark.skipif(bool(missing()), reason=missing() or "-")


class Mounted:
    def __init__(self, process: subprocess.Popen[bytes], path: Path) -> None:
        self.process, self.path = process, path

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)


def _hear_signals() -> None:
    """As a program that a person starts: whoever runs the tests in the background may have had signals ignored."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def mounted(box: Box, *words: str) -> Iterator[Mounted]:
    """`keepfast mount [REF] DIR` with a folder beside the home."""
    folder = box.base / "mnt"
    process = subprocess.Popen(
        [sys.executable, "-m", "keepfast", "mount", *words, str(folder)],
        cwd=box.project,
        env={**box.variables, "PYTHONPATH": str(SOURCE)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=_hear_signals,
    )
    try:
        if not wait_for(lambda: is_mounted(folder) or process.poll() is not None) or process.poll() is not None:
            assert process.stdout is not None
            said = process.stdout.read().decode() if process.poll() is not None else ""
            if "not permitted" in said:
                pytest.skip(f"this container may not mount: {said}")
            raise AssertionError(f"not mounted: {said}")
        yield Mounted(process, folder)
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        unmount(folder)


def wait_for(claim: Any) -> bool:
    """Ask again and again until it holds, for a minute at most."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if claim():
            return True
        time.sleep(0.05)
    return False


def is_mounted(folder: Path) -> bool:
    return any(line.split()[1] == str(folder) for line in Path("/proc/self/mounts").read_text().splitlines())


def unmount(folder: Path) -> None:
    if is_mounted(folder):
        subprocess.run(["fusermount3", "-u", "-z", str(folder)], check=True)


def tree(top: Path | str) -> dict[bytes, tuple[Any, ...]]:
    """Everything below a folder: kind, mode, and of files bytes, size, time and number of links."""
    base, found = os.fsencode(top), {}
    for folder, folders, files in os.walk(base):
        for name in [*folders, *files]:
            path = os.path.join(folder, name)
            seen, facts = os.lstat(path), ()  # type: tuple[os.stat_result, tuple[Any, ...]]
            if stat.S_ISLNK(seen.st_mode):
                facts = (os.readlink(path),)
            elif stat.S_ISREG(seen.st_mode):
                with open(path, "rb") as file:
                    facts = file.read(), seen.st_size, seen.st_mtime_ns, seen.st_nlink
            found[os.path.relpath(path, base)] = (f"{seen.st_mode:o}", *facts)
    return found
