"""Preview a restore: compare newest version, disk and target, and find unsaved work that would be overwritten."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from os import O_NONBLOCK, O_RDONLY, close, fstat, listdir, lstat, read, stat_result
from os import open as open_fd
from shlex import quote
from stat import S_IMODE, S_ISDIR, S_ISLNK, S_ISREG

from keepfast.app.checkpoint import Engine
from keepfast.app.coverage import covered_paths
from keepfast.app.inspect import differ, disk_now, lies_below, pairs_between
from keepfast.fsutil.descriptors import open_below
from keepfast.model.artefacts import evidence_folder, evidence_of, is_always_excluded, rebuild_command
from keepfast.model.entry import (
    BY_NAME,
    EXCLUDED,
    FILE,
    FOLDER,
    GONE,
    IGNORED,
    LEFT_OUT,
    LINK,
    OVERSIZE,
    SEALED,
    SPECIAL,
    WHY_EXCLUDED,
    Entry,
    same,
    why,
)
from keepfast.model.errors import Conflict, Damaged, NotFound, WrongKey
from keepfast.model.restore_plan import BELOW_NOT_READ, DELETE, GIT, KEPT_AS_IT_IS, MODE, NOT_READ, Plan, parents, plan
from keepfast.store.rows import CheckpointRow, WorkspaceRow
from keepfast.workspace.git_pointers import MAX_POINTER_BYTES, POINTS_IN, leads_in, targets
from keepfast.workspace.marker import show

Pair = tuple[Entry | None, Entry | None]
Kinds = Callable[[bytes], str]

MAX_ATTEMPTS = 5
MAX_PATHS_LOOKED_AT, MAX_PATH_QUERIES = 200, 500
"""Beyond, a whole state is read rather than asked for path by path."""
LEAF_KINDS = frozenset((FILE, LINK))
"""Kinds below which nothing can lie."""


class Scope:
    """What a restore is about: these paths with everything below them, and single folders. No paths: the whole tree."""

    def __init__(self, paths: Sequence[bytes] = (), made_folders: Iterable[bytes] = ()) -> None:
        self.paths, self.made_folders = list(paths), frozenset(made_folders)

    def holds(self, path: bytes) -> bool:
        return lies_below(path, self.paths) or path in self.made_folders

    def only(self, paths: Iterable[bytes]) -> tuple[bytes, ...]:
        """Return the paths that a safety checkpoint must look at; empty for the whole tree."""
        if not self.paths:
            return ()
        paths = list(paths)
        return tuple(sorted({*paths, *parents(paths), *self.paths, *parents(self.paths)}))


MISSING, DIFFERS, EMPTY = "missing", "differs", "empty"


class Missing:
    """Something that a version excludes and that is not as it was then: restoring the version cannot bring it back."""

    __slots__ = ("command", "earlier_in", "held_by", "later_in", "path", "state", "why")

    def __init__(self, path: bytes, why: str, command: str | None, held_by: int, state: str = MISSING) -> None:
        self.path, self.why = path, why
        self.held_by = held_by
        """The next version that has this very content, else the newest one before; 0 if none is known to have it."""
        self.later_in = self.earlier_in = 0
        """If none is: a version after or before that has a state of it."""
        self.state = state
        """`missing`, `differs`, or `empty`: an empty folder whose former content is unknown."""
        self.command = command
        """The command that recreates it; empty if its tool does so by itself, None if nothing does."""

    def holder_hint(self) -> str:
        """Return the version that has it, or a state of it, and the command to restore that; empty if none has."""
        version = self.held_by or self.later_in or self.earlier_in
        state = "it" if self.held_by else "a later state" if self.later_in else "an earlier state"
        return f"v{version} has {state}: `keepfast restore v{version} -- {quote(show(self.path))}`" if version else ""


class Preview:
    """What a restore would do, and which unsaved work it would overwrite.

    `seen` has what differed on disk from version `newest` when the preview was made.
    """

    def __init__(
        self, plan: Plan, conflicts: list[bytes], scope: Scope, newest: int, seen: dict[bytes, Entry | None]
    ) -> None:
        self.plan, self.conflicts, self.scope, self.newest, self.seen = plan, conflicts, scope, newest, seen

    def only(self, at_once: bool) -> tuple[bytes, ...]:
        """Return the paths that a safety checkpoint must look at; empty for the whole tree.

        With few differences and no pause for a person, everything else was just found unchanged and is not looked at twice.
        """
        if not self.scope.paths and len(self.plan.steps) > MAX_PATHS_LOOKED_AT:
            return ()
        touched = {step.path for step in self.plan.steps}
        if self.scope.paths:
            # A file that is already as in the target is not touched, but may be in no version: an undo needs it recorded.
            existing = {path for path, now in self.seen.items() if now is None or now.kind not in LEFT_OUT}
            return self.scope.only(touched | existing)
        touched |= self.seen.keys()
        return tuple(sorted(touched | parents(touched))) if at_once and len(touched) <= MAX_PATHS_LOOKED_AT else ()

    def without(self, paths: set[bytes], why: str = KEPT_AS_IT_IS) -> Preview:
        """Return the preview without these paths, which stay as they are."""
        others = [path for path in self.conflicts if path not in paths]
        return Preview(self.plan.without(paths, why), others, self.scope, self.newest, self.seen)


class Planner:
    """Plans restores of one workspace; changes nothing."""

    def __init__(self, engine: Engine, root: bytes, row: WorkspaceRow) -> None:
        self.engine, self.root, self.row = engine, root, row
        self.repository = engine.repository()
        self.spared: list[tuple[bytes, str]] = []
        """`.git` files and links that the last plan leaves alone because of where they lead, and why."""
        self.not_read: list[tuple[bytes, str]] = []
        """Paths of the last target that differ in folders which are excluded now, and why they stay."""

    def refuse_unknown(self, target: CheckpointRow, paths: Sequence[bytes]) -> None:
        """Raise `NotFound` for a path from the command line that is neither in the target nor on disk, or was excluded."""
        for path in paths:
            self._refuse_left_out(target, path)
            try:
                lstat(self.root + b"/" + path)
            except OSError:
                if not self.rows_at(target, (path,)):
                    raise NotFound(
                        f"{show(path)} is neither in v{target.version} nor on disk.",
                        f"Run `keepfast search {show(path)}` to find versions that have it.",
                    ) from None

    def _refuse_left_out(self, target: CheckpointRow, path: bytes) -> None:
        for above in (path, *sorted(parents([path]), reverse=True)):
            row = self.repository.at(target.workspace, target.version, above)
            if row is None or row.kind not in LEFT_OUT:
                continue
            lost = self._missing(row, target)
            what = show(path) if above == path else f"{show(path)} is in {show(above)}, which"
            raise NotFound(
                f"{what} was excluded from v{target.version}: {lost.why}.",
                _hint_for(lost),
            )

    def missing(self, target: CheckpointRow, paths: Sequence[bytes] = ()) -> list[Missing]:
        """Return what the target excludes, at these paths or anywhere, and what is not on disk or not as it was."""
        missing: list[Missing] = []
        for limit in paths or (b"",):
            for row in self.repository.left_out(target.workspace, target.version, limit):
                try:
                    status = lstat(self.root + b"/" + row.path)
                except OSError:
                    missing.append(self._missing(row, target))
                    continue
                entry = self._missing(row, target)
                entry.state = self._difference(row, status, entry.command is not None or is_always_excluded(row.path))
                if entry.state:
                    missing.append(entry)
        return missing

    def left_out(self, target: CheckpointRow, paths: Sequence[bytes] = ()) -> list[tuple[bytes, int]]:
        """Return what the target excludes, at these paths or anywhere, each as in `Missing.held_by`."""
        repository = self.repository
        return [
            (row.path, self._held_by(row, target))
            for limit in paths or (b"",)
            for row in repository.left_out(target.workspace, target.version, limit)
        ]

    def _difference(self, row: Entry, status: stat_result, is_made_again: bool) -> str:
        """Return `differs` or `empty` if this is certainly not what the version excluded; else nothing."""
        if row.kind in (OVERSIZE, IGNORED):
            is_kind = S_ISREG(status.st_mode) or (row.kind == IGNORED and S_ISLNK(status.st_mode))
            # Old versions recorded no time of what they excluded.
            same = is_kind and status.st_size == row.size and row.mtime in (0, status.st_mtime_ns)
            return "" if same else DIFFERS
        if row.kind == SPECIAL:
            return DIFFERS if S_ISREG(status.st_mode) or S_ISDIR(status.st_mode) or S_ISLNK(status.st_mode) else ""
        if row.kind != EXCLUDED or not (is_made_again or row.flags & WHY_EXCLUDED != BY_NAME):
            return ""
        if not S_ISDIR(status.st_mode):
            # .DS_Store is the only recreatable entry that is a file.
            return "" if row.path.endswith(b".DS_Store") else DIFFERS
        try:
            return "" if listdir(self.root + b"/" + row.path) else EMPTY
        except OSError:
            return ""

    def _missing(self, row: Entry, target: CheckpointRow) -> Missing:
        command = rebuild_command(row.path, self._beside(row.path, target)) if row.kind == EXCLUDED else None
        missing = Missing(row.path, why(row), command, self._held_by(row, target))
        other = self.repository.holder(target.workspace, row.path, target.version) if not missing.held_by else None
        if other is not None and other.version > target.version:
            missing.later_in = other.version
        elif other is not None:
            missing.earlier_in = other.version
        return missing

    def _held_by(self, row: Entry, target: CheckpointRow) -> int:
        """Return the version that has the content which the target excluded; 0 if no version is known to have it."""
        if row.kind not in (OVERSIZE, IGNORED) or not row.mtime:
            return 0  # nothing tells which content that was

        def is_same(entry: Entry) -> bool:
            return (entry.size, entry.mtime) == (row.size, row.mtime)

        holder = self.repository.holder(target.workspace, row.path, target.version, is_same)
        return holder.version if holder is not None else 0

    def _beside(self, path: bytes, target: CheckpointRow) -> set[bytes]:
        """Return the names beside this path on disk, and those of a tool's files that the target brings there."""
        above = evidence_folder(path).rpartition(b"/")[0]
        try:
            names = set(listdir(self.root + b"/" + above))
        except OSError:
            names = set()
        folder = above + b"/" if above else b""
        at = self.repository.at
        return names | {
            name for name in evidence_of(path) if at(target.workspace, target.version, folder + name) is not None
        }

    def preview(
        self, target: CheckpointRow, paths: Sequence[bytes] = (), made_folders: Iterable[bytes] = ()
    ) -> Preview:
        """Compare with the disk now; nothing is written. Raises `Conflict` if something above a path is no longer a folder."""
        paths = paths or self.about(target)
        for _ in range(MAX_ATTEMPTS):
            self.refresh()
            newest, version = self._newest(), self.row.version
            changed = disk_now(self.engine, self.root, self.row, paths)
            if self.refresh().version == version:
                break  # else another process saved meanwhile: rows and disk do not belong together
        rows = {
            (pair[1] or pair[0]).path: pair  # type: ignore[union-attr]
            for pair in self._between(newest, target, paths, made_folders)
        }
        target_rows = self.rows_at(target, [path for path in changed if path not in rows])
        for path, now in changed.items():
            goal = rows[path][1] if path in rows else target_rows.get(path)
            if differ(now, goal):
                rows[path] = now, goal
            else:
                rows.pop(path, None)
        unchanged = [path for path, (now, goal) in rows.items() if now is not None and self._is_same_content(now, goal)]
        for path in unchanged:
            del rows[path]
        scope = Scope(paths, {*made_folders, *self._missing_folders(paths, rows)})

        def row_then(path: bytes) -> Entry | None:
            return rows[path][1] if path in rows else target_rows[path]

        def row_now(path: bytes) -> Entry | None:
            return changed[path] if path in changed else rows[path][0]

        pairs = [pair for path, pair in rows.items() if scope.holds(path)] if paths else list(rows.values())
        kinds = self._kinds(target, row_then), self._kinds(newest, row_now)
        made_plan = self._without_pointers(plan(pairs, *kinds), target, *kinds)
        self.not_read = self._not_read(made_plan, target, paths)
        conflicts = [
            step.path
            for step in made_plan.steps
            if step.old is not None
            and (step.old.kind in LEFT_OUT or (step.path in changed and self._is_unsaved(step.path, step.old)))
        ]
        return Preview(made_plan, conflicts, scope, version, changed)

    def _not_read(self, plan: Plan, target: CheckpointRow, paths: Sequence[bytes]) -> list[tuple[bytes, str]]:
        """Return excluded folders as a whole; if only paths inside of them were asked for, those."""
        untouched = [(path, why) for path, why in plan.untouched if not paths or lies_below(path, paths)]
        folders = {path for path, why in untouched if why == NOT_READ}
        return [
            (path, why)
            for path, why in untouched
            if (why == NOT_READ or (why == BELOW_NOT_READ and folders.isdisjoint(parents([path]))))
            and not self._is_as_in(target, path)
        ]

    def _is_as_in(self, target: CheckpointRow, folder: bytes) -> bool:
        """Return whether everything that a version has of this folder is on disk, by kind, size and time. Contents are not read."""
        for entry in self.repository.state(target.workspace, target.version, folder):
            try:
                status = lstat(self.root + b"/" + entry.path)
            except OSError:
                return False
            if S_ISREG(status.st_mode):
                if (entry.kind, entry.size, entry.mtime) != (FILE, status.st_size, status.st_mtime_ns):
                    return False
            elif S_ISDIR(status.st_mode) != (entry.kind == FOLDER):
                return False
        return True

    def about(self, target: CheckpointRow) -> list[bytes]:
        """Return the paths that the version is limited to; empty for a version of everything."""
        return covered_paths(self.repository, target)

    def plan_between(self, old: CheckpointRow, new: CheckpointRow, scope: Scope) -> Plan:
        pairs = list(self._between(old, new, scope.paths, scope.made_folders))
        rows = {_path(pair): pair for pair in pairs}
        kinds = self._kinds(new, lambda path: rows[path][1]), self._kinds(old, lambda path: rows[path][0])
        result = plan([pair for pair in pairs if scope.holds(_path(pair))], *kinds)
        return self._without_pointers(result, new, *kinds)

    def plan_rows(self, version: CheckpointRow, pairs: Sequence[Pair]) -> Plan:
        """Plan from rows now to rows wanted, for single files of a version whose folders stay as they are."""
        rows = {_path(pair): pair for pair in pairs}
        kinds = self._kinds(version, lambda path: rows[path][1]), self._kinds(version, lambda path: rows[path][0])
        return self._without_pointers(plan([pair for pair in pairs if differ(*pair)], *kinds), version, *kinds)

    def rows_now(self, paths: Sequence[bytes]) -> dict[bytes, Entry | None]:
        """Return what is at these paths on disk."""
        for _ in range(MAX_ATTEMPTS):
            version = self.refresh().version
            changed = disk_now(self.engine, self.root, self.row, paths)
            saved = self.repository.current(self.row.id, list(paths))
            if self.refresh().version == version:
                break  # else another process saved meanwhile: rows and disk do not belong together
        return {path: changed[path] if path in changed else saved.get(path) for path in paths}

    def _without_pointers(self, plan: Plan, target: CheckpointRow, then: Kinds, now: Kinds) -> Plan:
        """Return the plan without `.git` files and links that would lead git into this folder.

        They are not removed either: an undo could not bring them back. Other `.git` files are not removed if the target was made
        before such files were saved: it does not tell whether they existed.
        """
        pointers = [step for step in plan.steps if step.path.rpartition(b"/")[2] == GIT]
        inward = {
            step.path
            for step in pointers
            if (step.new is not None and step.action != MODE and not self._is_safe_pointer(step.new, then))
            or (step.old is not None and step.action != MODE and not self._is_safe_pointer(step.old, now, on_disk=True))
        }
        self.spared = [(path, POINTS_IN) for path in sorted(inward)]
        if inward:
            plan = plan.without(inward, POINTS_IN)
        deleted = [step.path for step in pointers if step.action == DELETE and step.path not in inward]
        if not deleted or self._knows_pointers(target):
            return plan
        repository = self.repository
        unknown = {
            path
            for path in deleted
            if not any(since <= target.version for since, _, _ in repository.history(target.workspace, path))
        }
        return (
            plan.without(unknown, ("that checkpoint was made before `.git` pointer files were saved"))
            if unknown
            else plan
        )

    def _is_safe_pointer(self, pointer: Entry, kind: Kinds, on_disk: bool = False) -> bool:
        """Return whether this `.git` may be written: it is readable and leads neither into this folder nor to one above."""
        if pointer.kind not in LEAF_KINDS:
            return True  # folders have no step, and excluded entries are checked elsewhere
        try:
            pointed_at = targets(pointer.kind, self._pointer_content(pointer, on_disk))
        except (Damaged, WrongKey, OSError):
            return on_disk
        return bool(pointed_at) and not any(leads_in(self.root, pointer.path, target, kind) for target in pointed_at)

    def _pointer_content(self, pointer: Entry, on_disk: bool) -> bytes:
        """Return what a `.git` file or link holds; nothing if that is too long. One on disk may be in no checkpoint yet."""
        if pointer.kind == LINK:
            return pointer.content
        if pointer.size > MAX_POINTER_BYTES:
            return b""
        try:
            return self.repository.contents.load(pointer.content)
        except (Damaged, WrongKey):
            if not on_disk:
                raise
        top = open_fd(self.root, O_RDONLY)
        try:
            fd = open_below(top, pointer.path, O_RDONLY | O_NONBLOCK)
        finally:
            close(top)
        try:
            return read(fd, MAX_POINTER_BYTES + 1)
        finally:
            close(fd)

    def _knows_pointers(self, target: CheckpointRow) -> bool:
        try:
            return self.repository.document(target)[0].git_files
        except Damaged:
            return False

    def is_as_seen(self, before: CheckpointRow, preview: Preview) -> bool:
        """Return whether the safety checkpoint found exactly what the preview had seen; then the preview's plan holds."""
        if before.workspace != self.row.id or before.version != preview.newest + 1:
            return False
        try:
            header, entries = self.repository.document(before)
        except Damaged:
            return False
        if header.keyframe or len(entries) != len(preview.seen):
            return False
        return all(entry.path in preview.seen and _is_recorded(entry, preview.seen[entry.path]) for entry in entries)

    def _between(
        self, old: CheckpointRow | None, new: CheckpointRow, paths: Sequence[bytes], made_folders: Iterable[bytes] = ()
    ) -> Iterable[Pair]:
        """Return the pairs that differ between `old` and `new`. Of files only they and folders above are compared."""
        if not paths or old is None:
            return pairs_between(self.repository, self.row.id, old, new)
        pairs: list[Pair] = []
        repository = self.repository
        for path in dict.fromkeys((*paths, *parents(paths), *made_folders)):
            before, after = (
                repository.at(old.workspace, old.version, path),
                repository.at(new.workspace, new.version, path),
            )
            kinds = {entry.kind for entry in (before, after) if entry is not None}
            if path in paths and (not kinds or not kinds <= LEAF_KINDS):
                return pairs_between(self.repository, self.row.id, old, new)
            if differ(before, after):
                pairs.append((before, after))
        return pairs

    def _kinds(
        self, checkpoint: CheckpointRow | None, row_of: Callable[[bytes], Entry | None]
    ) -> Callable[[bytes], str]:
        """Return a function from a path to its kind in a version. `row_of` has known rows, or raises `KeyError`."""

        def kind(path: bytes) -> str:
            try:
                row = row_of(path)
            except KeyError:
                row = None
                if checkpoint is not None:
                    row = self.repository.at(checkpoint.workspace, checkpoint.version, path)
            return row.kind if row is not None else ""

        return kind

    def _is_same_content(self, now: Entry, goal: Entry | None) -> bool:
        """Return whether an excluded file on disk still has the content that a checkpoint saved, by reading it: saves do not."""
        if goal is None or now.kind not in (OVERSIZE, IGNORED) or goal.kind != FILE:
            return False
        try:
            top = open_fd(self.root, O_RDONLY)
            try:
                fd = open_below(top, goal.path, O_RDONLY | O_NONBLOCK)
            finally:
                close(top)
            try:
                status = fstat(fd)
                if not S_ISREG(status.st_mode) or (status.st_size, S_IMODE(status.st_mode)) != (goal.size, goal.mode):
                    return False
                return goal.content in self.repository.contents.ids(
                    lambda most: read(fd, most), bool(goal.flags & SEALED)
                )
            finally:
                close(fd)
        except OSError:
            return False

    def rows_at(self, checkpoint: CheckpointRow, paths: Collection[bytes]) -> dict[bytes, Entry]:
        """Return the version's rows at these paths."""
        repository, workspace, version = self.repository, checkpoint.workspace, checkpoint.version
        if len(paths) > MAX_PATH_QUERIES:
            path_set = set(paths)
            return {row.path: row for row in repository.state(workspace, version) if row.path in path_set}
        return {path: row for path in paths if (row := repository.at(workspace, version, path)) is not None}

    def _missing_folders(self, paths: Sequence[bytes], rows: dict[bytes, Pair]) -> list[bytes]:
        """Return folders above the paths that must be made because they were deleted."""
        missing = []
        for path in sorted(parents(paths)):
            now, goal = rows.get(path, (None, None))
            if goal is None or goal.kind != FOLDER:
                continue
            if now is None:
                missing.append(path)
            elif now.kind in (FILE, LINK, SPECIAL, OVERSIZE, IGNORED):
                raise Conflict(f"{show(path)} is no longer a folder.", f"Restore the whole path: -- {show(path)}")
        return missing

    def _is_unsaved(self, path: bytes, now: Entry) -> bool:
        """Return whether no checkpoint has this state of the file."""
        if now.kind == FOLDER:
            return False
        return not any(same(row, now) for _, _, row in self.repository.history(self.row.id, path))

    def refresh(self) -> WorkspaceRow:
        row = self.repository.workspace(self.row.id)
        if row is not None:
            self.row = row
        return self.row

    def _newest(self) -> CheckpointRow | None:
        return self.repository.checkpoint(self.row.id, self.row.version) if self.row.version else None


def _hint_for(lost: Missing) -> str:
    """Return the hint for something that a version excluded."""
    return lost.holder_hint() or (f"Run `{lost.command}` to recreate it." if lost.command else "No version has it.")


def _is_recorded(recorded: Entry, seen: Entry | None) -> bool:
    if seen is None:
        return recorded.kind == GONE
    # Only the safety checkpoint knows the content of an excluded file.
    return seen.kind not in LEFT_OUT and same(recorded, seen)


def _path(pair: Pair) -> bytes:
    entry = pair[1] if pair[1] is not None else pair[0]
    assert entry is not None
    return entry.path
