"""The folders of a task in its workspace, and atomic writes of files in them."""

from __future__ import annotations

import os
from contextlib import suppress
from threading import get_native_id

from keepfast.model.frozen import SUPERVISED_IGNORE

METADATA, CHECKPOINTS, LOGS = ".metadata", ".checkpoints", ".logs"


def prepare(workspace: str) -> None:
    """Create our folders before the first checkpoint, so that they are not a change of the workspace."""
    for name in (METADATA, CHECKPOINTS, LOGS):
        own_folder(workspace, name)


def own_folder(workspace: str, name: str) -> str | None:
    """Create a self-ignoring folder in a workspace if need be and return its path; None if that fails, or it is a link."""
    path = f"{workspace}/{name}"
    try:
        if not os.path.isdir(workspace):
            return None
        os.makedirs(path, mode=0o700, exist_ok=True)
        if os.path.islink(path):
            return None  # a link that came with a repository must not redirect our writes
        if not os.path.exists(path + "/.gitignore"):
            replace(path + "/.gitignore", SUPERVISED_IGNORE)
    except OSError:
        return None
    return path


def replace(path: str, text: bytes) -> None:
    """Replace a file atomically: write a new one beside it, sync and rename it."""
    fresh = f"{path}.{os.getpid()}-{get_native_id()}.new"
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        view = memoryview(text)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    except OSError:
        os.unlink(fresh)
        raise
    finally:
        os.close(fd)
    os.rename(fresh, path)


def point(folder: str, link: str, name: str) -> None:
    """Make a relative link to a file beside it, atomically."""
    fresh = f"{folder}/.{link}.{os.getpid()}-{get_native_id()}"
    with suppress(FileNotFoundError):
        os.unlink(fresh)
    os.symlink(name, fresh)
    os.rename(fresh, f"{folder}/{link}")


def sync(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
