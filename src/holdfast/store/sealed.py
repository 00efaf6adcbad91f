"""Sealed contents: stored bytes that only the holder of a key can read (docs/format/sealed.md)."""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from posix import urandom
from struct import pack, unpack

from blake3 import blake3

from holdfast.core.errors import Damaged, WrongKey
from holdfast.store.digest import digest
from holdfast.store.keys import HINT, Keys, KeySet, cipher, derive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MAGIC = b"HFS1"
HEAD, TAG = 53, 16
RAW, ZSTD = 0, 2
MOST = 64 << 20
"""No sealed blob is larger when it is opened; one that claims more is damage."""
PART = 1 << 20
"""Larger contents are sealed in parts of this size, and a list names them."""
NONCE = bytes(12)
"""Every key of a blob seals that one blob, so one nonce is enough."""
VALUE = b"HFV1"
SHOWN = "encrypted:"


class Sealer(Keys):
    """Seals and opens contents of one store."""

    # Contents

    def seal(self, data: bytes, squeeze: bool = False) -> bytes:
        """Return the sealed form. Equal contents have equal forms, unless `squeeze`d by different compressors."""
        codec, body = RAW, data
        if squeeze:
            from holdfast.store.compressing import compress

            codec, body = ZSTD, compress(data, 3)
        return _seal(self._sealing(), codec, body, len(data))

    def open(self, sealed: bytes) -> bytes:
        """Return the content. Raises `WrongKey` if its key is not at hand, `Damaged` if it is not what was sealed."""
        head, length = sealed[:HEAD], length_of(sealed)
        keys = self._opening().get(head[5:13])
        if keys is None:
            raise WrongKey(f"This content is sealed with the key {head[5:13].hex()}, which is not at hand.", HINT)
        from cryptography.exceptions import InvalidTag

        try:
            body: bytes = cipher(blake3(head[21:], key=keys.data).digest()).decrypt(NONCE, sealed[HEAD:], head)
        except InvalidTag:
            raise Damaged("A sealed content is not what was sealed: it was changed, or its key was.") from None
        if head[4] == ZSTD:
            from holdfast.store.packs import decompress

            body = decompress(bytes([ZSTD]) + body, length)
        if len(body) != length:
            raise Damaged("A sealed content has another length than it says.")
        return body

    def opens(self, sealed: bytes) -> bool:
        """Is the key for this one at hand?"""
        return len(sealed) > HEAD and sealed[5:13] in self._opening()

    def parts(
        self,
        read: Callable[[int], bytes],
        keep: Callable[[bytes, bytes, bool], None],
        known: Callable[[bytes], bool] | None = None,
    ) -> bytes:
        """Seal a stream in parts and return its id; `keep(id, bytes, is_list)` gets everything that is to be stored.

        A content that is `known` under another key set, which came with a bundle, keeps the id that it has there.
        """
        ids: list[bytes] = []
        while True:
            part = _filled(read, PART)
            if part or not ids:
                sealed = self.seal(part)
                if not ids and len(part) < PART and known is not None:
                    sealed = next((form for form in self._forms(part) if known(digest(form))), sealed)
                ids.append(digest(sealed))
                keep(ids[-1], sealed, False)
            if len(part) < PART:
                break
        if len(ids) == 1:
            return ids[0]
        names = b"".join(ids)
        keep(digest(names), names, True)
        return digest(names)

    def ids_of(self, read: Callable[[int], bytes]) -> list[bytes]:
        """The ids that a content has, or would have, when it is sealed. Nothing is stored, and no key is made."""
        if not self.is_ready():
            return []
        first = _filled(read, PART)
        if len(first) < PART:
            return [digest(form) for form in self._forms(first)]
        held = [first]
        return [self.parts(lambda most: held.pop() if held else read(most), lambda *_: None)]

    def _forms(self, content: bytes) -> list[bytes]:
        """A content as each key set at hand seals it, the one in use first."""
        current = self._sealing()
        others = [keys for keys in self._opening().values() if keys is not current]
        return [_seal(keys, RAW, content, len(content)) for keys in (current, *others)]

    def proof(self, content: bytes) -> bytes:
        """A digest that only holders of the key can make: it shows whether a content is still the same, and nothing else."""
        return blake3(content, key=derive("holdfast 2026 key for proofs", self._sealing().master)).digest()

    # Values with a name: what an agent's environment holds

    def seal_value(self, name: str, value: bytes) -> str:
        """Return a text that shows nothing of the value, not even whether two are equal."""
        keys, nonce = self._sealing(), urandom(12)
        box = cipher(keys.values).encrypt(nonce, value, name.encode("utf-8", "surrogateescape"))
        return SHOWN + b2a_base64(VALUE + keys.id + nonce + box, newline=False).decode("ascii")

    def open_value(self, name: str, text: str) -> bytes:
        """Return the value. Raises `WrongKey`, and `Damaged` if the text was changed or belongs to another name."""
        from cryptography.exceptions import InvalidTag

        try:
            if not text.startswith(SHOWN):
                raise ValueError
            raw = a2b_base64(text[len(SHOWN) :], strict_mode=True)
            if raw[:4] != VALUE or len(raw) < 24 + TAG:
                raise ValueError
        except ValueError:
            raise Damaged(f"The sealed value of {name} is none.") from None
        keys = self._opening().get(raw[4:12])
        if keys is None:
            raise WrongKey(f"The value of {name} is sealed with the key {raw[4:12].hex()}, which is not at hand.", HINT)
        try:
            value: bytes = cipher(keys.values).decrypt(raw[12:24], raw[24:], name.encode("utf-8", "surrogateescape"))
        except InvalidTag:
            raise Damaged(f"The sealed value of {name} was changed, or belongs to another name.") from None
        return value


def _seal(keys: KeySet, codec: int, body: bytes, length: int) -> bytes:
    # The name is a keyed digest of the very bytes that are encrypted, and the key of this blob follows from it: two
    # different bodies never meet the same key and nonce.
    name = blake3(bytes([codec]) + body, key=keys.names).digest()
    head = MAGIC + bytes([codec]) + keys.id + pack("<Q", length) + name
    sealed: bytes = cipher(blake3(name, key=keys.data).digest()).encrypt(NONCE, body, head)
    return head + sealed


def length_of(sealed: bytes) -> int:
    """How long the content is when it is opened; needs no key. Raises `Damaged` if these bytes are no sealed content."""
    if sealed[:4] != MAGIC or len(sealed) < HEAD + TAG or sealed[4] not in (RAW, ZSTD):
        raise Damaged("A sealed content does not begin like one.")
    length: int = unpack("<Q", sealed[13:21])[0]
    if length > MOST or (sealed[4] == RAW and length != len(sealed) - HEAD - TAG):
        raise Damaged("A sealed content has another length than it says.")
    return length


def _filled(read: Callable[[int], bytes], size: int) -> bytes:
    """So many bytes, fewer only at the end: one call may return less than it was asked for."""
    parts: list[bytes] = []
    while size:
        part = read(size)
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
