"""Which compiled modules match this Python code: each holds the digest of the sources it was built from."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

# Written by `python tools/compiled_digests.py`, for the sources as they are.
DIGESTS = {
    "keepfast.workspace._check": "11eda1a822d5cbbd",
    "keepfast.workspace._marks": "fc3ded29e14f170f",
    "keepfast.workspace._place": "db934dd5871b773c",
    "keepfast.store._unpack": "f93ccba2ab01cf81",
}


def demand(*modules: ModuleType) -> None:
    """Raise `ImportError` for a module that was built from other sources: its interface may differ."""
    for module in modules:
        if module.__doc__ != DIGESTS.get(module.__name__):
            raise ImportError(f"{module.__name__} was built from other sources")
