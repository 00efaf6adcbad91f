"""Parses command lines of `restore`, `undo` and `redo` without loading click, which costs more than restoring a file.

Whatever this does not know is left to click: help, questions, hunks, abbreviations, mistakes.
"""

from __future__ import annotations

from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from keepfast.present.environment import Environment

    Words = dict[str, Any]

GLOBAL_FLAGS = {"-q": "quiet", "--quiet": "quiet", "--json": "as_json"}
GLOBAL_OPTIONS_WITH_VALUE = {"--config": "config", "-C": "folder", "--store": "store"}
STEP_OPTIONS: dict[str, tuple[str, object]] = {
    "-n": ("dry_run", True),
    "--dry-run": ("dry_run", True),
    "--keep-mine": ("conflicts", "mine"),
    "--theirs": ("conflicts", "theirs"),
    "-y": ("yes", True),
    "--yes": ("yes", True),
}
RESTORE_OPTIONS: dict[str, tuple[str, object]] = {
    **STEP_OPTIONS,
    "--files": ("what", "files"),
    "--mtimes": ("mtimes", True),
    "--continue": ("go_on", True),
    "--abort": ("abort", True),
}
VERB_OPTIONS = {"restore": RESTORE_OPTIONS, "undo": STEP_OPTIONS, "redo": STEP_OPTIONS}


def run(arguments: Sequence[str], environment: Environment, clock: Callable[[], int]) -> int | None:
    """Run the command line and return its exit code; return None without doing anything if click has to parse it."""
    parsed = read(arguments)
    if parsed is None or environment.text("_KEEPFAST_COMPLETE"):
        return None
    from keepfast.cli import restore_flow
    from keepfast.cli.exit_codes import leave
    from keepfast.cli.session import Session

    verb, global_options, own_options, paths = parsed
    session = Session(environment, clock, monotonic())

    def work() -> int:
        session.use(**global_options)
        own_options.pop("what", None)
        if verb == "restore":
            return restore_flow.restore(session, own_options.pop("reference", None), paths, **own_options)
        return (restore_flow.undo if verb == "undo" else restore_flow.redo)(session, **own_options)

    return leave(session, arguments, work)


def read(arguments: Sequence[str]) -> tuple[str, Words, Words, list[str]] | None:
    """Return verb, global options, own options and paths; None if a word is unknown or a question may be asked."""
    global_options: Words = {}
    left = list(arguments)
    while left and left[0] not in VERB_OPTIONS:
        if not _take(left, global_options):
            return None
    if not left:
        return None
    verb, *left = left
    paths: list[str] = []
    if verb == "restore" and "--" in left:
        at = left.index("--")
        left, paths = left[:at], left[at + 1 :]
    own_options: Words = {}
    while left:
        if _take(left, global_options):
            continue
        word = left.pop(0)
        if word in VERB_OPTIONS[verb]:
            name, value = VERB_OPTIONS[verb][word]
            if own_options.setdefault(name, value) != value:
                return None  # two options that exclude each other
        elif verb == "restore" and word and word[0] != "-" and "reference" not in own_options:
            own_options["reference"] = word
        else:
            return None
    is_unattended = {"yes", "dry_run", "go_on", "abort"}.intersection(own_options)
    return (verb, global_options, own_options, paths) if is_unattended else None


def _take(left: list[str], options: Words) -> bool:
    """Move a global option from the front of `left` into `options`; return whether there was one."""
    if left[0] in GLOBAL_FLAGS:
        options[GLOBAL_FLAGS[left.pop(0)]] = True
        return True
    if left[0] in GLOBAL_OPTIONS_WITH_VALUE and len(left) > 1 and left[1] and left[1][0] != "-":
        name = GLOBAL_OPTIONS_WITH_VALUE[left.pop(0)]
        options[name] = left.pop(0)
        return True
    return False
