"""Secret files: sealed in the store, and exact wherever they come back; without the key everything else still does."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random

import pytest

from cli.box import Box
from holdfast.core.entry import SEALED
from holdfast.core.secrecy import CHANCE, REST, REST_LENGTH, WORDS, packed, signs
from holdfast.workspace import judge
from holdfast.workspace.judge import is_secret, places, scan

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
    (found,) = (box.home / ".local/share/holdfast/keys").glob("*.key")
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
    assert "kept .env: it is sealed, and its key is not at hand" in done.err
    assert (box.project / "plain.txt").read_text() == "plain\n"
    assert (box.project / ".env").read_text() == ENV + "MORE=1\n"
    assert box.call("restore", "v1", "-y", "--", ".env").code == 12


def test_after_the_key_is_lost_saving_goes_on_and_says_so(box: Box) -> None:
    kept = key_file(box).read_bytes()
    key_file(box).unlink()
    box.put(".env", "PASSWORD=another-one-17\n")

    said = box.call("save", "-m", "third")

    assert "key of what was sealed so far is missing" in said.out + said.err
    assert box.call("cat", "latest", ".env").out == "PASSWORD=another-one-17\n"
    assert box.call("cat", "v1", ".env").code == 12
    key_file(box).write_bytes(kept)
    assert box.call("cat", "v1", ".env").out == ENV


def test_rotation_and_backup_by_command(box: Box, tmp_path: Path) -> None:
    words, backup = tmp_path / "words", tmp_path / "backup"
    words.write_text("a passphrase of some length\n")

    assert not box.call("key", "show", "--json").json()["backed_up"]
    assert box.call("key", "export", str(backup), "--passphrase-file", str(words)).code == 0
    assert backup.stat().st_mode & 0o777 == 0o600
    assert box.call("key", "export", str(backup), "--passphrase-file", str(words)).code == 14
    assert box.call("key", "show", "--json").json()["backed_up"]
    old = key_file(box).read_bytes()
    assert box.call("key", "rotate", "-y").code == 0
    assert key_file(box).read_bytes() != old
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
    assert "Left out: 3 sealed contents" in said.err
    assert PASSWORD.encode() not in (tmp_path / "x").read_bytes()
    assert other.call("import", str(tmp_path / "x"), "--into", ".").code == 0
    assert other.call("verify").code == 0
    assert other.call("restore", "latest", "-y").code == 0
    assert (other.project / "plain.txt").read_text() == "changed\n"
    assert not (other.project / ".env").exists()
    left = other.call("show", "v2", "--left-out", "--json").json()["left_out"]
    assert {one["path"]: one["reason"] for one in left} == {
        ".env": "sealed, and left out of a bundle", "vault.kdbx": "sealed, and left out of a bundle",
    }  # fmt: skip


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
    (tmp_path / "words").write_text("right\n")
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
        assert scan(mappings + SQUARE.encode()) == judge.SIGN


def test_the_search_without_the_accelerator_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [
        b"", b"abc", b"x" * 7 + b"ghp_", b"AKI", b"a token", b"TOKEN", b"postgres://u:p@h", b"http://u@h", b"http://h/a:b@c",
        *(b"." * shift + b"xoxb-1 and a PassWord" for shift in range(12)),
    ]  # fmt: skip
    chance = Random(8)
    marks = [*signs(), *WORDS, *CHANCE, b"0123456789abcdefg", b";", b"a://u:p@", b"KEY", b"\n", b" ", b"PRIV", b"pass"]
    texts += [b"".join(chance.choices(marks, k=chance.randrange(8))) + b"x" * chance.randrange(3) for _ in range(3000)]
    parts = [*marks, *(mark[:3].swapcase() for mark in marks), *(bytes([byte]) * 9 for byte in range(256))]
    texts += [b"".join(chance.choices(parts, k=chance.randrange(90))) for _ in range(600)]

    def found() -> list[list[tuple[int, list[int]]]]:
        return [[(scan(text, kinds), places(text, kinds)) for kinds in (1, 2, 3)] for text in texts]

    fast = found()
    compiled = judge.__dict__["_marks"]
    if compiled is not None:
        compiled.load(packed(), REST, REST_LENGTH, False)  # as on processors that look up no 64 bytes at once
        try:
            assert found() == fast
        finally:
            compiled.load(packed(), REST, REST_LENGTH, True)
    monkeypatch.setattr(judge, "_marks", None)

    for quick, plain in zip(fast, found(), strict=True):
        assert [kinds for kinds, _ in quick] == [kinds for kinds, _ in plain]
        # The pattern skips marks that overlap with one before; the search names all.
        assert all(set(few) <= set(every) for (_, every), (_, few) in zip(quick, plain, strict=True))


@pytest.mark.parametrize("marks", [b"\x03\x01abc", b"\x09\x01abc", b"\xff\x01" + b"a" * 255, b"\x05\x01abcde" * 2000])
def test_marks_that_do_not_fit_are_refused(marks: bytes) -> None:
    compiled = pytest.importorskip("holdfast.workspace._marks")
    try:
        with pytest.raises(ValueError, match="mark"):
            compiled.load(marks, REST, REST_LENGTH, True)
    finally:
        compiled.load(packed(), REST, REST_LENGTH, True)


def test_rows_say_that_their_content_is_sealed(box: Box) -> None:
    from holdfast.store.open import open_store

    repository = open_store(str(box.store), keys=str(box.home / ".local/share/holdfast/keys"))
    rows = {row.path: row for row in repository.ledger.state(repository.ledger.workspaces()[0].id, 1)}
    repository.close()

    assert rows[b".env"].flags & SEALED and rows[b"vault.kdbx"].flags & SEALED
    assert not rows[b"plain.txt"].flags & SEALED
    assert json.dumps(sorted(path.decode() for path in rows)) == '[".env", "plain.txt", "vault.kdbx"]'


def test_any_part_of_a_sealed_file_can_be_read_as_a_mount_does(box: Box) -> None:
    from holdfast.store.open import open_store
    from holdfast.store.ranges import Ranges

    repository = open_store(str(box.store), keys=str(box.home / ".local/share/holdfast/keys"))
    rows = {row.path: row for row in repository.ledger.state(repository.ledger.workspaces()[0].id, 1)}
    ranges = Ranges(lambda: repository)

    large, small = rows[b"vault.kdbx"], rows[b".env"]
    parts = [ranges.read(large.content, large.size, at, 1000) for at in (0, (1 << 20) - 500, large.size - 10)]
    assert parts == [LARGE[at : at + 1000] for at in (0, (1 << 20) - 500, large.size - 10)]
    assert ranges.read(small.content, small.size, 3, 5) == ENV.encode()[3:8]
    repository.close()
