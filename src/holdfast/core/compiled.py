"""Which compiled modules belong to this Python code: each says what sources it was built from."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

# Written by `python tools/compiled_digests.py`, for the sources as they are.
DIGESTS = {
    "holdfast.workspace._check": "1c26f57be502e9af",
    "holdfast.workspace._marks": "cd59b19e0b8f724a",
    "holdfast.workspace._read": "bb0c5bc4f9ebaa8b",
    "holdfast.workspace._place": "9df15cd46b72e8a0",
    "holdfast.store._unpack": "b789dd0cd8f4ab68",
}


def demand(*modules: ModuleType) -> None:
    """Raise `ImportError` for a module that was built from other sources: what it takes and gives may be something else."""
    for module in modules:
        if module.__doc__ != DIGESTS.get(module.__name__):
            raise ImportError(f"{module.__name__} was built from other sources")
