"""Trust, shown: `verify` reads everything and compares; `rebuild` and `repair` heal what can be healed."""

from __future__ import annotations

from bisect import bisect_left
from posix import rename, unlink, urandom

from holdfast.core.entry import FILE
from holdfast.core.errors import Damaged, HoldfastError
from holdfast.core.steps import step
from holdfast.store import rebuilding
from holdfast.store.digest import digest
from holdfast.store.local import LocalBlobs, LocalRecords, Lock, explain, sync_folder
from holdfast.store.packs import decompress, read_index
from holdfast.store.records import Chain
from holdfast.store.repository import Repository
from holdfast.store.rows import CHUNKS, Query
from holdfast.store.sqlite import SqliteLedger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from holdfast.core.entry import Entry
    from holdfast.store.place import Place
    from holdfast.store.ports import Ledger
    from holdfast.store.rebuilding import Rebuilt
    from holdfast.store.rows import CheckpointRow, WorkspaceRow

    Progress = Callable[[int, int], None]


class Problem:
    """Something wrong, and the checkpoints that it concerns."""

    def __init__(self, text: str, checkpoints: Iterable[str] = ()) -> None:
        self.text = text
        self.checkpoints = list(checkpoints)


class Report:
    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.checkpoints = 0
        self.blobs = 0
        self.bytes = 0
        self.damaged: set[bytes] = set()
        self.damaged_packs: set[str] = set()
        self.ledger_wrong = False
        self.damaged_logs: set[str] = set()
        self.lost: dict[str, list[int]] = {}


def verify(repository: Repository, folder: str, *, quick: bool = False, progress: Progress | None = None) -> Report:
    """Compare everything with everything. `quick` looks at structure only: it reads no contents and says nothing of them."""
    return _Verifying(repository, folder, quick, progress).run()


def rebuild(place: Place, *, progress: Progress | None = None) -> Rebuilt:
    """Make a new ledger from packs and logs and put it in the place of the old one."""
    try:
        with Lock(place.path + "/lock"):
            return _rebuild(place, progress)
    except OSError as error:
        raise explain(error, "Rebuilding the ledger", place.path) from None


def _rebuild(place: Place, progress: Progress | None) -> Rebuilt:
    new = f"{place.path}/tmp/ledger-{urandom(6).hex()}"
    repository = Repository(
        place.id(), LocalBlobs(place.path), LocalRecords(place.path), SqliteLedger(new, new + "-lock", create=True)
    )
    try:
        result = rebuilding.fill(repository, progress=progress)
        for log, size in result.cut_logs.items():
            rest = repository.records.size(log) - size
            result.notices.append(f"{rest} bytes after the last good line of log {log} were set aside.")
            _set_aside(place, log, size)
        repository.ledger.close()
        step("rebuild:filled")
        rename(new, place.path + "/ledger.db")
        step("rebuild:renamed")
        sync_folder(place.path)
        place.list_paths([(row.id, row.path) for row in place.open().ledger.workspaces()])
    finally:
        repository.ledger.close()
        for leftover in (new, new + "-lock", new + "-journal"):
            try:
                unlink(leftover)
            except FileNotFoundError:
                pass
    return result


def _set_aside(place: Place, log: str, size: int) -> None:
    """Keep what follows the last good line in a file of its own, then cut it off: new lines must follow good ones."""
    records = LocalRecords(place.path)
    rest = records.read(log)[size:]
    with open(f"{place.path}/log/{log}.cut-{urandom(4).hex()}", "wb") as file:
        file.write(rest)
    records.truncate(log, size)


class _Verifying:
    def __init__(self, repository: Repository, folder: str, quick: bool, progress: Progress | None) -> None:
        self.repository, self.folder, self.quick, self.progress = repository, folder, quick, progress
        self.report = Report()
        self.good: set[bytes] = set()
        self.by_keyframe: set[tuple[str, int]] = set()

    def run(self) -> Report:
        report = self.report
        temporary = f"{self.folder}/tmp/verify-{urandom(6).hex()}"
        scratch = Repository(
            self.repository.id,
            self.repository.blobs,
            self.repository.records,
            SqliteLedger(temporary, temporary + "-lock", durable=False, create=True),
        )
        try:
            # Nothing may be compacted while packs are read one by one; saves go on.
            guard = Lock(self.folder + "/compact.lock")
            with guard:
                for log in self.repository.records.logs():
                    if log != rebuilding.STORE_LOG:
                        self._adopt(log)
                names = self.repository.blobs.names()
                self._packs(names)
                expected = rebuilding.fill(scratch, frozenset(self.report.damaged_packs))
                self.by_keyframe = expected.by_keyframe
                self._compare(scratch.ledger, expected, set(names))
                if not self.quick:
                    self._chunk_lists(scratch)
                self._contents(scratch.ledger)
        finally:
            scratch.close()
            for leftover in (temporary, temporary + "-lock", temporary + "-journal"):
                try:
                    unlink(leftover)
                except FileNotFoundError:
                    pass
        return report

    def _adopt(self, log: str) -> None:
        try:
            self.repository.workspace(log)
        except HoldfastError as error:
            self._say(str(error), self._all_of(log))

    def _all_of(self, workspace: str) -> list[str]:
        try:
            row = self.repository.ledger.workspace(workspace)
            if row is None:
                return []
            return [
                label(checkpoint.version, row.path)
                for checkpoint in self.repository.ledger.find(Query(workspace=workspace))
            ]
        except HoldfastError:
            return []

    def _say(self, text: str, checkpoints: Iterable[str] = (), *, ledger: bool = False) -> None:
        self.report.problems.append(Problem(text, checkpoints))
        self.report.ledger_wrong = self.report.ledger_wrong or ledger

    # Packs

    def _packs(self, names: list[str]) -> None:
        """Check every index and, unless quick, every blob."""
        sizes = {}
        for name in names:
            try:
                sizes[name] = self.repository.blobs.size(name)
            except FileNotFoundError:
                continue
        total, done = sum(sizes.values()), 0
        for name, size in sizes.items():
            if self.progress is not None:
                self.progress(done, total)
            self._pack(name)
            done += size
            self.report.bytes += size

    def _pack(self, name: str) -> None:
        blobs = self.repository.blobs
        try:
            _, entries, frames = read_index(blobs, name)
        except FileNotFoundError:
            return
        except Damaged as error:
            self.report.damaged_packs.add(name)
            self._say(f"{error}.")
            return
        self.report.blobs += len(entries)
        if self.quick:
            self.good.update([key for key, _ in entries])
            return
        at, bad = 0, 0
        for offset, stored, raw, count in frames:
            part = entries[at : at + count]
            at += count
            try:
                data = decompress(blobs.read(name, offset, stored))
                if len(data) != raw:
                    raise Damaged("A frame has another length than the index says")
            except (Damaged, EOFError):
                self.report.damaged.update([key for key, _ in part])
                bad += len(part)
                continue
            for key, place in part:
                content = data[place.offset : place.offset + place.length]
                if place.kind != CHUNKS and digest(content) != key:
                    self.report.damaged.add(key)
                    bad += 1
                else:
                    self.good.add(key)
        if bad:
            self.report.damaged_packs.add(name)
            self._say(f"{bad} of {len(entries)} contents in pack {name} do not match their digests")
        covered = 8 + sum(frame[1] for frame in frames)
        if frames and covered != frames[-1][0] + frames[-1][1]:
            self._say(f"Pack {name} has bytes between its frames")

    def _chunk_lists(self, scratch: Repository) -> None:
        """A chunk list stands for a digest of the whole: put each together once."""
        for key, place in scratch.ledger.locations():
            if place.kind != CHUNKS or key in self.report.damaged:
                continue
            try:
                for _ in scratch.stream(key):
                    pass
            except HoldfastError:
                self.report.damaged.add(key)
                self.good.discard(key)
                self._say(f"The large content {key.hex()} cannot be put together from its chunks")

    # Ledger

    def _compare(self, expected: Ledger, built: Rebuilt, packs: set[str]) -> None:
        actual = self.repository.ledger
        try:
            self._logs(built)
            opinion = getattr(actual, "integrity", lambda: "ok")()
            if opinion != "ok":
                self._say(f"The ledger's pages are damaged: {opinion}", self._everything(expected), ledger=True)
                return
            if (actual.meta("store_log") or "") != (expected.meta("store_log") or ""):
                self._say(
                    "The ledger does not belong to this state of the packs", self._everything(expected), ledger=True
                )
            self._compare_packs(expected, packs)
            self._compare_blobs(expected)
            theirs = {row.id: row for row in actual.workspaces()}
            for row in expected.workspaces():
                if row.id in self.report.damaged_logs:
                    theirs.pop(row.id, None)
                    continue  # what lies behind the damage cannot be compared
                self._compare_workspace(expected, row.id, theirs.pop(row.id, None))
            for row in theirs.values():
                self._say(
                    f"The ledger has a workspace that no log speaks of: {_text(row.path)}",
                    [label(found.version, row.path) for found in actual.find(Query(workspace=row.id))],
                    ledger=True,
                )
        except HoldfastError as error:
            self._say(str(error), self._everything(expected), ledger=True)
        self.report.lost = built.lost
        for workspace, versions in built.lost.items():
            row = expected.workspace(workspace)
            path = row.path if row is not None else b"?"
            self._say("The documents of some versions are damaged or missing", [label(v, path) for v in versions])

    def _logs(self, built: Rebuilt) -> None:
        for log, good in built.cut_logs.items():
            if log == rebuilding.STORE_LOG:
                if not Chain(self.repository.records.read(log)).torn():
                    self._say("The store's own log has a damaged line", ())
                    self.report.damaged_logs.add(log)
                continue
            row = self.repository.ledger.workspace(log)
            if row is not None and row.log_size > good:
                self.report.damaged_logs.add(log)
                self._say(
                    f"The log of {_text(row.path)} is damaged after byte {good}", self._after(log, good, row.path)
                )
            elif row is None:
                self._say(f"The log {log} has no readable line", ())

    def _after(self, log: str, good: int, path: bytes) -> list[str]:
        """Versions whose records lie behind the damage."""
        known = [
            record["v"]
            for record in Chain(self.repository.records.read(log)[:good]).records
            if record["r"] == "checkpoint"
        ]
        last = max(known, default=0)
        return [
            label(row.version, path) for row in self.repository.ledger.find(Query(workspace=log)) if row.version > last
        ]

    def _compare_packs(self, expected: Ledger, present: set[str]) -> None:
        mine, theirs = dict(self.repository.ledger.packs()), dict(expected.packs())
        for name, size in mine.items():
            if name not in present and name not in self.repository.blobs.names():
                self._say(f"Pack {name} is missing", self._in_pack(name))
            elif name in theirs and theirs[name] != size:
                self._say(
                    f"Pack {name} has {theirs[name]} bytes; the ledger says {size}", self._in_pack(name), ledger=True
                )
        for name in self.report.damaged_packs:
            if name not in theirs:
                found = self._in_pack(name)
                if found:
                    self._say(f"Pack {name} cannot be read", found)

    def _in_pack(self, name: str) -> list[str]:
        keys = {key for key, place in self.repository.ledger.locations() if place.pack == name}
        return list(_concerned(self.repository.ledger, keys))

    def _compare_blobs(self, expected: Ledger) -> None:
        """Every row must say what some pack's index says."""
        wrong: set[bytes] = set()
        truth: dict[bytes, object] = {}
        packs = {pack.name for pack in self.repository.ledger.packs()}
        for key, place in expected.locations():
            truth[key] = place
        for key, place in self.repository.ledger.locations():
            if truth.get(key) == place:
                continue
            if place.pack in self.report.damaged_packs:
                continue  # said already, pack by pack
            if place.pack not in packs:
                wrong.add(key)
                continue
            try:
                entries = dict(read_index(self.repository.blobs, place.pack)[1])
            except (HoldfastError, FileNotFoundError):
                wrong.add(key)
                continue
            if entries.get(key) != place:
                wrong.add(key)
        if wrong:
            concerned = _concerned(expected, wrong) or self._everything(expected)
            self._say(f"The ledger is wrong about where {len(wrong)} contents lie", concerned, ledger=True)

    def _compare_workspace(self, expected: Ledger, workspace: str, theirs: WorkspaceRow | None) -> None:
        actual, row = self.repository.ledger, expected.workspace(workspace)
        assert row is not None
        if theirs is None:
            concerned = [label(found.version, row.path) for found in expected.find(Query(workspace=workspace))]
            self._say(f"The ledger lacks the workspace {_text(row.path)}", concerned, ledger=True)
            return
        now = actual.workspace(workspace)
        limit = row.version
        if now is not None and now.version >= row.version:
            # Saves go on while we look: compare up to what we read.
            if (
                now.version == row.version
                and now.log_size == row.log_size
                and now._replace(keyframe=0) != row._replace(keyframe=0)
            ):
                if row.tree:
                    self._say(
                        f"The ledger is wrong about the workspace {_text(row.path)}",
                        [label(row.version, row.path)],
                        ledger=True,
                    )
        else:
            self._say(
                f"The ledger of {_text(row.path)} ends before its log does", [label(row.version, row.path)], ledger=True
            )
        mine = {
            found.version: found
            for found in actual.find(Query(workspace=workspace, forgotten=True))
            if found.version <= limit
        }
        truth = {found.version: found for found in expected.find(Query(workspace=workspace, forgotten=True))}
        self.report.checkpoints += sum(not found.forgotten for found in truth.values())
        settled = now is not None and now.log_size == row.log_size
        wrong = [
            version
            for version in sorted(mine.keys() | truth.keys())
            if version not in mine
            or version not in truth
            or (
                truth[version].trigger != "lost"
                and not _alike(mine[version], self._own(truth[version], mine[version]), settled)
            )
        ]
        if wrong:
            text = f"The ledger is wrong about {len(wrong)} checkpoints of {_text(row.path)}"
            self._say(text, [label(version, row.path) for version in wrong], ledger=True)
        if not settled:
            return
        broken = self._compare_tags(expected, workspace, truth)
        if broken:
            self._say("The ledger's tags are wrong", [label(version, row.path) for version in broken], ledger=True)
        lost = {version for version, found in truth.items() if found.trigger == "lost"}
        self._compare_intervals(expected, workspace, row.path, max(row.keyframe, now.keyframe if now else 0), lost)

    def _own(self, truth: CheckpointRow, mine: CheckpointRow) -> CheckpointRow:
        """A version that only a keyframe vouches for cannot say how many rows it changed."""
        return truth._replace(changed=mine.changed) if (truth.workspace, truth.version) in self.by_keyframe else truth

    def _compare_tags(self, expected: Ledger, workspace: str, truth: dict[int, CheckpointRow]) -> list[int]:
        broken = set()
        tags = {tag for found in truth.values() for tag in found.tags.split("\n") if tag}
        for tag in tags:
            query = Query(workspace=workspace, tag=tag, forgotten=True)
            broken |= {row.version for row in expected.find(query)} ^ {
                row.version for row in self.repository.ledger.find(query)
            }
        return sorted(broken)

    def _compare_intervals(self, expected: Ledger, workspace: str, path: bytes, keyframe: int, lost: set[int]) -> None:
        living = sorted(row.version for row in expected.find(Query(workspace=workspace)))
        mine = _clipped(self.repository.ledger.intervals(workspace), keyframe)
        truth = _clipped(expected.intervals(workspace), keyframe)
        versions: set[int] = set()
        for since, until in _differences(mine, truth):
            start = bisect_left(living, since)
            end = bisect_left(living, until) if until is not None else len(living)
            versions.update(living[start:end] or living[start - 1 : start] or [since])
        versions -= lost
        if versions:
            concerned = [label(version, path) for version in sorted(versions)]
            self._say(f"The ledger is wrong about files of {_text(path)}", concerned, ledger=True)

    def _contents(self, expected: Ledger) -> None:
        """Everything that a checkpoint refers to must be there and good."""
        missing = {key for key in expected.wanted() if key not in self.good}
        if missing:
            self._say(f"{len(missing)} contents are damaged or missing", _concerned(expected, missing))
            self.report.damaged |= missing

    def _everything(self, expected: Ledger) -> list[str]:
        return [
            label(row.version, workspace.path)
            for workspace in expected.workspaces()
            for row in expected.find(Query(workspace=workspace.id))
        ]


def label(version: int, path: bytes) -> str:
    return f"v{version} of {_text(path)}"


def _text(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")


def _alike(one: CheckpointRow, other: CheckpointRow, settled: bool) -> bool:
    """Rows agree; pins, names and forgettings may lag behind while others write."""
    if settled:
        return one == other
    return one._replace(pinned=0, name="", forgotten=0) == other._replace(pinned=0, name="", forgotten=0)


def _clipped(rows: Iterator[tuple[int, int | None, Entry]], keyframe: int) -> Iterator[tuple[Entry, int, int | None]]:
    """Intervals as far as documents can still prove them: before the keyframe only their end is known.

    Where a keyframe begins a row anew, both parts count as one.
    """
    held: tuple[Entry, int, int | None] | None = None
    for since, until, row in rows:
        if until is not None and until <= keyframe:
            continue
        if held is not None and held[0] == row and held[2] == since:
            held = row, held[1], until
            continue
        if held is not None:
            yield held
        held = row, max(since, keyframe), until
    if held is not None:
        yield held


def _differences(
    mine: Iterator[tuple[Entry, int, int | None]], truth: Iterator[tuple[Entry, int, int | None]]
) -> Iterator[tuple[int, int | None]]:
    """Intervals that only one side has; both are sorted by path and since."""
    one, other = next(mine, None), next(truth, None)
    while one is not None or other is not None:
        if one == other:
            one, other = next(mine, None), next(truth, None)
            continue
        left = (one[0].path, one[1]) if one is not None else None
        right = (other[0].path, other[1]) if other is not None else None
        if right is None or (left is not None and left <= right):
            assert one is not None
            yield one[1], one[2]
            one = next(mine, None)
            if left == right and other is not None:
                yield other[1], other[2]
                other = next(truth, None)
        else:
            assert other is not None
            yield other[1], other[2]
            other = next(truth, None)


def _concerned(ledger: Ledger, keys: set[bytes]) -> list[str]:
    """Labels of the living versions that show one of these contents or are written in one of these documents."""
    result = []
    for workspace in ledger.workspaces():
        rows = ledger.find(Query(workspace=workspace.id))
        living = sorted(row.version for row in rows)
        versions = {row.version for row in rows if row.document in keys}
        for since, until, row in ledger.intervals(workspace.id):
            if row.kind == FILE and row.content in keys:
                end = bisect_left(living, until) if until is not None else len(living)
                versions.update(living[bisect_left(living, since) : end])
        result += [label(version, workspace.path) for version in sorted(versions)]
    return result
