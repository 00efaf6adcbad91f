"""The result of tests, checks and builds, read from their output."""

from __future__ import annotations

import re

from keepfast.agents.shell_views import SimpleCommand
from keepfast.agents.turns import CUT

FAILED = re.compile(
    r"^(?:--- )?FAIL\b|\bFAILED\b|\b[1-9]\d* (?:failed|failing|errors?)\b|\berror(?:\[\w+\])?: |\berror TS\d+"
    r"|AssertionError|Traceback|^panic:|✗|✖|×|\bBUILD FAILED\b|exit (?:code|status) [1-9]",
    re.M,
)
SUMMARIES = {
    r"pytest|py\.test": r"^=* ?\d+ passed\b.* in [\d.]+s\b",
    r"unittest": r"^Ran [1-9]\d* tests? in [\d.]+s\n+OK\b",
    r"vitest|jest": r"^\s*Tests:?\s.*\b\d+ passed\b",
    r"mocha": r"^\s*\d+ passing\b",
    r"playwright": r"^\s*\d+ passed \(",
    r"ruff": r"^All checks passed!",
    r"mypy": r"^Success: no issues found",
    r"pyright": r"^0 errors\b",
    r"golangci-lint": r"^0 issues\.",
    r"mvnw?": r"\bBUILD SUCCESS\b",
    r"gradlew?": r"^BUILD SUCCESSFUL\b",
    r"dotnet": r"^Passed!\s+- Failed:\s+0\b|^Build succeeded\.",
    r"rspec|mix": r"^\d+ (?:examples?|tests?), 0 failures\b",
    r"phpunit": r"^OK \(\d+ tests?",
    r"ctest": r"^100% tests passed\b",
    r"swift|xcodebuild": r"^\*\* (?:TEST|BUILD) SUCCEEDED \*\*|Executed \d+ tests?, with 0 failures\b",
    r"flutter": r"All tests passed!",
}
"""Names of programs, and the line with which each reports that nothing failed at all."""
BY_PART = {
    r"go (?:-C \S+ )?test|gotestsum": r"^ok\s+\S+\s+(?:[\d.]+s|\(cached\))",
    r"cargo (?:\S+ )?test": r"^test result: ok\.",
}
"""The same for programs that report each part: a failure is in another line, which must not be filtered out."""
WHOLE = frozenset(("tail", "tee", "cat"))
"""Programs that print the end of their input, where failures are reported."""
RUNNERS = re.compile(r"(?:npm|pnpm|yarn|bun|deno|make|just|mise|tox|nox|rake)(?!\S)")
"""Programs that may run any of these."""


def says_passed(output: str, parts: list[SimpleCommand]) -> bool:
    """Return whether an output without failures shows for each of these commands that it passed."""
    if not parts:
        return True
    whole = [names for names, summary in SUMMARIES.items() if re.search(summary, output, re.M)]
    by_part = [names for names, summary in BY_PART.items() if re.search(summary, output, re.M)]
    return all(_is_among(part, [*whole, *by_part] if _is_whole(output, part) else whole) for part in parts)


def _is_whole(output: str, part: SimpleCommand) -> bool:
    return WHOLE.issuperset(part.into) and CUT not in output


def _is_among(part: SimpleCommand, names: list[str]) -> bool:
    """Return whether it ran one of these programs, or one that may have run any of them."""
    pattern = re.compile(rf"(?:{'|'.join(names)})(?!\S)")
    return bool(names) and any(pattern.match(line) or RUNNERS.match(line) for line in part.programs)
