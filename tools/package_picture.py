"""Draws docs/packages.svg: the packages in their layers, and how many imports lead from one to another."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/keepfast"
TARGET = ROOT / "docs/packages.svg"
WIDTH, ROW, BOX, HEIGHT = 860, 62, 132, 34


def layers() -> list[list[str]]:
    """The packages from top to bottom, as the import contract has them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rows = next(one["layers"] for one in contracts if one["type"] == "layers")
    return [[name.strip().removeprefix("keepfast.") for name in row.split("|")] for row in rows]


def imports() -> Counter[tuple[str, str]]:
    """How many import statements of one package name another, those inside functions included."""
    found: Counter[tuple[str, str]] = Counter()
    for path in SOURCE.rglob("*.py"):
        own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("keepfast."):
                other = node.module.split(".")[1]
                if other != own:
                    found[own, other] += 1
    return found


def picture() -> str:
    rows, counted = layers(), imports()
    places: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        for place, name in enumerate(row):
            left = WIDTH / 2 + (place - (len(row) - 1) / 2) * (BOX + 60)
            places[name] = (left, 24 + number * ROW)
    height = 24 + len(rows) * ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="14">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for (own, other), count in sorted(counted.items()):
        if own in places and other in places:
            (x1, y1), (x2, y2) = places[own], places[other]
            bend = (x1 + x2) / 2 + (150 if y2 - y1 > ROW * 1.5 else 0) * (1 if x1 >= WIDTH / 2 else -1)
            path = f"M{x1:.0f} {y1 + HEIGHT:.0f} Q{bend:.0f} {(y1 + y2 + HEIGHT) / 2:.0f} {x2:.0f} {y2:.0f}"
            parts.append(
                f'<path d="{path}" fill="none" stroke="#9aa7b8" stroke-width="{min(4, 0.6 + count / 40):.1f}"/>'
            )
    for name, (x, y) in places.items():
        parts.append(
            f'<rect x="{x - BOX / 2:.0f}" y="{y}" width="{BOX}" height="{HEIGHT}" rx="6" fill="#eef3fa" stroke="#4a6fa5"/>'
            f'<text x="{x:.0f}" y="{y + 22}" text-anchor="middle" fill="#1d2b3a">{name}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    TARGET.write_text(picture())
