"""Measure the resume brief on recorded sessions: the share of what the next calls needed that it would have contained.

Stops each session at several moments, builds the brief there, and looks in it for what the following calls read and edited.
No model is called. Other ways to fill the same number of tokens stand in the same table; the README beside this file explains it.

Usage: python tools/briefs/measure.py TRANSCRIPTS... [--tokens N] [--calls N] [--refit] [--plot FILE] [--json]
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from time import process_time

from measurement import find, measure
from table import lines, picture

from keepfast.present.terminal import Paint


def main(arguments: list[str]) -> int:
    parser = ArgumentParser(description="Measure the resume brief on recorded sessions.")
    parser.add_argument("transcripts", nargs="+", help="files, or folders of them (.jsonl, .jsonl.gz)")
    parser.add_argument("--tokens", type=int, default=5_000, help="token limit of the brief (default 5000)")
    parser.add_argument("--calls", type=int, default=20, help="calls to look ahead (default 20)")
    parser.add_argument("--refit", action="store_true", help="fit the weights for each project on the others alone")
    parser.add_argument("--plot", metavar="FILE", help="write the table as an SVG picture")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    paths = find(options.transcripts)
    if not paths:
        print("No transcripts found (.jsonl, .jsonl.gz). Name files, or folders that hold them.", file=sys.stderr)
        return 1
    report = measure(paths, tokens=options.tokens, calls=options.calls, refit=options.refit, clock=process_time)
    if options.plot is not None:
        with open(options.plot, "w", encoding="utf-8") as file:
            file.write(picture(report))
    if options.json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        print("\n".join(lines(report, Paint(sys.stdout.isatty(), None))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
