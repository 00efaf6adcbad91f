"""Two homes on one store: each seals with its own keys, and `init` says so before anything is closed to anybody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.equipment.box import Box

SECRET = "DB_PASSWORD=s3cr3t-pA55-phrase\n"


class Homes:
    """Two people with a home each, and a store on a disk of both."""

    def __init__(self, base: Path) -> None:
        self.one, self.other = Box(base / "one"), Box(base / "other")
        self.store, self.words = str(base / "shared"), base / "words"
        self.words.write_text("four unrelated words here\n")
        self.backup = str(base / "backup")

    def begin(self, box: Box) -> Any:
        done = box.call("--store", self.store, "init", "--json")
        assert done.code == 0, done
        return done.json()


@pytest.fixture
def homes(tmp_path: Path) -> Homes:
    return Homes(tmp_path)


def test_init_says_that_what_others_sealed_is_closed(homes: Homes) -> None:
    homes.begin(homes.one)
    homes.one.put(".env", SECRET)
    homes.one.save()
    answer = homes.one.call("key", "show", "--json").json()["sets"]

    result = homes.begin(homes.other)

    assert result["shared"] is True
    assert result["closed_sets"] == [one["id"] for one in answer]
    plain = homes.other.call("--store", homes.store, "init")
    assert plain.code == 0 and "key import" in plain.err


def test_init_says_so_before_anything_is_sealed_too(homes: Homes) -> None:
    assert homes.begin(homes.one)["shared"] is False

    result = homes.begin(homes.other)

    assert (result["shared"], result["closed_sets"]) == (True, [])
    assert homes.begin(homes.other)["shared"] is False  # it is known now
    assert homes.begin(homes.one)["shared"] is False


def test_in_a_home_of_ones_own_there_is_nothing_to_say(homes: Homes) -> None:
    answer = homes.one.call("init", "--json").json()
    homes.one.put(".env", SECRET)
    homes.one.save()
    again = homes.one.call("init", "--json").json()

    (homes.one.home / ".local/share/keepfast/stores").unlink()
    listless = homes.one.call("init", "--json").json()

    for one in (answer, again, listless):
        assert (one["shared"], one["closed_sets"]) == (False, [])


def test_a_home_that_takes_the_keys_over_first_opens_and_seals_like_the_other(homes: Homes) -> None:
    homes.begin(homes.one)
    homes.one.put(".env", SECRET)
    homes.one.save()
    how = ("--passphrase-file", str(homes.words))
    assert homes.one.call("key", "export", homes.backup, *how).code == 0
    assert homes.begin(homes.other)["closed_sets"]

    assert homes.other.call("--store", homes.store, "key", "import", homes.backup, *how).code == 0

    assert homes.begin(homes.other)["closed_sets"] == []
    homes.other.put(".env", SECRET + "MORE=1\n")
    homes.other.save()
    first, second = (box.call("key", "show", "--json").json() for box in (homes.one, homes.other))
    assert [one["id"] for one in first["sets"] if one["seals"]] == [one["id"] for one in second["sets"] if one["seals"]]
    assert all(one["opens"] for one in first["sets"])


def test_a_rotation_names_the_sets_of_others(homes: Homes) -> None:
    for box in (homes.one, homes.other):
        homes.begin(box)
        box.put(".env", SECRET)
        box.save()

    answer = homes.one.call("key", "rotate", "-y", "--json").json()

    [theirs] = [one["id"] for one in homes.other.call("key", "show", "--json").json()["sets"] if one["seals"]]
    assert answer["closed_sets"] == [theirs]
    assert homes.other.call("cat", "v1", ".env").raw == SECRET.encode()
