"""The digest of a whole tree is written as its format document says."""

from __future__ import annotations

from pathlib import Path

from blake3 import blake3

PAGE = Path(__file__).parents[2] / "docs/format/checkpoint.md"


def test_the_worked_example_has_the_digest_that_a_save_writes(tmp_path: Path) -> None:
    from tests.equipment.saver import Saver

    (tmp_path / "project").mkdir()
    (tmp_path / "project/a.txt").write_text("hi\n")
    (tmp_path / "project/a.txt").chmod(0o644)
    saver = Saver(tmp_path / "project", tmp_path / "store")
    outcome = saver.save("manual")
    by_hand = blake3(b"f0644a.txt\0" + blake3(b"hi\n").digest()).digest()[::-1].hex()

    assert outcome.checkpoint is not None
    assert outcome.checkpoint.tree == by_hand
    assert f'"tree": "{by_hand}"' in PAGE.read_text()
