"""Somebody else works in the tree while a restore runs: nothing of theirs is lost, and nothing is written elsewhere."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from keepfast.model.entry import FILE, Entry
from keepfast.model.restore_plan import Plan, Step
from keepfast.store.digest import digest
from keepfast.workspace.apply import Apply
from keepfast.workspace.staged_files import ContentSource

from .child import command
from .ground import Ground, aside, staging_left

Take = Callable[[bytes, list[tuple[int, int, int]]], None]
EDITOR = """
import os, sys, time
path, how, delay = sys.argv[1], sys.argv[2], float(sys.argv[3])
sys.stdin.read(1)
until = time.perf_counter() + delay
while time.perf_counter() < until: pass
for number in range(3):
    text = (f"edit {number} of " + sys.argv[4]).encode() * 50
    if how == "rename":
        with open(path + "~", "wb") as file: file.write(text)
        os.rename(path + "~", path)
    else:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.ftruncate(fd, 0); os.write(fd, text[:20]); time.sleep(0.0005); os.write(fd, text[20:]); os.close(fd)
"""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("how", ["in place", "rename"])
def test_what_an_editor_saves_during_a_restore_is_never_lost(how: str, folder: Path, campaign: bool) -> None:
    ground = Ground(folder)
    random = Random(how)
    for number in range(10):
        ground.put(f"file{number}", f"old {number}\n")
    ground.save()
    rounds = 500 if campaign else 60
    raced, lost = 0, []
    for turn in range(rounds):
        for number in range(10):
            ground.put(f"file{number}", f"new {number} {turn}\n")
        path = ground.root / "file5"
        delay = random.random() * 0.06
        editor = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", EDITOR, str(path), how, str(delay), str(turn)], stdin=subprocess.PIPE
        )
        assert editor.stdin is not None
        restoring = ground.restorer()
        editor.stdin.write(b"x")
        editor.stdin.flush()
        done = restoring.restore(restoring._checkpoint(1), [], conflicts="theirs")
        editor.communicate()
        wanted = f"edit 2 of {turn}".encode() * 50
        places = [place.read_bytes() for place in [path, *aside(ground.root)] if place.is_file()]
        before = done.before if done is not None else 0
        saved = ground.saver.state(before).get(b"file5") if before else None
        if saved is not None and saved.kind == FILE:
            places.append(ground.saver.load(saved))
        if wanted not in places:
            lost.append((turn, [place[:40] for place in places]))
        raced += done is None or bool(done.applied.untouched or done.applied.aside) or wanted == places[0]
        for place in aside(ground.root):
            place.unlink()
        assert not staging_left(ground.root)
        ground.save()
    ground.close()

    print(f"{rounds} restores raced by an editor saving {how}: {raced} met, {len(lost)} lost")
    assert not lost


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("accelerated", [True, False], ids=["compiled", "python"])
def test_a_folder_that_turns_into_a_link_never_leads_a_write_outside(
    accelerated: bool, folder: Path, campaign: bool
) -> None:
    work, outside = folder / "work", folder / "outside"
    for path in (work / "d", outside):
        path.mkdir(parents=True)
    (work / "x").symlink_to(outside)
    writes, batch = (100_000 if campaign else 3_000), 1000
    content = b"x"
    root = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
    written = kept = 0
    with flipping(work / "d", work / "x"):
        for start in range(0, writes, batch):
            plan = Plan()
            plan.steps = [
                Step("write", None, Entry(b"d/%08d" % number, FILE, 0o644, 0, 1, 0, 0, digest(content), b""))
                for number in range(start, start + batch)
            ]
            apply = Apply(
                root,
                {},
                ContentSource(lambda entry: iter([content]), always(content)),
                ids,
                lambda key: key == digest(content),
                durable=False,
                accelerated=accelerated,
            )
            done = apply.run(plan)
            written, kept = written + done.written, kept + len(done.untouched)
    escaped = list(outside.iterdir())
    os.close(root)

    print(f"{writes} raced writes: {written} written, {kept} refused, {len(escaped)} escaped")
    assert not escaped
    assert written + kept == writes
    assert kept and written  # else there was no race


@pytest.mark.timeout(600)
def test_a_folder_that_turns_into_a_link_never_leads_a_deletion_or_a_mode_outside(folder: Path) -> None:
    work, outside = folder / "work", folder / "outside"
    for path in (work / "d", outside):
        path.mkdir(parents=True)
    (work / "x").symlink_to(outside)
    names = [b"%04d" % number for number in range(300)]
    for name in names:
        for place in (work / "d", outside):
            (place / os.fsdecode(name)).write_bytes(b"x")
            (place / os.fsdecode(name)).chmod(0o600)
    root = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(6):
        plan = Plan()
        for number, name in enumerate(names):
            old = Entry(b"d/" + name, FILE, 0o600, 0, 1, 0, 0, digest(b"x"), b"")
            if number % 2:
                plan.steps.append(Step("delete", old, None))
            else:
                plan.steps.append(Step("mode", old, old._replace(mode=0o755)))
        with flipping(work / "d", work / "x"):
            Apply(root, {}, ContentSource(lambda entry: iter([b"x"])), ids, lambda key: True, durable=False).run(plan)
    os.close(root)

    assert len(list(outside.iterdir())) == len(names)
    assert {path.stat().st_mode & 0o777 for path in outside.iterdir()} == {0o600}


def always(content: bytes) -> Callable[[Sequence[bytes], Take], list[int]]:
    """The same content for every digest, all at once."""

    def hand_over(digests: Sequence[bytes], take: Take) -> list[int]:
        take(content, [(number, 0, len(content)) for number in range(len(digests))])
        return []

    return hand_over


def ids(read: Callable[[int], bytes], sealed: bool) -> list[bytes]:
    return [digest(b"".join(iter(lambda: read(1 << 20), b"")))]


@contextmanager
def flipping(one: Path, other: Path) -> Iterator[None]:
    """Another process exchanges two names as fast as it can."""
    code = (
        "import ctypes\nlibrary = ctypes.CDLL(None)\n"
        f"while True: library.renameat2(-100, {os.fsencode(one)!r}, -100, {os.fsencode(other)!r}, 2)"
    )
    if not hasattr(ctypes.CDLL(None), "renameat2"):
        pytest.skip("no exchange of names here")
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", code])
    time.sleep(0.2)
    try:
        yield
    finally:
        process.kill()
        process.wait()
        if one.is_symlink():
            ctypes.CDLL(None).renameat2(-100, os.fsencode(one), -100, os.fsencode(other), 2)


WRITER = """
import sys, pathlib
path = pathlib.Path(sys.argv[1])
for number in range(200):
    path.write_text(f"line {number}\\n" * 20)
"""


@pytest.mark.timeout(1800)
def test_a_restore_while_another_process_saves_and_a_third_edits_loses_nothing(folder: Path, campaign: bool) -> None:
    ground = Ground(folder)
    store = ground.saver.store
    for number in range(40):
        ground.put(f"d{number % 4}/file{number}", f"old {number}\n" * 20)
    ground.save()
    for turn in range(20 if campaign else 3):
        for number in range(40):
            ground.put(f"d{number % 4}/file{number}", f"new {number} {turn}\n" * 20)
        ground.close()
        children = [
            subprocess.Popen(command("restore", ground.root, store, "--fast"), stdout=subprocess.PIPE),
            subprocess.Popen(command("save", ground.root, store, "--fast"), stdout=subprocess.PIPE),
            subprocess.Popen([sys.executable, "-I", "-S", "-c", WRITER, str(ground.root / "d1/file1")]),
        ]
        answers: list[Any] = [child.communicate()[0] for child in children]
        assert [child.returncode for child in children] == [0, 0, 0]
        done = json.loads(answers[0])

        last = b"line 199\n" * 20
        places = [(ground.root / "d1/file1").read_bytes(), *[path.read_bytes() for path in aside(ground.root)]]
        assert last in places or ground.saver.read("d1/file1", done["before"]) == last
        kept = {path for path, _ in done["kept"]}
        for number in range(40):
            name = f"d{number % 4}/file{number}"
            if number != 1 and name not in kept:
                assert (ground.root / name).read_text() == f"old {number}\n" * 20
        assert ground.saver._read().ledger.workspace(ground.saver.workspace) is not None
        ground.save()
    ground.close()
