"""The tools are scripts beside the package; their modules are found where they lie."""

from __future__ import annotations

import sys
from pathlib import Path

TOOLS = Path(__file__).parent.parent.parent / "tools"

sys.path[:0] = [str(TOOLS), str(TOOLS / "briefs")]
