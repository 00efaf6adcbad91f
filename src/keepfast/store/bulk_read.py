"""Read many contents at once: located together, read frame by frame, decompressed and delivered by two threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from os import close
from threading import Lock, get_ident

from keepfast.fsutil.threads import by_two
from keepfast.model.compiled import demand
from keepfast.model.errors import Damaged
from keepfast.store.compression import zstd_library
from keepfast.store.digest import digest
from keepfast.store.packs import MAX_SHARED_FRAME
from keepfast.store.repository import Repository
from keepfast.store.rows import CONTENT, Location

Part = tuple[int, int, int]
"""Number, offset and length."""
Take = Callable[[bytes, list[Part]], None]
Frame = list[tuple[int, Location]]
"""The requested contents that lie in one frame: their numbers and locations."""
Unpack = Callable[[int, int, int, int, Frame, list[bytes]], tuple[bytes, list[Part]] | None]

FRAMES_FOR_TWO_THREADS = 8
"""From this many frames on a second thread helps: decompressing and writing files do not hold Python's lock."""
FIRST_LOOKUP, LOOKUP_CONTENTS = 512, 4096
"""Contents per lookup in the ledger: few at first, because no thread has work until they are located."""
PYTHON_ONLY_CONTENTS = 64
"""Up to this many contents, Python code decompresses: of each frame no more than it needs."""
OPEN_PACKS = 64
"""Packs that are open at once; contents of further packs are read without the compiled module."""
ENOUGH_BYTES = 768 << 10
"""Requested bytes from which a frame is decompressed at once although a later lookup may find more in it: 3/4 of a frame."""
WAITING_CONTENTS = 8192
"""Requested contents of one frame that wait for the rest of it. A frame of tiny files has a hundred thousand and more: it is
cheaper to decompress it again for each so many of them than to hold all their locations in memory."""
LOW_FRAMES = 6
"""With fewer queued frames than this, one thread looks up more contents while the other works."""


def read_many(repository: Repository, keys: Sequence[bytes], take: Take, accelerated: bool = True) -> list[int]:
    """Call `take(frame, parts)` for all contents, checked, frame by frame, possibly from two threads at once.

    Return the numbers of contents that are stored in chunks or sealed: the caller reads those. `accelerated`: use the
    compiled module for many contents, if it was built. Raises `Damaged` for a content that is missing or does not match
    its digest.
    """
    work = _BulkReader(repository, list(keys), take)
    work.look_up_next()
    if len(work.frames) < FRAMES_FOR_TWO_THREADS and len(keys) <= FIRST_LOOKUP:
        work.run()
    else:
        work.unpack = _native_unpack() if accelerated and len(keys) > PYTHON_ONLY_CONTENTS else None
        try:
            work.run_in_two_threads()
        finally:
            work.close()
    return sorted(work.in_parts)


def _native_unpack() -> Unpack | None:
    """Return the compiled function that decompresses and checks a frame; None if it was not built or finds no Zstandard."""
    try:
        from keepfast.store import _unpack  # type: ignore[attr-defined]

        demand(_unpack)
    except ImportError:
        return None
    path = zstd_library()
    return _unpack.unpack if path and _unpack.use(path) else None


def _wanted_bytes(frame: Frame) -> int:
    return sum([place.length for _, place in frame])


class _BulkReader:
    """The work queue of one call of `read_many`."""

    def __init__(self, repository: Repository, keys: list[bytes], take: Take) -> None:
        self.repository, self.keys, self.take = repository, keys, take
        self.frames: deque[Frame] = deque()
        self.in_parts: list[int] = []
        self.unpack: Unpack | None = None
        self._files: dict[str, int] = {}
        self._looked_up = 0
        self._first_thread = get_ident()
        self._lookup_lock, self._files_lock = Lock(), Lock()
        self._incomplete_frames: dict[tuple[str, int], Frame] = {}

    def look_up_next(self) -> None:
        """Locate the next contents and queue their frames. Only one thread does this at a time."""
        start = self._looked_up
        end = min(start + (LOOKUP_CONTENTS if start else FIRST_LOOKUP), len(self.keys))
        keys = self.keys[start:end]
        places = self.repository.ledger.locate(list(dict.fromkeys(keys)))
        frames, self._incomplete_frames = self._incomplete_frames, {}
        for number, key in enumerate(keys, start):
            place = places.get(key)
            if place is None:
                raise Damaged(f"The store lacks the content {key.hex()}.")
            if place.kind == CONTENT:
                slot = place.pack, place.frame
                if slot in frames:
                    frames[slot].append((number, place))
                else:
                    frames[slot] = [(number, place)]
            else:
                self.in_parts.append(number)
        if end < len(self.keys) and keys:
            # Neighbouring files mostly lie in one frame, so the last frame waits for the next lookup. In a compacted pack
            # a frame holds similar files of many folders: it waits while lookups still add to it, or have added little.
            last = places[keys[-1]]
            waiting = [
                slot
                for slot, places_in_frame in frames.items()
                if len(places_in_frame) < WAITING_CONTENTS
                and (
                    slot == (last.pack, last.frame)
                    or (start and places_in_frame[-1][0] >= start)
                    or _wanted_bytes(places_in_frame) < ENOUGH_BYTES
                )
            ]
            self._incomplete_frames = {slot: frames.pop(slot) for slot in waiting}
        self.frames.extend([frames[slot] for slot in sorted(frames)])
        self._looked_up = end  # last: a thread that then finds no frame knows that there are no more

    def _next(self) -> Frame | None:
        while True:
            all_asked = self._looked_up >= len(self.keys)
            if not all_asked and len(self.frames) < LOW_FRAMES and self._lookup_lock.acquire(not self.frames):
                try:
                    if self._looked_up < len(self.keys) and len(self.frames) < LOW_FRAMES:
                        self.look_up_next()
                finally:
                    self._lookup_lock.release()
            try:
                # From both ends: files of neighbouring frames lie in one folder, and a folder takes one new file at a time.
                frame: Frame = self.frames.popleft() if get_ident() == self._first_thread else self.frames.pop()
                return frame
            except IndexError:
                if all_asked:
                    return None

    def run(self) -> None:
        while (frame := self._next()) is not None:
            self._deliver_frame(frame)

    def run_in_two_threads(self) -> None:
        by_two(self._next, self._deliver_frame)

    def _deliver_frame(self, places_in_frame: Frame) -> None:
        """Decompress one frame, check its requested contents and pass them to `take`."""
        keys = self.keys
        try:
            most = max([place.offset + place.length for _, place in places_in_frame])
            done = self.unpack and self._unpack_natively(self.unpack, places_in_frame, most)
            if done:
                self.take(*done)
                return
            frame = self.repository.contents.frame(places_in_frame[0][1], most, keep=False)
        except FileNotFoundError:
            for number, _ in places_in_frame:  # compaction has moved them since they were located
                data = self.repository.contents.blob(keys[number])[0]
                self.take(data, [(number, 0, len(data))])
            return
        view = memoryview(frame)
        parts = []
        for number, place in places_in_frame:
            offset, length = place.offset, place.length
            # A frame that is too short yields less data, which has another digest.
            if digest(view[offset : offset + length]) != keys[number]:
                raise Damaged(f"The content {keys[number].hex()} in pack {place.pack} does not match its digest.")
            parts.append((number, offset, length))
        self.take(frame, parts)

    def _unpack_natively(self, unpack: Unpack, places_in_frame: Frame, most: int) -> tuple[bytes, list[Part]] | None:
        """Return the frame and its checked parts; None if anything is wrong or the compiled module cannot read it."""
        place = places_in_frame[0][1]
        with self._files_lock:
            if place.pack not in self._files:
                if len(self._files) >= OPEN_PACKS:
                    return None
                self._files[place.pack] = self.repository.blobs.descriptor(place.pack)
            file = self._files[place.pack]
        return (
            unpack(file, place.frame, place.stored, max(MAX_SHARED_FRAME, most), places_in_frame, self.keys)
            if file >= 0
            else None
        )

    def close(self) -> None:
        for file in self._files.values():
            if file >= 0:
                close(file)
