"""Restore, continue, abort, undo, redo: plan, safety checkpoint, journal, apply (docs/restoring.md)."""

from __future__ import annotations

from keepfast.app.inspect import differ
from keepfast.app.preview import Missing, Planner, Preview, Scope
from keepfast.app.restore_execution import Begun, Execution
from keepfast.app.restore_journal import GO_ON, UNTOUCHED, Turn, explain, paths_of, texts
from keepfast.app.workspace_lock import Folder
from keepfast.model.entry import FOLDER, LEFT_OUT
from keepfast.model.errors import Conflict, Failed, KeepfastError, NotFound, WrongKey
from keepfast.model.event import Event
from keepfast.model.restore_plan import KEPT_AS_IT_IS, Plan, Step
from keepfast.model.steps import step
from keepfast.store.restore_journal import History, Journal, PastRestore, RestoreInProgress, Reversal
from keepfast.workspace.apply_result import ApplyResult
from keepfast.workspace.marker import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from typing import Any

    from keepfast.app.checkpoint import Engine
    from keepfast.model.entry import Entry
    from keepfast.store.rows import CheckpointRow, WorkspaceRow

ASK, MINE, THEIRS = "ask", "mine", "theirs"
FOREIGN = "it matches neither the old nor the new state"
CLOSED = "it is sealed, and its key is missing"
KEY_HINT = "Run `keepfast key import FILE` with the backup of the key."


class Restored:
    """What a restore did. `taken_back_by`: the command that takes it back; empty for an abort, which leaves nothing to."""

    def __init__(self, target: int, before: int, applied: ApplyResult, plan: Plan, taken_back_by: str) -> None:
        self.target, self.before, self.applied, self.plan = target, before, applied, plan
        self.taken_back_by = taken_back_by
        self.missing: list[Missing] = []
        """What the target left out and what is not there."""


class Unfinished:
    """A restore that has not come to its end. `state`: cut off, running, or damaged; then `error` says what its journal has."""

    def __init__(self, state: str, cut: RestoreInProgress | None = None, error: KeepfastError | None = None) -> None:
        self.state, self.cut, self.error = state, cut, error


class Restorer:
    """Restores in one workspace. `ask(preview)` is called before anything is touched; False stops without a trace."""

    def __init__(self, engine: Engine, root: bytes, row: WorkspaceRow) -> None:
        self.engine, self.root, self.repository = engine, root, engine.repository()
        self.planner = Planner(engine, root, row)
        self.execution = Execution(engine, root)

    @property
    def row(self) -> WorkspaceRow:
        """The workspace as the planner last saw it: saves beside a restore change it."""
        return self.planner.row

    # What a person calls

    def restore(
        self,
        target: CheckpointRow,
        paths: Sequence[bytes] = (),
        *,
        conflicts: str = ASK,
        mtimes: bool = False,
        ask: Callable[[Preview], bool] | None = None,
        at_once: bool = False,
        reversal: Reversal | None = None,
        made: Iterable[bytes] = (),
        base: list[Any] | None = None,
        was: list[Any] | None = None,
        named: int = 0,
    ) -> Restored | None:
        """Bring the scope to the target's state. None if `ask` said no or there is nothing to do.

        `base`: the version that an undo or redo leads back to. `was`: the one that the folder is at now, where asking
        would not tell. `named`: the version that the person named, if the target was made of it.

        `at_once`: `ask` answers without asking anybody, so that nothing can have changed much since the preview.
        Raises `Conflict` if work that no checkpoint has would be overwritten and nobody said that it may be, or if an
        earlier restore was cut off; `Busy` if another one is under way; `DiskFull` if there is no room for it.
        """
        paths = paths or self.planner.about(target)
        with self._turn() as journal:
            self._refuse_if_cut_off(journal)
            was = was or _place(self.repository.base(self.row.id))
            bases = was, base if reversal else was if paths else _place(target)
            preview = self.planner.preview(target, paths, made)
            mine: set[bytes] = set(preview.conflicts) if conflicts == MINE else set()
            if mine:
                preview = preview.without(mine)
                self.planner.spared += [(path, KEPT_AS_IT_IS) for path in sorted(mine)]
            preview, closed = self._without_closed(preview)
            if not preview.plan.steps and not reversal:
                return None
            if preview.conflicts and conflicts == ASK and ask is None:
                raise conflict(preview.conflicts)
            if preview.plan.steps and ask is not None and not ask(preview):
                return None
            room = self.execution.refuse_if_full(preview.plan)
            workspace, choices = self.row.id, (mine, conflicts == THEIRS, mtimes, reversal, bases)
            with self.execution.begin(preview, target, mtimes, room) as begun:
                before = self._safety(
                    preview.plan, preview.only(at_once), f"before restoring v{named or target.version}"
                )
                if before.workspace == workspace:
                    return _left_closed(self._run(journal, target, before, preview, *choices, begun), closed)
        # The safety checkpoint has found out that this folder is a copy, and made it a workspace of its own.
        with self._turn() as journal:
            return _left_closed(self._run(journal, target, before, preview, *choices), closed)

    def resume(self) -> Restored:
        """Finish a restore that was cut off. Raises `NotFound` if none was."""
        with self._turn() as journal:
            cut = self._cut(journal)
            target, before = self._version(cut.target, cut.origin), self._version(cut.before)
            return self._finish(journal, cut, target, before, aborting=False)

    def abort(self) -> Restored:
        """Take back a restore that was cut off. Raises `NotFound` if none was."""
        with self._turn() as journal:
            cut = self._cut(journal)
            target, before = self._version(cut.target, cut.origin), self._version(cut.before)
            return self._finish(journal, cut, before, target, aborting=True)

    def outlook(self, *, aborting: bool) -> tuple[CheckpointRow, Preview]:
        """Where `resume` or `abort` would lead, and what is left to be done; nothing is touched. Raises as they do."""
        with self._turn() as journal:
            cut = self._cut(journal)
            target, before = self._version(cut.target, cut.origin), self._version(cut.before)
            goal, origin = (before, target) if aborting else (target, before)
            scope, kept = Scope(paths_of(cut.paths), paths_of(cut.created_paths)), set(paths_of(cut.kept_paths))
            ours = {one.path: one for one in self.planner.plan_between(origin, goal, scope).without(kept).steps}
            preview = self.planner.preview(goal, scope.paths, scope.made)
            foreign = {one.path for one in preview.plan.steps if not _is_half_done(ours.get(one.path), one)}
            return goal, preview.without(foreign, FOREIGN)

    def undo(self, **options: Any) -> Restored | None:
        """Take back the newest restore that was not taken back yet. Raises `NotFound` if there is none."""
        self._refuse_if_cut_off(self._turn())
        done = self._history().done
        if not done:
            raise NotFound(
                "No restore to undo.", "Run `keepfast list` to see checkpoints; any of them can be restored."
            )
        return self._back(done[-1], Reversal("undo", done[-1].number), options)

    def redo(self, **options: Any) -> Restored | None:
        """Take back the newest undo. Raises `NotFound` if there is none, or something was restored since."""
        self._refuse_if_cut_off(self._turn())
        undone = self._history().undone
        if not undone:
            raise NotFound("No undo to redo.")
        undo = undone[-1].reversal
        assert undo is not None
        return self._back(undone[-1], Reversal("redo", undo.number), options)

    def ways_back(self) -> tuple[bool, bool]:
        """Whether `undo` has something to take back, and whether `redo` has."""
        history = self._history()
        return bool(history.done), bool(history.undone)

    def _back(self, done: PastRestore, reversal: Reversal, options: dict[str, Any]) -> Restored | None:
        target, made = self._version(done.before), paths_of(done.created_paths)
        return self.restore(target, paths_of(done.paths), reversal=reversal, made=made, base=done.was, **options)

    def cut_off(self) -> RestoreInProgress | None:
        """A restore that was cut off, or None. Raises `Damaged`."""
        journal = self._turn()
        cut = journal.read()
        return None if cut is None or journal.is_locked() else cut

    def is_running(self) -> bool:
        """Is another process restoring here at this moment?"""
        return self._turn().is_locked()

    def unfinished(self) -> Unfinished | None:
        """A restore here that is under way, or was and did not come to its end; None if there is none."""
        try:
            cut = self.cut_off()
        except KeepfastError as error:
            return Unfinished("damaged", error=error)
        if cut is None:
            return Unfinished("running") if self.is_running() else None
        return Unfinished("cut off", cut)

    def restore_parts(
        self, target: CheckpointRow, contents: dict[bytes, tuple[Entry, bytes]], *, mtimes: bool = False
    ) -> Restored | None:
        """Give some files other contents, which were put together from what is there (the entry) and the target.

        Raises `Conflict` if one of them was changed in the meantime.
        """
        event = Event(
            self.root,
            self.engine.clock(),
            trigger="patch",
            message=f"hunks of v{target.version}",
            created_by="user",
        )
        was = _place(self.repository.base(self.row.id))
        # A version for as long as it takes: it can be finished, or taken back, if the restore is cut off.
        chosen: CheckpointRow = self.engine.compose(event, self.root, self.planner.refresh().id, contents)

        def is_as_chosen(preview: Preview) -> bool:
            changed = [one.path for one in preview.plan.steps if differ(one.old, contents[one.path][0])]
            if changed:
                raise Conflict(
                    f"{show(changed[0])} changed while hunks were chosen; nothing was restored.",
                    "Choose the hunks again.",
                )
            return True

        try:
            done = self.restore(
                chosen, sorted(contents), mtimes=mtimes, ask=is_as_chosen, at_once=True, was=was, named=target.version
            )
        finally:
            self._forget_chosen(chosen)
        if done is not None:
            done.target = target.version
        return done

    def _forget_chosen(self, chosen: CheckpointRow) -> None:
        from keepfast.store.maintenance.space import forget

        try:
            with Folder(self.engine, self.root, chosen.workspace) as folder:
                place = self.engine.place.path
                folder.recording(lambda: forget(self.repository, chosen.workspace, [chosen.version], "restored", place))
        except (OSError, KeepfastError):
            pass  # a restore that was cut off needs it; `list` does not show it

    # Steps

    def _without_closed(self, preview: Preview) -> tuple[Preview, set[bytes]]:
        """Leave out what is sealed with a key that is not at hand. Raises `WrongKey` if nothing else is to be done."""
        closed = self.repository.contents.paths_without_key(one.new for one in preview.plan.steps)
        if closed and len(closed) == len(preview.plan.steps):
            raise WrongKey(f"The key of a sealed file to restore is missing: {show(min(closed))}.", KEY_HINT)
        return preview.without(closed, CLOSED) if closed else preview, closed

    def _safety(self, made: Plan, only: tuple[bytes, ...], message: str) -> CheckpointRow:
        """Save what is there: whatever the plan would touch, by whatever rule it is left out otherwise."""
        event = Event(
            self.root,
            self.engine.clock(),
            trigger="before_restore",
            message=message,
            created_by="system",
            force=frozenset(one.path for one in made.steps),
            only=only,
        )
        checkpoint: CheckpointRow | None = self.engine.handle(event).checkpoint
        if checkpoint is None:  # its marker went, or cannot be read any more
            raise Failed(
                (f"{show(self.root)} could not be saved before the restore: it is not inside a workspace."), UNTOUCHED
            )
        step("restore:safe")
        if checkpoint.workspace != self.row.id:
            self.planner.row = self.row._replace(id=checkpoint.workspace)
        self.planner.refresh()
        return checkpoint

    def _run(
        self,
        journal: Journal,
        target: CheckpointRow,
        before: CheckpointRow,
        preview: Preview,
        mine: set[bytes],
        everything: bool,
        mtimes: bool,
        reversal: Reversal | None,
        bases: tuple[list[Any] | None, list[Any] | None],
        begun: Begun | None = None,
    ) -> Restored:
        scope = preview.scope
        made, late = self._agreed(target, before, preview, mine, everything)
        restore = RestoreInProgress(
            self.row.id,
            target.version,
            target.workspace,
            before.version,
            texts(scope.paths),
            texts(sorted(scope.made)),
            texts(sorted(mine | late)),
            self.engine.clock(),
            mtimes,
            reversal,
            *bases,
        )
        applied = self.execution.carry_out(journal, restore, made, target, made, begun)
        self._record(journal, restore)
        applied.untouched += [(path, "it changed after the confirmation") for path in sorted(late)]
        done = Restored(target.version, before.version, applied, made, _way_back(reversal))
        done.missing = self.planner.missing(target, scope.paths)
        return done

    def _agreed(
        self, target: CheckpointRow, before: CheckpointRow, preview: Preview, mine: set[bytes], everything: bool
    ) -> tuple[Plan, set[bytes]]:
        """What to do, from the safety checkpoint on, and the paths that were changed after the question."""
        if self.planner.is_as_seen(before, preview):
            return preview.plan, set()
        agreed = {one.path: one for one in preview.plan.steps}
        left = {path for path, _ in preview.plan.untouched}
        made = self.planner.plan_between(before, target, preview.scope).without(mine).without(left)
        late = set() if everything else {one.path for one in made.steps if not _is_agreed(agreed.get(one.path), one)}
        made = made.without(late, "it changed after the confirmation")
        # A safety checkpoint of a few paths does not name what is left alone beside them; the preview did.
        made.untouched = list(dict.fromkeys([*preview.plan.untouched, *made.untouched]))
        return made, late

    def _finish(
        self, journal: Journal, cut: RestoreInProgress, goal: CheckpointRow, origin: CheckpointRow, *, aborting: bool
    ) -> Restored:
        """From wherever the disk is now to `goal`; what is neither there nor at `origin` is somebody's work and stays."""
        scope, kept = Scope(paths_of(cut.paths), paths_of(cut.created_paths)), set(paths_of(cut.kept_paths))
        ours = self.planner.plan_between(origin, goal, scope).without(kept)
        now = self._safety(ours, scope.only(one.path for one in ours.steps), "before finishing a restore")
        mine = {one.path: one for one in ours.steps}
        made = self.planner.plan_between(now, goal, scope)
        foreign = {one.path for one in made.steps if not _is_half_done(mine.get(one.path), one)}
        applied = self.execution.carry_out(journal, cut, made.without(foreign), goal, ours)
        applied.untouched += [(path, FOREIGN) for path in sorted(foreign - kept)]
        done = self._history().find(cut.before, cut.target)
        way_back = _way_back(cut.reversal)
        if done is None and not aborting:
            self._record(journal, cut)
        elif done is not None and aborting:  # it was cut off after it was done: then this is an undo
            undo = Reversal("undo", done.number)
            way_back = _way_back(undo)
            self._record(journal, cut.reversed_by(undo, goal.version, now.version))
        else:
            way_back = "" if aborting else way_back
            # The safety checkpoint that was just made is not what the folder is at.
            self._commit(journal, {"r": "base", "base": cut.was if aborting else cut.base})
        done_now = Restored(goal.version, now.version if aborting else cut.before, applied, made, way_back)
        done_now.missing = self.planner.missing(goal, scope.paths)
        return done_now

    def _record(self, journal: Journal, restore: RestoreInProgress) -> None:
        self._commit(journal, restore.record(self.row.id, self.engine.clock()))

    def _commit(self, journal: Journal, record: dict[str, Any]) -> None:
        try:
            with Folder(self.engine, self.root, self.row.id) as folder:
                folder.recording(lambda: self.repository.commit(self.row.id, lambda tx, row: [record]))
            step("restore:recorded")
            journal.remove()
        except (OSError, KeepfastError) as error:
            raise explain(error, GO_ON) from None

    # What must be right before anything is touched

    def _refuse_if_cut_off(self, journal: Journal) -> None:
        cut = journal.read()
        if cut is not None:
            raise Conflict(
                f"A restore of v{cut.target} was interrupted.",
                "Run `keepfast restore --continue` or `keepfast restore --abort` first.",
            )

    # The journal and the versions

    def _turn(self) -> Turn:
        return Turn(self.engine.place.folder(self.row.id), self.engine.place.durable)

    def _history(self) -> History:
        try:
            return History(self.repository, self.row.id)
        except OSError as error:
            raise explain(error, UNTOUCHED) from None

    def _cut(self, journal: Journal) -> RestoreInProgress:
        cut = journal.read()
        if cut is None:
            raise NotFound("No interrupted restore.", "There is nothing to continue or abort.")
        return cut

    def _version(self, version: int, workspace: str = "") -> CheckpointRow:
        found = self.repository.checkpoint(workspace or self.row.id, version)
        if found is None or found.forgotten:
            raise NotFound(f"v{version} no longer exists.")
        return found


def _way_back(reversal: Reversal | None) -> str:
    """The command that takes such a restore back."""
    return "redo" if reversal is not None and reversal.kind == "undo" else "undo"


def _place(row: CheckpointRow | None) -> list[Any] | None:
    return None if row is None else [row.workspace, row.version]


def _is_agreed(seen: Step | None, one: Step) -> bool:
    """Is what the safety checkpoint found what the person was shown?"""
    if seen is None:
        return False
    # Of what is left out only the safety checkpoint knows the content; of what is gone nothing can be lost.
    return one.old is None or (seen.old is not None and seen.old.kind in LEFT_OUT) or not differ(seen.old, one.old)


def _is_half_done(planned: Step | None, found: Step) -> bool:
    """Did our own restore leave this path as it was found, or could it have?"""
    if planned is None:
        return False
    if found.old is None or found.old.kind == FOLDER:
        return True  # taken away and not yet replaced; made and not yet given its mode
    return not differ(found.old, planned.old)


def _left_closed(done: Restored, closed: set[bytes]) -> Restored:
    done.applied.untouched += [(path, CLOSED) for path in sorted(closed)]
    return done


def conflict(paths: Collection[bytes]) -> Conflict:
    """The error that names what would be overwritten."""
    names = sorted(paths)
    shown = ", ".join(show(path) for path in names[:5]) + (" …" if len(names) > 5 else "")
    count = "1 file" if len(names) == 1 else f"{len(names):,} files"
    return Conflict(
        f"Unsaved changes in {count} would be overwritten: {shown}.",
        "Use --theirs or -y to overwrite them (they are saved first), or --keep-mine to keep them.",
    )
