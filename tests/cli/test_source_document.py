"""The manual test of the source document, word for word in behaviour, with our commands."""

from __future__ import annotations

from tests.equipment.box import Box


def shown(box: Box) -> list[tuple[str, str]]:
    """(version, message) of each line of `checkpoint list`, oldest first."""
    lines = box.run("checkpoint", "list").out.splitlines()[1:]
    return [(line.split()[0], line.split('"')[1]) for line in reversed(lines)]


def test_the_manual_test_of_the_source(box: Box) -> None:
    """cd /tmp && mkdir test-auto && cd test-auto; agentfs init myapp; cd myapp"""
    test_auto = box.home / "test-auto"
    test_auto.mkdir()
    assert box.run("init", "myapp", cwd=test_auto).code == 0
    box.project = test_auto / "myapp"

    # Test 1: First checkpoint (no previous). Should show v1 "auto".
    first = box.run("checkpoint", "--auto")
    assert (first.code, first.out, first.err) == (0, "", "")
    assert shown(box) == [("v1", "auto")]

    # Test 2: No changes - should skip. Should still show only v1.
    second = box.run("checkpoint", "--auto")
    assert (second.code, second.out, second.err) == (0, "", "")
    assert shown(box) == [("v1", "auto")]

    # Test 3: Make changes. Should show v1 and v2.
    (box.project / "test.txt").write_text("hello\n")
    third = box.run("checkpoint", "--auto")
    assert (third.code, third.out, third.err) == (0, "", "")
    assert shown(box) == [("v1", "auto"), ("v2", "auto")]

    # Test 4: Not in agentfs dir. Should exit 0 silently.
    outside = box.run("checkpoint", "--auto", cwd=box.base)
    assert (outside.code, outside.out, outside.err) == (0, "", "")


def test_normal_mode_prints_the_version_message_and_time(box: Box) -> None:
    box.run("init")

    result = box.run("checkpoint", "-m", "auto")

    assert box.plain(result.out) == 'Created v1 "auto" (Nms)\n'


def test_same_size_edits_are_seen(box: Box) -> None:
    """The source compares names and sizes; a character replaced by another is a change all the same."""
    box.run("init")
    box.put("a.txt", "hello")
    box.run("checkpoint", "--auto")

    box.put("a.txt", "hallo")
    box.run("checkpoint", "--auto")

    assert shown(box) == [("v1", "auto"), ("v2", "auto")]


def test_a_failure_says_one_line_and_exits_with_1(box: Box) -> None:
    """Not in agentfs: silent. Store exists but the checkpoint failed: exit code 1, stderr."""
    box.run("init")
    (box.store / "ledger.db").write_bytes(b"not a database, and longer than a page header would be" * 40)

    result = box.run("checkpoint", "--auto")

    assert result.code == 1
    assert result.out == ""
    assert result.err.count("\n") == 1


def test_normal_mode_outside_is_an_error(box: Box) -> None:
    result = box.run("checkpoint")

    assert result.code == 3
    assert "is not inside a workspace" in result.err
    assert "keepfast init" in result.err
