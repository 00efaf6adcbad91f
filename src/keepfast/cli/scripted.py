"""Command lines of `restore`, `undo` and `redo` as scripts write them, understood without loading click.

Click costs more than the restore of a file. Whatever is not understood here to the last word is left to it: help,
questions, hunks, abbreviations, mistakes.
"""

from __future__ import annotations

from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from keepfast.present.environment import Surroundings

    Words = dict[str, Any]

FLAGS = {"-q": "quiet", "--quiet": "quiet", "--json": "as_json"}
WITH_VALUE = {"--config": "config", "-C": "folder", "--store": "store"}
STEP: dict[str, tuple[str, object]] = {
    "-n": ("dry_run", True),
    "--dry-run": ("dry_run", True),
    "--keep-mine": ("conflicts", "mine"),
    "--theirs": ("conflicts", "theirs"),
    "-y": ("yes", True),
    "--yes": ("yes", True),
}
RESTORE: dict[str, tuple[str, object]] = {
    **STEP,
    "--files": ("what", "files"),
    "--mtimes": ("mtimes", True),
    "--continue": ("go_on", True),
    "--abort": ("abort", True),
}
VERBS = {"restore": RESTORE, "undo": STEP, "redo": STEP}


def run(arguments: Sequence[str], around: Surroundings, clock: Callable[[], int]) -> int | None:
    """Run the command line and return its exit code; None, and nothing has happened, if click has to read it."""
    understood = read(arguments)
    if understood is None or around.text("_KEEPFAST_COMPLETE"):
        return None
    from keepfast.cli import restore_flow as bring
    from keepfast.cli.exit_codes import leave
    from keepfast.cli.session import Session

    verb, around_words, words, paths = understood
    session = Session(around, clock, monotonic())

    def work() -> int:
        session.use(**around_words)
        words.pop("what", None)
        if verb == "restore":
            return bring.restore(session, words.pop("reference", None), paths, **words)
        return (bring.undo if verb == "undo" else bring.redo)(session, **words)

    return leave(session, arguments, work)


def read(arguments: Sequence[str]) -> tuple[str, Words, Words, list[str]] | None:
    """Verb, global options, its own ones, and the paths; None unless every word is known and nobody is asked."""
    everywhere: Words = {}
    left = list(arguments)
    while left and left[0] not in VERBS:
        if not _take(left, everywhere):
            return None
    if not left:
        return None
    verb, *left = left
    paths: list[str] = []
    if verb == "restore" and "--" in left:
        at = left.index("--")
        left, paths = left[:at], left[at + 1 :]
    after: Words = {}
    while left:
        if _take(left, everywhere):
            continue
        word = left.pop(0)
        if word in VERBS[verb]:
            name, value = VERBS[verb][word]
            if after.setdefault(name, value) != value:
                return None  # two that exclude each other
        elif verb == "restore" and word and word[0] != "-" and "reference" not in after:
            after["reference"] = word
        else:
            return None
    alone = {"yes", "dry_run", "go_on", "abort"}.intersection(after)
    return (verb, everywhere, after, paths) if alone else None


def _take(left: list[str], everywhere: Words) -> bool:
    """Take a global option from the front; False, and nothing is taken, if there is none."""
    if left[0] in FLAGS:
        everywhere[FLAGS[left.pop(0)]] = True
        return True
    if left[0] in WITH_VALUE and len(left) > 1 and left[1] and left[1][0] != "-":
        name = WITH_VALUE[left.pop(0)]
        everywhere[name] = left.pop(0)
        return True
    return False
