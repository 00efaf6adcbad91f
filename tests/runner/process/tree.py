"""Twenty processes of all kinds, each touching a file of its own for ever: `tree.py FOLDER`."""

from __future__ import annotations

import os
import signal
import sys
import time


def tick(folder: str, name: str) -> None:
    while True:
        with open(f"{folder}/{name}", "w"):
            pass
        os.utime(f"{folder}/{name}", ns=(time.time_ns(), time.time_ns()))
        time.sleep(0.005)


def child(folder: str, kind: str, number: int) -> None:
    if os.fork():
        return
    if kind == "ignores":
        signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    elif kind == "catches":
        signal.signal(signal.SIGTSTP, lambda number, frame: None)
    elif kind == "group":
        os.setpgid(0, 0)
    elif kind == "session":
        os.setsid()
    elif kind == "daemon":
        os.setsid()
        if os.fork():
            os._exit(0)
    tick(folder, f"{kind}{number}")


if __name__ == "__main__":
    for number in range(19):
        child(sys.argv[1], ("plain", "ignores", "catches", "group", "session", "daemon")[number % 6], number)
    tick(sys.argv[1], "parent")
