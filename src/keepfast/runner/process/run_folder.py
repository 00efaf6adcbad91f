"""Atomic writes of files in a run's folder: written beside their place, synced, and renamed."""

from __future__ import annotations

import json
import os
from typing import Any


def write_file(path: str, value: dict[str, Any], durable: bool = True) -> None:
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(fd, json.dumps(value).encode() + b"\n")
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(path + ".new", path)


def sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
