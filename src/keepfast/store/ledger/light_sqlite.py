"""SQLite's compiled module without the package `sqlite3`, which costs 6 ms with what it imports."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from typing import Any

    __all__ = ["sqlite3"]


def _cache(size: int) -> Callable[[Any], Any]:
    """Replace `functools.lru_cache`, which SQLite's statement cache uses: the same C code without its Python module."""
    from _functools import _lru_cache_wrapper  # type: ignore[import-not-found]

    return lambda function: _lru_cache_wrapper(function, size, False, tuple)


def _load() -> None:
    """Import `_sqlite3` with a substitute for `functools`, from which it takes only `lru_cache`."""
    if "functools" in sys.modules:
        return

    class _OneFunction:
        lru_cache = staticmethod(_cache)

    sys.modules["functools"] = _OneFunction  # type: ignore[assignment]
    try:
        import _sqlite3  # noqa: F401
    except (ImportError, AttributeError):
        pass  # another Python may need more of `functools`: then the import below loads it
    finally:
        del sys.modules["functools"]


if not TYPE_CHECKING:
    _load()
    import _sqlite3 as sqlite3
