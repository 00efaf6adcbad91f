"""A tree with every kind of entry, and what is on disk, read without any of our code."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from random import Random

Seen = tuple[str, int, bytes, int, tuple[bytes, ...]]
LARGE = 6 << 20


def wild(root: Path) -> None:
    """Names that are not UTF-8, modes, links of both kinds, a large file, a sparse one, empty folders, old times."""
    base = os.fsencode(root)
    os.makedirs(base + b"/deep/er/empty")
    os.makedirs(base + b"/closed")
    for path, content in {
        b"plain.txt": b"hello\n",
        b"deep/er/file": b"x" * 5000,
        b"\xff\xfe \n\\name": b"odd name",
        "한글.txt".encode(): "한글\n".encode(),
        b"empty": b"",
        b"run.sh": b"#!/bin/sh\n",
        b"closed/inside": b"in a folder of mode 700",
        b"large.bin": Random(7).randbytes(LARGE),
        b"deep/linked": b"one file, two names",
    }.items():
        put(base + b"/" + path, content)
    os.chmod(base + b"/run.sh", 0o755)
    os.chmod(base + b"/plain.txt", 0o600)
    os.chmod(base + b"/closed", 0o700)
    os.chmod(base + b"/deep/er/empty", 0o2755)
    os.link(base + b"/deep/linked", base + b"/linked too")
    os.symlink(b"plain.txt", base + b"/link")
    os.symlink(b"/nowhere/\xff", base + b"/deep/dangling")
    with open(base + b"/sparse", "wb") as file:
        file.truncate(1 << 20)
        file.seek(300_000)
        file.write(b"in the middle")
    os.utime(base + b"/plain.txt", ns=(10**18 + 123, 10**18 + 123))
    os.utime(base + b"/link", ns=(10**18 + 5, 10**18 + 5), follow_symlinks=False)


def put(path: bytes, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


def look(root: Path) -> dict[bytes, Seen]:
    """Kind, mode, content, time (files and links) and the other names of everything but `.git` and `.keepfast`."""
    base = os.fsencode(root)
    found: dict[bytes, Seen] = {}
    names: dict[int, list[bytes]] = {}
    for folder, folders, files in os.walk(base):
        folders[:] = [name for name in folders if name not in (b".git", b".keepfast")]
        for name in [*folders, *files]:
            path = os.path.join(folder, name)
            names.setdefault(os.lstat(path).st_ino, []).append(path[len(base) + 1 :])
    for same in names.values():
        for path in same:
            full = base + b"/" + path
            seen = os.lstat(full)
            mode, time = stat.S_IMODE(seen.st_mode), seen.st_mtime_ns
            others = tuple(sorted(set(same) - {path}))
            if stat.S_ISDIR(seen.st_mode):
                found[path] = "d", mode, b"", 0, others
            elif stat.S_ISLNK(seen.st_mode):
                found[path] = "l", 0o777, os.readlink(full), time, others
            else:
                with open(full, "rb") as file:
                    found[path] = "f", mode, file.read(), time, others
    return found


def contents(root: Path) -> dict[bytes, tuple[str, int, bytes]]:
    """The same without times and other names."""
    return {path: seen[:3] for path, seen in look(root).items()}
