"""Test trees: made once in a cache folder, stripped of ignore rules, and reused by every run."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from .binaries import make_binaries

GB = 1 << 30
SPARE = 20 * GB
REPOSITORY = Path(__file__).resolve().parent.parent
CACHE = REPOSITORY / ".bench"

# Each of these makes a tool skip a file or store other bytes than the disk holds. Debian's kernel ends its root
# .gitignore in `/*`: git then captures nothing at all and exits with 0.
STRIPPED_FILES = (".gitignore", ".gitattributes")
STRIPPED_FOLDERS = (".git", ".keepfast")
CAPTURE = (
    "Every tool captures everything: all .git, .gitignore and .gitattributes are taken out of the trees, "
    "keepfast runs with no excludes and `ignored: all`, the others leave out `.keepfast` only."
)

PROJECT_PARTS = (
    *("block", "crypto", "include/linux", "init", "ipc", "kernel"),
    *("lib", "mm", "scripts", "security"),
)
SMALL_FILES = 300

# Versions are pinned, so that two runs of the bench see nearly the same tree; transitive versions may still move.
NODE_PACKAGES = {
    "next": "15.1.0",
    "react": "18.3.1",
    "react-dom": "18.3.1",
    "@mui/material": "6.3.0",
    "@angular/cli": "19.0.0",
    "antd": "5.22.0",
    "@aws-sdk/client-s3": "3.700.0",
    "jest": "29.7.0",
    "webpack": "5.97.0",
    "typescript": "5.7.2",
    "eslint": "9.17.0",
    "storybook": "8.4.7",
}
# Added one after another until the tree has NODE_FILES files.
NODE_EXTRAS = (
    *("@mui/icons-material@6.3.0", "date-fns@4.1.0", "core-js@3.39.0", "lucide-react@0.468.0"),
    *("@tabler/icons-react@3.24.0", "googleapis@144.0.0", "lodash@4.17.21"),
)
NODE_FILES = 100_000


class Unavailable(Exception):
    """A tree or a tool cannot be had here; the text says what to do."""


@dataclass(frozen=True)
class Tree:
    """One prepared tree and what it holds."""

    name: str
    path: Path
    files: int
    folders: int
    bytes: int
    source: str

    def __str__(self) -> str:
        size = f"{self.files:,} files, {self.folders:,} folders, {self.bytes / 1e6:,.1f} MB"
        return f"{self.name}: {size} ({self.source})"


def prepare(name: str, cache: Path, say: Callable[[str], None]) -> Tree:
    """Return the tree, made now if the cache does not hold it.

    Raises `Unavailable` when the source, a tool or the disk space is missing.
    """
    folder = cache / "trees"
    record = folder / f"{name}.json"
    path = folder / name
    if record.exists() and path.is_dir():
        return Tree(path=path, **json.loads(record.read_text()))
    need, make = RECIPES[name]
    demand_space(cache, need, f"the tree `{name}`")
    parent = prepare(PARENTS[name], cache, say).path if name in PARENTS else cache
    say(f"Making the tree `{name}` in {folder} …")
    partial = folder / f".{name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    shutil.rmtree(path, ignore_errors=True)
    partial.mkdir(parents=True)
    source = make(partial, parent, say)
    strip(partial)
    tree = survey(name, partial, source)
    partial.rename(path)
    # The record comes last: a tree without one is half made and is made again.
    facts = {key: value for key, value in asdict(tree).items() if key != "path"}
    record.write_text(json.dumps(facts, indent=1) + "\n")
    return Tree(path=path, **facts)


def demand_space(folder: Path, need: int, purpose: str) -> None:
    """Raise `Unavailable` unless the disk holds what is needed and the spare on top."""
    existing = folder
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if free < need + SPARE:
        raise Unavailable(
            f"{purpose} needs {need / GB:.1f} GB and {SPARE // GB} GB must stay spare, "
            f"but {existing} has only {free / GB:.1f} GB free. Free some space or name another folder with --dir."
        )


def strip(root: Path) -> None:
    """Remove whatever would make a tool skip files or change their bytes."""
    for folder, folders, files in os.walk(root):
        for name in files:
            if name in STRIPPED_FILES or name in STRIPPED_FOLDERS:
                os.unlink(os.path.join(folder, name))
        for name in [name for name in folders if name in STRIPPED_FOLDERS]:
            shutil.rmtree(os.path.join(folder, name))
            folders.remove(name)


def survey(name: str, root: Path, source: str) -> Tree:
    files = folders = size = 0
    for entry in walk(root):
        if entry.is_dir(follow_symlinks=False):
            folders += 1
        else:
            files += 1
            size += entry.stat(follow_symlinks=False).st_size
    return Tree(name, root, files, folders, size, source)


def walk(root: Path | str) -> Iterator[os.DirEntry[str]]:
    """Yield every entry below the root, in one fixed order, without following links."""
    with os.scandir(root) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        yield entry
        if entry.is_dir(follow_symlinks=False):
            yield from walk(entry.path)


def make_linux(target: Path, cache: Path, say: Callable[[str], None]) -> str:
    archive = find_kernel_archive(Path("/usr/src")) or download_kernel_archive(cache / "downloads", say)
    say(f"Unpacking {archive.name} …")
    call(["tar", "-xJf", str(archive), "-C", str(target), "--strip-components=1"])
    return archive.name.removesuffix(".tar.xz")


def find_kernel_archive(folder: Path) -> Path | None:
    found = sorted(folder.glob("linux-source-*.tar.xz"))
    return found[-1] if found else None


def download_kernel_archive(folder: Path, say: Callable[[str], None]) -> Path:
    unpacked = folder / "linux-source"
    known = find_kernel_archive(unpacked / "usr/src")
    if known:
        return known
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise Unavailable(
            "The kernel tree needs Debian's linux-source package, and apt-get is not here. "
            "Put linux-source-*.tar.xz into /usr/src, or leave the trees `linux` and `project` out with --tree."
        )
    folder.mkdir(parents=True, exist_ok=True)
    depends = call(["apt-cache", "depends", "linux-source"])
    packages = [line.split()[-1] for line in depends.splitlines() if line.strip().startswith("Depends: linux-source-")]
    if not packages:
        raise Unavailable("apt knows no linux-source package. Run `apt-get update` first, or install linux-source.")
    say(f"Downloading {packages[0]} …")
    # apt drops its rights to a user who may not write here; as root it only warns about that.
    call(["apt-get", "download", packages[0]], cwd=folder)
    package = sorted(folder.glob(f"{packages[0]}_*.deb"))[-1]
    call(["dpkg-deb", "-x", str(package), str(unpacked)])
    package.unlink()
    archive = find_kernel_archive(unpacked / "usr/src")
    if archive is None:
        raise Unavailable(f"{package.name} holds no linux-source-*.tar.xz.")
    return archive


def make_node_modules(target: Path, cache: Path, say: Callable[[str], None]) -> str:
    if not shutil.which("npm"):
        raise Unavailable("The tree `node_modules` needs npm. Install it, or leave this tree out with --tree.")
    manifest = {"name": "bench", "version": "1.0.0", "private": True, "dependencies": NODE_PACKAGES}
    (target / "package.json").write_text(json.dumps(manifest, indent=1) + "\n")
    install = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--legacy-peer-deps"]
    say(f"npm installs {len(NODE_PACKAGES)} packages …")
    call(install, cwd=target)
    added = 0
    for package in NODE_EXTRAS:
        count = survey("node_modules", target, "").files
        if count >= NODE_FILES:
            break
        say(f"{count:,} files so far; npm adds {package} …")
        call([*install, package], cwd=target)
        added += 1
    return f"npm install of {len(NODE_PACKAGES) + added} packages"


def make_project(target: Path, linux: Path, say: Callable[[str], None]) -> str:
    for part in PROJECT_PARTS:
        shutil.copytree(linux / part, target / part, symlinks=True)
    return "parts of the kernel source"


def make_small(target: Path, project: Path, say: Callable[[str], None]) -> str:
    files = [Path(entry.path) for entry in walk(project / "kernel") if entry.is_file(follow_symlinks=False)]
    for file in files[:SMALL_FILES]:
        copy = target / file.relative_to(project)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)
    return "the first files of kernel/"


def call(command: list[str], cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(command, cwd=cwd, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        raise Unavailable(f"`{command[0]}` is not installed.") from None
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise Unavailable(f"`{' '.join(command[:3])}` failed with {done.returncode}: {' / '.join(last)}")
    return done.stdout


Recipe = Callable[[Path, Path, Callable[[str], None]], str]
RECIPES: dict[str, tuple[int, Recipe]] = {
    "linux": (3 * GB, make_linux),
    "node_modules": (3 * GB, make_node_modules),
    "project": (GB, make_project),
    "binaries": (2 * GB, make_binaries),
    "small": (GB, make_small),
}
# These are cut from another tree; the others get the cache folder for their downloads.
PARENTS = {"project": "linux", "small": "project"}
MEASURED = ("linux", "node_modules", "project", "binaries")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.trees", description="Prepare the test trees of the bench.")
    parser.add_argument("--dir", type=Path, default=CACHE, help="the cache folder (default: .bench in the repository)")
    parser.add_argument("--tree", default=",".join(RECIPES), help="which trees, with commas")
    options = parser.parse_args()
    failed = 0
    for name in options.tree.split(","):
        if name not in RECIPES:
            print(f"There is no tree `{name}`; there are {', '.join(RECIPES)}.", file=sys.stderr)
            return 2
        try:
            print(prepare(name, options.dir.resolve(), lambda text: print(text, file=sys.stderr, flush=True)))
        except Unavailable as problem:
            print(problem, file=sys.stderr)
            failed = 1
    print(CAPTURE)
    return failed


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
