"""Merge defaults, the user's file, the project's file, the environment and flags into one value for each setting."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, close, fstat, geteuid, read
from os import open as open_fd
from typing import Any

from keepfast.model.errors import Failed, KeepfastError, Usage
from keepfast.model.schema import ALIASES, SECTIONS, TABLE, VERSION, variable
from keepfast.model.setting_values import checked, tightens
from keepfast.model.strict_json import loads
from keepfast.settings.last_good import place, recall, remember
from keepfast.settings.ownership import UNKNOWN, find
from keepfast.store.small_files import store_path_of
from keepfast.workspace.marker import open_marker

__all__ = ["FLAG", "PROJECT_FILE", "STORE_FLAGS", "TABLE", "Settings", "flatten", "load", "read_project", "similar"]

PROJECT_FILE, PROJECT_NAME = b"/.keepfast/config.json", b"config.json"
"""Below a workspace's root. It may come with a repository, so it can only tighten settings."""
MAX_FILE_SIZE = 1 << 20
REPAIR_HINT = "Fix it, or move it elsewhere to use the defaults."
ACCEPTED = ""
FLAG = "a flag"
"""Origin of a setting given as a flag to the command that started a long-running process."""
STORE_FLAGS = ("--store", FLAG)
"""Origins of a `store.url` that a person typed: it takes precedence over what a marker says."""
SIMILAR = 0.6


class Settings:
    """One value per key, its origin, other values that were considered, and warnings."""

    __slots__ = ("broken", "considered", "origins", "unknown", "values", "warnings")

    def __init__(self) -> None:
        self.values: dict[str, Any] = {key: setting.default for key, setting in TABLE.items()}
        self.origins: dict[str, str] = {}
        self.warnings: list[str] = []
        self.unknown: list[str] = []
        """Those of the warnings that are about unknown settings."""
        self.broken = False
        """Whether the user's file contains something invalid."""
        self.considered: dict[str, list[tuple[str, Any, str]]] = {}
        """key → (origin, value, why it was not accepted, or ""), in the order in which they were read."""

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def put(self, key: str, value: object, origin: str, *, tighten: bool = False, typed: bool = False) -> bool:
        """Set a checked value; with `tighten`, only if it is at least as tight as the current one; `typed` as in `checked`.

        Return False if it was not accepted. Raises `Usage` that names the key.
        """
        result = checked(key, value, origin, typed)
        attempts = self.considered.setdefault(key, [])
        if tighten and not tightens(key, self.values[key], result):
            why = (
                "only the user can set it"
                if TABLE[key].tighter is None
                else ("it can only tighten the user's settings")
            )
            attempts.append((origin, result, why))
            self.warnings.append(f"{origin}: {key} is ignored, {why}.")
            return False
        attempts.append((origin, result, ACCEPTED))
        if not tighten or result != self.values[key]:
            self.values[key] = result
            self.origins[key] = origin
        return True

    def read_file(self, text: bytes, origin: str, *, tighten: bool = False, lenient: bool = False) -> None:
        """Apply a JSON file with sections. Unknown keys give warnings.

        Raises `Usage` with the offending key or line; with `lenient`, each error is a warning and the key keeps its value.
        """
        try:
            content = parsed(text, origin)
            values = flatten(content, origin)
        except Usage as error:
            if not lenient:
                raise
            self._warn_of(error, tighten)
            return
        is_later = self._is_later_version(values, origin)
        for key, value in values.items():
            if key not in TABLE:
                if key not in ("version", "$schema"):
                    self._warn_of_unknown(f"{origin}: unknown setting {key!r}{_suggestion(similar(key))}")
                continue
            try:
                self.put(key, value, origin, tighten=tighten, typed=True)
            except Usage as error:
                if not lenient and not is_later:
                    raise
                self._warn_of(error, tighten or is_later)

    def _warn_of_unknown(self, text: str) -> None:
        self.warnings.append(text)
        self.unknown.append(text)

    def _warn_of(self, error: Usage, expected: bool) -> None:
        self.warnings.append(f"{error} {error.hint}")
        self.broken = self.broken or not expected

    def read_environment(
        self, variables: Mapping[str, str], *, hook: bool = False, agent: bool = False, lenient: bool = False
    ) -> None:
        """Apply `KEEPFAST_<SECTION>_<KEY>` and the short names; in a hook only the short ones, and only to tighten.

        The same for commands that an `agent` runs, because a repository may set their variables; then each ignored one
        gives a warning. Raises `Usage` with the offending key, except in a hook, for an agent, and if `lenient`.
        """
        if agent and not hook:
            self._ignore_long_names(variables)
        hook = hook or agent
        # The long name is unambiguous, so it is applied last and wins.
        names = [name for name in ALIASES if name in variables]
        if not hook:
            names += [name for name in sorted(variables) if name not in ALIASES]
        for name in names:
            key = ALIASES.get(name) or _by_variable().get(name)
            if key is None:
                if name.startswith(_PREFIXES):
                    self._warn_of_unknown(
                        f"{name} is not a setting{_suggestion(_most_similar(name, [*_by_variable(), *ALIASES]))}"
                    )
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

    def _ignore_long_names(self, variables: Mapping[str, str]) -> None:
        why = "a repository can set it for an agent's commands"
        for name in sorted(set(variables).intersection(_by_variable()).difference(ALIASES)):
            self.warnings.append(f"{name} is ignored: {why}. Set {_by_variable()[name]} in the settings file.")
            self.considered.setdefault(_by_variable()[name], []).append((name, variables[name], why))

    def _is_later_version(self, values: dict[str, object], origin: str) -> bool:
        version = values.get("version", VERSION)
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

    The user's stores decide which folder is a project: `stores` is the user's data folder if `data` is not given, and
    `store` the store given by a flag.

    Raises `Usage` or `Failed`, except in a hook and if `lenient`: there an error is a warning, and the last valid values
    apply, which are kept in the data folder. With the defaults, a hook would continue in another store. The project's file
    never raises. Of an `agent`'s environment only values that tighten are accepted.
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
        settings = _with_last_good(settings, text, path, data)
    root = project_root(store or settings["store.url"], cwd, data or stores) if cwd is not None else None
    if root is not None:
        read_project(settings, root)
    settings.read_environment(variables, hook=hook, agent=agent, lenient=lenient)
    return settings


def _with_last_good(settings: Settings, text: bytes | None, path: str, data: str) -> Settings:
    """Remember valid settings. Of a broken file, apply the readable values on top of the last valid ones."""
    copy = place(data, path)
    if not settings.broken:
        remember(copy, text or b"")
        return settings
    last = recall(copy)
    if last is None:
        return settings
    merged = Settings()
    merged.read_file(last, f"the last valid version of {path}", lenient=True)
    if text is not None:
        merged.read_file(text, path, lenient=True)
    merged.warnings, merged.unknown, merged.broken = settings.warnings, settings.unknown, True
    return merged


def project_root(url: str, cwd: bytes, data: str) -> bytes | None:
    """Return the root of the workspace around `cwd`, None if there is none. A marker unknown to this user does not count."""
    try:
        store = store_path_of(url, data)
    except Usage:
        return None  # opening the store reports the error
    nearest = find(cwd, store, data + "/stores")
    return nearest[0] if nearest is not None and nearest[2] != UNKNOWN else None


def read_project(settings: Settings, root: bytes) -> None:
    """Apply the project's file below `root`, only to tighten. Links are not followed."""
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
            raise Usage(f"{origin}: {key!r} must be an object of settings.", REPAIR_HINT)
        if isinstance(value, dict) and key not in TABLE:
            result.update({f"{key}.{inner}": item for inner, item in value.items()})
        else:
            result[key] = value
    return result


def read_bytes(path: bytes, name: str, *, project: bool = False, folder: int | None = None) -> bytes | None:
    """Return the bytes of a file, None if it is missing. A pipe or link of that name in a repository must not block us.

    `folder` is the descriptor of the folder that a relative path starts from.
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
        while len(text) <= MAX_FILE_SIZE and (part := read(fd, MAX_FILE_SIZE)):
            text += part
    except OSError as error:
        raise Failed(f"The settings file {name} cannot be read: {error.strerror}.") from None
    finally:
        close(fd)
    if len(text) > MAX_FILE_SIZE:
        raise Failed(f"The settings file {name} is larger than 1 MB.", "Move it elsewhere to use the defaults.")
    return text


def parsed(text: bytes, origin: str) -> Any:
    text = text.removeprefix(b"\xef\xbb\xbf")
    if not text.strip():
        return {}  # an empty file is valid
    try:
        return loads(text)
    except ValueError as error:
        raise Usage(f"{origin} is not JSON: {_where(text, error)}.", _repair_hint(text)) from None


def _where(text: bytes, error: ValueError) -> str:
    """Return the error with its line; the light reader reports only a character offset."""
    try:
        json.loads(text)
    except json.JSONDecodeError as precise:
        return f"line {precise.lineno}, column {precise.colno}: {precise.msg}"
    except (ValueError, RecursionError):
        pass
    return str(error)


def _repair_hint(text: bytes) -> str:
    if b"//" in text or b"/*" in text or b"#" in text:
        return "JSON has no comments. " + REPAIR_HINT
    return REPAIR_HINT


_PREFIXES = tuple(f"KEEPFAST_{section.upper()}_" for section in SECTIONS)
_VARIABLES: dict[str, str] = {}


def _by_variable() -> dict[str, str]:
    if not _VARIABLES:
        _VARIABLES.update({variable(key): key for key in TABLE})
    return _VARIABLES


def similar(key: str) -> str | None:
    """Return the setting that was probably meant: the same name in another section, or a similar one."""
    tail = key.rpartition(".")[2]
    return next((name for name in TABLE if name.rpartition(".")[2] == tail), None) or _most_similar(key, list(TABLE))


def _suggestion(name: str | None) -> str:
    return f"; did you mean {name}?" if name else "."


def _most_similar(word: str, candidates: list[str]) -> str | None:
    """Return the most similar name by pairs of letters."""
    pairs = _letter_pairs(word)
    scores = [
        (2 * len(pairs & other) / (len(pairs) + len(other)), name) for name, other in map(_with_pairs, candidates)
    ]
    score, name = max(scores)
    return name if score >= SIMILAR else None


def _with_pairs(name: str) -> tuple[str, set[str]]:
    return name, _letter_pairs(name)


def _letter_pairs(word: str) -> set[str]:
    padded = f" {word.lower()} "
    return {padded[place : place + 2] for place in range(len(padded) - 1)}
