"""Numbered states of a small tree: writer and judge both know, from the number alone, what a version must hold."""

from __future__ import annotations

from pathlib import Path
from random import Random

from keepfast.store.save import SYNC_IN_BACKGROUND_ROWS

SLOTS = 5
LARGE, BALLAST, MANY = "large", "ballast", "many"
"""Extras: a file that is stored in chunks and changes a little; one that is new and incompressible every time; so many that
their rows are made while the pack is being synced."""
LARGE_SIZE = 5 << 20
"""Over the size from which contents are stored in chunks."""


def contents(number: int, extra: str = "") -> dict[str, bytes]:
    """Return the files of state `number`; it differs from the one before in two files, and in what the extra says."""
    files = {"nonce.txt": f"nonce {number}\n".encode(), "folder/steady.txt": b"the same in every state\n" * 20}
    for writer in range(max(1, number - SLOTS + 1), number + 1):
        files[f"folder/part-{writer % SLOTS}.bin"] = Random(writer).randbytes(2000 + 10 * writer)
    if extra == LARGE:
        whole = bytearray(Random(-1).randbytes(LARGE_SIZE))
        whole[1 << 20 : 1 << 20] = f"inserted at state {number}".encode()
        files["large.bin"] = bytes(whole)
    if extra == BALLAST:
        files["ballast.bin"] = Random(number).randbytes(50_000 * (1 + number % 12))
    if extra == MANY:
        files |= {f"many/{one}.txt": f"{one} of state {number}\n".encode() for one in range(SYNC_IN_BACKGROUND_ROWS)}
    return files


def put(folder: Path, number: int, extra: str = "") -> None:
    """Bring the folder to state `number`; files that are right already are not touched."""
    wanted = contents(number, extra)
    for name, data in wanted.items():
        path = folder / name
        if not path.exists() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_file() and name not in wanted and not name.startswith((".keepfast", ".git")):
            path.unlink()
