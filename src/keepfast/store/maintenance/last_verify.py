"""When everything in the store was last read and compared, and what was found: one small file for whoever asks later."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from keepfast.fsutil.durable import replace

if TYPE_CHECKING:
    from keepfast.store.maintenance.findings import Problem

NAME = "/verified.json"
NAMED, LONGEST, CHECKPOINTS = 20, 300, 8
"""So many problems are written down, so much of each, and so many checkpoints that it costs."""
MOST = 256 << 10


class Finding(NamedTuple):
    """A problem, and the checkpoints that it costs."""

    text: str
    checkpoints: list[str]


class LastVerify(NamedTuple):
    """What a verify found. `problems`: how many, of which the first are in `found`. `checkpoints`: None if nobody counted."""

    at: int
    quick: bool
    problems: int
    checkpoints: int | None
    findings: list[Finding]


def write_last_verify(store: str, at: int, quick: bool, problems: Sequence[Problem], checkpoints: int | None) -> None:
    """Write it down; `checkpoints` is None if nobody counted. A store that cannot be written has been verified all the same."""
    findings = [{"text": one.text[:LONGEST], "checkpoints": one.checkpoints[:CHECKPOINTS]} for one in problems[:NAMED]]
    document = {"at": at, "quick": quick, "problems": len(problems), "checkpoints": checkpoints, "found": findings}
    try:
        replace(store + NAME, json.dumps(document).encode())
    except OSError:
        pass


def read_last_verify(store: str) -> LastVerify | None:
    """What the last verify found; None if nobody knows of one."""
    try:
        with open(store + NAME, "rb") as file:
            document = json.loads(file.read(MOST))
        counted = document["checkpoints"]
        findings = [Finding(str(one["text"]), [str(name) for name in one["checkpoints"]]) for one in document["found"]]
        checkpoints = int(counted) if counted is not None else None
        return LastVerify(
            int(document["at"]), bool(document["quick"]), int(document["problems"]), checkpoints, findings
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
