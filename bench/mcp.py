"""The MCP server: start-up, memory, and calls, over a real process's streams: `python -m bench.mcp`."""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.types import CallToolResult

from .report import columns

FILES = 300
TOOLS: dict[str, dict[str, Any]] = {
    "checkpoint_list": {},
    "checkpoint_show": {},
    "checkpoint_diff": {"old": "v1"},
    "checkpoint_search": {"text": "file 7"},
    "recall": {"what": "function_250"},
    "checkpoint_restore_preview": {"reference": "v1"},
    "checkpoint_save": {"summary": "bench"},
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.mcp", description=__doc__)
    parser.add_argument("--starts", type=int, default=5, help="how often the server is started")
    parser.add_argument("--calls", type=int, default=1000, help="calls one after another")
    parser.add_argument("--parallel", type=int, default=50, help="calls at once")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="keepfast-bench-") as base:
        server = prepare(Path(base))
        asyncio.run(measure(server, options.starts, options.calls, options.parallel))
    return 0


def prepare(base: Path) -> StdioServerParameters:
    """A project of small files with two checkpoints, and how its server is started."""
    project = base / "project"
    project.mkdir()
    environment = {"HOME": str(base), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    for number in range(FILES):
        text = f"# file {number}\n" + f"def function_{number}(value):\n    return value + {number}\n\n" * 20
        (project / f"module_{number}.py").write_text(text)

    def keepfast(*words: str) -> None:
        subprocess.run(
            [sys.executable, "-m", "keepfast", *words], cwd=project, env=environment, check=True, stdout=-3, stderr=-3
        )

    keepfast("init")
    keepfast("save", "-m", "first")
    (project / "module_7.py").write_text("changed = True\n")
    keepfast("save", "-m", "second")
    return StdioServerParameters(
        command=sys.executable, args=["-m", "keepfast", "-C", str(project), "mcp"], env=environment
    )


async def measure(server: StdioServerParameters, starts: int, calls: int, parallel: int) -> None:
    waits, cpus, memories = [], [], []
    for _ in range(starts):
        began = time.perf_counter()
        async with Client(server) as client:
            waits.append(time.perf_counter() - began)
            await client.list_tools()
            cpu, memory = used(os.getpid())
            cpus.append(cpu)
            memories.append(memory)
    print(
        f"Start to initialized: wall {milliseconds(waits)} ms, CPU {milliseconds(cpus)} ms, {median(memories) / 1e6:.0f} MB"
    )
    async with Client(server) as client:
        await one_after_another(client, calls)
        await at_once(client, parallel)


async def one_after_another(client: Client, calls: int) -> None:
    times: dict[str, list[float]] = {tool: [] for tool in TOOLS}
    errors = 0
    names = list(TOOLS)
    for number in range(calls):
        tool = names[number % len(names)]
        began = time.perf_counter()
        errors += failed(await client.call_tool(tool, TOOLS[tool]))
        times[tool].append(time.perf_counter() - began)
    lines = [["tool", "calls", "median ms", "p95 ms"]]
    for tool, found in times.items():
        if len(found) > 1:
            lines.append(
                [tool, str(len(found)), f"{median(found) * 1e3:.1f}", f"{quantiles(found, n=20)[-1] * 1e3:.1f}"]
            )
    print(columns(lines))
    _, memory = used(os.getpid())
    print(f"{calls:,} calls one after another: {errors} errors, {memory / 1e6:.0f} MB resident afterwards")


async def at_once(client: Client, parallel: int) -> None:
    names = list(TOOLS)
    began = time.perf_counter()
    answers = await asyncio.gather(
        *[client.call_tool(tool, TOOLS[tool]) for tool in [names[number % len(names)] for number in range(parallel)]]
    )
    took = time.perf_counter() - began
    print(f"{parallel} calls at once: {sum(map(failed, answers))} errors, {took:.2f} s in all")


def failed(result: object) -> bool:
    return not isinstance(result, CallToolResult) or bool(result.is_error)


def used(parent: int) -> tuple[float, int]:
    """CPU seconds and resident bytes of the one child that is a server."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent and b"keepfast" in (folder / "cmdline").read_bytes():
                ticks = int(fields[11]) + int(fields[12])
                return ticks / os.sysconf("SC_CLK_TCK"), int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            continue
    return 0.0, 0


def milliseconds(values: list[float]) -> str:
    return f"{median(values) * 1e3:.0f} ({min(values) * 1e3:.0f}..{max(values) * 1e3:.0f})"


if __name__ == "__main__":
    sys.exit(main())
