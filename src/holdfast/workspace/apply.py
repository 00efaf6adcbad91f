"""Carrying out a plan: staged, synced, exchanged into place; nothing leaves the root, nothing unsaved is removed."""

from __future__ import annotations

from errno import EAGAIN, EBUSY, EEXIST, EINVAL, ENOSYS, ENOTDIR, ENOTEMPTY
from fcntl import F_SETLEASE, F_WRLCK, fcntl
from posix import (
    O_CLOEXEC,
    O_CREAT,
    O_DIRECTORY,
    O_EXCL,
    O_NOFOLLOW,
    O_NONBLOCK,
    O_RDONLY,
    O_WRONLY,
    chmod,
    chown,
    close,
    fchmod,
    fstat,
    fsync,
    ftruncate,
    link,
    listdir,
    lseek,
    mkdir,
    read,
    readlink,
    rename,
    rmdir,
    stat,
    stat_result,
    symlink,
    unlink,
    urandom,
    utime,
    write,
)
from posix import open as open_fd
from stat import S_ISDIR, S_ISLNK, S_ISREG
from sys import getfilesystemencodeerrors, getfilesystemencoding

from holdfast.core.entry import ATTRIBUTES, FILE, FOLDER, LINK, SPARSE, Entry
from holdfast.core.errors import Conflict
from holdfast.core.light_json import loads
from holdfast.core.planning import DELETE, MODE, WRITE, Plan, Step
from holdfast.core.steps import step as note
from holdfast.workspace.below import FOLDER as FOLDER_FLAGS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

ENCODING, ERRORS = getfilesystemencoding(), getfilesystemencodeerrors()
NOREPLACE, EXCHANGE = 1, 2
OPEN_FOLDERS = 64
BLOCK = 4096
BATCH_BYTES = 256 << 20


class Applied:
    """What was done, and what was left because somebody else was faster."""

    def __init__(self) -> None:
        self.written = self.deleted = self.modes = 0
        self.kept: list[tuple[bytes, str]] = []
        """Paths that are not as planned, and why."""
        self.aside: list[tuple[bytes, bytes]] = []
        """What was moved out of the way: from where, to where."""


class Apply:
    """One plan on one root. `anchors` are files already in place to which others of their group are to be linked;

    `load(entry)` yields a file's content; `digest(read)` gives the digest of a stream.

    `known(digest)` says whether the store has this content: what it does not have is never removed.
    """

    def __init__(
        self,
        root: int,
        anchors: dict[int, bytes],
        load: Callable[[Entry], Iterator[bytes]],
        digest: Callable[[Callable[[int], bytes]], bytes],
        known: Callable[[bytes], bool],
        *,
        mtimes: bool = False,
        durable: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.root, self.anchors, self.load, self.digest, self.known = root, anchors, load, digest, known
        self.mtimes, self.durable, self.progress = mtimes, durable, progress
        self.done = Applied()
        self.system = _System()
        self.name = b"restore-" + urandom(4).hex().encode()
        self.staging = -1
        self.count = 0
        self.folders: dict[bytes, int] = {}

    def run(self, plan: Plan) -> Applied:
        """Carry out the plan. Raises `OSError` where the disk fails: what was done stays, the journal knows the rest."""
        self._open_staging()
        try:
            self._refuse_case_twins(plan)
            writes = [step for step in plan.steps if step.action == WRITE]
            self._delete([step for step in plan.steps if step.action == DELETE or _changes_type(step)])
            note("restore:deleted")
            for entry in [step.new for step in writes if step.new is not None and step.new.kind == FOLDER]:
                self._make_folder(entry)
            note("restore:folders")
            self._files(writes)
            note("restore:placed")
            for step in reversed(plan.steps):
                if step.action == MODE or (step.action == WRITE and step.new is not None and step.new.kind == FOLDER):
                    self._mode(step)
            if self.durable:
                self.system.sync(self.root)
            note("restore:synced")
        finally:
            self._close_staging()
        return self.done

    # Files

    def _files(self, writes: list[Step]) -> None:
        """In batches: stage, sync once, put in place."""
        todo = [step for step in writes if step.new is not None and step.new.kind in (FILE, LINK)]
        total, done = len(todo), 0
        placed = dict(self.anchors)
        while todo:
            batch: list[tuple[Step, bytes]] = []
            size = 0
            while todo and size < BATCH_BYTES:
                step = todo.pop(0)
                assert step.new is not None
                batch.append((step, self._stage(step.new, placed)))
                size += step.new.size
                done += 1
                if self.progress is not None and not done & 63:
                    self.progress(done, total)
            note("restore:staged")
            if self.durable:
                self.system.sync(self.staging)
            note("restore:staged-synced")
            for step, name in batch:
                self._place(step, name)
                assert step.new is not None
                if step.new.group:
                    placed.setdefault(step.new.group, step.path)

    def _stage(self, entry: Entry, placed: dict[int, bytes]) -> bytes:
        name = self._next()
        if entry.kind == LINK:
            symlink(entry.content, name, dir_fd=self.staging)
            self._attributes(entry, name, -1)
            return name
        if entry.group in placed and self._same_file(placed[entry.group], name):
            return name
        fd = open_fd(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600, dir_fd=self.staging)
        try:
            for part in self.load(entry):
                _write(fd, part, bool(entry.flags & SPARSE))
            if entry.flags & SPARSE:
                ftruncate(fd, entry.size)
            self._attributes(entry, name, fd)
            fchmod(fd, entry.mode)
            if self.mtimes:
                utime(fd, ns=(entry.mtime, entry.mtime))
        finally:
            close(fd)
        return name

    def _same_file(self, path: bytes, name: bytes) -> bool:
        """Make the staged file another name of one already in place: a hard link comes back as one."""
        try:
            parent, last = self._parent(path)
            link(last, name, src_dir_fd=parent, dst_dir_fd=self.staging, follow_symlinks=False)
        except OSError:
            return False
        return True

    def _place(self, step: Step, name: bytes) -> None:
        assert step.new is not None
        try:
            parent, last = self._parent(step.path)
        except OSError as error:
            self._keep(step.path, f"its folder is not there any more ({error.strerror})", name)
            return
        for _ in range(8):
            try:
                self.system.rename(self.staging, name, parent, last, NOREPLACE)
                break
            except FileExistsError:
                pass
            try:
                self.system.rename(self.staging, name, parent, last, EXCHANGE)
            except FileNotFoundError:
                continue  # it went in between: try to put ours there again
            if not self._settle_displaced(step, name, parent, last):
                return
            break
        else:
            self._keep(step.path, "it comes and goes", name)
            return
        self.done.written += 1

    def _settle_displaced(self, step: Step, name: bytes, parent: int, last: bytes) -> bool:
        """After an exchange: `name` in our folder is what was there. Take it back if it is not what the plan saw."""
        if self._as_planned(step.old, name):
            self._discard(step.path, name)
            return True
        self.done.kept.append((step.path, "it was changed while it was being restored"))
        try:
            self.system.rename(self.staging, name, parent, last, EXCHANGE)
        except FileNotFoundError:
            self._put_aside(step.path, name)
            return False
        if not self._as_planned(step.new, name):
            # They were there again between our two exchanges: the newest stays in place, the other is put aside.
            self.system.rename(self.staging, name, parent, last, EXCHANGE)
            self._put_aside(step.path, name)
        else:
            self._discard(step.path, name)
        return False

    # Deleting

    def _delete(self, steps: list[Step]) -> None:
        for step in sorted(steps, key=lambda one: one.path, reverse=True):  # what lies in a folder goes before it
            assert step.old is not None
            try:
                parent, last = self._parent(step.path)
            except OSError:
                continue
            try:
                if step.old.kind == FOLDER:
                    rmdir(last, dir_fd=parent)
                    self._forget_folder(step.path)
                    self.done.deleted += step.action == DELETE
                    continue
                name = self._next()
                self.system.rename(parent, last, self.staging, name, NOREPLACE)
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno in (ENOTEMPTY, EEXIST, EBUSY, ENOTDIR):
                    if step.action == DELETE and error.errno != ENOTDIR:
                        self.done.kept.append((step.path, "it holds something that is not captured"))
                    continue
                raise
            if step.old.kind not in (FILE, LINK):
                self._put_aside(step.path, name)
            elif self._as_planned(step.old, name):
                self._discard(step.path, name)
                self.done.deleted += step.action == DELETE
            else:
                try:
                    self.system.rename(self.staging, name, parent, last, NOREPLACE)
                    self.done.kept.append((step.path, "it was changed while it was being restored"))
                except FileExistsError:
                    self._put_aside(step.path, name)

    # What was displaced

    def _as_planned(self, old: Entry | None, name: bytes) -> bool:
        """Is this the file, bytes and all, that the safety checkpoint has?"""
        if old is None:
            return False
        try:
            seen = stat(name, dir_fd=self.staging, follow_symlinks=False)
        except FileNotFoundError:
            return True
        if old.kind == LINK:
            return S_ISLNK(seen.st_mode) and readlink(name, dir_fd=self.staging) == old.content
        if old.kind != FILE or not S_ISREG(seen.st_mode):
            return False
        return self._content(name) == old.content

    def _content(self, name: bytes) -> bytes:
        fd = open_fd(name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, dir_fd=self.staging)
        try:
            return self.digest(lambda most: read(fd, most))
        finally:
            close(fd)

    def _discard(self, path: bytes, name: bytes) -> None:
        """Remove a displaced file, if nobody can still be writing to it and its bytes are in the safety checkpoint."""
        seen = stat(name, dir_fd=self.staging, follow_symlinks=False)
        if S_ISREG(seen.st_mode) and seen.st_nlink == 1:
            before = self._content(name)
            if not self._nobody_has_it(name, seen) or self._content(name) != before:
                self._put_aside(path, name)
                return
        unlink(name, dir_fd=self.staging)

    def _nobody_has_it(self, name: bytes, seen: stat_result) -> bool:
        """A write lease is granted only if no other descriptor of the file is open anywhere."""
        for attempt in range(20):
            fd = open_fd(name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, dir_fd=self.staging)
            try:
                fcntl(fd, F_SETLEASE, F_WRLCK)
                return fstat(fd).st_ino == seen.st_ino
            except OSError as error:
                if error.errno != EAGAIN:
                    return True  # no leases here (another owner, another file system): the comparison has to do
            finally:
                close(fd)
            self.system.pause(0.001 * (attempt + 1))
        return False

    def _put_aside(self, path: bytes, name: bytes) -> None:
        """Keep something where the user can find it, outside of capture."""
        aside = _folder(self.marker, b"aside")
        try:
            target = urandom(4).hex().encode() + b"-" + path.rpartition(b"/")[2][:200]
            rename(name, target, src_dir_fd=self.staging, dst_dir_fd=aside)
            self.done.aside.append((path, b".holdfast/aside/" + target))
        finally:
            close(aside)

    def _keep(self, path: bytes, why: str, name: bytes) -> None:
        self.done.kept.append((path, why))
        try:
            unlink(name, dir_fd=self.staging)
        except FileNotFoundError:
            pass

    # Folders and modes

    def _make_folder(self, entry: Entry) -> None:
        parent, last = self._parent(entry.path)
        try:
            mkdir(last, 0o700, dir_fd=parent)
            self.done.written += 1
        except FileExistsError:
            seen = stat(last, dir_fd=parent, follow_symlinks=False)
            if not S_ISDIR(seen.st_mode):
                self.done.kept.append((entry.path, "something else is in its place"))

    def _mode(self, step: Step) -> None:
        entry = step.new
        assert entry is not None
        try:
            parent, last = self._parent(entry.path)
            if entry.kind == LINK:
                return
            fd = open_fd(last, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, dir_fd=parent)
        except PermissionError:
            self._mode_by_name(entry)
            return
        except OSError as error:
            self.done.kept.append((entry.path, f"its mode could not be set ({error.strerror})"))
            return
        try:
            seen = fstat(fd)
            if S_ISDIR(seen.st_mode) != (entry.kind == FOLDER):
                self.done.kept.append((entry.path, "something else is in its place"))
                return
            self._attributes(entry, last, fd)
            fchmod(fd, entry.mode)
            self.done.modes += step.action == MODE
        finally:
            close(fd)

    def _mode_by_name(self, entry: Entry) -> None:
        """Without the right to open it, its owner may still change its mode."""
        parent, last = self._parent(entry.path)
        seen = stat(last, dir_fd=parent, follow_symlinks=False)
        if S_ISLNK(seen.st_mode):
            self.done.kept.append((entry.path, "something else is in its place"))
            return
        chmod(last, entry.mode, dir_fd=parent)
        self.done.modes += 1

    def _attributes(self, entry: Entry, name: bytes, fd: int) -> None:
        """Owner, group and extended attributes, as far as we may."""
        if not entry.flags & ATTRIBUTES:
            return
        try:
            extra: dict[str, Any] = loads(entry.extra)
        except ValueError:
            return
        try:
            if "uid" in extra:
                if fd >= 0:
                    chown(fd, extra["uid"], extra["gid"])
                else:
                    chown(name, extra["uid"], extra["gid"], dir_fd=self.staging, follow_symlinks=False)
        except (OSError, TypeError, OverflowError):
            pass  # only root may give files away; `show` says what was recorded
        if fd >= 0 and isinstance(extra.get("xattr"), dict):
            from binascii import a2b_base64
            from posix import setxattr

            for key, value in extra["xattr"].items():
                try:
                    setxattr(fd, key, a2b_base64(value))
                except (OSError, ValueError, TypeError):
                    continue

    # Walking

    def _parent(self, path: bytes) -> tuple[int, bytes]:
        """A descriptor of the folder that holds `path`, reached part by part without following links."""
        folder, _, last = path.rpartition(b"/")
        return self._folder(folder), last

    def _folder(self, path: bytes) -> int:
        if not path:
            return self.root
        fd = self.folders.get(path)
        if fd is not None and self._still(fd, path):
            return fd
        parent, _, last = path.rpartition(b"/")
        fd = open_fd(last, FOLDER_FLAGS, dir_fd=self._folder(parent))
        if len(self.folders) >= OPEN_FOLDERS:
            close(self.folders.pop(next(iter(self.folders))))
        self.folders[path] = fd
        return fd

    def _still(self, fd: int, path: bytes) -> bool:
        """Is the descriptor we remember still the folder at that path? It may have been moved away meanwhile."""
        parent, _, last = path.rpartition(b"/")
        try:
            above = self._folder(parent)
            there, here = stat(last, dir_fd=above, follow_symlinks=False), fstat(fd)
            if (there.st_ino, there.st_dev) == (here.st_ino, here.st_dev):
                return True
        except OSError:
            pass  # it is gone, or a link by now
        self._forget_folder(path)
        return False

    def _forget_folder(self, path: bytes) -> None:
        for known in [known for known in self.folders if known == path or known.startswith(path + b"/")]:
            close(self.folders.pop(known))

    # Our own folder

    def _open_staging(self) -> None:
        self.marker = _folder(self.root, b".holdfast")
        self.staging = _folder(self.marker, self.name)
        self._sweep_old()

    def _close_staging(self) -> None:
        for fd in self.folders.values():
            close(fd)
        self.folders = {}
        self._sweep(self.name)
        close(self.staging)
        close(self.marker)

    def _sweep(self, name: bytes) -> None:
        """Empty a staging folder: what the store has goes, everything else is put aside."""
        try:
            fd = open_fd(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, dir_fd=self.marker)
        except OSError:
            return
        mine, self.staging = self.staging, fd
        try:
            for entry in [text.encode(ENCODING, ERRORS) for text in listdir(fd)]:
                seen = stat(entry, dir_fd=fd, follow_symlinks=False)
                if S_ISREG(seen.st_mode) and not self.known(self._content(entry)):
                    self._put_aside(entry, entry)
                elif S_ISREG(seen.st_mode) or S_ISLNK(seen.st_mode):
                    self._discard(entry, entry)
                else:
                    self._put_aside(entry, entry)
        finally:
            self.staging = mine
            close(fd)
        try:
            rmdir(name, dir_fd=self.marker)
        except FileNotFoundError:
            pass

    def _sweep_old(self) -> None:
        """A restore that was cut off left its folder behind."""
        for text in listdir(self.marker):
            name = text.encode(ENCODING, ERRORS)
            if name.startswith(b"restore-") and name != self.name:
                self._sweep(name)

    def _next(self) -> bytes:
        self.count += 1
        return b"%x" % self.count

    def _refuse_case_twins(self, plan: Plan) -> None:
        names: dict[bytes, bytes] = {}
        twins = []
        for step in plan.steps:
            if step.new is None:
                continue
            folded = step.path.decode("utf-8", "surrogateescape").casefold().encode("utf-8", "surrogateescape")
            if names.setdefault(folded, step.path) != step.path:
                twins.append((names[folded], step.path))
        if not twins or not self._folds_case():
            return
        one, other = (path.decode("utf-8", "replace") for path in twins[0])
        raise Conflict(
            f"{one!r} and {other!r} cannot both exist here: this folder does not tell cases apart.",
            "Restore one of them by its path.",
        )

    def _folds_case(self) -> bool:
        fd = open_fd(b"case", O_WRONLY | O_CREAT | O_CLOEXEC, 0o600, dir_fd=self.staging)
        close(fd)
        try:
            stat(b"CASE", dir_fd=self.staging)
            return True
        except FileNotFoundError:
            return False
        finally:
            unlink(b"case", dir_fd=self.staging)


class _System:
    """Calls that Python does not have: an atomic exchange, and a sync of one file system."""

    def __init__(self) -> None:
        import ctypes

        self.ctypes = ctypes
        self.library = ctypes.CDLL(None, use_errno=True)

    def rename(self, from_folder: int, old: bytes, to_folder: int, new: bytes, flags: int) -> None:
        call = getattr(self.library, "renameat2", None)
        if call is not None:
            if call(from_folder, self.ctypes.c_char_p(old), to_folder, self.ctypes.c_char_p(new), flags) == 0:
                return
            number = self.ctypes.get_errno()
            if number not in (ENOSYS, EINVAL):
                raise OSError(number, _text(number), new)
        self._rename_by_hand(from_folder, old, to_folder, new, flags)

    def _rename_by_hand(self, from_folder: int, old: bytes, to_folder: int, new: bytes, flags: int) -> None:
        """Where the file system has no such rename: the same in more than one call."""
        if flags == NOREPLACE:
            try:
                stat(new, dir_fd=to_folder, follow_symlinks=False)
            except FileNotFoundError:
                rename(old, new, src_dir_fd=from_folder, dst_dir_fd=to_folder)
                return
            raise FileExistsError(EEXIST, _text(EEXIST), new)
        spare = old + b".x"
        rename(new, spare, src_dir_fd=to_folder, dst_dir_fd=from_folder)
        rename(old, new, src_dir_fd=from_folder, dst_dir_fd=to_folder)
        rename(spare, old, src_dir_fd=from_folder, dst_dir_fd=from_folder)

    def sync(self, fd: int) -> None:
        call = getattr(self.library, "syncfs", None)
        real = open_fd(b".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, dir_fd=fd)
        try:
            if call is None or call(real) != 0:
                from posix import sync

                sync()
                fsync(real)
        finally:
            close(real)

    def pause(self, seconds: float) -> None:
        from time import sleep

        sleep(seconds)


def _folder(parent: int, name: bytes) -> int:
    try:
        mkdir(name, 0o700, dir_fd=parent)
    except FileExistsError:
        pass
    return open_fd(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, dir_fd=parent)


def _changes_type(step: Step) -> bool:
    """Must what is there go first: a folder for a file, a file for a folder, something unreadable?"""
    if step.action != WRITE or step.old is None or step.new is None:
        return False
    return (step.old.kind == FOLDER) != (step.new.kind == FOLDER) or step.old.kind not in (FILE, LINK, FOLDER)


def _write(fd: int, data: bytes, sparse: bool) -> None:
    view = memoryview(data)
    while view:
        if sparse:
            block = view[:BLOCK]
            if not any(block):
                lseek(fd, len(block), 1)
                view = view[len(block) :]
                continue
            view = view[write(fd, block) :]
            continue
        view = view[write(fd, view) :]


def _text(number: int) -> str:
    from posix import strerror

    return strerror(number)
