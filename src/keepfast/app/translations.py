"""Translations: one TOML file per language in `languages/`, loaded on first use."""

from __future__ import annotations

from functools import cache
from os.path import dirname
from tomllib import load

FOLDER = dirname(dirname(__file__)) + "/languages"


@cache
def catalogue(language: str) -> dict[str, dict[str, str]]:
    """Return the tables of a language: messages, words, and the sentences of the page."""
    with open(f"{FOLDER}/{language}.toml", "rb") as file:
        return load(file)
