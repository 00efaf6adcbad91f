"""Every sentence of the page has its Korean."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.resources import files

import pytest

from keepfast.app.translations import catalogue
from keepfast.web.translation import Words, pattern

KOREAN, SENTENCES = catalogue("ko")["page"], catalogue("ko")["sentences"]
KEEPFAST = files("keepfast")
TEMPLATES = KEEPFAST / "web/templates"
SENTENCE = re.compile(r"""_\((?:"([^"]+)"|'([^']+)')\)""")
PAGE = ("access", "action_pages", "app", "pages", "queries", "restores", "task_pages", "tasks")
RUNNER = (
    "actions/finals", "actions/recovery", "actions/restores", "actions/tasks", "scheduler/outcomes", "scheduler/supervisor",
    "scheduler/turns",
)  # fmt: skip


def test_every_sentence_of_the_templates_is_translated() -> None:
    used = {
        one or other
        for template in TEMPLATES.iterdir()
        for one, other in SENTENCE.findall(template.read_text(encoding="utf-8"))
    }

    assert len(used) > 150
    assert sorted(used - KOREAN.keys()) == []


def test_what_a_task_can_be_is_translated() -> None:
    from keepfast.runner.domain import task

    states = [
        task.status(task.State(state, hold))
        for state in (task.DRAFT, task.QUEUED, task.ACTIVE, task.REVIEW, task.DONE, task.FAILED, task.CANCELLED)
        for hold in ("", task.QUESTION, task.SECRET, task.APPROVAL, task.RATE_LIMIT, task.USER_PAUSE)
    ]

    assert {state.replace("_", " ") for state in states} - KOREAN.keys() == set()
    assert {f"held {kind.replace('_', ' ')}" for kind in task.HOLDS[-6:]} - KOREAN.keys() == set()


def test_what_the_page_refuses_is_said_in_korean() -> None:
    said = [text for name in PAGE for text in refusals(f"web/{name}.py")]

    assert len(said) > 40
    assert sorted({text for text in said if not translated(text)}) == []


def test_why_a_task_is_held_is_said_in_korean() -> None:
    said = [text for name in RUNNER for text in reasons(f"runner/{name}.py")]

    assert len(said) > 8
    assert sorted({text for text in said if not translated(text)}) == []


def test_what_the_doctor_finds_is_said_in_korean() -> None:
    from keepfast.cli.checks import CHECKS
    from keepfast.web.doctor import ELSEWHERE

    found = ast.parse((KEEPFAST / "cli/checks.py").read_text(encoding="utf-8"))
    skipped = {CHECKS[name].__name__ for name in ELSEWHERE}
    checks = [one for one in found.body if isinstance(one, ast.FunctionDef) and one.name not in skipped]
    said = [
        text
        for check in checks
        for one in ast.walk(check)
        if isinstance(one, ast.Yield) and isinstance(one.value, ast.Tuple)
        for part in one.value.elts[1:]
        for text in texts(part)
    ]

    assert len(said) > 40
    assert sorted({text for text in said if not translated(text)}) == []
    assert {f"check {name}" for name in CHECKS if name not in ELSEWHERE} - KOREAN.keys() == set()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Phase 1 (Plan) is complete.", "1단계(Plan)가 끝났습니다."),
        ("This workspace has no checkpoint 'x'.", "이 작업 공간에 체크포인트 'x'이(가) 없습니다."),
        ("This needs the role operator; you are signed in as viewer.", "운영자 권한이 필요합니다. 현재 역할은 열람자입니다."),
        ("v3 has no file a.txt.", "v3에는 a.txt 파일이 없습니다."),
        ("What an agent wrote itself.", "What an agent wrote itself."),
    ],
)  # fmt: skip
def test_names_and_numbers_stand_where_korean_puts_them(text: str, said: str) -> None:
    assert Words("ko").sentence(text) == said
    assert Words("en").sentence(text) == text


def test_no_translation_asks_for_more_than_the_sentence_has() -> None:
    for english, korean in SENTENCES.items():
        assert korean.format(*["x"] * english.count("{}"))


# Parts


def refusals(path: str) -> Iterator[str]:
    """What is raised in a module, and what it says to do instead."""
    for one in ast.walk(ast.parse((KEEPFAST / path).read_text(encoding="utf-8"))):
        if isinstance(one, ast.Raise) and isinstance(one.exc, ast.Call):
            for part in one.exc.args:
                yield from texts(part)


def reasons(path: str) -> Iterator[str]:
    """What a module says of why a task stands still."""
    for one in ast.walk(ast.parse((KEEPFAST / path).read_text(encoding="utf-8"))):
        named = one.arg if isinstance(one, ast.keyword) else ""
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
            named = one.targets[0].id
        if named == "why" and isinstance(one, ast.keyword | ast.Assign):
            yield from texts(one.value)


def texts(part: ast.expr) -> Iterator[str]:
    """The texts that an expression can be, with `s` for whatever is filled in; none where nothing of it is fixed."""
    if isinstance(part, ast.IfExp):
        yield from texts(part.body)
        yield from texts(part.orelse)
    elif isinstance(part, ast.Constant) and isinstance(part.value, str):
        yield part.value
    elif isinstance(part, ast.JoinedStr):
        fixed = "".join([str(one.value) for one in part.values if isinstance(one, ast.Constant)])
        if any(char.isalpha() for char in fixed):
            yield "".join([filled(one) for one in part.values])


def filled(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    # A plural's ending, or an addition that need not be there.
    if isinstance(part.value, ast.IfExp) and isinstance(part.value.orelse, ast.Constant):
        return str(part.value.orelse.value)
    return "s"


def translated(text: str) -> bool:
    return text in KOREAN or any(pattern(english).fullmatch(text) for english in SENTENCES)
