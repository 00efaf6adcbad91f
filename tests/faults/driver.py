"""The child process of the fault tests: one command, watched, killed at a named step, or with a planted bug."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from sqlite3 import Connection

from keepfast.fsutil import durable
from keepfast.model import steps
from keepfast.model.errors import KeepfastError
from keepfast.store import local
from keepfast.store.ledger import sqlite_file
from keepfast.store.maintenance import repair
from keepfast.store.maintenance import space as upkeep
from keepfast.store.maintenance import verify as check
from keepfast.workspace.marker import identity
from tests.equipment.observer import observer

from .audit import Audit, compact_patiently, open_engine, rows_of_ledger, save
from .workload import put


def main(arguments: list[str]) -> int:
    """Run one command. Its answer is one line on standard output; exit code 1 for an error that keepfast explains."""
    options = _parser().parse_args(arguments)
    if options.mutant:
        MUTANTS[options.mutant](options)
    if options.steps or options.kill:
        steps.observer = observer(options.steps, options.kill)
    try:
        answer = COMMANDS[options.command](options)
    except KeepfastError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


def _parser() -> ArgumentParser:
    parser = ArgumentParser()
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--extra", default="")
    parser.add_argument("--steps", help="write the name of every step into this file")
    parser.add_argument("--kill", help="NAME:N, die at the N-th occurrence of the step")
    parser.add_argument("--mutant", choices=MUTANTS)
    parser.add_argument("--versions", default="", help="what to forget, or what has been acknowledged")
    parser.add_argument("--hidden", default="")
    parser.add_argument("--lenient", type=int, default=0, help="this version may have files that could not be read")
    parser.add_argument("--looking", action="store_true", help="the audit does not save")
    parser.add_argument("--thorough", action="store_true", help="the audit compacts")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--mark", type=Path, help="where acknowledgements are written; standard output if not given")
    parser.add_argument("--writer", default="")
    return parser


def numbers(text: str) -> set[int]:
    return {int(part) for part in text.split(",") if part}


# Commands


def _save(options: Namespace) -> object:
    engine = open_engine(options.config)
    version = save(engine, options.work)
    engine.close()
    return version


def _forget(options: Namespace) -> object:
    engine = open_engine(options.config)
    workspace = identity(str(options.work).encode())
    assert workspace is not None
    wanted = sorted(numbers(options.versions))
    return upkeep.forget(engine.repository(), workspace, wanted, "test", folder=engine.place.path)


def _compact(options: Namespace) -> object:
    engine = open_engine(options.config)
    done = compact_patiently(engine.repository(), engine.place.path)
    return [done.packs_before, done.packs_after]


def _rebuild(options: Namespace) -> object:
    return check.rebuild(open_engine(options.config).place).checkpoints


def _repair(options: Namespace) -> object:
    result = repair.repair(open_engine(options.config).place)
    return {"healed": result.healed, "lost": [problem.text for problem in result.lost]}


def _audit(options: Namespace) -> object:
    judge = Audit(options.config, options.work, extra=options.extra, lenient=options.lenient)
    return judge.run(
        numbers(options.versions), numbers(options.hidden), saving=not options.looking, thorough=options.thorough
    )


def _rows(options: Namespace) -> object:
    return sorted(rows_of_ledger(Path(open_engine(options.config).place.path)))


def _saves(options: Namespace) -> object:
    """Save states one after another in this process, each acknowledged once it is saved."""
    engine = open_engine(options.config)
    for number in range(options.first, options.first + options.count):
        put(options.work, number, options.extra)
        version = save(engine, options.work)
        if version != number:
            raise KeepfastError(f"State {number} became version {version}.")
        if not options.mutant or not options.mutant.startswith("acknowledged"):
            acknowledge(options, f"ACK {number}")
    engine.close()
    return options.count


def _storm(options: Namespace) -> object:
    """Save one nonce after another in a file of our own, in a workspace that we share, until we are killed."""
    engine = open_engine(options.config)
    path = options.work / f"{options.writer}.txt"
    for number in range(options.first, options.first + options.count):
        path.write_text(f"{options.writer} {number}\n")
        acknowledge(options, f"ACK {options.writer} {number} {save(engine, options.work)}")
    return options.count


def acknowledge(options: Namespace, text: str) -> None:
    if options.mark is None:
        os.write(1, text.encode() + b"\n")
        return
    fd = os.open(options.mark, os.O_WRONLY)
    os.write(fd, text.encode())
    os.close(fd)


COMMANDS: dict[str, Callable[[Namespace], object]] = {
    "save": _save,
    "saves": _saves,
    "storm": _storm,
    "forget": _forget,
    "compact": _compact,
    "rebuild": _rebuild,
    "repair": _repair,
    "audit": _audit,
    "rows": _rows,
}


# Planted bugs: the harness must catch each of them, or it proves nothing.


def _packs_unsynced(options: Namespace) -> None:
    def sync(upload: local.LocalUpload) -> None:
        """Claims to be durable, and is not."""

    _plant(local.LocalUpload, "sync", sync)


def _records_unsynced(options: Namespace) -> None:
    def append(records: local.LocalRecords, log: str, lines: bytes) -> None:
        fd = os.open(records._path(log), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        durable.write_all(fd, lines)
        os.close(fd)

    _plant(local.LocalRecords, "append", append)


def _ledger_normal(options: Namespace) -> None:
    connect = sqlite_file.SqliteFile._connect

    def careless(file: sqlite_file.SqliteFile) -> Connection:
        database = connect(file)
        database.execute("PRAGMA synchronous=NORMAL")
        return database

    _plant(sqlite_file.SqliteFile, "_connect", careless)


def _plant(kind: type, name: str, method: Callable[..., object]) -> None:
    setattr(kind, name, method)


def _acknowledged_at(step: str) -> Callable[[Namespace], None]:
    def mutate(options: Namespace) -> None:
        made = iter(range(options.first, options.first + options.count))

        def observe(name: str) -> None:
            if name == step and identity(str(options.work).encode()) is not None:
                acknowledge(options, f"ACK {next(made)}")

        steps.observer = observe

    return mutate


MUTANTS: dict[str, Callable[[Namespace], None]] = {
    "packs_unsynced": _packs_unsynced,
    "records_unsynced": _records_unsynced,
    "ledger_normal": _ledger_normal,
    "acknowledged_before_commit": _acknowledged_at("record:synced"),
    "acknowledged_before_record": _acknowledged_at("pack:named"),
}
