"""Where the ledger says that contents lie, followed to the packs: whatever a version needs must be had there."""

from __future__ import annotations

from keepfast.store.maintenance.findings import concerned, many
from keepfast.store.packs import read_index
from keepfast.store.rows import CHUNKS, LIST, Query

TYPE_CHECKING = False
if TYPE_CHECKING:
    from keepfast.store.ledger.sqlite import SqliteLedger
    from keepfast.store.maintenance.findings import Report
    from keepfast.store.repository import Repository
    from keepfast.store.rows import Location


def follow(
    actual: SqliteLedger,
    expected: SqliteLedger,
    scratch: Repository,
    packs: set[str],
    replaced: set[str],
    report: Report,
) -> None:
    """Follow every digest of the `actual` ledger, and say which cannot be had and which versions need them.

    `packs` are there; those in `replaced` have been, before a compaction. The report knows already which copies are bad.
    """
    _Following(actual, expected, scratch, packs, replaced, report).run()


class _Following:
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
        report, faulty = self.report, self._faulty()
        wrong = faulty.pop("", set())
        sizes = dict(self.expected.packs())
        for name, size in self.actual.packs():
            if name not in self.packs and name in self.replaced:
                wrong |= faulty.get(name, set())  # the ledger is older than a compaction
            elif name not in self.packs:
                report.missing.add(name)
                report.say(f"Pack {name} is missing", self._concerned(faulty.get(name, set())))
            elif sizes.get(name, size) != size:
                report.wrong(f"The ledger is wrong about the size of pack {name}", [])
        for name in sorted(report.damaged_packs()):
            keys = faulty.get(name, set())
            what = report.unreadable.get(name) or f"pack {name} is damaged"
            words = f"{what[:1].upper()}{what[1:]}: {many(len(keys), 'content')} concerned"
            report.say(words, self._concerned(keys))
        if wrong:
            report.wrong(
                f"The ledger is wrong about the place of {many(len(wrong), 'content')}", self._concerned(wrong)
            )
        self._needed(wrong.union(*faulty.values()))

    def _faulty(self) -> dict[str, set[bytes]]:
        """Digests that cannot be had where the ledger says, by pack; under the empty name those it is wrong about."""
        report, faulty = self.report, {"": set[bytes]()}
        odd: dict[str, list[tuple[bytes, Location]]] = {}
        truth = self.expected.locations()
        other = next(truth, None)
        for key, place in self.actual.locations():
            while other is not None and other[0] < key:
                other = next(truth, None)
            if place.pack in report.unreadable or (place.pack, key) in report.bad:
                faulty.setdefault(place.pack, set()).add(key)
            elif (key, place) != other:
                odd.setdefault(place.pack, []).append((key, place))  # another copy, or not so
        known = dict(self.actual.packs())
        for name, entries in odd.items():
            if name in self.packs:
                index = set(read_index(self.scratch.blobs, name)[1])
                faulty[""].update([entry[0] for entry in entries if entry not in index])
            else:
                faulty.setdefault(name if name in known else "", set()).update([key for key, _ in entries])
        return faulty

    def _needed(self, faulty: set[bytes]) -> None:
        """Everything that a version refers to must have a place; a large content needs all its chunks."""
        needed = self.actual.wanted() | self.expected.wanted() | self._documents()
        located = self.actual.locate(sorted(needed))
        absent = needed - located.keys()
        known = self.expected.locate(sorted(absent))
        if known:
            self.report.wrong(f"The ledger lacks {many(len(known), 'content')}", self._concerned(set(known)))
        gone = absent - known.keys()
        if gone:
            self.report.say(f"Missing from the store: {many(len(gone), 'content')}", self._concerned(gone))
        broken, chunks = self._lists(located, faulty)
        if broken:
            self.report.say(
                f"Incomplete, chunks missing: {many(len(broken), 'large content')}", self._concerned(broken)
            )
        self.report.gone = absent | broken | chunks

    def _documents(self) -> set[bytes]:
        """Documents of the living versions, as far as they can be read at all: others are found missing later."""
        wanted = {row.document for ledger in (self.actual, self.expected) for row in ledger.find(Query())}
        return set(self.expected.locate(sorted(wanted)))

    def _lists(self, located: dict[bytes, Location], faulty: set[bytes]) -> tuple[set[bytes], set[bytes]]:
        """Large contents that cannot be put together, and the chunks that are to blame."""
        broken, missing = set(), set()
        for key, place in located.items():
            if place.kind not in (CHUNKS, LIST) or key in faulty:
                continue
            chunks = self._named(place, faulty)
            absent = chunks - self.actual.locate(list(chunks)).keys()
            if absent or key in self.report.gone or not faulty.isdisjoint(chunks):
                broken.add(key)
                missing |= absent
        return broken, missing

    def _named(self, place: Location, faulty: set[bytes]) -> set[bytes]:
        """What a list names, and what the lists that it names do."""
        found: set[bytes] = set()
        waiting = [place]
        while waiting:
            data = self.scratch.contents.fetch(waiting.pop())
            named = {data[at : at + 32] for at in range(0, len(data), 32)} - found
            found |= named
            if place.kind == LIST:
                below = self.actual.locate(sorted(named - faulty))
                waiting += [other for other in below.values() if other.kind == LIST]
        return found

    def _concerned(self, keys: set[bytes]) -> list[str]:
        return list(dict.fromkeys(concerned(self.actual, keys) + concerned(self.expected, keys)))
