"""A supervisor that kills itself: `child.py BASE STEP NTH ENGINE [DATABASE [BOOT]]`.

It dies at the NTH time that STEP is reached, counted over all supervisors of that base; at `never` it lives, at `all` it only
counts. ENGINE is `threads` or `durable`, and goes on until nothing happens by itself; with `+person` it answers what is
asked, and ends when all tasks have. `options.json` in BASE changes settings.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from threading import Event as Flag
from threading import Thread

sys.path.insert(0, str(Path(__file__).parents[3]))

from keepfast.model import steps
from keepfast.model.errors import KeepfastError
from keepfast.runner.domain.options import Options
from keepfast.runner.process.wake import wake
from keepfast.runner.scheduler import service
from tests.runner.place import QUICK, Place


def main(base: str, name: str, nth: str, engine: str, database: str = "", boot: str = "") -> int:
    def observe(step: str) -> None:
        if step == "reconciled":
            (Path(base) / "ready").touch()  # tasks go on from here
        if name in (step, "all") and reached(base, step) == int(nth) and step == name:
            os.kill(os.getpid(), signal.SIGKILL)

    steps.observer = observe
    place = Place(Path(base), options(base, database))
    if boot:
        place.runtime.boot = boot
    how, _, person = engine.partition("+")
    stop = Flag()
    if person:
        Thread(target=attend, args=(place, stop), daemon=True).start()
    service.run(place.runtime, stop, until_idle=not person, durable=how == "durable")
    place.close()
    return 0


def options(base: str, database: str) -> Options:
    path = Path(base) / "options.json"
    return QUICK.but(database=database, **(json.loads(path.read_text()) if path.exists() else {}))


def reached(base: str, step: str) -> int:
    """Count one more; a byte in a file is there whatever becomes of us."""
    fd = os.open(f"{base}/at {step}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, b".")
        return os.fstat(fd).st_size
    finally:
        os.close(fd)


def attend(place: Place, stop: Flag) -> None:
    """A person: answers `a`, wants the first result changed, and approves all others."""
    while not stop.wait(0.05):
        for prompt in place.tasks.views.inbox():
            with suppress(KeepfastError):
                answer(place, prompt["task"], prompt["id"], prompt["kind"])
        if all(task["state"] in ("done", "failed", "cancelled") for task in place.tasks.views.listing()):
            stop.set()
            wake(place.runtime.folder)


def answer(place: Place, task: str, id: str, kind: str) -> None:
    if kind == "question":
        place.tasks.answers.answer(id, "a")
    elif len(place.runtime.tables.prompts("task = ? AND kind = 'approval'", task)) == 1:
        place.tasks.answers.reject(task, "Use tabs.")
    else:
        place.tasks.answers.approve(task)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
