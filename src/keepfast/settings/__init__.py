"""How defaults, the user's file, the project's file, the environment and flags become one value for each setting."""

from __future__ import annotations

from posix import O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, close, fstat, geteuid, read
from posix import open as open_fd

from keepfast.model.errors import Failed, KeepfastError, Usage
from keepfast.model.light_json import loads
from keepfast.model.schema import ALIASES, SECTIONS, TABLE, VERSION, variable
from keepfast.settings.ownership import UNKNOWN, find
from keepfast.store.small_files import store_path_of
from keepfast.workspace.marker import open_marker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["FLAG", "PROJECT_FILE", "STORE_FLAGS", "TABLE", "Settings", "flatten", "load", "read_project", "similar"]

PROJECT_FILE, PROJECT_NAME = b"/.keepfast/config.json", b"config.json"
"""Below a workspace's root. It may have come with a repository, so it is believed only where it tightens."""
MOST_BYTES = 1 << 20
MEND = "Fix it, or move it elsewhere to use the defaults."
TAKEN = ""
FLAG = "a flag"
"""Where a setting comes from that was given with the command that started a process which stays."""
STORE_FLAGS = ("--store", FLAG)
"""Where `store.url` comes from if somebody typed it: then no marker's word counts against it."""
SIMILAR = 0.6


class Settings:
    """One value per key, where it came from, what else was said about it, and what was odd on the way."""

    __slots__ = ("broken", "considered", "origins", "unknown", "values", "warnings")

    def __init__(self) -> None:
        self.values: dict[str, Any] = {key: setting.default for key, setting in TABLE.items()}
        self.origins: dict[str, str] = {}
        self.warnings: list[str] = []
        self.unknown: list[str] = []
        """Those of the warnings that are about a name which is no setting."""
        self.broken = False
        """Was something in the user's file not understood that ought to be?"""
        self.considered: dict[str, list[tuple[str, Any, str]]] = {}
        """key → (origin, value, why it was not taken, or nothing), in the order in which they were heard."""

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def put(self, key: str, value: object, origin: str, *, tighten: bool = False, typed: bool = False) -> bool:
        """Set a checked value; with `tighten`, only if it is at least as tight as the one in force; `typed` as in `checked`.

        False if it was not taken. Raises `Usage` naming the key.
        """
        from keepfast.model.setting_values import checked, tightens

        result = checked(key, value, origin, typed)
        heard = self.considered.setdefault(key, [])
        if tighten and not tightens(key, self.values[key], result):
            why = (
                "only the user can set it"
                if TABLE[key].tighter is None
                else ("it can only tighten the user's settings")
            )
            heard.append((origin, result, why))
            self.warnings.append(f"{origin}: {key} is ignored, {why}.")
            return False
        heard.append((origin, result, TAKEN))
        if not tighten or result != self.values[key]:
            self.values[key] = result
            self.origins[key] = origin
        return True

    def read_file(self, text: bytes, origin: str, *, tighten: bool = False, lenient: bool = False) -> None:
        """Take over a JSON file with sections. Unknown keys are warned about.

        Raises `Usage` with the offending key or line; `lenient` makes each of these a warning, and its default stands.
        """
        try:
            content = parsed(text, origin)
            found = flatten(content, origin)
        except Usage as error:
            if not lenient:
                raise
            self._odd(error, tighten)
            return
        later = self._later(found, origin)
        for key, value in found.items():
            if key not in TABLE:
                if key not in ("version", "$schema"):
                    self._unknown(f"{origin}: unknown setting {key!r}{_meant(similar(key))}")
                continue
            try:
                self.put(key, value, origin, tighten=tighten, typed=True)
            except Usage as error:
                if not lenient and not later:
                    raise
                self._odd(error, tighten or later)

    def _unknown(self, text: str) -> None:
        self.warnings.append(text)
        self.unknown.append(text)

    def _odd(self, error: Usage, expected: bool) -> None:
        self.warnings.append(f"{error} {error.hint}")
        self.broken = self.broken or not expected

    def read_environment(
        self, variables: Mapping[str, str], *, hook: bool = False, agent: bool = False, lenient: bool = False
    ) -> None:
        """Take over `KEEPFAST_<SECTION>_<KEY>` and the short names; in a hook the short ones alone, to tighten.

        The same for what an `agent` has started: its variables may be a repository's. There it is said what is not taken.
        Raises `Usage` with the offending key, except in a hook, for an agent, and if `lenient`.
        """
        if agent and not hook:
            self._pass_over(variables)
        hook = hook or agent
        # The long name says exactly which setting is meant, so it is heard last.
        names = [name for name in ALIASES if name in variables]
        if not hook:
            names += [name for name in sorted(variables) if name not in ALIASES]
        for name in names:
            key = ALIASES.get(name) or _by_variable().get(name)
            if key is None:
                if name.startswith(_PREFIXES):
                    self._unknown(f"{name} is not a setting{_meant(_nearest(name, [*_by_variable(), *ALIASES]))}")
                continue
            if not TABLE[key].from_environment:
                self.warnings.append(f"{name} is ignored in the environment; set {key} in the settings file.")
                self.considered.setdefault(key, []).append((name, variables[name], "only the user's file can set it"))
                continue
            try:
                self.put(key, variables[name], name, tighten=hook)
            except Usage as error:
                if not hook and not lenient:
                    raise
                self.warnings.append(f"{error} {error.hint}")

    def _pass_over(self, variables: Mapping[str, str]) -> None:
        why = "a repository can set it for an agent's commands"
        for name in sorted(set(variables).intersection(_by_variable()).difference(ALIASES)):
            self.warnings.append(f"{name} is ignored: {why}. Set {_by_variable()[name]} in the settings file.")
            self.considered.setdefault(_by_variable()[name], []).append((name, variables[name], why))

    def _later(self, found: dict[str, object], origin: str) -> bool:
        version = found.get("version", VERSION)
        if isinstance(version, int) and version <= VERSION:
            return False
        self.warnings.append(f"{origin} is of a later version ({version!r}); unknown settings are ignored.")
        return True


def load(
    path: str,
    variables: Mapping[str, str],
    cwd: bytes | None = None,
    *,
    required: bool = False,
    hook: bool = False,
    lenient: bool = False,
    agent: bool = False,
    data: str = "",
    stores: str = "",
    store: str = "",
) -> Settings:
    """Return the settings in force: defaults, the file at `path`, that of the project around `cwd`, the environment.

    Which folder is a project is told by the stores of this user: `stores`, where not `data`, is the user's data folder,
    and `store` the store of a flag.

    Raises `Usage` or `Failed` with a sentence, except in a hook and if `lenient`, where what is wrong is a warning, and the
    last good value stands, which the data folder remembers: with the defaults, a hook would go on in another store.
    The project's file never raises: it is not the user's fault. Of an `agent`'s environment only what tightens is taken.
    """
    settings = Settings()
    text, lenient = None, hook or lenient
    try:
        text = read_bytes(path.encode("utf-8", "surrogateescape"), path)
        if text is not None:
            settings.read_file(text, path, lenient=lenient)
        elif required:
            raise Usage(f"Settings file {path} not found.")
    except KeepfastError as error:
        if not lenient:
            raise
        settings.warnings.append(f"{error} {error.hint}")
        settings.broken = True
    if data and (settings.broken or text is not None):
        settings = _lasting(settings, text, path, data)
    root = project_root(store or settings["store.url"], cwd, data or stores) if cwd is not None else None
    if root is not None:
        read_project(settings, root)
    settings.read_environment(variables, hook=hook, agent=agent, lenient=lenient)
    return settings


def _lasting(settings: Settings, text: bytes | None, path: str, data: str) -> Settings:
    """Good settings are remembered; over the last good ones stands what can be read of a broken file."""
    from keepfast.settings.last_good import place, recall, remember

    copy = place(data, path)
    if not settings.broken:
        remember(copy, text or b"")
        return settings
    last = recall(copy)
    if last is None:
        return settings
    found = Settings()
    found.read_file(last, f"the last valid version of {path}", lenient=True)
    if text is not None:
        found.read_file(text, path, lenient=True)
    found.warnings, found.unknown, found.broken = settings.warnings, settings.unknown, True
    return found


def project_root(url: str, cwd: bytes, data: str) -> bytes | None:
    """Return the root of the workspace around `cwd`, None if there is none. A marker of nobody here makes none."""
    try:
        store = store_path_of(url, data)
    except Usage:
        return None  # whoever opens the store is told
    found = find(cwd, store, data + "/stores")
    return found[0] if found is not None and found[2] != UNKNOWN else None


def read_project(settings: Settings, root: bytes) -> None:
    """Let the project's file below `root` tighten. It is not read through a link."""
    name = (root + PROJECT_FILE).decode("utf-8", "backslashreplace")
    try:
        place = open_marker(root)
    except OSError:
        return
    try:
        text = read_bytes(PROJECT_NAME, name, project=True, folder=place)
    except KeepfastError as error:
        settings.warnings.append(f"{error} {error.hint}")
        return
    finally:
        close(place)
    if text is not None:
        settings.read_file(text, name, tighten=True, lenient=True)


def flatten(content: object, origin: str) -> dict[str, object]:
    """Return `section.key` → value of a settings file's sections."""
    if not isinstance(content, dict):
        raise Usage(f"{origin} must contain a JSON object.", "Start from `keepfast config list --json`.")
    result: dict[str, object] = {}
    for key, value in content.items():
        if key in SECTIONS and not isinstance(value, dict):
            raise Usage(f"{origin}: {key!r} must be an object of settings.", MEND)
        if isinstance(value, dict) and key not in TABLE:
            result.update({f"{key}.{inner}": item for inner, item in value.items()})
        else:
            result[key] = value
    return result


def read_bytes(path: bytes, name: str, *, project: bool = False, folder: int | None = None) -> bytes | None:
    """The bytes of a file that may be missing; a pipe or a link of that name in a repository must not hold us up.

    `folder` is the descriptor of the one that a relative path lies in.
    """
    try:
        fd = open_fd(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | (O_NOFOLLOW if project else 0), dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Failed(f"The settings file {name} cannot be read: {error.strerror}.", "Check its permissions.") from None
    try:
        status = fstat(fd)
        if status.st_mode & 0o170000 != 0o100000:
            kind = "a folder" if status.st_mode & 0o170000 == 0o040000 else "not a regular file"
            raise Failed(
                (f"The settings file {name} cannot be read: it is {kind}."), "Move it elsewhere to use the defaults."
            )
        if project and status.st_uid not in (geteuid(), 0) and geteuid() != 0:
            raise Failed(f"The settings file {name} belongs to another user.", "It is ignored.")
        text = b""
        while len(text) <= MOST_BYTES and (part := read(fd, MOST_BYTES)):
            text += part
    except OSError as error:
        raise Failed(f"The settings file {name} cannot be read: {error.strerror}.") from None
    finally:
        close(fd)
    if len(text) > MOST_BYTES:
        raise Failed(f"The settings file {name} is larger than 1 MB.", "Move it elsewhere to use the defaults.")
    return text


def parsed(text: bytes, origin: str) -> Any:
    text = text.removeprefix(b"\xef\xbb\xbf")
    if not text.strip():
        return {}  # `touch` is a way to say "nothing yet"
    try:
        return loads(text)
    except ValueError as error:
        raise Usage(f"{origin} is not JSON: {_where(text, error)}.", _mend(text)) from None


def _where(text: bytes, error: ValueError) -> str:
    """The error with its line; the light reader counts characters only."""
    import json

    try:
        json.loads(text)
    except json.JSONDecodeError as precise:
        return f"line {precise.lineno}, column {precise.colno}: {precise.msg}"
    except (ValueError, RecursionError):
        pass
    return str(error)


def _mend(text: bytes) -> str:
    if b"//" in text or b"/*" in text or b"#" in text:
        return "JSON has no comments. " + MEND
    return MEND


_PREFIXES = tuple(f"KEEPFAST_{section.upper()}_" for section in SECTIONS)
_VARIABLES: dict[str, str] = {}


def _by_variable() -> dict[str, str]:
    if not _VARIABLES:
        _VARIABLES.update({variable(key): key for key in TABLE})
    return _VARIABLES


def similar(key: str) -> str | None:
    """The setting that was probably meant: the same name in another section, or one spelled alike."""
    tail = key.rpartition(".")[2]
    return next((known for known in TABLE if known.rpartition(".")[2] == tail), None) or _nearest(key, list(TABLE))


def _meant(near: str | None) -> str:
    return f"; did you mean {near}?" if near else "."


def _nearest(word: str, known: list[str]) -> str | None:
    """The most similar name by pairs of letters; a hook may ask, so nothing is imported for it."""
    pairs = _letter_pairs(word)
    scores = [(2 * len(pairs & other) / (len(pairs) + len(other)), name) for name, other in map(_with_pairs, known)]
    score, name = max(scores)
    return name if score >= SIMILAR else None


def _with_pairs(name: str) -> tuple[str, set[str]]:
    return name, _letter_pairs(name)


def _letter_pairs(word: str) -> set[str]:
    padded = f" {word.lower()} "
    return {padded[place : place + 2] for place in range(len(padded) - 1)}
