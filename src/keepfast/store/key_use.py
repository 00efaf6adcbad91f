"""Which contents of a store are sealed with which key set: told without any key."""

from __future__ import annotations

from keepfast.store.rows import SEALED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from keepfast.store.repository import Repository


class KeySet:
    """A key set of a store: does it open, does it seal what is new, and how many contents are sealed with it?"""

    def __init__(self, id: str, opens: bool, seals: bool, contents: int) -> None:
        self.id, self.opens, self.seals, self.contents = id, opens, seals, contents


def use_of_keys(repository: Repository) -> list[KeySet]:
    """Every key set of the store.

    Sets that only contents name are among them: they came with a bundle, and nobody has given its passphrase yet.
    """
    sealer = repository.contents.sealer()
    opens, current = dict(sealer.keys.sets()), sealer.keys.seals_with()
    numbers = dict.fromkeys(opens, 0)
    # In the order of the packs, so that each is opened once.
    places = sorted({place for _, place in repository.ledger.locations() if place.kind == SEALED})
    for place in places:
        name = repository.contents.sealed_head(place)[5:13].hex()
        if name:
            numbers[name] = numbers.get(name, 0) + 1
    return [KeySet(one, opens.get(one, False), one == current, number) for one, number in numbers.items()]
