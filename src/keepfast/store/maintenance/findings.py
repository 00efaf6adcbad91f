"""What `verify` finds: problems in words, the checkpoints they concern, and what a repair has to know."""

from __future__ import annotations

from bisect import bisect_left

from keepfast.model.entry import FILE
from keepfast.store.rows import Query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from keepfast.store.ports import Ledger


class Problem:
    """Something wrong, and the checkpoints that it concerns."""

    def __init__(self, text: str, checkpoints: Iterable[str] = ()) -> None:
        self.text = text
        self.checkpoints = list(checkpoints)


class Report:
    """Everything that was found. No problems: every load of every checkpoint is what was saved."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.checkpoints = 0
        self.blobs = 0
        self.bytes = 0
        self.bad_copies: set[tuple[str, bytes]] = set()
        """Copies of blobs, by pack and digest, that are not what they should be."""
        self.lost_contents: set[bytes] = set()
        """Contents and chunks that a version needs and that cannot be had, for another reason than a damaged pack."""
        self.unreadable: dict[str, str] = {}
        """Packs without a usable index, and what is the matter with it."""
        self.missing: set[str] = set()
        """Packs that the ledger speaks of and that are not there."""
        self.damaged_logs: set[str] = set()
        self.search_wrong = False
        self.seal_wrong = False
        self.ledger_unreadable = False
        self.ledger_wrong = False
        self.lost: dict[str, list[int]] = {}
        """Living versions per workspace that packs and logs alone do not give."""
        self.is_read_only = False
        """Nothing can be written to the store: what it holds was read all the same."""

    def add_problem(self, text: str, checkpoints: Iterable[str] = ()) -> None:
        self.problems.append(Problem(text, checkpoints))

    def add_ledger_problem(self, text: str, checkpoints: Iterable[str]) -> None:
        """Say that the ledger differs from what packs and logs give."""
        self.ledger_wrong = True
        self.add_problem(text, checkpoints)

    def damaged_packs(self) -> set[str]:
        return self.unreadable.keys() | {pack for pack, _ in self.bad_copies}


def label(version: int, path: bytes) -> str:
    """How a checkpoint is called in a report about the whole store."""
    return f"v{version} of {path_text(path)}"


def labels(versions: Iterable[int], path: bytes) -> list[str]:
    return [label(version, path) for version in sorted(versions)]


def count_of(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def path_text(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")


def all_labels(ledger: Ledger) -> list[str]:
    """Labels of all living versions."""
    return [
        label(row.version, workspace.path)
        for workspace in ledger.workspaces()
        for row in ledger.find(Query(workspace=workspace.id))
    ]


def affected_labels(ledger: Ledger, keys: set[bytes]) -> list[str]:
    """Labels of the living versions that show one of these contents or are written in one of these documents."""
    result: list[str] = []
    for workspace in ledger.workspaces() if keys else ():
        rows = ledger.find(Query(workspace=workspace.id))
        living = sorted(row.version for row in rows)
        versions = {row.version for row in rows if row.document in keys}
        versions.update(
            [version for version, ids in ledger.attachments(workspace.id).items() if not keys.isdisjoint(ids)]
        )
        for since, until, row in ledger.intervals(workspace.id):
            if row.kind == FILE and row.content in keys:
                end = bisect_left(living, until) if until is not None else len(living)
                versions.update(living[bisect_left(living, since) : end])
        result += labels(versions, workspace.path)
    return result
