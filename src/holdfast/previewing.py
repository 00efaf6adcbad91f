"""What a restore would do here and now: the newest version, the disk and the target compared, and who would lose by it."""

from __future__ import annotations

from holdfast.core.entry import FILE, FOLDER, IGNORED, LEFT_OUT, LINK, OVERSIZE, SPECIAL, Entry, same
from holdfast.core.errors import Conflict
from holdfast.core.planning import Plan, parents, plan
from holdfast.looking import Change, between, disk_now, lies_below
from holdfast.workspace.find import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.engine import Engine
    from holdfast.store.rows import CheckpointRow, WorkspaceRow

    Pair = tuple[Entry | None, Entry | None]

ATTEMPTS = 5
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
    """What a restore would do, and which of it would overwrite work that no checkpoint has."""

    def __init__(self, plan: Plan, conflicts: list[bytes], scope: Scope) -> None:
        self.plan, self.conflicts, self.scope = plan, conflicts, scope


class Previewing:
    """The plans of one workspace, made without touching anything."""

    def __init__(self, engine: Engine, root: bytes, row: WorkspaceRow) -> None:
        self.engine, self.root, self.row = engine, root, row
        self.repository = engine.repository()

    def preview(self, target: CheckpointRow, paths: Sequence[bytes] = (), made: Iterable[bytes] = ()) -> Preview:
        """Compare with the disk now. Nothing is written. Raises `Conflict` if a path leads through what is no folder."""
        for _ in range(ATTEMPTS):
            self._refresh()
            newest, version = self._newest(), self.row.version
            changed = disk_now(self.engine, self.root, self.row, paths)
            if self._refresh().version == version:
                break  # else somebody saved meanwhile, and the two do not belong together
        rows = {change.path: (change.old, change.new) for change in self._between(newest, target, paths, made)}
        for path, (before, now) in changed.items():
            wanted = rows[path][1] if path in rows else before
            if differ(now, wanted):
                rows[path] = now, wanted
            else:
                rows.pop(path, None)
        scope = Scope(paths, {*made, *self._missing_folders(paths, rows)})
        known = self._kinds(newest)

        def kind_now(path: bytes) -> str:
            if path not in changed:
                return known(path)
            now = changed[path][1]
            return now.kind if now is not None else ""

        pairs = (pair for path, pair in rows.items() if scope.holds(path))
        made_plan = plan(pairs, self._kinds(target), kind_now)
        conflicts = [
            one.path
            for one in made_plan.steps
            if one.old is not None
            and (one.old.kind in LEFT_OUT or (one.path in changed and self._is_unsaved(one.path, one.old)))
        ]
        return Preview(made_plan, conflicts, scope)

    def _plan_between(self, old: CheckpointRow, new: CheckpointRow, scope: Scope) -> Plan:
        changes = self._between(old, new, scope.paths, scope.made)
        pairs = ((change.old, change.new) for change in changes if scope.holds(change.path))
        return plan(pairs, self._kinds(new), self._kinds(old))

    def _between(
        self, old: CheckpointRow | None, new: CheckpointRow, paths: Sequence[bytes], made: Iterable[bytes] = ()
    ) -> Iterable[Change]:
        """What leads from `old` to `new`. Where the paths are files, only they and what lies above them are asked for."""
        if not paths or old is None:
            return between(self.repository, self.row.id, old, new)
        ledger, found = self.repository.ledger, []
        for path in dict.fromkeys((*paths, *parents(paths), *made)):
            before, after = ledger.at(old.workspace, old.version, path), ledger.at(new.workspace, new.version, path)
            kinds = {entry.kind for entry in (before, after) if entry is not None}
            if path in paths and (not kinds or not kinds <= SINGLE):
                return between(self.repository, self.row.id, old, new)
            if differ(before, after):
                found.append(Change(before, after, _unread, _unread))
        return found

    def _kinds(self, checkpoint: CheckpointRow | None) -> Callable[[bytes], str]:
        if checkpoint is None:
            return lambda path: ""
        ledger, workspace, version = self.repository.ledger, checkpoint.workspace, checkpoint.version

        def kind(path: bytes) -> str:
            row = ledger.at(workspace, version, path)
            return row.kind if row is not None else ""

        return kind

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


def differ(one: Entry | None, other: Entry | None) -> bool:
    """Is one not as the other is, or not there?"""
    if one is None or other is None:
        return one is not other
    return not same(one, other)


def _unread(entry: Entry) -> bytes:
    raise AssertionError("a plan compares digests, not contents")
