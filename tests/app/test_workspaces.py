"""Whose workspace a folder belongs to, where markers are missing or not ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.equipment.saver import Saver


def test_a_nested_workspace_whose_marker_was_wiped_is_found_before_the_outer_one(root: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    Saver(root, store)
    inner = root / "inner"
    inner.mkdir()
    nested = Saver(inner, store)
    shutil.rmtree(inner / ".keepfast")

    engine = nested.engine()
    found = engine.workspaces.locate(os.fsencode(inner))
    engine.close()

    assert found == (os.fsencode(inner), nested.workspace)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act as two users")
def test_the_marker_of_another_user_is_not_believed(tmp_path: Path) -> None:
    """In a shared folder nobody else may decide what is captured in our name."""
    shared = tmp_path / "shared"
    (shared / ".keepfast").mkdir(parents=True)
    (shared / ".keepfast" / "workspace.json").write_text('{"id": "%s"}' % ("a" * 32))
    for path in (shared, shared / ".keepfast", shared / ".keepfast" / "workspace.json"):
        os.chown(path, 65533, 65533)
        path.chmod(0o777)
    script = textwrap.dedent(f"""
        import os, sys
        sys.path[:0] = {sys.path!r}
        from keepfast.workspace.marker import marker
        mine = marker({os.fsencode(shared)!r})
        os.setuid(65534)
        print(mine is not None, marker({os.fsencode(shared)!r}))
    """)

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["True", "None"]
