"""A checkpoint keeps the conversation up to its last whole line; every further one costs what is new."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from keepfast.agents.claude.sessions import folder as session_folder
from keepfast.agents.claude.sessions import forked, last_message
from keepfast.app.conversation import ConversationRestorer
from keepfast.model.errors import NotFound, WrongKey
from keepfast.model.event import Outcome
from keepfast.store.conversations import (
    MAX_TRANSCRIPT_LENGTH,
    PART,
    PARTS_PER_LIST,
    conversation_from_json,
    load_transcript,
)
from keepfast.store.maintenance.space import compact, forget
from keepfast.store.maintenance.verify import verify
from keepfast.store.rows import LIST
from tests.equipment.saver import Saver

SESSION = "11111111-1111-4111-8111-111111111111"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def saver(root: Path, tmp_path: Path) -> Saver:
    return Saver(root, tmp_path / "data" / "store")


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    path = tmp_path / "old home/.claude/projects/-work" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    return path


def message(number: int, text: str = "", **more: Any) -> str:
    entry = {
        "type": "user" if number % 2 else "assistant", "uuid": f"00000000-0000-4000-8000-{number:012d}",
        "sessionId": SESSION, "cwd": "/work", "message": {"content": text or f"message {number}"}, **more,
    }  # fmt: skip
    return json.dumps(entry) + "\n"


def save(saver: Saver, transcript: Path | str, **more: Any) -> Outcome:
    event = {"trigger": "manual", "agent": "claude-code", "session": SESSION, "transcript": str(transcript), **more}
    saver.close()
    return saver.save(**event)


def told(saver: Saver, outcome: Outcome) -> dict[str, Any]:
    repository = saver._read()
    return dict(repository.document(outcome.checkpoint)[0].conversation)


def content(saver: Saver, kept: dict[str, Any]) -> bytes:
    found = conversation_from_json({"session": "", **kept})
    assert found is not None
    return b"".join(load_transcript(saver._read(), found.transcript))


def packs(saver: Saver) -> int:
    return sum(path.stat().st_size for path in (saver.store / "packs").iterdir())


# Keeping


def test_what_was_said_comes_back_and_what_is_half_written_does_not(saver: Saver, transcript: Path) -> None:
    whole = message(1) + message(2)
    transcript.write_text(whole + '{"type": "assistant", "uu')

    kept = told(saver, save(saver, transcript))

    assert content(saver, kept) == whole.encode()
    assert kept["bytes"] == len(whole)
    assert kept["last"] == "00000000-0000-4000-8000-000000000002"
    assert (kept["agent"], kept["session"], kept["path"]) == ("claude-code", SESSION, str(transcript))


def test_every_further_checkpoint_costs_only_what_is_new(saver: Saver, transcript: Path) -> None:
    noise = os.urandom(3 * PART // 4).hex()  # does not compress away
    transcript.write_text(
        "".join(message(number, noise[at : at + 3000]) for number, at in enumerate(range(0, len(noise), 3000)))
    )
    save(saver, transcript)
    before = packs(saver)
    with open(transcript, "a") as file:
        file.write(message(7, "a little more"))

    kept = told(saver, save(saver, transcript))

    assert packs(saver) - before < 4000
    assert content(saver, kept) == transcript.read_bytes()


def test_after_a_rotation_only_what_is_new_is_stored_and_with_the_new_keys(saver: Saver, transcript: Path) -> None:
    noise = os.urandom(3 * PART // 4).hex()
    transcript.write_text(
        "".join(message(number, noise[at : at + 3000]) for number, at in enumerate(range(0, len(noise), 3000)))
    )
    first = told(saver, save(saver, transcript))
    before = packs(saver)
    rotated = saver._read().contents.sealer().keys.rotate()

    assert told(saver, save(saver, transcript)) == first
    with open(transcript, "a") as file:
        file.write(message(7, "a little more"))
    kept = told(saver, save(saver, transcript))

    assert packs(saver) - before < 6000
    assert content(saver, kept) == transcript.read_bytes()
    parts = saver._read().contents.blob(bytes.fromhex(kept["content"]))[0]
    last = saver._read().contents.blob(parts[-32:])[0]
    assert last[5:13].hex() == rotated
    assert saver._read().contents.blob(parts[:32])[0][5:13].hex() != rotated


def test_nothing_new_costs_nothing(saver: Saver, transcript: Path) -> None:
    transcript.write_text(message(1))
    first = told(saver, save(saver, transcript))

    assert told(saver, save(saver, transcript)) == first


def test_a_transcript_that_was_written_anew_is_stored_anew(saver: Saver, transcript: Path) -> None:
    transcript.write_text(message(1) + message(2))
    first = told(saver, save(saver, transcript))
    transcript.write_text(message(3) + message(4) + message(5))

    second = told(saver, save(saver, transcript))

    assert content(saver, second) == transcript.read_bytes()
    assert content(saver, first) == (message(1) + message(2)).encode()


def test_a_shorter_transcript_is_stored_anew(saver: Saver, transcript: Path) -> None:
    transcript.write_text(message(1) + message(2))
    save(saver, transcript)
    transcript.write_text(message(1))

    assert content(saver, told(saver, save(saver, transcript))) == message(1).encode()


def test_many_turns_are_told_by_few_ids(saver: Saver, transcript: Path) -> None:
    turns = 2 * PARTS_PER_LIST + 3
    kept: dict[str, Any] = {}
    for number in range(turns):
        with open(transcript, "a") as file:
            file.write(message(number))
        kept = told(saver, save(saver, transcript))

    names, kind = saver._read().contents.blob(bytes.fromhex(kept["content"]))
    assert kind == LIST
    assert len(names) // 32 < turns - PARTS_PER_LIST + 3
    assert content(saver, kept) == transcript.read_bytes()


def test_subagents_and_long_outputs_are_kept_beside(saver: Saver, transcript: Path) -> None:
    transcript.write_text(message(1))
    beside = transcript.with_suffix("")
    (beside / "subagents").mkdir(parents=True)
    (beside / "tool-results").mkdir()
    (beside / "subagents/agent-1.jsonl").write_text(message(9, isSidechain=True))
    (beside / "tool-results/x.txt").write_text("a long output\n")
    (beside / "tool-results/evil").symlink_to("/etc/passwd")

    kept = told(saver, save(saver, transcript))

    assert {one["name"]: content(saver, one) for one in kept["beside"]} == {
        "subagents/agent-1.jsonl": message(9, isSidechain=True).encode(),
        "tool-results/x.txt": b"a long output\n",
    }


# What may be wrong with a transcript never stops a save


@pytest.mark.parametrize("odd", ["missing", "folder", "empty", "pipe", "no line", "locked", "huge", "NUL", "relative"])
def test_an_odd_transcript_is_at_most_a_notice(saver: Saver, transcript: Path, odd: str, root: Path) -> None:
    path: Path | str = transcript
    if odd == "folder":
        transcript.mkdir()
    elif odd == "empty":
        transcript.touch()
    elif odd == "pipe":
        os.mkfifo(transcript)
    elif odd == "no line":
        transcript.write_bytes(b"x" * 100_000)
    elif odd == "locked":
        if os.geteuid() == 0:
            pytest.skip("root may read everything")
        transcript.touch(0)
    elif odd == "huge":
        with open(transcript, "wb") as file:
            file.truncate(MAX_TRANSCRIPT_LENGTH + 1)
    elif odd == "NUL":
        transcript.write_bytes(b"\0" * 5000 + b"\n")
    elif odd == "relative":
        path = "no/such/file.jsonl"
    (root / "file").write_text(odd)

    outcome = save(saver, path)

    assert outcome.version == 1
    assert saver.read("file") == odd.encode()
    if odd in ("folder", "pipe", "huge"):
        assert "conversation was not saved" in outcome.notices[0]
    if odd != "NUL":
        assert not told(saver, outcome)


def test_a_conversation_that_grows_alone_makes_no_version_of_an_unchanged_tree(saver: Saver, transcript: Path) -> None:
    transcript.write_text(message(1))
    save(saver, transcript, trigger="turn")
    with open(transcript, "a") as file:
        file.write(message(2))

    assert save(saver, transcript, trigger="turn").version == 0
    assert content(saver, told(saver, save(saver, transcript, trigger="final"))) == transcript.read_bytes()


def test_a_save_that_somebody_waits_for_leaves_a_long_conversation_to_the_next(saver: Saver, transcript: Path) -> None:
    transcript.write_text(message(1))
    first = told(saver, save(saver, transcript))
    with open(transcript, "a") as file:
        file.write(message(2, "x" * (5 << 20)))

    assert told(saver, save(saver, transcript, trigger="auto_90")) == first
    assert content(saver, told(saver, save(saver, transcript))) == transcript.read_bytes()


@pytest.mark.parametrize(
    "header",
    [None, 1, [], {}, {"session": 1}, {"session": "s", "content": "xy", "bytes": 1},
     {"session": "s", "bytes": -1, "content": "0" * 64},
     {"session": "s", "bytes": 1, "content": "0" * 64, "beside": [{"name": "../x", "bytes": 1, "content": "0" * 64}]},
     {"session": "s", "bytes": 1, "content": "0" * 64, "beside": [{"name": "subagents/../../x", "bytes": 1, "content": "0" * 64}]},
     {"session": "s", "bytes": 1, "content": "0" * 64, "beside": [{"name": "subagents/..", "bytes": 1, "content": "0" * 64}]}],
)  # fmt: skip
def test_a_crafted_header_is_not_believed(header: object) -> None:
    assert conversation_from_json(header) is None


# The store looks after it


def test_compaction_keeps_what_a_checkpoint_needs_and_lets_go_of_the_rest(
    saver: Saver, transcript: Path, root: Path
) -> None:
    transcript.write_text(message(1, os.urandom(200_000).hex()))
    save(saver, transcript)
    transcript.write_text(message(2, os.urandom(200_000).hex()))
    second = save(saver, transcript)
    kept, workspace = told(saver, second), saver.workspace
    engine = saver.engine()
    repository, before = engine.repository(), packs(saver)

    forget(repository, workspace, [1], "test", str(saver.store))
    compact(repository, str(saver.store), everything=True)
    engine.close()
    saver.close()

    assert content(saver, kept) == transcript.read_bytes()
    assert packs(saver) < before * 0.7
    assert not verify(saver._read(), str(saver.store)).problems


def test_a_damaged_part_is_found_and_named_without_any_key(saver: Saver, transcript: Path, tmp_path: Path) -> None:
    transcript.write_text(message(1, os.urandom(50_000).hex()))
    save(saver, transcript)
    (pack,) = (saver.store / "packs").iterdir()
    data = bytearray(pack.read_bytes())
    place = data.index(b"HFS1") + 20_000
    data[place] ^= 1
    pack.chmod(0o600)
    pack.write_bytes(data)
    for key in (saver.store / "keys").glob("*.key"):
        key.unlink()
    saver.close()

    report = verify(saver._read(), str(saver.store))

    assert any("v1 of" in label for problem in report.problems for label in problem.checkpoints)


# Bringing it back


def converse(saver: Saver, outcome: Outcome, home: Path, root: Path) -> ConversationRestorer:
    return ConversationRestorer(saver._read(), outcome.checkpoint, bytes(root), bytes(home), {})


def test_it_becomes_a_new_session_with_paths_of_here(
    saver: Saver, transcript: Path, tmp_path: Path, root: Path
) -> None:
    elsewhere = str(root)
    said = f"I wrote {elsewhere}/a.txt, not {elsewhere}2/a.txt, in {elsewhere}."
    transcript.write_text(
        message(1, said, cwd=elsewhere) + "no json\n"
        + message(2, cwd=elsewhere, thinking=[{"type": "thinking", "thinking": f"{elsewhere}/x", "signature": "s"}])
    )  # fmt: skip
    outcome = save(saver, transcript)
    home, other = tmp_path / "other home", tmp_path / "other place"

    made = converse(saver, outcome, home, other).restore()

    lines = [json.loads(line) for line in Path(made.path).read_text().splitlines()]
    assert made.path == session_folder(str(home), {}, str(other)) + f"/{made.id}.jsonl"
    assert made.folder == str(other)
    assert [line["sessionId"] for line in lines] == [made.id] * 2
    assert lines[0]["message"]["content"] == f"I wrote {other}/a.txt, not {elsewhere}2/a.txt, in {other}."
    assert lines[1]["thinking"][0]["thinking"] == f"{elsewhere}/x"
    assert made.command == ["claude", "--resume", made.id]


def test_without_its_key_nothing_is_written(saver: Saver, transcript: Path, tmp_path: Path, root: Path) -> None:
    transcript.write_text(message(1))
    outcome = save(saver, transcript)
    for key in (saver.store / "keys").glob("*.key"):
        key.unlink()
    saver.close()

    with pytest.raises(WrongKey):
        converse(saver, outcome, tmp_path / "home", root).restore()
    assert not (tmp_path / "home").exists()


def test_a_checkpoint_without_a_conversation_says_so(saver: Saver, root: Path, tmp_path: Path) -> None:
    outcome = saver.save(trigger="manual")

    with pytest.raises(NotFound, match="has no conversation"):
        converse(saver, outcome, tmp_path, root)


# What is known of the client


@pytest.mark.parametrize(
    ("cwd", "name"),
    [("/home/a/my.project", "-home-a-my-project"), ("/한글 폴더", "------"), ("/a_b-c", "-a-b-c"), ("/x😀", "-x--")],
)
def test_the_folder_of_a_project_is_named_as_the_client_does(cwd: str, name: str) -> None:
    assert session_folder("/h", {}, cwd) == f"/h/.claude/projects/{name}"
    assert session_folder("/h", {"CLAUDE_CONFIG_DIR": "/c"}, cwd) == f"/c/projects/{name}"


def test_the_last_message_is_none_of_a_subagent_and_none_of_the_notes_between() -> None:
    lines = (
        message(1)
        + message(2)
        + message(3, isSidechain=True)
        + '{"type":"system","uuid":"x"}\n{"type":"last-prompt"}\n[1\n'
    )

    assert last_message(lines.encode()) == "00000000-0000-4000-8000-000000000002"
    assert last_message(b"") == ""
    assert last_message(b"\xff\n{}\n") == ""


def test_lines_that_nobody_could_read_are_left_out() -> None:
    assert list(forked([b"", b"{", b"[]", b"1", b"\xff", b'{"a":1}'], "new", [])) == [b'{"a":1}\n']
