"""Facts about the git repository of a folder, read from its files: git is not run, the index is not read."""

from __future__ import annotations

from os import O_CLOEXEC, O_NOCTTY, O_NONBLOCK, O_RDONLY, close, fstat, read, readlink, stat
from os import open as open_fd

SMALL = 8_192
"""Maximum length of a file with a single ref or path; a longer one is not valid."""
PACKED = 32 << 20
"""Bytes of `packed-refs` that are searched, about 400,000 refs."""
HOPS = 5
"""Refs that are followed to find a commit, HEAD included, as in git."""

TYPE, FOLDER, FILE = 0o170000, 0o040000, 0o100000
MISSING, UNKNOWN = 0, -1
HEADS = b"refs/heads/"
OWN = (b"refs/bisect/", b"refs/rewritten/", b"refs/worktree/")
"""Refs that are separate in each worktree."""
NOT_IN_REFS = bytes(range(33)) + b"\x7f~^:?*[\\"
MARKERS = (
    (b"/rebase-merge", "rebase"),
    (b"/rebase-apply/applying", "am"),
    (b"/rebase-apply", "rebase"),
    (b"/MERGE_HEAD", "merge"),
    (b"/CHERRY_PICK_HEAD", "cherry-pick"),
    (b"/REVERT_HEAD", "revert"),
    (b"/BISECT_LOG", "bisect"),
)


class GitFacts:
    """The state of a repository at the moment of reading.

    `branch` is None when HEAD is detached, `commit` when the branch has none yet or it cannot be read; both are None
    when HEAD leads nowhere. A ref outside `refs/heads/` keeps its full name; bytes that are not UTF-8 become `\\xff`.
    """

    __slots__ = ("branch", "commit", "git_dir", "in_progress", "work_tree")

    def __init__(
        self, branch: str | None, commit: str | None, git_dir: bytes, work_tree: bytes, in_progress: str | None
    ) -> None:
        self.branch = branch
        self.commit = commit
        self.git_dir = git_dir
        self.work_tree = work_tree
        self.in_progress = in_progress


def facts(root: bytes) -> GitFacts | None:
    """Return the facts about the repository around `root`, an absolute path without symbolic links in it.

    None if there is none on the same file system, or if it is damaged or may not be read. Never raises, whatever the
    files hold. Bare repositories and `core.worktree` are not looked for.
    """
    if root[:1] != b"/":
        return None
    work_tree = root.rstrip(b"/")
    device = _device(root)
    while device is not None and _device(work_tree + b"/") == device:
        dot_git = work_tree + b"/.git"
        kind = _kind(dot_git)
        if kind == FILE:
            return _read_facts(work_tree or b"/", _pointed_to(work_tree, dot_git))
        # A folder without HEAD is no repository, and git looks further up. An unreadable one may be a repository.
        if kind == UNKNOWN or (kind == FOLDER and _read_ref(dot_git + b"/HEAD", is_head=True) is not None):
            return _read_facts(work_tree or b"/", dot_git)
        if not work_tree:
            return None
        work_tree = work_tree.rpartition(b"/")[0]
    return None


def _read_facts(work_tree: bytes, git_dir: bytes) -> GitFacts | None:
    head = _read_ref(git_dir + b"/HEAD", is_head=True) or b""
    if not head.startswith(b"ref:") and _commit(head) is None:
        return None
    common = _common(git_dir)
    if common is None or _kind(common + b"/objects") != FOLDER or _kind(common + b"/refs") != FOLDER:
        return None
    ref, commit = _follow(git_dir, common, head)
    branch = None if ref is None else ref.removeprefix(HEADS).decode("utf-8", "backslashreplace")
    in_progress = next((word for name, word in MARKERS if _kind(git_dir + name) in (FILE, FOLDER)), None)
    return GitFacts(branch, commit, git_dir, work_tree, in_progress)


def _follow(git_dir: bytes, common: bytes, value: bytes) -> tuple[bytes | None, str | None]:
    """Follow HEAD; return the last ref (None if HEAD is detached) and its commit."""
    # In a reftable the refs are not files; HEAD is usually a stub there, with a name that is no ref.
    reftable = _kind(common + b"/reftable") == FOLDER
    ref, hops = None, 1
    while value.startswith(b"ref:"):
        ref = value[4:].strip()
        if hops == HOPS or not _is_ref(ref):
            return None, None
        if reftable:
            return ref, None
        loose = _read_ref((git_dir if ref.startswith(OWN) else common) + b"/" + ref)
        if loose is None:
            return ref, _packed(common, ref)
        value = loose
        hops += 1
    return ref, _commit(value)


def _read_ref(path: bytes, is_head: bool = False) -> bytes | None:
    """Return the content of a ref's file; empty if it cannot be read, None if it does not exist."""
    try:
        target = readlink(path)
    except (OSError, ValueError):
        return _read_line(path)
    if target.startswith(b"refs/"):
        return b"ref: " + target
    return b"" if is_head else _read_line(path)


def _packed(common: bytes, ref: bytes) -> str | None:
    content = _read(common + b"/packed-refs", PACKED) or b""
    at = content.find(b" " + ref + b"\n")
    if at < 0:
        return None
    return _commit(content[content.rfind(b"\n", 0, at) + 1 : at])


def _commit(value: bytes) -> str | None:
    name = b"".join(value.split(None, 1)[:1])
    if len(name) not in (40, 64) or name.strip(b"0123456789abcdefABCDEF") or not name.strip(b"0"):
        return None
    return name.decode("ascii").lower()


def _is_ref(name: bytes) -> bool:
    """Follow git's rules for names, which also keep the path of a ref below its folder."""
    if not name.startswith(b"refs/") or b".." in name or b"@{" in name or name.endswith(b"."):
        return False
    if name.translate(None, NOT_IN_REFS) != name:
        return False
    return all(part and part[:1] != b"." and not part.endswith(b".lock") for part in name.split(b"/"))


def _pointed_to(work_tree: bytes, dot_git: bytes) -> bytes:
    """Return the folder that a `.git` file points to; a path that cannot exist if it is invalid."""
    content = _read_line(dot_git) or b""
    path = content.removeprefix(b"gitdir: ")
    if path == content or not path:
        return dot_git
    if path[:1] == b"/":
        return path
    while path.startswith(b"../"):
        work_tree, path = work_tree.rpartition(b"/")[0], path[3:].lstrip(b"/")
    return work_tree + b"/" + path


def _common(git_dir: bytes) -> bytes | None:
    """Return the folder with the refs and objects that all worktrees share; None if it cannot be determined."""
    path = _read_line(git_dir + b"/commondir")
    if path is None:
        return git_dir
    if not path:
        return None
    return path if path[:1] == b"/" else git_dir + b"/" + path


def _kind(path: bytes) -> int:
    try:
        return stat(path).st_mode & TYPE
    except (FileNotFoundError, NotADirectoryError):
        return MISSING
    except (OSError, ValueError):
        return UNKNOWN


def _device(path: bytes) -> int | None:
    try:
        return stat(path).st_dev
    except (OSError, ValueError):
        return None


def _read_line(path: bytes) -> bytes | None:
    content = _read(path, SMALL + 1)
    if content is None:
        return None
    return content.rstrip(b"\r\n") if len(content) <= SMALL else b""


def _read(path: bytes, limit: int) -> bytes | None:
    """Return the beginning of a regular file; None if it does not exist, empty if it cannot be read."""
    try:
        # O_NONBLOCK: a pipe of that name must not block us.
        descriptor = open_fd(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        return b""
    try:
        about = fstat(descriptor)
        if about.st_mode & TYPE != FILE:
            return None if about.st_mode & TYPE == FOLDER else b""
        size, content = min(limit, about.st_size), b""
        while len(content) < size and (more := read(descriptor, size - len(content))):
            content += more
        return content
    except OSError:
        return b""
    finally:
        close(descriptor)
