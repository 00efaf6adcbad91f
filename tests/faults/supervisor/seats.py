"""Places side by side: most of a series of kills is waiting, and each place has folders and a database of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue

ENOUGH = 5
"""Findings after which a series ends; each is told."""


def side_by_side(cases: Iterable[int], work: Callable[[int, int], None], seats: int) -> None:
    """Do `work(seat, case)` for each case, so many at once and one per seat. Fails with everything that was found."""
    waiting: SimpleQueue[int] = SimpleQueue()
    for case in cases:
        waiting.put(case)
    findings: list[str] = []

    def sit(seat: int) -> None:
        while len(findings) < ENOUGH:
            try:
                case = waiting.get_nowait()
            except Empty:
                return
            try:
                work(seat, case)
            except Exception as error:
                findings.append(f"{case}: {type(error).__name__}: {error}")

    with ThreadPoolExecutor(seats) as pool:
        list(pool.map(sit, range(seats)))
    assert not findings, "\n\n".join(findings)
