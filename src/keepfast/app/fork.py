"""Fork: a new folder with the state of a checkpoint, which is a workspace of its own."""

from __future__ import annotations

from collections.abc import Callable
from errno import ENOTEMPTY
from os import O_CLOEXEC, O_DIRECTORY, O_RDONLY, close, fsencode, listdir, makedirs, rename, urandom
from os import open as open_fd
from shutil import rmtree
from typing import Any

from keepfast.app.checkpoint import Engine
from keepfast.app.workspace_lock import capture_rules
from keepfast.fsutil.durable import sync_folder
from keepfast.model.entry import CAPTURED, LINK, Entry
from keepfast.model.errors import Conflict, Damaged, Failed, NotFound, Refused, Usage, WrongKey
from keepfast.model.event import Event
from keepfast.model.restore_plan import Plan, plan
from keepfast.model.steps import step
from keepfast.store.bulk_read import read_many
from keepfast.store.digest import add, weight
from keepfast.store.rows import CheckpointRow, Query, WorkspaceRow
from keepfast.workspace.adoption import refuse_whole
from keepfast.workspace.apply import Apply
from keepfast.workspace.apply_result import ApplyResult
from keepfast.workspace.block_clone import Cloning
from keepfast.workspace.capture import GIT, NEVER_ENTERED
from keepfast.workspace.git import GitFacts, facts
from keepfast.workspace.git_clone import GitPlumbing, clone, refresh
from keepfast.workspace.git_pointers import MAX_POINTER_BYTES, POINTS_IN, leads_in, leads_out, targets
from keepfast.workspace.marker import show
from keepfast.workspace.selection import Chooser, Rulebook
from keepfast.workspace.staged_files import ContentSource

TRIGGER = "fork"
CLOSED_REASON = "it is sealed, and its key is missing"
ELSEWHERE_REASON = "points to the repository of another folder"


class Forked:
    """The result of a fork. `differs`: its first checkpoint is not the same tree; `applied.untouched` and `left_out` say why."""

    def __init__(
        self, workspace: str, checkpoint: CheckpointRow, applied: ApplyResult, plan: Plan, branch: str
    ) -> None:
        self.workspace, self.checkpoint, self.applied, self.branch = workspace, checkpoint, applied, branch
        self.left_out = plan.untouched
        self.differs = False


class Forker:
    """Makes a folder from a checkpoint. `root` is the workspace's folder, empty if it has none."""

    def __init__(self, engine: Engine, root: bytes, row: WorkspaceRow, checkpoint: CheckpointRow) -> None:
        self.engine, self.root, self.row, self.checkpoint = engine, root, row, checkpoint
        self.repository = engine.repository()
        self.pointers: list[Entry] = []
        """`.git` files of the checkpoint that the fork omits."""

    def fork(self, folder: bytes, git: GitPlumbing | None = None) -> Forked:
        """Write the state into `folder`, which is missing or empty, and protect it; with `git` make it a repository too.

        Raises `Conflict` if the folder has files, `Refused` if the workspace would save the fork, and `NotFound` if the commit for
        `git` no longer exists. A missing folder appears only when it is complete.
        """
        is_new = self._check(folder)
        commit, source = self._commit() if git is not None else ("", None)
        plan = self._without_pointers(self._plan(), folder, git is not None)
        building = self._temporary_name(folder) if is_new else folder
        workspace, branch = urandom(16).hex(), ""
        try:
            if is_new:
                makedirs(building)
            if git is not None and source is not None:
                branch = f"keepfast/v{self.checkpoint.version}"
                self._clone(git, source, commit, building, branch)
            applied = self._write(building, plan)
            if git is not None:
                refresh(git, building)
            self.engine.workspaces.mark(building, workspace)
            step("fork:written")
            if is_new:
                self._move_into_place(building, folder)
        except BaseException as error:
            if is_new:
                rmtree(building, ignore_errors=True)
            if isinstance(error, OSError):
                raise Failed(
                    f"{show(folder)} could not be written: {error.strerror or error}.",
                    "" if is_new else f"{show(folder)} may contain a part of it; empty it before you try again.",
                ) from None
            raise
        return self._adopt(folder, workspace, applied, plan, branch)

    # Before anything is written

    def _check(self, folder: bytes) -> bool:
        """Return True if the folder must be made, False if it exists and is empty."""
        refuse_whole(folder, self.engine.home or b"")
        self._refuse_inside(folder)
        try:
            names = listdir(folder)
        except FileNotFoundError:
            return True
        except OSError as error:
            raise Conflict(
                f"{show(folder)} cannot be used: {error.strerror}.", "Give a folder that does not exist."
            ) from None
        if names:
            raise Conflict(f"{show(folder)} is not empty.", "Give a folder that does not exist or is empty.")
        return False

    def _refuse_inside(self, folder: bytes) -> None:
        store = fsencode(self.engine.place.path)
        if folder == store or folder.startswith(store + b"/"):
            raise Refused(f"{show(folder)} is inside the store.", "Give another folder.")
        if not self.root or (folder != self.root and not folder.startswith(self.root.rstrip(b"/") + b"/")):
            return
        inside = folder[len(self.root.rstrip(b"/")) + 1 :]
        parts = inside.split(b"/")
        if not NEVER_ENTERED.isdisjoint(parts):
            raise Refused(f"{show(folder)} is in a folder reserved for git or keepfast.", "Give another folder.")
        if not self._is_left_out(parts):
            raise Refused(
                f"{show(folder)} is inside the workspace, which would save the fork too.",
                "Give a folder outside the workspace, or one excluded by `capture.exclude`.",
            )

    def _is_left_out(self, parts: list[bytes]) -> bool:
        capture = capture_rules(self.engine, self.root)
        fd = open_fd(self.root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        try:
            chooser, rules = Chooser(fd, capture), Rulebook(fd, capture)
            for count in range(1, len(parts) + 1):
                above, path = b"/".join(parts[: count - 1]), b"/".join(parts[:count])
                if chooser.folder(path, *rules.of(above))[0]:
                    return True
                try:
                    names = set(listdir(self.root + b"/" + path))
                except OSError:
                    continue
                if chooser.is_marked(path, names):
                    return True
            return False
        finally:
            close(fd)

    def _commit(self) -> tuple[str, GitFacts]:
        """Return the commit at which the checkpoint was made, and the repository that has it."""
        git = self.repository.document(self.checkpoint)[0].git
        commit = git.commit if git is not None else ""
        if len(commit) not in (40, 64) or commit.strip("0123456789abcdef"):
            raise NotFound(
                f"v{self.checkpoint.version} was not made at a commit of a git repository.", "Fork without --git."
            )
        source = facts(self.root) if self.root else None
        if source is None:
            raise NotFound("The workspace is no longer in a git repository.", "Fork without --git.")
        if source.work_tree != self.root:
            raise Usage(
                f"The workspace is only part of the repository {show(source.work_tree)}.",
                "--git works only if the workspace is the whole repository.",
            )
        return commit, source

    def _plan(self) -> Plan:
        kinds: dict[bytes, str] = {}
        rows: list[Entry] = []
        total = 0
        for row in self.repository.state(self.row.id, self.checkpoint.version):
            rows.append(row)
            kinds[row.path] = row.kind
            total = add(total, plus=weight(row))
        if f"{total:064x}" != self.checkpoint.tree:
            raise Damaged(f"The stored state of v{self.checkpoint.version} is inconsistent; nothing was written.")
        return plan([(None, row) for row in rows], lambda path: kinds.get(path, ""), lambda path: "")

    def _without_pointers(self, plan: Plan, folder: bytes, with_git: bool) -> Plan:
        """Leave out `.git` files that would lead git from the fork into the other folder's repository, or to files of the fork.

        A fork with a repository of its own omits all of them: git fails above one that leads nowhere.
        """
        kinds = {plan_step.path: plan_step.new.kind for plan_step in plan.steps if plan_step.new is not None}
        for plan_step in plan.steps:
            if plan_step.new is None or plan_step.path.rpartition(b"/")[2] != GIT:
                continue
            why = (
                ELSEWHERE_REASON
                if with_git
                else self._reason_to_omit(plan_step.new, folder, lambda path: kinds.get(path, ""))
            )
            if why:
                self.pointers.append(plan_step.new)
                plan = plan.without({plan_step.path}, why)
        return plan

    def _reason_to_omit(self, pointer: Entry, folder: bytes, kind: Callable[[bytes], str]) -> str:
        """Return why a `.git` of the checkpoint is omitted; empty if it is not."""
        try:
            is_long = pointer.kind != LINK and pointer.size > MAX_POINTER_BYTES
            pointer_text = (
                pointer.content
                if pointer.kind == LINK
                else b""
                if is_long
                else self.repository.contents.load(pointer.content)
            )
        except (Damaged, WrongKey):
            return POINTS_IN
        pointed_at = targets(pointer.kind, pointer_text)
        if pointed_at and any(leads_out(pointer.path, target) for target in pointed_at):
            return ELSEWHERE_REASON
        return (
            ""
            if pointed_at and not any(leads_in(folder, pointer.path, target, kind) for target in pointed_at)
            else POINTS_IN
        )

    # Writing

    def _temporary_name(self, folder: bytes) -> bytes:
        above, _, name = folder.rpartition(b"/")
        try:
            makedirs(above or b"/", exist_ok=True)
        except OSError as error:
            raise Failed(f"{show(above)} cannot be created: {error.strerror}.") from None
        return b"%b/.%b.fork-%b" % (above, name[:200], urandom(4).hex().encode())

    def _clone(self, git: GitPlumbing, source: GitFacts, commit: str, folder: bytes, branch: str) -> None:
        clone(git, source, commit, folder, branch)

    def _write(self, folder: bytes, plan: Plan) -> ApplyResult:
        root = open_fd(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        accelerated = self.engine.settings["capture.accelerator"]
        try:
            apply = Apply(
                root,
                {},
                ContentSource(
                    lambda entry: self.repository.contents.stream(entry.content),
                    lambda digests, take: read_many(self.repository, digests, take, accelerated),
                    Cloning(self.root, self.repository.contents.ids),
                ),
                self.repository.contents.ids,
                self.repository.contents.has,
                mtimes=True,
                durable=self.engine.place.durable,
                accelerated=accelerated,
                privileged=self.engine.settings["restore.privileged_attributes"],
                progress=self.engine.progress,
            )
            unreadable = self.repository.contents.paths_without_key(step.new for step in plan.steps)
            applied = apply.run(plan.without(unreadable, CLOSED_REASON))
            applied.untouched += [(path, CLOSED_REASON) for path in sorted(unreadable)]
            return applied
        finally:
            close(root)

    def _move_into_place(self, building: bytes, folder: bytes) -> None:
        try:
            rename(building, folder)
        except OSError as error:
            if error.errno != ENOTEMPTY and not isinstance(error, FileExistsError | NotADirectoryError):
                raise
            raise Conflict(f"Another process created {show(folder)} in the meantime.") from None
        if self.engine.place.durable:
            sync_folder((folder.rpartition(b"/")[0] or b"/").decode("utf-8", "surrogateescape"))

    def _adopt(self, folder: bytes, workspace: str, applied: ApplyResult, plan: Plan, branch: str) -> Forked:
        """Register the folder and make its first checkpoint, which names its origin."""
        engine, origin = self.engine, self.checkpoint
        engine.workspaces.register(self.repository, workspace, folder, engine.clock(), parent=self.row.id)
        where = show(self.root or self.row.path)
        event = Event(
            folder,
            engine.clock(),
            trigger=TRIGGER,
            message=f"fork of v{origin.version}" + (f" of {where}" if where else ""),
            tags=(f"fork of {origin.id}",),
            pinned=True,  # `fork --back` compares with it
            # Everything in that checkpoint, even what the rules exclude.
            force=frozenset(step.path for step in plan.steps if step.new is not None and step.new.kind in CAPTURED),
        )
        checkpoint: Any = engine.handle(event).checkpoint
        forked = Forked(workspace, checkpoint, applied, plan, branch)
        tree = add(int(origin.tree, 16), minus=sum(weight(row) for row in self.pointers))
        forked.differs = checkpoint.tree != f"{tree:064x}"
        return forked


def fork_point(engine: Engine, parent: WorkspaceRow, folder: bytes) -> tuple[WorkspaceRow, CheckpointRow]:
    """Return the workspace in `folder`, a fork of `parent`, and its first checkpoint.

    Raises `Usage` if it is no fork of `parent`, and `NotFound` if its first checkpoint was forgotten.
    """
    own = engine.workspaces.find_workspace(folder, adopting=True)
    row = engine.repository().workspace(own[1]) if own is not None and own[0] == folder else None
    if row is None or row.parent != parent.id:
        raise Usage(
            f"{show(folder)} is not a fork of this workspace.", ("Run it in the workspace that the fork was made from.")
        )
    rows = engine.repository().find(Query(workspace=row.id, trigger=TRIGGER))
    if not rows:
        raise NotFound(
            "The first checkpoint of the fork no longer exists.", "Use `keepfast diff` to compare other checkpoints."
        )
    return row, rows[-1]
