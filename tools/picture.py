"""Draws docs/demo.svg from a real run: the same commands as `make demo`, on a terminal of its own.

Run it with `python tools/picture.py`; nothing in the picture is written by hand.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent
LINES, COLUMNS = 46, 100
WIDTH, HEIGHT, LEFT, TOP = 8.4, 18, 18, 46
COLOURS = {"31": "#e06c75", "32": "#98c379", "33": "#e5c07b", "34": "#61afef", "35": "#c678dd", "36": "#56b6c2"}
SEQUENCE = re.compile(r"\x1b\[([0-9;]*)m")
SHOWN = ("# A project", "# An agent", "# Every state", "# Everything comes back")
"""The parts of the demo that fit into one screen."""


def record() -> str:
    """Run the demo on a pseudo-terminal and return what it printed."""
    parent, child = pty.openpty()
    process = subprocess.Popen([sys.executable, str(HERE / "demo.py")], stdin=child, stdout=child, stderr=child)
    os.close(child)
    parts = []
    while True:
        try:
            part = os.read(parent, 65536)
        except OSError:
            break
        if not part:
            break
        parts.append(part)
    if process.wait():
        raise SystemExit(b"".join(parts).decode("utf-8", "replace"))
    return re.sub(r"/tmp/keepfast-demo-\w+", "~", b"".join(parts).decode("utf-8", "replace")).replace("\r\n", "\n")


def draw(lines: list[str]) -> str:
    height = TOP + len(lines) * HEIGHT + 16
    width = int(2 * LEFT + COLUMNS * WIDTH)
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="14" fill="#d7dae0">',
        f'<rect width="{width}" height="{height}" rx="10" fill="#22262e"/>',
        *[
            f'<circle cx="{22 + 20 * n}" cy="22" r="6" fill="{c}"/>'
            for n, c in enumerate(("#e06c75", "#e5c07b", "#98c379"))
        ],
    ]
    for number, line in enumerate(lines):
        body.append(f'<text x="{LEFT}" y="{TOP + number * HEIGHT + 13}" xml:space="preserve">{_spans(line)}</text>')
    return "\n".join([*body, "</svg>", ""])


def _spans(line: str) -> str:
    result, style = [], ""
    for number, part in enumerate(SEQUENCE.split(line)):
        if number % 2:
            codes = part.split(";")
            style = " ".join(
                [f'fill="{COLOURS[code]}"' for code in codes if code in COLOURS]
                + ['font-weight="bold"' for code in codes if code == "1"]
                + ['opacity="0.6"' for code in codes if code == "2"]
            )
        elif part:
            result.append(f"<tspan {style}>{escape(part)}</tspan>" if style else escape(part))
    return "".join(result)


def main() -> None:
    text = record()
    shown: list[str] = []
    keep = False
    for line in text.split("\n"):
        plain = SEQUENCE.sub("", line)
        if plain.startswith("# "):
            keep = plain.startswith(SHOWN)
        if keep and not plain.startswith(("Store ", "Workers ", "Protecting ", "Run `keepfast save`")):
            shown.append(line[:400])
    target = HERE.parent / "docs" / "demo.svg"
    target.write_text(draw(shown[:LINES]))
    print(f"Wrote {target} with {len(shown[:LINES])} lines.")


main()
