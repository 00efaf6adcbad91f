"""From `/clear` to the brief in the real client, after a session with a transcript of 100 MB.

Usage: python -m bench.resume [MEGABYTES]
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from tests.clients.claude.client import Unavailable, newest
from tests.clients.claude.endpoint import call, say, use

from .brief import write
from .client import talking
from .measure import Failed
from .report import columns

if TYPE_CHECKING:
    from tests.clients.claude.bench import Bench

MEGABYTES, ROUNDS, GOAL = 100, 3, 10.0
OPENING = "Resumed from checkpoint:"
TIMED = """#!/bin/sh
started=$(date +%s.%N)
"$@"
code=$?
echo "$started $(date +%s.%N)" >> "$TIMES"
exit $code
"""


def main() -> int:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else MEGABYTES
    try:
        rounds = measure_resume(megabytes)
    except Failed as problem:
        print(problem, file=sys.stderr)
        return 1
    print(table(megabytes, rounds))
    return int(max(one["delivered"] for one in rounds) > GOAL)


def measure_resume(megabytes: int, rounds: int = ROUNDS) -> list[dict[str, float]]:
    """Seconds of each round: hooks of the start, and from their start to the request that holds the brief."""
    try:
        client = newest()
    except Unavailable as reason:
        raise Failed(f"The real client cannot be had: {reason}") from None
    from tests.clients.claude.bench import Bench

    found = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="bench-resume-", ignore_cleanup_errors=True) as folder:
            bench = Bench(Path(folder), client)
            try:
                _hooks(bench, Path(folder) / "times")
                found.append(_round(bench, megabytes, Path(folder) / "times"))
            finally:
                bench.close()
    return found


def _hooks(bench: Bench, times: Path) -> None:
    """Our hooks, with those of a session's start put on the clock."""
    bench.keepfast("init")
    bench.keepfast("install", "claude")
    settings = json.loads(bench.settings_path.read_text())
    timed = bench.bin / "timed"
    timed.write_text(TIMED)
    timed.chmod(0o755)
    for entry in settings["hooks"]["SessionStart"]:
        for hook in entry["hooks"]:
            hook["command"] = f"'{timed}' {hook['command']}"
    bench.settings(settings)
    bench.variables["TIMES"] = str(times)


def _round(bench: Bench, megabytes: int, times: Path) -> dict[str, float]:
    read = call(use("Read", file_path=bench.path("README.md")))
    bench.script(read, say("README.md is read."), say("Going on."))
    with talking(bench) as client:
        client.send("read the README")
        client.result()
        bench.settle()
        _lengthen(bench.transcripts()[-1], megabytes << 20)
        times.write_text("")
        client.send("/clear")
        client.send("go on please")
        found = bench.wait_for(lambda: [one for one in bench.endpoint.requests if "go on please" in one.raw])
    bench.settle()
    if not found or OPENING not in found[0].raw:
        raise Failed("The request after the clear does not hold the brief.")
    hooks = [tuple(map(float, line.split())) for line in times.read_text().splitlines()]
    starts = [started for started, _ in hooks]
    return {"hook": max(ended - started for started, ended in hooks), "delivered": found[0].at - min(starts)}


def _lengthen(transcript: Path, size: int) -> None:
    """Let the session have done much more before its last words: the chain of its entries stays whole."""
    own = [json.loads(line) for line in transcript.read_text().splitlines()]
    before = transcript.with_suffix(".before")
    write(before, size)
    with before.open("rb") as file:
        file.seek(-4096, 2)
        last = json.loads(file.read().splitlines()[-1])["uuid"]
    heads = [entry for entry in own if entry.get("uuid") and not entry.get("parentUuid")]
    for entry in heads:
        entry["parentUuid"] = last
    with before.open("a") as file_again:
        file_again.writelines(json.dumps(entry) + "\n" for entry in own)
    # The same file: the client goes on appending to it.
    with before.open("rb") as source, transcript.open("r+b") as target:
        while part := source.read(1 << 20):
            target.write(part)
    before.unlink()


def table(megabytes: int, rounds: list[dict[str, Any]]) -> str:
    rows = [["transcript", "rounds", "hooks of the start, s", "start → request with the brief, s", "goal", "verdict"]]
    hooks, delivered = [one["hook"] for one in rounds], [one["delivered"] for one in rounds]
    verdict = "PASS" if max(delivered) < GOAL else "MISS"
    times = [f"{median(of):.2f} ({min(of):.2f}..{max(of):.2f})" for of in (hooks, delivered)]
    rows.append([f"{megabytes} MB", str(len(rounds)), *times, f"< {GOAL:g}", verdict])
    return f"From /clear to the brief, in the real client\n{columns(rows)}"


if __name__ == "__main__":
    sys.exit(main())
