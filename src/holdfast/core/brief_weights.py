"""How much each sign counts in the ranking of blocks.

Written by `tools/fit_brief.py` from 507 moments of 50 recorded sessions of 2 projects; each project counts
the same.
What `holdfast eval --refit` prints is measured with weights that the judged project had no part in.
"""

WEIGHTS = {
    "touched": 0.81,
    "near": 0.26,
    "read": 1.11,
    "narrow": -0.04,
    "said": 0.20,
    "length": 0.22,
    "touched_now": 0.47,
    "named": 0.25,
    "last_rare": 0.10,
    "named_open": 1.71,
    "imports": 0.42,
    "pointed": 1.13,
    "overs": 1.05,
    "near_long": 0.49,
    "defines": 0.92,
    "removed": 0.27,
    "small": 1.58,
    "constant": -6.73,
}
