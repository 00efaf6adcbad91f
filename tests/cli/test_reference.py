"""Every way to speak of a checkpoint finds it, and nothing else."""

from __future__ import annotations

import pytest

from tests.equipment.box import HOUR, Box


def version(box: Box, reference: str) -> str:
    result = box.call("show", "--json", reference)
    assert result.code == 0, result
    return str(result.json()["version"])


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("v1", "v1"),
        ("1", "v1"),
        ("latest", "v3"),
        ("@", "v3"),
        ("@~0", "v3"),
        ("@~2", "v1"),
        ("before-refactoring", "v2"),
        ("@{0s}", "v3"),
        ("@{1h}", "v2"),
        ("@{90m}", "v1"),
        ("@{1h30m}", "v1"),
        ("@{2026-03-01T13:00:00Z}", "v2"),
        ("@{2026-03-01T14:30:00+01:00}", "v2"),
        ("@{2026-03-02T00:00:00Z}", "v3"),
    ],
)
def test_a_reference_finds_its_checkpoint(saved_box: Box, reference: str, expected: str) -> None:
    assert version(saved_box, reference) == expected


def test_an_id_and_its_unique_beginning_find_it(saved_box: Box) -> None:
    ids = {row["version"]: row["id"] for row in saved_box.call("list", "--json").json()}

    # An hour apart, ids differ from the ninth character on.
    assert version(saved_box, ids["v2"]) == "v2"
    assert version(saved_box, ids["v2"][:12]) == "v2"
    assert version(saved_box, ids["v2"].upper().replace("CP-", "cp-")) == "v2"


def test_an_ambiguous_beginning_names_the_candidates(saved_box: Box) -> None:
    ids = {row["version"]: row["id"] for row in saved_box.call("list", "--json").json()}

    result = saved_box.call("show", "cp-01")

    assert result.code == 4
    for name, identity in ids.items():
        assert f"{identity} ({name})" in result.err


@pytest.mark.parametrize(
    "reference",
    [
        "v9",
        "v0",
        "9" * 30,
        "v99999999999999",
        "@~3",
        "@~999999999",
        "@{3h}",
        "@{90y}",
        "@{}",
        "@{-1h}",
        "cp-zzz",
        "cp-\udcff",
        "nobody",
        "",
        "\udcff",
        "v1 ",
        "%",
        "before%",
        "' OR 1=1 --",
    ],
)
def test_an_unknown_reference_is_a_sentence_and_exit_code_4(saved_box: Box, reference: str) -> None:
    result = saved_box.call("show", "--", reference)

    assert result.code == 4
    assert result.err.startswith("keepfast: ")
    assert "Traceback" not in result.err


def test_a_forgotten_checkpoint_is_not_found_and_not_counted(saved_box: Box) -> None:
    identity = saved_box.call("show", "--json", "v2").json()["id"]
    assert saved_box.call("forget", "v2", "-y").code == 0

    assert saved_box.call("show", "v2").code == 4
    assert "was forgotten" in saved_box.call("show", "v2").err
    assert "was forgotten" in saved_box.call("show", identity).err
    assert saved_box.call("show", "before-refactoring").code == 4
    assert version(saved_box, "@~1") == "v1"
    assert version(saved_box, "@{1h}") == "v1"


def test_order_is_the_order_of_versions_whatever_the_clock_says(saved_box: Box) -> None:
    """A clock that was set back makes an older time, never an older version."""
    saved_box.now -= 5 * HOUR
    saved_box.put("late", "later than all of them")
    saved_box.save("-m", "clock set back")

    assert version(saved_box, "latest") == "v4"
    assert saved_box.versions() == ["v4", "v3", "v2", "v1"]
    assert version(saved_box, "@~1") == "v3"


def test_references_of_another_workspace_are_not_found(saved_box: Box) -> None:
    identity = saved_box.call("show", "--json", "v2").json()["id"]
    other = saved_box.home / "other"
    assert saved_box.call("init", str(other)).code == 0

    for reference in (identity, "before-refactoring", "v2", "latest"):
        assert saved_box.call("show", reference, cwd=other).code == 4


@pytest.mark.parametrize("name", ["latest", "v5", "5", "@x", "cp-abc", "-x", " a", "a\nb", "", "x" * 201])
def test_a_name_that_could_be_another_reference_is_refused(saved_box: Box, name: str) -> None:
    result = saved_box.call("name", "v1", "--", name)

    assert result.code == 2
    assert saved_box.call("show", "--json", "v1").json()["name"] is None


def test_the_newest_of_two_with_one_name_answers_to_it(saved_box: Box) -> None:
    saved_box.call("name", "v3", "before-refactoring")

    assert version(saved_box, "before-refactoring") == "v3"
    saved_box.call("name", "v3", "--remove")
    assert version(saved_box, "before-refactoring") == "v2"
