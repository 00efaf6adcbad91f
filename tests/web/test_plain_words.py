"""The page speaks to people: short paths, deeds instead of requests, the visitor's language; programs get it whole."""

from __future__ import annotations

import pytest

from tests.web.served import Served
from tests.web.test_bad_input import post

KOREAN = {"Accept-Language": "ko"}


def test_the_home_folder_is_a_tilde_on_pages_and_whole_for_programs(served: Served) -> None:
    at = f"/w/{served.saver.workspace}"
    shown = [served.ask("GET", path).body.decode() for path in ("/", at, "/storage", "/search?text=first")]
    asked = served.ask("GET", at + "/v/v1/fork").body.decode()
    told = served.ask("GET", f"/api/workspaces/{served.saver.workspace}").json()["data"]["root"]

    assert all("~/project" in page and str(served.root) not in page for page in shown)
    assert 'value="~/project-v1"' in asked
    assert told == str(served.root)


def test_a_fork_goes_where_the_tilde_leads(served: Served) -> None:
    answer = post(served, f"/w/{served.saver.workspace}/v/v1/fork", folder="~/elsewhere")

    assert answer.status == 303
    assert (served.base / "elsewhere/src/main.py").read_text() == "def main():\n    return 1\n"


def test_a_task_without_phases_keeps_its_verification(served: Served) -> None:
    """Somebody who types a command to check the work gets it checked, with or without phases."""
    fields = {"brief": "Do it.", "workspace": "~/project", "command": "true", "start": "no"}
    made = post(served, "/tasks/new", verify="make test", **fields)
    plain = post(served, "/tasks/new", **fields)
    checked, other = (
        served.ask("GET", "/api/tasks/" + one.headers["location"].rpartition("/")[2]).json()["data"]
        for one in (made, plain)
    )

    assert [(one["verify"], one["review"]) for one in checked["gates"]] == [("make test", True)]
    assert checked["workspace"] == other["workspace"] == str(served.root)
    assert other["gates"] == []


def test_the_audit_trail_tells_deeds(served: Served) -> None:
    at = f"/w/{served.saver.workspace}"
    post(served, f"{at}/v/v1/label", pinned="yes")
    post(served, f"{at}/v/v99/forget")
    served.ask("POST", f"/api/workspaces/{served.saver.workspace}/checkpoints", {"message": "by a program"})
    said = " ".join(served.ask("GET", "/health").body.decode().split())

    assert '>Pin or name <code class="quiet">project v1</code></td><td class="message">done</td>' in said
    assert '>Forget <code class="quiet">project v99</code></td>' in said
    assert f">POST /api/workspaces/{served.saver.workspace}/checkpoints</td>" in said


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v/v99", "이 작업 공간에 v99이(가) 없습니다. 최신은 v2입니다."),
        ("/v/v1/file?path=not-there", "v1에는 not-there 파일이 없습니다."),
        ("/history", "주소에 파일 경로가 없습니다."),
    ],
)
def test_what_is_wrong_is_said_in_the_visitors_language(served: Served, path: str, said: str) -> None:
    address = f"/w/{served.saver.workspace}{path}"

    assert said in served.ask("GET", address, headers=KOREAN).body.decode()
    assert said not in served.ask("GET", address).body.decode()


def test_a_hint_on_a_page_leads_to_a_page(served: Served) -> None:
    missing = served.ask("GET", f"/w/{served.saver.workspace}/v/v99").body.decode()
    unknown = served.ask("GET", "/t/task_unknown").body.decode()

    assert "The page of the workspace lists all checkpoints." in missing
    assert "The overview page lists them all." in unknown
    assert "keepfast list" not in missing and "keepfast task" not in unknown


def test_a_file_has_no_more_lines_than_its_author_wrote(served: Served) -> None:
    page = served.ask("GET", f"/w/{served.saver.workspace}/v/v1/file?path=src/main.py").body.decode()

    assert page.count('<td class="no">') == 2
