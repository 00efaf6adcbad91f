"""Fetching the real client by its package name, through npm, into a folder outside the tree."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import NamedTuple

SERIES = "2.1."
OLDER = "2.1.197"
"""What npm picks for older Node releases: thirty events instead of thirty-three, other transcript types."""

PACKAGE = "@anthropic-ai/claude-code-{system}-{machine}"
MACHINES = {"x86_64": "x64", "AMD64": "x64", "aarch64": "arm64", "arm64": "arm64"}
NPM_PATIENCE = 300


class Client(NamedTuple):
    """A client that can be started, and the version it says it is."""

    path: Path
    version: str


class Unavailable(Exception):
    """There is no npm, or it does not answer, and nothing was fetched before."""


def newest() -> Client:
    """The newest release of the series; the newest one fetched before, where npm does not answer."""
    try:
        return fetch(_newest_published())
    except Unavailable:
        client = fetched()
        if client is None:
            raise
        return client


def fetched() -> Client | None:
    """The newest release that was fetched before; npm is not asked."""
    versions = [path.name.removeprefix("claude-") for path in cache().glob(f"claude-{SERIES}*")]
    return fetch(max(versions, key=_order)) if versions else None


def fetch(version: str) -> Client:
    """That release, fetched once and kept. Raises `Unavailable` if npm does not give it."""
    folder = cache() / f"claude-{version}"
    with open(cache() / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test workers ask at the same time
        if not (folder / "claude").exists():
            _unpack(version, folder)
    client = Client(folder / "claude", version)
    said = subprocess.run(
        [client.path, "--version"], env=_environment(), capture_output=True, text=True, timeout=60
    ).stdout
    if said.split()[:1] != [version]:
        raise AssertionError(f"{client.path} says that it is {said!r}, not {version}.")
    return client


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "keepfast-tests"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _newest_published() -> str:
    versions: list[str] = json.loads(_npm("view", _package(), "versions", "--json"))
    return max((version for version in versions if version.startswith(SERIES)), key=_order)


def _unpack(version: str, folder: Path) -> None:
    coming = folder.with_name(f".{folder.name}.{os.getpid()}")
    coming.mkdir(exist_ok=True)
    try:
        _npm("pack", "--silent", f"{_package()}@{version}", "--pack-destination", str(coming))
        (archive,) = coming.glob("*.tgz")
        with tarfile.open(archive) as packed:
            member = packed.extractfile("package/claude")
            assert member is not None, f"{archive.name} holds no client"
            with open(coming / "claude", "wb") as file:
                shutil.copyfileobj(member, file, 1 << 20)
        (coming / "claude").chmod(0o755)
        archive.unlink()
        coming.rename(folder)
    finally:
        shutil.rmtree(coming, ignore_errors=True)


def _npm(*arguments: str) -> str:
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("npm is not installed.")
    try:
        done = subprocess.run([npm, *arguments], capture_output=True, text=True, timeout=NPM_PATIENCE)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"npm {arguments[0]} took longer than {NPM_PATIENCE} s.") from None
    if done.returncode:
        raise Unavailable(f"npm {arguments[0]} failed: {done.stderr.strip()[-300:]}")
    return done.stdout


def _package() -> str:
    return PACKAGE.format(
        system=platform.system().lower(), machine=MACHINES.get(platform.machine(), platform.machine())
    )


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _environment() -> dict[str, str]:
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent", "DISABLE_AUTOUPDATER": "1"}
