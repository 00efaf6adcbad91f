"""Named tuples without importing `collections`, and without compiling source code at every start."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

try:
    from _collections import _tuplegetter as _getter  # type: ignore[import-not-found]
except ImportError:

    def _getter(place: int, about: str) -> property:
        return property(lambda row: tuple.__getitem__(row, place), doc=about)


class Named(tuple):  # type: ignore[type-arg]
    """Base of all named tuples; a subclass defines `_fields` and `_defaults`."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()
    _defaults: tuple[Any, ...] = ()

    def __new__(cls, *values: Any, **named: Any) -> Any:
        if named or len(values) != len(cls._fields):
            values = _ordered_values(cls, values, named)
        return tuple.__new__(cls, values)

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        parts = [f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True)]
        return f"{type(self).__name__}({', '.join(parts)})"

    def _replace(self, **named: Any) -> Any:
        values = [named.pop(name) if name in named else value for name, value in zip(self._fields, self, strict=True)]
        if named:
            raise TypeError(f"{type(self).__name__} has no {', '.join(named)}")
        return tuple.__new__(type(self), values)


def light_tuple(name: str, fields: str, module: str, defaults: tuple[Any, ...] = (), new: Any = None) -> Any:
    """Return a named tuple class with these fields; `defaults` are those of the last ones.

    `new` creates an instance from the class and its values: a function with named parameters is faster than the generic one.
    """
    names = tuple(fields.split())
    parts: dict[str, Any] = {field: _getter(place, field) for place, field in enumerate(names)}
    parts.update({"__slots__": (), "__module__": module, "_fields": names, "_defaults": defaults})
    if new is not None:
        parts["__new__"] = new
    return type(name, (Named,), parts)


def _ordered_values(cls: Any, values: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """Return the values in order, whether they were passed by name, by position or not at all."""
    fields, defaults = cls._fields, cls._defaults
    by_name = dict(zip(fields[len(fields) - len(defaults) :], defaults, strict=True))
    twice = [name for name in fields[: len(values)] if name in named]
    if len(values) > len(fields) or twice or not set(named) <= set(fields):
        raise TypeError(f"{cls.__name__} takes {', '.join(fields)}, each once")
    by_name.update(zip(fields, values, strict=False))
    by_name.update(named)
    missing = [name for name in fields if name not in by_name]
    if missing:
        raise TypeError(f"{cls.__name__} needs {', '.join(missing)}")
    return tuple([by_name[name] for name in fields])
