"""The rows of `make mutants` point at what is there: a row that a change has left behind tries nothing."""

from __future__ import annotations

import pytest

import mutants

ROW = mutants.MUTANTS[0]


@pytest.mark.parametrize("row", mutants.MUTANTS, ids=lambda row: row.check)
def test_each_row_names_a_line_that_stands_in_its_file_once_and_tests_that_are_there(row: mutants.Mutant) -> None:
    assert mutants.stale(row) == ""


def test_no_two_rows_are_the_same_check() -> None:
    assert len({row.check for row in mutants.MUTANTS}) == len(mutants.MUTANTS)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (ROW._replace(file="gone.py"), "no such file"),
        (ROW._replace(old="def "), "times"),
        (ROW._replace(old="a text of no file"), "0 times"),
        (ROW._replace(tests=f"{ROW.tests} tests/test_gone.py"), "tests/test_gone.py"),
    ],
    ids=["file", "many", "none", "tests"],
)
def test_a_stale_row_is_named_and_the_others_are_tried(
    row: mutants.Mutant, why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mutants, "MUTANTS", (row, ROW._replace(check="another")))
    monkeypatch.setattr(mutants, "tried", lambda mutant: "caught")

    code = mutants.main([])

    said = capsys.readouterr().out.splitlines()
    assert code == 1
    assert said[0].startswith("STALE") and row.check in said[0] and why in said[0]
    assert said[1].startswith("caught") and said[2] == "1 passed, 1 failed"


def test_all_rows_caught_is_the_end_of_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "tried", lambda mutant: "caught")

    assert mutants.main([]) == 0
