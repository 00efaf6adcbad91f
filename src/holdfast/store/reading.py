"""Many contents at once: found together, read frame by frame, unpacked and handed over by two threads."""

from __future__ import annotations

from holdfast.core.errors import Damaged
from holdfast.store.digest import digest
from holdfast.store.rows import CONTENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.store.repository import Repository
    from holdfast.store.rows import Location

    Part = tuple[int, int, int]
    """Number, offset and length."""
    Take = Callable[[bytes, list[Part]], None]

MANY = 8
"""Frames from which on another thread helps: unpacking and whatever writes files need no Python."""


def hand_over(repository: Repository, keys: Sequence[bytes], take: Take) -> list[int]:
    """Call `take(frame, parts)` with all contents, checked, frame by frame, perhaps from two threads at once.

    Return the numbers of those that come in parts, which are left to the caller. Raises `Damaged` for a content that is
    not there or does not match its digest.
    """
    places = repository.ledger.locate(list(dict.fromkeys(keys)))
    if len(places) < len(set(keys)):
        missing = next(key for key in keys if key not in places)
        raise Damaged(f"The store has no content {missing.hex()}.")
    in_parts: list[int] = []
    frames: dict[tuple[str, int], list[int]] = {}
    for number, key in enumerate(keys):
        place = places[key]
        if place.kind == CONTENT:
            frames.setdefault((place.pack, place.frame), []).append(number)
        else:
            in_parts.append(number)
    work = _Work(repository, keys, places, iter([frames[slot] for slot in sorted(frames)]), take)
    if len(frames) < MANY:
        work.go_on()
    else:
        work.go_on_by_two()
    return in_parts


class _Work:
    """What is left to be done, and the first thing that went wrong."""

    def __init__(
        self,
        repository: Repository,
        keys: Sequence[bytes],
        places: dict[bytes, Location],
        groups: Iterator[list[int]],
        take: Take,
    ) -> None:
        self.repository, self.keys, self.places, self.groups, self.take = repository, keys, places, groups, take
        self.error: BaseException | None = None

    def go_on(self) -> None:
        # The next of a list's iterator is one step of the interpreter: two threads never get the same.
        for numbers in self.groups:
            if self.error is not None:
                return
            self._one(numbers)

    def go_on_by_two(self) -> None:
        from threading import Thread

        def help_out() -> None:
            try:
                self.go_on()
            except BaseException as error:
                self.error = error

        thread = Thread(target=help_out, daemon=True)
        thread.start()
        try:
            self.go_on()
        except BaseException as error:
            self.error = error
            raise
        finally:
            thread.join()
        if self.error is not None:
            raise self.error

    def _one(self, numbers: list[int]) -> None:
        """All wanted contents of one frame, checked."""
        keys, places = self.keys, self.places
        here = [places[keys[number]] for number in numbers]
        try:
            frame = self.repository.frame(here[0], max([place.offset + place.length for place in here]))
        except FileNotFoundError:
            for number in numbers:  # compaction has moved them since we asked
                data = self.repository.blob(keys[number])[0]
                self.take(data, [(number, 0, len(data))])
            return
        view = memoryview(frame)
        parts = []
        for number, place in zip(numbers, here, strict=True):
            offset, length = place.offset, place.length
            # A frame that is too short gives less, which has another digest.
            if digest(view[offset : offset + length]) != keys[number]:
                raise Damaged(f"The content {keys[number].hex()} in pack {place.pack} does not match its digest.")
            parts.append((number, offset, length))
        self.take(frame, parts)
