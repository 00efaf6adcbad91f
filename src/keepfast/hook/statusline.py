"""The status line: context used, limits, last checkpoint. It also keeps the client's figures for hooks."""

from __future__ import annotations

from collections.abc import Sequence
from os import O_CLOEXEC, O_RDONLY, close, dup2, execve, fstat, pipe, pread, read, write
from os import open as open_fd
from typing import Any

from keepfast.app.wiring import place as place_of
from keepfast.model.strict_json import loads
from keepfast.present.environment import Environment, Folders, current_folder, hook_environment, now_ns
from keepfast.settings import Settings
from keepfast.settings.ownership import HERE, find
from keepfast.state.figures import figures, store_figures

MAX_PAYLOAD_BYTES = 1 << 20
LOG_TAIL_BYTES = 16384
"""A log's last checkpoint is in its last lines; a line has some 400 bytes."""
PIPE_BYTES = 65536
YELLOW_PERCENT, RED_PERCENT = 80, 90
SECOND = 1_000_000_000
AGES = ((60, 1, "s"), (3600, 60, "m"), (86400, 3600, "h"))
LIMITS = {"five_hour": "5h", "seven_day": "7d"}
USAGE = "usage: keepfast statusline [--then COMMAND]"


def main(arguments: Sequence[str], folders: Folders | None = None) -> int:
    """Read the client's payload from standard input and write one line. A part that cannot be determined is left out."""
    if len(arguments) not in (0, 2) or (arguments and arguments[0] != "--then"):
        write(2, USAGE.encode() + b"\n")
        return 1
    payload = _input()
    environment, now = hook_environment(folders), now_ns()
    try:
        line = render(_loaded(payload), environment, now)
    except Exception as error:
        # An error of ours must not cost the user their own status line.
        line = f"keepfast: {type(error).__name__}"
    if arguments:
        return _then(arguments[1], payload, line, environment)
    write(1, line.encode("utf-8", "replace") + b"\n")
    return 0


def serve(then: str | None) -> int:
    """Run `main` for the command line, which has parsed the options already."""
    return main(["--then", then] if then is not None else [])


def render(payload: dict[str, Any], environment: Environment, now: int) -> str:
    """Return the line for this payload, and keep its figures for the hooks of the session."""
    usage = figures(payload, now)
    colours = not environment.text("NO_COLOR")
    protection = "not protected"
    location = _workspace(payload, environment)
    if location is not None:
        store, workspace = location
        session = payload.get("session_id")
        if isinstance(session, str):
            store_figures(f"{store}/workspaces/{workspace}", session, usage)
        protection = last_checkpoint(f"{store}/log/{workspace}.log", now)
    percent = usage["percent"]
    parts = [protection]
    if percent is not None:
        parts.append(_coloured(f"context {percent:.0f}%", percent, colours))
    for name, limit in usage["limits"].items():
        if limit["percent"] is not None:
            text = f"{LIMITS.get(name, name)} {limit['percent']:.0f}%"
            parts.append(_coloured(text, limit["percent"], colours))
    return " · ".join(parts)


def last_checkpoint(log: str, now: int) -> str:
    """Return version and age of the last checkpoint, from the end of the workspace's log."""
    try:
        fd = open_fd(log, O_RDONLY | O_CLOEXEC)
    except OSError:
        return "no checkpoint yet"
    try:
        size = fstat(fd).st_size
        lines = pread(fd, LOG_TAIL_BYTES, max(0, size - LOG_TAIL_BYTES)).split(b"\n")
    finally:
        close(fd)
    for line in reversed(lines):
        if line.startswith(b'{"r":"checkpoint"'):
            try:
                record = loads(line.rpartition(b" ")[0])
                return f"v{record['v']} {_age(now - record['at'])}"
            except (ValueError, TypeError, KeyError):
                continue  # the trace of a write cut short
    return "no checkpoint yet" if size < LOG_TAIL_BYTES else "protected"


def _workspace(payload: dict[str, Any], environment: Environment) -> tuple[str, str] | None:
    """Return the store and the workspace's id if the session's folder is protected, else None."""
    place = payload.get("workspace")
    folder = (place.get("project_dir") if isinstance(place, dict) else None) or payload.get("cwd")
    if isinstance(folder, str) and folder.startswith("/"):
        cwd = folder.encode("utf-8", "surrogateescape")
    else:
        # The payload names no folder: somebody tries the command in the current one.
        try:
            cwd = current_folder()
        except OSError:
            return None
    settings = Settings()
    try:
        with open(environment.config, "rb") as file:
            settings.read_file(file.read(), environment.config)
    except OSError:
        pass  # no readable settings file: the defaults
    store = place_of(settings, environment.data, cwd)
    location = find(cwd, store.path, store.list)
    return (store.path, location[1]) if location is not None and location[2] == HERE else None


def _then(command: str, payload: bytes, line: str, environment: Environment) -> int:
    """Write our line, then become the user's own command, which reads the same payload and appends its line."""
    write(1, (line + " · ").encode("utf-8", "replace"))
    if len(payload) >= PIPE_BYTES:
        payload = b"{}"  # a pipe holds no more without a reader; the client's payloads have some 2 KB
    reading, writing = pipe()
    write(writing, payload)
    close(writing)
    dup2(reading, 0)
    execve("/bin/sh", ["/bin/sh", "-c", command], dict(environment.variables))
    return 1


def _input() -> bytes:
    pieces, size = [], 0
    while size < MAX_PAYLOAD_BYTES:
        piece = read(0, PIPE_BYTES)
        if not piece:
            break
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def _loaded(payload: bytes) -> dict[str, Any]:
    try:
        value = loads(payload)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _coloured(text: str, percent: float, colours: bool) -> str:
    if not colours or percent < YELLOW_PERCENT:
        return text
    return f"\x1b[{31 if percent >= RED_PERCENT else 33}m{text}\x1b[0m"


def _age(nanoseconds: int) -> str:
    seconds = max(0, nanoseconds // SECOND)
    for below, unit, letter in AGES:
        if seconds < below:
            return f"{seconds // unit}{letter}"
    return f"{seconds // 86400}d"
