"""File contents rebuilt from what the client's tools recorded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from keepfast.agents import transcript
from keepfast.agents.recorded_files import MAX_FILES, Files
from tests.equipment.sessions import CWD, Session


def known(files: Files, path: str = "a") -> list[str | None]:
    return files.by_path[path].lines


def test_a_partial_read_is_known_in_part() -> None:
    files = Files()
    files.read(1, "a", 3, ["c", "d"], 6)

    assert known(files) == [None, None, "c", "d", None, None]
    assert files.by_path["a"].known() == 2


def test_partial_reads_add_up() -> None:
    files = Files()
    files.read(1, "a", 1, ["a", "b"], 4)
    files.read(2, "a", 3, ["c", "d"], 4)

    assert known(files) == ["a", "b", "c", "d"]


def test_a_partial_read_of_a_grown_file_keeps_the_rest_at_its_end() -> None:
    files = Files()
    files.read(1, "a", 1, ["a", "b", "y", "z"], 4)
    files.read(2, "a", 2, ["B", "new"], 5)

    assert known(files) == ["a", "B", "new", "y", "z"]


def test_a_partial_read_of_a_shrunk_file_keeps_the_rest_at_its_end() -> None:
    files = Files()
    files.read(1, "a", 1, ["a", "b", "c", "y", "z"], 5)
    files.read(2, "a", 1, ["A"], 3)

    assert known(files) == ["A", "y", "z"]


def test_an_edit_without_the_original_changes_what_is_known() -> None:
    files = Files()
    files.read(1, "a", 1, ["one", "two", "three"], 3)
    files.edit(2, "a", None, [("two", "2\n2.5", False)], [])

    assert known(files) == ["one", "2", "2.5", "three"]
    assert [(hunk.start, hunk.count) for hunk in files.by_path["a"].hunks] == [(2, 2)]


def test_an_edit_of_unknown_text_still_marks_the_file() -> None:
    files = Files()
    files.edit(1, "a", None, [("nowhere", "x", False)], [])

    assert files.by_path["a"].edited


def test_earlier_places_move_with_later_edits() -> None:
    session = Session(files={"a": "\n".join([f"line {number}" for number in range(1, 41)])})
    session.read("a", 20, 5)
    session.edit("a", "line 30", "line thirty")
    session.edit("a", "line 2\n", "line 2\nnew\nnewer\n")

    file = transcript.read(session.bytes()).files.by_path[f"{CWD}/a"]

    assert file.reads[0].start == 22
    assert file.hunks[0].start == 32
    assert file.lines[31] == "line thirty"


def test_several_edits_in_one_call_are_applied_in_order() -> None:
    session = Session(files={"a": "one\ntwo\n"})
    path = session.path("a")
    edits = [
        {"old_string": "one", "new_string": "1"},
        {"old_string": "two", "new_string": "2", "replace_all": True},
    ]
    session.call(
        "MultiEdit",
        {"file_path": path, "edits": edits},
        "ok",
        {"filePath": path, "edits": edits, "originalFile": "one\ntwo\n"},
    )

    assert transcript.read(session.bytes()).files.by_path[path].lines == ["1", "2", ""]


def test_a_notebook_is_marked_as_changed() -> None:
    session = Session()
    session.call("NotebookEdit", {"notebook_path": "/n/a.ipynb", "new_source": "x"}, "ok", {"new_source": "x"})

    assert transcript.read(session.bytes()).files.by_path["/n/a.ipynb"].edited


def test_an_image_that_was_read_is_only_named() -> None:
    session = Session()
    session.call("Read", {"file_path": "/p.png"}, "", {"type": "image", "file": {"filePath": "/p.png", "base64": "…"}})

    file = transcript.read(session.bytes()).files.by_path["/p.png"]

    assert file.lines == []


def test_failed_calls_change_nothing() -> None:
    session = Session(files={"a": "x"})
    session.call(
        "Edit",
        {"file_path": "/a", "old_string": "x", "new_string": "y"},
        "File has not been read yet",
        "Error",
        failed=True,
    )

    assert not transcript.read(session.bytes()).files.by_path


def test_the_newest_files_are_kept() -> None:
    files = Files()
    for number in range(MAX_FILES + 10):
        files.touch(number, f"f{number}")

    assert len(files.by_path) == MAX_FILES
    assert "f0" not in files.by_path
    assert files.newest_first()[0].path == f"f{MAX_FILES + 9}"


def test_a_renamed_file_keeps_its_text() -> None:
    files = Files()
    files.read(1, "a", 1, ["x"], 1)
    files.rename(2, "a", "b")
    files.rename(3, "nowhere", "c")
    files.drop("c")

    assert known(files, "b") == ["x"]
    assert list(files.by_path) == ["b"]


LINES = st.lists(st.sampled_from(["a", "b", "c", "", "    d"]), min_size=1, max_size=12)


@given(LINES, st.lists(st.tuples(st.integers(0, 11), LINES), max_size=5))
def test_contents_follow_any_series_of_edits(first: list[str], changes: list[tuple[int, list[str]]]) -> None:
    session = Session(files={"f": "\n".join([f"{number}:{line}" for number, line in enumerate(first)])})
    session.read("f")
    for at, new in changes:
        lines = session.files[session.path("f")].split("\n")
        old = lines[at % len(lines)]
        if old:
            session.edit("f", old, "\n".join(new))

    assert transcript.read(session.bytes()).files.by_path[session.path("f")].lines == session.files[
        session.path("f")
    ].split("\n")
