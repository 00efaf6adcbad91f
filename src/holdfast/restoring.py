"""Restore, continue, abort, undo, redo: plan, safety checkpoint, journal, apply (docs/restoring.md)."""

from __future__ import annotations

from posix import O_CLOEXEC, O_DIRECTORY, O_RDONLY, close, unlink
from posix import open as open_fd

from blake3 import blake3

from holdfast.core.entry import FOLDER, LEFT_OUT, Entry, same
from holdfast.core.errors import Conflict, Damaged, NotFound
from holdfast.core.light_json import dumps, loads
from holdfast.core.model import Event
from holdfast.core.planning import Plan, plan
from holdfast.core.steps import step
from holdfast.looking import between, disk_now, lies_below
from holdfast.store.local import explain, replace
from holdfast.store.records import Chain
from holdfast.workspace.apply import Applied, Apply
from holdfast.workspace.find import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from holdfast.engine import Engine
    from holdfast.store.rows import CheckpointRow, WorkspaceRow

ASK, MINE, THEIRS = "ask", "mine", "theirs"


class Preview:
    """What a restore would do, and which of it would overwrite work that no checkpoint has."""

    def __init__(self, plan: Plan, conflicts: list[bytes]) -> None:
        self.plan, self.conflicts = plan, conflicts


class Restored:
    """What a restore did."""

    def __init__(self, target: int, before: int, applied: Applied, plan: Plan) -> None:
        self.target, self.before, self.applied, self.plan = target, before, applied, plan


class Restoring:
    """Restores in one workspace. `ask(preview)` is called before anything is touched; False stops without a trace."""

    def __init__(self, engine: Engine, root: bytes, row: WorkspaceRow) -> None:
        self.engine, self.root, self.row = engine, root, row
        self.repository = engine.repository()

    # What a person calls

    def preview(self, target: CheckpointRow, paths: Sequence[bytes] = ()) -> Preview:
        """Compare with the disk now. Nothing is written."""
        newest = self._newest()
        changed = disk_now(self.engine, self.root, self.row, paths)
        rows: dict[bytes, tuple[Entry | None, Entry | None]] = {}
        for change in between(self.repository, self.row.id, newest, target):
            if lies_below(change.path, paths):
                rows[change.path] = change.old, change.new
        for path, (before, now) in changed.items():
            wanted = rows[path][1] if path in rows else before
            if _differ(now, wanted):
                rows[path] = now, wanted
            else:
                rows.pop(path, None)
        made = self._plan(rows.values(), target, newest)
        conflicts = [one.path for one in made.steps if one.path in changed and self._unsaved(one.path, changed[one.path][1])]
        return Preview(made, conflicts)

    def restore(
        self,
        target: CheckpointRow,
        paths: Sequence[bytes] = (),
        *,
        conflicts: str = ASK,
        mtimes: bool = False,
        ask: Callable[[Preview], bool] | None = None,
        note: dict[str, Any] | None = None,
    ) -> Restored | None:
        """Bring the scope to the target's state. None if `ask` said no or there is nothing to do.

        Raises `Conflict` if work that no checkpoint has would be overwritten and nobody said that it may be.
        """
        self._refuse_if_cut_off()
        preview = self.preview(target, paths)
        if not preview.plan.steps:
            return None
        if preview.conflicts and conflicts == MINE:
            preview = Preview(preview.plan.without(set(preview.conflicts)), [])
        if ask is not None and not ask(preview):
            return None
        if preview.conflicts and conflicts == ASK and ask is None:
            raise conflict(preview.conflicts)
        kept = {path for path, why in preview.plan.untouched if why == "kept as it is"}
        before = self._safety(preview.plan, target, paths)
        return self._run(target, before, paths, kept, mtimes, note or {}, {one.path for one in preview.plan.steps})

    def resume(self) -> Restored:
        """Finish a restore that was cut off."""
        journal = self._journal()
        target, before = self._version(journal["target"]), self._version(journal["before"])
        return self._finish(journal, target, before)

    def abort(self) -> Restored:
        """Take back a restore that was cut off."""
        journal = self._journal()
        target, before = self._version(journal["target"]), self._version(journal["before"])
        return self._finish(journal, before, target)

    def undo(self, **options: Any) -> Restored | None:
        """Take back the newest restore that was not taken back yet. Raises `NotFound` if there is none."""
        done, _ = self._stacks()
        if not done:
            raise NotFound(
                "There is no restore to undo.", "`holdfast list` shows the checkpoints; any of them can be restored."
            )
        last = done[-1]
        return self.restore(self._version(last["before"]), _paths(last), note={"undo": last["seq"]}, **options)

    def redo(self, **options: Any) -> Restored | None:
        """Take back the newest undo. Raises `NotFound` if there is none, or something was restored since."""
        _, undone = self._stacks()
        if not undone:
            raise NotFound("There is no undo to take back.")
        last = undone[-1]
        return self.restore(self._version(last["before"]), _paths(last), note={"redo": last["undo"]}, **options)

    def cut_off(self) -> dict[str, Any] | None:
        """The journal of a restore that was cut off, or None."""
        try:
            with open(self._journal_path(), "rb") as file:
                journal: dict[str, Any] = loads(file.read())
            return journal
        except FileNotFoundError:
            return None
        except (ValueError, OSError) as error:
            raise Damaged(
                f"The journal of a restore cannot be read: {error}.", f"See {self._journal_path()}."
            ) from None

    def version_with(self, contents: dict[bytes, bytes], message: str) -> CheckpointRow:
        """Make a checkpoint of the newest version with other contents for some files; the disk stays as it is."""
        event = Event(self.root, self.engine.clock(), trigger="patch", message=message, created_by="user")
        self.engine.handle(
            Event(self.root, event.at, trigger="auto", message="before choosing hunks", created_by="system")
        )
        checkpoint: CheckpointRow = self.engine.compose(event, self.root, self.row.id, contents)
        return checkpoint

    # Steps

    def _safety(self, made: Plan, target: CheckpointRow, paths: Sequence[bytes]) -> CheckpointRow:
        force = frozenset(one.path for one in made.steps if one.old is not None and one.old.kind in LEFT_OUT)
        event = Event(
            self.root,
            self.engine.clock(),
            trigger="before_restore",
            message=f"before restoring v{target.version}",
            created_by="system",
            force=force,
            only=tuple(sorted({one.path for one in made.steps})) if paths else (),
        )
        outcome = self.engine.handle(event)
        step("restore:safe")
        checkpoint: CheckpointRow = outcome.checkpoint
        return checkpoint

    def _run(
        self,
        target: CheckpointRow,
        before: CheckpointRow,
        paths: Sequence[bytes],
        kept: set[bytes],
        mtimes: bool,
        note: dict[str, Any],
        agreed: set[bytes],
    ) -> Restored:
        made = self._plan_between(before, target, paths)
        late = {one.path for one in made.steps if one.path not in agreed}
        made = made.without(kept | late)
        journal = {
            "v": 1,
            "workspace": self.row.id,
            "target": target.version,
            "before": before.version,
            "paths": [path.decode("utf-8", "surrogateescape") for path in paths],
            "kept": [path.decode("utf-8", "surrogateescape") for path in sorted(kept | late)],
            "started_at": self.engine.clock(),
            "mtimes": mtimes,
            "note": note,
        }
        try:
            replace(self._journal_path(), dumps(journal).encode("ascii"))
            step("restore:journal")
            applied = self._apply(made, target, mtimes)
            self._done(journal)
        except OSError as error:
            problem = explain(error, "Restoring", self.engine.place.path)
            problem.hint = "`holdfast restore --continue` goes on, `--abort` takes it back."
            raise problem from None
        return Restored(target.version, before.version, applied, made)

    def _finish(self, journal: dict[str, Any], goal: CheckpointRow, origin: CheckpointRow) -> Restored:
        """From wherever the disk is now to `goal`; what is neither there nor at `origin` is somebody's work and stays."""
        paths = _paths(journal)
        kept = {text.encode("utf-8", "surrogateescape") for text in journal["kept"]}
        scope = {one.path: one for one in self._plan_between(origin, goal, paths).without(kept).steps}
        event = Event(
            self.root,
            self.engine.clock(),
            trigger="before_restore",
            message="before finishing a restore",
            created_by="system",
            force=frozenset(scope),
            only=tuple(sorted(scope)) if paths else (),
        )
        now: CheckpointRow = self.engine.handle(event).checkpoint
        made = self._plan_between(now, goal, paths)
        foreign = set()
        for one in made.steps:
            known = scope.get(one.path)
            if known is None or _differ(one.old, known.old):
                # Half-done steps leave a path absent; anything else that is not as it was is not ours.
                if known is not None and one.old is None:
                    continue
                foreign.add(one.path)
        made = made.without(foreign)
        try:
            applied = self._apply(made, goal, bool(journal.get("mtimes")))
            self._done({**journal, "target": goal.version, "before": journal["before"]})
        except OSError as error:
            raise explain(error, "Restoring", self.engine.place.path) from None
        applied.kept += [(path, "it is neither as before nor as after") for path in sorted(foreign)]
        return Restored(goal.version, now.version, applied, made)

    def _apply(self, made: Plan, target: CheckpointRow, mtimes: bool) -> Applied:
        anchors = self._anchors(made, target)
        root = open_fd(self.root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        try:
            apply = Apply(
                root,
                anchors,
                lambda entry: self.repository.stream(entry.content),
                _digest,
                lambda key: bool(self.repository.ledger.locate([key])),
                mtimes=mtimes,
                durable=self.engine.place.durable,
                progress=self.engine.progress,
            )
            return apply.run(made)
        finally:
            close(root)

    def _anchors(self, made: Plan, target: CheckpointRow) -> dict[int, bytes]:
        """For each group of hard links that is to be written: a member that is in place already."""
        groups = {one.new.group for one in made.steps if one.new is not None and one.new.group}
        if not groups:
            return {}
        moving = {one.path for one in made.steps} | {path for path, _ in made.untouched}
        return {
            row.group: row.path
            for row in self.repository.ledger.state(self.row.id, target.version)
            if row.group in groups and row.path not in moving
        }

    def _done(self, journal: dict[str, Any]) -> None:
        record: dict[str, Any] = {
            "r": "restore",
            "target": journal["target"],
            "before": journal["before"],
            "paths": journal["paths"],
            "at": self.engine.clock(),
            **journal["note"],
        }
        if journal["target"] != journal["before"]:
            self.repository.commit(self.row.id, lambda tx, row: [record])
        step("restore:recorded")
        unlink(self._journal_path())

    # Plans

    def _plan_between(self, old: CheckpointRow, new: CheckpointRow, paths: Sequence[bytes]) -> Plan:
        pairs = [
            (change.old, change.new)
            for change in between(self.repository, self.row.id, old, new)
            if lies_below(change.path, paths)
        ]
        return self._plan(pairs, new, old)

    def _plan(
        self, pairs: Iterable[tuple[Entry | None, Entry | None]], target: CheckpointRow, present: CheckpointRow | None
    ) -> Plan:
        then, now = self._left_out(target), self._left_out(present)
        return plan(pairs, lambda path: _at_or_below(path, then), lambda path: _strictly_below(path, now))

    def _left_out(self, checkpoint: CheckpointRow | None) -> set[bytes]:
        """Paths that this version did not look at; the counts say whether there are any at all."""
        if checkpoint is None:
            return set()
        counts = self.repository.document(checkpoint)[0]["counts"]
        if not any(counts.get(kind) for kind in LEFT_OUT):
            return set()
        return {
            row.path for row in self.repository.ledger.state(self.row.id, checkpoint.version) if row.kind in LEFT_OUT
        }

    def _unsaved(self, path: bytes, now: Entry | None) -> bool:
        """Is this work that no checkpoint has? A file that an earlier restore put there is none."""
        if now is None or now.kind == FOLDER:
            return False
        return not any(same(row, now) for _, _, row in self.repository.ledger.history(self.row.id, path))

    # The journal and the log

    def _refuse_if_cut_off(self) -> None:
        journal = self.cut_off()
        if journal is not None:
            raise Conflict(
                f"A restore of v{journal['target']} was cut off.",
                "Run `holdfast restore --continue` or `holdfast restore --abort` first.",
            )

    def _journal(self) -> dict[str, Any]:
        journal = self.cut_off()
        if journal is None:
            raise NotFound("No restore was cut off.", "Nothing is to be continued or aborted.")
        return journal

    def _journal_path(self) -> str:
        return self.engine.place.folder(self.row.id) + "/restore"

    def _newest(self) -> CheckpointRow | None:
        return self.repository.ledger.checkpoint(self.row.id, self.row.version) if self.row.version else None

    def _version(self, version: int) -> CheckpointRow:
        found = self.repository.ledger.checkpoint(self.row.id, version)
        if found is None or found.forgotten:
            raise NotFound(f"v{version} is not there any more.")
        return found

    def _stacks(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Restores that can be undone, and undos that can be redone, by reading the log."""
        done: list[dict[str, Any]] = []
        undone: list[dict[str, Any]] = []
        records = [one for one in Chain(self.repository.records.read(self.row.id)).records if one["r"] == "restore"]
        for number, record in enumerate(records):
            record["seq"] = number
            if "undo" in record:
                if done:
                    done.pop()
                undone.append(record)
            elif "redo" in record:
                if undone:
                    undone.pop()
                done.append(record)
            else:
                done.append(record)
                undone = []
        return done, undone


def _digest(read: Callable[[int], bytes]) -> bytes:
    whole = blake3()
    while True:
        part = read(1 << 20)
        if not part:
            return whole.digest()
        whole.update(part)


def _differ(one: Entry | None, other: Entry | None) -> bool:
    if one is None or other is None:
        return one is not other
    return not same(one, other)


def _at_or_below(path: bytes, roots: set[bytes]) -> bool:
    return path in roots or _strictly_below(path, roots)


def _strictly_below(path: bytes, roots: set[bytes]) -> bool:
    if not roots:
        return False
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        if path in roots:
            return True
    return False


def _paths(journal: dict[str, Any]) -> list[bytes]:
    return [text.encode("utf-8", "surrogateescape") for text in journal["paths"]]


def conflict(paths: list[bytes]) -> Conflict:
    """The error that names what would be overwritten."""
    shown = ", ".join(show(path) for path in paths[:5]) + (" …" if len(paths) > 5 else "")
    return Conflict(
        f"{len(paths)} files were changed since the last checkpoint and would be overwritten: {shown}.",
        "Say --theirs to take the checkpoint's, --keep-mine to leave them.",
    )
