"""Facts about an agent's sessions in a workspace: when triggers were taken, which files were touched, and more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fcntl import LOCK_EX, flock
from os import (
    O_APPEND,
    O_CLOEXEC,
    O_CREAT,
    O_NOFOLLOW,
    O_RDONLY,
    O_RDWR,
    O_WRONLY,
    close,
    ftruncate,
    kill,
    listdir,
    pread,
    pwrite,
    read,
    stat,
    unlink,
    write,
)
from os import open as open_fd
from typing import Any

from keepfast.fsutil.durable import make_folder
from keepfast.model.strict_json import dumps, loads

FOLDER = "/sessions"
MAX_FILE_SIZE, MAX_TOUCHED_SIZE, MAX_EARLIER_SIZE = 64 << 10, 256 << 10, 2 << 20
PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
SWEEP_ABOVE, MAX_AGE = 400, 30 * 86_400_000_000_000
MAX_STAT_SIZE = 4096
START_FIELD = 19
"""Place of the start time among the fields of `/proc/PID/stat` behind the name."""
CUT_OFF = "crash"
"""Value of `ended` for a session whose client died, once its conversation is saved."""


def path(folder: str, session: str, kind: str) -> str:
    """Return the path of a session's file of this kind: `json` (facts), `touched`, `extract`, `earlier`, `inherited`.

    Other modules own the kinds `brief` (`brief_parts.py`) and `usage` (`figures.py`).
    """
    name = "".join([letter if letter in PLAIN else "_" for letter in session[:80]]) or "none"
    return f"{folder}{FOLDER}/{name}.{kind}"


# Facts: `taken` (trigger → nanoseconds), `session`, `agent`, `transcript`, `model`, `prompt`, `said` (its last answer), `client`
# (process id), `client_started` (ticks since boot), `ended` (why, once it has), `prompted` and `heard` (nanoseconds: last
# prompt; last prompt or answer), `tried` (nanoseconds: when saving the conversation of a crashed session last failed).


def facts(folder: str, session: str) -> dict[str, Any]:
    return _read(path(folder, session, "json"))


def trigger_times(folder: str, session: str) -> dict[str, int]:
    """Return when each trigger was last taken in this session."""
    return _times(facts(folder, session))


def claim(folder: str, session: str, trigger: str, now: int, rest: int) -> bool:
    """Record that the trigger is taken now; return False if it was already taken less than `rest` nanoseconds ago."""

    def change(record: dict[str, Any]) -> bool:
        times = _times(record)
        if rest and 0 <= now - times.get(trigger, now - rest) < rest:
            return False
        record["taken"] = {**times, trigger: now}
        return True

    return _change(path(folder, session, "json"), change)


def set_trigger_time(folder: str, session: str, trigger: str, at: int) -> None:
    """Record an earlier time for the trigger, because its checkpoint failed. Raises `OSError`."""

    def change(record: dict[str, Any]) -> bool:
        record["taken"] = {**_times(record), trigger: at}
        return True

    _change(path(folder, session, "json"), change)


def remember(folder: str, name: str, /, **facts: str | int) -> None:
    """Store facts of a session. Prompts and answers must already be redacted."""

    def change(record: dict[str, Any]) -> bool:
        record.update({key: value for key, value in facts.items() if value})
        if facts.get("client"):
            record["client_started"] = _start_of(facts["client"])
        return True

    _change(path(folder, name, "json"), change)


def reopen(folder: str, session: str) -> None:
    """Record that a session that had ended continues. Raises `OSError`."""
    if facts(folder, session).get("ended"):
        _change(path(folder, session, "json"), lambda record: bool(record.pop("ended", "")))


def crashed_sessions(folder: str, but: str, client: int, is_new: bool) -> list[dict[str, Any]]:
    """Return the facts of sessions whose client died without reporting an end, by last activity, oldest first.

    `but` is the session that begins now, in the process `client`. `is_new`: that process is new too, so an earlier session
    with the same process id belonged to another process. A session without a known process is never counted as crashed.
    """
    crashed = [
        record
        for record in all_facts(folder)
        if record.get("client")
        and record.get("transcript")
        and not record.get("ended")
        and record.get("session") not in (None, "", but)
        and ((is_new and str(record["client"]) == str(client)) or not has_live_client(record))
    ]
    return sorted(crashed, key=last_activity)


def last_activity(session_facts: Mapping[str, Any]) -> int:
    """Return the time of the session's last prompt or answer; 0 for never."""
    return _time(session_facts, "heard")


def was_in_turn(session_facts: Mapping[str, Any]) -> bool:
    """Return whether the session's last prompt was not answered: what changed afterwards may be its work."""
    return 0 < last_activity(session_facts) == _time(session_facts, "prompted")


def last_failed_save(session_facts: Mapping[str, Any]) -> int:
    """Return when saving the conversation of this crashed session last failed; 0 for never."""
    return _time(session_facts, "tried")


def _time(session_facts: Mapping[str, Any], key: str) -> int:
    at = session_facts.get(key)
    return at if isinstance(at, int) else 0


def has_live_client(session_facts: Mapping[str, Any]) -> bool:
    """Return whether the session's client still runs.

    After a restart of the machine, another process may have its id; it was started at another time.
    """
    process = session_facts.get("client")
    try:
        number = int(str(process))
        if number <= 1:
            return False
        kill(number, 0)
    except PermissionError:
        pass
    except (ValueError, OverflowError, OSError):
        return False
    started = session_facts.get("client_started")
    return not started or started == _start_of(number)


def _start_of(process: object) -> str:
    """Return when a process was started, in ticks since boot; empty where that cannot be read (macOS has no /proc)."""
    try:
        fd = open_fd(f"/proc/{process}/stat", O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        # The name before the last bracket may contain anything.
        return read(fd, MAX_STAT_SIZE).rpartition(b")")[2].split()[START_FIELD].decode("ascii")
    except (OSError, IndexError, ValueError):
        return ""
    finally:
        close(fd)


def all_facts(folder: str) -> list[dict[str, Any]]:
    """Return the facts of all sessions, most recently changed first."""
    try:
        names = [name for name in listdir(folder + FOLDER) if name.endswith(".json")]
        times = {name: stat(f"{folder}{FOLDER}/{name}").st_mtime_ns for name in names}
    except OSError:
        return []
    return [_read(f"{folder}{FOLDER}/{name}") for name in sorted(times, key=lambda name: -times[name])]


def newest_facts(folder: str) -> dict[str, Any]:
    """Return the facts of the most recently changed session."""
    try:
        names = [name for name in listdir(folder + FOLDER) if name.endswith(".json")]
        name = max(names, key=lambda name: stat(f"{folder}{FOLDER}/{name}").st_mtime_ns, default="")
    except OSError:
        return {}
    return _read(f"{folder}{FOLDER}/{name}") if name else {}


# Paths


def touch(folder: str, session: str, paths: Iterable[str]) -> None:
    """Record touched paths, each preceded by `w` or `r` and a space."""
    text = "".join([line + "\n" for line in paths]).encode("utf-8", "surrogateescape")
    name = path(folder, session, "touched")
    fd = _open(name, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC)
    try:
        write(fd, text)  # one write with O_APPEND: lines of several processes do not mix
    finally:
        close(fd)


def touched(folder: str, session: str) -> list[str]:
    """Return the touched paths, newest first, each once, with `w` if it was ever written."""
    name = path(folder, session, "touched")
    try:
        with open(name, "rb") as file:
            size = stat(name).st_size
            file.seek(max(0, size - MAX_TOUCHED_SIZE))
            lines = file.read(MAX_TOUCHED_SIZE).decode("utf-8", "surrogateescape").split("\n")
    except OSError:
        return []
    marks: dict[str, str] = {}
    for line in reversed(lines[:-1]):
        mark, _, where = line.partition(" ")
        if where.startswith("/") and mark in ("w", "r") and (where not in marks or mark == "w"):
            marks[where] = mark
    return [f"{mark} {where}" for where, mark in marks.items()]


# What a model extracted from the session's conversation (`keepfast.app.model_notes`).


def extract(folder: str, session: str) -> dict[str, Any]:
    """Return `extract`, the transcript's `size` then, `at`, and `trouble` if the last attempt failed."""
    return _read(path(folder, session, "extract"))


def keep_extract(folder: str, name: str, /, **values: object) -> None:
    def change(record: dict[str, Any]) -> bool:
        record.update(values)
        return True

    _change(path(folder, name, "extract"), change)


# Notes carried over from the beginning of a long conversation (`keepfast.app.resume`).


def earlier(folder: str, session: str) -> dict[str, Any]:
    """Return `transcript`, and `earlier` with the notes carried over; their texts are redacted."""
    return _read(path(folder, session, "earlier"), MAX_EARLIER_SIZE)


def keep_earlier(folder: str, name: str, /, **values: object) -> None:
    """Replace what `earlier` returns. Raises `OSError`."""

    def change(record: dict[str, Any]) -> bool:
        record.clear()
        record.update(values)
        return True

    _change(path(folder, name, "earlier"), change)


# The work of the checkpoint that a session was resumed from (`resume/inheritance.py`).


def inherited(folder: str, session: str) -> dict[str, Any]:
    """Return the inherited notes; empty if the session began with nothing. Their texts are redacted."""
    return _read(path(folder, session, "inherited"), MAX_EARLIER_SIZE) if session else {}


def keep_inherited(folder: str, name: str, /, **values: object) -> None:
    """Replace what `inherited` returns. Raises `OSError`."""

    def change(record: dict[str, Any]) -> bool:
        record.clear()
        record.update(values)
        return True

    _change(path(folder, name, "inherited"), change)


# /clear: about the session that it ended, for the next one in the same client. 0 stands for a client of unknown process.


def cleared(folder: str, client: int) -> dict[str, Any]:
    """Return the record of the session that `/clear` last ended in this client.

    It has `session` and `at`; `status` (`off`: no checkpoint is made), `id` and `version` once its checkpoint is done; `begun`,
    the session that followed; and `asked`, the session that asks whether to keep the checkpoint, until that is answered.
    """
    return _read(f"{folder}/cleared/{client}")


def cleared_for(folder: str, client: int, session: str, since: int = 0) -> dict[str, Any]:
    """Claim that record for the session that begins now; empty if another one has, or if it is older than `since`."""
    record = cleared(folder, client)
    if not record or _time(record, "at") < since or record.get("begun", session) != session:
        return {}
    if "begun" in record:
        return record

    def change(current: dict[str, Any]) -> bool:
        if current.get("session") != record.get("session") or current.get("begun", session) != session:
            return False
        current["begun"] = session
        return True

    return cleared(folder, client) if _change(f"{folder}/cleared/{client}", change) else {}


def note_cleared(folder: str, client: int, /, **values: object) -> None:
    """Record that `/clear` ended a session. A client with two of our hooks reports it twice. Raises `OSError`."""

    def change(record: dict[str, Any]) -> bool:
        if record.get("session") == values["session"] and "begun" not in record:
            return False
        record.clear()
        record.update(values)
        return True

    _change(f"{folder}/cleared/{client}", change)


def note_saved(folder: str, client: int, session: str, /, **values: object) -> None:
    """Record the outcome of a cleared session's checkpoint, unless that client has cleared another session since."""

    def change(record: dict[str, Any]) -> bool:
        if record.get("session") != session:
            return False
        record.update(values)
        return True

    _change(f"{folder}/cleared/{client}", change)


def note_asked(folder: str, client: int, session: str) -> None:
    """Record that a new session asks whether to keep the checkpoint of the cleared one."""
    _change(f"{folder}/cleared/{client}", lambda record: record.update(asked=session) or True)


def close_question(folder: str, client: int) -> None:
    """Close the open question of this client, if any: the checkpoint is kept. Raises `OSError`."""
    if cleared(folder, client).get("asked"):
        _change(f"{folder}/cleared/{client}", lambda record: bool(record.pop("asked", "")))


def close_question_of(folder: str, session: str) -> None:
    """Close the question that this session asks, whatever its client. Raises `OSError`."""
    for client, record in open_questions(folder).items():
        if record["asked"] == session:
            close_question(folder, client)


def open_questions(folder: str) -> dict[int, dict[str, Any]]:
    """Return, by client, the records of cleared sessions with an open question."""
    try:
        clients = [int(name) for name in listdir(folder + "/cleared") if name.isdecimal()]
    except OSError:
        return {}
    records = {client: cleared(folder, client) for client in clients}
    return {client: record for client, record in records.items() if record.get("asked")}


def sweep(folder: str, now: int) -> None:
    """Remove files of sessions older than `MAX_AGE`, once there are more than `SWEEP_ABOVE`."""
    for directory in (folder + FOLDER, folder + "/cleared"):
        try:
            names = listdir(directory)
        except OSError:
            continue
        for name in names if len(names) > SWEEP_ABOVE else ():
            try:
                if now - stat(f"{directory}/{name}").st_mtime_ns > MAX_AGE:
                    unlink(f"{directory}/{name}")
            except OSError:
                continue


def _times(session_facts: Mapping[str, Any]) -> dict[str, int]:
    times = session_facts.get("taken")
    return {key: at for key, at in times.items() if type(at) is int} if isinstance(times, dict) else {}


def _read(name: str, most: int = MAX_FILE_SIZE) -> dict[str, Any]:
    try:
        fd = open_fd(name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
    except OSError:
        return {}
    try:
        return _parsed(pread(fd, most, 0))
    except OSError:
        return {}
    finally:
        close(fd)


def _change(name: str, change: Any) -> bool:
    """Change a small file under its own lock. Raises `OSError`."""
    fd = open_private(name)
    try:
        flock(fd, LOCK_EX)
        record = _parsed(pread(fd, MAX_FILE_SIZE, 0))
        if not change(record):
            return False
        text = dumps(record).encode("ascii")
        pwrite(fd, text, 0)
        ftruncate(fd, len(text))
        return True
    finally:
        close(fd)


def open_private(name: str) -> int:
    """Open a session's file for this user alone, creating it if missing. Raises `OSError`."""
    return _open(name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC)


def _open(name: str, flags: int) -> int:
    try:
        return open_fd(name, flags, 0o600)
    except FileNotFoundError:
        place = name.rpartition("/")[0]
        make_folder(place.rpartition("/")[0])
        make_folder(place)
        return open_fd(name, flags, 0o600)


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        value = loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
