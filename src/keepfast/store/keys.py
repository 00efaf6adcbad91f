"""The keys of a store: key sets that encrypt contents, key files that open the sets, backups (docs/format/sealed.md)."""

from __future__ import annotations

from collections.abc import Callable
from errno import EACCES, ENOENT, ENOTDIR
from os import fchmod, fstat, geteuid, listdir, stat, unlink, urandom
from types import TracebackType
from typing import Any

from blake3 import blake3

from keepfast.fsutil.durable import Lock, explain, make_folder, replace, sync_folder
from keepfast.model import frozen
from keepfast.model.errors import Damaged, Failed, KeepfastError, WrongKey
from keepfast.model.steps import step
from keepfast.model.strict_json import dumps, loads
from keepfast.secrets.strength import require_strong
from keepfast.store.digest import digest
from keepfast.store.small_files import store_id

Entry = dict[str, Any]

SCRYPT_COSTS = 1 << 16, 8, 1
"""Parameters of scrypt: a tenth of a second and 64 MB for each guess of a passphrase."""
LOAD_ATTEMPTS = 50
IMPORT_KEY_HINT = "Run `keepfast key import FILE` with the backup of the key. Contents that are not sealed need no key."


class KeySet:
    """The keys that encrypt contents, derived from 32 random bytes; they never change."""

    __slots__ = ("data", "id", "master", "names", "values")

    def __init__(self, master: bytes) -> None:
        self.master = master
        self.id = derive(frozen.SET_ID, master)[:8]
        self.names = derive(frozen.SYNTHETIC_NAMES, master)
        self.data = derive(frozen.CONTENTS, master)
        self.values = derive(frozen.NAMED_VALUES, master)


class Keys:
    """The keys of one store, read, or created, when they are first needed.

    The newest key set seals new contents; sets before a rotation only open. Every key file has a name of its own, and
    beside it lies a copy of the store's seal file: restoring an old file or folder never overwrites a newer key.
    """

    def __init__(self, store: str, keys: str, durable: bool = True) -> None:
        self.store, self.folder, self.durable = store, keys, durable
        self._sets: dict[bytes, KeySet] | None = None
        self._current: KeySet | None = None
        self._entries: list[Entry] = []
        self._files: dict[str, list[str]] = {}
        self._current_file, self._current_key = "", b""
        self._loaded_signature: object = None
        self._are_copies_synced = False
        self.made_new_key = False
        """Whether a new key was made although the store has contents that no key here opens."""

    def key_in_use(self) -> str:
        """Return the path of the key file for new contents; empty if there is none yet."""
        self._refresh()
        return self._current_file

    def key_files(self) -> dict[str, list[str]]:
        """Return the key files of this store with the ids of the sets that each opens."""
        self._refresh()
        return dict(self._files)

    @property
    def seal_file(self) -> str:
        return self.store + "/seal"

    def is_in_use(self) -> bool:
        """Return whether this store has any key set."""
        return bool(self._read_entries())

    def is_ready(self) -> bool:
        """Return whether there is a key to seal with."""
        self._refresh()
        return self._current is not None

    def sets(self) -> list[tuple[str, bool]]:
        """Return the ids of all key sets of the store, and whether the key of each is here."""
        opened = self._refresh()
        return [(entry["id"], bytes.fromhex(entry["id"]) in opened) for entry in self._entries]

    def seals_with(self) -> str:
        """Return the id of the set that seals new contents; empty if there is none yet."""
        self._refresh()
        return self._current.id.hex() if self._current is not None else ""

    def is_backed_up(self) -> bool:
        """Return whether a backup includes every present key set."""
        text = _read(self._backup_note) or b""
        return {set_id.encode("ascii") for set_id, _ in self.sets()} <= set(text.split())

    def note_backup(self) -> None:
        text = " ".join(set_id for set_id, opens in self.sets() if opens) + "\n"
        replace(self._backup_note, text.encode("ascii"), durable=False)

    def problem(self) -> str:
        """Return what is wrong with the store's seal file, as text; empty if nothing is."""
        text = _read(self.seal_file)
        if text is None:
            return "The file with the sealed keys is missing" if self._copies() else ""
        return "" if _verified_body(text) is not None else "The file with the sealed keys is damaged"

    def restore_seal_file(self) -> bool:
        """Rewrite the store's seal file from the copies beside the keys. False if there is no good copy."""
        if not any(_verified_body(_read(path)) is not None for path in self._copies()):
            return False
        self._load()
        self._write_entries(self.seal_file, self._entries, self.durable)
        return True

    def rotate(self) -> str:
        """Make a new key set under a new key, and remove the old key files. Return the new set's id.

        The new key opens the older sets too; contents are not sealed again. If this is killed at any point, the key files
        that remain open everything.
        """
        try:
            with self._lock():
                self.require_key()
                return self._rotate()
        except OSError as error:
            raise explain(error, "Rotating the key", self.folder) from None

    def require_key(self) -> None:
        """Raise `Failed` if there is no key yet that could be rotated."""
        if not self._load():
            raise Failed("There is no key to rotate yet.", "The key is created with the first sealed content.")

    def backup(self, passphrase: str) -> dict[str, Any]:
        """Return all keys that are here, encrypted with a passphrase, for a backup file or a bundle.

        Raises `Usage` if the passphrase is weak.
        """
        require_strong(passphrase)
        opened = self._refresh()
        if not opened:
            raise WrongKey("No key found.", IMPORT_KEY_HINT)
        salt, (cost, block, parallel) = urandom(16), SCRYPT_COSTS
        nonce = urandom(12)
        masters = b"".join([keys.master for keys in self.all()])
        box = cipher(_stretch(passphrase, salt, cost, block, parallel)).encrypt(
            nonce, masters, frozen.KEY_BACKUP.encode("ascii")
        )
        return {
            "what": frozen.KEY_BACKUP, "v": 1, "kdf": "scrypt", "salt": salt.hex(), "n": cost, "r": block, "p": parallel,
            "box": (nonce + box).hex(),
        }  # fmt: skip

    def import_backup(self, backup: object, passphrase: str) -> int:
        """Import the keys in a backup; return how many are new here. Raises `WrongKey` if the passphrase is wrong.

        Sets of this store can seal again; sets of other stores only open contents that came from there.
        """
        masters = open_backup(backup, passphrase)
        try:
            with self._lock():
                opened = self._load()
                new = [keys for keys in map(KeySet, masters) if keys.id not in opened]
                if new:
                    self._add_sets(new)
                return len(new)
        except OSError as error:
            raise explain(error, "Importing keys", self.folder) from None

    def current(self) -> KeySet:
        """Return the set that seals new contents; make one if no set can be opened."""
        self._refresh()
        if self._current is not None and not self._are_copies_synced:
            self._sync_copies()
        if self._current is None:
            try:
                with self._lock():
                    self._load()
                    if self._current is None:
                        self._make_key()
            except OSError as error:
                raise explain(error, "Creating a key", self.folder) from None
        assert self._current is not None
        return self._current

    def find(self, set_id: bytes) -> KeySet | None:
        """Return the set with this id, or None if its key is not here. Rereads the key files if the id is unknown."""
        keys = self._sets.get(set_id) if self._sets is not None else None
        return keys if keys is not None else self._refresh().get(set_id)

    def all(self) -> list[KeySet]:
        """Return every set whose key is here, the current one first."""
        opened, current = self._refresh(), self._current
        others = [keys for keys in opened.values() if current is None or keys.id != current.id]
        return others if current is None else [current, *others]

    # Private parts

    @property
    def _backup_note(self) -> str:
        return f"{self.folder}/{store_id(self.store)}.key.backed-up"

    def _refresh(self) -> dict[bytes, KeySet]:
        """Return all sets whose keys are here; read them again if another process has written keys."""
        if self._sets is None or self._signature() != self._loaded_signature:
            return self._load()
        return self._sets

    def _signature(self) -> object:
        return [_stat_signature(path) for path in (self.seal_file, self.folder)]

    def _load(self) -> dict[bytes, KeySet]:
        for _ in range(LOAD_ATTEMPTS):
            seen = self._signature()
            opened = self._load_once()
            self._loaded_signature = seen
            if self._signature() == seen:
                break  # else another process wrote or removed keys while we read
        return opened

    def _load_once(self) -> dict[bytes, KeySet]:
        texts = self._read_entries()
        entries = _merge_entries(texts)
        own = self._own_files(".key")
        # If the store's format file was damaged and written again, its key files carry an earlier id: sealed contents
        # must not be lost for that.
        sets: dict[bytes, KeySet] = {}
        files: dict[str, list[str]] = {}
        keys: dict[bytes, tuple[str, bytes]] = {}
        for path in (*own, *self._foreign_key_files()):
            if path not in own and len(sets) == len(entries):
                break
            wrapping = _parse_key_file(_read(path))
            opened = _unwrapped(wrapping, entries) if wrapping is not None else []
            if path in own or opened:
                files[path] = [key_set.id.hex() for key_set in opened]
            for key_set in opened:
                sets.setdefault(key_set.id, key_set)
                keys.setdefault(key_set.id, (path, wrapping or b""))
        ids = [bytes.fromhex(entry["id"]) for entry in entries if entry.get("seals", True)]
        current = next((sets[set_id] for set_id in ids if set_id in sets), None)
        self._entries = _without_stale_wraps(
            entries, texts[0] if texts else [], [wrapping for _, wrapping in keys.values()]
        )
        self._files, self._are_copies_synced = files, False
        self._current_file, self._current_key = keys[current.id] if current is not None else ("", b"")
        self._sets, self._current = sets, current
        return sets

    def _make_key(self) -> None:
        """Make a new set under a new key, because no set that can be opened may seal."""
        self.made_new_key = any(bytes.fromhex(entry["id"]) not in self._refresh() for entry in self._entries)
        self._install_key(lambda wrapping, keys: [*self._entries_wrapped_by(wrapping), _entry(wrapping, keys)])

    def _add_sets(self, new: list[KeySet]) -> None:
        own = [entry["id"] for entry in self._entries if entry.get("seals", True)]
        if self._current_key:
            entries = _wrapped_by(self._entries, self._current_key, new)
            self._write_seal(entries, self._copy_of(self._current_file, self._current_key))
        elif any(keys.id.hex() in own for keys in new):
            self._install_key(lambda wrapping, _: _wrapped_by(self._entries_wrapped_by(wrapping), wrapping, new))
        else:
            self._install_key(
                lambda wrapping, keys: [
                    _entry(wrapping, keys),
                    *_wrapped_by(self._entries_wrapped_by(wrapping), wrapping, new),
                ]
            )
        self._load()

    def _rotate(self) -> str:
        old = [path for path in self._own_files(".key") if self._files.get(path)]
        opened = self._refresh()
        set_id = self._install_key(
            lambda wrapping, keys: [
                _entry(wrapping, keys),
                *[
                    {**entry, "seals": False} if _id(entry) in opened else entry
                    for entry in self._entries_wrapped_by(wrapping)
                ],
            ],
            durable=True,
        )
        step("key:wrapped")
        mine, copy = _key_id(self._current_key), self._copy_of(self._current_file, self._current_key)
        old += [path for path in self._copies() if path != copy]  # this one has all that they have
        alone = [
            {**entry, "wraps": [wrap for wrap in entry["wraps"] if wrap["key"] == mine] or entry["wraps"]}
            for entry in self._entries
        ]
        try:
            self._write_seal(alone, copy, durable=True)
            step("key:alone")
            for path in old:
                _unlink(path)
                step("key:removed")
            sync_folder(self.folder)
        except OSError as error:
            raise Failed(
                f"New contents are sealed with a new key, but the old key could not be removed: {error.strerror}.",
                "Run `keepfast key rotate` again.",
            ) from None
        self._load()
        return set_id

    def _install_key(self, entries: Callable[[bytes, KeySet], list[Entry]], durable: bool | None = None) -> str:
        """Write a new key file and the seal file with `entries`; return the new set's id. On failure nothing changes."""
        wrapping, keys = urandom(32), KeySet(urandom(32))
        path = f"{self.folder}/{store_id(self.store)}-{_key_id(wrapping)}.key"
        copy = self._copy_of(path, wrapping)
        new_entries = entries(wrapping, keys)
        try:
            self._write_key(path, wrapping)
            step("key:made")
            self._write_seal(new_entries, copy, durable)
        except OSError:
            for left in (copy, path):
                try:
                    _unlink(left)
                except OSError:
                    pass  # it opens nothing
            raise
        self._load()
        return keys.id.hex()

    def _sync_copies(self) -> None:
        """Make the seal file and its copy beside the key equal, so that either is enough. Errors are ignored."""
        self._are_copies_synced = True
        places = self.seal_file, self._copy_of(self._current_file, self._current_key)
        if all(_parse_entries(_verified_body(_read(path))) == self._entries for path in places):
            return
        try:
            with self._lock():
                self._load()
                if self._current is not None:
                    self._write_seal(self._entries, self._copy_of(self._current_file, self._current_key))
                    self._load()
        except OSError:
            pass
        self._are_copies_synced = True

    def _entries_wrapped_by(self, wrapping: bytes) -> list[Entry]:
        """Return all entries; sets that can be opened here are wrapped with this key too."""
        return _wrapped_by(self._entries, wrapping, list(self._refresh().values()))

    def _read_entries(self) -> list[list[Entry]]:
        """Return the entries of the seal file and of each copy beside the keys. Raises `Damaged` if none can be read."""
        texts = [text for path in (self.seal_file, *self._copies()) if (text := _read(path)) is not None]
        good = [checked for text in texts if (checked := _verified_body(text)) is not None]
        if texts and not good:
            raise Damaged(f"{self.seal_file} is damaged, and so is its copy.", IMPORT_KEY_HINT)
        return [_parse_entries(text) for text in good]

    def _copies(self) -> list[str]:
        return self._own_files(".seal")

    def _own_files(self, ending: str) -> list[str]:
        """Return the files of this store with this ending; the one named as in older releases comes first."""
        plain = f"{store_id(self.store)}{ending}"
        names = [name for name in self._names() if name.endswith(ending)]
        return [
            f"{self.folder}/{name}"
            for name in sorted(names, key=lambda name: (name != plain, name))
            if name == plain or name.startswith(plain[: -len(ending)] + "-")
        ]

    def _foreign_key_files(self) -> list[str]:
        own = store_id(self.store)
        return [f"{self.folder}/{name}" for name in self._names() if name.endswith(".key") and not name.startswith(own)]

    def _names(self) -> list[str]:
        try:
            return sorted(listdir(self.folder))
        except OSError:
            return []

    def _copy_of(self, path: str, wrapping: bytes) -> str:
        """Return the path of the copy of the seal file that belongs to this key file."""
        own = f"{self.folder}/{store_id(self.store)}"
        return (path.removesuffix(".key") if path.startswith(own) else f"{own}-{_key_id(wrapping)}") + ".seal"

    def _write_key(self, path: str, key: bytes) -> None:
        text = f"{frozen.KEY_FILE}\nversion 1\nstore {store_id(self.store)}\nkey {key.hex()}\n"
        # Always synced, also in a store that is not: the old key may be removed right after.
        replace(path, text.encode("ascii"))

    def _write_seal(self, entries: list[Entry], copy: str, durable: bool | None = None) -> None:
        synced = self.durable if durable is None else durable
        # The copy first: either file must be enough to open what was sealed.
        self._write_entries(copy, entries, synced)
        step("key:copied")
        self._write_entries(self.seal_file, entries, synced)

    def _write_entries(self, path: str, entries: list[Entry], durable: bool) -> None:
        text = dumps({"v": 1, "sets": entries}).encode("ascii")
        growing = self.store + "/tmp" if path == self.seal_file else ""
        replace(path, text + b"\n" + digest(text).hex().encode("ascii") + b"\n", durable, growing)

    def _lock(self) -> _Locks:
        folder = self.folder
        missing = []
        while folder and _read(folder) is None:
            missing.append(folder)
            folder = folder.rpartition("/")[0]
        for path in reversed(missing):
            make_folder(path)
        return _Locks(self.folder + "/lock", self.store + "/seal.lock")


class _Locks:
    """The locks of the key folder and of the store together: a store's users may have different key folders."""

    def __init__(self, first: str, second: str) -> None:
        self.first, self.second = Lock(first, "the folder of keys"), Lock(second)

    def __enter__(self) -> None:
        self.first.__enter__()
        try:
            self.second.__enter__()
        except BaseException:
            self.first.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.second.__exit__(kind, error, trace)
        self.first.__exit__(kind, error, trace)


def open_backup(backup: object, passphrase: str) -> list[bytes]:
    """Return the master keys in a backup. Raises `WrongKey` if the passphrase is wrong, `Damaged` if it is no backup."""
    from cryptography.exceptions import InvalidTag

    try:
        if (
            not isinstance(backup, dict)
            or backup["what"] != frozen.KEY_BACKUP
            or backup["v"] != 1
            or backup["kdf"] != "scrypt"
        ):
            raise ValueError
        costs = backup["n"], backup["r"], backup["p"]
        # The file may be crafted: it must not make us allocate all memory.
        if costs[0] not in [1 << shift for shift in range(10, 21)] or not 0 < costs[1] <= 16 or not 0 < costs[2] <= 4:
            raise ValueError
        salt, box = bytes.fromhex(backup["salt"]), bytes.fromhex(backup["box"])
    except (ValueError, KeyError, TypeError):
        raise Damaged("This is not a key backup, or it is damaged.", "Use another copy of the file.") from None
    try:
        masters = cipher(_stretch(passphrase, salt, *costs)).decrypt(
            box[:12], box[12:], frozen.KEY_BACKUP.encode("ascii")
        )
    except InvalidTag:
        raise WrongKey("Wrong passphrase.", "Try again.") from None
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
    return derive(frozen.WRAPPING_ID, key)[:8].hex()


def _wrap(wrapping: bytes, keys: KeySet) -> dict[str, str]:
    nonce = urandom(12)
    box = cipher(wrapping).encrypt(nonce, keys.master, keys.id)
    return {"key": _key_id(wrapping), "box": (nonce + box).hex()}


def _entry(wrapping: bytes, keys: KeySet) -> Entry:
    return {"id": keys.id.hex(), "wraps": [_wrap(wrapping, keys)]}


def _id(entry: Entry) -> bytes:
    return bytes.fromhex(entry["id"])


def _wrapped_by(entries: list[Entry], wrapping: bytes, sets: list[KeySet]) -> list[Entry]:
    """Return the entries with each of these sets wrapped with this key; a set that is not listed yet came from another
    store and only opens.
    """
    unlisted, with_wraps = {keys.id: keys for keys in sets}, []
    for entry in entries:
        keys = unlisted.pop(_id(entry), None)
        with_wraps.append(entry if keys is None else {**entry, "wraps": [*entry["wraps"], _wrap(wrapping, keys)]})
    return with_wraps + [{**_entry(wrapping, keys), "seals": False} for keys in unlisted.values()]


def _merge_entries(texts: list[list[Entry]]) -> list[Entry]:
    """Merge the entries of several files. A set that is rotated away in one file stays so, whatever old copies say."""
    merged: dict[str, Entry] = {}
    for entry in [entry for text in texts for entry in text]:
        entry_of_set = merged.setdefault(entry["id"], {**entry, "wraps": []})
        entry_of_set["wraps"] += [wrap for wrap in entry["wraps"] if wrap not in entry_of_set["wraps"]]
        if not entry.get("seals", True):
            entry_of_set["seals"] = False
    return list(merged.values())


def _without_stale_wraps(entries: list[Entry], first: list[Entry], wrappings: list[bytes]) -> list[Entry]:
    """Return the entries without wraps that only copies have, unless nothing else opens their set."""
    wraps_in_store = {entry["id"]: entry["wraps"] for entry in first}
    return [
        {**entry, "wraps": wraps_in_store[entry["id"]]}
        if any(_unwrapped(one, [{**entry, "wraps": wraps_in_store.get(entry["id"], [])}]) for one in set(wrappings))
        else entry
        for entry in entries
    ]


def _unwrapped(wrapping: bytes, entries: list[Entry]) -> list[KeySet]:
    """Return the sets that this key opens."""
    tried = [_unwrap(wrapping, wrap, entry["id"]) for entry in entries for wrap in entry["wraps"]]
    return list({keys.id: keys for keys in tried if keys is not None}.values())


def _unwrap(wrapping: bytes, wrap: dict[str, str], name: str) -> KeySet | None:
    if wrap["key"] != _key_id(wrapping):
        return None
    from cryptography.exceptions import InvalidTag

    box = bytes.fromhex(wrap["box"])
    try:
        return KeySet(cipher(wrapping).decrypt(box[:12], box[12:], bytes.fromhex(name)))
    except InvalidTag:
        return None


def _parse_key_file(text: bytes | None) -> bytes | None:
    """Return the key in a key file's text; None if the file is missing or damaged."""
    if text is None:
        return None
    lines = text.decode("ascii", "replace").split("\n")
    if lines[:2] != [frozen.KEY_FILE, "version 1"] or len(lines) < 4 or not lines[3].startswith("key "):
        return None
    try:
        key = bytes.fromhex(lines[3][4:])
    except ValueError:
        return None
    return key if len(key) == 32 else None


def _verified_body(text: bytes | None) -> bytes | None:
    """Return the body of a seal file if it matches the digest in its last line and is valid, else None."""
    body, _, stored_digest = (text or b"").rstrip(b"\n").rpartition(b"\n")
    if not body or digest(body).hex().encode("ascii") != stored_digest:
        return None
    try:
        content = loads(body)
        good = content["v"] == 1 and all(
            len(bytes.fromhex(one["id"])) == 8 and all(bytes.fromhex(wrap["box"]) for wrap in one["wraps"])
            for one in content["sets"]
        )
    except (ValueError, KeyError, TypeError, KeepfastError):
        return None
    return body if good else None


def _parse_entries(text: bytes | None) -> list[Entry]:
    return list(loads(text)["sets"]) if text is not None else []


def _stat_signature(path: str) -> tuple[int, ...]:
    """Return what changes when this file is written, or a file is added to this folder."""
    try:
        seen = stat(path)
    except OSError:
        return ()
    return seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def _unlink(path: str) -> None:
    try:
        unlink(path)
    except FileNotFoundError:
        pass


def _read(path: str) -> bytes | None:
    """Return the file's bytes, empty for a folder; None if it does not exist."""
    try:
        with open(path, "rb") as file:
            seen = fstat(file.fileno())
            if path.endswith(".key") and seen.st_mode & 0o077 and seen.st_uid == geteuid():
                fchmod(file.fileno(), 0o600)  # a key that was copied back must not be readable by others
            return file.read(1 << 20)
    except IsADirectoryError:
        return b""
    except OSError as error:
        if error.errno in (ENOENT, ENOTDIR):
            return None
        if error.errno == EACCES:
            raise WrongKey(f"No permission to read {path}.", "Check its owner and permissions.") from None
        raise
