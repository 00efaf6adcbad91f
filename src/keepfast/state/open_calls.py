"""Tool calls that have begun and not ended: a small file each, so that overlapping calls know of one another."""

from __future__ import annotations

import os

from keepfast.fsutil.durable import make_folder
from keepfast.state.sessions import PLAIN

FOLDER = "/calls"
OVERLAPS = b"overlaps"
MAX_AGE_NS = 3_600_000_000_000
"""A call that takes longer has lost its end."""


def begin(folder: str, call: str, now: int) -> bool:
    """Record that a call begins; return whether others are open. It overlaps with them, and they with it."""
    others = [name for name in _names(folder) if name != _name(call)]
    is_alone = True
    for name in others:
        path = f"{folder}{FOLDER}/{name}"
        try:
            if not 0 <= now - os.stat(path).st_mtime_ns < MAX_AGE_NS:
                os.unlink(path)
                continue
            with open(path, "wb") as file:
                file.write(OVERLAPS)
        except FileNotFoundError:
            continue  # it ended just now
        is_alone = False
    make_folder(folder + FOLDER)
    with open(f"{folder}{FOLDER}/{_name(call)}", "wb") as file:
        file.write(b"" if is_alone else OVERLAPS)
    return not is_alone


def end(folder: str, call: str) -> bool:
    """Record that a call ended; return whether another one was open meanwhile, or its beginning is not known."""
    path = f"{folder}{FOLDER}/{_name(call)}"
    try:
        with open(path, "rb") as file:
            overlaps = file.read() == OVERLAPS
        os.unlink(path)
    except FileNotFoundError:
        return True
    return overlaps


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder + FOLDER)
    except FileNotFoundError:
        return []


def _name(call: str) -> str:
    return "".join([letter if letter in PLAIN else "_" for letter in call[:100]]) or "none"
