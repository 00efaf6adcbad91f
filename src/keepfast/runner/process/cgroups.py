"""Control groups: freeze and thaw everything that an agent starts at once, if the kernel allows it."""

from __future__ import annotations

import os
from time import sleep

MOUNTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")


def make_group(run: str) -> str | None:
    """Create a control group for the agent; return its path, or None if that is not allowed."""
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
    """Freeze or thaw a group, and wait until the kernel confirms it; return whether it did."""
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
        return True  # the process has ended


def remove_group(group: str) -> None:
    for _ in range(50):
        try:
            os.rmdir(group)
            return
        except FileNotFoundError:
            return
        except OSError:
            sleep(0.01)
