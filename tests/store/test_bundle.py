"""A bundle carries checkpoints whole, to another store and back, and nothing that is not whole gets in."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from blake3 import blake3

from keepfast.model import document
from keepfast.model.entry import Entry
from keepfast.resume.notes import CommandRun, FileNote, Notes
from keepfast.resume.signals import Signals
from keepfast.store.bundle_check import MAX_HEADER
from keepfast.store.bundle_writer import BundleWriter
from keepfast.store.digest import add, digest, weight
from keepfast.store.rows import CHUNKS, CONTENT, DOCUMENT, LIST, SEALED
from keepfast.store.sealed import HEAD, MAGIC, RAW, TAG
from tests.equipment.box import SOURCE, Box
from tests.equipment.wild_tree import LARGE, contents, put

PAGES = Path(__file__).parents[2] / "docs/format"
FLIPS = 200


def exported(box: Box, *words: str) -> Path:
    file = box.home / "x.keepfast"
    answer = box.call("export", *(words or ("--all",)), str(file), "--force")
    assert answer.code == 0, answer
    return file


def restored(box: Box, version: str, folder: Path) -> dict[bytes, tuple[str, int, bytes]]:
    answer = box.call("restore", version, "-y", "--theirs", cwd=folder)
    assert answer.code == 0, answer
    return contents(folder)


def trees(box: Box, cwd: Path | None = None) -> list[str]:
    versions = [row["version"] for row in box.call("list", "--json", cwd=cwd).json()]
    return [box.call("show", version, "--json", cwd=cwd).json()["tree"] for version in versions]


# There and back


def test_every_version_arrives_on_another_machine_as_it_was(box: Box, other: Box) -> None:
    states = {version: restored(box, version, box.project) for version in ("v1", "v2", "v3")}
    file = exported(box, "v1", "v2", "v3")

    answer = other.call("import", str(file), "--into", "copy", "--json", cwd=other.home)

    folder = other.home / "copy"
    assert answer.code == 0, answer
    assert [one["was"] for one in answer.json()["imported"]] == ["v1", "v2", "v3"]
    assert [one["checkpoint"]["version"] for one in answer.json()["imported"]] == ["v1", "v2", "v3"]
    assert other.call("verify", cwd=folder).code == 0
    for version, state in states.items():
        assert restored(other, version, folder) == state


def test_ids_messages_names_tags_and_times_arrive(box: Box, other: Box) -> None:
    box.call("name", "v2", "later-named")
    before = box.call("list", "--json").json()

    other.call("import", str(exported(box)), "--into", "copy", cwd=other.home)

    after = other.call("list", "--json", cwd=other.home / "copy").json()
    assert [{**row, "changed": 0} for row in after] == [{**row, "changed": 0} for row in before]
    assert trees(other, other.home / "copy") == trees(box)


def test_what_was_imported_survives_rebuild_and_compaction(box: Box, other: Box) -> None:
    other.call("import", str(exported(box)), "--into", "copy", cwd=other.home)
    folder = other.home / "copy"
    before = trees(other, folder)

    assert other.call("rebuild", cwd=folder).code == 0
    assert other.call("compact", "--everything", cwd=folder).code == 0
    assert other.call("verify", cwd=folder).code == 0

    assert trees(other, folder) == before
    assert restored(other, "v1", folder)[b"large.bin"][2] == Random(7).randbytes(LARGE)


def test_versions_with_gaps_are_numbered_anew(box: Box, other: Box) -> None:
    file = exported(box, "v3", "v1")

    other.call("import", str(file), "--into", "copy", cwd=other.home)

    folder = other.home / "copy"
    assert [row["version"] for row in other.call("list", "--json", cwd=folder).json()] == ["v2", "v1"]
    assert trees(other, folder) == [trees(box)[0], trees(box)[2]]
    assert other.call("rebuild", cwd=folder).code == 0
    assert other.call("verify", cwd=folder).code == 0
    assert "empty" in other.call("diff", "v1", "v2", "--name-only", cwd=folder).out


def test_since_exports_what_is_newer(box: Box, other: Box) -> None:
    other.call("import", str(exported(box, "--since", "v1")), "--into", "copy", cwd=other.home)

    folder = other.home / "copy"
    assert [row["version"] for row in other.call("list", "--json", cwd=folder).json()] == ["v3", "v2"]
    assert other.call("verify", cwd=folder).code == 0


def test_a_workspace_that_is_not_here_gets_no_folder_and_can_be_forked(box: Box, other: Box) -> None:
    answer = other.call("import", str(exported(box, "v2")), "--json", cwd=other.home)
    found = answer.json()
    assert found["new_workspace"] and found["root"] is None

    forked = other.call("fork", found["imported"][0]["checkpoint"]["id"], "copy", cwd=other.home)

    assert forked.code == 0, forked
    assert contents(other.home / "copy") == restored(box, "v2", box.project)


def test_importing_into_a_workspace_adds_versions_at_its_end(box: Box, other: Box) -> None:
    other.call("init")
    other.put("own", "mine")
    other.save("-m", "own")
    file = exported(box)

    answer = other.call("import", str(file), "--here", "--json")

    assert [one["checkpoint"]["version"] for one in answer.json()["imported"]] == ["v2", "v3", "v4"]
    rows = other.call("list", "--json").json()
    assert [row["trigger"] for row in rows] == ["import"] * 3 + ["manual"]
    ids = [row["id"] for row in box.call("list", "--json").json()]
    assert [row["tags"][-1] for row in rows[:3]] == [f"imported from {id}" for id in ids]
    assert all(row["pinned"] for row in rows[:3])  # they were made by hand, and no policy may drop them
    assert trees(other)[:3] == trees(box)
    assert other.call("verify").code == 0
    assert other.call("rebuild").code == 0
    assert other.call("verify").code == 0
    assert other.call("cat", "v1", "own").out == "mine"


def test_what_is_here_already_is_skipped(box: Box, other: Box) -> None:
    file = exported(box)
    other.call("init")
    other.call("import", str(file), "--here")

    for target, words in ((other, ("--here",)), (box, ()), (box, ("--here",))):
        answer = target.call("import", str(file), "--json", *words)

        assert answer.code == 0, answer
        assert answer.json()["imported"] == []
        assert len(answer.json()["skipped"]) == 3


def test_forgotten_checkpoints_come_back_from_a_bundle(box: Box) -> None:
    state = restored(box, "v1", box.project)
    file = exported(box, "v1")
    assert box.call("forget", "v1", "-y").code == 0

    found = box.call("import", str(file), "--json").json()["imported"]

    assert len(found) == 1
    assert restored(box, found[0]["checkpoint"]["version"], box.project) == state
    assert box.call("verify").code == 0


def test_the_policy_of_a_fresh_scan_holds_after_an_import(box: Box, other: Box) -> None:
    """The next save looks at the disk again; the cache of the version before must not be believed."""
    other.call("init")
    other.put("own", "mine")
    other.save()
    other.call("import", str(exported(box, "v1")), "--here")

    other.call("save", "--auto")

    newest = other.call("list", "--json").json()[0]["version"]
    assert newest == "v3"
    assert other.call("cat", "v3", "own").out == "mine"
    assert other.call("diff", "v1", "v3", "--name-only").out == ""


# The file


def test_a_file_is_not_replaced_unless_asked(box: Box) -> None:
    file = exported(box, "v1")
    before = file.read_bytes()

    refused = box.call("export", "v2", str(file))

    assert refused.code == 14
    assert file.read_bytes() == before
    assert box.call("export", "v2", str(file), "--force").code == 0
    assert file.read_bytes() != before
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in box.home.glob("x.keepfast*")] == ["x.keepfast"]


def test_the_code_on_the_page_reads_a_real_bundle(box: Box) -> None:
    code = []
    for page, title in (("store.md", "Reading a pack by hand"), ("bundle.md", "Worked example")):
        text = (PAGES / page).read_text().split(f"## {title}\n")[1]
        code += re.findall(r"```python\n(.*?)```", text.split("\n## ")[0], re.DOTALL)
    names: dict[str, Any] = {}
    exec("\n".join(code), names)

    manifest, blobs = names["unbundle"](exported(box).read_bytes())

    assert [one["version"] for one in manifest["versions"]] == [1, 2, 3]
    header, rows = document.decode(blobs[manifest["versions"][0]["doc"]])
    assert header.message == "first"
    assert b"plain.txt" in [row.path for row in rows]
    assert b"hello\n" in blobs.values()


def test_flips_and_cuts_anywhere_are_refused_and_change_nothing(box: Box, other: Box) -> None:
    (box.project / "large.bin").unlink()
    box.save()
    good = exported(box, "v4").read_bytes()
    other.call("init")
    other.save()
    bad, random = other.home / "bad", Random(5)
    before = other.state(other.store)
    cases = [random.randrange(len(good)) for _ in range(FLIPS)]
    for place in [*range(8), *range(len(good) - 60, len(good)), *cases]:
        damaged = bytearray(good)
        damaged[place] ^= 1 << random.randrange(8)
        bad.write_bytes(damaged)
        assert other.call("import", str(bad)).code in (5, 13), place
        bad.write_bytes(good[:place])
        assert other.call("import", str(bad)).code == 13, place

    assert other.state(other.store) == before
    assert other.call("import", str(box.home / "x.keepfast")).code == 0


def test_a_newer_format_is_not_called_damaged(box: Box) -> None:
    file = exported(box, "v1")
    file.write_bytes(b"HFBUND2\n" + file.read_bytes()[8:])

    answer = box.call("import", str(file), "--json")

    assert answer.code == 5
    assert answer.json()["error"]["kind"] == "newer_format"


def test_what_is_no_bundle_is_refused(box: Box) -> None:
    for content in (b"", b"x", b"HFBUND1\n", b"HFPACK1\n" * 100, bytes(1000)):
        put(os.fsencode(box.home / "no"), content)
        assert box.call("import", str(box.home / "no")).code == 13
    os.mkfifo(box.home / "pipe")
    assert box.call("import", str(box.home / "pipe")).code == 1
    assert box.call("import", str(box.home / "nothing")).code == 4


# Crafted ones: every digest is right, the content is not


class Crafting:
    """Writes bundles of one version, right in all but what a test changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.contents: list[tuple[bytes, bytes, int]] = []
        self.header: dict[str, Any] = {}
        self.line: dict[str, Any] = {}
        self.manifest: dict[str, Any] = {}

    def file(self, path: bytes, content: bytes = b"x", **more: Any) -> Entry:
        if not any(one[0] == digest(content) for one in self.contents):
            self.contents.append((digest(content), content, CONTENT))
        return Entry(path, "f", 0o644, 0, len(content), 0, 0, digest(content), b"")._replace(**more)

    def write(self, rows: list[Entry], mangle: Callable[[bytes], bytes] = bytes) -> Path:
        self.path.unlink(missing_ok=True)
        writer = BundleWriter(str(self.path), durable=False)
        for key, data, kind in self.contents:
            writer.pack.add(key, data, kind)
        total = 0
        for row in rows:
            total = add(total, plus=weight(row))
        header = {
            "v": 1, "id": "cp-" + "0" * 26, "workspace": "ab" * 16, "parent": None, "keyframe": True, "created_at": 1,
            "trigger": "manual", "created_by": "user", "message": "", "name": None, "tags": [], "pinned": False,
            "session": None, "task": None, "counts": {}, "tree": f"{total:064x}", **self.header,
        }  # fmt: skip
        data = mangle(document.encode(document.Header(header), rows))
        writer.pack.add(digest(data), data, DOCUMENT)
        line = {"version": 1, "id": header["id"], "doc": digest(data).hex(), "tree": header["tree"], **self.line}
        writer.finish({"v": 1, "workspace": "ab" * 16, "folder": "f", "versions": [line], **self.manifest}, force=False)
        return self.path


@pytest.fixture
def craft(tmp_path: Path) -> Crafting:
    return Crafting(tmp_path / "crafted")


def refused(other: Box, file: Path) -> bool:
    """Does the import say that it is damaged, and leave everything as it was?"""
    other.call("init")
    before = other.state(other.store)
    code = other.call("import", str(file), cwd=other.home).code
    assert code != 13 or other.state(other.store) == before
    return code == 13


def test_a_well_made_one_is_taken(craft: Crafting, other: Box) -> None:
    file = craft.write([craft.file(b"a"), Entry(b"d", "d", 0o755, 0, 0, 0, 0, b"", b"")])

    assert other.call("import", str(file), "--into", "copy", cwd=other.home).code == 0
    assert other.call("verify", cwd=other.home / "copy").code == 0


PATHS = [
    b"../up", b"/abs", b"a/../../b", b"a//b", b"./a", b"a/.", b"", b".git/config", b"a/.git/hooks/x", b".keepfast/x",
    b"..", b"a/..",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_crafted_paths_are_refused(craft: Crafting, other: Box, path: bytes) -> None:
    assert refused(other, craft.write([craft.file(path)]))


def test_crafted_rows_are_refused(craft: Crafting, other: Box) -> None:
    one = craft.file(b"a")
    assert refused(other, craft.write([one, one]))
    assert refused(other, craft.write([craft.file(b"b"), craft.file(b"a")]))
    assert refused(other, craft.write([one._replace(mode=0o17777)]))
    assert refused(other, craft.write([one._replace(size=7)]))
    assert refused(other, craft.write([one, craft.file(b"b", size=2)]))
    assert refused(other, craft.write([one._replace(content=digest(b"not there"))]))
    assert refused(other, craft.write([one], lambda data: data + b"more"))
    assert refused(other, craft.write([one], lambda data: data[:16] + struct.pack("<Q", 1 << 60) + data[24:]))
    assert refused(other, craft.write([one], lambda data: data[:8] + struct.pack("<Q", 1 << 60) + data[16:]))


ODD_NOTES: list[dict[str, Any]] = [
    {"analysis": None},
    {"context": 5},
    {"files": ["x"]},
    {"files": [{"changed": [[1]]}]},
    {"files": {}},
    {"files": [{"lines": "1"}]},
    {"analysis": {"next_steps": "one"}},
    {"analysis": {"current_task": None}},
    {"asked": [None]},
    {"tasks": ["x"]},
    {"tasks": [{"status": 1}]},
    {"answers": [[]]},
    {"plan": []},
    {"last_test": "passed"},
    {"last_test": {"at": "x"}},
    {"session": {"characters_per_token": "2"}},
    {"signals": None},
    {"signals": {"words": {"a": 1}}},
    {"signals": {"pointed": {"a": [[1, 2, 3]]}}},
    {"signals": {"named": {"a": [1]}}},
    {"signals": {"now": 1.5}},
]


@pytest.mark.parametrize(
    ("header", "line", "manifest"),
    [
        ({"tree": "0" * 64}, {}, {}),
        ({"keyframe": False}, {}, {}),
        ({"parent": "00" * 32}, {}, {}),
        ({"workspace": "cd" * 16}, {}, {}),
        ({}, {"id": "cp-" + "1" * 26}, {}),
        ({}, {"doc": "00" * 32}, {}),
        ({}, {"version": 0}, {}),
        ({}, {"version": True}, {}),
        ({}, {"version": 10**30}, {}),
        ({}, {"id": "cp-../../../etc/passwd......"}, {}),
        ({}, {}, {"workspace": "../../../../../../etc/passwd12345"}),
        ({}, {}, {"versions": []}),
        ({}, {}, {"versions": [[]]}),
        ({}, {}, {"versions": None}),
        ({}, {}, {"folder": 7}),
        ({}, {}, {"keys": [1]}),
        ({"git": {"commit": 5}}, {}, {}),
        ({"git": {"branch": ["main"]}}, {}, {}),
        ({"git": "main"}, {}, {}),
        ({"cwd": 7}, {}, {}),
        ({"command": ["rm"]}, {}, {}),
        ({"agent": {}}, {}, {}),
        ({"summary": 1}, {}, {}),
        ({"tokens_used": "many"}, {}, {}),
        ({"token_budget": 10**30}, {}, {}),
        ({"version": True}, {}, {}),
        ({"changed": "all"}, {}, {}),
        ({"notices": "one"}, {}, {}),
        ({"notices": [1]}, {}, {}),
        ({"key_points": {"a": 1}}, {}, {}),
        ({"active_files": [None]}, {}, {}),
        ({"notes": ["text"]}, {}, {}),
        ({"origin": 3}, {}, {}),
        ({"pinned": 1}, {}, {}),
        ({"git_files": "yes"}, {}, {}),
        ({"conversation": {"session": "s", "content": 5}}, {}, {}),
        ({"conversation": "all of it"}, {}, {}),
        ({"counts": {"f": -1}}, {}, {}),
        ({"created_by": "us\x1b[2Jer"}, {}, {}),
        ({"trigger": "t" * 201}, {}, {}),
        ({"name": "two\nlines"}, {}, {}),
        ({"tags": ["\u202egat"]}, {}, {}),
        ({"notes": {"deep": [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]}}, {}, {}),
        ({"message": "m" * ((1 << 20) + 1)}, {}, {}),
        *[
            ({name: None}, {}, {})
            for name in (
                "notices",
                "active_files",
                "key_points",
                "notes",
                "origin",
                "conversation",
                "cwd",
                "command",
                "agent",
                "summary",
                "tool",
                "tokens_used",
                "token_budget",
                "event_at",
                "version",
                "changed",
                "git_files",
                "partial",
            )
        ],
        ({"active_files": ["\ud800"]}, {}, {}),
        ({"summary": "\udfff"}, {}, {}),
        ({"notes": {"x": {"\ud800": 1}}}, {}, {}),
        ({"notes": {"x": 1e300}}, {}, {}),
        ({"partial": 5}, {}, {}),
        ({"partial": [5]}, {}, {}),
        ({"partial": "a"}, {}, {}),
        ({"partial": {"a": 1}}, {}, {}),
        *[({"notes": notes}, {}, {}) for notes in ODD_NOTES],
    ],
)
def test_crafted_headers_and_manifests_are_refused(
    craft: Crafting, other: Box, header: dict[str, Any], line: dict[str, Any], manifest: dict[str, Any]
) -> None:
    craft.header, craft.line, craft.manifest = header, line, manifest

    assert refused(other, craft.write([craft.file(b"a")]))


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        ({"workspace": 7}, "invalid: a digest or id is invalid."),
        ({"versions": 7}, "invalid."),
        ({"versions": [{}]}, "invalid: it has no `version`."),
        ({"v": {"a": 1}}, "invalid: a version is not a number."),
    ],
)
def test_what_is_wrong_with_a_manifest_is_said_in_words(
    craft: Crafting, other: Box, manifest: dict[str, Any], why: str
) -> None:
    craft.manifest = manifest

    answer = other.call("import", str(craft.write([craft.file(b"a")])), cwd=other.home)

    assert (answer.code, answer.err.splitlines()[0]) == (
        13,
        f"keepfast: {craft.path} is damaged: its manifest is {why}",
    )


def test_a_manifest_larger_than_any_need_be_is_refused(craft: Crafting, other: Box) -> None:
    craft.manifest = {"nobody": "x" * (8 << 20)}

    assert refused(other, craft.write([craft.file(b"a")]))


def test_a_header_with_all_that_ours_have_is_taken(craft: Crafting, other: Box) -> None:
    notes = Notes(
        current_task="this", next_steps=["a"], prompts=["please"], tasks=[("open", "b")], answers=[("q", "a")],
        files=[FileNote("x.py", True, 3, [(1, 2)], [(3, 4)])], last_run=CommandRun("make", True), session="s",
        signals=Signals(1, 2, {"last": {"word": 0.5}}, {"x.py": [(1, 0.5)]}, {}, {"asked": ["x.py"]}, 0.25),
    )  # fmt: skip
    craft.header = {
        "notices": ["one"], "active_files": ["x.py", "bad\udcff"], "key_points": [], "partial": ["x"], "cwd": "",
        "git": {"branch": None, "commit": None, "in_progress": None}, "notes": notes.to_json(), "agent": "claude-code",
    }  # fmt: skip
    assert not refused(other, craft.write([craft.file(b"a")]))
    craft.header |= {"git": None, "notes": Notes().to_json(), "id": "cp-" + "1" * 26}
    assert not refused(other, craft.write([craft.file(b"a")]))
    assert Notes.from_json(notes.to_json()) == notes


@pytest.mark.parametrize("notes", [{"analysis": None, "context": 5}, {"files": ["x"]}, {"signals": {"words": 5}}])
def test_notes_that_make_no_sense_read_as_none(notes: dict[str, Any]) -> None:
    assert Notes.from_json({**notes, "plan": "a plan"}) == Notes(plan="a plan")


def test_crafted_chunk_lists_are_refused(craft: Crafting, other: Box) -> None:
    parts = [bytes([number]) * 1000 for number in range(4)]
    whole = b"".join(parts)
    chunks = b"".join([digest(part) for part in parts])
    row = Entry(b"big", "f", 0o644, 0, len(whole), 0, 0, digest(whole), b"")
    content = [(digest(part), part, CONTENT) for part in parts]
    cases = [
        (chunks[:96], len(whole)),
        (chunks, len(whole) + 1),
        (chunks[32:] + chunks[:32], len(whole)),
        (chunks + digest(b"no"), len(whole)),
        (chunks + b"odd", len(whole)),
        (digest(whole) * 4, len(whole)),
    ]
    for list_, size in cases:
        craft.contents = [*content, (digest(whole), list_, CHUNKS)]
        assert refused(other, craft.write([row._replace(size=size)]))
    craft.contents = [*content, (digest(whole), chunks, CHUNKS)]
    assert not refused(other, craft.write([row]))


@pytest.mark.parametrize(
    ("path", "is_refused"),
    [(b"/".join([b"abc"] * 4096), False), (b"/".join([b"a"] * 4097), True), (b"/".join([b"n" * 255] * 256), False),
     (b"/".join([b"n" * 255] * 257), True)],
    ids=["deep", "too deep", "long", "too long"],
)  # fmt: skip
def test_paths_longer_than_any_need_be_are_refused(craft: Crafting, other: Box, path: bytes, is_refused: bool) -> None:
    assert refused(other, craft.write([craft.file(path)])) == is_refused


def test_a_link_to_more_than_a_kernel_takes_is_refused(craft: Crafting, other: Box) -> None:
    for length, is_refused in ((4095, False), (4096, True)):
        link = Entry(b"link", "l", 0o777, 0, 0, 0, 0, b"t" * length, b"")
        assert refused(other, craft.write([link])) == is_refused


def test_a_header_is_refused_by_its_size_before_it_is_read(
    craft: Crafting, other: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mangle(data: bytes) -> bytes:
        length = int.from_bytes(data[8:16], "little")
        head = data[24 : 24 + length].ljust(MAX_HEADER + 1)
        return data[:8] + struct.pack("<Q", len(head)) + data[16:24] + head + data[24 + length :]

    assert refused(other, craft.write([craft.file(b"a")], mangle))
    monkeypatch.setattr("keepfast.model.document.loads", None)
    assert refused(other, craft.path)


def test_a_header_that_is_nested_without_end_is_refused(craft: Crafting, other: Box) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000

    def mangle(data: bytes) -> bytes:
        length = int.from_bytes(data[8:16], "little")
        head = data[24 : 24 + length].replace(b'"counts":{}', b'"counts":{},"x":' + deep)
        return data[:8] + struct.pack("<Q", len(head)) + data[16:24] + head + data[24 + length :]

    assert refused(other, craft.write([craft.file(b"a")], mangle))


@pytest.mark.parametrize(
    "extra",
    [b"[]", b"{", b"null", b'{"uid": -1}', b'{"gid": "0"}', b'{"uid": true}', b'{"uid": 99999999999}',
     b'{"xattr": []}', b'{"xattr": {"user.x": 5}}', b'{"xattr": {"user.\\u0000": ""}}', b"[" * 50_000],
)  # fmt: skip
def test_crafted_attributes_are_refused(craft: Crafting, other: Box, extra: bytes) -> None:
    assert refused(other, craft.write([craft.file(b"a", flags=4, extra=extra)]))


def test_lists_of_lists_are_measured_once_and_their_parts_are_bounded(craft: Crafting, other: Box) -> None:
    """Three levels of 400 ids each name 64 million parts."""
    part = sealed_part(b"")
    craft.contents, key = [(digest(part), part, SEALED)], digest(part)
    for _ in range(3):
        names = key * 400
        key = digest(names)
        craft.contents.append((key, names, LIST))
    row = Entry(b"sealed", "f", 0o600, 8, 0, 0, 0, key, b"")

    assert refused(other, craft.write([row]))
    craft.contents = craft.contents[:3]  # two levels are 160,000 parts
    assert not refused(other, craft.write([row._replace(content=craft.contents[-1][0])]))


def test_lists_that_name_nothing_are_refused_at_any_depth(craft: Crafting, other: Box) -> None:
    """Few bytes, and 64 million lists for whoever follows them."""
    row = Entry(b"sealed", "f", 0o600, 8, 0, 0, 0, b"", b"")
    key, craft.contents = digest(b""), [(digest(b""), b"", LIST)]
    for _ in range(3):
        assert refused(other, craft.write([row._replace(content=key)]))
        names = key * 400
        key = digest(names)
        craft.contents.append((key, names, LIST))
    assert refused(other, craft.write([row._replace(content=key)]))


def test_every_name_in_a_list_counts_also_that_of_a_list(
    craft: Crafting, other: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    from keepfast.store import bundle_check

    part = sealed_part(b"")
    inner, outer = digest(part) * 2, digest(digest(part) * 2) * 3
    craft.contents = [(digest(part), part, SEALED), (digest(inner), inner, LIST), (digest(outer), outer, LIST)]
    row = Entry(b"sealed", "f", 0o600, 8, 0, 0, 0, digest(outer), b"")
    for bound in ("MAX_PARTS", "MAX_BLOBS"):
        with monkeypatch.context() as patch:
            patch.setattr(bundle_check, bound, 8)  # three lists, and two parts in each: nine
            assert refused(other, craft.write([row]))
    monkeypatch.setattr(bundle_check, "MAX_PARTS", 9)
    assert not refused(other, craft.write([row]))


def test_a_large_content_has_no_empty_chunks(craft: Crafting, other: Box) -> None:
    whole = b"x" * 10
    craft.contents = [
        (digest(b""), b"", CONTENT), (digest(whole[:5]), whole[:5], CONTENT),
        (digest(whole), digest(b"") * 1000 + digest(whole[:5]) * 2, CHUNKS),
    ]  # fmt: skip
    assert refused(other, craft.write([Entry(b"big", "f", 0o644, 0, 10, 0, 0, digest(whole), b"")]))


@pytest.mark.parametrize("deep", [4, 3000])
def test_lists_that_are_nested_too_deep_are_refused_whatever_was_measured_before(
    craft: Crafting, other: Box, deep: int
) -> None:
    part = sealed_part(b"")
    craft.contents, keys = [(digest(part), part, SEALED)], [digest(part)]
    for _ in range(deep):
        craft.contents.append((digest(keys[-1]), keys[-1], LIST))
        keys.append(digest(keys[-1]))
    good = Entry(b"a", "f", 0o600, 8, 0, 0, 0, keys[3], b"")

    assert refused(other, craft.write([good, good._replace(path=b"b", content=keys[-1])]))
    craft.contents = craft.contents[:4]
    assert not refused(other, craft.write([good]))


def sealed_part(data: bytes) -> bytes:
    """As a sealed part lies in a pack: what it says of its length is all that an import can see."""
    head = MAGIC + bytes([RAW]) + bytes(8) + struct.pack("<Q", len(data))
    return head.ljust(HEAD, b"\0") + data + bytes(TAG)


def test_chunks_named_over_and_over_are_not_put_together(
    craft: Crafting, other: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    from keepfast.store import bundle_check

    monkeypatch.setattr(bundle_check, "MAX_EXPANDED", 1 << 20)
    monkeypatch.setattr(bundle_check, "MAX_RATIO", 2)
    chunk = bytes(1 << 16)
    for times, is_refused in ((10, False), (40, True)):
        whole = chunk * times
        craft.contents = [(digest(chunk), chunk, CONTENT), (digest(whole), digest(chunk) * times, CHUNKS)]
        row = Entry(b"big", "f", 0o644, 0, len(whole), 0, 0, digest(whole), b"")
        assert refused(other, craft.write([row])) == is_refused


def test_frames_that_unpack_to_much_more_than_the_file_are_refused(
    craft: Crafting, other: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    from keepfast.store import bundle

    monkeypatch.setattr(bundle, "MAX_DECOMPRESSED", 1 << 20)
    for size, is_refused in ((1 << 19, False), (8 << 20, True)):
        craft.contents = [(digest(bytes(size)), bytes(size), CONTENT)]  # nobody needs it
        assert refused(other, craft.write([craft.file(b"a")])) == is_refused


def test_a_large_file_of_zeros_goes_through_a_bundle(box: Box, other: Box) -> None:
    with open(box.project / "zeros", "wb") as file:
        file.truncate(90 << 20)
    box.save("-m", "zeros")

    assert other.call("import", str(exported(box, "v4")), "--into", "copy", cwd=other.home).code == 0
    answer = other.call("restore", "v4", "-y", "--theirs", cwd=other.home / "copy")
    assert answer.code == 0, answer
    assert (other.home / "copy" / "zeros").stat().st_size == 90 << 20


def test_tags_of_all_versions_together_are_bounded(
    craft: Crafting, other: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    from keepfast.store import bundle_check

    monkeypatch.setattr(bundle_check, "MAX_TAGS", 3)
    for count, is_refused in ((3, False), (4, True)):
        craft.header = {"tags": [f"t{number}" for number in range(count)]}
        assert refused(other, craft.write([craft.file(b"a")])) == is_refused


def test_a_bundle_whose_reading_unpacks_too_much_is_refused(
    craft: Crafting, other: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    from keepfast.store import bundle

    file = craft.write([craft.file(b"a", b"x" * 5000)])
    monkeypatch.setattr(bundle, "MAX_UNPACKED", 1)
    monkeypatch.setattr(bundle, "UNPACKED_FACTOR", 0)

    assert refused(other, file)
    monkeypatch.setattr(bundle, "UNPACKED_FACTOR", 16)
    assert not refused(other, file)


def test_contents_that_lie_so_that_a_frame_is_unpacked_over_and_over_are_refused(
    craft: Crafting, other: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks by turns out of two frames, of which only one is kept at hand."""
    from keepfast.store import bundle

    monkeypatch.setattr(bundle, "MAX_UNPACKED", 0)
    monkeypatch.setattr(bundle, "FRAMES_KEPT", 1)
    parts = [os.urandom(250_000) for _ in range(12)]
    one, two = parts[0], parts[-1]
    for times, is_refused in ((5, False), (60, True)):
        whole, names = (one + two) * times, (digest(one) + digest(two)) * times
        craft.contents = [(digest(part), part, CONTENT) for part in parts] + [(digest(whole), names, CHUNKS)]
        row = Entry(b"big", "f", 0o644, 0, len(whole), 0, 0, digest(whole), b"")
        assert refused(other, craft.write([row])) == is_refused


@pytest.mark.parametrize(
    ("said", "by", "back"),
    [
        (["a"], "auto", ["a"]),
        (["a", ""], "auto", ["a"]),
        (["a"], "user", ["a", "b"]),
        ([""], "auto", ["a", "b"]),
    ],
)
def test_a_version_is_about_some_paths_only_where_one_that_is_made_by_itself_names_them(
    craft: Crafting, other: Box, said: Any, by: str, back: list[str]
) -> None:
    craft.header = {"partial": said, "created_by": by}
    file = craft.write([craft.file(b"a"), craft.file(b"b")])
    copy = other.home / "copy"
    assert other.call("import", str(file), "--into", "copy", cwd=other.home).code == 0
    for path in copy.iterdir():
        if path.name != ".keepfast":
            path.unlink()
    assert other.call("save", cwd=copy).code == 0

    plan = other.call("restore", "v1", "--dry-run", "--json", cwd=copy).json()
    assert other.call("restore", "v1", "-y", cwd=copy).code == 0

    assert [step["path"] for step in plan["steps"]] == back
    assert sorted(path.name for path in copy.iterdir() if path.name != ".keepfast") == back
    base = other.call("status", "--json", cwd=copy).json()["base"]
    assert base["version"] == ("v1" if len(back) == 2 else "v2"), "what comes next goes on from there"


@pytest.mark.parametrize("folder", ["/", "/etc", "/usr", "/var/lib"])
def test_an_import_goes_into_no_folder_that_init_refuses(craft: Crafting, other: Box, folder: str) -> None:
    file = craft.write([craft.file(b"a")])

    assert other.call("init", folder).code == 2
    assert other.call("import", str(file), "--into", folder, cwd=other.home).code == 2
    assert not Path(folder, ".keepfast").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may set them")
def test_attributes_that_give_rights_come_back_only_when_asked(craft: Crafting, other: Box, tmp_path: Path) -> None:
    capability = bytes.fromhex("0100000200040000000000000000000000000000")
    reader = struct.pack("<I", 2) + b"".join(
        [
            struct.pack("<HHI", *one)
            for one in ((1, 6, 2**32 - 1), (2, 7, 1000), (4, 4, 2**32 - 1), (16, 7, 2**32 - 1), (32, 4, 2**32 - 1))
        ]
    )
    given = {
        "security.capability": capability, "trusted.x": b"1", "user.x": b"2", "system.posix_acl_access": reader,
    }  # fmt: skip
    probe = tmp_path / "probe"
    probe.touch()
    try:
        for name, value in given.items():
            os.setxattr(probe, name, value)
    except OSError:
        pytest.skip("this file system has no such attributes")
    extra = json.dumps({"xattr": {name: b64encode(value).decode() for name, value in given.items()}}).encode()
    file = craft.write([craft.file(b"tool", flags=4, extra=extra)])
    answer = other.call("import", str(file), "--json", cwd=other.home)
    assert answer.code == 0, answer
    one = answer.json()["imported"][0]["checkpoint"]["id"]

    for words, names in (([], {"user.x"}), (["--privileged"], set(given))):
        folder = other.home / f"fork{len(names)}"
        assert other.call("fork", one, str(folder), *words, cwd=other.home).code == 0
        assert set(os.listxattr(folder / "tool")) == names
        (folder / "tool").unlink()
        assert other.call("restore", "v1", "-y", *words, cwd=folder).code == 0
        assert set(os.listxattr(folder / "tool")) == names


def test_a_blob_that_is_not_what_its_digest_says_is_refused(craft: Crafting, other: Box) -> None:
    craft.contents = [(digest(b"another"), b"x", CONTENT)]

    assert refused(other, craft.write([craft.file(b"a")]))


def resealed(data: bytes, place: int, new: bytes) -> bytes:
    """The bundle with other bytes in it, and a digest of the whole that fits; that of the index as well."""
    body = bytearray(data[:-40])
    pack, _ = struct.unpack("<QQ", body[-16:])
    body[place : place + len(new)] = new
    trailer = 8 + pack - 64
    table = struct.unpack("<Q", body[trailer : trailer + 8])[0]
    body[trailer + 24 : trailer + 56] = blake3(bytes(body[8 + min(table, pack) : trailer + 24])).digest()
    return bytes(body) + blake3(bytes(body)).digest() + data[-8:]


def test_bombs_and_huge_counts_are_refused_without_asking_for_memory(craft: Crafting, other: Box) -> None:
    file = craft.write([craft.file(b"a", bytes(4 << 20))])
    good = file.read_bytes()
    pack = struct.unpack("<Q", good[-56:-48])[0]
    trailer = 8 + pack - 64
    table = 8 + struct.unpack("<Q", good[trailer : trailer + 8])[0]
    cases = [
        (trailer + at, struct.pack("<Q", number)) for at in (0, 8, 16) for number in (1 << 62, (1 << 64) - 1, 1 << 23)
    ]
    cases += [(table + at, struct.pack("<Q", number)) for at in (0, 8, 16, 24) for number in (1 << 62, 1 << 29, 3)]
    cases += [(len(good) - 56 + at, struct.pack("<Q", number)) for at in (0, 8) for number in (1 << 62, 5)]
    limit = "import resource; resource.setrlimit(resource.RLIMIT_AS, (700 << 20,) * 2);"
    for number, (place, new) in enumerate(cases):
        file.write_bytes(resealed(good, place, new))
        if number % 6 == 0:  # a process with little memory, now and then
            code = limit + "import sys; from keepfast.entry import main; sys.argv[1:] = ['import', sys.argv[1]]; main()"
            done = subprocess.run(
                [sys.executable, "-c", code, str(file)], cwd=other.home, capture_output=True, check=False,
                env={**other.variables, "PYTHONPATH": str(SOURCE)},
            )  # fmt: skip
            assert done.returncode == 13, (place, done.stderr)
        assert refused(other, file), place


def test_a_frame_that_unpacks_to_more_than_it_says_is_refused(craft: Crafting, other: Box) -> None:
    from backports import zstd

    bomb = b"\x02" + zstd.compress(bytes(300 << 20), 3)
    craft.contents = [(digest(bytes(10)), bytes(10), CONTENT)]
    good = craft.write([craft.file(b"a", bytes(10))]).read_bytes()
    pack = struct.unpack("<Q", good[-56:-48])[0]
    inner = good[8 : 8 + pack]
    table, frames, _ = struct.unpack("<QQQ", inner[-64:-40])
    offset, stored, raw, inside = struct.unpack_from("<QQQQ", inner, table)
    grown = len(bomb) - stored
    index = bytearray(inner[table:-40])
    struct.pack_into("<QQQQ", index, 0, offset, len(bomb), raw, inside)
    for number in range(1, frames):
        struct.pack_into("<Q", index, 32 * number, struct.unpack_from("<Q", index, 32 * number)[0] + grown)
    struct.pack_into("<Q", index, len(index) - 24, table + grown)
    new = (
        inner[:offset]
        + bomb
        + inner[offset + stored : table]
        + bytes(index)
        + blake3(bytes(index)).digest()
        + inner[-8:]
    )
    body = good[:8] + new + good[8 + pack : -56] + struct.pack("<QQ", len(new), len(good) - 64 - pack)
    craft.path.write_bytes(body + blake3(body).digest() + good[-8:])

    assert refused(other, craft.path)


# Others at work


def test_export_and_import_go_on_while_another_process_saves(box: Box) -> None:
    saver = subprocess.Popen(
        [
            "bash", "-c",
            'while [ ! -e ../stop ]; do date +%N > tick; "$0" -m keepfast -q save || exit 9; done',
            sys.executable,
        ],
        cwd=box.project, env={**box.variables, "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    try:
        time.sleep(0.4)
        for number in range(3):
            file = box.home / f"{number}.keepfast"
            assert box.run("export", "--all", str(file)).code == 0
            assert box.run("forget", "v1", "-y").code in (0, 4)
            assert box.run("import", str(file)).code == 0
    finally:
        (box.home / "stop").touch()
        assert saver.wait(30) == 0

    assert box.call("verify").code == 0
    versions = [int(row["version"][1:]) for row in box.call("list", "--json").json()]
    assert versions == sorted(versions, reverse=True)
    assert any(row["trigger"] == "import" for row in box.call("list", "--json").json())


def test_a_failed_commit_leaves_no_pack_behind(box: Box, other: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    from keepfast.store.local import LocalRecords

    file = exported(box)
    other.call("init")
    other.put("own", "mine")
    other.save()
    before = other.state(other.store)

    def full(self: LocalRecords, log: str, lines: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LocalRecords, "append", full)
    answer = other.call("import", str(file), "--json")
    monkeypatch.undo()

    assert answer.code == 1
    assert answer.json()["error"]["kind"] == "disk_full"
    after = other.state(other.store)
    assert {name: after.get(name) for name in before if "ledger" not in name} == {
        name: kind for name, kind in before.items() if "ledger" not in name
    }
    assert not [name for name in after if name.endswith(".pack") and name not in before]
    assert other.call("verify").code == 0


# The command line


def test_exit_codes_of_wrong_words(box: Box, other: Box) -> None:
    file = exported(box)

    assert box.call("export").code == 2
    assert box.call("export", "v1").code == 2  # FILE is missing: a checkpoint is no name for it
    assert box.call("export", "--all", "v1", str(box.home / "new")).code == 2
    assert box.call("export", "v9", str(box.home / "new")).code == 4
    assert box.call("export", "--since", "latest", str(box.home / "new")).code == 4
    assert box.call("export", "v1", "/nowhere/at/all").code == 1
    assert other.call("export", "v1", "new").code == 3
    assert other.call("import", str(file), "--here").code == 3
    assert box.call("import", str(file), "--here", "--into", "x").code == 2
    assert box.call("import", str(file), "--into", str(box.home / "elsewhere")).code == 14
    assert not (box.home / "new").exists()


def test_without_references_everything_is_exported(box: Box) -> None:
    exported = box.call("export", "../all.keepfast", "--json").json()

    assert [row["version"] for row in exported["checkpoints"]] == ["v1", "v2", "v3"]


def test_answers_for_people(box: Box, other: Box) -> None:
    written = box.call("export", "v1", "v2", "../x.keepfast")
    taken = other.call("import", str(box.home / "x.keepfast"), cwd=other.home)

    assert re.fullmatch(r"Wrote 2 checkpoints \(v1, v2\) to .*/x.keepfast \([\d.]+MB, \d+ms\)\n", written.out)
    assert taken.out.startswith(
        'Imported 2 checkpoints of project into a workspace without a folder:\n  v1 "first"  cp-'
    )
    assert "keepfast fork" in taken.err


def test_json_of_an_export_names_every_checkpoint(box: Box) -> None:
    answer = box.call("export", "--all", "../y.keepfast", "--json").json()

    assert answer["bytes"] == (box.home / "y.keepfast").stat().st_size
    assert [row["version"] for row in answer["checkpoints"]] == ["v1", "v2", "v3"]
    json.dumps(answer)


def test_the_same_tree_twice_costs_one_copy(box: Box) -> None:
    once = exported(box, "v1").stat().st_size

    twice = exported(box, "v1", "v2", "v3").stat().st_size

    assert twice < once + 20_000
