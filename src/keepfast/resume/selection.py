"""Selects blocks by worth per token until the budget is full."""

from __future__ import annotations

from keepfast.agents.working_file import WorkingFile
from keepfast.resume.ranking import Block
from keepfast.resume.tokens import CHARACTERS, weigh

# Added to a block's cost before its worth is divided by it, so that short blocks do not crowd out whole ones.
OVERHEAD = 130
# A likely block is worth more than two half as likely ones: chances are estimates, and doubtful ones are overestimated.
TRUST = 1.6
MIN_TOKENS = 60
RANGE = 14  # "@1200-1234" and its line end


Choice = dict[int, set[int]]
"""The chosen lines (from 0) of each file, by the file's number."""


class Selector:
    """Blocks in the order of their worth per character."""

    def __init__(
        self, blocks: list[Block], files: list[WorkingFile], names: list[str], characters: float = CHARACTERS
    ) -> None:
        costs = [_cost(files[block.file], block, characters) for block in blocks]
        worths = [block.chance**TRUST / (cost + OVERHEAD) for block, cost in zip(blocks, costs, strict=True)]
        order = sorted(range(len(blocks)), key=lambda at: (-worths[at], at))
        self.ordered = [(blocks[at], costs[at]) for at in order]
        self.headings = [len(name) + 6 + RANGE for name in names]

    def take(self, room: float) -> Choice:
        """Return the blocks with the most worth per character that fit into `room` characters."""
        choice: Choice = {}
        left = room
        for block, cost in self.ordered:
            lines = choice.get(block.file)
            price = cost
            if lines is None:
                price += self.headings[block.file]
            elif block.first - 1 not in lines and block.last + 1 not in lines:
                price += RANGE
            if price > left:
                if left < MIN_TOKENS:
                    break
                continue
            left -= price
            choice.setdefault(block.file, set()).update(range(block.first, block.last + 1))
        return choice


def _cost(file: WorkingFile, block: Block, characters: float) -> float:
    if block.ascii:
        return float(block.length)
    text = "\n".join([line or "" for line in file.lines[block.first : block.last + 1]])
    return weigh(text, characters) * characters + 1


def ranges(lines: set[int], file: WorkingFile) -> list[tuple[int, int]]:
    """Return the chosen lines as ranges; a gap that costs less than another header is filled."""
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
