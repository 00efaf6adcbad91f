"""Regular expressions that are compiled on first use: compiling all of them takes 0.15 s, and most texts need few."""

from __future__ import annotations

import re
from typing import Any

METHODS = ("findall", "finditer", "fullmatch", "match", "search", "sub")


def lazy(source: str) -> re.Pattern[str]:
    """Return a pattern like that of `re.compile`, which is compiled when a method is first called."""
    return _Lazy(source)  # type: ignore[return-value]


class _Lazy:
    def __init__(self, source: str) -> None:
        self.source = source

    def __getattr__(self, name: str) -> Any:
        pattern = re.compile(self.source)
        # Later lookups find these without calling `__getattr__`.
        self.__dict__.update({method: getattr(pattern, method) for method in METHODS})
        return getattr(pattern, name)
