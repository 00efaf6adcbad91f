"""What a command is about to destroy: the paths that it means here, kept whatever the rules say, and what cannot be."""

from __future__ import annotations

import os
from _stat import S_IFDIR, S_IFLNK, S_IFMT, S_IFREG
from posix import O_CLOEXEC, O_DIRECTORY, O_RDONLY, close, lstat
from posix import open as open_fd

from keepfast.app.scan import all_below, room
from keepfast.app.workspace_lock import capture_rules
from keepfast.model.artefacts import PYTHON_FOLDER, is_always_excluded, matching_command
from keepfast.model.entry import FILE, FOLDER, LINK
from keepfast.model.entry import UNREADABLE as NOT_READ
from keepfast.workspace import stat_cache
from keepfast.workspace.capture import GIT, NEVER_ENTERED, OWN_FOLDERS, SUPERVISOR_FOLDERS
from keepfast.workspace.selection import Chooser
from keepfast.workspace.walk import LEFT, NOT_ENTERED, UNREAD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from keepfast.app.checkpoint import Engine
    from keepfast.model.entry import Entry
    from keepfast.shell.destruction import Threat

    Save = Callable[[tuple[bytes, ...], tuple[bytes, ...]], object]
    """Make a checkpoint of these paths only, if there are any, and with these kept whatever the rules say."""

MOST_MATCHES = MOST_WORDS = 10_000
MOST_PATTERNS, DEEPEST_BRACES = 200, 50
"""Beyond these a command means the whole folder that its pattern begins with: nobody waits for all of its words."""
MOST_LOOKED_AT = 2_000
STEADY = 2_000_000_000
"""Nanoseconds for which a file must have been as it is when it was saved, or it may have changed while it was read."""
TOO_MANY = b"."
"""In the place of a file: there are more than anybody looks at."""
GIT_FOLDER = "git's own folder, which is not covered"
NO_ROOM = "the disk of the store has no space for it"
UNREADABLE = "it cannot be read"
SETTINGS = "excluded by the setting capture.exclude"
UNIQUE = "nothing"
"""In the place of a command: no tool makes it again."""


class Losses:
    """What would not come back after the command: path and command that makes it again, or path and why not."""

    def __init__(self) -> None:
        self.remade: list[tuple[bytes, str | None]] = []
        """The command is empty where the tool makes it as it goes, and None where the user's own settings leave it out."""
        self.unkept: list[tuple[bytes, str]] = []


def not_kept(engine: Engine, root: bytes, workspace: str, paths: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return those of these paths that are not as the newest version has them, or that hold something that is not.

    Git's own folder, and what is ours, counts for nothing. A folder with more than `MOST_LOOKED_AT` entries is not looked through.
    """
    cache = stat_cache.load(engine.place.folder(workspace) + "/cache")
    if cache is None:
        return paths
    looked_at = {path: _files_at(root, path) for path in paths if NEVER_ENTERED.isdisjoint(path.split(b"/"))}
    folders = {one.rpartition(b"/")[0] for files in looked_at.values() for one in files}
    ctimes, sizes, inodes = cache.views()[:3]
    known: dict[bytes, tuple[int, int, int]] = {}
    names, at = cache.names(), 0
    for folder, count in zip(cache.paths(), cache.counts(), strict=True):
        if folder in folders:
            start = folder + b"/" if folder else b""
            for number in range(at, at + count):
                known[start + names[number]] = (ctimes[number], sizes[number], inodes[number])
        at += count
    for mark in cache.marks():
        if mark[:1] in (LEFT, NOT_ENTERED, UNREAD):
            known.pop(mark[1:], None)
    return tuple([path for path in looked_at if not all(_is_known(root, one, known) for one in looked_at[path])])


def _is_known(root: bytes, path: bytes, known: Mapping[bytes, tuple[int, int, int]]) -> bool:
    try:
        seen = lstat(root + b"/" + path)
    except OSError:
        return True  # gone meanwhile
    return known.get(path) == (seen.st_ctime_ns, seen.st_size, seen.st_ino)


def _files_at(root: bytes, path: bytes) -> list[bytes]:
    """The file itself and what it leads to, or the files below a folder, up to one more than `MOST_LOOKED_AT`."""
    found: list[bytes] = []
    for reached in _reached(root, path):
        top = root + b"/" + reached
        if os.path.islink(top) or not os.path.isdir(top):
            found.append(reached)
            continue
        for folder, folders, files in os.walk(top):
            folders[:] = [name for name in folders if name not in NEVER_ENTERED]
            found += [folder[len(root) + 1 :] + b"/" + name for name in files]
            if len(found) > MOST_LOOKED_AT:
                return [*found[:MOST_LOOKED_AT], TOO_MANY]
    return found


def meant(root: bytes, threat: Threat) -> tuple[bytes, ...]:
    """Return the paths below the root that are there and that the command means; `b""` for everything."""
    found: dict[bytes, None] = {b"": None} if threat.everything else {}
    named = [path + b"/" if path in threat.entered else path for path in threat.named]
    for path in named:
        if _is_there(root + b"/" + path.rstrip(b"/")):
            found.update(dict.fromkeys(_reached(root, path)))
    for pattern in threat.patterns:
        for match in _matches(pattern, root):
            if (root + b"/").startswith(match.rstrip(b"/") + b"/"):
                found[b""] = None
            elif match.startswith(root + b"/"):
                found.update(dict.fromkeys(_reached(root, match[len(root) + 1 :])))
    return tuple(found)


def _reached(root: bytes, named: bytes) -> list[bytes]:
    """The path itself, as it is without links above it, and what is written or emptied through it if it is a link.

    Through a link that leads to a folder a command reaches only with a slash behind it. Outside of the root nothing is ours.
    """
    from os.path import isfile, islink, realpath

    path = named.rstrip(b"/")
    above, _, name = path.rpartition(b"/")
    top = realpath(root)
    found = [realpath(root + b"/" + above) + b"/" + name]
    if islink(found[0]) and (named != path or isfile(found[0])):
        found.append(realpath(found[0]))
    below = [one[len(top) + 1 :] for one in found if one.startswith(top + b"/")]
    return [*below, b""] if top in found else below or [path]


def keep(
    engine: Engine,
    root: bytes,
    workspace: str,
    paths: tuple[bytes, ...],
    threat: Threat,
    save: Save,
) -> Losses:
    """Save what the rules leave out at these paths and below, and return what is lost all the same.

    Below those that are spared, git's own folders stay as they are. A vague command may mean any other path as well: with
    it, all goes that is left out, but for what a tool can make again. Where git changes only what it tracks, of the folders
    that are left out by their names only those go in which it may track something.
    """
    risky, vague = [path for path in paths if path not in threat.spared], threat.is_vague
    marks = _save_left_out(engine, workspace, paths, save, vague)
    losses, others, unnamed = Losses(), Losses(), list[bytes]()
    fd = open_fd(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    try:
        chooser = Chooser(fd, capture_rules(engine, root))
        for mark in sorted(marks):
            path = mark[1:]
            named = _concerns(path, paths)
            if not (named or vague) or not _is_there(root + b"/" + path):
                continue
            if mark[:1] == LEFT:
                losses.unkept.append((path, NO_ROOM))
            elif mark[:1] == UNREAD:
                losses.unkept += [(path, UNREADABLE)] if named else []
            elif mark[:1] == NOT_ENTERED and path.rpartition(b"/")[2].lower() == GIT:
                if _concerns(path, risky):
                    losses.unkept.append((path, GIT_FOLDER))
            elif mark[:1] == NOT_ENTERED and named:
                _judge(engine, root, chooser, path, save, losses)
            elif mark[:1] == NOT_ENTERED and _may_go(root, chooser, path, threat):
                unnamed.append(path)
        # Folders that go by their names come last: they may be large, and time and room may not do for all.
        for path in sorted(unnamed, key=lambda path: _goes_by_name(root, chooser, path)):
            if not _is_kept(engine, root, workspace, chooser, path):
                _judge(engine, root, chooser, path, save, others)
    finally:
        close(fd)
    losses.unkept += others.unkept  # what a tool makes again is told only where a command names it
    return losses


def _save_left_out(engine: Engine, workspace: str, paths: tuple[bytes, ...], save: Save, vague: bool) -> list[bytes]:
    """Save what is left out for its size or an ignore rule; return the marks of what is left out after that."""
    marks = _marks(engine, workspace)
    if any(mark[:1] == LEFT and _concerns(mark[1:], paths) for mark in marks):
        save((), paths)
        marks = _marks(engine, workspace)
    if vague and any(mark[:1] == LEFT for mark in marks):
        save((), (b"",))  # after what is named: room and time may not do for all
        marks = _marks(engine, workspace)
    return marks


def keep_named(
    engine: Engine,
    root: bytes,
    workspace: str,
    paths: tuple[bytes, ...],
    spared: frozenset[bytes],
    save: Save,
) -> Losses:
    """Save these paths with all below them, and nothing else of the tree; return what is lost all the same."""
    rules, losses = capture_rules(engine, root), Losses()
    found, left = all_below(root, paths, rules)
    if found:
        save(tuple(found), ())
    risky = [path for path in paths if path not in spared]
    row = engine.repository().workspace(workspace)
    for path in paths if row is not None else ():
        gaps = engine.repository().left_out(workspace, row.version, path)  # type: ignore[union-attr]
        losses.unkept += [(gap.path, UNREADABLE) for gap in gaps if gap.kind == NOT_READ]
    fd = open_fd(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    try:
        chooser = Chooser(fd, rules)
        for path in left:
            if path.rpartition(b"/")[2] in OWN_FOLDERS:
                continue
            if path.rpartition(b"/")[2].lower() != GIT:
                _judge(engine, root, chooser, path, save, losses)
            elif _concerns(path, risky):
                losses.unkept.append((path, GIT_FOLDER))
    finally:
        close(fd)
    return losses


def left_out(
    engine: Engine, root: bytes, workspace: str, paths: tuple[bytes, ...], threat: Threat
) -> tuple[bytes, ...]:
    """What the newest version leaves out at these paths and below, and a save for a command would keep."""
    found = [mark for mark in _marks(engine, workspace) if mark[:1] in (LEFT, NOT_ENTERED)]
    fd = open_fd(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    try:
        chooser = Chooser(fd, capture_rules(engine, root))
        kept = [
            mark[1:]
            for mark in found
            if mark[1:].rpartition(b"/")[2] != GIT
            and (
                _concerns(mark[1:], paths)
                or (threat.is_vague and (mark[:1] == LEFT or _may_go(root, chooser, mark[1:], threat)))
            )
        ]
    finally:
        close(fd)
    return tuple(sorted(kept))


def _judge(engine: Engine, root: bytes, chooser: Chooser, path: bytes, save: Save, losses: Losses) -> None:
    """Decide about something that was not looked at: made again by a tool, or to be kept after all."""
    if _is_ours(root, chooser, path):
        return
    command = _made_by(root, chooser, path)
    if command != UNIQUE:
        losses.remade.append((path, command))
    else:
        inside, size = _inside(root, path, chooser)
        if size > room(engine.place.path):
            losses.unkept.append((path, NO_ROOM))
        else:
            save((path, *inside), (path,))


def _may_go(root: bytes, chooser: Chooser, path: bytes, threat: Threat) -> bool:
    """Does a command that may mean anything mean this too: is it the user's, and nothing that a tool can make again?"""
    if _is_ours(root, chooser, path) or _made_by(root, chooser, path) != UNIQUE:
        return False
    return threat.is_boundless or not _goes_by_name(root, chooser, path) or _may_be_tracked(root, path, threat)


def _may_be_tracked(root: bytes, path: bytes, threat: Threat) -> bool:
    """May git, where the command runs it, track anything in this folder? What its index does not tell, it may."""
    if any((folder + b"/").startswith(path + b"/") for folder in threat.git_folders):
        return True  # it may hold a repository of its own
    from keepfast.workspace.git import facts
    from keepfast.workspace.git_index import may_name

    whole = root + b"/" + path
    found = facts(whole.rpartition(b"/")[0])
    if found is None:
        return True
    return may_name(found.git_dir, whole[len(found.work_tree.rstrip(b"/")) + 1 :])


def _is_kept(engine: Engine, root: bytes, workspace: str, chooser: Chooser, path: bytes) -> bool:
    """Does a version have all of this folder as it is now? Then that one is not to be dropped for a day."""
    repository = engine.repository()
    row = repository.holder(workspace, path)
    if row is None:
        return False
    started = repository.document(row)[0].scan_started
    known = {entry.path: entry for entry in repository.state(workspace, row.version, path)}
    inside = {path, *_inside(root, path, chooser)[0]}
    if known.keys() != inside or not all(_is_same(root, entry, started - STEADY) for entry in known.values()):
        return False
    from keepfast.state import rescues

    rescues.note(engine.place.folder(workspace), row.version, engine.clock())
    return True


def _is_same(root: bytes, entry: Entry, before: int) -> bool:
    """Is this still what was saved: of the same kind and size, and not changed in any way since then?"""
    try:
        seen = lstat(root + b"/" + entry.path)
    except OSError:
        return False
    kind = {S_IFREG: FILE, S_IFLNK: LINK, S_IFDIR: FOLDER}.get(S_IFMT(seen.st_mode))
    return kind == entry.kind and seen.st_ctime_ns < before and (kind != FILE or seen.st_size == entry.size)


def _is_ours(root: bytes, chooser: Chooser, path: bytes) -> bool:
    return (
        path in SUPERVISOR_FOLDERS or path.rpartition(b"/")[2] in OWN_FOLDERS or _is_store(root + b"/" + path, chooser)
    )


def _made_by(root: bytes, chooser: Chooser, path: bytes) -> str | None:
    """The command that makes it again as `Losses.remade` has it, or `UNIQUE`.

    A name alone is no evidence: what tells the tool what to make must lie beside a folder of our tables.
    """
    if chooser.exclude.match(path, os.path.isdir(root + b"/" + path)):
        command = chooser.command_to_rebuild(path)
        return UNIQUE if command is None and is_always_excluded(path) else command
    if chooser.is_generated(path):
        return chooser.command_to_rebuild(path)
    if _is_marked(root, chooser, path):
        if not _is_there(root + b"/" + path + b"/pyvenv.cfg"):
            return ""
        return matching_command(PYTHON_FOLDER, path, chooser.sibling_names(path)) or UNIQUE
    return UNIQUE


def _goes_by_name(root: bytes, chooser: Chooser, path: bytes) -> bool:
    """Is it left out by its name or a file in it, so that only a command that names it is a reason to look into it?"""
    return chooser.exclude.match(path, os.path.isdir(root + b"/" + path)) or _is_marked(root, chooser, path)


def _is_marked(root: bytes, chooser: Chooser, path: bytes) -> bool:
    there = os.path.isdir(root + b"/" + path)
    return there and chooser.is_marked(path, set(os.listdir(root + b"/" + path)))


def _inside(root: bytes, path: bytes, chooser: Chooser) -> tuple[list[bytes], int]:
    """All that lies below a folder, without what a tool can make again; and the size of the files."""
    found: list[bytes] = []
    size = 0
    for folder, folders, files in os.walk(root + b"/" + path):
        below = folder[len(root) + 1 :]
        folders[:] = [
            name
            for name in folders
            if name not in NEVER_ENTERED
            and (
                not chooser.exclude.match(below + b"/" + name, True)
                or _made_by(root, chooser, below + b"/" + name) == UNIQUE
            )
        ]
        found += [below + b"/" + name for name in folders + files]
        for name in files:
            try:
                size += lstat(folder + b"/" + name).st_size
            except OSError:
                continue  # gone meanwhile
    return found, size


def _concerns(path: bytes, limits: Sequence[bytes]) -> bool:
    """Does it lie at or below one of these, or one of these in it?"""
    return any(
        not limit or path == limit or path.startswith(limit + b"/") or limit.startswith(path + b"/") for limit in limits
    )


def _marks(engine: Engine, workspace: str) -> list[bytes]:
    """What the stat cache of the newest version knows to be left out."""
    cache = stat_cache.load(engine.place.folder(workspace) + "/cache")
    return cache.marks() if cache is not None else []


def _matches(pattern: bytes, root: bytes) -> list[bytes]:
    from glob import has_magic, iglob  # it takes long to load, and few commands have a pattern
    from itertools import chain, islice

    if _words(pattern) > MOST_WORDS:
        return [_around(pattern, root)]
    words = list(_spelled(pattern))
    if sum(map(has_magic, words)) > MOST_PATTERNS:
        return [_around(pattern, root)]
    found = list(islice(chain.from_iterable(map(iglob, words)), MOST_MATCHES + 1))
    return found if len(found) <= MOST_MATCHES else [_around(pattern, root)]


def _around(pattern: bytes, root: bytes) -> bytes:
    """The folder in which all lies that a pattern may mean; the root where that cannot be told."""
    start = min([at for at in map(pattern.find, (b"*", b"?", b"[", b"{")) if at >= 0], default=len(pattern))
    folder = pattern[:start].rpartition(b"/")[0]
    return folder if folder.startswith(root + b"/") and b".." not in pattern else root


def _words(pattern: bytes) -> int:
    """How many words its braces stand for at most, counted without making one; anything above `MOST_WORDS` is too many."""
    above: list[tuple[int, int]] = []
    others, here = 0, 1
    for letter in pattern:
        if letter == 0x7B:
            above.append((others, here))
            others, here = 0, 1
        elif letter == 0x2C and above:
            others, here = others + here, 1
        elif letter == 0x7D and above:
            inside = others + here
            others, here = above.pop()
            here *= inside
        if others + here > MOST_WORDS or len(above) > DEEPEST_BRACES:
            return MOST_WORDS + 1
    for before, outer in reversed(above):
        others, here = before, outer * (others + here)
    return others + here


def _spelled(pattern: bytes) -> Iterator[bytes]:
    """The patterns that one with `{a,b}` in it stands for."""
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
        # `{1..9}`, or no brace that means anything: whatever lies there.
        yield start + b"*"
        return
    for cut, following in zip(cuts, [*cuts[1:], at], strict=True):
        yield from _spelled(start + rest[cut + 1 : following] + rest[at + 1 :])


def _is_there(path: bytes) -> bool:
    try:
        lstat(path)
    except OSError:
        return False
    return True


def _is_store(path: bytes, chooser: Chooser) -> bool:
    try:
        seen = lstat(path)
    except OSError:
        return False
    return (seen.st_dev, seen.st_ino) == chooser.capture.store
