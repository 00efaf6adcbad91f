"""SQLite's compiled module alone: the package around it, and what it loads for its cache of statements, cost 6 ms."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from typing import Any

    __all__ = ["sqlite3"]


def _cache(size: int) -> Callable[[Any], Any]:
    """What `functools.lru_cache` does for SQLite: the same C code, without the Python around it."""
    from _functools import _lru_cache_wrapper  # type: ignore[import-not-found]

    return lambda function: _lru_cache_wrapper(function, size, False, tuple)


def _load() -> None:
    """Load it with a stand-in for `functools`, of which it takes this one function, once."""
    if "functools" in sys.modules:
        return

    class _OneFunction:
        lru_cache = staticmethod(_cache)

    sys.modules["functools"] = _OneFunction  # type: ignore[assignment]
    try:
        import _sqlite3  # noqa: F401
    except (ImportError, AttributeError):
        pass  # a later Python may want more of it: the ordinary import below sees to that
    finally:
        del sys.modules["functools"]


if not TYPE_CHECKING:
    _load()
    import _sqlite3 as sqlite3
