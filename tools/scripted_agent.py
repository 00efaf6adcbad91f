"""An agent that follows a script: `scripted_agent.py SCRIPT JOURNAL`. For the demonstration, tests and the bench.

The script is `{"turns": [[action, …], …]}`; each start plays the next turn, and the journal (a line per start and end)
remembers which. Its input comes on standard input, and is stored beside the journal.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def main(script: str, journal: str) -> int:
    told = sys.stdin.read()
    turns = json.loads(Path(script).read_text())["turns"]
    place = Path(journal)
    lines = place.read_text().splitlines() if place.exists() else []
    turn = sum(1 for line in lines if line.startswith("end "))
    _note(place, f"begin {turn}")
    with open(f"{journal}.told", "a") as file:
        file.write(json.dumps(told) + "\n")
    if turn >= len(turns):
        print("There is nothing left in the script.")
        return 7
    code = 0
    for action in turns[turn]:
        [(kind, value)] = action.items()
        if kind == "exit":
            code = int(value)
        else:
            ACTIONS[kind](value)
    _note(place, f"end {turn}")
    return code


def _note(place: Path, line: str) -> None:
    fd = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(fd, line.encode() + b"\n")
    os.close(fd)


def _say(text: str) -> None:
    print(text, flush=True)


def _error(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _write(pair: list[str]) -> None:
    path = Path(pair[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(pair[1])


def _show_variable(name: str) -> None:
    print(f"{name} is {os.environ.get(name, 'absent')}", flush=True)


def _wait_for(path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.02)


def _ignore(name: str) -> None:
    """Do not end when this signal comes."""
    signal.signal(signal.Signals[f"SIG{name}"], signal.SIG_IGN)


def _flood(count: int) -> None:
    left = count
    while left > 0:
        left -= os.write(1, b"x" * min(left, 1 << 16))
    os.write(1, b"\n")


def _fill(path: str) -> None:
    """Fill the disk to the last byte, and report the error as programs do."""
    with open(path, "wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError as error:
                complaint = f"{path}: {error.strerror}"
    print(complaint, file=sys.stderr, flush=True)


def _limited(seconds: float) -> None:
    """Fail as a client does that knows when its limit ends."""
    print(f"Rate limit hit, retry after {seconds} seconds", file=sys.stderr, flush=True)
    sys.stdout.flush()


def _work(seconds: float) -> None:
    """Use the processor for so long."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        sum(range(1000))


def _compute(rounds: int) -> None:
    """Do an amount of work that is the same whatever else the processor does meanwhile."""
    for _ in range(rounds):
        sum(range(1000))


ACTIONS: dict[str, Callable[[Any], None]] = {
    "say": _say,
    "error": _error,
    "write": _write,
    "sleep": time.sleep,
    "work": _work,
    "compute": _compute,
    "show_variable": _show_variable,
    "wait_for": _wait_for,
    "ignore": _ignore,
    "flood": _flood,
    "limited": _limited,
    "fill": _fill,
}

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
