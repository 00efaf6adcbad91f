"""Sessions with labels: what a careful reader would note as task, next steps, decisions and blockers."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.equipment.sessions import Session


@dataclass
class Label:
    """Each expectation is a text that one note must contain."""

    session: Session
    task: str
    steps: list[str] = field(default_factory=list)
    decisions: list[str] = field(default_factory=list)
    blockers: list[str] = field(default_factory=list)


def with_todos() -> Label:
    s = Session(files={"api.py": "def get():\n    return 1\n"})
    s.asked("Add pagination to the orders endpoint. Don't change the response shape.")
    s.todos(("in_progress", "Add limit and offset"), ("pending", "Write tests"), ("pending", "Update the docs"))
    s.read("api.py")
    s.edit("api.py", "return 1", "return page(1)")
    s.said("We'll go with cursor-less pagination because the table is small.")
    s.said("Now let me write the tests.")
    return Label(
        s,
        "Add limit and offset",
        ["Add limit and offset", "Write tests", "Update the docs"],
        ["Don't change the response shape", "cursor-less pagination"],
    )


def with_intentions() -> Label:
    s = Session(files={"a.go": "package a\n"})
    s.asked("why is the cache never invalidated?")
    s.read("a.go")
    s.said("The key omits the tenant. I'll add the tenant to the cache key.")
    s.asked("yes please")
    s.edit("a.go", "package a", "package cache")
    s.said("The key is changed. Next, I'll update the eviction test.")
    return Label(s, "why is the cache never invalidated", ["update the eviction test"])


def with_a_list() -> Label:
    s = Session()
    s.asked("Migrate the build from webpack to vite")
    s.said(
        "Half of it is done.\n\n**Next steps**\n1. Port the svg loader\n2. Remove webpack.config.js\n3. Update CI\n\n"
        "Tell me when to go on."
    )
    return Label(s, "Migrate the build", ["Port the svg loader", "Remove webpack.config.js", "Update CI"])


def with_answers() -> Label:
    s = Session()
    s.asked("Set up authentication for the admin page")
    s.answered("Which session store?", "Redis")
    s.planned("# Admin login\n1. middleware\n2. pages")
    s.said("I'll start with the middleware.")
    return Label(
        s,
        "Admin login",
        ["start with the middleware"],
        ["Which session store? → Redis", "Plan approved: Admin login"],
    )


def with_a_failure() -> Label:
    s = Session(files={"calc.py": "def add(a, b):\n    return a - b\n"})
    s.asked("make the calculator tests pass")
    s.run("python -m pytest tests/", "E  assert 1 == 3\ntests/test_calc.py:4\n1 failed, 2 passed", failed=True)
    s.read("calc.py")
    s.said("Let me fix the sign in add().")
    return Label(
        s, "make the calculator tests pass", ["fix the sign in add()"], [], ["The last test fails: python -m pytest"]
    )


def with_a_blocker() -> Label:
    s = Session()
    s.asked("Deploy the worker to staging")
    s.run("make deploy", "denied: no token", failed=True)
    s.said("I can't push the image because the registry token is missing. Could you add DEPLOY_TOKEN?")
    return Label(
        s,
        "Deploy the worker to staging",
        [],
        [],
        [
            "can't push the image because",
            "The last test fails: make deploy",
            "Waiting for an answer: Could you add DEPLOY_TOKEN?",
        ],
    )


def korean() -> Label:
    s = Session(files={"app.py": "x = 1\n"})
    s.asked("주문 목록에 페이지 나누기를 추가해 주세요. 응답 형식은 바꾸지 마세요.")
    s.read("app.py")
    s.said("오프셋 방식을 사용하기로 했습니다.")
    s.said("다음 단계\n- 테스트 작성\n- 문서 업데이트")
    s.said("배포 키가 필요합니다. 승인 대기 중입니다.")
    return Label(
        s,
        "주문 목록에",
        ["테스트 작성", "문서 업데이트"],
        ["오프셋 방식을 사용하기로", "바꾸지 마세요"],
        ["키가 필요합니다", "대기 중"],
    )


def chinese() -> Label:
    s = Session(files={"app.ts": "const a = 1\n"})
    s.asked("给订单接口加上分页。不要修改返回格式。")
    s.read("app.ts")
    s.said("我们决定采用偏移分页。")
    s.said("下一步：\n1. 编写测试\n2. 更新文档")
    return Label(s, "给订单接口加上分页", ["编写测试", "更新文档"], ["决定采用偏移分页", "不要修改返回格式"])


def german() -> Label:
    s = Session()
    s.asked("Bitte die Rechnungen auf Decimal umstellen")
    s.said("Ich habe mich entschieden, quantize zu verwenden. Wir warten auf die Freigabe der Datenbank.")
    s.said("Nächste Schritte\n- Rundung testen")
    return Label(s, "Bitte die Rechnungen", ["Rundung testen"], ["entschieden, quantize"], ["warten auf die Freigabe"])


def stated() -> Label:
    s = Session()
    s.asked("do the release")
    s.call(
        "mcp__keepfast__checkpoint_save",
        {
            "summary": "Release 2.1",
            "current_task": "Release 2.1",
            "decisions": ["Skip the beta channel"],
            "next_steps": ["Tag v2.1", "Announce it"],
        },
        "saved",
    )
    s.said("Let me look around first.")
    return Label(s, "Release 2.1", ["Tag v2.1", "Announce it"], ["Skip the beta channel"])


def with_numbered_tasks() -> Label:
    s = Session()
    s.asked("Refactor the parser into modules")
    for number, subject in enumerate(["Split the lexer", "Split the emitter", "Delete parser.py"], 1):
        s.call(
            "TaskCreate",
            {"subject": subject, "description": subject},
            "ok",
            {"task": {"id": str(number), "subject": subject}},
        )
    s.call("TaskUpdate", {"taskId": "1", "status": "completed"}, "ok", {"success": True})
    s.call("TaskUpdate", {"taskId": "2", "status": "in_progress"}, "ok", {"success": True})
    s.said("The lexer is split and resolved the import cycle.")
    return Label(s, "Split the emitter", ["Split the emitter", "Delete parser.py"])


def quiet() -> Label:
    """Talk without any decision, step or obstacle: nothing is to be invented."""
    s = Session(files={"a.py": "x = 1\n"})
    s.asked("What does this module do?")
    s.read("a.py")
    s.said("It sets x to one. Nothing else happens there.")
    return Label(s, "What does this module do?")


def nodding() -> Label:
    s = Session()
    s.asked("Rename Customer to Client across the billing package")
    s.said("Shall I also rename the table?")
    s.asked("no, keep the table name")
    s.said("Okay. I'll rename the classes only.")
    s.asked("ok")
    return Label(s, "keep the table name", ["rename the classes only"], ["keep the table name"])


LABELLED = [
    with_todos,
    with_intentions,
    with_a_list,
    with_answers,
    with_a_failure,
    with_a_blocker,
    korean,
    chinese,
    german,
    stated,
    with_numbered_tasks,
    quiet,
    nodding,
]
