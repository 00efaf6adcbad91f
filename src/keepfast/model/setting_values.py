"""Values of settings: convert them to their type, check their range, and tell which of two is tighter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keepfast.model.errors import Usage
from keepfast.model.schema import (
    CHOICE,
    COMMAND,
    FEWER,
    FLAG,
    HIGHER,
    HOURS,
    LIST,
    LOWER,
    LOWER_NOT_ZERO,
    MORE,
    NUMBER,
    NUMBERS,
    PATH,
    PATHS,
    SIZE,
    TABLE,
    TEXT,
    TIME,
    TRISTATE,
    URL,
)
from keepfast.model.strict_json import dumps, loads

UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
TIMES = {"": 1, "s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}
WORDS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
PLAIN = (NUMBER, FLAG, TRISTATE)
SHELL = "'\"\\$`|;&<>"
MAX_TEXT, MAX_ITEMS, MAX_DIGITS = 4096, 1000, 18


def checked(key: str, value: object, origin: str, typed: bool = False) -> Any:
    """Return the value converted to its type. Raises `Usage` that names key, value and what is allowed.

    `typed`: it comes from a format with numbers and booleans (TOML, JSON), so a string is not accepted for them.
    """
    setting = TABLE[key]
    if typed and isinstance(value, str) and setting.kind in PLAIN and value != "prompt":
        raise Usage(f"{key} = {_short(value)} ({origin}) is a string.", f"Give {setting.kind}, without quotes.")
    result = _CONVERT[setting.kind](value)
    if setting.kind == CHOICE:
        if result not in (setting.allowed or ()):
            raise Usage(f"{key} = {_short(value)} ({origin}) is not allowed.", f"Choose one of {choices(key)}.")
    elif result is None:
        raise Usage(f"{key} = {_short(value)} ({origin}) is not {setting.kind}.", f"Give {setting.kind}.")
    elif setting.allowed is not None and not _in_range(result, setting.allowed):
        raise Usage(f"{key} = {_short(value)} ({origin}) is out of range.", f"Give {limits(key)}.")
    return result


def choices(key: str) -> str:
    return ", ".join([repr(choice) for choice in TABLE[key].allowed or ()])


def limits(key: str) -> str:
    """Return the range in words, in the units that people write."""
    setting = TABLE[key]
    low, high = setting.allowed or (None, None)
    parts = [f"at least {shown(key, low)}"] if low is not None else []
    if high is not None:
        parts.append(f"at most {shown(key, high)}")
    return " and ".join(parts)


def shown(key: str, value: Any) -> str:
    """Return the value as a person would write it; it can be parsed back."""
    kind = TABLE[key].kind
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        plain = " " if kind == COMMAND else ", "
        separators = SHELL + " " if kind == COMMAND else ",["
        return dumps(value) if set(separators).intersection("".join(value)) else plain.join(value)
    if isinstance(value, dict):
        return ", ".join([f"{name}={number}" for name, number in value.items()])
    if kind == SIZE and isinstance(value, int):
        return _in_units(value, UNITS)
    if kind == TIME and isinstance(value, int):
        return _in_units(value, {"s": 1, "min": 60, "h": 3600, "d": 86400}) if value else "0s"
    return str(value)


def tightens(key: str, old: Any, new: Any) -> bool:
    """Return whether the new value is at least as tight as the old one. Never so for a setting that only the user may change."""
    rule = TABLE[key].tighter
    if rule is None:
        return False
    if isinstance(rule, tuple):
        return _position(rule, new) >= _position(rule, old)
    return bool(_TIGHTER[rule](old, new))


def size(value: object) -> int | None:
    """Return the bytes in `100MB`, `1.5 GB`, `4096`; None if it is not a size."""
    if not isinstance(value, str):
        return _number(value)
    text = value.strip().upper().replace("IB", "B")
    digits = text.rstrip("KMGTB ")
    unit = text[len(digits) :].strip()
    return _times(digits, UNITS.get(unit, 0) or UNITS.get(unit + "B", 0))


def _times(digits: str, factor: int) -> int | None:
    if not factor or not digits.isascii() or "_" in digits:
        return None
    try:
        number = float(digits)
    except ValueError:
        return None
    return int(number * factor) if 0 <= number < 1e15 else None


def _time(value: object) -> int | None:
    if isinstance(value, str):
        text = value.strip().lower()
        digits = text.rstrip("smindh ")
        seconds = _times(digits, TIMES.get(text[len(digits) :].strip(), 0))
        # Half a second must not become 0, which often means "off".
        return seconds if seconds or digits.strip("0.") == "" else None
    return _number(value)


def _number(value: object) -> int | None:
    if isinstance(value, str):
        text = value.strip()
        return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS else None
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 10**MAX_DIGITS:
        return None
    return value


def _flag(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    return WORDS.get(value.strip().lower()) if isinstance(value, str) else None


def _tristate(value: object) -> bool | str | None:
    if isinstance(value, str) and value.strip().lower() == "prompt":
        return "prompt"
    return _flag(value)


def _text(value: object) -> str | None:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        return None
    return value if value.isprintable() else None


def _list(value: object) -> list[str] | None:
    if isinstance(value, str):
        if value.lstrip().startswith("["):
            try:
                value = loads(value)
            except ValueError:
                return None
        else:
            value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list) or len(value) > MAX_ITEMS:
        return None
    return value if all(_text(item) for item in value) else None


def _command(value: object) -> list[str] | None:
    """Return a list of words; a text is split at spaces, and refused if it has characters that a shell interprets."""
    if isinstance(value, str) and not value.lstrip().startswith("["):
        return _list(value.split()) if _text(value) is not None and not set(SHELL).intersection(value) else None
    return _list(value)


def _numbers(value: object) -> dict[str, int] | None:
    if isinstance(value, str):
        try:
            value = loads(value) if value.lstrip().startswith("{") else dict(_pairs(value))
        except ValueError:
            return None
    if not isinstance(value, dict) or len(value) > MAX_ITEMS:
        return None
    result = {name: _number(number) for name, number in value.items()}
    complete = {name: number for name, number in result.items() if number is not None and _text(name)}
    return complete if len(complete) == len(value) else None


def _pairs(text: str) -> list[list[str]]:
    return [[side.strip() for side in part.split("=", 1)] for part in text.split(",") if part.strip()]


def _path(value: object) -> str | None:
    text = _text(value)
    return text if text == "" or (text and text.startswith("/") and "\0" not in text) else None


def _paths(value: object) -> list[str] | None:
    items = _list(value)
    return items if items is not None and all(_path(item) for item in items) else None


def _url(value: object) -> str | None:
    text = _text(value)
    if not text:
        return text
    scheme, _, rest = text.partition("://")
    return text if scheme in ("http", "https") and rest.partition("/")[0] and " " not in text else None


def _hours(value: object) -> str | None:
    text = _text(value)
    if not text:
        return text
    times = [clock.partition(":") for clock in text.split("-")]
    ends = [_number(hour) for hour, _, _ in times] + [_number(minute) for _, _, minute in times]
    if len(times) != 2 or any(end is None for end in ends):
        return None
    hours, minutes = ends[:2], ends[2:]
    good = all((hour or 0) < 24 for hour in hours) and all((minute or 0) < 60 for minute in minutes)
    return "-".join([f"{h:02d}:{m:02d}" for h, m in zip(hours, minutes, strict=True)]) if good else None


_CONVERT: dict[str, Callable[[object], Any]] = {
    FLAG: _flag,
    TRISTATE: _tristate,
    CHOICE: _text,
    NUMBER: _number,
    SIZE: size,
    TIME: _time,
    TEXT: _text,
    LIST: _list,
    COMMAND: _command,
    NUMBERS: _numbers,
    PATH: _path,
    PATHS: _paths,
    URL: _url,
    HOURS: _hours,
}

_TIGHTER: dict[str, Callable[[Any, Any], bool]] = {
    LOWER: lambda old, new: new <= old,
    LOWER_NOT_ZERO: lambda old, new: new == old or (new != 0 and (old == 0 or new <= old)),
    HIGHER: lambda old, new: new >= old,
    MORE: lambda old, new: set(new) >= set(old),
    FEWER: lambda old, new: set(new) <= set(old),
}


def _in_range(value: Any, allowed: tuple[Any, ...]) -> bool:
    if isinstance(value, dict):
        return all(_in_range(number, allowed) for number in value.values())
    low, high = allowed
    return bool(value >= low and (high is None or value <= high))


def _position(order: tuple[Any, ...], value: Any) -> int:
    # Not `index`: to Python, True is 1.
    return next(place for place, choice in enumerate(order) if choice is value or choice == value)


def _in_units(count: int, units: dict[str, int]) -> str:
    """Return the amount in the largest unit that needs no fraction."""
    for unit, factor in sorted(units.items(), key=lambda pair: -pair[1]):
        if unit and count and count % factor == 0:
            return f"{count // factor}{unit}"
    return str(count)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:97] + "…"
