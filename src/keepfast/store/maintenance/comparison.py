"""Compare the ledger in use with one rebuilt from packs and logs: every log, every row, every state."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from keepfast.model.entry import Entry
from keepfast.model.errors import Damaged, KeepfastError
from keepfast.store.bases import base_key
from keepfast.store.digest import add, weight
from keepfast.store.ledger.sqlite import SqliteLedger
from keepfast.store.maintenance.findings import Report, affected_labels, all_labels, count_of, labels, path_text
from keepfast.store.maintenance.places import check_places
from keepfast.store.maintenance.rebuild import LOST, LogState, RebuildResult
from keepfast.store.records import STORE_LOG
from keepfast.store.repository import Repository
from keepfast.store.rows import CheckpointRow, Query, WorkspaceRow, checkpoint_row

Interval = tuple[int, int | None, Entry]

NO_LOG = LogState(0, 0, b"")


def compare(
    actual: SqliteLedger,
    unreadable: KeepfastError | None,
    expected: SqliteLedger,
    scratch: Repository,
    built: RebuildResult,
    packs: set[str],
    report: Report,
) -> None:
    """Compare the `actual` ledger with the `expected` one, which was `built` in `scratch`, and report differences.

    `packs`: the packs that exist; `unreadable`: the error if the actual ledger could not be read.
    """
    comparing = _LedgerComparison(actual, expected, scratch, built, packs, report)
    try:
        if unreadable is not None:
            raise unreadable
        comparing.run()
    except KeepfastError as error:
        report.ledger_unreadable = True
        report.add_problem(
            f"The ledger cannot be read: {str(error).replace(actual.file.path, 'it')}", all_labels(expected)
        )
        comparing.without_ledger()
        try:
            comparing.logs_alone()
        except KeepfastError:
            pass  # too much of the ledger is damaged for that


class _LedgerComparison:
    def __init__(
        self,
        actual: SqliteLedger,
        expected: SqliteLedger,
        scratch: Repository,
        built: RebuildResult,
        packs: set[str],
        report: Report,
    ) -> None:
        self.actual, self.expected, self.scratch, self.built = actual, expected, scratch, built
        self.packs, self.report = packs, report

    def run(self) -> None:
        self._check_pages()
        check_places(self.actual, self.expected, self.scratch, self.packs, self.built.replaced, self.report)
        self._check_store_log()
        theirs = {row.id: row for row in self.actual.workspaces()}
        for log in [log for log in self.built.logs if log != STORE_LOG] + [
            workspace for workspace in theirs if workspace not in self.built.logs
        ]:
            self._check_workspace(log, theirs.get(log))
        if not self.report.damaged_logs and (self.actual.meta("seq") or "0") != (self.expected.meta("seq") or "0"):
            self.report.add_ledger_problem("The ledger's sequence number is wrong", [])

    def without_ledger(self) -> None:
        """Report lost contents and versions although the ledger cannot be read."""
        report, expected = self.report, self.expected
        bad = {key for key, place in expected.locations() if (place.pack, key) in report.bad_copies}
        lost_contents = {
            key for key in expected.needed_contents() if key in bad or not expected.locate([key])
        } | report.lost_contents
        if lost_contents:
            report.add_problem(
                f"Damaged or missing: {count_of(len(lost_contents), 'content')}",
                affected_labels(expected, lost_contents),
            )
        report.lost = self.built.lost
        for workspace, versions in self.built.lost.items():
            row = expected.workspace(workspace)
            path = row.path if row is not None else workspace.encode()
            report.add_problem(
                f"Cannot be rebuilt from documents: {count_of(len(versions), 'version')}", labels(versions, path)
            )

    def logs_alone(self) -> None:
        """Find damaged logs that the damaged ledger can still replace, because its rows match the documents."""
        for row in self.actual.workspaces():
            log = self.built.logs.get(row.id, NO_LOG)
            if log.good == log.size and log.size >= row.log_size:
                continue
            rows = self.actual.find(Query(workspace=row.id, forgotten=True))
            whole = [checkpoint.version for checkpoint in rows] == list(range(row.version, 0, -1))
            if whole and not self._versions_unlike_documents(
                row, [checkpoint for checkpoint in rows if not checkpoint.forgotten]
            ):
                self.report.damaged_logs.add(row.id)

    def _check_pages(self) -> None:
        """Run SQLite's own check: it finds few flipped bits, but it does find those in indexes. Raises `Damaged`."""
        opinion = self.actual.file.integrity()
        if opinion != "ok":
            raise Damaged(f"its pages are damaged: {opinion}.")
        if self.actual.file.shape() != self.expected.file.shape():
            raise Damaged("its tables are not those of keepfast.")

    # Logs and rows

    def _check_store_log(self) -> None:
        log, ledger_mark = self.built.logs[STORE_LOG], self.actual.meta("store_log") or ""
        if log.good < log.size:
            self.report.damaged_logs.add(STORE_LOG)
            self.report.add_problem("The store's own log has a damaged line")
        elif ledger_mark != (self.expected.meta("store_log") or ""):
            size = ledger_mark.partition(" ")[0]
            if size.isdecimal() and int(size) > log.size:
                self.report.damaged_logs.add(STORE_LOG)
                self.report.add_problem("The store's own log is truncated")
            else:
                self.report.add_ledger_problem("The ledger does not match the packs", all_labels(self.expected))

    def _check_workspace(self, workspace: str, mine: WorkspaceRow | None) -> None:
        log, rebuilt = self.built.logs.get(workspace, NO_LOG), self.expected.workspace(workspace)
        if mine is None:
            if rebuilt is not None:
                versions = {row.version for row in self.expected.find(Query(workspace=workspace))}
                self.report.add_ledger_problem(
                    f"The ledger lacks the workspace {path_text(rebuilt.path)}", labels(versions, rebuilt.path)
                )
            if log.good < log.size:
                self.report.add_problem(f"The log {workspace} is damaged after byte {log.good}")
            return
        if (log.good, log.head) == (mine.log_size, mine.log_head) and log.good == log.size and rebuilt is not None:
            self._check_rows(rebuilt, mine)
        elif not log.size:
            self._report_damaged_log(mine, f"The log of {path_text(mine.path)} is missing")
        elif log.good < log.size and log.good <= mine.log_size:
            self._report_damaged_log(mine, f"The log of {path_text(mine.path)} is damaged after byte {log.good}")
        elif log.good < mine.log_size and log.head != mine.log_head:
            self._report_damaged_log(mine, f"The log of {path_text(mine.path)} is truncated")
        else:
            versions = {row.version for row in self.expected.find(Query(workspace=workspace))}
            self.report.add_ledger_problem(
                f"The ledger of {path_text(mine.path)} does not match the end of its log", labels(versions, mine.path)
            )

    def _report_damaged_log(self, mine: WorkspaceRow, words: str) -> None:
        """Report a damaged log, and the versions whose rows the documents contradict."""
        self.report.damaged_logs.add(mine.id)
        rows = self.actual.find(Query(workspace=mine.id))
        versions = {row.version for row in rows}
        if self.built.logs.get(mine.id, NO_LOG).size == mine.log_size:
            versions -= {row.version for row in self.expected.find(Query(workspace=mine.id))}
        # With another size, every command refuses the workspace until it is repaired, so all versions are affected.
        self.report.add_problem(words, labels(versions, mine.path))
        differing = self._versions_unlike_documents(mine, rows)
        if differing:
            self.report.add_problem("Some versions do not match their documents", labels(differing, mine.path))

    def _check_rows(self, rebuilt: WorkspaceRow, mine: WorkspaceRow) -> None:
        """Check that the ledger has exactly the rows that follow from a whole log."""
        path = rebuilt.path
        self._check_workspace_row(rebuilt, mine)
        own = {row.version: row for row in self.actual.find(Query(workspace=rebuilt.id, forgotten=True))}
        self._check_checkpoint_rows(rebuilt, own)
        self._check_conversations(rebuilt)
        self._check_base(rebuilt)
        differing = self._versions_with_wrong_tags(own)
        if differing:
            self.report.add_ledger_problem(f"The ledger's tags are wrong in {path_text(path)}", labels(differing, path))
        living = {version for version, row in own.items() if not row.forgotten}
        self.report.checkpoints += len(living)
        unproven = self.built.unproven.get(rebuilt.id, set())
        differing = self._versions_with_wrong_files(
            rebuilt.id, sorted((living | {rebuilt.version}) - unproven), rebuilt.version
        )
        if differing:
            self.report.add_ledger_problem(
                f"The ledger is wrong about files of {path_text(path)}", labels(differing, path)
            )
        self._report_lost_versions(rebuilt, mine, own, living)

    def _check_workspace_row(self, rebuilt: WorkspaceRow, mine: WorkspaceRow) -> None:
        # Without a tree sum the newest state, and its counts, do not follow from documents.
        if mine != (rebuilt if rebuilt.tree else rebuilt._replace(tree=mine.tree, counts=mine.counts)):
            versions = {row.version for row in self.expected.find(Query(workspace=rebuilt.id))}
            self.report.add_ledger_problem(
                f"The ledger is wrong about the workspace {path_text(rebuilt.path)}", labels(versions, rebuilt.path)
            )

    def _check_checkpoint_rows(self, rebuilt: WorkspaceRow, own: dict[int, CheckpointRow]) -> None:
        expected_rows = {row.version: row for row in self.expected.find(Query(workspace=rebuilt.id, forgotten=True))}
        differing = {
            version
            for version in own.keys() | expected_rows.keys()
            if version not in own
            or version not in expected_rows
            or not self._is_same_checkpoint(own[version], expected_rows[version])
        }
        if differing:
            count = count_of(len(differing), "checkpoint")
            self.report.add_ledger_problem(
                f"The ledger is wrong about {count} of {path_text(rebuilt.path)}", labels(differing, rebuilt.path)
            )

    def _check_conversations(self, rebuilt: WorkspaceRow) -> None:
        attachments = self.actual.attachments(rebuilt.id)
        differing = {
            version for version, ids in self.expected.attachments(rebuilt.id).items() if attachments.get(version) != ids
        }
        if differing:
            self.report.add_ledger_problem(
                f"The ledger is wrong about conversations of {path_text(rebuilt.path)}", labels(differing, rebuilt.path)
            )

    def _check_base(self, rebuilt: WorkspaceRow) -> None:
        key = base_key(rebuilt.id)
        base = self.actual.meta(key) or ""
        # A base for an older version is never used: an older release does not update it.
        if base.endswith(f" {rebuilt.version}") and base != (self.expected.meta(key) or ""):
            self.report.add_ledger_problem(
                f"The ledger is wrong about what {path_text(rebuilt.path)} was last set to", []
            )

    def _report_lost_versions(
        self, rebuilt: WorkspaceRow, mine: WorkspaceRow, own: dict[int, CheckpointRow], living: set[int]
    ) -> None:
        """Report versions whose documents are missing: lost, or known to the ledger only."""
        lost = {version for version in self.built.lost.get(rebuilt.id, ()) if version in own}
        lost |= {version for version in living if (rebuilt.id, version) in self.built.by_keyframe}
        lost_rows = {version for version in lost if own[version].trigger == LOST}
        if lost_rows:
            self.report.add_problem(
                f"Lost: {count_of(len(lost_rows), 'version')} of {path_text(rebuilt.path)}",
                labels(lost_rows, rebuilt.path),
            )
        if lost - lost_rows:
            self._report_versions_without_document(mine, [own[version] for version in sorted(lost - lost_rows)])

    def _is_same_checkpoint(self, mine: CheckpointRow, rebuilt: CheckpointRow) -> bool:
        if rebuilt.version not in self.built.unproven.get(rebuilt.workspace, ()):
            return mine == rebuilt
        # Only the log confirms this version. If it is forgotten, its document may have been removed.
        if rebuilt.trigger != LOST and not mine.forgotten:
            return False
        return (mine.id, mine.document, mine.seq, mine.created_at, mine.added) == (
            rebuilt.id, rebuilt.document, rebuilt.seq, rebuilt.created_at, rebuilt.added,
        )  # fmt: skip

    def _versions_with_wrong_tags(self, own: dict[int, CheckpointRow]) -> set[int]:
        """Return the versions whose tags in the table of tags differ from those in their rows."""
        tags_of_rows = {(tag, row.version) for row in own.values() for tag in row.tags.split("\n") if tag}
        if not own:
            return set()
        workspace = next(iter(own.values())).workspace
        tags_in_table = set(self.actual.tags(workspace))
        return {version for _, version in tags_of_rows ^ tags_in_table}

    def _versions_with_wrong_files(self, workspace: str, versions: list[int], newest: int) -> set[int]:
        # An open interval differs from one that ended after the newest version, if documents prove that version.
        still = len(versions) + (newest in versions)
        mine = _intervals_in(self.actual.intervals(workspace), versions, still)
        rebuilt = _intervals_in(self.expected.intervals(workspace), versions, still)
        last = len(versions) - 1
        return {version for start, end in _differences(mine, rebuilt) for version in versions[min(start, last) : end]}

    def _report_versions_without_document(self, mine: WorkspaceRow, rows: list[CheckpointRow]) -> None:
        """Report versions that only the ledger knows, and those of them that the remaining documents contradict."""
        self.report.lost[mine.id] = [row.version for row in rows]
        unreadable = {row.version for row in rows if not self._has_document(row)}
        if unreadable:
            self.report.add_problem(
                f"Damaged or missing: {count_of(len(unreadable), 'document')} of versions",
                labels(unreadable, mine.path),
            )
        rest = [row for row in rows if row.version not in unreadable]
        if rest:
            self.report.add_problem(
                f"Cannot be rebuilt without the ledger: {count_of(len(rest), 'version')}",
                labels([row.version for row in rest], mine.path),
            )
        differing = self._versions_unlike_documents(mine, rest)
        if differing:
            self.report.add_ledger_problem(
                f"The ledger is wrong about {count_of(len(differing), 'version')} of {path_text(mine.path)}",
                labels(differing, mine.path),
            )

    def _has_document(self, row: CheckpointRow) -> bool:
        try:
            self.scratch.document(row)
        except KeepfastError:
            return False
        return True

    def _versions_unlike_documents(self, mine: WorkspaceRow, rows: list[CheckpointRow]) -> set[int]:
        """Return versions whose row or tree sum differs from their document's header."""
        differing: set[int] = set()
        sums = _sums(self.actual.intervals(mine.id), [row.version for row in rows])
        for row in rows:
            try:
                header, changes = self.scratch.document(row)
            except KeepfastError:
                differing.add(row.version)
                continue
            record = {"v": row.version, "doc": row.document.hex(), "seq": row.seq, "size": row.added}
            documented = checkpoint_row(mine.id, record, header, len(changes))
            # Name and pin may have changed later.
            if (
                documented != row._replace(name=documented.name, pinned=documented.pinned)
                or header.tree != f"{sums[row.version]:064x}"
            ):
                differing.add(row.version)
        return differing


def _sums(intervals: Iterator[Interval], versions: list[int]) -> dict[int, int]:
    """Return the tree sum, as in a header's `tree`, of each of these versions."""
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


def _intervals_in(rows: Iterator[Interval], versions: list[int], still: int) -> Iterator[tuple[Entry, int, int]]:
    """Yield intervals as ranges of indexes into `versions`; an open interval ends at `still`.

    Versions between them are not compared, as their documents and intervals may have been removed. Adjoining intervals
    with the same row, as a keyframe makes them, are merged.
    """
    pending: tuple[Entry, int, int] | None = None
    for since, until, row in rows:
        start = bisect_left(versions, since)
        end = bisect_left(versions, until) if until is not None else still
        if start >= end:
            continue
        if pending is not None and pending[0] == row and pending[2] == start:
            pending = row, pending[1], end
            continue
        if pending is not None:
            yield pending
        pending = row, start, end
    if pending is not None:
        yield pending


def _differences(
    mine: Iterator[tuple[Entry, int, int]], rebuilt: Iterator[tuple[Entry, int, int]]
) -> Iterator[tuple[int, int]]:
    """Yield ranges that only one side has; both are sorted by path and start."""
    one, other = next(mine, None), next(rebuilt, None)
    while one is not None or other is not None:
        if one == other:
            one, other = next(mine, None), next(rebuilt, None)
        elif other is None or (one is not None and (one[0].path, one[1]) <= (other[0].path, other[1])):
            assert one is not None
            yield one[1], one[2]
            one = next(mine, None)
        else:
            yield other[1], other[2]
            other = next(rebuilt, None)
