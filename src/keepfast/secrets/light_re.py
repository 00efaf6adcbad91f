"""Regular expressions compiled on first use, or when the package is built: importing `re` costs 6 ms, and compiling more."""

from __future__ import annotations

import sys
from _sre import CODESIZE, MAGIC  # type: ignore[import-not-found]
from _sre import compile as make_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from re import Pattern
    from typing import Any

METHODS = ("findall", "finditer", "fullmatch", "match", "search", "sub")
PARTS = ("re", "re._casefix", "re._compiler", "re._constants", "re._parser")
THIS_PYTHON = (*sys.version_info[:2], sys.byteorder, MAGIC, CODESIZE)
"""The Python builds that can use a pattern compiled by this one."""
_ready: dict[str, Any] | None = None
_compiler: Callable[[str | bytes], Any] | None = None


def lazy(source: str) -> Pattern[str]:
    """Return a pattern like that of `re.compile`, which is compiled when a method is first called."""
    return _Lazy(source)  # type: ignore[return-value]


class _Lazy:
    def __init__(self, source: str) -> None:
        self.source = source

    def __getattr__(self, name: str) -> Any:
        pattern = compile(self.source)
        # Later lookups find these without calling `__getattr__`.
        self.__dict__.update({method: getattr(pattern, method) for method in METHODS})
        return getattr(pattern, name)


def compile(source: str | bytes) -> Any:
    """Return the pattern that `re.compile` makes, without its cache."""
    global _compiler, _ready
    if _ready is None:
        _ready = _patterns_of_build()
    if source in _ready:
        flags, code, groups, names, index = _ready[source]
        return make_pattern(source, flags, memoryview(code).cast("I").tolist(), groups, names, index)
    if _compiler is None:
        _compiler = (None if "re" in sys.modules else _load_compiler()) or _standard_compiler()
    return _compiler(source)


def _patterns_of_build() -> dict[str, Any]:
    """Return the patterns compiled when the package was built, if this Python can use them."""
    try:
        from keepfast.secrets._ready import MADE_BY, PATTERNS
    except ImportError:
        return {}
    return PATTERNS if MADE_BY == THIS_PYTHON else {}


def _standard_compiler() -> Callable[[str | bytes], Any]:
    from re import compile as whole

    return whole


def _load_compiler() -> Callable[[str | bytes], Any] | None:
    """Load the compiler of `re` without the package around it; None if this Python has it elsewhere."""
    from _frozen_importlib_external import PathFinder

    spec = PathFinder.find_spec("re")
    if spec is None or not spec.submodule_search_locations:
        return None
    package: Any = type(sys)("re")
    package.__path__ = list(spec.submodule_search_locations)
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
        # A later `import re` must get the whole package.
        for name in PARTS:
            sys.modules.pop(name, None)
