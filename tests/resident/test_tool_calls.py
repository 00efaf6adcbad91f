"""Each tool call is a checkpoint: what it changed, with its prompt; what others changed between two calls is not its own."""

from __future__ import annotations

import os
from pathlib import Path

from .home import SESSION, Home


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_three_edits_and_a_sed_in_one_turn_are_four_versions_with_call_and_prompt(begun: Home) -> None:
    file = begun.project / "a.txt"
    begun.hook("UserPromptSubmit", prompt="Make it two, please")
    begun.settle()
    for number in range(3):
        begun.tool("Edit", lambda number=number: append(file, f"{number}\n"), file_path=str(file))  # type: ignore[misc]
    begun.tool("Bash", lambda: file.write_text(file.read_text().replace("2", "two")), command=f"sed -i s/2/two/ {file}")
    begun.hook("Stop", last_assistant_message="done")

    rows = [row for row in begun.checkpoints() if row.trigger == "tool"]

    assert [row.message.partition(":")[0] for row in rows] == ["Edit", "Edit", "Edit", "Bash"]
    calls = [begun.header(row)["tool_call"] for row in rows]
    assert [call["id"] for call in calls] == ["toolu_1", "toolu_2", "toolu_3", "toolu_4"]
    assert {call["prompt"] for call in calls} == {"Make it two, please"}
    assert all(row.session == SESSION for row in rows)
    assert begun.checkpoints()[-1].trigger == "turn"
    assert begun.run("cat", f"v{rows[1].version}", "a.txt").stdout == "one\n0\n1\n"


def test_a_persons_edit_between_two_calls_is_not_the_agents(begun: Home) -> None:
    begun.tool("Write", lambda: (begun.project / "agent.txt").write_text("a\n"), file_path="agent.txt")
    (begun.project / "human.txt").write_text("h\n")
    begun.tool("Write", lambda: (begun.project / "agent.txt").write_text("b\n"), file_path="agent.txt")

    rows = begun.checkpoints()[-3:]

    assert [row.trigger for row in rows] == ["tool", "between", "tool"]
    assert rows[1].session == "" and rows[1].changed == 1
    assert "human.txt" in begun.run("diff", f"v{rows[0].version}", f"v{rows[1].version}", "--name-only").stdout


def test_a_destructive_command_is_preceded_by_what_others_changed(begun: Home) -> None:
    (begun.project / "human.txt").write_text("h\n")

    begun.tool("Bash", lambda: (begun.project / "a.txt").unlink(), command="rm a.txt")

    assert [row.trigger for row in begun.checkpoints()][-3:] == ["between", "before_command", "tool"]
    assert "before rm a.txt" in begun.run("list").stdout, "lists hide the one before it"


def test_two_sessions_in_one_folder_are_told_apart(begun: Home) -> None:
    begun.tool("Write", lambda: (begun.project / "one.txt").write_text("1\n"), session="first", file_path="one.txt")
    begun.tool("Write", lambda: (begun.project / "two.txt").write_text("2\n"), session="second", file_path="two.txt")

    assert [row.session for row in begun.checkpoints() if row.trigger == "tool"] == ["first", "second"]


def test_calls_that_overlap_claim_nothing_for_themselves(begun: Home) -> None:
    def other_call() -> None:
        begun.tool("Write", lambda: (begun.project / "b.txt").write_text("b\n"), session="second", file_path="b.txt")
        (begun.project / "c.txt").write_text("c\n")

    begun.tool("Write", other_call, session="first", file_path="c.txt")

    rows = [row for row in begun.checkpoints() if row.trigger == "tool"]
    assert [begun.header(row)["tool_call"].get("overlaps") for row in rows] == [True, True]


def test_tools_that_only_read_make_none(begun: Home) -> None:
    count = len(begun.checkpoints())
    (begun.project / "human.txt").write_text("h\n")

    begun.tool("Read", lambda: None, file_path="a.txt")
    begun.tool("Grep", lambda: None, pattern="x")

    assert len(begun.checkpoints()) == count


def test_a_call_that_changed_nothing_makes_none(begun: Home) -> None:
    count = len(begun.checkpoints())

    begun.tool("Bash", lambda: None, command="ls")

    assert len(begun.checkpoints()) == count


def test_without_a_resident_they_are_made_only_if_the_setting_says_all(home: Home) -> None:
    assert home.run("config", "set", "resident", "off").returncode == 0
    home.begin()
    home.tool("Write", lambda: (home.project / "b.txt").write_text("b\n"), file_path="b.txt")
    assert [row.trigger for row in home.checkpoints()] == ["session_start"]

    assert home.run("config", "set", "capture.tool_calls", "all").returncode == 0
    home.tool("Write", lambda: (home.project / "b.txt").write_text("c\n"), file_path="b.txt")

    assert [row.trigger for row in home.checkpoints()] == ["session_start", "between", "tool"]


def test_the_setting_off_makes_none(begun: Home) -> None:
    assert begun.run("config", "set", "capture.tool_calls", "off").returncode == 0

    begun.tool("Write", lambda: (begun.project / "b.txt").write_text("b\n"), file_path="b.txt")

    assert [row.trigger for row in begun.checkpoints()] == ["session_start"]


def test_lists_hide_them_unless_they_are_asked_for(begun: Home) -> None:
    file = begun.project / "b.txt"
    begun.tool("Write", lambda: file.write_text("b\n"), file_path=str(file))

    assert "tool" not in begun.run("list").stdout
    assert "Write: b.txt" in begun.run("list", "--all").stdout
    assert "Write: b.txt" in begun.run("list", "--trigger", "tool").stdout


def test_a_secret_in_a_command_is_redacted_in_the_message(begun: Home) -> None:
    key = "ghp_" + "a1B2" * 9
    begun.tool("Bash", lambda: (begun.project / "b.txt").write_text("b\n"), command=f"TOKEN={key} ./deploy")

    rows = [row for row in begun.checkpoints() if row.trigger == "tool"]
    assert len(rows) == 1 and key not in rows[0].message
    assert key.encode() not in b"".join(path.read_bytes() for path in begun.data.rglob("*") if path.is_file())


def test_a_tree_that_was_never_saved_is_left_to_the_worker(home: Home) -> None:
    home.start()
    home.tool("Write", lambda: (home.project / "b.txt").write_text("b\n"), file_path="b.txt")

    home.hook("Stop", last_assistant_message="done")

    assert [row.trigger for row in home.checkpoints()] == ["turn"]


def test_the_next_session_gets_the_brief_of_the_work_not_of_a_call(begun: Home) -> None:
    begun.hook("UserPromptSubmit", prompt="Write the parser for dates")
    begun.settle()
    begun.tool("Write", lambda: (begun.project / "b.txt").write_text("b\n"), file_path="b.txt")
    begun.hook("Stop", last_assistant_message="The parser is written.")
    begun.settle()
    begun.tool("Write", lambda: (begun.project / "b.txt").write_text("c\n"), file_path="b.txt")

    text = begun.run("resume").stdout

    assert "Write the parser for dates" in text and "b.txt" in text


def test_one_that_is_locked_out_goes_on_and_status_says_so(begun: Home) -> None:
    import fcntl

    folder = begun.data / "store/workspaces" / begun.workspace()
    with open(folder / "lock", "rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        begun.tool("Write", lambda: (begun.project / "b.txt").write_text("b\n"), file_path="b.txt")
        fcntl.flock(lock, fcntl.LOCK_UN)

    assert "not protected" in begun.run("status").stdout
    begun.tool("Write", lambda: (begun.project / "d.txt").write_text("d\n"), file_path="d.txt")
    assert begun.run("diff", "--name-only").stdout == ""
    assert os.listdir(folder / "calls") == []
