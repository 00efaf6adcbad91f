"""The page of a review, and the numbers of the first page: what they say is what is there."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

from keepfast.runner.actions.runtime import Runtime
from tests.web.scene import Scene, begin, submit
from tests.web.served import Served


def reviewed(served: Served) -> tuple[str, Path]:
    """A task whose phase began with a checkpoint; its id and folder."""
    task = Scene(served).task(submit, begin)
    shown = served.ask("GET", f"/api/tasks/{task}").json()["data"]
    keep(served, task, "start", 1)
    return task, Path(shown["workspace"])


def keep(served: Served, task: str, reason: str, phase: int) -> None:
    """A checkpoint of the task as a supervisor would have made it."""
    workspace = served.ask("GET", f"/api/tasks/{task}").json()["data"]["workspace_id"]
    made = served.ask("POST", f"/api/workspaces/{workspace}/checkpoints", {"message": reason}).json()["data"]
    version = int(made["version"][1:])
    ground: Runtime = served.ground()
    with ground.tables.write() as tables:
        tables.do(
            "INSERT INTO checkpoint VALUES (?, ?, '', ?, ?, ?, ?, '', '', ?)",
            f"{task}:{reason}", task, made["id"], version, reason, phase, version,
        )  # fmt: skip
        tables.change(task, ground.now(), phase=phase)
    ground.close()


def sections(page: str) -> dict[str, str]:
    parts = page.split('<section class="card file">')[1:]
    return {re.findall(r'<h2 class="path"><a [^>]*>([^<]*)</a>', part)[0]: part for part in parts}


def test_the_page_of_a_review_begins_with_the_end_of_the_phase_before(served: Served) -> None:
    task, folder = reviewed(served)
    (folder / "p1.txt").write_text("one\n")
    keep(served, task, "phase_complete", 1)
    (folder / "p2a.txt").write_text("two\n")
    keep(served, task, "question", 2)
    (folder / "p2b.txt").write_text("two\n")

    shown = sections(served.ask("GET", f"/t/{task}/review").body.decode())

    assert list(shown) == ["p2a.txt", "p2b.txt"]


def test_a_review_says_that_its_base_is_gone_and_shows_all(served: Served) -> None:
    task, folder = reviewed(served)
    workspace = served.ask("GET", f"/api/tasks/{task}").json()["data"]["workspace_id"]
    (folder / "b.txt").write_text("more\n")
    keep(served, task, "question", 1)
    assert served.ask("POST", f"/api/workspaces/{workspace}/forget", {"references": ["v1"]}).status == 200

    page = served.ask("GET", f"/t/{task}/review").body.decode()

    assert {"a.txt", "b.txt"} <= set(sections(page))
    assert '<p class="warn">The state at the start of this phase' in page
    assert served.ask("GET", f"/t/{task}").body.decode().count("old=None") == page.count("old=None") == 0


def test_a_review_names_every_file_with_its_lines_and_a_link(served: Served) -> None:
    """Nobody approves what cannot be seen."""
    task, folder = reviewed(served)
    for number in range(152):
        (folder / f"f{number:03}.txt").write_text("line\n" * (number + 1))
    (folder / "z.bin").write_bytes(b"\0" * 100)

    page = served.ask("GET", f"/t/{task}/review").body.decode()
    [rest] = re.findall(r'<section class="card" id="rest">.*?</section>', page, re.DOTALL)
    named = re.findall(
        r'<li class="added">.*?href="([^"]*)">([^<]*)</a>.*?(?:\+(\d+)</span>.*?−(\d+)</span>)?</li>', rest
    )
    links = [unescape(address) for address, *_ in named]

    assert [*sections(page), *[path for _, path, *_ in named]] == [*[f"f{n:03}.txt" for n in range(152)], "z.bin"]
    assert [counts for _, _, *counts in named] == [*[[str(n + 1), "0"] for n in range(60, 152)], ["", ""]]
    assert "f151.txt" in links[-2]
    assert served.ask("GET", links[-2]).body.decode().count("<pre>+line") == 152


def test_only_a_large_file_is_called_too_large(served: Served) -> None:
    """A file that fills the page is left to a page of its own; small ones behind it are shown all the same."""
    task, folder = reviewed(served)
    (folder / "b-long.txt").write_text("".join([f"line {number}\n" for number in range(4_000)]))
    (folder / "c-huge.bin").write_text("x" * (3 << 20))
    (folder / "d-small.txt").write_text("one line\n")

    shown = sections(served.ask("GET", f"/t/{task}/review").body.decode())

    assert list(shown) == ["b-long.txt", "c-huge.bin", "d-small.txt"]
    assert "too large" not in shown["b-long.txt"] + shown["d-small.txt"]
    assert "too large" in shown["c-huge.bin"]
    assert "one line" in shown["d-small.txt"]
    assert "+4000" in shown["b-long.txt"]
    assert re.search(r'href="/w/[^"]*/diff\?[^"]*path=b-long.txt"', shown["b-long.txt"].partition("</h2>")[2])


def test_the_number_of_checkpoints_is_that_of_those_that_are_there(served: Served) -> None:
    workspace = served.saver.workspace
    assert served.ask("POST", f"/api/workspaces/{workspace}/forget", {"references": ["v1"]}).status == 200

    listed = served.ask("GET", f"/api/workspaces/{workspace}/checkpoints").json()["data"]
    [summary] = [one for one in served.ask("GET", "/api/workspaces").json()["data"] if one["id"] == workspace]
    [stored] = [one for one in served.ask("GET", "/api/storage").json()["data"]["workspaces"] if one["id"] == workspace]

    assert len(listed) == summary["checkpoints"] == stored["checkpoints"] == 1
    assert "<dt>checkpoints</dt><dd>1</dd>" in served.ask("GET", "/").body.decode()


def test_a_task_shows_only_checkpoints_that_are_there(served: Served) -> None:
    task, folder = reviewed(served)
    workspace = served.ask("GET", f"/api/tasks/{task}").json()["data"]["workspace_id"]
    (folder / "b.txt").write_text("more\n")
    served.ask("POST", f"/api/workspaces/{workspace}/checkpoints", {"message": "later"})
    [before] = re.findall(
        r'<ul class="notices points".*?</ul>', served.ask("GET", f"/t/{task}").body.decode(), re.DOTALL
    )

    assert served.ask("POST", f"/api/workspaces/{workspace}/forget", {"references": ["v1"]}).status == 200

    [after] = re.findall(
        r'<ul class="notices points".*?</ul>', served.ask("GET", f"/t/{task}").body.decode(), re.DOTALL
    )
    assert f"/w/{workspace}/v/v1" in before
    assert f"/w/{workspace}/v/v1" not in after


def test_the_page_of_a_version_before_a_command_shows_the_command_without_its_secrets(served: Served) -> None:
    key = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4xY7zA0bC3dE6"
    (served.root / "new.txt").write_text("newer\n")
    served.saver.save("before_command", command=f"rm -rf <src>\n  && GITHUB_TOKEN={key} make")
    address = f"workspaces/{served.saver.workspace}/checkpoints/v3"

    page = served.ask("GET", f"/w/{served.saver.workspace}/v/v3").body.decode()
    told = served.ask("GET", f"/api/{address}").json()["data"]

    assert "<code>rm -rf &lt;src&gt; &amp;&amp; GITHUB_TOKEN=" in page
    assert "rm -rf <src>" in told["command"]
    assert key not in page + told["command"]


def test_the_list_and_the_page_of_a_version_count_the_same(served: Served) -> None:
    """Also when the version before was forgotten: then the page says what it compares with instead."""
    workspace = served.saver.workspace
    assert served.ask("POST", f"/api/workspaces/{workspace}/forget", {"references": ["v1"]}).status == 200

    [listed] = served.ask("GET", f"/api/workspaces/{workspace}/checkpoints").json()["data"]
    told = served.ask("GET", f"/api/workspaces/{workspace}/checkpoints/v2").json()["data"]
    page = served.ask("GET", f"/w/{workspace}/v/v2").body.decode()

    assert listed["changed"] == told["changed"] == 2
    assert (told["made_after"], told["previous"], told["differing"]) == ("v1", None, 3)
    assert 'Changes <span class="quiet">2</span>' in page
    assert "Compared with an empty folder: 3" in page
