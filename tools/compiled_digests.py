"""Write the digests of the C sources to src/keepfast/model/compiled.py."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> None:
    path = ROOT / "src/keepfast/model/compiled.py"
    lines = "".join(f'    "{name}": "{digest}",\n' for name, digest in digests().items())
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(r"DIGESTS = \{\n(.*\n)*?\}", f"DIGESTS = {{\n{lines}}}", text, count=1), encoding="utf-8")


def digests() -> dict[str, str]:
    found: dict[str, str] = runpy.run_path(str(ROOT / "setup.py"))["digests"]()
    return found


if __name__ == "__main__":
    main()
