"""Makes tests/data/store-N: a stored sample of a released format, which every later version must read.

Run once per format: `python tools/sample_store.py`. It refuses to overwrite: a sample is never made again.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from base64 import b64encode
from pathlib import Path

from keepfast.app.wiring import build
from keepfast.model.event import Event
from keepfast.settings import Settings
from keepfast.store.maintenance.space import compact, forget
from keepfast.store.rows import Query
from keepfast.store.small_files import FORMAT

TARGET = Path(__file__).resolve().parent.parent / "tests" / "data" / f"store-{FORMAT}"
START = 1_790_000_000_000_000_000


def main() -> None:
    if TARGET.exists():
        raise SystemExit(f"{TARGET} is there already; a released sample is never made again.")
    scratch = Path(tempfile.mkdtemp())
    try:
        root = scratch / "work"
        (root / "folder" / "empty").mkdir(parents=True)
        settings = Settings()
        settings.put("store.url", str(scratch / "store"), "sample")
        times = iter(range(START, START + 10**15, 60_000_000_000))
        engine = build(settings, "", b"/nonexistent", lambda: next(times))
        workspace = engine.workspaces.init(os.fsencode(root))

        def save(**event: object) -> None:
            engine.handle(Event(os.fsencode(root), next(times), **event))  # type: ignore[arg-type]

        (root / "a.txt").write_text("hi\n")
        (root / "folder" / "private").write_text("secret\n")
        (root / "folder" / "private").chmod(0o600)
        (root / "link").symlink_to("a.txt")
        (root / "한글.txt").write_text("체크포인트\n")
        save(message="first", name="start")
        large = bytes(range(256)) * 20_000
        (root / "large").write_bytes(large)
        (root / "a.txt").write_text("hi again\n")
        save(message="second", tags=("tag",))
        (root / "large").write_bytes(large[:3_000_000] + b"inserted" + large[3_000_000:])
        (root / "folder" / "private").unlink()
        save(trigger="auto", message="auto", created_by="auto", session="s1")
        (root / "run.sh").write_text("#!/bin/sh\n")
        (root / "run.sh").chmod(0o755)
        save(message="fourth", pinned=True)
        repository = engine.repository()
        forget(repository, workspace, [3], "sample", engine.place.path)
        compact(repository, engine.place.path, everything=True)
        (root / "a.txt").write_text("last\n")
        save(message="fifth")
        expected = {}
        for row in repository.ledger.find(Query(workspace=workspace)):
            expected[f"v{row.version}"] = {
                "id": row.id,
                "message": row.message,
                "tree": row.tree,
                "entries": {
                    entry.path.decode(): [
                        entry.kind,
                        entry.mode,
                        b64encode(
                            repository.contents.load(entry.content) if entry.kind == "f" and entry.size < 100 else b""
                        ).decode(),
                        entry.content.hex(),
                    ]
                    for entry in repository.ledger.state(workspace, row.version)
                },
            }
        engine.close()
        shutil.rmtree(scratch / "store" / "workspaces" / workspace)
        (scratch / "store" / "reserve").unlink()
        shutil.copytree(scratch / "store", TARGET / "store")
        (TARGET / "store" / "tmp").mkdir(exist_ok=True)
        for folder in ("tmp", "workspaces"):
            (TARGET / "store" / folder / ".keep").write_text("")
        (TARGET / "expected.json").write_text(json.dumps({"workspace": workspace, "versions": expected}, indent=1))
        print(f"Wrote {TARGET}.")
    finally:
        shutil.rmtree(scratch)


main()
