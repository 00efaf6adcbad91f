"""Programs from npm that check MCP servers, and a Node that is new enough for them; fetched once, outside the tree."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import warnings
from pathlib import Path

import pytest

PACKAGES = ("@modelcontextprotocol/inspector", "@modelcontextprotocol/conformance")
NODE = "node-{system}-{machine}"
NODE_SERIES = "24"
MACHINES = {"x86_64": "x64", "AMD64": "x64", "aarch64": "arm64", "arm64": "arm64"}
PATIENCE = 600


def bin_folder() -> tuple[Path, Path]:
    """The folder of the programs, and that of Node. Skips loudly where npm does not give them."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "keepfast-tests"
    base.mkdir(parents=True, exist_ok=True)
    node = NODE.format(system=platform.system().lower(), machine=MACHINES.get(platform.machine(), platform.machine()))
    with open(base / "mcp.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test workers ask at the same time
        _install(base / "mcp-node", [f"{node}@{NODE_SERIES}"], f"node_modules/{node}/bin/node")
        _install(base / "mcp-tools", list(PACKAGES), "node_modules/.bin/conformance")
    return base / "mcp-tools/node_modules/.bin", base / f"mcp-node/node_modules/{node}/bin"


def run(program: str, *words: str, home: Path, cwd: Path, timeout: float = 180) -> subprocess.CompletedProcess[str]:
    programs, node = bin_folder()
    return subprocess.run(
        [programs / program, *words],
        env={"HOME": str(home), "PATH": f"{node}:/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def _install(folder: Path, packages: list[str], wanted: str) -> None:
    if (folder / wanted).exists():
        return
    npm = shutil.which("npm")
    reason = "npm is not installed"
    if npm is not None:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            done = subprocess.run(
                [npm, "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(folder), *packages],
                capture_output=True,
                text=True,
                timeout=PATIENCE,
            )
            reason = done.stderr.strip()[-300:]
        except subprocess.TimeoutExpired:
            reason = f"npm took longer than {PATIENCE} s"
    if not (folder / wanted).exists():
        text = f"THE MCP SERVER WAS NOT TESTED BY {', '.join(packages)}: {reason}"
        warnings.warn(text, stacklevel=1)
        pytest.skip(text)
