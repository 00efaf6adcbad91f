"""Process trees, from `/proc`, and signals to processes that may have ended."""

from __future__ import annotations

import os


def below(root: int) -> dict[int, str]:
    """Return every descendant of `root`, with the letter of its state."""
    if not os.path.exists(f"/proc/{root}/task/{root}/children"):
        return _below_by_parents(root)
    states: dict[int, str] = {}
    todo = _children(root)
    while todo:
        pid = todo.pop()
        if pid in states:
            continue
        fields = _stat(pid)
        if fields:
            states[pid] = fields[0].decode()
            todo += _children(pid)
    return states


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                children += [int(number) for number in file.read().split()]
    except OSError:
        pass  # it has just ended; its children are reparented to us and found in the next round
    return children


def _below_by_parents(root: int) -> dict[int, str]:
    """Return the same where the kernel does not list children: read the parent of every process."""
    children: dict[int, list[int]] = {}
    letters: dict[int, str] = {}
    for name in os.listdir("/proc"):
        fields = _stat(int(name)) if name.isdigit() else []
        if fields:
            letters[int(name)] = fields[0].decode()
            children.setdefault(int(fields[1]), []).append(int(name))
    states: dict[int, str] = {}
    todo = list(children.get(root, []))
    while todo:
        pid = todo.pop()
        states[pid] = letters[pid]
        todo += children.get(pid, [])
    return states


def _stat(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def start_time(pid: int) -> int:
    """Return when the process was started, in ticks since boot; 0 if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def prctl(option: int, value: int) -> None:
    try:
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(option, int(value), 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass  # not Linux: strays are found by their token instead
