"""What a restore would do here and now: the newest version, the disk and the target compared, and who would lose by it."""

from __future__ import annotations

from posix import O_NONBLOCK, O_RDONLY, close, fstat, lstat, read
from posix import open as open_fd
from stat import S_IMODE, S_ISREG

from holdfast.core.entry import FILE, FOLDER, GONE, IGNORED, LEFT_OUT, LINK, OVERSIZE, SEALED, SPECIAL, Entry, same
from holdfast.core.errors import Conflict, Damaged, NotFound
from holdfast.core.planning import Plan, parents, plan
from holdfast.looking import differ, disk_now, lies_below, pairs_between
from holdfast.workspace.below import open_below
from holdfast.workspace.find import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from holdfast.engine import Engine
    from holdfast.store.rows import CheckpointRow, WorkspaceRow

    Pair = tuple[Entry | None, Entry | None]

ATTEMPTS = 5
FEW_PATHS, MANY_PATHS = 200, 500
"""Beyond, a whole state is read rather than asked for path by path."""
SINGLE = frozenset((FILE, LINK))
"""Kinds below which nothing can lie."""


class Scope:
    """What a restore is about: these paths with all below them, and some folders by themselves. No paths: everything."""

    def __init__(self, paths: Sequence[bytes] = (), made: Iterable[bytes] = ()) -> None:
        self.paths, self.made = list(paths), frozenset(made)

    def holds(self, path: bytes) -> bool:
        return lies_below(path, self.paths) or path in self.made

    def only(self, paths: Iterable[bytes]) -> tuple[bytes, ...]:
        """What a safety checkpoint must look at; nothing named means everything."""
        if not self.paths:
            return ()
        paths = list(paths)
        return tuple(sorted({*paths, *parents(paths), *self.paths, *parents(self.paths)}))


class Preview:
    """What a restore would do, and which of it would overwrite work that no checkpoint has.

    `seen` is what differed on disk from version `newest` when it was made.
    """

    def __init__(
        self, plan: Plan, conflicts: list[bytes], scope: Scope, newest: int, seen: dict[bytes, Entry | None]
    ) -> None:
        self.plan, self.conflicts, self.scope, self.newest, self.seen = plan, conflicts, scope, newest, seen

    def only(self, at_once: bool) -> tuple[bytes, ...]:
        """What a safety checkpoint must look at; nothing named means everything.

        Where little differs, all else was just seen to be as the newest version has it: it is not looked at twice.
        """
        if not self.scope.paths and len(self.plan.steps) > FEW_PATHS:
            return ()
        touched = {step.path for step in self.plan.steps}
        if self.scope.paths:
            # What is already as it shall be is not touched, but may be in no version: an undo must know that it was there.
            there = {path for path, now in self.seen.items() if now is None or now.kind not in LEFT_OUT}
            return self.scope.only(touched | there)
        touched |= self.seen.keys()
        return tuple(sorted(touched | parents(touched))) if at_once and len(touched) <= FEW_PATHS else ()

    def without(self, paths: set[bytes], why: str = "kept as it is") -> Preview:
        """The same, leaving these paths as they are: work that lies there is not in the way."""
        others = [path for path in self.conflicts if path not in paths]
        return Preview(self.plan.without(paths, why), others, self.scope, self.newest, self.seen)


class Previewing:
    """The plans of one workspace, made without touching anything."""

    def __init__(self, engine: Engine, root: bytes, row: WorkspaceRow) -> None:
        self.engine, self.root, self.row = engine, root, row
        self.repository = engine.repository()

    def refuse_unknown(self, target: CheckpointRow, paths: Sequence[bytes]) -> None:
        """Raise `NotFound` for a path that somebody typed and that is neither in the target nor here."""
        for path in paths:
            try:
                lstat(self.root + b"/" + path)
            except OSError:
                if not self._rows(target, (path,)):
                    raise NotFound(
                        f"{show(path)} is neither in v{target.version} nor here.",
                        f"`holdfast search {show(path)}` finds versions that have it.",
                    ) from None

    def preview(self, target: CheckpointRow, paths: Sequence[bytes] = (), made: Iterable[bytes] = ()) -> Preview:
        """Compare with the disk now. Nothing is written. Raises `Conflict` if a path leads through what is no folder."""
        for _ in range(ATTEMPTS):
            self._refresh()
            newest, version = self._newest(), self.row.version
            changed = disk_now(self.engine, self.root, self.row, paths)
            if self._refresh().version == version:
                break  # else somebody saved meanwhile, and the two do not belong together
        rows = {
            (pair[1] or pair[0]).path: pair  # type: ignore[union-attr]
            for pair in self._between(newest, target, paths, made)
        }
        wanted_there = self._rows(target, [path for path in changed if path not in rows])
        for path, (_, now) in changed.items():
            wanted = rows[path][1] if path in rows else wanted_there.get(path)
            if differ(now, wanted):
                rows[path] = now, wanted
            else:
                rows.pop(path, None)
        there = [path for path, (now, wanted) in rows.items() if now is not None and self._is_there(now, wanted)]
        for path in there:
            del rows[path]
        scope = Scope(paths, {*made, *self._missing_folders(paths, rows)})

        def then_there(path: bytes) -> Entry | None:
            return rows[path][1] if path in rows else wanted_there[path]

        def now_there(path: bytes) -> Entry | None:
            return changed[path][1] if path in changed else rows[path][0]

        pairs = [pair for path, pair in rows.items() if scope.holds(path)] if paths else list(rows.values())
        made_plan = plan(pairs, self._kinds(target, then_there), self._kinds(newest, now_there))
        conflicts = [
            one.path
            for one in made_plan.steps
            if one.old is not None
            and (one.old.kind in LEFT_OUT or (one.path in changed and self._is_unsaved(one.path, one.old)))
        ]
        return Preview(made_plan, conflicts, scope, version, {path: now for path, (_, now) in changed.items()})

    def _plan_between(self, old: CheckpointRow, new: CheckpointRow, scope: Scope) -> Plan:
        found = list(self._between(old, new, scope.paths, scope.made))
        rows = {_path(pair): pair for pair in found}
        kinds = self._kinds(new, lambda path: rows[path][1]), self._kinds(old, lambda path: rows[path][0])
        return plan([pair for pair in found if scope.holds(_path(pair))], *kinds)

    def _is_as_seen(self, before: CheckpointRow, preview: Preview) -> bool:
        """Has the safety checkpoint found just what the preview had seen? Then its plan holds."""
        if before.workspace != self.row.id or before.version != preview.newest + 1:
            return False
        try:
            header, entries = self.repository.document(before)
        except Damaged:
            return False
        if header["keyframe"] or len(entries) != len(preview.seen):
            return False
        return all(entry.path in preview.seen and _is_it(entry, preview.seen[entry.path]) for entry in entries)

    def _between(
        self, old: CheckpointRow | None, new: CheckpointRow, paths: Sequence[bytes], made: Iterable[bytes] = ()
    ) -> Iterable[Pair]:
        """What leads from `old` to `new`. Where the paths are files, only they and what lies above them are asked for."""
        if not paths or old is None:
            return pairs_between(self.repository, self.row.id, old, new)
        found: list[Pair] = []
        ledger = self.repository.ledger
        for path in dict.fromkeys((*paths, *parents(paths), *made)):
            before, after = ledger.at(old.workspace, old.version, path), ledger.at(new.workspace, new.version, path)
            kinds = {entry.kind for entry in (before, after) if entry is not None}
            if path in paths and (not kinds or not kinds <= SINGLE):
                return pairs_between(self.repository, self.row.id, old, new)
            if differ(before, after):
                found.append((before, after))
        return found

    def _kinds(
        self, checkpoint: CheckpointRow | None, known: Callable[[bytes], Entry | None]
    ) -> Callable[[bytes], str]:
        """What kind a path is of in a version, but where more is known already; `known` raises `KeyError` where it is not."""

        def kind(path: bytes) -> str:
            try:
                row = known(path)
            except KeyError:
                row = None
                if checkpoint is not None:
                    row = self.repository.ledger.at(checkpoint.workspace, checkpoint.version, path)
            return row.kind if row is not None else ""

        return kind

    def _is_there(self, now: Entry, wanted: Entry | None) -> bool:
        """Is a file that is left out now what it was when a checkpoint had it? A save does not read it; we must."""
        if wanted is None or now.kind not in (OVERSIZE, IGNORED) or wanted.kind != FILE:
            return False
        try:
            top = open_fd(self.root, O_RDONLY)
            try:
                fd = open_below(top, wanted.path, O_RDONLY | O_NONBLOCK)
            finally:
                close(top)
            try:
                seen = fstat(fd)
                if not S_ISREG(seen.st_mode) or (seen.st_size, S_IMODE(seen.st_mode)) != (wanted.size, wanted.mode):
                    return False
                return wanted.content in self.repository.ids(lambda most: read(fd, most), bool(wanted.flags & SEALED))
            finally:
                close(fd)
        except OSError:
            return False

    def _rows(self, checkpoint: CheckpointRow, paths: Collection[bytes]) -> dict[bytes, Entry]:
        """The rows of a version at these paths, as it has them: groups and times differ without making a version."""
        ledger, workspace, version = self.repository.ledger, checkpoint.workspace, checkpoint.version
        if len(paths) > MANY_PATHS:
            wanted = set(paths)
            return {row.path: row for row in ledger.state(workspace, version) if row.path in wanted}
        return {path: row for path in paths if (row := ledger.at(workspace, version, path)) is not None}

    def _missing_folders(self, paths: Sequence[bytes], rows: dict[bytes, Pair]) -> list[bytes]:
        """Folders above the paths that are to be made, because they are not there any more."""
        found = []
        for path in sorted(parents(paths)):
            now, wanted = rows.get(path, (None, None))
            if wanted is None or wanted.kind != FOLDER:
                continue
            if now is None:
                found.append(path)
            elif now.kind in (FILE, LINK, SPECIAL, OVERSIZE, IGNORED):
                raise Conflict(f"{show(path)} is not a folder any more.", f"Restore it as a whole: -- {show(path)}")
        return found

    def _is_unsaved(self, path: bytes, now: Entry) -> bool:
        """Is this work that no checkpoint has? A file that an earlier restore put there is none."""
        if now.kind == FOLDER:
            return False
        return not any(same(row, now) for _, _, row in self.repository.ledger.history(self.row.id, path))

    def _refresh(self) -> WorkspaceRow:
        row = self.repository.workspace(self.row.id)
        if row is not None:
            self.row = row
        return self.row

    def _newest(self) -> CheckpointRow | None:
        return self.repository.ledger.checkpoint(self.row.id, self.row.version) if self.row.version else None


def _is_it(recorded: Entry, seen: Entry | None) -> bool:
    if seen is None:
        return recorded.kind == GONE
    # Of what is left out only the safety checkpoint knows the content.
    return seen.kind not in LEFT_OUT and same(recorded, seen)


def _path(pair: Pair) -> bytes:
    entry = pair[1] if pair[1] is not None else pair[0]
    assert entry is not None
    return entry.path
