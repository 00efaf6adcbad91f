"""Started as `python -I -S -B /path/to/launch.py`. Small, because Python compiles the file it starts every time."""

import sys

_here = __file__.rpartition("/")[0] or "."
_library = f"/../lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
sys.path += [_here + "/../..", sys.executable.rpartition("/")[0] + _library]

from keepfast.hook.start import start  # noqa: E402

start(_here)
