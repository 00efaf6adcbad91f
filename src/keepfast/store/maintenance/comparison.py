"""The ledger in use beside the one that packs and logs give: every log, every row, every state."""

from __future__ import annotations

from bisect import bisect_left

from keepfast.model.errors import Damaged, KeepfastError
from keepfast.store.bases import base_key
from keepfast.store.digest import add, weight
from keepfast.store.maintenance.findings import concerned, everything, labels, many, text
from keepfast.store.maintenance.places import follow
from keepfast.store.maintenance.rebuild import LOST, Log
from keepfast.store.records import STORE_LOG
from keepfast.store.rows import Query, checkpoint_row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from keepfast.model.entry import Entry
    from keepfast.store.ledger.sqlite import SqliteLedger
    from keepfast.store.maintenance.findings import Report
    from keepfast.store.maintenance.rebuild import Rebuilt
    from keepfast.store.repository import Repository
    from keepfast.store.rows import CheckpointRow, WorkspaceRow

    Interval = tuple[int, int | None, Entry]

NO_LOG = Log(0, 0, b"")


def compare(
    actual: SqliteLedger,
    unreadable: KeepfastError | None,
    expected: SqliteLedger,
    scratch: Repository,
    built: Rebuilt,
    packs: set[str],
    report: Report,
) -> None:
    """Compare the ledger with the `expected` one that was `built` in `scratch`, and say what differs.

    `packs` are there; `unreadable` says why there is no `actual` ledger, if there is none.
    """
    comparing = _Comparing(actual, expected, scratch, built, packs, report)
    try:
        if unreadable is not None:
            raise unreadable
        comparing.run()
    except KeepfastError as error:
        report.ledger_unreadable = True
        report.say(f"The ledger cannot be read: {str(error).replace(actual.file.path, 'it')}", everything(expected))
        comparing.without_ledger()
        try:
            comparing.logs_alone()
        except KeepfastError:
            pass  # it does not tell that much any more


class _Comparing:
    def __init__(
        self,
        actual: SqliteLedger,
        expected: SqliteLedger,
        scratch: Repository,
        built: Rebuilt,
        packs: set[str],
        report: Report,
    ) -> None:
        self.actual, self.expected, self.scratch, self.built = actual, expected, scratch, built
        self.packs, self.report = packs, report

    def run(self) -> None:
        self._pages()
        follow(self.actual, self.expected, self.scratch, self.packs, self.built.replaced, self.report)
        self._meta()
        theirs = {row.id: row for row in self.actual.workspaces()}
        for log in [log for log in self.built.logs if log != STORE_LOG] + [
            workspace for workspace in theirs if workspace not in self.built.logs
        ]:
            self._workspace(log, theirs.get(log))
        if not self.report.damaged_logs and (self.actual.meta("seq") or "0") != (self.expected.meta("seq") or "0"):
            self.report.wrong("The ledger's sequence number is wrong", [])

    def without_ledger(self) -> None:
        """What can still be said: which contents are gone, and which versions."""
        report, expected = self.report, self.expected
        bad = {key for key, place in expected.locations() if (place.pack, key) in report.bad}
        gone = {key for key in expected.wanted() if key in bad or not expected.locate([key])} | report.gone
        if gone:
            report.say(f"Damaged or missing: {many(len(gone), 'content')}", concerned(expected, gone))
        report.lost = self.built.lost
        for workspace, versions in self.built.lost.items():
            row = expected.workspace(workspace)
            path = row.path if row is not None else workspace.encode()
            report.say(f"Cannot be rebuilt from documents: {many(len(versions), 'version')}", labels(versions, path))

    def logs_alone(self) -> None:
        """Find damaged logs that the ledger, although damaged, can still replace: all of it agrees with documents."""
        for row in self.actual.workspaces():
            log = self.built.logs.get(row.id, NO_LOG)
            if log.good == log.size and log.size >= row.log_size:
                continue
            rows = self.actual.find(Query(workspace=row.id, forgotten=True))
            whole = [found.version for found in rows] == list(range(row.version, 0, -1))
            if whole and not self._unlike_documents(row, [found for found in rows if not found.forgotten]):
                self.report.damaged_logs.add(row.id)

    def _pages(self) -> None:
        """SQLite's own check finds few flipped bits, but it does find what lies in its indexes."""
        opinion = self.actual.file.integrity()
        if opinion != "ok":
            raise Damaged(f"its pages are damaged: {opinion}.")
        if self.actual.file.shape() != self.expected.file.shape():
            raise Damaged("its tables are not those of keepfast.")

    # Logs and rows

    def _meta(self) -> None:
        log, known = self.built.logs[STORE_LOG], self.actual.meta("store_log") or ""
        if log.good < log.size:
            self.report.damaged_logs.add(STORE_LOG)
            self.report.say("The store's own log has a damaged line")
        elif known != (self.expected.meta("store_log") or ""):
            size = known.partition(" ")[0]
            if size.isdecimal() and int(size) > log.size:
                self.report.damaged_logs.add(STORE_LOG)
                self.report.say("The store's own log is truncated")
            else:
                self.report.wrong("The ledger does not match the packs", everything(self.expected))

    def _workspace(self, workspace: str, mine: WorkspaceRow | None) -> None:
        log, truth = self.built.logs.get(workspace, NO_LOG), self.expected.workspace(workspace)
        if mine is None:
            if truth is not None:
                versions = {row.version for row in self.expected.find(Query(workspace=workspace))}
                self.report.wrong(f"The ledger lacks the workspace {text(truth.path)}", labels(versions, truth.path))
            if log.good < log.size:
                self.report.say(f"The log {workspace} is damaged after byte {log.good}")
            return
        if (log.good, log.head) == (mine.log_size, mine.log_head) and log.good == log.size and truth is not None:
            self._rows(truth, mine)
        elif not log.size:
            self._damaged_log(mine, f"The log of {text(mine.path)} is missing")
        elif log.good < log.size and log.good <= mine.log_size:
            self._damaged_log(mine, f"The log of {text(mine.path)} is damaged after byte {log.good}")
        elif log.good < mine.log_size and log.head != mine.log_head:
            self._damaged_log(mine, f"The log of {text(mine.path)} is truncated")
        else:
            versions = {row.version for row in self.expected.find(Query(workspace=workspace))}
            self.report.wrong(
                f"The ledger of {text(mine.path)} does not match the end of its log", labels(versions, mine.path)
            )

    def _damaged_log(self, mine: WorkspaceRow, words: str) -> None:
        """The log cannot vouch for every version; the documents may."""
        self.report.damaged_logs.add(mine.id)
        rows = self.actual.find(Query(workspace=mine.id))
        versions = {row.version for row in rows}
        if self.built.logs.get(mine.id, NO_LOG).size == mine.log_size:
            versions -= {row.version for row in self.expected.find(Query(workspace=mine.id))}
        # Else the size alone shows that something is wrong, and no command touches the workspace before it is healed.
        self.report.say(words, labels(versions, mine.path))
        wrong = self._unlike_documents(mine, rows)
        if wrong:
            self.report.say("Some versions do not match their documents", labels(wrong, mine.path))

    def _rows(self, truth: WorkspaceRow, mine: WorkspaceRow) -> None:
        """The log is whole: whatever follows from it must be in the ledger, and nothing else."""
        path = truth.path
        self._workspace_row(truth, mine)
        own = {row.version: row for row in self.actual.find(Query(workspace=truth.id, forgotten=True))}
        self._checkpoint_rows(truth, own)
        self._conversations(truth)
        self._base(truth)
        wrong = self._wrong_tags(own)
        if wrong:
            self.report.wrong(f"The ledger's tags are wrong in {text(path)}", labels(wrong, path))
        living = {version for version, row in own.items() if not row.forgotten}
        self.report.checkpoints += len(living)
        unproven = self.built.unproven.get(truth.id, set())
        wrong = self._unlike_states(truth.id, sorted((living | {truth.version}) - unproven), truth.version)
        if wrong:
            self.report.wrong(f"The ledger is wrong about files of {text(path)}", labels(wrong, path))
        self._lost_versions(truth, mine, own, living)

    def _workspace_row(self, truth: WorkspaceRow, mine: WorkspaceRow) -> None:
        # Without a sum the newest state does not follow from documents; nor do the numbers about it.
        if mine != (truth if truth.tree else truth._replace(tree=mine.tree, counts=mine.counts)):
            versions = {row.version for row in self.expected.find(Query(workspace=truth.id))}
            self.report.wrong(
                f"The ledger is wrong about the workspace {text(truth.path)}", labels(versions, truth.path)
            )

    def _checkpoint_rows(self, truth: WorkspaceRow, own: dict[int, CheckpointRow]) -> None:
        given = {row.version: row for row in self.expected.find(Query(workspace=truth.id, forgotten=True))}
        wrong = {
            version
            for version in own.keys() | given.keys()
            if version not in own or version not in given or not self._alike(own[version], given[version])
        }
        if wrong:
            count = many(len(wrong), "checkpoint")
            self.report.wrong(f"The ledger is wrong about {count} of {text(truth.path)}", labels(wrong, truth.path))

    def _conversations(self, truth: WorkspaceRow) -> None:
        kept = self.actual.kept(truth.id)
        wrong = {version for version, ids in self.expected.kept(truth.id).items() if kept.get(version) != ids}
        if wrong:
            self.report.wrong(
                f"The ledger is wrong about conversations of {text(truth.path)}", labels(wrong, truth.path)
            )

    def _base(self, truth: WorkspaceRow) -> None:
        key = base_key(truth.id)
        base = self.actual.meta(key) or ""
        # One that speaks of an older version is believed by nobody: an older program leaves it as it was.
        if base.endswith(f" {truth.version}") and base != (self.expected.meta(key) or ""):
            self.report.wrong(f"The ledger is wrong about what {text(truth.path)} was last set to", [])

    def _lost_versions(
        self, truth: WorkspaceRow, mine: WorkspaceRow, own: dict[int, CheckpointRow], living: set[int]
    ) -> None:
        """Versions whose documents are missing: lost, or known to the ledger still."""
        lost = {version for version in self.built.lost.get(truth.id, ()) if version in own}
        lost |= {version for version in living if (truth.id, version) in self.built.by_keyframe}
        gone = {version for version in lost if own[version].trigger == LOST}
        if gone:
            self.report.say(f"Lost: {many(len(gone), 'version')} of {text(truth.path)}", labels(gone, truth.path))
        if lost - gone:
            self._unproven(mine, [own[version] for version in sorted(lost - gone)])

    def _alike(self, mine: CheckpointRow, truth: CheckpointRow) -> bool:
        if truth.version not in self.built.unproven.get(truth.workspace, ()):
            return mine == truth
        # Nothing but the log vouches for it. If it is forgotten, its document may be gone for good.
        if truth.trigger != LOST and not mine.forgotten:
            return False
        return (mine.id, mine.document, mine.seq, mine.created_at, mine.added) == (
            truth.id, truth.document, truth.seq, truth.created_at, truth.added,
        )  # fmt: skip

    def _wrong_tags(self, own: dict[int, CheckpointRow]) -> set[int]:
        """The table of tags must say what the rows say."""
        said = {(tag, row.version) for row in own.values() for tag in row.tags.split("\n") if tag}
        if not own:
            return set()
        workspace = next(iter(own.values())).workspace
        found = set(self.actual.tags(workspace))
        return {version for _, version in said ^ found}

    def _unlike_states(self, workspace: str, versions: list[int], newest: int) -> set[int]:
        # What still is differs from what ended after the newest version, if documents tell of that one.
        still = len(versions) + (newest in versions)
        mine = _shown(self.actual.intervals(workspace), versions, still)
        truth = _shown(self.expected.intervals(workspace), versions, still)
        last = len(versions) - 1
        return {version for start, end in _differences(mine, truth) for version in versions[min(start, last) : end]}

    def _unproven(self, mine: WorkspaceRow, rows: list[CheckpointRow]) -> None:
        """Documents are missing. The ledger knows these versions still; it must agree with the documents there are."""
        self.report.lost[mine.id] = [row.version for row in rows]
        unreadable = {row.version for row in rows if not self._has_document(row)}
        if unreadable:
            self.report.say(
                f"Damaged or missing: {many(len(unreadable), 'document')} of versions", labels(unreadable, mine.path)
            )
        rest = [row for row in rows if row.version not in unreadable]
        if rest:
            self.report.say(
                f"Cannot be rebuilt without the ledger: {many(len(rest), 'version')}",
                labels([row.version for row in rest], mine.path),
            )
        wrong = self._unlike_documents(mine, rest)
        if wrong:
            self.report.wrong(
                f"The ledger is wrong about {many(len(wrong), 'version')} of {text(mine.path)}",
                labels(wrong, mine.path),
            )

    def _has_document(self, row: CheckpointRow) -> bool:
        try:
            self.scratch.document(row)
        except KeepfastError:
            return False
        return True

    def _unlike_documents(self, mine: WorkspaceRow, rows: list[CheckpointRow]) -> set[int]:
        """Versions whose row or sum differs from what their own document's header says."""
        wrong: set[int] = set()
        sums = _sums(self.actual.intervals(mine.id), [row.version for row in rows])
        for row in rows:
            try:
                header, changes = self.scratch.document(row)
            except KeepfastError:
                wrong.add(row.version)
                continue
            record = {"v": row.version, "doc": row.document.hex(), "seq": row.seq, "size": row.added}
            said = checkpoint_row(mine.id, record, header, len(changes))
            # Labels may have been given later.
            if said != row._replace(name=said.name, pinned=said.pinned) or header.tree != f"{sums[row.version]:064x}":
                wrong.add(row.version)
        return wrong


def _sums(intervals: Iterator[Interval], versions: list[int]) -> dict[int, int]:
    """The sum over the tree, as in a header's `tree`, of each of these versions."""
    steps: dict[int, int] = dict.fromkeys(versions, 0)
    for since, until, row in intervals:
        share = weight(row)
        steps[since] = add(steps.get(since, 0), plus=share)
        if until is not None:
            steps[until] = add(steps.get(until, 0), minus=share)
    total, result = 0, {}
    for version in sorted(steps):
        total = result[version] = add(total, plus=steps[version])
    return result


def _shown(rows: Iterator[Interval], versions: list[int], still: int) -> Iterator[tuple[Entry, int, int]]:
    """Intervals as far as these versions show them: each as the range of their places in the list, up to `still`.

    Between them documents may be gone and intervals dropped. Where a keyframe begins a row anew, both parts are one.
    """
    held: tuple[Entry, int, int] | None = None
    for since, until, row in rows:
        start = bisect_left(versions, since)
        end = bisect_left(versions, until) if until is not None else still
        if start >= end:
            continue
        if held is not None and held[0] == row and held[2] == start:
            held = row, held[1], end
            continue
        if held is not None:
            yield held
        held = row, start, end
    if held is not None:
        yield held


def _differences(
    mine: Iterator[tuple[Entry, int, int]], truth: Iterator[tuple[Entry, int, int]]
) -> Iterator[tuple[int, int]]:
    """Ranges that only one side has; both are sorted by path and start."""
    one, other = next(mine, None), next(truth, None)
    while one is not None or other is not None:
        if one == other:
            one, other = next(mine, None), next(truth, None)
        elif other is None or (one is not None and (one[0].path, one[1]) <= (other[0].path, other[1])):
            assert one is not None
            yield one[1], one[2]
            one = next(mine, None)
        else:
            yield other[1], other[2]
            other = next(truth, None)
