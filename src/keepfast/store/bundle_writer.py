"""Write a bundle into a temporary file and move it into place when it is complete (docs/format/bundle.md)."""

from __future__ import annotations

from os import O_CLOEXEC, O_CREAT, O_EXCL, O_WRONLY, close, fsync, link, lstat, rename, unlink, urandom
from os import open as open_fd
from struct import pack as pack_numbers
from typing import Any

from blake3 import blake3

from keepfast.fsutil.durable import sync_folder, write_all
from keepfast.model.errors import Conflict
from keepfast.model.strict_json import dumps
from keepfast.store.bundle import END, MAGIC
from keepfast.store.packs import PackWriter


class BundleWriter:
    """Writes a bundle into a temporary file beside its target; also the blobs port of its own pack."""

    def __init__(self, path: str, durable: bool = True) -> None:
        self.path, self.durable = path, durable
        self.temporary = f"{path}.{urandom(6).hex()}"
        self.fd = open_fd(self.temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        self.total = blake3()
        self.size = 0
        self.pack = PackWriter(self)  # type: ignore[arg-type]  # it only creates and writes

    def create(self) -> BundleWriter:
        self._write(MAGIC)
        return self

    def write(self, data: bytes) -> None:
        self._write(data)

    def sync(self) -> None:
        """Do nothing: `finish` syncs the whole bundle."""

    def finish(self, manifest: dict[str, Any], force: bool) -> int:
        """Write the manifest and move the bundle into place; return its size. Raises `Conflict` if the target exists."""
        self.pack.sync()
        length, text = self.size - len(MAGIC), dumps(manifest).encode("ascii")
        self._write(text + pack_numbers("<QQ", length, len(text)))
        self._write(self.total.digest() + END)
        if self.durable:
            fsync(self.fd)
        if force:
            rename(self.temporary, self.path)
        else:
            self._move_unless_exists()
        close(self.fd)
        self.fd = -1
        if self.durable:
            sync_folder(self.path.rpartition("/")[0] or "/")
        return self.size

    def abort(self) -> None:
        self.pack.upload = None  # it is this writer
        self.pack.abort()
        if self.fd >= 0:
            close(self.fd)
            self.fd = -1
            try:
                unlink(self.temporary)
            except FileNotFoundError:
                pass

    def _move_unless_exists(self) -> None:
        try:
            link(self.temporary, self.path)
        except FileExistsError:
            raise already_exists(self.path) from None
        except OSError:  # a file system without hard links
            if exists(self.path):
                raise already_exists(self.path) from None
            rename(self.temporary, self.path)
            return
        unlink(self.temporary)

    def _write(self, data: bytes) -> None:
        write_all(self.fd, data)
        self.total.update(data)
        self.size += len(data)


def exists(path: str) -> bool:
    try:
        lstat(path)
    except FileNotFoundError:
        return False
    return True


def already_exists(path: str) -> Conflict:
    return Conflict(f"{path} already exists.", "Give another name, or --force to overwrite it.")
