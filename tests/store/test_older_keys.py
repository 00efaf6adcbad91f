"""What was sealed by the first layout of keys opens as before: stores, key files, backups and bundles, weak passphrases too.

The sample has a key under the store's id, one that was made while that was missing, and copies in one file for all.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from keepfast.store.conversations import conversation_from_json, load_transcript
from keepfast.store.factory import open_store
from keepfast.store.repository import Repository
from keepfast.store.rows import Query
from keepfast.store.sealed import Sealer
from tests.equipment.box import Box

SAMPLE = Path(__file__).parents[1] / "data/sealed-1"
CONTENTS = [
    b"DB_PASSWORD=s3cr3t-pA55-phrase\n",
    b"DB_PASSWORD=an0ther-pA55-phrase\n",
    b"DB_PASSWORD=an0ther-pA55-phrase\n",
]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    for name in ("store", "keys"):
        shutil.copytree(SAMPLE / name, tmp_path / name)
    for keep in tmp_path.rglob(".keep"):
        keep.unlink()
    return tmp_path


def opened(base: Path) -> Repository:
    return open_store(str(base / "store"), durable=False, keys=str(base / "keys"))


def check(base: Path) -> None:
    repository = opened(base)
    rows = repository.ledger.find(Query())[::-1]
    for row, content in zip(rows, CONTENTS, strict=True):
        [secret] = [entry for entry in repository.ledger.state(row.workspace, row.version) if entry.path == b".env"]
        assert repository.contents.load(secret.content) == content
    conversation = conversation_from_json(repository.document(rows[-1])[0].conversation)
    assert conversation is not None
    assert b"".join(load_transcript(repository, conversation.transcript)) == (SAMPLE / "transcript.jsonl").read_bytes()
    assert all(opens for _, opens in repository.contents.sealer().keys.sets())
    repository.close()


def test_an_older_store_opens_and_nothing_is_written_for_that(base: Path) -> None:
    before = {path: path.read_bytes() for path in (base / "keys").iterdir()}

    check(base)

    assert {path: path.read_bytes() for path in (base / "keys").iterdir()} == before


def test_it_is_sealed_to_with_the_same_keys_as_before(base: Path) -> None:
    sealer = opened(base).contents.sealer()

    sealed = sealer.seal(b"new")

    assert sealed[5:13].hex() == "25e4455f6f458b09"  # the first that opens, as ever
    assert Sealer(sealer.keys.store, sealer.keys.folder).open(sealed) == b"new"
    check(base)


def test_its_keys_are_rotated_like_any(base: Path) -> None:
    old, sealer = set((base / "keys").glob("*.*")), opened(base).contents.sealer()

    sealer.keys.rotate()

    check(base)
    assert sealer.seal(b"new")[5:13].hex() not in ("25e4455f6f458b09", "c7e2dcdcf9ad83a5")
    assert {path.name for path in old & set((base / "keys").glob("*.*"))} == {
        "bc65fd4ee78417d3c95a85a6e43274a3.key.backed-up"
    }
    shutil.copytree(SAMPLE / "keys", base / "keys", dirs_exist_ok=True)
    check(base)


def test_its_old_folder_of_keys_alone_opens_it_after_a_rotation(base: Path) -> None:
    opened(base).contents.sealer().keys.rotate()
    shutil.rmtree(base / "keys")
    shutil.copytree(SAMPLE / "keys", base / "keys")

    sealer = opened(base).contents.sealer()

    assert [opens for one, opens in sealer.keys.sets() if one in ("25e4455f6f458b09", "c7e2dcdcf9ad83a5")] == [
        True,
        True,
    ]


def test_without_one_of_its_keys_the_rest_opens(base: Path) -> None:
    (base / "keys/bc65fd4ee78417d3c95a85a6e43274a3.key").unlink()

    assert dict(opened(base).contents.sealer().keys.sets()) == {"25e4455f6f458b09": True, "c7e2dcdcf9ad83a5": False}


def test_its_backup_and_its_bundle_open_with_the_weak_passphrase_they_have(base: Path, tmp_path: Path) -> None:
    (tmp_path / "words").write_text("weak\n")
    how = ("--passphrase-file", str(tmp_path / "words"))
    box = Box(tmp_path / "there")

    assert box.call("import", str(SAMPLE / "bundle"), "--into", ".", *how).code == 0
    assert [box.call("cat", f"v{at + 1}", ".env").raw for at in range(3)] == CONTENTS
    assert box.call("key", "import", str(SAMPLE / "backup"), *how, "--json").json() == {"new": 0}
    shutil.rmtree(base / "keys")
    assert opened(base).contents.sealer().keys.import_backup(json.loads((SAMPLE / "backup").read_text()), "weak") == 2
    check(base)
