"""What a checkpoint seals is named in a brief and never shown there: not by a hook, a command, a tool, or a page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from keepfast.agents.working_file import WorkingFile
from keepfast.app.session_files import without_sealed
from keepfast.resume import brief as briefs
from keepfast.resume.notes import Notes
from tests.app.test_moment import Work
from tests.equipment.box import Box
from tests.mcp.agent import call

KEY = "ghp_" + "R4nD0mPart" * 3 + "abcdef"
SEALED = {
    ".pgpass": "db.example.org:5432:prod:ann:sunflower-lake\n",
    ".netrc": "machine x.example login ann password sunflowerlake\n",
    ".bash_history": "mysql -u root -psunflower\n",
    "prod.tfvars": 'admin_pw = "sunflower lake"\n',
    ".env": "PIN=4711\nSIGNING_SALT=blue horse\n",
    ".aws/config": "region = sunflower\n",
    "credentials.txt": "sunflower lake\n",
    "client.py": f'import sunflower\nTOKEN = "{KEY}"\n',
    "users.csv": "name,password\n" + "".join([f"user{number},sunFlower{number}x\n" for number in range(200)]),
}
"""By their names, and by what they hold."""
WORDS = ("sunflower", "sunFlower", "PIN=4711", "blue horse", KEY)


@pytest.fixture
def work(tmp_path: Path) -> Work:
    """A session that wrote them all, and an ordinary module."""
    work = Work(Box(tmp_path))
    work.talk.asked("Set the house up")
    for name, text in SEALED.items():
        work.talk.write(name, text)
        work.talk.edit(name, text, text + "\n")
        work.box.put(name, text + "\n")
    work.step("Paint the door red")
    work.save()
    return work


def shown(text: str) -> list[str]:
    return [word for word in WORDS if word in text]


def assert_named(brief: dict[str, Any]) -> None:
    """Nothing of them is shown, each is named, and what is no secret is shown as ever."""
    assert shown(json.dumps(brief, ensure_ascii=False)) == []
    assert {f"{name} (sealed, not shown)" for name in SEALED} <= set(brief["left_out"])
    assert "import json  # Paint the door red" in brief["text"]
    assert "ealed, not shown: " in brief["text"]


@pytest.mark.parametrize("words", [(), ("v1",)], ids=["as it is now", "as it was then"])
def test_a_resume_names_them_only(work: Work, words: tuple[str, ...]) -> None:
    assert_named(work.told(*words))


@pytest.mark.parametrize("reference", ["", "v1"])
def test_the_tool_names_them_only(work: Work, reference: str) -> None:
    answer = call(work.box, "checkpoint_resume", **({"reference": reference} if reference else {}))

    assert_named(answer.structured)


@pytest.mark.parametrize("root", [False, True])
def test_the_brief_of_a_transcript_names_them_only(work: Work, root: bool) -> None:
    words = [
        "brief",
        "--transcript",
        str(work.transcript),
        "--json",
        *(["--root", str(work.box.project)] if root else []),
    ]

    assert_named(work.box.call(*words).json())


def test_the_hook_of_a_new_session_names_them_only(work: Work) -> None:
    for part in ("1", "2"):
        said = {
            "session_id": work.session, "hook_event_name": "SessionStart", "source": "compact", "cwd": str(work.box.project),
            "transcript_path": str(work.transcript),
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "keepfast", "--folders", str(work.box.home), f"{work.box.home}/.config",
             f"{work.box.home}/.local/share", "hook", "claude-code", "--part", part],
            input=json.dumps(said), env={"HOME": str(work.box.home), "PATH": os.environ["PATH"]},
            capture_output=True, text=True, cwd=work.box.project, check=True, timeout=60,
        )  # fmt: skip

        assert shown(done.stdout) == []
        assert "house.py" in done.stdout and ".pgpass" in done.stdout
    left = [path for path in (work.box.home / ".local").rglob("*") if path.is_file()]
    assert [path for path in left if shown(path.read_bytes().decode("utf-8", "replace"))] == []


def test_recall_and_diff_over_the_tool_show_nothing_of_them_either(work: Work) -> None:
    """By name: refused. By content: without what is secret, judged by all of the file."""
    work.box.put("users.csv", SEALED["users.csv"].replace("user150", "ann"))
    work.box.put("client.py", SEALED["client.py"] + "# more\n")
    asked = [".pgpass", "credentials.txt", "users.csv:150-160", "client.py", "ann", "blue horse", "sunflower lake"]
    recalled = [call(work.box, "recall", what=what) for what in asked]
    patch = call(work.box, "checkpoint_diff", old="v1")

    told = json.dumps([one.structured for one in recalled], ensure_ascii=False)
    assert shown(told.replace("import sunflower", "")) == []
    assert [one["matches"] for one in recalled[:2]] == [[], []]
    assert "[redacted" in recalled[2]["matches"][0]["text"] and "[redacted" in recalled[3]["matches"][0]["text"]
    assert shown(patch["patch"]) == []
    assert {"the patch of users.csv", "the patch of client.py"} <= {one.partition(":")[0] for one in patch["left_out"]}


def test_a_link_to_one_is_as_sealed_as_the_file(work: Work) -> None:
    (work.box.project / "settings").symlink_to(".env")
    work.talk.files[work.talk.path("settings")] = SEALED[".env"]
    work.talk.read("settings")
    work.step("Sand the floor")
    version = work.save()

    now = work.told()
    (work.box.project / "settings").unlink()
    for brief in (now, work.told(version)):
        assert shown(json.dumps(brief)) == []
        assert "settings (sealed, not shown)" in brief["left_out"]


def test_what_the_checkpoint_has_as_sealed_is_not_shown_though_it_is_harmless_now(work: Work) -> None:
    work.box.put("client.py", "import sunflower\n")

    assert_named(work.told())


def test_a_brief_without_a_judge_goes_by_names() -> None:
    files = [WorkingFile(f"/home/ann/shop/{name}", ["sunflower"]) for name in (".env", "deep/.aws/config", "a.py")]

    built = briefs.build(Notes(cwd="/home/ann/shop/deep/.aws"), files)

    assert [excerpt.path for excerpt in built.excerpts] == ["/home/ann/shop/a.py"]


@pytest.mark.parametrize("path", ["/x/a\0b.py", "/x/\ud800.py", "", "/x/../../.."])
def test_names_that_no_file_has_are_judged_like_others(tmp_path: Path, path: str) -> None:
    (plain, secret) = without_sealed(
        [WorkingFile(path, ["plain"]), WorkingFile(path, [f'TOKEN = "{KEY}"'])], str(tmp_path), "/x"
    )

    assert (plain.sealed, plain.lines, secret.sealed, secret.lines) == (False, ["plain"], True, [])
