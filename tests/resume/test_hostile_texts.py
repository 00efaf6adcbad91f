"""A hundred checkpoints that mean harm: fenced, labelled, without invisible signs, within budget."""

from __future__ import annotations

import pytest

from keepfast.resume.quotation import clean, fence
from tests.equipment.hostile_texts import ATTACKS, INVISIBLE, check_part
from tests.equipment.sessions import Session
from tests.equipment.token_count import count

from .brief_samples import built, module


@pytest.mark.parametrize("number", range(0, 100, 10))
def test_hostile_checkpoints_are_fenced_labelled_and_within_budget(number: int) -> None:
    for attack in ATTACKS[number : number + 10]:
        result = built(attack.session())

        assert result.tokens <= 5_000
        assert count(result.text) <= 5_000
        for part in result.parts:
            check_part(part)


def test_a_fence_cannot_be_closed_from_inside() -> None:
    body = "harmless"
    for _ in range(5):
        body += "\n" + fence(body, "history")

    text = fence(body, "history")

    mark = text.split(">", 1)[0].split(" ")[1]
    assert text.count(f"</history {mark}>") == 1
    assert text.endswith(f"</history {mark}>")


@pytest.mark.parametrize("size", [5_000_000, 10_000_000])
def test_huge_lines_and_files_leave_a_useful_brief(size: int) -> None:
    session = Session(files={"min.js": "var a=1;" * (size // 8), "src/a.py": module(2)})
    session.asked("fix the module")
    session.read("min.js")
    session.read("src/a.py")
    session.edit("src/a.py", "import json", "import io")

    result = built(session)

    assert "import io" in result.text
    assert result.tokens <= 5_000
    assert "min.js" in "".join(result.left_out)


@pytest.mark.parametrize("text", ["설정을 읽고 값을 바꿉니다", "读取配置并更改数值", "設定を読んで値を変更します"])
def test_korean_and_chinese_code_stays_within_budget(text: str) -> None:
    body = "\n\n".join([f"def f{number}():\n    # {text} {text}\n    return '{text}'" for number in range(400)])
    session = Session(files={"src/a.py": body})
    session.asked(text * 30)
    session.read("src/a.py")
    session.edit("src/a.py", "def f7():", "def g7():")
    session.said(text * 20)

    result = built(session)

    assert "def g7():" in result.text
    assert result.tokens <= 5_000
    assert count(result.text) <= 5_000


def test_plain_text_is_left_as_it_is() -> None:
    assert clean("tab\tand\nnewline, café, 한국어") == "tab\tand\nnewline, café, 한국어"
    assert clean("a" + INVISIBLE + "b") == "a[31mb"
