"""The files that a brief tells of: everything that the session changed, nothing that is excluded, and marks that are true."""

from __future__ import annotations

import json
import os
import shutil
from typing import Any

import pytest

from keepfast.agents.claude import hooks as claude_code
from keepfast.app import state_document
from keepfast.app.resume import Resumer
from keepfast.hook.main import respond
from keepfast.model.document import Header
from keepfast.present.environment import Environment
from tests.equipment.sessions import Session
from tests.hook.background import Inline
from tests.hook.ground import Ground

CHANGED = "(changed since the checkpoint)"


class Worked:
    """A session that edits one file by a tool and others by commands, its transcript, and briefs of it."""

    def __init__(self, ground: Ground) -> None:
        self.ground, self.project = ground, ground.project
        ground.variables |= {"CLAUDE_CODE_SESSION_ATTENDED": "1", "CLAUDE_PID": "999999"}
        for name in ("a.py", "b.py", "c.py", "old.py"):
            (self.project / name).write_text(f"# {name}\none = 1\n")
        self.answer("SessionStart", source="startup")
        self.session = Session(cwd=str(self.project), files={"a.py": "# a.py\none = 1\n"})
        self.session.asked("make the totals exact")
        self.starts = 0

    def answer(self, event: str, part: int = 1, **fields: Any) -> dict[str, Any]:
        environment = Environment({key.encode(): value.encode() for key, value in self.ground.variables.items()})
        payload = json.dumps({**self.ground.payload(event), **fields}).encode()
        said, problem, code = respond(claude_code, payload, environment, Inline(), {"--part": str(part)})
        assert (code, problem) == (0, "")
        return json.loads(said) if said else {}

    def turn(self) -> None:
        """The turn ends: its conversation is written, and a checkpoint is made."""
        self.session.said("Next I'll round them.")
        self.ground.transcript.write_bytes(self.session.bytes())
        self.answer("Stop", last_assistant_message="Next I'll round them.")

    def brief(self) -> tuple[str, str]:
        """Both parts, as a new session gets them after a crash."""
        self.starts += 1
        new = f"99999999-2222-4333-8444-{self.starts:012}"
        told = [
            self.answer("SessionStart", part, source="clear", session_id=new, transcript_path="") for part in (1, 2)
        ]
        first, second = [str(one.get("hookSpecificOutput", {}).get("additionalContext", "")) for one in told]
        return first, second

    def listed(self) -> list[str]:
        """The names in part 1's list of files, in its order."""
        rows = self.brief()[0].split("## Files")[1].split("\n")[1:]
        return [row.split()[1] for row in rows if row[:2] in ("M ", "r ", "D ")]


@pytest.fixture
def worked(ground: Ground) -> Worked:
    return Worked(ground)


def edit_by_tool(worked: Worked) -> None:
    worked.session.read("a.py")
    worked.session.edit("a.py", "one = 1", "one = 2")
    (worked.project / "a.py").write_text("# a.py\none = 2\n")


def read(worked: Worked, name: str, text: str) -> None:
    worked.session.files[worked.session.path(name)] = text
    worked.session.read(name)


def test_files_that_commands_changed_are_in_the_list(worked: Worked) -> None:
    edit_by_tool(worked)
    (worked.project / "b.py").write_text("# b.py\none = 3\n")  # as `sed -i` does
    (worked.project / "made").mkdir()
    (worked.project / "made/new.py").write_text("new = True\n")
    worked.turn()

    assert worked.listed() == ["a.py", "b.py", "made/new.py"]
    assert "new = True" in "".join(worked.brief())


def test_files_that_commands_deleted_are_in_the_list(worked: Worked) -> None:
    edit_by_tool(worked)
    read(worked, "c.py", "# c.py\none = 1\n")
    (worked.project / "gone").mkdir()
    (worked.project / "gone/made.py").write_text("made = True\n")
    worked.turn()
    shutil.rmtree(worked.project / "gone")
    (worked.project / "b.py").unlink()  # as `rm` does
    (worked.project / "c.py").unlink()
    worked.turn()
    first, second = worked.brief()

    rows = first.split("## Files")[1].split("\n")
    assert "D deleted" in rows[0]
    assert {row for row in rows if row.startswith("D ")} == {"D b.py", "D c.py", "D gone/made.py"}
    assert "### b.py" not in second and "### gone" not in second


def test_a_file_that_came_back_is_not_told_as_deleted(worked: Worked) -> None:
    text = (worked.project / "b.py").read_text()
    edit_by_tool(worked)
    (worked.project / "b.py").unlink()
    worked.turn()
    (worked.project / "b.py").write_text(text)
    worked.turn()

    assert "M b.py" in worked.brief()[0]


def test_the_newest_checkpoints_files_come_first(worked: Worked) -> None:
    (worked.project / "b.py").write_text("# b.py\none = 3\n")
    worked.turn()
    (worked.project / "c.py").write_text("# c.py\none = 3\n")
    worked.turn()

    assert worked.listed() == ["c.py", "b.py"]


def test_what_the_session_found_is_not_told_as_its_work(worked: Worked) -> None:
    edit_by_tool(worked)
    worked.turn()

    assert worked.listed() == ["a.py"]


def test_secrets_and_generated_files_are_not_told(worked: Worked) -> None:
    edit_by_tool(worked)
    (worked.project / ".env").write_text("TOKEN=x\n")
    (worked.project / "package-lock.json").write_text("{}\n")
    worked.turn()

    assert worked.listed() == ["a.py"]


def test_excluded_patterns_reach_both_parts(worked: Worked) -> None:
    worked.ground.configure(checkpoint={"exclude_patterns": ["a.py", "made/**"]})
    edit_by_tool(worked)
    read(worked, "b.py", "# b.py\none = 1\n")
    (worked.project / "made").mkdir()
    (worked.project / "made/new.py").write_text("new = True\n")
    (worked.project / "c.py").write_text("# c.py\none = 3\n")
    worked.turn()

    both = "".join(worked.brief())

    assert worked.listed() == ["c.py", "b.py"]
    assert "### c.py" in both and "### a.py" not in both and "### made" not in both
    assert "one = 2" not in both and "new = True" not in both


def test_a_file_that_a_command_changed_before_the_checkpoint_is_not_marked_as_changed_since(worked: Worked) -> None:
    """The conversation knows an older text of it; the checkpoint has what is on the disk."""
    edit_by_tool(worked)
    (worked.project / "a.py").write_text("# a.py, formatted\none = 2\n")
    worked.turn()

    first, second = worked.brief()

    assert "formatted" in first + second and CHANGED not in first + second


def test_a_file_that_changed_after_the_checkpoint_is_marked(worked: Worked) -> None:
    edit_by_tool(worked)
    worked.turn()
    (worked.project / "a.py").write_text("# a.py, by hand\none = 2\n")

    first, second = worked.brief()

    assert f"a.py {CHANGED}" in first + second


def test_a_line_end_more_is_a_change(worked: Worked) -> None:
    """Bytes are compared, not lines as a reader counts them."""
    edit_by_tool(worked)
    worked.turn()
    (worked.project / "a.py").write_text("# a.py\none = 2\n\n")

    assert f"a.py {CHANGED}" in "".join(worked.brief())


def test_a_file_made_since_is_marked_and_one_that_was_not_looked_at_is_not(worked: Worked) -> None:
    worked.ground.configure(capture={"exclude": ["vendored/"]})
    edit_by_tool(worked)
    (worked.project / "vendored").mkdir()
    (worked.project / "vendored/dep.py").write_text("dep = 2\n")
    read(worked, "vendored/dep.py", "dep = 1\n")
    read(worked, "later.py", "later = 1\n")
    worked.turn()
    (worked.project / "later.py").write_text("later = 1\n")

    both = "".join(worked.brief())

    assert f"later.py {CHANGED}" in both
    assert "### vendored/dep.py" in both and f"dep.py {CHANGED}" not in both


def test_what_commands_changed_since_the_start_is_in_the_document_and_among_the_active_files(ground: Ground) -> None:
    """Nine calls of a shell, a turn after each three, then an edit by hand and a clear."""
    worked = Worked(ground)
    for number in range(9):
        (ground.project / f"f{number}.txt").write_text(f"{number}\n")
        if number % 3 == 2:
            worked.turn()
    (ground.project / "edited.py").write_text("x = 1\n")
    (ground.project / ".env").write_text("KEY=abc\n")
    (ground.project / "f0.txt").unlink()
    worked.answer("SessionEnd", reason="clear")
    row = ground.checkpoints()[-1]

    header = ground.header(row)
    engine = ground.engine
    found = state_document.state(engine.repository(), row, Header(header), str(ground.project), engine.settings)
    engine.close()

    expected = {"edited.py", *[f"f{number}.txt" for number in range(1, 9)]}
    assert set(header["active_files"]) == expected
    assert found.document is not None and {file.path for file in found.document.files} >= expected


def test_what_was_there_before_a_session_is_not_its_work(ground: Ground) -> None:
    (ground.project / "before.py").write_text("x = 1\n")
    worked = Worked(ground)
    worked.turn()

    assert not [row for row in ground.checkpoints() if ground.header(row).get("active_files")]


def test_what_the_agent_edited_by_name_below_build_is_in_both_parts(ground: Ground) -> None:
    (ground.project / "package.json").write_text("{}\n")
    worked = Worked(ground)
    worked.session.write("build/rules.py", "limit = 3\n")
    for name, text in (("build/rules.py", "limit = 3\n"), ("dist/made.js", "var x = 1\n")):
        (ground.project / name).parent.mkdir()
        (ground.project / name).write_text(text)
    worked.turn()

    first, second = worked.brief()

    assert "M build/rules.py" in first and "limit = 3" in second
    assert "made.js" not in first + second


def test_what_a_shell_command_made_below_build_is_told_where_no_tool_makes_it(ground: Ground) -> None:
    worked = Worked(ground)
    worked.turn()
    for name in ("build/report.md", "out/results.txt", "__pycache__/x.pyc"):
        (ground.project / name).parent.mkdir()
        (ground.project / name).write_text("seventeen of them\n")
    worked.turn()

    first, second = worked.brief()

    assert set(ground.header(ground.checkpoints()[-1])["active_files"]) == {"build/report.md", "out/results.txt"}
    assert "build/report.md" in first and "out/results.txt" in first
    assert "seventeen of them" in second


def test_a_section_without_anything_in_it_has_no_heading(ground: Ground) -> None:
    worked = Worked(ground)
    worked.session.write("logo.svg", "<svg/>\n")
    worked.turn()

    first, _ = worked.brief()

    assert "## Current Task" in first and "## Files" not in first


LATIN = b"name = 'caf\xe9'\n" * 3


def written(worked: Worked) -> None:
    """The conversation has a text that never reached the disk as it is: something else stands there."""
    worked.session.write("names.py", "name = 'from the conversation'\n" * 3)


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (LATIN, "@1-4\nname = 'caf\\xe9'\n"),
        (b"first line\none bad \xff byte\n", "first line\none bad \\xff byte\n"),
    ],
    ids=["latin-1", "one bad byte"],
)
def test_a_file_that_is_not_utf_8_is_shown_as_it_is_with_escapes(worked: Worked, content: bytes, shown: str) -> None:
    written(worked)
    (worked.project / "names.py").write_bytes(content)
    worked.turn()

    version = f"v{worked.ground.checkpoints()[-1].version}"
    for text in ("".join(worked.brief()), resumed(worked, version)):
        assert "### names.py\n" in text and shown in text
        assert "from the conversation" not in text


@pytest.mark.parametrize("kind", ["binary", "link", "folder", "pipe"])
def test_what_is_no_text_is_named_with_the_reason(worked: Worked, kind: str) -> None:
    written(worked)
    path = worked.project / "names.py"
    if kind == "binary":
        path.write_bytes(b"x\0y\nz\n")
    elif kind == "link":
        path.symlink_to("a.py")
    elif kind == "folder":
        path.mkdir()
        (path / "inner").write_text("x")
    else:
        os.mkfifo(path)
    worked.turn()

    version = f"v{worked.ground.checkpoints()[-1].version}"
    reason = "not in the checkpoint" if kind == "pipe" else kind
    for text, why in (("".join(worked.brief()), kind), (resumed(worked, version), reason)):
        assert f"names.py ({why})" in text
        assert "### names.py\n" not in text and "### names.py (" not in text
        assert "from the conversation" not in text and CHANGED not in text


def resumed(worked: Worked, version: str) -> str:
    """The brief of that checkpoint, with its own files."""
    engine = worked.ground.engine
    try:
        root, row = engine.workspaces.root(os.fsencode(worked.project))
        resumer = Resumer(engine, root, row.id)
        checkpoint = engine.repository().checkpoint(row.id, int(version[1:]))
        assert checkpoint is not None
        return resumer.moment_brief(resumer.work_at(checkpoint)).brief.text
    finally:
        engine.close()
