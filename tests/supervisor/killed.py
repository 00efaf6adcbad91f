"""A supervisor that kills itself at a named step: `killed.py BASE STEP NTH durable|threads [DATABASE]`; `never` lets it live."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from threading import Event as Flag

sys.path.insert(0, str(Path(__file__).parents[1]))

from holdfast.core import steps
from holdfast.supervisor import serving
from supervisor.place import QUICK, Place


def main(base: str, name: str, nth: str, how: str, database: str = "") -> int:
    left = int(nth)

    def observe(step: str) -> None:
        nonlocal left
        if step == name:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    steps.observer = observe
    place = Place(Path(base), QUICK.but(database=database))
    serving.run(place.ground, Flag(), until_idle=True, durable=how == "durable")
    place.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
