"""A new passphrase must be long, or mixed, enough; what everybody tries first counts for next to nothing."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from string import ascii_letters, digits

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.model.errors import Usage
from keepfast.secrets.strength import MIN_BITS, require_strong, strength

WEAK = [
    "", "a", "secret", "passphrase", "correct horse", "correct horse battery staple", "Password2024!", "P@ssw0rd!P@ssw0rd!",
    "qwertyuiopasdfghjklzxcvbnm", "1234567890123456789012", "a" * 200, "abab" * 40, "Summer2026!!", "aA1!" * 20,
    "letmein letmein letmein", "quartz lemon quartz lemon", "zyxwvutsrqponmlkjihgfedcba", "a tree",
    "1qaz2wsx3edc4rfv", "1q2w3e4r5t6y7u8i", "a1b2c3d4e5f6g7h8", "!QAZ2wsx#EDC4rfv", "zaq12wsxcde34rfv", "1!2@3#4$5%6^7&8*",
    "q1w2e3r4t5y6u7i8", "john.smith@example.com", "mondaytuesdaywednesday", "Monday Tuesday Wednesday Thursday",
    "januaryfebruarymarch",
    "PQXZKVWJTLMR", "Orbit cheese quiet", "LampOrbitQuiet", "P@$$w0rd-K7x9q", "PASSWORD-K7X!Q", "llaammppoorrbbiittqq",
    "secret K7x!q9p secret",
]  # fmt: skip
STRONG = [
    "a passphrase of some length", "four unrelated words here", "lamp orbit cheese quiet", "g7Kp2!xQ9vRt",
    "0f83c6e1b7a94d52", "tHk93mQzL0wd", "비밀번호는열두글자가넘어요", "straße lampe orbit",
]  # fmt: skip


@pytest.mark.parametrize("words", WEAK)
def test_a_weak_one_is_refused_with_its_strength(words: str) -> None:
    with pytest.raises(Usage) as caught:
        require_strong(words)

    assert strength(words) < MIN_BITS
    assert str(strength(words)) in str(caught.value) and str(MIN_BITS) in str(caught.value)


@pytest.mark.parametrize("words", STRONG)
def test_a_strong_one_is_taken(words: str) -> None:
    require_strong(words)


def test_fourteen_mixed_characters_will_do() -> None:
    random = Random(1)
    made = ["".join(random.choices(ascii_letters + digits + "!#%", k=14)) for _ in range(1000)]

    refused = [words for words in made if strength(words) < MIN_BITS]

    assert len(refused) <= 60, refused


def test_the_guide_says_what_a_well_known_sentence_counts() -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/secrets.md").read_text(encoding="utf-8")
    said = re.search(r"`(correct horse battery staple \w+)` has (\d+) bits", guide)

    assert said and strength(said[1]) == int(said[2]) < MIN_BITS
    with pytest.raises(Usage) as caught:
        require_strong(said[1])
    assert "well-known" in caught.value.hint


@given(few=st.text(max_size=8), often=st.integers(1, 40))
def test_a_few_characters_are_weak_however_often_they_come(few: str, often: int) -> None:
    assert strength(few * often) < MIN_BITS
