"""Control groups: everything that an agent starts, frozen and thawed at once, where the kernel lets us."""

from __future__ import annotations

import os
from time import sleep

MOUNTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")


def make_group(run: str) -> str | None:
    """A control group of our own for the agent, or None where we may not make one."""
    try:
        with open("/proc/self/cgroup") as file:
            own = next((line[3:].strip() for line in file if line.startswith("0::")), None)
    except OSError:
        return None
    if own is None:
        return None
    name = "keepfast-" + "".join(letter if letter.isalnum() else "-" for letter in run)
    for mount in MOUNTS:
        path = f"{mount}{own.rstrip('/')}/{name}"
        if not os.path.exists(f"{mount}{own.rstrip('/')}/cgroup.procs"):
            continue
        try:
            os.mkdir(path)
            if os.path.exists(path + "/cgroup.freeze") and os.access(path + "/cgroup.procs", os.W_OK):
                return path
            os.rmdir(path)
        except OSError:
            continue
    return None


def freeze_group(group: str, frozen: bool) -> bool:
    """Freeze or thaw, and wait until the kernel says so."""
    try:
        with open(group + "/cgroup.freeze", "wb", buffering=0) as file:
            file.write(b"1" if frozen else b"0")
        for _ in range(500):
            with open(group + "/cgroup.events") as events:
                if f"frozen {int(frozen)}" in events.read():
                    return True
            sleep(0.001)
    except OSError:
        pass
    return False


def in_group(pid: int, group: str | None) -> bool:
    if group is None:
        return False
    try:
        with open(f"/proc/{pid}/cgroup") as file:
            return any(line.startswith("0::") and line.strip().endswith(group.rpartition("/")[2]) for line in file)
    except OSError:
        return True  # it is gone


def remove_group(group: str) -> None:
    for _ in range(50):
        try:
            os.rmdir(group)
            return
        except FileNotFoundError:
            return
        except OSError:
            sleep(0.01)
