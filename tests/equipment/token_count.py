"""Tokens by a public tokenizer, with a factor that covers every model seen so far."""

from __future__ import annotations

import bpe_openai

# Claude's models of 2025 write code with about 1.2 times the tokens of this vocabulary.
FACTOR = 1.2
_vocabulary = bpe_openai.get_encoding("cl100k_base")


def count(text: str) -> float:
    return FACTOR * len(_vocabulary.encode_ordinary(text))
