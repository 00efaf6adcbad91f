"""Many contents at once: found together, read in the order in which they lie, unpacked ahead of whoever takes them."""

from __future__ import annotations

from holdfast.core.errors import Damaged
from holdfast.store.digest import digest
from holdfast.store.rows import CONTENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.store.repository import Repository
    from holdfast.store.rows import Location

    Content = tuple[int, bytes | None]

AHEAD = 8
"""Frames from which on another thread unpacks."""
WAITING = 4
"""Frames that may be unpacked and not yet taken: a megabyte each, four after compaction."""


def wholes(repository: Repository, keys: Sequence[bytes]) -> Iterator[Content]:
    """Yield (number, content) of every key, in the order in which the contents lie; None for one that comes in parts.

    Raises `Damaged` for a content that is not there or does not match its digest.
    """
    places = repository.ledger.locate(list(dict.fromkeys(keys)))
    if len(places) < len(set(keys)):
        missing = next(key for key in keys if key not in places)
        raise Damaged(f"The store has no content {missing.hex()}.")
    frames: dict[tuple[str, int], list[int]] = {}
    for number, key in enumerate(keys):
        place = places[key]
        frames.setdefault((place.pack, place.frame), []).append(number)
    groups = [frames[slot] for slot in sorted(frames)]
    unpacked = (_unpack(repository, keys, places, numbers) for numbers in groups)
    for contents in _ahead(unpacked) if len(groups) >= AHEAD else unpacked:
        yield from contents


def _unpack(
    repository: Repository, keys: Sequence[bytes], places: dict[bytes, Location], numbers: list[int]
) -> list[Content]:
    """All wanted contents of one frame, checked."""
    found: list[Content] = []
    for number in numbers:
        key, place = keys[number], places[keys[number]]
        if place.kind != CONTENT:
            found.append((number, None))
            continue
        try:
            data = repository.fetch(place)
        except FileNotFoundError:
            data = repository.blob(key)[0]  # compaction has moved it since we asked
        if digest(data) != key:
            raise Damaged(f"The content {key.hex()} in pack {place.pack} does not match its digest.")
        found.append((number, data))
    return found


def _ahead(unpacked: Iterator[list[Content]]) -> Iterator[list[Content]]:
    """The same, unpacked by a thread while the one before is being written: unpacking and writing both need no Python."""
    from queue import Queue
    from threading import Thread

    ready: Queue[list[Content] | BaseException | None] = Queue(WAITING)
    stopped = False

    def work() -> None:
        last: BaseException | None = None
        try:
            for contents in unpacked:
                if stopped:
                    return
                ready.put(contents)
        except BaseException as error:
            last = error
        ready.put(last)

    thread = Thread(target=work, daemon=True)
    thread.start()
    try:
        while (found := ready.get()) is not None:
            if isinstance(found, BaseException):
                raise found
            yield found
    finally:
        stopped = True
        while thread.is_alive():
            while not ready.empty():
                ready.get()
            thread.join(0.01)
