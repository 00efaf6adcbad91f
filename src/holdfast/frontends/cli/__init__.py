"""The command line. A command's module is imported only when it runs."""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """Run the command in `sys.argv` and leave with its exit code."""
    import sys

    from holdfast.frontends.cli.root import run
    from holdfast.frontends.surroundings import now_ns, surroundings

    sys.exit(run(sys.argv[1:], surroundings(), now_ns))
