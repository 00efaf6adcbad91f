"""Read bundles: one file with checkpoints, made of a pack, a manifest, and a digest of the whole (docs/format/bundle.md)."""

from __future__ import annotations

from collections.abc import Iterator
from os import (
    O_CLOEXEC,
    O_NONBLOCK,
    O_RDONLY,
    close,
    fstat,
    pread,
)
from os import open as open_fd
from stat import S_ISREG
from struct import unpack
from typing import Any, NamedTuple

from blake3 import blake3

from keepfast.model.errors import Damaged, Failed, NewerFormat, NotFound
from keepfast.model.strict_json import loads
from keepfast.store.digest import digest
from keepfast.store.packs import TRAILER as PACK_TRAILER
from keepfast.store.packs import decompress, read_index
from keepfast.store.rows import CHUNKS, CONTENT, DOCUMENT, LIST, SEALED, Location


class BundledVersion(NamedTuple):
    """One line of the manifest."""

    version: int
    id: str
    doc: bytes
    tree: str


FAMILY, MAGIC, END = b"HFBUND", b"HFBUND1\n", b"HFBEND1\n"
TRAILER = 56
MAX_BLOBS, MAX_MANIFEST, MAX_FRAME = 1 << 22, 8 << 20, 256 << 20
FRAMES_KEPT = 32 << 20
"""Bytes of decompressed frames in the cache."""
MAX_UNPACKED, UNPACKED_FACTOR = 1 << 30, 16
"""Limit of bytes decompressed in all: this many, plus this many times all contents. Contents may be arranged so that frames
must be decompressed again and again."""
MAX_DECOMPRESSED, MAX_RATIO = 1 << 30, 1024
"""Limit of what all frames decompress to: this many bytes, or this many times the size of the file."""
PART = 1 << 20
HEX = frozenset("0123456789abcdef")
UNCHANGED_HINT = "Nothing was changed. Copy or export the file again."


class Bundle:
    """An open bundle. Opening it checks the digest of the whole, the index and the manifest; `blob` checks what it returns."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.length = 0
        """Of the pack."""
        self.keys: Any = None
        """The keys of its sealed parts, encrypted with a passphrase; None if it has no sealed parts."""
        self.left_out = 0
        """Number of sealed contents and conversations that were not exported."""
        try:
            # O_NONBLOCK: opening a pipe of that name must not block.
            self.fd = open_fd(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(f"File {path} not found.", "Give the path of a bundle.") from None
        except OSError as error:
            raise Failed(f"{path} cannot be opened: {error.strerror}.") from None
        try:
            if not S_ISREG(fstat(self.fd).st_mode):
                raise Failed(f"{path} is not a regular file.")
            self._open()
        except OSError as error:
            self.close()
            raise Failed(f"{path} cannot be read: {error.strerror}.") from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self.fd >= 0:
            close(self.fd)
            self.fd = -1

    def blob(self, key: bytes) -> bytes:
        """Return a blob of the bundle, checked unless it is a chunk list. Raises `Damaged`."""
        place = self.places.get(key)
        if place is None:
            raise self.damaged_error(f"it lacks the content {key.hex()}")
        data = self._frame(place.frame, place.stored)[place.offset : place.offset + place.length]
        if place.kind != CHUNKS and digest(data) != key:
            raise self.damaged_error(f"the content {key.hex()} does not match its digest")
        return data

    def all_blobs(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Yield every blob in order: digest, bytes, kind. Each is checked but for chunk lists, which their users check."""
        for key, place in self.entries:
            data = self._frame(place.frame, place.stored)[place.offset : place.offset + place.length]
            if place.kind != CHUNKS and digest(data) != key:
                raise self.damaged_error(f"the content {key.hex()} does not match its digest")
            yield key, data, place.kind

    def damaged_error(self, what: str) -> Damaged:
        return Damaged(f"{self.path} is damaged: {what}.", UNCHANGED_HINT)

    # The blobs port for `read_index`, with the bundle's pack as its only object

    def size(self, name: str) -> int:
        return self.length

    def read(self, name: str, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0 or offset + length > self.length:
            raise EOFError(name)
        return self._bytes(len(MAGIC) + offset, length)

    # Opening

    def _open(self) -> None:
        size = fstat(self.fd).st_size
        head = pread(self.fd, len(MAGIC), 0)
        if head != MAGIC and head.startswith(FAMILY) and head[6:7].isdigit() and head.endswith(b"\n"):
            raise NewerFormat(f"{self.path} has format {head[6:-1].decode()}; this keepfast supports only 1.")
        if head != MAGIC or size < len(MAGIC) + PACK_TRAILER + TRAILER:
            raise Damaged(f"{self.path} is not a bundle, or it is truncated.", UNCHANGED_HINT)
        tail = self._bytes(size - TRAILER, TRAILER)
        self.length, manifest = unpack("<QQ", tail[:16])
        if tail[48:] != END or self.length + manifest != size - len(MAGIC) - TRAILER or manifest > MAX_MANIFEST:
            raise self.damaged_error("its parts do not match its size")
        if self._digest(size - 40) != tail[16:48]:
            raise self.damaged_error("it does not match its digest")
        self._read_index()
        self._read_manifest(self._bytes(len(MAGIC) + self.length, manifest))

    def _digest(self, length: int) -> bytes:
        total, at = blake3(), 0
        while at < length:
            part = self._bytes(at, min(PART, length - at))
            total.update(part)
            at += len(part)
        return total.digest()

    def _read_index(self) -> None:
        if self.length < PACK_TRAILER:
            raise self.damaged_error("it has no pack")
        trailer = self.read("", self.length - PACK_TRAILER, PACK_TRAILER)
        if unpack("<Q", trailer[16:24])[0] > MAX_BLOBS:
            raise self.damaged_error("its contents exceed the limit of a bundle")
        try:
            _, self.entries, frames = read_index(self, trailer[24:40].hex())  # type: ignore[arg-type]
        except Damaged as error:
            raise self.damaged_error(str(error)) from None
        if any(raw > MAX_FRAME for _, _, raw, _ in frames):
            raise self.damaged_error("a frame exceeds the size limit")
        if any(place.kind not in (CONTENT, CHUNKS, DOCUMENT, SEALED, LIST) for _, place in self.entries):
            raise self.damaged_error("a blob has an unknown kind")
        self.places: dict[bytes, Location] = dict(self.entries)
        if len(self.places) != len(self.entries):
            raise self.damaged_error("a blob is duplicated")
        self._raw = {offset: raw for offset, _, raw, _ in frames}
        self._frames: dict[int, bytes] = {}
        self._whole, self.unpacked = sum(self._raw.values()), 0
        if self._whole > max(MAX_DECOMPRESSED, MAX_RATIO * self.length):
            raise self.damaged_error("its contents are much larger than the bundle")

    def _read_manifest(self, text: bytes) -> None:
        try:
            manifest = loads(text)
            if _number(manifest["v"]) != 1:
                raise NewerFormat(
                    f"{self.path} has a manifest of version {manifest['v']}; this keepfast supports only 1."
                )
            self.workspace, self.folder = _hex(manifest["workspace"], 32), _text(manifest["folder"])
            self.keys = _keys(manifest.get("keys"))
            self.left_out = _count(manifest.get("left_out", 0))
            self.versions = [
                BundledVersion(
                    _number(one["version"]), _id(one["id"]), bytes.fromhex(_hex(one["doc"], 64)), _hex(one["tree"], 64)
                )
                for one in manifest["versions"]
            ]
        except _InvalidMember as error:
            raise self.damaged_error(f"its manifest is invalid: {error}") from None
        except KeyError as error:
            raise self.damaged_error(f"its manifest is invalid: it has no `{error.args[0]}`") from None
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise self.damaged_error("its manifest is invalid") from None
        if not self.versions or len({one.id for one in self.versions}) != len(self.versions):
            raise self.damaged_error("its manifest lists no checkpoint, or one twice")
        if any(one.version >= other.version for one, other in zip(self.versions, self.versions[1:], strict=False)):
            raise self.damaged_error("its versions are not in ascending order")

    def _frame(self, offset: int, stored: int) -> bytes:
        data = self._frames.pop(offset, None)
        if data is None:
            raw = self._raw[offset]
            self.unpacked += raw
            if self.unpacked > MAX_UNPACKED + UNPACKED_FACTOR * self._whole:
                raise self.damaged_error("reading it exceeds the work limit of a bundle")
            try:
                data = decompress(self.read("", offset, stored), raw)
            except Damaged as error:
                raise self.damaged_error(str(error)) from None
            except EOFError:
                raise self.damaged_error("it is truncated") from None
            if len(data) != raw:
                raise self.damaged_error("a frame has the wrong length")
            while self._frames and sum(map(len, self._frames.values())) + raw > FRAMES_KEPT:
                del self._frames[next(iter(self._frames))]
        self._frames[offset] = data
        return data

    def _bytes(self, offset: int, length: int) -> bytes:
        parts = []
        while length > 0:
            part = pread(self.fd, min(length, PART), offset)
            if not part:
                raise self.damaged_error("it was truncated while it was read")
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return b"".join(parts)


class _InvalidMember(ValueError):
    """A member of the manifest is invalid; the text says how."""


def _hex(text: Any, length: int) -> str:
    if not isinstance(text, str) or len(text) != length or not HEX.issuperset(text):
        raise _InvalidMember("a digest or id is invalid")
    return text


def _text(text: Any) -> str:
    if not isinstance(text, str) or len(text) > 4096:
        raise _InvalidMember("a name is invalid")
    return text


def _id(text: Any) -> str:
    if not isinstance(text, str) or len(text) != 29 or not text.startswith("cp-"):
        raise _InvalidMember("an id is invalid")
    if not text.isascii() or not text[3:].isalnum():
        raise _InvalidMember("an id is invalid")
    return text


def _keys(keys: Any) -> Any:
    if keys is not None and not isinstance(keys, dict):
        raise _InvalidMember("its keys are invalid")
    return keys


def _count(number: Any) -> int:
    if type(number) is not int or not 0 <= number < 10**12:
        raise _InvalidMember("a count is not a number")
    return number


def _number(number: Any) -> int:
    if type(number) is not int or not 0 < number < 10**12:
        raise _InvalidMember("a version is not a number")
    return number
