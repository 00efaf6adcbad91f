"""What a person sees, one page per verb; `HOLDFAST_SNAPSHOTS=write pytest tests/cli/test_snapshots.py` writes them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from .box import HOUR, Box

FOLDER = Path(__file__).parent / "snapshots"


def page(box: Box, *lines: str) -> str:
    """The command lines, each with what it writes: `! ` marks standard error, the last line the exit code if not 0."""
    text = ""
    for line in lines:
        result = box.call(*line.split(" ")[1:])
        text += f"$ {line}\n{result.out}"
        text += "".join([f"! {said}\n" for said in result.err.splitlines()])
        text += f"exit code {result.code}\n" if result.code else ""
    return box.plain(text)


def damage(box: Box) -> None:
    box.put("src/a.py", "one\n2\nthree\nfour\n")
    box.put("새 파일.txt", "new\n")
    box.put("image.png", b"\x89PNG\0\1\2\3")
    (box.project / "src/b.py").unlink()


def show(box: Box) -> str:
    os.mkfifo(box.project / "pipe")
    box.put("node_modules/x", "x")
    box.put("src/a.py", "one\n2\n3\n")
    (box.project / "src/b.py").chmod(0o755)
    box.call("save", "-m", "with a pipe", "--session", "s-1", "--task", "t-1")
    return page(box, "holdfast show", "holdfast show v2")


def init(box: Box) -> str:
    return page(box, "holdfast init new", "holdfast init new", "holdfast init new/inner", "holdfast init /")


def save(box: Box) -> str:
    box.put("new", "x")
    return page(box, "holdfast save", "holdfast save -m again --name again --tag x --pin", "holdfast save --auto")


def diff(box: Box) -> str:
    damage(box)
    return page(
        box,
        "holdfast diff",
        "holdfast diff --stat",
        "holdfast diff --name-only",
        "holdfast diff v1 v2",
        "holdfast diff v3 v3",
    )


def status(box: Box) -> str:
    damage(box)
    box.now += 3 * HOUR
    lines = page(box, "holdfast status")
    store = next(line for line in lines.splitlines() if line.startswith("Store"))
    return lines.replace(store, store.rpartition(",")[0] + ", N bytes")


def forget(box: Box) -> str:
    for number in range(12):
        box.put("file", str(number))
        box.call("save", "--auto")
    lines = page(
        box,
        "holdfast forget --dry-run",
        "holdfast forget v1 --dry-run",
        "holdfast forget -y",
        "holdfast forget -y",
        "holdfast forget v3",
    )
    return "".join([line + "\n" for line in lines.splitlines() if not line.startswith("The store went from")])


def search(box: Box) -> str:
    return page(box, "holdfast search 체크포인트", "holdfast search .py", "holdfast search nothing")


def config(box: Box) -> str:
    return page(
        box,
        "holdfast config path",
        "holdfast config get capture.max_file_size",
        "holdfast config set capture.max_file_size 2GB",
        "holdfast config get capture.max_file_size",
        "holdfast config set capture.ignored some",
        "holdfast config get capture.max_fil_size",
        "holdfast config explain capture.ignored",
        "holdfast config set --project --dry-run capture.ignored all",
        "holdfast config set --project hooks.verify_before_clear false",
    )


PAGES: dict[str, Callable[[Box], str]] = {
    "init": init,
    "save": save,
    "list": lambda box: page(
        box, "holdfast list", "holdfast checkpoint list --tag work", "holdfast list --trigger auto"
    ),
    "show": show,
    "diff": diff,
    "cat": lambda box: page(box, "holdfast cat v1 src/a.py", "holdfast cat v3 README", "holdfast cat v1 src"),
    "search": search,
    "status": status,
    "pin": lambda box: page(box, "holdfast pin v1", "holdfast pin v1", "holdfast unpin v1", "holdfast unpin v1"),
    "name": lambda box: page(
        box, "holdfast name v1 start", "holdfast name v1 start", "holdfast name v1 --remove", "holdfast name v1 v2"
    ),
    "forget": forget,
    "config": config,
    "help": lambda box: page(box, "holdfast save --help", "holdfast diff --help", "holdfast --version"),
    "json": lambda box: page(
        box, "holdfast list --json --limit 1", "holdfast show v9 --json", "holdfast name v1 start --json"
    ),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_verb_looks_as_it_should(kept: Box, name: str) -> None:
    kept.variables["COLUMNS"] = "100"

    seen = PAGES[name](kept)

    path = FOLDER / f"{name}.txt"
    if os.environ.get("HOLDFAST_SNAPSHOTS") == "write":
        path.write_text(seen)
    assert seen == path.read_text()


def test_no_snapshot_is_left_over() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(PAGES)
