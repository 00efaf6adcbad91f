"""The health page: what is wrong is named, with the way out; what is well is said to be well."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from keepfast.web.doctor import Doctor
from tests.hook.ground import Ground
from tests.web.served import Program, Served, request


def words(page: str, part: str) -> str:
    """The text of one section, as somebody reads it."""
    section = page.partition(f'id="{part}"')[2].partition("</section>")[0]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", section.partition(">")[2])).split())


def enter(program: Program) -> dict[str, str]:
    ticket = program.run("serve", "--link").strip().partition("#")[2]
    headers = {"Host": program.host, "Content-Type": "application/json"}
    entered = request(program.port, "POST", "/session", f'{{"ticket": "{ticket}"}}'.encode(), headers)
    return {"Host": program.host, "Authorization": f"Bearer {entered.json()['data']['session']}"}


def health(program: Program, headers: dict[str, str] | None = None) -> str:
    answer = request(program.port, "GET", "/health", None, headers or enter(program))
    assert answer.status == 200
    return answer.body.decode()


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    """A home with a project whose first turn is saved."""
    made = Ground(tmp_path)
    (made.project / "a.txt").write_text("one\n" * 500)
    assert made.hook("SessionStart", source="startup").returncode == 0
    made.settle()
    return made


@pytest.fixture
def program(ground: Ground) -> Iterator[Program]:
    made = Program(ground.home)
    yield made
    made.stop()


def spoil(ground: Ground) -> None:
    """Bytes in the middle of every pack are others."""
    for pack in (ground.home / ".local/share/keepfast/store/packs").rglob("*"):
        if pack.is_file():
            content = bytearray(pack.read_bytes())
            content[len(content) // 3] ^= 0xFF
            pack.chmod(0o600)
            pack.write_bytes(content)


def test_a_machine_that_is_well_says_so(ground: Ground, program: Program) -> None:
    before = health(program)
    program.run("verify", cwd=ground.project)
    after = health(program)

    assert "✓ fine Store" in words(before, "checks")
    assert "problem" not in words(before, "checks")
    assert "No verify on record. Run keepfast verify to check everything" in words(before, "verified")
    assert "No problems. 1 checkpoint" in words(after, "verified")
    assert "None in the last 7 days." in words(after, "failed")


def test_a_damaged_pack_is_named_with_what_it_costs_and_the_way_out(ground: Ground, program: Program) -> None:
    spoil(ground)
    with pytest.raises(Exception, match="exit status 13"):
        program.run("verify", cwd=ground.project)
    said = words(health(program), "verified")
    first = request(program.port, "GET", "/", None, enter(program)).body.decode()

    assert "The last verify found damage." in first
    assert re.search(r"[1-9]\d* problems; run keepfast verify --repair \.", said)
    assert "✗" in said
    assert f"v1 of {ground.project}" in said


def test_after_a_repair_it_tells_what_is_left_of_that(ground: Ground, program: Program) -> None:
    spoil(ground)
    content = (ground.project / "a.txt").read_text()
    (ground.project / "a.txt").write_text("another\n")
    with pytest.raises(Exception, match="exit status 13"):
        program.run("verify", "--repair", cwd=ground.project)
    lost = words(health(program), "verified")
    (ground.project / "a.txt").write_text(content)  # repair takes contents from where they still are
    program.run("verify", "--repair", cwd=ground.project)

    assert "One problem; run keepfast verify --repair" in lost
    assert "✗" in lost
    assert words(health(program), "verified").endswith("No problems.")


def test_a_hook_that_failed_is_named_with_its_reason_and_the_way_out(ground: Ground, program: Program) -> None:
    """The settings allow fewer files than there are: nobody but the page and `status` can be told."""
    ground.configure(capture={"max_files": 1})
    for number in range(5):
        (ground.project / f"{number}").write_text("x")
    assert ground.hook("Stop").returncode == 0
    ground.settle()
    (why,) = [notice.removeprefix("failed (turn): ") for notice in ground.notices()]
    said = words(health(program), "failed")

    assert "In the last 7 days:" in said
    assert "project turn" in said
    assert " ".join(why.split()) in said
    assert "Run keepfast save to save it now." in said


def test_what_the_doctor_finds_wrong_comes_first_with_its_advice(ground: Ground, program: Program) -> None:
    session = enter(program)
    (ground.home / ".config/keepfast").mkdir(parents=True)
    (ground.home / ".config/keepfast/config.json").write_text('{"retention": {"keep_last": "many"}}')
    said = words(health(program, session), "checks")

    assert said.startswith("Checks ✗ problem Settings")
    assert "keep_last" in said.partition("✓")[0]


def test_a_doctor_that_cannot_be_asked_is_a_problem_of_its_own(tmp_path: Path) -> None:
    moments = iter([0.0, 0.0, 1.0])
    doctor = Doctor({}, str(tmp_path / "not there").encode(), lambda: next(moments))
    found = doctor.find()

    assert [one.level for one in found] == ["problem"]
    assert doctor.find() is found  # asked again within the minute, it is not run again


def test_nobody_but_people_of_ours_sees_it(served: Served) -> None:
    assert served.ask("GET", "/health", bare=True).status == 401
