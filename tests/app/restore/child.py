"""The child process of the tests that cut a restore off: one command, killed at a named step if asked to."""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from keepfast.app import restore_execution
from keepfast.app.checkpoint import Engine
from keepfast.app.restore import Restorer
from keepfast.app.wiring import build
from keepfast.model import steps
from keepfast.model.errors import KeepfastError
from keepfast.model.event import Event
from keepfast.settings import Settings
from keepfast.workspace import staged_files
from keepfast.workspace.system_calls import System
from tests.equipment.observer import observer

ROOT = Path(__file__).resolve().parents[3]
SITE = Path(sys.executable).parent.parent / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
PATHS = [str(ROOT), str(ROOT / "src"), str(SITE)]
START = f"import sys; sys.path[:0] = {PATHS!r}; from tests.app.restore.child import main; sys.exit(main(sys.argv[1:]))"


def command(*words: object) -> list[str]:
    """The command line that runs `main`."""
    return [sys.executable, "-I", "-S", "-B", "-c", START, *map(str, words)]


def main(arguments: list[str]) -> int:
    """One answer as JSON on standard output; exit code 1 and one line for an error that keepfast explains."""
    parser = ArgumentParser()
    parser.add_argument("command", choices=["save", "restore", "continue", "abort", "undo", "status"])
    parser.add_argument("root", type=Path)
    parser.add_argument("store", type=Path)
    parser.add_argument("--version", type=int, default=1)
    parser.add_argument("--path", action="append", default=[])
    parser.add_argument("--conflicts", default="theirs")
    parser.add_argument("--fast", action="store_true", help="do not sync")
    parser.add_argument("--steps", help="write the name of every step into this file")
    parser.add_argument("--kill", help="NAME:N, die at the N-th occurrence of the step")
    parser.add_argument("--unsynced", action="store_true", help="a planted bug: the restored tree is not synced")
    parser.add_argument(
        "--many",
        type=int,
        default=restore_execution.MIN_STEPS_TO_STAGE_EARLY,
        help="from so many steps on, contents are written early",
    )
    parser.add_argument("--few", type=int, default=staged_files.FEW, help="so many files are synced one by one")
    options = parser.parse_args(arguments)
    staged_files.FEW, restore_execution.MIN_STEPS_TO_STAGE_EARLY = options.few, options.many
    if options.unsynced:
        System.sync = lambda self, folder: None  # type: ignore[method-assign]
    settings = Settings()
    settings.put("store.url", str(options.store), "test")
    settings.put("store.durable", not options.fast, "test")
    engine = build(settings, str(options.store), b"/nonexistent/home", time.time_ns)
    steps.observer = observer(options.steps, options.kill)
    try:
        return _carry_out(engine, options)
    finally:
        steps.observer = None
        engine.close()


def _carry_out(engine: Engine, options: Namespace) -> int:
    try:
        root, row = engine.workspaces.root(os.fsencode(options.root))
    except KeepfastError as error:
        return _failed(error)
    except OSError as error:  # the command line has a sentence for these
        sys.stderr.write(f"{error.strerror}: {error.filename}\n")
        return 1
    try:
        if options.command == "save":
            outcome = engine.handle(Event(os.fsencode(options.root), time.time_ns(), trigger="manual"))
            return _answer(outcome.version)
        restorer = Restorer(engine, root, row)
        if options.command == "status":
            cut = restorer.cut_off()
            return _answer(cut.to_json() if cut is not None else None)
        if options.command == "restore":
            paths = [os.fsencode(path) for path in options.path]
            done = restorer.restore(restorer._checkpoint(options.version), paths, conflicts=options.conflicts)
        elif options.command == "undo":
            done = restorer.undo(conflicts=options.conflicts)
        else:
            done = restorer.resume() if options.command == "continue" else restorer.abort()
    except KeepfastError as error:
        return _failed(error)
    if done is None:
        return _answer(None)
    applied = done.applied
    kept = [[os.fsdecode(path), why] for path, why in applied.untouched]
    aside = [[os.fsdecode(path), os.fsdecode(where)] for path, where in applied.aside]
    return _answer({"target": done.target, "before": done.before, "kept": kept, "aside": aside})


def _failed(error: KeepfastError) -> int:
    sys.stderr.write(f"{type(error).__name__}: {error} {error.hint}\n")
    return 1


def _answer(value: object) -> int:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()
    return 0
