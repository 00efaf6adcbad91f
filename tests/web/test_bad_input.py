"""What is wrong is answered with a sentence, on a page and in JSON, with the right status, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.web.scene import Scene, begin, fail, submit
from tests.web.served import Answer, Served

NOWHERE = "0" * 32
NO_TASK, NO_PROMPT = "task_0123456789", "q_000000"
FORM = "application/x-www-form-urlencoded"
BASE = "/w/WS"
API = "/api/workspaces/WS"


@contextmanager
def nothing_changes(served: Served) -> Iterator[None]:
    before = served.digest()
    yield
    assert served.digest() == before


def says_so(answer: Answer, status: int, *words: str) -> None:
    """The status, and a sentence: on a page of its own, or as `{success: false, error}`."""
    text = answer.body.decode()
    assert answer.status == status, text[:500]
    assert 'role="alert"' in text or not answer.json()["success"]
    for word in words:
        assert word in text


def post(served: Served, path: str, **fields: str) -> Answer:
    """As a form of our own page sends it."""
    from urllib.parse import urlencode

    body = urlencode({"_token": served.token(), **fields}).encode()
    return served.ask("POST", served.at(path), body, bare=True, headers={**served.browser(), "Content-Type": FORM})


@pytest.mark.parametrize(
    "path",
    [f"/w/{NOWHERE}", f"/api/workspaces/{NOWHERE}", f"/w/{NOWHERE}/v/v1", "/w/..%2f..", BASE + "/v/v99", API + "/checkpoints/v99",
     BASE + "/v/nobody-named-it", BASE + "/diff?old=v99", API + "/diff?old=v99", BASE + "/v/v1/file?path=not-there",
     API + "/checkpoints/v1/file?path=not-there", BASE + "/v/v99/tree", BASE + "/v/v99/brief", BASE + "/restore?reference=v99",
     BASE + "/v/v99/fork", BASE + "/v/v99/forget", f"/t/{NO_TASK}", f"/t/{NO_TASK}/review", f"/api/tasks/{NO_TASK}",
     f"/p/{NO_PROMPT}", f"/api/tasks/{NO_TASK}/verifications", f"/api/tasks/{NO_TASK}/log", "/nothing", "/api/nothing"],
)  # fmt: skip
def test_what_is_not_there(served: Served, path: str) -> None:
    with nothing_changes(served):
        says_so(served.ask("GET", path.replace("WS", served.saver.workspace)), 404)


@pytest.mark.parametrize(
    ("path", "fields"),
    [(BASE + "/restore", {"reference": "v99"}), (BASE + "/v/v99/forget", {}), (BASE + "/v/v99/label", {"pinned": "yes"}),
     (BASE + "/v/v99/fork", {"folder": "/nonexistent/x"}), (f"/w/{NOWHERE}/save", {}), (f"/t/{NO_TASK}/act", {"action": "pause"}),
     (f"/t/{NO_TASK}/budget", {"tokens": "5"}), (f"/t/{NO_TASK}/back", {"checkpoint": "v1"}),
     (f"/t/{NO_TASK}/secret", {"name": "A", "value": "b"}), (f"/p/{NO_PROMPT}", {"answer": "yes"}),
     (f"/p/{NO_PROMPT}", {"kind": "approve"}), (f"/p/{NO_PROMPT}", {"kind": "reject", "comments": "x"})],
)  # fmt: skip
def test_nothing_is_done_to_what_is_not_there(served: Served, path: str, fields: dict[str, str]) -> None:
    with nothing_changes(served):
        says_so(post(served, path.replace("WS", served.saver.workspace), **fields), 404)


def test_an_approval_of_what_was_changed_since(served: Served) -> None:
    prompt = Scene(served).prompt("approval", tree="0" * 64)
    with nothing_changes(served):
        says_so(post(served, f"/p/{prompt}", kind="approve"), 409, "changed since the review")
        says_so(served.ask("PATCH", f"/api/reviews/{prompt}/approve", {}), 409, "changed since the review")
    assert served.ask("GET", f"/p/{prompt}").status == 200


def test_a_comment_on_a_review_is_shown_as_it_was_said_and_an_empty_one_refused(served: Served) -> None:
    prompt = Scene(served).prompt("approval")
    feedback = f"/api/reviews/{prompt}/feedback"
    remarks = [{"path": "<b>.py", "line": 3, "text": "<script>x</script>"}]
    with nothing_changes(served):
        says_so(served.ask("POST", feedback, {"comments": " "}), 400, "comment is empty")
    assert served.ask("POST", feedback, {"comments": "Too long.", "remarks": remarks}).status == 200

    page = served.ask("GET", f"/p/{prompt}").body.decode()
    assert "Too long." in page
    assert "<code>&lt;b&gt;.py:3</code> &lt;script&gt;" in page
    assert served.ask("PATCH", f"/api/reviews/{prompt}/request-changes", {}).status == 200
    with nothing_changes(served):
        says_so(served.ask("POST", feedback, {"comments": "More."}), 409, "no longer waiting")


def test_phases_of_a_form_are_told_apart(served: Served) -> None:
    fields = {"brief": "Do\r\nit.", "phases": "Plan\r\nit.\r\n---\r\nBuild it.", "command": "true", "start": "no"}
    made = post(served, "/tasks/new", workspace=str(served.root), **fields)
    name = made.headers["location"].rpartition("/")[2]
    (shown, phases) = [served.ask("GET", f"/api/tasks/{name}{part}").json()["data"] for part in ("", "/phases")]

    assert shown["brief"] == "Do\nit."
    assert len(phases) == 2


def test_a_second_answer(served: Served) -> None:
    prompt = Scene(served).prompt("question")
    first = post(served, f"/p/{prompt}", answer="yes")
    with nothing_changes(served):
        says_so(post(served, f"/p/{prompt}", answer="no"), 409, "no longer waiting")
        says_so(served.ask("POST", f"/api/questions/{prompt}/answer", {"answer": "no"}), 409, "no longer waiting")
    page = served.ask("GET", f"/p/{prompt}").body.decode()

    assert first.status == 303
    assert "no longer waiting" in page
    assert "operator: yes" in page


def test_an_answer_that_is_none_of_the_options_is_taken_word_for_word(served: Served) -> None:
    prompt = Scene(served).prompt("question", options=["red", "blue"])

    says_so(post(served, f"/p/{prompt}", answer=" "), 400)
    assert post(served, f"/p/{prompt}", answer="neither, take bleu").status == 303
    assert "operator: neither, take bleu" in served.ask("GET", f"/p/{prompt}").body.decode()


def test_what_a_state_does_not_allow(served: Served) -> None:
    task = Scene(served).task(submit, begin, fail)
    with nothing_changes(served):
        says_so(post(served, f"/t/{task}/act", action="pause"), 409, "Cannot pause")
        says_so(post(served, f"/t/{task}/act", action="explode"), 400)
        says_so(post(served, f"/t/{task}/budget", tokens="many"), 400, "number")
        says_so(served.ask("POST", f"/api/tasks/{task}/restore", {"checkpointId": "v99"}), 404)


def test_huge_bodies(served: Served) -> None:
    with nothing_changes(served):
        says_so(
            served.ask(
                "POST", f"{API}/checkpoints".replace("WS", served.saver.workspace), {"message": "x" * (2 << 20)}
            ),
            413,
        )
        says_so(post(served, f"{BASE}/save".replace("WS", served.saver.workspace), message="x" * (2 << 20)), 413)


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"null", b"\xff", b'{"message": NaN}', b'{"message":1}', b'{"a":1}', b"[" * 60_000]
)
def test_malformed_json(served: Served, body: bytes) -> None:
    path = f"{API}/checkpoints".replace("WS", served.saver.workspace)
    with nothing_changes(served):
        says_so(served.ask("POST", path, body, headers={"Content-Type": "application/json"}), 400)


def test_differences_that_cannot_be_shown(served: Served) -> None:
    (served.root / "large.bin").write_bytes(b"0123456789abcdef" * (50 << 16))
    (served.root / "binary").write_bytes(bytes(range(256)) * 16)
    (served.root / "<b>name.txt").write_text("<i>content</i>\n")
    served.saver.save("manual")
    page = {name: served.ask("GET", f"/w/{served.saver.workspace}/diff?old=v2&new=v3&path={name}") for name in (
        "large.bin", "binary", "%3Cb%3Ename.txt")}  # fmt: skip
    found = served.ask("GET", f"{API}/diff?old=v2&new=v3&path=large.bin".replace("WS", served.saver.workspace)).json()[
        "data"
    ]
    whole = served.ask("GET", f"/w/{served.saver.workspace}/v/v3/file?path=large.bin")

    assert {answer.status for answer in page.values()} == {200}
    assert b"too large" in page["large.bin"].body
    assert found["file"]["too_large"] and found["file"]["hunks"] == []
    assert b"binary" in page["binary"].body
    assert b"&lt;i&gt;content" in page["%3Cb%3Ename.txt"].body and b"<b>name" not in page["%3Cb%3Ename.txt"].body
    assert whole.status == 200 and len(whole.body) < 100_000


def test_a_checkpoint_that_is_damaged(served: Served) -> None:
    for pack in (served.base / "store" / "packs").rglob("*"):
        if pack.is_file():
            pack.write_bytes(b"\0" * pack.stat().st_size)
    files = {path: path.read_bytes() for path in served.root.rglob("*") if path.is_file()}
    page, api = BASE.replace("WS", served.saver.workspace), API.replace("WS", served.saver.workspace)
    for answer in (
        served.ask("GET", f"{page}/v/v2"), served.ask("GET", f"{api}/checkpoints/v2"),
        served.ask("GET", f"{page}/v/v1/file?path=src/main.py"), served.ask("GET", f"{api}/checkpoints/v1/file?path=src/main.py"),
        served.ask("POST", f"{api}/restore", {"reference": "v1", "conflicts": "theirs"}),
        post(served, f"{page}/restore", reference="v1", conflicts="theirs"),
    ):  # fmt: skip
        says_so(answer, 500)

    assert {path: path.read_bytes() for path in files} == files
    assert served.ask("GET", "/").status == 200


@pytest.mark.parametrize("path", ["/session", "/api/workspaces/WS/checkpoints"])
@pytest.mark.parametrize("body", [b"[" * 8000, b'{"ticket":' * 1500, b"{", b"\xff"])
def test_a_body_that_is_no_json_or_too_deep_is_refused(
    served: Served, path: str, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with nothing_changes(served):
        headers = {"Content-Type": "application/json"}
        says_so(served.ask("POST", path.replace("WS", served.saver.workspace), body, headers=headers), 400)

    assert [one for one in caplog.records if one.exc_info] == []


@pytest.mark.parametrize("path", ["/storage/", "/w/WS/", "/api/workspaces/"])
def test_an_address_with_a_slash_too_many_leads_nowhere(served: Served, path: str) -> None:
    """Least of all out of the folder of the session."""
    place = served.at(path.replace("WS", served.saver.workspace))
    answer = served.ask("GET", place, bare=True, headers=served.browser())

    says_so(answer, 404)
    assert "location" not in answer.headers


ODD_NAMES = ("it's", "a&b", "<i>", '"q"', "a b", "100%", "ü")


def test_links_lead_to_files_and_folders_of_any_name(served: Served) -> None:
    """A name is escaped once for the address, and once for the page."""
    for name in ODD_NAMES:
        (served.root / name).mkdir()
        (served.root / name / f"{name}.txt").write_text("found")
    version = served.saver.save("manual").version
    links = _linked(served, f"/w/{served.saver.workspace}/v/v{version}/tree")
    folders = [link for link in links if "/tree?path=" in link]
    files = [link for folder in folders for link in _linked(served, folder) if "/file?path=" in link]

    assert sum(b"found" in served.ask("GET", link).body for link in files) == len(ODD_NAMES)


def _linked(served: Served, path: str) -> list[str]:
    from html import unescape
    from re import findall

    return [unescape(link) for link in findall(r'href="(/w/[^"]*)"', served.ask("GET", path).body.decode())]
