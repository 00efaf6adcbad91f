"""Secret files: sealed in the store, and exact wherever they come back; without the key everything else still does."""

from __future__ import annotations

import json
import os
import re
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from blake3 import blake3

from keepfast.model.entry import SEALED
from keepfast.secrets.marks import IN_BASE64, REST, REST_LENGTH, SIGN, base64_forms, marks, packed_marks
from keepfast.store.factory import open_store
from keepfast.store.rows import LIST
from keepfast.workspace import plain_marks
from keepfast.workspace import secret_check as judge
from keepfast.workspace.secret_check import is_secret, places, scan
from tests.equipment.box import Box

PASSWORD = "s3cr3t-pA55-phrase"
ENV = f"DB_PASSWORD={PASSWORD}\n"
LARGE = bytes(range(256)) * 20_000


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """A project with two secret files, one of them in parts, and a plain one; two checkpoints."""
    box = Box(tmp_path / "here")
    assert box.call("init").code == 0
    box.put(".env", ENV)
    box.put("vault.kdbx", LARGE)
    box.put("plain.txt", "plain\n")
    box.save("-m", "first")
    box.put(".env", ENV + "MORE=1\n")
    box.put("plain.txt", "changed\n")
    box.save("-m", "second")
    return box


def key_file(box: Box) -> Path:
    (found,) = (box.home / ".local/share/keepfast/keys").glob("*.key")
    return found


def test_they_come_back_exactly_by_every_way(box: Box, tmp_path: Path) -> None:
    assert box.call("cat", "v1", ".env").out == ENV
    assert box.call("cat", "v1", "vault.kdbx").raw == LARGE
    assert "+MORE=1" in box.call("diff", "v1", "v2").out
    assert box.call("restore", "v1", "-y").code == 0
    assert (box.project / ".env").read_text() == ENV
    assert box.call("undo", "-y").code == 0
    assert (box.project / ".env").read_text() == ENV + "MORE=1\n"
    assert box.call("fork", "v1", str(tmp_path / "fork")).code == 0
    assert (tmp_path / "fork/vault.kdbx").read_bytes() == LARGE
    assert box.call("diff", "v2", "--json").json()["changes"] == []
    assert box.call("verify").code == 0
    assert box.call("rebuild").code == 0
    assert box.call("cat", "v1", ".env").out == ENV


def test_a_fork_without_the_key_says_by_its_exit_code_that_it_is_not_whole(box: Box, tmp_path: Path) -> None:
    key_file(box).unlink()

    done = box.call("fork", "v1", str(tmp_path / "fork"), "--json")

    assert done.code == 14
    assert {one["path"] for one in done.json()["kept"]} == {".env", "vault.kdbx"}
    assert (tmp_path / "fork/plain.txt").read_text() == "plain\n"
    assert not (tmp_path / "fork/.env").exists()


def test_an_unchanged_secret_makes_no_version_and_an_equal_one_costs_nothing(box: Box) -> None:
    assert box.call("save", "--auto").code == 0
    assert len(box.call("list", "--json").json()) == 2
    before = sum(path.stat().st_size for path in (box.store / "packs").iterdir())
    box.put("copy/vault.kdbx", LARGE)
    box.save("-m", "a copy")

    after = sum(path.stat().st_size for path in (box.store / "packs").iterdir())
    assert after - before < 5000


def test_compaction_keeps_them_sealed_and_whole(box: Box) -> None:
    assert box.call("forget", "v2", "-y").code == 0
    assert box.call("compact").code == 0

    assert box.call("cat", "v1", ".env").out == ENV
    assert box.call("cat", "v1", "vault.kdbx").raw == LARGE
    assert not [path for path in box.store.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()]
    assert box.call("verify").code == 0


def test_without_the_key_everything_else_comes_back_and_they_are_named(box: Box) -> None:
    key_file(box).unlink()

    assert box.call("cat", "v1", "plain.txt").out == "plain\n"
    assert box.call("cat", "v1", ".env").code == 12
    assert box.call("verify").code == 0
    done = box.call("restore", "v1", "-y")
    assert done.code == 14
    assert "kept .env: it is sealed, and its key is missing" in done.err
    assert (box.project / "plain.txt").read_text() == "plain\n"
    assert (box.project / ".env").read_text() == ENV + "MORE=1\n"
    assert box.call("restore", "v1", "-y", "--", ".env").code == 12


def test_after_the_key_is_lost_saving_goes_on_and_says_so(box: Box) -> None:
    kept = key_file(box).read_bytes()
    key_file(box).unlink()
    box.put(".env", "PASSWORD=another-one-17\n")

    said = box.call("save", "-m", "third")

    assert "key of the sealed contents is missing" in said.out + said.err
    assert box.call("cat", "latest", ".env").out == "PASSWORD=another-one-17\n"
    assert box.call("cat", "v1", ".env").code == 12
    key_file(box).write_bytes(kept)
    assert box.call("cat", "v1", ".env").out == ENV


def test_a_dry_run_of_a_rotation_changes_nothing(box: Box) -> None:
    keys = key_file(box).parent
    before = box.state(box.store, keys)
    told = box.call("key", "rotate", "--dry-run", "--json")
    said = box.call("key", "rotate", "-n")

    assert told.json() == {"key_file": str(key_file(box)), "set": None, "closed_sets": [], "dry_run": True}
    assert said.code == 0 and str(key_file(box)) in said.out
    assert box.state(box.store, keys) == before


def test_rotation_and_backup_by_command(box: Box, tmp_path: Path) -> None:
    words, backup = tmp_path / "words", tmp_path / "backup"
    words.write_text("a passphrase of some length\n")

    assert not box.call("key", "show", "--json").json()["backed_up"]
    assert box.call("key", "export", str(backup), "--passphrase-file", str(words)).code == 0
    assert backup.stat().st_mode & 0o777 == 0o600
    assert box.call("key", "export", str(backup), "--passphrase-file", str(words)).code == 14
    assert box.call("key", "show", "--json").json()["backed_up"]
    old = key_file(box).read_bytes()
    rotated = box.call("key", "rotate", "-y", "--json").json()
    assert rotated["key_file"] == str(key_file(box)) and rotated["closed_sets"] == []
    assert key_file(box).read_bytes() != old
    shown = box.call("key", "show", "--json").json()
    assert [(one["id"] == rotated["set"], one["seals"]) for one in shown["sets"]] == [(True, True), (False, False)]
    assert not shown["backed_up"]
    assert box.call("cat", "v1", ".env").out == ENV
    key_file(box).write_bytes(old)
    assert box.call("cat", "v1", ".env").code == 12
    assert box.call("key", "import", str(backup), "--passphrase-file", str(words)).code == 0
    assert box.call("cat", "v1", ".env").out == ENV
    (tmp_path / "wrong").write_text("another passphrase\n")
    assert box.call("key", "import", str(backup), "--passphrase-file", str(tmp_path / "wrong")).code == 12
    assert box.call("key", "import", str(box.project / "plain.txt"), "--passphrase-file", str(words)).code == 13
    assert box.call("key", "import", str(tmp_path / "nothing"), "--passphrase-file", str(words)).code == 4
    assert box.call("key", "export", str(tmp_path / "other")).code == 2


def test_a_rotation_stores_nothing_again_and_shows_nothing_as_changed(box: Box) -> None:
    def packed() -> int:
        return sum(path.stat().st_size for path in (box.store / "packs").iterdir())

    assert box.call("key", "rotate", "-y").code == 0
    before = packed()
    for name in (".env", "vault.kdbx"):
        os.utime(box.project / name, (1, 1))  # so that it is read again

    assert box.call("diff", "v2", "--json").json()["changes"] == []
    assert box.call("save", "-m", "the same").code == 0
    assert packed() - before < 3000  # rows, no contents
    assert box.call("diff", "v2", "v3", "--json").json()["changes"] == []
    os.utime(box.project / "vault.kdbx", (2, 2))
    assert box.call("restore", "v2", "-y", "--json", "--", "vault.kdbx").json()["reason"] == "nothing to do"
    (box.project / "vault.kdbx").write_bytes(LARGE[:-1] + b"x")
    before = packed()
    box.save("-m", "its end has changed")
    assert packed() - before < 2 << 20
    assert box.call("restore", "v1", "-y").code == 0
    assert (box.project / "vault.kdbx").read_bytes() == LARGE
    assert box.call("restore", "v4", "-y").code == 0
    assert (box.project / "vault.kdbx").read_bytes() == LARGE[:-1] + b"x"
    assert box.call("verify").code == 0


def test_a_bundle_of_files_with_parts_of_several_key_sets_opens_elsewhere_and_where_it_came_from(
    box: Box, tmp_path: Path
) -> None:
    other, words = Box(tmp_path / "there"), tmp_path / "words"
    words.write_text("a passphrase of some length\n")
    how = ("--passphrase-file", str(words))
    assert box.call("key", "rotate", "-y").code == 0
    box.put("vault.kdbx", LARGE[:-1] + b"x")
    box.save("-m", "third")
    assert box.call("export", "--all", str(tmp_path / "x"), "--with-secrets", *how).code == 0
    assert box.call("key", "rotate", "-y").code == 0

    assert other.call("import", str(tmp_path / "x"), "--into", ".", *how).code == 0
    assert box.call("import", str(tmp_path / "x"), *how).code == 0

    for version, content in (("v3", LARGE[:-1] + b"x"), ("v1", LARGE)):
        assert other.call("restore", version, "-y").code == 0
        assert (other.project / "vault.kdbx").read_bytes() == content
        assert other.call("diff", version, "--json").json()["changes"] == []
    assert box.call("cat", "v3", "vault.kdbx").raw == LARGE[:-1] + b"x"


def test_files_with_parts_under_a_key_that_is_not_here_are_named(box: Box) -> None:
    before = key_file(box), key_file(box).read_bytes()
    seal, copies = (box.store / "seal").read_bytes(), list(before[0].parent.glob("*.seal"))
    said = {path: path.read_bytes() for path in copies}
    assert box.call("key", "rotate", "-y").code == 0
    box.put("vault.kdbx", LARGE[:-1] + b"x")  # its first parts are sealed with the old set
    box.save("-m", "third")
    for path in before[0].parent.iterdir():
        path.unlink()
    before[0].write_bytes(before[1])
    for path, text in said.items():
        path.write_bytes(text)
    (box.store / "seal").write_bytes(seal)
    box.put("vault.kdbx", b"")
    box.put("plain.txt", "changed again\n")

    done = box.call("restore", "v3", "-y", "--json")

    assert done.code == 14
    assert [one["path"] for one in done.json()["kept"]] == ["vault.kdbx"]


def test_each_key_set_says_how_many_contents_it_opens(box: Box) -> None:
    box.put("noise", Random(1).randbytes(300_000))  # lies in its pack as it is, as what is sealed does
    box.save("-m", "noise")
    first = {one["id"]: one["contents"] for one in box.call("key", "show", "--json").json()["sets"]}
    assert list(first.values()) == [2 + 2]  # two versions of .env, and the parts of a file, of which four are equal
    assert box.call("key", "rotate", "-y").code == 0
    box.put(".env", "PASSWORD=another-one-17\n")
    box.save("-m", "third")

    shown = box.call("key", "show", "--json").json()
    assert {one["id"]: one["contents"] for one in shown["sets"]} == {**first, shown["sets"][0]["id"]: 1}
    assert [(one["file"], sorted(one["sets"])) for one in shown["key_files"]] == [
        (str(key_file(box)), sorted(one["id"] for one in shown["sets"]))
    ]
    assert box.call("doctor", "--json").json()["ok"] is True
    key_file(box).unlink()
    shown = box.call("key", "show", "--json").json()
    assert [(one["opens"], one["contents"]) for one in shown["sets"]] == [(False, 1), (False, 4)]
    assert shown["key_file"] is None
    report = box.call("doctor", "--json")
    assert report.code != 0
    assert all(one in report.out for one in first)


def test_contents_of_a_bundle_whose_passphrase_was_not_given_are_listed_as_closed(box: Box, tmp_path: Path) -> None:
    other, words = Box(tmp_path / "there"), tmp_path / "words"
    words.write_text("a passphrase of some length\n")
    how = ("--passphrase-file", str(words))
    assert box.call("export", "v1", str(tmp_path / "x"), "--with-secrets", *how).code == 0
    assert other.call("import", str(tmp_path / "x"), "--into", ".").code == 0

    shown = other.call("key", "show", "--json").json()
    assert [(one["opens"], one["seals"], one["contents"]) for one in shown["sets"]] == [(False, False, 3)]
    assert other.call("key", "import", str(tmp_path / "x"), *how).code == 0
    shown = other.call("key", "show", "--json").json()
    assert [(one["opens"], one["seals"], one["contents"]) for one in shown["sets"]] == [
        (True, True, 0),
        (True, False, 3),
    ]


@pytest.mark.parametrize("words", ["right", "passphrase", "correct horse", "Password2024!", "qwertyuiopasdfghjkl"])
def test_a_weak_passphrase_is_refused_and_nothing_is_written(box: Box, tmp_path: Path, words: str) -> None:
    (tmp_path / "words").write_text(words + "\n")
    how = ("--passphrase-file", str(tmp_path / "words"))

    assert box.call("key", "export", str(tmp_path / "backup"), *how).code == 2
    assert box.call("export", "v1", str(tmp_path / "x"), "--with-secrets", *how).code == 2
    assert not (tmp_path / "backup").exists() and not (tmp_path / "x").exists()


def test_a_damaged_content_from_before_a_rotation_is_healed_from_the_file_on_disk(box: Box) -> None:
    assert box.call("key", "rotate", "-y").code == 0
    for pack in (box.store / "packs").iterdir():
        data = bytearray(pack.read_bytes())
        at = data.find(b"HFS1")
        while at >= 0:
            data[at + 60] ^= 1
            at = data.find(b"HFS1", at + 1)
        pack.chmod(0o600)
        pack.write_bytes(data)

    assert box.call("verify").code == 13
    box.call("verify", "--repair")
    assert box.call("cat", "v2", ".env").out == ENV + "MORE=1\n"
    assert box.call("cat", "v2", "vault.kdbx").raw == LARGE


def test_a_damaged_list_of_parts_of_several_key_sets_is_healed_from_the_file_on_disk(box: Box) -> None:
    lists = [LARGE]
    assert box.call("key", "rotate", "-y").code == 0
    lists.append(LARGE[:-1] + b"x")  # its first parts are sealed with the old set
    box.put("vault.kdbx", lists[-1])
    box.put("copy.kdbx", LARGE)
    box.save("-m", "third")
    with closing(open_store(str(box.store), durable=False)) as repository:
        places = [place for _, place in repository.ledger.locations() if place.kind == LIST]
    assert len(places) == len(lists)
    for place in places:
        pack = box.store / f"packs/{place.pack}.pack"
        data = bytearray(pack.read_bytes())
        data[place.frame + 1 + place.offset + 10] ^= 1
        pack.chmod(0o600)
        pack.write_bytes(data)

    assert box.call("verify").code == 13
    box.call("verify", "--repair")
    assert box.call("cat", "v3", "vault.kdbx").raw == lists[1]
    assert box.call("cat", "v3", "copy.kdbx").raw == lists[0]


def test_a_store_that_got_a_new_id_still_opens_what_is_sealed(box: Box) -> None:
    """The key lies under the store's id, and the file with that id can be damaged as any other."""
    key = key_file(box)
    (box.store / "format").write_text("")

    assert box.call("verify", "--repair").code == 0

    assert box.call("key", "show", "--json").json()["key_file"] == str(key)
    assert box.call("cat", "v1", ".env").out == ENV
    assert "key" not in box.call("status").out.partition("no backup")[0]
    box.put(".env", "PASSWORD=another-one-17\n")
    assert box.call("save", "-m", "third").code == 0
    assert box.call("key", "rotate", "-y").code == 0
    assert box.call("cat", "v1", ".env").out == ENV
    assert box.call("cat", "latest", ".env").out == "PASSWORD=another-one-17\n"


def test_a_damaged_file_with_the_sealed_keys_is_found_and_healed(box: Box) -> None:
    seal = box.store / "seal"
    seal.write_bytes(seal.read_bytes().replace(b'"box"', b'"bux"'))

    assert box.call("cat", "v1", ".env").out == ENV
    assert box.call("verify").code == 13
    assert box.call("verify", "--repair").code == 0
    assert box.call("verify").code == 0
    assert box.call("cat", "v1", ".env").out == ENV


def test_a_damaged_sealed_content_is_healed_from_the_file_on_disk(box: Box) -> None:
    packs = [path for path in (box.store / "packs").iterdir() if b"HFS1" in path.read_bytes()]
    newest = max(packs, key=lambda path: path.stat().st_mtime_ns)
    data = bytearray(newest.read_bytes())
    data[data.index(b"HFS1") + 60] ^= 1
    newest.write_bytes(data)

    assert box.call("verify").code == 13
    assert box.call("verify", "--repair").code == 0
    assert box.call("cat", "v2", ".env").out == ENV + "MORE=1\n"


# Bundles


def test_a_bundle_leaves_secrets_out_and_says_so(box: Box, tmp_path: Path) -> None:
    other = Box(tmp_path / "there")

    said = box.call("export", "v1", "v2", str(tmp_path / "x"))

    assert said.code == 0
    assert ".env" in said.err and "vault.kdbx" in said.err
    assert PASSWORD.encode() not in (tmp_path / "x").read_bytes()
    assert other.call("import", str(tmp_path / "x"), "--into", ".").code == 0
    assert other.call("verify").code == 0
    assert other.call("restore", "latest", "-y").code == 0
    assert (other.project / "plain.txt").read_text() == "changed\n"
    assert not (other.project / ".env").exists()
    left = other.call("show", "v2", "--left-out", "--json").json()["left_out"]
    assert {one["path"]: one["reason"] for one in left} == {
        ".env": "sealed, and excluded from a bundle", "vault.kdbx": "sealed, and excluded from a bundle",
    }  # fmt: skip


def test_a_bundle_names_every_file_that_it_leaves_out(box: Box, tmp_path: Path) -> None:
    report = box.call("export", "v1", "v2", str(tmp_path / "x"), "--json").json()

    assert [one["path"] for one in report["left_out_files"]] == [".env", "vault.kdbx"]
    assert (report["left_out"], report["left_out_conversations"]) == (3, 0)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("docs/fields.md", "| `tokens_used`, `tokensUsed` | `tokens_used` |\n| `token_budget` | `token_budget` |\n"),
        ("notes.md", "If you want, you can pass `collapse_repeated_frames=False` to it, or `parse_all=True`.\n"),
        ("src/models.py", 'user_id = "AKIAIOSFODNN7EXAMPLE"\n'),
    ],
)
def test_ordinary_sources_are_not_taken_for_secrets(name: str, text: str) -> None:
    assert not is_secret(name.encode(), text.encode())


def test_a_bundle_takes_secrets_along_under_a_passphrase(box: Box, tmp_path: Path) -> None:
    other, words = Box(tmp_path / "there"), tmp_path / "words"
    words.write_text("a passphrase of some length\n")
    how = ("--passphrase-file", str(words))
    assert box.call("export", "--all", str(tmp_path / "x"), "--with-secrets", *how).code == 0
    assert PASSWORD.encode() not in (tmp_path / "x").read_bytes()

    assert other.call("import", str(tmp_path / "x"), "--into", ".", *how).code == 0

    assert other.call("restore", "v1", "-y").code == 0
    assert (other.project / ".env").read_text() == ENV
    assert (other.project / "vault.kdbx").read_bytes() == LARGE
    assert other.call("diff", "v1", "--json").json()["changes"] == []
    other.put(".env", "PASSWORD=mine-now-88\n")
    other.save("-m", "own")
    assert other.call("restore", "v1", "-y").code == 0
    assert other.call("verify").code == 0


def test_the_wrong_passphrase_imports_nothing(box: Box, tmp_path: Path) -> None:
    other = Box(tmp_path / "there")
    (tmp_path / "words").write_text("a passphrase of some length\n")
    (tmp_path / "wrong").write_text("wrong\n")
    box.call("export", "v1", str(tmp_path / "x"), "--with-secrets", "--passphrase-file", str(tmp_path / "words"))

    said = other.call("import", str(tmp_path / "x"), "--into", ".", "--passphrase-file", str(tmp_path / "wrong"))

    assert said.code == 12
    assert not other.store.exists()


# The rule


@pytest.mark.parametrize(
    "path",
    [".env", "a/.env.local", ".env.production", "prod.env", ".netrc", ".npmrc", "id_rsa", "deploy/id_ed25519", "x.kdbx",
     "credentials.json", "secrets.yaml", ".aws/credentials", ".ssh/config", "terraform.tfvars", "x.pfx", "x.p12", "a/x.jks"],
)  # fmt: skip
def test_some_names_are_enough(path: str) -> None:
    assert is_secret(path.encode(), b"anything")
    assert is_secret(path.encode(), None)


@pytest.mark.parametrize("stem", ["credentials", "secrets", "secret"])
def test_files_that_are_called_secrets_are_by_the_endings_that_the_guide_names(stem: str) -> None:
    guide = Path(__file__).parents[2] / "docs/guides/secrets.md"
    listed = guide.read_text().partition("with one of these endings:")[2].partition(";")[0]
    endings = re.findall(r"`(\.\w+)`", listed)

    assert {".properties", ".cfg", ".conf", ".csv", ".txt"} <= set(endings)
    every = [*endings, *(".py .js .go .rs .rb .ts .c .html .md .rst .lock .example").split()]
    assert [one for one in every if is_secret(f"a/{stem}{one}".encode(), b"just a sentence here\n")] == endings


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (".env.example", "PASSWORD=your-password\nTOKEN=\n"),
        (".ssh/id_rsa.pub", "ssh-rsa AAAAB3NzaC1yc2E user@host\n"),
        ("cert.pem", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"),
        ("package-lock.json", '{"integrity": "sha512-' + "Ab3/" * 21 + 'xyzw=="}'),
        ("main.py", "password = getpass()\ntoken = os.environ['TOKEN']\n"),
        ("settings.yaml", "password: ${DB_PASSWORD}\ntoken: <your token>\napi_key: changeme\n"),
        ("README.md", "Set `API_KEY=xxxxxxxxxxxx` and the token expires after 30 days.\n"),
        ("schema.json", '{"password": {"type": "string", "minLength": 8}, "token": "string"}'),
        ("url.txt", "https://user:password@example.org and https://user:${TOKEN}@example.org\n"),
        ("keys.c", "AKIA is a prefix; -----BEGIN PRIVATE KEY----- is a line\n"),
    ],
)
def test_what_only_speaks_of_secrets_is_none(path: str, content: str) -> None:
    assert not is_secret(path.encode(), content.encode())


BACKUPS = [".bak", ".backup", ".old", ".orig", ".save", ".swp", ".swo", ".tmp", "~", ".1", ".copy", ".bak2", ".old.3", ".~4~",
           ".bak~", "_backup", "-old", " copy", ".orig.2024"]  # fmt: skip


@pytest.mark.parametrize("suffix", BACKUPS)
@pytest.mark.parametrize("name", ["id_rsa", "id_ed25519", ".netrc", ".pgpass", ".env", ".env.local", "secrets.yaml",
                                  "a.kdbx", ".aws/credentials", "server.key"])  # fmt: skip
def test_a_backup_of_a_secret_file_is_secret(name: str, suffix: str) -> None:
    assert is_secret(f"a/{name}{suffix}".encode(), b"plain words\n")
    assert is_secret(f"{name}{suffix}".upper().encode(), b"plain words\n") or "/" in name


@pytest.mark.parametrize("name", [".id_rsa.swp", "#id_rsa#", "#.netrc#", ".secrets.yaml.swo", ".server.key.swp"])
def test_what_an_editor_leaves_of_a_secret_file_is_secret(name: str) -> None:
    assert is_secret(name.encode(), b"plain words\n")


@pytest.mark.parametrize("suffix", ["", *BACKUPS])
@pytest.mark.parametrize("name", [".env.example", ".env.sample", ".env.template", ".env.dist", "id_rsa.pub", "main.c",
                                  ".ssh/known_hosts", "secrets.py", "ls"])  # fmt: skip
def test_a_backup_of_an_open_file_is_open(name: str, suffix: str) -> None:
    assert not is_secret(f"{name}{suffix}".encode(), b"plain words\n")


def test_a_backup_of_settings_is_looked_at_as_settings_are() -> None:
    text = b"host: localhost\npassword: Zq7-Lm2-Xw9-RtB\n"

    assert [name for name in (b"a.yaml", b"a.yaml.bak", b"a.yaml~", b"a.ini.old.2") if not is_secret(name, text)] == []
    assert not is_secret(b"a.c.bak", text)
    assert not is_secret(b"passwd.1", text)


@pytest.mark.parametrize("ending", ["pem", "key", "p8", "der"])
def test_a_text_called_key_is_secret_unless_it_shows_certificates_or_public_keys(ending: str) -> None:
    words = b"the first of many words\n" * 10
    open_ones = [b"-----BEGIN CERTIFICATE-----\nMIIB\n", b"ssh-ed25519 AAAAC3Nz me\n", b"-----BEGIN PUBLIC KEY-----\n"]

    assert is_secret(f"x.{ending}".encode(), words)
    assert is_secret(f"x.{ending}".encode(), b"for the ssh-server and its -----BEGIN CERTIFICATE\n")
    assert is_secret(f"x.{ending}".encode(), b"")
    assert not any(is_secret(f"x.{ending}".encode(), words + text) for text in open_ones)
    token = b"ghp_" + b"a1B2c3D4e5F6" * 3 + b"\n"
    assert all(is_secret(f"x.{ending}".encode(), text + token) for text in open_ones)


def test_a_key_in_a_file_called_pem_is_secret_and_a_binary_one_too() -> None:
    key = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" * 4 + "\n-----END PRIVATE KEY-----\n"
    assert is_secret(b"x.pem", key.encode())
    assert is_secret(b"x.key", os.urandom(200))


SQUARE = "EAAAEOz0UqW1hV-7tNc4kYp2LrXb9sGd6MfJwAiTq3Ze8RuKvBnCxHyDoPmSlQa_"


@pytest.mark.parametrize("gap", ["", "\n", "\\\n", '"\n    "', " +\n", "\\n"])
def test_a_key_whose_beginning_source_maps_have_by_chance_is_found_wrapped_or_not(gap: str) -> None:
    text = f'x = "{SQUARE[:14]}{gap}{SQUARE[14:]}";\n'
    assert is_secret(b"a.js", text.encode())


def test_a_source_map_is_not_looked_at_closely(monkeypatch: pytest.MonkeyPatch) -> None:
    mappings = b'{"mappings":"AAAA;EAAA,CAAC;EAAAA,CAACC;EAAA;;EAAAC,EAAIC","names":["EAAA"]}'
    for compiled in (judge.__dict__["_marks"], None):
        monkeypatch.setattr(judge, "_marks", compiled)
        assert scan(mappings) == 0
        assert scan(mappings + SQUARE.encode()) == SIGN


def test_the_search_without_the_accelerator_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [
        b"", b"abc", b"x" * 7 + b"ghp_", b"AKI", b"a token", b"TOKEN", b"postgres://u:p@h", b"http://u@h", b"http://h/a:b@c",
        *(b"." * shift + b"xoxb-1 and a PassWord" for shift in range(12)),
    ]  # fmt: skip
    chance = Random(8)
    known = [mark for mark, _ in marks()]
    known += [form for mark, kind in marks() if kind & IN_BASE64 for form, _ in base64_forms(mark)]
    around = [
        b"0123456789abcdefg", b"Zx9", b";", b"a://u:p@", b"ab://u:", b"/", b":", b"@", b":80/", b"\\\n  ", b'"\n > "', b"\\n",
        b"%3D", b"\\u003d", b"KEY", b"\n", b" ", b"PRIV", b"pass", b"x" * 90, b" " * 81, b"<",
        b"%40", b"%3a", b"\x1b[1;31m", b"\\_",
    ]  # fmt: skip
    texts += [b"".join(chance.choices(around, k=chance.randrange(12))) for _ in range(3000)]
    known += 30 * around
    texts += [b"".join(chance.choices(known, k=chance.randrange(8))) + b"x" * chance.randrange(3) for _ in range(3000)]
    parts = [*known, *(mark[:3].swapcase() for mark in known), *(bytes([byte]) * 9 for byte in range(256))]
    texts += [b"".join(chance.choices(parts, k=chance.randrange(90))) for _ in range(600)]

    def found() -> list[list[tuple[int, list[int]]]]:
        return [[(scan(text, kinds), sorted(set(places(text, kinds)))) for kinds in (1, 2, 3)] for text in texts]

    fast = found()
    compiled = judge.__dict__["_marks"]
    if compiled is not None:
        compiled.load(packed_marks(), REST, REST_LENGTH, False)  # as on processors that look up no 64 bytes at once
        try:
            assert found() == fast
        finally:
            compiled.load(packed_marks(), REST, REST_LENGTH, True)
    monkeypatch.setattr(judge, "_marks", None)

    assert found() == fast


class Counted(bytes):
    """A content that counts how often something is looked for in it."""

    asked = 0

    def __contains__(self, item: object) -> bool:
        type(self).asked += 1
        return super().__contains__(item)  # type: ignore[operator]

    def find(self, *given: Any) -> int:
        type(self).asked += 1
        return super().find(*given)


def test_without_the_accelerator_a_content_is_not_searched_for_each_mark_by_itself() -> None:
    """There are hundreds of marks; a save of many files must not take as many times as long."""
    Counted.asked = 0
    text = Counted(b"def add(one, other):\n    return one + other\n" * 500)

    assert plain_marks.scan(text, SIGN) == 0
    assert Counted.asked < len(list(marks())) // 20


@pytest.mark.parametrize(
    "given", [b"\x02\x08ab", b"\x03\x01abc", b"\x09\x01abc", b"\xff\x01" + b"a" * 255, b"\x05\x01abcde" * 5000]
)
def test_marks_that_do_not_fit_are_refused(given: bytes) -> None:
    compiled = pytest.importorskip("keepfast.workspace._marks")
    try:
        with pytest.raises(ValueError, match="mark"):
            compiled.load(given, REST, REST_LENGTH, True)
    finally:
        compiled.load(packed_marks(), REST, REST_LENGTH, True)


def test_rows_say_that_their_content_is_sealed(box: Box) -> None:
    from keepfast.store.factory import open_store

    repository = open_store(str(box.store), keys=str(box.home / ".local/share/keepfast/keys"))
    rows = {row.path: row for row in repository.ledger.state(repository.ledger.workspaces()[0].id, 1)}
    repository.close()

    assert rows[b".env"].flags & SEALED and rows[b"vault.kdbx"].flags & SEALED
    assert not rows[b"plain.txt"].flags & SEALED
    assert json.dumps(sorted(path.decode() for path in rows)) == '[".env", "plain.txt", "vault.kdbx"]'


def test_any_part_of_a_sealed_file_can_be_read_as_a_mount_does(box: Box) -> None:
    from keepfast.store.factory import open_store
    from keepfast.store.ranges import Ranges

    repository = open_store(str(box.store), keys=str(box.home / ".local/share/keepfast/keys"))
    rows = {row.path: row for row in repository.ledger.state(repository.ledger.workspaces()[0].id, 1)}
    ranges = Ranges(lambda: repository)

    large, small = rows[b"vault.kdbx"], rows[b".env"]
    parts = [ranges.read(large.content, large.size, at, 1000) for at in (0, (1 << 20) - 500, large.size - 10)]
    assert parts == [LARGE[at : at + 1000] for at in (0, (1 << 20) - 500, large.size - 10)]
    assert ranges.read(small.content, small.size, 3, 5) == ENV.encode()[3:8]
    repository.close()


def test_the_name_of_a_sealed_content_is_not_told_as_its_digest(box: Box) -> None:
    """It is made with a key. A digest of the content itself would let anybody who sees it try passwords."""
    told = {one["path"]: one["new"] for one in box.call("show", "v2", "--json").json()["changes"]}

    assert told[".env"]["sealed"] is True and "blake3" not in told[".env"]
    assert "sealed" not in told["plain.txt"] and told["plain.txt"]["blake3"] == blake3(b"changed\n").hexdigest()


CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB" + "MTE2MjEaEAACeyJ0\n" * 20 + "-----END CERTIFICATE-----\n"
CERTIFICATE_KEY = "AKIA" + "QW5ERTYU7IOP2ASD"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CERTIFICATE * 3, False),
        (f"{CERTIFICATE}key: {CERTIFICATE_KEY}\n{CERTIFICATE}", True),
        (CERTIFICATE.replace("\n-----END", f"\n{CERTIFICATE_KEY} \n-----END"), True),
        (CERTIFICATE.replace("-----END CERTIFICATE-----\n", f"{CERTIFICATE_KEY}\n"), True),
    ],
)
def test_certificates_are_public_and_what_stands_around_them_is_not(text: str, expected: bool) -> None:
    assert is_secret(b"src/certificates.txt", text.encode()) is expected
