"""Create a git repository with a commit of another one and its history; only objects are read from the other."""

from __future__ import annotations

import subprocess
from os import fsdecode, mkdir
from os.path import normpath, realpath
from shutil import which

from keepfast.model.errors import Failed, NotFound, Usage
from keepfast.workspace.git import GitFacts, _common, _kind, _read
from keepfast.workspace.marker import show

FOLDER = 0o040000
SMALL = 1 << 20
# The new repository's own settings are ours; these keep out whatever else could name a program.
OFF = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "protocol.allow=never",
    "gc.auto=0",
    "maintenance.auto=false",
)


class GitPlumbing:
    """Runs git plumbing in a new repository, with an empty environment except for a search path of trusted folders."""

    def __init__(self, path: str, avoid: bytes) -> None:
        here = fsdecode(avoid)
        folders = [
            folder for folder in path.split(":") if folder.startswith("/") and not _is_untrusted_folder(folder, here)
        ]
        self.search = ":".join(folders)
        program = which("git", path=self.search) if folders else None
        if program is None:
            raise Usage("git is not installed or not on the PATH.", "Install git, or fork without --git.")
        self.program = program

    def run(
        self, git_dir: bytes, *words: str | bytes, work_tree: bytes = b"", objects: bytes = b"", text: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        """Run one command on the repository `git_dir`; `objects` is a folder of objects to read besides its own."""
        command_environment: dict[str, str | bytes] = {
            "PATH": self.search,
            "LC_ALL": "C",
            "HOME": "/nonexistent",
            "XDG_CONFIG_HOME": "/nonexistent",
            "GIT_DIR": git_dir,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_TERMINAL_PROMPT": "0",
        }
        if work_tree:
            command_environment["GIT_WORK_TREE"] = work_tree
        if objects:
            command_environment["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = _quoted(objects)
        settings = [word for setting in OFF for word in ("-c", setting)]
        return subprocess.run(
            [self.program, *settings, *words],
            env=command_environment,
            cwd="/",
            input=text,
            capture_output=True,
            check=False,
        )

    def must(self, git_dir: bytes, *words: str | bytes, **more: bytes) -> bytes:
        done = self.run(git_dir, *words, **more)
        if done.returncode:
            message = done.stderr.decode("utf-8", "replace").strip().split("\n")[-1]
            raise Failed(f"git could not create the repository ({fsdecode(words[0])}): {message or done.returncode}.")
        return done.stdout


def clone(git: GitPlumbing, source: GitFacts, commit: str, folder: bytes, branch: str) -> None:
    """Make `folder` a repository whose branch `branch` is at `commit`, with its index, and no file checked out.

    Its objects come from those of `source`, whose configuration, hooks and attributes are never looked at. Raises
    `NotFound` if the commit is not there any more.
    """
    common = _common(source.git_dir)
    objects = common + b"/objects" if common is not None else b""
    if not objects or _kind(objects) != FOLDER:
        raise Failed(f"{show(source.git_dir)} has no readable objects.")
    assert common is not None
    git_dir = folder + b"/.git"
    form = "sha256" if len(commit) == 64 else "sha1"
    git.must(
        git_dir, "init", "--quiet", "--template=", f"--object-format={form}", f"--initial-branch={branch}", folder,
        work_tree=folder,
    )  # fmt: skip
    _copy_shallow(common, git_dir)
    if git.run(git_dir, "cat-file", "-e", commit + "^{commit}", objects=objects).returncode:
        raise NotFound(
            f"The commit {commit[:12]} is no longer in {show(common)}.",
            "Fork without --git; all files are available.",
        )
    # All that is reachable from the commit becomes one pack of the new repository.
    git.must(
        git_dir, "pack-objects", "--quiet", "--revs", "--delta-base-offset", git_dir + b"/objects/pack/pack",
        objects=objects, text=commit.encode() + b"\n",
    )  # fmt: skip
    git.must(git_dir, "update-ref", f"refs/heads/{branch}", commit)
    git.must(git_dir, "read-tree", commit, work_tree=folder)
    _copy_exclude(common, git_dir)


def refresh(git: GitPlumbing, folder: bytes) -> None:
    """Refresh the index with the stat of the present files, so that the first `git status` is quick. No filters run."""
    git.run(folder + b"/.git", "update-index", "-q", "--refresh", work_tree=folder)


def _copy_shallow(common: bytes, git_dir: bytes) -> None:
    """Copy the boundary of a shallow clone."""
    text = _read(common + b"/shallow", SMALL)
    lines = (text or b"").split()
    if lines and all(len(line) in (40, 64) and not line.strip(b"0123456789abcdef") for line in lines):
        _write(git_dir + b"/shallow", b"\n".join(lines) + b"\n")


def _copy_exclude(common: bytes, git_dir: bytes) -> None:
    """Copy `info/exclude`: only patterns, nothing executable."""
    text = _read(common + b"/info/exclude", SMALL)
    if text:
        try:
            mkdir(git_dir + b"/info")
        except FileExistsError:
            pass
        _write(git_dir + b"/info/exclude", text)


def _write(path: bytes, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


def _quoted(path: bytes) -> bytes:
    """Quote the path as git expects it in a list separated by colons."""
    return b'"' + path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'


def _is_untrusted_folder(folder: str, root: str) -> bool:
    """Return whether this folder lies in the project, or in /proc."""
    spellings = (normpath("/" + folder.lstrip("/")), realpath(folder))
    return any(_inside(spelling, top) for spelling in spellings for top in (root, realpath(root), "/proc"))


def _inside(folder: str, root: str) -> bool:
    return folder == root or folder.startswith(root.rstrip("/") + "/")
