"""Starts the hook under `python -I -S -B /path/to/launch.py`; small, because a started file is compiled every time."""

import sys
from _frozen_importlib_external import SourceFileLoader

_here = __file__.rpartition("/")[0] or "."
_starting = type(sys)("keepfast.frontends.starting")
SourceFileLoader(_starting.__name__, _here + "/starting.py").exec_module(_starting)
_starting.start(_here)
