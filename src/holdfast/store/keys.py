"""The keys of a store: key sets that seal contents, the key file that opens them, backups (docs/format/sealed.md)."""

from __future__ import annotations

from errno import EACCES, ENOENT, ENOTDIR
from posix import fchmod, fstat, geteuid, listdir, rename, urandom

from blake3 import blake3

from holdfast.core.errors import Damaged, Failed, HoldfastError, Usage, WrongKey
from holdfast.core.light_json import dumps, loads
from holdfast.core.steps import step
from holdfast.store.digest import digest
from holdfast.store.local import Lock, explain, make_folder, replace
from holdfast.store.place import store_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BACKUP = "holdfast keys"
COSTS = 1 << 16, 8, 1
"""Of scrypt: a tenth of a second and 64 MB for each passphrase that somebody tries."""
HINT = "`holdfast key import FILE` brings back a key from its backup; everything that is not sealed opens without."


class KeySet:
    """The keys that contents are sealed with: made once from 32 random bytes, never changed."""

    __slots__ = ("data", "id", "master", "names", "values")

    def __init__(self, master: bytes) -> None:
        self.master = master
        self.id = derive("holdfast 2026 key set id", master)[:8]
        self.names = derive("holdfast 2026 key for synthetic names", master)
        self.data = derive("holdfast 2026 key for contents", master)
        self.values = derive("holdfast 2026 key for named values", master)


class Keys:
    """The keys of one store, looked for, or made, when they are first needed."""

    def __init__(self, store: str, keys: str, durable: bool = True) -> None:
        self.store, self.folder, self.durable = store, keys, durable
        self._sets: dict[bytes, KeySet] | None = None
        self._current: KeySet | None = None
        self._found = ""
        self.was_made = False
        """Was a new key made although this store has sealed contents already? Then those no longer open."""

    @property
    def key_file(self) -> str:
        return f"{self.folder}/{store_id(self.store)}.key"

    def key_in_use(self) -> str:
        """The file whose key opens what there is: under the store's id, unless that was lost and written anew."""
        self._opening()
        return self._found or self.key_file

    @property
    def seal_file(self) -> str:
        return self.store + "/seal"

    def is_in_use(self) -> bool:
        """Has this store ever sealed anything?"""
        return self._seal_text() is not None

    def is_ready(self) -> bool:
        """Is there a key to seal with, so that none need be made?"""
        self._opening()
        return self._current is not None

    def sets(self) -> list[tuple[str, bool]]:
        """Ids of all key sets of the store, and whether each can be opened."""
        known = [entry["id"] for entry in self._wraps()]
        opened = self._opening()
        return [(one, bytes.fromhex(one) in opened) for one in known]

    def is_backed_up(self) -> bool:
        """Was a backup made of every key set there is now?"""
        text = _read(self._backed_up) or b""
        return {one.encode("ascii") for one, _ in self.sets()} <= set(text.split())

    def note_backup(self) -> None:
        text = " ".join(one for one, opens in self.sets() if opens) + "\n"
        replace(self._backed_up, text.encode("ascii"), durable=False)

    def problem(self) -> str:
        """What is wrong with the store's part of the keys, in words; empty if nothing is."""
        if _read(self.seal_file) is None:
            return "" if _read(self._copy) is None else "The file with the sealed keys is missing"
        return "" if _checked(_read(self.seal_file)) is not None else "The file with the sealed keys is damaged"

    def heal(self) -> bool:
        """Write the store's part again from the copy beside the key. True if that was possible."""
        text = _checked(_read(self._copy))
        if text is None:
            return False
        self._put(self.seal_file, text)
        return True

    def rotate(self) -> str:
        """Wrap all keys with a new one, and let go of the old one. Contents stay as they are. Returns the new one's id.

        Killed at any point, either the old key file opens everything or the new one does.
        """
        with self._lock():
            self._load()
            opened = self._opening()
            if not opened:
                raise Failed("There is no key yet that could be rotated.", "The first sealed content makes one.")
            new = urandom(32)
            entries = self._wraps()
            both = [
                {**one, "wraps": [*one["wraps"], _wrap(new, opened[bytes.fromhex(one["id"])])]}
                if bytes.fromhex(one["id"]) in opened
                else one
                for one in entries
            ]
            self._write_seal(both)
            step("key:wrapped")
            self._write_key(new)
            step("key:replaced")
            mine = _key_id(new)
            self._write_seal(
                [
                    {**one, "wraps": [wrap for wrap in one["wraps"] if wrap["key"] == mine]}
                    if bytes.fromhex(one["id"]) in opened
                    else one
                    for one in both
                ]
            )
            self._sets = None
            return mine

    def backup(self, passphrase: str) -> dict[str, Any]:
        """All keys at hand, under a passphrase: for a backup file, or for a bundle."""
        if not passphrase:
            raise Usage("An empty passphrase protects nothing.", "Give a longer one.")
        opened = self._opening()
        if not opened:
            raise WrongKey("There is no key at hand.", HINT)
        salt, (cost, block, parallel) = urandom(16), COSTS
        nonce = urandom(12)
        masters = b"".join([keys.master for keys in opened.values()])
        box = cipher(_stretch(passphrase, salt, cost, block, parallel)).encrypt(nonce, masters, BACKUP.encode("ascii"))
        return {
            "what": BACKUP, "v": 1, "kdf": "scrypt", "salt": salt.hex(), "n": cost, "r": block, "p": parallel,
            "box": (nonce + box).hex(),
        }  # fmt: skip

    def admit(self, backup: object, passphrase: str) -> int:
        """Take keys over from a backup; return how many are new here. Raises `WrongKey` for another passphrase."""
        masters = unlock(backup, passphrase)
        with self._lock():
            self._load()
            opened = dict(self._opening())
            new = [keys for keys in map(KeySet, masters) if keys.id not in opened]
            if new:
                wrapping, entries = self._wrapping_key(), self._wraps()
                for keys in new:
                    entries = [one for one in entries if one["id"] != keys.id.hex()]
                    entries.append({"id": keys.id.hex(), "wraps": [_wrap(wrapping, keys)]})
                self._write_seal(entries)
            self._sets = None
            return len(new)

    # Private parts

    @property
    def _backed_up(self) -> str:
        return self.key_file + ".backed-up"

    @property
    def _copy(self) -> str:
        return f"{self.folder}/{store_id(self.store)}.seal"

    def _sealing(self) -> KeySet:
        """The keys for new contents; made if there are none that open."""
        if self._current is None:
            self._opening()
        if self._current is None:
            try:
                with self._lock():
                    self._load()
                    if self._current is None:
                        self._make()
            except OSError as error:
                raise explain(error, "Making a key", self.folder) from None
        assert self._current is not None
        return self._current

    def _opening(self) -> dict[bytes, KeySet]:
        if self._sets is None:
            self._load()
        assert self._sets is not None
        return self._sets

    def _make(self) -> None:
        """A new set of keys: nothing at hand opens what there is, and new contents must be sealed all the same."""
        entries = self._wraps()
        self.was_made = bool(entries)
        keys = KeySet(urandom(32))
        wrapping = self._wrapping_key()
        self._write_seal([{"id": keys.id.hex(), "wraps": [_wrap(wrapping, keys)]}, *entries])
        self._load()

    def _load(self) -> None:
        sets, self._found = self._opened_by(self.key_file), ""
        # The key lies under the store's id. Where the file with that id was damaged or written anew, the key is still
        # there under another name, and what is sealed must not be lost for that.
        for path in self._other_keys():
            if sets and len(sets) == len(self._wraps()):
                break
            others = self._opened_by(path)
            self._found = path if others and not sets else self._found
            sets = {**others, **sets}
        order = [bytes.fromhex(one["id"]) for one in self._wraps()] if sets else []
        self._sets, self._current = sets, next((sets[one] for one in order if one in sets), None)

    def _opened_by(self, path: str) -> dict[bytes, KeySet]:
        wrapping = _key_in(_read(path))
        if wrapping is None:
            return {}
        wraps = [(wrap, entry["id"]) for entry in self._wraps() for wrap in entry["wraps"]]
        opened = [_unwrap(wrapping, wrap, name) for wrap, name in wraps]
        return {keys.id: keys for keys in opened if keys is not None}

    def _other_keys(self) -> list[str]:
        try:
            names = sorted(listdir(self.folder))
        except OSError:
            return []
        own = self.key_file.rpartition("/")[2]
        return [f"{self.folder}/{name}" for name in names if name.endswith(".key") and name != own]

    def _wraps(self) -> list[dict[str, Any]]:
        text = self._seal_text()
        return list(loads(text)["sets"]) if text is not None else []

    def _seal_text(self) -> bytes | None:
        """The store's part; its copy beside the key if that is lost or damaged. Raises `Damaged` if both are."""
        texts = [_read(self.seal_file), _read(self._copy)]
        for text in texts:
            checked = _checked(text)
            if checked is not None:
                return checked
        if any(text is not None for text in texts):
            raise Damaged(f"{self.seal_file} is damaged, and so is its copy.", HINT)
        return None

    def _wrapping_key(self) -> bytes:
        """The key in the key file; a new one if there is none, or none that is one."""
        text = _read(self.key_file)
        key = _key_in(text)
        if key is None:
            if text is not None:
                rename(self.key_file, f"{self.key_file}.damaged-{urandom(4).hex()}")
            key = urandom(32)
            self._write_key(key)
        return key

    def _write_key(self, key: bytes) -> None:
        text = f"holdfast key\nversion 1\nstore {store_id(self.store)}\nkey {key.hex()}\n"
        replace(self.key_file, text.encode("ascii"), self.durable)

    def _write_seal(self, entries: list[dict[str, Any]]) -> None:
        text = dumps({"v": 1, "sets": entries}).encode("ascii")
        # The copy first: what was sealed with a key must open when either of both files is there.
        self._put(self._copy, text)
        self._put(self.seal_file, text)

    def _put(self, path: str, text: bytes) -> None:
        growing = self.store + "/tmp" if path == self.seal_file else ""
        replace(path, text + b"\n" + digest(text).hex().encode("ascii") + b"\n", self.durable, growing)

    def _lock(self) -> Lock:
        folder = self.folder
        missing = []
        while folder and _read(folder) is None:
            missing.append(folder)
            folder = folder.rpartition("/")[0]
        for path in reversed(missing):
            make_folder(path)
        return Lock(self.folder + "/lock")


def unlock(backup: object, passphrase: str) -> list[bytes]:
    """The masters in a backup. Raises `WrongKey` for another passphrase, `Damaged` if it is no backup."""
    from cryptography.exceptions import InvalidTag

    try:
        if not isinstance(backup, dict) or backup["what"] != BACKUP or backup["v"] != 1 or backup["kdf"] != "scrypt":
            raise ValueError
        costs = backup["n"], backup["r"], backup["p"]
        # Somebody else wrote this: it must not make us ask for all memory there is.
        if costs[0] not in [1 << shift for shift in range(10, 21)] or not 0 < costs[1] <= 16 or not 0 < costs[2] <= 4:
            raise ValueError
        salt, box = bytes.fromhex(backup["salt"]), bytes.fromhex(backup["box"])
    except (ValueError, KeyError, TypeError):
        raise Damaged("This is no backup of keys, or it is damaged.", "Take another copy of it.") from None
    try:
        masters = cipher(_stretch(passphrase, salt, *costs)).decrypt(box[:12], box[12:], BACKUP.encode("ascii"))
    except InvalidTag:
        raise WrongKey("That is not the passphrase of these keys.", "Try again.") from None
    return [masters[at : at + 32] for at in range(0, len(masters), 32)]


def _stretch(passphrase: str, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return Scrypt(salt=salt, length=32, n=cost, r=block, p=parallel).derive(passphrase.encode("utf-8"))


def cipher(key: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def derive(purpose: str, master: bytes) -> bytes:
    return blake3(master, derive_key_context=purpose).digest()


def _key_id(key: bytes) -> str:
    return derive("holdfast 2026 id of a wrapping key", key)[:8].hex()


def _wrap(wrapping: bytes, keys: KeySet) -> dict[str, str]:
    nonce = urandom(12)
    box = cipher(wrapping).encrypt(nonce, keys.master, keys.id)
    return {"key": _key_id(wrapping), "box": (nonce + box).hex()}


def _unwrap(wrapping: bytes, wrap: dict[str, str], name: str) -> KeySet | None:
    if wrap["key"] != _key_id(wrapping):
        return None
    from cryptography.exceptions import InvalidTag

    box = bytes.fromhex(wrap["box"])
    try:
        return KeySet(cipher(wrapping).decrypt(box[:12], box[12:], bytes.fromhex(name)))
    except InvalidTag:
        return None


def _key_in(text: bytes | None) -> bytes | None:
    """The key in a key file; None if there is none, or the file is damaged."""
    if text is None:
        return None
    lines = text.decode("ascii", "replace").split("\n")
    if lines[:2] != ["holdfast key", "version 1"] or len(lines) < 4 or not lines[3].startswith("key "):
        return None
    try:
        key = bytes.fromhex(lines[3][4:])
    except ValueError:
        return None
    return key if len(key) == 32 else None


def _checked(text: bytes | None) -> bytes | None:
    """The text, if it matches the digest in its last line and makes sense."""
    body, _, said = (text or b"").rstrip(b"\n").rpartition(b"\n")
    if not body or digest(body).hex().encode("ascii") != said:
        return None
    try:
        content = loads(body)
        good = content["v"] == 1 and all(
            len(bytes.fromhex(one["id"])) == 8 and all(bytes.fromhex(wrap["box"]) for wrap in one["wraps"])
            for one in content["sets"]
        )
    except (ValueError, KeyError, TypeError, HoldfastError):
        return None
    return body if good else None


def _read(path: str) -> bytes | None:
    """The file's bytes; of a folder none. None if nothing is there."""
    try:
        with open(path, "rb") as file:
            seen = fstat(file.fileno())
            if path.endswith(".key") and seen.st_mode & 0o077 and seen.st_uid == geteuid():
                fchmod(file.fileno(), 0o600)  # whoever copied it back did not mean it for everybody
            return file.read(1 << 20)
    except IsADirectoryError:
        return b""
    except OSError as error:
        if error.errno in (ENOENT, ENOTDIR):
            return None
        if error.errno == EACCES:
            raise WrongKey(f"{path} may not be read.", "Check who owns it.") from None
        raise
