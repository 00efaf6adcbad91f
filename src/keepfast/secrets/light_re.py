"""Patterns that are compiled when they are first used, or before: `re` around the compiler costs 6 ms, and compiling more."""

from __future__ import annotations

import sys
from _sre import CODESIZE, MAGIC  # type: ignore[import-not-found]
from _sre import compile as put_together

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from re import Pattern
    from typing import Any

METHODS = ("findall", "finditer", "fullmatch", "match", "search", "sub")
PARTS = ("re", "re._casefix", "re._compiler", "re._constants", "re._parser")
THIS_PYTHON = (*sys.version_info[:2], sys.byteorder, MAGIC, CODESIZE)
"""By whom patterns can be used that were compiled before."""
_ready: dict[str, Any] | None = None
_compiler: Callable[[str | bytes], Any] | None = None


def lazy(written: str) -> Pattern[str]:
    """What `re.compile` returns, except that it is compiled only if somebody asks it something."""
    return _Lazy(written)  # type: ignore[return-value]


class _Lazy:
    def __init__(self, written: str) -> None:
        self.written = written

    def __getattr__(self, name: str) -> Any:
        pattern = compile(self.written)
        # From now on these are found without passing through here.
        self.__dict__.update({method: getattr(pattern, method) for method in METHODS})
        return getattr(pattern, name)


def compile(written: str | bytes) -> Any:
    """The same pattern that `re.compile` makes; it keeps none for the next one who asks."""
    global _compiler, _ready
    if _ready is None:
        _ready = _made_before()
    if written in _ready:
        flags, code, groups, names, index = _ready[written]
        return put_together(written, flags, memoryview(code).cast("I").tolist(), groups, names, index)
    if _compiler is None:
        _compiler = (None if "re" in sys.modules else _alone()) or _ordinary()
    return _compiler(written)


def _made_before() -> dict[str, Any]:
    """What was compiled when the package was built, if this Python compiles in the same way."""
    try:
        from keepfast.secrets._ready import MADE_BY, PATTERNS
    except ImportError:
        return {}
    return PATTERNS if MADE_BY == THIS_PYTHON else {}


def _ordinary() -> Callable[[str | bytes], Any]:
    from re import compile as whole

    return whole


def _alone() -> Callable[[str | bytes], Any] | None:
    """The compiler, loaded without its package; None if this Python has it elsewhere."""
    from _frozen_importlib_external import PathFinder

    found = PathFinder.find_spec("re")
    if found is None or not found.submodule_search_locations:
        return None
    package: Any = type(sys)("re")
    package.__path__ = list(found.submodule_search_locations)
    sys.modules["re"] = package
    try:
        from re import _compiler  # type: ignore[attr-defined]

        compiler: Callable[[str | bytes], Any] = _compiler.compile
        compiler("")
    except (ImportError, AttributeError, TypeError):
        return None
    else:
        return compiler
    finally:
        # Whoever imports `re` itself later gets all of it.
        for name in PARTS:
            sys.modules.pop(name, None)
