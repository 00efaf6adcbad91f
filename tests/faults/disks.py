"""Small disks that can be filled and crashed, and taken away again whatever happens."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def missing(*programs: str) -> str:
    """Why the test cannot run here, or nothing."""
    if os.geteuid() != 0:
        return "needs root, for mounts and loop devices"
    absent = [name for name in programs if shutil.which(name) is None]
    if absent:
        return f"{', '.join(absent)} is missing (Debian: e2fsprogs, fuse3, mount, btrfs-progs, xfsprogs)"
    if "mount" in programs and not _may_mount():
        return "this container may not mount"
    return ""


def needs(*programs: str) -> pytest.MarkDecorator:
    reason = missing(*programs)
    return pytest.mark.skipif(bool(reason), reason=reason)


@contextmanager
def tmpfs(folder: Path, options: str) -> Iterator[Path]:
    """A file system in memory, such as `size=4m` or `size=64m,nr_inodes=60`."""
    folder.mkdir(parents=True, exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder))
    try:
        yield folder
    finally:
        unmount(folder)


@contextmanager
def formatted(folder: Path, kind: str, megabytes: int) -> Iterator[Path]:
    """A new file system in a file beside `folder`, mounted there."""
    folder.mkdir(parents=True, exist_ok=True)
    image = folder.parent / f"{folder.name}.img"
    with open(image, "wb") as file:
        file.truncate(megabytes << 20)
    make(kind, str(image))
    with loop_device(image) as device, mounted(device, folder, kind):
        yield folder


def make(kind: str, device: str) -> None:
    """Write an empty file system."""
    force = {"ext4": "-qF", "xfs": "-qf", "btrfs": "-qf"}[kind]
    _run(f"mkfs.{kind}", force, device)


@contextmanager
def loop_device(image: Path) -> Iterator[str]:
    """A block device whose blocks are the bytes of a file."""
    device = _run("losetup", "-f", "--show", str(image)).strip()
    try:
        yield device
    finally:
        _insist("losetup", "-d", device)


@contextmanager
def mounted(device: str, folder: Path, kind: str) -> Iterator[Path]:
    # Copies of one xfs have one id; without `nouuid` the second is refused.
    _run("mount", "-t", kind, *(["-o", "nouuid"] if kind == "xfs" else []), device, str(folder))
    try:
        yield folder
    finally:
        unmount(folder)


def unmount(folder: Path) -> None:
    _insist("umount", str(folder))


def _insist(*command: str) -> None:
    """Run it until it works: whoever was just killed may hold the disk for a moment longer."""
    for _ in range(50):
        if subprocess.run(command, capture_output=True).returncode == 0:
            return
        time.sleep(0.1)
    _run(*command)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _may_mount() -> bool:
    # A mount namespace of its own: nothing is left to clean up.
    probe = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return shutil.which("unshare") is not None and subprocess.run(probe, capture_output=True).returncode == 0
