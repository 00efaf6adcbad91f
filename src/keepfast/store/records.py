"""Log records: each line of a log carries a digest over it and the line before (docs/format/store.md)."""

from __future__ import annotations

from typing import Any

from keepfast.model.strict_json import dumps, loads
from keepfast.store.digest import ZERO, digest

Record = dict[str, Any]
"""A line of a log as JSON. It is rewritten with all its members, also unknown ones of newer releases."""

STORE_LOG = "store"
"""The log of operations on the whole store, such as compaction."""
TAIL = 65
"""A line ends in this many bytes: its digest in hex and a newline."""


def format_line(head: bytes, record: Record) -> tuple[bytes, bytes]:
    """Return the line for `record` after the line with digest `head`, and the new head."""
    body = dumps(record).encode("ascii")
    head = digest(head + body)
    return body + b" " + head.hex().encode("ascii") + b"\n", head


class Chain:
    """The leading records of a log whose digests match."""

    __slots__ = ("ends", "head", "heads", "records", "rest", "size")

    def __init__(self, data: bytes, head: bytes = ZERO, base: int = 0) -> None:
        self.records: list[Record] = []
        self.ends: list[int] = []
        self.heads: list[bytes] = []
        self.head, self.size = head, base
        at = 0
        while True:
            end = data.find(b"\n", at)
            if end < 0:
                break
            body, _, key = data[at:end].rpartition(b" ")
            after = digest(self.head + body)
            if key != after.hex().encode("ascii"):
                break
            try:
                record = loads(body)
            except ValueError:
                break
            if not isinstance(record, dict):
                break
            self.records.append(record)
            self.head = after
            at = end + 1
            self.size = base + at
            self.ends.append(self.size)
            self.heads.append(after)
        self.rest = data[at:]
        """What follows the last valid line: nothing, an incomplete write, or damage."""

    def is_torn(self) -> bool:
        """Return whether the rest is an incomplete write: less than one line."""
        return bool(self.rest) and b"\n" not in self.rest
