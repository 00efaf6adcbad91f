"""Record the result of the last verify in a small file, for `doctor` and the web page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from keepfast.fsutil.durable import replace
from keepfast.store.maintenance.findings import Problem

NAME = "/verified.json"
MAX_PROBLEMS, MAX_PROBLEM_CHARACTERS, MAX_CHECKPOINTS_PER_PROBLEM = 20, 300, 8
"""Most problems in the file, most characters of one, and most affected checkpoints of one."""
MAX_FILE_BYTES = 256 << 10


class Finding(NamedTuple):
    """A problem, and the affected checkpoints."""

    text: str
    checkpoints: list[str]


class LastVerify(NamedTuple):
    """The result of a verify. `problems`: their number; the first are in `findings`. `checkpoints`: None if not counted."""

    at: int
    quick: bool
    problems: int
    checkpoints: int | None
    findings: list[Finding]


def write_last_verify(store: str, at: int, quick: bool, problems: Sequence[Problem], checkpoints: int | None) -> None:
    """Write the result; `checkpoints` is None if they were not counted. In a read-only store nothing is written."""
    findings = [
        {
            "text": problem.text[:MAX_PROBLEM_CHARACTERS],
            "checkpoints": problem.checkpoints[:MAX_CHECKPOINTS_PER_PROBLEM],
        }
        for problem in problems[:MAX_PROBLEMS]
    ]
    document = {"at": at, "quick": quick, "problems": len(problems), "checkpoints": checkpoints, "found": findings}
    try:
        replace(store + NAME, json.dumps(document).encode())
    except OSError:
        pass


def read_last_verify(store: str) -> LastVerify | None:
    """Return the result of the last verify; None if there is none."""
    try:
        with open(store + NAME, "rb") as file:
            document = json.loads(file.read(MAX_FILE_BYTES))
        counted = document["checkpoints"]
        findings = [
            Finding(str(problem["text"]), [str(label) for label in problem["checkpoints"]])
            for problem in document["found"]
        ]
        checkpoints = int(counted) if counted is not None else None
        return LastVerify(
            int(document["at"]), bool(document["quick"]), int(document["problems"]), checkpoints, findings
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
