"""What is known of an agent's sessions in a workspace: when which trigger was taken, what was touched, how full it is."""

from __future__ import annotations

from fcntl import LOCK_EX, flock
from posix import (
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
    stat,
    unlink,
    write,
)
from posix import open as open_fd

from keepfast.model.light_json import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

FOLDER = "/sessions"
MOST, MOST_TOUCHED, MOST_EARLIER = 64 << 10, 256 << 10, 2 << 20
PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
KEPT, AGE = 400, 30 * 86_400_000_000_000
CUT_OFF = "crash"
"""How a session ended that did not tell so, once what it said is kept."""


def path(folder: str, session: str, kind: str) -> str:
    """Where a session's file of a kind lies: `json` (facts), `touched`, `extract`, `earlier`, `inherited`.

    `parts.py` has `brief`, `figures.py` `usage`.
    """
    name = "".join([letter if letter in PLAIN else "_" for letter in session[:80]]) or "none"
    return f"{folder}{FOLDER}/{name}.{kind}"


# Facts: `taken` (trigger → nanoseconds), `session`, `agent`, `transcript`, `model`, `prompt`, `said`, `client` (its process),
# `ended` (why, once it has), `prompted` and `heard` (nanoseconds: when it was last asked something, and asked or answered),
# `tried` (nanoseconds: when what it said before a crash could not be kept).


def facts(folder: str, session: str) -> dict[str, Any]:
    return _read(path(folder, session, "json"))


def taken(folder: str, session: str) -> dict[str, int]:
    """When each trigger was last taken in this session."""
    return _times(facts(folder, session))


def claim(folder: str, session: str, trigger: str, now: int, rest: int) -> bool:
    """Note that the trigger is taken now; False if somebody took it less than `rest` nanoseconds ago."""

    def change(found: dict[str, Any]) -> bool:
        times = _times(found)
        if rest and 0 <= now - times.get(trigger, now - rest) < rest:
            return False
        found["taken"] = {**times, trigger: now}
        return True

    return _change(path(folder, session, "json"), change)


def ease(folder: str, session: str, trigger: str, at: int) -> None:
    """The trigger counts as taken at an earlier time: its checkpoint failed. Raises `OSError`."""

    def change(found: dict[str, Any]) -> bool:
        found["taken"] = {**_times(found), trigger: at}
        return True

    _change(path(folder, session, "json"), change)


def remember(folder: str, name: str, /, **known: str | int) -> None:
    """Keep facts of a session. What was asked and said must be redacted already."""

    def change(found: dict[str, Any]) -> bool:
        found.update({key: value for key, value in known.items() if value})
        return True

    _change(path(folder, name, "json"), change)


def reopen(folder: str, session: str) -> None:
    """The session goes on, although it had ended. Raises `OSError`."""
    if facts(folder, session).get("ended"):
        _change(path(folder, session, "json"), lambda found: bool(found.pop("ended", "")))


def cut_off(folder: str, but: str, client: int, is_new: bool) -> list[dict[str, Any]]:
    """The facts of sessions whose client is gone and which did not tell of an end, the one last heard of last.

    `but` is the session that begins, in the process `client`; `is_new`: the process begins with it, so that an earlier
    session of a process of this number was another one's. Where no process is known nobody can say that it is gone.
    """
    found = [
        one
        for one in every(folder)
        if one.get("client")
        and one.get("transcript")
        and not one.get("ended")
        and one.get("session") not in (None, "", but)
        and ((is_new and str(one["client"]) == str(client)) or not lives(one["client"]))
    ]
    return sorted(found, key=heard)


def heard(known: Mapping[str, Any]) -> int:
    """When the session was last asked something, or answered; 0 for never."""
    return _time(known, "heard")


def tried(known: Mapping[str, Any]) -> int:
    """When keeping what the session said before it crashed last failed; 0 for never."""
    return _time(known, "tried")


def _time(known: Mapping[str, Any], key: str) -> int:
    at = known.get(key)
    return at if isinstance(at, int) else 0


def lives(process: object) -> bool:
    try:
        number = int(str(process))
        if number <= 1:
            return False
        kill(number, 0)
    except PermissionError:
        return True
    except (ValueError, OverflowError, OSError):
        return False
    return True


def every(folder: str) -> list[dict[str, Any]]:
    """The facts of all sessions, the one that was last heard of first."""
    try:
        names = [name for name in listdir(folder + FOLDER) if name.endswith(".json")]
        times = {name: stat(f"{folder}{FOLDER}/{name}").st_mtime_ns for name in names}
    except OSError:
        return []
    return [_read(f"{folder}{FOLDER}/{name}") for name in sorted(times, key=lambda name: -times[name])]


def newest(folder: str) -> dict[str, Any]:
    """The facts of the session that was last heard of."""
    try:
        names = [name for name in listdir(folder + FOLDER) if name.endswith(".json")]
        name = max(names, key=lambda name: stat(f"{folder}{FOLDER}/{name}").st_mtime_ns, default="")
    except OSError:
        return {}
    return _read(f"{folder}{FOLDER}/{name}") if name else {}


# Paths


def touch(folder: str, session: str, paths: Iterable[str]) -> None:
    """Note paths, each with `w` or `r` and a space before it."""
    text = "".join([line + "\n" for line in paths]).encode("utf-8", "surrogateescape")
    name = path(folder, session, "touched")
    fd = _open(name, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC)
    try:
        write(fd, text)  # one write with O_APPEND: lines of several processes do not mix
    finally:
        close(fd)


def touched(folder: str, session: str) -> list[str]:
    """Paths that were noted, the newest first, each once, with `w` if it was ever written."""
    name = path(folder, session, "touched")
    try:
        with open(name, "rb") as file:
            size = stat(name).st_size
            file.seek(max(0, size - MOST_TOUCHED))
            lines = file.read(MOST_TOUCHED).decode("utf-8", "surrogateescape").split("\n")
    except OSError:
        return []
    found: dict[str, str] = {}
    for line in reversed(lines[:-1]):
        mark, _, where = line.partition(" ")
        if where.startswith("/") and mark in ("w", "r") and (where not in found or mark == "w"):
            found[where] = mark
    return [f"{mark} {where}" for where, mark in found.items()]


# What a model read in the session's conversation (`keepfast.app.model_notes`).


def extract(folder: str, session: str) -> dict[str, Any]:
    """`extract` with what was read, `size` of the transcript then, `at`, and `trouble` if the last attempt failed."""
    return _read(path(folder, session, "extract"))


def keep_extract(folder: str, name: str, /, **known: object) -> None:
    def change(found: dict[str, Any]) -> bool:
        found.update(known)
        return True

    _change(path(folder, name, "extract"), change)


# What still tells of the beginning of a long conversation (`keepfast.app.resume`).


def earlier(folder: str, session: str) -> dict[str, Any]:
    """`transcript`, and `earlier` with what was carried on; texts in it have no secrets."""
    return _read(path(folder, session, "earlier"), MOST_EARLIER)


def keep_earlier(folder: str, name: str, /, **known: object) -> None:
    """Raises `OSError`."""

    def change(found: dict[str, Any]) -> bool:
        found.clear()
        found.update(known)
        return True

    _change(path(folder, name, "earlier"), change)


# The work of the checkpoint that a session was resumed from (`resume/inheritance.py`).


def inherited(folder: str, session: str) -> dict[str, Any]:
    """Empty if the session began with nothing; texts in it have no secrets."""
    return _read(path(folder, session, "inherited"), MOST_EARLIER) if session else {}


def keep_inherited(folder: str, name: str, /, **known: object) -> None:
    """Raises `OSError`."""

    def change(found: dict[str, Any]) -> bool:
        found.clear()
        found.update(known)
        return True

    _change(path(folder, name, "inherited"), change)


# /clear: the session that ended, for the one that begins in the same client. A client without a known process is 0.


def cleared(folder: str, client: int) -> dict[str, Any]:
    """What is known of the session that `/clear` last ended in this client: `session`, `at`, and then `status`, `id`, `version`;
    `begun` is the session that began after it, and `asked` the one that asks whether to keep it, until that is answered.

    Without `status` its checkpoint is still being made; `off` says that none is wanted.
    """
    return _read(f"{folder}/cleared/{client}")


def cleared_for(folder: str, client: int, session: str, since: int = 0) -> dict[str, Any]:
    """The same for the session that begins now: nothing if another one began after that clear, or it was before `since`."""
    found = cleared(folder, client)
    if not found or _time(found, "at") < since or found.get("begun", session) != session:
        return {}
    if "begun" in found:
        return found

    def change(now: dict[str, Any]) -> bool:
        if now.get("session") != found.get("session") or now.get("begun", session) != session:
            return False
        now["begun"] = session
        return True

    return cleared(folder, client) if _change(f"{folder}/cleared/{client}", change) else {}


def note_cleared(folder: str, client: int, /, **known: object) -> None:
    """A clear ends a session of this client. A client with two hooks of ours tells it twice. Raises `OSError`."""

    def change(found: dict[str, Any]) -> bool:
        if found.get("session") == known["session"] and "begun" not in found:
            return False
        found.clear()
        found.update(known)
        return True

    _change(f"{folder}/cleared/{client}", change)


def note_saved(folder: str, client: int, session: str, /, **known: object) -> None:
    """What became of the checkpoint of a cleared session; nothing if that client cleared another one since."""

    def change(found: dict[str, Any]) -> bool:
        if found.get("session") != session:
            return False
        found.update(known)
        return True

    _change(f"{folder}/cleared/{client}", change)


def note_asked(folder: str, client: int, session: str) -> None:
    """A new session asks whether to keep the checkpoint of the one that was cleared: a question that is open."""
    _change(f"{folder}/cleared/{client}", lambda found: found.update(asked=session) or True)


def settle(folder: str, client: int) -> None:
    """Close the question, if there is one: its checkpoint is kept. Raises `OSError`."""
    if cleared(folder, client).get("asked"):
        _change(f"{folder}/cleared/{client}", lambda found: bool(found.pop("asked", "")))


def settle_asked(folder: str, session: str) -> None:
    """The same for the question that this session asks, where its client's process is not told. Raises `OSError`."""
    for client, known in questions(folder).items():
        if known["asked"] == session:
            settle(folder, client)


def questions(folder: str) -> dict[int, dict[str, Any]]:
    """What is known of cleared sessions whose checkpoints an open question is about, by client."""
    try:
        clients = [int(name) for name in listdir(folder + "/cleared") if name.isdecimal()]
    except OSError:
        return {}
    found = {client: cleared(folder, client) for client in clients}
    return {client: known for client, known in found.items() if known.get("asked")}


def sweep(folder: str, now: int) -> None:
    """Drop what belongs to sessions of long ago, once there is much of it."""
    for place in (folder + FOLDER, folder + "/cleared"):
        try:
            found = listdir(place)
        except OSError:
            continue
        for name in found if len(found) > KEPT else ():
            try:
                if now - stat(f"{place}/{name}").st_mtime_ns > AGE:
                    unlink(f"{place}/{name}")
            except OSError:
                continue


def _times(found: Mapping[str, Any]) -> dict[str, int]:
    times = found.get("taken")
    return {key: at for key, at in times.items() if type(at) is int} if isinstance(times, dict) else {}


def _read(name: str, most: int = MOST) -> dict[str, Any]:
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
    fd = opened(name)
    try:
        flock(fd, LOCK_EX)
        found = _parsed(pread(fd, MOST, 0))
        if not change(found):
            return False
        text = dumps(found).encode("ascii")
        pwrite(fd, text, 0)
        ftruncate(fd, len(text))
        return True
    finally:
        close(fd)


def opened(name: str) -> int:
    """A session's own file, made if need be, to be read and written by nobody else. Raises `OSError`."""
    return _open(name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC)


def _open(name: str, flags: int) -> int:
    try:
        return open_fd(name, flags, 0o600)
    except FileNotFoundError:
        from keepfast.fsutil.durable import make_folder

        place = name.rpartition("/")[0]
        make_folder(place.rpartition("/")[0])
        make_folder(place)
        return open_fd(name, flags, 0o600)


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        found = loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
