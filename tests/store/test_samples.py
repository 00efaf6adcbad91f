"""Every released format stays readable: a stored sample of each is opened, verified, loaded, saved to and rebuilt."""

from __future__ import annotations

import json
import shutil
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from keepfast.store.maintenance.rebuild import rebuild
from keepfast.store.maintenance.verify import verify
from keepfast.store.place import Place
from keepfast.store.rows import Query

SAMPLES = sorted((Path(__file__).parent.parent / "data").glob("store-*"))


@pytest.fixture(params=SAMPLES, ids=lambda path: path.name)
def sample(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Place, dict[str, Any]]:
    shutil.copytree(request.param / "store", tmp_path / "store")
    for keep in (tmp_path / "store").rglob(".keep"):
        keep.unlink()
    return Place(str(tmp_path / "store")), json.loads((request.param / "expected.json").read_text())


def check(place: Place, expected: dict[str, Any]) -> None:
    repository = place.open()
    rows = {f"v{row.version}": row for row in repository.ledger.find(Query(workspace=expected["workspace"]))}

    assert set(rows) == set(expected["versions"])
    for name, version in expected["versions"].items():
        row = rows[name]
        assert (row.id, row.message, row.tree) == (version["id"], version["message"], version["tree"])
        entries = {entry.path.decode(): entry for entry in repository.ledger.state(row.workspace, row.version)}
        assert set(entries) == set(version["entries"])
        for path, (kind, mode, content, digest) in version["entries"].items():
            entry = entries[path]
            assert (entry.kind, entry.mode, entry.content.hex()) == (kind, mode, digest)
            if kind == "f":
                data = repository.contents.load(entry.content)
                assert not content or data == b64decode(content)
    repository.close()


def test_there_is_a_sample_of_the_present_format() -> None:
    from keepfast.store.small_files import FORMAT

    assert f"store-{FORMAT}" in [path.name for path in SAMPLES]


def test_a_stored_sample_reads_as_it_was_written(sample: tuple[Place, dict[str, Any]]) -> None:
    check(*sample)


def test_a_stored_sample_verifies(sample: tuple[Place, dict[str, Any]]) -> None:
    place, _ = sample
    repository = place.open()

    report = verify(repository, place.path)

    assert [problem.text for problem in report.problems] == []


def test_a_stored_sample_can_be_rebuilt(sample: tuple[Place, dict[str, Any]]) -> None:
    place, expected = sample
    (Path(place.path) / "ledger.db").unlink()

    rebuild(place)

    check(place, expected)
