"""Sealed contents are shown to operators who ask for them, which is recorded, and to nobody else."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from keepfast.app.worker import save
from keepfast.state.pending_events import PendingEvent
from keepfast.web.sessions import AuditRow
from tests.equipment.sessions import Session
from tests.web.scene import Scene, begin, submit
from tests.web.served import Answer, Served

SECRET = "ghp_" + "R4nD0mPart" * 3 + "abcdef"
NEWER, NOW = SECRET.replace("R4nD", "S5oE"), SECRET.replace("R4nD", "T6pF")
KINDS = (".env", "app.py", "é.env")
"""Sealed by its name, and by what is in it."""


@pytest.fixture
def sealed(served: Served) -> Iterator[Served]:
    for text in (SECRET, NEWER):
        for name in KINDS:
            (served.root / name).write_text(f'TOKEN = "{text}"\n')
        served.saver.save("manual", message="with a secret")
    for name in KINDS:
        (served.root / name).write_text(f'TOKEN = "{NOW}"\n')
    yield served


def looks(served: Served, name: str) -> list[str]:
    at, path = served.saver.workspace, quote(name)
    return [
        f"/api/workspaces/{at}/checkpoints/v3/file?path={path}",
        f"/api/workspaces/{at}/diff?old=v2&new=v3&path={path}",
        f"/api/workspaces/{at}/diff?old=v3&new=v4&path={path}",
        f"/api/workspaces/{at}/diff?old=v4&path={path}",
        f"/api/workspaces/{at}/diff?old=v4&new=v2&path={path}",
        f"/w/{at}/v/v3/file?path={path}",
        f"/w/{at}/diff?old=v3&new=v4&path={path}",
        f"/w/{at}/diff?old=v3&new=v4&path={path}&view=side",
        f"/w/{at}/diff?old=v4&new=now&path={path}",
    ]


def tells(answer: Answer) -> bool:
    text = answer.body.decode()
    return any(one in text or one[4:20] in text for one in (SECRET, NEWER, NOW))


def by(served: Served, role: str) -> Callable[[str], Answer]:
    headers = {"Authorization": f"Bearer {served.web_database.create_session(role, 'a test')}"}
    return lambda path: served.ask("GET", path, headers=headers)


def opened(served: Served) -> list[AuditRow]:
    return [one for one in served.web_database.audit_rows(1_000) if one.action == "OPEN"]


@pytest.mark.parametrize("role", ["viewer", "approver", "operator"])
@pytest.mark.parametrize("name", KINDS)
def test_nobody_sees_what_is_sealed_by_just_looking(sealed: Served, role: str, name: str) -> None:
    ask = by(sealed, role)
    answers = [ask(path) for path in looks(sealed, name)]

    assert [one.status for one in answers] == [200] * len(answers)
    assert [path for path, one in zip(looks(sealed, name), answers, strict=True) if tells(one)] == []
    file, difference = answers[0].json()["data"], answers[1].json()["data"]["file"]
    assert file["sealed"] is True and not {"text", "base64"} & file.keys()
    assert difference["sealed"] is True and difference["hunks"] == []
    assert opened(sealed) == []


@pytest.mark.parametrize("role", ["viewer", "approver"])
def test_asking_for_it_takes_an_operator(sealed: Served, role: str) -> None:
    ask = by(sealed, role)
    answers = [ask(f"{path}&sealed=true") for path in looks(sealed, ".env")]

    assert [one.status for one in answers] == [403] * len(answers)
    assert not [one for one in answers if tells(one)]


@pytest.mark.parametrize("name", KINDS)
def test_an_operator_who_asks_sees_it_and_that_is_recorded(sealed: Served, name: str) -> None:
    ask = by(sealed, "operator")
    answers = [ask(f"{path}&sealed=true") for path in looks(sealed, name)]

    assert [one.status for one in answers] == [200] * len(answers)
    assert [path for path, one in zip(looks(sealed, name), answers, strict=True) if not tells(one)] == []
    rows = opened(sealed)
    assert len(rows) == len(answers)
    assert {(one.role, one.who, one.outcome) for one in rows} == {("operator", "a test", "done")}
    assert all(one.target.endswith(f"?path={name}") for one in rows)
    assert name in sealed.ask("GET", "/health").body.decode()


def test_only_an_operator_is_offered_to_see_it(sealed: Served) -> None:
    paths = [path for path in looks(sealed, ".env") if path.startswith("/w/")]

    assert ["sealed=true" in by(sealed, "operator")(path).body.decode() for path in paths] == [True] * len(paths)
    assert ["sealed=true" in by(sealed, "approver")(path).body.decode() for path in paths] == [False] * len(paths)


def test_what_is_not_sealed_is_shown_and_not_recorded(sealed: Served) -> None:
    at = f"/api/workspaces/{sealed.saver.workspace}"
    file = by(sealed, "viewer")(f"{at}/checkpoints/v2/file?path=new.txt").json()["data"]
    asked = by(sealed, "operator")(f"{at}/checkpoints/v2/file?path=new.txt&sealed=true").json()["data"]

    assert (file["text"], file["sealed"]) == (asked["text"], asked["sealed"]) == ("new\n", False)
    assert opened(sealed) == []


FILES = {
    ".pgpass": "db.example.org:5432:prod:ann:sunflower-lake\n",
    ".netrc": "machine x.example login ann password sunflowerlake\n",
    ".bash_history": "mysql -u root -psunflower\n",
    "prod.tfvars": 'admin_pw = "sunflower lake"\n',
    ".env": "PIN=4711\nSIGNING_SALT=sunflower horse\n",
    "client.py": f'import sunflower\nTOKEN = "{SECRET}"\n',
}


@pytest.mark.parametrize("role", ["viewer", "approver", "operator"])
def test_no_brief_of_the_page_shows_what_is_sealed(served: Served, role: str) -> None:
    talk = Session(cwd=str(served.root))
    talk.asked("Set the server up")
    for name, text in {**FILES, "plain.py": "import plainly\n"}.items():
        talk.write(name, text)
        (served.root / name).write_text(text)
    transcript = talk.save(served.base / "5e551011.jsonl")
    engine = served.saver.engine()
    row = engine.workspaces.root(os.fsencode(served.root))[1]
    seen = PendingEvent("turn", time.time_ns(), "5e551011", "claude-code", str(served.root), str(transcript))
    save(engine, os.fsencode(served.root), engine.place.folder(row.id), seen)
    engine.close()
    at = served.saver.workspace
    places = ["checkpoints/latest", "checkpoints/latest/brief", "status", "diff?old=v1"]
    pages = [
        "/api/search?text=sunflower",
        f"/w/{at}",
        f"/w/{at}/v/latest",
        f"/w/{at}/v/latest/brief",
        f"/w/{at}/diff?old=v1&new=now",
    ]
    answers = [by(served, role)(path) for path in [*[f"/api/workspaces/{at}/{place}" for place in places], *pages]]

    assert [one.status for one in answers if one.status != 200] == []
    assert [one for one in answers if re.search(rb"sunflower[-l \"\\]|PIN=4711", one.body) or tells(one)] == []
    brief = answers[1].json()["data"]
    assert {f"{name} (sealed, not shown)" for name in FILES} <= set(brief["left_out"])
    assert "import plainly" in brief["text"]


def test_a_review_does_not_tell_what_is_sealed(served: Served) -> None:
    task = Scene(served).task(submit, begin)
    shown = served.ask("GET", f"/api/tasks/{task}").json()["data"]
    made = served.ask("POST", f"/api/workspaces/{shown['workspace_id']}/checkpoints", {"message": "the phase begins"})
    ground = served.ground()
    with ground.tables.write() as tables:
        tables.do(
            "INSERT INTO checkpoint VALUES (?, ?, '', ?, ?, 'start', 1, '', '', 1)",
            f"{task}:start", task, made.json()["data"]["id"], int(made.json()["data"]["version"][1:]),
        )  # fmt: skip
    ground.close()
    (Path(shown["workspace"]) / ".env").write_text(f"TOKEN={SECRET}\n")
    (Path(shown["workspace"]) / "plain.txt").write_text("nothing of the kind\n")
    pages = [by(served, role)(f"/t/{task}/review") for role in ("viewer", "operator")]

    for page in pages:
        assert b"nothing of the kind" in page.body and b".env" in page.body
        assert not tells(page)
