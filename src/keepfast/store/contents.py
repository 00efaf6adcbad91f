"""Load contents by digest: locate them in packs, decompress, decrypt sealed ones, and check the digest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from threading import Lock

from keepfast.model.entry import FILE, Entry
from keepfast.model.entry import SEALED as SEALED_FILE
from keepfast.model.errors import Damaged, Failed
from keepfast.store.digest import blake3, digest
from keepfast.store.packs import MAX_SHARED_FRAME, decompress, decompress_prefix
from keepfast.store.ports import Blobs, Ledger
from keepfast.store.rows import CHUNKS, LIST, SEALED, Location
from keepfast.store.sealed import Sealer

FRAMES_KEPT = 8
SEALED_HEAD = 21
"""The first bytes of a sealed blob, which name its key set and the length of its content."""
MAX_NESTED = 3
"""How deep lists of sealed parts may be nested."""
MAX_PARTS = 1 << 20
"""Most names in all lists of one sealed content together: nested lists of few bytes could expand without end."""


class PartCounter:
    """Counts the parts that the lists of one sealed content name."""

    def __init__(self) -> None:
        self.count = 0

    def split_list(self, names: bytes) -> list[bytes]:
        """Return the digests in a list. Raises `Damaged` if it is empty or all lists together exceed the limit."""
        self.count += len(names) // 32
        if not names or self.count > MAX_PARTS:
            raise Damaged("A list of sealed parts is empty or exceeds the limit.")
        return [names[at : at + 32] for at in range(0, len(names), 32)]


class Contents:
    """The contents in the packs, by digest; the ledger knows where each lies."""

    def __init__(self, blobs: Blobs, ledger: Ledger) -> None:
        self.blobs, self.ledger = blobs, ledger
        self.key_place: tuple[str, str, bool] | None = None
        """The store's folder, the folder of its keys, and whether writes are synced; None for a store in memory."""
        self._sealer: Sealer | None = None
        self._frames: dict[tuple[str, int], bytes] = {}
        self._frames_lock, self._ledger_lock = Lock(), Lock()

    def load(self, key: bytes) -> bytes:
        """Return the content with this digest, whole and checked. Raises `Damaged`."""
        return b"".join(self.stream(key))

    def stream(self, key: bytes) -> Iterator[bytes]:
        """Yield the content in parts; the last part only after the whole matched its digest. Raises `Damaged`."""
        data, kind = self.blob(key)
        if kind in (SEALED, LIST):
            yield from self._stream_sealed(data, kind, MAX_NESTED, PartCounter())
            return
        if kind != CHUNKS:
            yield data
            return
        total, chunk = blake3(), b""
        for at in range(0, len(data), 32):
            checked_chunk, chunk = chunk, self.blob(data[at : at + 32])[0]
            total.update(chunk)
            if checked_chunk:
                yield checked_chunk
        if total.digest() != key:
            raise Damaged(f"The chunks of {key.hex()} do not match their digest.")
        yield chunk

    def _stream_sealed(self, data: bytes, kind: int, depth: int, counter: PartCounter) -> Iterator[bytes]:
        """Decrypt a sealed content part by part. Raises `WrongKey`."""
        if kind == SEALED:
            yield self.sealer().open(data)
            return
        for name in counter.split_list(data):
            part, kind = self.blob(name)
            if kind not in (SEALED, LIST) or not depth:
                raise Damaged("A list of sealed parts has an invalid entry.")
            yield from self._stream_sealed(part, kind, depth - 1, counter)

    def paths_without_key(self, entries: Iterable[Entry | None]) -> set[bytes]:
        """Return the paths of files whose contents are sealed with a key that is missing here."""
        paths, opens_by_content = set(), dict[bytes, bool]()
        for entry in entries:
            sealed = entry is not None and entry.kind == FILE and entry.flags & SEALED_FILE
            if entry is not None and sealed and not self._can_open(entry.content, opens_by_content):
                paths.add(entry.path)
        return paths

    def _can_open(self, key: bytes, opens_by_content: dict[bytes, bool], depth: int = MAX_NESTED) -> bool:
        """Return whether this content can be decrypted. Each part is checked once, however often lists name it."""
        if key not in opens_by_content:
            opens_by_content[key] = self._check_can_open(key, opens_by_content, depth)
        return opens_by_content[key]

    def _check_can_open(self, key: bytes, opens_by_content: dict[bytes, bool], depth: int) -> bool:
        place = self._place(key)
        if place.kind == SEALED:
            return self.sealer().opens(self.sealed_head(place) or self.blob(key)[0])
        if place.kind != LIST or not depth:
            return True  # if it is invalid, reading it says so
        names = self.blob(key)[0]
        return all(self._can_open(names[at : at + 32], opens_by_content, depth - 1) for at in range(0, len(names), 32))

    def sealed_head(self, place: Location) -> bytes:
        """Return the beginning of a sealed blob, which names its key set; empty if it cannot be read."""
        try:
            stored = self.blobs.read(place.pack, place.frame, min(place.stored, 1 + place.offset + SEALED_HEAD))
        except (FileNotFoundError, EOFError):
            return b""  # it moved, or is damaged
        return stored[1 + place.offset :] if stored[:1] == b"\0" else b""  # it has a frame of its own, as it is

    def warnings(self) -> list[str]:
        """Return warnings about keys for the user who saves; each is returned once."""
        if self._sealer is None or not self._sealer.keys.made_new_key:
            return []
        self._sealer.keys.made_new_key = False
        return [
            ("The key of the sealed contents is missing; new contents are sealed with a new key (see `keepfast key`).")
        ]

    def ids(self, read: Callable[[int], bytes], sealed: bool = True) -> list[bytes]:
        """Return every id that these bytes can have in this store: their digest and, if `sealed`, the ids of sealed forms.

        A caller who knows that the file is not sealed passes False and saves the 20 ms that loading the cipher costs.
        """
        total = blake3()

        def pull(most: int) -> bytes:
            data = read(most)
            total.update(data)
            return data

        sealed_ids = self.sealer().ids_of(pull, self.has) if sealed and self.key_place is not None else []
        while pull(1 << 20):
            pass
        return [total.digest(), *sealed_ids]

    def has(self, key: bytes) -> bool:
        with self._ledger_lock:
            return bool(self.ledger.locate([key]))

    def sealer(self) -> Sealer:
        """Return the object that encrypts and decrypts sealed contents. Raises `Failed` for a store in memory."""
        if self._sealer is None:
            if self.key_place is None:
                raise Failed("This store cannot keep keys.")
            with self._frames_lock:
                self._sealer = self._sealer or Sealer(*self.key_place)
        return self._sealer

    def blob(self, key: bytes) -> tuple[bytes, int]:
        """Return one stored blob (a chunk list as it is) and its kind, checked unless it is a list."""
        before: Location | None = None
        while True:
            place = self._place(key)
            try:
                data = self.fetch(place)
                break
            except FileNotFoundError:
                # Compaction may have moved it since it was located, and again since then.
                if place == before:
                    raise Damaged(f"Pack {place.pack} is missing.", "Run `keepfast verify`.") from None
                before = place
        if place.kind != CHUNKS and digest(data) != key:
            raise Damaged(f"The content {key.hex()} in pack {place.pack} does not match its digest.")
        return data, place.kind

    def _place(self, key: bytes) -> Location:
        with self._ledger_lock:  # contents that come in parts are read by two threads, and a ledger has one connection
            place = self.ledger.locate([key]).get(key)
        if place is None:
            raise Damaged(f"The store lacks the content {key.hex()}.")
        return place

    def fetch(self, place: Location) -> bytes:
        """Return the bytes at a location, unchecked."""
        data = self.frame(place, place.offset + place.length)[place.offset : place.offset + place.length]
        if len(data) != place.length:
            raise Damaged(f"A frame of pack {place.pack} is truncated.")
        return data

    def frame(self, place: Location, least: int, keep: bool = True) -> bytes:
        """Return the decompressed frame that holds a location, at least its first `least` bytes.

        `keep`: cache the frame for later reads. Without it only those bytes are decompressed, and nothing is cached.
        """
        slot = place.pack, place.frame
        with self._frames_lock:
            frame = self._frames.pop(slot, None)
        if frame is None:
            try:
                stored = self.blobs.read(place.pack, place.frame, place.stored)
                frame = decompress(stored, max(MAX_SHARED_FRAME, least)) if keep else decompress_prefix(stored, least)
            except EOFError:
                raise Damaged(f"Pack {place.pack} is truncated.") from None
        if not keep:
            return frame
        with self._frames_lock:
            while len(self._frames) >= FRAMES_KEPT:
                del self._frames[next(iter(self._frames))]
            self._frames[slot] = frame
        return frame

    def forget_frames(self) -> None:
        """Drop cached frames after packs were replaced."""
        self._frames.clear()
