"""Texts that are cut short: what is left of them holds no half of a secret that redaction would not find."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from keepfast.agents.turns import INPUT, OUTPUT_HEAD, OUTPUT_TAIL, clip, clip_input, clip_output
from keepfast.mcp.answer_forms import safe_text
from keepfast.resume import brief_notes, notes
from keepfast.secrets.cuts import head, tail
from keepfast.secrets.redaction import redact

from .planted_secrets import MIXED, pem
from .samples import Sample, known

SHOWN = 9
"""So many letters in a row tell something of a key."""


def text_with(secret: str, before: int, behind: int) -> str:
    return "some words " * (before // 11) + "." * (before % 11) + f" {secret} " + " more words" * (behind // 11)


def is_told(secret: str, text: str) -> bool:
    return any(secret[at : at + SHOWN] in text for at in range(4, len(secret) - SHOWN + 1))


@pytest.mark.parametrize("kind", ["github-token", "slack-token", "url-password", "openai-key", "aws-key"])
def test_a_cut_at_any_place_leaves_no_half_of_a_key(kind: str) -> None:
    secret = next(sample.value for sample in known(7) if sample.kind == kind)
    secret = secret.partition("@")[0]
    text = text_with(secret + "@host.example" if "://" in secret else secret, 300, 300)
    inside = secret.partition("://")[2].partition(":")[2] or secret
    for most in range(290, 320 + len(secret)):
        assert not is_told(inside, redact(head(text, most))), most
        assert not is_told(inside, redact(tail(text, len(text) - most))), most
        assert len(head(text, most)) <= most and len(tail(text, len(text) - most)) <= len(text) - most


def test_a_cut_between_a_name_and_its_value_takes_both() -> None:
    text = "some words password = hunTer2x9-Zq and more"
    for most in range(len("some words "), len(text)):
        assert "Ter2x9" not in redact(tail(text, len(text) - most)), most


def test_a_cut_within_a_private_key_leaves_none_of_its_lines() -> None:
    key = pem(Random(3))
    text = text_with(key, 500, 500)
    for most in range(480, 540 + len(key), 37):
        for left in (redact(head(text, most)), redact(tail(text, len(text) - most))):
            assert not [line for line in key.split("\n")[1:-1] if line[:40] in left or line[-20:] in left]


@pytest.mark.parametrize(
    ("cut", "place"),
    [
        (lambda text: clip(text, "said"), "said"),
        (clip_output, OUTPUT_HEAD),
        (lambda text: clip_input({"a": text})["a"], INPUT),
        (lambda text: brief_notes.clip(text, 400), 280),
        (lambda text: brief_notes.clip(text, 60), 59),
        (lambda text: notes.shortened(text, 80), 79),
        (lambda text: safe_text(text, 1000), 1000),
    ],
)
def test_every_text_of_a_conversation_is_cut_so(cut: Callable[[str], str], place: int | str) -> None:
    from keepfast.agents.turns import MAX_CHARACTERS

    at = MAX_CHARACTERS[place] * 3 // 4 if isinstance(place, str) else place
    sample = Sample("github-token", "ghp_" + "".join(Random(5).choices(MIXED, k=36)))
    for before in range(at - 36, at, 5):
        text = text_with(sample.value, before, at + OUTPUT_HEAD + OUTPUT_TAIL + 4 * INPUT)
        assert len(cut(text)) < len(text)
        assert not is_told(sample.value, redact(cut(text))), before


def test_the_end_of_an_output_is_cut_so() -> None:
    sample = Sample("github-token", "ghp_" + "".join(Random(6).choices(MIXED, k=36)))
    for behind in range(OUTPUT_TAIL - 36, OUTPUT_TAIL + 10, 5):
        text = "a word " * OUTPUT_HEAD + sample.value + " " * (behind % 7) + " words " * (behind // 7)
        assert not is_told(sample.value, redact(clip_output(text)))


def test_a_text_without_a_secret_is_cut_where_it_was_asked_for() -> None:
    text = "an ordinary_and_rather_long_name " * 100
    for most in range(1, 200, 7):
        assert head(text, most) == text[:most]
        assert tail(text, most) == text[-most:]
    assert head("abc", 5) == tail("abc", 5) == "abc"
