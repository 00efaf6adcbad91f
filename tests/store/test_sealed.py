"""Sealed contents come back exactly, and only with their key; what was changed is noticed."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.model.entry import Entry
from keepfast.model.errors import Damaged, Failed, KeepfastError, Usage, WrongKey
from keepfast.store.contents import Contents
from keepfast.store.digest import digest
from keepfast.store.factory import create_store
from keepfast.store.rows import LIST, SEALED, Location
from keepfast.store.sealed import HEAD, PART, Sealer, length_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PASSPHRASE = "a passphrase of some length"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Sealer:
    return new_sealer(tmp_path_factory.mktemp("sealed"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def new_sealer(folder: Path) -> Sealer:
    create_store(str(folder / "store"), durable=False).close()
    return Sealer(str(folder / "store"), str(folder / "keys"), durable=False)


def again(sealer: Sealer) -> Sealer:
    """What another process would see."""
    return Sealer(sealer.keys.store, sealer.keys.folder, durable=False)


def key_file(sealer: Sealer) -> Path:
    """The one that there is."""
    (found,) = Path(sealer.keys.folder).glob("*.key")
    return found


@given(content=st.binary(max_size=5000), compressed=st.booleans())
def test_what_is_sealed_opens_to_the_same_bytes(shared: Sealer, content: bytes, compressed: bool) -> None:
    sealed = shared.seal(content, compressed)

    assert again(shared).open(sealed) == content
    assert length_of(sealed) == len(content)
    assert len(content) < 8 or content not in sealed


@given(content=st.binary(max_size=500))
def test_equal_contents_are_sealed_alike_and_their_ids_are_those_of_nobody_else(shared: Sealer, content: bytes) -> None:
    assert shared.seal(content) == again(shared).seal(content)
    assert digest(shared.seal(content)) != digest(content)


@given(content=st.binary(max_size=300), place=st.integers(0, 10**6), change=st.integers(1, 255))
def test_a_changed_byte_is_noticed_wherever_it_is(shared: Sealer, content: bytes, place: int, change: int) -> None:
    sealed = bytearray(shared.seal(content))
    sealed[place % len(sealed)] ^= change

    with pytest.raises((Damaged, WrongKey)):
        shared.open(bytes(sealed))


@given(content=st.binary(min_size=1, max_size=300), cut=st.integers(1, 10**6))
def test_a_cut_off_content_is_noticed(shared: Sealer, content: bytes, cut: int) -> None:
    sealed = shared.seal(content)

    with pytest.raises(Damaged):
        shared.open(sealed[: -(cut % len(sealed)) or -1])


def test_two_stores_seal_differently(tmp_path: Path) -> None:
    one, other = new_sealer(tmp_path / "one"), new_sealer(tmp_path / "other")

    assert one.seal(b"same") != other.seal(b"same")
    with pytest.raises(WrongKey):
        other.open(one.seal(b"same"))


def test_a_large_content_is_sealed_in_parts_and_its_id_can_be_told_beforehand(shared: Sealer) -> None:
    content = os.urandom(2 * PART + 5)
    kept: dict[bytes, bytes] = {}

    found = shared.seal_stream(io.BytesIO(content).read, lambda key, data, is_list: kept.update({key: data}))

    assert [found] == shared.ids_of(io.BytesIO(content).read)
    ids = [kept[found][at : at + 32] for at in range(0, len(kept[found]), 32)]
    assert b"".join(shared.open(kept[part]) for part in ids) == content
    assert all(digest(data) == key for key, data in kept.items())


# Keys


def test_key_and_folder_are_for_their_owner_only(folder: Path) -> None:
    sealer = new_sealer(folder)
    sealer.seal(b"x")

    assert key_file(sealer).stat().st_mode & 0o777 == 0o600
    assert os.stat(sealer.keys.folder).st_mode & 0o777 == 0o700
    assert os.stat(sealer.keys.seal_file).st_mode & 0o777 == 0o600


def test_a_key_file_that_others_may_read_is_closed_to_them(folder: Path) -> None:
    sealer = new_sealer(folder)
    sealed = sealer.seal(b"x")
    key_file(sealer).chmod(0o644)

    assert again(sealer).open(sealed) == b"x"
    assert key_file(sealer).stat().st_mode & 0o777 == 0o600


def test_rotation_keeps_every_content_open_and_lets_the_old_key_go(folder: Path) -> None:
    sealer = new_sealer(folder)
    sealed = sealer.seal(b"content")
    old, text = key_file(sealer), key_file(sealer).read_bytes()

    sealer.keys.rotate()

    assert sealer.open(sealed) == again(sealer).open(sealed) == b"content"
    assert sealer.seal(b"content") != sealed
    key_file(sealer).unlink()
    old.write_bytes(text)
    with pytest.raises(WrongKey):
        Sealer(sealer.keys.store, str(old.parent), durable=False).open(sealed)


def test_without_the_key_nothing_opens_and_new_contents_are_sealed_with_a_new_one(folder: Path) -> None:
    sealer = new_sealer(folder)
    sealed = sealer.seal(b"old")
    lost, kept = key_file(sealer), key_file(sealer).read_bytes()
    lost.unlink()

    other = again(sealer)
    with pytest.raises(WrongKey) as caught:
        other.open(sealed)
    new = other.seal(b"new")

    assert caught.value.exit_code == 12
    assert other.keys.made_new_key
    assert again(sealer).open(new) == b"new"
    assert [opens for _, opens in again(sealer).keys.sets()] == [False, True]
    lost.write_bytes(kept)
    assert again(sealer).open(sealed) == b"old"


def test_the_name_of_a_missing_key_is_never_given_to_another(folder: Path) -> None:
    """Whoever puts the old folder back over the new one has both keys then, and everything opens."""
    sealer = new_sealer(folder)
    sealed = sealer.seal(b"old")
    lost = key_file(sealer)
    os.rename(sealer.keys.folder, folder / "away")

    new = again(sealer).seal(b"new")

    assert not lost.exists()
    assert again(sealer).keys.key_in_use() not in ("", str(lost))
    assert again(sealer).open(again(sealer).seal(b"newer")) == b"newer"
    assert len(list(Path(sealer.keys.folder).glob("*.key"))) == 1
    for path in (folder / "away").iterdir():
        os.replace(path, f"{sealer.keys.folder}/{path.name}")
    assert [again(sealer).open(one) for one in (sealed, new)] == [b"old", b"new"]
    assert all(opens for _, opens in again(sealer).keys.sets())


def test_rotation_without_the_old_key_leaves_its_name_free_as_well(folder: Path) -> None:
    sealer = new_sealer(folder)
    sealed, lost, kept = sealer.seal(b"old"), key_file(sealer), key_file(sealer).read_bytes()
    lost.unlink()
    new = again(sealer).seal(b"new")

    again(sealer).keys.rotate()

    assert not lost.exists()
    assert again(sealer).open(new) == b"new"
    lost.write_bytes(kept)
    assert [again(sealer).open(one) for one in (sealed, new)] == [b"old", b"new"]
    again(sealer).keys.rotate()
    assert [again(sealer).open(one) for one in (sealed, new)] == [b"old", b"new"]


def test_keys_from_a_backup_leave_the_name_of_the_missing_one_free(folder: Path) -> None:
    sealer = new_sealer(folder)
    sealed, lost, kept = sealer.seal(b"old"), key_file(sealer), key_file(sealer).read_bytes()
    backup = sealer.keys.backup(PASSPHRASE)
    lost.unlink()

    assert again(sealer).keys.import_backup(backup, PASSPHRASE) == 1

    assert not lost.exists()
    assert again(sealer).open(sealed) == b"old"
    key_file(sealer).unlink()
    lost.write_bytes(kept)
    assert again(sealer).open(sealed) == b"old"


def test_a_damaged_key_file_is_kept_and_another_made(folder: Path) -> None:
    sealer = new_sealer(folder)
    sealer.seal(b"old")
    damaged, file = "holdfast key\nversion 1\nstore x\nkey nonsense\n", key_file(sealer)
    file.write_text(damaged)

    assert again(sealer).open(again(sealer).seal(b"new")) == b"new"
    assert file.read_text() == damaged


def test_a_backup_opens_with_its_passphrase_only_and_brings_the_keys_back(folder: Path) -> None:
    sealer = new_sealer(folder)
    sealed = sealer.seal(b"content")
    backup = sealer.keys.backup(PASSPHRASE)
    key_file(sealer).unlink()

    with pytest.raises(WrongKey):
        again(sealer).keys.import_backup(backup, "wrong horse")
    assert again(sealer).keys.import_backup(backup, PASSPHRASE) == 1
    assert again(sealer).open(sealed) == b"content"
    assert again(sealer).keys.import_backup(backup, PASSPHRASE) == 0


def test_keys_of_another_store_are_taken_over_beside_the_own(tmp_path: Path) -> None:
    one, other = new_sealer(tmp_path / "one"), new_sealer(tmp_path / "other")
    sealed, own = one.seal(b"theirs"), other.seal(b"ours")

    other.keys.import_backup(one.keys.backup(PASSPHRASE), PASSPHRASE)

    assert again(other).open(sealed) == b"theirs"
    assert again(other).seal(b"ours") == own


@given(
    backup=st.one_of(
        st.none(),
        st.text(),
        st.dictionaries(st.sampled_from(["what", "v", "kdf", "salt", "box", "n", "r", "p"]), st.integers() | st.text()),
        st.fixed_dictionaries(
            {
                "what": st.just("holdfast keys"), "v": st.just(1), "kdf": st.just("scrypt"), "salt": st.text(),
                "box": st.text(), "n": st.integers(), "r": st.integers(), "p": st.integers(),
            }
        ),
    )
)  # fmt: skip
def test_what_is_no_backup_is_refused(shared: Sealer, backup: object) -> None:
    with pytest.raises(KeepfastError):
        shared.keys.import_backup(backup, "passphrase")


def test_an_empty_passphrase_is_refused(shared: Sealer) -> None:
    shared.seal(b"x")
    with pytest.raises(Usage):
        shared.keys.backup("")


def test_the_store_part_comes_back_from_its_copy(folder: Path) -> None:
    sealer = new_sealer(folder)
    sealed = sealer.seal(b"content")
    Path(sealer.keys.seal_file).write_bytes(b"damaged")

    assert again(sealer).open(sealed) == b"content"
    assert "damaged" in again(sealer).keys.problem()
    assert again(sealer).keys.restore_seal_file()
    assert not again(sealer).keys.problem()


def test_where_nothing_was_sealed_there_is_no_key(folder: Path) -> None:
    sealer = new_sealer(folder)

    assert not sealer.keys.is_in_use()
    assert not sealer.keys.sets()
    assert not sealer.keys.problem()
    assert not os.path.exists(sealer.keys.folder)
    with pytest.raises(Failed):
        sealer.keys.rotate()


# Named values


@given(name=st.text(max_size=30), value=st.binary(max_size=100))
def test_a_named_value_opens_under_its_own_name_only(shared: Sealer, name: str, value: bytes) -> None:
    text = shared.seal_value(name, value)

    assert text.startswith("encrypted:")
    assert again(shared).open_value(name, text) == value
    assert text != shared.seal_value(name, value)
    with pytest.raises(Damaged):
        shared.open_value(name + "x", text)


@given(text=st.text() | st.text(alphabet="ABCDEFGHabcdefgh01234567+/=").map("encrypted:".__add__))
def test_what_is_no_sealed_value_is_refused(shared: Sealer, text: str) -> None:
    with pytest.raises((Damaged, WrongKey)):
        shared.open_value("NAME", text)


def test_the_head_of_a_blob_is_as_the_format_says(shared: Sealer) -> None:
    sealed = shared.seal(b"12345")

    assert sealed[:4] == b"HFS1"
    assert sealed[4] == 0
    assert int.from_bytes(sealed[13:21], "little") == 5
    assert len(sealed) == HEAD + 5 + 16


def test_the_page_about_the_format_opens_a_real_blob(folder: Path) -> None:
    """docs/format/sealed.md, run as it stands."""
    page = (Path(__file__).parents[2] / "docs/format/sealed.md").read_text("utf-8")
    code = page.split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {"zstd": zstd}
    exec(compile(code, "sealed.md", "exec"), names)
    sealer = new_sealer(folder)
    blobs = [sealer.seal(b"a content")]
    sealer.keys.rotate()
    blobs.append(sealer.seal(b"another" * 100, compressed=True))
    seal = json.loads(Path(sealer.keys.seal_file).read_bytes().split(b"\n")[0])
    wrapping = bytes.fromhex(key_file(sealer).read_text().split()[-1])

    found = [names["open_sealed"](blob, names["master_of"](seal, wrapping, blob)) for blob in blobs]

    assert found == [b"a content", b"another" * 100]


class Listed(Contents):
    """Contents of a store into which such lists came before they were refused."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer, self.asked = sealer, 0
        self.attachments: dict[bytes, tuple[bytes, int]] = {}

    def put(self, data: bytes, kind: int = LIST) -> bytes:
        self.attachments[digest(data)] = data, kind
        return digest(data)

    def blob(self, key: bytes) -> tuple[bytes, int]:
        self.asked += 1
        return self.attachments[key]

    def _place(self, key: bytes) -> Location:
        self.asked += 1
        return Location("", 0, 0, 0, 0, self.attachments[key][1])

    def sealed_head(self, place: Location) -> bytes:
        return b""


def test_whoever_reads_lists_of_lists_that_name_nothing_stops_at_once(shared: Sealer) -> None:
    contents = Listed(shared)
    key = contents.put(b"")
    for _ in range(3):
        key = contents.put(key * 400)

    with pytest.raises(Damaged):
        contents.load(key)
    contents.paths_without_key([Entry(b"x", "f", 0o600, 8, 0, 0, 0, key, b"")])
    assert contents.asked < 100


def test_whoever_reads_lists_of_lists_stops_at_a_number_of_parts(
    shared: Sealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keepfast.store.contents.MAX_PARTS", 100)
    contents = Listed(shared)
    part = contents.put(shared.seal(b"x"), SEALED)
    inner = contents.put(part * 9)
    good, bad = contents.put(inner * 10), contents.put(inner * 11)

    assert contents.load(good) == b"x" * 90
    with pytest.raises(Damaged):
        contents.load(bad)
    assert contents.paths_without_key([Entry(b"x", "f", 0o600, 8, 0, 0, 0, bad, b"")]) == set()
