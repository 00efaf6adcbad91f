"""Count the contents that are sealed with each key set; needs no key."""

from __future__ import annotations

from keepfast.store.repository import Repository
from keepfast.store.rows import SEALED


class KeySetUse:
    """A key set of a store: is its key here, does it seal new contents, and how many are sealed with it?"""

    def __init__(self, id: str, opens: bool, seals: bool, contents: int) -> None:
        self.id, self.opens, self.seals, self.contents = id, opens, seals, contents


def count_key_use(repository: Repository) -> list[KeySetUse]:
    """Return every key set of the store, with those that only contents name: they came with a bundle whose passphrase
    was not given yet.
    """
    sealer = repository.contents.sealer()
    opens, current = dict(sealer.keys.sets()), sealer.keys.seals_with()
    numbers = dict.fromkeys(opens, 0)
    # In the order of the packs, so that each pack is opened once.
    places = sorted({place for _, place in repository.ledger.locations() if place.kind == SEALED})
    for place in places:
        name = repository.contents.sealed_head(place)[5:13].hex()
        if name:
            numbers[name] = numbers.get(name, 0) + 1
    return [KeySetUse(name, opens.get(name, False), name == current, number) for name, number in numbers.items()]
