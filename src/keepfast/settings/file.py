"""Change a settings file: some keys change atomically, everything else stays as it was."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from fcntl import LOCK_EX, flock
from typing import Any, NamedTuple

from keepfast.fsutil.durable import replace
from keepfast.model.errors import Failed, Usage
from keepfast.model.schema import SIZE, TABLE, TIME
from keepfast.model.setting_values import checked, tightens
from keepfast.settings import PROJECT_FILE, REPAIR_HINT, Settings, parsed, read_bytes

REMOVED = object()
"""Instead of a value: the key is removed, and its default applies again."""


class FileChange(NamedTuple):
    """A settings file's text before and after a change."""

    path: str
    old: str
    new: str


def change(path: str, values: Mapping[str, Any], *, dry_run: bool = False) -> FileChange:
    """Write checked values into the user's file. Raises `Usage` if it cannot be parsed, `Failed` if it cannot be written."""
    # A symbolic link, as in managed dotfiles, stays a link.
    return _change(os.path.realpath(path), values, project=False, dry_run=dry_run)


def change_project(root: bytes, values: Mapping[str, Any], *, dry_run: bool = False) -> FileChange:
    """Write values into the project's file, in a folder that may come with a repository."""
    path = os.fsdecode(root + PROJECT_FILE)
    if os.path.islink(os.path.dirname(path)):
        raise Failed(f"{os.path.dirname(path)} is a symbolic link; nothing is written there.")
    return _change(path, values, project=True, dry_run=dry_run)


def proposed(key: str, value: object, origin: str) -> Any:
    """Return the value to write to a file: sizes and times stay as typed, because people read them. Raises `Usage`."""
    result = checked(key, value, origin)
    return value if TABLE[key].kind in (SIZE, TIME) and isinstance(value, str) and not value.isdigit() else result


def tightens_project(settings: Settings, values: Mapping[str, Any], origin: str) -> list[str]:
    """Return the keys whose values would not tighten the current settings. Raises `Usage` on an invalid value."""
    return [key for key, value in values.items() if not tightens(key, settings[key], checked(key, value, origin))]


def _change(path: str, values: Mapping[str, Any], *, project: bool, dry_run: bool) -> FileChange:
    folder = os.path.dirname(path)
    try:
        if dry_run:
            return _changed(path, values, project)
        os.makedirs(folder, 0o700, exist_ok=True)
        guard = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            flock(guard, LOCK_EX)
            written = _changed(path, values, project)
            if written.new != written.old:
                mode = _mode(path)
                replace(path, written.new.encode("utf-8", "backslashreplace"))
                if mode is not None:
                    os.chmod(path, mode)
            return written
        finally:
            os.close(guard)
    except OSError as error:
        raise Failed(
            f"The settings file {path} cannot be written: {error.strerror}.", "Check the write permissions."
        ) from None


def _mode(path: str) -> int | None:
    try:
        return os.lstat(path).st_mode & 0o777
    except FileNotFoundError:
        return None


def _changed(path: str, values: Mapping[str, Any], project: bool) -> FileChange:
    old = read_bytes(os.fsencode(path), path, project=project) or b""
    content = parsed(old, path)
    if not isinstance(content, dict):
        raise Usage(f"{path} must contain a JSON object.", REPAIR_HINT)
    for key, value in values.items():
        section, _, name = key.rpartition(".")
        place = content.setdefault(section, {}) if section else content
        if not isinstance(place, dict):
            raise Usage(f"{path}: {section!r} must be an object.", REPAIR_HINT)
        if value is REMOVED:
            place.pop(name, None)
            if section and not place:
                del content[section]
        else:
            place[name] = value
    text = old.decode("utf-8", "replace")
    return FileChange(path, text, json.dumps(content, indent=_indent(text), ensure_ascii=False) + "\n")


def _indent(text: str) -> int | str:
    """Return the file's indentation, two spaces if it has none."""
    for line in text.splitlines()[1:]:
        blank = line[: len(line) - len(line.lstrip())]
        if blank and line.strip():
            return "\t" if blank[0] == "\t" else len(blank)
    return 2
