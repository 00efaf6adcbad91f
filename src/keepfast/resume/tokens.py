"""How many tokens a text costs at most, without a tokenizer."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Measured on the usage that real clients recorded for tool output: 2.8 characters of code per token is the upper
# quartile for the models of 2025; newer ones write the same code with more tokens, down to 2.1.
CHARACTERS = 2.8
MIN_CHARACTERS = 2.0
ENOUGH = 8

WIDE = re.compile(r"[\u1100-\u11ff\u2e80-\ua4cf\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef]")
ASTRAL = re.compile(r"[\U00010000-\U0010ffff]")
FOREIGN = re.compile(r"[^\x00-\x7f]")

# What tokenizers make one token of, at best: a short word, three digits, two signs, a line end with its indentation.
PIECE = re.compile(
    r"[A-Z]?[a-z]{1,11}|[A-Z]{1,11}|[0-9]{1,3}|[^\sA-Za-z0-9]{1,2}|[ \t]*\n[ \t\n]*|[ \t]{2,}|\t| (?=[0-9])"
)
RUN = re.compile(r"[A-Za-z0-9+/=_-]{40,}")
# Public vocabularies make fewer pieces of code than the models of 2025 do.
PIECES = 1.25
RANDOM_COST = 0.9

# Tokens per character of what is not ASCII, on the safe side of public tokenizers.
WIDE_COST = 1.8
ASTRAL_COST = 3.8
FOREIGN_COST = 1.2


def estimate(text: str, characters: float = CHARACTERS) -> int:
    """Return an upper bound of the tokens of `text`, at so many ASCII characters per token, or more where its pieces are denser."""
    if not text:
        return 0
    return int(max(weigh(text, characters), pieces(text) * CHARACTERS / characters)) + 1


def weigh(text: str, characters: float = CHARACTERS) -> float:
    """Return an estimate of the tokens by length alone: fast, and can be added up."""
    if text.isascii():
        return len(text) / characters
    wide = len(WIDE.findall(text))
    astral = len(ASTRAL.findall(text))
    foreign = len(FOREIGN.findall(text)) - wide - astral
    plain = len(text) - wide - astral - foreign
    return plain / characters + wide * WIDE_COST + astral * ASTRAL_COST + foreign * FOREIGN_COST


def pieces(text: str) -> float:
    """Return an estimate of the tokens by kinds of text: tables of numbers and minified code have more than their length."""
    foreign = 0.0
    if not text.isascii():
        plain = FOREIGN.sub("", text)
        foreign = weigh(text) - weigh(plain)
        text = plain
    random = sum([len(run) for run in RUN.findall(text) if _is_random(run)])
    return max(len(PIECE.findall(text)) * PIECES, random * RANDOM_COST) + foreign


def _is_random(run: str) -> bool:
    """Return whether a word looks random: keys and encoded bytes mix cases and digits, words do not."""
    return not (run.islower() or run.isupper()) and any(sign.isdigit() for sign in run[:40])


def calibrate(measured: Sequence[tuple[int, int]]) -> float:
    """Return the characters per token of the session's model, from (characters, tokens) of its tool outputs.

    Token counts of an output include reminders and thoughts, so the upper quartile of the ratios is taken. The result
    is at most the general figure, and is that figure if there are too few measurements.
    """
    if len(measured) < ENOUGH:
        return CHARACTERS
    ratios = sorted(characters / tokens for characters, tokens in measured if tokens > 0)
    if len(ratios) < ENOUGH:
        return CHARACTERS
    return min(CHARACTERS, max(MIN_CHARACTERS, ratios[len(ratios) * 3 // 4]))
