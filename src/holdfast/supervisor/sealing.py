"""Keys of the supervisor: sealing named values with AES-256-GCM, and a code that shows whether a document is ours."""

from __future__ import annotations

import hmac
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256

from holdfast.core.errors import Damaged, Failed

SHOWN = "encrypted:"


class FileKey:
    """32 random bytes in a file that only its owner can read; made when first needed."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._key: bytes | None = None

    def seal_value(self, name: str, value: bytes) -> str:
        """Return a text that shows nothing of the value."""
        nonce = os.urandom(12)
        box = _cipher(self._derived("values")).encrypt(nonce, value, name.encode())
        return SHOWN + urlsafe_b64encode(nonce + box).decode()

    def open_value(self, name: str, text: str) -> bytes:
        """Return the value. Raises `Damaged` if it was changed, or sealed by another key or for another name."""
        from cryptography.exceptions import InvalidTag

        try:
            raw = urlsafe_b64decode(text.removeprefix(SHOWN))
            return bytes(_cipher(self._derived("values")).decrypt(raw[:12], raw[12:], name.encode()))
        except (ValueError, InvalidTag):
            raise Damaged(f"The sealed value of {name} cannot be opened.", "Give it again.") from None

    def code(self, text: bytes) -> str:
        """The authentication code of a document."""
        return hmac.new(self._derived("documents"), text, sha256).hexdigest()

    def is_ours(self, text: bytes, code: object) -> bool:
        return isinstance(code, str) and hmac.compare_digest(self.code(text), code)

    def _derived(self, purpose: str) -> bytes:
        return hmac.new(self._read(), b"holdfast supervisor " + purpose.encode(), sha256).digest()

    def _read(self) -> bytes:
        if self._key is not None:
            return self._key
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        if not os.path.exists(self.path):
            fresh = f"{self.path}.{os.getpid()}"
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.write(fd, os.urandom(32).hex().encode() + b"\n")
            os.fsync(fd)
            os.close(fd)
            try:
                os.link(fresh, self.path)  # whoever comes second takes the key of the first
            except FileExistsError:
                pass
            os.unlink(fresh)
        with open(self.path, "rb") as file:
            text = file.read().strip()
        try:
            self._key = bytes.fromhex(text.decode())
        except ValueError:
            self._key = b""
        if len(self._key) != 32:
            self._key = None
            raise Failed(
                f"The key file {self.path} is damaged.",
                "Bring it back from a backup, or move it away and give secrets again.",
            )
        return self._key


def _cipher(key: bytes):  # type: ignore[no-untyped-def]
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)
