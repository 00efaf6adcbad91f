"""Choosing blocks by worth per token until the budget is full."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.core.brief_rank import Block
from holdfast.core.tokens import CHARACTERS, weigh
from holdfast.core.working import WorkingFile

# What is added to a block's own cost before its worth is divided by it: short blocks are not to crowd out whole ones.
OVERHEAD = 90
SMALLEST = 150
RANGE = 14  # "@1200-1234" and its line end


@dataclass(slots=True)
class Choice:
    """The chosen lines (from 0) of each file, by the file's number."""

    lines: dict[int, set[int]] = field(default_factory=dict)
    used: float = 0.0  # characters, where a token is `characters` of them


def select(
    blocks: list[Block], files: list[WorkingFile], names: list[str], room: float, characters: float = CHARACTERS
) -> Choice:
    """Take the blocks with the most worth per character while they fit into `room` characters."""
    choice = Choice()
    costs = [_cost(files[block.file], block, characters) for block in blocks]
    order = sorted(range(len(blocks)), key=lambda at: (-blocks[at].chance / (costs[at] + OVERHEAD), at))
    for at in order:
        block = blocks[at]
        taken = choice.lines.get(block.file)
        price = costs[at]
        if taken is None:
            price += len(names[block.file]) + 20 + RANGE
        elif block.first - 1 not in taken and block.last + 1 not in taken:
            price += RANGE
        if choice.used + price > room:
            if room - choice.used < SMALLEST:
                break
            continue
        choice.used += price
        choice.lines.setdefault(block.file, set()).update(range(block.first, block.last + 1))
    return choice


def _cost(file: WorkingFile, block: Block, characters: float) -> float:
    text = "\n".join([line or "" for line in file.lines[block.first : block.last + 1]])
    return float(block.length) if text.isascii() else weigh(text, characters) * characters + 1


def ranges(lines: set[int], file: WorkingFile) -> list[tuple[int, int]]:
    """Runs of chosen lines; a gap that costs less than a header of its own is filled."""
    runs: list[tuple[int, int]] = []
    for line in sorted(lines):
        if runs and (line == runs[-1][1] + 1 or _cheap(file.lines[runs[-1][1] + 1 : line])):
            runs[-1] = (runs[-1][0], line)
        else:
            runs.append((line, line))
    return runs


def _cheap(gap: list[str | None]) -> bool:
    return (
        len(gap) <= 2 and all(line is not None for line in gap) and sum([len(line or "") + 1 for line in gap]) < RANGE
    )
