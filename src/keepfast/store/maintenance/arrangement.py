"""Arrange contents in the frames of a compacted pack: versions of one file, and files with similar names, lie together."""

from __future__ import annotations

from keepfast.model.entry import FILE
from keepfast.store.rows import DOCUMENT, SEALED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from keepfast.store.repository import Repository
    from keepfast.store.rows import Location

    Stored = tuple[bytes, Location]
    Spot = tuple[bytes, int, int, bool]
    """Path, number of the part, the version that introduced it, and whether the newest version has it."""

FRAME, TOGETHER = 1 << 20, 4 << 20
"""Similar files share a larger frame. Others would become 3 % smaller in one, and slower to restore one by one."""
BETWEEN_WORDS = b"-_. ~+@"
LONGEST_EXTENSION = 8
LEAST_LETTERS = 2


def arrange(
    repository: Repository, entries: list[Stored], lists: set[bytes], most: int = TOGETHER
) -> list[list[Stored]]:
    """Return the contents of each frame, in order: similar contents compress well in one frame.

    `most`: the largest frame with several contents. `lists`: the digests of all lists of chunks, in any pack; a list
    names the parts of one file.

    Files whose names end with the same words are similar: versions of one file, its copies, and what it was renamed to.
    A group of similar files takes the place of its first path in the order of paths. Contents of the newest version come
    first in a frame, because a reader decompresses a frame only up to the content it needs.
    """
    spots = _spots(repository, {key for key, _ in entries}, lists)
    kin = _kin({path for path, _, _, _ in spots.values()})

    def order(entry: Stored) -> tuple[bytes, bytes, bytes, int, int]:
        path, part, since, _ = spots[entry[0]]
        return kin[path], _ending(path), path, part, -since

    alone = [[entry] for entry in entries if entry[1].kind == SEALED]
    loose = [entry for entry in entries if entry[1].kind != SEALED and entry[0] not in spots]
    placed = [entry for entry in entries if entry[1].kind != SEALED and entry[0] in spots]
    # Contents without a path stay in the order in which they were saved; documents come first, as they are read alone.
    loose.sort(key=lambda entry: (entry[1].kind != DOCUMENT, entry[1][:4]))
    placed.sort(key=order)
    frames = list(_cut(loose, [b""] * len(loose), most))
    frames += _cut(placed, [kin[spots[key][0]] for key, _ in placed], most)
    for frame in frames:
        frame.sort(key=lambda entry: entry[0] in spots and not spots[entry[0]][3])
    return frames + alone


def _cut(entries: list[Stored], kin: list[bytes], most: int) -> Iterator[list[Stored]]:
    frame: list[Stored] = []
    size, last = 0, b""
    for entry, group in zip(entries, kin, strict=True):
        length = entry[1].length
        if frame and size + length > min(most, TOGETHER if group and group == last else FRAME):
            yield frame
            frame, size = [], 0
        frame.append(entry)
        size, last = size + length, group
    if frame:
        yield frame


def _spots(repository: Repository, keys: set[bytes], lists: set[bytes]) -> dict[bytes, Spot]:
    """Return the place of each content in the tree; parts of a large file get that of the file."""
    spots: dict[bytes, Spot] = {}
    digests = keys | lists
    for workspace in repository.ledger.workspaces():
        for since, until, row in repository.ledger.intervals(workspace.id):
            if row.kind == FILE and row.content in digests and (row.content not in spots or until is None):
                spots[row.content] = row.path, 0, since, until is None
    for key in sorted(lists & spots.keys()):
        names = repository.contents.blob(key)[0]
        path, _, since, now = spots[key]
        for at in range(0, len(names), 32):
            part = names[at : at + 32]
            if part in keys and (part not in spots or (now and not spots[part][3])):
                spots[part] = path, 1 + at // 32, since, now
    return {key: spot for key, spot in spots.items() if key in keys}


def _ending(path: bytes) -> bytes:
    """Return the file's name, reversed."""
    return path[path.rfind(b"/") + 1 :][::-1]


def _kin(paths: set[bytes]) -> dict[bytes, bytes]:
    """Return for each path the first path of its group. Sorted by reversed names, each name of a group is like the previous."""
    result: dict[bytes, bytes] = {}
    chain: list[bytes] = []
    for path in [*sorted(paths, key=_ending), b""]:
        if chain and not (path and _alike(_ending(chain[-1]), _ending(path))):
            result.update(dict.fromkeys(chain, min(chain)))
            chain = []
        chain.append(path)
    return result


def _alike(one: bytes, other: bytes) -> bool:
    """Do two names, both reversed, end with the same words, and not only with the same extension?"""
    if one == other:
        return True
    least, same = min(len(one), len(other)), 0
    while same < least and one[same] == other[same]:
        same += 1
    extension = other.find(b".", 0, LONGEST_EXTENSION) + 1
    while same > extension and not (_is_border(one, same) and _is_border(other, same)):
        same -= 1
    return same >= extension + LEAST_LETTERS


def _is_border(name: bytes, at: int) -> bool:
    return at == len(name) or name[at] in BETWEEN_WORDS or name[at - 1] in BETWEEN_WORDS


def batches(frames: Iterable[list[Stored]], most: int) -> Iterator[list[list[Stored]]]:
    """Yield the frames in batches of about `most` bytes."""
    batch: list[list[Stored]] = []
    size = 0
    for frame in frames:
        batch.append(frame)
        size += sum([place.length for _, place in frame])
        if size >= most:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
