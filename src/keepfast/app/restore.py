"""Restore, continue, abort, undo and redo: plan, safety checkpoint, journal, apply (docs/restoring.md)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from keepfast.app.checkpoint import Engine
from keepfast.app.inspect import differ
from keepfast.app.preview import Missing, Planner, Preview, Scope
from keepfast.app.restore_errors import (
    CONTINUE_HINT,
    UNTOUCHED_HINT,
    ReportingJournal,
    explain,
    path_of,
    paths_of,
    text,
    texts,
)
from keepfast.app.restore_execution import EarlyStaging, Execution
from keepfast.app.workspace_lock import Folder
from keepfast.model.entry import FOLDER, LEFT_OUT, Entry
from keepfast.model.errors import Conflict, Damaged, Failed, KeepfastError, NotFound, WrongKey
from keepfast.model.event import Event, Outcome
from keepfast.model.restore_plan import KEPT_AS_IT_IS, WRITE, Plan, Step
from keepfast.model.steps import step
from keepfast.store.digest import digest
from keepfast.store.restore_journal import History, Journal, PastRestore, RestoreInProgress, Reversal
from keepfast.store.rows import CheckpointRow, WorkspaceRow
from keepfast.workspace.apply_result import ApplyResult
from keepfast.workspace.marker import show

ASK, MINE, THEIRS = "ask", "mine", "theirs"
FOREIGN_REASON = "it matches neither the old nor the new state"
CLOSED_REASON = "it is sealed, and its key is missing"
KEY_HINT = "Run `keepfast key import FILE` with the backup of the key."


class Restored:
    """The result of a restore. `taken_back_by`: the command that reverses it; empty after an abort."""

    def __init__(self, target: int, before: int, applied: ApplyResult, plan: Plan, taken_back_by: str) -> None:
        self.target, self.before, self.applied, self.plan = target, before, applied, plan
        self.taken_back_by = taken_back_by
        self.missing: list[Missing] = []
        """What the target excludes and what is not on disk."""


class Unfinished:
    """A restore that did not finish. `state`: `cut off`, `running` or `damaged`; `error` says what is wrong with its journal."""

    def __init__(self, state: str, cut: RestoreInProgress | None = None, error: KeepfastError | None = None) -> None:
        self.state, self.cut, self.error = state, cut, error


class Restorer:
    """Restores in one workspace. `ask(preview)` is called before anything changes; if it returns False nothing does."""

    def __init__(self, engine: Engine, root: bytes, row: WorkspaceRow) -> None:
        self.engine, self.root, self.repository = engine, root, engine.repository()
        self.planner = Planner(engine, root, row)
        self.execution = Execution(engine, root)

    @property
    def row(self) -> WorkspaceRow:
        """Return the workspace's row as the planner last read it: concurrent saves change it."""
        return self.planner.row

    # Commands

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
        made_folders: Iterable[bytes] = (),
        new_base: list[Any] | None = None,
    ) -> Restored | None:
        """Bring the paths, or everything, to the target's state. None if `ask` returned False or there is nothing to do.

        `new_base`: the version that an undo or redo leads back to.

        `at_once`: `ask` does not wait for a person, so little can have changed since the preview.

        Raises `Conflict` if unsaved work would be overwritten without permission, or an earlier restore was interrupted;
        `Busy` if another restore is running; `DiskFull` if the disk is too small.
        """
        paths = paths or self.planner.about(target)
        with self._journal() as journal:
            self._refuse_if_cut_off(journal)
            current_base = _location(self.repository.base(self.row.id))
            bases = current_base, new_base if reversal else current_base if paths else _location(target)
            preview = self.planner.preview(target, paths, made_folders)
            mine: set[bytes] = set(preview.conflicts) if conflicts == MINE else set()
            if mine:
                preview = preview.without(mine)
                self.planner.spared += [(path, KEPT_AS_IT_IS) for path in sorted(mine)]
            preview, unreadable = self._without_unreadable(preview)
            if not preview.plan.steps and not reversal:
                return None
            if preview.conflicts and conflicts == ASK and ask is None:
                raise conflict(preview.conflicts)
            if preview.plan.steps and ask is not None and not ask(preview):
                return None
            disk = self.execution.refuse_if_full(preview.plan)
            workspace, choices = self.row.id, (mine, conflicts == THEIRS, mtimes, reversal, bases)
            with self.execution.begin(preview, target, mtimes, disk) as staging:
                before = self._save_first(
                    preview.plan,
                    preview.only(at_once),
                    f"before restoring v{target.version}",
                    rest_unchanged=not preview.scope.paths,
                ).checkpoint
                if before.workspace == workspace:
                    return _with_unreadable(self._run(journal, target, before, preview, *choices, staging), unreadable)
        # The safety checkpoint found that this folder is a copy, and made it a workspace of its own.
        with self._journal() as journal:
            return _with_unreadable(self._run(journal, target, before, preview, *choices), unreadable)

    def resume(self) -> Restored:
        """Finish an interrupted restore. Raises `NotFound` if there is none."""
        with self._journal() as journal:
            cut = self._interrupted(journal)
            target, before = self._checkpoint(cut.target, cut.origin), self._checkpoint(cut.before)
            return self._finish(journal, cut, target, before, aborting=False)

    def abort(self) -> Restored:
        """Undo an interrupted restore. Raises `NotFound` if there is none."""
        with self._journal() as journal:
            cut = self._interrupted(journal)
            target, before = self._checkpoint(cut.target, cut.origin), self._checkpoint(cut.before)
            return self._finish(journal, cut, before, target, aborting=True)

    def preview_finish(self, *, aborting: bool) -> tuple[CheckpointRow, Preview]:
        """Return where `resume` or `abort` leads and what is left to do; nothing is changed. Raises as they do."""
        with self._journal() as journal:
            cut = self._interrupted(journal)
            target, before = self._checkpoint(cut.target, cut.origin), self._checkpoint(cut.before)
            goal, origin = (before, target) if aborting else (target, before)
            scope, skipped = Scope(paths_of(cut.paths), paths_of(cut.created_paths)), set(paths_of(cut.kept_paths))
            full_plan = self._plan_of(cut, origin, goal, scope, aborting).without(skipped)
            ours = {step.path: step for step in full_plan.steps}
            if cut.chosen and not aborting:
                rows, now = self._chosen_rows(cut, before), self.planner.rows_now(scope.paths)
                plan = self.planner.plan_rows(before, [(now.get(path), new) for path, (_, new) in rows.items()])
                preview = Preview(plan, [], scope, self.row.version, {})
            else:
                preview = self.planner.preview(goal, scope.paths, scope.made_folders)
            foreign = {step.path for step in preview.plan.steps if not _is_half_done(ours.get(step.path), step)}
            return goal, preview.without(foreign, FOREIGN_REASON)

    def undo(self, **options: Any) -> Restored | None:
        """Reverse the newest restore that is not undone yet. Raises `NotFound` if there is none."""
        self._refuse_if_cut_off(self._journal())
        past_restores = self._history().done
        if not past_restores:
            raise NotFound(
                "No restore to undo.", "Run `keepfast list` to see checkpoints; any of them can be restored."
            )
        return self._reverse(past_restores[-1], Reversal("undo", past_restores[-1].number), options)

    def redo(self, **options: Any) -> Restored | None:
        """Reverse the newest undo. Raises `NotFound` if there is none, or something was restored since."""
        self._refuse_if_cut_off(self._journal())
        undone = self._history().undone
        if not undone:
            raise NotFound("No undo to redo.")
        undo = undone[-1].reversal
        assert undo is not None
        return self._reverse(undone[-1], Reversal("redo", undo.number), options)

    def ways_back(self) -> tuple[bool, bool]:
        """Return whether there is something to undo, and something to redo."""
        history = self._history()
        return bool(history.done), bool(history.undone)

    def _reverse(self, past: PastRestore, reversal: Reversal, options: dict[str, Any]) -> Restored | None:
        target, made_folders = self._checkpoint(past.before), paths_of(past.created_paths)
        return self.restore(
            target, paths_of(past.paths), reversal=reversal, made_folders=made_folders, new_base=past.was, **options
        )

    def cut_off(self) -> RestoreInProgress | None:
        """Return the interrupted restore, or None. Raises `Damaged`."""
        journal = self._journal()
        cut = journal.read()
        return None if cut is None or journal.is_locked() else cut

    def is_running(self) -> bool:
        """Return whether another process is restoring here now."""
        return self._journal().is_locked()

    def unfinished(self) -> Unfinished | None:
        """Return the restore that runs here or was interrupted, or None."""
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
        """Restore chosen hunks: write these contents, each with the entry on disk that it was made from.

        The safety checkpoint is the only version made. Raises `Conflict` if one of the files changed in the meantime.
        """
        paths = sorted(contents)
        with self._journal() as journal:
            self._refuse_if_cut_off(journal)
            base, workspace = _location(self.repository.base(self.row.id)), self.row.id
            _refuse_if_changed(self.planner.rows_now(paths), contents)
            plan = Plan()
            for path in paths:
                entry, content = contents[path]
                plan.steps.append(Step(WRITE, entry, entry._replace(content=digest(content), size=len(content))))
            self.execution.refuse_if_full(plan)
            saved = self._save_first(
                plan,
                Scope(paths).only(paths),
                f"before restoring v{target.version}",
                chosen={path: content for path, (_, content) in contents.items()},
            )
            if saved.checkpoint.workspace == workspace:
                return self._run_parts(journal, target, contents, saved, base, mtimes)
        # The safety checkpoint found that this folder is a copy, and made it a workspace of its own.
        with self._journal() as journal:
            return self._run_parts(journal, target, contents, saved, base, mtimes)

    def _run_parts(
        self,
        journal: Journal,
        target: CheckpointRow,
        contents: dict[bytes, tuple[Entry, bytes]],
        saved: Outcome,
        base: list[Any] | None,
        mtimes: bool,
    ) -> Restored | None:
        before: CheckpointRow = saved.checkpoint
        rows = self.planner.rows_at(before, list(contents))
        _refuse_if_changed(rows, contents)
        plan = self.planner.plan_rows(before, [(rows[path], row) for path, row in sorted(saved.chosen.items())])
        if not plan.steps:
            return None
        restore = RestoreInProgress(
            self.row.id,
            target.version,
            target.workspace,
            before.version,
            texts(sorted(contents)),
            [],
            [],
            self.engine.clock(),
            mtimes,
            None,
            base,
            base,
            {text(path): [row.content.hex(), row.size, row.flags] for path, row in saved.chosen.items()},
        )
        applied = self.execution.carry_out(journal, restore, plan, before, plan)
        self._record(journal, restore)
        return Restored(target.version, before.version, applied, plan, _way_back(None))

    def _chosen_rows(self, cut: RestoreInProgress, before: CheckpointRow) -> dict[bytes, tuple[Entry, Entry]]:
        """Return, by path, the saved row of each file with chosen hunks and the row with them. Raises `Damaged`."""
        saved = self.planner.rows_at(before, paths_of(cut.chosen))
        rows: dict[bytes, tuple[Entry, Entry]] = {}
        for name, (content, size, flags) in sorted(cut.chosen.items()):
            row = saved.get(path_of(name))
            if row is None:
                raise Damaged(f"v{before.version} does not have {show(path_of(name))}, of which hunks were chosen.")
            rows[row.path] = row, row._replace(content=bytes.fromhex(content), size=size, flags=flags)
        return rows

    def _plan_of(
        self, cut: RestoreInProgress, origin: CheckpointRow, goal: CheckpointRow, scope: Scope, aborting: bool
    ) -> Plan:
        """Return the whole plan of an interrupted restore, or of its abort."""
        if not cut.chosen:
            return self.planner.plan_between(origin, goal, scope)
        before = goal if aborting else origin
        pairs = self._chosen_rows(cut, before).values()
        return self.planner.plan_rows(before, [(new, old) if aborting else (old, new) for old, new in pairs])

    # Steps

    def _without_unreadable(self, preview: Preview) -> tuple[Preview, set[bytes]]:
        """Leave out files sealed with a key that is missing. Raises `WrongKey` if nothing else is left to restore."""
        unreadable = self.repository.contents.paths_without_key(step.new for step in preview.plan.steps)
        if unreadable and len(unreadable) == len(preview.plan.steps):
            raise WrongKey(f"The key of a sealed file to restore is missing: {show(min(unreadable))}.", KEY_HINT)
        return preview.without(unreadable, CLOSED_REASON) if unreadable else preview, unreadable

    def _save_first(
        self,
        plan: Plan,
        only: tuple[bytes, ...],
        message: str,
        rest_unchanged: bool = False,
        chosen: dict[bytes, bytes] | None = None,
    ) -> Outcome:
        """Take the safety checkpoint, with everything that the plan touches, even files that the rules exclude.

        `rest_unchanged`: a preview just found everything but `only` as in the newest version. `chosen`: contents to store
        with it, which the restore is about to write.
        """
        event = Event(
            self.root,
            self.engine.clock(),
            trigger="before_restore",
            message=message,
            created_by="system",
            force=frozenset(step.path for step in plan.steps),
            only=only,
            rest_unchanged=rest_unchanged,
            chosen=chosen,
        )
        outcome = self.engine.handle(event)
        checkpoint: CheckpointRow | None = outcome.checkpoint
        if checkpoint is None:  # the folder's marker was deleted or became unreadable
            raise Failed(
                (f"{show(self.root)} could not be saved before the restore: it is not inside a workspace."),
                UNTOUCHED_HINT,
            )
        step("restore:safe")
        if checkpoint.workspace != self.row.id:
            self.planner.row = self.row._replace(id=checkpoint.workspace)
        self.planner.refresh()
        return outcome

    def _run(
        self,
        journal: Journal,
        target: CheckpointRow,
        before: CheckpointRow,
        preview: Preview,
        mine: set[bytes],
        overwrite: bool,
        mtimes: bool,
        reversal: Reversal | None,
        bases: tuple[list[Any] | None, list[Any] | None],
        staging: EarlyStaging | None = None,
    ) -> Restored:
        scope = preview.scope
        plan, late = self._agreed_plan(target, before, preview, mine, overwrite)
        restore = RestoreInProgress(
            self.row.id,
            target.version,
            target.workspace,
            before.version,
            texts(scope.paths),
            texts(sorted(scope.made_folders)),
            texts(sorted(mine | late)),
            self.engine.clock(),
            mtimes,
            reversal,
            *bases,
        )
        applied = self.execution.carry_out(journal, restore, plan, target, plan, staging)
        self._record(journal, restore)
        applied.untouched += [(path, "it changed after the confirmation") for path in sorted(late)]
        done = Restored(target.version, before.version, applied, plan, _way_back(reversal))
        done.missing = self.planner.missing(target, scope.paths)
        return done

    def _agreed_plan(
        self, target: CheckpointRow, before: CheckpointRow, preview: Preview, mine: set[bytes], overwrite: bool
    ) -> tuple[Plan, set[bytes]]:
        """Return the plan as of the safety checkpoint, and the paths that changed after the confirmation, which it leaves alone."""
        if self.planner.is_as_seen(before, preview):
            return preview.plan, set()
        agreed = {step.path: step for step in preview.plan.steps}
        left_alone = {path for path, _ in preview.plan.untouched}
        plan = self.planner.plan_between(before, target, preview.scope).without(mine).without(left_alone)
        late = (
            set() if overwrite else {step.path for step in plan.steps if not _is_as_shown(agreed.get(step.path), step)}
        )
        plan = plan.without(late, "it changed after the confirmation")
        # A safety checkpoint of a few paths has no rows for what is left alone beside them; the preview has.
        plan.untouched = list(dict.fromkeys([*preview.plan.untouched, *plan.untouched]))
        return plan, late

    def _finish(
        self, journal: Journal, cut: RestoreInProgress, goal: CheckpointRow, origin: CheckpointRow, *, aborting: bool
    ) -> Restored:
        """Bring the disk from its present state to `goal`; files that match neither `goal` nor `origin` are the user's and stay."""
        scope, skipped = Scope(paths_of(cut.paths), paths_of(cut.created_paths)), set(paths_of(cut.kept_paths))
        ours = self._plan_of(cut, origin, goal, scope, aborting).without(skipped)
        only = scope.only(step.path for step in ours.steps)
        now: CheckpointRow = self._save_first(ours, only, "before finishing a restore").checkpoint
        planned_steps = {step.path: step for step in ours.steps}
        if cut.chosen and not aborting:
            present = self.planner.rows_at(now, scope.paths)
            rows = self._chosen_rows(cut, origin)
            plan = self.planner.plan_rows(now, [(present.get(path), new) for path, (_, new) in rows.items()])
        else:
            plan = self.planner.plan_between(now, goal, scope)
        foreign = {step.path for step in plan.steps if not _is_half_done(planned_steps.get(step.path), step)}
        applied = self.execution.carry_out(
            journal, cut, plan.without(foreign), origin if cut.chosen and not aborting else goal, ours
        )
        applied.untouched += [(path, FOREIGN_REASON) for path in sorted(foreign - skipped)]
        past = self._history().find(cut.before, cut.target)
        way_back = _way_back(cut.reversal)
        if past is None and not aborting:
            self._record(journal, cut)
        elif past is not None and aborting:  # it was interrupted after its last step: aborting is an undo
            undo = Reversal("undo", past.number)
            way_back = _way_back(undo)
            self._record(journal, cut.reversed_by(undo, goal.version, now.version))
        else:
            way_back = "" if aborting else way_back
            # The folder is not at the safety checkpoint that was just made.
            self._commit(journal, {"r": "base", "base": cut.was if aborting else cut.base})
        result = Restored(goal.version, now.version if aborting else cut.before, applied, plan, way_back)
        result.missing = self.planner.missing(goal, scope.paths)
        return result

    def _record(self, journal: Journal, restore: RestoreInProgress) -> None:
        self._commit(journal, restore.record(self.row.id, self.engine.clock()))

    def _commit(self, journal: Journal, record: dict[str, Any]) -> None:
        try:
            with Folder(self.engine, self.root, self.row.id) as folder:
                folder.recording(lambda: self.repository.commit(self.row.id, lambda tx, row: [record]))
            step("restore:recorded")
            journal.remove()
        except (OSError, KeepfastError) as error:
            raise explain(error, CONTINUE_HINT) from None

    # Checks before anything is changed

    def _refuse_if_cut_off(self, journal: Journal) -> None:
        cut = journal.read()
        if cut is not None:
            raise Conflict(
                f"A restore of v{cut.target} was interrupted.",
                "Run `keepfast restore --continue` or `keepfast restore --abort` first.",
            )

    # The journal and the versions

    def _journal(self) -> ReportingJournal:
        return ReportingJournal(self.engine.place.folder(self.row.id), self.engine.place.durable)

    def _history(self) -> History:
        try:
            return History(self.repository, self.row.id)
        except OSError as error:
            raise explain(error, UNTOUCHED_HINT) from None

    def _interrupted(self, journal: Journal) -> RestoreInProgress:
        cut = journal.read()
        if cut is None:
            raise NotFound("No interrupted restore.", "There is nothing to continue or abort.")
        return cut

    def _checkpoint(self, version: int, workspace: str = "") -> CheckpointRow:
        row = self.repository.checkpoint(workspace or self.row.id, version)
        if row is None or row.forgotten:
            raise NotFound(f"v{version} no longer exists.")
        return row


def _way_back(reversal: Reversal | None) -> str:
    """Return the command that reverses such a restore."""
    return "redo" if reversal is not None and reversal.kind == "undo" else "undo"


def _location(row: CheckpointRow | None) -> list[Any] | None:
    return None if row is None else [row.workspace, row.version]


def _refuse_if_changed(now: Mapping[bytes, Entry | None], contents: dict[bytes, tuple[Entry, bytes]]) -> None:
    for path, (entry, _) in sorted(contents.items()):
        if differ(now.get(path), entry):
            raise Conflict(
                f"{show(path)} changed while hunks were chosen; nothing was restored.", "Choose the hunks again."
            )


def _is_as_shown(seen: Step | None, step: Step) -> bool:
    """Return whether the safety checkpoint found at this path what the user was shown."""
    if seen is None:
        return False
    # Only the safety checkpoint knows the content of an excluded file. A deleted one cannot be lost.
    return step.old is None or (seen.old is not None and seen.old.kind in LEFT_OUT) or not differ(seen.old, step.old)


def _is_half_done(planned: Step | None, current: Step) -> bool:
    """Return whether our interrupted restore may have left this path as it is now."""
    if planned is None:
        return False
    if current.old is None or current.old.kind == FOLDER:
        return True  # removed and not yet replaced, or a folder made without its mode yet
    return not differ(current.old, planned.old)


def _with_unreadable(done: Restored, unreadable: set[bytes]) -> Restored:
    done.applied.untouched += [(path, CLOSED_REASON) for path in sorted(unreadable)]
    return done


def conflict(paths: Collection[bytes]) -> Conflict:
    """Return the error that names what would be overwritten."""
    names = sorted(paths)
    listed = ", ".join(show(path) for path in names[:5]) + (" …" if len(names) > 5 else "")
    count = "1 file" if len(names) == 1 else f"{len(names):,} files"
    return Conflict(
        f"Unsaved changes in {count} would be overwritten: {listed}.",
        "Use --theirs or -y to overwrite them (they are saved first), or --keep-mine to keep them.",
    )
