"""What a person sees, one page per verb; `KEEPFAST_SNAPSHOTS=write pytest tests/cli/test_snapshots.py` writes them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from tests.equipment.box import HOUR, Box

FOLDER = Path(__file__).parent / "snapshots"


def page(box: Box, *lines: str) -> str:
    """The command lines, each with what it writes: `! ` marks standard error, the last line the exit code if not 0."""
    text = ""
    for line in lines:
        result = box.call(*line.split(" ")[1:])
        text += f"$ {line}\n{result.out}"
        text += "".join([f"! {error_line}\n" for error_line in result.err.splitlines()])
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
    return page(box, "keepfast show", "keepfast show v2")


def init(box: Box) -> str:
    return page(box, "keepfast init new", "keepfast init new", "keepfast init new/inner", "keepfast init /")


def save(box: Box) -> str:
    box.put("new", "x")
    return page(box, "keepfast save", "keepfast save -m again --name again --tag x --pin", "keepfast save --auto")


def diff(box: Box) -> str:
    damage(box)
    return page(
        box,
        "keepfast diff",
        "keepfast diff --stat",
        "keepfast diff --name-only",
        "keepfast diff v1 v2",
        "keepfast diff v3 v3",
    )


def status(box: Box) -> str:
    damage(box)
    box.now += 3 * HOUR
    lines = page(box, "keepfast status")
    store = next(line for line in lines.splitlines() if line.startswith("Store"))
    return lines.replace(store, store.rpartition(",")[0] + ", N bytes")


def forget(box: Box) -> str:
    for number in range(12):
        box.put("file", str(number))
        box.call("save", "--auto")
    lines = page(
        box,
        "keepfast forget --dry-run",
        "keepfast forget v1 --dry-run",
        "keepfast forget -y",
        "keepfast forget -y",
        "keepfast forget v3",
    )
    return "".join([line + "\n" for line in lines.splitlines() if not line.startswith("Freed ")])


def search(box: Box) -> str:
    return page(box, "keepfast search 체크포인트", "keepfast search .py", "keepfast search nothing")


def config(box: Box) -> str:
    return page(
        box,
        "keepfast config path",
        "keepfast config get capture.max_file_size",
        "keepfast config set capture.max_file_size 2GB",
        "keepfast config get capture.max_file_size",
        "keepfast config set capture.ignored some",
        "keepfast config get capture.max_fil_size",
        "keepfast config explain capture.ignored",
        "keepfast config set --project --dry-run capture.ignored all",
        "keepfast config set --project hooks.verify_before_clear false",
    )


def every_help(box: Box) -> str:
    """The help of every command and of every command below it."""
    from keepfast.cli.root import root

    lines = ["keepfast --help"]
    with click.Context(root) as context:
        waiting: list[tuple[str, click.Command]] = [("keepfast", root)]
        for words, command in waiting:
            if isinstance(command, click.Group):
                for name in command.list_commands(context):
                    part = command.get_command(context, name)
                    assert part is not None
                    lines.append(f"{words} {name} --help")
                    waiting.append((f"{words} {name}", part))
    return page(box, *lines, "keepfast --version")


def restore(box: Box) -> str:
    damage(box)
    return page(
        box,
        "keepfast restore v1 --dry-run",
        "keepfast restore v1",
        "keepfast restore v1 -y",
        "keepfast restore v1 -y",
        "keepfast list --all",
        "keepfast undo -y",
        "keepfast redo -y",
        "keepfast restore v2 -y -- src/b.py",
        "keepfast restore v2 -y -- nothing",
        "keepfast restore --continue",
    )


def carry(box: Box) -> str:
    box.put(".env", "API_TOKEN=ghp_" + "a1B2c3D4e5" * 4 + "\n")
    box.save("-m", "with a secret")
    return page(
        box,
        "keepfast export v1 v4 ../two.bundle",
        "keepfast import ../two.bundle --into ../elsewhere",
        "keepfast import ../missing.bundle",
        "keepfast fork v1 ../copy",
        "keepfast fork v1 ../copy",
    )


def upkeep(box: Box) -> str:
    lines = page(
        box,
        "keepfast verify",
        "keepfast verify --quick",
        "keepfast compact",
        "keepfast rebuild",
        "keepfast unprotect -y",
        "keepfast status",
        "keepfast init",
        "keepfast purge -y",
    )
    return re.sub(r"\b[\d.,]+ ?(bytes|B|KB|MB)\b", r"N \1", lines)


def tasks(box: Box) -> str:
    return page(
        box,
        "keepfast task list",
        "keepfast task inbox",
        "keepfast task show t-1",
        "keepfast task new",
        "keepfast report",
        "keepfast resume v1",
        "keepfast keep",
        "keepfast drop",
        "keepfast clear-check",
        "keepfast install codex",
        "keepfast install nobody",
    )


JSON = (
    "init ../other",
    "save -m again",
    "save --auto",
    "list",
    "latest",
    "show v1",
    "diff v1 v2",
    "search first",
    "status",
    "restore v1 --dry-run",
    "restore v1 -y",
    "undo -y",
    "fork v1 ../copy",
    "export v1 ../one.bundle",
    "import ../one.bundle --into ../elsewhere",
    "name v1 start",
    "pin v1",
    "forget v2 -y",
    "forget --dry-run",
    "compact",
    "verify",
    "rebuild",
    "key",
    "config list",
    "config get capture.ignored",
    "config explain capture.ignored",
    "task list",
    "task inbox",
    "report",
    "resume v1",
    "clear-check",
    "install claude --dry-run",
    "unprotect -y",
    "purge -y",
)


def form(value: object) -> object:
    """The form of a JSON value: names and types without what they hold; of a list its different parts."""
    if isinstance(value, dict):
        return {name: form(part) for name, part in value.items()}
    if isinstance(value, list):
        parts: list[object] = []
        for part in map(form, value):
            if part not in parts:
                parts.append(part)
        return parts
    return "null" if value is None else type(value).__name__


def forms(box: Box) -> str:
    """What every command answers in JSON, as its form."""
    text = ""
    for line in JSON:
        result = box.call(*line.split(" "), "--json")
        text += f"$ keepfast {line} --json\n"
        text += json.dumps(form(result.json()), indent=1) + "\n" if result.raw.strip() else ""
        text += f"exit code {result.code}\n" if result.code else ""
    return text


PAGES: dict[str, Callable[[Box], str]] = {
    "init": init,
    "save": save,
    "list": lambda box: page(
        box,
        "keepfast list",
        "keepfast checkpoint list --tag work",
        "keepfast list --trigger auto",
        "keepfast latest --tag work",
        "keepfast latest --trigger auto",
    ),
    "show": show,
    "diff": diff,
    "cat": lambda box: page(box, "keepfast cat v1 src/a.py", "keepfast cat v3 README", "keepfast cat v1 src"),
    "search": search,
    "status": status,
    "pin": lambda box: page(box, "keepfast pin v1", "keepfast pin v1", "keepfast unpin v1", "keepfast unpin v1"),
    "name": lambda box: page(
        box, "keepfast name v1 start", "keepfast name v1 start", "keepfast name v1 --remove", "keepfast name v1 v2"
    ),
    "forget": forget,
    "config": config,
    "restore": restore,
    "carry": carry,
    "upkeep": upkeep,
    "tasks": tasks,
    "help": every_help,
    "forms": forms,
    "json": lambda box: page(
        box, "keepfast list --json --limit 1", "keepfast show v9 --json", "keepfast name v1 start --json"
    ),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_verb_looks_as_it_should(saved_box: Box, name: str) -> None:
    saved_box.variables["COLUMNS"] = "100"

    seen = PAGES[name](saved_box)

    path = FOLDER / f"{name}.txt"
    if os.environ.get("KEEPFAST_SNAPSHOTS") == "write":
        path.write_text(seen)
    assert seen == path.read_text()


def test_no_snapshot_is_left_over() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(PAGES)
