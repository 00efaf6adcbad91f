"""Fit the ranking's weights on recorded sessions, and print them as `resume/weights.py`.

Usage: python tools/briefs/fit.py FOLDER... > src/keepfast/resume/weights.py
"""

from __future__ import annotations

import sys

import recall_score
import weight_fit
from measurement import find


def main(folders: list[str]) -> None:
    rows: list[weight_fit.Sample] = []
    moments = 0
    paths = find(folders)
    for path, project in paths:
        for cut in recall_score.cuts(path, project, every=weight_fit.SAMPLE_EVERY):
            rows += weight_fit.samples(cut)
            moments += 1
    fitted = weight_fit.fit(rows)
    projects = len({project for _, project in paths})
    print(f'''"""How much each sign counts in the ranking of blocks.

Written by `tools/briefs/fit.py` from {moments} moments of {len(paths)} recorded sessions of {projects} projects; each project
counts the same.
What `make eval` prints is measured with weights that the judged project had no part in.
"""

WEIGHTS = {{''')
    for name, value in fitted.items():
        print(f'    "{name}": {value:.2f},')
    print("}")


if __name__ == "__main__":
    main(sys.argv[1:])
