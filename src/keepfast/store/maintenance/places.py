"""Check the ledger's locations against the packs: every content that a version needs must be there."""

from __future__ import annotations

from keepfast.store.ledger.sqlite import SqliteLedger
from keepfast.store.maintenance.findings import Report, affected_labels, count_of
from keepfast.store.packs import read_index
from keepfast.store.repository import Repository
from keepfast.store.rows import CHUNKS, LIST, Location, Query


def check_places(
    actual: SqliteLedger,
    expected: SqliteLedger,
    scratch: Repository,
    packs: set[str],
    replaced: set[str],
    report: Report,
) -> None:
    """Check every location in the `actual` ledger; report contents that cannot be read, and the versions that need them.

    `packs` exist; those in `replaced` existed before a compaction. The report has the damaged copies already.
    """
    _PlaceChecker(actual, expected, scratch, packs, replaced, report).run()


class _PlaceChecker:
    def __init__(
        self,
        actual: SqliteLedger,
        expected: SqliteLedger,
        scratch: Repository,
        packs: set[str],
        replaced: set[str],
        report: Report,
    ) -> None:
        self.actual, self.expected, self.scratch = actual, expected, scratch
        self.packs, self.replaced, self.report = packs, replaced, report

    def run(self) -> None:
        report, faulty = self.report, self._unreadable_contents()
        differing = faulty.pop("", set())
        sizes = dict(self.expected.packs())
        for name, size in self.actual.packs():
            if name not in self.packs and name in self.replaced:
                differing |= faulty.get(name, set())  # the ledger is older than a compaction
            elif name not in self.packs:
                report.missing.add(name)
                report.add_problem(f"Pack {name} is missing", self._affected_labels(faulty.get(name, set())))
            elif sizes.get(name, size) != size:
                report.add_ledger_problem(f"The ledger is wrong about the size of pack {name}", [])
        for name in sorted(report.damaged_packs()):
            keys = faulty.get(name, set())
            what = report.unreadable.get(name) or f"pack {name} is damaged"
            words = f"{what[:1].upper()}{what[1:]}: {count_of(len(keys), 'content')} concerned"
            report.add_problem(words, self._affected_labels(keys))
        if differing:
            report.add_ledger_problem(
                f"The ledger is wrong about the place of {count_of(len(differing), 'content')}",
                self._affected_labels(differing),
            )
        self._check_needed(differing.union(*faulty.values()))

    def _unreadable_contents(self) -> dict[str, set[bytes]]:
        """Return by pack the digests that cannot be read there; under the empty name those with a wrong location."""
        report, faulty = self.report, {"": set[bytes]()}
        unlike_expected: dict[str, list[tuple[bytes, Location]]] = {}
        rebuilt = self.expected.locations()
        other = next(rebuilt, None)
        for key, place in self.actual.locations():
            while other is not None and other[0] < key:
                other = next(rebuilt, None)
            if place.pack in report.unreadable or (place.pack, key) in report.bad_copies:
                faulty.setdefault(place.pack, set()).add(key)
            elif (key, place) != other:
                unlike_expected.setdefault(place.pack, []).append((key, place))  # another copy, or a wrong location
        pack_sizes = dict(self.actual.packs())
        for name, entries in unlike_expected.items():
            if name in self.packs:
                index = set(read_index(self.scratch.blobs, name)[1])
                faulty[""].update([entry[0] for entry in entries if entry not in index])
            else:
                faulty.setdefault(name if name in pack_sizes else "", set()).update([key for key, _ in entries])
        return faulty

    def _check_needed(self, faulty: set[bytes]) -> None:
        """Check that every content that a version needs has a location, and every large content all its chunks."""
        needed = self.actual.needed_contents() | self.expected.needed_contents() | self._documents()
        located = self.actual.locate(sorted(needed))
        absent = needed - located.keys()
        places_elsewhere = self.expected.locate(sorted(absent))
        if places_elsewhere:
            self.report.add_ledger_problem(
                f"The ledger lacks {count_of(len(places_elsewhere), 'content')}",
                self._affected_labels(set(places_elsewhere)),
            )
        lost_contents = absent - places_elsewhere.keys()
        if lost_contents:
            self.report.add_problem(
                f"Missing from the store: {count_of(len(lost_contents), 'content')}",
                self._affected_labels(lost_contents),
            )
        broken, chunks = self._incomplete_lists(located, faulty)
        if broken:
            self.report.add_problem(
                f"Incomplete, chunks missing: {count_of(len(broken), 'large content')}", self._affected_labels(broken)
            )
        self.report.lost_contents = absent | broken | chunks

    def _documents(self) -> set[bytes]:
        """Return the documents of living versions that have a location; missing ones are reported elsewhere."""
        documents = {row.document for ledger in (self.actual, self.expected) for row in ledger.find(Query())}
        return set(self.expected.locate(sorted(documents)))

    def _incomplete_lists(self, located: dict[bytes, Location], faulty: set[bytes]) -> tuple[set[bytes], set[bytes]]:
        """Return large contents that cannot be assembled, and their missing chunks."""
        broken, missing = set(), set()
        for key, place in located.items():
            if place.kind not in (CHUNKS, LIST) or key in faulty:
                continue
            chunks = self._contents_of_list(place, faulty)
            absent = chunks - self.actual.locate(list(chunks)).keys()
            if absent or key in self.report.lost_contents or not faulty.isdisjoint(chunks):
                broken.add(key)
                missing |= absent
        return broken, missing

    def _contents_of_list(self, place: Location, faulty: set[bytes]) -> set[bytes]:
        """Return the digests in a list, and in the lists that it names."""
        contents: set[bytes] = set()
        waiting = [place]
        while waiting:
            data = self.scratch.contents.fetch(waiting.pop())
            named = {data[at : at + 32] for at in range(0, len(data), 32)} - contents
            contents |= named
            if place.kind == LIST:
                below = self.actual.locate(sorted(named - faulty))
                waiting += [other for other in below.values() if other.kind == LIST]
        return contents

    def _affected_labels(self, keys: set[bytes]) -> list[str]:
        return list(dict.fromkeys(affected_labels(self.actual, keys) + affected_labels(self.expected, keys)))
