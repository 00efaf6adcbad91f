"""Any damage to any file of a store is found and the checkpoints concerned are named, or it changes nothing."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import pytest

from keepfast.model.entry import SEALED
from keepfast.model.errors import KeepfastError
from keepfast.model.event import Event
from keepfast.store.maintenance.verify import Report, verify
from keepfast.store.place import Place
from keepfast.store.rows import Query
from keepfast.store.search import search

from .mutations import mutate
from .sample import Load, Sample, load, make, open_engine, truth, versions

SHORT, FULL = 80, 1000
SECONDS = 60
MAX_MEMORY = 400 << 10
"""KiB at the peak of a process that verifies damaged stores one after another; a healthy one takes about 100 MiB."""

Answers = dict[str, Any]


@pytest.fixture(scope="module")
def sample() -> Iterator[Sample]:
    with TemporaryDirectory(prefix="keepfast-flips-") as folder:
        yield make(Path(folder))


def test_the_sample_has_some_of_everything(sample: Sample) -> None:
    """A test of damage says little about a store that holds little."""
    known = truth(sample.place())
    rows = [row for row, _, _, _ in known.values()]
    kinds = Counter(entry.kind for *_, state in known.values() for entry, _ in state)
    records = (sample.store / "log").glob("*.log")

    assert len(known) == 9
    assert any(row.pinned for row in rows) and any(row.name for row in rows) and any(row.tags for row in rows)
    assert kinds["f"] and kinds["l"] and kinds["d"]
    assert any(len(data) > 4 << 20 for *_, state in known.values() for _, data in state)
    assert any(entry.flags & SEALED for *_, state in known.values() for entry, _ in state)
    assert b'"r":"keyframe"' in b"".join(path.read_bytes() for path in records)
    assert verify(sample.place().open(), str(sample.store)).problems == []


@pytest.mark.timeout(3600)
def test_damage_is_found_and_named_or_changes_nothing(sample: Sample, campaign: bool) -> None:
    """Flips, cuts and swaps of any byte of any file below the store."""
    number = FULL if campaign else SHORT
    # Not forked from here: a child would begin with all the memory that this process has had.
    with ProcessPoolExecutor(2, get_context("forkserver"), initializer=_prepare, initargs=(sample,)) as pool:
        results = list(pool.map(_damage_at_random, range(number), chunksize=max(1, number // 40)))

    findings = [finding for result in results for finding in result["findings"]]
    outcomes = Counter(result["outcome"] for result in results)
    print(f"\n{number} mutations: {dict(outcomes)}; peak memory {max(r['memory'] for r in results) >> 10} MiB")
    assert "\n".join(findings) == ""
    assert outcomes["found"] > number // 4
    assert max(result["memory"] for result in results) < MAX_MEMORY


@pytest.mark.parametrize("moment", ["early", "before compaction", "after compaction", "late", "none"])
def test_an_older_ledger_is_found_or_catches_up(sample: Sample, moment: str, tmp_path: Path) -> None:
    store = sample.copy(tmp_path / "store")
    if moment == "none":
        (store / "ledger.db").unlink()
    else:
        shutil.copyfile(sample.ledgers[moment], store / "ledger.db")

    outcome, findings = _judge(store, truth(sample.place()), _answers(sample.place()), [sample.alpha, sample.beta])

    assert findings == []
    assert outcome in ("found" if moment in ("before compaction", "early", "none") else "nothing")


WRONG = [
    "UPDATE workspace SET tree = 'zz'",
    f"UPDATE workspace SET tree = '{'g' * 64}'",
    "UPDATE workspace SET counts = '{'",
    "UPDATE workspace SET counts = '[1]'",
    """UPDATE workspace SET counts = '{"f":"x"}'""",
    "UPDATE workspace SET version = version + 4",
    "UPDATE workspace SET log_size = log_size - 16",
    "UPDATE workspace SET log_size = log_size + 16",
    "UPDATE workspace SET log_head = x'00'",
    "UPDATE workspace SET path = x'2f78'",
    "UPDATE workspace SET keyframe = 77",
    "DELETE FROM workspace",
    "UPDATE meta SET value = 'x' WHERE key = 'seq'",
    "UPDATE meta SET value = '1' WHERE key = 'seq'",
    "UPDATE meta SET value = 'x' WHERE key = 'store_log'",
    "UPDATE node SET until = until + 1 WHERE until IS NOT NULL",
    "UPDATE node SET until = NULL",
    "UPDATE node SET mode = 70000",
    "UPDATE node SET mtime = 1",
    "UPDATE node SET size = -5",
    "UPDATE node SET grp = 9",
    "UPDATE node SET flags = 700",
    "UPDATE node SET extra = x'41'",
    "UPDATE node SET kind = 'q'",
    "UPDATE node SET content = 'text' WHERE kind = 'l'",
    "DELETE FROM node WHERE since > 4",
    "INSERT INTO node SELECT ws, x'41', since + 90, NULL, kind, mode, flags, size, mtime, grp, content, extra FROM node"
    " LIMIT 1",
    "DROP TABLE node",
    "DROP INDEX node_until",
    "UPDATE checkpoint SET session = 'zz'",
    "UPDATE checkpoint SET version = version + 100 WHERE version = 4",
    "UPDATE checkpoint SET forgotten = 0",
    "UPDATE checkpoint SET forgotten = 1 WHERE version = 5",
    "UPDATE checkpoint SET pinned = 1",
    "UPDATE checkpoint SET message = NULL",
    "INSERT INTO checkpoint SELECT ws, 99, 'cp-x', document, seq, created_at, trigger, created_by, message, name, tags,"
    " session, task, pinned, forgotten, changed, files, bytes, added, tree FROM checkpoint LIMIT 1",
    "DELETE FROM tag",
    "INSERT INTO tag SELECT ws, 'new', version FROM checkpoint WHERE version = 3",
    "DELETE FROM blob WHERE kind = 2",
    "DELETE FROM blob WHERE kind = 1",
    "DELETE FROM blob",
    "UPDATE blob SET length = length - 1",
    "UPDATE blob SET pack = 99",
    "UPDATE blob SET kind = 1 WHERE kind = 0",
    "UPDATE pack SET name = '../../x' || key",
    "UPDATE pack SET name = key || char(0)",
    "UPDATE pack SET size = size + 1",
    "DELETE FROM pack",
]


@pytest.mark.parametrize("statement", WRONG)
def test_a_wrong_row_in_the_ledger_is_found(sample: Sample, statement: str, tmp_path: Path) -> None:
    """SQLite's own check has nothing against any of these."""
    store = sample.copy(tmp_path / "store")
    with closing(sqlite3.connect(store / "ledger.db")) as ledger:
        ledger.execute(statement)
        ledger.commit()

    outcome, findings = _judge(store, truth(sample.place()), _answers(sample.place()), [sample.alpha, sample.beta])

    assert (outcome, findings) == ("found", [])


@pytest.mark.parametrize("pattern", ["packs/*.pack", "log/*.log"])
def test_a_file_that_is_gone_is_found(sample: Sample, pattern: str, tmp_path: Path) -> None:
    known, answers = truth(sample.place()), _answers(sample.place())
    for number, path in enumerate(sorted(sample.store.glob(pattern))):
        store = sample.copy(tmp_path / str(number))
        (store / path.relative_to(sample.store)).unlink()

        assert _judge(store, known, answers, [sample.alpha, sample.beta]) == ("found", []), path.name


@pytest.mark.parametrize("pattern", ["packs/*.pack", "ledger.db", "log/store.log", "log/????*.log"])
def test_the_command_line_says_so_with_exit_code_13(sample: Sample, pattern: str, tmp_path: Path) -> None:
    store = sample.copy(tmp_path / "store")
    path = max(store.glob(pattern), key=lambda file: file.stat().st_size)
    data = path.read_bytes()
    # SQLite leaves parts of its pages unused: there a flip means nothing. A workspace's id is a part in use.
    at = data.index(max(store.glob("log/????*.log")).stem.encode()) if pattern == "ledger.db" else len(data) // 2
    path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
    for command, code in ((["verify"], 13), (["verify", "--json"], 13)):
        run = subprocess.run(
            [sys.executable, "-m", "keepfast", "--store", str(store), *command],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )

        assert (run.returncode, "Traceback" in run.stderr) == (code, False), run.stdout + run.stderr
        if "--json" in command:
            assert json.loads(run.stdout)["problems"]


# One mutation in a process of its own


def _prepare(sample: Sample) -> None:
    global _sample, _known, _known_answers
    _sample, _known, _known_answers = sample, truth(sample.place()), _answers(sample.place())
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    signal.signal(signal.SIGALRM, _too_long)


_sample: Sample
_known: dict[str, Load]
_known_answers: Answers


def _too_long(*_: object) -> None:
    raise TimeoutError(f"no answer after {SECONDS} s")


def _damage_at_random(seed: int) -> dict[str, Any]:
    with TemporaryDirectory(prefix="keepfast-flip-") as folder:
        store = _sample.copy(Path(folder) / "store")
        words = mutate(store, Random(seed))
        damaged = Path(shutil.copytree(store, Path(folder) / "damaged"))
        signal.alarm(SECONDS)
        try:
            outcome, findings = _judge(store, _known, _known_answers, [_sample.alpha, _sample.beta])
        except TimeoutError as error:
            outcome, findings = "hangs", [str(error)]
        finally:
            signal.alarm(0)
        if findings:
            words += f" (kept in {shutil.copytree(damaged, mkdtemp(prefix=f'keepfast-flip-{seed}-') + '/store')})"
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"outcome": outcome, "memory": memory, "findings": [f"seed {seed}, {words}: {text}" for text in findings]}


def _verify(store: Path) -> tuple[str, Report | None]:
    """What became of it, in a word: `refused`, `found` or `nothing`."""
    place = Place(str(store), durable=False)
    try:
        repository = place.open()
        try:
            report = verify(repository, str(store))
        finally:
            repository.close()
    except KeepfastError:
        return "refused", None
    return ("found" if report.problems else "nothing"), report


def _judge(store: Path, known: dict[str, Load], answers: Answers, roots: list[Path]) -> tuple[str, list[str]]:
    """What became of it, and whatever is neither found and named, nor identical to the truth."""
    place = Place(str(store), durable=False)
    try:
        outcome, report = _verify(store)
    except Exception as error:
        return "raised", [f"verify raised {error!r}"]
    try:
        loads = _load_all(place)
    except Exception as error:
        return outcome, [f"loading raised {error!r}"]
    different = {name for name in known if loads.get(name) != known[name]}
    if report is None:
        # Nothing can be done with such a store before it is healed, so nothing wrong can come out of it.
        return outcome, [f"verify refused, but {name} loads" for name in loads]
    named = {name for problem in report.problems for name in problem.checkpoints}
    findings = [f"{name} differs and is not named" for name in sorted(different - named)]
    if outcome == "nothing":
        findings += [f"{name} never was" for name in loads.keys() - known.keys()]
        try:
            findings += [] if _answers(place) == answers else ["an answer differs"]
        except Exception as error:
            findings.append(f"a question raised {error!r}")
    return outcome, findings + _save(store, roots, outcome)


def _save(store: Path, roots: list[Path], outcome: str) -> list[str]:
    """Save once more: that works, or is refused with a sentence; if nothing was found, it works."""
    findings = []
    for root in roots:
        engine = open_engine(store)
        try:
            version = engine.handle(Event(os.fsencode(root), 1 << 60, message="once more")).version
            found = engine.workspaces.locate(os.fsencode(root))
            row = engine.repository().ledger.checkpoint(found[1], version) if found is not None else None
            if row is None:
                findings.append(f"v{version} of {root.name} was acknowledged and is not there")
            else:
                load(engine.repository(), row)
        except KeepfastError as error:
            if outcome == "nothing":
                findings.append(f"nothing was found, but saving failed: {error}")
        except Exception as error:
            findings.append(f"saving raised {error!r}")
        finally:
            engine.close()
    return findings


def _load_all(place: Place) -> dict[str, Load]:
    """Every version that loads. Raises only what is not an error of ours."""
    loads: dict[str, Load] = {}
    try:
        repository = place.open()
    except KeepfastError:
        return {}
    try:
        for name, row in versions(repository):
            try:
                loads[name] = load(repository, row)
            except KeepfastError:
                pass
    except KeepfastError:
        pass
    finally:
        repository.close()
    return loads


def _answers(place: Place) -> Answers:
    """What other questions get for answers: by session, task, tag, name, trigger, id and text."""
    repository = place.open()
    try:
        ledger = repository.ledger
        result: Answers = {}
        for workspace in ledger.workspaces():
            result[workspace.id] = workspace
            here = Query(workspace=workspace.id)
            result[f"{workspace.id} labels"] = [
                ledger.find(here._replace(session="s1")),
                ledger.find(here._replace(task="t1")),
                ledger.find(here._replace(tag="start")),
                ledger.find(here._replace(tag="한글", forgotten=True)),
                *[ledger.find(here._replace(name=name)) for name in ("bare", "base", "second")],
                *[ledger.find(here._replace(trigger=name)) for name in ("manual", "auto")],
                *[ledger.find(Query(id_prefix=row.id)) for row in ledger.find(here)],
            ]
            result[f"{workspace.id} paths"] = ledger.paths(workspace.id, b"guide", 10)
            for text in ("large", "a"):
                result[f"{workspace.id} {text}"] = search(repository, place.path, workspace.id, text, 10)
        result["seq"] = ledger.meta("seq")
        return result
    finally:
        repository.close()
