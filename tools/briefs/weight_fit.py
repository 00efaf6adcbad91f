"""Fitting the ranking's weights to recorded sessions: regularised logistic regression, without any package."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, sqrt

from recall_score import Cut

from keepfast.resume.ranking import FEATURES, collect

SAMPLE_EVERY = 6  # calls between two moments of a session
KEEP_ONE_IN = 4  # of the blocks that were not needed
SOON = 2.0  # the first edit counts up to three times a late one
PENALTY = 0.02  # per sample, on every weight: strong, because it is other projects that count
STEPS, MAX_STEP_LENGTH = 14, 1.0


@dataclass(slots=True)
class Sample:
    """One block at one moment: its signs, whether it was needed, how much it counts."""

    project: str
    signs: list[float]
    needed: bool
    weight: float


def samples(cut: Cut) -> list[Sample]:
    """The blocks of a cut with what became of them; of those not needed a fixed share is kept."""
    blocks = collect(cut.files, cut.notes.signals)
    soon: dict[str, dict[int, int]] = {}
    for need in cut.edits:
        for line in range(need.spans[0][0], need.spans[0][1] + 1) if need.spans else ():
            lines = soon.setdefault(need.path, {})
            lines[line] = min(need.after, lines.get(line, 99))
    found = []
    each = 1 / sqrt(max(len(blocks), 1))
    for number, block in enumerate(blocks):
        lines = soon.get(cut.files[block.file].path, {})
        after = min([lines[line] for line in range(block.first, block.last + 1) if line in lines], default=None)
        if after is not None:
            found.append(Sample(cut.project, block.signs, True, each * (1 + SOON * 0.5 ** (after / 4))))
        elif number % KEEP_ONE_IN == 0:
            found.append(Sample(cut.project, block.signs, False, each * KEEP_ONE_IN))
    return found


def fit(given: Iterable[Sample], names: Iterable[str] | None = None) -> dict[str, float]:
    """Weights by feature name and `constant`. Each project counts the same, however many sessions it has."""
    rows = list(given)
    used = list(FEATURES if names is None else names)
    columns = [FEATURES.index(name) for name in used]
    if not rows or not any(row.needed for row in rows):
        raise ValueError("nothing to fit on")
    totals: dict[str, float] = {}
    for row in rows:
        totals[row.project] = totals.get(row.project, 0.0) + row.weight
    share = len(rows) / len(totals)
    weights = [row.weight * share / totals[row.project] for row in rows]
    vectors = [[row.signs[column] for column in columns] for row in rows]
    means, spreads = _standard(vectors)
    scaled = [
        [1.0, *[(value - mean) / spread for value, mean, spread in zip(vector, means, spreads, strict=True)]]
        for vector in vectors
    ]
    solution = _newton(scaled, [row.needed for row in rows], weights)
    fitted = {name: value / spread for name, value, spread in zip(used, solution[1:], spreads, strict=True)}
    fitted["constant"] = solution[0] - sum([fitted[name] * mean for name, mean in zip(used, means, strict=True)])
    return fitted


def _standard(vectors: list[list[float]]) -> tuple[list[float], list[float]]:
    count = len(vectors)
    means = [sum(column) / count for column in zip(*vectors, strict=True)]
    spreads = [
        sqrt(sum([(value - mean) ** 2 for value in column]) / count) or 1.0
        for column, mean in zip(zip(*vectors, strict=True), means, strict=True)
    ]
    return means, spreads


def _newton(vectors: list[list[float]], needed: list[bool], weights: list[float]) -> list[float]:
    size = len(vectors[0])
    penalty = PENALTY * len(vectors)
    solution = [0.0] * size
    for _ in range(STEPS):
        gradient = [-penalty * value for value in solution]
        curve = [[penalty if row == column else 0.0 for column in range(size)] for row in range(size)]
        gradient[0], curve[0][0] = 0.0, 1e-6
        for vector, hit, weight in zip(vectors, needed, weights, strict=True):
            sum_ = sum([a * b for a, b in zip(solution, vector, strict=True)])
            chance = 1 / (1 + exp(-max(-30.0, min(30.0, sum_))))
            error = weight * (hit - chance)
            slope = weight * chance * (1 - chance)
            for at, value in enumerate(vector):
                gradient[at] += error * value
                row, scaled = curve[at], slope * value
                for other in range(at + 1):
                    row[other] += scaled * vector[other]
        for at in range(size):
            for other in range(at):
                curve[other][at] = curve[at][other]
        step = _solve(curve, gradient)
        # Far from the solution a whole step may lead further away.
        part = min(1.0, MAX_STEP_LENGTH / max(map(abs, step[1:]), default=MAX_STEP_LENGTH))
        solution = [a + part * b for a, b in zip(solution, step, strict=True)]
    return solution


def _solve(matrix: list[list[float]], vector: list[float]) -> list[float]:
    """Gaussian elimination; the matrix is positive definite."""
    size = len(vector)
    rows = [[*row, value] for row, value in zip(matrix, vector, strict=True)]
    for at in range(size):
        pivot = max(range(at, size), key=lambda row: abs(rows[row][at]))
        rows[at], rows[pivot] = rows[pivot], rows[at]
        for below in range(at + 1, size):
            factor = rows[below][at] / rows[at][at]
            for column in range(at, size + 1):
                rows[below][column] -= factor * rows[at][column]
    solution = [0.0] * size
    for at in reversed(range(size)):
        known = sum([rows[at][column] * solution[column] for column in range(at + 1, size)])
        solution[at] = (rows[at][size] - known) / rows[at][at]
    return solution
