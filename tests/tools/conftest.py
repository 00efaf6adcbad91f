"""The tools are scripts beside the package; their modules are found where they lie."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "tools" / "briefs"))
