"""Forgetting: by reference, by the policy, by size; with a question, and with the space freed."""

from __future__ import annotations

import os

import pytest

from tests.equipment.box import DAY, HOUR, Box


def automatic(box: Box, count: int, size: int = 10, session: str = "") -> None:
    for _ in range(count):
        box.put("file", os.urandom(size))
        assert box.call("save", "--auto", "--session", session).code == 0
        box.now += 60_000_000_000


def test_the_policy_keeps_the_newest_of_each_session_and_all_that_is_dear(saved_box: Box) -> None:
    automatic(saved_box, 12, session="one")
    automatic(saved_box, 12, session="two")

    report = saved_box.call("forget", "-y", "--json").json()

    # Of each session the newest ten stay, and the first of an hour.
    assert len(report["forgotten"]) + len(saved_box.versions()) == 27
    rest = saved_box.call("list", "--json").json()
    assert {row["version"] for row in rest} >= {"v1", "v2", "v3"}
    for session in ("one", "two"):
        assert sum(row["session_id"] == session for row in rest) >= 10
    assert saved_box.call("status", "--json").json()["versions"] == {"kept": len(rest), "forgotten": 27 - len(rest)}
    assert "Versions" in saved_box.call("status").out
    assert saved_box.call("verify").code == 0


def test_old_automatic_ones_become_one_a_day_and_then_none(saved_box: Box) -> None:
    for _ in range(4):
        automatic(saved_box, 3)
        saved_box.now += 20 * DAY
    automatic(saved_box, 12)

    saved_box.call("forget", "-y")
    saved_box.call("config", "set", "retention.keep_last", "1")
    saved_box.call("config", "set", "retention.hourly_hours", "0")
    report = saved_box.call("forget", "-y", "--json").json()

    rest = [row for row in saved_box.call("list", "--json").json() if row["trigger"] == "auto"]
    assert report["forgotten"]
    days = [row["created_at"][:10] for row in rest]
    assert len(days) == len(set(days))


def test_space_is_given_back(saved_box: Box) -> None:
    automatic(saved_box, 1, size=3 << 20)
    (saved_box.project / "file").unlink()
    saved_box.save()
    packs = saved_box.store / "packs"
    before = sum(path.stat().st_size for path in packs.iterdir())

    report = saved_box.call("forget", "v4", "-y", "--json").json()

    assert report["bytes_unneeded"] >= 3 << 20
    assert sum(path.stat().st_size for path in packs.iterdir()) < before - (3 << 20) + 20_000
    assert saved_box.call("cat", "v1", "README").out == "read me\n"
    assert saved_box.call("verify").code == 0


def test_the_size_cap_takes_the_oldest_automatic_ones_and_says_so(saved_box: Box) -> None:
    automatic(saved_box, 6, size=300_000)

    result = saved_box.call("forget", "-y", "--keep-size", "1MB")

    assert result.code == 0
    assert "The store was over 1MB" in result.out
    versions = saved_box.versions()
    assert {"v1", "v2", "v3", "v9"} <= set(versions)
    assert "v4" not in versions
    assert sum(path.stat().st_size for path in (saved_box.store / "packs").iterdir()) <= 1 << 20


def test_a_cap_that_cannot_be_reached_says_what_is_in_the_way(saved_box: Box) -> None:
    saved_box.put("big", os.urandom(400_000))
    saved_box.save("--pin")

    result = saved_box.call("forget", "-y", "--keep-size", "100KB")

    assert result.code == 0
    assert "the remaining checkpoints are pinned, named, manual or the newest" in result.err
    assert len(saved_box.versions()) == 4


def test_a_dry_run_changes_nothing(saved_box: Box) -> None:
    automatic(saved_box, 13)
    saved_box.now += 2 * HOUR
    before = saved_box.state()

    report = saved_box.call("forget", "--dry-run", "--json").json()

    assert [row["version"] for row in report["forgotten"]]
    assert saved_box.state() == before


def test_without_an_answer_nothing_is_forgotten(saved_box: Box) -> None:
    before = saved_box.state()

    result = saved_box.call("forget", "v1")
    said_no = saved_box.terminal("forget", "v1", typed=b"n\n")

    assert result.code == 2
    assert "-y" in result.err
    assert b"Nothing was forgotten." in said_no
    assert saved_box.state() == before
    assert b"Forgot 1 checkpoint" in saved_box.terminal("forget", "v1", typed=b"y\n")


def test_what_is_pinned_must_be_unpinned_first(saved_box: Box) -> None:
    assert "keepfast unpin v3" in saved_box.call("forget", "v1", "v3", "-y").err
    assert saved_box.versions() == ["v3", "v2", "v1"]

    saved_box.call("unpin", "v3")
    assert saved_box.call("forget", "v3", "-y").code == 0
    assert saved_box.versions() == ["v2", "v1"]


def test_after_forgetting_everything_the_next_save_works(saved_box: Box) -> None:
    saved_box.call("unpin", "v3")
    saved_box.call("forget", "v1", "v2", "v3", "-y")

    assert saved_box.versions() == []
    assert saved_box.save() == "v4"
    assert saved_box.call("cat", "v4", "src/b.py").out == "b\n"
    assert saved_box.call("verify").code == 0


@pytest.mark.parametrize("words", [("--dry-run",), ("-y",)])
def test_only_what_nothing_else_needs_is_counted(box: Box, words: tuple[str, ...]) -> None:
    """A content that a later version, another path or another workspace has is not freed."""
    later, twin, elsewhere, alone = (os.urandom(1000) for _ in range(4))
    other = box.home / "other"
    other.mkdir()
    (other / "file").write_bytes(elsewhere)
    assert box.call("init", cwd=other).code == 0
    assert box.call("save", cwd=other).code == 0
    box.call("init")
    box.put("later", later)
    box.put("one", twin)
    box.put("elsewhere", elsewhere)
    box.put("alone", alone)
    box.put("copy of alone", alone)
    box.save()
    for name in ("later", "one", "elsewhere", "alone", "copy of alone"):
        (box.project / name).unlink()
    box.put("two", twin)
    box.save()
    box.put("later", later)
    box.save()
    report = box.call("forget", "v1", "--json", *words).json()

    assert report["bytes_unneeded"] == 1000


def test_what_stays_of_a_forgotten_newest_version_is_counted_until_a_save_replaces_it(box: Box) -> None:
    box.call("init")
    box.put("old", os.urandom(1000))
    box.save()
    (box.project / "old").unlink()
    box.put("new", os.urandom(5000))
    box.save()
    would = box.call("forget", "v1", "v2", "-n", "--json").json()
    report = box.call("forget", "v1", "v2", "-y", "--json").json()

    assert (would["dry_run"], would["bytes_unneeded"], would["bytes_staying"]) == (True, 1000, 5000)
    assert (report["bytes_unneeded"], report["bytes_staying"]) == (1000, 5000)
    (box.project / "new").unlink()
    box.put("small", "s")
    box.save()
    assert box.call("compact", "--everything", "--json").json()["bytes_after"] < 5000
    assert box.call("forget", "v3", "-n", "--json").json()["bytes_staying"] == 1
    assert box.call("verify").code == 0


def test_of_versions_that_are_not_the_newest_nothing_stays(saved_box: Box) -> None:
    assert saved_box.call("forget", "v1", "-n", "--json").json()["bytes_staying"] == 0


def test_a_dry_run_speaks_of_automatic_ones_only_where_there_are_some(saved_box: Box) -> None:
    saved_box.put("large", os.urandom(1_500_000))
    assert saved_box.call("save", "-m", "by hand").code == 0

    by_hand = saved_box.call("forget", "-n", "--keep-size", "1MB")
    automatic(saved_box, 3, size=400_000)
    with_some = saved_box.call("forget", "-n", "--keep-size", "1MB")

    assert (by_hand.code, with_some.code) == (0, 0)
    assert "Would forget more" not in by_hand.out and "manual" in by_hand.out
    assert "Would forget more" in with_some.out


def test_what_the_size_limit_would_remove_is_listed_and_asked_about(saved_box: Box) -> None:
    automatic(saved_box, 6, size=300_000)
    before = saved_box.versions()

    listed = saved_box.call("forget", "-n", "--keep-size", "1MB", "--json").json()
    shown = saved_box.call("forget", "-n", "--keep-size", "1MB")
    unasked = saved_box.call("forget", "--keep-size", "1MB")
    saved_box.terminal("forget", "--keep-size", "1MB", typed=b"n\n")

    assert listed["over_size"] > 0
    assert [row["version"] for row in listed["at_most"]] == [f"v{number}" for number in range(4, 9)]
    assert "Would forget more" in shown.out and "Nothing would be forgotten" not in shown.out
    assert unasked.code == 2 and "-y" in unasked.err
    assert saved_box.versions() == before
