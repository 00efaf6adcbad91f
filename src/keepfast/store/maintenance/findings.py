"""The findings of `verify`: problems as text, the affected checkpoints, and what a repair needs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from keepfast.model.entry import FILE
from keepfast.store.ports import Ledger
from keepfast.store.rows import Query


class Problem:
    """A problem, and the labels of affected checkpoints."""

    def __init__(self, text: str, checkpoints: Iterable[str] = ()) -> None:
        self.text = text
        self.checkpoints = list(checkpoints)


class Report:
    """All findings. Without problems, every checkpoint loads exactly as it was saved."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.checkpoints = 0
        self.blobs = 0
        self.bytes = 0
        self.bad_copies: set[tuple[str, bytes]] = set()
        """Damaged copies of blobs, by pack and digest."""
        self.lost_contents: set[bytes] = set()
        """Contents and chunks that a version needs and that are missing for another reason than a damaged pack."""
        self.unreadable: dict[str, str] = {}
        """Packs without a usable index, and what is wrong with it."""
        self.missing: set[str] = set()
        """Packs that the ledger names and that do not exist."""
        self.damaged_logs: set[str] = set()
        self.search_wrong = False
        self.seal_wrong = False
        self.ledger_unreadable = False
        self.ledger_wrong = False
        self.lost: dict[str, list[int]] = {}
        """Living versions by workspace that cannot be rebuilt from packs and logs alone."""
        self.is_read_only = False
        """The store is read-only; it was verified all the same."""

    def add_problem(self, text: str, checkpoints: Iterable[str] = ()) -> None:
        self.problems.append(Problem(text, checkpoints))

    def add_ledger_problem(self, text: str, checkpoints: Iterable[str]) -> None:
        """Add a problem in which the ledger differs from packs and logs."""
        self.ledger_wrong = True
        self.add_problem(text, checkpoints)

    def damaged_packs(self) -> set[str]:
        return self.unreadable.keys() | {pack for pack, _ in self.bad_copies}


def label(version: int, path: bytes) -> str:
    """Return how a report about the whole store calls a checkpoint: `v5 of /path`."""
    return f"v{version} of {path_text(path)}"


def labels(versions: Iterable[int], path: bytes) -> list[str]:
    return [label(version, path) for version in sorted(versions)]


def count_of(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def path_text(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")


def all_labels(ledger: Ledger) -> list[str]:
    """Return the labels of all living versions."""
    return [
        label(row.version, workspace.path)
        for workspace in ledger.workspaces()
        for row in ledger.find(Query(workspace=workspace.id))
    ]


def affected_labels(ledger: Ledger, keys: set[bytes]) -> list[str]:
    """Return the labels of the living versions that need one of these contents or documents."""
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
