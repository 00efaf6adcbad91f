"""Starts the hook under `python -I -S -B /path/to/launch.py`; small, because a started file is compiled every time."""

import gc
import sys
from posix import _exit

gc.disable()  # a save makes many values and drops few: collecting them costs more than it gives
_here = __file__.rpartition("/")[0] or "."
_site = sys.executable.rpartition("/")[0] + f"/../lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
sys.path += [_here + "/../..", _site]  # behind the standard library: most that is loaded next is found there

_verb, _rest = sys.argv[1:2], sys.argv[2:]
if _verb == ["hook"]:
    from holdfast.frontends.hook import main
elif _verb == ["statusline"]:
    from holdfast.frontends.statusline import main
else:
    from holdfast.frontends.hook import run as main

    _rest = sys.argv[1:]

_code = main(_rest)
sys.stdout.flush()
sys.stderr.flush()
# Nothing is left to be done: tearing the interpreter down would take another millisecond.
_exit(_code)
