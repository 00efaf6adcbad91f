"""Started as `python -I -S -B /path/to/launch.py`. Small, because Python compiles the file it starts every time."""

import sys
from _frozen_importlib_external import SourceFileLoader

_here = __file__.rpartition("/")[0] or "."
_start = type(sys)("keepfast.hook.start")
SourceFileLoader(_start.__name__, _here + "/start.py").exec_module(_start)
_start.start(_here)
