"""What a command is about to destroy: which paths it threatens, saving what the rules exclude of them, and what is lost."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from glob import has_magic, iglob
from itertools import chain, islice
from os import O_CLOEXEC, O_DIRECTORY, O_RDONLY, close, lstat
from os import open as open_fd
from os.path import isfile, islink, realpath
from stat import S_IFDIR, S_IFLNK, S_IFMT, S_IFREG

from keepfast.app.checkpoint import Engine
from keepfast.app.saved_files import SavedFiles
from keepfast.app.scan import free_room, list_below
from keepfast.app.workspace_lock import capture_rules
from keepfast.model.artefacts import PYTHON_FOLDER, is_always_excluded, matching_command
from keepfast.model.entry import FILE, FOLDER, LINK, Entry
from keepfast.model.entry import UNREADABLE as NOT_READ
from keepfast.shell.destruction import Threat
from keepfast.state import rescues
from keepfast.workspace import stat_cache
from keepfast.workspace.capture import GIT, NEVER_ENTERED, OWN_FOLDERS, SUPERVISOR_FOLDERS
from keepfast.workspace.git import facts
from keepfast.workspace.git_index import may_name
from keepfast.workspace.selection import Chooser
from keepfast.workspace.walk import LEFT, NOT_ENTERED, UNREAD

Save = Callable[[tuple[bytes, ...], tuple[bytes, ...]], object]
"""Make a checkpoint of the first paths only (none: of everything), with the second ones in it whatever the rules say."""

MAX_MATCHES = MAX_WORDS = 10_000
MAX_PATTERNS, MAX_BRACE_DEPTH = 200, 50
"""A pattern beyond these limits stands for the whole folder that it begins with: expanding it would take too long."""
MAX_FILES_COMPARED = 2_000
MIN_UNCHANGED_NS = 2_000_000_000
"""A file that changed less than this before it was saved may have changed while it was read."""
TOO_MANY = b"."
"""Stands in a list of files for more than are compared."""
GIT_FOLDER = "git's own folder, which is not covered"
NO_ROOM = "the disk of the store has no space for it"
UNREADABLE = "it cannot be read"
SETTINGS = "excluded by the setting capture.exclude"
NOT_RECREATABLE = "nothing"
"""Stands for a command where no tool recreates the path."""


class Losses:
    """What a command destroys for good: paths with the command that recreates them, or with the reason for not saving them."""

    def __init__(self) -> None:
        self.recreatable: list[tuple[bytes, str | None]] = []
        """The command is empty where the tool recreates the path by itself, None where the user's settings exclude it."""
        self.unsaved: list[tuple[bytes, str]] = []


def unsaved_paths(engine: Engine, root: bytes, workspace: str, paths: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return those of these paths that differ from the newest version, or have something in them that does.

    Git's own folder and our own files do not count. A folder with more than `MAX_FILES_COMPARED` files counts as different.
    """
    cache = stat_cache.load(engine.place.folder(workspace) + "/cache")
    if cache is None:
        return paths
    looked_at = {path: _files_at(root, path) for path in paths if NEVER_ENTERED.isdisjoint(path.split(b"/"))}
    files = SavedFiles(cache, root, {file.rpartition(b"/")[0] for files in looked_at.values() for file in files})
    return tuple([path for path in looked_at if not all(map(files.holds, looked_at[path]))])


def _files_at(root: bytes, path: bytes) -> list[bytes]:
    """Return the file itself and the target of its link, or the files below a folder, at most `MAX_FILES_COMPARED` and a sign."""
    paths: list[bytes] = []
    for real_path in _real_paths(root, path):
        top = root + b"/" + real_path
        if os.path.islink(top) or not os.path.isdir(top):
            paths.append(real_path)
            continue
        for folder, folders, files in os.walk(top):
            folders[:] = [name for name in folders if name not in NEVER_ENTERED]
            paths += [folder[len(root) + 1 :] + b"/" + name for name in files]
            if len(paths) > MAX_FILES_COMPARED:
                return [*paths[:MAX_FILES_COMPARED], TOO_MANY]
    return paths


def threatened_paths(root: bytes, threat: Threat) -> tuple[bytes, ...]:
    """Return the existing paths below the root that the command may destroy; `b""` for everything."""
    paths: dict[bytes, None] = {b"": None} if threat.everything else {}
    named = [path + b"/" if path in threat.entered else path for path in threat.named]
    for path in named:
        if exists(root + b"/" + path.rstrip(b"/")):
            paths.update(dict.fromkeys(_real_paths(root, path)))
    for pattern in threat.patterns:
        for match in _matches(pattern, root):
            if (root + b"/").startswith(match.rstrip(b"/") + b"/"):
                paths[b""] = None
            elif match.startswith(root + b"/"):
                paths.update(dict.fromkeys(_real_paths(root, match[len(root) + 1 :])))
    return tuple(paths)


def _real_paths(root: bytes, named: bytes) -> list[bytes]:
    """Return the path with links above it resolved; if it is a link itself, also its target, which a write goes to.

    A command reaches a folder behind a link only with a slash at the end. Targets outside of the root are left out.
    """
    path = named.rstrip(b"/")
    above, _, name = path.rpartition(b"/")
    top = realpath(root)
    paths = [realpath(root + b"/" + above) + b"/" + name]
    if islink(paths[0]) and (named != path or isfile(paths[0])):
        paths.append(realpath(paths[0]))
    below = [path[len(top) + 1 :] for path in paths if path.startswith(top + b"/")]
    return [*below, b""] if top in paths else below or [path]


def save_excluded(
    engine: Engine,
    root: bytes,
    workspace: str,
    paths: tuple[bytes, ...],
    threat: Threat,
    save: Save,
) -> Losses:
    """Save what the rules exclude at and below these paths, and return what is lost all the same.

    A vague command may destroy any other path, too: everything that no tool can recreate is saved with it. Below spared paths
    git's own folders stay as they are. Where git changes only what it tracks, folders excluded by name are saved only if git
    may track something in them.
    """
    risky, is_vague = [path for path in paths if path not in threat.spared], threat.is_vague
    marks = _save_ignored(engine, workspace, paths, save, is_vague)
    losses, others, unnamed = Losses(), Losses(), list[bytes]()
    fd = open_fd(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    try:
        chooser = Chooser(fd, capture_rules(engine, root))
        for mark in sorted(marks):
            path = mark[1:]
            is_named = _overlaps(path, paths)
            if not (is_named or is_vague) or not exists(root + b"/" + path):
                continue
            if mark[:1] == LEFT:
                losses.unsaved.append((path, NO_ROOM))
            elif mark[:1] == UNREAD:
                losses.unsaved += [(path, UNREADABLE)] if is_named else []
            elif mark[:1] == NOT_ENTERED and path.rpartition(b"/")[2].lower() == GIT:
                if _overlaps(path, risky):
                    losses.unsaved.append((path, GIT_FOLDER))
            elif mark[:1] == NOT_ENTERED and is_named:
                _save_unless_recreatable(engine, root, chooser, path, save, losses)
            elif mark[:1] == NOT_ENTERED and _may_be_destroyed(root, chooser, path, threat):
                unnamed.append(path)
        # Folders excluded by name come last: they may be large, and time or disk space may not suffice for all.
        for path in sorted(unnamed, key=lambda path: _is_excluded_by_name(root, chooser, path)):
            if not _is_saved_whole(engine, root, workspace, chooser, path):
                _save_unless_recreatable(engine, root, chooser, path, save, others)
    finally:
        close(fd)
    losses.unsaved += others.unsaved  # recreatable paths are reported only if the command names them
    return losses


def _save_ignored(engine: Engine, workspace: str, paths: tuple[bytes, ...], save: Save, is_vague: bool) -> list[bytes]:
    """Save files excluded by size or an ignore rule; return the marks of what is excluded after that."""
    marks = _cached_marks(engine, workspace)
    if any(mark[:1] == LEFT and _overlaps(mark[1:], paths) for mark in marks):
        save((), paths)
        marks = _cached_marks(engine, workspace)
    if is_vague and any(mark[:1] == LEFT for mark in marks):
        save((), (b"",))  # after what is named: time or disk space may not suffice for all
        marks = _cached_marks(engine, workspace)
    return marks


def save_named(
    engine: Engine,
    root: bytes,
    workspace: str,
    paths: tuple[bytes, ...],
    spared: frozenset[bytes],
    save: Save,
) -> Losses:
    """Save these paths with everything below them and nothing else of the tree; return what is lost all the same."""
    rules, losses = capture_rules(engine, root), Losses()
    inside, excluded = list_below(root, paths, rules)
    if inside:
        save(tuple(inside), ())
    risky = [path for path in paths if path not in spared]
    row = engine.repository().workspace(workspace)
    for path in paths if row is not None else ():
        gaps = engine.repository().left_out(workspace, row.version, path)  # type: ignore[union-attr]
        losses.unsaved += [(gap.path, UNREADABLE) for gap in gaps if gap.kind == NOT_READ]
    fd = open_fd(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    try:
        chooser = Chooser(fd, rules)
        for path in excluded:
            if path.rpartition(b"/")[2] in OWN_FOLDERS:
                continue
            if path.rpartition(b"/")[2].lower() != GIT:
                _save_unless_recreatable(engine, root, chooser, path, save, losses)
            elif _overlaps(path, risky):
                losses.unsaved.append((path, GIT_FOLDER))
    finally:
        close(fd)
    return losses


def excluded_paths(
    engine: Engine, root: bytes, workspace: str, paths: tuple[bytes, ...], threat: Threat
) -> tuple[bytes, ...]:
    """Return the paths that the newest version excludes, at and below these paths, and that a save for a command would include."""
    marks = [mark for mark in _cached_marks(engine, workspace) if mark[:1] in (LEFT, NOT_ENTERED)]
    fd = open_fd(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    try:
        chooser = Chooser(fd, capture_rules(engine, root))
        excluded = [
            mark[1:]
            for mark in marks
            if mark[1:].rpartition(b"/")[2] != GIT
            and (
                _overlaps(mark[1:], paths)
                or (threat.is_vague and (mark[:1] == LEFT or _may_be_destroyed(root, chooser, mark[1:], threat)))
            )
        ]
    finally:
        close(fd)
    return tuple(sorted(excluded))


def _save_unless_recreatable(
    engine: Engine, root: bytes, chooser: Chooser, path: bytes, save: Save, losses: Losses
) -> None:
    """Save a folder that was not looked into, unless a tool recreates it or there is no space."""
    if _is_ours(root, chooser, path):
        return
    command = _recreating_command(root, chooser, path)
    if command != NOT_RECREATABLE:
        losses.recreatable.append((path, command))
    else:
        inside, size = _paths_below(root, path, chooser)
        if size > free_room(engine.place.path):
            losses.unsaved.append((path, NO_ROOM))
        else:
            save((path, *inside), (path,))


def _may_be_destroyed(root: bytes, chooser: Chooser, path: bytes, threat: Threat) -> bool:
    """Return whether a vague command may destroy this path, and no tool can recreate it."""
    if _is_ours(root, chooser, path) or _recreating_command(root, chooser, path) != NOT_RECREATABLE:
        return False
    return threat.is_boundless or not _is_excluded_by_name(root, chooser, path) or _may_be_tracked(root, path, threat)


def _may_be_tracked(root: bytes, path: bytes, threat: Threat) -> bool:
    """Return whether git may track something in this folder, in the places where the command runs it."""
    if any((folder + b"/").startswith(path + b"/") for folder in threat.git_folders):
        return True  # the folder may have a repository of its own
    absolute = root + b"/" + path
    git = facts(absolute.rpartition(b"/")[0])
    if git is None:
        return True
    return may_name(git.git_dir, absolute[len(git.work_tree.rstrip(b"/")) + 1 :])


def _is_saved_whole(engine: Engine, root: bytes, workspace: str, chooser: Chooser, path: bytes) -> bool:
    """Return whether a version has all of this folder as it is now; that version is then protected from retention for a day."""
    repository = engine.repository()
    row = repository.holder(workspace, path)
    if row is None:
        return False
    started = repository.document(row)[0].scan_started
    entries = {entry.path: entry for entry in repository.state(workspace, row.version, path)}
    paths = {path, *_paths_below(root, path, chooser)[0]}
    if entries.keys() != paths or not all(
        _is_unchanged(root, entry, started - MIN_UNCHANGED_NS) for entry in entries.values()
    ):
        return False
    rescues.note(engine.place.folder(workspace), row.version, engine.clock())
    return True


def _is_unchanged(root: bytes, entry: Entry, before: int) -> bool:
    """Return whether this is still what was saved: same kind and size, and no change since then."""
    try:
        status = lstat(root + b"/" + entry.path)
    except OSError:
        return False
    kind = {S_IFREG: FILE, S_IFLNK: LINK, S_IFDIR: FOLDER}.get(S_IFMT(status.st_mode))
    return kind == entry.kind and status.st_ctime_ns < before and (kind != FILE or status.st_size == entry.size)


def _is_ours(root: bytes, chooser: Chooser, path: bytes) -> bool:
    return (
        path in SUPERVISOR_FOLDERS or path.rpartition(b"/")[2] in OWN_FOLDERS or _is_store(root + b"/" + path, chooser)
    )


def _recreating_command(root: bytes, chooser: Chooser, path: bytes) -> str | None:
    """Return the command that recreates the path, as in `Losses.recreatable`, or `NOT_RECREATABLE`.

    A folder's name alone is no evidence: the file from which its tool makes it must lie beside it.
    """
    if chooser.exclude.match(path, os.path.isdir(root + b"/" + path)):
        command = chooser.command_to_rebuild(path)
        return NOT_RECREATABLE if command is None and is_always_excluded(path) else command
    if chooser.is_generated(path):
        return chooser.command_to_rebuild(path)
    if _is_marked(root, chooser, path):
        if not exists(root + b"/" + path + b"/pyvenv.cfg"):
            return ""
        return matching_command(PYTHON_FOLDER, path, chooser.sibling_names(path)) or NOT_RECREATABLE
    return NOT_RECREATABLE


def _is_excluded_by_name(root: bytes, chooser: Chooser, path: bytes) -> bool:
    """Return whether the path is excluded by its name or by a marker file in it.

    Such a path is saved only if the command names it.
    """
    return chooser.exclude.match(path, os.path.isdir(root + b"/" + path)) or _is_marked(root, chooser, path)


def _is_marked(root: bytes, chooser: Chooser, path: bytes) -> bool:
    is_folder = os.path.isdir(root + b"/" + path)
    return is_folder and chooser.is_marked(path, set(os.listdir(root + b"/" + path)))


def _paths_below(root: bytes, path: bytes, chooser: Chooser) -> tuple[list[bytes], int]:
    """Return everything below a folder that no tool can recreate, and the size of the files."""
    paths: list[bytes] = []
    size = 0
    for folder, folders, files in os.walk(root + b"/" + path):
        below = folder[len(root) + 1 :]
        folders[:] = [
            name
            for name in folders
            if name not in NEVER_ENTERED
            and (
                not chooser.exclude.match(below + b"/" + name, True)
                or _recreating_command(root, chooser, below + b"/" + name) == NOT_RECREATABLE
            )
        ]
        paths += [below + b"/" + name for name in folders + files]
        for name in files:
            try:
                size += lstat(folder + b"/" + name).st_size
            except OSError:
                continue  # deleted meanwhile
    return paths, size


def _overlaps(path: bytes, limits: Sequence[bytes]) -> bool:
    """Return whether the path lies at, below or above one of these."""
    return any(
        not limit or path == limit or path.startswith(limit + b"/") or limit.startswith(path + b"/") for limit in limits
    )


def _cached_marks(engine: Engine, workspace: str) -> list[bytes]:
    """Return the marks of what the newest version excludes, from its stat cache."""
    cache = stat_cache.load(engine.place.folder(workspace) + "/cache")
    return cache.marks() if cache is not None else []


def _matches(pattern: bytes, root: bytes) -> list[bytes]:
    if _count_words(pattern) > MAX_WORDS:
        return [_folder_of_pattern(pattern, root)]
    words = list(_expand_braces(pattern))
    if sum(map(has_magic, words)) > MAX_PATTERNS:
        return [_folder_of_pattern(pattern, root)]
    matches = list(islice(chain.from_iterable(map(iglob, words)), MAX_MATCHES + 1))
    return matches if len(matches) <= MAX_MATCHES else [_folder_of_pattern(pattern, root)]


def _folder_of_pattern(pattern: bytes, root: bytes) -> bytes:
    """Return the folder that everything a pattern may match lies in; the root if that cannot be told."""
    start = min([at for at in map(pattern.find, (b"*", b"?", b"[", b"{")) if at >= 0], default=len(pattern))
    folder = pattern[:start].rpartition(b"/")[0]
    return folder if folder.startswith(root + b"/") and b".." not in pattern else root


def _count_words(pattern: bytes) -> int:
    """Return an upper bound of the words that a pattern's braces expand to; more than `MAX_WORDS` is too many."""
    outer: list[tuple[int, int]] = []
    others, current = 0, 1
    for letter in pattern:
        if letter == 0x7B:
            outer.append((others, current))
            others, current = 0, 1
        elif letter == 0x2C and outer:
            others, current = others + current, 1
        elif letter == 0x7D and outer:
            inside = others + current
            others, current = outer.pop()
            current *= inside
        if others + current > MAX_WORDS or len(outer) > MAX_BRACE_DEPTH:
            return MAX_WORDS + 1
    for before, factor in reversed(outer):
        others, current = before, factor * (others + current)
    return others + current


def _expand_braces(pattern: bytes) -> Iterator[bytes]:
    """Yield the patterns that one with `{a,b}` in it stands for."""
    start, brace, rest = pattern.partition(b"{")
    if not brace:
        yield pattern
        return
    depth, cuts, at = 1, [-1], 0
    for at, letter in enumerate(rest):
        depth += (letter == 0x7B) - (letter == 0x7D)
        if not depth:
            break
        if letter == 0x2C and depth == 1:
            cuts.append(at)
    if depth or len(cuts) == 1:
        # `{1..9}`, or a brace without a meaning: match anything there.
        yield start + b"*"
        return
    for cut, following in zip(cuts, [*cuts[1:], at], strict=True):
        yield from _expand_braces(start + rest[cut + 1 : following] + rest[at + 1 :])


def exists(path: bytes) -> bool:
    """Return whether there is an entry of any kind at `path`; a dangling link counts."""
    try:
        lstat(path)
    except OSError:
        return False
    return True


def _is_store(path: bytes, chooser: Chooser) -> bool:
    try:
        status = lstat(path)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == chooser.capture.store
