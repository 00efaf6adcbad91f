"""The signs that speak for a block are what their names say, however many spans and blocks there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.agents.working_file import Span, WorkingFile
from keepfast.resume.ranking import FEATURES, collect, stem
from keepfast.resume.signals import Signals
from keepfast.resume.spans import FAR, LONG, MAX_SPANS, NARROW, NOWHERE, SHORT, SMALL, Nearness, fading

NOW = 50
spans = st.builds(Span, st.integers(0, NOW), st.integers(1, 60), st.integers(0, 30))
sizes = st.lists(st.integers(1, 9), min_size=1, max_size=12)


@given(st.lists(spans, max_size=25), st.lists(spans, max_size=25), sizes, st.integers(0, 5))
def test_nearness_is_that_of_every_span_to_every_block(
    hunks: list[Span], reads: list[Span], sizes: list[int], gap: int
) -> None:
    blocks, at = [], 0
    for size in sizes:
        blocks.append((at, at + size - 1))
        at += size + gap

    found = Nearness(WorkingFile("a.py", ["x"] * at, hunks=hunks, reads=reads), blocks, NOW)

    placed = [hunk for hunk in hunks if hunk.count or hunk.start > 1][-MAX_SPANS:]
    last_edit = max([hunk.at for hunk in hunks], default=-1)
    for number, (first, last) in enumerate(blocks):
        away = [max(0, hunk.start - (last + 1), first + 1 - hunk.end) for hunk in placed]
        assert found.closest[number] == min([*away, NOWHERE])
        assert found.overs[number] == away.count(0)
        near = [fading(NOW - hunk.at, LONG) / (1 + far / FAR) for hunk, far in zip(placed, away, strict=True)]
        assert found.near_long[number] == pytest.approx(max(near, default=0.0))
        over = [span for span in reads[-MAX_SPANS:] if span.start <= last + 1 and span.end >= first + 1]
        fresh = [(fading(NOW - span.at), span) for span in over]
        assert found.read[number] == max([one for one, _ in fresh], default=0.0)
        assert found.read_lately[number] == max([fading(NOW - span.at, SHORT) for span in over], default=0.0)
        narrow = [one * min(1.0, NARROW / max(span.count, 1)) for one, span in fresh]
        assert found.narrow[number] == max(narrow, default=0.0)
        small = [one * min(1.0, SMALL / max(span.count, 1)) for one, span in fresh if span.at > last_edit]
        assert found.small[number] == max(small, default=0.0)


def signs(files: list[WorkingFile], signals: Signals, path: str) -> list[dict[str, float]]:
    """The signs of a file's blocks, by name."""
    return [
        dict(zip(FEATURES, block.signs, strict=True))
        for block in collect(files, signals)
        if files[block.file].path == path
    ]


def module(name: str, **known: object) -> WorkingFile:
    lines: list[str | None] = [line for at in range(8) for line in (f"def {name}_{at}():", f"    return {at}", "")]
    return WorkingFile(f"/w/{name}.py", lines, **known)  # type: ignore[arg-type]


def test_the_place_of_the_last_change_of_all_stands_out() -> None:
    cart = module("cart", hunks=[Span(40, 4, 1)])
    order = module("order", hunks=[Span(30, 1, 1)])

    near = [one["latest"] for one in signs([cart, order], Signals(now=NOW), "/w/cart.py")]

    assert near[1] == max(near) == 1.0 and near[-1] < 0.5
    assert {one["latest"] for one in signs([cart, order], Signals(now=NOW), "/w/order.py")} == {0.0}


def test_a_test_is_the_sibling_of_its_module() -> None:
    files = [module("cart", hunks=[Span(NOW, 4, 1)]), module("test_cart"), module("order")]

    assert signs(files, Signals(now=NOW), "/w/test_cart.py")[0]["sibling"] == 1.0
    assert signs(files, Signals(now=NOW), "/w/order.py")[0]["sibling"] == 0.0
    assert signs(files, Signals(now=NOW), "/w/cart.py")[0]["sibling"] == 0.0  # no sibling of itself


@pytest.mark.parametrize(
    "path",
    ["a/cart.go", "a/cart_test.go", "b/cart.test.ts", "cart.spec.ts", "test_cart.py", "tests_cart.py", "Cart.vue"],
)
def test_what_makes_a_test_is_no_part_of_the_name(path: str) -> None:
    assert stem(path) == "cart"


def test_hits_of_searches_and_words_of_open_tasks_count_where_they_stand() -> None:
    signals = Signals(now=NOW, words={"open": {"cart_5": 1.0}}, hits={"cart.py": [(4, 0.7), (999, 1.0)]})

    found = signs([module("cart")], signals, "/w/cart.py")

    assert [one["found"] for one in found].count(0.7) == 1 and found[1]["found"] == 0.7
    assert [bool(one["open"]) for one in found].count(True) == 1 and found[5]["open"] > 0


def test_a_file_changed_often_of_late_counts_by_its_changes() -> None:
    often = module("cart", hunks=[Span(at, 1, 1) for at in (45, 46, 47, 47)])

    assert signs([often], Signals(now=NOW), "/w/cart.py")[0]["edits"] == pytest.approx(1.386, abs=0.001)
    assert signs([often], Signals(now=500), "/w/cart.py")[0]["edits"] == 0.0
