"""After a restore of files and conversation the real client goes on from that message, with that history and no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .bench import Bench
from .endpoint import call, say, use

both = pytest.mark.parametrize("client", ["newest_client", "older_client"], indirect=True)
FIRST, SECOND, THIRD = "remember the word walnut", "and now forget about hazelnut", "which word was it"


def two_turns(bench: Bench) -> str:
    """Two turns, each of which writes a file; returns the session."""
    path = str(bench.project / "a.txt")
    bench.script(
        call(use("Write", file_path=path, content="one\n")), say("Walnut it is."),
        call(use("Bash", command=f"printf 'two\\n' > {path!r}", description="write")), say("Hazelnut is forgotten."),
    )  # fmt: skip
    first = bench.run(FIRST)
    bench.settle()
    bench.run(SECOND, "--resume", first.session)
    bench.settle()
    return first.session


def version_with(bench: Bench, text: str) -> str:
    """The newest checkpoint in which the file has this content."""
    for one in bench.checkpoints():
        if bench.keepfast("cat", one["version"], "a.txt", check=False).stdout == text:
            return str(one["version"])
    raise AssertionError(f"no checkpoint holds {text!r}")


@both
def test_both_come_back_and_the_client_goes_on_from_there(hooked: Bench) -> None:
    old = two_turns(hooked)
    version = version_with(hooked, "one\n")
    transcript = next(path for path in hooked.transcripts() if path.stem == old)
    before = transcript.read_bytes()

    done = hooked.keepfast("restore", "--both", "-y", version, "--json")

    made = json.loads(done.stdout)["conversation"]
    assert (hooked.project / "a.txt").read_text() == "one\n"
    assert made["command"] == ["claude", "--resume", made["session"]]
    assert Path(made["path"]).stat().st_mode & 0o777 == 0o600
    hooked.endpoint.requests.clear()
    hooked.script(say("Walnut."))
    turn = hooked.run(THIRD, *made["command"][1:])
    assert turn.code == 0, turn
    assert turn.session == made["session"]
    seen = hooked.endpoint.main_requests()[-1].texts()
    assert FIRST in seen and "Walnut it is." in seen and THIRD in seen
    assert SECOND not in seen and "Hazelnut is forgotten." not in seen
    assert transcript.read_bytes() == before


def test_launch_starts_the_client_there(hooked: Bench) -> None:
    two_turns(hooked)
    version = version_with(hooked, "one\n")
    program = hooked.bin / "claude"
    program.write_text(f'#!/bin/sh\nexec "{hooked.client.path}" -p "{THIRD}" "$@"\n')
    program.chmod(0o755)
    hooked.endpoint.requests.clear()
    hooked.script(say("Walnut it was."))

    done = hooked.keepfast("restore", "--both", "-y", version, "--launch")

    assert "Walnut it was." in done.stdout
    seen = hooked.endpoint.main_requests()[-1].texts()
    assert FIRST in seen and THIRD in seen
    assert SECOND not in seen


def test_it_goes_on_in_another_home_after_export_and_import(
    hooked: Bench, make_bench: Callable[..., Bench], tmp_path: Path
) -> None:
    old = two_turns(hooked)
    version = version_with(hooked, "one\n")
    (tmp_path / "words").write_text("a passphrase of some length\n")
    bundle = str(tmp_path / "bundle.keepfast")
    hooked.keepfast(
        "export", version, bundle, "--with-secrets", "--passphrase-file", str(tmp_path / "words")
    )  # fmt: skip
    other = make_bench("elsewhere", project="work/other place", git=False)

    other.keepfast("import", bundle, "--into", ".", "--passphrase-file", str(tmp_path / "words"))
    made = json.loads(other.keepfast("restore", "--both", "-y", "latest", "--json").stdout)["conversation"]

    assert (other.project / "a.txt").read_text() == "one\n"
    assert made["session"] != old
    assert made["folder"] == str(other.project)
    assert str(hooked.base) not in Path(made["path"]).read_text()
    other.script(say("Walnut."))
    turn = other.run(THIRD, "--resume", made["session"])
    assert turn.code == 0, turn
    seen = other.endpoint.main_requests()[-1]
    assert FIRST in seen.texts() and "Walnut it is." in seen.texts() and SECOND not in seen.texts()
    assert str(other.project / "a.txt") in json.dumps(seen.messages)


def test_without_the_passphrase_the_conversation_stays_closed(
    hooked: Bench, make_bench: Callable[..., Bench], tmp_path: Path
) -> None:
    two_turns(hooked)
    (tmp_path / "words").write_text("a passphrase of some length\n")
    bundle = str(tmp_path / "bundle.keepfast")
    hooked.keepfast("export", "latest", bundle, "--with-secrets", "--passphrase-file", str(tmp_path / "words"))
    other = make_bench("elsewhere", git=False)
    other.keepfast("import", bundle, "--into", ".")

    refused = other.keepfast("restore", "--both", "-y", "latest", check=False)

    assert refused.returncode == 12, refused
    assert not (other.project / "a.txt").exists()
    other.keepfast("key", "import", bundle, "--passphrase-file", str(tmp_path / "words"))
    other.keepfast("restore", "--both", "-y", "latest")
    assert (other.project / "a.txt").read_text() == "two\n"
