"""Figures of a session that the client reports only to its status line, stored for hooks: one small file per session."""

from __future__ import annotations

from os import O_CLOEXEC, O_CREAT, O_RDONLY, O_TRUNC, O_WRONLY, close, getpid, mkdir, read, rename, unlink, write
from os import open as open_fd
from typing import Any

from keepfast.model.strict_json import dumps, loads

MAX_FILE_BYTES = 65536
PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
INPUT = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def figures(payload: dict[str, Any], at: int) -> dict[str, Any]:
    """Return the figures to store from a status line's payload; missing ones are None."""
    window = _object(payload.get("context_window"))
    usage = _object(window.get("current_usage"))
    counts = [_number(usage.get(name)) for name in INPUT]
    limits = {
        name: {"percent": _number(limit.get("used_percentage")), "resets_at": _number(limit.get("resets_at"))}
        for name, limit in _object(payload.get("rate_limits")).items()
        if isinstance(limit, dict)
    }
    return {
        "at": at,
        "model": str(_object(payload.get("model")).get("id") or ""),
        "window": _number(window.get("context_window_size")),
        "used": sum(count or 0 for count in counts) if usage else None,
        "percent": _number(window.get("used_percentage")),
        "limits": limits,
    }


def store_figures(folder: str, session: str, values: dict[str, Any]) -> bool:
    """Write the figures for that session below a workspace's folder in the store; False if that cannot be done."""
    path = path_of(folder, session)
    if not path:
        return False
    temporary = f"{path}.{getpid()}"
    try:
        try:
            fd = open_fd(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        except FileNotFoundError:
            mkdir(folder + "/sessions", 0o700)
            fd = open_fd(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        try:
            write(fd, dumps(values).encode("ascii"))
        finally:
            close(fd)
        rename(temporary, path)
    except OSError:
        try:
            unlink(temporary)
        except OSError:
            pass  # it was never created
        return False
    return True


def stored_figures(folder: str, session: str) -> dict[str, Any] | None:
    """Return the figures of that session as last stored, or None."""
    path = path_of(folder, session)
    if not path:
        return None
    try:
        fd = open_fd(path, O_RDONLY | O_CLOEXEC)
    except OSError:
        return None
    try:
        values = loads(read(fd, MAX_FILE_BYTES))
    except (OSError, ValueError):
        return None
    finally:
        close(fd)
    return values if isinstance(values, dict) else None


def path_of(folder: str, session: str) -> str:
    """Return the path of the figures; empty if the session's name cannot be a file name."""
    return f"{folder}/sessions/{session}.usage" if 0 < len(session) <= 128 and PLAIN.issuperset(session) else ""


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> int | float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) and value == value else None
