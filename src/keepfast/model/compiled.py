"""Which compiled modules match this Python code: each holds the digest of the sources it was built from."""

from __future__ import annotations

from types import ModuleType

# Written by `python tools/compiled_digests.py`, for the sources as they are.
DIGESTS = {
    "keepfast.workspace._check": "3dccf6a6814f832c",
    "keepfast.workspace._marks": "cf763af49d36b79f",
    "keepfast.workspace._place": "fc307756796e0ea4",
    "keepfast.store._unpack": "ae95572e90c4fcaa",
}


def demand(*modules: ModuleType) -> None:
    """Raise `ImportError` for a module that was built from other sources: its interface may differ."""
    for module in modules:
        if module.__doc__ != DIGESTS.get(module.__name__):
            raise ImportError(f"{module.__name__} was built from other sources")
