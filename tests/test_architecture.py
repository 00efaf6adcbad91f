"""The house is built as the pages say: layers, rooms, and what may be read where."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "keepfast"
PAGE = ROOT / "docs" / "architecture.md"


def rooms() -> list[str]:
    """A line of the table per module, from its own first sentence."""
    lines = []
    for path in sorted(SOURCE.rglob("*.py"), key=lambda path: (len(path.relative_to(SOURCE).parts), path)):
        name = path.relative_to(SOURCE)
        if name.name in ("__init__.py", "__main__.py", "_ready.py") or name.parts[0] == "cli":
            continue
        sentence = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n")[0]
        lines.append(f"| `{name}` | {sentence} |")
    return lines


def test_imports_point_down_only() -> None:
    done = subprocess.run([Path(sys.executable).parent / "lint-imports"], cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout


def test_the_page_lists_every_room_by_its_own_first_sentence() -> None:
    """Write it anew with `python tests/test_architecture.py`."""
    assert [line for line in PAGE.read_text().split("\n") if line.startswith("| `") and ".py` | " in line] == rooms()


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition("## Rooms\n")
    after = rest[rest.index("## Decisions") :]
    PAGE.write_text(f"{before}## Rooms\n| file | what |\n|---|---|\n" + "\n".join(rooms()) + "\n\n" + after)
