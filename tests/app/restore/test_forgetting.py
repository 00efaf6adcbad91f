"""A restore that was cut off can always be ended: what it needs is not forgotten meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from keepfast.app.restore import Restorer
from keepfast.app.tidy import tidy
from keepfast.model import steps
from keepfast.model.errors import Conflict
from keepfast.store.maintenance.space import forget
from tests.equipment.saver import Saver


class Cut(BaseException):
    pass


def stop_at(name: str) -> Callable[[str], None]:
    def observer(step: str) -> None:
        if step == name:
            raise Cut

    return observer


def test_the_versions_of_a_restore_that_was_cut_off_are_not_forgotten(make_saver: Callable[..., Saver]) -> None:
    saver = make_saver(retention__keep_last=1, retention__hourly_hours=0, checkpoint__cleanup_after_days=1)
    for number in range(4):
        (saver.root / "file").write_text(f"state {number}")
        saver.save("auto", session="one")
    engine = saver.engine()
    root, row = engine.workspaces.root(os.fsencode(saver.root))
    target = engine.repository().ledger.checkpoint(row.id, 1)
    assert target is not None
    steps.observer = stop_at("restore:placed")
    try:
        with pytest.raises(Cut):
            Restorer(engine, root, row).restore(target, conflicts="theirs")
    finally:
        steps.observer = None

    with pytest.raises(Conflict, match="interrupted restore"):
        forget(engine.repository(), row.id, [1], "test", engine.place.path)
    tidy(engine, row.id)
    Restorer(engine, root, row).resume()

    assert (saver.root / "file").read_text() == "state 0"
    engine.close()
