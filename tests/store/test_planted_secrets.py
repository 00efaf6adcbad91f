"""Forty kinds of secrets in nine places: none of them lies anywhere below the store in the clear."""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from struct import unpack, unpack_from

import pytest

from keepfast.app.wiring import build
from keepfast.model.event import Event
from keepfast.secrets.redaction import redact
from keepfast.settings import Settings
from tests.equipment.box import Box
from tests.secrets.planted_secrets import Secret, coded, halves, secrets, traces

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SEED = 20261116


def yaml(secret: Secret) -> str:
    if "\n" in secret.value:
        return f"{secret.setting}: |\n" + "".join(f"  {line}\n" for line in secret.value.split("\n"))
    return f"database:\n  host: localhost\n  {secret.setting}: {secret.value}\n"


def wrapped(secret: Secret) -> str:
    first, second = halves(secret.value)
    return f'export {secret.setting}="{first}\\\n{second}"\n'


def line_of_transcript(secret: Secret, number: int) -> str:
    return json.dumps(
        {
            "type": "user", "uuid": f"00000000-0000-4000-8000-{number:012d}", "sessionId": "s", "cwd": "/p",
            "message": {"role": "user", "content": f"the {secret.setting} is {secret.value}, use it"},
        }
    )  # fmt: skip


def command_line(secret: Secret) -> str:
    return f"env {secret.setting}={json.dumps(secret.value)} ./deploy --now"


def address(secret: Secret) -> str:
    return f"https://deploy:{secret.value.replace('/', '%2F').replace(chr(10), '%0A')}@git.example.org/project.git"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Box, list[Secret], int]:
    """Every kind in every place, saved; and how many that is."""
    box = Box(tmp_path_factory.mktemp("planted") / "home")
    assert box.call("init").code == 0
    planted = secrets(SEED)
    count = 0
    for number, secret in enumerate(planted):
        folder = f"{number:02d}"
        box.put(f"{folder}/.env", f"{secret.setting}={json.dumps(secret.value)}\n")
        box.put(f"{folder}/settings.yaml", yaml(secret))
        box.put(f"{folder}/manifest.json", json.dumps({"kind": "Secret", "data": {"x": coded(secret)}}))
        box.put(f"{folder}/deploy.sh", wrapped(secret))
        (box.project / folder / "windows.ini").write_bytes(yaml(secret).encode("utf-16"))
        count += 5
    transcript = box.home / "transcript.jsonl"
    lines = [line_of_transcript(secret, number) for number, secret in enumerate(planted)]
    transcript.write_text("".join(line + "\n" for line in lines))
    engine = build(Settings(), str(box.home / ".local/share/keepfast"), bytes(box.home), lambda: box.now)
    told = {"agent": "claude-code", "session": "s", "transcript": str(transcript)}
    outcome = engine.handle(Event(bytes(box.project), box.now, message="with a transcript", **told))  # type: ignore[arg-type]
    engine.close()
    assert outcome.checkpoint is not None and not outcome.notices
    count += len(planted)
    for secret in planted:
        for message in (command_line(secret), f"git clone {address(secret)}", coded(secret), wrapped(secret)):
            box.save("-m", message)
            count += 1
    box.call("search", "deploy")  # the index for searching is made when it is first needed
    return box, planted, count


def everything(folder: Path) -> dict[str, bytes]:
    """Every file below, and every frame of every pack as it was before it was compressed."""
    found = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for name, data in list(found.items()):
        if name.endswith(".pack"):
            table, frames, _ = unpack("<QQQ", data[-64:-40])
            for number in range(frames):
                offset, stored, _, _ = unpack_from("<QQQQ", data, table + 32 * number)
                body = data[offset + 1 : offset + stored]
                codecs: dict[int, Callable[[bytes], bytes]] = {0: bytes, 1: zlib.decompress, 2: zstd.decompress}
                found[f"{name} frame {number}"] = codecs[data[offset]](body)
    return found


def test_no_planted_secret_lies_below_the_store_in_the_clear(stored: tuple[Box, list[Secret], int]) -> None:
    box, planted, count = stored

    places = everything(box.home / ".local/share/keepfast")
    found = [
        (secret.kind, trace, name)
        for secret in planted
        for trace in traces(secret)
        for name, data in places.items()
        if trace in data
    ]

    size = sum(map(len, places.values()))
    print(f"{count} planted secrets, {len(planted)} kinds: {len(found)} in the clear in {size:,} bytes")
    assert count >= 300
    assert len(places) > 20
    assert found == []


def test_every_file_comes_back_exactly(stored: tuple[Box, list[Secret], int]) -> None:
    box, planted, _ = stored
    number, secret = 3, planted[3]

    assert box.call("cat", "latest", f"{number:02d}/.env").out == f"{secret.setting}={json.dumps(secret.value)}\n"
    assert box.call("cat", "latest", f"{number:02d}/settings.yaml").out == yaml(secret)
    assert box.call("verify").code == 0


@pytest.mark.parametrize("secret", secrets(1), ids=lambda secret: secret.kind)
def test_redaction_leaves_no_trace(secret: Secret) -> None:
    texts = [
        f"{secret.setting}={secret.value}",
        f'"{secret.setting}": {json.dumps(secret.value)},',
        json.dumps(json.dumps({secret.setting: secret.value})),
        command_line(secret),
        f"git push {address(secret)}",
        coded(secret),
        wrapped(secret),
        yaml(secret),
    ]

    for text in texts:
        left = redact(text)
        assert not [trace for trace in traces(secret) if trace.decode() in left], left
        assert "[redacted:" in left


@pytest.mark.parametrize("secret", secrets(2), ids=lambda secret: secret.kind)
def test_redacting_twice_changes_nothing_more(secret: Secret) -> None:
    once = redact(f"before {secret.setting}={secret.value} after")

    assert redact(once) == once
    assert once.startswith("before ") and once.endswith(" after")
