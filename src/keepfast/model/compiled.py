"""Which compiled modules belong to this Python code: each says what sources it was built from."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

# Written by `python tools/compiled_digests.py`, for the sources as they are.
DIGESTS = {
    "keepfast.workspace._check": "8b5df792a8cffce1",
    "keepfast.workspace._marks": "0d3db054f17b14ee",
    "keepfast.workspace._read": "e0b25dd50a2c5c6d",
    "keepfast.workspace._place": "d118911ddba8a607",
    "keepfast.store._unpack": "c0eabb9640bfbac4",
}


def demand(*modules: ModuleType) -> None:
    """Raise `ImportError` for a module that was built from other sources: what it takes and gives may be something else."""
    for module in modules:
        if module.__doc__ != DIGESTS.get(module.__name__):
            raise ImportError(f"{module.__name__} was built from other sources")
