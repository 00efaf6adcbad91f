"""The patterns of secrets compiled by this Python; the build writes them into `_ready.py` (see `light_re`)."""

from __future__ import annotations

from array import array
from re import _compiler, _parser  # type: ignore[attr-defined]
from typing import Any

from keepfast.secrets import declarations as declared
from keepfast.secrets import patterns, prose, services, values
from keepfast.secrets import redaction as redact
from keepfast.secrets.light_re import THIS_PYTHON

HEAD = '"""Compiled patterns, made when the package was built. Not to be edited, and not needed."""\n'


def pattern_sources() -> list[str]:
    """Return the source of every pattern that the search for secrets may need."""
    sources = [
        value.source
        for room in (patterns, declared, prose, redact, values)
        for value in vars(room).values()
        if _is_lazy(value)
    ]
    return list(dict.fromkeys([*sources, *[services.pattern(kind) for kind in services.kinds()]]))


def compiled(pattern: str) -> tuple[int, bytes, int, dict[str, int], tuple[str | None, ...]]:
    """Return what the engine of `re` takes: flags, code, number of groups, and group names by name and by number."""
    tree = _parser.parse(pattern, 0)
    names: dict[str, int] = tree.state.groupdict
    index: list[str | None] = [None] * tree.state.groups
    for name, number in names.items():
        index[number] = name
    code: list[int] = _compiler._code(tree, 0)
    return tree.state.flags, array("I", code).tobytes(), tree.state.groups - 1, names, tuple(index)


def module_text() -> str:
    """Return the source text of the module `_ready`."""
    lines = [f"    {pattern!r}: {compiled(pattern)!r},\n" for pattern in pattern_sources()]
    return f"{HEAD}\nMADE_BY = {THIS_PYTHON!r}\nPATTERNS = {{\n{''.join(lines)}}}\n"


def _is_lazy(value: Any) -> bool:
    return "source" in getattr(value, "__dict__", ()) and isinstance(value.source, str)
