"""Any damage to any file of a store is found and the checkpoints concerned are named, or it changes nothing."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import pytest

from holdfast.core.errors import HoldfastError
from holdfast.store.check import Report, verify
from holdfast.store.place import Place
from holdfast.store.rows import Query
from holdfast.store.search import search

from .mutations import mutate
from .sample import Load, Sample, load, make, truth, versions

SHORT, FULL = 80, 1000
SECONDS = 60
MOST_MEMORY = 400 << 10
"""KiB at the peak of a process that verifies damaged stores one after another; a healthy one takes about 100 MiB."""

Answers = dict[str, Any]


@pytest.fixture(scope="module")
def sample() -> Iterator[Sample]:
    with TemporaryDirectory(prefix="holdfast-flips-") as folder:
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
    assert b'"r":"keyframe"' in b"".join(path.read_bytes() for path in records)
    assert verify(sample.place().open(), str(sample.store)).problems == []


@pytest.mark.timeout(3600)
def test_damage_is_found_and_named_or_changes_nothing(sample: Sample, campaign: bool) -> None:
    """Flips, cuts and swaps of any byte of any file below the store."""
    number = FULL if campaign else SHORT
    with ProcessPoolExecutor(2, initializer=_prepare, initargs=(sample,)) as pool:
        results = list(pool.map(_damage_at_random, range(number), chunksize=max(1, number // 40)))

    findings = [finding for result in results for finding in result["findings"]]
    outcomes = Counter(result["outcome"] for result in results)
    print(f"\n{number} mutations: {dict(outcomes)}; peak memory {max(r['memory'] for r in results) >> 10} MiB")
    assert "\n".join(findings) == ""
    assert outcomes["found"] > number // 4
    assert max(result["memory"] for result in results) < MOST_MEMORY


@pytest.mark.parametrize("moment", ["early", "before compaction", "after compaction", "late", "none"])
def test_an_older_ledger_is_found_or_catches_up(sample: Sample, moment: str, tmp_path: Path) -> None:
    store = _copy(sample, tmp_path / "store")
    if moment == "none":
        (store / "ledger.db").unlink()
    else:
        shutil.copyfile(sample.ledgers[moment], store / "ledger.db")

    outcome, findings = _judge(store, truth(sample.place()), _answers(sample.place()))

    assert findings == []
    assert outcome in ("found" if moment in ("before compaction", "early", "none") else "nothing")


@pytest.mark.parametrize("pattern", ["packs/*.pack", "log/*.log"])
def test_a_file_that_is_gone_is_found(sample: Sample, pattern: str, tmp_path: Path) -> None:
    known, answers = truth(sample.place()), _answers(sample.place())
    for number, path in enumerate(sorted(sample.store.glob(pattern))):
        store = _copy(sample, tmp_path / str(number))
        (store / path.relative_to(sample.store)).unlink()

        assert _judge(store, known, answers) == ("found", []), path.name


@pytest.mark.parametrize("pattern", ["packs/*.pack", "ledger.db", "log/store.log", "log/????*.log"])
def test_the_command_line_says_so_with_exit_code_13(sample: Sample, pattern: str, tmp_path: Path) -> None:
    store = _copy(sample, tmp_path / "store")
    path = max(store.glob(pattern), key=lambda file: file.stat().st_size)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 4]) + data[len(data) // 2 + 1 :])
    for command, code in ((["verify"], 13), (["verify", "--json"], 13)):
        run = subprocess.run(
            [sys.executable, "-m", "holdfast", "--store", str(store), *command],
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
    with TemporaryDirectory(prefix="holdfast-flip-") as folder:
        store = _copy(_sample, Path(folder) / "store")
        words = mutate(store, Random(seed))
        damaged = Path(shutil.copytree(store, Path(folder) / "damaged"))
        signal.alarm(SECONDS)
        try:
            outcome, findings = _judge(store, _known, _known_answers)
        except TimeoutError as error:
            outcome, findings = "hangs", [str(error)]
        finally:
            signal.alarm(0)
        if findings:
            words += f" (kept in {shutil.copytree(damaged, mkdtemp(prefix=f'holdfast-flip-{seed}-') + '/store')})"
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"outcome": outcome, "memory": memory, "findings": [f"seed {seed}, {words}: {text}" for text in findings]}


def _copy(sample: Sample, store: Path) -> Path:
    shutil.copytree(sample.store, store)
    return store


def _verify(store: Path) -> tuple[str, Report | None]:
    """What became of it, in a word: `refused`, `found` or `nothing`."""
    place = Place(str(store), durable=False)
    try:
        repository = place.open()
        try:
            report = verify(repository, str(store))
        finally:
            repository.close()
    except HoldfastError:
        return "refused", None
    return ("found" if report.problems else "nothing"), report


def _judge(store: Path, known: dict[str, Load], answers: Answers) -> tuple[str, list[str]]:
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
    return outcome, findings


def _load_all(place: Place) -> dict[str, Load]:
    """Every version that loads. Raises only what is not an error of ours."""
    loads: dict[str, Load] = {}
    try:
        repository = place.open()
    except HoldfastError:
        return {}
    try:
        for name, row in versions(repository):
            try:
                loads[name] = load(repository, row)
            except HoldfastError:
                pass
    except HoldfastError:
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
