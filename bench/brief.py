"""The brief: time to read transcripts of up to 100 MB, to read appended lines, and to build; memory at the end.

Usage: python -m bench.brief [MEGABYTES...]
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import process_time

SIZES = (1, 10, 100)
GOAL_MEDIAN, GOAL_P95 = 50.0, 100.0  # ms, after parsing
RUNS = 30
WORDS = "order parcel route invoice ticket sensor recipe batch signal tariff cargo ledger".split()


def main() -> int:
    if len(sys.argv) == 3 and sys.argv[1] == "--one":
        print(json.dumps(one(Path(sys.argv[2]))))
        return 0
    sizes = [int(word) for word in sys.argv[1:]] or SIZES
    print("transcript    read   go on   median     95 %   memory  tokens")
    missed = False
    for megabytes in sizes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "session.jsonl"
            write(path, megabytes << 20)
            # A process of its own: memory is a high-water mark.
            words = [sys.executable, "-m", "bench.brief", "--one", str(path)]
            done = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        print(
            f"{megabytes:6} MB {done['read']:7.0f} {done['again']:7.1f} {done['median']:8.1f} {done['p95']:8.1f}"
            f" {done['memory']:5.0f} MB {done['tokens']:7}"
        )
        missed = missed or done["median"] > GOAL_MEDIAN or done["p95"] > GOAL_P95 or done["tokens"] > 5_000
    print(
        f"processor time in ms; goals: median {GOAL_MEDIAN:.0f}, 95 % {GOAL_P95:.0f}: {'MISSED' if missed else 'PASS'}"
    )
    return int(missed)


def one(path: Path) -> dict[str, float]:
    from keepfast.agents import transcript
    from keepfast.resume import brief
    from keepfast.resume import extractor as notes
    from keepfast.secrets.redaction import redact

    started = process_time()
    conversation = transcript.read(path)
    read = process_time() - started
    with path.open("ab") as file:
        file.write(json.dumps({"type": "user", "uuid": "z", "message": {"content": "go on"}}).encode() + b"\n")
    started = process_time()
    conversation = transcript.read(path, conversation)
    again = process_time() - started
    times = []
    for _ in range(RUNS):
        started = process_time()
        built = brief.build(notes.take(conversation), conversation.files.newest_first(), redact=redact)
        times.append((process_time() - started) * 1000)
    times.sort()
    return {
        "read": read * 1000,
        "again": again * 1000,
        "median": times[RUNS // 2],
        "p95": times[int(RUNS * 0.95)],
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "tokens": built.tokens,
    }


def write(path: Path, size: int) -> None:
    """A session that reads and edits twenty modules over and over."""
    draw = random.Random(1)
    files = {f"/w/src/{word}{at}.py": module(draw, word) for word in WORDS for at in range(2)}
    number, written, parent = 0, 0, None
    with path.open("w") as file:
        while written < size:
            for entry in step(draw, files, number):
                number += 1
                entry |= {"uuid": f"u{number}", "parentUuid": parent, "cwd": "/w", "gitBranch": "main"}
                parent = entry["uuid"]
                written += file.write(json.dumps(entry) + "\n")


def module(draw: random.Random, word: str) -> str:
    return "\n\n".join(
        [
            f"def {draw.choice(WORDS)}_{at}({word}):\n    value = {word}.{draw.choice(WORDS)}\n    return value * {at}"
            for at in range(120)
        ]
    )


def step(draw: random.Random, files: dict[str, str], number: int) -> list[dict[str, object]]:
    path = draw.choice(sorted(files))
    text = files[path]
    if number % 400 == 0:
        return [
            {"type": "user", "message": {"role": "user", "content": f"Please look at {path} again, step {number}."}}
        ]
    identity = f"t{number}"
    at = draw.randrange(text.count("\n"))
    old = text.split("\n")[at]
    result: dict[str, object]
    if number % 3 == 0 and old:
        files[path] = text.replace(old, f"{old}  # {number}", 1)
        name, arguments = "Edit", {"file_path": path, "old_string": old, "new_string": f"{old}  # {number}"}
        hunk = {"oldStart": at + 1, "oldLines": 1, "newStart": at + 1, "newLines": 1}
        result = {
            "filePath": path,
            "oldString": old,
            "newString": arguments["new_string"],
            "originalFile": text,
            "structuredPatch": [hunk],
        }
    else:
        lines = text.split("\n")[at : at + 80]
        name, arguments = "Read", {"file_path": path}
        result = {
            "type": "text",
            "file": {
                "filePath": path,
                "content": "\n".join(lines),
                "startLine": at + 1,
                "numLines": len(lines),
                "totalLines": text.count("\n") + 1,
            },
        }
    use = {"type": "tool_use", "id": identity, "name": name, "input": arguments}
    done = {"type": "tool_result", "tool_use_id": identity, "content": "ok"}
    return [
        {
            "type": "assistant",
            "message": {"id": f"m{number}", "content": [{"type": "text", "text": f"Now {path}."}, use]},
        },
        {"type": "user", "message": {"content": [done]}, "toolUseResult": result},
    ]


if __name__ == "__main__":
    sys.exit(main())
