"""Settings → Engine: the only file that names concrete backends."""

from __future__ import annotations

from holdfast.core.errors import Usage
from holdfast.store.place import Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.engine import Engine
    from holdfast.settings import Settings


def build(settings: Settings, data: str, home: bytes, clock: Callable[[], int]) -> Engine:
    """Return the engine that the settings ask for; `data` is the user's data folder."""
    from holdfast.engine import Engine  # a hook that has nothing to save does without

    return Engine(place(settings, data), settings, home, clock)


def place(settings: Settings, data: str) -> Place:
    """Return where the store is that the settings ask for."""
    # Keys stay in the user's own folder, also where the store is elsewhere: on a shared disk they would open it for others.
    return Place(store_path(settings, data), settings["store.durable"], data + "/keys")


def store_path(settings: Settings, data: str) -> str:
    url: str = settings["store.url"]
    if not url:
        return data + "/store"
    if url.startswith("file://"):
        url = url[7:]
    if not url.startswith("/"):
        raise Usage(f"store.url = {url!r} is not an absolute path.", "Give a folder such as /home/you/holdfast-store.")
    return url.rstrip("/") or "/"
