"""Entries of subagents, from their own files beside a transcript, in the order of time."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

FOLDER = "subagents"
MAX_FILES, MAX_BYTES = 64, 32 << 20
"""Beyond these a session's subagents are left out, the oldest first: their edits are on the disk in any case."""


class Subagents:
    """The unread entries of all subagents of a session; `read` records how far each file was read."""

    def __init__(
        self,
        transcript: str | os.PathLike[str] | bytes,
        read: dict[str, int],
        texts: Iterable[tuple[str, bytes]] = (),
    ) -> None:
        self._waiting: list[tuple[str, int, dict[str, Any]]] = []
        for name, text in texts:
            self._enter(name, text[read.get(name, 0) :], read)
        if not isinstance(transcript, bytes):
            stem, ending = os.path.splitext(os.fspath(transcript))
            for path in _files(os.path.join(stem, FOLDER)) if ending == ".jsonl" else ():
                self._read(path, read)
        # Newest last; entries of one moment stay in the order in which they were written.
        self._waiting.sort(key=lambda one: one[:2], reverse=True)

    def until(self, at: object) -> Iterator[dict[str, Any]]:
        """Yield the entries up to the time of an entry of the main conversation; without a time, none."""
        while self._waiting and isinstance(at, str) and self._waiting[-1][0] <= at:
            yield self._waiting.pop()[2]

    def rest(self) -> Iterator[dict[str, Any]]:
        """Yield the entries after the last one of the main conversation."""
        while self._waiting:
            yield self._waiting.pop()[2]

    def _read(self, path: str, read: dict[str, int]) -> None:
        name = os.path.basename(path)
        try:
            with open(path, "rb") as file:
                file.seek(read.get(name, 0))
                text = file.read(MAX_BYTES)
        except OSError:
            return
        self._enter(name, text, read)

    def _enter(self, name: str, text: bytes, read: dict[str, int]) -> None:
        whole = text[: text.rfind(b"\n") + 1]  # a torn last line waits for its rest
        read[name] = read.get(name, 0) + len(whole)
        for line in whole.splitlines():
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(entry, dict):
                at = entry.get("timestamp")
                # A subagent's file never holds the main conversation, whatever it claims.
                item = (at if isinstance(at, str) else "", len(self._waiting), {**entry, "isSidechain": True})
                self._waiting.append(item)


def _files(folder: str) -> list[str]:
    """Return the newest files of subagents, within `MAX_FILES` and `MAX_BYTES`."""
    try:
        entries = [entry for entry in os.scandir(folder) if entry.name.endswith(".jsonl") and entry.is_file()]
        newest = sorted(entries, key=lambda entry: (-entry.stat().st_mtime_ns, entry.name))[:MAX_FILES]
        sizes = [entry.stat().st_size for entry in newest]
    except OSError:
        return []
    return [entry.path for at, entry in enumerate(newest) if sum(sizes[: at + 1]) <= MAX_BYTES]
