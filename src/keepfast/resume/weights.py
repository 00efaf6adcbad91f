"""How much each signal counts in the ranking of blocks.

Written by `tools/briefs/fit.py` from 507 moments of 50 recorded sessions of 2 projects; each project counts
the same.
What `make eval` prints is measured with weights that the judged project had no part in.
"""

WEIGHTS = {
    "touched": 0.41,
    "near": 0.26,
    "read": 0.49,
    "narrow": 0.21,
    "said": 0.14,
    "length": 0.11,
    "touched_now": 0.29,
    "named": 0.27,
    "last_rare": 0.11,
    "named_open": 1.59,
    "imports": 0.36,
    "pointed": 1.07,
    "overs": 0.64,
    "near_long": 0.41,
    "defines": 0.86,
    "removed": 0.21,
    "small": 1.14,
    "latest": 0.57,
    "read_lately": 0.88,
    "open": 0.06,
    "found": 1.00,
    "sibling": 0.40,
    "edits": 0.18,
    "constant": -5.76,
}
