"""Which question comes first, and what counts as an answer."""

from __future__ import annotations

import pytest

from keepfast.runner.domain.questions import MINUTE, check, expire, key, priority, similarity

OPTIONS = ["PostgreSQL", "SQLite", "MySQL"]


def test_urgent_tasks_and_business_come_first_and_waiting_counts() -> None:
    assert priority("critical", "business", 0) == 130
    assert priority("low", "confirmation", 3 * MINUTE) == -47
    assert priority("normal", "choice", 21 * MINUTE) > priority("normal", "business", 0)


@pytest.mark.parametrize(
    ("answer", "value"), [("SQLite", "SQLite"), (" sqlite ", "SQLite"), ("POSTGRESQL", "PostgreSQL"), ("3", "MySQL")]
)
def test_answers_are_taken_without_regard_to_case(answer: str, value: str) -> None:
    assert check(answer, OPTIONS).value == value


def test_a_similar_answer_is_suggested_and_not_taken() -> None:
    found = check("Postgre", OPTIONS)

    assert found.value is None
    assert found.suggestion == "PostgreSQL"
    assert found.similarity == pytest.approx(0.7)
    assert "Did you mean 'PostgreSQL'?" in found.why


def test_another_answer_is_taken_as_it_is_with_a_warning() -> None:
    found = check("Oracle", OPTIONS)

    assert (found.value, found.suggestion) == ("Oracle", "")
    assert found.warning


def test_an_answer_is_taken_to_the_letter_if_somebody_says_so() -> None:
    assert check("Postgre", OPTIONS, exactly=True).value == "Postgre"
    assert check("sqlite", OPTIONS, exactly=True).value == "sqlite"
    assert check("3", OPTIONS, exactly=True).value == "3"
    assert check(" ", OPTIONS, exactly=True).value is None


def test_without_options_every_answer_but_an_empty_one_is_taken() -> None:
    assert check("whatever you like", []).value == "whatever you like"
    assert check("  ", []).value is None


def test_nobody_answers() -> None:
    assert expire(True, "x") == ("pending", None)
    assert expire(False, "x") == ("expired", "x")
    assert expire(False, "") == ("expired", "skip")


def test_the_same_question_in_other_words_of_case_is_the_same() -> None:
    assert key("Which  DATABASE?") == key("which database")
    assert key("Which database?") != key("Which framework?")


def test_similarity() -> None:
    assert similarity("", "") == 1.0
    assert similarity("kitten", "sitting") == pytest.approx(1 - 3 / 7)
    assert similarity("a" * 600, "b" * 600) == 0.0


@pytest.mark.parametrize("answer", ["4", "0", "-1", " 17 "])
def test_a_number_that_no_option_has_is_refused_with_the_options(answer: str) -> None:
    options = ["PostgreSQL", "SQLite", "MySQL"]

    found = check(answer, options)

    assert found.value is None
    assert found.why == f"There is no option {int(answer)}. The options are 1 'PostgreSQL', 2 'SQLite', 3 'MySQL'."
    assert check(answer, options, exactly=True).value == answer.strip()
    assert check(answer, []).value == check(answer, ["8", answer.strip()]).value == answer.strip()
