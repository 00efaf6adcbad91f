"""The plan of a restore: the newest version, the disk and the target compared, and the unsaved work that is in the way."""

from __future__ import annotations

from posix import O_NONBLOCK, O_RDONLY, close, fstat, listdir, lstat, read
from posix import open as open_fd
from stat import S_IMODE, S_ISDIR, S_ISLNK, S_ISREG

from keepfast.app.inspect import differ, disk_now, lies_below, pairs_between
from keepfast.fsutil.descriptors import open_below
from keepfast.model.artefacts import evidence_folder, evidence_of, is_always_excluded, rebuild_command
from keepfast.model.document import header
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
from keepfast.workspace.git_pointers import LONGEST, POINTS_IN, leads_in, targets
from keepfast.workspace.marker import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from posix import stat_result

    from keepfast.app.checkpoint import Engine
    from keepfast.store.rows import CheckpointRow, WorkspaceRow

    Pair = tuple[Entry | None, Entry | None]
    Kinds = Callable[[bytes], str]

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


MISSING, DIFFERS, EMPTY = "missing", "differs", "empty"


class Missing:
    """Something that a version left out and that is not what it was: a restore of that version cannot bring it back."""

    __slots__ = ("command", "held_by", "path", "state", "why")

    def __init__(self, path: bytes, why: str, command: str | None, held_by: int, state: str = MISSING) -> None:
        self.path, self.why = path, why
        self.held_by = held_by
        """The next version that has it, else the newest one before; 0 if none has."""
        self.state = state
        """`missing`, `differs`, or `empty`: a folder with nothing in it, of which nobody knows what was in it then."""
        self.command = command
        """What makes it again; empty if its tool does that by itself, None if nothing does."""

    def holder_named(self) -> str:
        """The version that has it, with the command that brings it back from there; empty if none has."""
        from shlex import quote

        return (
            f"v{self.held_by} has it: `keepfast restore v{self.held_by} -- {quote(show(self.path))}`"
            if self.held_by
            else ""
        )


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

    def without(self, paths: set[bytes], why: str = KEPT_AS_IT_IS) -> Preview:
        """The same, leaving these paths as they are: work that lies there is not in the way."""
        others = [path for path in self.conflicts if path not in paths]
        return Preview(self.plan.without(paths, why), others, self.scope, self.newest, self.seen)


class Planner:
    """Plans restores of one workspace; touches nothing."""

    def __init__(self, engine: Engine, root: bytes, row: WorkspaceRow) -> None:
        self.engine, self.root, self.row = engine, root, row
        self.repository = engine.repository()
        self.spared: list[tuple[bytes, str]] = []
        """What the last plan does not write because of where it leads, and why."""
        self.not_read: list[tuple[bytes, str]] = []
        """What the last target has in folders that are left out now, where it is not as it has it; and why it stays."""

    def refuse_unknown(self, target: CheckpointRow, paths: Sequence[bytes]) -> None:
        """Raise `NotFound` for a path that somebody typed and that is neither in the target nor here, or was left out."""
        for path in paths:
            self._refuse_left_out(target, path)
            try:
                lstat(self.root + b"/" + path)
            except OSError:
                if not self._rows(target, (path,)):
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
                _way_out(lost),
            )

    def missing(self, target: CheckpointRow, paths: Sequence[bytes] = ()) -> list[Missing]:
        """What the target left out, at these paths or anywhere, and what is not there now, or not as it was."""
        found: list[Missing] = []
        for limit in paths or (b"",):
            for row in self.repository.left_out(target.workspace, target.version, limit):
                try:
                    seen = lstat(self.root + b"/" + row.path)
                except OSError:
                    found.append(self._missing(row, target))
                    continue
                one = self._missing(row, target)
                one.state = self._state(row, seen, one.command is not None or is_always_excluded(row.path))
                if one.state:
                    found.append(one)
        return found

    def left_out(self, target: CheckpointRow, paths: Sequence[bytes] = ()) -> list[tuple[bytes, int]]:
        """What the target left out, at these paths or anywhere, each with the version that has it, 0 if none has."""
        repository = self.repository
        return [
            (row.path, self._held_by(row.path, target))
            for limit in paths or (b"",)
            for row in repository.left_out(target.workspace, target.version, limit)
        ]

    def _state(self, row: Entry, seen: stat_result, is_made_again: bool) -> str:
        """What this is now, if for all that the version knows of it it is not what was left out then; else nothing."""
        if row.kind in (OVERSIZE, IGNORED):
            is_kind = S_ISREG(seen.st_mode) or (row.kind == IGNORED and S_ISLNK(seen.st_mode))
            # Versions of before have no time of what they left out.
            same = is_kind and seen.st_size == row.size and row.mtime in (0, seen.st_mtime_ns)
            return "" if same else DIFFERS
        if row.kind == SPECIAL:
            return DIFFERS if S_ISREG(seen.st_mode) or S_ISDIR(seen.st_mode) or S_ISLNK(seen.st_mode) else ""
        if row.kind != EXCLUDED or not (is_made_again or row.flags & WHY_EXCLUDED != BY_NAME):
            return ""
        if not S_ISDIR(seen.st_mode):
            # Of all that a tool makes again, .DS_Store is the one that is a file.
            return "" if row.path.endswith(b".DS_Store") else DIFFERS
        try:
            return "" if listdir(self.root + b"/" + row.path) else EMPTY
        except OSError:
            return ""

    def _missing(self, row: Entry, target: CheckpointRow) -> Missing:
        command = rebuild_command(row.path, self._beside(row.path, target)) if row.kind == EXCLUDED else None
        return Missing(row.path, why(row), command, self._held_by(row.path, target))

    def _held_by(self, path: bytes, target: CheckpointRow) -> int:
        found = self.repository.holder(target.workspace, path, target.version)
        return found.version if found is not None else 0

    def _beside(self, path: bytes, target: CheckpointRow) -> set[bytes]:
        """What lies beside this path now, and what of a tool's files the target brings there."""
        above = evidence_folder(path).rpartition(b"/")[0]
        try:
            beside = set(listdir(self.root + b"/" + above))
        except OSError:
            beside = set()
        folder = above + b"/" if above else b""
        at = self.repository.at
        return beside | {
            name for name in evidence_of(path) if at(target.workspace, target.version, folder + name) is not None
        }

    def preview(self, target: CheckpointRow, paths: Sequence[bytes] = (), made: Iterable[bytes] = ()) -> Preview:
        """Compare with the disk now. Nothing is written. Raises `Conflict` if a path leads through what is no folder."""
        paths = paths or self.about(target)
        for _ in range(ATTEMPTS):
            self.refresh()
            newest, version = self._newest(), self.row.version
            changed = disk_now(self.engine, self.root, self.row, paths)
            if self.refresh().version == version:
                break  # else somebody saved meanwhile, and the two do not belong together
        rows = {
            (pair[1] or pair[0]).path: pair  # type: ignore[union-attr]
            for pair in self._between(newest, target, paths, made)
        }
        wanted_there = self._rows(target, [path for path in changed if path not in rows])
        for path, now in changed.items():
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
            return changed[path] if path in changed else rows[path][0]

        pairs = [pair for path, pair in rows.items() if scope.holds(path)] if paths else list(rows.values())
        kinds = self._kinds(target, then_there), self._kinds(newest, now_there)
        made_plan = self._sparing_pointers(plan(pairs, *kinds), target, *kinds)
        self.not_read = self._not_read(made_plan, target, paths)
        conflicts = [
            one.path
            for one in made_plan.steps
            if one.old is not None
            and (one.old.kind in LEFT_OUT or (one.path in changed and self._is_unsaved(one.path, one.old)))
        ]
        return Preview(made_plan, conflicts, scope, version, changed)

    def _not_read(self, made: Plan, target: CheckpointRow, paths: Sequence[bytes]) -> list[tuple[bytes, str]]:
        """The folders as a whole; if only what lies in them was asked for, that."""
        asked = [(path, why) for path, why in made.untouched if not paths or lies_below(path, paths)]
        folders = {path for path, why in asked if why == NOT_READ}
        return [
            (path, why)
            for path, why in asked
            if (why == NOT_READ or (why == BELOW_NOT_READ and folders.isdisjoint(parents([path]))))
            and not self._is_as_in(target, path)
        ]

    def _is_as_in(self, target: CheckpointRow, folder: bytes) -> bool:
        """Is all that a version has of this folder here, by kinds, sizes and times? Its contents are not read."""
        for entry in self.repository.state(target.workspace, target.version, folder):
            try:
                seen = lstat(self.root + b"/" + entry.path)
            except OSError:
                return False
            if S_ISREG(seen.st_mode):
                if (entry.kind, entry.size, entry.mtime) != (FILE, seen.st_size, seen.st_mtime_ns):
                    return False
            elif S_ISDIR(seen.st_mode) != (entry.kind == FOLDER):
                return False
        return True

    def about(self, target: CheckpointRow) -> list[bytes]:
        """The paths that a version is about if it was made of some of a tree that has too many; of others it says nothing."""
        if target.created_by != "auto":
            return []  # it is made before a command of an agent's
        try:
            partial = header(self.repository.contents.load(target.document)).partial
        except Damaged:
            return []
        return [path.encode("utf-8", "surrogateescape") for path in partial if path]

    def plan_between(self, old: CheckpointRow, new: CheckpointRow, scope: Scope) -> Plan:
        found = list(self._between(old, new, scope.paths, scope.made))
        rows = {_path(pair): pair for pair in found}
        kinds = self._kinds(new, lambda path: rows[path][1]), self._kinds(old, lambda path: rows[path][0])
        made = plan([pair for pair in found if scope.holds(_path(pair))], *kinds)
        return self._sparing_pointers(made, new, *kinds)

    def _sparing_pointers(self, made: Plan, target: CheckpointRow, then: Kinds, now: Kinds) -> Plan:
        """The plan without `.git` files and links that lead git into this folder, and without the removal of others of
        which the target does not know whether they were there.

        One that leads in is not removed either: an undo could not bring it back. Versions made before such files were
        captured have none of them, which says nothing.
        """
        pointers = [one for one in made.steps if one.path.rpartition(b"/")[2] == GIT]
        inward = {
            one.path
            for one in pointers
            if (one.new is not None and one.action != MODE and not self._may_write(one.new, then))
            or (one.old is not None and one.action != MODE and not self._may_write(one.old, now, on_disk=True))
        }
        self.spared = [(path, POINTS_IN) for path in sorted(inward)]
        if inward:
            made = made.without(inward, POINTS_IN)
        deleted = [one.path for one in pointers if one.action == DELETE and one.path not in inward]
        if not deleted or self._knows_pointers(target):
            return made
        repository = self.repository
        unknown = {
            path
            for path in deleted
            if not any(since <= target.version for since, _, _ in repository.history(target.workspace, path))
        }
        return (
            made.without(unknown, ("that checkpoint was made before `.git` pointer files were saved"))
            if unknown
            else made
        )

    def _may_write(self, pointer: Entry, kind: Kinds, on_disk: bool = False) -> bool:
        """May this `.git` be written? Only if it can be read, and leads neither here nor to a folder above."""
        if pointer.kind not in SINGLE:
            return True  # there is no step for a folder, and what is left out is judged by others
        try:
            found = targets(pointer.kind, self._pointer(pointer, on_disk))
        except (Damaged, WrongKey, OSError):
            return on_disk
        return bool(found) and not any(leads_in(self.root, pointer.path, one, kind) for one in found)

    def _pointer(self, pointer: Entry, on_disk: bool) -> bytes:
        """What a `.git` holds; nothing if that is too much. One on disk may be in no checkpoint yet."""
        if pointer.kind == LINK:
            return pointer.content
        if pointer.size > LONGEST:
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
            return read(fd, LONGEST + 1)
        finally:
            close(fd)

    def _knows_pointers(self, target: CheckpointRow) -> bool:
        try:
            return self.repository.document(target)[0].git_files
        except Damaged:
            return False

    def is_as_seen(self, before: CheckpointRow, preview: Preview) -> bool:
        """Has the safety checkpoint found just what the preview had seen? Then its plan holds."""
        if before.workspace != self.row.id or before.version != preview.newest + 1:
            return False
        try:
            header, entries = self.repository.document(before)
        except Damaged:
            return False
        if header.keyframe or len(entries) != len(preview.seen):
            return False
        return all(entry.path in preview.seen and _is_it(entry, preview.seen[entry.path]) for entry in entries)

    def _between(
        self, old: CheckpointRow | None, new: CheckpointRow, paths: Sequence[bytes], made: Iterable[bytes] = ()
    ) -> Iterable[Pair]:
        """What leads from `old` to `new`. Where the paths are files, only they and what lies above them are asked for."""
        if not paths or old is None:
            return pairs_between(self.repository, self.row.id, old, new)
        found: list[Pair] = []
        repository = self.repository
        for path in dict.fromkeys((*paths, *parents(paths), *made)):
            before, after = (
                repository.at(old.workspace, old.version, path),
                repository.at(new.workspace, new.version, path),
            )
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
                    row = self.repository.at(checkpoint.workspace, checkpoint.version, path)
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
                return wanted.content in self.repository.contents.ids(
                    lambda most: read(fd, most), bool(wanted.flags & SEALED)
                )
            finally:
                close(fd)
        except OSError:
            return False

    def _rows(self, checkpoint: CheckpointRow, paths: Collection[bytes]) -> dict[bytes, Entry]:
        """The rows of a version at these paths, as it has them: groups and times differ without making a version."""
        repository, workspace, version = self.repository, checkpoint.workspace, checkpoint.version
        if len(paths) > MANY_PATHS:
            wanted = set(paths)
            return {row.path: row for row in repository.state(workspace, version) if row.path in wanted}
        return {path: row for path in paths if (row := repository.at(workspace, version, path)) is not None}

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
                raise Conflict(f"{show(path)} is no longer a folder.", f"Restore the whole path: -- {show(path)}")
        return found

    def _is_unsaved(self, path: bytes, now: Entry) -> bool:
        """Is this work that no checkpoint has? A file that an earlier restore put there is none."""
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


def _way_out(lost: Missing) -> str:
    """The hint for something that a version excluded."""
    return lost.holder_named() or (f"Run `{lost.command}` to recreate it." if lost.command else "No version has it.")


def _is_it(recorded: Entry, seen: Entry | None) -> bool:
    if seen is None:
        return recorded.kind == GONE
    # Of what is left out only the safety checkpoint knows the content.
    return seen.kind not in LEFT_OUT and same(recorded, seen)


def _path(pair: Pair) -> bytes:
    entry = pair[1] if pair[1] is not None else pair[0]
    assert entry is not None
    return entry.path
