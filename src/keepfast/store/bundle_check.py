"""Check that the documents of a bundle match one another and that it has their contents (docs/format/bundle.md)."""

from __future__ import annotations

from collections.abc import Iterator

from blake3 import blake3

from keepfast.model import document
from keepfast.model.document import Header
from keepfast.model.entry import FILE, GONE, Entry
from keepfast.model.errors import KeepfastError
from keepfast.model.header import refuse_invalid_attributes, refuse_invalid_header, refuse_long_paths
from keepfast.model.restore_plan import refuse_crafted
from keepfast.store.bundle import MAX_BLOBS, Bundle, BundledVersion
from keepfast.store.contents import MAX_NESTED, MAX_PARTS
from keepfast.store.conversations import conversation_from_json
from keepfast.store.digest import add, weight
from keepfast.store.rows import CONTENT, DOCUMENT, LIST, SEALED
from keepfast.store.save import CHUNK_MAX
from keepfast.store.sealed import length_of

MAX_HEADER, MAX_TAGS = 8 << 20, 1 << 17
"""Limits: bytes of a header, and tags of all versions, as each tag becomes a row."""
MAX_EXPANDED, MAX_RATIO = 16 << 30, 256
"""Limit of large contents that are assembled: this many bytes, or this many times the size of the file. One chunk may be
named many times."""


class _Measure:
    """Length of a sealed content or a part of one, the number of names in all its lists, and how deep they are nested."""

    def __init__(self, length: int, count: int, height: int) -> None:
        self.length, self.count, self.height = length, count, height


class CheckedBundle:
    """A bundle whose documents match one another and whose contents are all there. Creating one raises `Damaged` if not."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.sizes: dict[bytes, int] = {}
        self.conversations: dict[bytes, int] = {}
        for _ in self.versions():
            pass
        self.chunks: set[bytes] = set()
        self.lists: list[bytes] = []
        self.expanded = 0
        """Bytes of the large contents that were assembled from chunks."""
        self._measures: dict[bytes, _Measure] = {}
        self._parts = 0
        """Names in the lists of all sealed files: a restore follows each."""
        self._check_contents()

    def versions(self) -> Iterator[tuple[BundledVersion, Header, list[Entry], dict[bytes, Entry]]]:
        """Yield each version, its header, its changed rows, and the whole state, a dict that the next version updates."""
        bundle = self.bundle
        state: dict[bytes, Entry] = {}
        total, parent, tags = 0, None, 0
        for bundled in bundle.versions:
            if bundled.doc not in bundle.places or bundle.places[bundled.doc].kind != DOCUMENT:
                raise bundle.damaged_error(f"it lacks the document of v{bundled.version}")
            header, rows = self._decode(bundled)
            claims = header.workspace, header.id, header.tree, header.keyframe, header.members.get("parent")
            if claims != (bundle.workspace, bundled.id, bundled.tree, parent is None, parent):
                raise bundle.damaged_error(f"the document of v{bundled.version} is a different one")
            tags += len(header.tags)
            if tags > MAX_TAGS:
                raise bundle.damaged_error("its versions have more tags than a bundle may")
            for row in rows:
                old = state.pop(row.path, None)
                if old is not None:
                    total = add(total, minus=weight(old))
                if row.kind != GONE:
                    state[row.path] = row
                    total = add(total, plus=weight(row))
            if f"{total:064x}" != bundled.tree:
                raise bundle.damaged_error(f"the state of v{bundled.version} is inconsistent")
            parent = bundled.doc.hex()
            yield bundled, header, rows, state

    def _decode(self, bundled: BundledVersion) -> tuple[Header, list[Entry]]:
        bundle, data = self.bundle, self.bundle.blob(bundled.doc)
        if int.from_bytes(data[8:16], "little") > MAX_HEADER:
            raise bundle.damaged_error(
                "a header exceeds the size limit"
            )  # before it is read: that takes 30 times its size
        try:
            header, rows = document.decode(data)
            refuse_invalid_header(header.members)
            refuse_long_paths(rows)
            refuse_invalid_attributes(rows)
            refuse_crafted([row for row in rows if row.kind != GONE])
        except KeepfastError as error:
            raise bundle.damaged_error(str(error).rstrip(".")) from None
        conversation = conversation_from_json(header.conversation)
        if conversation is None and header.conversation not in ({}, {"left_out": True}):
            raise bundle.damaged_error("a header has an invalid conversation")
        if conversation is not None:
            self.conversations.update({transcript.id: transcript.size for transcript in conversation.transcripts()})
        for row in rows:
            if row.kind == FILE and self.sizes.setdefault(row.content, row.size) != row.size:
                raise bundle.damaged_error("one content has two sizes")
        return header, rows

    def _check_contents(self) -> None:
        """Check that the bundle has every content in the right size; assemble each large one once."""
        places, damaged = self.bundle.places, self.bundle.damaged_error
        for key, size in self.sizes.items():
            place = places.get(key)
            if place is None or place.kind == DOCUMENT:
                raise damaged(f"it lacks the content {key.hex()}")
            if place.kind == CONTENT:
                if place.length != size:
                    raise damaged(f"the content {key.hex()} has another size")
                continue
            if place.kind in (SEALED, LIST):
                self._check_sealed(key, size)
                continue
            self.lists.append(key)
            self._check_chunks(key, size)
        for key, size in self.conversations.items():
            if key not in places or places[key].kind not in (SEALED, LIST):
                raise damaged("it lacks a conversation")
            self._check_sealed(key, size)

    def _check_sealed(self, key: bytes, size: int) -> None:
        """Check a sealed content without its key: all parts must be there, and their lengths must add up."""
        measure = self._measured(key, MAX_NESTED)
        if measure.length != size:
            raise self.bundle.damaged_error(f"the sealed content {key.hex()} has another size")
        self._parts += measure.count if key in self.sizes else 0
        if self._parts > MAX_BLOBS:
            raise self.bundle.damaged_error("its sealed files exceed the limit of parts")

    def _measured(self, key: bytes, deep: int) -> _Measure:
        """Measure each part once, however often lists name it: the work for nested lists would multiply otherwise."""
        measure = self._measures.get(key)
        if measure is None:
            if deep < 0:
                raise self.bundle.damaged_error("lists of a sealed content are nested too deep")
            measure = self._measures[key] = self._measure(key, deep)
        if measure.height > deep:
            raise self.bundle.damaged_error("lists of a sealed content are nested too deep")
        return measure

    def _measure(self, key: bytes, deep: int) -> _Measure:
        bundle, place = self.bundle, self.bundle.places.get(key)
        if place is None or place.kind not in (SEALED, LIST):
            raise bundle.damaged_error(f"a sealed content lacks its part {key.hex()}")
        self.chunks.add(key)
        try:
            data = bundle.blob(key)
            if place.kind == SEALED:
                return _Measure(length_of(data), 0, 0)
        except KeepfastError as error:
            raise bundle.damaged_error(str(error).rstrip(".")) from None
        if not data:
            raise bundle.damaged_error(f"the list {key.hex()} of a sealed content is empty")
        parts = [self._measured(data[at : at + 32], deep - 1) for at in range(0, len(data), 32)]
        length, count = sum([part.length for part in parts]), sum([1 + part.count for part in parts])
        if length >> 63 or count > MAX_PARTS:
            raise bundle.damaged_error(f"the sealed content {key.hex()} exceeds the limit of parts")
        return _Measure(length, count, 1 + max([part.height for part in parts], default=0))

    def _check_chunks(self, key: bytes, size: int) -> None:
        bundle, places = self.bundle, self.bundle.places
        data = bundle.blob(key)
        chunks = [data[at : at + 32] for at in range(0, len(data), 32)]
        locations = [places.get(chunk) for chunk in chunks]
        if any(place is None or place.kind != CONTENT or not 0 < place.length <= CHUNK_MAX for place in locations):
            raise bundle.damaged_error(f"a large content {key.hex()} lacks some of its chunks")
        if sum(place.length for place in locations if place is not None) != size:
            raise bundle.damaged_error(f"the content {key.hex()} has another size")
        self.expanded += size
        if self.expanded > max(MAX_EXPANDED, MAX_RATIO * bundle.length):
            raise bundle.damaged_error("its large contents are much larger than the bundle")
        total = blake3()
        for chunk in chunks:
            total.update(bundle.blob(chunk))
        if total.digest() != key:
            raise bundle.damaged_error(f"the chunks of {key.hex()} do not match their digest")
        self.chunks.update(chunks)
