"""Arrange contents in the frames of a compacted pack: versions of one file, and files with similar names, lie together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from keepfast.model.entry import FILE
from keepfast.store.repository import Repository
from keepfast.store.rows import DOCUMENT, SEALED, Location

Stored = tuple[bytes, Location]
PlaceInTree = tuple[bytes, int, int, bool]
"""Path, number of the part, the version that introduced it, and whether the newest version has it."""

FRAME, FRAME_OF_SIMILAR = 1 << 20, 4 << 20
"""Similar files share a larger frame. Others would become 3 % smaller in one, and slower to restore one by one."""
BETWEEN_WORDS = b"-_. ~+@"
MAX_EXTENSION_LENGTH = 8
MIN_LETTERS = 2


def arrange(
    repository: Repository, entries: list[Stored], lists: set[bytes], most: int = FRAME_OF_SIMILAR
) -> list[list[Stored]]:
    """Return the contents of each frame, in order: similar contents compress well in one frame.

    `most`: the largest frame with several contents. `lists`: the digests of all lists of chunks, in any pack; a list
    names the parts of one file.

    Files whose names end with the same words are similar: versions of one file, its copies, and what it was renamed to.
    A group of similar files takes the place of its first path in the order of paths. Contents of the newest version come
    first in a frame, because a reader decompresses a frame only up to the content it needs.
    """
    places = _places_in_tree(repository, {key for key, _ in entries}, lists)
    group_of_path = _group_by_name({path for path, _, _, _ in places.values()})

    def order(entry: Stored) -> tuple[bytes, bytes, bytes, int, int]:
        path, part, since, _ = places[entry[0]]
        return group_of_path[path], _reversed_name(path), path, part, -since

    sealed = [[entry] for entry in entries if entry[1].kind == SEALED]
    without_path = [entry for entry in entries if entry[1].kind != SEALED and entry[0] not in places]
    placed = [entry for entry in entries if entry[1].kind != SEALED and entry[0] in places]
    # Contents without a path stay in the order in which they were saved; documents come first, as they are read alone.
    without_path.sort(key=lambda entry: (entry[1].kind != DOCUMENT, entry[1][:4]))
    placed.sort(key=order)
    frames = list(_cut_into_frames(without_path, [b""] * len(without_path), most))
    frames += _cut_into_frames(placed, [group_of_path[places[key][0]] for key, _ in placed], most)
    for frame in frames:
        frame.sort(key=lambda entry: entry[0] in places and not places[entry[0]][3])
    return frames + sealed


def _cut_into_frames(entries: list[Stored], groups: list[bytes], most: int) -> Iterator[list[Stored]]:
    frame: list[Stored] = []
    size, last = 0, b""
    for entry, group in zip(entries, groups, strict=True):
        length = entry[1].length
        if frame and size + length > min(most, FRAME_OF_SIMILAR if group and group == last else FRAME):
            yield frame
            frame, size = [], 0
        frame.append(entry)
        size, last = size + length, group
    if frame:
        yield frame


def _places_in_tree(repository: Repository, keys: set[bytes], lists: set[bytes]) -> dict[bytes, PlaceInTree]:
    """Return the place of each content in the tree; parts of a large file get that of the file."""
    places: dict[bytes, PlaceInTree] = {}
    digests = keys | lists
    for workspace in repository.ledger.workspaces():
        for since, until, row in repository.ledger.intervals(workspace.id):
            if row.kind == FILE and row.content in digests and (row.content not in places or until is None):
                places[row.content] = row.path, 0, since, until is None
    for key in sorted(lists & places.keys()):
        names = repository.contents.blob(key)[0]
        path, _, since, now = places[key]
        for at in range(0, len(names), 32):
            part = names[at : at + 32]
            if part in keys and (part not in places or (now and not places[part][3])):
                places[part] = path, 1 + at // 32, since, now
    return {key: spot for key, spot in places.items() if key in keys}


def _reversed_name(path: bytes) -> bytes:
    """Return the file's name, reversed."""
    return path[path.rfind(b"/") + 1 :][::-1]


def _group_by_name(paths: set[bytes]) -> dict[bytes, bytes]:
    """Return for each path the first path of its group. Sorted by reversed names, each name of a group is like the previous."""
    result: dict[bytes, bytes] = {}
    chain: list[bytes] = []
    for path in [*sorted(paths, key=_reversed_name), b""]:
        if chain and not (path and _are_names_alike(_reversed_name(chain[-1]), _reversed_name(path))):
            result.update(dict.fromkeys(chain, min(chain)))
            chain = []
        chain.append(path)
    return result


def _are_names_alike(one: bytes, other: bytes) -> bool:
    """Return whether two names, both reversed, end with the same words, and not only with the same extension."""
    if one == other:
        return True
    least, same = min(len(one), len(other)), 0
    while same < least and one[same] == other[same]:
        same += 1
    extension = other.find(b".", 0, MAX_EXTENSION_LENGTH) + 1
    while same > extension and not (_is_border(one, same) and _is_border(other, same)):
        same -= 1
    return same >= extension + MIN_LETTERS


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
