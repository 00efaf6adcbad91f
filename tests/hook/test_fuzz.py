"""Mutated payloads and transcripts: an answer that the client accepts or nothing, exit code 0 or 1, and no traceback."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from keepfast.agents.claude import hooks as claude_code
from keepfast.hook.main import respond
from keepfast.present.environment import Environment
from tests.agents.claude.test_usage import TOOL_RESULT, line
from tests.equipment.judge import judge

from .background import Inline
from .ground import PAYLOADS, SESSION, Ground

SEEDS, SAMPLE, CAMPAIGN, STARTED = range(5), (100, 300), (2_000, 24_500), 25
"""Mutations with notes and briefs (the first seed), and without: a campaign has 100,000 in all."""
ODD: list[Any] = [
    None, True, False, 0, -1, 1e308, 10**400, "", "\0", "\ud800", "/", "..", "x" * 70_000, "한글", [], {}, [[]], {"": None},
    {"command": "rm -rf ."}, {"file_path": "/\n"}, ["/a"], "PreToolUse", "Stop", "SessionEnd", "PreCompact", "clear",
]  # fmt: skip
COMMANDS = [
    "rm -rf src",
    "echo x > a.txt",
    "git reset --hard",
    "ls",
    "cat <<EOF\n$(rm x)\nEOF",
    "find . -delete",
    "$X",
    "'",
]


def recorded() -> list[dict[str, Any]]:
    found = []
    for path in sorted(PAYLOADS.glob("*.json")):
        found += [sample["payload"] for sample in json.loads(path.read_text())["samples"]]
    return found


class Mutator:
    def __init__(self, seed: int, ground: Ground) -> None:
        self.chance, self.ground, self.samples = random.Random(seed), ground, recorded()

    def payload(self) -> bytes:
        """A recorded payload of this machine, with some of its values, keys or bytes changed."""
        chance = self.chance
        told = json.loads(json.dumps(chance.choice(self.samples)))
        told.update(cwd=str(self.ground.project), transcript_path=str(self.ground.transcript), session_id=SESSION)
        if "command" in told.get("tool_input", {}):
            told["tool_input"]["command"] = chance.choice(COMMANDS)
        for _ in range(chance.choice((0, 1, 1, 2, 5))):
            self._change(told)
        try:
            text = json.dumps(told, ensure_ascii=chance.random() < 0.5).encode()
        except UnicodeEncodeError:
            text = json.dumps(told).encode()
        return self._bytes(text) if chance.random() < 0.4 else text

    def tail(self) -> bytes:
        """A transcript whose lines are torn, mixed up or not what they seem."""
        chance = self.chance
        parts = [line(chance.choice((5, 700_000, 880_000, 10**30)), text="y" * chance.choice((0, 10, 90_000)))]
        parts += chance.choices(
            [TOOL_RESULT % b"x", b"\n", b"{}\n", b'{"type":"assistant","usage":1}\n', parts[0],
             b'{"type":"system","subtype":"compact_boundary","compactMetadata":{"postTokens":"x"}}\n'],
            k=chance.randrange(6),
        )  # fmt: skip
        chance.shuffle(parts)
        return self._bytes(b"".join(parts))

    def _change(self, told: Any) -> None:
        chance = self.chance
        places: list[tuple[Any, Any]] = []
        stack = [told]
        while stack:
            value = stack.pop()
            keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
            for key in keys:
                places.append((value, key))
                stack.append(value[key])
        if not places:
            return
        holder, key = chance.choice(places)
        if chance.random() < 0.3:
            del holder[key]
        else:
            holder[key] = deepcopy(chance.choice(ODD))  # a later change must not reach into the list itself

    def _bytes(self, text: bytes) -> bytes:
        chance, changed = self.chance, bytearray(text)
        for _ in range(chance.choice((1, 1, 2, 8))):
            at = chance.randrange(len(changed) + 1)
            kind = chance.randrange(5)
            if kind == 0:
                changed[at : at + 1] = bytes([chance.randrange(256)])
            elif kind == 1:
                del changed[at : at + chance.choice((1, 10, 1000))]
            elif kind == 2:
                changed[at:at] = chance.choice((b'"', b"\\", b"{", b"]", b"\0", b"\xff", b"9" * 5000, b"[" * 3000))
            elif kind == 3:
                del changed[at:]
            else:
                changed += changed[at : at + 2000]
        return bytes(changed)


@pytest.fixture
def machine(started: Ground, monkeypatch: pytest.MonkeyPatch) -> Ground:
    """Nothing is adopted but the project that is one already, wherever a mutated path leads."""
    started.configure(adopt="never", store={"durable": False})
    monkeypatch.chdir(started.base)
    return started


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_payload_and_no_transcript_is_too_odd(machine: Ground, request: pytest.FixtureRequest, seed: int) -> None:
    environment = Environment({key.encode(): value.encode() for key, value in machine.variables.items()})
    mutator, codes = Mutator(seed, machine), {0: 0, 1: 0}
    (machine.folder / "notices").unlink(missing_ok=True)
    if seed:
        machine.configure(
            adopt="never",
            store={"durable": False},
            checkpoint={"mode": "summary"},
            hooks={"auto_resume_on_start": False},
        )
    for number in range((CAMPAIGN if request.config.getoption("campaign") else SAMPLE)[seed > 0]):
        if number % 2:
            machine.transcript.write_bytes(mutator.tail())
        payload = mutator.payload()
        if number % 50 == 0:
            (machine.project / "a.txt").write_text(str(number))

        said, problem, code = respond(claude_code, payload, environment, Inline(), {})

        try:
            name = claude_code.read(payload, {}).name
        except ValueError:
            name = ""
        judge(name, said, code)
        assert "\n" not in problem
        assert not problem.partition(":")[0].endswith(("Error", "Exception")), (problem, payload)
        assert bool(problem) == bool(code)
        codes[code] += 1
    assert min(codes.values()) > 0
    assert [notice for notice in machine.notices() if notice.startswith("failed")] == []


def test_as_a_process_it_is_no_different(machine: Ground) -> None:
    mutator = Mutator(len(SEEDS), machine)
    for _ in range(STARTED):
        machine.transcript.write_bytes(mutator.tail())

        done = machine.send(mutator.payload(), cwd=machine.base)

        assert done.returncode in (0, 1)
        assert b"Traceback" not in done.stderr
        assert done.stderr.count(b"\n") == done.returncode
        if done.stdout.startswith(b"{"):
            json.loads(done.stdout)
    assert Path(machine.project / ".keepfast").exists()
