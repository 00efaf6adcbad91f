"""A home of its own for each test, and two ways to run a command in it."""

from __future__ import annotations

import importlib
import io
import json
import os
import pkgutil
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import keepfast
from keepfast.present.environment import Environment

SOURCE = Path(keepfast.__file__).parents[1]
SECOND = 1_000_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86400 * SECOND
NOON = 1_772_366_400 * SECOND  # 2026-03-01T12:00:00Z


class Result(NamedTuple):
    code: int
    out: str
    err: str
    raw: bytes

    def json(self) -> Any:
        return json.loads(self.raw)


class Box:
    """`call` runs a command in this process with a clock of our own, `run` the real program."""

    def __init__(self, base: Path) -> None:
        self.base = base.resolve()
        self.home = self.base / "home"
        self.project = self.home / "project"
        self.project.mkdir(parents=True)
        self.store = self.home / ".local/share/keepfast/store"
        self.config = self.home / ".config/keepfast/config.json"
        self.variables = {"HOME": str(self.home), "PATH": os.environ["PATH"], "TZ": "UTC", "LANG": "C.UTF-8"}
        self.now = NOON

    def put(self, name: str | bytes, content: str | bytes = "") -> Path:
        path = Path(os.fsdecode(os.path.join(os.fsencode(self.project), os.fsencode(name))))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def call(self, *words: str, cwd: Path | None = None) -> Result:
        from keepfast.cli.root import run

        return self.through(run, *words, cwd=cwd)

    def through(self, run: Callable[..., int | None], *words: str, cwd: Path | None = None) -> Result:
        """Run a command in this process by that function, which must not leave it to another."""
        environment = Environment({name.encode(): value.encode() for name, value in self.variables.items()})
        streams = sys.stdin, sys.stdout, sys.stderr
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        before = os.getcwd()
        os.chdir(cwd or self.project)
        sys.stdin, sys.stdout, sys.stderr = io.StringIO(), out, err
        try:
            code = run(words, environment, lambda: self.now)
        finally:
            sys.stdin, sys.stdout, sys.stderr = streams
            os.chdir(before)
        assert code is not None, f"{words} was not understood"
        raw, said = (stream.buffer.getvalue() for stream in (out, err))
        return Result(code, raw.decode("utf-8", "replace"), said.decode("utf-8", "replace"), raw)

    def run(
        self, *words: str | bytes, cwd: Path | None = None, before: Callable[[], None] | None = None, **variables: str
    ) -> Result:
        done = subprocess.run(
            [sys.executable, "-m", "keepfast", *words],
            cwd=cwd or self.project,
            env={**self.variables, "PYTHONPATH": str(SOURCE), **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            preexec_fn=before,
            timeout=120,
        )
        return Result(
            done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"), done.stdout
        )

    def call_as(self, user: int, *words: str) -> Result:
        """The same as `call`, in a child process that has become another user. Only root may do that.

        All modules are loaded first: the other user may not be allowed to read them.
        """
        for module in pkgutil.walk_packages(keepfast.__path__, "keepfast."):
            if not module.name.endswith(("__main__", "launch")):  # those are programs
                importlib.import_module(module.name)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
                os.write(writing, json.dumps(self.call(*words)[:3]).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with open(reading, "rb") as file:
            code, out, err = json.loads(file.read())
        os.waitpid(child, 0)
        return Result(code, out, err, out.encode())

    def terminal(self, *words: str, typed: bytes = b"", **variables: str) -> bytes:
        """Run the real program on a terminal; return everything that it shows."""
        leader, follower = pty.openpty()
        child = subprocess.Popen(
            [sys.executable, "-m", "keepfast", *words],
            cwd=self.project,
            env={**self.variables, "PYTHONPATH": str(SOURCE), "TERM": "xterm", **variables},
            stdin=follower,
            stdout=follower,
            stderr=follower,
        )
        os.close(follower)
        os.write(leader, typed)
        shown = b""
        try:
            while part := os.read(leader, 65536):
                shown += part
        except OSError:
            pass  # how Linux says that nobody has the other end any more
        child.wait()
        os.close(leader)
        return shown

    def save(self, *words: str) -> str:
        """Make a checkpoint by hand; return its version."""
        result = self.call("save", "--json", *words)
        assert result.code == 0, result
        return str(result.json()["checkpoint"]["version"])

    def versions(self) -> list[str]:
        return [row["version"] for row in self.call("list", "--json").json()]

    def state(self, *folders: Path) -> dict[str, str]:
        """Every file below the folders with its digest and mode: two equal ones mean that nothing was changed.

        Locks and what can be thrown away at any time (stat cache, search index, notices) do not count.
        """
        found = {}
        for folder in folders or (self.store, self.project):
            for path in sorted(folder.rglob("*")):
                if path.name in ("lock", "compact.lock", "cache", "search.db", "notices"):
                    continue
                kind = f"{path.lstat().st_mode:o}"
                found[str(path)] = kind + (sha256(path.read_bytes()).hexdigest() if path.is_file() else "")
        return found

    def plain(self, text: str) -> str:
        """The text without what differs between two runs."""
        text = text.replace(str(self.base), "BASE")
        text = re.sub(r"cp-[0-9a-z]{26}", "cp-ID", text)
        text = re.sub(r"\((\d+ms|[\d.]+s)\)", "(Nms)", text)
        text = re.sub(r"\([\d.]+(B|KB), (\d+ms|[\d.]+s)\)", r"(N\1, Nms)", text)
        text = re.sub(r"(</?history) [0-9a-f]{10}>", r"\1 N>", text)
        text = re.sub(r'"duration_ms": \d+', '"duration_ms": N', text)
        text = re.sub(r"\b[\d.]+(B|KB) (of new contents)", r"N\1 \2", text)
        return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
