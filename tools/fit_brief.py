"""Fit the ranking's weights on recorded sessions, and print them as `resume/weights.py`.

Usage: python tools/fit_brief.py FOLDER... > src/keepfast/resume/weights.py
"""

from __future__ import annotations

import sys

from keepfast.resume import recall_score as recall
from keepfast.resume import weight_fit as fitting
from keepfast.resume.measurement import find


def main(folders: list[str]) -> None:
    rows: list[fitting.Sample] = []
    moments = 0
    paths = find(folders)
    for path, project in paths:
        for cut in recall.cuts(path, project, every=fitting.SAMPLE_EVERY):
            rows += fitting.samples(cut)
            moments += 1
    fitted = fitting.fit(rows)
    projects = len({project for _, project in paths})
    print(f'''"""How much each sign counts in the ranking of blocks.

Written by `tools/fit_brief.py` from {moments} moments of {len(paths)} recorded sessions of {projects} projects; each project counts
the same.
What `keepfast eval --refit` prints is measured with weights that the judged project had no part in.
"""

WEIGHTS = {{''')
    for name, value in fitted.items():
        print(f'    "{name}": {value:.2f},')
    print("}")


if __name__ == "__main__":
    main(sys.argv[1:])
