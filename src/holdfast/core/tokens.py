"""How many tokens a text costs at most, without a tokenizer."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Measured on the usage that real clients recorded for tool output: 2.8 characters of code per token is the upper
# quartile for the models of 2025; newer ones write the same code with more tokens, down to 2.1.
CHARACTERS = 2.8
LEAST = 2.0
ENOUGH = 8

WIDE = re.compile(r"[\u1100-\u11ff\u2e80-\ua4cf\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef]")
ASTRAL = re.compile(r"[\U00010000-\U0010ffff]")
FOREIGN = re.compile(r"[^\x00-\x7f]")

# Tokens per character of what is not ASCII, on the safe side of public tokenizers.
WIDE_COST = 1.5
ASTRAL_COST = 3.0
FOREIGN_COST = 1.0


def estimate(text: str, characters: float = CHARACTERS) -> int:
    """Tokens of `text`, rounded up, at so many ASCII characters per token."""
    return int(weigh(text, characters)) + 1 if text else 0


def weigh(text: str, characters: float = CHARACTERS) -> float:
    """The same unrounded, so that parts can be added up."""
    if text.isascii():
        return len(text) / characters
    wide = len(WIDE.findall(text))
    astral = len(ASTRAL.findall(text))
    foreign = len(FOREIGN.findall(text)) - wide - astral
    plain = len(text) - wide - astral - foreign
    return plain / characters + wide * WIDE_COST + astral * ASTRAL_COST + foreign * FOREIGN_COST


def calibrate(measured: Sequence[tuple[int, int]]) -> float:
    """Characters per token of the session's own model, from (characters, tokens) of its tool outputs.

    Reminders and thoughts ride along with an output and make it look dearer than it is, so the upper quartile is
    taken; never more than the general figure, and that figure where too little was measured.
    """
    if len(measured) < ENOUGH:
        return CHARACTERS
    ratios = sorted(characters / tokens for characters, tokens in measured if tokens > 0)
    if len(ratios) < ENOUGH:
        return CHARACTERS
    return min(CHARACTERS, max(LEAST, ratios[len(ratios) * 3 // 4]))
