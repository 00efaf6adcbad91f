"""Encrypt and decrypt sealed contents and values (docs/format/sealed.md)."""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterator
from os import urandom
from struct import pack, unpack

from blake3 import blake3

from keepfast.model.errors import Damaged, WrongKey
from keepfast.model.frozen import PROOFS
from keepfast.store.compression import compress
from keepfast.store.digest import digest
from keepfast.store.keys import IMPORT_KEY_HINT, Keys, KeySet, cipher, derive
from keepfast.store.packs import decompress

MAGIC = b"HFS1"
HEAD, TAG = 53, 16
RAW, ZSTD = 0, 2
MAX_SEALED = 64 << 20
"""The largest content of one sealed blob; one that claims more is damaged."""
PART = 1 << 20
"""Larger contents are sealed in parts of this size, and a list names them."""
NONCE = bytes(12)
"""Each blob has a key of its own, so one nonce is enough."""
VALUE = b"HFV1"
VALUE_PREFIX = "encrypted:"


class Sealer:
    """Encrypts and decrypts contents of one store with its keys."""

    def __init__(self, store: str, folder: str, durable: bool = True) -> None:
        self.keys = Keys(store, folder, durable)

    # Contents

    def seal(self, data: bytes, compressed: bool = False) -> bytes:
        """Return the sealed form. Equal contents have equal forms, unless `compressed` by different versions of the compressor."""
        codec, body = RAW, data
        if compressed:
            codec, body = ZSTD, compress(data, 3)
        return _seal(self.keys.current(), codec, body, len(data))

    def open(self, sealed: bytes) -> bytes:
        """Return the content. Raises `WrongKey` if its key is missing, `Damaged` if the sealed bytes were changed."""
        head, length = sealed[:HEAD], length_of(sealed)
        keys = self.keys.find(head[5:13])
        if keys is None:
            raise WrongKey(
                f"This content is sealed with the key {head[5:13].hex()}, which is missing.", IMPORT_KEY_HINT
            )
        from cryptography.exceptions import InvalidTag

        try:
            body: bytes = cipher(blake3(head[21:], key=keys.data).digest()).decrypt(NONCE, sealed[HEAD:], head)
        except InvalidTag:
            raise Damaged("A sealed content or its key was changed.") from None
        if head[4] == ZSTD:
            body = decompress(bytes([ZSTD]) + body, length)
        if len(body) != length:
            raise Damaged("A sealed content has the wrong length.")
        return body

    def opens(self, sealed: bytes) -> bool:
        """Return whether the key of this sealed blob is present."""
        return len(sealed) >= 13 and self.keys.find(sealed[5:13]) is not None

    def seal_stream(
        self,
        read: Callable[[int], bytes],
        keep: Callable[[bytes, bytes, bool], None],
        is_stored: Callable[[bytes], bool] | None = None,
    ) -> bytes:
        """Seal a stream in parts and return its id; `keep(id, bytes, is_list)` is called with everything to be stored.

        A part that is stored under another key set, from before a rotation or from a bundle, keeps its id there: only new
        parts are sealed with the current set.
        """
        ids: list[bytes] = []
        for part in _parts(read):
            sealed = self._existing_form(part, is_stored)
            ids.append(digest(sealed))
            keep(ids[-1], sealed, False)
        if len(ids) == 1:
            return ids[0]
        names = b"".join(ids)
        keep(digest(names), names, True)
        return digest(names)

    def _existing_form(self, part: bytes, is_stored: Callable[[bytes], bool] | None) -> bytes:
        current = self.keys.current()
        sealed, others = _seal(current, RAW, part, len(part)), self.keys.all()[1:]
        if is_stored is None or not others or is_stored(digest(sealed)):
            return sealed
        forms = (_seal(keys, RAW, part, len(part)) for keys in others)
        return next((form for form in forms if is_stored(digest(form))), sealed)

    def ids_of(self, read: Callable[[int], bytes], is_stored: Callable[[bytes], bool] | None = None) -> list[bytes]:
        """Return the ids that a content has, or would have, when it is sealed. Nothing is stored, and no key is made.

        First the id that `seal_stream` would return, then those under each key set that is here.
        """
        return self.forms_of(read, lambda *_: None, is_stored)

    def forms_of(
        self,
        read: Callable[[int], bytes],
        take: Callable[[bytes, bytes, bool], None],
        is_stored: Callable[[bytes], bool] | None = None,
    ) -> list[bytes]:
        """Return the same as `ids_of`; `take(id, bytes, is_list)` is called with all forms of all parts and all lists."""
        sets = self.keys.all()
        if not sets:
            return []
        chosen: list[bytes] = []
        every: list[list[bytes]] = [[] for _ in sets]
        for part in _parts(read):
            for keys, ids in zip(sets, every, strict=True):
                sealed = _seal(keys, RAW, part, len(part))
                ids.append(digest(sealed))
                take(ids[-1], sealed, False)
            forms = [ids[-1] for ids in every]
            chosen.append(
                next((form for form in forms if len(forms) > 1 and is_stored is not None and is_stored(form)), forms[0])
            )
        if len(chosen) == 1:
            return list(dict.fromkeys([*chosen, *[ids[0] for ids in every]]))
        lists = [b"".join(ids) for ids in (chosen, *every)]
        for names in lists:
            take(digest(names), names, True)
        return list(dict.fromkeys([digest(names) for names in lists]))

    def proofs(self, content: bytes) -> list[bytes]:
        """Return keyed digests of a content, the current key set's first; they show whether it is unchanged."""
        self.keys.current()
        return [blake3(content, key=derive(PROOFS, keys.master)).digest() for keys in self.keys.all()]

    # Named values: variables of an agent's environment

    def seal_value(self, name: str, value: bytes) -> str:
        """Return the encrypted value as text. It reveals nothing, not even whether two values are equal."""
        keys, nonce = self.keys.current(), urandom(12)
        box = cipher(keys.values).encrypt(nonce, value, name.encode("utf-8", "surrogateescape"))
        return VALUE_PREFIX + b2a_base64(VALUE + keys.id + nonce + box, newline=False).decode("ascii")

    def open_value(self, name: str, text: str) -> bytes:
        """Return the value. Raises `WrongKey`, and `Damaged` if the text was changed or belongs to another name."""
        from cryptography.exceptions import InvalidTag

        try:
            if not text.startswith(VALUE_PREFIX):
                raise ValueError
            raw = a2b_base64(text[len(VALUE_PREFIX) :], strict_mode=True)
            if raw[:4] != VALUE or len(raw) < 24 + TAG:
                raise ValueError
        except ValueError:
            raise Damaged(f"The sealed value of {name} is invalid.") from None
        keys = self.keys.find(raw[4:12])
        if keys is None:
            raise WrongKey(
                f"The value of {name} is sealed with the key {raw[4:12].hex()}, which is missing.", IMPORT_KEY_HINT
            )
        try:
            value: bytes = cipher(keys.values).decrypt(raw[12:24], raw[24:], name.encode("utf-8", "surrogateescape"))
        except InvalidTag:
            raise Damaged(f"The sealed value of {name} was changed, or belongs to another name.") from None
        return value


def _seal(keys: KeySet, codec: int, body: bytes, length: int) -> bytes:
    # The name is a keyed digest of the plain bytes, and the blob's key is derived from it: two different bodies never
    # share a key and nonce.
    name = blake3(bytes([codec]) + body, key=keys.names).digest()
    head = MAGIC + bytes([codec]) + keys.id + pack("<Q", length) + name
    sealed: bytes = cipher(blake3(name, key=keys.data).digest()).encrypt(NONCE, body, head)
    return head + sealed


def length_of(sealed: bytes) -> int:
    """Return the length of the content; needs no key. Raises `Damaged` if these bytes are not a sealed content."""
    if sealed[:4] != MAGIC or len(sealed) < HEAD + TAG or sealed[4] not in (RAW, ZSTD):
        raise Damaged("A sealed content has an invalid header.")
    length: int = unpack("<Q", sealed[13:21])[0]
    if length > MAX_SEALED or (sealed[4] == RAW and length != len(sealed) - HEAD - TAG):
        raise Damaged("A sealed content has the wrong length.")
    return length


def _parts(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """Yield a stream in parts; an empty stream has one empty part."""
    part = _read_fully(read, PART)
    yield part
    while len(part) == PART:
        part = _read_fully(read, PART)
        if part:
            yield part


def _read_fully(read: Callable[[int], bytes], size: int) -> bytes:
    """Return `size` bytes, fewer only at the end: one call of `read` may return less."""
    parts: list[bytes] = []
    while size:
        part = read(size)
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
