"""Build a ledger from packs and logs alone: for `rebuild`, and for `verify`, which compares it with the one in use."""

from __future__ import annotations

from collections.abc import Callable
from os import rename, unlink, urandom

from keepfast.fsutil.durable import Lock, explain, make_folder, replace, sync_folder
from keepfast.model import document
from keepfast.model.entry import Entry
from keepfast.model.errors import Damaged, KeepfastError
from keepfast.model.steps import step
from keepfast.store.digest import ZERO, add, weight
from keepfast.store.ledger.sqlite import SqliteLedger
from keepfast.store.local import LocalBlobs, LocalRecords
from keepfast.store.maintenance.log_repair import mend_log, misplaced_logs, workspaces_of_documents
from keepfast.store.packs import read_index
from keepfast.store.place import Place
from keepfast.store.ports import Transaction
from keepfast.store.records import STORE_LOG, Chain, Record
from keepfast.store.repository import Repository
from keepfast.store.rows import CheckpointRow, WorkspaceRow, checkpoint_row

Progress = Callable[[int, int], None]
Copies = frozenset[tuple[str, bytes]]
"""Blobs by pack and digest: one digest may lie in several packs."""

LOST = "lost"
"""Trigger of a version that is in the log and whose state cannot be rebuilt."""


class LogState:
    """How one log was read: its size, up to where it is valid, and the digest of its last valid line."""

    def __init__(self, size: int, good: int, head: bytes) -> None:
        self.size, self.good, self.head = size, good, head


class RebuildResult:
    """What was rebuilt, and what could not be."""

    def __init__(self) -> None:
        self.workspaces = 0
        self.checkpoints = 0
        self.notices: list[str] = []
        self.logs: dict[str, LogState] = {}
        self.replaced: set[str] = set()
        """Packs that compactions have replaced."""
        self.unproven: dict[str, set[int]] = {}
        """Versions by workspace whose state cannot be rebuilt from documents; forgotten ones too."""
        self.lost: dict[str, list[int]] = {}
        """Those of `unproven` that are not forgotten."""
        self.by_keyframe: set[tuple[str, int]] = set()
        """Versions whose own document could not be read, but a keyframe could."""


def rebuild(place: Place, *, progress: Progress | None = None) -> RebuildResult:
    """Build a new ledger from packs and logs and replace the old one."""
    try:
        # Compaction removes leftovers in `tmp/`, where the new ledger is written.
        with Lock(place.path + "/compact.lock"):
            return replace_ledger(place, progress=progress)
    except OSError as error:
        raise explain(error, "Rebuilding the ledger", place.path) from None


def replace_ledger(
    place: Place, bad: Copies = frozenset(), progress: Progress | None = None, *, by_documents: bool = False
) -> RebuildResult:
    """Rebuild for a caller who holds `compact.lock` and knows which copies of blobs are `bad`.

    `by_documents`: also add versions that only documents prove, because log lines may be lost. That may include a save
    that was interrupted before its record: then more is kept than was promised.
    """
    new = f"{place.path}/tmp/ledger-{urandom(6).hex()}"
    with Lock(place.path + "/lock"):
        put_back = put_back_logs(place)
        repository = _repository_with_empty_ledger(place, new)
        try:
            result = fill_ledger(repository, bad, progress)
            notices = put_back + _mend_logs(place, repository, result, by_documents)
            if notices:
                repository.ledger.close()
                remove_ledger(new)
                repository = _repository_with_empty_ledger(place, new)
                result = fill_ledger(repository, bad, progress)
                result.notices += notices
            paths = [(row.id, row.path) for row in repository.ledger.workspaces()]
            repository.ledger.close()
            step("rebuild:filled")
            _settle_journal(place.path + "/ledger.db")
            rename(new, place.path + "/ledger.db")
            step("rebuild:renamed")
            sync_folder(place.path)
            place.list_paths(paths)
        finally:
            repository.ledger.close()
            remove_ledger(new)
    return result


def _repository_with_empty_ledger(place: Place, ledger: str) -> Repository:
    try:
        sqlite_ledger = SqliteLedger(ledger, ledger + "-lock", durable=place.durable, create=True)
    except BaseException:
        remove_ledger(ledger)  # on a full disk, a partly written file would take space
        raise
    return Repository(
        place.id(),
        LocalBlobs(place.path, place.durable),
        LocalRecords(place.path, place.durable),
        sqlite_ledger,
    )


def put_back_logs(place: Place) -> list[str]:
    """Rename logs with a wrong file name, for a caller who holds `lock`. Return what was done, as texts."""
    records = LocalRecords(place.path, place.durable)
    right = misplaced_logs(records)
    for log in right:
        set_aside(place, f"{log}.log", records.read(log))
    for log, data in right.items():
        replace(f"{place.path}/log/{log}.log", data, place.durable, growing=place.path + "/tmp")
        step("rebuild:mended")
    return [f"The log {log} had another name; it was renamed back." for log in right]


def _mend_logs(place: Place, repository: Repository, result: RebuildResult, by_documents: bool) -> list[str]:
    """Repair every damaged log, because new lines must follow good ones. Return what was done, as texts."""
    notices = []
    registered_paths = {workspace: path for path, workspace in place.registered().items()}
    logs = dict(result.logs)
    for log in sorted(workspaces_of_documents(repository) - logs.keys() if by_documents else ()):
        logs[log] = LogState(0, 0, ZERO)
    for log, state in logs.items():
        if state.good == state.size and (not by_documents or log == STORE_LOG):
            continue
        old = repository.records.read(log)
        cut_short = b"\n" not in old[state.good :]  # an incomplete write
        new = (
            mend_log(repository, log, registered_paths.get(log))
            if log != STORE_LOG and (by_documents or not cut_short)
            else None
        )
        if new is None:
            new = old[: state.good]
        if new == old:
            continue
        if new == old[: state.good]:
            notices.append(f"{state.size - state.good} bytes at the end of log {log} were moved aside.")
        else:
            notices.append(f"The log {log} was damaged after byte {state.good}; it was repaired from documents.")
        set_aside(place, f"{log}.log", old)
        replace(f"{place.path}/log/{log}.log", new, place.durable, growing=place.path + "/tmp")
        step("rebuild:mended")
    return notices


def _settle_journal(path: str) -> None:
    """Remove the journal of a killed writer: SQLite would apply it to the new ledger.

    SQLite does so itself when it opens the old ledger; if that cannot be read, the journal file is deleted.
    """
    old = SqliteLedger(path, path + "-lock")
    try:
        old.meta("seq")
    except KeepfastError:
        try:
            unlink(path + "-journal")
        except FileNotFoundError:
            pass
        sync_folder(path.rpartition("/")[0])
    finally:
        old.close()


def remove_ledger(path: str) -> None:
    """Remove a temporary ledger, and SQLite's files beside it."""
    for leftover in (path, path + "-lock", path + "-journal"):
        try:
            unlink(leftover)
        except FileNotFoundError:
            pass


def set_aside(place: Place, name: str, data: bytes) -> None:
    """Save bytes that are about to be replaced in `damaged/`: nothing is thrown away."""
    if data:
        make_folder(place.path + "/damaged")
        replace(f"{place.path}/damaged/{name}-{urandom(4).hex()}", data)


def fill_ledger(repository: Repository, bad: Copies = frozenset(), progress: Progress | None = None) -> RebuildResult:
    """Fill the repository's empty ledger from its packs and logs. What cannot be read is reported, never guessed."""
    return _LedgerBuilder(repository, bad, progress).run()


class _LedgerBuilder:
    def __init__(self, repository: Repository, bad: Copies, progress: Progress | None) -> None:
        self.repository, self.bad_copies, self.progress = repository, bad, progress
        self.result = RebuildResult()
        self.forgotten: set[int] = set()
        self.sum: int | None = 0
        """The tree sum of the state so far, as in a header's `tree`; None if that state is unknown."""

    def run(self) -> RebuildResult:
        repository = self.repository
        with repository.ledger.transaction() as tx:
            self._add_packs(tx)
            logs = repository.records.logs()
            for number, log in enumerate(logs):
                if self.progress is not None:
                    self.progress(number, len(logs))
                if log != STORE_LOG:
                    self._replay_log(tx, log)
            data = repository.records.read(STORE_LOG)
            chain = Chain(data)
            if chain.size:
                tx.set_meta("store_log", f"{chain.size} {chain.head.hex()}")
            self.result.logs[STORE_LOG] = LogState(len(data), chain.size, chain.head)
            self.result.replaced = {name for record in chain.records for name in _texts(record.get("gone"))}
        return self.result

    def _add_packs(self, tx: Transaction) -> None:
        for name in self.repository.blobs.names():
            try:
                size, entries, _ = read_index(self.repository.blobs, name)
            except FileNotFoundError:
                continue
            except Damaged as error:
                self.result.notices.append(f"{error}; its contents are treated as lost.")
                continue
            tx.add_pack(name, size, [entry for entry in entries if (name, entry[0]) not in self.bad_copies])

    def _replay_log(self, tx: Transaction, log: str) -> None:
        data = self.repository.records.read(log)
        chain = Chain(data)
        state = self.result.logs[log] = LogState(len(data), 0, ZERO)
        if not chain.records or chain.records[0].get("r") != "workspace" or chain.records[0].get("id") != log:
            self.result.notices.append(f"The log {log} has no readable first line.")
            return
        keyframes = {
            record["v"]: record
            for record in chain.records
            if record.get("r") == "keyframe" and isinstance(record.get("v"), int)
        }
        self.forgotten, self.sum = _forgotten_versions(chain.records), 0
        row: WorkspaceRow | None = None
        for record, end, head in zip(chain.records, chain.ends, chain.heads, strict=True):
            try:
                if record.get("r") == "checkpoint" and row is not None:
                    row = self._add_checkpoint(tx, row, record, keyframes.get(record["v"]))
                    row = row._replace(log_size=end, log_head=head)
                    tx.update_workspace(row)
                else:
                    row = self.repository.replay(tx, row, record, end, head)
            # A full or failing disk raises other errors: the log must not be cut off for them.
            except (Damaged, KeyError, TypeError, ValueError, AttributeError) as error:
                self.result.notices.append(f"The log {log} is invalid after byte {state.good}: {error!r}.")
                break
            state.good, state.head = end, head
        if row is not None and self.sum is None:
            # The next save must not build on an unknown state: it writes a keyframe.
            tx.update_workspace(row._replace(tree=""))
        self.result.workspaces += 1

    def _add_checkpoint(
        self, tx: Transaction, row: WorkspaceRow, record: Record, keyframe: Record | None
    ) -> WorkspaceRow:
        """Add one version: from its changes if the state before it is known, else from a keyframe, else as lost."""
        version, own = record["v"], self._document(record)
        if version <= row.version:
            raise Damaged(f"v{version} comes after v{row.version}")
        for state in (own, self._document(keyframe) if keyframe else None):
            if state is None:
                continue
            header, rows = state
            if not header.keyframe and (self.sum is None or version != row.version + 1):
                continue
            total = self._tree_after(row.id, header, rows)
            if f"{total:064x}" != header.tree:
                continue
            self.sum = total
            row = self.repository.apply(tx, row, record, header, rows)
            self.result.checkpoints += version not in self.forgotten
            if own is None and keyframe is not None and not keyframe.get("instead"):
                self.result.by_keyframe.add((row.id, version))
            return row
        return self._add_lost(tx, row, record, own[0] if own is not None else None)

    def _add_lost(
        self, tx: Transaction, row: WorkspaceRow, record: Record, header: document.Header | None
    ) -> WorkspaceRow:
        """Reserve the number of a version whose state is unknown. It is never shown."""
        version = record["v"]
        self.sum = None
        self.result.unproven.setdefault(row.id, set()).add(version)
        if version not in self.forgotten:
            self.result.lost.setdefault(row.id, []).append(version)
        if header is not None:
            checkpoint = checkpoint_row(row.id, record, header, 0)
        else:
            checkpoint = CheckpointRow(
                row.id, version, record["id"], bytes.fromhex(record["doc"]), record["seq"], record["at"], "", "system",
                "", "", "", "", "", 0, 0, 0, 0, 0, record.get("size", 0), "",
            )  # fmt: skip
        trigger = checkpoint.trigger if version in self.forgotten else LOST
        tx.add_checkpoint(checkpoint._replace(trigger=trigger, forgotten=1))
        tx.set_meta("seq", str(max(record["seq"], self.repository.sequence())))
        return row._replace(version=version, document=bytes.fromhex(record["doc"]), keyframe=row.keyframe or version)

    def _document(self, record: Record) -> tuple[document.Header, list[Entry]] | None:
        try:
            return document.decode(self.repository.contents.load(bytes.fromhex(record["doc"])))
        except Damaged:
            return None

    def _tree_after(self, workspace: str, header: document.Header, rows: list[Entry]) -> int:
        """Return the tree sum after these rows, from the sum before them."""
        total = 0
        if not header.keyframe:
            assert self.sum is not None
            total = self.sum
            for old in self.repository.ledger.current(workspace, [row.path for row in rows]).values():
                total = add(total, minus=weight(old))
        for row in rows:
            total = add(total, plus=weight(row))
        return total


def _texts(value: object) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _forgotten_versions(records: list[Record]) -> set[int]:
    lists = [record.get("v") for record in records if record.get("r") == "forget"]
    return {version for versions in lists if isinstance(versions, list) for version in versions if type(version) is int}
