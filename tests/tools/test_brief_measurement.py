"""The measure: what counts as needed, as held, and how methods are compared."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import measurement
import pytest
import recall_score
import weight_fit
from recall_score import Cut, Score

from keepfast.resume.ranking import FEATURES
from tests.equipment.sessions import CWD, Session

MEASURE = Path(__file__).parent.parent.parent / "tools" / "briefs" / "measure.py"
DATA = Path(__file__).parent.parent / "data" / "transcripts"


def long_session() -> Session:
    """Thirty calls: reads, edits of known text, edits of text made meanwhile, unseen files."""
    text = "\n\n".join([f"def f{number}():\n    return {number}" for number in range(40)])
    session = Session(files={"a.py": text, "b.py": text, "c.py": "z = 1\n"})
    session.asked("count differently")
    session.read("a.py")
    session.edit("a.py", "return 0\n", "return 100\n")
    for _ in range(6):
        session.run("make test", "ok")
    session.read("b.py", 1, 10)
    session.edit("a.py", "return 1\n", "return 101\n")
    session.edit("a.py", "return 101\n", "return 102\n")
    session.read("c.py")
    session.edit("c.py", "z = 1", "z = 2")
    session.edit("b.py", "return 30", "return 130")
    session.read("a.py", 1, 20)
    for _ in range(10):
        session.run("make test", "ok")
    return session


def cut_at(tmp_path: Path, kind: str) -> Cut:
    path = long_session().save(tmp_path / "shop-1.jsonl")
    return next(cut for cut in recall_score.cuts(str(path), "shop") if cut.kind == kind)


def test_needs_are_what_the_next_calls_used(tmp_path: Path) -> None:
    cut = cut_at(tmp_path, "25")

    edits = [(need.path.rsplit("/", 1)[-1], len(need.spans)) for need in cut.edits]
    # `return 101` did not exist at the cut; b.py was not known yet; c.py neither.
    assert edits == [("a.py", 1)]
    assert [need.path for need in cut.reads] == [f"{CWD}/a.py"]
    assert cut.unseen >= 3


def test_an_edit_of_unseen_lines_of_a_known_file_is_a_miss(tmp_path: Path) -> None:
    path = long_session().save(tmp_path / "shop-1.jsonl")
    cuts = [cut for cut in recall_score.cuts(str(path), "shop", every=9) if any(not need.spans for need in cut.edits)]

    score = Score()
    score.add(cuts[0], {file.path: set(range(len(file.lines))) for file in cuts[0].files}, 1)

    assert score.hits < score.edits


def test_a_hit_needs_every_line(tmp_path: Path) -> None:
    cut = cut_at(tmp_path, "25")
    need = cut.edits[0]
    first, last = need.spans[0]
    whole, half, none = Score(), Score(), Score()

    whole.add(cut, {need.path: set(range(first, last + 1))}, 10)
    half.add(cut, {need.path: {first}}, 10)
    none.add(cut, {}, 10)

    assert (whole.edit_span, whole.first_edit) == (1.0, 1.0)
    assert half.edit_span == (1.0 if first == last else 0.0)
    assert none.edit_span == none.read_coverage == 0.0


def test_all_of_a_file_covers_its_reads(tmp_path: Path) -> None:
    cut = cut_at(tmp_path, "25")
    score = Score()

    score.add(cut, {file.path: set(range(len(file.lines))) for file in cut.files}, 10)

    # One of its lines was changed after the cut: no context of before can hold it.
    assert 0.9 < score.read_coverage < 1.0


@pytest.mark.parametrize("method", sorted(recall_score.BASELINES))
def test_no_method_takes_more_room_than_it_has(tmp_path: Path, method: str) -> None:
    cut = cut_at(tmp_path, "50")
    by_path = {file.path: file for file in cut.files}

    for room in (100, 400, 2_000):
        shown = recall_score.BASELINES[method](cut, room)

        used = sum([len(by_path[path].lines[line] or "") + 1 for path, lines in shown.items() for line in lines])
        assert used <= room


def test_short_sessions_are_not_cut(tmp_path: Path) -> None:
    session = Session()
    session.asked("hi")
    session.run("ls", "x")

    assert list(recall_score.cuts(str(session.save(tmp_path / "s.jsonl")), "s")) == []


def test_real_compactions_are_cuts(tmp_path: Path) -> None:
    session = long_session()
    session.compacted("summary")
    session.read("a.py")
    session.edit("a.py", "return 5\n", "return 105\n")
    for _ in range(8):
        session.run("make test", "ok")
    report = measurement.measure(
        [(str(session.save(tmp_path / "shop-1.jsonl")), "shop")], tokens=5_000, calls=20, refit=False, clock=lambda: 0.0
    )

    assert report.compactions.cuts == 1
    assert report.after["reads"] == 1
    assert report.to_json()["compactions"]["claim"] == 0.9


@pytest.mark.parametrize(
    ("path", "folder", "project"),
    [
        ("/t/shop/1.jsonl", "/t", "shop"),
        ("/t/shop-01.jsonl.gz", "/t", "shop"),
        ("/t/shop.jsonl", "/t", "shop"),
        ("/t/a/b/1.jsonl", "/t", "b"),
    ],
)
def test_projects_are_told_apart(path: str, folder: str, project: str) -> None:
    assert recall_score.project_of(path, folder) == project


def test_weights_are_fitted_without_the_judged_project() -> None:
    """Leave one project out: the weights of each differ, and better blocks get more."""
    paths = measurement.find([str(DATA)])
    fitted = measurement._refitted(paths, 20)

    assert set(fitted) == {"atlas", "bakery", "relay"}
    assert all(set(weights) == {*FEATURES, "constant"} for weights in fitted.values())
    assert fitted["atlas"] != fitted["relay"]


def test_fitting_finds_the_sign_that_matters() -> None:
    rows = []
    for number in range(400):
        signs = [0.0] * len(FEATURES)
        signs[FEATURES.index("pointed")] = float(number % 4 == 0)
        rows.append(weight_fit.Sample("p", signs, number % 4 == 0 or number % 37 == 0, 1.0))

    weights = weight_fit.fit(rows)

    assert weights["pointed"] > 1
    assert weights["constant"] < 0
    with pytest.raises(ValueError, match="nothing"):
        weight_fit.fit([])


def test_the_made_up_sessions_are_measured_the_same_each_time() -> None:
    paths = measurement.find([str(DATA)])

    first, second = [
        measurement.measure(paths, tokens=5_000, calls=20, refit=False, clock=lambda: 0.0).to_json() for _ in range(2)
    ]

    assert json.dumps(first) == json.dumps(second)
    figures = {method["method"]: method for method in first["methods"]}
    assert figures[measurement.BRIEF]["edit_span"] > figures[measurement.SOURCE]["edit_span"]
    assert figures[measurement.BRIEF]["first_edit"] > figures[measurement.SOURCE]["first_edit"]
    assert first["build"]["largest_tokens"] <= 5_000
    assert first["build"]["longest_part"] <= 9_900


def test_nothing_to_measure_is_no_error(tmp_path: Path) -> None:
    report = measurement.measure([], tokens=5_000, calls=20, refit=True, clock=lambda: 0.0)

    assert report.cuts == 0
    assert report.percentile(0.5) == 0.0
    assert measurement.find([str(tmp_path), str(tmp_path / "missing")]) == []


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(MEASURE), *arguments], capture_output=True, text=True)


def test_the_tool_prints_a_table_and_draws_a_picture(tmp_path: Path) -> None:
    picture = tmp_path / "p.svg"

    done = run(str(DATA), "--plot", str(picture))

    assert done.returncode == 0, done.stderr
    assert "the brief" in done.stdout
    assert "modified files whole, git status order" in done.stdout
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_the_tool_in_json_names_every_method() -> None:
    answer = json.loads(run(str(DATA / "atlas"), "--tokens", "3000", "--json").stdout)

    assert len(answer["methods"]) == 7
    assert answer["build"]["largest_tokens"] <= 3_000


@pytest.mark.parametrize("given", ["empty", "short"])
def test_the_tool_without_anything_to_measure_says_so(tmp_path: Path, given: str) -> None:
    if given == "short":
        (tmp_path / "x.jsonl").write_text("{}\n")

    done = run(str(tmp_path))

    assert done.returncode == (1 if given == "empty" else 0)
    assert "No" in done.stdout + done.stderr
