"""The processes of the concurrency tests: savers, and those who forget, compact, verify and read at the same time."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path

from keepfast.app.checkpoint import Engine
from keepfast.app.wiring import build
from keepfast.model import steps
from keepfast.model.entry import FILE
from keepfast.model.errors import Busy, KeepfastError
from keepfast.model.event import CREATED, UNCHANGED, Event
from keepfast.settings import Settings
from keepfast.store.maintenance.space import compact, forget
from keepfast.store.maintenance.verify import verify
from keepfast.store.repository import Repository
from keepfast.store.rows import Query

PATIENCE = 120.0


def main(arguments: list[str]) -> int:
    """Play one role. Every line on standard output is one JSON object; whatever goes wrong is one with `error`."""
    parser = ArgumentParser()
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--name", default="0")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--stop", type=Path, help="go on until this file is there")
    parser.add_argument("--acks", type=Path, help="folder where savers write what was acknowledged")
    parser.add_argument("--pause", default="", help="at this step, say so and wait until the file `go` is there")
    parser.add_argument("--go", type=Path)
    options = parser.parse_args(arguments)
    seen: list[str] = []
    steps.observer = _observer(seen, options.pause, options.go)
    try:
        ROLES[options.role](options)
    except Exception as error:
        say(error=f"{options.role} {options.name}: {type(error).__name__}: {error}")
        return 1
    if options.pause:
        say(steps=seen)
    return 0


def open_engine(store: Path) -> Engine:
    settings = Settings()
    settings.put("store.url", str(store), "test")
    return build(settings, str(store.parent / "data"), b"/nonexistent", time.time_ns)


def save(engine: Engine, root: Path, trigger: str = "manual", message: str = "") -> int:
    """Save; return the version, or 0 if there was nothing to save."""
    outcome = engine.handle(Event(os.fsencode(root), time.time_ns(), trigger=trigger, message=message))
    if outcome.status not in (CREATED, UNCHANGED):
        raise AssertionError(f"the outcome was {outcome.status}")
    return outcome.version


def read(repository: Repository, workspace: str, version: int, path: bytes) -> bytes:
    entry = repository.ledger.at(workspace, version, path)
    if entry is None or entry.kind != FILE:
        raise AssertionError(f"v{version} does not have {path!r}")
    return repository.contents.load(entry.content)


def say(**what: object) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def _observer(seen: list[str], pause: str, go: Path | None) -> Callable[[str], None]:
    def observe(step: str) -> None:
        seen.append(step)
        if step == pause and seen.count(step) == 1 and go is not None:
            say(paused=step)
            until = time.monotonic() + PATIENCE
            while not go.exists():
                if time.monotonic() > until:
                    raise TimeoutError(f"nobody said go at {step}")
                time.sleep(0.01)

    return observe


# Roles


def _save(options: Namespace) -> None:
    """Write a nonce, save, and read it back from the very version that was acknowledged."""
    path = options.root / f"nonce-{options.name}.txt"
    engine = open_engine(options.store)
    lasting = int(options.name) % 2  # every other process is a new one for each save, as a hook is
    for number in range(options.count):
        nonce = f"{options.name}-{number}-{os.urandom(8).hex()}"
        path.write_text(nonce)
        if not lasting:
            engine.close()
            engine = open_engine(options.store)
        started = time.monotonic()
        version = save(engine, options.root, message=nonce)
        seconds = time.monotonic() - started
        with open(options.acks / options.name, "a") as acks:
            acks.write(f"{version} {path.name} {nonce}\n")
        found = engine.workspaces.locate(os.fsencode(options.root))
        assert found is not None
        returned = read(engine.repository(), found[1], version, os.fsencode(path.name)).decode()
        say(version=version, path=path.name, nonce=nonce, returned=returned, seconds=seconds)
    engine.close()


def _auto(options: Namespace) -> None:
    """The same as a hook does it: if another process has saved our nonce along with its own, that will do."""
    path = options.root / f"auto-{options.name}.txt"
    for number in range(options.count):
        nonce = f"{options.name}-{number}-{os.urandom(8).hex()}"
        path.write_text(nonce)
        engine = open_engine(options.store)
        version = save(engine, options.root, "auto")
        _, row = engine.workspaces.root(os.fsencode(options.root))
        returned = read(engine.repository(), row.id, version or row.version, os.fsencode(path.name)).decode()
        say(auto=version, nonce=nonce, returned=returned)
        engine.close()


def _forget(options: Namespace) -> None:
    """Forget versions that we have seen to be right, and automatic ones of a workspace of our own."""
    engine = open_engine(options.store)
    repository = engine.repository()
    _, shared = engine.workspaces.root(os.fsencode(options.root))
    own = options.root.parent / f"own-{options.name}"
    own.mkdir()
    engine.workspaces.init(os.fsencode(own))
    forgotten: set[int] = set()
    while not options.stop.exists():
        (own / "file").write_text(os.urandom(2000).hex())
        save(engine, own, "auto")
        _, row = engine.workspaces.root(os.fsencode(own))
        old = [found.version for found in repository.ledger.find(Query(workspace=row.id))][2:]
        forget(repository, row.id, old, "test")
        chosen = [ack for ack in _acknowledged(options.acks) if int(ack[0]) % 3 == 0 and int(ack[0]) not in forgotten]
        random.shuffle(chosen)
        for version, path, nonce in chosen[:3]:
            if read(repository, shared.id, int(version), path.encode()).decode() != nonce:
                raise AssertionError(f"v{version} does not return its nonce")
            forget(repository, shared.id, [int(version)], "test")
            forgotten.add(int(version))
            say(forgotten=int(version))
        time.sleep(0.05)
    engine.close()


def _acknowledged(folder: Path) -> list[list[str]]:
    return [
        line.split()
        for path in folder.iterdir()
        for line in path.read_text().splitlines(keepends=True)
        if line.endswith("\n")
    ]


def _compact(options: Namespace) -> None:
    """Once, or again and again. Where another one is at it already, that one does our work."""
    engine = open_engine(options.store)
    done = busy = 0
    while True:
        try:
            compact(engine.repository(), str(options.store), everything=done % 2 == 0)
            done += 1
        except Busy:
            busy += 1
        if options.stop is None or options.stop.exists():
            break
        time.sleep(random.random() / 5)
    say(compactions=done, busy=busy)
    engine.close()


def _verify(options: Namespace) -> None:
    engine = open_engine(options.store)
    done = 0
    while True:
        for problem in verify(engine.repository(), str(options.store)).problems:
            say(error=f"verify: {problem.text} {problem.checkpoints}")
        done += 1
        if options.stop is None or options.stop.exists():
            break
        time.sleep(random.random() / 5)
    say(verifications=done)
    engine.close()


def _read(options: Namespace) -> None:
    """List, and load any version whole. It may be forgotten while we read, and only then may it fail."""
    engine = open_engine(options.store)
    repository = engine.repository()
    _, shared = engine.workspaces.root(os.fsencode(options.root))
    done = 0
    while not options.stop.exists():
        rows = repository.ledger.find(Query(workspace=shared.id))
        if not rows:
            continue
        row = random.choice(rows)
        try:
            for entry in repository.ledger.state(row.workspace, row.version):
                if entry.kind == FILE:
                    repository.contents.load(entry.content)
            repository.document(row)
            done += 1
        except KeepfastError as error:
            now = repository.ledger.checkpoint(row.workspace, row.version)
            if now is None or not now.forgotten:
                raise
            say(overtaken=f"v{row.version}: {error}")
    say(reads=done)
    engine.close()


def _once(options: Namespace) -> None:
    """Save the folder as it is, once."""
    engine = open_engine(options.store)
    say(version=save(engine, options.root))
    engine.close()


ROLES: dict[str, Callable[[Namespace], None]] = {
    "save": _save,
    "auto": _auto,
    "forget": _forget,
    "compact": _compact,
    "verify": _verify,
    "read": _read,
    "once": _once,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
