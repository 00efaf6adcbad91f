"""Changing a settings file: some keys change in one step, and everything else in it stays as it was."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from fcntl import LOCK_EX, flock
from typing import Any, NamedTuple

from keepfast.fsutil.durable import replace
from keepfast.model.errors import Failed, Usage
from keepfast.model.schema import SIZE, TABLE, TIME
from keepfast.settings import MEND, PROJECT_FILE, Settings, parsed, read_bytes

GONE = object()
"""In the place of a value: the key goes, and its default counts again."""


class Written(NamedTuple):
    """The text of the file before and after."""

    path: str
    old: str
    new: str


def change(path: str, values: Mapping[str, Any], *, dry_run: bool = False) -> Written:
    """Put checked values into the user's file. Raises `Usage` if what is there cannot be read, `Failed` if it cannot be written."""
    # A link, as people who keep their dotfiles elsewhere have, stays a link.
    return _change(os.path.realpath(path), values, project=False, dry_run=dry_run)


def change_project(root: bytes, values: Mapping[str, Any], *, dry_run: bool = False) -> Written:
    """Put values into the project's file, below a folder that may have come with a repository."""
    path = os.fsdecode(root + PROJECT_FILE)
    if os.path.islink(os.path.dirname(path)):
        raise Failed(f"{os.path.dirname(path)} is a symbolic link; nothing is written there.")
    return _change(path, values, project=True, dry_run=dry_run)


def proposed(key: str, value: object, origin: str) -> Any:
    """Return the value as it is written to a file: sizes and times stay as typed, because people read it. Raises `Usage`."""
    from keepfast.model.setting_values import checked

    result = checked(key, value, origin)
    return value if TABLE[key].kind in (SIZE, TIME) and isinstance(value, str) and not value.isdigit() else result


def tightens_project(settings: Settings, values: Mapping[str, Any], origin: str) -> list[str]:
    """Return the keys whose values would not tighten what is in force. Raises `Usage` on a wrong one."""
    from keepfast.model.setting_values import checked, tightens

    return [key for key, value in values.items() if not tightens(key, settings[key], checked(key, value, origin))]


def _change(path: str, values: Mapping[str, Any], *, project: bool, dry_run: bool) -> Written:
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


def _changed(path: str, values: Mapping[str, Any], project: bool) -> Written:
    old = read_bytes(os.fsencode(path), path, project=project) or b""
    content = parsed(old, path)
    if not isinstance(content, dict):
        raise Usage(f"{path} must contain a JSON object.", MEND)
    for key, value in values.items():
        section, _, name = key.rpartition(".")
        place = content.setdefault(section, {}) if section else content
        if not isinstance(place, dict):
            raise Usage(f"{path}: {section!r} must hold an object.", MEND)
        if value is GONE:
            place.pop(name, None)
            if section and not place:
                del content[section]
        else:
            place[name] = value
    text = old.decode("utf-8", "replace")
    return Written(path, text, json.dumps(content, indent=_indent(text), ensure_ascii=False) + "\n")


def _indent(text: str) -> int | str:
    """The indent that the file has, two spaces where it has none."""
    for line in text.splitlines()[1:]:
        blank = line[: len(line) - len(line.lstrip())]
        if blank and line.strip():
            return "\t" if blank[0] == "\t" else len(blank)
    return 2
