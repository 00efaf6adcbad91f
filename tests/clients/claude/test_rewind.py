"""The client's own /rewind beside a restore: the same turn taken back by both, and what each of them left undone."""

from __future__ import annotations

from .bench import Bench
from .endpoint import call, say, use
from .terminal import PROMPT, Terminal

SHELL = "echo new > made.txt; sed -i s/hello/changed/ README.md; rm gone.txt; mv moved.txt elsewhere.txt"


def tree(bench: Bench) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(bench.project.glob("*.*")) if path.is_file()}


def differences(wanted: dict[str, str], found: dict[str, str]) -> dict[str, str]:
    """Name → what is wrong with it."""
    wrong = {name: "not brought back" for name in wanted if name not in found}
    wrong |= {name: "left behind" for name in found if name not in wanted}
    return wrong | {name: "still changed" for name in wanted if name in found and wanted[name] != found[name]}


def test_what_rewind_leaves_undone_comes_back_with_restore(hooked: Bench) -> None:
    for name in ("edited.txt", "gone.txt", "moved.txt"):
        hooked.put(name, f"{name}\n")
    hooked.script(
        call(use("Write", file_path=hooked.path("first.txt"), content="first turn\n")),
        say("First turn done."),
        call(use("Read", file_path=hooked.path("edited.txt"))),
        call(use("Edit", file_path=hooked.path("edited.txt"), old_string="edited", new_string="replaced")),
        call(use("Bash", command=SHELL, description="change")),
        say("Second turn done."),
    )

    with Terminal(hooked, "--permission-mode", "bypassPermissions") as terminal:
        terminal.wait(PROMPT)
        terminal.type("first prompt")
        terminal.wait("First turn done")
        assert hooked.wait_for(lambda: [one for one in hooked.settle() if one["trigger"] == "turn"])
        wanted = tree(hooked)
        (good,) = [one for one in hooked.checkpoints() if one["trigger"] == "turn"]
        terminal.type("second prompt")
        terminal.wait("Second turn done")
        hooked.settle()
        terminal.type("/rewind")
        terminal.wait("point before…")
        terminal.press("Up")
        terminal.wait(r"(?m)^ +❯.second prompt")
        terminal.press("Enter")
        terminal.wait("❯ 1. Restore code and conversation")
        terminal.press("Enter")
        terminal.wait(r"❯.second prompt\s*\n─")  # back in the line to be sent again
        after_rewind = differences(wanted, tree(hooked))
        hooked.keepfast("restore", good["id"], "-y")
        after_restore = differences(wanted, tree(hooked))

    names = sorted({*wanted, *after_rewind, *after_restore})
    print(f"\n{'':14}{'/rewind':20}keepfast restore")
    for name in names:
        print(f"{name:14}{after_rewind.get(name, 'right'):20}{after_restore.get(name, 'right')}")
    assert "edited.txt" not in after_rewind, "what the client's own tools edited, it brings back"
    assert after_rewind == {
        "README.md": "still changed",
        "elsewhere.txt": "left behind",
        "gone.txt": "not brought back",
        "made.txt": "left behind",
        "moved.txt": "not brought back",
    }
    assert after_restore == {}
