"""Many contents at once: found together, read frame by frame, unpacked and handed over by two threads."""

from __future__ import annotations

from _collections import deque  # type: ignore[import-not-found]  # `collections` itself costs 4 ms
from _thread import allocate_lock

from holdfast.core.errors import Damaged
from holdfast.store.digest import digest
from holdfast.store.rows import CONTENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.store.repository import Repository
    from holdfast.store.rows import Location

    Part = tuple[int, int, int]
    """Number, offset and length."""
    Take = Callable[[bytes, list[Part]], None]
    Frame = list[tuple[int, Location]]
    """Wanted contents of one frame: their numbers, and where they lie."""

MANY = 8
"""Frames from which on another thread helps: unpacking and whatever writes files need no Python."""
FIRST, ASKED = 512, 4096
"""Contents whose places are asked for at once: few at first, because nobody has anything to do until they are known."""
LOW = 6
"""Frames below which more places are asked for, while the other thread still has something to do."""


def hand_over(repository: Repository, keys: Sequence[bytes], take: Take) -> list[int]:
    """Call `take(frame, parts)` with all contents, checked, frame by frame, perhaps from two threads at once.

    Return the numbers of those that come in parts, which are left to the caller. Raises `Damaged` for a content that is
    not there or does not match its digest.
    """
    work = _Work(repository, keys, take)
    work.ask()
    if len(work.frames) < MANY and len(keys) <= FIRST:
        work.go_on()
    else:
        work.go_on_by_two()
    return sorted(work.in_parts)


class _Work:
    """What is left to be done."""

    def __init__(self, repository: Repository, keys: Sequence[bytes], take: Take) -> None:
        self.repository, self.keys, self.take = repository, keys, take
        self.frames: deque[Frame] = deque()
        self.in_parts: list[int] = []
        self._asked = 0
        self._asking = allocate_lock()
        self._open: dict[tuple[str, int], Frame] = {}

    def ask(self) -> None:
        """Find out where the next contents lie. Only one thread does so at a time."""
        start = self._asked
        end = min(start + (ASKED if start else FIRST), len(self.keys))
        keys = self.keys[start:end]
        places = self.repository.ledger.locate(list(dict.fromkeys(keys)))
        frames, self._open = self._open, {}
        for number, key in enumerate(keys, start):
            place = places.get(key)
            if place is None:
                raise Damaged(f"The store has no content {key.hex()}.")
            if place.kind == CONTENT:
                slot = place.pack, place.frame
                if slot in frames:
                    frames[slot].append((number, place))
                else:
                    frames[slot] = [(number, place)]
            else:
                self.in_parts.append(number)
        if end < len(self.keys) and keys:
            # Files that follow one another mostly lie in one frame: it waits for the rest of them.
            last = places[keys[-1]]
            if (found := frames.pop((last.pack, last.frame), None)) is not None:
                self._open[last.pack, last.frame] = found
        self.frames.extend([frames[slot] for slot in sorted(frames)])
        self._asked = end  # at last: whoever finds nothing to do then knows that there is nothing more

    def _next(self) -> Frame | None:
        while True:
            all_asked = self._asked >= len(self.keys)
            if not all_asked and len(self.frames) < LOW and self._asking.acquire(not self.frames):
                try:
                    if self._asked < len(self.keys) and len(self.frames) < LOW:
                        self.ask()
                finally:
                    self._asking.release()
            try:
                frame: Frame = self.frames.popleft()
                return frame
            except IndexError:
                if all_asked:
                    return None

    def go_on(self) -> None:
        while (frame := self._next()) is not None:
            self._one(frame)

    def go_on_by_two(self) -> None:
        from holdfast.core.together import by_two

        by_two(self._next, self._one)

    def _one(self, wanted: Frame) -> None:
        """All wanted contents of one frame, checked."""
        keys = self.keys
        try:
            most = max([place.offset + place.length for _, place in wanted])
            frame = self.repository.frame(wanted[0][1], most, keep=False)
        except FileNotFoundError:
            for number, _ in wanted:  # compaction has moved them since we asked
                data = self.repository.blob(keys[number])[0]
                self.take(data, [(number, 0, len(data))])
            return
        view = memoryview(frame)
        parts = []
        for number, place in wanted:
            offset, length = place.offset, place.length
            # A frame that is too short gives less, which has another digest.
            if digest(view[offset : offset + length]) != keys[number]:
                raise Damaged(f"The content {keys[number].hex()} in pack {place.pack} does not match its digest.")
            parts.append((number, offset, length))
        self.take(frame, parts)
