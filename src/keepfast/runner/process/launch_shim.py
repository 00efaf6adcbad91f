"""Starts a shim under `python -I -S -B`; small, because a started file is compiled every time."""

import sys

sys.path[:0] = [(__file__.rpartition("/")[0] or ".") + "/../../.."]

from keepfast.runner.process.shim import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
