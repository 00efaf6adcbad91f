"""How much each sign counts; fitted by `tools/fit_brief.py`."""

CONSTANT = -5.59
WEIGHTS = {"touched": 0.28, "over": 0.23, "near": 0.46, "read": 1.65, "narrow": 0.91, "said": 0.5}
